"""The answers of a results file as a page carries them: gzipped columns in base64, in little room whatever the file.

Every answer keeps its score and its marks. Texts are cut, and where they do not fit, those that are worth reading keep
theirs: what failed, changed between runs, was marked or scored lowest, then a sample of the rest. Documents never
travel.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lbx.report.page.html import cut
from lbx.visible import one_line, visible

if TYPE_CHECKING:
    from lbx.store import Store

MOST_ANSWERS = 250_000
_MOST_TEXTS = 60_000
_MOST_REFERENCES = 5

MARKS: Mapping[str, str] = {
    "failed": "g.error IS NOT NULL",
    "prompt empty": "g.error_type = 'EmptyPromptError'",
    "doubled BOS": "g.bos_tokens > 1",
    "reasoning unclosed": "g.reasoning_closed = false",
    "answer at its limit": "g.finish_reason = 'length' AND g.reasoning_closed IS DISTINCT FROM false",
    "stop string in reasoning": "g.stop_in_reasoning",
    "prompt cut": "g.truncated",
    "reference cut away": "g.reference_cut",
    "official script stops": "s.official_error IS NOT NULL",
    "score partial": "s.partial IS NOT NULL",
}
"""Marks of an answer, and what says so in the file."""

_USUAL = ("prompt cut", "score partial")
"""No reason to read an answer: most have them where a window is short, or a part of a metric is missing."""

_TEXT_KEPT = 1 << 15
_NO_SCORE = 0xFFFF
BITS: Mapping[str, int] = {"sample": 32, **dict.fromkeys(("run", "task", "iteration", "score", "alike", "marks"), 16)}
"""Of the columns that are numbers."""

_KEY = "run_id, benchmark, task, sample_id, iteration"
_CUT = (
    "CASE WHEN length({0}) > {1} THEN left({0}, {1}) || '… [' || (length({0}) - {1}) || ' characters more]' "
    "ELSE {0} END"
)

# A row an answer, in the order of the data. Waves are the order in which answers keep their texts: the interesting ones
# of each kind in turn, then the rest by chance (md5 of a seed and the name: the same in every page).
_ANSWERS = """
    WITH headline AS (
        SELECT {key}, any_value(score) AS score, any_value(left(extracted, {chars})) AS extracted,
               any_value(error) AS official_error, any_value(partial) AS partial
        FROM newest_scores WHERE headline GROUP BY ALL
    ), answers AS (
        SELECT {key}, hash(g.output) AS output_hash, s.extracted, g.error IS NOT NULL AS failed,
               CASE WHEN isfinite(s.score) THEN s.score END AS score, ({marks})::USMALLINT AS marks,
               md5_number_lower('0' || sample_id || task || iteration) AS chance
        FROM generations g LEFT JOIN headline s USING ({key}) WHERE run_id IN (SELECT unnest($1::VARCHAR[]))
    ), spread AS (
        SELECT *, max(coalesce(score, 0)) OVER same - min(coalesce(score, 0)) OVER same AS differs,
               least(dense_rank() OVER (PARTITION BY benchmark, task, sample_id, iteration ORDER BY output_hash), 65535)
                   AS alike
        FROM answers WINDOW same AS (PARTITION BY benchmark, task, sample_id, iteration)
    ), sorted AS (
        SELECT *, CASE WHEN failed THEN 1 WHEN differs > 0 THEN 2 WHEN marks & {telling} > 0 THEN 3
                       WHEN score < 0.5 THEN 4 ELSE 5 END AS kind
        FROM spread
    ), turns AS (
        SELECT *, row_number() OVER (
            PARTITION BY kind
            ORDER BY CASE kind WHEN 2 THEN -differs WHEN 4 THEN score ELSE 0 END, chance, sample_id, run_id) AS turn
        FROM sorted
    ), waves AS (
        SELECT *, row_number() OVER (ORDER BY kind = 5, turn, kind) AS wave FROM turns
    )
    SELECT w.run_id AS run, w.benchmark || '/' || w.task AS task, w.sample_id AS sample, w.wave, w.marks,
           w.iteration::USMALLINT AS iteration, w.alike::USMALLINT AS alike,
           coalesce(round(w.score * 10000), {no_score})::USMALLINT AS score,
           coalesce({output}, {error}, '') AS output, coalesce({reasoning}, '') AS reasoning,
           CASE WHEN w.wave <= {texts} THEN coalesce(w.extracted, '') ELSE '' END AS extracted
    FROM waves w
    LEFT JOIN generations t ON w.wave <= {texts} AND w.run_id = t.run_id AND w.benchmark = t.benchmark
        AND w.task = t.task AND w.sample_id = t.sample_id AND w.iteration = t.iteration
    LEFT JOIN samples a ON a.benchmark = w.benchmark AND a.task = w.task AND a.sample_id = w.sample_id
    WHERE w.wave <= {rows}
    ORDER BY w.benchmark, w.task, a.position, w.sample_id, w.iteration, w.run_id
"""

_QUESTIONS = """
    SELECT benchmark || '/' || task AS task, sample_id, {question}, "references"::VARCHAR FROM samples
