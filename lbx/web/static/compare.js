"use strict";
// Marks the words in which the answers to a question differ from the chosen one. The comparison is the report page's.
const MOST_CHARACTERS = 50000;

function compare() {
  const base = one(".answers > .base > .output");
  for (const section of all(".answers > .answer")) {
    const output = one(".output", section), remark = one(".remark", section);
    if (!base || !output || one("ins, del", output)) continue;
    remark.textContent = output === base ? "The others are compared with this answer." : markDifferences(base, output);
    remark.hidden = !remark.textContent;
  }
}

// Returns a remark where no words are marked.
function markDifferences(base, output) {
  const text = output.textContent.trim(), other = base.textContent.trim();
  if (text === other) return "Equal to that answer.";
  if (text.length + other.length > MOST_CHARACTERS) return "Too long to compare word by word.";
  const block = document.createElement("div");
  block.className = "text";
  for (const { kind, text: words } of wordDiff(other, text)) {
    if (kind === "equal") block.append(words);
    else block.append(Object.assign(document.createElement(kind === "added" ? "ins" : "del"), { textContent: words }));
  }
  output.replaceChildren(block);
  return "";
}

document.addEventListener("lbx:page", compare);
addEventListener("change", event => event.target.id === "against" && event.target.form.requestSubmit());
compare();
