"""Makes all pictures of the documents with Chromium, from made-up results: `python docs/pictures.py [FOLDER]`.

Needs chromium and lbx[dev]. Each picture holds a digest of the text, style and script of the page that it shows, with
which `tests/test_pictures.py` finds an old picture without drawing it again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from docs import png_files
from lbx.base.records import Sample
from lbx.exchange.annotation.dataset import Dataset
from lbx.opinions.journal import Journal
from lbx.opinions.rating_session import RatingSession
from lbx.opinions.rating_sets import make_rating_set
from lbx.opinions.rating_site import RatingPages
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from lbx.web import Documents
from lbx.web.annotating import AnnotationPages
from lbx.web.browsing import BrowsingPages
from tests.gallery_files import MODELS, Sizes
from tests.gallery_files import results_file as report_results
from tests.web.sites import answered, site_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

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


@contextmanager
def reported(folder: Path, report: str = "") -> Iterator[str]:
    """Write the page of all reports or of one; yield its address."""
    results = folder / "results.duckdb"
    if not results.exists():
        report_results(results, REPORTED, Sizes(32, 24, 3, needle=3))
    page = folder / f"{report or 'report'}.html"
    command = [sys.executable, "-P", "-m", "lbx.cli", "report", results, *filter(None, [report])]
    command += ["--format", "html", "-o", page]
    subprocess.run(command, check=True, capture_output=True)
    yield page.as_uri()


@contextmanager
def _rated(folder: Path, kind: str) -> Iterator[str]:
    with opened(_with_results(folder), kind) as link:
        yield link


@contextmanager
def _browsed(folder: Path) -> Iterator[str]:
    with browsed(_with_results(folder) / "r.duckdb") as link:
        yield link


def _with_results(folder: Path) -> Path:
    if not (folder / "r.duckdb").exists():
        results_file(folder / "r.duckdb")
    return folder


REPORTED = tuple(MODELS[place] for place in (0, 1, 4, 6, 8))
"""Models of the pictures of a report: their names need no font of Chinese characters."""
_DATA_BLOCK = re.compile(r"<script [^>]*>.*?</script>", re.DOTALL)


class Picture(NamedTuple):
    """A picture and how to make it.

    Attributes:
        site: serves or writes the page in a folder; yields the address.
        path: of the page on the site; "{answer}" is the second answer of the list.
        keys: pressed after the page has loaded.
        search: text for the document's search.
    """

    name: str
    site: Callable[[Path], AbstractContextManager[str]]
    size: tuple[int, int]
    path: str = ""
    keys: str = ""
    search: str = ""
    scheme: str = "light"


PICTURES = (
    Picture("report-page.png", reported, (1400, 860)),
    Picture("report-curves.png", partial(reported, report="length_curve"), (1400, 768)),
    Picture("rating.png", partial(_rated, kind="score"), (1400, 600), keys="4r", search="lamp"),
    Picture("rating-pair.png", partial(_rated, kind="pair"), (400, 900), search="pane", scheme="dark"),
    Picture("annotating.png", annotated, (1400, 600), path="/document/1", search="dredger"),
    Picture("browsing.png", _browsed, (1400, 600), path="{answer}", search="lamp"),
)


def shown_text(link: str, path: str) -> str:
    """Return a page's text with its style and script, without the site's secret and the data of answers."""
    if link.startswith("file:"):
        text = Path(link.removeprefix("file://")).read_text("utf-8")
        return _DATA_BLOCK.sub("", text)
    with httpx2.Client(trust_env=False, follow_redirects=True, base_url=link.partition("/?")[0] + "/") as client:
        first = client.get(link).text
        text = client.get(_address(link, path, first)).text if path else first
        host = link[: link.index("/", len("http://"))]
        files = [client.get(host + name).text for name in re.findall(r"(?:href|src)=\"(/static/[^\"]+)\"", text)]
    secret = link.partition("/?")[0].rpartition("/")[2]
    text = re.sub(r"data-version=\"[^\"]*\"", "", text)  # the time of the results file
    return "\n".join([text.replace(host, "").replace(secret, ""), *files])


def _address(link: str, path: str, first_page: str) -> str:
    """Return the address of a page of a site."""
    if path == "{answer}":
        path = re.findall(r"href=\"([^\"]*/answer[^\"]*)\"", first_page)[1].replace("&amp;", "&")
        return link[: link.index("/", len("http://"))] + path
    return link.partition("/?")[0] + path


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _draw(page: Page, picture: Picture, link: str) -> bytes:
    page.goto(link)
    if picture.path:
        page.goto(_address(link, picture.path, page.content()))
    page.wait_for_timeout(300)
    for key in picture.keys:
        page.keyboard.press(key)
        page.wait_for_timeout(300)
    if picture.search:
        page.keyboard.press("/")
        page.keyboard.type(picture.search)
        page.wait_for_timeout(600)
        page.keyboard.press("Escape")
    page.evaluate("scrollTo(0, 0)")
    return page.screenshot()


def make_pictures(folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for picture in PICTURES:
            width, height = picture.size
            options: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": picture.scheme}
            with picture.site(Path(work)) as link:
                text = digest(shown_text(link, picture.path))
                drawn = _draw(browser.new_context(**options).new_page(), picture, link)
            (folder / picture.name).write_bytes(png_files.with_palette(drawn, {"lbx-digest": text}))
        browser.close()


if __name__ == "__main__":
    make_pictures(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
