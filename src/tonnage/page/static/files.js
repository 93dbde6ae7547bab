"use strict";
// Files are sent one after another to the run folder; the list then shows them.
(() => {
  const drop = find("drop"), sent = find("sent"), list = find("list");
  async function send(files) {
    for (const file of files) {
      sent.textContent = `Sending ${file.name} …`;
      const answer = await fetch("/files/" + encodeURIComponent(file.name), { method: "PUT", body: file, headers: withToken() });
      sent.textContent = answer.ok ? `${file.name} is in the folder.` : new DOMParser().parseFromString(await answer.text(), "text/html").body.textContent.trim().slice(0, 300);
      if (!answer.ok) return;
      htmx.trigger(list, "changed");
      htmx.ajax("GET", `/files/${encodeURIComponent(file.name)}/look`, "#look");
    }
  }
  find("chosen").addEventListener("change", (event) => send(event.target.files));
  for (const kind of ["dragover", "dragenter"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); send(event.dataTransfer.files); });
  list.addEventListener("click", async (event) => {
    const name = event.target.dataset.delete;
    if (!name || !confirm(`Delete ${name}?`)) return;
    const answer = await fetch("/files/" + encodeURIComponent(name), { method: "DELETE", headers: withToken() });
    sent.textContent = answer.ok ? `${name} is deleted.` : await answer.text();
    htmx.trigger(list, "changed");
  });
})();
