"""LongBench v2 (THUDM, 2024): 503 multiple-choice questions on documents of 8 thousand to 2 million words.

Source: https://github.com/THUDM/LongBench/tree/2e00731f8d0bff23dc4325161044d0ed8af94c1e (pred.py, result.py). Data
and prompts come from the bundle. One object of data.json's array:

    {"_id": "66ec...", "domain": "Multi-Document QA", "sub_domain": "Legal", "difficulty": "hard", "length": "short",
     "question": "...", "choice_A": "...", ..., "choice_D": "...", "answer": "C", "context": "..."}

The modes, as in pred.py. Each step is sampled at temperature 0.1, and a prompt that is too long is cut in its middle:

    plain        0shot.txt, 128 new tokens
    no_context   0shot_no_context.txt, 128
    rag          0shot_rag.txt, 128, with the chunks in document order, each below a numbered heading
    cot          0shot_cot.txt, 1,024, then 0shot_cot_ans.txt, with the reasoning and without the document, 128

cot can be combined with no_context or with rag. The first step then uses the prompt of that mode, with 1,024 tokens.
(pred.py also accepts no_context together with rag, but ignores no_context. lbx refuses that.)

The tables show difficulty, length and domain, the leaderboard plain and with CoT, and published scores.

Predictions are one JSON lines file per model, with rows as pred.py writes and result.py reads them:

    {"_id": "66ec...", "domain": "...", "sub_domain": "...", "difficulty": "hard", "length": "short", "question": "...",
     "choice_A": "...", ..., "choice_D": "...", "answer": "C", "context": "its first 1,000 characters",
     "response_cot": "only with --cot", "response": "...", "pred": "C", "judge": true}

result.py reads ``judge``, ``difficulty`` and ``length``, and ``pred`` if it compensates, from JSON lines or from one
JSON array. Files of other programs contain only these keys, without ``answer`` or ``response``, and rows
{"_id": ..., "error": ...} for questions without an answer. If a question is answered several times, each answer counts,
as iterations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.columns import Column, number_column
from lbx.base.errors import BundleError, UsageError
from lbx.base.number import OVERALL, Number, NumberKey, group_number
from lbx.base.records import (
    Chunk,
    Prompt,
    Sample,
    Score,
    ScoredSample,
    Task,
    Truncation,
)
from lbx.base.visible import one_line
from lbx.benchmarks.base.aggregates import ScoredRows, task_score
from lbx.benchmarks.base.benchmark import (
    MEAN_OF_QUESTIONS,
    WINDOWS_OF_128K,
    AskingProtocol,
    Benchmark,
    ScoringRules,
    TaskCatalogue,
)
from lbx.benchmarks.base.data_files import DataRow, read_text
from lbx.benchmarks.base.paper_tables import (
    MODE,
    Board,
    BoardEntry,
    BoardPart,
    BoardRow,
    Boards,
    CsvRow,
    ModelDotChart,
    Paper,
    PublishedScoreFormat,
    TableCell,
    best_of,
    first_value,
)
from lbx.benchmarks.base.prediction_lines import PredictionLine, prediction_file_error
from lbx.benchmarks.base.predictions import (
    AnswerToExport,
    Prediction,
    PredictionFormat,
    ResultFormat,
    ScoredRun,
    SplitReasoning,
    differences,
    file_part,
)
from lbx.benchmarks.base.sources import DataSource, RowSource, fill_placeholders, find_in_folder, json_rows
from lbx.benchmarks.metrics.longbench import LETTERS, chosen_letter
from lbx.benchmarks.retrieval.retriever import RetrievalRules
from lbx.options.asking import PLAIN, Mode

NUMBERS = {
    "overall": group_number(OVERALL, metric="accuracy"),
    **{name: group_number("difficulty", name, metric="accuracy") for name in ("easy", "hard")},
    **{name: group_number("length", name, metric="accuracy") for name in ("short", "medium", "long")},
}
"""{column of the leaderboard: number}."""


def _scores_of_row(row: CsvRow) -> list[tuple[str, NumberKey, str]]:
    return [(row["model"], key, row[column]) for column, key in NUMBERS.items()]


# Files of published scores have a row for each model: benchmark,model,overall,easy,hard,short,medium,long
PUBLISHED = PublishedScoreFormat(
    columns=tuple(NUMBERS),
    scores_of_row=_scores_of_row,
    several_rows=False,
    means=(
        (NUMBERS["overall"], {NUMBERS["easy"]: 192, NUMBERS["hard"]: 311}),
        (NUMBERS["overall"], {NUMBERS["short"]: 180, NUMBERS["medium"]: 215, NUMBERS["long"]: 108}),
    ),
)


def _table_cell(key: NumberKey) -> TableCell | None:
    if not key.grouping:
        return None  # the groups repeat it
    return TableCell("domain" if key.grouping == "domain" else "overall", key.metric, key.name)


PAPER = Paper(
    {"overall": "LongBench v2: difficulty and length", "domain": "LongBench v2: domains"},
    _table_cell,
    averages=(("overall", "accuracy"),),
)


_ATTRIBUTES: Mapping[str, Callable[[BoardEntry], object]] = {
    "params": lambda entry: entry.fact("params"),
    "context": lambda entry: entry.fact("context") or entry.window,
    "date": lambda entry: entry.fact("date"),
}


def _overall(row: BoardRow) -> float | None:
    plain, with_cot = best_of("overall")(row), best_of("overall_cot")(row)
    return plain if with_cot is None else with_cot


BOARDS = Boards(
    {
        "board_longbench_v2": Board(
            "LongBench v2: leaderboard (accuracy in percent, plain and with CoT)",
            (
                MODE,
                *(
                    Column(name, name.title(), value=first_value(describe), optional=True, rank=2)
                    for name, describe in _ATTRIBUTES.items()
                ),
                *(
                    number_column(f"{part}{cot}", f"{part.title()}{' w/ CoT' if cot else ''}", across=True)
                    for part in NUMBERS
                    for cot in ("", "_cot")
                ),
            ),
            [BoardPart(NUMBERS, {f"{part}_cot": key for part, key in NUMBERS.items()})],
            rank_by=_overall,
            pairs_modes=True,
            keeps_empty=True,
            charts=[
                ModelDotChart(
                    "LongBench v2: Overall, percent; plain, and with CoT below it",
                    "as in the table",
                    {"overall": "", "overall_cot": "w/ CoT"},
                )
            ],
        )
    },
    reference_models=("Human", "Random"),
)


class LongBenchV2Format(PredictionFormat):
    folder = False
    array = True
    appends = True
    score_keys = ("difficulty", "length")

    def read(self, task: str, lines: Sequence[PredictionLine]) -> list[Prediction]:
        """Parse the rows of a file. The sample's id is the row's ``_id``, or else the row's position."""
        task = self.known_tasks[0]
        times: Counter[str] = Counter()
        first_rows: dict[str, tuple[Sample, PredictionLine]] = {}
        predictions = []
        for number, line in enumerate(lines):
            value = line.values.get("_id")
            if isinstance(value, int) and not isinstance(value, bool):
                name = str(value)
            else:
                name = value if isinstance(value, str) else f"{number:04d}"
            prediction = self._prediction(task, name, number, times[name], line)
            times[name] += 1
            if sample := prediction.sample:
                first_sample, first_line = first_rows.setdefault(name, (sample, line))
                if other := differences(sample, first_sample, self.score_keys):
                    raise prediction_file_error(
                        line.location, f"it has the same _id as {first_line.location} but differs in {other}"
                    )
                if sample.references and not first_sample.references:
                    first_rows[name] = sample, line
            predictions.append(prediction)
        return [
            replace(row, sample=first_rows[row.sample_id][0]) if row.sample and times[row.sample_id] > 1 else row
            for row in predictions
        ]

    def _prediction(self, task: str, name: str, number: int, iteration: int, line: PredictionLine) -> Prediction:
        if "pred" not in line.values and "judge" not in line.values and line.values.get("error") is not None:
            return Prediction(line, task, name, number, None, error=str(line.values["error"]), iteration=iteration)
        judge = _is_judged_right(line)
        answer, letter = _letter(line, judge=judge)
        cot = line.optional_text("response_cot")
        prediction = Prediction(
            line,
            task,
            name,
            number,
            _predicted_sample((self.name, task, name), line, letter, judge=judge),
            output=_output(line, letter),
            iteration=iteration,
            steps=[{"output": cot}] if cot else None,
            reasoning=line.optional_text("reasoning") or None,
            marked_right=judge,
            note=f"'pred' is {answer!r}, which is not one of {', '.join(LETTERS)}, and counts as no answer"
            if answer and not letter
            else "",
        )
        assert prediction.sample is not None
        if problem := self.contradiction(prediction, prediction.sample):
            raise prediction_file_error(line.location, problem)
        return prediction

    def match_key(self, sample: Sample) -> object:
        return sample.sample_id

    def split_reasoning(self, prediction: Prediction, split: SplitReasoning) -> Prediction:
        """Move the reasoning of a prediction from ``output`` to ``reasoning``.

        The letter is then the answer's, even if pred.py found another in the reasoning.
        """
        response = prediction.line.optional_text("response")
        reasoning, answer, _ = split(response)
        if reasoning is None:
            return prediction
        if chosen_letter(answer) != chosen_letter(prediction.output or "") and not prediction.line.values.get("answer"):
            raise prediction_file_error(
                prediction.line.location,
                "the letter after the reasoning differs from 'pred', and 'answer', the right letter, is missing",
            )
        return PredictionFormat.split_reasoning(self, replace(prediction, output=response, marked_right=None), split)

    def contradiction(self, prediction: Prediction, sample: Sample) -> str | None:
        """Reason why ``judge``, which result.py counts, contradicts the answer, or None."""
        letter = chosen_letter(prediction.output or "")
        if prediction.marked_right and letter is None:
            return "'judge' marks an answer without a letter as right"
        if prediction.marked_right is None or not sample.references:
            return None
        if (letter in sample.references) == prediction.marked_right:
            return None
        marked_as = "right" if prediction.marked_right else "wrong"
        return (
            f"'judge' marks the answer {letter} as {marked_as}, but the question's answer is "
            f"{'/'.join(sample.references)}"
        )

    def label(self, model: str, settings: Mapping[str, Any]) -> str:
        """Name of a model with the first of the modes rag, no_context and cot, as pred.py names files."""
        if settings.get("rag"):
            return f"{model}_rag_{settings['rag']}"
        if settings.get("no_context"):
            return f"{model}_no_context"
        return f"{model}_cot" if settings.get("cot") else model

    def file_name(self, model: str, task: str) -> str:
        return f"{file_part(model)}.jsonl"

    def row(self, model: str, task: str, answer: AnswerToExport) -> dict[str, Any]:
        """Row for one answer. Results files contain no documents, so ``context`` is "" (in pred.py the beginning)."""
        sample, response = answer.sample, answer.output.strip()
        choices = sample.meta.get("choices") or {}
        letter = chosen_letter(response)
        right = sample.references[0] if sample.references else None
        row: dict[str, Any] = {"_id": sample.sample_id}
        row |= {key: sample.meta.get(key, "") for key in ("domain", "sub_domain", "difficulty", "length")}
        row |= {"question": sample.question}
        row |= {f"choice_{key}": choices.get(key, "") for key in LETTERS}
        row |= {"answer": right, "context": ""}
        if answer.steps:
            row["response_cot"] = str(answer.steps[0].get("output") or "").strip()
        row |= {"response": response, "pred": letter, "judge": letter is not None and letter == right}
        return row

    def omission_reason(self, answer: AnswerToExport) -> str:
        """Reason to omit an answer: also an empty output, as in pred.py, unless the answer is all reasoning."""
        empty = not answer.output and answer.reasoning is None
        return PredictionFormat.omission_reason(self, answer) or ("empty answers" if empty else "")


