"""Files of pairwise judgements, line by line, as FastChat's script writes them, whose code others took over.

    {"question_id": 81, "model_1": "...", "model_2": "...", "g1_winner": "model_1", "g2_winner": "tie",
     "judge": ["gpt-4", "pair-v2"], "g1_user_prompt": "...", "g1_judgment": "...", "g2_user_prompt": "...",
     "g2_judgment": "...", "turn": 1, "tstamp": 1700000000.0}

Round g1 shows the judged model's answer first, g2 second. A winner is one of the two, "tie" or "error".
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.benchmarks.base.prediction_lines import Content, PredictionLine, read_bytes, split, wrong
from lbx.benchmarks.base.rubric import FIRST, PAIR, SECOND, TIE, Rubric, winners_in

NO_ANSWER = "$ERROR$"
"""What the scripts keep as a judgement where the server gave none."""
ERROR = "error"
"""The winner of a judgement that names none."""
VERDICTS = (("[[A]]", FIRST), ("[[B]]", SECOND), ("[[C]]", TIE))
"""In the order in which the scripts look for them."""
WINNERS = ("g1_winner", "g2_winner")
_SIDES = ("model_1", "model_2")
_LONGEST_NAME = 200
_FIELDS = {3: ("question", "a", "b"), 4: ("question", "reference", "a", "b")}


class Shown(NamedTuple):
    """What a judge's prompt shows."""

    question: str
    reference: str
    answers: tuple[str, str]


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """A row of a file of judgements: one question, judged in both orders.

    Attributes:
        prompts, judgements, winners: of both rounds; a winner is 0 (the judged model), 1 (the other), "tie", "error".
        names: of both models.
        prompt_name: of the template, where rows name one.
        told: what both prompts show, where that can be told.
    """

    line: PredictionLine
    judge: str
    prompts: tuple[str, str]
    judgements: tuple[str, str]
    winners: tuple[int | str, int | str]
    names: tuple[str, str] = ("", "")
    prompt_name: str = ""
    note: str = ""
    told: Shown | None = None


@dataclass(frozen=True, slots=True)
class JudgeFile:
    """A file's runs of a judge, one behind the other, each with at least one row.

    Attributes:
        sha256, content_sha256: of the bytes, and of them with what they are taken for.
    """

    path: Path
    attempts: Sequence[Sequence[JudgedPair]]
    content: Content
    sha256: str
    content_sha256: str
    rubric: Rubric


class JudgeForm:
    """The form of FastChat's files, which those of other scripts are of, too.

    Attributes:
        name: of the format.
        benchmark: whose questions are judged.
        by_rubric: whether its script judges by the official rubric, so that what a judge of lbx said can be such a
            file.
        taken_for: goes with the content: a run of rows that were taken for something else is not continued.
    """

    name: ClassVar[str] = "fastchat"
    benchmark: ClassVar[str] = "fastchat"
    by_rubric: ClassVar[bool] = False
    taken_for: ClassVar[bytes] = b"fastchat "

    def read(self, path: Path, bundle: Bundle | None = None) -> JudgeFile:
        """A file, its rows with what their prompts show.

        Args:
            bundle: brings the official rubric, by which prompts are taken apart.

        Raises:
            UsageError: something is wrong with the file; names the line.
            BundleError: the bundle's rubric is not the one that lbx was written for.
        """
        data = read_bytes(path)
        content = self.content(path, data)
        if not content.lines:
            raise wrong(str(path), "it holds no judgement")
        if content.lines[0].values.keys().isdisjoint(("judge", *WINNERS)):
            raise UsageError(
                f"{path} holds no judge's verdicts: its rows have neither 'judge' nor 'g1_winner'.",
                fix="To import a model's answers, name their benchmark:",
                command=as_command("lbx", "import", "BENCHMARK", path, "--model", "NAME", "-o", "RESULTS"),
            )
        rows = self.rows(path, content.lines)
        judges = list(dict.fromkeys(row.judge for row in rows))
        if len(judges) > 1:
            raise wrong(
                str(path), f"it holds judgements of several judges, {' and '.join(judges[:3])}; lbx takes one a file"
            )
        rubric, verdicts = self.understood(rows, bundle)
        rows = [replace(row, told=one) for row, one in zip(rows, verdicts, strict=True)]
        digest, taken_for = hashlib.sha256(data).hexdigest(), hashlib.sha256(self.taken_for + data).hexdigest()
        return JudgeFile(path, self.attempts(rows), content, digest, taken_for, rubric)

    def content(self, path: Path, data: bytes) -> Content:
        """The file's lines."""
        return split(path, data)

    def rows(self, path: Path, lines: Sequence[PredictionLine]) -> list[JudgedPair]:
        """The rows as they stand there."""
        return [_named_row(line) for line in lines]

    def understood(self, rows: Sequence[JudgedPair], bundle: Bundle | None) -> tuple[Rubric, Sequence[Shown | None]]:
        """The rubric, and what each row's prompts show."""
        return Rubric(self.benchmark, PAIR, "", "", VERDICTS, source=f"a file of {self.name}"), shown(rows)

    def pair(
        self, judge: str, names: tuple[str, str], prompts: tuple[str, str], outputs: tuple[str, str], at: float
    ) -> JudgedPair:
        """A row as the script writes it (``by_rubric``); ``at`` in seconds since 1970."""
        raise NotImplementedError

    def attempts(self, rows: list[JudgedPair]) -> list[list[JudgedPair]]:
        """The rows of each run of the judge."""
        return [rows]

    def numbers(self, rows: Sequence[JudgedPair]) -> list[str]:
        """What people read of the rows: wins of each model, what is written behind the rows, and by FastChat's rule.

        By that a win is one in both orders, all else a tie; questions with an error are dropped.
        """
        names = dict.fromkeys(name for row in rows for name in row.names)
        wins = Counter(row.names[one] for row in rows for one in row.winners if isinstance(one, int))
        lines = [*(f"n_wins of {name} = {wins[name]}" for name in names), *number_lines(rows)]
        whole = [row.winners for row in rows if ERROR not in row.winners]
        if self.by_rubric or not whole or len(names) != len(_SIDES):
            return lines
        won, lost = (sum(winners == (side, side) for winners in whole) for side in (0, 1))
        tied = len(whole) - won - lost
        rate = (won + tied / 2) / len(whole)
        return [*lines, f"in both orders: {won} won, {lost} lost, {tied} tied; adjusted win rate {rate}"]


