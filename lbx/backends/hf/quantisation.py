"""What config.json says of how a folder stores its weights, in all and for each of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lbx.backends.hf.dequantise import CheckpointFormatError
from lbx.base.inputs import SMALL, read_input

_CLASSES = ("Linear", "FusedMoE")
_LONGEST_PATTERN, _MOST_REPEATS = 500, 4
_REPEATS, _NESTED = re.compile(r"[*+{]"), re.compile(r"\)[*+{]")


def read_settings(folder: Path) -> dict[str, Any] | None:
    """What the folder says of its quantisation; None: nothing."""
    config = _json(folder / "config.json")
    text = config.get("text_config")
    for table in (config, text if isinstance(text, dict) else {}):
        for key in ("quantization_config", "compression_config"):
            if isinstance(settings := table.get(key), dict):
                nested = settings.get("quantization")
                return {**settings, **nested} if isinstance(nested, dict) else settings
    settings = _json(folder / "hf_quant_config.json").get("quantization")
    return {"quant_method": "modelopt", **settings} if isinstance(settings, dict) else None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_input(path, SMALL))
    except (OSError, ValueError, RecursionError):
        return {}  # loading says what is wrong with it
    return value if isinstance(value, dict) else {}


def method_of(settings: Mapping[str, Any] | None) -> str:
    """The word for how a folder, or a weight of it, is stored; see ``Format.methods``."""
    settings = settings or {}
    name = str(settings.get("quant_method", "none")).lower().replace("_", "-").replace("fbgemm-fp8", "fbgemm_fp8")
    if name in ("modelopt", "modelopt-fp4", "modelopt-fp8"):
        return f"modelopt:{settings.get('quant_algo')}"
    if name == "compressed-tensors":
        return f"{name}:{settings.get('format')}"
    if name == "awq":
        return f"awq:{str(settings.get('version', 'gemm')).lower()}"
    if name == "gptq" and settings.get("checkpoint_format", "gptq") not in ("gptq", "gptq_v2"):
        return f"gptq:{settings['checkpoint_format']}"
    return name


def settings_of_weight(name: str, settings: Mapping[str, Any] | None, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The settings of one weight."""
    own_settings = dict(settings or {})
    module = name.removesuffix(".weight")
    groups = own_settings.get("config_groups")
    if method_of(own_settings).startswith("compressed-tensors") and isinstance(groups, dict):
        group = _group_of(module, [one for one in groups.values() if isinstance(one, dict)])
        own_settings |= {"format": group.get("format") or own_settings.get("format"), **_table(group.get("weights"))}
    layers = own_settings.get("quantized_layers")
    if isinstance(layers, dict):
        own_settings |= _table(layers.get(module))
    own_settings["quant_method"] = method_of(own_settings)
    if own_settings["quant_method"] == "torchao":
        try:
            own_settings["quant_method"] += f":{json.loads(metadata[name])['_type']}"
        except (KeyError, ValueError, TypeError):
            own_settings["quant_method"] += ":unknown"
    return own_settings


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _group_of(module: str, groups: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The group of a module: by its name first, then by its class, which for weights is Linear."""
    targets = [(str(target), group) for group in groups for target in group.get("targets") or ()]
    by_name = (group for target, group in targets if _names(target, module))
    by_class = (group for target, group in targets if target in _CLASSES)
    return next(by_name, None) or next(by_class, None) or {}


def _names(target: str, module: str) -> bool:
    """Whether a target, a name or "re:" and a pattern, means a module."""
    if not target.startswith("re:"):
        return target == module
    pattern = target[3:]
    # A pattern comes with the model: one that could be matched in very many ways would never come to an end.
    if len(pattern) > _LONGEST_PATTERN or len(_REPEATS.findall(pattern)) > _MOST_REPEATS or _NESTED.search(pattern):
        raise CheckpointFormatError(f"its config.json groups modules by {pattern[:_LONGEST_PATTERN]!r}")
    return re.match(pattern, module) is not None


def rounds_activations(settings: Mapping[str, Any]) -> bool:
    groups = _table(settings.get("config_groups")).values()
    inputs = [one["input_activations"] for one in groups if isinstance(one, dict) and one.get("input_activations")]
    named = method_of(settings) in ("fp8", "fbgemm_fp8") or str(settings.get("quant_algo", "")).startswith(
        ("FP8", "NVFP4")
    )
    return bool(inputs) or named