def _is_judged_right(line: PredictionLine) -> bool:
    """Whether the value of "judge" marks a row as right. Like result.py, convert the value with ``int``.

    Without "judge", at which result.py stops, the letters decide.
    """
    value = line.values.get("judge")
    if value is None and line.optional_text("answer"):
        return _letter(line, judge=False)[1] == line.text("answer")
    try:
        judge = int(line.require("judge"))
    except (TypeError, ValueError, OverflowError):
        judge = -1
    if isinstance(value, float) and judge != value:
        judge = -1
    if judge not in (0, 1):
        raise prediction_file_error(line.location, "'judge' must be true or false")
    return bool(judge)


def _letter(line: PredictionLine, *, judge: bool) -> tuple[object, str | None]:
    """Return ``pred`` and the letter that it means. Without ``pred``, both are the letter of the response."""
    answer = line.values.get("pred")
    if "pred" not in line.values:
        letter = chosen_letter(line.optional_text("response"))
        if letter is None and judge:
            letter = line.text("answer")
        return letter, letter
    letter = answer.strip(" \t\r\n().:*").upper() if isinstance(answer, str) else ""
    return answer, letter if letter in LETTERS else None


def _predicted_sample(names: tuple[str, str, str], line: PredictionLine, letter: str | None, *, judge: bool) -> Sample:
    answer = line.values.get("answer")
    answer = "" if answer is None else answer
    if answer not in ("", *LETTERS):
        raise prediction_file_error(line.location, f"'answer' must be one of {', '.join(LETTERS)}, not {answer!r:.40}")
    return Sample(
        *names,
        context="",
        question=line.optional_text("question"),
        # Without the answer, a right choice reveals it; a wrong one leaves it unknown, and no sample matches then.
        references=(answer,) if answer else (letter,) if judge and letter else (),
        length_unit="characters",
        meta={
            # result.py compares them with "easy", "short" and "medium"; all other values are hard and long.
            **{key: _text(line.require(key)) for key in ("difficulty", "length")},
            **{key: line.values[key] for key in ("domain", "sub_domain") if line.optional_text(key)},
            **_choices(line),
        },
    )


