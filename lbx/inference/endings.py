"""Which tokens end an answer: by one rule for a model's every format, so that its answers end alike in all of them.

What a model's files declare comes first: ``eos_token_id`` of generation_config.json (a list, often) and of the
tokenizer, or the one of a GGUF header with its ends of turn and message. A header has no room for the list, and
declares less than the folder that it was made of; so what is named as an end counts as one in both. Tokens for filling
a gap in code (``<reponame>``, ``<file_sep>``), which llama.cpp takes for ends, are none.
"""

from __future__ import annotations

from collections.abc import Mapping

# As llama.cpp knows them.
_NAMES = frozenset(
    (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
        "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    )
)  # fmt: skip


def named_ends(tokens: Mapping[str, int]) -> frozenset[int]:
    """Of a vocabulary's added tokens those that end a text, a turn or a message by their names.

    ``<|end|>`` ends gpt-oss's messages, of which an answer has several.
    """
    several = {"<|return|>", "<|call|>"} <= tokens.keys()
    return frozenset(
        number for text, number in tokens.items() if text in _NAMES and not (several and text == "<|end|>")
    )
