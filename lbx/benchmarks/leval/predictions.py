"""L-Eval's prediction files ({task}.pred.jsonl, or {model}.pred.jsonl for a judge), and tables for its leaderboard.

Source: Evaluation/auto_eval.py and Baselines/turbo16k-test.py of
https://github.com/OpenLMLab/LEval/tree/cd34b050269148aed75acbbe4a599873ad0f37e9

    {"query": "...", "gt": "...", "prompt": "...", "MODEL_pred": "...", "evaluation": "f1"}

The answer's key is the first key of the first row that contains "_pred". Rows marked "LLM" or "human" are skipped, but
count in topic_retrieval_longchat, where a row's number in the file determines the topic of its question. For F1,
ROUGE and topic retrieval, an answer or a reference that is not text is converted to text; elsewhere auto_eval.py stops
at it. A row without "evaluation", at which it stops too, gets the mark that its task is scored by. The authors' own
files differ in a few questions, so without a bundle a sample is named by a hash of its question, not by its position.

Rows of {model}.pred.jsonl are marked "LLM" or "human" and name no task. Evaluation/llm_eval.py converts values that
are not text.

The leaderboard consists of tables with a row for each model, in the format required of a submission.

Source: "How to Submit" in README.md of
https://github.com/OpenLMLab/LEval/tree/cd34b050269148aed75acbbe4a599873ad0f37e9; the files are named as in Leaderboard/
of 2a14858bd40de8be863010de3a09c4ee120c14bf. No script writes them: auto_eval.py prints a task's number, which is
rounded here to two decimals.

Two more tables contain judges' results against turbo and Claude, three columns for each judge.

``Length`` is the mean number of words of the answers. Columns that a run's settings lack come from its metadata, by
the column's name; other keys of the metadata become columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from lbx.base.records import Sample, canonical_json, sha256_text
from lbx.benchmarks.base.benchmark import MARKS
from lbx.benchmarks.base.prediction_lines import PredictionLine, describe_value, prediction_file_error
from lbx.benchmarks.base.predictions import (
    NO_TASK,
    AnswerToExport,
    ExportedFile,
    Prediction,
    PredictionFormat,
    ScoredRun,
    file_part,
    join_csv,
    judged_sample,
    to_csv,
)
from lbx.benchmarks.leval.judge import published_run_id
from lbx.benchmarks.leval.tasks import BASELINE, KINDS, OPEN, SCORED

_GAP = "none"
"""``evaluation`` of a placeholder row, which auto_eval.py skips."""
_NO_TEXT = "the answer is not text; its Python representation is scored, as officially"
_REFERENCE_NO_TEXT = "'gt' is not text; its Python representation is the reference, as officially"


class LEvalFormat(PredictionFormat):
    folder = True
    score_keys = ("evaluation", "topic")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        answer_key = _answer_key(lines)
        return _with_unique_ids(self._prediction(task, number, line, answer_key) for number, line in enumerate(lines))

    def is_judge_row(self, line: PredictionLine) -> bool:
        return line.values.get("evaluation") in MARKS

    def read_judge_rows(self, lines: Sequence[PredictionLine]) -> list[Prediction]:
        answer_key = _answer_key(lines)
        return _with_unique_ids(
            self._judge_row_prediction(number, line, answer_key) for number, line in enumerate(lines)
        )

    def _judge_row_prediction(self, number: int, line: PredictionLine, answer_key: str) -> Prediction:
        evaluation = line.text("evaluation")
        if evaluation not in MARKS:
            raise prediction_file_error(
                line.location,
                f"'evaluation' is {evaluation!r}; a file without a task name has rows for a judge (LLM, human)",
            )
        question, reference = (_to_text(line.require(key)) for key in ("query", "gt"))
        sample = judged_sample(self.name, question, reference, evaluation)
        answer = line.require(answer_key)
        ignored_keys = [key for key in line.values if "_pred" in key and key != answer_key]
        notes = [_NO_TEXT] * (not isinstance(answer, str))
        notes += [f"{' and '.join(map(repr, ignored_keys))} ignored: {answer_key!r} has the answer"] * bool(
            ignored_keys
        )
        return Prediction(line, NO_TASK, sample.sample_id, number, sample, _to_text(answer), note="; ".join(notes))

    def _prediction(self, task: str, number: int, line: PredictionLine, answer_key: str) -> Prediction:
        evaluation, sample_id = line.values.get("evaluation"), "gap"
        if evaluation is None:
            evaluation = _expected_evaluation(task)
        if not isinstance(evaluation, str):
            evaluation = line.text("evaluation")
        if evaluation == _GAP and isinstance(line.values.get("error"), str):
            return Prediction(line, task, sample_id, number, None, error=line.values["error"])
        if evaluation in SCORED and evaluation != _expected_evaluation(task):
            raise prediction_file_error(
                line.location, f"{task} is scored by {_expected_evaluation(task)!r}, but 'evaluation' is {evaluation!r}"
            )
        reference = as_text(task, right := line.require("gt"))
        if evaluation in SCORED and not (reference or "").strip():
            found = "blank" if isinstance(right, str) else describe_value(right)
            raise prediction_file_error(
                line.location, f"'gt' must be text, not {found}: {task} would score no answer to it as right"
            )
        meta: dict[str, Any] = {"evaluation": evaluation}
        if KINDS[task] == "topics":
            meta["topic"] = number % 3
        key_values = [line.optional_text("query"), reference, evaluation, meta.get("topic")]
        sample_id = sha256_text(canonical_json(key_values))[:16]
        sample = Sample(
            benchmark=self.name,
            task=task,
            sample_id=sample_id,
            context="",
            question=line.optional_text("query"),
            references=() if reference is None else (reference,),
            meta=meta,
        )
        prediction = self.make_prediction(line, number, sample, answer_key)
        if evaluation in SCORED and not isinstance(right, str):
            prediction = replace(prediction, note=_REFERENCE_NO_TEXT)
        answer = as_text(task, line.values[answer_key])
        if prediction.finish_reason is None or answer is None:
            return prediction
        note = "; ".join(filter(None, (prediction.note, _NO_TEXT)))
        return replace(prediction, output=answer, finish_reason=None, note=note)

    def match_key(self, sample: Sample) -> object:
        """Key that matches a prediction with a sample: (question, references, whether auto_eval.py scores it)."""
        return sample.question, sample.references, sample.meta["evaluation"] in SCORED

    def accepts_unmatched(self, prediction: Prediction) -> bool:
        """Whether a row needs no sample of its own: rows for a judge repeat scored questions."""
        return prediction.sample is None or prediction.sample.meta["evaluation"] not in SCORED

    def may_match_by_position(self, prediction: Prediction, sample: Sample) -> bool:
        """Whether a row is of the authors' gsm100 files, whose questions begin with worked examples."""
        mine = prediction.sample
        return mine is not None and (mine.references, mine.meta) == (
            sample.references,
            {key: sample.meta.get(key) for key in mine.meta},
        )

    def file_name(self, model: str, task: str) -> str:
        return f"{task}.pred.jsonl"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        return {
            "query": answer.sample.question,
            "gt": answer.sample.references[0] if answer.sample.references else "",
            f"{file_part(model)}_pred": answer.output,
            "evaluation": answer.sample.meta.get("evaluation") or _expected_evaluation(task),
        }

    def export(self, model: str, task: str, answers: Sequence[AnswerToExport]) -> ExportedFile:
        """Export answers, with placeholder rows for missing answers where the row's number determines the topic."""
        exported_file = PredictionFormat.export(self, model, task, answers)
        gap = {"query": "", "gt": "", f"{file_part(model)}_pred": "", "evaluation": _GAP}
        gap["error"] = "keeps the place of an answer that is not there"
        rows: list[Mapping[str, Any]] = []
        topics = [answer.sample.meta.get("topic") for answer in answers if answer.iteration == 0]
        for topic, row in zip(topics, exported_file.rows, strict=True):
            while topic is not None and len(rows) % 3 != topic:
                rows.append(gap)
            rows.append(row)
        return replace(exported_file, rows=rows)


