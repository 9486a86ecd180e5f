// The charts of the training run are SVG already; this shows the numbers under the pointer.

function attachCurveReader(figure, tooltip) {
  const svg = figure.querySelector("svg");
  const curves = [...svg.querySelectorAll("polyline")].map((line) => ({name: line.dataset.name, points: [...line.points].map((p) => [p.x, p.y])}));
  if (!curves.length) return;
  const number = (name) => Number(figure.dataset[name]);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const box = {left: 58, right: width - 14, top: 12, bottom: height - 34};  // as in curve_chart.cpp
  const xOf = (px) => number("x0") + (px - box.left) / (box.right - box.left) * (number("x1") - number("x0"));
  const yOf = (py) => number("y0") + (box.bottom - py) / (box.bottom - box.top) * (number("y1") - number("y0"));
  const text = (value) => number("percent") ? (100 * value).toFixed(2) + " %" : value.toPrecision(4);
  const marker = document.createElementNS("http://www.w3.org/2000/svg", "path");
  marker.setAttribute("class", "marker");
  svg.appendChild(marker);
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const px = (event.clientX - frame.left) / frame.width * width;
    const nearest = curves.map((curve) => curve.points.reduce((a, b) => Math.abs(b[0] - px) < Math.abs(a[0] - px) ? b : a));
    marker.setAttribute("d", `M${nearest[0][0]} ${box.top}V${box.bottom}`);
    tooltip.show(event, [`${figure.dataset.x} ${Math.round(xOf(nearest[0][0]))}`,
      ...nearest.map((point, i) => [curves[i].name, text(yOf(point[1]))])]);
  });
  svg.addEventListener("pointerleave", () => {
    marker.setAttribute("d", "");
    tooltip.hide();
  });
}
