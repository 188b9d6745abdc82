"""Tokenizer of a GGUF model, computed by llama.cpp."""

from __future__ import annotations

import ctypes
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from lbx.backends.headers import gguf_vocabulary, header_values
from lbx.backends.llama.library import load_vocabulary
from lbx.base.errors import BackendError
from lbx.base.records import replace_surrogates
from lbx.engine.reasoning import choose_marks, is_control_name, is_control_token
from lbx.engine.sampling_settings import find_end_tokens

_PRINTED = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>")
"""Control tokens of gpt-oss, which llama.cpp always prints: answers would show them."""
_WHITE = " \t\n\v\f\r"
_KEYS = "tokenizer.ggml."
_TEMPLATES = "tokenizer.chat_template."


class LlamaTokenizer:
    """llama.cpp's tokenizer of a loaded model.

    Args:
        model: pointer to the model, which must outlive the tokenizer.
    """

    def __init__(
        self,
        llama_cpp: Any,
        model: Any,
        file: Path,
        chat_template: str | None,
        reasoning: tuple[str, str] | None = None,
    ) -> None:
        self._lib = llama_cpp
        self._file = file
        self._open_vocab: Any = llama_cpp.llama_model_get_vocab(model)
        self.size: int = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self.chat_template = chat_template
        self._pieces = dict.fromkeys(self._printed_tokens.values(), b"")
        self._text_model: Any = None
        prefix = metadata(llama_cpp, model, "tokenizer.ggml.add_space_prefix")
        sentencepiece = llama_cpp.llama_vocab_type(self._vocab) in (
            llama_cpp.LLAMA_VOCAB_TYPE_SPM,
            llama_cpp.LLAMA_VOCAB_TYPE_UGM,
        )
        self._drops_first_space = prefix == "true" if prefix is not None else sentencepiece
        self.reasoning_marks = choose_marks(chat_template, self._is_token, reasoning)

    @property
    def _vocab(self) -> Any:
        if self._open_vocab is None:
            raise BackendError("The model of this tokenizer is closed.", fix="Load it again.")
        return self._open_vocab

    def close(self) -> None:
        """Release the vocabulary before the model is freed."""
        self._open_vocab = None
        if self._text_model is not None:
            self._lib.llama_model_free(self._text_model)
            self._text_model = None

    @cached_property
    def _header(self) -> Mapping[str, Any]:
        return header_values(self._file)

    @cached_property
    def template_names(self) -> tuple[str, ...]:
        if _TEMPLATES.removesuffix(".") in self._header:
            return ()
        return tuple(sorted(key.removeprefix(_TEMPLATES) for key in self._header if key.startswith(_TEMPLATES)))

    def _declares(self, name: str) -> bool:
        """Whether the file declares a token such as "bos". Without a declaration, llama.cpp uses a default."""
        number = self._header.get(f"{_KEYS}{name}_token_id")
        return type(number) is int and 0 <= number < self.size

    def _is_control(self, token: int) -> bool:
        text = self._text(token)
        is_flagged = self._lib.llama_vocab_get_attr(self._vocab, token) & self._lib.LLAMA_TOKEN_ATTR_CONTROL
        return bool(is_flagged or is_control_name(text) or find_end_tokens({text: token}))

    @cached_property
    def bos_id(self) -> int | None:
        token = self._id(self._lib.llama_vocab_bos(self._vocab))
        return token if token is None or self._declares("bos") or self._is_control(token) else None

    @property
    def bos_token(self) -> str:
        return self._text(self.bos_id)

    @property
    def eos_token(self) -> str:
        token = self._id(self._lib.llama_vocab_eos(self._vocab))
        return self._text(token) if token in self.eos_ids else ""

    @cached_property
    def prefix_ids(self) -> tuple[int, ...]:
        if self.bos_id is not None and self._lib.llama_vocab_get_add_bos(self._vocab):
            return (self.bos_id,)
        # GLM's own tokenizer puts these before every text; a GGUF file has no field for this.
        token_ids = [self.control_tokens.get(text) for text in ("[gMASK]", "<sop>")]
        return tuple(token_id for token_id in token_ids if token_id is not None) if None not in token_ids else ()

    @cached_property
    def control_tokens(self) -> Mapping[str, int]:
        return {**self.hidden_tokens, **self._unflagged_tokens}

    @cached_property
    def hidden_tokens(self) -> Mapping[str, int]:
        attributes = self._lib.LLAMA_TOKEN_ATTR_CONTROL | self._lib.LLAMA_TOKEN_ATTR_UNKNOWN
        return {**self._ids_by_text(attributes), **self._printed_tokens}

    @cached_property
    def _unflagged_tokens(self) -> Mapping[str, int]:
        """Control tokens that llama.cpp takes for text tokens."""
        added = self._ids_by_text(self._lib.LLAMA_TOKEN_ATTR_USER_DEFINED)
        return {text: number for text, number in added.items() if is_control_token(text, self.chat_template)}

    @cached_property
    def _printed_tokens(self) -> Mapping[str, int]:
        is_bpe = self._lib.llama_vocab_type(self._vocab) == self._lib.LLAMA_VOCAB_TYPE_BPE
        return {text: number for text, number in self._unflagged_tokens.items() if is_bpe and text in _PRINTED}

    def _ids_by_text(self, attributes: int) -> dict[str, int]:
        """Return {text: id} of the tokens with at least one of ``attributes``."""
        attribute, vocab = self._lib.llama_vocab_get_attr, self._vocab
        return {text: i for i in range(self.size) if attribute(vocab, i) & attributes and (text := self._text(i))}

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer (``lbx.engine.sampling_settings``): end of sequence, of turn, of message."""
        return frozenset(filter(self._is_control, self._ends))

    @cached_property
    def _ends(self) -> frozenset[int]:
        """Tokens that end an answer in llama.cpp, including ordinary tokens from defaults or faulty keys."""
        is_end, vocab = self._lib.llama_vocab_is_eog, self._vocab
        gaps = {getattr(self._lib, f"llama_vocab_fim_{part}")(vocab) for part in ("pad", "rep", "sep")}
        ends = {i for i in range(self.size) if is_end(vocab, i)}
        return frozenset(ends - gaps | {self._lib.llama_vocab_eos(vocab)} - {self._lib.LLAMA_TOKEN_NULL})

    @property
    def suppressed_ids(self) -> frozenset[int]:
        """Tokens that llama.cpp never samples from this model: ``tokenizer.ggml.suppress_tokens``."""
        count = ctypes.c_int32()
        ids = self._lib.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(count))
        return frozenset(number for number in ids[: count.value] if 0 <= number < self.size)

    @cached_property
    def gaps(self) -> dict[str, str]:
        """Return {key: sentence} of the keys that the file lacks, or that name a wrong token."""
        found = {}
        if not self._declares("eos") or self._ends - self.eos_ids:
            found["eos_token_id"] = self._describe_ends()
        adds_bos = self._lib.llama_vocab_get_add_bos(self._vocab)
        if (adds_bos or "bos_token" in (self.chat_template or "")) and not self._declares("bos"):
            begin = f"begin with llama.cpp's default, {self.bos_token}" if self.bos_token else "have no BOS token"
            found["bos_token_id"] = f"{self._file.name} lacks {_KEYS}bos_token_id, so prompts {begin}."
        kind = self._lib.llama_vocab_type(self._vocab)
        if kind == self._lib.LLAMA_VOCAB_TYPE_BPE and self._header.get(f"{_KEYS}pre") in (None, "", "default"):
            found["pre"] = (
                f"{self._file.name} does not name its pre-tokenizer ({_KEYS}pre), as in files of 2024 and before. "
                "llama.cpp splits words and digits by its default rule, so prompts may consist of other tokens than in "
                "the model's training. Convert the model again with a current llama.cpp."
            )
        lists = {"token_type": "no token is marked as a control token"}
        if kind == self._lib.LLAMA_VOCAB_TYPE_SPM:
            lists["scores"] = "texts are not split as in the model's training"
        for key, effect in lists.items():
            if f"{_KEYS}{key}" not in self._header:
                found[key] = (
                    f"{self._file.name} lacks {_KEYS}{key}, so {effect}. Convert the model again with a current "
                    "llama.cpp."
                )
        return found

    def _describe_ends(self) -> str:
        ordinary = " and ".join(f"{token} ({self._text(token)!r})" for token in sorted(self._ends - self.eos_ids))
        if self._declares("eos"):
            problem = f"{self._file.name} ends answers at the ordinary token {ordinary}"
        else:
            default = f", and llama.cpp's default is the ordinary token {ordinary}" if ordinary else ""
            problem = f"{self._file.name} lacks {_KEYS}eos_token_id{default}"
        ends = ", ".join(self._text(token) for token in sorted(self.eos_ids)) or "none"
        return f"{problem}. lbx ends answers only at control tokens of the vocabulary: {ends}."

    def encode(self, text: str, *, special: bool) -> list[int]:
        ids = tokenize(self._lib, self._vocab, text, add_special=False, special=special)
        if special or self._control_ids.isdisjoint(ids):
            return ids
        return tokenize(self._lib, self._text_vocab, text, add_special=False, special=False)

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        ids: list[int] = []
        for before, piece, after in zip((None, *pieces), pieces, (*pieces[1:], None), strict=False):
            if isinstance(piece, int):
                ids.append(piece)
                continue
            text = piece.lstrip(_WHITE) if self._takes_space(before, self._lib.LLAMA_TOKEN_ATTR_RSTRIP) else piece
            text = text.rstrip(_WHITE) if self._takes_space(after, self._lib.LLAMA_TOKEN_ATTR_LSTRIP) else text
            ids += self.encode(text, special=False) if text else ()
        return ids

    def _takes_space(self, piece: str | int | None, side: int) -> bool:
        return isinstance(piece, int) and bool(self._lib.llama_vocab_get_attr(self._vocab, piece) & side)

    @cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.control_tokens.values())

    @cached_property
    def _text_vocab(self) -> Any:
        """Vocabulary with the control tokens renamed: llama.cpp finds unflagged ones in every text, and a
        SentencePiece vocabulary's flagged ones where two pieces of a text make one.
        """
        secret = secrets.token_hex(8)
        names = {number: f"<{secret}-{number}>" for number in self._control_ids}
        try:
            with tempfile.NamedTemporaryFile(suffix=".gguf") as copy:
                copy.write(gguf_vocabulary(self._file, names))
                copy.flush()
                self._text_model = load_vocabulary(self._lib, Path(copy.name))
        except OSError as exc:
            raise BackendError(
                f"The vocabulary of {self._file.name} cannot be copied to a temporary file: {exc.strerror or exc}.",
                fix="A text contains a control token, so lbx needs this copy to tokenize it. Mount a tmpfs on /tmp, or "
                "set TMPDIR.",
            ) from exc
        return self._lib.llama_model_get_vocab(self._text_model)

    def decode(self, ids: Sequence[int]) -> str:
        # llama_detokenize would also "clean up" spaces before punctuation for some vocabularies: that changes text.
        data = b"".join(map(self._piece, ids))
        if self._drops_first_space:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def _is_token(self, text: str) -> bool:
        # Without a token of its own a mark takes several: none of them is in a vocabulary but as an added token.
        return len(self.encode(text, special=True)) == 1

    def _piece(self, token: int) -> bytes:
        """Bytes that a token decodes to, empty for control tokens."""
        if token not in self._pieces:
            capacity = 64
            while True:
                buffer = ctypes.create_string_buffer(capacity)
                count = self._lib.llama_token_to_piece(self._vocab, token, buffer, capacity, 0, False)
                if count >= 0:
                    break
                capacity = -count
            self._pieces[token] = buffer.raw[:count]
        return self._pieces[token]

    def _id(self, token: int) -> int | None:
        return None if token == self._lib.LLAMA_TOKEN_NULL else int(token)

    def _text(self, token: int | None) -> str:
        if token is None:
            return ""
        return (self._lib.llama_vocab_get_text(self._vocab, token) or b"").decode("utf-8", "replace")


def tokenize(llama_cpp: Any, vocab: Any, text: str, *, add_special: bool, special: bool) -> list[int]:
    """Tokenize a text.

    Args:
        add_special: whether to add the special tokens that the model file declares for both ends.
        special: whether to read the text of a control token as the token.

    Raises:
        BackendError: llama.cpp fails.
    """
    data = replace_surrogates(text).encode()
    capacity = len(data) + 8  # a token is at least one byte, except for SentencePiece's leading space
    while True:
        tokens = (llama_cpp.llama_token * capacity)()
        count = llama_cpp.llama_tokenize(vocab, data, len(data), tokens, capacity, add_special, special)
        if count >= 0:
            return list(tokens[:count])
        if -count <= capacity or count == -(2**31):
            raise BackendError(
                f"llama.cpp cannot tokenize a text of {len(data):,} bytes.",
                fix="The model file may be damaged: compare it with its source (for a bundle: lbx verify).",
            )
        capacity = -count


def metadata(llama_cpp: Any, model: Any, key: str) -> str | None:
    """Read a value of the GGUF header as text, or None if the key is missing."""
    capacity = 256
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        length = llama_cpp.llama_model_meta_val_str(model, key.encode(), buffer, capacity)
        if length < 0:
            return None
        if length < capacity:
            return buffer.raw[:length].decode("utf-8", "replace")
        capacity = length + 1


def own_chat_template(llama_cpp: Any, model: Any) -> str | None:
    """Read the chat template in the GGUF header, or None for a base model."""
    template = llama_cpp.llama_model_chat_template(model, None)
    return template.decode("utf-8", "replace") if template else None
