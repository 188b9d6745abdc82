"""Names that are hashes of contents: rounds of judges, and sets of ratings. Both contain the names of runs.

A judge that continues after a change of runs must find its rounds again, or it would judge the same answers twice. A
merge refuses two sets of one name with different contents.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lbx.base.records import canonical_json, sha256_text
from lbx.benchmarks.judge import NAME, Round
from lbx.judging.rating_sets import set_id_of
from lbx.store import Store
from lbx.store.edits import read_rounds
from lbx.store.rows import stored_sample

RoundKey = tuple[str, str]
"""(rubric, name)"""


def renamed_rounds(store: Store, old: str, new: str) -> dict[RoundKey, str]:
    """Return {round: its name after a change of a run's name}, read before that change.

    A round on an answer that has changed since gets another new name, because no judge is asked about it again.
    """
    names: dict[RoundKey, str] = {}
    for row in read_rounds(store, old):
        key, round_, rubric_sha256 = (row["task"], row["sample_id"]), _round_of(row), row["rubric_sha256"] or ""
        if round_.name(rubric_sha256) == key[1]:
            run_id, against = (new if name == old else name for name in (round_.run_id, round_.against_run_id))
            names[key] = replace(round_, run_id=run_id or "", against_run_id=against).name(rubric_sha256)
        else:
            names.setdefault(key, sha256_text(canonical_json([key[1], new]))[: len(key[1])])
    return names


def _round_of(row: Mapping[str, Any]) -> Round:
    sample = stored_sample(NAME, row["task"], row)
    meta = sample.meta
    return Round(
        benchmark=str(meta.get("benchmark")),
        task=str(meta.get("task")),
        sample_id=str(meta.get("sample_id")),
        question=sample.question,
        references=sample.references,
        run_id=str(meta.get("run_id")),
        answer=row["answer"],
        iteration=meta.get("iteration", 0),
        against_run_id=meta.get("against_run_id"),
        against_iteration=meta.get("against_iteration", 0),
        against=row["opponent"],
        answer_first=meta.get("answer_first", True),
        language=sample.language,
        document_sha256=meta.get("document_sha256", ""),
        marks=meta.get("marks", ()),
    )


def content_set_ids(store: Store) -> dict[str, str]:
    """Return {set of ratings: the hash of its content}; a set with a name of its own has another name."""
    rows = store.query("SELECT * FROM rating_items ORDER BY set_id, item").dicts()
    items: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        items.setdefault(row["set_id"], []).append({**row, "set_id": "", "meta": json.loads(row["meta"])})
    return {
        row["set_id"]: set_id_of({**row, "set_id": "", "runs": json.loads(row["runs"])}, items.get(row["set_id"], []))
        for row in store.query("SELECT * FROM rating_sets ORDER BY set_id").dicts()
    }
