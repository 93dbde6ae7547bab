"use strict";
// Sliders move fields, fields ask for an estimate (htmx), and a question that rests is simulated and streamed in.
const RESTS_MS = 500;
const find = (id) => document.getElementById(id);

// The token is behind the "#" of the printed address, and then in the storage of this origin: a cookie would go to every port of this machine.
const came = new URLSearchParams(location.hash.slice(1)).get("token");
if (came) {
  localStorage.setItem("token", came);
  history.replaceState(null, "", location.pathname + location.search);
}
const withToken = () => ({ "x-tonnage-token": localStorage.getItem("token") || "" });
document.addEventListener("htmx:configRequest", (event) => Object.assign(event.detail.headers, withToken()));
for (const note of document.querySelectorAll("[data-needs-token]")) {
  fetch("/token", { method: "POST", headers: withToken() }).then((answer) => { note.hidden = answer.ok; });
}

// Sliders: a logarithmic range next to the field that it moves.
const toPlace = (value, low, high) => Math.round(1000 * Math.log(Math.min(Math.max(value, low), high) / low) / Math.log(high / low));
function fromPlace(place, low, high) {
  const value = low * Math.pow(high / low, place / 1000), scale = Math.pow(10, Math.floor(Math.log10(value)) - 1);
  return +(Math.round(value / scale) * scale).toPrecision(2);
}
function follow(root) {
  for (const slider of root.querySelectorAll("input[type=range][data-for]")) {
    const field = find(slider.dataset.for), low = +slider.dataset.low, high = +slider.dataset.high;
    const value = parseFloat(field.value);
    slider.value = value > 0 ? toPlace(value, low, high) : 0;
    slider.setAttribute("aria-valuetext", field.value || "not set");
  }
}
document.addEventListener("input", (event) => {
  const slider = event.target;
  if (slider.matches("input[type=range][data-for]")) {
    const field = find(slider.dataset.for);
    field.value = fromPlace(+slider.value, +slider.dataset.low, +slider.dataset.high);
    slider.setAttribute("aria-valuetext", field.value);
    limited(field);
  } else if (slider.form && slider.form.id === "question") {
    if (slider.dataset.limit) limited(slider);
    follow(slider.form);
  }
});
// A limit that gets a number and has no statistic yet is one on the 95th percentile.
function limited(field) {
  const statistic = field.dataset.limit && field.form && field.form.elements[field.dataset.limit + ".at"];
  if (statistic && !statistic.value && field.value) statistic.value = "p95";
}

// The simulated answer: begun at once for the question of a link, and when a changed one rests; dropped when it changes.
let source = null, resting = 0, shown = "", begun = false;
function stop() {
  clearTimeout(resting);
  if (source) source.close();
  source = null;
  if (find("progress")) find("progress").hidden = true;
}
function simulate(query) {
  stop();
  if (query === shown) return;
  const box = find("progress"), bar = box.querySelector("progress"), said = box.querySelector(".said"), place = find("simulated");
  place.classList.add("old");
  resting = setTimeout(() => {
    box.hidden = false;
    bar.removeAttribute("value");
    said.textContent = "Simulating …";
    const base = place.dataset.base ? "&base=" + encodeURIComponent(place.dataset.base) : "";
    source = new EventSource((place.dataset.stream || "/size/stream") + "?" + query + base);
    source.addEventListener("progress", (event) => {
      const [done, total, name] = JSON.parse(event.data);
      bar.max = total;
      bar.value = done;
      said.textContent = `Simulated ${done} of ${total}: ${name}`;
    });
    const show = (html) => {
      place.classList.remove("old");
      place.innerHTML = html;
      htmx.process(place);
    };
    source.addEventListener("decided", (event) => show(event.data));
    source.addEventListener("answer", (event) => {
      stop();
      shown = query;
      show(event.data);
      document.dispatchEvent(new CustomEvent("answered", { detail: query }));
    });
    source.onerror = () => { if (source && source.readyState === EventSource.CLOSED) stop(); };
  }, begun ? RESTS_MS : 0);
  begun = true;
}
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-stop]")) stop();
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.target.id === "question") follow(document);
  if (event.target.id !== "estimate") return;
  event.target.setAttribute("aria-busy", "false");
  const asked = event.target.querySelector("[data-query]");
  if (document.body.dataset.dragging) stop();
  else if (asked) simulate(asked.dataset.query);
  else stop();
  for (const link of document.querySelectorAll('nav.views a[href^="/size"], nav.views a[href^="/what-if"]')) {
    if (asked) link.href = link.pathname + "?" + asked.dataset.query;
  }
});

// Plans to compare are kept for this tab, and the address of Compare holds them.
const kept = () => JSON.parse(sessionStorage.getItem("plans") || "[]");
document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-compare]");
  if (!link) return;
  event.preventDefault();
  const plans = [...kept().filter((one) => one !== link.dataset.compare), link.dataset.compare].slice(-4);
  location.href = "/compare?" + plans.map((one) => "p=" + encodeURIComponent(one)).join("&");
});
if (location.pathname === "/compare") {
  const plans = new URLSearchParams(location.search).getAll("p").filter(Boolean);
  if (plans.length || !kept().length) sessionStorage.setItem("plans", JSON.stringify(plans));
  else location.replace("/compare?" + kept().map((one) => "p=" + encodeURIComponent(one)).join("&"));
  for (const link of document.querySelectorAll('.plans a[href="/compare"]')) link.addEventListener("click", () => sessionStorage.removeItem("plans"));
}
addEventListener("pagehide", stop);
follow(document);
