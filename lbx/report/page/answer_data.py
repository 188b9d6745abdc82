"""Data of a results file's answers in a page: gzipped columns in base64, of limited size for any file.

Scores and marks of all answers are included. Texts are cut. If they do not fit, only texts of the most interesting
answers are included: failed, different between runs, marked or lowest in score, then a sample of the others. Documents
are never included.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lbx.base.marks import MARKS
from lbx.base.visible import one_line, visible
from lbx.report.page.html import truncate_text

if TYPE_CHECKING:
    from lbx.results import Store

MOST_ANSWERS = 250_000
_MOST_TEXTS = 60_000
_MOST_REFERENCES = 5

_FAILED_FIRST = sorted(MARKS, key=lambda mark: mark.name != "failed")
WORDS = [mark.label for mark in _FAILED_FIRST]
"""Words for the marks, in the order of the marks' bits."""
MARK_NAMES = [mark.name for mark in _FAILED_FIRST]

_TEXT_KEPT = 1 << 15
_NO_SCORE = 0xFFFF
BITS: Mapping[str, int] = {"sample": 32, **dict.fromkeys(("run", "task", "iteration", "score", "alike", "marks"), 16)}
"""{numeric column: bits per value}."""

_KEY = "run_id, benchmark, task, sample_id, iteration"
_CUT = (
    "CASE WHEN length({0}) > {1} THEN left({0}, {1}) || '… [' || (length({0}) - {1}) || ' characters more]' "
    "ELSE {0} END"
)

_NAMED = """
    SELECT *, (row_number() OVER (ORDER BY benchmark, task, position, sample_id) - 1)::UINTEGER AS sample
    FROM (SELECT DISTINCT benchmark, task, sample_id FROM generations WHERE run_id IN (SELECT unnest($1::VARCHAR[])))
    LEFT JOIN samples USING (benchmark, task, sample_id)
"""
"""Query of samples and their numbers, in the order of the data."""

# A row of numbers for each answer, in the order of the data. Answers keep their texts in the order of waves: the
# interesting ones of each kind in turn, then a random order (md5 of a seed and the name: the same for every page).
_ANSWERS = """
    WITH named AS ({named}), chosen AS (
        SELECT unnest($1::VARCHAR[]) AS run_id, unnest(range(len($1::VARCHAR[])))::USMALLINT AS run
    ), headline AS (
        SELECT run, sample, iteration, any_value(score) AS score, any_value(error) AS error,
               any_value(partial) AS partial, any_value(extracted) AS extracted, any_value(loose) AS loose
        FROM {scores} JOIN chosen USING (run_id) JOIN named USING (benchmark, task, sample_id)
        WHERE headline GROUP BY ALL
    ), answers AS (
        SELECT run, sample, iteration, g.rowid AS place, hash(coalesce(g.output, g.error)) AS output_hash,
               CASE WHEN isfinite(s.score) THEN s.score END AS score, ({marks})::USMALLINT AS marks,
               md5_number_lower('0' || sample_id || task || iteration) AS chance
        FROM generations g JOIN chosen USING (run_id) JOIN named USING (benchmark, task, sample_id)
        LEFT JOIN headline s USING (run, sample, iteration)
    ), spread AS (
        SELECT *, max(coalesce(score, 0)) OVER same - min(coalesce(score, 0)) OVER same AS differs,
               least(dense_rank() OVER (same ORDER BY output_hash), 65535)::USMALLINT AS alike
        FROM answers WINDOW same AS (PARTITION BY sample, iteration)
    ), sorted AS (
        SELECT *, CASE WHEN marks & {failed} > 0 THEN 1 WHEN differs > 0 THEN 2 WHEN marks & {telling} > 0 THEN 3
                       WHEN score < 0.5 THEN 4 ELSE 5 END AS kind
        FROM spread
    ), turns AS (
        SELECT *, row_number() OVER (
            PARTITION BY kind
            ORDER BY CASE kind WHEN 2 THEN -differs WHEN 4 THEN score ELSE 0 END, chance, sample, run) AS turn
        FROM sorted
    )
    SELECT run, sample, iteration::USMALLINT AS iteration, place, marks, alike,
           coalesce(round(score * 10000), {no_score})::USMALLINT AS score,
           row_number() OVER (ORDER BY kind = 5, turn, kind) AS wave
    FROM turns QUALIFY wave <= {rows} ORDER BY sample, iteration, run
"""

_QUESTIONS = """
    SELECT benchmark || '/' || task, sample_id, {question}, "references"::VARCHAR FROM ({named}) ORDER BY sample
"""

_TEXTS = """
    WITH headline AS (
        SELECT {key}, any_value(left(extracted, {chars})) AS extracted FROM {scores} WHERE headline GROUP BY ALL
    )
    SELECT coalesce({output}, {error}, '') AS output, coalesce({reasoning}, '') AS reasoning,
           coalesce(extracted, '') AS extracted
    FROM (SELECT unnest($1::BIGINT[]) AS place, unnest(range(len($1::BIGINT[]))) AS nth)
    JOIN generations g ON g.rowid = place LEFT JOIN headline USING ({key}) ORDER BY nth
"""


