// List of answers: filters, a table of 50 rows that sorts by its heads, pages.
const PAGE = 50, FILTERS = ["q", "run", "task", "least", "most", "mark", "baseline", "changed"];
const COLUMNS = {
  score: "score", run: "run", task: "task", question: "question", output: "answer", reference: "reference",
  marks: "marks",
};
const NO_FILTERS = Object.fromEntries([...FILTERS, "page"].map((key) => [key, undefined]));
let book, shown, from = 0, selection, drawn, opened, waiting;

// What all questions of a task begin with, such as an instruction, is left out of the list.
const SHORTEST_PREFIX = 20, prefixes = new Map();
function prefixOf(i) {
  const task = book.taskNumber(i);
  if (!prefixes.size) {
    for (const other of book.every) {
      const text = book.question(other), of = book.taskNumber(other), known = prefixes.get(of) ?? text;
      let length = 0;
      while (length < known.length && known[length] === text[length]) length++;
      if (text) prefixes.set(of, known.slice(0, length));
    }
  }
  const prefix = (prefixes.get(task) ?? "").replace(/\S*$/, "");
  return prefix.length < SHORTEST_PREFIX ? "" : prefix;
}
function questionStart(i) {
  const prefix = prefixOf(i), rest = firstLine(book.question(i).slice(prefix.length));
  return prefix && rest ? "… " + rest : firstLine(book.question(i));
}

const firstLine = (text) => text.trim().split("\n", 1)[0].slice(0, 200);
const points = (i) => (book.score(i) === null ? "no score" : book.score(i).toFixed(1));
const baseline = () => (state.baseline ? book.names.runs.indexOf(state.baseline) : -1);
const symbolOf = (i) => runs[book.run(i)].symbol.cloneNode(true);
const nameOf = (i) => book.id(i) + (book.iteration(i) ? " #" + book.iteration(i) : "");
const runOf = (i) => element("span", { className: "run" }, runs[book.run(i)].title.map((node) => node.cloneNode(true)));
function difference(i) {
  const other = baseline() < 0 ? undefined : book.twin(i, baseline());
  if (other === undefined || other === i || book.score(i) === null || book.score(other) === null) return "";
  const by = book.score(i) - book.score(other);
  return by ? (by < 0 ? "−" : "+") + Math.abs(by).toFixed(1) : "=";
}

function select() {
  const text = (state.q ?? "").toLowerCase(), task = state.task, run = book.names.runs.indexOf(state.run);
  const tasks = new Set(book.names.tasks.flatMap((name, at) =>
    !task || name === task || (task.endsWith("/") && name.startsWith(task)) ? [at] : []));
  const isVisible = runs.map(isShown), isScored = Boolean(state.least || state.most);
  const least = Number(state.least ?? 0), most = Number(state.most || 100), other = baseline();
  shown = book.every.filter((i) =>
    isVisible[book.run(i)] &&
    (run < 0 || book.run(i) === run) &&
    tasks.has(book.taskNumber(i)) &&
    (!state.mark || book.hasMark(i, state.mark)) &&
    (!isScored || (book.score(i) !== null && book.score(i) >= least && book.score(i) <= most)) &&
    (!state.changed || other < 0 || book.changed(i, other, state.changed)) &&
    (!text || book.haystack(i).includes(text)));
  if (!state.sort) return;
  const sign = state.sort.startsWith("-") ? -1 : 1;
  const keys = new Map(Array.from(shown, (i) => [i, sortKeys[column()](i)]));
  shown.sort((i, j) => {
    const a = keys.get(i), b = keys.get(j), none = (a === null) - (b === null) || (a === "") - (b === "");
    return none || sign * (typeof a === "string" ? alphabet.compare(a, b) : a - b) || i - j;
  });
}
const column = () => (state.sort ?? "").replace("-", "");
const sortKeys = {
  score: (i) => book.score(i),
  run: (i) => book.run(i),
  task: (i) => book.task(i),
  question: (i) => questionStart(i) || book.id(i),
  output: (i) => (book.hasText(i) ? firstLine(book.output(i)) : ""),
  reference: (i) => firstLine(book.references(i)[0] ?? ""),
  marks: (i) => book.marks(i),
};

function showAnswers(isFromAddress = false) {
  const wanted = JSON.stringify([...FILTERS, "sort", "runs"].map((key) => state[key]));
  if (wanted !== selection) select();
  selection = wanted;
  if (state.question) return showSides();
  $("sides").hidden = true;
  $("browse").hidden = false;
  const open = state.answer ? book.find(state.answer) : undefined, at = open === undefined ? -1 : shown.indexOf(open);
  if (open !== undefined && at < 0) {
    return change(isFromAddress ? { ...NO_FILTERS, runs: undefined } : { answer: undefined });
  }
  const page = at < 0 ? Number(state.page || 1) - 1 : Math.floor(at / PAGE);
  from = PAGE * Math.max(0, Math.min(page, Math.floor((shown.length - 1) / PAGE)));
  if (wanted + from !== drawn) drawList();
  drawn = wanted + from;
  openRow(open);
}

function drawList() {
  const to = Math.min(from + PAGE, shown.length), total = shown.length.toLocaleString("en");
  for (const head of all("#list th")) {
    head.removeAttribute("aria-sort");
    if (head.dataset.column === column()) head.ariaSort = state.sort.startsWith("-") ? "descending" : "ascending";
  }
  $("list").tBodies[0].replaceChildren(...Array.from(shown.subarray(from, to), row));
  $("list").ariaBusy = false;
  $("found").textContent = to ? `${from + 1} to ${to} of ${total} answers` : "No answers match.";
  $("before").disabled = from === 0;
  $("next").disabled = to === shown.length;
}

