"""What the page of a results file takes in a browser: until it can be used, to sort, to filter.

    python -m bench.report_page FILE.duckdb [--times N]          needs chromium and lbx[dev]

Milliseconds from the act to the second frame after it, on the wall and of the page's own thread (CPU): medians of N.
The longest table of each of three sections is sorted as it is first shown and once more with all its rows.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from bench.figures import table

SECTIONS = ("truncation_effect", "task_scores", "length_curve")
PAINTED = "await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
USABLE = f"""async () => {{
    while (!document.querySelector("#list")?.childElementCount) await new Promise(done => setTimeout(done, 20));
    {PAINTED}
    return performance.now();
}}"""
LONGEST = """name => [...document.querySelectorAll(`#${name} table`)]
    .reduce((a, b) => b.tBodies[0].rows.length > a.tBodies[0].rows.length ? b : a)"""
SORT = "it.tHead.rows[0].querySelector('th.number button').click();"
TEXT = """const field = document.querySelector("#controls [name=text]");
    field.value = field.value === "paris" ? "harbour" : "paris";
    field.dispatchEvent(new Event("input", { bubbles: true }));
    const found = document.querySelector("#found");
    await new Promise(done => new MutationObserver(done).observe(found, { childList: true }));
"""


def cpu_ms(session: CDPSession) -> float:
    return 1000 * next(
        float(one["value"])
        for one in session.send("Performance.getMetrics")["metrics"]
        if one["name"] == "TaskDuration"
    )


def medians(act: Callable[[], float], session: CDPSession, times: int) -> list[float]:
    """Wall and CPU."""
    laps = []
    for _ in range(times + 1):
        before = cpu_ms(session)
        laps.append((act(), cpu_ms(session) - before))
    return [statistics.median(lap) for lap in zip(*laps[1:], strict=True)]


def opened(browser: Browser, path: Path) -> tuple[Page, CDPSession, list[float]]:
    """The page in a process of its own, and what it took until its answers are listed."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(path.as_uri(), wait_until="commit")
    wall = page.evaluate(USABLE)
    return page, session, [wall, cpu_ms(session)]


def measured(browser: Browser, path: Path, times: int) -> list[list[str]]:
    found = []
    for _ in range(times):
        page, session, took = opened(browser, path)
        found.append(took)
        page.context.close()
    rows = [row("until its answers are listed", "2,000", [statistics.median(one) for one in zip(*found, strict=True)])]
    page, session, _ = opened(browser, path)

    def act(script: str, it: object = None) -> Callable[[], float]:
        timed = f"async it => {{ const from = performance.now(); {script} {PAINTED} return performance.now() - from; }}"
        return lambda: float(page.evaluate(timed, it))

    rows.append(row("filter the answers by text", "200", medians(act(TEXT), session, times)))
    for name in SECTIONS:
        it = page.evaluate_handle(LONGEST, name)
        it.evaluate("it => it.scrollIntoView()")
        page.wait_for_timeout(500)
        count = it.evaluate("it => it.tBodies[0].rows.length")
        first = medians(act(SORT, it), session, times)
        it.evaluate(
            "it => { const more = it.parentNode.nextElementSibling; if (more.matches('button')) more.click(); }"
        )
        whole = medians(act(SORT, it), session, times)
        rows.append(row(f"sort {name}, {count:,} rows", "100", first, f"{whole[0] / first[0]:.1f}"))
    return rows


def row(name: str, target: str, took: list[float], ratio: str = "") -> list[str]:
    return [name, target, *(f"{one:,.0f}" for one in took), ratio]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="a results file: bench.report_file makes a large one")
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        made = [sys.executable, "-m", "lbx.cli", "report", str(args.file), "--format", "html", "-o", str(path)]
        subprocess.run(made, check=True)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        print(
            table(
                ["what", "target, ms", "wall, ms", "CPU, ms", "all rows / first"], measured(browser, path, args.times)
            )
        )
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
