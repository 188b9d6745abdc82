"""Sampling settings: valid ranges, recommendations in a model's files, and names of end tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lbx.base.records import Sampling

RANGES = "temperature >= 0, top_p in (0, 1], top_k >= 0, min_p in [0, 1)"


def find_out_of_range(sampling: Sampling) -> str | None:
    """Find the first setting outside its range in ``RANGES``, or None if all are inside."""
    checks = {
        "temperature": math.isfinite(sampling.temperature) and sampling.temperature >= 0,
        "top_p": 0 < sampling.top_p <= 1,
        "top_k": sampling.top_k >= 0,
        "min_p": 0 <= sampling.min_p < 1,
    }
    return next((name for name, good in checks.items() if not good), None)


def recommended_sampling(values: Mapping[str, object]) -> Sampling | None:
    """Sampling settings that a model's files recommend, or None if missing or invalid.

    Args:
        values: do_sample, temperature, top_p, top_k and min_p, if given; None counts as not given.
            do_sample false means greedy; otherwise temperature defaults to 1.
    """
    settings = {name: value for name, value in values.items() if value is not None}
    samples = settings.pop("do_sample", None)
    if not (samples is None or isinstance(samples, bool)) or (samples is None and not settings):
        return None
    numbers = {name: _number(value) for name, value in settings.items()}
    temperature, top_p = numbers.get("temperature", 1.0), numbers.get("top_p", 1.0)
    top_k, min_p = numbers.get("top_k", 0), numbers.get("min_p", 0.0)
    if temperature is None or top_p is None or top_k is None or min_p is None or top_k != int(top_k):
        return None
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=int(top_k), min_p=min_p)
    if find_out_of_range(sampling):
        return None
    return Sampling() if samples is False else sampling


def ignored_repetition_penalty(penalty: object) -> tuple[dict[str, float], tuple[str, ...]]:
    """Describe the repetition penalty that a model's files recommend and lbx does not apply, for ``BackendInfo``.

    A penalty would punish an answer for quoting the document.

    Returns:
        {key: value} for ``hardware`` and the sentence for ``notes``; both empty without a penalty.
    """
    number = _number(penalty)
    if number is None or number == 1.0:
        return {}, ()
    message = (
        f"The model's files recommend a repetition penalty of {number:g}. lbx ignores it, because it penalises quoting "
        "the document; scripts that call transformers' generate apply it."
    )
    return {"repetition_penalty_left_out": number}, (message,)


_NEUTRAL_VALUES: Mapping[str, object] = {
    "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1, "bad_words_ids": [],
    "sequence_bias": [], "min_length": 0, "min_new_tokens": 0, "forced_eos_token_id": None, "guidance_scale": 1,
    "exponential_decay_length_penalty": None, "num_beams": 1, "force_words_ids": [], "constraints": [],
    "penalty_alpha": 0, "dola_layers": None, "stop_strings": [], "token_healing": False, "watermarking_config": None,
}  # fmt: skip
"""Keys of generation_config.json by which ``generate`` changes greedy answers, with the values that change nothing.

It applies ``suppress_tokens`` and ``begin_suppress_tokens``, as lbx does, and ``repetition_penalty``. Without effect
are ``renormalize_logits`` and, for prompts of more than a token, ``forced_bos_token_id``.
"""
_SAMPLING_NEUTRAL_VALUES: Mapping[str, object] = {"typical_p": 1, "epsilon_cutoff": 0, "eta_cutoff": 0, "top_h": None}
_LONGEST_VALUE = 40


def ignored_generation_keys(config: object) -> tuple[dict[str, object], tuple[str, ...]]:
    """Describe the keys of a model's generation configuration that ``generate`` applies and lbx does not.

    Args:
        config: object with the keys that are set as attributes.

    Returns:
        {key: value} for ``hardware`` and the sentence for ``notes`` of ``BackendInfo``; both empty without such keys.
    """
    neutral = {**_NEUTRAL_VALUES, **(_SAMPLING_NEUTRAL_VALUES if getattr(config, "do_sample", None) is True else {})}
    values = {key: getattr(config, key, None) for key in neutral}
    values = {key: value for key, value in values.items() if value not in (None, neutral[key], (), {}, "")}
    if not values:
        return {}, ()
    named = ", ".join(f"{key} = {f'{value}'[:_LONGEST_VALUE]}" for key, value in values.items())
    message = f"The model's files set {named}. lbx does not apply this; scripts that call transformers' generate do."
    return {"generation_keys_left_out": values}, (message,)


def _number(value: object) -> float | None:
    """Convert a value to a finite number, or None for other values, including true and false."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else None  # type: ignore[arg-type]


# The names in llama.cpp's list.
_NAMES = frozenset(
    (
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
        "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    )
)  # fmt: skip


def find_end_tokens(tokens: Mapping[str, int]) -> frozenset[int]:
    """Find the added tokens of a vocabulary that, by name, end a text, a turn or a message.

    ``<|end|>`` ends a message in gpt-oss, but an answer consists of several messages.
    """
    several = {"<|return|>", "<|call|>"} <= tokens.keys()
    return frozenset(
        number for text, number in tokens.items() if text in _NAMES and not (several and text == "<|end|>")
    )
