// Compare two texts word by word, and character by character in scripts without spaces.
//
// Returns segments {kind: "equal" | "removed" | "added", text}: equal and removed ones join to the first text, equal
// and added ones to the second. Texts that differ by more than `most` words (after the parts that they share at both
// ends) are one removed and one added segment. Uses no other script.
function wordDiff(first, second, most = 1000) {
  const unspaced = "[\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}\\p{sc=Thai}\\p{sc=Lao}\\p{sc=Khmer}\\p{sc=Myanmar}]";
  const word = new RegExp(`${unspaced}\\p{M}*|(?:(?!${unspaced})[\\p{L}\\p{N}\\p{M}_])+|\\s+|[^]`, "gu");
  const a = first.match(word) ?? [], b = second.match(word) ?? [];
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end++;

  const segments = [];
  function add(kind, text) {
    if (!text) return;
    const last = segments.at(-1), beforeLast = segments.at(-2);
    if (last?.kind === kind) last.text += text;
    else if (kind === "removed" && last?.kind === "added" && beforeLast?.kind === "removed") beforeLast.text += text;
    else if (kind === "removed" && last?.kind === "added") segments.splice(-1, 0, { kind, text });
    else segments.push({ kind, text });
  }
  const edits = shortestEdits(a.slice(start, a.length - end), b.slice(start, b.length - end), most);
  add("equal", a.slice(0, start).join(""));
  edits.forEach(({ kind, text }, at) => {
    const isGap = kind === "equal" && !text.trim() && edits[at - 1] && edits[at + 1];
    if (isGap) add("removed", text), add("added", text); // a space between two changes reads better as part of them
    else add(kind, text);
  });
  add("equal", a.slice(a.length - end).join(""));
  return segments;

  // The greedy algorithm of E. W. Myers, 1986, doi:10.1007/BF01840446. Row d has the furthest place on each diagonal.
  function shortestEdits(a, b, most) {
    const rows = [], middle = most + 1, furthest = new Int32Array(2 * middle + 1);
    for (let d = 0; d <= Math.min(most, a.length + b.length); d++) {
      for (let k = -d; k <= d; k += 2) {
        let x = isDown(furthest, middle, d, k) ? furthest[middle + k + 1] : furthest[middle + k - 1] + 1;
        while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
        furthest[middle + k] = x;
        if (x >= a.length && x - k >= b.length) return trace(a, b, rows, d);
      }
      rows.push(furthest.slice(middle - d - 1, middle + d + 2));
    }
    return [{ kind: "removed", text: a.join("") }, { kind: "added", text: b.join("") }];
  }
  function isDown(furthest, middle, d, k) {
    return k === -d || (k !== d && furthest[middle + k - 1] < furthest[middle + k + 1]);
  }
  function trace(a, b, rows, d) {
    const edits = [];
    let x = a.length, y = b.length;
    for (; d > 0; d--) {
      const row = rows[d - 1], middle = d, down = isDown(row, middle, d, x - y);
      const fromX = down ? row[middle + x - y + 1] : row[middle + x - y - 1], fromY = fromX - (x - y + (down ? 1 : -1));
      const after = down ? fromX : fromX + 1;
      while (x > after) edits.push({ kind: "equal", text: a[--x] }), y--;
      edits.push(down ? { kind: "added", text: b[--y] } : { kind: "removed", text: a[--x] });
      x = fromX;
      y = fromY;
    }
    while (x > 0) edits.push({ kind: "equal", text: a[--x] });
    return merge(edits.reverse());
  }
  function merge(edits) {
    const runs = [];
    for (const { kind, text } of edits) {
      if (runs.at(-1)?.kind === kind) runs.at(-1).text += text;
      else runs.push({ kind, text });
    }
    return runs;
  }
}
