"""Makes the pictures of rating, annotating and browsing with Chromium, from a harbour's log and three models' answers.

python docs/pictures.py            needs chromium and lbx[dev]; all texts are in this file
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from lbx.base.records import Sample
from lbx.exchange.annotation.dataset import Dataset
from lbx.judging.journal import Journal
from lbx.judging.rating_choice import make_rating_set
from lbx.judging.rating_session import RatingSession
from lbx.store import GenerationRow, RunRow, SampleRow, Store
from lbx.web import Documents
from lbx.web.annotating import AnnotationPages
from lbx.web.browsing import BrowsingPages
from lbx.web.rating import RatingPages

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "web"))
from sites import answered, site_of

HERE = Path(__file__).resolve().parent
LOG = "\n\n".join(
    f"{day} March. Wind {wind}, {sea}. {ship}"
    for day, wind, sea, ship in (
        (1, "south-west, fresh", "a short sea at the bar", "The Halcyon came in with salt and went out in ballast."),
        (2, "the same", "fog until ten", "Nobody moved. The bell was rung every four minutes, by two men in turn."),
        (3, "north, light", "calm", "The dredger began at the east mole. It lifted an anchor that no register knows."),
        (4, "north-east", "calm", "Herring, the first of the year: eleven boats, and every barrel in the town."),
        (5, "gale from the west", "seas over the mole", "The lamp was out from two to three: a pane had gone."),
        (
            6,
            "west, falling",
            "swell",
            "A new pane was set. At dusk the Halcyon was sighted, her foremast lost.",
        ),
        (
            7,
            "variable",
            "calm",
            "The dredger towed her in. All hands are well; the master asked for the lamp's log.",
        ),
        (
            8,
            "south, light",
            "calm",
            "The inquiry sat for an hour. The keeper was thanked, the pane was not.",
        ),
    )
)
QUESTIONS = {
    "Why could the Halcyon not find the harbour on the night of the fifth?": (
        "The lamp was out for an hour: the gale had broken a pane.",
        "Between two and three in the night the lamp was dark, because a pane had gone in the gale. She came in two "
        "days later, under tow, without her foremast.",
        "There was fog until ten, and the bell was rung every four minutes.",
        "The log does not say that she looked for it; the lamp was out for an hour that night, though.",
    ),
    "What did the dredger do that was not its work?": (
        "It towed the Halcyon in.",
        "It lifted an anchor and towed a ship.",
        "It towed the Halcyon in on the seventh.",
        "Nothing.",
    ),
}
MARK = {"judged_by": ["human"]}
RUNS = ("model-a", "model-b", "model-c")


def results_file(path: Path) -> Path:
    with Store(path) as store:
        for at, run in enumerate(RUNS):
            store.begin_run(RunRow(run, run, "scripted", "1", {}, "", {}, {}, "1"))
            samples = [
                SampleRow(Sample("leval", "narrative_qa", str(n), LOG, question, said[:1], meta=MARK), n)
                for n, (question, said) in enumerate(QUESTIONS.items())
            ]
            answers = [
                GenerationRow(run, "leval", "narrative_qa", str(n), 0, said[at + 1])
                for n, said in enumerate(QUESTIONS.values())
            ]
            store.write(samples=samples, generations=answers)
    return path


@contextmanager
def opened(folder: Path, kind: str) -> Iterator[str]:
    """Serve the rating page; yield a rater's link."""
    with Store(folder / "r.duckdb", read_only=True) as store:
        chosen, _ = make_rating_set(store, RUNS[: 3 if kind == "score" else 2], kind=kind)
    with Journal(folder / f"{kind}.jsonl") as journal:
        pages = RatingPages(
            RatingSession(chosen, ["ann"], journal), Documents({i.document_key: LOG for i in chosen.items}.get)
        )
        with site_of(pages.routes, ["ann"]) as site, answered(site):
            yield site.links["ann"]


class _WithLog(BrowsingPages):
    """Shows the log without a bundle."""

    def _document_text(self, key: str) -> str:
        return LOG


@contextmanager
def browsed(path: Path) -> Iterator[str]:
    """Serve the browsing page; yield its link."""
    with site_of(_WithLog(path).routes, ["you"]) as site, answered(site):
        yield site.links["you"]


@contextmanager
def annotated(folder: Path) -> Iterator[str]:
    """Serve the annotation page of a dataset with one document; yield its link."""
    rows = {"instructions": list(QUESTIONS), "outputs": [said[0] for said in QUESTIONS.values()], "input": LOG}
    (folder / "logs.jsonl").write_text(json.dumps({**rows, "source": "harbour", "evaluation": "f1"}) + "\n")
    with (
        Dataset(folder / "logs.jsonl", folder / "logs.annotated.jsonl") as dataset,
        site_of(AnnotationPages(dataset).routes, ["you"]) as site,
        answered(site),
    ):
        yield site.links["you"]


def shoot(
    browser: Browser, link: str, name: str, keys: str, searched: str, *, path: str = "", **options: object
) -> None:
    page = browser.new_context(**options).new_page()  # type: ignore[arg-type]
    page.goto(link)
    if path:
        page.goto(link.partition("/?")[0] + path)
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(300)
    page.keyboard.press("/")
    page.keyboard.type(searched)
    page.wait_for_timeout(600)
    page.keyboard.press("Escape")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=HERE / name)


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        results_file(folder / "r.duckdb")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with opened(folder, "score") as link:
            shoot(browser, link, "rating.png", "4r", "lamp", viewport={"width": 1400, "height": 600})
        with opened(folder, "pair") as link:
            size = {"width": 400, "height": 900}
            shoot(browser, link, "rating-pair.png", "", "pane", viewport=size, color_scheme="dark")
        wide = {"width": 1400, "height": 600}
        with annotated(folder) as link:
            shoot(browser, link, "annotating.png", "", "dredger", path="/document/1", viewport=wide)
        with browsed(folder / "r.duckdb") as link:
            shoot(
                browser,
                link,
                "browsing.png",
                "",
                "lamp",
                path="/answer?run=model-a&benchmark=leval&task=narrative_qa&sample=0",
                viewport=wide,
            )
        browser.close()


if __name__ == "__main__":
    main()
