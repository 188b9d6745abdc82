// Tables: a heading sorts, a field above a long one filters. Of a very long one the first rows are drawn until a button
// asks for all: what sorting takes is what has to be drawn again.
const FIRST = 100, redraw = [], alphabet = new Intl.Collator();
const number = (text) => (/^[+-]?[\d.]/.test(text) ? parseFloat(text.replaceAll(",", "")) : NaN);
const compared = (a, b) =>
  isNaN(a.n) || isNaN(b.n) ? isNaN(a.n) - isNaN(b.n) || alphabet.compare(a.t, b.t) : a.n - b.n;
for (const table of all("main table")) {
  const heads = all("thead th", table), onclick = () => { most = Infinity; draw(); };
  const more = button("", onclick, { className: "pager" });
  let rows = all("tbody tr", table), most = FIRST;
  function draw() {
    let count = 0;
    for (const row of rows) row.classList.toggle("later", !row.matches("[hidden], .off") && ++count > most);
    more.hidden = count <= most;
    more.textContent = `Show ${count - most} more rows`;
  }
  heads.forEach((head, column) => {
    const onclick = () => {
      const down = head.ariaSort ? head.ariaSort === "ascending" : !head.classList.contains("t");
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = rows.map((row) => {
        const t = row.cells[column].textContent;
        return { row, t, n: number(t), none: ["-", "", "unknown"].includes(t) || row.cells[column].matches(".none") };
      });
      keyed.sort((a, b) => a.none - b.none || (down ? compared(b, a) : compared(a, b)));
      rows = keyed.map((one) => one.row);
      draw();
      table.tBodies[0].append(...rows);
    };
    const sorter = button("", onclick);
    sorter.append(...head.childNodes);
    head.append(sorter);
  });
  if (rows.length >= 12) {
    const oninput = (event) => {
      const wanted = event.target.value.toLowerCase();
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      draw();
    };
    const field = element("input", { type: "search", oninput });
    table.parentNode.before(element("label", { className: "table-filter" }, "Filter rows: ", field));
  }
  if (rows.length > FIRST) {
    table.parentNode.after(more);
    redraw.push(draw);
    draw();
  }
}
