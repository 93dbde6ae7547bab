"use strict";
// Limits in the figure of latency against load can be dragged: the field of the question follows, and with it the systems.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const round = (ms) => +(+ms.toPrecision(2)).toFixed(2);

  function handles(holder) {
    const limits = JSON.parse(holder.dataset.limits);
    for (const figure of holder.querySelectorAll("svg.figure")) {
      const scale = figure.querySelector(".scale");
      if (!scale) continue;
      const [low, high, top, bottom] = ["low", "high", "top", "bottom"].map((name) => +scale.dataset[name]);
      const y = (ms) => bottom + (top - bottom) * Math.log(Math.min(Math.max(ms, low), high) / low) / Math.log(high / low);
      const ms = (place) => low * Math.pow(high / low, (bottom - Math.min(Math.max(place, top), bottom)) / (bottom - top));
      const lines = [...figure.querySelectorAll("line.limit")].filter((one) => one.getAttribute("y1") === one.getAttribute("y2"));
      const labels = [...figure.querySelectorAll("text.limit-label")];
      lines.forEach((line, i) => limits[i] && handle(figure, line, labels[i], limits[i], y, ms));
    }
  }

  function handle(figure, line, label, limit, y, ms) {
    const field = find("f-" + limit.metric), statistic = field && field.form.elements[limit.metric + ".at"];
    if (!field || statistic.value !== limit.statistic) return;
    const grip = document.createElementNS(NS, "line"), name = `${limit.metric.toUpperCase()} ${limit.statistic}`;
    for (const key of ["x1", "x2", "y1", "y2"]) grip.setAttribute(key, line.getAttribute(key));
    grip.classList.add("grip");
    for (const [key, value] of Object.entries({ tabindex: 0, role: "slider", "aria-label": `Limit on ${name}, ms`, "aria-orientation": "vertical" })) grip.setAttribute(key, value);
    const put = (value, ask) => {
      const place = y(value);
      for (const one of [line, grip]) for (const key of ["y1", "y2"]) one.setAttribute(key, place);
      if (label) {
        label.setAttribute("y", place - 5);
        label.textContent = `${name} ≤ ${value} ms`;
      }
      grip.setAttribute("aria-valuenow", value);
      grip.setAttribute("aria-valuetext", `${value} ms`);
      if (!ask) return;
      field.value = value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    };
    put(limit.ms, false);
    grip.addEventListener("pointerdown", (event) => {
      grip.setPointerCapture(event.pointerId);
      document.body.dataset.dragging = "1";
    });
    grip.addEventListener("pointermove", (event) => {
      if (!grip.hasPointerCapture(event.pointerId)) return;
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(figure.getScreenCTM().inverse());
      put(round(ms(at.y)), true);
    });
    const drop = () => {
      if (!document.body.dataset.dragging) return;
      delete document.body.dataset.dragging;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    };
    grip.addEventListener("pointerup", drop);
    grip.addEventListener("pointercancel", drop);
    grip.addEventListener("keydown", (event) => {
      const step = { ArrowUp: 1.1, ArrowDown: 1 / 1.1, PageUp: 1.5, PageDown: 1 / 1.5 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      put(round(+field.value * step), true);
    });
    figure.append(grip);
  }

  document.addEventListener("answered", () => {
    const holder = document.querySelector("#simulated [data-limits]");
    if (holder) handles(holder);
  });
})();
