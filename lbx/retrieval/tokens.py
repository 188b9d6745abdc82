"""The tokenizer that measures chunks: the authors', from a tokenizer.json in the bundle, not the asked model's."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lbx.base.errors import BackendError, BundleError
from lbx.base.records import encodable
from lbx.base.tokenizer_files import read_tokenizer_file


class ChunkTokenizer:
    """Counts tokens and cuts at them. What a text spells out of control tokens is text.

    Args:
        file: a tokenizer.json.

    Attributes:
        fingerprint: SHA-256 of the file, hex.

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
        encoded = self._tokenizer.encode_batch([encodable(text) for text in new], add_special_tokens=False)
        self._counts |= {text: len(one) for text, one in zip(new, encoded, strict=True)}
        return [self._counts[text] for text in texts]

    def split(self, text: str, size: int) -> list[str]:
        """Chunks of ``size`` tokens, wherever that cuts, as ``text_split`` in ``utils/retrieve.py`` of THUDM/LongCite.

        A character whose tokens lie in two chunks is in neither: U+FFFD stands there.
        """
        ids = self._tokenizer.encode(encodable(text), add_special_tokens=False).ids
        starts = range(0, len(ids), size)
        return [self._tokenizer.decode(ids[at : at + size], skip_special_tokens=False) for at in starts]
