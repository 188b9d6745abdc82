"""How long a search of a megabyte takes on a page of lbx, and in the browser by hand.

    python -m bench.pages            needs chromium and lbx[dev]

The page's: from the call to the frame in which the marks are painted, request to the server included. By hand: all text
nodes of the same page lower-cased and searched by a script, and the same marks painted. Medians of seven.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from lbx.people.journal import Journal
from lbx.web import Documents
from lbx.web.rating import RatingPages

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / name) for name in ("web", "people")]
from rated_file import answers_file, book_of  # noqa: E402
from sites import answered, site_of  # noqa: E402

ENGLISH = "The harbour master wrote down every ship, its cargo and the weather, and slept badly.\n"
CHINESE = "港务长记下了每一艘船、它的货物和天气，睡得不好。Café Ｈarbour\n"
TEXTS = {
    "English": (ENGLISH * 12_000)[:999_980] + " The Halcyon sank. ",
    "Chinese": (CHINESE * 40_000)[:999_980] + " The Halcyon sank. ",
}
WANTED = {"English": ("halcyon", "harbour", "e"), "Chinese": ("halcyon", "harbour", "船")}
PAINTED = "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
OURS = f"""async wanted => {{
    const from = performance.now();
    one("#find").value = wanted;
    await find();
    {PAINTED}
    return performance.now() - from;
}}"""
BY_HAND = f"""async wanted => {{
    const from = performance.now(), ranges = [];
    const walker = document.createTreeWalker(one(".pane"), NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {{
        const text = walker.currentNode.data.normalize("NFKC").toLowerCase();
        for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {{
            const range = new Range();
            range.setStart(walker.currentNode, Math.min(at, walker.currentNode.length));
            range.setEnd(walker.currentNode, Math.min(at + wanted.length, walker.currentNode.length));
            if (ranges.length < 2000) ranges.push(range);
        }}
    }}
    CSS.highlights.set("found", new Highlight(...ranges));
    ranges[0]?.startContainer.parentElement.scrollIntoView();
    {PAINTED}
    return performance.now() - from;
}}"""


def median(page: Page, script: str, wanted: str) -> float:
    return statistics.median(page.evaluate(script, wanted) for _ in range(7))


def main() -> None:
    print("| 1,000,000 characters | search | places | lbx, ms | first time, ms | by hand, ms | by hand / lbx |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        path = answers_file(Path(name) / "r.duckdb", questions=1)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for language, text in TEXTS.items():
            with Journal(Path(name) / f"{language}.jsonl") as journal:
                pages = RatingPages(book_of(path, journal), Documents(lambda key, text=text: text))  # type: ignore[misc]
                with site_of(pages.routes, ["ann"]) as site, answered(site):
                    page = browser.new_page(viewport={"width": 1400, "height": 900})
                    page.goto(site.links["ann"])
                    for wanted in WANTED[language]:
                        first = page.evaluate(OURS, wanted)
                        ours, by_hand = median(page, OURS, wanted), median(page, BY_HAND, wanted)
                        places = page.evaluate("total")
                        print(f"| {language} | {wanted} | {places:,} | {ours:.0f} | {first:.0f} | {by_hand:.0f} | "
                              f"{by_hand / ours:.1f} |")  # fmt: skip
                    page.close()
        browser.close()


if __name__ == "__main__":
    main()
