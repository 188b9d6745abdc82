"""Makes pictures of everything that lbx shows to people, with Chromium, in light and dark, for a person to look at.

    python -m tools.gallery OUT [--only PATTERN]     PATTERN: of a picture's name, such as 'report-8-*' or '*-phone-*'

Pictures are named SUBJECT-VIEW-SCHEME.png; ``OUT/README.txt`` lists them. Subjects that this revision lacks are
skipped with a message.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tests.gallery_files import MODELS, Sizes, published_file, results_file, run_name, running_file
from tests.screen import Picture, on_screen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
SCHEMES = ("light", "dark")
WIDE, PHONE, PAPER = (1400, 900), (390, 844), (718, 1047)
"""Sizes of windows in CSS pixels. Paper is A4 without margins of 1 cm."""
LONGEST_PX = 15_000
_SCREEN_LINES = 150
_LBX = [sys.executable, "-P", "-m", "lbx.cli"]


class Gallery:
    """Takes the wanted pictures and remembers what each shows."""

    def __init__(self, out: Path, pattern: str, browser: Browser, work: Path) -> None:
        self.out, self.pattern, self.browser, self.work = out, pattern, browser, work
        self.texts: dict[str, str] = {}

    def is_wanted(self, subject: str) -> bool:
        """Whether a picture of a subject may match the pattern, by the part before its first wildcard."""
        prefix = re.split(r"[*?[]", self.pattern)[0]
        return subject.startswith(prefix) or prefix.startswith(subject)

    @contextmanager
    def window(self, scheme: str, size: tuple[int, int] = WIDE) -> Iterator[Page]:
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme,  # type: ignore[arg-type]
            device_scale_factor=2 if size == PHONE else 1,
        )  # fmt: skip
        page = context.new_page()
        page.set_default_timeout(8_000)
        yield page
        context.close()

    def take(self, page: Page, name: str, shows: str, *, full: bool = False, element: str = "") -> None:
        """Write a picture of the window, of the whole page or of an element, if the pattern has its name."""
        if not fnmatch(name, self.pattern):
            return
        page.wait_for_timeout(250)
        height = int(page.evaluate("document.documentElement.scrollHeight"))
        width, window = page.viewport_size["width"], page.viewport_size["height"]  # type: ignore[index]
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, LONGEST_PX)}
        if element and (box := page.locator(element).first.bounding_box()) and box["height"] > 0:
            top = box["y"] + float(page.evaluate("scrollY"))
            clip = {"x": 0, "y": max(0, top - 8), "width": width, "height": min(box["height"] + 16, 5_000)}
            full = True
        path = self.out / f"{name}.png"
        if full:
            page.screenshot(path=path, full_page=True, clip=clip)  # type: ignore[arg-type]
            shows += f" ({clip['height'] / window:.1f} of {height / window:.1f} windows)"
        else:
            page.screenshot(path=path)
        self.texts[path.name] = shows

    def every(
        self, subject: str, link: str, name: str, shows: str, prepare: Callable[[Page], bool | None] = lambda _: None,
        *, full: bool = False, sizes: tuple[tuple[int, int], ...] = (WIDE, PHONE), element: str = "",
    ) -> None:  # fmt: skip
        """Take a view in both schemes and all sizes; ``prepare`` returns False if the page lacks it."""
        for size in sizes:
            for scheme in SCHEMES:
                title = "-".join(filter(None, (subject, name, "phone" if size == PHONE else "", scheme)))
                if not fnmatch(title, self.pattern):
                    continue
                with self.window(scheme, size) as page:
                    page.goto(link)
                    page.wait_for_timeout(400)
                    if prepare(page) is False:
                        print(f"skipped {title}: this revision lacks it", file=sys.stderr)
                        continue
                    self.take(page, title, shows, full=full, element=element)


# The report page


def report_pages(gallery: Gallery) -> None:
    for subject, count in (("report-1", 1), ("report-3", 3), ("report-8", 8), ("report-40", 40)):
        if gallery.is_wanted(subject):
            _report(gallery, subject, _results(gallery.work, count), whole=count == 8)
    if gallery.is_wanted("report-19x759"):
        path = gallery.work / "many.duckdb"
        results_file(path, MODELS[:19], Sizes(21, 62, 3, needle=2), last_answers=753)
        _report(gallery, "report-19x759", path)
    if gallery.is_wanted("report-published") and SHARED.is_dir():
        _report(gallery, "report-published", published_file(gallery.work / "published.duckdb", SHARED))


@cache
def _results(work: Path, count: int) -> Path:
    sizes = Sizes(leval=16) if count in (3, 8) else Sizes(6, 12, 1, needle=1)
    return results_file(work / f"results-{count}.duckdb", MODELS[:count], sizes)


def _report(gallery: Gallery, subject: str, results: Path, *, whole: bool = False) -> None:
    page_file = results.with_suffix(".html")
    _run("report", results, "--format", "html", "-o", page_file)
    link = page_file.as_uri()
    shows = f"{subject}: {page_file.stat().st_size / 1e6:.1f} MB"
    gallery.every(subject, link, "first", f"{shows}, the first screen")
    gallery.every(subject, link, "answers", f"{shows}, the list of answers", _open_section("answers"))
    gallery.every(subject, link, "answer", f"{shows}, an open answer", _open_answer)
    gallery.every(subject, link, "side", f"{shows}, all models' answers to a question", _open_side_by_side)
    if not whole:
        return
    gallery.every(subject, link, "whole", f"{shows}, the whole page", full=True)
    with gallery.window("light") as page:
        page.goto(link)
        titles = page.evaluate(
            "[...document.querySelectorAll('section')].map(one => one.getAttribute('aria-labelledby'))"
        )
    names = [title.removesuffix("-title") for title in titles]
    for name in names:
        gallery.every(
            subject, link, f"section-{name}", f"{shows}, section {name}", _open_section(name),
            sizes=(WIDE, PHONE) if name in ("needles", "length_curve", "leaderboard", "judge_results") else (WIDE,),
            element=f"section[aria-labelledby='{name}-title']",
        )  # fmt: skip
    _print(gallery, subject, link)


def _open_section(name: str) -> Callable[[Page], bool]:
    def prepare(page: Page) -> bool:
        page.evaluate("name => { location.hash = name }", name)
        page.wait_for_timeout(500)
        return bool(page.evaluate("name => document.getElementById(name) !== null", name))

    return prepare


def _open_answer(page: Page) -> bool:
    _open_section("answers")(page)
    page.keyboard.press("j")
    page.wait_for_timeout(400)
    return True


def _open_side_by_side(page: Page) -> bool:
    _open_answer(page)
    return _click(page, r"side by side|all (models|runs)|compare (all|answers)|next to each other", "#answers")


def _click(page: Page, words: str, within: str = "body") -> bool:
    """Click the first visible link or button whose text has these words."""
    for role in ("button", "link"):
        for found in page.locator(within).get_by_role(role, name=re.compile(words, re.IGNORECASE)).all():
            if found.is_visible():
                found.click()
                page.wait_for_timeout(500)
                return True
    return False


def _print(gallery: Gallery, subject: str, link: str) -> None:
    """Take the first sheets of the printed page; without pdftoppm, the page with a printer's styles on A4's width."""
    name = f"{subject}-print-light"
    if not fnmatch(name, gallery.pattern):
        return
    with gallery.window("light", PAPER) as page:
        page.goto(link)
        page.wait_for_timeout(500)
        pdf = gallery.out / f"{subject}-print.pdf"
        page.pdf(path=pdf, format="A4", margin={"top": "1cm", "bottom": "1cm", "left": "1cm", "right": "1cm"})
        gallery.texts[pdf.name] = f"{subject}: printed"
        if shutil.which("pdftoppm"):
            subprocess.run(["pdftoppm", "-r", "70", "-l", "6", "-png", pdf, gallery.out / name], check=True)
            gallery.texts[f"{name}-*.png"] = f"{subject}: the first printed pages"
        else:
            page.emulate_media(media="print")
            gallery.take(page, name, f"{subject}: printer's styles", full=True)


# Pages for people, served


def web_pages(gallery: Gallery) -> None:
    pictures = _script("pictures")
    with ExitStack() as stack:
        if gallery.is_wanted("browse"):
            _browse(gallery, stack.enter_context(pictures.browsed(_results(gallery.work, 8))))
        if gallery.is_wanted("progress"):
            link = stack.enter_context(pictures.browsed(running_file(gallery.work / "running.duckdb")))
            gallery.every("progress", link, "list", "lbx browse during a run: the list")
            gallery.every(
                "progress", link, "page", "lbx browse during a run: the progress page",
                lambda page: _click(page, "progress") or _visit(page, link, "/progress"),
            )  # fmt: skip
        for kind in ("score", "pair"):
            if gallery.is_wanted(f"rate-{kind}"):
                folder = gallery.work / kind
                folder.mkdir()
                pictures.results_file(folder / "r.duckdb")
                rated = stack.enter_context(pictures.opened(folder, kind))
                gallery.every(f"rate-{kind}", rated, "first", f"rating, {kind}")
                gallery.every(f"rate-{kind}", rated, "help", f"rating, {kind}: help", _press("?"), sizes=(WIDE,))
                gallery.every(
                    f"rate-{kind}", rated, "overview", f"rating, {kind}: all questions", _press("o"), sizes=(WIDE,)
                )
        if gallery.is_wanted("annotate"):
            link = stack.enter_context(pictures.annotated(gallery.work))
            gallery.every("annotate", link, "list", "annotating: the documents")
            gallery.every(
                "annotate", link, "document", "annotating: a document", lambda page: _visit(page, link, "/document/1")
            )


def _browse(gallery: Gallery, link: str) -> None:
    run = run_name(MODELS[0])
    gallery.every("browse", link, "list", "lbx browse: the list")
    gallery.every(
        "browse", link, "list-failed", "lbx browse: failures", lambda page: _visit(page, link, "/?mark=failed")
    )
    gallery.every("browse", link, "answer", "lbx browse: an answer", lambda page: _first_answer(page, link, run))
    gallery.every(
        "browse", link, "side", "lbx browse: a question, all models",
        lambda page: _first_answer(page, link, run)
        and _click(page, r"side by side|all (models|runs)|every (model|run)|other (models|runs)|compare"),
    )  # fmt: skip


def _visit(page: Page, link: str, path: str) -> bool:
    response = page.goto(link.partition("/?")[0] + path)
    page.wait_for_timeout(300)
    return response is None or response.ok


def _first_answer(page: Page, link: str, run: str) -> bool:
    _visit(page, link, f"/?run={run}&task=leval/narrative_qa")
    found = page.locator("main a[href*='/answer']")
    if not found.count():
        return False
    page.goto(str(found.first.evaluate("link => link.href")))
    page.wait_for_timeout(400)
    return True


def _press(key: str) -> Callable[[Page], None]:
    def prepare(page: Page) -> None:
        page.keyboard.press(key)
        page.wait_for_timeout(400)

    return prepare


# The terminal


def terminals(gallery: Gallery) -> None:
    if not gallery.is_wanted("terminal"):
        return
    results = _results(gallery.work, 8)
    for name in ("", "leaderboard", "task_scores", "needles", "length_curve", "judge_results", "board"):
        for columns in (80, 140) if name != "judge_results" else (80,):
            title = f"terminal-{name or 'overview'}-{columns}"
            if fnmatch(title, gallery.pattern):
                shown = on_screen("report", results, *filter(None, [name]), columns=columns)
                _draw_screen(gallery, shown.pictures[-1], title, f"lbx report {name}, {columns} columns")
    if fnmatch("terminal-run-80", gallery.pattern):
        _terminal_run(gallery)


def _terminal_run(gallery: Gallery) -> None:
    """Run the demo's model on a terminal and take the screen in the middle and at the end."""
    clone = gallery.work / "clone"
    for folder in ("bundle", "models"):
        shutil.copytree(ROOT / folder, clone / folder)
    demo = clone / "models/demo"
    subprocess.run(
        [sys.executable, demo / "export_gguf.py", "--dtype", "f32", demo / "hf", demo / "demo.gguf"],
        check=True,
        capture_output=True,
    )
    _run("bundle", clone / "bundle/demo.toml", "-o", clone / "sent")
    _run("unpack", "--allow-unsigned", clone / "sent/demo.tar", "--to", clone / "data")
    command = [
        "run",
        "--bundle",
        "data",
        "--model",
        "models/demo-llamacpp.toml",
        "--tasks",
        "needle",
        "-o",
        "results.duckdb",
    ]
    pictures = on_screen(*command, folder=clone).pictures
    last = pictures[-1]
    answering = [seen for seen in pictures if " left" in seen.text and "answered" not in seen.text] or [last]
    middle = answering[len(answering) // 2]
    _draw_screen(gallery, middle, "terminal-run-80", "lbx run, 80 columns, in the middle")
    _draw_screen(gallery, last, "terminal-run-80-end", "lbx run, 80 columns, at its end")


def _draw_screen(gallery: Gallery, screen: Picture, title: str, shows: str) -> None:
    lines = screen.html(_SCREEN_LINES)
    (gallery.out / f"{title}.txt").write_text(screen.text + "\n", "utf-8")
    gallery.texts[f"{title}.txt"] = f"{shows}, its text"
    with gallery.window("dark", (max(700, screen.columns * 9 + 40), 400)) as page:
        page.set_content(
            "<meta charset=utf-8><style>body{margin:16px;background:#16181d;color:#d7dae0}"
            f"pre{{font:14px/1.3 'DejaVu Sans Mono',monospace;margin:0}}</style><pre>{lines}</pre>"
        )
        page.wait_for_timeout(100)
        path = gallery.out / f"{title}.png"
        page.screenshot(path=path, full_page=True)
    gallery.texts[path.name] = shows


# All


def _script(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def _run(*arguments: object) -> None:
    subprocess.run([*_LBX, *map(str, arguments)], check=True, capture_output=True)


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names of pictures, with * and ?")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        gallery = Gallery(args.out, args.only, browser, Path(work))
        for group in (report_pages, web_pages, terminals):
            try:
                group(gallery)
            except Exception as error:
                failed += 1
                print(f"{group.__name__} stopped: {error!r}"[:2000], file=sys.stderr)
        browser.close()
    _write_list(args.out / "README.txt", gallery.texts)
    print(f"{len(gallery.texts)} pictures: {args.out}")
    return 1 if failed else 0


def _write_list(path: Path, texts: dict[str, str]) -> None:
    """Write what each file shows; pictures of earlier calls stay in the list."""
    earlier = path.read_text("utf-8").splitlines()[1:] if path.exists() else []
    texts = {**dict(line.split(": ", 1) for line in earlier), **texts}
    head = "Pictures are named SUBJECT-VIEW[-phone]-SCHEME.png; each line tells what a file shows."
    path.write_text("\n".join([head, *(f"{name}: {shows}" for name, shows in sorted(texts.items()))]) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
