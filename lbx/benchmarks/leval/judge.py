"""L-Eval's judge GPT-4: rubric, win rates of published answers, files of answers to judge, and files of judgements.

The rubric is from Evaluation/llm_eval.py (cd34b05), which is in the bundle; lbx ships none of it. The script is
parsed and never run: its texts are in a dict next to values that are not literals. The judge reads the question, the
reference and two answers, and never the document; temperature 0, at most 2,048 new tokens.

Files of pairwise judgements are as L-Eval's Evaluation/llm_eval.py (cd34b05) writes them:

    {"g1_winner": "claude-100k", "g2_winner": "tie", "judge": "gpt-4", "g1_user_prompt": "...", "g1_judgment": "...",
     "g2_user_prompt": "...", "g2_judgment": "...", "tstamp": 1700000000.0}

Round g1 shows the judged model's answer first, g2 second. A winner is a model's name, "tie" or "error". After its rows
the script writes its numbers as plain lines, and appends to them when run again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lbx.base.bundle_folder import FILES, Bundle
from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.base.visible import as_command
from lbx.benchmarks.base.benchmark import HUMAN, LLM, MARKS
from lbx.benchmarks.base.data_files import damaged_file_error, read_text
from lbx.benchmarks.base.prediction_lines import FileRows, PredictionLine, prediction_file_error, read_bytes, split_rows
from lbx.benchmarks.base.rubric import FIRST, PAIR, SECOND, TIE, Rubric, winners_in
from lbx.benchmarks.base.sources import template_fields, texts_of_keys
from lbx.benchmarks.leval.tasks import BASELINE, NAME

BENCHMARK = NAME
TITLE, JUDGE = "L-Eval", "GPT-4"
SCRIPT = "OpenLMLab/LEval/Evaluation/llm_eval.py"
JUDGEMENT_FORMAT = "leval_judge"
VERDICTS = (("[[A]]", FIRST), ("[[B]]", SECOND), ("[[C]]", TIE))
"""Marks and winners, in the order in which the script searches for the marks."""
ANSWER_FILES: Mapping[str, tuple[str, ...]] = {
    "llm_gpt4_eval": (LLM,),
    "human_eval": (HUMAN,),
    "llm_turbo_eval": MARKS,
}
"""{folder of files with answers for a judge: marks of the questions in these files}."""

WIN_RATES = {"claude-100k": 60.94, "gpt4-32k": 54.16, "llama2-13b-chat-4k": 42.44}
"""The judge's win rates of published answers against the baseline's, in percent: figs/overall.png, cd34b05."""
ORDERED = (("claude-100k", "llama2-13b-chat-4k"), ("gpt4-32k", "llama2-13b-chat-4k"))
"""Pairs (better, worse) of models. Claude and GPT-4-32k are not ordered: both win rates are in the other's interval."""
COMPARED_QUESTIONS, COMPARED_MARK = 96, LLM
"""Number and mark of the questions on which each model was compared."""

PUBLISHED = "published-"
"""Prefix of the ids of runs of published answers."""
_PUBLISHED_FOLDERS = {True: "OpenLMLab/LEval/Predictions", False: "OpenLMLab/LEval-cd1cfc3/Predictions"}
_ENDING = ".pred.jsonl"
_KEYS = ("system_prompt", "prompt_template", "output_format")
_RUBRIC_FIELDS = {"question": "question", "ref_answer": "reference", "answer_a": "a", "answer_b": "b"}


def published_run_id(model: str, *, length_hint: bool = True) -> str:
    """Id of the run of a model's published answers, with or without a hint on the reference's number of words."""
    return f"{PUBLISHED}{model}" + ("" if length_hint else "-no-length-hint")


BASELINE_MODEL, BASELINE_RUN = BASELINE, published_run_id(BASELINE)
PUBLISHED_RUNS = {model: published_run_id(model) for model in WIN_RATES}


