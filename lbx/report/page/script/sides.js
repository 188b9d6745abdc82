// One question with the answers of all chosen runs next to each other.
function showSides() {
  opened = undefined;
  $("browse").hidden = true;
  const answers = [...book.ofQuestion(state.question)].filter((i) => isShown(runs[book.run(i)]));
  const [i] = book.ofQuestion(state.question), references = book.references(i), list = element("dl");
  entry(list, "question", text(book.question(i)));
  entry(list, references.length > 1 ? "references" : "reference", ...references.map(text));
  const isBaseline = (i) => book.names.runs[book.run(i)] === state.baseline;
  const columns = [...answers.filter(isBaseline), ...answers.filter((i) => !isBaseline(i))].map(side);
  const title = element("h3", { tabIndex: -1 }, `${book.task(i)}/${book.id(i)}`);
  const link = shareableLink({ question: state.question });
  const isNew = $("sides").hidden || $("sides").dataset.question !== state.question;
  const scrolled = document.querySelector("#sides .columns")?.scrollLeft ?? 0;
  rebuild($("sides"), () => $("sides").replaceChildren(title,
    element("p", { className: "answer-links" },
      stateLink("Back to the list", { question: undefined }, {}, focusQuestion), " ",
      element("a", { className: "permalink", href: link }, "Link to this question"), " ",
      button("Copy link", copyLink, { value: link }), " ",
      state.baseline ? diffButton() : ""),
    list,
    columns.length
      ? element("div", { className: "columns", tabIndex: 0, role: "region", ariaLabel: "Side by side" }, columns)
      : element("p", {}, "None of the chosen runs has an answer to this question."),
    documentNote(answers[0] ?? i)));
  $("sides").dataset.question = state.question;
  $("sides").hidden = false;
  if (isNew) {
    title.focus({ preventScroll: true });
    goTo($("sides"));
  } else if (columns.length) document.querySelector("#sides .columns").scrollLeft = scrolled;
}

function side(i) {
  const run = book.names.runs[book.run(i)], isBase = state.baseline === run;
  const other = baseline() < 0 || isBase ? undefined : book.twin(i, baseline());
  const name = book.names.labels[book.run(i)] + (book.iteration(i) ? " #" + book.iteration(i) : "");
  const same = other !== undefined && book.isAlike(i, other);
  const compare = button(isBase ? "Compared with this" : "Compare with this", () => change(
    isBase ? { baseline: undefined, changed: undefined } : { baseline: run }), { ariaPressed: isBase, value: run });
  compare.ariaLabel = `${compare.textContent}: ${name}`;
  const reasoning = book.reasoning(i);
  return element("article", { className: "side", ariaLabel: name },
    element("h4", {}, symbolOf(i), name),
    element("p", {}, element("b", { className: "score" }, points(i)), " ", difference(i), " ", marksOf(i)),
    compare,
    same ? element("p", { className: "quiet" }, "the same answer") : "",
    element("div", { className: "side-text", tabIndex: 0, role: "region", ariaLabel: "Answer of " + name },
      outputOf(i, other),
      reasoning ? element("details", {}, element("summary", {}, "reasoning"), text(reasoning)) : ""));
}

function closeSides() {
  change({ question: undefined });
  focusQuestion();
}
function focusQuestion() {
  const name = $("sides").dataset.question, lines = all("#list tr[data-row]");
  (lines.find((line) => book.questionName(Number(line.dataset.row)) === name) ?? lines[0])?.querySelector("a").focus();
}

// Go to the next question among the filtered answers.
function stepQuestion(by) {
  const questions = [...new Set(Array.from(shown, book.sample))], first = new Map();
  for (const i of shown) if (!first.has(book.sample(i))) first.set(book.sample(i), i);
  const now = questions.findIndex((sample) => book.questionName(first.get(sample)) === state.question);
  const next = first.get(questions[now + by]);
  if (next !== undefined) change({ question: book.questionName(next) });
}
