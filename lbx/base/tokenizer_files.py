"""Limits on the growth of a text in the normalizer and the decoder of a tokenizer.json."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lbx.base.inputs import read_input
from lbx.base.limits import TOKENIZER_BYTES, TOKENIZER_GROWTH, TOKENIZER_TEXT_CHARACTERS

_CHARSMAP = "precompiled_charsmap"
_BEFORE_TOKENS, _BEHIND_TOKENS = ("normalizer", "pre_tokenizer"), ("decoder",)


def read_tokenizer_file(path: Path) -> bytes:
    """Read a tokenizer.json, and check that its normalizer and decoder cannot lengthen a text too much.

    Raises:
        OSError: the file cannot be read, or is too large.
        ValueError: the file is not a JSON object, or its steps lengthen texts too much; the message names the steps.
    """
    content = read_input(path, TOKENIZER_BYTES)
    try:
        tokenizer = json.loads(content)
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
    if not isinstance(tokenizer, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004 (of a file)
    for parts in (_BEFORE_TOKENS, _BEHIND_TOKENS):
        growth = 1.0
        for step in (step for part in parts for step in _steps(tokenizer.get(part))):
            growth *= _growth(step)
            if growth > TOKENIZER_GROWTH:
                raise ValueError(f"its {' and '.join(parts)} can lengthen a text more than {TOKENIZER_GROWTH} times")
    return content


def _steps(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normalizer or decoder: every object with a type, also inside sequences."""
    if isinstance(value, dict):
        if "type" in value:
            yield value
        for inner in value.values():
            yield from _steps(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _steps(inner)


def _growth(step: dict[str, Any]) -> float:
    """Return the factor by which a step may lengthen a text. Raises ValueError if it inserts a long text."""
    texts = [text for key, text in step.items() if isinstance(text, str) and key != _CHARSMAP]
    if (inserted := max(map(len, texts), default=0)) > TOKENIZER_TEXT_CHARACTERS:
        raise ValueError(f"its {step['type']} inserts a text of {inserted:,} characters")
    if step["type"] == "Replace":
        pattern = step.get("pattern")
        replaced = pattern.get("String") if isinstance(pattern, dict) else None
        shortest = len(replaced) if isinstance(replaced, str) and replaced else 1
        return max(1.0, len(str(step.get("content", ""))) / shortest)
    if step["type"] == "Precompiled":
        charsmap = step.get(_CHARSMAP)
        # Layout: size of a trie (4 bytes, little-endian), the trie, and texts that end in NUL.
        data = base64.b64decode(charsmap) if isinstance(charsmap, str) else b""
        replacements = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
        return float(max(1, *(len(text.decode("utf-8", "replace")) for text in replacements)))
    return 2.0 if step["type"] == "ByteLevel" else 1.0
