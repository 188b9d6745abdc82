// Cells with numbers of answers become links to these answers, lowest score first.
//
// Columns of th[data-task] are scores of a task, or of a whole benchmark if the name ends with a slash. In tables with a
// column "task" (th[data-name]) of one benchmark (table[data-benchmark]), scores and marks are of the row's task.
function linkCells() {
  const byMark = new Map(runs.map((run) => [run.mark, run])), tasks = choices.task;
  const marks = new Map(book.names.mark_names.map((name, at) => [name, book.names.marks[at]]));
  for (const table of all("main section:not(#answers) table")) {
    const heads = all("thead th", table), names = heads.map((head) => head.dataset.name ?? "");
    const cellOf = (row, name) => row.cells[names.indexOf(name)]?.textContent ?? "";
    for (const row of all("tbody tr", table)) {
      const run = byMark.get(/(?:^| )r(\d+)(?: |$)/.exec(row.className)?.[1]);
      if (!run) continue;
      const benchmark = table.dataset.benchmark ?? cellOf(row, "benchmark");
      const rowTask = benchmark && `${benchmark}/${cellOf(row, "task").replace(/^-$/, "")}`;
      heads.forEach((head, at) => {
        const cell = row.cells[at], mark = names[at] === "n" && names.includes("error") ? "failed" : marks.get(names[at].replace(/_rate$/, ""));
        const task = head.dataset.task ?? (mark || names[at] === "score" ? rowTask : "");
        if (!task || !tasks.has(task) || !/\d/.test(cell.textContent) || (mark && number(cell.textContent) === 0)) return;
        const link = stateLink("", { run: run.name, task, mark, sort: mark ? undefined : "score" }, 
          { ...NO_FILTERS, baseline: state.baseline, answer: undefined, question: undefined }, () => goTo($("answers")));
        link.append(...cell.childNodes);
        cell.append(link);
      });
    }
  }
}
