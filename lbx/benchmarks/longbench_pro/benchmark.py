"""LongBench Pro (caskcsg, 2025): 1,500 questions in English and Chinese on documents of 8k to 256k tokens.

Source: https://github.com/caskcsg/longcontext/tree/88fbeb85827b78add4a5354b0c1194a57c176c38/LongBench-Pro (main.py and
modules); data come from the bundle. One object of longbench_pro.json's array:

    {"id": "...", "context": "...", "language": "Chinese", "token_length": "32k",
     "primary_task": "T3. Evidence-Grounded QA", "secondary_task": "T3.2 Single-Hop Fact QA",
     "contextual_requirement": "Partial", "question_nonthinking": "...", "question_thinking": "...",
     "answer": ["..."], "difficulty": "Easy"}

A task of lbx is a secondary task: "t3.2". Each question is asked three times, sampled as the model's makers recommend.
Only the answer is scored, never the reasoning that a server returns separately.

In the official run, three things score 0 without stopping it ("officially a failure"): an empty output, a value outside
0..1, and a reference that is not text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.number import Number
from lbx.base.records import (
    Chunk,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    SimilarityInput,
    Task,
    Truncation,
)
from lbx.benchmarks.base.aggregates import task_score
from lbx.benchmarks.base.benchmark import (
    MEAN_OF_QUESTIONS,
    AskingProtocol,
    Benchmark,
    ScoringRules,
    TaskCatalogue,
    with_unique_ids,
)
from lbx.benchmarks.base.data_files import DataRow, damaged_file_error
from lbx.benchmarks.base.predictions import ResultFormat
from lbx.benchmarks.base.sources import DataSource
from lbx.benchmarks.longbench_pro.paper_tables import BOARDS, LANGUAGES, PAPER, PUBLISHED, group_scores
from lbx.benchmarks.longbench_pro.predictions import MODEL_INFO, LongBenchProFormat, join_model_info, result_files
from lbx.benchmarks.longbench_pro.tasks import (
    LIMITS,
    LONG_WINDOW,
    METRICS,
    TASK_OF,
    TASKS,
    TEXT_META,
    DataFile,
    accepted_answers,
    find_data,
)
from lbx.benchmarks.metrics import longbench_pro as metrics
from lbx.options.asking import PLAIN, Mode

REPO = "caskcsg/LongBench-Pro"
DATA = DataSource("bundle/longbench_pro.toml", (REPO,), licences="not stated", real_rows="no")
GAP = "\n\n\n\n"
ANSWER_TOKENS = 1_024
THINKING_TOKENS = 8_192
LONG_THINKING_TOKENS = 32_768

NO_MODEL = "no embedding model: ROUGE-L alone"
EMPTY = "officially a failure: the output is empty"
NO_TEXT = "officially a failure: a reference is no text"
OUTSIDE = "officially a failure: the value {value} is not in 0..1"

_LINES: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "ndcg": metrics.ndcg,
    "pairwise_accuracy": metrics.pairwise_accuracy,
    "accuracy": metrics.accuracy,
    "f1": metrics.set_f1,
    "subem": metrics.substring_match,
}


class LongBenchPro(Benchmark):
    name = "longbench_pro"
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue(
        tuple(TASKS), embedding_tasks=tuple(task for task, kind in TASKS.items() if kind.metric == "summary")
    )
    protocol = AskingProtocol(iterations=3)
    scoring = ScoringRules(unit=1, average_of=MEAN_OF_QUESTIONS, is_of_any_tasks=lambda key: True)
    predictions = LongBenchProFormat(name, catalogue.names)
    results = ResultFormat(result_files, join_model_info, growing_file=MODEL_INFO)
    paper = PAPER
    boards = BOARDS
    published_scores = PUBLISHED

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the tasks that have rows in the data file. Raises BundleError if it is damaged."""
        data = _data(bundle)
        if data is None:
            return []
        counts = data.counts()
        for title in counts:
            if title not in TASK_OF:
                _, row = next(data.rows(title))
                raise damaged_file_error(row.location, f"there is no secondary task {title!r}")
        return [
            Task(self.name, task, METRICS[kind.metric], counts[kind.title], language="en+zh")
            for task, kind in TASKS.items()
            if counts.get(kind.title)
        ]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield a task's samples, with the row's id (a repeated id gets "-2").

        ``length`` is the length class that the row states (e.g. 32k), not a measured one.
        """
        data = _data(bundle)
        if data is None:
            raise self.data.missing_data_error(bundle, REPO)
        return with_unique_ids(_sample(task, row, number) for number, row in data.rows(TASKS[task].title))

    def chance(self, sample: Sample) -> float:
        kind = TASKS.get(sample.task)
        return 0.5 if kind and kind.metric == "pairwise_accuracy" else 0.0

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Prompt of document, four line ends and question, stripped of white space before the document is cut.

        A model that reasons in a separate block gets the plain question in both modes. The other question asks a model
        without such a block to reason in the answer.
        """
        asks_to_reason = mode.thinking and not mode.reasoning_block
        question = sample.meta["question_thinking"] if asks_to_reason else sample.question
        document = sample.context.lstrip()
        after = (GAP + question).rstrip()
        if not after or not document:
            document, after = document.rstrip(), after.lstrip()
        if not mode.thinking or mode.thinking_tokens:
            new_tokens = ANSWER_TOKENS
        else:
            new_tokens = LONG_THINKING_TOKENS if mode.context_window >= LONG_WINDOW else THINKING_TOKENS
        return Prompt(
            before="",
            document=document,
            after=after,
            max_new_tokens=new_tokens,
            has_shared_budget=mode.thinking and not mode.thinking_tokens,
            truncation=Truncation.MIDDLE_FLOOR,
            model_sampling=True,
            limits=LIMITS,
            source=f"{REPO} ({'question_thinking' if asks_to_reason else 'question_nonthinking'})",
        )

    def similarity_input(self, sample: Sample, output: str) -> SimilarityInput | None:
        """Output and references of a summary, in lower case with white space folded."""
        if TASKS[sample.task].metric != "summary" or _failure(sample, output):
            return None
        text = metrics.fold(output)
        if not text or not sample.references:
            return None
        return SimilarityInput(text, tuple(metrics.fold(reference) for reference in sample.references))

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by the task's metric, or by the metrics of summaries in ``METRICS``.

        If an output leaves no text to compare, "summary" is 0, and needs no similarity. For other summaries without a
        similarity there is no "summary": "rouge_l" is the headline, and is partial.
        """
        metric = TASKS[sample.task].metric
        error = _failure(sample, output)
        if metric == "summary":
            return _summary_scores(self.similarity_input(sample, output), sample.language, similarity, error)
        if error:
            return [Score(metric, 0.0, error=error)]
        lines = metrics.answer_lines(output)
        value = _LINES[metric]([metrics.fold(reference) for reference in sample.references], lines)
        return [_checked_score(metric, value, lines[0] if metric == "accuracy" else "\n".join(lines))]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Average all rows and iterations of a secondary task, for which the official report has no numbers.

        The headline of a summary task is "summary" if all rows have this score, or else "rouge_l", which is partial.
        """
        scores = []
        for metric in METRICS[TASKS[task].metric]:
            partial = metric == "rouge_l" and any(row.partial for row in rows)
            for score in task_score(metric, rows, metric, None):
                if metric != "summary" or score.n == len(rows):
                    scores.append(replace(score, partial=partial))
        return scores

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Numbers of the official report. ``averages_only`` leaves out iterations, BoN-n and pass@n."""
        return group_scores(tasks, with_tries=not averages_only)


def _failure(sample: Sample, output: str) -> str | None:
    if not output:
        return EMPTY
    return NO_TEXT if sample.meta.get("reference_is_no_text") else None


def _checked_score(metric: str, value: float, extracted: str | None = None) -> Score:
    if 0.0 <= value <= 1.0:
        return Score(metric, value, extracted)
    return Score(metric, 0.0, extracted, error=OUTSIDE.format(value=value))


def _summary_scores(
    similarity_input: SimilarityInput | None, language: str, similarity: float | None, error: str | None
) -> list[Score]:
    if similarity_input is None:
        return [Score(metric, 0.0, error=error) for metric in ("summary", "rouge_l", "rouge_l_unlimited")]
    rouge = metrics.summary_rouge(similarity_input.text, similarity_input.references, language=language)
    unlimited = Score("rouge_l_unlimited", rouge.without_limit)
    if similarity is None:
        return [Score("rouge_l", rouge.official, partial=NO_MODEL), unlimited]
    return [
        _checked_score("summary", metrics.summary(similarity, rouge.official)),
        Score("rouge_l", rouge.official),
        unlimited,
        Score("similarity", min(1.0, max(0.0, similarity))),  # a cosine; the summary uses it unclipped
    ]


def _data(bundle: Bundle) -> DataFile | None:
    return find_data(DATA.folder(bundle))


def _sample(task: str, row: DataRow, number: int) -> Sample:
    language = {name: code for code, name in LANGUAGES.items()}.get(row.get("language", str))
    if language is None:
        raise damaged_file_error(
            row.location, f"the language {row.values['language']!r} is neither English nor Chinese"
        )
    if not isinstance(row.values.get("answer"), list | str):
        raise damaged_file_error(row.location, "the field 'answer' must be a list of texts")
    references, readable = accepted_answers(row.values["answer"])
    meta: dict[str, Any] = {name: row.get(name, str) for name in TEXT_META}
    meta |= {"question_thinking": row.get("question_thinking", str), "row": number}
    if not readable:
        meta["reference_is_no_text"] = True
    # A length in tokens of Qwen's tokenizer, by which the authors sorted their documents: "32k" is 32,768
    thousands = row.get("token_length", str).removesuffix("k")
    if not (thousands.isascii() and thousands.isdigit()):
        raise damaged_file_error(
            row.location, f"the field 'token_length' is {row.values['token_length']!r}, not a length such as \"32k\""
        )
    return Sample(
        benchmark=LongBenchPro.name,
        task=task,
        sample_id=row.identifier("id"),
        context=row.get("context", str),
        question=row.get("question_nonthinking", str),
        references=references,
        language=language,
        length=int(thousands) * 1024,
        length_unit="tokens",
        meta=meta,
    )
