// Folded sections. Until one is opened, its content is one text, the one in its <noscript>: a browser opens a page of
// hundreds of tables at once, since it makes their nodes only for readers who want them.
const folds = all("details.fold").map((fold) => ({ fold, name: fold.querySelector(".folded").id }));

function fill(fold) {
  const text = fold.querySelector(".folded > noscript");
  if (!text) return;
  const part = text.parentNode;
  part.innerHTML = text.textContent; // HTML of lbx with escaped names; the policy refuses any other script and style
  for (const setUp of setUps) setUp(part);
}

// Return the part of the page with a name, such as a table "cost/cost-benchmark"; names begin with the section's.
function partOf(name) {
  const section = folds.find((each) => name.startsWith(each.name + "/"));
  if (section) fill(section.fold);
  return $(name);
}

function openFolds(isFromAddress = false) {
  if (!isFromAddress) return;
  for (const { fold, name } of folds) {
    fold.open = Boolean(state.open?.includes(name));
    if (fold.open) fill(fold);
  }
}

// Go to the table or chart of a plain address, #section/title, which may not exist before its section is opened.
function goToAnchor() {
  let name = location.hash.slice(1);
  try {
    name = decodeURIComponent(name);
  } catch {
    return;
  }
  const part = name.includes("/") && !name.startsWith("?") && partOf(name);
  if (part) goTo(part);
}

for (const { fold } of folds) {
  fold.ontoggle = () => {
    if (fold.open) fill(fold);
    const open = folds.filter((each) => each.fold.open).map(({ name }) => name);
    if (open.join() !== (state.open ?? []).join()) change({ open, at: state.at });
  };
}
if (folds.length) {
  const names = new Set(folds.map(({ name }) => name));
  const openAll = () => folds.forEach(({ fold }) => (fold.open = true));
  document.querySelector("nav").append(button("Open all sections", openAll)); // a browser finds no text in folded ones
  choices.open = { noun: "section", has: (name) => names.has(name) };
  views.push(openFolds);
}
// On paper, or in a preview of it, all sections are open.
const paper = matchMedia("print");
function onPaper(prepare, undo = () => {}) {
  addEventListener("beforeprint", prepare);
  addEventListener("afterprint", undo);
  paper.addEventListener("change", () => (paper.matches ? prepare : undo)());
}
onPaper(() => folds.forEach(({ fold }) => fill(fold)));

// Boxes that show columns: the state has the names of those that are not as the page has them at first.
const boxes = all(".switches input");
function showBoxes(isFromAddress = false) {
  if (!isFromAddress) return;
  for (const box of boxes) {
    box.checked = box.defaultChecked ? !state.hide?.includes(box.value) : Boolean(state.show?.includes(box.value));
  }
}
for (const box of boxes) {
  box.onchange = () => {
    const changed = boxes.filter(({ checked, defaultChecked }) => checked !== defaultChecked);
    const [show, hide] = [true, false].map((isOn) => changed.filter(({ checked }) => checked === isOn).map(({ value }) => value));
    change({ show, hide });
  };
}
if (boxes.length) {
  const has = (name) => boxes.some(({ value }) => value === name);
  choices.show = choices.hide = { noun: "column", has };
  views.push(showBoxes);
}
