"""``lbx import leval_judge`` and ``fastchat``: judgements that were made elsewhere become a judge's run.

A second run of the judge in the same file is a run of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lbx.benchmarks.base import named_apart
from lbx.benchmarks.judging import NAME, PAIR, Judging, Round, Rubric
from lbx.benchmarks.leval_judge import SCRIPT, VERDICTS, official_rubric
from lbx.benchmarks.leval_tasks import marks
from lbx.benchmarks.templates import template_fields
from lbx.exchange.importing import batches, refuse_other_content
from lbx.exchange.judge_lines import (
    FASTCHAT,
    LEVAL,
    NO_ANSWER,
    JudgedPair,
    JudgeFile,
    agreed,
    asked,
    number_lines,
    read_judge_file,
    shown,
)
from lbx.exchange.judge_sides import MT_BENCH, Compared, Origin, Row, write_compared
from lbx.layout import Bundle
from lbx.records import Sample
from lbx.store import GenerationRow, RunRow, SampleRow, Store
from lbx.version import __version__


@dataclass(frozen=True, slots=True)
class Judgements:
    """A file of judgements that is ready to be written.

    Attributes:
        name: of its first run of the judge; the second has "-2" behind it.
        attempts: the rows of each, with what their prompts show.
    """

    form: str
    path: Path
    file: JudgeFile
    name: str
    model: str
    rubric: Rubric
    attempts: Sequence[Sequence[Row]]
    bundle: Bundle | None = None
    metadata: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class JudgeRun:
    """What an import made of one run of a judge.

    Attributes:
        compared: the runs whose answers it compares.
        rounds: two a question.
        failed: rounds without a judgement.
        numbers: lines of numbers, counted as the file's own script does.
        notes: a sentence for each row that was not taken as it stands.
    """

    run_id: str
    compared: tuple[str, ...]
    rounds: int
    failed: int
    numbers: tuple[str, ...]
    notes: tuple[str, ...] = ()


def understand_judgements(
    form: str,
    path: Path,
    *,
    model: str | None = None,
    run_id: str | None = None,
    bundle: Bundle | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Judgements:
    """Read and check a file of judgements; nothing is written.

    Args:
        form: one of ``judge_lines.FORMATS``.
        model: the judge's name; the file's own where none is given.
        run_id: JUDGE-FORMAT- and the content's hash where none is given.
        bundle: match L-Eval's questions with its samples, and read the prompts by its judge's template.

    Raises:
        UsageError: the path or a line in it is wrong.
        BundleError: the bundle's judge is not the one that lbx was written for.
    """
    file = read_judge_file(form, path)
    bundle = bundle if form == LEVAL else None
    rubric, rows = _understood(form, [row for rows in file.attempts for row in rows], bundle)
    told = iter(rows)
    attempts = [[next(told) for _ in rows] for rows in file.attempts]
    model = model or rows[0][0].judge
    name = run_id or f"{model}-{form}-{file.sha256[:8]}"
    return Judgements(form, path, file, name, model, rubric, attempts, bundle, metadata)


def _understood(form: str, rows: Sequence[JudgedPair], bundle: Bundle | None) -> tuple[Rubric, list[Row]]:
    """The rubric, the bundle's where all prompts are made by it, and the rows with what their prompts show."""
    script = bundle.file(SCRIPT) if bundle else None
    if script is not None:
        official = official_rubric(script)
        words, names = [""], []
        for text, name in template_fields(official.user):
            words[-1] += text
            if name is not None:
                names.append(name)
                words.append("")
        told = [asked(words, names, row.prompts) for row in rows]
        if all(told):
            return official, list(zip(rows, told, strict=True))
    rubric = Rubric("leval" if form == LEVAL else MT_BENCH, PAIR, "", "", VERDICTS, source=f"a file of {form}")
    return rubric, list(zip(rows, shown(rows), strict=True))


def write_judgements(store: Store, given: Judgements) -> list[JudgeRun]:
    """Write the judge's runs, which stay open until ``Store.finish_run``, and those that they compare.

    Answers are those of the runs in the results file that gave exactly these, else of runs that are made of what the
    prompts show. The same file again replaces the same rows.

    Raises:
        UsageError: no question is the bundle's.
        BundleError: the bundle has none of the questions' tasks, or they are damaged.
        StoreError: the results file holds another run of one of the names.
    """
    refuse_other_content(store, given.name, given.file.sha256)
    rows = [row for rows in given.attempts for row in rows]
    compared = iter(write_compared(store, Origin(given.form, given.file.sha256, given.bundle), rows))
    return [
        _write_attempt(store, given, number, rows, [next(compared) for _ in rows])
        for number, rows in enumerate(given.attempts, start=1)
    ]


