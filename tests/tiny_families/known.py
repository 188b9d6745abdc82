"""Why a family does not load, or llama.cpp computes other logits: what was found out by looking."""

from __future__ import annotations

_NO_TIMM = "transformers builds its eyes by timm, which is not installed"

NOT_LOADED = {
    "blt": "transformers' own generate fails: its configuration has no num_hidden_layers, which a cache asks for",
    "cpmant": "transformers puts the prompt that it was trained with before every piece, so that only single tokens "
    "can follow others",
    "emu3": "transformers' class for text alone finds none of the weights of its checkpoints, which also see",
    "fast_vlm": _NO_TIMM,
    "gemma3n, with eyes": _NO_TIMM,
    "kosmos-2.5": "left alone, it begins its positions at two; told them by lbx, it computes otherwise",
    "openai-gpt": "transformers keeps no memory for it: each token would be computed with all before it",
    "paligemma": "a prompt's tokens see those behind them, and no piece can be computed before the next is there",
    "perception_lm": _NO_TIMM,
    "reformer": "it keeps its memory by a name of its own (past_buckets_states)",
    "xlnet": "it keeps its memory by a name of its own (mems), and writes by permutations",
}
"""Families that lbx refuses, with the reason."""

OTHER_LOGITS = {
    "dynamic rope": "llama.cpp does not stretch rotary embeddings by the length of the input",
    "llama, longrope": "the converter leaves the factors out of the file",
    "mistral, window": "llama.cpp computes it without the window (without one the logits are the same)",
    "gpt_oss": "llama.cpp rounds the bounds of YaRN's ramp, which this model's file forbids (truncate = false: "
    "with true the logits are the same)",
    "llama4": "llama.cpp takes chunks of 8,192 tokens, whatever the file says (with those the logits are the same)",
    **dict.fromkeys(
        ("exaone4", "exaone4_5"),
        "llama.cpp has windows, and layers without positions, only in the model of 64 layers",
    ),
    "bamba": "llama.cpp rotates whole heads, the model half of each (with whole ones the logits are the same)",
}
"""Families that llama.cpp computes otherwise, with the reason."""

NOTES = (
    "The converter reads configurations through transformers 5: a KeyError names a key that checkpoints on the hub "
    "have and transformers no longer keeps.",
    "Failures of llama.cpp and of the converter are quoted.",
    "If an index selects what to attend to, it has 16 heads here. With 4, every head gives many tokens a zero score, "
    "and torch breaks ties by the length of the row: transformers itself then computes differently in pieces than at "
    "once. With ties broken by position it does not (tests/backends/test_architectures.py).",
    "transformers' `generate` forgets the prompt of Phi-4-multimodal with longrope once prompt and answer exceed the "
    "original length. lbx computes all tokens again, as `generate` does for Phi-3.",
)
