// State of the page in its address, as in #?run=a&task=b/c: names and not numbers, so that a link fits a later page.
// A plain #section leaves the state as it is.
const KEYS = ["runs", "baseline", "run", "task", "least", "most", "mark", "changed", "q", "sort", "page", "question",
  "answer", "diff"];
// Choices: of a key, what its values are called and which of them this page has. Views show the state; they are told
// whether it comes from the address.
const choices = Object.create(null), views = [];
let state = readState() ?? {};

function readState() {
  if (location.hash && !location.hash.startsWith("#?")) return null;
  const values = new URLSearchParams(location.hash.slice(2)), read = Object.fromEntries(values);
  if ("runs" in read) read.runs = values.getAll("runs").filter(Boolean);
  return read;
}

// Return the address of a state.
function linkTo(values) {
  const pair = (key, value) => `${key}=${encodeURIComponent(value).replaceAll("%2F", "/")}`;
  const pairs = KEYS.flatMap((key) => {
    const value = values[key];
    if (Array.isArray(value)) return value.length ? value.map((each) => pair(key, each)) : [pair(key, "")];
    return value ? [pair(key, value)] : [];
  });
  return pairs.length ? "#?" + pairs.join("&") : "#";
}

// Change parts of the state, and show it. An undefined value is the usual one.
function change(changes, { push = false } = {}) {
  state = { ...state, ...changes };
  const link = linkTo(state);
  if (link !== (location.hash || "#")) history[push ? "pushState" : "replaceState"](null, "", link);
  $("notice").hidden = true;
  for (const show of views) show();
}

// Show the state of the address. Names that this page does not have are left out, and told to the reader.
function restore() {
  const read = readState();
  if (!read) return;
  const unknown = [], known = {};
  for (const [key, value] of Object.entries(read)) {
    const { noun, has } = choices[key] ?? { noun: "setting", has: null };
    const values = [value].flat(), kept = has ? values.filter(has) : [];
    const missing = has ? values.filter((each) => each && !has(each)) : [key];
    unknown.push(...missing.map((each) => `${noun} “${each.slice(0, 100).replace(/\p{C}/gu, "�")}”`));
    if (has && Array.isArray(value)) {
      if (kept.length || !value.length) known[key] = kept;
    } else if (kept.length && value) known[key] = value;
  }
  state = known;
  const few = unknown.slice(0, 3).join(", ") + (unknown.length > 3 ? ` and ${unknown.length - 3} more` : "");
  notify(unknown.length ? `This link names what this page does not have: ${few}. The rest of it is shown.` : "");
  for (const show of views) show(true);
}

function notify(text) {
  $("notice").firstChild.textContent = text;
  $("notice").hidden = !text;
}
$("main").prepend(element("p", { id: "notice", hidden: true }, element("span", { role: "status" }),
  button("Close", () => ($("notice").hidden = true))));
