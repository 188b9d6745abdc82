"""What ``lbx browse`` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lbx.base.layout import Bundle
from lbx.cli.output import note
from lbx.cli.read_options import Browse
from lbx.cli.showing import rebuilt_prompts
from lbx.cli.web import of_web
from lbx.scoring.reading import say_moment
from lbx.store import Store
from lbx.store.answers import StoredAnswer, tasks_named
from lbx.store.runs import runs_named

if TYPE_CHECKING:
    from lbx.web.browsing import BrowsingPages


def browse(options: Browse) -> None:
    """See ``lbx browse``."""
    pages_of: type[BrowsingPages] = of_web("web.browsing:BrowsingPages")
    results = options.results
    with Store(results, beside_writer=True) as store:
        say_moment(store)
        runs, tasks = runs_named(store, options.runs), tasks_named(store, options.tasks)
    opened = Bundle(options.bundle) if options.bundle else None

    def prompts(answer: StoredAnswer) -> Sequence[Mapping[str, Any]]:
        return [sent.to_json() for sent in rebuilt_prompts(results, answer, options.bundle, options.model)]

    pages = pages_of(results, bundle=opened, prompts=prompts, runs=runs, tasks=tasks)
    if opened is None:
        note("Without --bundle there are no documents.")
    of_web("cli.sites:open_site")(pages.routes, ["you"], options)