def _choices(line: PredictionLine) -> dict[str, dict[str, str]]:
    choices = {letter: line.values.get(f"choice_{letter}") for letter in LETTERS}
    return {"choices": {letter: _text(choice) for letter, choice in choices.items()}} if any(choices.values()) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _output(line: PredictionLine, letter: str | None) -> str:
    """Output of the model, or the row's letter in official words if the output is missing or states another letter.

    pred.py drops empty outputs and strips the others when it writes them, so an empty ``response`` was white space.
    """
    response = line.values.get("response")
    if isinstance(response, str) and chosen_letter(response) == letter:
        return response or " "
    return " " if letter is None else f"The correct answer is ({letter})"


REPO = "THUDM/LongBench-v2"
DATA = DataSource(
    "bundle/longbench_v2.toml",
    (REPO, "zai-org/LongBench-v2"),
    licences="scripts MIT; data: see its card",
    real_rows="yes",
)
PROMPTS = "THUDM/LongBench/prompts"
TASK = "mcq"
LIMITS = dict.fromkeys(WINDOWS_OF_128K, 120_000)
"""{context window: limit of the prompt}, in tokens, as in config/model2maxlen.json for every model of 128k."""

_GROUPS: dict[str, Callable[[Sample], bool]] = {
    # As in result.py: everything except easy is hard, everything except short and medium is long.
    "easy": lambda sample: sample.meta["difficulty"] == "easy",
    "hard": lambda sample: sample.meta["difficulty"] != "easy",
    "short": lambda sample: sample.meta["length"] == "short",
    "medium": lambda sample: sample.meta["length"] == "medium",
    "long": lambda sample: sample.meta["length"] not in ("short", "medium"),
}


