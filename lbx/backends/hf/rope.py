"""Rotary embeddings stretched beyond what a model was trained for, as its card asks."""

from __future__ import annotations

from typing import Any

from lbx.backends.hf.options import HfOptions
from lbx.base.errors import BackendError


def stretch(config: Any, options: HfOptions, name: str) -> None:
    """Write the card's ``rope_scaling`` into a model's configuration, before the model is made.

    Fixed NTK is no kind of transformers' own: it is the default one with the base times factor ** (d / (d - 2)), d the
    rotated dimensions of a head.

    Raises:
        BackendError: the model has no rotary embedding, several, or one that its config.json scales already.
    """
    text = config.get_text_config(decoder=True)
    rope = getattr(text, "rope_parameters", None)
    if not isinstance(rope, dict) or "rope_theta" not in rope:
        raise BackendError(
            f"{name} has no rotary embedding that rope_scaling could stretch, or one for each kind of layer.",
            fix="Remove rope_scaling and rope_factor from its card.",
        )
    kind, factor = rope.get("rope_type", "default"), options.rope_factor
    if kind != "default":
        raise BackendError(
            f"The config.json of {name} scales its rotary embedding already ({kind}).",
            fix="Remove rope_scaling and rope_factor from its card; context_window may be what config.json declares.",
        )
    if options.rope_scaling == "ntk":
        size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        rotated = int(size * rope.get("partial_rotary_factor", 1.0))
        scaled = {"rope_theta": rope["rope_theta"] * factor ** (rotated / (rotated - 2))}
    else:
        scaled = {"rope_type": options.rope_scaling, "factor": factor}
    if options.rope_scaling == "yarn":
        scaled["original_max_position_embeddings"] = text.max_position_embeddings
    text.rope_parameters = rope | scaled
