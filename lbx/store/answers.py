"""Single answers of a results file, with all that is stored of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lbx.errors import UsageError
from lbx.records import SampleKey
from lbx.store.rows import Table
from lbx.store.store import Store

_JSON = ("references", "meta", "steps")
_ANSWER = "run_id, benchmark, task, sample_id, iteration"


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One answer.

    Attributes:
        key: of its sample and iteration.
        values: columns of ``generations`` and, of its sample, question, references, language, length, length_unit and
            meta.
        scores: rows of ``newest_scores``: metric, metric_version, score, extracted, headline, error, partial.
    """

    key: SampleKey
    values: Mapping[str, Any]
    scores: Sequence[Mapping[str, Any]]

    @property
    def run_id(self) -> str:
        return str(self.values["run_id"])

    @property
    def marks(self) -> list[str]:
        """What may have spoilt its score, in words."""
        row = self.values
        found = {
            "failed": row.get("error") is not None,
            f"{row.get('tokens_cut') or 'some'} tokens of the prompt were cut": row.get("truncated"),
            "the only place of a reference was cut away": row.get("reference_cut"),
            "doubled BOS": (row.get("bos_tokens") or 0) > 1,
            "the budget ran out inside the reasoning": row.get("reasoning_closed") is False,
            "the budget ran out": row.get("finish_reason") == "length" and row.get("reasoning_closed") is not False,
            "a stop string inside the reasoning": row.get("stop_in_reasoning"),
        }
        return [mark for mark, there in found.items() if there]


def list_answers(store: Store, runs: Sequence[str], pattern: str, limit: int) -> Table:
    """The first answers, in the data's order: run, sample, headline score, tokens, what may have spoilt it.

    Args:
        runs: only these; () for all.
        pattern: of "benchmark/task/sample_id", with * and ?.
    """
    return store.query(
        f"""
        SELECT g.run_id, g.benchmark || '/' || g.task || '/' || g.sample_id
                   || CASE WHEN g.iteration > 0 THEN '#' || g.iteration ELSE '' END AS sample,
               c.score, g.prompt_tokens, g.output_tokens,
               concat_ws(', ', CASE WHEN g.error IS NOT NULL THEN 'failed' END, CASE WHEN g.truncated THEN 'cut' END,
                   CASE WHEN g.reasoning_closed = false THEN 'reasoning unclosed'
                        WHEN g.finish_reason = 'length' THEN 'out of tokens' END) AS marks
        FROM generations g JOIN samples s USING (benchmark, task, sample_id)
        LEFT JOIN (SELECT {_ANSWER}, score FROM newest_scores WHERE headline) c USING ({_ANSWER})
        WHERE (len(?) = 0 OR list_contains(?, g.run_id)) AND (g.benchmark || '/' || g.task || '/' || g.sample_id) GLOB ?
        ORDER BY g.run_id, g.benchmark, g.task, s.position, g.iteration LIMIT ?
        """,
        [list(runs), list(runs), pattern, limit],
    )


def find_answers(store: Store, name: str, runs: Sequence[str]) -> list[StoredAnswer]:
    """Each run's answers to one sample.

    Args:
        name: "benchmark/task/sample_id", perhaps with "#iteration"; or a sample id that only one task has.
        runs: only these; () for all.

    Raises:
        UsageError: there is none, or several tasks have a sample of that name.
    """
    found = store.query(
        f"""
        SELECT g.*, s.question, s."references", s.language, s.length, s.length_unit, s.meta
        FROM generations g JOIN samples s USING (benchmark, task, sample_id)
        WHERE (len(?) = 0 OR list_contains(?, g.run_id)) AND ? IN (
            g.sample_id, g.benchmark || '/' || g.task || '/' || g.sample_id,
            g.benchmark || '/' || g.task || '/' || g.sample_id || '#' || g.iteration)
        ORDER BY {_ANSWER}
        """,
        [list(runs), list(runs), name],
    ).dicts()
    tasks = sorted({f"{row['benchmark']}/{row['task']}" for row in found})
    if not found:
        raise UsageError(f"{store.path} holds no answer to a sample {name}.", fix="`lbx show` without it lists them.")
    if len(tasks) > 1:
        names = ", ".join(f"{task}/{name}" for task in tasks)
        raise UsageError(f"Several tasks have a sample {name}.", fix=f"Name one: {names}.")
    return [_answer(store, row) for row in found]


def _answer(store: Store, row: dict[str, Any]) -> StoredAnswer:
    key = SampleKey(row["benchmark"], row["task"], row["sample_id"], row["iteration"])
    scores = store.query(
        "SELECT metric, metric_version, score, extracted, headline, error, partial FROM newest_scores "
        "WHERE run_id = ? AND benchmark = ? AND task = ? AND sample_id = ? AND iteration = ? "
        "ORDER BY headline DESC, metric",
        [row["run_id"], *key],
    ).dicts()
    values = {name: json.loads(value) if name in _JSON and value is not None else value for name, value in row.items()}
    return StoredAnswer(key, values, scores)
