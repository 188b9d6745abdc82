"""What stands on the small hub, and recipes for it."""

from __future__ import annotations

import json
import random
from pathlib import Path

from lbx.bundle import Retry

FAST = Retry(tries=3, delay_s=0.01, max_delay_s=0.02, connect_s=5, read_s=10)

DATASET = """
[[source]]
kind = "hub"
repo = "org/data"
type = "dataset"
files = ["*.jsonl"]
"""
MODEL = """
[[source]]
kind = "hub"
repo = "org/model"
type = "model"
"""


def write_hub(root: Path) -> Path:
    """org/data: two small files, a big one listed as LFS, a script; org/model: a model's usual files."""
    data, model = root / "datasets/org/data", root / "models/org/model"
    (data / "deep/er").mkdir(parents=True)
    model.mkdir(parents=True)
    (data / "a.jsonl").write_text('{"question": "why?"}\n')
    (data / "deep/er/长文本.jsonl").write_text('{"question": "为什么?"}\n', "utf-8")
    (data / "big.jsonl").write_bytes(random.Random(7).randbytes(3 << 20))
    (data / "empty.jsonl").write_bytes(b"")
    (data / "loader.py").write_text("print('run me')\n")
    (model / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (model / "tokenizer.json").write_text("{}")
    (model / "model.safetensors").write_bytes(random.Random(8).randbytes(2 << 20))
    return root
