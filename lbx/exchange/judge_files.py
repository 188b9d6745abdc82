"""``lbx import leval_judge`` and ``fastchat``: judgements that were made elsewhere become a judge's run.

A second run of the judge in the same file is a run of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lbx.base.layout import Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.benchmark import named_apart
from lbx.benchmarks.base.templates import template_fields
from lbx.benchmarks.judge.benchmark import NAME, PAIR, Judging, Round, Rubric
from lbx.benchmarks.leval.judge import SCRIPT, VERDICTS, official_rubric
from lbx.benchmarks.leval.tasks import marks
from lbx.exchange.importing import refuse_other_content
from lbx.exchange.judge_lines import (
    FASTCHAT,
    LEVAL,
    NO_ANSWER,
    Asked,
    JudgedPair,
    JudgeFile,
    agreed,
    asked,
    number_lines,
    read_judge_file,
    shown,
)
from lbx.exchange.judge_sides import MT_BENCH, Compared, write_compared
from lbx.store import GenerationRow, RunRow, SampleRow, Store
from lbx.store.imports import import_of, write_import


@dataclass(frozen=True, slots=True)
class Judgements:
    """A file of judgements that is ready to be written; ``name`` is its first run's, the second has "-2" behind it."""

    file: JudgeFile
    name: str
    model: str
    rubric: Rubric
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
    rubric, told = _understood(form, [row for rows in file.attempts for row in rows], bundle)
    file = replace(file, attempts=[[replace(row, told=next(told)) for row in rows] for rows in file.attempts])
    model = model or file.attempts[0][0].judge
    return Judgements(file, run_id or f"{model}-{form}-{file.sha256[:8]}", model, rubric, bundle, metadata)


def _understood(form: str, rows: Sequence[JudgedPair], bundle: Bundle | None) -> tuple[Rubric, Iterator[Asked | None]]:
    """The rubric, the bundle's where all prompts are made by it, and what each row's prompts show."""
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
            return official, iter(told)
    rubric = Rubric("leval" if form == LEVAL else MT_BENCH, PAIR, "", "", VERDICTS, source=f"a file of {form}")
    return rubric, iter(shown(rows))


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
    compared = iter(write_compared(store, given.file, given.bundle))
    return [
        _write_attempt(store, given, number, rows, [next(compared) for _ in rows])
        for number, rows in enumerate(given.file.attempts, start=1)
    ]


def _write_attempt(
    store: Store, given: Judgements, number: int, rows: Sequence[JudgedPair], compared: Sequence[Compared]
) -> JudgeRun:
    run = _run_row(given, number, len(rows))
    samples = list(named_apart(_rounds(given.rubric, rows, compared)))
    generations = list(_generations(run.run_id, given.rubric.name, rows, samples))
    write_import(store, run, (SampleRow(sample, place) for place, sample in enumerate(samples)), generations)
    return JudgeRun(
        run.run_id,
        tuple(dict.fromkeys(said.run_id for one in compared for said in one.answers)),
        len(generations),
        sum(row.error is not None for row in generations),
        tuple(_numbers(given.file.form, rows)),
        tuple(f"{row.line.where}: {row.note}." for row in rows if row.note),
    )


def _run_row(given: Judgements, number: int, rows: int) -> RunRow:
    file, content, last = given.file, given.file.content, number == len(given.file.attempts)
    entry = {"name": file.path.name, "task": None, "rows": rows, "separator": content.separator}
    rubric = given.rubric.settings("both") | ({} if given.rubric.user else {"rubric_sha256": ""})  # of unknown words
    return import_of(
        file.form,
        file.sha256,
        given.bundle,
        run_id=given.name if number == 1 else f"{given.name}-{number}",
        model=given.model,
        versions={NAME: Judging.metric_version},
        metadata=given.metadata,
        attempt=number,
        files=[entry | {"final_newline": content.final_newline or not last}],
        **rubric,
    )


def _rounds(rubric: Rubric, rows: Sequence[JudgedPair], compared: Sequence[Compared]) -> Iterator[Sample]:
    """Two of each row. What a prompt does not tell for sure is no part of its round."""
    seen: dict[object, int] = {}
    for row, (sample, document, (judged, against)) in zip(rows, compared, strict=True):
        times = seen[sample.key] = seen.get(sample.key, -1) + 1
        texts = row.told.answers if row.told else row.prompts
        for answer_first in (True, False):
            found = Round(
                sample.benchmark, sample.task, sample.sample_id, sample.question, sample.references,
                judged.run_id, texts[0], judged.iteration, against.run_id, against.iteration, texts[1], answer_first,
                sample.language, document, marks(sample)[times : times + 1],
            ).sample(rubric)  # fmt: skip
            known = {key: value for key, value in found.meta.items() if row.told or key not in _OF_ANSWERS}
            yield replace(found, meta=known)


_OF_ANSWERS = ("answer_sha256", "against_sha256", "answer_words", "against_words")


def _generations(
    run_id: str, task: str, rows: Sequence[JudgedPair], samples: Sequence[Sample]
) -> Iterator[GenerationRow]:
    """Two of each row; the first one has its line."""
    for place, sample in enumerate(samples):
        row, second = rows[place // 2], place % 2
        text = row.judgements[second]
        failed = text == NO_ANSWER
        yield GenerationRow(
            run_id, NAME, task, sample.sample_id, 0,
            output=None if failed else text, error=text if failed else None,
            error_type="imported" if failed else None, source_row=None if second else row.line.raw,
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
