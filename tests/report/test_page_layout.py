"""The layout of the page in Chromium: folded sections, switches, paper and phones."""

from __future__ import annotations

from tests.chromium import Opened, overflow
from tests.report.answer_list import wait_until

_HEIGHTS = "all => all.map(node => node.getBoundingClientRect().height)"


def test_the_first_screen_has_all_scores_and_the_other_sections_are_folded(opened: Opened) -> None:
    page = opened()
    table = page.locator(".scores table").bounding_box()
    assert table is not None and table["y"] + table["height"] < 900
    folds = page.locator("details.fold")
    assert folds.count() > 8
    assert page.locator("details.fold[open]").count() == 0
    assert page.locator("#list").is_visible(), "the answers are not folded"


def test_a_link_of_the_contents_opens_its_section_without_a_script(opened: Opened) -> None:
    page = opened(scripts=False)
    page.locator("nav a", has_text="Possible faults").click()
    assert page.locator("#guards").is_visible()
    page.locator("nav a", has_text="Failures").click()
    assert page.locator("#failures").is_visible()


def test_a_switch_shows_intervals_and_tasks_without_a_script(opened: Opened) -> None:
    page = opened(scripts=False)
    interval = page.locator(".scores td .interval").first
    assert not interval.is_visible()
    page.locator(".switches input.intervals").check()
    assert interval.is_visible()
    task = page.locator(".scores th[data-task='longbench/qasper']")
    switch = page.locator(".switches label", has_text="tasks of longbench").locator("input")
    assert task.is_visible() == switch.is_checked()
    switch.set_checked(not switch.is_checked())
    assert task.is_visible() == switch.is_checked()


def test_the_name_and_the_heading_stay_while_a_table_scrolls(opened: Opened) -> None:
    page = opened(width=500)
    page.locator(".switches label", has_text="tasks of longbench").locator("input").check()
    page.locator(".switches input.intervals").check()
    name = page.locator(".scores tbody th").first
    before = name.bounding_box()
    page.locator(".scores .scroll").evaluate("node => { node.scrollLeft = 200; }")
    after = name.bounding_box()
    assert page.locator(".scores .scroll").evaluate("node => node.scrollLeft") > 0
    assert before == after


def test_paper_has_every_section_with_its_headings_and_no_controls(opened: Opened) -> None:
    page = opened()
    page.emulate_media(media="print")
    wait_until(page, "!document.querySelector('.folded > noscript')")
    assert min(page.locator(".folded").evaluate_all(_HEIGHTS)) > 20
    assert page.locator("nav a").first.is_visible()
    assert (
        page.locator("main thead").evaluate_all("all => all.map(h => getComputedStyle(h).display)")
        == ["table-header-group"] * page.locator("main thead").count()
    )
    for control in ("ul.runs", "#controls", ".switches", ".table-filter", ".pager", ".only", ".take"):
        assert not any(node.is_visible() for node in page.locator(control).all()), control
    titles = page.locator("figure figcaption:first-child")
    assert titles.count() == page.locator("figure").count() > 4
    assert all(titles.evaluate_all("all => all.map(title => title.checkVisibility())"))
    assert page.locator(".scroll").evaluate_all("all => all.every(s => getComputedStyle(s).overflow === 'visible')")


def test_on_a_phone_only_tables_scroll_sideways(opened: Opened) -> None:
    page = opened(width=390)
    assert overflow(page) == 0
    widths = page.locator(".scores tbody th").evaluate_all("all => all.map(n => n.getBoundingClientRect().width)")
    assert max(widths) < 0.6 * 390, "scores remain visible next to the names"
    heights = page.locator(".scores tbody tr").evaluate_all(_HEIGHTS)
    assert max(heights) < 120, "a name breaks into a few lines at most"
