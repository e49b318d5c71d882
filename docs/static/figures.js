// Draws the figures of a page, each from the JSON inside its div: as it is where there is room, else with the layout for
// the width of a page's text or of a phone. A table, which has no such layout, scrolls.
// The bar of buttons would cover titles, on a phone always.
const CONFIG = { displayModeBar: false };
for (const div of document.querySelectorAll(".plotly-figure")) {
  const { figure, text, column } = JSON.parse(div.querySelector("script").textContent);
  const room = div.clientWidth;
  const other = figure.layout.width > room ? (room < 600 ? column : text) : null;
  if (other) {
    const data = figure.data.map((trace, i) => {
      const { bar, ...changed } = other.traces[i];
      const marker = bar ? { marker: { ...trace.marker, colorbar: bar } } : {};
      return { ...trace, ...changed, ...marker };
    });
    const layout = { template: figure.layout.template, ...other.layout, width: room };
    Plotly.newPlot(div, data, layout, CONFIG);
  } else {
    Plotly.newPlot(div, figure.data, figure.layout, CONFIG);
  }
}