DOMAINS: dict[str, tuple[str, ...]] = {
    "Single-Document QA": (
        "Academic", "Literary", "Legal", "Financial", "Governmental", "Detective", "Event ordering",
    ),
    "Multi-Document QA": ("Academic", "Legal", "Financial", "Governmental", "Multi-news"),
    "Long In-context Learning": ("User guide QA", "New language translation", "Many-shot learning"),
    "Long-dialogue History Understanding": ("Agent history QA", "Dialogue history QA"),
    "Code Repository Understanding": ("Code repo QA",),
    "Long Structured Data Understanding": ("Table QA", "Knowledge graph reasoning"),
}  # fmt: skip
"""{domain: sub-domains}, in the paper's order."""


def _check_mode(task: str, mode: Mode) -> None:
    if mode.no_context and mode.rag:
        raise UsageError(
            "LongBench v2 cannot run both without the document and with chunks of it.",
            fix="Remove one of the two options.",
        )


def _result_files(run: ScoredRun) -> dict[str, str]:
    """Write result.py's result.txt. Raises UsageError if a group has no question, at which result.py stops."""
    numbers = {metric: number for task in run.numbers.values() for metric, number in task.items()}
    name, metrics = one_line(run.file.rpartition(".")[0]), ["accuracy", *(f"accuracy/{group}" for group in _GROUPS)]
    if missing := [metric for metric in metrics if metric not in numbers]:
        raise UsageError(
            f"The run {run.run_id!r} has no answer to a {missing[0].rpartition('/')[2]} question, on which the "
            "official result.py stops.",
            fix="`lbx report RESULTS group_scores` shows the groups with answers.",
        )
    header = "\t".join(["Model", "Overall", *(group.title() for group in _GROUPS)])
    return {"result.txt": header + "\n" + "\t".join([name, *(str(numbers[metric].official) for metric in metrics)])}


