"""Whether a judge is of the family of a model that it judges: judges prefer what they would have said themselves."""

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
"""A text that tokenizers cut differently."""


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """A model whose answers are judged; "" for what its run does not say."""

    run_id: str
    model: str
    weights: str = ""
    architecture: str = ""
    tokenizer: str = ""


def tokenizer_sha256(tokenizer: Tokenizer) -> str:
    """What tells tokenizers apart, whatever file they come from: how one cuts a text in many scripts."""
    return sha256_text(canonical_json(tokenizer.encode(_PROBE, special=False)))


def judged_models(store: Store, run_ids: Sequence[str]) -> list[JudgedModel]:
    """The models of runs in a results file."""
    judged = []
    for run_id in run_ids:
        for row in store.query("SELECT run_id, model, settings, hardware FROM runs WHERE run_id = ?", [run_id]).dicts():
            judged.append(_judged(run_id, row["model"], json.loads(row["settings"]), json.loads(row["hardware"])))
    return judged


def same_family(judge: RunRow, judged: Sequence[JudgedModel]) -> list[str]:
    """The runs of the judge's own model, or of one with its architecture and tokenizer."""
    own = _judged(judge.run_id, judge.model, judge.settings, judge.hardware)
    return [one.run_id for one in judged if _alike(own, one)]


def _judged(run_id: str, model: str, settings: Mapping[str, Any], hardware: Mapping[str, Any]) -> JudgedModel:
    weights = canonical_json(settings["backend.weights"]) if settings.get("backend.weights") else ""
    return JudgedModel(
        run_id, model, weights, str(hardware.get("architecture", "")), str(hardware.get("tokenizer_sha256", ""))
    )


def _alike(one: JudgedModel, other: JudgedModel) -> bool:
    if one.model == other.model or (one.weights and one.weights == other.weights):
        return True
    return bool(one.tokenizer) and (one.architecture, one.tokenizer) == (other.architecture, other.tokenizer)
