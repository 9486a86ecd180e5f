// The charts of the training run are SVG already; this shows the numbers under the pointer, as they
// stand beside each curve.

function attachCurveReader(figure, tooltip) {
  const svg = figure.querySelector("svg");
  const curves = [...svg.querySelectorAll("[data-points]")].map(
      (group) => ({
        name: group.dataset.name,
        points: group.dataset.points.split(" ").map((point) => point.split(",").map(Number)),
      }));
  if (!curves.length) return;
  const all = curves.flatMap((curve) => curve.points);
  const [x0, x1, reach] = ["x0", "x1", "reach"].map((name) => Number(figure.dataset[name]));
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const box = {left: 58, right: width - 14, top: 12, bottom: height - 34};  // as in curve_chart.cpp
  const xAt = (px) => x0 + (px - box.left) / (box.right - box.left) * (x1 - x0);
  const pxOf = (x) => box.left + (box.right - box.left) * (x1 > x0 ? (x - x0) / (x1 - x0) : 0.5);
  const nearest = (points, x) =>
      points.reduce((a, b) => Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a);
  const text = (value) =>
      figure.dataset.percent === "1" ? (100 * value).toFixed(2) + " %" : value.toPrecision(4);
  const marker = document.createElementNS("http://www.w3.org/2000/svg", "path");
  marker.setAttribute("class", "marker");
  svg.appendChild(marker);
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const [x] = nearest(all, xAt((event.clientX - frame.left) / frame.width * width));
    const lines = [`${figure.dataset.x} ${x}`];
    // A curve without a point there has no row. Of a thinned one another point of the same stretch
    // will do, if the row says which.
    for (const {name, points} of curves) {
      const [at, y] = nearest(points, x);
      if (Math.abs(at - x) <= reach)
        lines.push([name, at === x ? text(y) : `${text(y)} at ${figure.dataset.x} ${at}`]);
    }
    marker.setAttribute("d", `M${pxOf(x).toFixed(1)} ${box.top}V${box.bottom}`);
    tooltip.show(event, lines);
  });
  svg.addEventListener("pointerleave", () => {
    marker.setAttribute("d", "");
    tooltip.hide();
  });
}
