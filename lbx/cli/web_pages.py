"""Start and end of the web pages for people, which need optional libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lbx.base.errors import LbxError
from lbx.cli.command_builder import import_object
from lbx.cli.options import PageOptions
from lbx.cli.output import answer, note

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from lbx.web import SiteSocket


def import_web(name: str) -> Any:
    """Import an object of lbx by "package.module:name". Raises LbxError if lbx[web] is not installed."""
    try:
        importlib.import_module("lbx.web")
    except ImportError as exc:
        raise LbxError(
            f"Pages need libraries that are not installed ({exc}).",
            fix="Install lbx[web].",
            command="pip install 'lbx[web]'",
        ) from exc
    return import_object(name)


def open_site(
    routes: Sequence[BaseRoute], people: Sequence[str], options: PageOptions, save: Callable[[], None] = lambda: None
) -> None:
    """Print a link for each person and serve pages until Ctrl-C or SIGTERM, which are not failures.

    Args:
        save: function called at the end, which further signals do not interrupt.

    Raises:
        UsageError: the address cannot be used.
    """
    listening, serve, site_of = (import_web(f"web:{name}") for name in ("listening", "serve", "Site"))
    with listening(options.host, options.port, options.uds, others=options.others) as address:
        site = site_of(address, routes, people)
        width = max(map(len, people))
        try:
            for name, link in site.links.items():
                answer(f"{name:<{width}}  {link}")
            _print_access(address)
            serve(site)
        except KeyboardInterrupt:  # while it is handled, further signals do nothing (``stoppable``)
            note("Ended.")
            save()


def _print_access(address: SiteSocket) -> None:
    if address.uds:
        note(f"The page listens at {address.uds}. On a machine with a browser, first run: {address.tunnel}")
    elif address.remote:
        note("Other machines can reach the page, and the connection is not encrypted.")
    else:
        note(f"To open the links in another machine's browser, first run there: {address.tunnel}")
    note("Anyone with a link works under its name. Press Ctrl-C to close the page.")
