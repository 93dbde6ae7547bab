"use strict";
// What is under the pointer, or reached with the arrow keys, says more; tables open for print; the command can be copied.
const tip = document.getElementById("tip");
let current = null;

function show(mark) {
  hide();
  current = mark;
  mark.classList.add("at");
  tip.textContent = mark.getAttribute("aria-label").replaceAll("; ", "\n");
  tip.hidden = false;
  const at = mark.getBoundingClientRect(), box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - box.width / 2), innerWidth - box.width - 8);
  const above = at.top - box.height - 8;
  tip.style.left = left + "px";
  tip.style.top = (above > 8 ? above : Math.min(at.bottom + 8, innerHeight - box.height - 8)) + "px";
}

function hide() {
  if (current) current.classList.remove("at");
  current = null;
  tip.hidden = true;
}

// Figures may come later than this script, so that the document listens for all of them.
const figureOf = (event) => event.target instanceof Element ? event.target.closest(".figure") : null;
document.addEventListener("pointerover", (event) => {
  const mark = figureOf(event) && event.target.closest(".mark");
  for (const title of mark ? mark.querySelectorAll(":scope > title") : []) title.remove();
  if (mark) show(mark);
  else if (current && !figureOf(event)) hide();
});
document.addEventListener("focusout", hide);
document.addEventListener("keydown", (event) => {
  const figure = figureOf(event), step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (figure && event.key === "Escape") hide();
  if (!figure || !step) return;
  const marks = [...figure.querySelectorAll(".mark")];
  if (!marks.length) return;
  event.preventDefault();
  const place = marks.indexOf(current);
  show(marks[place < 0 ? (step > 0 ? 0 : marks.length - 1) : (place + step + marks.length) % marks.length]);
});
addEventListener("scroll", hide, { passive: true });

// A link to a folded part opens it; the list of parts shows which one is being read.
function unfold() {
  const part = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const fold = part && part.querySelector(":scope > details");
  if (fold) fold.open = true;
}
addEventListener("hashchange", unfold);
unfold();
const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
const reading = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting || !links.has(target.id)) continue;
    for (const link of links.values()) link.removeAttribute("aria-current");
    links.get(target.id).setAttribute("aria-current", "true");
  }
}, { rootMargin: "-10% 0px -75% 0px" });
for (const part of document.querySelectorAll("main section[id]")) reading.observe(part);

let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const one of folded) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of folded) one.open = false;
});

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "selected";
    }
  });
}
