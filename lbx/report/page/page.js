"use strict";
const $ = (id) => document.getElementById(id), all = (what, of = document) => [...of.querySelectorAll(what)];
function made(tag, text, name) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (name) node.className = name;
  return node;
}

// Tables: a heading sorts, a field above a long one filters.
const number = (text) => (/^[+-]?[\d.]/.test(text) ? parseFloat(text.replaceAll(",", "")) : NaN);
const compared = (a, b) => (isNaN(a.n) || isNaN(b.n) ? isNaN(a.n) - isNaN(b.n) || a.t.localeCompare(b.t) : a.n - b.n);
for (const table of all("main table")) {
  const body = table.tBodies[0], heads = all("thead th", table);
  heads.forEach((head, column) => {
    const button = made("button", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.ariaSort ? head.ariaSort === "ascending" : head.classList.contains("number");
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => {
        const t = row.cells[column].textContent;
        return { row, t, n: number(t), none: t === "-" || t === "" || t === "unknown" };
      });
      rows.sort((a, b) => a.none - b.none || (down ? compared(b, a) : compared(a, b)));
      body.append(...rows.map((one) => one.row));
    });
  });
  if (body.rows.length < 12) continue;
  const label = made("label", "Filter rows: ", "table-filter"), field = made("input");
  field.type = "search";
  label.append(field);
  table.parentNode.before(label);
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}

// Runs: a box each, which hides it in every chart and table.
for (const item of all("ul.runs li")) {
  const box = made("input"), label = made("label");
  box.type = "checkbox";
  box.checked = true;
  label.append(box, " ", ...item.childNodes);
  item.append(label);
  box.addEventListener("change", () => {
    for (const node of all("main .r" + item.dataset.run)) node.classList.toggle("off", !box.checked);
  });
}

