"""Files of pairwise judgements, line by line: L-Eval's, and FastChat's, whose code L-Eval's script took over.

    {"g1_winner": "...", "g2_winner": "...", "judge": "gpt-4", "g1_user_prompt": "...", "g1_judgment": "...",
     "g2_user_prompt": "...", "g2_judgment": "...", "tstamp": 1700000000.0}

Round g1 shows the judged model's answer first, g2 second. L-Eval's winner is a name (Evaluation/llm_eval.py), "tie" or
"error", and its script writes its numbers behind the rows as plain lines, and a second run of it behind those. FastChat
has "model_1" and "model_2" besides, which are its winners' names, and as "judge" a pair: the judge, and its prompt.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from lbx.base.layout import Bundle
from lbx.benchmarks.base.marks import LLM
from lbx.benchmarks.base.official_judge import ERROR, Asked, JudgedPair, JudgeFile, JudgeForm
from lbx.benchmarks.base.prediction_lines import PredictionLine, read_bytes, split, wrong
from lbx.benchmarks.base.predictions import Prediction
from lbx.benchmarks.base.rubric import FIRST, PAIR, SECOND, TIE, Rubric, winners_in
from lbx.benchmarks.base.templates import template_fields
from lbx.benchmarks.leval.predictions import LEvalFormat
from lbx.benchmarks.leval.rubric import NAME, SCRIPT, VERDICTS, official_rubric

_NUMBERS = re.compile(r"n_draws = (\d+) n_error = (\d+)|win rate of (.*) = (\d+(?:\.\d+)?(?:e-\d+)?)")
_SIDES = ("model_1", "model_2")
_WINNERS = ("g1_winner", "g2_winner")
_ENDING = re.compile(r"(\.pred)?(\.judge)?(\.jsonl)?$")
_LONGEST_NAME = 200
_FIELDS = {3: ("question", "a", "b"), 4: ("question", "reference", "a", "b")}


class LEvalJudgeForm(JudgeForm):
    """What L-Eval's script writes."""

    name = "leval_judge"
    benchmark = NAME
    by_rubric = True
    _numbers: ClassVar[re.Pattern[str]] = _NUMBERS
    """What of a file is no row."""

    def read(self, path: Path, bundle: Bundle | None = None) -> JudgeFile:
        """See ``JudgeForm.read``. A second run of the judge in the same file is an attempt of its own."""
        data = read_bytes(path)
        content = split(path, data, plain=self._numbers.fullmatch)
        if not content.lines:
            raise wrong(str(path), "it holds no judgement")
        rows = self._rows(path, content.lines)
        judges = list(dict.fromkeys(row.judge for row in rows))
        if len(judges) > 1:
            raise wrong(
                str(path), f"it holds judgements of several judges, {' and '.join(judges[:3])}; lbx takes one a file"
            )
        rubric, told = self._understood(rows, bundle)
        rows = [replace(row, told=one) for row, one in zip(rows, told, strict=True)]
        attempts = [part for segment in _segments(rows) for part in _attempts(segment)]
        return JudgeFile(path, attempts, content, hashlib.sha256(data).hexdigest(), rubric)

    def _rows(self, path: Path, lines: Sequence[PredictionLine]) -> list[JudgedPair]:
        return _leval_rows(path, lines)

    def _understood(self, rows: Sequence[JudgedPair], bundle: Bundle | None) -> tuple[Rubric, Sequence[Asked | None]]:
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
                return official, told
        return Rubric(self.benchmark, PAIR, "", "", VERDICTS, source=f"a file of {self.name}"), shown(rows)

    def samples(self, asked: Sequence[tuple[str, str]]) -> list[Prediction]:
        """See ``JudgeForm.samples``."""
        rows = [{"query": query, "gt": gt, "_pred": "", "evaluation": LLM} for query, gt in asked]
        lines = [PredictionLine("a prompt", number, "", row) for number, row in enumerate(rows)]
        return LEvalFormat(self.benchmark, ()).read_judged(lines)

    def numbers(self, rows: Sequence[JudgedPair]) -> list[str]:
        """See ``JudgeForm.numbers``: wins of each model, and what is written behind the rows."""
        names = dict.fromkeys(name for row in rows for name in row.names)
        wins = Counter(row.names[one] for row in rows for one in row.winners if isinstance(one, int))
        return [*(f"n_wins of {name} = {wins[name]}" for name in names), *self.lines_behind(rows)]

    def lines_behind(self, rows: Sequence[JudgedPair]) -> list[str]:
        """See ``JudgeForm.lines_behind``. Rounds count each for itself; errors leave the total."""
        counts = Counter({TIE: 0, ERROR: 0})
        for row in rows:
            counts.update(_won(row))
        return _number_lines(counts)

    def pair(
        self, judge: str, names: tuple[str, str], prompts: tuple[str, str], said: tuple[str, str], at: float
    ) -> JudgedPair:
        """See ``JudgeForm.pair``."""
        winners = winner_in(said[0], first=0), winner_in(said[1], first=1)
        told = [names[winner] if isinstance(winner, int) else winner for winner in winners]
        row = {
            "g1_winner": told[0],
            "g2_winner": told[1],
            "judge": judge,
            "g1_user_prompt": prompts[0],
            "g1_judgment": said[0],
            "g2_user_prompt": prompts[1],
            "g2_judgment": said[1],
            "tstamp": at,
        }
        return JudgedPair(PredictionLine("", 0, json.dumps(row), row), judge, prompts, said, winners, names)


