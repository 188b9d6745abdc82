"""Runs a script of the official repositories, or lends its functions, without the heavy libraries that it imports and
does not use for scoring.

    python official.py SCRIPT [ARGUMENTS]        in the folder that the script expects
"""

from __future__ import annotations

import os
import runpy
import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

_OF_DATASETS = ("Dataset", "Features", "MetricInfo", "Sequence", "Value", "load_dataset")
IDLE = (
    "torch",
    "torch.multiprocessing",
    "transformers",
    "tiktoken",
    "openai",
    "vllm",
    "fastchat",
    "requests",
    "llama_flash_attn_monkey_patch",
)


class Metric:
    """What L-Eval uses of ``datasets.Metric``, which newer releases of that library no longer have."""

    def __init__(self, config_name: str = "", **_: object) -> None:
        self.config_name = config_name

    def compute(self, **given: Any) -> Any:
        return self._compute(**given)  # type: ignore[attr-defined]


class Similar:
    """An embedding model and its answer: every pair of texts is ``value`` alike."""

    value = 0.0

    def __init__(self, *_: object, **__: object) -> None: ...

    def encode(self, texts: list[str]) -> list[str]:
        return texts

    def similarity(self, *_: object) -> Similar:
        return self

    def max(self) -> Similar:
        return self

    def cpu(self) -> Similar:
        return self

    def numpy(self) -> float:
        return self.value


def stand_in() -> None:
    """Put the stand-ins where the scripts import them from."""
    for name in IDLE:
        sys.modules[name] = MagicMock(Tensor=type("Tensor", (), {}))  # scipy asks whether something is one
    for name, members in (
        ("datasets", {name: MagicMock() for name in _OF_DATASETS}),
        ("sentence_transformers", {"SentenceTransformer": Similar}),
    ):
        module = ModuleType(name)
        module.__dict__.update(members, __file__="")
        if name == "datasets":
            module.Metric = Metric  # type: ignore[attr-defined]
        sys.modules[name] = module
    import nltk

    nltk.sent_tokenize = lambda text: [text]  # only ROUGE-Lsum looks at sentences; it is not scored


def list_in_order(names: list[str]) -> None:
    """Have ``os.listdir``, whose order is the file system's, give these names in this order, others behind them."""
    listed, places = os.listdir, {name: place for place, name in enumerate(names)}
    os.listdir = lambda path=".": sorted(listed(path), key=lambda name: places.get(name, len(places)))  # type: ignore


if __name__ == "__main__":
    stand_in()
    list_in_order(os.environ.get("LISTED", "").split())
    sys.argv = sys.argv[1:]
    sys.path[0] = sys.argv[0].rpartition("/")[0] or "."
    runpy.run_path(sys.argv[0], run_name="__main__")