def published_files(bundle: Bundle, *, length_hint: bool) -> dict[str, list[str]]:
    """Find the bundle's files with each model's published answers: a file for each mark, or one for both marks."""
    root = _PUBLISHED_FOLDERS[length_hint]
    folders: dict[str, list[str]] = {}
    for folder in ANSWER_FILES:
        for path in (bundle.root / FILES / root / folder).glob(f"*{_ENDING}"):
            folders.setdefault(path.name.removesuffix(_ENDING), []).append(folder)
    *halves, _ = ANSWER_FILES
    return {
        model: [
            f"{root}/{folder}/{model}{_ENDING}"
            for folder in (halves if {*halves} <= {*model_folders} else model_folders[-1:])
        ]
        for model, model_folders in sorted(folders.items())
    }


def parse_rubric(path: Path) -> Rubric:
    """Parse the rubric in the official script.

    Raises:
        BundleError: the file differs from the supported version.
    """
    location = str(path)
    system, template, output_format = texts_of_keys(read_text(path), location, "judge_prompts", _KEYS).values()
    if output_format != VERDICTS[0][0]:
        reason = f"its judge's verdict format is {output_format!r} instead of {VERDICTS[0][0]!r}"
        raise damaged_file_error(location, reason)
    return Rubric(NAME, PAIR, system, _convert_fields(template, location), VERDICTS, source=SCRIPT)


def _convert_fields(template: str, location: str) -> str:
    try:
        pieces = list(template_fields(template))
    except ValueError as exc:
        raise damaged_file_error(location, f"its judge's prompt is not a valid template: {exc}") from exc
    if {name for _, name in pieces if name is not None} != set(_RUBRIC_FIELDS):
        raise damaged_file_error(location, f"the fields of its judge's prompt differ from {', '.join(_RUBRIC_FIELDS)}")
    literal = (text.replace("{", "{{").replace("}", "}}") for text, _ in pieces)
    return "".join(
        text + (f"{{{_RUBRIC_FIELDS[name]}}}" if name else "") for text, (_, name) in zip(literal, pieces, strict=True)
    )


def answer_row(model: str, sample: Sample, mark: str, prompt: str, output: str) -> dict[str, Any]:
    """Row of ``ANSWER_FILES`` with an answer, for a judge or for people."""
    row = {"query": sample.question, "gt": sample.references[0], "prompt": prompt}
    return {**row, f"{model}_pred": output, "evaluation": mark}


def settings_of_rows(lines: Sequence[PredictionLine]) -> dict[str, Any]:
    """Detect a run's settings from rows of ``ANSWER_FILES``.

    There is no length hint if no prompt contains the reference's number of words.
    """
    prompts = [(line.values.get("prompt"), line.values.get("gt")) for line in lines]
    unknown = any(
        not isinstance(prompt, str) or re.search(rf"(?<!\d){len(str(gt).split())}(?!\d)", prompt)
        for prompt, gt in prompts
    )
    return {} if unknown else {"length_hint": False}


NO_ANSWER = "$ERROR$"
"""Judgement in the script's files if the server returned no text."""
ERROR = "error"
"""Winner of a judgement that names no winner."""
WINNER_KEYS = ("g1_winner", "g2_winner")
_MAX_NAME_LENGTH = 200
_FIELDS = {3: ("question", "a", "b"), 4: ("question", "reference", "a", "b")}
_NUMBERS = re.compile(r"n_draws = (\d+) n_error = (\d+)|win rate of (.*) = (\d+(?:\.\d+)?(?:e-\d+)?)")
_FILE_ENDING = re.compile(r"(\.pred)?(\.judge)?(\.jsonl)?$")


class PromptContents(NamedTuple):
    """Question, reference and both answers, extracted from a judge's prompt."""

    question: str
    reference: str
    answers: tuple[str, str]


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """Row of a file of judgements: one question, judged in both orders.

    Attributes:
        prompts, judgements: prompt and judge's text of both rounds.
        winners: winner of both rounds: 0 (the judged model), 1 (the other model), "tie" or "error".
        names: names of the judged and the other model.
        note: sentence on a winner in the row that contradicts the judgement.
        contents: contents of both prompts, or None if they cannot be determined reliably.
    """

    line: PredictionLine
    judge: str
    prompts: tuple[str, str]
    judgements: tuple[str, str]
    winners: tuple[int | str, int | str]
    names: tuple[str, str] = ("", "")
    note: str = ""
    contents: PromptContents | None = None


