// The state of the address is shown once all of the page can show it.
for (const setUp of setUps) setUp($("main"));
if (runs.length) showRuns();
choices.at = { noun: "table or chart", has: (name) => Boolean(partOf(name)) };
views.push((isFromAddress) => {
  if (isFromAddress && state.at) goTo($(state.at));
});
addEventListener("hashchange", restore);
addEventListener("hashchange", goToAnchor);
if ($("names")) {
  unpackAnswers().then((answers) => {
    book = answers;
    startAnswers();
    startKeys();
    $("browse").hidden = false;
    if (readState()) restore();
    else for (const show of views) show();
    if ([...FILTERS, "sort", "page"].some((key) => key !== "baseline" && state[key]) && !state.answer && !state.question && !state.at) {
      goTo($("answers"));
    }
    goToAnchor();
    setTimeout(linkCells, 0, $("main"));
  });
} else {
  restore();
  goToAnchor();
}