function row(i) {
  const text = (className, ...parts) => element("td", { className }, element("span", { dir: "auto" }, ...parts));
  const onclick = (event) => {
    if (!isPlain(event)) return;
    event.preventDefault();
    toggle(i);
  };
  const link = element("a", { href: shareableLink({ answer: book.name(i) }), dir: "auto", onclick },
    questionStart(i) || nameOf(i));
  link.ariaExpanded = false;
  const by = difference(i), score = [points(i), by && element("small", {}, " " + by)].filter(Boolean);
  const line = element("tr", {},
    element("td", { className: "score" }, score), element("td", { className: "run", title: runs[book.run(i)].label }, runOf(i)), text("task", book.task(i).split(/(?<=[/_])/).flatMap((word) => [word, element("wbr")])),
    element("td", { className: "question" }, link), text("output", firstLine(book.output(i))),
    text("reference", firstLine(book.references(i)[0] ?? "")), text("marks", book.marks(i)));
  line.dataset.row = i;
  return line;
}

const toggle = (i) => (i === opened ? closeAnswer() : openAnswer(i));
function openAnswer(i) {
  change({ answer: book.name(i), question: undefined }, { push: !state.answer });
}
function closeAnswer() {
  const link = document.querySelector("#list a[aria-expanded=true]");
  change({ answer: undefined, page: from ? String(from / PAGE + 1) : undefined });
  link?.focus();
}

// Show the whole answer in a row below that of the list.
function openRow(i) {
  const isNew = i !== opened, old = $("answer"), line = document.querySelector(`#list tr[data-row="${i}"]`);
  opened = i;
  for (const link of all("#list a[aria-expanded=true]")) link.ariaExpanded = false;
  if (i === undefined) return old?.remove();
  const cell = element("td", { colSpan: Object.keys(COLUMNS).length }), link = line.querySelector("a");
  const next = old ?? element("tr", { id: "answer" });
  rebuild(next, () => {
    cell.append(answer(i));
    next.replaceChildren(cell);
    if (line.nextSibling !== next) line.after(next);
  });
  link.ariaExpanded = true;
  if (!isNew) return;
  link.focus({ preventScroll: true });
  for (const part of [next, line]) part.scrollIntoView({ block: "nearest" });
}

function step(by) {
  if (state.question) return stepQuestion(by);
  const focused = document.activeElement.closest?.("#list tr[data-row]")?.dataset.row;
  const now = state.answer ? shown.indexOf(book.find(state.answer)) : focused ? shown.indexOf(Number(focused)) : -1;
  const next = now < 0 ? (by > 0 ? from : Math.min(from + PAGE, shown.length) - 1) : now + by;
  if (next >= 0 && next < shown.length) openAnswer(shown[next]);
}

const turn = (by) => change({ answer: undefined, page: from + by > 0 ? String((from + by) / PAGE + 1) : undefined });
function readControls() {
  const values = Object.fromEntries(new FormData($("controls")));
  const changed = values.baseline ? values.changed : undefined;
  change({ ...values, changed, page: undefined, answer: undefined });
}
function writeControls(isFromAddress = false) {
  for (const key of FILTERS) {
    const field = $("controls").elements[key];
    if (isFromAddress || field !== document.activeElement) field.value = state[key] ?? ""; // typing goes on
  }
  $("controls").elements.changed.disabled = !state.baseline;
  $("clear").hidden = !FILTERS.some((key) => state[key]);
}

function startAnswers() {
  const controls = $("controls");
  for (const [key, noun] of [["run", "run"], ["task", "task"], ["mark", "mark"], ["changed", "filter"]]) {
    const names = new Set(all("option", controls.elements[key]).map(({ value }) => value));
    choices[key] = { noun, has: (name) => names.has(name) };
  }
  choices.least = choices.most = { noun: "score", has: (value) => value.trim() !== "" && isFinite(value) };
  choices.page = { noun: "page", has: (value) => /^\d+$/.test(value) };
  choices.sort = { noun: "column", has: (value) => Object.hasOwn(COLUMNS, value.replace(/^-/, "")) };
  choices.diff = { noun: "setting", has: (value) => value === "off" };
  choices.q = { noun: "text", has: () => true };
  choices.answer = { noun: "answer", has: (name) => book.find(name) !== undefined };
  choices.question = { noun: "question", has: (name) => book.ofQuestion(name).length > 0 };

  const heads = Object.entries(COLUMNS).map(([name, title]) => {
    const head = element("th", { scope: "col", className: name }, button(title, () => {
      const sort = column() !== name ? name : state.sort === name ? "-" + name : undefined;
      change({ sort, page: undefined, answer: undefined });
    }));
    head.dataset.column = name;
    return head;
  });
  $("list").tHead.append(element("tr", {}, heads));
  controls.oninput = () => {
    $("list").ariaBusy = true;
    clearTimeout(waiting);
    waiting = setTimeout(readControls, 60);
  };
  controls.onsubmit = () => false;
  $("clear").onclick = () => change({ ...NO_FILTERS, answer: undefined });
  $("before").onclick = () => turn(-PAGE);
  $("next").onclick = () => turn(PAGE);
  views.push(writeControls, showAnswers);
}
