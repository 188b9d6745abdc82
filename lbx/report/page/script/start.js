// The state of the address is shown once all of the page can show it.
if (runs.length) showRuns();
addEventListener("hashchange", restore);
if ($("names")) {
  unpackAnswers().then((answers) => {
    book = answers;
    startAnswers();
    startKeys();
    $("browse").hidden = false;
    if (readState()) restore();
    else for (const show of views) show(true);
    if (Object.keys(state).some((key) => key !== "runs" && key !== "baseline") && !state.answer && !state.question) {
      goTo($("answers"));
    }
    setTimeout(linkCells);
  });
} else restore();
