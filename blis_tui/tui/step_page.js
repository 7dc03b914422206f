"use strict";
// Shows one event of the page at a time. The address ends in its number, so that a place can be sent to others.
(() => {
  const { lines, states, panes, opened } = JSON.parse(document.getElementById("data").textContent);
  const [list, at, find, place] = ["events", "at", "find", "place"].map((id) => document.getElementById(id));
  const boxes = panes.map((name) => {
    const section = document.createElement("section");
    const title = Object.assign(document.createElement("h2"), { textContent: name });
    const text = document.createElement("pre");
    section.append(title, text);
    document.getElementById("panes").append(section);
    return { section, text };
  });
  const items = states.map((state, index) => {
    const item = document.createElement("li");
    const sign = Object.assign(document.createElement("b"), { textContent: state.sign, className: state.colour });
    item.append(`${String(state.event).padStart(7)} ${state.time.padStart(15)} `, sign, ` ${state.text}`);
    item.addEventListener("click", () => show(index));
    list.append(item);
    return item;
  });
  let here = -1;

  function show(index) {
    if (!states.length) return;
    const next = Math.min(Math.max(index, 0), states.length - 1);
    if (here >= 0) items[here].removeAttribute("aria-current");
    here = next;
    const state = states[here];
    items[here].setAttribute("aria-current", "true");
    items[here].scrollIntoView({ block: "nearest" });
    boxes.forEach(({ section, text }, pane) => {
      text.innerHTML = state.panes[pane].map((line) => lines[line]).join("\n");
      section.hidden = !state.panes[pane].length;
    });
    at.value = String(here);
    place.textContent = `event ${state.event} · ${state.time}`;
    if (location.hash !== `#${state.event}`) history.replaceState(null, "", `#${state.event}`);
  }

  const indexOf = (event) => states.findIndex((state) => state.event === event);

  function hit(step) {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return;
    for (let index = here + step; index >= 0 && index < states.length; index += step) {
      const text = states[index].text.toLowerCase();
      if (words.every((word) => text.includes(word))) return show(index);
    }
  }

  function follow() {
    const index = indexOf(Number(location.hash.slice(1)));
    if (index >= 0) show(index);
    return index >= 0;
  }

  const keys = {
    j: () => show(here + 1), ArrowDown: () => show(here + 1), ArrowRight: () => show(here + 1),
    k: () => show(here - 1), ArrowUp: () => show(here - 1), ArrowLeft: () => show(here - 1),
    PageDown: () => show(here + 20), PageUp: () => show(here - 20),
    Home: () => show(0), End: () => show(states.length - 1),
    n: () => hit(1), N: () => hit(-1), "/": () => find.focus(),
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys) || event.target === find) return;
    event.preventDefault();
    keys[event.key]();
  });
  at.max = String(states.length - 1);
  at.addEventListener("input", () => show(Number(at.value)));
  document.getElementById("back").addEventListener("click", () => show(here - 1));
  document.getElementById("on").addEventListener("click", () => show(here + 1));
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") hit(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") find.blur();
  });
  addEventListener("hashchange", follow);
  if (!follow()) show(indexOf(opened));
})();
