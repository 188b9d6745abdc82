"""Tokenizer of Hugging Face transformers, and ``WordCounter``, which counts the tokens of a text word by word.

The number of tokens of a text is the sum over its words if the tokenizer splits every text before a space. The tokens
of a word are counted once, so texts that repeat words, such as RULER's, are counted faster than by encoding them. With
Llama 3.1's tokenizer, making the first 500 samples of twelve RULER tasks takes 21 instead of 72 CPU seconds at 4,096
tokens (3.5 times as fast), and 8 instead of 27 CPU minutes at 131,072 (3.4 times, extrapolated from 60 samples). The
gain of a task is between 1.1 times, where words are UUIDs and never return, and 11 times.

Counts are exact: ``can_count_words`` accepts only tokenizers that split in this way, and the first texts are encoded as
well, as a check.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from lbx.backends.hf.folder_checks import read_json
from lbx.backends.hf.library import first_line
from lbx.base.errors import BackendError
from lbx.base.phases import phases
from lbx.base.records import replace_surrogates
from lbx.engine.reasoning import choose_marks, encode_separately, is_control_token

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
    """Whether a tokenizer (a parsed tokenizer.json) never joins a space to a preceding visible character.

    The tokens of a text are then the tokens of the words between such spaces.
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
    """Counter of the tokens of texts, word by word.

    Args:
        tokenizer: a parsed tokenizer.json that ``can_count_words`` accepts.
        count: function that counts the tokens of a text by encoding it.
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


_PROCESSOR_FILES = ("chat_template.json", "processor_config.json")
_PROBES = (
    "Twenty-three boats (No. 70481) left the HARBOUR at 5:06; they'll be back.",
    "  two spaces\n\n\tA tab, 三条船在清晨离开了港口。 Ångström\r\n",
    "def f(x):\n    return x**2  # ⛵ été\u0301\n\n\n",
)
"""Texts that two tokenizers rarely split into the same tokens."""


class HfTokenizer:
    """Tokenizer of transformers.

    The inner Rust tokenizer is called directly if it exists: no truncation set in tokenizer.json, no warning
    about long texts, no clean-up of spaces between text and ids.
    """

    def __init__(
        self,
        tokenizer: Any,
        chat_template: str | None,
        reasoning: tuple[str, str] | None = None,
        template_names: tuple[str, ...] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._rust: Any = tokenizer.backend_tokenizer if getattr(tokenizer, "is_fast", False) else None
        if self._rust is not None:
            self._rust.no_truncation()
            self._rust.no_padding()
        self.chat_template = chat_template
        self.template_names = template_names
        self.reasoning_marks = choose_marks(chat_template, self._is_token, reasoning)

    @property
    def bos_id(self) -> int | None:
        token: int | None = self._tokenizer.bos_token_id
        return token

    @property
    def bos_token(self) -> str:
        return str(self._tokenizer.bos_token or "")

    @property
    def eos_token(self) -> str:
        return str(self._tokenizer.eos_token or "")

    @cached_property
    def prefix_ids(self) -> tuple[int, ...]:
        bare, with_prefix = (self._encode("a", split=False, add=add) for add in (False, True))
        return next(
            (tuple(with_prefix[:n]) for n in range(len(with_prefix)) if with_prefix[n : n + len(bare)] == bare), ()
        )

    @cached_property
    def control_tokens(self) -> Mapping[str, int]:
        return self.hidden_tokens | {
            token.content: number
            for number, token in self._tokenizer.added_tokens_decoder.items()
            if is_control_token(token.content, self.chat_template)
        }

    @cached_property
    def hidden_tokens(self) -> dict[str, int]:
        added = self._tokenizer.added_tokens_decoder
        return {token.content: number for number, token in added.items() if token.special and token.content}

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.control_tokens.values())

    def encode(self, text: str, *, special: bool) -> list[int]:
        ids = self._encode(replace_surrogates(text), split=not special, add=False)
        if special or self._rust is None or self._control_ids.isdisjoint(ids):
            return ids
        return self.encode_pieces([text])

    @property
    def definition(self) -> str | None:
        """Definition of the tokenizer as JSON, with tokens from all files, or None without a Rust tokenizer."""
        return None if self._rust is None else str(self._rust.to_str())

    def count(self, text: str) -> int:
        """Return the number of tokens of ``encode(text, special=True)``, by words if the tokenizer allows it."""
        return self._count(replace_surrogates(text))

    @cached_property
    def _count(self) -> Callable[[str], int]:
        if self._rust is None:
            return lambda text: len(self._encode(text, split=False, add=False))
        table = json.loads(self.definition or "")
        return WordCounter(table, self._encoded_length).count if can_count_words(table) else self._encoded_length

    def _encoded_length(self, text: str) -> int:
        self._rust.encode_special_tokens = False
        return len(self._rust.encode_batch_fast([text], add_special_tokens=False)[0])

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        if self._rust is None:
            return encode_separately(self, pieces)
        text = "".join(
            self._aliases[piece] if isinstance(piece, int) else replace_surrogates(piece) for piece in pieces
        )
        return list(self._alias_tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _aliases(self) -> Mapping[int, str]:
        """Random texts for the control tokens, which no document can contain."""
        secret = secrets.token_hex(8)
        return {number: f"<{secret}-{number}>" for number in self._control_ids}

    @cached_property
    def _alias_tokenizer(self) -> Any:
        """Copy of the tokenizer with the control tokens renamed to aliases.

        The white space they absorb, and the places of leading spaces, remain the tokenizer's own.
        """
        table = json.loads(self._rust.to_str())
        names = {text: self._aliases[number] for text, number in self.control_tokens.items()}
        for token in table["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        model = table["model"]
        vocab = model["vocab"]
        if isinstance(vocab, dict):
            model["vocab"] = {names.get(text, text): number for text, number in vocab.items()}
        else:
            model["vocab"] = [[names.get(text, text), score] for text, score in vocab]
        if "merges" in model:
            model["merges"] = [pair for pair in model["merges"] if names.keys().isdisjoint((*pair, "".join(pair)))]
        if model.get("unk_token") in names:
            model["unk_token"] = names[model["unk_token"]]
        table["post_processor"] = None
        return type(self._rust).from_str(json.dumps(table))

    def decode(self, ids: Sequence[int]) -> str:
        if self._rust is not None:
            return str(self._rust.decode(list(ids), skip_special_tokens=True))
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _is_token(self, text: str) -> bool:
        return any(token.content == text for token in self._tokenizer.added_tokens_decoder.values())

    def _encode(self, text: str, *, split: bool, add: bool) -> list[int]:
        if self._rust is not None:
            self._rust.encode_special_tokens = split
            return list(self._rust.encode(text, add_special_tokens=add).ids)
        ids: list[int] = self._tokenizer(text, add_special_tokens=add, split_special_tokens=split, verbose=False)[
            "input_ids"
        ]
        return ids


class OwnTemplate(NamedTuple):
    """Chat template in a model's folder.

    Attributes:
        source: None for a base model, or if none of several is the default.
        names: names of several templates without a default.
        note: sentence about a template in a file that tokenizers do not read, or "" for others.
    """

    source: str | None = None
    names: tuple[str, ...] = ()
    note: str = ""


def own_chat_template(tokenizer: Any, folder: Path) -> OwnTemplate:
    """Find the chat template of a tokenizer, or else in the files of the model's processor.

    Raises:
        BackendError: a file of the folder cannot be read.
    """
    tables = {name: read_json(folder / name) for name in ("tokenizer_config.json", *_PROCESSOR_FILES)}
    places = {"": getattr(tokenizer, "chat_template", None)}
    places |= {name: table.get("chat_template") for name, table in tables.items() if isinstance(table, dict)}
    templates = {place: _named_templates(value) for place, value in places.items()}
    defaults = {place: named["default"] for place, named in templates.items() if "default" in named}
    if not defaults:
        return OwnTemplate(names=tuple(sorted({name for named in templates.values() for name in named})))
    place, source = next(iter(defaults.items()))
    if place in _PROCESSOR_FILES:
        return OwnTemplate(source, note=f"The chat template is the one in {place}.")
    others = [name for name in _PROCESSOR_FILES if defaults.get(name, source) != source]
    note = f"{' and '.join(others)} has another chat template than the tokenizer; lbx uses the tokenizer's."
    return OwnTemplate(source, note=note if others else "")


def _named_templates(value: Any) -> dict[str, str]:
    """Return {name: source} of the templates in a value of ``chat_template``, with "default" for an unnamed one."""
    if isinstance(value, str):
        value = {"default": value}
    if isinstance(value, list):
        value = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
    named = value.items() if isinstance(value, dict) else ()
    return {str(name): source for name, source in named if isinstance(source, str) and source}


@phases.measure("load tokenizer")
def read_tokenizer(transformers: Any, folder: Path) -> Any:
    """Load the tokenizer of a folder with transformers, as tokenizer.json defines it. No code from the folder is run.

    Raises:
        BackendError: the tokenizer is damaged, or needs code.
    """
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
        if not _matches_file(transformers, tokenizer, folder / "tokenizer.json"):
            written = transformers.PreTrainedTokenizerFast.from_pretrained(folder, **options)
            for name in ("bos_token", "eos_token"):
                if getattr(written, name) is None:
                    setattr(written, name, getattr(tokenizer, name))
            tokenizer = written
    except Exception as exc:  # the tokenizers library raises bare Exception for a damaged file
        raise BackendError(
            f"The tokenizer in {folder} cannot be loaded: {first_line(exc)}",
            fix="Its files may be damaged, or need code or a library that is not installed.",
        ) from exc
    _add_declared_bos(tokenizer, read_json(folder / "tokenizer_config.json"))
    return tokenizer


def _matches_file(transformers: Any, tokenizer: Any, file: Path) -> bool:
    """Whether a loaded tokenizer encodes texts as its tokenizer.json defines.

    Since version 5, some classes of transformers split words and spaces by rules of their own instead of the file's:
    Yi's texts would begin with a space, and GPT-4's would be split as GPT-2's.
    """
    if type(tokenizer) is transformers.PreTrainedTokenizerFast or not tokenizer.is_fast or not file.is_file():
        return True
    loaded = tokenizer.backend_tokenizer
    written = type(loaded).from_file(str(file))
    written.encode_special_tokens = loaded.encode_special_tokens
    special_token = next((str(token) for token in written.get_added_tokens_decoder().values() if token.special), "")
    for backend in (loaded, written):
        backend.no_truncation()
        backend.no_padding()
    texts = (*_PROBES, f"a{special_token}b{special_token} c{special_token}\nd")
    return all(
        loaded.encode(text, add_special_tokens=False).ids == written.encode(text, add_special_tokens=False).ids
        for text in texts
    )


def _add_declared_bos(tokenizer: Any, config: Any) -> None:
    """Add or omit BOS before texts as tokenizer_config.json declares: transformers 5 only reads tokenizer.json.

    In version 4 the general class ignored the declaration, so that its "no BOS" may contradict what a model was
    trained with.
    """
    declared = config.get("add_bos_token") if isinstance(config, dict) else None
    if not isinstance(declared, bool) or tokenizer.bos_token_id is None or not tokenizer.is_fast:
        return
    adds = tokenizer.backend_tokenizer.encode("a").ids[:1] == [tokenizer.bos_token_id]
    if adds != declared and (declared or config.get("tokenizer_class") != "PreTrainedTokenizerFast"):
        tokenizer.add_bos_token = declared
