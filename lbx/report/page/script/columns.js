// Answers of the page: columns of numbers, and the texts of the answers that have them.
const HAS_TEXT = 1 << 15, NO_SCORE = 0xffff;
async function unpack(name, bits) {
  const bytes = Uint8Array.from(atob($("column-" + name).textContent), (c) => c.charCodeAt(0));
  const data = new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")));
  return bits ? new { 16: Uint16Array, 32: Uint32Array }[bits](await data.arrayBuffer()) : data.json();
}

// Return the answers as functions of an answer's number i.
async function unpackAnswers() {
  const names = JSON.parse($("names").textContent), c = {};
  await Promise.all(Object.entries(names.columns).map(async ([name, bits]) => (c[name] = await unpack(name, bits))));
  let last = 0;
  c.sample = c.sample.map((step) => (last += step));
  const every = Uint32Array.from(c.run, (_, i) => i), place = new Int32Array(every.length).fill(-1), lower = [];
  const TEXTS = ["output", "reasoning", "extracted"], texts = c.texts.flatMap(([, , ...ofAnswers]) => ofAnswers);
  every.filter((i) => c.marks[i] & HAS_TEXT).forEach((i, at) => (place[i] = TEXTS.length * at));
  const task = (i) => names.tasks[c.task[c.sample[i]]], id = (i) => c.id[c.sample[i]];
  const question = (i) => c.texts[c.sample[i]][0], references = (i) => c.texts[c.sample[i]][1];
  const text = (i, column) => (place[i] < 0 ? "" : texts[place[i] + TEXTS.indexOf(column)]);
  const output = (i) => (place[i] < 0 ? "(not in this page)" : text(i, "output") || "(empty)");
  const key = (i, run) => (c.sample[i] * 65536 + c.iteration[i]) * 65536 + run;
  const questionName = (i) => `${task(i)}/${encodeURIComponent(id(i))}`;
  const name = (i) => `${encodeURIComponent(names.runs[c.run[i]])}/${questionName(i)}/${c.iteration[i]}`;
  const decode = (part = "") => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  const ofQuestion = (wanted) => {
    const parts = wanted.split("/"), wantedId = decode(parts.pop()), task = names.tasks.indexOf(parts.join("/"));
    const sample = c.id.findIndex((id, at) => id === wantedId && c.task[at] === task);
    return every.filter((i) => c.sample[i] === sample);
  };
  const find = (wanted) => {
    const [first, ...parts] = wanted.split("/"), iteration = parts.pop(), run = names.runs.indexOf(decode(first));
    return ofQuestion(parts.join("/")).find((i) => c.run[i] === run && String(c.iteration[i]) === iteration);
  };
  let byKey;

  // Return the answer of another run to the same question in the same iteration.
  function twin(i, run) {
    byKey ??= new Map(Array.from(every, (other) => [key(other, c.run[other]), other]));
    return byKey.get(key(i, run));
  }
  function changed(i, run, how) {
    const other = twin(i, run);
    if (other === undefined || other === i) return false;
    const by = (c.score[i] % NO_SCORE) - (c.score[other] % NO_SCORE); // no score counts as 0
    if (how === "output") return c.alike[i] !== c.alike[other];
    return how === "better" ? by > 0 : how === "worse" ? by < 0 : by !== 0;
  }
  return {
    names, every, task, id, question, references, output, questionName, name, ofQuestion, find, twin, changed,
    run: (i) => c.run[i],
    taskNumber: (i) => c.task[c.sample[i]],
    sample: (i) => c.sample[i],
    iteration: (i) => c.iteration[i],
    score: (i) => (c.score[i] === NO_SCORE ? null : c.score[i] / 100),
    hasText: (i) => place[i] >= 0,
    isAlike: (i, other) => c.alike[i] === c.alike[other],
    isFailed: (i) => Boolean(c.marks[i] & 1),
    hasMark: (i, mark) => mark === "no mark" ? !(c.marks[i] & ~HAS_TEXT)
      : Boolean(c.marks[i] & (1 << names.marks.indexOf(mark))),
    marks: (i) => names.marks.filter((_, bit) => c.marks[i] & (1 << bit)).join(", "),
    reasoning: (i) => text(i, "reasoning"),
    extracted: (i) => text(i, "extracted"),
    haystack: (i) => (lower[i] ??= [id(i), question(i), ...references(i), text(i, "output"), text(i, "reasoning"),
      text(i, "extracted")].join("\n").toLowerCase()),
  };
}