@dataclass(frozen=True, slots=True)
class PackedAnswers:
    """Packed answers of a page.

    Attributes:
        tasks: Tasks by number.
        columns: {name: gzipped column in base64}. Numbers are little-endian in 16 or 32 bits, those of ``sample`` less
            the number before. ``texts`` is a JSON array of question, references, and output, reasoning and extracted
            answer of each answer with texts, by sample: texts that repeat each other are close, and packed well.
        answers, answers_in_page, texts: Number of answers in the file, in the page, and with texts in the page.
    """

    tasks: Sequence[str]
    columns: Mapping[str, str]
    answers: int
    answers_in_page: int
    texts: int


def pack_answers(store: Store, runs: Sequence[str], *, chars: int, most_bytes: int) -> PackedAnswers:
    """Pack the answers of runs into at most ``most_bytes`` of base64.

    Args:
        runs: Runs in the order of their numbers.
        chars: Maximum number of characters of each text.
    """
    import numpy as np

    (total,) = store.query(
        "SELECT count(*) FROM generations WHERE run_id IN (SELECT unnest($1::VARCHAR[]))", [list(runs)]
    ).rows[0]
    arrays = store.arrays(_answers(store), [list(runs)])
    question = _CUT.format("question", chars)
    samples = store.query(_QUESTIONS.format(named=_NAMED, question=question), [list(runs)]).rows
    tasks = list(dict.fromkeys(task for task, *_ in samples))
    numbers = {task: i for i, task in enumerate(tasks)}
    columns = {
        "task": _pack_numbers(np.fromiter((numbers[task] for task, *_ in samples), np.uint16, len(samples))),
        "id": _pack_texts(one_line(truncate_text(name, 200)) for _, name, *_ in samples),
        "sample": _pack_numbers(np.diff(arrays["sample"], prepend=np.uint32(0))),
        **{name: _pack_numbers(arrays[name]) for name in ("run", "iteration", "score", "alike")},
    }
    room = most_bytes - sum(map(len, columns.values()))
    has_texts, texts = _fit_texts(store, arrays, samples, chars, room)
    answers_in_page = len(arrays["run"])
    return PackedAnswers(
        [one_line(truncate_text(task, 200)) for task in tasks],
        columns | texts,
        total,
        answers_in_page,
        int(has_texts.sum()),
    )


def group_tasks(tasks: Iterable[str]) -> list[tuple[str, str]]:
    """List choices of tasks as (name, title). The tasks of a benchmark follow a choice "benchmark/" for all of them."""
    choices: list[tuple[str, str]] = []
    for benchmark, group in groupby(tasks, key=lambda task: task.partition("/")[0]):
        choices += ((f"{benchmark}/", f"{benchmark}: all tasks"), *((name, name) for name in group))
    return choices


def _answers(store: Store) -> str:
    return _ANSWERS.format(
        named=_NAMED,
        scores="scores",
        key=_KEY,
        marks=" + ".join(
            f"CASE WHEN {mark.answer_test_sql('s' if mark.tests_score else 'g')} THEN {1 << i} ELSE 0 END"
            for i, mark in enumerate(_FAILED_FIRST)
        ),
        failed=1,
        telling=sum(1 << i for i, mark in enumerate(_FAILED_FIRST) if mark.severity != "usual"),
        no_score=_NO_SCORE,
        rows=MOST_ANSWERS,
    )


def _references(text: str | None, chars: int) -> list[str]:
    values = json.loads(text or "[]")
    values = values if isinstance(values, list) else [values]
    texts = [visible(str(value)[:chars] + ("…" if len(str(value)) > chars else "")) for value in values]
    more = len(texts) - _MOST_REFERENCES
    return texts if more <= 0 else [*texts[:_MOST_REFERENCES], f"… and {more} more"]


def _fit_texts(
    store: Store, arrays: Mapping[str, Any], samples: Sequence[tuple[Any, ...]], chars: int, room: int
) -> tuple[Any, dict[str, str]]:
    """Select the answers whose texts are included, and pack marks and texts into ``room`` bytes.

    Returns the selection as a boolean array, and the packed columns.
    """
    import numpy as np

    cuts = {name: _CUT.format(f"g.{name}", chars) for name in ("output", "error", "reasoning")}
    sql = _TEXTS.format(scores="scores", key=_KEY, chars=chars, **cuts)
    most = min(len(arrays["sample"]), _MOST_TEXTS)
    waves = min(most, max(room, 0) // 150)
    tried = False
    while True:
        has_texts = arrays["wave"] <= waves
        columns = {"marks": _pack_numbers(np.where(has_texts, arrays["marks"] | _TEXT_KEPT, arrays["marks"]))}
        texts: list[list[Any]] = [["", []] for _ in samples]
        in_texts = arrays["sample"][has_texts].tolist()
        for sample in dict.fromkeys(in_texts):
            *_, question, references = samples[sample]
            texts[sample] = [visible(question or ""), _references(references, chars)]
        of_answers = store.arrays(sql, [arrays["place"][has_texts].tolist()]).values()
        for sample, *answer in zip(in_texts, *of_answers, strict=True):
            texts[sample] += map(visible, answer)
        columns["texts"] = _pack_texts(texts)
        size = sum(map(len, columns.values()))
        if (size <= room and (tried or waves == most)) or waves == 0:
            return has_texts, columns
        tried = True
        waves = min(most, int(waves * 0.97 * room / size)) if size else most


def _pack_numbers(values: Any) -> str:
    return _pack_bytes(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())


def _pack_texts(values: Iterable[Any]) -> str:
    return _pack_bytes(json.dumps(list(values), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _pack_bytes(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 6, mtime=0)).decode("ascii")
