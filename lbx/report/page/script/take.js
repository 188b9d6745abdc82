// Tables and charts for elsewhere: files, texts to copy, and the address of what is shown now.
const menu = element("div", { id: "take", popover: "auto", role: "group" });
$("main").append(menu);

// Make the button of a menu. `actions` returns {name: function}, once the menu opens.
function takeButton(title, actions) {
  const onclick = () => {
    menu.ariaLabel = "Take: " + title;
    menu.replaceChildren(...Object.entries(actions()).map(([name, act]) => button(name, act)));
    const box = taker.getBoundingClientRect(), isRight = box.left > innerWidth / 2;
    menu.style.top = `${box.bottom + scrollY}px`;
    menu.style.left = isRight ? "auto" : `${box.left}px`;
    menu.style.right = isRight ? `${document.documentElement.clientWidth - box.right}px` : "auto";
  };
  const taker = button("Take", onclick, { className: "take", popoverTargetElement: menu });
  taker.ariaLabel = "Take: " + title;
  return taker;
}

function saveFile(title, ending, parts, type) {
  const name = title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 80) + ending;
  const link = element("a", { href: URL.createObjectURL(parts instanceof Blob ? parts : new Blob([parts], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
  menu.hidePopover();
}

async function copy(text, { target }) {
  try {
    await navigator.clipboard.writeText(text);
    target.textContent = "Copied";
  } catch {
    target.textContent = "The browser refused to copy";
  }
}

function copyView(name, event) {
  change({ at: name });
  copy(location.href, event);
}

function tableActions(table, region) {
  const title = region.ariaLabel, data = () => tableData(table);
  return {
    "Save as CSV": () => saveFile(title, ".csv", csvOf(data()), "text/csv"),
    "Copy as Markdown": (event) => copy(markdownOf(title, data()), event),
    "Copy as LaTeX": (event) => copy(latexOf(title, data()), event),
    "Copy link to this view": (event) => copyView(region.id, event),
  };
}

// Return the columns and rows that are shown, in their order, and the columns that the caption has for all rows.
function tableData(table) {
  const words = (node) => node.innerText.replace(/\s+/g, " ").trim();
  table.classList.add("whole");
  const heads = all("thead th", table), shown = heads.filter((head) => head.checkVisibility());
  const rows = all("tbody tr:not([hidden], .off)", table).map((row) => shown.map((head) => words(row.cells[head.cellIndex])));
  const same = all("caption .same", table).map((one) => [...one.children].map(words));
  table.classList.remove("whole");
  return { heads: shown.map(words), isText: shown.map((head) => head.matches(".t")), rows, same };
}

// The same as `base.csv_cells.escape_formula`: an apostrophe before what a spreadsheet would take for a formula.
function spreadsheetCell(text) {
  const isFormula = /^(\t|\s*[=+\-@\uff1d\uff0b\uff0d\uff20])/.test(text), isNumber = text.trim() !== "" && isFinite(text);
  return isFormula && !isNumber ? "'" + text : text;
}
function csvOf({ heads, rows, same }) {
  const plain = (text) => (/^[+-]?\d{1,3}(,\d{3})+(\.\d+)?$/.test(text) ? text.replaceAll(",", "") : text);
  const cell = (text) => {
    const safe = spreadsheetCell(plain(text));
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const lines = [[...heads, ...same.map(([head]) => head)], ...rows.map((row) => [...row, ...same.map(([, value]) => value)])];
  return lines.map((line) => line.map(cell).join(",") + "\n").join("");
}

// The same as in `report.format.render`: Markdown makes no links or HTML of a cell's text.
function markdownCell(text) {
  const isMarkup = /`|<[a-z/!?]|&(?:#|\w+;)|\]\s*[(\[:]|\[\^|!\[|@[\w-]|:\/\/|www\./i.test(text);
  const isEmphasis = /(?<![\p{L}\p{N}_])_+[^\s_]/u.test(text) && /[^\s_]_+(?![\p{L}\p{N}_])/u.test(text);
  const isPaired = ["$", "~"].some((sign) => text.split(sign).length > 2);
  if (!isMarkup && !isEmphasis && !isPaired) return text.replace(/[\\|*]|^[#>+-](?= )/g, "\\$&");
  const fence = "`".repeat(Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length)) + 1);
  return `${fence} ${text} ${fence}`.replaceAll("|", "\\|");
}
function markdownOf(title, { heads, isText, rows, same }) {
  const line = (cells) => `| ${cells.join(" | ")} |\n`, caption = sameWords(same);
  return `## ${markdownCell(title)}\n\n${line(heads.map(markdownCell))}${line(isText.map((is) => (is ? "---" : "---:")))}`
    + rows.map((row) => line(row.map(markdownCell))).join("") + (caption && `\n${markdownCell(caption)}\n`);
}
const sameWords = (same) => (same.length ? `In all rows: ${same.map((pair) => pair.join(" ")).join("; ")}.` : "");

// The same as in `report.format.render`, except that letters of other scripts stay as they are.
const LATEX = {
  "\\": "\\textbackslash{}", "_": "\\_", "%": "\\%", "&": "\\&", "#": "\\#", "$": "\\$", "{": "\\{", "}": "\\}",
  "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}",
  "|": "\\textbar{}", '"': "\\textquotedbl{}", "`": "\\textasciigrave{}", "'": "\\textquotesingle{}",
  "±": "$\\pm$", "×": "$\\times$", "–": "--", "—": "---", "…": "\\ldots{}", "“": "``", "”": "''", "’": "'",
};
const latexText = (text) => text.replace(/[-–—](?=[-–—])|,(?=,)/g, "$&\0").replace(/[^\0]/gu, (letter) => LATEX[letter] ?? letter).replaceAll("\0", "{}");
const latexCell = (text) => (/[[*]/.test(text) ? `{${latexText(text)}}` : latexText(text)); // no option of the line before
function latexOf(title, { heads, isText, rows, same }) {
  const line = (cells) => cells.map(latexCell).join(" & ") + " \\\\", caption = [title, sameWords(same)].filter(Boolean).join(". ");
  return ["% \\usepackage{booktabs}", "\\begin{table}", "\\centering", `\\caption{${latexText(caption)}}`,
    `\\begin{tabular}{${isText.map((is) => (is ? "l" : "r")).join("")}}`, "\\toprule", line(heads), "\\midrule",
    ...rows.map(line), "\\bottomrule", "\\end{tabular}", "\\end{table}", ""].join("\n");
}

// A saved chart is complete: its title, its names, and the styles of light paper.
function chartText(svg, title) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number), copy = svg.cloneNode(true), top = 28;
  const rules = [...document.styleSheets[0].cssRules], palette = rules.find((rule) => rule.selectorText === ":root").style;
  const css = rules.filter(({ selectorText }) => /svg|^\.c\d$/.test(selectorText ?? "")).map(({ cssText }) => cssText).join("\n");
  const parts = (tag, attributes, text = "") => {
    const node = document.createElementNS(svg.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.textContent = text;
    return node;
  };
  for (const node of all(".off, [hidden]", copy)) node.remove();
  const tall = height + top;
  for (const [name, value] of Object.entries({ xmlns: svg.namespaceURI, viewBox: `0 ${-top} ${width} ${tall}`, width, height: tall })) {
    copy.setAttribute(name, value);
  }
  copy.prepend(
    parts("style", {}, css.replace(/var\((--\w+)\)/g, (_, name) => palette.getPropertyValue(name))),
    parts("rect", { y: -top, width, height: tall, fill: palette.getPropertyValue("--paper") }),
    parts("text", { class: "title", x: 4, y: 14 - top }, title));
  return { text: new XMLSerializer().serializeToString(copy), width, height: tall };
}

// Two pixels for each of the chart's, as in the PNG of lbx report.
async function savePicture(svg, title) {
  const { text, width, height } = chartText(svg, title), canvas = element("canvas", { width: 2 * width, height: 2 * height });
  const link = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" })), picture = element("img", { src: link });
  await picture.decode();
  URL.revokeObjectURL(link);
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => saveFile(title, ".png", blob));
}

setUps.push((part) => {
  for (const figure of all("figure:has(svg.chart)", part)) {
    const title = figure.querySelector("figcaption").textContent, svg = figure.querySelector("svg.chart");
    figure.append(takeButton(title, () => ({
      "Save as SVG": () => saveFile(title, ".svg", chartText(svg, title).text, "image/svg+xml"),
      "Save as PNG": () => savePicture(svg, title),
      "Copy link to this view": (event) => copyView(figure.id, event),
    })));
  }
});
