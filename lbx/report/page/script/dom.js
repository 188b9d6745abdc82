"use strict";
const $ = (id) => document.getElementById(id), all = (what, of = document) => [...of.querySelectorAll(what)];
function made(tag, properties, ...parts) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...parts);
  return node;
}