def number_lines(rows: Sequence[JudgedPair]) -> list[str]:
    """Draws, errors and win rates. Rounds count each for itself; errors leave the total; without a win is no line."""
    counts = Counter({TIE: 0, ERROR: 0})
    for row in rows:
        counts.update(winning_names(row))
    return lines_of(counts)


def lines_of(counts: Counter[str]) -> list[str]:
    """The same of rounds by their winner."""
    total = sum(counts.values()) - counts[ERROR]
    lines = [f"n_draws = {counts[TIE]} n_error = {counts[ERROR]}"]
    rates = {name: (0.5 * counts[TIE] + count) / total for name, count in counts.items() if name not in (TIE, ERROR)}
    return lines + [f"win rate of {name} = {rate}" for name, rate in rates.items()]


def _named_row(line: PredictionLine) -> JudgedPair:
    judge = line.need("judge")
    if not isinstance(judge, list) or len(judge) != 2 or not all(isinstance(text, str) for text in judge):
        raise wrong(line.where, "'judge' should be a list of two texts: the judge's name, and its prompt's")
    names = _name(line, "model_1", line.text("model_1")), _name(line, "model_2", line.text("model_2"))
    row = replace(row_of(line, judge[0]), prompt_name=judge[1], names=names)
    for key in WINNERS:
        if (verdict := line.text(key)) not in (*_SIDES, TIE, ERROR):
            raise wrong(line.where, f"{key!r} is {verdict[:40]!r}, and should be {', '.join(_SIDES)}, {TIE} or {ERROR}")
    return checked(row, _SIDES)


def row_of(line: PredictionLine, judge: str) -> JudgedPair:
    judge = _name(line, "judge", judge)
    for key in WINNERS:
        _name(line, key, line.text(key))
    texts = text_of(line, "g1_judgment"), text_of(line, "g2_judgment")
    prompts = text_of(line, "g1_user_prompt"), text_of(line, "g2_user_prompt")
    return JudgedPair(line, judge, prompts, texts, (winner_in(texts[0], first=0), winner_in(texts[1], first=1)))


def checked(row: JudgedPair, names: tuple[str, str]) -> JudgedPair:
    """The row, with a note where the winner that it names is not its judgement's."""
    for key, winner in zip(WINNERS, row.winners, strict=True):
        text = text_of(row.line, key)
        if text != (names[winner] if isinstance(winner, int) else winner):
            return replace(row, note=f"{key!r} is {text[:40]!r}, but its judgement says otherwise, and that counts")
    return row


def text_of(line: PredictionLine, key: str) -> str:
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


def winning_names(row: JudgedPair) -> Iterator[str]:
    return (row.names[winner] if isinstance(winner, int) else winner for winner in row.winners)


def shown(rows: Sequence[JudgedPair]) -> list[Shown | None]:
    """What each row's prompts show; None where that cannot be told for sure.

    The words around it are those that all prompts of one name share, line by line. A row is believed where both of its
    prompts are these words around the same texts, with the answers exchanged.
    """
    pages: list[Shown | None] = [None] * len(rows)
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.prompt_name, []).append(place)
    for places in groups.values():
        words = _shared_words([prompt for place in places for prompt in rows[place].prompts])
        for place in places:
            pages[place] = asked(words, _FIELDS.get(len(words) - 1, ()), rows[place].prompts)
    return pages


def asked(words: Sequence[str], names: Sequence[str], prompts: tuple[str, str]) -> Shown | None:
    """What both prompts of a row show between words of a template, which stand around the named fields."""
    first, second = (_between(words, prompt) for prompt in prompts)
    if not names or first is None or second is None:
        return None
    names_of, again = dict(zip(names, first, strict=True)), dict(zip(names, second, strict=True))
    if {**again, "a": again["b"], "b": again["a"]} != names_of:
        return None
    return Shown(names_of["question"], names_of.get("reference", ""), (names_of["a"], names_of["b"]))


def _between(words: Sequence[str], prompt: str) -> list[str] | None:
    if not words or not prompt.startswith(words[0]):
        return None
    pieces, at = [], len(words[0])
    for place, literal in enumerate(words[1:], start=2):
        end = len(prompt) - len(literal) if place == len(words) else prompt.find(literal, at)
        if end < at or not prompt.startswith(literal, end):
            return None
        pieces.append(prompt[at:end])
        at = end + len(literal)
    return pieces


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
    text, gaps, at = f"\n{prompt}\n", [], 1
    for line in lines:
        place = text.find(f"\n{line}\n", at - 1)
        if place < 0:
            return None
        gaps.append(text[at : place + 1])
        at = place + 1 + len(line)
    return [*gaps, text[at:-1]]


def _blank(texts: Sequence[str]) -> str:
    """The line feeds that all texts begin with."""
    return "\n" * min(len(text) - len(text.lstrip("\n")) for text in texts)