@dataclass(frozen=True, slots=True)
class JudgeFile:
    """File of judgements.

    Attributes:
        attempts: starts of the judge's script in order, each with at least one row.
        sha256: hash of the file's bytes.
        rubric: rubric of the bundle, or without texts if prompts differ from it.
    """

    path: Path
    attempts: Sequence[Sequence[JudgedPair]]
    content: FileRows
    sha256: str
    rubric: Rubric


# Reading


def read_judge_file(path: Path, bundle: Bundle | None = None) -> JudgeFile:
    """Read a file of judgements, with the contents of the prompts.

    Args:
        bundle: bundle with the official rubric, which is used to parse prompts.

    Raises:
        UsageError: the file is invalid. The message names the line.
        BundleError: the bundle's rubric differs from the supported version.
    """
    data = read_bytes(path)
    content = split_rows(path, data, is_filler=_NUMBERS.fullmatch)
    if not content.lines:
        raise prediction_file_error(str(path), "it contains no judgements")
    if content.lines[0].values.keys().isdisjoint(("judge", *WINNER_KEYS)):
        raise UsageError(
            f"{path} contains no judge's verdicts: its rows have neither 'judge' nor 'g1_winner'.",
            fix="To import a model's answers, pass their benchmark:",
            command=as_command("lbx", "import", "BENCHMARK", path, "--model-name", "NAME", "-o", "RESULTS"),
        )
    rows = _with_names(path, [_parse_row(line) for line in content.lines])
    judges = list(dict.fromkeys(row.judge for row in rows))
    if len(judges) > 1:
        raise prediction_file_error(
            str(path),
            f"it contains judgements of several judges, {' and '.join(judges[:3])}; a file must have one judge",
        )
    rubric, contents = _prompt_contents(rows, bundle)
    rows = [replace(row, contents=texts) for row, texts in zip(rows, contents, strict=True)]
    attempts = [attempt for segment in _segments(rows) for attempt in _attempts(segment)]
    return JudgeFile(path, attempts, content, hashlib.sha256(data).hexdigest(), rubric)


def _parse_row(line: PredictionLine) -> JudgedPair:
    judge = _name(line, "judge")
    for key in WINNER_KEYS:
        _name(line, key)
    texts = _text(line, "g1_judgment"), _text(line, "g2_judgment")
    prompts = _text(line, "g1_user_prompt"), _text(line, "g2_user_prompt")
    return JudgedPair(line, judge, prompts, texts, _winners(texts))


def _winners(texts: Sequence[str]) -> tuple[int | str, int | str]:
    first, second = (str(next(iter(winners_in(VERDICTS, text)), ERROR)) for text in texts)
    return {FIRST: 0, SECOND: 1}.get(first, first), {FIRST: 1, SECOND: 0}.get(second, second)


def _with_names(path: Path, rows: Sequence[JudgedPair]) -> list[JudgedPair]:
    """Add both models' names to the rows, and a note to each row with a winner that contradicts the judgement."""
    winners: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for row in rows:
        for key, winner in zip(WINNER_KEYS, row.winners, strict=True):
            if isinstance(winner, int) and (name := _text(row.line, key)) not in (TIE, ERROR):
                winners[winner].setdefault(name, row.line.location)
    for model_names in winners:
        if len(model_names) > 1:
            (first, first_line), (second, line) = list(model_names.items())[:2]
            location = first_line.rpartition(", ")[2]
            raise prediction_file_error(
                line, f"the winner is {second!r}, but {first!r} in {location}; a file must compare two models"
            )
    # The file does not name a model that never wins, but its own name contains the judged model.
    judged, against = (next(iter(model_names), "") for model_names in winners)
    names = judged or _FILE_ENDING.sub("", path.name) or "judged", against or "baseline"
    return [replace(row, names=names, note=_note(row, names)) for row in rows]


