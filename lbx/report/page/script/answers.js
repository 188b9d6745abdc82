// Answers: columns of numbers, and texts of those that kept theirs.
const KEPT = 1 << 15, NONE = 0xffff, PAGE = 50;
async function unpacked(name, bits) {
  const bytes = Uint8Array.from(atob($("column-" + name).textContent), (c) => c.charCodeAt(0));
  const data = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  return bits ? new { 16: Uint16Array, 32: Uint32Array }[bits](await data.arrayBuffer()) : data.json();
}
async function answers() {
  const names = JSON.parse($("names").textContent), symbols = all("ul.runs i"), controls = $("controls"), c = {};
  await Promise.all(Object.entries(names.columns).map(async ([name, bits]) => (c[name] = await unpacked(name, bits))));
  const every = Uint32Array.from(c.run, (_, i) => i), place = new Int32Array(every.length).fill(-1), lower = [];
  every.filter((i) => c.marks[i] & KEPT).forEach((i, at) => (place[i] = at));
  const task = (i) => names.tasks[c.task[c.sample[i]]], id = (i) => c.id[c.sample[i]];
  const link = (i) => [names.runs[c.run[i]], task(i), id(i), c.iteration[i]].join("/");
  const encoded = (i) => link(i).split("/").map(encodeURIComponent).join("/");
  const asked = (i) => [c.question[c.sample[i]], ...c.references[c.sample[i]]];
  const texts = (i) => [c.output, c.reasoning, c.extracted].map((column) => column[place[i]]);
  const output = (i) => (place[i] < 0 ? names.lost : texts(i)[0] || "(empty)");
  const haystack = (i) => (lower[i] ??= [id(i), ...asked(i), ...texts(i)].join("\n").toLowerCase());
  const marks = (i) => names.marks.filter((_, bit) => c.marks[i] & (1 << bit)).join(", ");
  const points = (i) => (c.score[i] === NONE ? "no score" : (c.score[i] / 100).toFixed(2));
  const key = (i, run) => (c.sample[i] * 65536 + c.iteration[i]) * 65536 + run;
  let shown, from, finder, waiting;

  function twin(i) {
    if (controls.elements.baseline.value === "") return i;
    finder ??= new Map(Array.from(every, (one) => [key(one, c.run[one]), one]));
    return finder.get(key(i, +controls.elements.baseline.value)) ?? i;
  }
  function changed(i, how) {
    const other = twin(i), by = (c.score[i] % NONE) - (c.score[other] % NONE); // no score counts as 0
    if (other === i) return false;
    if (how === "output") return c.alike[i] !== c.alike[other];
    return how === "better" ? by > 0 : how === "worse" ? by < 0 : by !== 0;
  }
  function select() {
    const v = Object.fromEntries(new FormData(controls)), text = v.text.toLowerCase();
    const scored = v.least + v.most !== "", least = v.least * 100, most = v.most === "" ? NONE : v.most * 100;
    shown = every.filter((i) =>
      (v.run === "" || c.run[i] === +v.run) &&
      (v.task === "" || c.task[c.sample[i]] === +v.task) &&
      (v.mark === "" || (v.mark === "none" ? !(c.marks[i] & ~KEPT) : c.marks[i] & (1 << v.mark))) &&
      (!scored || (c.score[i] !== NONE && c.score[i] >= least && c.score[i] <= most)) &&
      (v.changed === "" || changed(i, v.changed)) &&
      (!text || haystack(i).includes(text)));
    const sign = { lowest: 1, highest: -1 }[v.order], at = (i) => (c.score[i] === NONE ? -1 : c.score[i]);
    if (sign) shown.sort((a, b) => sign * (at(a) - at(b)) || a - b);
    draw(0);
  }
  function entry(list, name, ...parts) {
    const spans = parts.map((text) => made("span", { dir: "auto" }, text));
    if (parts.some(Boolean)) list.append(made("dt", {}, name), made("dd", {}, ...spans));
  }
  function fill(details, i) {
    const list = made("dl"), other = twin(i), [question, ...references] = asked(i), [, reasoning, extracted] = texts(i);
    entry(list, "question", question);
    entry(list, references.length > 1 ? "references" : "reference", ...references);
    entry(list, c.marks[i] & 1 ? "error" : "output", output(i));
    entry(list, "reasoning", reasoning);
    entry(list, "extracted", extracted);
    entry(list, "marks", marks(i));
    const same = c.alike[i] === c.alike[other];
    if (other !== i) entry(list, "baseline, " + points(other), same ? "(the same output)" : output(other));
    const anchor = made("a", { className: "permalink", href: "#" + encoded(i) }, "link to this answer");
    list.append(made("dt"), made("dd", {}, anchor));
    details.append(list);
  }
  function item(i) {
    const run = made("span", {}, symbols[c.run[i]].cloneNode(true), names.labels[c.run[i]]);
    const name = id(i) + (c.iteration[i] ? " #" + c.iteration[i] : "");
    const parts = [made("span", { className: "score" }, points(i)), run, made("span", {}, task(i)),
      made("span", {}, name), made("span", { className: "mark-words" }, marks(i))];
    const details = made("details", {}, made("summary", {}, ...parts.flatMap((part) => [part, " "])));
    details.dataset.row = i;
    details.ontoggle = () => { if (details.open && !details.querySelector("dl")) fill(details, i); };
    return made("li", {}, details);
  }
  function draw(start) {
    from = Math.max(0, Math.min(start, Math.floor((shown.length - 1) / PAGE) * PAGE));
    const to = Math.min(from + PAGE, shown.length), found = shown.length.toLocaleString("en");
    $("list").replaceChildren(...Array.from(shown.subarray(from, to), item));
    $("list").ariaBusy = false;
    $("found").textContent = to ? `${from + 1} to ${to} of ${found} answers` : "No answers match.";
    $("before").disabled = from === 0;
    $("next").disabled = to === shown.length;
  }
  function open(details) {
    all("#list details[open]").forEach((other) => { if (other !== details) other.open = false; });
    details.open = true;
    details.querySelector("summary").focus();
    details.scrollIntoView({ block: "nearest" });
  }
  function step(by) {
    const list = all("#list details"), now = list.findIndex((one) => one.contains(document.activeElement));
    const next = list[now < 0 && by < 0 ? list.length - 1 : now + by], turn = $(by > 0 ? "next" : "before");
    if (next) return open(next);
    if (turn.disabled) return;
    turn.click();
    open(all("#list details").at(by > 0 ? 0 : -1));
  }
  function follow() {
    const wanted = location.hash.slice(1);
    if (wanted.split("/").length < 4) return;
    const i = every.find((i) => encoded(i) === wanted || link(i) === wanted);
    controls.reset();
    select();
    if (i !== undefined) {
      draw(Math.floor(i / PAGE) * PAGE);
      open(document.querySelector(`#list details[data-row="${i}"]`));
    } else $("found").textContent = "This page has no answer " + wanted + ".";
  }
  controls.oninput = () => {
    $("list").ariaBusy = true;
    clearTimeout(waiting);
    waiting = setTimeout(select, 60);
  };
  controls.onsubmit = () => false;
  $("before").onclick = () => draw(from - PAGE);
  $("next").onclick = () => draw(from + PAGE);
  addEventListener("hashchange", follow);
  addEventListener("keydown", (event) => {
    const act = { j: () => step(1), k: () => step(-1), "/": () => controls.elements.text.focus() }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
    act();
    event.preventDefault();
  });
  $("browse").hidden = false;
  select();
  follow();
}
if ($("names")) answers();
