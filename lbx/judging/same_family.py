"""Detection of judges from a judged model's family, because judges prefer answers like their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lbx.base.records import canonical_json, sha256_text
from lbx.prompting.prompter import Tokenizer
from lbx.store import RunRow, Store

_PROBE = (
    "The quick brown fox, aged 1,234.5 years, doesn't re-read naïve façades… \n\n\tdef f(x):\n        return x**2\n"
    "Übergrößenträger 文章の要約をしてください。这是一个测试 Привет, мир! مرحبا بالعالم नमस्ते 안녕하세요 ∑∫√ 🙂🙃"
)
"""Text that tokenizers split differently."""


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """A model with judged answers; "" for facts missing from its run."""

    run_id: str
    model: str
    weights: str = ""
    architecture: str = ""
    tokenizer: str = ""


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """Hash of a tokenizer's output for a text in many scripts, independent of its file format."""
    return sha256_text(canonical_json(tokenizer.encode(_PROBE, special=False)))


def judged_models(store: Store, run_ids: Sequence[str]) -> list[JudgedModel]:
    """Models of runs in a results file."""
    query = "SELECT model, settings, hardware FROM runs WHERE run_id = ?"
    return [
        _judged_model(run_id, model, json.loads(settings), json.loads(hardware))
        for run_id in run_ids
        for model, settings, hardware in store.query(query, [run_id]).rows
    ]


def same_family(judge: RunRow, models: Sequence[JudgedModel]) -> list[str]:
    """Return the runs of the judge's own model, or of a model with its architecture and tokenizer."""
    judge_model = _judged_model(judge.run_id, judge.model, judge.settings, judge.hardware)
    return [model.run_id for model in models if _is_same_family(judge_model, model)]


def _judged_model(run_id: str, model: str, settings: Mapping[str, Any], hardware: Mapping[str, Any]) -> JudgedModel:
    weights = canonical_json(settings["backend.weights"]) if settings.get("backend.weights") else ""
    return JudgedModel(
        run_id, model, weights, str(hardware.get("architecture", "")), str(hardware.get("tokenizer_sha256", ""))
    )


def _is_same_family(model: JudgedModel, other: JudgedModel) -> bool:
    if model.model == other.model or (model.weights and model.weights == other.weights):
        return True
    return bool(model.tokenizer) and (model.architecture, model.tokenizer) == (other.architecture, other.tokenizer)