def _note(row: JudgedPair, names: tuple[str, str]) -> str:
    for key, winner in zip(WINNER_KEYS, row.winners, strict=True):
        text = _text(row.line, key)
        if text != (names[winner] if isinstance(winner, int) else winner):
            return f"{key!r} is {text[:40]!r}, but its judgement names another winner, which counts"
    return ""


def _name(line: PredictionLine, key: str) -> str:
    text = _text(line, key)
    if not text.strip() or len(text) > _MAX_NAME_LENGTH:
        raise prediction_file_error(
            line.location,
            f"{key!r} is {'longer than 200 characters' if text.strip() else 'blank'}, which is not a valid name",
        )
    return text


def _text(line: PredictionLine, key: str) -> str:
    """Return the text of a key without lone surrogates, which the results file cannot store."""
    return line.text(key).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _segments(rows: Iterable[JudgedPair]) -> list[list[JudgedPair]]:
    """Split rows into segments that each end with the script's lines of numbers."""
    segments: list[list[JudgedPair]] = [[]]
    for row in rows:
        segments[-1].append(row)
        if _number_matches(row):
            segments.append([])
    return [rows for rows in segments if rows]


def _number_matches(row: JudgedPair) -> list[re.Match[str]]:
    return [match for text in row.line.raw.splitlines() if (match := _NUMBERS.fullmatch(text.strip()))]


def _attempts(rows: list[JudgedPair]) -> list[list[JudgedPair]]:
    """Split a segment into a list of rows for each start of the script.

    The script's numbers cover the rows since its start. Earlier rows are from a killed attempt with the same beginning.
    """
    numbers = {match[0] for match in _number_matches(rows[-1])}
    begin, counts = 0, Counter({TIE: 0, ERROR: 0})
    for index in reversed(range(len(rows)) if numbers else ()):
        counts.update(_winning_names(rows[index]))
        if rows[index].prompts == rows[0].prompts and numbers <= set(_lines_of_counts(counts)):
            begin = index
    return [part for part in (rows[:begin], rows[begin:]) if part]


# Prompts


def _prompt_contents(
    rows: Sequence[JudgedPair], bundle: Bundle | None
) -> tuple[Rubric, Sequence[PromptContents | None]]:
    """Return the rubric and the contents of each row's prompts. The rubric is the bundle's if all prompts match it."""
    script = bundle.file(SCRIPT) if bundle else None
    if script is not None:
        rubric = parse_rubric(script)
        words, names = [""], []
        for text, name in template_fields(rubric.user):
            words[-1] += text
            if name is not None:
                names.append(name)
                words.append("")
        contents = [_contents(words, names, row.prompts) for row in rows]
        if all(contents):
            return rubric, contents
    # The template's words are the lines that all prompts share.
    words = _shared_words([prompt for row in rows for prompt in row.prompts])
    rubric = Rubric(NAME, PAIR, "", "", VERDICTS, source=f"a file of {JUDGEMENT_FORMAT}")
    return rubric, [_contents(words, _FIELDS.get(len(words) - 1, ()), row.prompts) for row in rows]


def _contents(words: Sequence[str], names: Sequence[str], prompts: tuple[str, str]) -> PromptContents | None:
    """Extract the texts between a template's words, or None unless the prompts differ only in the answers' order."""
    first, second = (_between(words, prompt) for prompt in prompts)
    if not names or first is None or second is None:
        return None
    texts, swapped = dict(zip(names, first, strict=True)), dict(zip(names, second, strict=True))
    if {**swapped, "a": swapped["b"], "b": swapped["a"]} != texts:
        return None
    return PromptContents(texts["question"], texts.get("reference", ""), (texts["a"], texts["b"]))


