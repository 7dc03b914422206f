"use strict";
// Draws the figures of the page, in the colours of the reader's theme; on paper light and as wide as the sheet.
(() => {
  const PAPER = { width: 690, shrink: 0.78 };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const plots = [...document.querySelectorAll(".plot")];
  const views = new Map(plots.map((plot) => [plot, JSON.parse(document.getElementById(`${plot.id}-data`).textContent)]));
  const shown = new Map(plots.map((plot) => [plot, 0]));

  const inks = (isDark) => isDark
    ? { ink: "#e6eaf0", line: "#343d4b", axis: "#5b6779", ground: "#14181f" }
    : { ink: "#1b2330", line: "#e3e7ed", axis: "#8b95a5", ground: "#ffffff" };

  function template(isDark, paper) {
    const { ink, line, axis, ground } = inks(isDark);
    const soft = { font: { size: paper ? 10 : 12 } };
    const both = { gridcolor: line, linecolor: axis, zerolinecolor: line, showline: true, ticks: "outside",
      tickcolor: axis, automargin: true, title: { standoff: 8, ...soft } };
    return { layout: {
      font: { family: "system-ui, -apple-system, 'Segoe UI', sans-serif", size: paper ? 10 : 12, color: ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      // Okabe and Ito's colours, told apart by readers with any colour vision; grey in place of black and yellow.
      colorway: ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8A8F98"],
      colorscale: { sequential: "Viridis" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: axis, activecolor: ink },
      hoverlabel: { bgcolor: ground, bordercolor: axis, font: { color: ink } },
      legend: { orientation: "h", yanchor: "bottom", y: 1.02, x: 0, ...soft },
      margin: { l: 64, r: 16, t: 34, b: 48 }, xaxis: both, yaxis: both, hovermode: "closest",
      shapedefaults: { line: { color: ink } }, annotationdefaults: { font: { color: ink } },
    } };
  }

  // Named one by one: Plotly's own choice has a button that sends the figure to its makers' servers.
  const config = { responsive: true, displayModeBar: "hover", displaylogo: false, showTips: false, plotlyServerURL: "",
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]] };

  function draw(plot, isDark, paper) {
    const { data, layout } = views.get(plot)[shown.get(plot)];
    const height = Number(plot.dataset.height) * (paper ? paper.shrink : 1);
    plot.style.height = `${height}px`;
    const sized = paper ? { width: paper.width, height, autosize: false } : { autosize: true };
    return Plotly.react(plot, data, { ...layout, ...sized, template: template(isDark, paper) }, config);
  }

  const drawAll = (isDark, paper) => plots.forEach((plot) => draw(plot, isDark, paper));
  drawAll(dark.matches);
  dark.addEventListener("change", () => drawAll(dark.matches));
  addEventListener("beforeprint", () => drawAll(false, PAPER));
  addEventListener("afterprint", () => drawAll(dark.matches));

  for (const select of document.querySelectorAll("select[data-for]")) {
    select.addEventListener("change", () => {
      const plot = document.getElementById(select.dataset.for);
      shown.set(plot, select.selectedIndex);
      draw(plot, dark.matches);
    });
  }

  // Tables that can be sorted by a click on a column's name, and filtered by words that a row must have.
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const heads = [...table.tHead.rows[0].cells];
    const value = (row, at) => row.cells[at].textContent;
    const figure = (text) => (/^[-+]?[\d,]*\.?\d+$/.test(text) ? Number(text.replaceAll(",", "")) : NaN);

    function compare(a, b) {
      const [x, y] = [figure(a), figure(b)];
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a.localeCompare(b, "en");
      return x - y;
    }

    heads.forEach((head, at) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const sorted = [...rows].sort((a, b) => (down ? -1 : 1) * compare(value(a, at), value(b, at)));
        body.append(...sorted);
      });
    });

    const line = document.createElement("label");
    line.className = "filter";
    const input = Object.assign(document.createElement("input"), { type: "search", placeholder: "words a row must have" });
    const count = document.createElement("span");
    count.setAttribute("aria-live", "polite");
    line.append("Filter ", input, count);
    table.parentElement.before(line);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !words.every((word) => texts.get(row).includes(word));
      const left = rows.filter((row) => !row.hidden).length;
      count.textContent = words.length ? `${left} of ${rows.length} rows` : "";
    });
  }
})();
