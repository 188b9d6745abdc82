"""Why a family does not load, or llama.cpp computes other logits: what was found out by looking."""

from __future__ import annotations

NOT_LOADED = {
    "minimax": "it insists on a cache of its own kind (MiniMaxCache), which lbx does not make",
}
"""Families that lbx refuses, with the reason."""

OTHER_LOGITS = {
    "dynamic rope": "llama.cpp does not stretch rotary embeddings by the length of the input",
    "mistral, window": "llama.cpp computes it without the window (without one the logits are the same)",
    "gpt_oss": "llama.cpp rounds the bounds of YaRN's ramp, which this model's file forbids (truncate = false: "
    "with true the logits are the same)",
    "llama4": "llama.cpp takes chunks of 8,192 tokens, whatever the file says (with those the logits are the same)",
    "exaone4": "llama.cpp has windows, and layers without positions, only in the model of 64 layers",
    "bamba": "llama.cpp rotates whole heads, the model half of each (with whole ones the logits are the same)",
}
"""Families that llama.cpp computes otherwise, with the reason."""

NOTES = (
    "The converter reads configurations through transformers 5: a KeyError names a key that checkpoints on the hub "
    "have and transformers no longer keeps.",
    "What llama.cpp or the converter cannot do is in their own words.",
)
