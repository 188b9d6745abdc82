// Keys: of the answers, and a list of them.
const ACTIONS = {
  j: ["next answer, or next question", () => step(1)],
  k: ["previous answer, or previous question", () => step(-1)],
  "/": ["to the text filter", () => focusText()],
  d: ["show or hide the words that differ from the baseline", () => toggleDiff()],
  Escape: ["close the answer or the comparison", () => closeAny()],
  "?": ["this list", () => $("keys").showModal()],
};
function focusText() {
  if (state.question) closeSides();
  $("controls").elements.q.focus();
}
function closeAny() {
  if (state.question) closeSides();
  else if (state.answer) closeAnswer();
}
function startKeys() {
  const names = { Escape: "Esc" };
  const list = Object.entries(ACTIONS).flatMap(([key, [meaning]]) =>
    [element("dt", {}, element("kbd", {}, names[key] ?? key)), element("dd", {}, meaning)]);
  $("keys").replaceChildren(element("h3", { id: "keys-title" }, "Keys"), element("dl", {}, list),
    button("Close", () => $("keys").close()));
  $("show-keys").onclick = () => $("keys").showModal();
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open || menu.matches(":popover-open")) return;
    const isField = event.target.matches("input:not([type=checkbox]), select, textarea");
    if (isField && event.key === "Escape") return event.target.blur();
    if (isField || !Object.hasOwn(ACTIONS, event.key)) return;
    ACTIONS[event.key][1]();
    event.preventDefault();
  });
}
