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
    if (source) source.abort();
    source = null;
    halt.disabled = true;
    if (words !== undefined) state.textContent = words;
  }
  function answered(html) {
    stop("");
    found.innerHTML = html;
    htmx.process(found);
    htmx.ajax("GET", "/measure", { target: "#runs", select: "#runs", swap: "outerHTML" });
  }
  // Server-sent events that answer a POST, which an EventSource cannot send: each is a line with its kind, then lines of data.
  async function follow(path, words, heard) {
    stop(words);
    halt.disabled = false;
    found.replaceChildren();
    const mine = source = new AbortController(), query = new URLSearchParams(new FormData(form));
    try {
      const answer = await fetch(path + "?" + query, { method: "POST", headers: withToken(), signal: mine.signal });
      if (!answer.ok) throw new Error(await answer.text());
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = "", part = await reader.read(); !part.done; part = await reader.read()) {
        const events = (text + part.value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const [kind, ...data] = event.split("\n");
          ({ answer: answered, ...heard })[kind.slice("event: ".length)](data.map((line) => line.slice("data: ".length)).join("\n"));
        }
      }
      if (source === mine) stop("");
    } catch (error) {
      if (source === mine) stop(error instanceof TypeError ? "The page lost its server." : error.message);
    }
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
    follow("/measure/live", "Preparing …", { live: (data) => {
      const now = JSON.parse(data);
      if (!("sent" in now)) return;
      const last = readings[readings.length - 1];  // a sweep begins its clock again with each load
      now.begun = !last ? 0 : now.elapsed_s < last.elapsed_s ? last.at : last.begun;
      now.at = now.begun + now.elapsed_s;
      readings.push(now);
      state.textContent = now.failed ? `Verdict so far: ${now.failed} of ${now.sent} requests failed.` : "Verdict so far: no request failed; the whole verdict comes with the end.";
      const rows = [["requests sent", text(now.sent)], ["in flight", text(now.in_flight)], ["requests/s", text(now.requests_per_second)],
        ["TTFT p95", text(now.ttft_s && 1e3 * now.ttft_s[1], " ms")], ["TPOT p50", text(now.tpot_s && 1e3 * now.tpot_s[0], " ms")], ["left", text(now.left_s, " s")]];
      find("figures").replaceChildren(...rows.map(([name, value]) => {
        const box = document.createElement("div");
        box.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: value }));
        return box;
      }));
      for (const one of charts) one.plot.setData([readings.map((r) => r.at), ...one.series.map((s) => readings.map((r) => s.read(r) ?? null))]);
    } });
  });
  find("watch").addEventListener("click", () => {
    find("curves").hidden = find("figures").hidden = true;
    follow("/measure/watch", "Watching: the first look takes some seconds …", { look: (html) => {
      found.innerHTML = html;
      state.textContent = "Watching; a look every five seconds.";
    } });
  });
  halt.addEventListener("click", () => stop("Stopped."));
  addEventListener("resize", () => { for (const one of charts) one.plot.setSize({ width: one.holder.clientWidth, height: 190 }); });
  addEventListener("pagehide", () => stop());
})();
