"""Two calls side by side: what differs, and why where that is meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile

from tests.official.asking import Sent
from tests.official.calls import Call

COUNTED = tuple(field.name for field in fields(Call))
_AROUND = 40


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt as the authors' script sends it, and as lbx would.

    Attributes:
        script: the script's file name.
        served: a server makes the tokens, so texts are compared; else token ids are, and not their text.
    """

    family: str
    script: str
    official: Call
    sent: Sent
    served: bool

    @property
    def ours(self) -> Call:
        return self.sent.call

    def differing(self, ours: Call | None = None) -> list[str]:
        """Names of the fields that are not the same."""
        ours = ours or self.ours
        left_out = "ids" if self.served else "text"
        return [name for name in COUNTED if name != left_out and getattr(self.official, name) != getattr(ours, name)]


@dataclass(frozen=True, slots=True)
class Meant:
    """A kind of difference that is meant.

    Attributes:
        fields: what may differ for this reason.
        holds: whether a pair that differs there does so for this reason, and in this way alone.
        reason: for the report.
    """

    fields: tuple[str, ...]
    holds: Callable[[Pair], bool]
    reason: str


def _control_tokens(pair: Pair) -> bool:
    if not any(text in pair.sent.prompt.text for text in pair.sent.asker.tokenizer.control_tokens):
        return False
    spoken = pair.sent.again(pair.sent.asker.spoken())
    return not {"ids", "text"} & set(pair.differing(spoken)) or _one_bos(pair, spoken)


def _one_bos(pair: Pair, ours: Call | None = None) -> bool:
    bos = pair.sent.asker.tokenizer.bos_id
    return bos is not None and pair.official.ids == (bos, *((ours or pair.ours).ids or ()))


def _runners_words(pair: Pair) -> bool:
    """Every runner of L-Eval but turbo's: the same system message, document and question, in that order."""
    if pair.family != "leval" or pair.script == "turbo16k-test.py":
        return False
    text, sent = pair.official.text, pair.sent
    if not sent.prompt.document:
        return _second_question(pair)
    place = 0
    for part in (sent.prompt.system, sent.kept, sent.sample.question):
        place = text.find(part, place)
        if place < 0:
            return False
        place += len(part)
    return True