"""


@dataclass(frozen=True, slots=True)
class Packed:
    """What of the answers travels.

    Attributes:
        tasks: by their numbers.
        columns: by name: numbers as little-endian 16 or 32 bits, texts as a JSON array; gzipped, in base64.
        answers, carried, texts: how many there are, are in the page, and have their texts there.
    """

    tasks: Sequence[str]
    columns: Mapping[str, str]
    answers: int
    carried: int
    texts: int


def packed(store: Store, runs: Sequence[str], *, chars: int, most_bytes: int) -> Packed:
    """The answers of these runs, in at most ``most_bytes`` of base64.

    Args:
        runs: in the order that gives each its number.
        chars: of each text, at most.
    """
    import numpy as np

    (total,) = store.query(
        "SELECT count(*) FROM generations WHERE run_id IN (SELECT unnest($1::VARCHAR[]))", [list(runs)]
    ).rows[0]
    found = store.arrays(_sql(chars), [list(runs)])
    rows = len(found["run"])
    names, sample_of = _numbered(zip(found["task"], found["sample"], strict=True))
    tasks, task_of = _numbered(task for task, _ in names)
    numbers = {run: i for i, run in enumerate(runs)}
    columns = {
        "run": _packed_numbers(np.fromiter((numbers[run] for run in found["run"]), np.uint16, rows)),
        "sample": _packed_numbers(np.asarray(sample_of, np.uint32)),
        "task": _packed_numbers(np.asarray(task_of, np.uint16)),
        "id": _packed_texts(one_line(cut(name, 200)) for _, name in names),
        **{name: _packed_numbers(found[name]) for name in ("iteration", "score", "alike")},
    }
    room = most_bytes - sum(map(len, columns.values()))
    kept, texts = _fitting(found, np.asarray(sample_of, np.uint32), _questions(store, names, chars), room)
    return Packed([one_line(cut(task, 200)) for task in tasks], columns | texts, total, rows, int(kept.sum()))


def _sql(chars: int) -> str:
    telling = sum(1 << i for i, mark in enumerate(MARKS) if mark not in _USUAL)
    return _ANSWERS.format(
        key=_KEY,
        chars=chars,
        marks=" + ".join(f"CASE WHEN {what} THEN {1 << i} ELSE 0 END" for i, what in enumerate(MARKS.values())),
        telling=telling,
        no_score=_NO_SCORE,
        texts=_MOST_TEXTS,
        rows=MOST_ANSWERS,
        **{name: _CUT.format(f"t.{name}", chars) for name in ("output", "error", "reasoning")},
    )


def _numbered(names: Iterable[Any]) -> tuple[list[Any], list[int]]:
    """Each name once, in the order they come, and for every one its number."""
    numbers: dict[Any, int] = {}
    of_each = [numbers.setdefault(name, len(numbers)) for name in names]
    return list(numbers), of_each


def _questions(store: Store, names: Sequence[tuple[str, str]], chars: int) -> list[tuple[str, list[str]]]:
    """Question and references of each sample."""
    rows = store.query(_QUESTIONS.format(question=_CUT.format("question", chars))).rows
    asked = {(task, sample): (question, references) for task, sample, question, references in rows}
    found = (asked.get(name, ("", "[]")) for name in names)
    return [(visible(question or ""), _references(references, chars)) for question, references in found]


def _references(text: str | None, chars: int) -> list[str]:
    values = json.loads(text or "[]")
    values = values if isinstance(values, list) else [values]
    shown = [visible(str(value)[:chars] + ("…" if len(str(value)) > chars else "")) for value in values]
    more = len(shown) - _MOST_REFERENCES
    return shown if more <= 0 else [*shown[:_MOST_REFERENCES], f"… and {more} more"]


def _fitting(
    found: Mapping[str, Any], sample_of: Any, asked: Sequence[tuple[str, list[str]]], room: int
) -> tuple[Any, dict[str, str]]:
    """Which answers keep their texts, as an array of booleans, and the columns of marks and texts in this room."""
    import numpy as np

    most = min(len(sample_of), _MOST_TEXTS)
    waves = min(most, max(room, 0) // 150)
    tried = False
    while True:
        kept = found["wave"] <= waves
        columns = {"marks": _packed_numbers(np.where(kept, found["marks"] | _TEXT_KEPT, found["marks"]))}
        for name in ("output", "reasoning", "extracted"):
            columns[name] = _packed_texts(map(visible, found[name][kept]))
        shown = np.zeros(len(asked), bool)
        shown[sample_of[kept]] = True
        columns["question"] = _packed_texts(q if s else "" for (q, _), s in zip(asked, shown, strict=True))
        columns["references"] = _packed_texts(r if s else [] for (_, r), s in zip(asked, shown, strict=True))
        size = sum(map(len, columns.values()))
        if (size <= room and (tried or waves == most)) or waves == 0:
            return kept, columns
        tried = True
        waves = min(most, int(waves * 0.97 * room / size)) if size else most


def _packed_numbers(values: Any) -> str:
    return _packed_bytes(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())


def _packed_texts(values: Iterable[Any]) -> str:
    return _packed_bytes(json.dumps(list(values), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _packed_bytes(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode("ascii")
