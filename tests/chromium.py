"""Debian's Chromium at pages: what they ask for, what it says, what is accessible."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
Opened = Callable[..., "Page"]


@contextmanager
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium here; .ci/browser-tools.sh installs it")
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright here; it is in lbx[dev]")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@contextmanager
def watched(browser: Browser) -> Iterator[tuple[Opened, list[str], list[str]]]:
    """What opens empty windows; what their consoles said; the addresses they asked for."""
    contexts, said, asked = [], [], []

    def open_window(*, width: int = 1400, scripts: bool = True, scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=scripts,  # type: ignore[arg-type]
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        return page

    yield open_window, said, asked
    for context in contexts:
        context.close()


@contextmanager
def windows(browser: Browser, *, refusals: bool = False) -> Iterator[Opened]:
    """Opens sites' links in windows of their own. At the end: nobody else was asked, and no error was told.

    Args:
        refusals: a test asks for links that are refused, and kills servers: what Chromium says of that is no error.
    """
    ours: set[str] = set()
    with watched(browser) as (open_window, said, asked):

        def open_page(link: str, path: str = "", **options: object) -> Page:
            page = open_window(**options)
            ours.add(urlsplit(link).netloc)
            page.goto(link)
            if path:
                page.goto(f"{link.partition('/?')[0]}{path}")
            return page

        yield open_page
    assert [text for text in said if not (refusals and text.startswith("Failed to load resource: "))] == []
    assert {urlsplit(address).netloc for address in asked} <= ours


def violations(page: Page) -> list[object]:
    """What axe-core finds wrong."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not here; it is in lbx[dev]")
    found = (
        axe.Axe().run(page, options={"preload": False}).response["violations"]
    )  # its copies of style sheets are refused
    return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
