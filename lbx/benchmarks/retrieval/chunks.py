"""Methods to split documents into chunks.

``split`` is lbx's own method, at the ends of sentences. Its rules come from LongBench v1's retrieval variant
(``split_long_sentence`` in ``LongBench/retrieval/splitter.py`` of THUDM/LongBench): a sentence ends with a line break
or one of "。？！；.!?;", and the white space after it; sentences are joined while they have at most ``size`` words.
There are two differences. Joined, the chunks are the text (the official code puts a space between two adjacent ends of
sentences), so that a chunk can be found in the document. And a sentence longer than a chunk is cut between words. The
official code keeps such a sentence whole, so one table can fill a whole prompt. ``split_like_longbench`` follows that
code exactly, for LongBench's ranking.

``split_between_words`` and ``ChunkTokenizer.split`` count tokens, like L-Eval's retrieval and LongBench v2's.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lbx.base.errors import BackendError, BundleError, UsageError
from lbx.base.records import replace_surrogates
from lbx.base.tokenizer_files import read_tokenizer_file

_SENTENCE_END = re.compile(r"[。？！；\n.!?;]\s*")
_NO_SPACES = re.compile("[^ ]+")


def split(text: str, size: int) -> list[str]:
    """Split a text into chunks of at most ``size`` words at ends of sentences (see the module's docstring).

    Joined, the chunks are the text again. An empty text gives no chunk, and a text without words gives one.

    Raises:
        UsageError: size is less than 1.
    """
    if size < 1:
        raise UsageError(f"A chunk cannot have {size} words.", fix="Use at least 1.")
    if not text:
        return []
    return [text[start:end] for start, end in pairwise([0, *_cuts(text, size), len(text)])]


def _cuts(text: str, size: int) -> list[int]:
    starts = [start for start, _ in word_spans(text)]
    ends = [match.end() for match in _SENTENCE_END.finditer(text)] or [len(text)]
    if ends[-1] != len(text):
        ends.append(len(text))
    cuts: list[int] = []
    first, last_end, words_before_it = 0, 0, 0  # first word of the chunk; end of its sentences so far
    for end in ends:
        count = bisect_left(starts, end)  # words up to here
        if count - first > size and words_before_it > first:
            cuts.append(last_end)
            first = words_before_it
        while count - first > size:  # a sentence longer than a chunk
            first += size
            cuts.append(starts[first])
        last_end, words_before_it = end, count
    return cuts


def split_like_longbench(text: str, size: int) -> list[str]:
    """Split a text into chunks at ends of sentences, like ``split_long_sentence`` of THUDM/LongBench.

    A sentence longer than ``size`` stays whole, and an empty text between two ends of sentences becomes a space.
    """
    chunks = [""]
    n_words = 0
    for part in re.split(f"({_SENTENCE_END.pattern})", text):
        count = len(words(part))
        if chunks[-1] and n_words + count <= size:
            chunks[-1] += part or " "
            n_words += count
        else:
            chunks.append(part)
            n_words = count
    return [chunk for chunk in chunks if chunk]


def split_between_words(text: str, size: int, tokenizer: ChunkTokenizer) -> list[str]:
    """Split a text into chunks of at most ``size`` tokens at spaces, like langchain's splitter for L-Eval.

    Tokens are counted for each word and for each space between two words. Several spaces become one, white space around
    a chunk is dropped, and a word longer than a chunk is a chunk.
    """
    words = _NO_SPACES.findall(text)
    space = tokenizer.counts([" "])[0]
    groups: list[list[str]] = []
    total = 0
    for word, count in zip(words, tokenizer.counts(words), strict=True):
        if groups and total + space + count <= size:
            groups[-1].append(word)
            total += space + count
        else:
            groups.append([word])
            total = count
    return [chunk for group in groups if (chunk := " ".join(group).strip())]


_WORD = re.compile(r"[\u4e00-\u9fa5]|[^\W\u4e00-\u9fa5]+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Find (start, end) of each word of a text, in characters.

    A word is a Chinese character, or a run of letters, digits and underscores between other characters: the rule of
    ``get_word_list`` in ``LongBench/retrieval/splitter.py`` of THUDM/LongBench.
    """
    return [match.span() for match in _WORD.finditer(text)]


def words(text: str) -> list[str]:
    """Split a text into lower-case words."""
    return _WORD.findall(text.lower())


class ChunkTokenizer:
    """Tokenizer that counts the tokens of texts and splits texts. Control tokens in a text are read as plain text.

    Args:
        file: a tokenizer.json.

    Attributes:
        fingerprint: SHA-256 of the file, in hexadecimal.

    Raises:
        BundleError: the file cannot be read.
        BackendError: the library ``tokenizers`` is not installed.
    """

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as exc:
            raise BackendError(
                f"Chunks in tokens need a library that is not installed ({exc}).",
                fix="Install lbx[hf], or measure chunks in words (--chunk-words N).",
                command="pip install 'lbx[hf]'",
            ) from exc
        try:
            data = read_tokenizer_file(file)
            self._tokenizer: Any = Tokenizer.from_str(data.decode("utf-8"))
        except Exception as exc:  # the library raises bare Exceptions
            raise BundleError(
                f"The tokenizer {file} cannot be read: {str(exc).splitlines()[0]}.", fix="Make the bundle again."
            ) from exc
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._counts: dict[str, int] = {}
        self.fingerprint = hashlib.sha256(data).hexdigest()

    def counts(self, texts: Sequence[str]) -> list[int]:
        new = [text for text in dict.fromkeys(texts) if text not in self._counts]
        encoded = self._tokenizer.encode_batch([replace_surrogates(text) for text in new], add_special_tokens=False)
        self._counts |= {text: len(encoding) for text, encoding in zip(new, encoded, strict=True)}
        return [self._counts[text] for text in texts]

    def token_ends(self, text: str) -> list[int]:
        """Index in the text of the end of each token."""
        encoding = self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False)
        return [end for _, end in encoding.offsets]

    def split(self, text: str, size: int) -> list[str]:
        """Split a text into chunks of ``size`` tokens, like ``text_split`` in ``utils/retrieve.py`` of THUDM/LongCite.

        A character split across two chunks becomes U+FFFD in each.
        """
        ids = self._tokenizer.encode(replace_surrogates(text), add_special_tokens=False).ids
        starts = range(0, len(ids), size)
        return [self._tokenizer.decode(ids[at : at + size], skip_special_tokens=False) for at in starts]
