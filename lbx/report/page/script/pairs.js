// Two runs of a leaderboard, chosen in its table or its chart: one sentence on their difference, computed by lbx.
function comparePairs(part) {
  const hint = "To compare two runs, choose their places here, or their lines in the chart.";
  const markOf = (node) => /\br(\d+)\b/.exec(node.getAttribute("class"))?.[1];
  for (const [benchmark, sentences] of Object.entries(JSON.parse($("pairs")?.textContent || "{}"))) {
    const table = all("#leaderboard table", part).find((one) => one.dataset.benchmark === benchmark);
    const at = table ? all("thead th", table).findIndex((head) => head.dataset.name === "place") : -1;
    if (at < 0) continue;
    const isOfBenchmark = (one) => one.querySelector("figcaption").textContent.startsWith(benchmark + ": ");
    const lines = all("#leaderboard figure", part).filter(isOfBenchmark).flatMap((one) => all(".rows > .row", one));
    const said = element("p", { className: "pair", role: "status" }, hint), buttons = new Map();
    let chosen = [];
    const choose = (mark) => {
      chosen = chosen.includes(mark) ? chosen.filter((one) => one !== mark) : [...chosen.slice(-1), mark];
      said.textContent = sentences[[...chosen].sort((a, b) => a - b).join(" ")] ?? hint;
      buttons.forEach((one, key) => (one.ariaPressed = chosen.includes(key)));
      for (const line of lines) line.classList.toggle("chosen", chosen.includes(markOf(line)));
    };
    for (const row of table.tBodies[0].rows) {
      const mark = markOf(row), cell = row.cells[at], run = runs.find((one) => one.mark === mark);
      if (!run) continue;
      const pick = button("", () => choose(mark), { className: "pick", ariaPressed: false });
      pick.ariaLabel = `Place ${cell.textContent}: compare ${run.label}`;
      pick.append(...cell.childNodes);
      cell.append(pick);
      buttons.set(mark, pick);
    }
    for (const line of lines) {
      line.classList.add("pick");
      line.addEventListener("click", () => choose(markOf(line)));
    }
    table.closest(".scroll").after(said);
  }
}
setUps.push(comparePairs);
