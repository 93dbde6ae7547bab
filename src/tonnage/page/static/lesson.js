"use strict";
// Plays the lesson: the server simulates all steps, or the page holds recorded ones; this draws them as far as the playhead has come.
(() => {
  const form = find("lesson"), canvas = find("slots"), at = find("at"), play = find("play");
  const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  const recorded = find("recorded") && JSON.parse(find("recorded").textContent);
  const ROW = 22, LABEL = 58, QUEUE = 74;
  let run = null, place = 0, timer = 0, asked = 0, drawn = 0;
  const figures = [["ttft", "TTFT, mean ticks"], ["e2e", "E2E, mean ticks"], ["rate", "requests per 1,000 ticks"],
    ["tokens", "tokens per 1,000 ticks"], ["busy", "% of the slots busy"], ["queued", "in the queue"]];
  const shown = (value) => value === null || value === undefined ? "–" : Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : +value.toFixed(2) + "";

  const query = () => new URLSearchParams([...new FormData(form)].filter(([name]) => {
    const box = form.querySelector(`[name="${name}"]`).closest("[data-of]");
    return !box || box.dataset.of === form.elements.load.value;
  })).toString();

  async function ask() {
    const mine = ++asked, text = query();
    if (!recorded) history.replaceState(null, "", "/lesson?" + text);
    const found = recorded ? recorded[text] : await (await fetch("/lesson/run?" + text)).json();
    if (mine !== asked) return;
    if (found.errors) { find("reading").textContent = found.errors.join(" "); return; }
    const tick = run && run.steps[place] ? run.steps[place].start : 0;
    run = found;
    find("reading").textContent = run.reading;
    at.max = run.steps.length - 1;
    place = Math.min(Math.max(run.steps.findIndex((step) => step.start + step.duration > tick), 0), run.steps.length - 1);
    ways();
    draw();
  }

  function ways() {
    const head = ["", "TTFT", "E2E", "requests per 1,000 ticks", "queue at the end"];
    const table = document.createElement("table");
    table.createTHead().insertRow().append(...head.map((name) => Object.assign(document.createElement("th"), { textContent: name, scope: "col", className: name ? "n" : "" })));
    const body = table.createTBody();
    for (const way of run.ways) {
      const row = body.insertRow();
      row.className = way.chosen ? "chosen" : "";
      row.append(Object.assign(document.createElement("th"), { textContent: way.name, scope: "row" }));
      for (const key of ["ttft", "e2e", "rate", "left"]) Object.assign(row.insertCell(), { textContent: shown(way[key]), className: "n" });
    }
    find("ways").replaceChildren(table);
  }

  const curve = (label, name, tone) => ({ label, stroke: () => colour(tone), width: 2, points: { show: false }, value: (_, v) => shown(v), name });
  const axis = () => ({ stroke: () => colour("--soft"), grid: { stroke: () => colour("--hair"), width: 1 }, ticks: { show: false }, font: "11px system-ui" });
  function chart(holder, series) {
    return new uPlot({
      width: holder.clientWidth, height: 190, cursor: { y: false }, legend: { live: false },
      scales: { x: { time: false, range: () => [0, run ? end(run.steps.length - 1) : 1] }, y: { range: (_, low, high) => [0, Math.max(high || 0, 1) * 1.1] } },
      axes: [axis(), axis()], series: [{ label: "tick" }, ...series],
    }, series.map(() => []).concat([[]]), holder);
  }
  const charts = [
    [find("latency"), [curve("TTFT", "ttft", "--tone0"), curve("E2E", "e2e", "--tone2")]],
    [find("rate"), [curve("requests per 1,000 ticks", "rate", "--tone1")]],
  ].map(([holder, series]) => ({ holder, series, plot: chart(holder, series) }));
  const end = (i) => run.steps[i].start + run.steps[i].duration;

  function draw() {
    if (!run) return;
    const step = run.steps[place];
    at.value = place;
    at.setAttribute("aria-valuetext", `step ${place + 1} of ${run.steps.length}, tick ${step.start}`);
    find("figures").replaceChildren(...figures.map(([key, name]) => {
      const box = document.createElement("div");
      box.append(Object.assign(document.createElement("dt"), { textContent: name }), Object.assign(document.createElement("dd"), { textContent: shown(step[key]) }));
      return box;
    }));
    for (const one of charts) {
      const upto = run.steps.slice(0, place + 1);
      one.plot.setData([upto.map((_, i) => end(i)), ...one.series.map((s) => upto.map((each) => each[s.name]))]);
    }
    paint();
  }

  function paint() {
    const slots = run.steps[0].slots.length, wide = canvas.parentElement.clientWidth, tall = slots * ROW + QUEUE + 26;
    const scale = devicePixelRatio || 1, c = canvas.getContext("2d");
    canvas.width = wide * scale;
    canvas.height = tall * scale;
    canvas.style.height = tall + "px";
    c.setTransform(scale, 0, 0, scale, 0, 0);
    const tick = Math.max(6, Math.min(14, (wide - LABEL) / 90)), fits = Math.floor((wide - LABEL) / tick);
    const first = Math.max(0, Math.ceil(end(place)) - fits), x = (t) => LABEL + (t - first) * tick;
    c.font = "12px system-ui, sans-serif";
    c.textBaseline = "middle";
    c.fillStyle = colour("--soft");
    for (let i = 0; i < slots; i++) c.fillText(`slot ${i + 1}`, 0, i * ROW + ROW / 2);
    c.fillText("queue", 0, slots * ROW + 8 + QUEUE / 2);
    const most = Math.max(4, ...run.steps.map((one) => one.queued));
    for (let i = 0; i <= place; i++) {
      const one = run.steps[i], left = Math.max(x(one.start), LABEL), right = x(one.start + one.duration);
      if (right <= LABEL) continue;
      for (let j = 0; j < slots; j++) {
        const kind = one.slots[j], top = j * ROW + 3, inside = ROW - 6;
        if (kind === ".") {
          c.fillStyle = colour("--hair");
          c.globalAlpha = .5;
          c.fillRect(left + .5, top, right - left - 1, inside);
          c.globalAlpha = 1;
        } else if (kind === "P") {
          c.fillStyle = colour("--tone1");
          c.fillRect(left + .5, top, right - left - 1, inside);
        } else {
          c.fillStyle = colour("--tone0");
          c.fillRect(left + .5, top, Math.min(tick, right - left) - 1, inside);
          c.globalAlpha = .28;
          if (right - left > tick + .5) c.fillRect(left + tick - .5, top, right - left - tick, inside);
          c.globalAlpha = 1;
        }
      }
      const height = Math.round(one.queued / most * (QUEUE - 14));
      c.fillStyle = colour("--tone4");
      c.fillRect(left + .5, slots * ROW + 8 + QUEUE - height, right - left - 1, height);
    }
    c.fillStyle = colour("--soft");
    c.textAlign = "center";
    for (let t = Math.ceil(first / 10) * 10; x(t) < wide - 8; t += 10) c.fillText(t, x(t), tall - 8);
    c.fillText(most, LABEL - 14, slots * ROW + 20);
    c.textAlign = "start";
    const step = run.steps[place], count = (kind) => [...step.slots].filter((one) => one === kind).length;
    canvas.setAttribute("aria-label", `Tick ${step.start}: ${count("P")} slots prefill, ${count("=")} decode, ${count(".")} are empty; ${step.queued} requests wait.`);
  }

  function go(to) {
    place = Math.min(Math.max(to, 0), run.steps.length - 1);
    draw();
    if (!timer) find("said").textContent = canvas.getAttribute("aria-label");
    if (place === run.steps.length - 1) pause();
  }
  function pause() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }
  function start() {
    if (place === run.steps.length - 1) place = 0;
    play.textContent = "Pause";
    timer = setInterval(() => go(place + 1), 1000 / +find("speed").value);
  }
  play.addEventListener("click", () => timer ? pause() : start());
  find("step").addEventListener("click", () => { pause(); go(place + 1); });
  find("back").addEventListener("click", () => { pause(); go(place - 1); });
  at.addEventListener("input", () => { pause(); go(+at.value); });
  find("speed").addEventListener("change", () => { if (timer) { pause(); start(); } });
  form.addEventListener("input", (event) => {
    const output = event.target.parentElement.querySelector("output");
    if (output) output.value = event.target.value;
    clearTimeout(drawn);
    drawn = setTimeout(ask, 60);
  });
  addEventListener("resize", () => {
    for (const one of charts) one.plot.setSize({ width: one.holder.clientWidth, height: 190 });
    if (run) paint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  ask().then(() => { if (run && place === 0) go(Math.min(60, run.steps.length - 1)); });
})();
