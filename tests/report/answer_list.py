"""The list of answers of a page in a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from playwright.sync_api import Page

OPEN = "[...document.querySelectorAll('#list a[aria-expanded=true]')].map(a => +a.closest('tr').rowIndex)"


def found(page: Page) -> str:
    return page.inner_text("#found")


def rows(page: Page) -> list[list[str]]:
    """Score, run, task, question, answer, reference and marks of the answers in the list, once it is filtered."""
    page.locator("#list[aria-busy=false]").wait_for(state="attached")
    return page.eval_on_selector_all(  # type: ignore[no-any-return]
        "#list tr[data-row]", "all => all.map(row => [...row.cells].map(cell => cell.textContent.trim()))"
    )


def chosen(page: Page, count: int) -> list[list[str]]:
    """The list, once so many answers are in it."""
    page.locator("#found", has_text=re.compile(f"of {count:,} answers$")).wait_for()
    return rows(page)


def state(page: Page) -> dict[str, list[str]]:
    """The state in the address of a page."""
    return parse_qs(page.url.partition("#?")[2], keep_blank_values=True)


def unfold(page: Page) -> None:
    """Open all sections of a page, and wait until they have their contents."""
    page.evaluate("document.querySelectorAll('details').forEach(one => (one.open = true))")
    wait_until(page, "![...document.querySelectorAll('.folded > noscript')].some(one => !one.children.length)")


def wait_until(page: Page, expression: str) -> None:
    """Wait until an expression is true. (``wait_for_function`` needs a policy that allows eval.)"""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(expression)
