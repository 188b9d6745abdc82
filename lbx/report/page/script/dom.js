"use strict";
const $ = (id) => document.getElementById(id), all = (selector, of = document) => [...of.querySelectorAll(selector)];
function element(tag, properties, ...parts) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...parts.flat());
  return node;
}
const button = (text, onclick, properties) => element("button", { type: "button", onclick, ...properties }, text);

// A click that the browser should not handle otherwise: no new tab, no new window.
const isPlain = (event) => !(event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

// Build a part of the page again; the button in focus stays in focus.
function rebuild(part, build) {
  const active = part?.contains(document.activeElement) ? document.activeElement.value : "";
  build();
  if (active) all("button", part).find(({ value }) => value === active)?.focus();
}

// What prepares a part of the page for readers: all that is not folded at the start, a folded section once it is opened.
const setUps = [];

function goTo(part) {
  for (let fold = part.closest("details"); fold; fold = fold.parentNode.closest("details")) fold.open = true;
  part.scrollIntoView();
}
