"""Answers that a benchmark's authors published and a bundle brings: runs to compare with, and to test a judge by."""

from __future__ import annotations

import json
from pathlib import Path

from lbx.base.commands import as_command
from lbx.base.errors import BundleError
from lbx.base.layout import Bundle
from lbx.benchmarks import BENCHMARKS, official_judges
from lbx.benchmarks.base.official_judge import OFFICIAL, OfficialJudge, published_run_id
from lbx.exchange.importing import Understood, write_predictions
from lbx.exchange.judged import match_judged, read_judged
from lbx.exchange.naming import format_named
from lbx.store import Store


def published_run(store: Store, bundle: Bundle, name: str, *, length_hint: bool = True) -> str:
    """A model's published answers to the judged questions as a run, which is imported where it is not there yet.

    Its samples are the bundle's. A question that is marked for the judge and for people has two answers, iterations 0
    (the judge's) and 1.

    Returns:
        The run's name, "published-NAME", with "-no-length-hint" behind it where there was none.

    Raises:
        BundleError: the bundle has no such answers, or none of the questions.
        StoreError: the results file holds other answers, or other samples, under these names.
    """
    judge = official_judges()[OFFICIAL]
    run_id = published_run_id(name, length_hint=length_hint)
    form = format_named(judge.benchmark)
    reading = read_judged(form, _files(bundle, judge, name, length_hint))
    if _is_there(store, run_id, reading.content_sha256):
        return run_id
    reading = match_judged(form, bundle, reading)
    told = {"published": True, "length_hint": length_hint}
    done = write_predictions(store, Understood(form, reading, run_id, name, bundle, told=told))
    store.finish_run(done.run_id, "done")
    return done.run_id


def _is_there(store: Store, run_id: str, content: str) -> bool:
    rows = store.query("SELECT settings FROM runs WHERE run_id = ? AND status = 'done'", [run_id]).rows
    return any(json.loads(settings).get("content_sha256") == content for (settings,) in rows)


def _files(bundle: Bundle, judge: OfficialJudge, name: str, length_hint: bool) -> list[Path]:
    known = judge.published(bundle, length_hint)
    if name in known:
        return [path for place in known[name] if (path := bundle.file(place))]
    hint = "with" if length_hint else "without"
    raise BundleError(
        f"The bundle at {bundle.root} holds no published answers of {name!r}, asked {hint} a hint at the length.",
        fix=f"It holds those of {', '.join(known)}." if known else f"Bundle {judge.title} on a connected machine.",
        command="" if known else as_command("lbx", "bundle", BENCHMARKS[judge.benchmark].recipe),
    )
