// State of the page in its address, as in #?run=a&task=b/c: names and not numbers, so that a link fits a later page.
// A plain #section does not change the state.
const KEYS = ["runs", "open", "show", "hide", "order", "rows", "baseline", "run", "task", "least", "most", "mark", "changed",
  "q", "sort", "page", "question", "answer", "diff", "at"];
const LISTS = new Set(["runs", "open", "show", "hide", "order", "rows"]); // keys with any number of values
// Longer addresses are not followed: a page's own have a name for each run and filter.
const MOST_CHARACTERS = 1 << 16;
const isTooLong = () => location.hash.length > MOST_CHARACTERS;
// Choices: of a key, what its values are called and which of them this page has. Views show the state; they are told
// whether it comes from the address.
const choices = Object.create(null), views = [];
let state = readState() ?? {};

function readState() {
  if (location.hash && !location.hash.startsWith("#?")) return null;
  const read = Object.create(null);
  if (isTooLong()) return read;
  for (const [key, value] of new URLSearchParams(location.hash.slice(2))) {
    if (LISTS.has(key)) (read[key] ??= []).push(...(value ? [value] : []));
    else read[key] = key in read ? null : value;
  }
  return read;
}

// Return the address of a state.
function linkTo(values) {
  const pair = (key, value) => `${key}=${encodeURIComponent(value).replaceAll("%2F", "/")}`;
  const pairs = KEYS.flatMap((key) => {
    const value = values[key];
    if (Array.isArray(value)) return value.length || key !== "runs" ? value.map((each) => pair(key, each)) : [pair(key, "")];
    return value ? [pair(key, value)] : [];
  });
  return pairs.length ? "#?" + pairs.join("&") : "#";
}

// Return the address of an answer or a question, seen with the same runs and baseline.
const shareableLink = (values) => linkTo({ runs: state.runs, baseline: state.baseline, ...values });

// Change parts of the state, and show it. An undefined value is the usual one.
function change(changes, { push = false } = {}) {
  state = { ...state, at: undefined, ...changes };
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
    const { noun, has } = choices[key] ?? {}, names = [value].flat().filter(Boolean);
    if (!has || value === null) unknown.push(`${has ? "several values of" : "setting"} “${key}”`);
    else {
      const kept = names.filter(has);
      unknown.push(...names.filter((name) => !has(name)).map((name) => `${noun} “${name}”`));
      if (kept.length) known[key] = LISTS.has(key) ? kept : kept[0];
      else if (key === "runs" && !names.length) known.runs = [];
    }
  }
  state = known;
  const few = unknown.slice(0, 3).map((each) => each.slice(0, 100).replace(/\p{C}/gu, "�")).join(", ");
  const more = unknown.length > 3 ? ` and ${unknown.length - 3} more` : "";
  for (const show of views) show(true);
  notify(isTooLong() ? "The address of this page is too long, so its choices are not shown."
    : few && `This page does not have all that its address names: ${few}${more}. The rest is shown.`);
}

function notify(text) {
  $("notice").firstChild.textContent = text;
  $("notice").hidden = !text;
}
$("main").prepend(element("p", { id: "notice", hidden: true }, element("span", { role: "status" }),
  button("Close", () => ($("notice").hidden = true))));