def _expected_evaluation(task: str) -> str:
    kind = KINDS[task]
    return kind if kind in OPEN else "exam"


def _answer_key(lines: Sequence[PredictionLine]) -> str:
    answer_key = next((key for key in lines[0].values if "_pred" in key), None)
    if answer_key is None:
        raise prediction_file_error(lines[0].location, 'it has no key with "_pred" in its name for the model\'s answer')
    return answer_key


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _with_unique_ids(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Make the ids of predictions unique: repeated questions get the suffix "-2", then "-3"."""
    seen: Counter[str] = Counter()
    lines_by_number = []
    for row in predictions:
        seen[row.sample_id] += 1
        name = row.sample_id if seen[row.sample_id] == 1 else f"{row.sample_id}-{seen[row.sample_id]}"
        sample = replace(row.sample, sample_id=name) if row.sample else None
        lines_by_number.append(replace(row, sample_id=name, sample=sample))
    return lines_by_number


def as_text(task: str, value: object) -> str | None:
    """Text that auto_eval.py compares, or None if it stops at the value.

    For F1, ROUGE and topic retrieval, the package datasets converts values to text.
    """
    if isinstance(value, str):
        return value
    return str(value) if value is not None and KINDS[task] in ("f1", "rouge", "topics") else None


_PROTOCOL_COLUMNS = ("Max-Ctx", "Tokens", "Ret.", "PE", "IDD", "Chunking")
_METADATA_ALIASES = {
    "context length": "Max-Ctx",
    "retrieval": "Ret.",
    "in-domain data": "IDD",
    "prompt engineering": "PE",
}
_ROUGE = ("rouge1", "rouge2", "rougeL")
_TABLES: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = {
    "exam": ("Avg", "closed", "", ("exact_match",)),
    "f1": ("F1 avg", "open", "f1", ("f1",)),
    "rouge": ("ROUGE avg", "open", "rouge", _ROUGE),
}
"""{file: (its average's column, the grouping of that average, the kind of its tasks, metrics of a cell)}."""
_OPPONENTS = {
    "llm": (published_run_id(BASELINE), "turbo16k"),
    "vsClaude": (published_run_id("claude-100k"), "Claude100k"),
}
"""{file: (run that judged runs were compared with, by either protocol, and its name in the table)}."""


def result_files(run: ScoredRun) -> dict[str, str]:
    """Write the leaderboard's tables that the run answers a task of: {file name: CSV}."""
    averages = {(group.grouping, group.metric): group.official for group in run.groups}
    rows = {name: _row(run, name, averages) for name in _TABLES if any(task in run.numbers for task in _tasks(name))}
    for name, (opponent, opponent_label) in _OPPONENTS.items():
        if judged := [
            result for result in run.judge_results if result.against_run_id.removesuffix("-no-length-hint") == opponent
        ]:
            row = {"Model": file_part(run.model)}
            for result in judged:
                rate = "" if result.win_rate is None else f"{100 * result.win_rate:.2f}"
                cells = {
                    "n_wins": str(result.n_wins),
                    "n_draws": str(result.n_draws),
                    f"win % vs {opponent_label}": rate,
                }
                row |= {f"[{result.judge}] {column}": value for column, value in cells.items()}
            rows[name] = row | protocol_columns(run.settings, run.metadata, has_settings=run.has_settings)
    return {f"{name}_LEval_leaderboard.csv": to_csv([row]) for name, row in rows.items()}


def join_tables(path: str, first: str, second: str) -> str | None:
    """Merge two models' texts of a table, or return None for other files."""
    return join_csv(first, second) if path.endswith(".csv") else None


def _tasks(name: str) -> list[str]:
    table_kind = _TABLES[name][2]
    return [task for task, kind in KINDS.items() if (kind if kind in ("f1", "rouge") else "") == table_kind]


def _row(
    run: ScoredRun,
    name: str,
    averages: Mapping[tuple[str, str], float | None],
) -> dict[str, str]:
    average, grouping, kind, metrics = _TABLES[name]
    row = {"Model": file_part(run.model)}
    for task in _tasks(name):
        results = run.numbers.get(task, {})
        row[task] = _format_cell([results[metric].official if metric in results else None for metric in metrics])
    row[average] = _format_cell([averages.get((grouping, metric)) for metric in metrics])
    if kind:
        words = [len(line.output.split()) for line in run.lines if line.scored_sample.sample.task in _tasks(name)]
        row["Length"] = f"{fmean(words):.2f}"
    return row | protocol_columns(run.settings, run.metadata, has_settings=run.has_settings)


def _format_cell(scores: Sequence[float | None]) -> str:
    """Format a cell as "45.36", or "45.90/15.60/23.64", or "" if a score is missing."""
    return "/".join(f"{score:.2f}" for score in scores if score is not None) if None not in scores else ""


def protocol_columns(settings: Mapping[str, Any], metadata: Mapping[str, str], *, has_settings: bool) -> dict[str, str]:
    """Columns on the protocol of a run, from its metadata and, if ``has_settings``, from its settings."""
    settings_columns = (
        {"Max-Ctx": settings.get("context_window"), "Tokens": settings.get("max_prompt_tokens")} if has_settings else {}
    )
    if has_settings:
        settings_columns["Ret."] = "yes" if settings.get("rag") else "no"
    columns = {name.casefold(): name for name in _PROTOCOL_COLUMNS} | _METADATA_ALIASES
    renamed = {columns.get(key.casefold(), key): value for key, value in metadata.items()}
    return {
        name: "" if (value := settings_columns.get(name)) is None else str(value) for name in _PROTOCOL_COLUMNS
    } | renamed
