// Numbers of answers in tables become links to these answers, lowest score first.
//
// Columns of th[data-task] are scores of a task, or of a whole benchmark if the name ends with a slash. In other tables
// th[data-name] names the columns, and the row has the task and, unless table[data-benchmark] has it, the benchmark.
function linkCells(part) {
  if (!book) return;
  const byMark = new Map(runs.map((run) => [run.mark, run]));
  for (const table of all("section:not(#answers) table:has(th[data-task], th[data-name])", part)) {
    const heads = all("thead th", table), names = heads.map((head) => head.dataset.name ?? "");
    const columns = heads.flatMap((head, at) => {
      const mark = markOf(names[at], names);
      return head.dataset.task || mark || names[at] === "score" ? [{ at, mark, task: head.dataset.task }] : [];
    });
    const textOf = (row, name) => row.cells[names.indexOf(name)]?.textContent ?? "";
    for (const row of table.tBodies[0].rows) {
      const run = byMark.get(/(?:^| )r(\d+)(?: |$)/.exec(row.className)?.[1]);
      const benchmark = table.dataset.benchmark ?? textOf(row, "benchmark");
      const rowTask = `${benchmark}/${textOf(row, "task").replace(/^-$/, "")}`;
      if (run) for (const { at, mark, task = rowTask } of columns) linkCell(row.cells[at], run, task, mark);
    }
  }
}

// Return the mark that a column counts. The failures have no column for each, but a message and its number.
function markOf(name, names) {
  if (name === "n" && names.includes("error")) return "failed";
  return book.names.marks[book.names.mark_names.indexOf(name.replace(/_rate$/, ""))];
}

function linkCell(cell, run, task, mark) {
  const value = number(cell.textContent);
  if (isNaN(value) || (mark && !value) || !choices.task.has(task)) return;
  const { baseline: _, ...others } = { ...NO_FILTERS, answer: undefined, question: undefined };
  const link = stateLink("", { run: run.name, task, mark, sort: mark ? undefined : "score" }, others,
    () => goTo($("answers")));
  link.append(...cell.childNodes);
  cell.append(link);
}
setUps.push(linkCells);
