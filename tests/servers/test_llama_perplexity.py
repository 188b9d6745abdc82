"""``lbx parity --depth`` against llama.cpp's own program, on the same tokens of a real text, with SmolLM2's formats.

llama-perplexity reads chunks of a context's size and compares the second half of each. With 2,048 tokens these are the
positions of lbx's bin from 1,024 to 2,048.

The program leaves out tokens that the reference gives less than e^-16. With SmolLM2 these have 4e-4 of a position's
probability, and a divergence of -1e-5 (Q8_0) or -4e-4 nats (Q4_0), which is computed here and put back. It keeps the
others' log probabilities in steps of 16 / 65,535 nats, which changes the mean by 2e-6. It computes 512 tokens at a time
and lbx 128, so that sums are rounded differently.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbx.backends import load, read_card
from lbx.report.rows.depth_parity import summarise_by_bin
from lbx.running.depth import DepthText, compare_by_depth
from tests.gguf_copy import gguf_copy, quantised
from tests.parity.test_distributions import log_probs
from tests.parity.test_measuring import F32, card
from tests.servers.server_processes import find_program, needs

SIZE = 2048
SETTINGS = f"-c {SIZE} -b {SIZE} -ub 512 --chunks 1 -t 2 -fa off -ctk f32 -ctv f32 --offline".split()


def run(*arguments: object) -> str:
    """What the program prints."""
    command = [find_program("llama-perplexity"), *SETTINGS, *arguments]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def read(printed: str, name: str) -> float:
    found = re.search(rf"^.*{re.escape(name)} *: *(\S+)", printed, re.MULTILINE)
    assert found, printed[-3000:]
    return float(found[1])


def divergences_left_out(backends: Sequence[Any], text: str) -> list[float]:
    """Mean divergence from the first model in the tokens that the program leaves out, of each other model."""
    tokens = DepthText("text", text).token_ids(backends[0])[:SIZE]
    sums, position = np.zeros(len(backends) - 1), 0
    for passes in zip(*(backend.text_logits(tokens) for backend in backends), strict=True):
        base, *others = (log_probs(logits) for logits in passes)
        base[: max(0, SIZE // 2 - position)] = 0  # not compared
        is_left_out = base <= -16
        own = base[is_left_out]
        sums += [(np.exp(own) * (own - other[is_left_out])).sum() for other in others]
        position += len(base)
    for backend in backends:
        backend.close()
    return [*(sums / (SIZE // 2 - 1))]


@needs("llama-perplexity")
def test_the_numbers_are_those_of_llama_perplexity(
    smollm2: Callable[[str], Path], shared: Callable[[str], Path], tmp_path: Path
) -> None:
    with (shared("data/hub/datasets") / "L4NLP/LEval/LEval/Generation/gov_report_summ.jsonl").open() as lines:
        text = json.loads(next(lines))["input"]
    (tmp_path / "text.txt").write_text(text, "utf-8")
    whole = gguf_copy(smollm2("gguf"), tmp_path / "whole.gguf", whole=True)
    base, *formats = (quantised(whole, tmp_path / f"{name}.gguf", name) for name in ("F16", "Q8_0", "Q4_0"))
    cards = [card(tmp_path, "llamacpp", weights, F32) for weights in (base, *formats)]
    file = ("-f", tmp_path / "text.txt", "--kl-divergence-base", tmp_path / "base")
    run("-m", base, *file)
    loads = [partial(load, read_card(path)) for path in cards]
    found = compare_by_depth([DepthText("text", text, SIZE)], loads[0], loads[1:], folder=tmp_path)
    left_out = divergences_left_out([make() for make in loads], text)
    for weights, pair, difference in zip(formats, found.pairs, left_out, strict=True):
        printed = run("-m", weights, *file, "--kl-divergence")
        (row,) = [row for row in summarise_by_bin(pair.bins) if row["stop"] == SIZE]
        (both,) = [item for item in pair.bins if item.stop == SIZE]
        assert row["positions"] == SIZE // 2 - 1
        assert row["kl"] == pytest.approx(read(printed, "Mean    KLD") + difference, abs=2e-5)
        assert row["kl_p99"] == pytest.approx(read(printed, "99.0%   KLD"), rel=0.01)
        assert math.log(row["perplexity_ratio"]) == pytest.approx(read(printed, "Mean ln(PPL(Q)/PPL(base))"), abs=1e-4)
        for name, log_prob in (("base", both.reference_log_prob), ("Q", both.log_prob)):
            assert -log_prob == pytest.approx(math.log(read(printed, f"Mean PPL({name})")), abs=1e-4)
        assert 100 * row["same_top"] == pytest.approx(read(printed, "Same top p"), abs=0.3)
