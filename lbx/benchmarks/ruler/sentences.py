"""Splitter of texts into sentences by the Punkt algorithm (Kiss and Strunk, 2006), with the results of nltk 3.9.

Source: nltk/tokenize/punkt.py of nltk 3.8.1 and 3.9.1, whose ``sent_tokenize`` gives equal sentences. nltk 3.10 treats
curly quotation marks as closing punctuation and splits differently, so lbx does not call the installed nltk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.base.data_files import damaged_file_error, read_zip_text
from lbx.benchmarks.ruler.tasks import DATA

PARAMETERS_FILE = "nltk/punkt_tab.zip"
_MEMBERS = "punkt_tab/english"

_NON_WORD = r"""[)";}\]*:@'({\[?!]"""
_MULTIPLE = r"(?:-{2,}|\.{2,}|(?:\.\s){2,}\.)"
_WORD = re.compile(
    rf"""({_MULTIPLE}|(?=[^\("`{{\[:;&\#*@)}}\]\-,])\S+?(?=\s|$|{_NON_WORD}|{_MULTIPLE}"""
    rf"""|,(?=$|\s|{_NON_WORD}|{_MULTIPLE}))|\S)"""
)
_CANDIDATE = re.compile(rf"[.?!](?=(?P<after>{_NON_WORD}|\s+(?P<next>\S+)))")
"""Pattern of a character that may end a sentence, followed by punctuation or by a word after white space."""
_CLOSING = re.compile(r"""["')\]}]+?(?:\s+|(?=--)|$)""", re.MULTILINE)
_NUMBER = re.compile(r"^-?[.,]?\d[\d,.-]*\.?$")
_NUMBER_TYPE = "##number##"
_ELLIPSIS = re.compile(r"\.\.+$")
_INITIAL = re.compile(r"[^\W\d]\.$")
_PUNCTUATION = frozenset(";:,.!?")
_WHITE = " \t\n\r\v\f"

# Bits of a word's contexts: its first letter in upper or lower case, at the beginning of a sentence, inside or unknown.
_INSIDE_UPPER = 1 << 2
_UPPER = 1 << 1 | 1 << 2 | 1 << 3
_BEGIN_LOWER = 1 << 4
_LOWER = 1 << 4 | 1 << 5 | 1 << 6


@dataclass(frozen=True, slots=True)
class Parameters:
    """Trained Punkt parameters of a language.

    Attributes:
        abbreviations: abbreviations in lower case, without the final period.
        starters: words that often begin sentences.
        collocations: pairs of words that a sentence boundary never separates.
        contexts: {word type: bits of its orthographic contexts}.
    """

    abbreviations: frozenset[str]
    starters: frozenset[str]
    collocations: frozenset[tuple[str, str]]
    contexts: Mapping[str, int]


def read_parameters(bundle: Bundle) -> Parameters:
    """Read the English Punkt parameters. Raises BundleError if the file is missing or damaged."""
    path = DATA.official_file(bundle, PARAMETERS_FILE)

    def lines(member: str) -> list[str]:
        return read_zip_text(path, f"{_MEMBERS}/{member}").removesuffix("\n").split("\n")

    try:
        collocations = [line.split("\t") for line in lines("collocations.tab")]
        contexts = [line.split("\t") for line in lines("ortho_context.tab")]
        return Parameters(
            frozenset(lines("abbrev_types.txt")),
            frozenset(lines("sent_starters.txt")),
            frozenset((first, second) for first, second in collocations),
            {word: int(bits) for word, bits in contexts},
        )
    except ValueError as exc:
        raise damaged_file_error(str(path), f"a line has another form ({exc})") from exc


