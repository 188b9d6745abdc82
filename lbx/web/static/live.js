"use strict";
// Refreshes a page of `lbx browse` while a run goes on. The server is asked for the version of the file, which it takes
// from the file's time and size; only another version makes it open the file. What did not change on the page stays:
// with it scroll positions, focus, open parts and the document.
const PAUSE_MS = 2000, WORD_MS = 30000;
let isPaused = false, isRefreshing = false, hasFailed = false, wordAt = 0;

const live = () => one("#live");
const isBusy = () => waiting || isField(document.activeElement) || one("dialog[open]") ||
  (String(getSelection()) && one("#work").contains(getSelection().anchorNode));

async function refresh() {
  const button = live();
  if (isRefreshing || document.hidden || isBusy()) return;
  isRefreshing = true;
  try {
    const { version } = await (await fetch(button.dataset.state)).json();
    hasFailed = false;
    if (version === button.dataset.version || isBusy()) return;
    const key = one("#document")?.dataset.document, address = location.href;
    const answer = await fetch(address, { headers: key ? { "lbx-document": key } : {} });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!one("#live", next) || waiting || address !== location.href) return;
    document.title = next.title;
    one("#said", next).replaceWith(one("#said").cloneNode(true));
    const before = one("#count")?.textContent;
    update(one("#bar"), one("#bar", next));
    update(one("#work"), one("#work", next));
    if (!button.hidden) button.setAttribute("aria-pressed", String(!isPaused));
    announce(before);
    document.dispatchEvent(new Event("lbx:page"));
  } catch {
    if (!hasFailed) say("lbx does not respond: this page does not refresh until you come back to it.");
    hasFailed = true;
  } finally {
    isRefreshing = false;
  }
}

// For screen readers, and not at each answer.
const news = Object.assign(document.createElement("p"), { className: "skip" });
news.setAttribute("role", "status");
document.body.append(news);
function announce(before) {
  const count = one("#count")?.textContent;
  if (!count || count === before || Date.now() - wordAt < WORD_MS) return;
  wordAt = Date.now();
  news.textContent = `Updated: ${count}`;
}

// Makes an element equal to another one, with as few changes as possible. Rows are known by data-row.
function update(old, next) {
  if (old.isEqualNode(next)) return;
  const isCurrent = old.classList.contains("current");
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (name !== "open" && name !== "class" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.className !== next.className) old.className = next.className;
  old.classList.toggle("current", isCurrent && next.hasAttribute("data-scope"));
  if (!old.classList.length) old.removeAttribute("class");
  const name = node => node.dataset?.row ?? node.id ?? "";
  const names = new Set([...next.childNodes].map(name));
  let at = old.firstChild;
  for (const wanted of [...next.childNodes]) {
    while (at && (name(at) ? !names.has(name(at)) : at.nodeType === Node.TEXT_NODE && wanted.nodeType !== at.nodeType))
      at = drop(at);
    if (at && at.nodeName === wanted.nodeName && (name(at) || "") === (name(wanted) || "")) {
      if (at.nodeType === Node.ELEMENT_NODE) update(at, wanted);
      else if (at.data !== wanted.data) at.data = wanted.data;
      at = at.nextSibling;
    } else {
      const same = name(wanted) && [...old.children].find(child => name(child) === name(wanted));
      old.insertBefore(same || document.importNode(wanted, true), at);
      if (same) update(same, wanted);
    }
  }
  while (at) at = drop(at);
}
function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

addEventListener("click", event => {
  if (!event.target.closest("#live:not([hidden])")) return;
  isPaused = !isPaused;
  live().setAttribute("aria-pressed", String(!isPaused));
  if (!isPaused) refresh();
});
document.addEventListener("lbx:page", () => live() && live().setAttribute("aria-pressed", String(!isPaused)));
setInterval(() => live() && !live().hidden && !isPaused && !hasFailed && refresh(), PAUSE_MS);
// A run may begin later: look when somebody comes back to the page.
addEventListener("focus", () => live() && !isPaused && refresh());
document.addEventListener("visibilitychange", () => live() && !isPaused && refresh());
