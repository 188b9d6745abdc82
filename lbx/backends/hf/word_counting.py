"""Token counts of long texts as sums over their words, for tokenizers that split every text before a space.

Texts of the same words again and again, such as RULER's, are counted up to ten times as fast as by encoding them.
Counts are exact: ``can_count_words`` accepts only tokenizers whose parts imply it, and the first texts are encoded as
well, as a check.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger("lbx")

_ANCHOR = "a"
"""Text before a word whose tokens are counted, because some tokenizers treat the beginning of a text differently."""
_SPLIT = re.compile(r"(?<=\S) ")
"""Space after a character that is not white space."""
_AFTER_SPACE = re.compile(r"\A |\s ")
_MOST_WORDS = 1_000_000
_CHECKED_TEXTS = 3
_SENTENCEPIECE_SPACE = "\u2581"

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_KNOWN_PATTERNS = frozenset(
    f"{_CONTRACTIONS}|{_WORDS}|{digits}|{_REST}" for digits in (r"\p{N}{1,3}", r"\p{N}{1,2}", r"\p{N}")
)
"""Patterns of Llama 3, Qwen and others. No alternative continues past a space, and none looks back."""


def can_count_words(tokenizer: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer (a parsed tokenizer.json) never joins a space to a preceding visible character.

    Its tokens of a text are then those of the text's parts before each such space.
    """
    model = tokenizer.get("model") or {}
    if model.get("type") != "BPE" or model.get("dropout") or model.get("continuing_subword_prefix"):
        return False
    if model.get("end_of_word_suffix") or not all(map(_is_plain, tokenizer.get("added_tokens") or ())):
        return False
    steps = _steps(tokenizer.get("normalizer"), "normalizers")
    pre_tokenizers = _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")
    if pre_tokenizers:
        return all(step.get("type") == "NFC" for step in steps) and _splits_before_spaces(pre_tokenizers)
    return all(map(_is_sentencepiece_step, steps)) and bool(steps) and _is_sentencepiece(tokenizer, model)


def _is_plain(token: Mapping[str, Any]) -> bool:
    flags = ("lstrip", "rstrip", "single_word")
    return not any(token.get(flag) for flag in flags) and not any(map(str.isspace, token.get("content", " ")))


def _steps(part: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    if part is None:
        return []
    return list(part.get(key) or ()) if part.get("type") == "Sequence" else [part]


def _splits_before_spaces(steps: list[Mapping[str, Any]]) -> bool:
    *first, last = steps
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return False
    if last.get("use_regex", True):  # GPT-2's own pattern
        return all(step.get("type") == "Digits" for step in first)
    return len(first) == 1 and _has_known_pattern(first[0])


def _has_known_pattern(step: Mapping[str, Any]) -> bool:
    pattern = step.get("pattern") or {}
    is_split = step.get("type") == "Split" and step.get("behavior") == "Isolated" and not step.get("invert")
    return is_split and pattern.get("Regex") in _KNOWN_PATTERNS


def _is_sentencepiece_step(step: Mapping[str, Any]) -> bool:
    match step:
        case {"type": "Prepend", "prepend": prefix}:
            return bool(prefix == _SENTENCEPIECE_SPACE)
        case {"type": "Replace", "pattern": {"String": " "}, "content": content}:
            return bool(content == _SENTENCEPIECE_SPACE)
    return False


def _is_sentencepiece(tokenizer: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    # Without a token for unknown characters, these are dropped, and the spaces around them may become one token. With
    # ignore_merges, a part may be a single token that merging does not give inside a longer text.
    if not model.get("unk_token") or model.get("ignore_merges"):
        return False
    vocabulary, inner = model.get("vocab") or {}, re.compile(f"[^{_SENTENCEPIECE_SPACE}]{_SENTENCEPIECE_SPACE}")
    added = [token.get("content", "") for token in tokenizer.get("added_tokens") or ()]
    return _SENTENCEPIECE_SPACE in vocabulary and not any(map(inner.search, (*vocabulary, *added)))


class WordCounter:
    """Counter of the tokens of texts.

    Args:
        tokenizer: a parsed tokenizer.json that ``can_count_words`` accepts.
        count: counts the tokens of a text by encoding it.
    """

    def __init__(self, tokenizer: Mapping[str, Any], count: Callable[[str], int]) -> None:
        self._count = count
        self._anchor_tokens = count(_ANCHOR)
        self._tokens: dict[str, int] = {}
        self._seen: set[str] = set()
        self._unchecked = _CHECKED_TEXTS
        self._exceptions = None
        if _steps(tokenizer.get("normalizer"), "normalizers") and not tokenizer.get("pre_tokenizer"):
            # SentencePiece: the text after an added token begins anew, and the sign for a space may be in the text.
            contents = [re.escape(token["content"]) for token in tokenizer.get("added_tokens") or ()]
            self._exceptions = re.compile("|".join([_SENTENCEPIECE_SPACE, *contents]))

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, without BOS and with control tokens as single tokens."""
        if self._unchecked < 0 or (self._exceptions and self._exceptions.search(text)):
            return self._count(text)
        tokens = self._count_words(text)
        if self._unchecked:
            self._unchecked -= 1
            if tokens != (encoded := self._count(text)):
                log.warning("Counting tokens word by word gives another number: every text is encoded instead.")
                self._unchecked = -1
                return encoded
        return tokens

    def _count_words(self, text: str) -> int:
        first, *words = _SPLIT.split(text) if _AFTER_SPACE.search(text) else text.split(" ")
        if len(self._tokens) + len(self._seen) > _MOST_WORDS:
            self._tokens.clear()
            self._seen.clear()
        total = self._count(first)
        new = []
        for word, repetitions in Counter(words).items():
            if (tokens := self._tokens.get(word)) is None:
                if repetitions == 1 and word not in self._seen:
                    # Most such words never occur again, and are counted together.
                    new.append(word)
                    continue
                tokens = self._tokens[word] = self._count(f"{_ANCHOR} {word}") - self._anchor_tokens
            total += repetitions * tokens
        if new:
            self._seen.update(new)
            total += self._count(" ".join([_ANCHOR, *new])) - self._anchor_tokens
        return total
