"""A page for people, from its links to Ctrl-C; needs lbx[web]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lbx.cli.options import Pages
from lbx.cli.output import answer, note
from lbx.web import Place, Site, listening, serve

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


def open_site(routes: Sequence[BaseRoute], people: Sequence[str], options: Pages) -> None:
    """Print a link for each person, and answer. Ctrl-C and SIGTERM are how this ends, not failures.

    Raises:
        UsageError: it cannot listen there.
    """
    with listening(options.host, options.port, options.uds, others=options.others) as place:
        site = Site(place, routes, people)
        width = max(map(len, people))
        for name, link in site.links.items():
            answer(f"{name:<{width}}  {link}")
        _say_how(place)
        try:
            serve(site)
        except KeyboardInterrupt:
            note("Ended.")


def _say_how(place: Place) -> None:
    if place.uds:
        note(f"It listens at {place.uds}. On a machine with a browser, first: {place.tunnel}")
    elif place.others:
        note("Other machines can reach it, and nothing is encrypted on the way.")
    else:
        note(f"In a browser of another machine, behind: {place.tunnel}")
    note("Whoever opens a link works under its name. Ctrl-C closes the page.")
