"""Checks that every page passes: nothing wider than the window, and no finding of axe, in all widths and schemes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.chromium import overflow, violations

if TYPE_CHECKING:
    from playwright.sync_api import Page


def assert_fits_and_is_accessible(page: Page) -> None:
    for width in (1400, 400):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert overflow(page) <= 0, (width, scheme)
            assert violations(page) == [], (width, scheme)
    assert page.evaluate("typeof owned") == "undefined"