// Answers: columns of numbers, and texts of those that kept theirs.
const KEPT = 1 << 15, NONE = 0xffff, PAGE = 50;
async function unpacked(name, kind) {
  const bytes = Uint8Array.from(atob($("column-" + name).textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return kind ? new kind(await new Response(stream).arrayBuffer()) : new Response(stream).json();
}
async function answers() {
  const names = JSON.parse($("names").textContent), runs = names.runs, c = {};
  await Promise.all(Object.entries(names.columns).map(async ([name, bits]) => {
    c[name] = await unpacked(name, { 16: Uint16Array, 32: Uint32Array }[bits]);
  }));
  const count = c.run.length, place = new Int32Array(count).fill(-1), finder = new Map();
  for (let i = 0, text = 0; i < count; i++) if (c.marks[i] & KEPT) place[i] = text++;
  const link = (i) => [runs[c.run[i]], names.tasks[c.task[c.sample[i]]], c.id[c.sample[i]], c.iteration[i]].join("/");
  const encoded = (i) => link(i).split("/").map(encodeURIComponent).join("/");
  const key = (i, run) => (c.sample[i] * 65536 + c.iteration[i]) * 65536 + run;
  for (let i = 0; i < count; i++) finder.set(key(i, c.run[i]), i);
  const lower = [];
  const haystack = (i) => lower[i] ??= [c.id[c.sample[i]], c.question[c.sample[i]], ...c.references[c.sample[i]],
    ...(place[i] < 0 ? [] : [c.output[place[i]], c.reasoning[place[i]], c.extracted[place[i]]])].join("\n").toLowerCase();
  const marks = (i) => names.marks.filter((_, bit) => c.marks[i] & (1 << bit));
  const points = (i) => (c.score[i] === NONE ? "no score" : (c.score[i] / 100).toFixed(2));
  const control = Object.fromEntries(all("#controls [name]").map((field) => [field.name, field]));
  let shown = [], from = 0;

  function twin(i) { return control.baseline.value === "" ? undefined : finder.get(key(i, +control.baseline.value)); }
  function changed(i, how) {
    const other = twin(i);
    if (other === undefined || other === i) return false;
    if (how === "output") return c.alike[i] !== c.alike[other];
    const a = c.score[i] === NONE ? 0 : c.score[i], b = c.score[other] === NONE ? 0 : c.score[other];
    return how === "better" ? a > b : how === "worse" ? a < b : a !== b;
  }
  function select() {
    const v = Object.fromEntries(Object.entries(control).map(([name, field]) => [name, field.value]));
    const text = v.text.toLowerCase(), least = v.least === "" ? -1 : v.least * 100, most = v.most === "" ? NONE : v.most * 100;
    const found = new Uint32Array(count);
    let n = 0;
    for (let i = 0; i < count; i++) {
      if (v.run !== "" && c.run[i] !== +v.run) continue;
      if (v.task !== "" && c.task[c.sample[i]] !== +v.task) continue;
      if (v.mark !== "" && !(v.mark === "none" ? !(c.marks[i] & ~KEPT) : c.marks[i] & (1 << v.mark))) continue;
      if ((v.least !== "" || v.most !== "") && (c.score[i] === NONE || c.score[i] < least || c.score[i] > most)) continue;
      if (v.changed !== "" && !changed(i, v.changed)) continue;
      if (text && !haystack(i).includes(text)) continue;
      found[n++] = i;
    }
    shown = found.subarray(0, n);
    if (v.order !== "data") {
      const sign = v.order === "lowest" ? 1 : -1, at = (i) => (c.score[i] === NONE ? -1 : c.score[i]);
      shown.sort((a, b) => sign * (at(a) - at(b)) || a - b);
    }
    draw(0);
  }
  function entry(list, name, texts) {
    if (!texts.some((text) => text)) return;
    const dd = made("dd");
    for (const text of texts) dd.append(Object.assign(made("span", text), { dir: "auto" }));
    list.append(made("dt", name), dd);
  }
  function fill(details, i) {
    const list = made("dl"), other = twin(i), s = c.sample[i], lost = names.lost;
    entry(list, "question", [c.question[s]]);
    entry(list, c.references[s].length > 1 ? "references" : "reference", c.references[s]);
    entry(list, c.marks[i] & 1 ? "error" : "output", [place[i] < 0 ? lost : c.output[place[i]] || "(empty)"]);
    if (place[i] >= 0) entry(list, "reasoning", [c.reasoning[place[i]]]);
    if (place[i] >= 0) entry(list, "extracted", [c.extracted[place[i]]]);
    entry(list, "marks", [marks(i).join(", ")]);
    if (other !== undefined && other !== i) {
      const text = place[other] < 0 ? lost : c.output[place[other]] || "(empty)";
      entry(list, "baseline, " + points(other), [c.alike[i] === c.alike[other] ? "(the same output)" : text]);
    }
    const dd = made("dd"), anchor = made("a", "link to this answer", "permalink");
    anchor.href = "#" + encoded(i);
    dd.append(anchor);
    list.append(made("dt", ""), dd);
    details.append(list);
  }
  function draw(start) {
    from = Math.max(0, Math.min(start, Math.floor((shown.length - 1) / PAGE) * PAGE));
    $("list").replaceChildren(...[...shown.subarray(from, from + PAGE)].map((i) => {
      const item = made("li"), details = made("details"), summary = made("summary");
      details.dataset.row = i;
      const symbol = all("ul.runs svg")[c.run[i]].cloneNode(true), run = made("span", names.labels[c.run[i]]);
      run.prepend(symbol);
      const parts = [made("span", points(i), "score"), run, made("span", names.tasks[c.task[c.sample[i]]]),
        made("span", c.id[c.sample[i]] + (c.iteration[i] ? " #" + c.iteration[i] : "")),
        made("span", marks(i).join(", "), "mark-words")];
      summary.append(...parts.flatMap((part) => [part, " "]));
      details.append(summary);
      details.addEventListener("toggle", () => { if (details.open && !details.querySelector("dl")) fill(details, i); });
      item.append(details);
      return item;
    }));
    const to = Math.min(from + PAGE, shown.length);
    $("found").textContent = shown.length ? `${from + 1} to ${to} of ${shown.length.toLocaleString("en")} answers` : "No answer is so.";
    $("before").disabled = from === 0;
    $("next").disabled = to >= shown.length;
  }
  function open(details) {
    all("#list details[open]").forEach((other) => { if (other !== details) other.open = false; });
    details.open = true;
    details.querySelector("summary").focus();
    details.scrollIntoView({ block: "nearest" });
  }
  function step(by) {
    const list = all("#list details"), now = list.findIndex((one) => one.contains(document.activeElement));
    const next = now < 0 ? (by > 0 ? 0 : list.length - 1) : now + by;
    if (next >= list.length && !$("next").disabled) { draw(from + PAGE); open(all("#list details")[0]); }
    else if (next < 0 && !$("before").disabled) { draw(from - PAGE); open(all("#list details").at(-1)); }
    else if (list[next]) open(list[next]);
  }
  function follow() {
    const wanted = location.hash.slice(1);
    if (wanted.split("/").length < 4) return;
    for (let i = 0; i < count; i++) if (encoded(i) === wanted || link(i) === wanted) {
      $("controls").reset();
      select();
      draw(Math.floor(i / PAGE) * PAGE);
      return open(document.querySelector(`#list details[data-row="${i}"]`));
    }
    $("found").textContent = "This page has no answer " + wanted + ".";
  }
  let waiting;
  $("controls").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(select, 60); });
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("before").addEventListener("click", () => draw(from - PAGE));
  $("next").addEventListener("click", () => draw(from + PAGE));
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
    else if (event.key === "/") control.text.focus();
    else return;
    event.preventDefault();
  });
  $("browse").hidden = false;
  select();
  follow();
}
if ($("names")) answers();
