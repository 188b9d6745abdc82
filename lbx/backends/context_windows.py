"""Context windows declared by model files: a number of positions, and the rope scaling that multiplies it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_MULTIPLIED = ("yarn", "linear", "dynamic")
"""Types of rope scaling that are defined by a factor of the window. ``max_position_embeddings`` of models with others
(llama3, longrope) is the scaled window.
"""
_SCALED_ALREADY = "gemma3"
"""Family with a ``max_position_embeddings`` that includes its linear factor."""


@dataclass(frozen=True, slots=True)
class DeclaredWindow:
    """Context window that a model's files declare.

    Attributes:
        positions: ``max_position_embeddings`` of a config.json, or ``context_length`` of a GGUF header.
        scaling: type of the rope scaling that multiplies the window; "" if there is none.
        original: positions before scaling; 0 if the files do not name them.
    """

    positions: int
    scaling: str = ""
    factor: float = 1.0
    original: int = 0

    @property
    def base_tokens(self) -> int:
        """Tokens without the rope scaling."""
        return self.original or self.positions

    @property
    def tokens(self) -> int:
        """Tokens of prompt and answer together, rope scaling included."""
        return int(self.base_tokens * self.factor)

    def note(self, name: str) -> str:
        """Sentence about a window that differs from ``positions``; "" for others."""
        if self.tokens == self.positions:
            return ""
        note = (
            f"{name} scales its positions ({self.scaling}, factor {self.factor:g}): its context window is "
            f"{self.base_tokens:,} x {self.factor:g} = {self.tokens:,} tokens"
        )
        if self.original:
            return f"{note}, although its files also declare {self.positions:,}."
        return f"{note}. If {self.positions:,} already includes the factor, set context_window = {self.positions}."


def window_in_config(config: object) -> DeclaredWindow | None:
    """Read the window of a config.json; multimodal models nest the configuration of their text model."""
    if not isinstance(config, Mapping):
        return None
    sizes: Iterator[Any] = (config.get(name) for name in _POSITIONS)
    positions = next((int(value) for value in sizes if _is_size(value)), None)
    if positions is None:
        return window_in_config(config.get("text_config"))
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    table = rope if isinstance(rope, Mapping) else {}
    tables = [layers for layers in table.values() if isinstance(layers, Mapping)] or [table]
    windows = [
        _apply_scaling(
            positions,
            str(config.get("model_type")),
            "" if layers.get("alpha") else layers.get("rope_type") or layers.get("type"),  # alpha fixes the base
            layers.get("factor"),
            layers.get("original_max_position_embeddings"),
        )
        for layers in tables
    ]
    return max(windows, key=lambda window: window.tokens)


def window_in_header(values: Mapping[str, Any]) -> DeclaredWindow | None:
    """Read the window of a GGUF header, given its keys."""
    family = str(values.get("general.architecture"))
    scaling = f"{family}.rope.scaling"
    positions: Any = values.get(f"{family}.context_length")
    if not _is_size(positions):
        return None
    return _apply_scaling(
        int(positions),
        family,
        values.get(f"{scaling}.type", "linear"),
        values.get(f"{scaling}.factor") or values.get(f"{family}.rope.scale_linear"),
        values.get(f"{scaling}.original_context_length"),
    )


def _apply_scaling(positions: int, family: str, kind: Any, factor: Any, original: Any) -> DeclaredWindow:
    included = kind == "linear" and family.startswith(_SCALED_ALREADY)
    if kind not in _MULTIPLIED or included or type(factor) not in (int, float) or not 1 < factor < math.inf:
        return DeclaredWindow(positions)
    has_original = _is_size(original) and kind != "dynamic"  # dynamic scaling begins at max_position_embeddings
    return DeclaredWindow(positions, kind, factor, int(original) if has_original else 0)


def _is_size(value: object) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < value < math.inf and not value % 1  # type: ignore[operator]
