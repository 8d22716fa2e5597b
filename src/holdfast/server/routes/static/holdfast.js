// Keys and small things. Every page works without; live parts are htmx's.
const writing = (target) => target.closest("input, textarea, select, [contenteditable]");
const show = (event) => {  // where a part of a window came from: by pointer, keyboard and touch
  const part = event.target.closest?.("[data-part]");
  if (part) for (const box of document.querySelectorAll(".origin")) box.hidden = box.id !== "part-" + part.dataset.part;
};
for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, show);
const step = (by) => {  // to the next or the previous row of a list
  const rows = [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent);
  const at = rows.indexOf(document.activeElement.closest("[data-row]"));
  rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))]?.focus();
};
const keys = {
  "/": () => document.querySelector("[data-find]")?.focus(),
  "?": () => document.getElementById("help").showModal(),
  j: () => step(1),
  k: () => step(-1),
  ArrowLeft: () => document.querySelector("a[rel=prev]")?.click(),
  ArrowRight: () => document.querySelector("a[rel=next]")?.click(),
};
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return event.target.form?.requestSubmit();
  if (writing(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
  const side = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
  const beside = side && event.target.closest("[data-part]")?.[side];
  if (beside?.matches("[data-part]")) return beside.focus();
  if (!event.target.closest("[data-part]") && keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
document.addEventListener("htmx:sse:after:message", () => {  // who reads the end of a page stays there while it grows
  const page = document.documentElement;
  const reads = page.scrollTop > 0 || document.getElementById("conversation");  // a page that was just opened stays at its head; a chat does not
  if (reads && page.scrollHeight - page.scrollTop - page.clientHeight < 500) page.scrollTop = page.scrollHeight;
});
