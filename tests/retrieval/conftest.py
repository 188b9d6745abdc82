"""Rows of LongBench beside the checkout."""

from __future__ import annotations

import json
import zipfile

import pytest


@pytest.fixture
def documents(shared):
    """documents(task) -> the rows of one LongBench task."""

    def read(task: str) -> list[dict]:
        with zipfile.ZipFile(shared("data/hub/datasets/THUDM/LongBench/data.zip")) as archive:
            return [json.loads(line) for line in archive.read(f"data/{task}.jsonl").decode().splitlines()]

    return read
