"""Choose the number format that a model is computed in."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from lbx.backends.hf.library import processor_features
from lbx.backends.options import AUTO
from lbx.base.inputs import SMALL, read_input

# Processor features with which oneDNN (torch's matrix products use it) multiplies a rounded format natively:
# {torch's name: common name}. Without one of them it converts to float32 first, which is
# slower than float32 from the start. AVX512-FP16 is not among them: it sums in float16, and oneDNN only converts with
# it (uxlfoundation/oneDNN#2822, #5973). ARM's "bf16" is in Graviton 3 and Neoverse V1.
MULTIPLYING_FEATURES = {
    "bfloat16": {"amx_bf16": "AMX-BF16", "avx512_bf16": "AVX512-BF16", "bf16": "ARM BF16"},
    "float16": {"amx_fp16": "AMX-FP16"},
}


class Dtype(NamedTuple):
    """Number format by torch's name, and the reason for its choice: a clause, for the start of a run and its row."""

    name: str
    reason: str


def choose_dtype(torch: Any, option: str, device: Any, folder: Path) -> Dtype:
    """Resolve a card's option for the weights in a folder on a ``torch.device``."""
    if option != AUTO:
        return Dtype(option, "as its card says")
    declared = checkpoint_dtype(folder)
    if device.type == "cpu":
        return choose_for_processor(declared, processor_features(torch))
    # Cards before Ampere compute bfloat16 by detours, if at all.
    if declared in (None, "bfloat16") and device.type == "cuda":
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            return Dtype("float16", "this GPU has no bfloat16")
        return Dtype("bfloat16", "the checkpoint's own" if declared else "its config.json names no format")
    return Dtype(declared or "bfloat16", "the checkpoint's own")


def choose_for_processor(declared: str | None, features: Collection[str]) -> Dtype:
    """Return the checkpoint's format if the processor multiplies it natively, otherwise float32.

    Args:
        declared: the checkpoint's format; None if its files do not give it.
        features: the processor's, by torch's names.
    """
    if declared is None:
        return Dtype("float32", "its config.json names no format")
    if declared == "float32":
        return Dtype("float32", "the checkpoint's own")
    if by := multiplying_feature(declared, features):
        return Dtype(declared, f"the checkpoint's own, which this processor multiplies in hardware ({by})")
    lacking = " or ".join(MULTIPLYING_FEATURES[declared].values())
    return Dtype(
        "float32", f"the checkpoint is {declared}, which this processor does not multiply in hardware ({lacking})"
    )


def multiplying_feature(dtype: str, features: Collection[str]) -> str | None:
    """Name of the processor feature that multiplies numbers of this format natively; None if it is missing."""
    return next((name for feature, name in MULTIPLYING_FEATURES[dtype].items() if feature in features), None)


def checkpoint_dtype(folder: Path) -> str | None:
    """Weight format in config.json; None if it is missing or not a format for computing."""
    try:
        config = json.loads(read_input(folder / "config.json", SMALL))
    except (OSError, ValueError, RecursionError):
        return None  # loading reports the error
    tables = [config, config.get("text_config")] if isinstance(config, dict) else []
    values = [table.get(key) for table in tables if isinstance(table, dict) for key in ("dtype", "torch_dtype")]
    return next((str(value) for value in values if value in ("float32", "bfloat16", "float16")), None)
