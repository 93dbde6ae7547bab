"use strict";
// A measurement as it goes: the server sends a reading twice a second, and the run when it is over.
(() => {
  const form = find("bench");
  if (!form) return;
  const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  const halt = find("halt"), state = find("state"), found = find("found");
  let source = null, charts = [], readings = [];
  const text = (value, unit = "") => value === null || value === undefined ? "–" : (Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : +value.toPrecision(3)) + unit;
  const axis = () => ({ stroke: () => colour("--soft"), grid: { stroke: () => colour("--hair"), width: 1 }, ticks: { show: false }, font: "11px system-ui" });
  const curve = (label, tone, read) => ({ label, stroke: () => colour(tone), width: 2, points: { show: false }, read });

  function chart(holder, series) {
    holder.replaceChildren();
    const plot = new uPlot({
      width: holder.clientWidth, height: 190, cursor: { y: false }, legend: { live: false },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.1] } },
      axes: [axis(), axis()], series: [{ label: "s" }, ...series],
    }, [[], ...series.map(() => [])], holder);
    return { plot, series, holder };
  }
  function stop(words) {
    if (source) source.close();
    source = null;
    halt.disabled = true;
    if (words !== undefined) state.textContent = words;
  }
  function follow(path, words) {
    stop(words);
    halt.disabled = false;
    found.replaceChildren();
    source = new EventSource(path + "?" + new URLSearchParams(new FormData(form)));
    source.addEventListener("answer", (event) => {
      stop("");
      found.innerHTML = event.data;
      htmx.process(found);
      htmx.ajax("GET", "/measure", { target: "#runs", select: "#runs", swap: "outerHTML" });
    });
    source.addEventListener("look", (event) => { found.innerHTML = event.data; });
    source.onerror = () => { if (source && source.readyState === EventSource.CLOSED) stop("The page lost its server."); };
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    readings = [];
    find("curves").hidden = find("figures").hidden = false;
    charts = [
      chart(find("latency"), [curve("TTFT p50", "--tone0", (r) => r.ttft_s && 1e3 * r.ttft_s[0]), curve("TTFT p95", "--tone1", (r) => r.ttft_s && 1e3 * r.ttft_s[1]),
        curve("TPOT p50", "--tone2", (r) => r.tpot_s && 1e3 * r.tpot_s[0])]),
      chart(find("rate"), [curve("requests per second", "--tone0", (r) => r.requests_per_second)]),
    ];
    follow("/measure/live", "Preparing …");
    source.addEventListener("live", (live) => {
      const now = JSON.parse(live.data);
      if (!("sent" in now)) return;
      readings.push(now);
      state.textContent = now.failed ? `Verdict so far: ${now.failed} of ${now.sent} requests failed.` : "Verdict so far: no request failed; the whole verdict comes with the end.";
      const rows = [["requests sent", text(now.sent)], ["in flight", text(now.in_flight)], ["requests/s", text(now.requests_per_second)],
        ["TTFT p95", text(now.ttft_s && 1e3 * now.ttft_s[1], " ms")], ["TPOT p50", text(now.tpot_s && 1e3 * now.tpot_s[0], " ms")], ["left", text(now.left_s, " s")]];
      find("figures").replaceChildren(...rows.map(([name, value]) => {
        const box = document.createElement("div");
        box.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
        return box;
      }));
      for (const one of charts) one.plot.setData([readings.map((r) => r.elapsed_s), ...one.series.map((s) => readings.map((r) => s.read(r) ?? null))]);
    });
  });
  find("watch").addEventListener("click", () => {
    find("curves").hidden = find("figures").hidden = true;
    follow("/measure/watch", "Watching: the first look takes some seconds …");
    source.addEventListener("look", () => { state.textContent = "Watching; a look every five seconds."; });
  });
  halt.addEventListener("click", () => stop("Stopped."));
  addEventListener("resize", () => { for (const one of charts) one.plot.setSize({ width: one.holder.clientWidth, height: 190 }); });
  addEventListener("pagehide", () => stop());
})();