class FastChatForm(LEvalJudgeForm):
    """What FastChat's script writes: the same rows about two models that each row names."""

    name = benchmark = "fastchat"
    by_rubric = False
    _numbers = re.compile("(?!)")

    def _rows(self, path: Path, lines: Sequence[PredictionLine]) -> list[JudgedPair]:
        return [_fastchat_row(line) for line in lines]

    def _understood(self, rows: Sequence[JudgedPair], bundle: Bundle | None) -> tuple[Rubric, Sequence[Asked | None]]:
        return super()._understood(rows, None)

    def numbers(self, rows: Sequence[JudgedPair]) -> list[str]:
        """See ``JudgeForm.numbers``; then by its rule: a win is one in both orders, all else a tie.

        Questions with an error are dropped.
        """
        whole = [row.winners for row in rows if ERROR not in row.winners]
        won, lost = (sum(winners == (side, side) for winners in whole) for side in (0, 1))
        tied = len(whole) - won - lost
        lines = super().numbers(rows)
        if whole and len({name for row in rows for name in row.names}) == 2:
            rate = (won + tied / 2) / len(whole)
            lines.append(f"in both orders: {won} won, {lost} lost, {tied} tied; adjusted win rate {rate}")
        return lines


def _fastchat_row(line: PredictionLine) -> JudgedPair:
    judge = line.need("judge")
    if not isinstance(judge, list) or len(judge) != 2 or not all(isinstance(text, str) for text in judge):
        raise wrong(line.where, "'judge' should be a list of two texts: the judge's name, and its prompt's")
    names = _name(line, "model_1", line.text("model_1")), _name(line, "model_2", line.text("model_2"))
    row = replace(_row(line, judge[0]), prompt_name=judge[1], names=names)
    for key in _WINNERS:
        if (said := line.text(key)) not in (*_SIDES, TIE, ERROR):
            raise wrong(line.where, f"{key!r} is {said[:40]!r}, and should be {', '.join(_SIDES)}, {TIE} or {ERROR}")
    return _checked(row, _SIDES)


def _leval_rows(path: Path, lines: Sequence[PredictionLine]) -> list[JudgedPair]:
    rows = [_row(line, line.text("judge")) for line in lines]
    winners: tuple[dict[str, str], dict[str, str]] = ({}, {})
    for row in rows:
        for key, winner in zip(_WINNERS, row.winners, strict=True):
            if isinstance(winner, int) and (said := _text(row.line, key)) not in (TIE, ERROR):
                winners[winner].setdefault(said, row.line.where)
    for several in winners:
        if len(several) > 1:
            (first, place), (second, other) = list(several.items())[:2]
            why = f"{second!r} wins where {first!r} does in {place.rpartition(', ')[2]}: a file is about two models"
            raise wrong(other, why)
    # A model that never wins is named nowhere in the file, but the judged one is in its name.
    judged, against = (next(iter(several), "") for several in winners)
    names = judged or _ENDING.sub("", path.name) or "judged", against or "baseline"
    return [_checked(replace(row, names=names), names) for row in rows]


def _row(line: PredictionLine, judge: str) -> JudgedPair:
    judge = _name(line, "judge", judge)
    for key in _WINNERS:
        _name(line, key, line.text(key))
    said = _text(line, "g1_judgment"), _text(line, "g2_judgment")
    prompts = _text(line, "g1_user_prompt"), _text(line, "g2_user_prompt")
    return JudgedPair(line, judge, prompts, said, (winner_in(said[0], first=0), winner_in(said[1], first=1)))


def _checked(row: JudgedPair, names: tuple[str, str]) -> JudgedPair:
    """The row, with a note where the winner that it names is not its judgement's."""
    for key, winner in zip(_WINNERS, row.winners, strict=True):
        told = _text(row.line, key)
        if told != (names[winner] if isinstance(winner, int) else winner):
            return replace(row, note=f"{key!r} is {told[:40]!r}, and its judgement says otherwise, which counts")
    return row


def _text(line: PredictionLine, key: str) -> str:
    """As the results file can hold it: without lone surrogates."""
    return _whole(line.text(key))


