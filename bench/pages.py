"""Report pages of large results files: bytes, CPU seconds, memory, and seconds to open in Chromium.

    python -m bench.pages [--answers 100000] [--folder DIR]        `just bench-report` measures them, too

Files: 14,415 answers of 19 runs with texts of a usual length; published predictions, where the folder ``../shared`` is
there; and ``--answers`` answers of 36 runs with short texts. Chromium opens each page five times; the median counts.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.contest import REPOSITORY, measure, table
from bench.large_files import make_many_runs
from tests.gallery_files import MODELS, Sizes, published_file, results_file

HEADINGS = ("page of", "answers", "MB", "CPU s", "peak MB", "painted s", "listed s")
_SHARED = REPOSITORY.parent / "shared"
_OPENINGS = 5
_QUIET_MS = 700
_WATCH = """
window.listedMs = 0;
new MutationObserver(changes => {
  if (changes.some(change => change.target.closest?.("#answers"))) window.listedMs = performance.now();
}).observe(document, { childList: true, subtree: true });
"""
"""The last change below the heading of the answers, whatever it consists of."""
_TIMES = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const painted = performance.getEntriesByType("paint").find(entry => entry.name === "first-contentful-paint");
  return [painted.startTime, Math.max(listedMs, page.domContentLoadedEventEnd)];
}"""


def measure_pages(folder: Path, answers: int) -> list[list[str]]:
    """Return a row for each page: columns ``HEADINGS``."""
    rows = []
    with _browser() as browser:
        for title, make in _files(answers).items():
            path = folder / "page.duckdb"
            count = make(path)
            page = path.with_suffix(".html")
            command = ["report", str(path), "--format", "html", "-o", str(page)]
            cpu_s, peak_mb = measure([sys.executable, "-P", "-m", "lbx.cli", *command])
            painted, listed = _opening_seconds(browser, page) if browser else ("", "")
            rows.append(
                [
                    title,
                    f"{count:,}",
                    f"{page.stat().st_size / 1e6:.2f}",
                    f"{cpu_s:.2f}",
                    f"{peak_mb:.0f}",
                    painted,
                    listed,
                ]
            )
            print(f"page of {title}: {cpu_s:.2f} CPU s", file=sys.stderr, flush=True)
            path.unlink()
            page.unlink()
    return rows


def _files(answers: int) -> dict[str, Callable[[Path], int]]:
    """Return functions that write a results file and return the number of its answers, by title."""

    def write_usual(path: Path) -> int:
        results_file(path, MODELS[:19], Sizes(21, 62, 3, needle=2), last_answers=753)
        return _answer_count(path)

    def write_published(path: Path) -> int:
        return _answer_count(published_file(path, _SHARED))

    def write_many(path: Path) -> int:
        make_many_runs(path, answers)
        return _answer_count(path)

    files: dict[str, Callable[[Path], int]] = {
        "19 runs": write_usual,
        "19 published runs": write_published,
        "36 runs, short texts": write_many,
    }
    if not _SHARED.is_dir():
        print(f"left out the page of published runs: {_SHARED} does not exist", file=sys.stderr)
        del files["19 published runs"]
    return files


def _answer_count(path: Path) -> int:
    from lbx.results import Store

    with Store(path, read_only=True) as store:
        return int(store.query("SELECT count(*) FROM generations").rows[0][0])


@contextmanager
def _browser() -> Iterator[Any]:
    """Yield Chromium, or None with a message."""
    found = shutil.which("chromium")
    if found is None:
        print("left out the seconds in Chromium: chromium is not installed", file=sys.stderr)
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def _opening_seconds(browser: Any, page_file: Path) -> tuple[str, str]:
    """Return the median seconds until the first screen is painted, and until the answers are listed."""
    times = []
    for _ in range(_OPENINGS):
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        page = context.new_page()
        page.add_init_script(_WATCH)
        page.goto(page_file.as_uri())
        while page.evaluate("performance.now() - listedMs") < _QUIET_MS:  # the page's policy refuses wait_for_function
            page.wait_for_timeout(100)
        times.append(page.evaluate(_TIMES))
        context.close()
    painted, listed = (statistics.median(column) / 1000 for column in zip(*times, strict=True))
    return f"{painted:.2f}", f"{listed:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--answers", type=int, default=100_000, help="in the file of short texts")
    parser.add_argument("--folder", type=Path, help="for the files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lbx-bench-", dir=args.folder) as folder:
        print(table(HEADINGS, measure_pages(Path(folder), args.answers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
