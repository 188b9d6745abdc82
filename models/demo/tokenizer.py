"""The demo model's tokenizer: a byte-level BPE whose merges make every word of the needle benchmark one token.

Any text can be encoded (the alphabet is all 256 bytes). Three sets of merges follow each other; they share no
character, so their order decides nothing between them:

    numbers    " 4821" becomes " 48" and "21", whatever the digits
    Chinese    the bytes of each known character, then the characters of each known word
    English    trained by ``tokenizers`` on the benchmark's words
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from lbx.benchmarks.needle import CHINESE, ENGLISH, Language

BOS, EOS = "<s>", "</s>"

_LATIN = re.compile(r" ?[A-Za-z]+")
_HAN = re.compile(r"[\u4e00-\u9fff]+")

Merge = tuple[str, str]


def make_tokenizer() -> Tokenizer:
    """The tokenizer, the same on every call."""
    merges = [*_number_merges(), *_chinese_merges(), *_english_merges()]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(dict.fromkeys([BOS, EOS, *alphabet, *map("".join, merges)]))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BOS, EOS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, vocab[BOS])]
    )
    return tokenizer


def _number_merges() -> list[Merge]:
    # A space takes the first two digits before any other two may join, so pairs never straddle.
    space, digits = _bytes(" "), "0123456789"
    return [
        *((space, a) for a in digits),
        *((space + a, b) for a in digits for b in digits),
        *((a, b) for a in digits for b in digits),
    ]


def _texts(language: Language) -> list[str]:
    """Everything that the language writes, slots cut out."""
    slot = re.compile(r"\{\w+\}")
    lists = [word for words in language.words.values() for word in words]
    patterns = [*language.templates, language.lead, language.before, language.ask_one, language.ask_many]
    pieces = [piece for pattern in patterns for piece in slot.split(pattern)]
    return [*lists, *language.keys, *pieces, language.comma, language.last]


def _chinese_merges() -> list[Merge]:
    words = list(dict.fromkeys(word for text in _texts(CHINESE) for word in _HAN.findall(text)))
    punctuation = dict.fromkeys("，。：、\n")
    characters = dict.fromkeys(character for word in words for character in word)
    inside = [(a, b) for c in (*characters, *punctuation) for a, b in _chain(list(_bytes(c)))]
    return list(dict.fromkeys([*inside, *(merge for word in words for merge in _chain([_bytes(c) for c in word]))]))


def _chain(parts: list[str]) -> Iterable[Merge]:
    """Merges that join the parts from the left."""
    for end in range(1, len(parts)):
        yield "".join(parts[:end]), parts[end]


def _bytes(text: str) -> str:
    """The text's UTF-8 bytes in the alphabet of byte-level BPE."""
    return "".join(
        piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    )


def _english_merges() -> list[Merge]:
    words: dict[str, None] = {}
    for text in _texts(ENGLISH):
        for word in _LATIN.findall(text):
            spaced = " " + word.lstrip()
            # A word may open a line, follow a space, or open a sentence after one.
            words.update(dict.fromkeys((word, spaced, " " + word.lstrip().capitalize())))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=100_000, min_frequency=0, show_progress=False)
    tokenizer.train_from_iterator(list(words), trainer)
    return [(a, b) for a, b in json.loads(tokenizer.to_str())["model"]["merges"]]