class SentenceSplitter:
    """Splitter of texts into sentences, with trained parameters."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._has_break = lru_cache(maxsize=100_000)(self._find_break)

    def split(self, text: str) -> list[str]:
        """Split a text into sentences, without the white space between."""
        spans = [*self._spans(text)]
        sentences: list[str] = []
        moved = 0
        for number, (start, end) in enumerate(spans):
            begin = start + moved
            moved = 0
            if number + 1 < len(spans):
                next_start, next_end = spans[number + 1]
                # Closing quotation marks and brackets belong to the sentence before them.
                if closing := _CLOSING.match(text[next_start:next_end]):
                    sentences.append(text[begin : next_start + len(closing[0].rstrip())])
                    moved = closing.end()
                    continue
            if text[begin:end]:
                sentences.append(text[begin:end])
        return sentences

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        begin = 0
        for match, context in self._candidates(text):
            if self._has_break(context):
                yield begin, match.end()
                begin = match.start("next") if match["next"] else match.end()
        yield begin, len(text.rstrip())

    def _candidates(self, text: str) -> Iterator[tuple[re.Match[str], str]]:
        """Yield possible ends of sentences with the words around them. Of several in a word, only the last counts."""
        previous, first, last = None, 0, 0
        for match in _CANDIDATE.finditer(text):
            # The word begins after the last white space since the previous match; as in nltk, one directly at that
            # match does not count.
            at = match.start() - 1
            while at > last and text[at] not in _WHITE:
                at -= 1
            word = at + 1 if at > last else first
            if previous and last <= word:
                yield previous, text[first:last] + previous[0] + previous["after"]
            previous, first, last = match, word, match.start()
        if previous:
            yield previous, text[first:last] + previous[0] + previous["after"]

    def _find_break(self, context: str) -> bool:
        tokens = [token for line in context.split("\n") if line.strip() for token in _WORD.findall(line)]
        return any(self._ends_sentence(token, following) for token, following in pairwise(tokens))

    def _first_pass(self, token: str) -> tuple[bool, bool, bool]:
        """Classify a token by itself: (ends a sentence, is an abbreviation, is an ellipsis)."""
        if token in (".", "?", "!"):
            return True, False, False
        if _ELLIPSIS.match(token):
            return False, False, True
        if token.endswith(".") and not token.endswith(".."):
            word = token[:-1].lower()
            known = self._parameters.abbreviations
            is_abbreviation = word in known or word.split("-")[-1] in known
            return not is_abbreviation, is_abbreviation, False
        return False, False, False

    def _ends_sentence(self, token: str, following: str) -> bool:
        ends, is_abbreviation, is_ellipsis = self._first_pass(token)
        if not token.endswith("."):
            return ends
        word_type = _without_period(_NUMBER.sub(_NUMBER_TYPE, token.lower()))
        next_type = _NUMBER.sub(_NUMBER_TYPE, following.lower())
        if self._first_pass(following)[0]:
            next_type = _without_period(next_type)
        is_initial = _INITIAL.match(token) is not None
        if (word_type, next_type) in self._parameters.collocations:
            return False
        # Whether a word begins a sentence by its spelling; None if that does not decide it
        if following in _PUNCTUATION:
            begins = False
        else:
            contexts = self._contexts_of(next_type)
            if following[0].isupper() and contexts & _LOWER and not contexts & _INSIDE_UPPER:
                begins = True
            elif following[0].islower() and (contexts & _UPPER or not contexts & _BEGIN_LOWER):
                begins = False
            else:
                begins = None
        is_upper = following[0].isupper()
        follows_beginning = begins or (is_upper and next_type in self._parameters.starters)
        if (is_abbreviation or is_ellipsis) and not is_initial and follows_beginning:
            return True
        if is_initial or word_type == _NUMBER_TYPE:
            if begins is False:
                return False
            if begins is None and is_initial and is_upper and not self._contexts_of(next_type) & _LOWER:
                return False
        return ends

    def _contexts_of(self, word_type: str) -> int:
        return self._parameters.contexts.get(word_type, 0)


def _without_period(word_type: str) -> str:
    return word_type[:-1] if len(word_type) > 1 and word_type[-1] == "." else word_type
