"""Whether a model took every tensor of its files, and its files had every tensor of the model.

transformers makes up what is missing, and leaves out what it has no place for; both it says in its log alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lbx.backends.hf.checkpoint import OF_ACTIVATIONS
from lbx.base.errors import BackendError

_FIX_OTHER_MODEL = "config.json or the .safetensors files belong to another model: take all of one model's files."
_LAYER = re.compile(r"(?:(?:model|language_model|transformer|backbone)\.)*(?:layers|h)\.(\d+)\.")
# Computed anew (the rotary embedding's frequencies, positions, masks), or of parts that read no text and predict ahead.
_NOT_NEEDED = re.compile(
    r"(?:^|\.)(?:inv_freq|position_ids|masked_bias|attn\.bias|attention\.bias)$"
    r"|(?:^|[._])(?:mtp|nextn|vision|visual|vit|audio|speech|image|video|multi_modal|multimodal|mm)(?:[._]|$)"
)
_OF_QUANTISED = re.compile(r"scale|zero|qweight|packed|g_idx|absmax|SCB|blocks|quant")


def check_complete(model: Any, report: Mapping[str, Any], folder: Path) -> None:
    """Refuse a model that is not wholly that of its files.

    Args:
        report: transformers' loading info: missing, mismatched and unexpected keys.

    Raises:
        BackendError: names the tensors.
    """
    if other := sorted(report.get("mismatched_keys", ()), key=str):
        name, shape, wanted = other[0]
        raise BackendError(
            f"The weights in {folder} are not those of the model in its config.json: {len(other)} tensors have another "
            f"shape, e.g. {name} {tuple(shape)}, not {tuple(wanted)}.",
            fix=_FIX_OTHER_MODEL,
        )
    if lacking := sorted(map(str, report.get("missing_keys", ()))):
        raise BackendError(
            f"The weights in {folder} are incomplete: {len(lacking)} tensors are missing, e.g. {lacking[0]}.",
            fix="A file of the model may be missing, or config.json belongs to another model.",
        )
    _refuse_unused(model.config, sorted(map(str, report.get("unexpected_keys", ()))), folder)


def _refuse_unused(config: Any, unexpected: list[str], folder: Path) -> None:
    text = config.get_text_config(decoder=True)
    layers = getattr(text, "num_hidden_layers", None)
    layers = layers if isinstance(layers, int) else None
    ahead = getattr(text, "num_nextn_predict_layers", None) or 0
    unused = []
    for key in unexpected:
        layer = _LAYER.match(key)
        number = int(layer[1]) if layer and layers is not None else None
        if number is not None and layers is not None and number >= layers:
            if number < layers + ahead:  # it predicts several tokens ahead, behind the last layer
                continue
            raise BackendError(
                f"The weights in {folder} are not those of the model in its config.json: it counts {layers} layers, "
                f"and they have {number + 1}.",
                fix=_FIX_OTHER_MODEL,
            )
        tied = key.endswith("lm_head.weight") and getattr(text, "tie_word_embeddings", False)
        if not (tied or _NOT_NEEDED.search(key) or OF_ACTIVATIONS.search(key)):
            unused.append(key)
    if not unused:
        return
    count = f"{len(unused)} tensors, e.g. {unused[0]}," if len(unused) > 1 else unused[0]
    if scales := [key for key in unused if _OF_QUANTISED.search(key)]:
        raise BackendError(
            f"The model in {folder} seems to be quantised, and what makes numbers of its weights would not be used: "
            f"{scales[0]}.",
            fix="Take the model as its authors released it in bfloat16, or another quantised folder of it.",
        )
    raise BackendError(
        f"The model in {folder} would be loaded without a part of it: {count} of its files have no place in the model "
        "that its config.json describes.",
        fix=_FIX_OTHER_MODEL,
    )