def _second_question(pair: Pair) -> bool:
    """sci_fi's: the same question with its closing words exchanged; what is said of the answer's form may differ."""
    place = pair.official.text.find(pair.ours.text[:20])
    shared = pair.ours.text[: _agreeing(pair.official.text[max(0, place) :], pair.ours.text)]
    # Of the question itself only the closing words are exchanged; its first half stands in both as it is.
    half = pair.sent.sample.question[: len(pair.sent.sample.question) // 2]
    ends = [text.removeprefix(shared) for text in (pair.official.text[max(0, place) :], pair.ours.text)]
    return shared.startswith(half) and all(len(end) < 100 for end in ends)


def _same_conversation(pair: Pair) -> bool:
    """turbo's second question of sci_fi: in the same chat, without the answer to the first."""
    return pair.script == "turbo16k-test.py" and not pair.sent.prompt.document and len(pair.official.history) == 1


def _mpt_cut(pair: Pair) -> bool:
    words = pair.sent.sample.context.split(" ")
    cuts = (" ".join(words[:count]) for count in range(7_500, 0, -250))
    return pair.script == "mpt-test.py" and pair.sent.sample.question in pair.official.text and any(
        cut in pair.official.text for cut in cuts
    )  # fmt: skip


def _decoded(pair: Pair) -> bool:
    if pair.script != "eval_yi_200k.py":
        return False
    tokenizer = pair.sent.asker.spoken().tokenizer
    return tokenizer.decode(tokenizer.encode(pair.ours.text, special=True)) == pair.official.text


def _overflows(pair: Pair) -> bool:
    """L-Eval counts the document alone, so that a long question does not fit its model any more."""
    sent = pair.sent
    official = pair.official.system + pair.official.text
    room = sent.asker.window - (pair.official.max_new_tokens or 0)
    return pair.family == "leval" and len(sent.asker.tokenizer.encode(official, special=False)) > room - 8


def _own_demos(pair: Pair) -> bool:
    """The same but for the demonstrations, and for the end of a document that was cut after longer ones."""
    demos = pair.sent.sample.meta.get("fields", {}).get("demo") if pair.family == "helmet" else None
    if not demos or not pair.sent.sample.task.startswith(("narrativeqa", "multi_lexsum")):
        return False
    official, ours = (pair.sent.asker.tokenizer.decode(ids or ()) for ids in (pair.official.ids, pair.ours.ids))
    before, found, after = ours.partition(demos)
    question = after.removeprefix(pair.sent.kept)
    ends_are_equal = official.startswith(before) and official.endswith(question)
    return bool(found) and ends_are_equal and pair.sent.kept[:1000] in official


MEANT: tuple[Meant, ...] = (
    Meant(
        ("ids", "text"), _control_tokens,
        "a document cannot speak in control tokens: what it spells out stays text (with them as tokens, all is equal)",
    ),
    Meant(("ids",), _one_bos, "one BOS where the script's chat wrapping and its tokenizer both put one"),
    Meant(
        ("temperature",), lambda pair: pair.official.temperature == 0.0001 and pair.ours.temperature == 0.0,
        "L-Eval asks its APIs at temperature 0.0001; lbx is greedy",
    ),
    Meant(
        ("temperature", "max_new_tokens", "system"),
        lambda pair: pair.script == "prediction_gpt.py" and pair.official.temperature is None
        and pair.official.max_new_tokens is None and not pair.ours.system,
        "LV-Eval's API script sets neither temperature nor new tokens and adds a system line; "
        "lbx asks as its script of local models does",
    ),
    Meant(
        ("max_new_tokens",), lambda pair: pair.script == "chatglm2-test.py" and pair.official.max_new_tokens is None,
        "L-Eval leaves ChatGLM2's new tokens to the model's own chat method; lbx has the 512 of the others",
    ),
    Meant(
        ("temperature",), lambda pair: pair.script == "claude-test.py" and pair.official.temperature is None,
        "L-Eval leaves Claude's temperature to its API; lbx is greedy",
    ),
    Meant(
        ("temperature", "max_new_tokens"),
        lambda pair: pair.script == "eval_yi_200k.py" and pair.ours.temperature == 0.0,
        "InfiniteBench samples Yi without a budget; lbx is greedy within the budgets that its other scripts set",
    ),
    Meant(
        ("text",), _decoded,
        "InfiniteBench decodes every prompt without control tokens, which removes what spells them in a document",
    ),
    Meant(
        ("ids", "text", "system"), _runners_words,
        "L-Eval's other runners have words of their own around the same instruction, document and question; "
        "lbx asks every model in turbo's",
    ),
    Meant(
        ("system", "history"), _same_conversation,
        "L-Eval asks turbo sci_fi's second question in the same chat; lbx asks it alone, as local models' runners",
    ),
    Meant(
        ("text", "system"), _mpt_cut, "mpt-test.py cuts every document at 7,500 tokens, codeU's end, too",
    ),
    Meant(
        ("ids", "text", "system"), _overflows,
        "L-Eval counts the document alone: prompt and answer together are more than the window, and lbx cuts on",
    ),
    Meant(
        ("ids",), _own_demos,
        "HELMET draws demonstrations of narrativeqa and multi_lexsum from numpy's state, lbx by the question",
    ),
)  # fmt: skip
"""In the order in which they are looked through."""


def explain(pair: Pair) -> tuple[list[str], list[str]]:
    """Reasons of the differences that are meant; names of the fields that no reason covers."""
    left, reasons = set(pair.differing()), []
    for meant in MEANT:
        if left & set(meant.fields) and meant.holds(pair):
            reasons.append(meant.reason)
            left -= set(meant.fields)
    return reasons, [name for name in COUNTED if name in left]


def describe(pair: Pair, names: list[str]) -> Iterator[str]:
    """Each difference in a line: for texts and ids the place where they part."""
    decode = pair.sent.asker.tokenizer.decode
    for name in names:
        official, ours = getattr(pair.official, name), getattr(pair.ours, name)
        if name == "ids":
            at = _agreeing(official, ours)
            official, ours = (f"{ids[at : at + 6]} {decode(ids[at : at + 30])!r}" for ids in (official, ours))
            yield f"ids from {at} of {len(pair.official.ids or ())}: official {official}, lbx {ours}"
        elif isinstance(official, str):
            at = _agreeing(official, ours)
            begin = max(0, at - _AROUND)
            parts = [repr(text[begin : at + 2 * _AROUND]) for text in (official, ours)]
            yield f"{name} from {at} of {len(official)} and {len(ours)}: official {parts[0]}, lbx {parts[1]}"
        else:
            yield f"{name}: official {str(official)[: 3 * _AROUND]}, lbx {str(ours)[: 3 * _AROUND]}"


def _agreeing(one: Sequence[object], other: Sequence[object]) -> int:
    """How many first characters, or tokens, are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