def _name(line: PredictionLine, key: str, text: str) -> str:
    if not text.strip() or len(text) > _LONGEST_NAME:
        raise wrong(line.where, f"{key!r} is {'longer than 200 characters' if text.strip() else 'blank'}, and no name")
    return _whole(text)


def _whole(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def winner_in(text: str, *, first: int) -> int | str:
    """Who wins by a judgement, officially; ``first`` is whose answer stood first."""
    winner = str(next(iter(winners_in(VERDICTS, text)), ERROR))
    return {FIRST: first, SECOND: 1 - first}.get(winner, winner)


def _segments(rows: Iterable[JudgedPair]) -> list[list[JudgedPair]]:
    """The rows up to each place where the script wrote its numbers."""
    found: list[list[JudgedPair]] = [[]]
    for row in rows:
        found[-1].append(row)
        if _numbers_behind(row):
            found.append([])
    return [rows for rows in found if rows]


def _numbers_behind(row: JudgedPair) -> list[re.Match[str]]:
    return [match for text in row.line.raw.splitlines() if (match := _NUMBERS.fullmatch(text.strip()))]


def _attempts(rows: list[JudgedPair]) -> list[list[JudgedPair]]:
    """The script numbers what it judged since its start: rows before are of one that was killed, and began alike."""
    told = {match[0] for match in _numbers_behind(rows[-1])}
    begin, counts = 0, Counter({TIE: 0, ERROR: 0})
    for place in reversed(range(len(rows)) if told else ()):
        counts.update(_won(rows[place]))
        if rows[place].prompts == rows[0].prompts and told <= set(_number_lines(counts)):
            begin = place
    return [part for part in (rows[:begin], rows[begin:]) if part]


def _won(row: JudgedPair) -> Iterator[str]:
    return (row.names[winner] if isinstance(winner, int) else winner for winner in row.winners)


def _number_lines(counts: Counter[str]) -> list[str]:
    total = sum(counts.values()) - counts[ERROR]
    lines = [f"n_draws = {counts[TIE]} n_error = {counts[ERROR]}"]
    rates = {name: (0.5 * counts[TIE] + count) / total for name, count in counts.items() if name not in (TIE, ERROR)}
    return lines + [f"win rate of {name} = {rate}" for name, rate in rates.items()]


def shown(rows: Sequence[JudgedPair]) -> list[Asked | None]:
    """What each row's prompts show; None where that cannot be told for sure.

    The words around it are those that all prompts of one name share, line by line. A row is believed where both of its
    prompts are these words around the same texts, with the answers exchanged.
    """
    found: list[Asked | None] = [None] * len(rows)
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.prompt_name, []).append(place)
    for places in groups.values():
        words = _shared_words([prompt for place in places for prompt in rows[place].prompts])
        for place in places:
            found[place] = asked(words, _FIELDS.get(len(words) - 1, ()), rows[place].prompts)
    return found


def asked(words: Sequence[str], names: Sequence[str], prompts: tuple[str, str]) -> Asked | None:
    """What both prompts of a row show between words of a template, which stand around the named fields."""
    first, second = (_between(words, prompt) for prompt in prompts)
    if not names or first is None or second is None:
        return None
    told, again = dict(zip(names, first, strict=True)), dict(zip(names, second, strict=True))
    if {**again, "a": again["b"], "b": again["a"]} != told:
        return None
    return Asked(told["question"], told.get("reference", ""), (told["a"], told["b"]))


def _between(words: Sequence[str], prompt: str) -> list[str] | None:
    if not words or not prompt.startswith(words[0]):
        return None
    found, at = [], len(words[0])
    for place, literal in enumerate(words[1:], start=2):
        end = len(prompt) - len(literal) if place == len(words) else prompt.find(literal, at)
        if end < at or not prompt.startswith(literal, end):
            return None
        found.append(prompt[at:end])
        at = end + len(literal)
    return found


def _shared_words(prompts: Sequence[str]) -> list[str]:
    """The words of all prompts that stand before, between and behind what differs; [] where they are too few."""
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
            before, behind = _blank(texts), _blank([text[::-1] for text in texts])[::-1]
            words[-1] += before
            words.append(behind + line)
    return words


def _gaps(lines: Sequence[str], prompt: str) -> list[str] | None:
    """What stands before, between and behind the lines, each taken where it first stands alone; None: one does not."""
    text, found, at = f"\n{prompt}\n", [], 1
    for line in lines:
        place = text.find(f"\n{line}\n", at - 1)
        if place < 0:
            return None
        found.append(text[at : place + 1])
        at = place + 1 + len(line)
    return [*found, text[at:-1]]


def _blank(texts: Sequence[str]) -> str:
    """The line feeds that all texts begin with."""
    return "\n" * min(len(text) - len(text.lstrip("\n")) for text in texts)
