// Runs: a box each, which shows or hides it in tables, charts and answers alike.
const runs = all("ul.runs li").map((item) => ({
  item, mark: item.dataset.run, name: item.dataset.name, label: item.textContent, symbol: item.querySelector("i"),
  title: [...item.cloneNode(true).childNodes],
}));
const areShown = (names) => names.length < runs.length ? names : undefined;
const isShown = (run) => !state.runs || state.runs.includes(run.name);
let hiddenMarks = "";

function makeChooser() {
  const list = document.querySelector("ul.runs");
  for (const run of runs) {
    const onchange = () => change({ runs: areShown(runs.filter(({ box }) => box.checked).map(({ name }) => name)) });
    run.box = element("input", { type: "checkbox", checked: true, onchange });
    run.item.append(element("label", {}, run.box, " ", [...run.item.childNodes]));
    if (runs.length > 1) {
      const only = button("only", () => change({ runs: [run.name] }), { className: "only" });
      only.ariaLabel = "Only " + run.label;
      run.item.append(only);
    }
  }
  list.after(element("p", { id: "no-runs", hidden: true }, "No run is chosen: tick one, or choose “All runs”."));
  $("main").prepend(element("p", { id: "chosen", hidden: true }, element("span", { role: "status" }), " ",
    button("Show all", () => change({ runs: undefined }))));
  if (runs.length < 2) return;
  const bar = element("p", { className: "run-buttons" },
    button("All runs", () => change({ runs: undefined })), " ", button("None", () => change({ runs: [] })));
  if (runs.length > 12) {
    const oninput = (event) => {
      const wanted = event.target.value.toLowerCase();
      for (const run of runs) run.item.hidden = !run.label.toLowerCase().includes(wanted);
    };
    bar.append(" ", element("label", {}, "Find a run: ", element("input", { type: "search", oninput })));
  }
  list.before(bar);
}

function showRuns() {
  const hidden = runs.filter((run) => !isShown(run)), marks = hidden.map(({ mark }) => mark);
  for (const run of runs) run.box.checked = isShown(run);
  if (marks.join() === hiddenMarks) return;
  hiddenMarks = marks.join();
  $("no-runs").hidden = hidden.length < runs.length;
  $("chosen").hidden = !hidden.length;
  $("chosen").firstChild.textContent = `${runs.length - hidden.length} of ${runs.length} runs shown.`;
  for (const node of all("main section .off")) node.classList.remove("off");
  hideRuns($("main"), marks);
  all(".scores table").forEach(hideEmptyColumns);
  for (const column of shaded) shadeAgain(column);
}

// Hide runs in a part of the page, and fit to the others what the part has of them.
function hideRuns(part, marks) {
  for (const mark of marks) {
    for (const node of all(`section:not(#answers) .r${mark}`, part)) {
      // A run's symbol hides its row in a table; in a sentence it stays.
      (node.localName === "i" ? node.closest("td, tbody th")?.parentNode : node)?.classList.add("off");
    }
  }
  for (const sentence of all("p.lead, .card-text li, .remarks li", part)) {
    const named = all("i[class*=' r']", sentence).map((symbol) => /\br(\d+)/.exec(symbol.className)[1]);
    const isHidden = (mark) => marks.includes(mark);
    sentence.classList.toggle("off", named.length > 0 && named.every(isHidden));
    sentence.classList.toggle("partly", named.some(isHidden));
  }
  for (const figure of all("figure", part)) {
    const ofRuns = all("svg g[class]", figure).filter((group) => /(?:^| )r\d/.test(group.getAttribute("class")));
    figure.classList.toggle("empty", ofRuns.length > 0 && ofRuns.every((group) => group.closest(".off")));
  }
  for (const { table, draw } of tables.values()) if (part.contains(table)) draw();
  document.dispatchEvent(new CustomEvent("runschange", { detail: { hidden: marks.map(Number) } }));
}
setUps.push((part) => {
  if (hiddenMarks) hideRuns(part, hiddenMarks.split(","));
});

// Hide the columns of benchmarks that no shown run has.
function hideEmptyColumns(table) {
  const rows = all("tr", table), visible = all("tbody tr:not(.off)", table);
  [...rows[0].cells].forEach((_, at) => {
    const isEmpty = visible.length && visible.every((row) => row.cells[at].matches(".none"));
    if (isEmpty) for (const row of rows) row.cells[at].classList.add("off");
  });
}

// Columns with shaded cells: a cell's class h0 to h9 is its distance from the column's highest number shown. The lightest
// shade is the lowest number, or SHADE_POINTS below the highest, so that close scores look alike.
const SHADE_POINTS = 20;
const shaded = all(".scores table").flatMap((table) => all("thead th", table).map((_, at) =>
  all("tbody tr", table).map((row) => row.cells[at]).filter((cell) => /\bh\d\b/.test(cell.className))
    .map((cell) => ({ cell, value: number(cell.textContent) }))));
function shadeAgain(column) {
  const visible = column.filter(({ cell }) => !cell.closest(".off")), values = visible.map(({ value }) => value);
  const low = Math.min(...values), high = Math.max(...values);
  for (const { cell, value } of visible) {
    cell.className = cell.className.replace(/ (h\d|best)\b/g, "");
    if (high > low) cell.classList.add("h" + Math.round(9 - (9 * (high - value)) / Math.max(high - low, SHADE_POINTS)));
    if (high > low && value === high) cell.classList.add("best");
  }
}

if (runs.length) {
  makeChooser();
  const names = new Set(runs.map(({ name }) => name));
  choices.runs = choices.baseline = { noun: "run", has: (name) => names.has(name) };
  views.push(showRuns);
}
