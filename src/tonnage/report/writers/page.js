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

for (const title of document.querySelectorAll(".mark > title")) title.remove();
for (const figure of document.querySelectorAll(".figure")) {
  const marks = [...figure.querySelectorAll(".mark")];
  let place = -1;
  figure.addEventListener("pointerover", (event) => {
    const mark = event.target.closest(".mark");
    if (mark) show(mark);
  });
  figure.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", () => { place = -1; hide(); });
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step || !marks.length) return;
    event.preventDefault();
    place = place < 0 ? (step > 0 ? 0 : marks.length - 1) : (place + step + marks.length) % marks.length;
    show(marks[place]);
  });
}
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
