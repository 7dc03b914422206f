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
  const config = { responsive: true, displaylogo: false, showTips: false, plotlyServerURL: "",
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
})();
