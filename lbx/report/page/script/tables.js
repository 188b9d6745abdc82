// Tables: a heading sorts, a field above a long one filters. Of a very long one the first rows are drawn until a button
// asks for all: what sorting takes is what has to be drawn again. The state has the order and the filter of a table as
// "TABLE:column", "TABLE:-column" for descending, and "TABLE:text".
const FIRST = 100, tables = new Map(), alphabet = new Intl.Collator();
const number = (text) => (/^[+-]?[\d.]/.test(text) ? parseFloat(text.replaceAll(",", "")) : NaN);
const compared = (a, b) =>
  isNaN(a.n) || isNaN(b.n) ? isNaN(a.n) - isNaN(b.n) || alphabet.compare(a.t, b.t) : a.n - b.n;

const settingOf = (key, name) => state[key]?.find((each) => each.startsWith(name + ":"))?.slice(name.length + 1) ?? "";
function set(key, name, value) {
  const others = (state[key] ?? []).filter((each) => !each.startsWith(name + ":"));
  change({ [key]: value ? [...others, `${name}:${value}`] : others });
}

// Names of columns in addresses; the second of one name is numbered.
function columnNames(heads) {
  const names = heads.map((head) => head.dataset.task || head.dataset.name || head.textContent.trim());
  return names.map((name, at) => {
    const before = names.slice(0, at).filter((other) => other === name).length;
    return before ? `${name} #${before + 1}` : name;
  });
}

function makeTable(table) {
  const region = table.closest(".scroll"), name = region.id, heads = all("thead th", table), names = columnNames(heads);
  const initial = all("tbody tr", table), bar = element("div", { className: "tools" });
  const more = button("", () => { most = Infinity; draw(); }, { className: "pager" });
  const none = element("p", { className: "quiet none", hidden: true });
  const field = element("input", { type: "search" });
  let rows = initial, most = FIRST, order = "", wanted = "", waiting;

  function draw() {
    let count = 0;
    for (const row of rows) row.classList.toggle("later", !row.matches("[hidden], .off") && ++count > most);
    more.hidden = count <= most;
    more.textContent = `Show ${count - most} more rows`;
    const ofRuns = heads.filter((head) => /\br\d/.test(head.className)), isOff = (node) => node.matches(".off");
    none.textContent = ofRuns.length && ofRuns.every(isOff) ? "No columns of the chosen runs."
      : count || !rows.length ? "" : rows.every(isOff) ? "No rows of the chosen runs." : "No rows of the chosen runs with this text.";
    none.hidden = !none.textContent;
  }
  function sort(wanted) {
    const isDown = wanted.startsWith("-"), column = names.indexOf(wanted.replace(/^-/, ""));
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    rows = initial;
    if (column >= 0) {
      heads[column].setAttribute("aria-sort", isDown ? "descending" : "ascending");
      const keyed = rows.map((row) => {
        const t = row.cells[column].textContent;
        return { row, t, n: number(t), none: ["-", "", "unknown"].includes(t) || row.cells[column].matches(".none") };
      });
      keyed.sort((a, b) => a.none - b.none || (isDown ? compared(b, a) : compared(a, b)));
      rows = keyed.map((one) => one.row);
    }
    draw();
    table.tBodies[0].append(...rows);
  }
  function filter(text) {
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(text.toLowerCase());
    draw();
  }
  function show() {
    const newOrder = settingOf("order", name), newText = settingOf("rows", name);
    if (newOrder !== order) sort(order = newOrder);
    if (newText !== wanted) filter(field.value = wanted = newText);
  }

  heads.forEach((head, column) => {
    const onclick = () => {
      const isDown = head.ariaSort ? head.ariaSort === "ascending" : !head.classList.contains("t");
      set("order", name, (isDown ? "-" : "") + names[column]);
    };
    const sorter = button("", onclick);
    sorter.append(...head.childNodes);
    head.append(sorter);
  });
  if (rows.length >= 12) {
    field.oninput = () => {
      filter(field.value);
      clearTimeout(waiting);
      waiting = setTimeout(() => set("rows", name, (wanted = field.value)), 250);
    };
    bar.append(element("label", { className: "table-filter" }, "Filter rows: ", field));
  }
  bar.append(takeButton(region.ariaLabel, () => tableActions(table, region)));
  const switches = region.previousElementSibling;
  if (switches?.matches(".switches")) switches.append(bar);
  else region.before(bar);
  region.after(none, more);
  draw();
  tables.set(name, { table, heads, draw, show, names });
  show();
}
setUps.push((part) => all("table:not(#list)", part).forEach(makeTable));
views.push(() => tables.forEach((each) => each.show()));
{
  const tableOf = (value) => partOf(value.split(":")[0]) && tables.get(value.split(":")[0]);
  const columnOf = (value) => value.slice(value.indexOf(":") + 1).replace(/^-/, "");
  choices.order = { noun: "order", has: (value) => Boolean(tableOf(value)?.names.includes(columnOf(value))) };
  choices.rows = { noun: "table", has: (value) => Boolean(tableOf(value)) };
}

// On paper a heading is a text, because Chromium repeats no buttons on the next sheets, and a long narrow table has columns.
// Its cells may break into lines, so that a column may be narrower than the table is now.
const SHEET_PX = 1030, PAPER_SHARE = 0.62, SHRUNK_SHARE = 0.8, MOST_COLUMNS = 4, LONG_ROWS = 12;
onPaper(() => {
  for (const { table, heads } of tables.values()) {
    const width = SHRUNK_SHARE * (paper.matches ? 1 : PAPER_SHARE) * table.offsetWidth;
    const fit = Math.floor(SHEET_PX / (width + 16));
    const isLong = all("tbody tr:not([hidden], .off)", table).length > LONG_ROWS;
    table.parentNode.dataset.columns = isLong ? Math.max(1, Math.min(fit, MOST_COLUMNS)) : "aside";
    for (const sorter of heads.map((head) => head.querySelector("button"))) sorter.before(...sorter.childNodes);
  }
}, () => {
  for (const { heads } of tables.values()) {
    for (const head of heads) {
      const sorter = head.querySelector("button");
      sorter.append(...[...head.childNodes].filter((node) => node !== sorter));
    }
  }
});