def _join_results(path: str, first: str, second: str) -> str | None:
    return first + "\n" + second.partition("\n")[2] if path == "result.txt" else None


class LongBenchV2(Benchmark):
    """LongBench v2, which consists of one task with several modes (see the module's docstring)."""

    name = "longbench_v2"
    metric_version = 1
    data = DATA
    catalogue = TaskCatalogue((TASK,))
    protocol = AskingProtocol(
        modes=frozenset({"cot", "no_context", "rag"}),
        retrieval=RetrievalRules(tokenizer="zai-org/glm-4-9b-chat-hf", recipe="bundle/longbench_v2_retrieval.toml"),
        check_mode=_check_mode,
    )
    # pred.py treats an output without a character as a failed call and drops it; reasoning is output, too.
    scoring = ScoringRules(average_of=MEAN_OF_QUESTIONS, uncounted_metric="empty")
    predictions = LongBenchV2Format(name, catalogue.names)
    results = ResultFormat(_result_files, _join_results)
    paper = PAPER
    boards = BOARDS
    published_scores = PUBLISHED

    def tasks(self, bundle: Bundle, names: Collection[str] | None = None) -> list[Task]:
        """Return the only task, if the bundle contains data.json."""
        source = _data(bundle)
        if source is None:
            return []
        return [Task(self.name, TASK, ("accuracy", "compensated", "empty"), source.count())]

    def samples(self, bundle: Bundle, task: str) -> Iterator[Sample]:
        """Yield the samples. ``Sample.length`` counts characters. The paper's bucket is ``meta["length"]``."""
        source = _data(bundle)
        if source is None:
            raise self.data.missing_data_error(bundle, f"{REPO}, data.json")
        return _samples(task, source)

    def chance(self, sample: Sample) -> float:
        return 0.25

    def prompt(self, bundle: Bundle, sample: Sample, mode: Mode = PLAIN, chunks: Sequence[Chunk] = ()) -> Prompt:
        """Fill in the prompt of the first step, with every field stripped.

        Raises:
            UsageError: the mode combines no_context and rag.
        """
        _check_mode(sample.task, mode)
        budget = 1024 if mode.cot else 128
        if mode.rag:
            ordered = sorted(chunks, key=lambda chunk: chunk.index)
            return self._prompt(
                bundle,
                "0shot_rag.txt",
                sample,
                budget,
                document="\n\n".join(
                    f"Retrieved chunk {number}: {chunk.text}" for number, chunk in enumerate(ordered, start=1)
                ),
            )
        if mode.no_context:
            return self._prompt(bundle, "0shot_no_context.txt", sample, budget)
        return self._prompt(
            bundle, "0shot_cot.txt" if mode.cot else "0shot.txt", sample, budget, document=sample.context
        )

    def _prompt(
        self,
        bundle: Bundle,
        name: str,
        sample: Sample,
        budget: int,
        *,
        document: str = "",
        reasoning: str | None = None,
    ) -> Prompt:
        """Fill in the official prompt in the file called ``name``."""
        relative_path = f"{PROMPTS}/{name}"
        placeholders = {"$Q$": sample.question.strip()}
        placeholders |= {f"$C_{letter}$": sample.meta["choices"][letter].strip() for letter in LETTERS}
        if reasoning is not None:
            placeholders["$COT$"] = reasoning.strip()
        before, filled, after = fill_placeholders(
            read_text(self.data.official_file(bundle, relative_path)), ("$DOC$", document.strip()), placeholders
        )
        return Prompt(
            before=before,
            document=filled,
            after=after,
            max_new_tokens=budget,
            truncation=Truncation.MIDDLE_FLOOR,
            temperature=0.1,
            limits=LIMITS,
            source=relative_path,
        )

    def next_step(self, bundle: Bundle, sample: Sample, mode: Mode, outputs: Sequence[str]) -> Prompt | str:
        """With ``mode.cot``, prompt of the question again, after the reasoning and without the document.

        An empty output is the answer, because pred.py gives up on such a question.
        """
        if not mode.cot or len(outputs) > 1 or not outputs[0]:
            return outputs[-1]
        return self._prompt(bundle, "0shot_cot_ans.txt", sample, 128, reasoning=outputs[0])

    def query(self, sample: Sample, bundle: Bundle) -> str:
        """Query of question and four choices, as in the paper."""
        return "\n".join([sample.question, *(sample.meta["choices"][letter] for letter in LETTERS)])

    def evidence(self, sample: Sample) -> Sequence[str]:
        """Text of the right choice."""
        choices = sample.meta.get("choices") or {}
        return [choices[letter] for letter in sample.references if letter in choices]

    def score(self, sample: Sample, output: str, *, similarity: float | None = None) -> list[Score]:
        """Score an output by accuracy, by compensated accuracy (0.25 without a letter), and by whether it is empty.

        A question with an empty output scores 0, but the official run drops it (see ``ScoringRules.is_counted``).
        """
        letter = chosen_letter(output)
        right = float(letter in sample.references)
        return [
            Score("accuracy", right, letter or ""),
            Score("compensated", 0.25 if letter is None else right, letter or ""),
            Score("empty", float(output == "")),
        ]

    def aggregate(self, task: str, rows: Sequence[ScoredSample]) -> list[Number]:
        """Aggregate the task as result.py does, in percent with one decimal: accuracy, accuracy/easy, ... compensated.

        These numbers are over the rows that count. ``accuracy_all`` is over every row, and ``empty`` is the share of
        empty answers. A group without questions, at which the official script fails, is left out.
        """
        counted = ScoredRows.of(rows).filter(self.scoring.is_counted)
        groups = {group: _filter(counted, belongs) for group, belongs in _GROUPS.items()}
        scores = []
        for metric in ("accuracy", "compensated"):
            scores += task_score(metric, counted, metric, 1)
            for group, members in groups.items():
                scores += task_score(f"{metric}/{group}", members, metric, 1)
        return [*scores, *task_score("accuracy_all", rows, "accuracy", 1), *task_score("empty", rows, "empty", 1)]

    def headline(self, task: str, rows: Sequence[ScoredSample]) -> Number | None:
        return next(
            iter(task_score("accuracy", ScoredRows.of(rows).filter(self.scoring.is_counted), "accuracy", 1)), None
        )

    def groups(self, tasks: Mapping[str, Sequence[ScoredSample]], *, averages_only: bool = False) -> list[Number]:
        """Aggregate the groups of the paper's tables: "overall", "difficulty", "length", "domain" and "sub_domain".

        Each has the metrics accuracy and compensated. Overall, difficulty and length are result.py's, with one
        decimal, like the paper's table of domains. There is no official table of sub-domains.
        """
        metrics = ("accuracy",) if averages_only else ("accuracy", "compensated")
        counted = ScoredRows.of(tasks.get(TASK, ())).filter(self.scoring.is_counted)
        group = partial(_group, metrics)
        table = group("overall", "all", counted)
        for name, belongs in _GROUPS.items():
            grouping = "difficulty" if name in ("easy", "hard") else "length"
            table += group(grouping, name, _filter(counted, belongs))
        domains: dict[str, dict[str, list[int]]] = {}
        for at, row in enumerate(counted):
            domain, sub_domain = row.sample.meta.get("domain"), row.sample.meta.get("sub_domain")
            if domain and sub_domain:
                domains.setdefault(domain, {}).setdefault(sub_domain, []).append(at)
        for domain in _sort_names(domains, DOMAINS):
            table += group("domain", domain, counted.take([at for places in domains[domain].values() for at in places]))
        for domain in _sort_names(domains, DOMAINS):
            for sub_domain in _sort_names(domains[domain], DOMAINS.get(domain, ())):
                name = f"{domain}: {sub_domain}"
                table += group("sub_domain", name, counted.take(domains[domain][sub_domain]), official=False)
        return table


