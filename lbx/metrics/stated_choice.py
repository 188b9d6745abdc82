"""The option that a free answer states: lbx's own rule, for benchmarks of one's own.

1. A statement counts before a mention. Statements are "the answer is B", "Answer: B", "\\boxed{B}",
   "<answer>B</answer>", "I choose B", "B is correct", a line that is only the letter, and a first line such as
   "B. Tuesday". The option's text may stand for its letter.
2. The last statement counts, unless the first sentence already states another option.
3. Without a statement, the only letter that is mentioned counts, if its sentence neither negates nor supposes it.
4. Ambiguous answers state no option: "B or C", "B. Monday" if Monday is option A, lines that begin with
   several letters.

All letters are alike: "A" and "I" count wherever "B" would, and "A dog" states no option because "B dog" states none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from lbx.metrics import choice_words as words
from lbx.metrics.choice_words import WordForms

_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_ALPHA = rf"[^\W\d_{_UNSPACED}]"
_LATIN = "A-Za-z0-9\u00c0-\u024f"
_OPEN = r"""[ (\[{<"'“”‘’„«「『]{0,8}"""
_CLOSE = r"""[ )\]}>"'”’»」』]{0,8}"""
_COLON = rf"(?:{_CLOSE}[:：=-]+\s*|>\s*| |)"
_MARKUP = re.compile(r"\\(?:text|math)\w*\s*(?=\{)|\\[()\[\]]|[*_`$~]|^[ \t]*#+", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?。！？…\n;；]")
_CLAUSE_END = re.compile(r"[.,;:!?()。，；：！？、…\n]")
_LINE_END = rf"{_CLOSE}[.。!]{{0,8}}{_CLOSE}(?:\n|\Z)"
_MAX_SENTENCE_LENGTH = 300
_LETTER_ALONE = re.compile("[a-z]?")
_BETWEEN = re.compile(r"""[ .)\]}:：、"'”>–—-]*""")
_IN_WORD = re.compile(rf"[^\W_{_UNSPACED}]")


def _any_of(alternatives: WordForms) -> str:
    forms = alternatives.spaced_scripts.replace(r"\w", _ALPHA)  # \w would run on through scripts without spaces
    spaced = rf"(?<!{_ALPHA})(?i:{forms})(?!{_ALPHA})"
    return f"(?:{spaced}|{alternatives.unspaced_scripts})" if alternatives.unspaced_scripts else spaced


_ANSWER, _OPTION, _RIGHT, _IS, _AND, _AFTERWARDS = map(
    _any_of, (words.ANSWER, words.OPTION, words.RIGHT, words.IS, words.AND, words.AFTERWARDS)
)
_WORD = rf"(?: ?(?:(?<!{_ALPHA})(?![A-Z](?!{_ALPHA})){_ALPHA}++|[{_UNSPACED}]))"
_NAMED = rf"{_OPEN}(?:{_OPTION} ?)?{_OPEN}"
_NO_WORD = rf"(?![{_LATIN}]|[-'’][{_LATIN}])"
_LETTER = rf"(?P<letter>[A-Z]){_NO_WORD}"
_BEGINS = rf"(?<![{_LATIN}.'’-])"
_ENDS = rf"""(?= *(?:\Z|[\n.):,;\]}}<>"'”」』。，、；（(!…]|[{_UNSPACED}]|[-–—] |{_AFTERWARDS}))"""


class _Patterns(NamedTuple):
    """Patterns of stated options.

    Attributes:
        announcement: words before a stated option; ``after_announcement`` are the ways in which its letter may follow.
        choice_verb: "I choose" and its like; ``after_choice_verb`` as above.
        before_text: text allowed between such words and an option's text.
        judgement: "B is correct".
        label: beginning of a line with an option, and its text or a reason.
        bare_line: a line that is only a letter.
        mention: a letter that is no part of a sentence.
        alternative: another letter that follows as an alternative.
        denial: words that deny the option before them.
        negation: any word that negates or supposes.
    """

    announcement: re.Pattern[str]
    after_announcement: tuple[re.Pattern[str], ...]
    choice_verb: re.Pattern[str]
    after_choice_verb: tuple[re.Pattern[str], ...]
    before_text: re.Pattern[str]
    judgement: re.Pattern[str]
    label: re.Pattern[str]
    bare_line: re.Pattern[str]
    mention: re.Pattern[str]
    alternative: re.Pattern[str]
    denial: re.Pattern[str]
    negation: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    return _Patterns(
        announcement=re.compile(rf"(?<!/)(?:{_ANSWER}|{_RIGHT}(?: ?{_OPTION})?|{_OPTION} ?{_RIGHT})"),
        after_announcement=(
            re.compile(rf"(?P<gap>{_WORD}{{0,6}}?) ?{_IS}(?P<more>{_WORD}{{0,4}}?) ?{_NAMED}{_LETTER}"),
            re.compile(rf"{_COLON}{_NAMED}{_LETTER}{_ENDS}"),
            re.compile(rf"{_COLON}{_OPEN}(?P<letter>[a-z])(?={_LINE_END})"),
        ),
        choice_verb=re.compile(_any_of(words.CHOOSE)),
        after_choice_verb=(re.compile(rf"[:：]?(?P<gap>{_WORD}{{0,2}}?) ?{_NAMED}{_LETTER}"),),
        before_text=re.compile(rf"(?:(?P<gap>{_WORD}{{0,6}}?) ?{_IS} ?|{_COLON}){_OPEN}"),
        judgement=re.compile(
            rf"{_BEGINS}{_OPEN}{_LETTER}{_CLOSE}(?:{_OPTION} ?)?"
            rf"(?:{_IS} (?:{_any_of(words.ARTICLE)} )?"
            rf"|(?:{words.IS.unspaced_scripts})?(?=[{_UNSPACED}]))(?:{_RIGHT}|{_ANSWER})"
        ),
        label=re.compile(rf"[^\w\n]*{_LETTER}(?: ?[.)\]}}:：、,，\"'”]| [-–—] | (?={_AFTERWARDS}))"),
        bare_line=re.compile(r"[^\w?？]*(?P<letter>[A-Za-z])[^\w?？]*"),
        mention=re.compile(rf"(?P<option>{_OPTION} ?{_OPEN})?{_BEGINS}{_LETTER}(?(option)|{_ENDS})"),
        alternative=re.compile(
            rf"{_CLOSE}(?P<comma>,)?(?(comma)|(?:{_AND}|[/&+、])){_NAMED}{_LETTER}(?! ?{_IS})"
            rf"(?(comma)(?={_CLOSE}(?:[,.\n]|\Z|{_AND})))"
        ),
        denial=re.compile(rf"{_CLOSE}[^\s.,;]{{0,2}} ?{_any_of(words.NOT_AFTER)}"),
        negation=re.compile(_any_of(words.NOT)),
    )


def _strip_markup(text: str) -> str:
    """Return the text without markup, in compatibility characters ("Ｂ" is "B"), with single spaces."""
    return re.sub(r"[^\S\n]+", " ", _MARKUP.sub("", unicodedata.normalize("NFKC", text)))


def stated_choice(
    output: str, choices: Mapping[str, str], language: str = "en", cues: Sequence[str] = ()
) -> str | None:
    """Find the option that an answer states; None if it states none, or is ambiguous.

    Args:
        choices: {letter: text}, in their order.
        language: of the task. Mentions count only in languages with known negations.
        cues: phrases after which an answer follows, in addition to the known ones.
    """
    answer = _Answer(_strip_markup(output).strip(), choices)
    statements = sorted([*answer.announced_statements(cues), *answer.judged_statements(), *answer.line_statements()])
    if not statements:
        return answer.only_mention() if language.partition("-")[0] in words.LANGUAGES else None
    opening, last = statements[0], statements[-1]
    is_first_sentence = not _SENTENCE_END.search(answer.text, 0, opening.start)
    return None if is_first_sentence and opening.letter != last.letter else last.letter or None


class _Statement(NamedTuple):
    """Place of a stated option; ``letter`` is "" if the statement is ambiguous."""

    start: int
    letter: str


class _OptionMatch(NamedTuple):
    """An option found by its text, and the end of that text."""

    letter: str
    end: int


class _Answer:
    """An answer without markup, searched for stated options."""

    def __init__(self, text: str, choices: Mapping[str, str]) -> None:
        self.text = text
        lowered = text.lower()
        self._lower_text = lowered if len(lowered) == len(text) else text
        self._letters = frozenset(choices)
        options = [
            (" ".join(_strip_markup(option).lower().split()).rstrip("."), letter) for letter, option in choices.items()
        ]
        texts = [option for option, _ in options]
        unique = [pair for pair in options if not _LETTER_ALONE.fullmatch(pair[0]) and texts.count(pair[0]) == 1]
        self._options = sorted(unique, key=lambda pair: -len(pair[0]))

    def announced_statements(self, cues: Sequence[str]) -> Iterator[_Statement]:
        """Yield statements after words that announce them, such as "the answer is" or the task's own cues."""
        patterns = _patterns()
        yield from self._statements_after(patterns.announcement, patterns.after_announcement)
        yield from self._statements_after(patterns.choice_verb, patterns.after_choice_verb)
        if phrases := "|".join(re.escape(phrase) for cue in cues if (phrase := _strip_markup(cue).strip())):
            yield from self._statements_after(
                re.compile(f"(?i:{phrases})"), (*patterns.after_announcement, *patterns.after_choice_verb)
            )

    def judged_statements(self) -> Iterator[_Statement]:
        """Yield statements such as "B is correct"."""
        for match in _patterns().judgement.finditer(self.text):
            if match["letter"] in self._letters and not self._is_denied(match.start(), match):
                yield _Statement(match.start(), match["letter"])

    def line_statements(self) -> Iterator[_Statement]:
        """Yield lines that state an option, unless others begin with another letter: those list the options."""
        patterns = _patterns()
        bare: list[_Statement] = []
        labelled: list[tuple[_Statement, bool]] = []
        start = 0
        for line in self.text.split("\n"):
            match = patterns.bare_line.fullmatch(line)
            if match and match["letter"].upper() in self._letters:
                bare.append(_Statement(start, match["letter"].upper()))
            elif letter := self._full_line_option(start):
                labelled.append((_Statement(start, letter), True))
            elif (match := patterns.label.match(self.text, start)) and match["letter"] in self._letters:
                reading = self._read_letter(match)
                labelled.append(
                    (_Statement(start, reading), not start or self._full_line_option(match.end()) == reading)
                )
            start += len(line) + 1
        if len({statement.letter for statement in bare}) == 1 or (bare and "\n" not in self.text[bare[-1].start :]):
            yield bare[-1]
        if len({statement.letter for statement, _ in labelled}) == 1:
            yield from (statement for statement, counts in labelled if counts)

    def only_mention(self) -> str | None:
        """Return the only letter that is mentioned, unless its sentence negates or supposes it."""
        text, mention = self.text, _patterns().mention
        for option, _ in self._options:
            if mention.search(option.upper()):  # "vitamin A" does not mention option A
                text = re.sub(re.escape(option), lambda found: "_" * len(found[0]), text, flags=re.IGNORECASE)
        mentions = [match for match in mention.finditer(text) if match["letter"] in self._letters]
        if len({match["letter"] for match in mentions}) != 1 or any(map(self._is_excluded, mentions)):
            return None
        return mentions[0]["letter"]

    def _statements_after(self, words: re.Pattern[str], ways: Sequence[re.Pattern[str]]) -> Iterator[_Statement]:
        """Yield statements of a letter, or else of a text, after any of some words."""
        for announced in words.finditer(self.text):
            start, end = announced.span()
            found = [match for way in ways if (match := way.match(self.text, end))]
            letters = [match for match in found if match["letter"].upper() in self._letters]
            before = _patterns().before_text.match(self.text, end)
            option = self._option_at(before.end()) if before else None
            if letters and not (option and before and before.end() <= letters[0].start("letter") < option.end):
                if not self._is_denied(start, letters[0]):
                    yield _Statement(start, self._read_letter(letters[0]))
            elif option and before and not self._is_denied(start, before):
                yield _Statement(start, option.letter)

    def _is_denied(self, start: int, match: re.Match[str]) -> bool:
        """Return whether a statement is negated, only supposed, or a question.

        Args:
            start: where it starts.
            match: its end, with the words in between as groups.
        """
        patterns, end = _patterns(), match.end()
        clause = _CLAUSE_END.split(self.text[max(start - _MAX_SENTENCE_LENGTH, 0) : start])[-1]
        between = " ".join(text for name, text in match.groupdict().items() if text and name != "letter")
        stop = _SENTENCE_END.search(self.text, end, end + _MAX_SENTENCE_LENGTH)
        return bool(
            patterns.negation.search(f"{clause} {between}")
            or (stop and stop[0] in "?？")
            or patterns.denial.match(self.text, end)
        )

    def _is_excluded(self, mention: re.Match[str]) -> bool:
        start, end = mention.span()
        before = _SENTENCE_END.split(self.text[max(start - _MAX_SENTENCE_LENGTH, 0) : start])[-1]
        after = _SENTENCE_END.split(self.text[end + 1 : end + _MAX_SENTENCE_LENGTH])[0]
        return bool(_patterns().negation.search(f"{before} {after}"))

    def _read_letter(self, match: re.Match[str]) -> str:
        """Return the letter that a pattern found; "" if an alternative follows, or another option's text."""
        letter, end = match["letter"].upper(), match.end("letter")
        alternative = _patterns().alternative.match(self.text, end)
        if alternative and alternative["letter"] in self._letters:
            return ""
        if found := self._option_at(match.start("letter")):
            return found.letter
        between = _BETWEEN.match(self.text, end)
        other = self._full_line_option(between.end() if between else end)
        return letter if other in ("", letter) else ""

    def _option_at(self, start: int) -> _OptionMatch | None:
        """Return the option that has its text at a place, the longest of several."""
        for option, letter in self._options:
            end = start + len(option)
            if self._lower_text.startswith(option, start) and not _IN_WORD.match(self.text, end):
                return _OptionMatch(letter, end)
        return None

    def _full_line_option(self, start: int) -> str:
        """Return the option with the text that fills the rest of a line; "" if none does."""
        opening = re.compile(_OPEN).match(self.text, start)
        found = self._option_at(opening.end() if opening else start)
        return found.letter if found and re.compile(_LINE_END).match(self.text, found.end) else ""
