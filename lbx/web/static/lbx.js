"use strict";
// Forms and links work without this. With it they change the page in place, the document is searched, and keys do what
// the buttons do that name them: data-key="x" on a button, a link, a field. Inside of [data-scope] it is the one in the
// current scope that counts; j and k change the scope.
const one = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

// What was done, in words.
function say(text, wrong = false) {
  const said = one("#said");
  if (!said) return;
  said.classList.toggle("wrong", wrong);
  said.textContent = text;
  return !wrong;
}

// One page after the other, in the order of what was done. A key that comes while an answer is on its way waits for it:
// it is meant for what will be in focus then. After a failure those that wait are dropped, because that is not there.
let turn = Promise.resolve(), waiting = 0;
const keys = [];
function go(address, options = {}) {
  typed.forEach((_, form) => keep(form));
  return then(() => swap(address, options));
}
function then(act) {
  waiting++;
  turn = turn.then(act).then(done => {
    if (done === false) keys.length = 0;
  }).finally(() => {
    waiting--;
    while (keys.length && !waiting) {
      if (isField(document.activeElement)) type(document.activeElement, keys.splice(0));
      else press(keys.shift());
    }
  });
  return turn;
}

// Into a field that one of the waiting keys led to.
function type(field, letters) {
  field.setRangeText(letters.filter(each => each.length === 1).join(""), field.selectionStart, field.selectionEnd, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
  if (letters.includes("Enter")) field.form.requestSubmit();
}

async function swap(address, options) {
  const key = one("#document")?.dataset.document ?? "";
  let answer, text;
  try {
    answer = await fetch(address, { ...options, headers: key ? { "lbx-document": key } : {} });
    text = await answer.text();
  } catch {
    return say("Not saved: lbx does not respond. If it is still running, try again.", true);
  }
  const next = new DOMParser().parseFromString(text, "text/html");
  if (!one("#bar", next)) return say(`Not done. ${one("main", next)?.textContent.trim() ?? answer.status}`, true);
  show(next, key);
  if (options.isNewEntry && answer.url !== location.href) history.pushState(null, "", answer.url);
  else history.replaceState(null, "", answer.url);
  return true;
}

const isField = node => node?.matches("input:not([type=radio], [type=checkbox]), textarea, select") ?? false;

function show(next, key) {
  document.title = next.title;
  const active = document.activeElement, typing = isField(active) && active.id ? active : null;
  const focus = active?.id, open = all("details[open][id]").map(each => each.id);
  const other = one("#document", next);
  if (other?.dataset.document !== (key || undefined)) one("main").replaceWith(one("main", next));
  else one("#work").replaceWith(one("#work", next));
  one("#bar").replaceWith(one("#bar", next));
  one("#help")?.replaceWith(one("#help", next));
  open.forEach(id => document.getElementById(id)?.setAttribute("open", ""));
  arrive(typing ? "" : focus);
  const same = typing && document.getElementById(typing.id);
  if (same && same !== typing) {  // what is being typed goes on
    same.value = typing.value;
    same.focus({ preventScroll: true });
    same.setSelectionRange?.(typing.selectionStart, typing.selectionEnd);
  } else same?.focus({ preventScroll: true });
}

// After a page came: where the keyboard is.
function arrive(focus) {
  const wanted = one("[autofocus]") ?? (focus && document.getElementById(focus));
  (wanted || one("#work"))?.focus({ preventScroll: true });
  if (!one(".current[data-scope]")) one("[data-scope]")?.classList.add("current");
  one(".current[data-scope]")?.scrollIntoView({ block: "nearest" });
  document.dispatchEvent(new Event("lbx:page"));
}

addEventListener("submit", event => {
  const form = event.target, button = event.submitter;
  if (form.method === "dialog") return;
  event.preventDefault();
  if (form.role === "search" || form.closest(".find")) return step(Number(button?.value || 1));
  const fields = new URLSearchParams(new FormData(form, button));
  if (isField(document.activeElement)) document.activeElement.blur();
  if (form.method === "post") go(form.action, { method: "POST", body: fields });
  else go(`${form.action.split("?")[0]}?${fields}`);
});
addEventListener("click", event => {
  const link = event.target.closest("a[data-swap]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    go(link.href, { isNewEntry: one("#live") !== null });  // other pages than those of `lbx browse` save on the way
  }
  const scope = event.target.closest("[data-scope]");
  if (scope) current(scope);
  if (event.target.closest(".find button[value='-1']")) step(-1);
});
addEventListener("popstate", () => one("#live") && go(location.href));
addEventListener("beforeunload", event => { if (waiting || typed.size) event.preventDefault(); });

// Forms with data-saves send what is typed by themselves. The page stays; the bar, and the word on it, come anew.
const typed = new Map();
addEventListener("input", event => {
  const form = event.target.closest("form[data-saves]");
  if (!form) return;
  say("Not saved yet ...");
  clearTimeout(typed.get(form));
  typed.set(form, setTimeout(keep, 200, form));
});
addEventListener("focusout", event => {
  const form = event.target.closest("form[data-saves]");
  if (typed.has(form)) keep(form);
});
function keep(form) {
  clearTimeout(typed.get(form));
  typed.delete(form);
  const body = new URLSearchParams(new FormData(form));
  return then(async () => {
    let next;
    try {
      const answer = await fetch(form.action, { method: "POST", body, headers: { "lbx-document": one("#document")?.dataset.document ?? "" } });
      next = new DOMParser().parseFromString(await answer.text(), "text/html");
    } catch {
      return say("Not saved: lbx does not respond. If it is still running, continue typing to try again.", true);
    }
    if (!one("#bar", next)) return say(`Not saved. ${one("main", next)?.textContent.trim() ?? ""}`, true);
    one("#bar").replaceWith(one("#bar", next));
    if (!typed.size) say(one("#said", next).textContent);
  });
}

// Scopes.
function current(scope) {
  all(".current[data-scope]").forEach(each => each.classList.toggle("current", each === scope));
  scope.classList.add("current");
}
function move(by) {
  const scopes = all("[data-scope]"), at = scopes.findIndex(each => each.classList.contains("current"));
  const next = scopes[Math.max(0, Math.min(scopes.length - 1, at + by))];
  if (!next) return;
  current(next);
  next.scrollIntoView({ block: "nearest" });
}

// Keys.
addEventListener("keydown", event => {
  const field = isField(event.target) ? event.target : null;
  if (event.key === "Escape" && field) {
    event.preventDefault();  // which would empty a search
    field.blur();
    return one("#work")?.focus({ preventScroll: true });
  }
  if (event.key === "Enter" && event.ctrlKey && field?.form) return field.form.requestSubmit();
  if (field || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (one("dialog[open]") && event.key !== "?") return;
  if (event.key === "Enter" && event.target.closest("button, a, summary, [role=region]")) return;
  if (waiting && (event.key.length === 1 || event.key === "Enter")) {
    keys.push(event.key);
    event.preventDefault();
  } else if (press(event.key)) event.preventDefault();
});

function press(key) {
  if (key === "?") {
    const help = one("#help");
    return help && (help.open ? help.close() : help.showModal(), true);
  }
  const name = `[data-key="${CSS.escape(key)}"]`;
  const target = one(`.current[data-scope] ${name}`) ?? all(name).find(each => !each.closest("[data-scope]"));
  if (target) {
    if (target.disabled) return true;
    if (target.matches("details")) target.open = !target.open;
    else if (target.matches("input, textarea")) target.focus();
    else target.click();
    return true;
  }
  const does = { j: () => move(1), k: () => move(-1), n: () => step(1), N: () => step(-1), "/": begin }[key];
  if (!does) return false;
  does();
  return true;
}

// The document's search: the server finds, the browser marks.
let places = [], total = 0, at = -1, asked = null, timer = 0, sought = "";
function begin() {
  const field = one("#find");
  if (!field) return;
  const chosen = String(getSelection()).trim();
  if (chosen) { field.value = chosen.slice(0, field.maxLength); find(); }
  field.focus();
  field.select();
}
addEventListener("input", event => {
  if (event.target.id !== "find") return;
  clearTimeout(timer);
  timer = setTimeout(find, 60);
});
document.addEventListener("lbx:page", () => {
  if (!one("#find")) return;
  if (one("#find").value || !sought) return;
  one("#find").value = sought;
  find();
});

async function find() {
  clearTimeout(timer);
  asked?.abort();
  asked = new AbortController();
  const field = one("#find");
  sought = field.value;
  let hits = { total: 0, places: [] };
  try {
    if (sought.trim()) {
      const answer = await fetch(`${field.form.action}?${new URLSearchParams({ q: sought })}`, { signal: asked.signal });
      hits = await answer.json();
    }
  } catch (error) {
    if (error.name !== "AbortError") one(".find output").textContent = "lbx does not respond";
    return;
  }
  ({ places, total } = hits);
  mark();
  at = -1;
  if (places.length) step(1); else tell();
}

function mark() {
  const blocks = all(".pane > .block").map(each => each.firstChild);
  if (!CSS.highlights) return;
  CSS.highlights.set("found", new Highlight(...places.map(([first, from, last, to]) =>
    new StaticRange({ startContainer: blocks[first], startOffset: from, endContainer: blocks[last], endOffset: to }))));
  CSS.highlights.delete("here");
}

function tell() {
  const more = total > places.length ? ` (the first ${places.length} are marked)` : "";
  one(".find output").textContent = !sought.trim() ? "" : total ? `${at + 1} of ${total}${more}` : "not there";
}

function step(by) {
  if (one("#find") && one("#find").value !== sought) return find();
  if (!places.length) return;
  at = (at + by + places.length) % places.length;
  tell();
  const [first, from, last, to] = places[at], blocks = all(".pane > .block").map(each => each.firstChild), pane = one(".pane");
  const range = new Range();
  range.setStart(blocks[first], from);
  range.setEnd(blocks[last], to);
  if (CSS.highlights) {
    const here = new Highlight(range);
    here.priority = 1;
    CSS.highlights.set("here", here);
  }
  blocks[first].parentElement.scrollIntoView({ block: "nearest" });
  // Blocks that come into sight take their true heights, and what is below moves: look twice.
  const look = () => {
    const box = range.getBoundingClientRect(), frame = pane.getBoundingClientRect();
    pane.scrollTop += box.top - frame.top - frame.height / 3;
  };
  look();
  requestAnimationFrame(look);
}

if (one("#bar")) arrive();

// The root of all paths is new at each start, and only pages with a valid secret have it. A page with another root, or without
// one, is refused: it asks this browser's other tabs for the root, and continues there, now or when one is opened. Roots
// are kept by tabs only: a program that gets the port later could read them from the browser's storage.
const ROOT = /^\/[\w-]{16}(?=\/)/, root = location.pathname.match(ROOT)?.[0] ?? "", tabs = new BroadcastChannel("root");
function forward(known, isServed) {
  if (!known || known !== `${known}/`.match(ROOT)?.[0]) return;
  if (known === root) return isServed && location.reload();
  if (!isServed && refused.has(known)) return;
  const isLink = new URLSearchParams(location.search).has("token"), path = location.pathname.slice(root.length);
  location.replace(isLink ? `${known}/` : known + path + location.search);
}
const refused = new Set((sessionStorage.getItem("refused") ?? "").split(" "));
if (one("#bar")) {
  refused.delete(root);
  sessionStorage.setItem("root", root);
  tabs.onmessage = ({ data }) => data === "where" && tabs.postMessage({ root });
  tabs.postMessage({ root, isServed: true });
} else {
  refused.add(root);
  tabs.onmessage = ({ data }) => forward(data?.root, data?.isServed);
  tabs.postMessage("where");
  forward(sessionStorage.getItem("root"));
}
sessionStorage.setItem("refused", [...refused].slice(-9).join(" "));