def _filter(rows: ScoredRows, belongs: Callable[[Sample], bool]) -> ScoredRows:
    return rows.filter(lambda row: belongs(row.sample))


def _sort_names(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """Sort names in the order of ``order``, and other names after these, by name."""
    places = {name: index for index, name in enumerate(order)}
    return sorted(names, key=lambda name: (places.get(name, len(places)), name))


def _group(
    metrics: Sequence[str], grouping: str, name: str, rows: Sequence[ScoredSample], *, official: bool = True
) -> list[Number]:
    return [
        replace(found, kind="group", grouping=grouping, name=name, official=found.official if official else None)
        for metric in metrics
        for found in task_score(metric, rows, metric, 1)
    ]


def _data(bundle: Bundle) -> RowSource | None:
    return find_in_folder(DATA.folder(bundle), "data.json", "default", lambda path: json_rows(path, "_id"))


def _samples(task: str, source: RowSource) -> Iterator[Sample]:
    """Yield the samples in the data's order. Raises BundleError if two rows have the same id."""
    numbers: dict[str, int] = {}
    for number, row in enumerate(source.rows(), 1):
        sample = _sample(task, row)
        first = numbers.setdefault(sample.sample_id, number)
        if first != number:
            raise BundleError(
                f"{row.location}: rows {first} and {number} have the same _id, {sample.sample_id!r}.",
                fix="Correct the data on the connected machine and build the bundle again.",
            )
        yield sample


def _sample(task: str, row: DataRow) -> Sample:
    context = row.get("context", str)
    return Sample(
        benchmark=LongBenchV2.name,
        task=task,
        sample_id=row.identifier("_id"),
        context=context,
        question=row.get("question", str),
        references=(row.get("answer", str),),
        length=len(context),
        length_unit="characters",
        meta={
            **{name: row.get(name, str) for name in ("difficulty", "length", "domain", "sub_domain")},
            "choices": {letter: row.get(f"choice_{letter}", str) for letter in LETTERS},
        },
    )
