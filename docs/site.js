"use strict";
// Search over all pages, with an index that loads on the first use, and the current section in the page's contents.

const MOST = 20, AROUND = 70;
const form = document.getElementById("search"), field = form.querySelector("input");
const found = document.getElementById("found"), count = found.querySelector("p"), list = found.querySelector("ol");
const root = form.dataset.root;
let loading = null;

// A file opened from a disk cannot be fetched by a script, but it can be loaded as one.
function loadSections() {
  loading ??= new Promise(resolve => {
    const script = document.createElement("script");
    script.src = root + "search.js";
    script.onload = () => resolve(searchSections);
    document.head.append(script);
  });
  return loading;
}

function score(section, words) {
  let sum = 0;
  for (const word of words) {
    const places = [section.heading, section.page, section.text].map(text => text.toLowerCase().indexOf(word));
    if (places.every(at => at < 0)) return 0;
    const exact = section.heading.toLowerCase() === words.join(" ");
    sum += (exact ? 40 : 0) + (places[0] >= 0 ? 20 : 0) + (places[1] >= 0 ? 8 : 0);
    if (places[2] >= 0) {
      const starts = section.text.toLowerCase().split(/[^\p{L}\p{N}_-]+/u).filter(token => token.startsWith(word)).length;
      sum += 1 + Math.min(5, starts);
    }
  }
  return sum;
}

function excerpt(text, words) {
  const at = Math.max(0, Math.min(...words.map(word => text.toLowerCase().indexOf(word)).filter(place => place >= 0), text.length));
  const start = at === text.length ? 0 : Math.max(0, at - AROUND), end = start + 3 * AROUND;
  return (start ? "…" : "") + text.slice(start, end) + (end < text.length ? "…" : "");
}

function marked(text, words) {
  const parts = new DocumentFragment(), lower = text.toLowerCase();
  for (let at = 0; at < text.length;) {
    const next = words.map(word => [lower.indexOf(word, at), word.length]).filter(([place]) => place >= 0)
      .sort((one, other) => one[0] - other[0] || other[1] - one[1])[0];
    if (!next) { parts.append(text.slice(at)); break; }
    const mark = document.createElement("mark");
    mark.textContent = text.slice(next[0], next[0] + next[1]);
    parts.append(text.slice(at, next[0]), mark);
    at = next[0] + next[1];
  }
  return parts;
}

function item(section, words) {
  const entry = document.createElement("li"), link = document.createElement("a");
  const title = document.createElement("strong"), text = document.createElement("small");
  link.href = root + section.place;
  title.append(marked(section.heading, words));
  text.append(marked(excerpt(section.text, words), words));
  link.append(title, section.page === section.heading ? "" : ` ${section.page}`, text);
  entry.append(link);
  return entry;
}

async function search() {
  const words = [...new Set(field.value.toLowerCase().split(/\s+/).filter(Boolean))];
  found.hidden = !words.length;
  if (!words.length) return;
  const sections = await loadSections();
  const ranked = sections.map(section => [score(section, words), section]).filter(([points]) => points)
    .sort((one, other) => other[0] - one[0]);
  list.replaceChildren(...ranked.slice(0, MOST).map(([, section]) => item(section, words)));
  count.textContent = !ranked.length ? "No section has all these words."
    : `${ranked.length} ${ranked.length === 1 ? "section" : "sections"}` + (ranked.length > MOST ? `, the best ${MOST}` : "");
}

function move(step) {
  const links = [...list.querySelectorAll("a")], at = links.indexOf(document.activeElement) + step;
  if (at < 0) field.focus();
  else links[Math.min(at, links.length - 1)]?.focus();
}

function close() {
  found.hidden = true;
}

form.hidden = false;
field.addEventListener("focus", loadSections);
field.addEventListener("input", search);
form.addEventListener("submit", event => {
  event.preventDefault();
  search().then(() => list.querySelector("a")?.click());
});
form.addEventListener("keydown", event => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Escape") {
    close();
    field.focus();
  }
});
list.addEventListener("click", close);
document.addEventListener("click", event => { if (!form.contains(event.target)) close(); });
document.addEventListener("keydown", event => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea")) return;
  event.preventDefault();
  field.focus();
  field.select();
});

const links = new Map([...document.querySelectorAll(".contents a")].map(link => [link.hash.slice(1), link]));
function showCurrentSection() {
  let current = null;
  for (const [id, link] of links) {
    if (document.getElementById(id).getBoundingClientRect().top < 120) current = link;
  }
  for (const link of links.values()) {
    if (link === current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}
if (links.size) {
  addEventListener("scroll", () => requestAnimationFrame(showCurrentSection), { passive: true });
  showCurrentSection();
}