def _between(words: Sequence[str], prompt: str) -> list[str] | None:
    if not words or not prompt.startswith(words[0]):
        return None
    pieces, at = [], len(words[0])
    for number, literal in enumerate(words[1:], start=2):
        end = len(prompt) - len(literal) if number == len(words) else prompt.find(literal, at)
        if end < at or not prompt.startswith(literal, end):
            return None
        pieces.append(prompt[at:end])
        at = end + len(literal)
    return pieces


def _shared_words(prompts: Sequence[str]) -> list[str]:
    """Find the words that all prompts share around different texts, or [] if there are too few."""
    counts = [Counter(prompt.split("\n")) for prompt in prompts]
    shared = [
        line
        for line in prompts[0].split("\n")
        if line.strip()
        and all(line in lines for lines in counts)
        and 2 * sum(c[line] == 1 for c in counts) > len(counts)
    ]
    gaps = list(zip(*filter(None, (_gaps(shared, prompt) for prompt in prompts)), strict=True))
    if not shared or not gaps or any(gaps[0]):
        return []
    words = [shared[0]]
    for line, texts in zip([*shared[1:], ""], gaps[1:], strict=True):
        if len(set(texts)) == 1:
            words[-1] += texts[0] + line
        else:
            before, after = _leading_newlines(texts), _leading_newlines([text[::-1] for text in texts])
            words[-1] += before
            words.append(after + line)
    return words


def _gaps(lines: Sequence[str], prompt: str) -> list[str] | None:
    """Split a prompt at the first occurrence of each of ``lines``, or return None if one is missing."""
    text, gaps, at = f"\n{prompt}\n", [], 1
    for line in lines:
        found = text.find(f"\n{line}\n", at - 1)
        if found < 0:
            return None
        gaps.append(text[at : found + 1])
        at = found + 1 + len(line)
    return [*gaps, text[at:-1]]


def _leading_newlines(texts: Sequence[str]) -> str:
    return "\n" * min(len(text) - len(text.lstrip("\n")) for text in texts)


# Writing


def make_pair(
    judge: str, names: tuple[str, str], prompts: tuple[str, str], outputs: tuple[str, str], time: float
) -> JudgedPair:
    """Make a row of judgements as the script writes it. ``time`` is in seconds since 1970."""
    winners = _winners(outputs)
    winning = [names[winner] if isinstance(winner, int) else winner for winner in winners]
    row = {"g1_winner": winning[0], "g2_winner": winning[1], "judge": judge, "g1_user_prompt": prompts[0]}
    row |= {"g1_judgment": outputs[0], "g2_user_prompt": prompts[1], "g2_judgment": outputs[1]}
    line = PredictionLine("", 0, json.dumps({**row, "tstamp": time}), row)
    return JudgedPair(line, judge, prompts, outputs, winners, names)


def win_lines(rows: Sequence[JudgedPair]) -> list[str]:
    """Lines with the wins of each model, as the script prints them before the numbers."""
    wins = Counter(row.names[winner] for row in rows for winner in row.winners if isinstance(winner, int))
    return [f"n_wins of {name} = {wins[name]}" for name in dict.fromkeys(name for row in rows for name in row.names)]


def number_lines(rows: Sequence[JudgedPair]) -> list[str]:
    """Lines with draws, errors and win rates, as the script writes them.

    Every round counts by itself, the total excludes errors, and a model without a win gets no line.
    """
    counts = Counter({TIE: 0, ERROR: 0})
    for row in rows:
        counts.update(_winning_names(row))
    return _lines_of_counts(counts)


def _winning_names(row: JudgedPair) -> Iterator[str]:
    return (row.names[winner] if isinstance(winner, int) else winner for winner in row.winners)


def _lines_of_counts(counts: Counter[str]) -> list[str]:
    total = sum(counts.values()) - counts[ERROR]
    lines = [f"n_draws = {counts[TIE]} n_error = {counts[ERROR]}"]
    rates = {name: (0.5 * counts[TIE] + count) / total for name, count in counts.items() if name not in (TIE, ERROR)}
    return lines + [f"win rate of {name} = {rate}" for name, rate in rates.items()]