def _write_attempt(
    store: Store, given: Judgements, number: int, rows: Sequence[Row], compared: Sequence[Compared]
) -> JudgeRun:
    run_id = given.name if number == 1 else f"{given.name}-{number}"
    store.begin_run(_run_row(given, run_id, number, len(rows)))
    try:
        samples = list(named_apart(_rounds(given.rubric, rows, compared)))
        generations = list(_generations(run_id, given.rubric.name, [row for row, _ in rows], samples))
        for batch in batches((SampleRow(sample, place), 1000) for place, sample in enumerate(samples)):
            store.write(samples=[row for row, _ in batch])
        for lines in batches((row, len(row.output or "") + len(row.source_row or "")) for row in generations):
            store.write(generations=[row for row, _ in lines])
    except BaseException:
        store.finish_run(run_id, "interrupted")
        raise
    return JudgeRun(
        run_id,
        tuple(dict.fromkeys(said.run_id for one in compared for said in one.answers)),
        len(generations),
        sum(row.error is not None for row in generations),
        tuple(_numbers(given.form, [row for row, _ in rows])),
        tuple(f"{row.line.where}: {row.note}." for row, _ in rows if row.note),
    )


def _run_row(given: Judgements, run_id: str, number: int, rows: int) -> RunRow:
    content, last = given.file.content, number == len(given.attempts)
    settings: dict[str, Any] = {
        "imported": given.form,
        "content_sha256": given.file.sha256,
        "attempt": number,
        "files": [
            {
                "name": given.path.name,
                "task": None,
                "rows": rows,
                "final_newline": content.final_newline or not last,
                "separator": content.separator,
            }
        ],
        **given.rubric.settings("both"),
    }
    if not given.rubric.user:
        settings["rubric_sha256"] = ""  # nobody knows the words
    return RunRow(
        run_id=run_id,
        model=given.model,
        backend="import",
        backend_version="",
        benchmark_versions={NAME: Judging.metric_version},
        bundle_digest=given.bundle.digest if given.bundle else "",
        settings=settings,
        hardware={},
        lbx_version=__version__,
        metadata=given.metadata or None,
    )


def _rounds(rubric: Rubric, rows: Sequence[Row], compared: Sequence[Compared]) -> Iterator[Sample]:
    """Two of each row. What a prompt does not tell for sure is no part of its round."""
    seen: dict[object, int] = {}
    for (row, told), (sample, document, (judged, against)) in zip(rows, compared, strict=True):
        times = seen[sample.key] = seen.get(sample.key, -1) + 1
        texts = told.answers if told else row.prompts
        for answer_first in (True, False):
            found = Round(
                sample.benchmark, sample.task, sample.sample_id, sample.question, sample.references,
                judged.run_id, texts[0], judged.iteration, against.run_id, against.iteration, texts[1], answer_first,
                sample.language, document, marks(sample)[times : times + 1],
            ).sample(rubric)  # fmt: skip
            meta = found.meta if told else {key: value for key, value in found.meta.items() if key not in _OF_ANSWERS}
            yield replace(found, meta=meta)


_OF_ANSWERS = ("answer_sha256", "against_sha256", "answer_words", "against_words")


def _generations(
    run_id: str, task: str, rows: Sequence[JudgedPair], samples: Sequence[Sample]
) -> Iterator[GenerationRow]:
    """Two of each row; the first one has its line. Export goes by their times."""
    now = datetime.now(UTC)
    for place, sample in enumerate(samples):
        row, second = rows[place // 2], place % 2
        text = row.judgements[second]
        failed = text == NO_ANSWER
        yield GenerationRow(
            run_id, NAME, task, sample.sample_id, 0,
            output=None if failed else text, error=text if failed else None,
            error_type="imported" if failed else None, source_row=None if second else row.line.raw,
            created_at=now + timedelta(microseconds=place),
        )  # fmt: skip


def _numbers(form: str, rows: Sequence[JudgedPair]) -> Iterator[str]:
    names = dict.fromkeys(name for row in rows for name in row.names)
    for name in names:
        wins = sum(row.names[one] == name for row in rows for one in row.winners if isinstance(one, int))
        yield f"n_wins of {name} = {wins}"
    yield from number_lines(rows)
    if form == FASTCHAT and len(names) == 2:
        won, lost, tied = agreed(rows)
        if total := won + lost + tied:
            rate = (won + tied / 2) / total
            yield f"in both orders: {won} won, {lost} lost, {tied} tied; adjusted win rate {rate}"
