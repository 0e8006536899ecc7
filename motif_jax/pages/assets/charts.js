// Shows the values under the pointer. Charts are drawn without this script, which only adds the tooltip.
for (const chart of document.querySelectorAll("[data-chart]")) {
  const { x, from, to, lines } = JSON.parse(chart.dataset.chart);
  const field = chart.querySelector(".field");
  let here, tooltip;
  const brief = (value) => {
    const size = Math.abs(Number(value.toPrecision(4))); // rounded, so that 999999 is 1M
    const unit = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
    return String(Number((value / unit[0]).toPrecision(4))) + unit[1];
  };
  const leave = () => { here?.remove(); tooltip?.remove(); here = tooltip = undefined; };
  field.addEventListener("pointerleave", leave);
  field.addEventListener("pointermove", (event) => {
    const box = field.getBoundingClientRect();
    const wanted = from + ((event.clientX - box.left) / box.width) * (to - from);
    let at = null;
    for (const line of lines) for (const point of line.points)
      if (at === null || Math.abs(point[0] - wanted) < Math.abs(at - wanted)) at = point[0];
    if (at === null) return;
    if (!here) {
      field.append(here = document.createElement("i"), tooltip = document.createElement("div"));
      here.className = "here"; tooltip.className = "tooltip";
    }
    const across = to > from ? (at - from) / (to - from) : 0;
    here.style.left = `${100 * across}%`;
    tooltip.style.left = across < 0.5 ? `calc(${100 * across}% + .5rem)` : "";
    tooltip.style.right = across < 0.5 ? "" : `calc(${100 * (1 - across)}% + .5rem)`;
    tooltip.replaceChildren(document.createTextNode(`${x} ${brief(at)}`));
    for (const line of lines) {
      const near = line.points.reduce((best, point) =>
        best === null || Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best, null);
      if (!near || Math.abs(near[0] - at) > (to - from) / 20) continue;
      const row = document.createElement("div"), dot = document.createElement("i");
      dot.style.background = `var(--${line.colour})`;
      row.append(dot, `${line.name} ${brief(near[1])}`);
      tooltip.append(row);
    }
  });
}
