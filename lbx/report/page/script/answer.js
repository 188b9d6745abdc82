// One answer: its score, then its texts whole, with the words that differ from the baseline's answer.
function answer(i) {
  const other = baseline() < 0 ? undefined : book.twin(i, baseline()), hasOther = other !== undefined && other !== i;
  const list = element("dl"), references = book.references(i);
  entry(list, "question", text(book.question(i)));
  entry(list, references.length > 1 ? "references" : "reference", ...references.map(text));
  entry(list, book.isFailed(i) ? "error" : "answer", outputOf(i, hasOther ? other : undefined));
  if (hasOther) {
    const title = [`baseline, ${points(other)}: `, runOf(other)];
    entry(list, title, book.isAlike(i, other) ? text("(the same answer)") : text(book.output(other)));
  }
  entry(list, "reasoning", text(book.reasoning(i)));
  entry(list, "extracted", text(book.extracted(i)));
  return element("div", { className: "answer" },
    element("p", { className: "answer-head" }, element("b", { className: "score" }, points(i)), " ", difference(i), " ",
      runOf(i), " ", element("span", {}, `${book.task(i)}/${nameOf(i)}`), " ", marksOf(i)),
    element("p", { className: "answer-links" },
      element("a", { className: "permalink", href: shareableLink({ answer: book.name(i) }) }, "Link to this answer"), " ",
      button("Copy link", copyLink, { value: shareableLink({ answer: book.name(i) }) }), " ",
      stateLink("All runs side by side", { question: book.questionName(i) }, { answer: undefined }), " ",
      hasOther ? diffButton() : ""),
    list, documentNote(i));
}
const text = (value) => value && element("span", { dir: "auto" }, value);
const marksOf = (i) => element("span", { className: "marks" }, book.marks(i));
function entry(list, name, ...parts) {
  if (parts.some(Boolean)) list.append(element("dt", {}, name), element("dd", {}, parts.filter(Boolean)));
}

// The output; if another answer is given, with the words that were removed from it and added to it.
function outputOf(i, other) {
  const isDiff = other !== undefined && state.diff !== "off" && book.hasText(i) && book.hasText(other);
  if (!isDiff || book.isAlike(i, other)) return text(book.output(i));
  const tags = { equal: "span", removed: "del", added: "ins" };
  const parts = wordDiff(book.output(other), book.output(i)).map(({ kind, text }) => element(tags[kind], {}, text));
  return element("span", { dir: "auto", className: "diff" }, parts);
}
const toggleDiff = () => change({ diff: state.diff ? undefined : "off" });
function diffButton() {
  return button(`${state.diff ? "Show" : "Hide"} the changed words ( d )`, toggleDiff, { value: "diff" });
}

// A real link to a state: a plain click keeps the rest of the present state, and Back leads back to it.
function stateLink(name, values, alsoChanged = {}, then = () => {}) {
  const onclick = (event) => {
    if (!isPlain(event)) return;
    event.preventDefault();
    change({ ...alsoChanged, ...values }, { push: true });
    then();
  };
  return element("a", { href: linkTo(values), onclick }, name);
}

async function copyLink(event) {
  const copied = event.currentTarget, link = location.href.split("#")[0] + copied.value;
  try {
    await navigator.clipboard.writeText(link);
    copied.textContent = "Copied";
  } catch {
    copied.textContent = "The browser refused: copy the address of the link";
  }
}

// A word of a shell's command; "#" begins a comment, and "-" an option.
const quoted = (word) => (/^[\w./:@%+=,][\w./:@%+=,#-]*$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
function documentNote(i) {
  const { show, browse, runs: names } = book.names, name = `${book.task(i)}/${nameOf(i).replace(" #", "#")}`;
  return element("p", { className: "quiet" }, "This page has no documents. ",
    element("code", {}, `${show} ${quoted(name)} --run=${quoted(names[book.run(i)])} --full`),
    " prints the whole answer; ", element("code", {}, browse), " shows it with its document.");
}
