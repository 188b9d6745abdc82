"""What ``lbx browse`` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.cli.output import note
from lbx.cli.showing import rebuilt_prompts
from lbx.cli.sites import open_site
from lbx.store import Store
from lbx.store.answers import StoredAnswer
from lbx.store.runs import check_runs
from lbx.web.browsing import BrowsingPages


def browse_answers(
    *,
    results: Path,
    bundle: Path | None,
    model: str | None,
    runs: list[str] | None,
    tasks: list[str] | None,
    host: str,
    port: int,
    uds: Path | None,
    others: bool,
) -> None:
    """See ``lbx browse``."""
    with Store(results, read_only=True) as store:
        check_runs(store, runs or ())
        held = [
            row[0] for row in store.query("SELECT DISTINCT benchmark || '/' || task FROM samples ORDER BY ALL").rows
        ]
    for task in tasks or ():
        if task not in held:
            raise UsageError(f"{results} has no task {task!r}.", fix=f"It has {', '.join(held) or 'none'}.")
    opened = Bundle(bundle) if bundle else None

    def prompts(answer: StoredAnswer) -> Sequence[Mapping[str, Any]]:
        return [sent.to_json() for sent in rebuilt_prompts(results, answer, bundle, model)]

    pages = BrowsingPages(results, bundle=opened, prompts=prompts, runs=runs or (), tasks=tasks or ())
    if opened is None:
        note("Without --bundle there are no documents.")
    open_site(pages.routes, ["you"], host=host, port=port, uds=uds, others=others)
