"""What loading a folder takes at its most, on the CPU measured and on a GPU by its plan."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path

import pytest

from tests import profiles

pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

import torch

from lbx.backends.hf import loading
from lbx.backends.hf.checkpoint import read_checkpoint
from lbx.backends.hf.options import HfOptions
from lbx.base.errors import DoesNotFitError
from tests.backends import quantised_folders as folders
from tests.backends.tiny import make_tokenizer

MIB = 1 << 20
PEAK = """
import dataclasses, sys, threading, time
import torch, transformers
import transformers.models.qwen3_moe.modeling_qwen3_moe
from lbx.backends import load, resolve_model

def taken():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024

card = resolve_model(sys.argv[1])
card = dataclasses.replace(card, options=dataclasses.replace(card.options, dtype="float32"))
peak = before = taken()
ended = threading.Event()

def watch():
    global peak
    while not ended.wait(0.001):
        peak = max(peak, taken())

watcher = threading.Thread(target=watch)
watcher.start()
load(card)
ended.set()
watcher.join()
print(peak - before)
"""


@pytest.fixture(scope="module")
def experts(once) -> Path:
    """A model of many experts, each a tensor of its own in FP8, and in bfloat16; 48 MiB of numbers in float32."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    def make(folder: Path) -> None:
        tokenizer = make_tokenizer()
        config = Qwen3MoeConfig(
            vocab_size=len(tokenizer), hidden_size=256, intermediate_size=256, moe_intermediate_size=256, head_dim=64,
            num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, num_experts=40, num_experts_per_tok=2,
            max_position_embeddings=256, bos_token_id=0, eos_token_id=1,
        )  # fmt: skip
        with contextlib.redirect_stderr(io.StringIO()):
            Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(folder / "whole")
        tokenizer.save_pretrained(folder / "whole")
        settings = {"quant_method": "fbgemm_fp8"}
        folders.quantise_folder(folder / "whole", folder / "eight", folders.float8_scalar(rows=True), settings)

    return once("many-experts", make)


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux, which says what a process takes")
@pytest.mark.parametrize("name", profiles.chosen(["eight", "whole"], ["eight"]))
def test_no_model_is_held_twice(experts: Path, name: str) -> None:
    """Its experts are merged in loading, and come in another number format than they are computed in."""

    def peak(folder: Path) -> int:
        done = subprocess.run([sys.executable, "-c", PEAK, folder], capture_output=True, text=True, check=True)
        return int(done.stdout)

    stored = read_checkpoint(experts / name)
    dense = stored.dense_bytes(4)
    assert dense > 110 * MIB
    # The same in float32 needs nothing beside itself, and as much of libraries' own.
    assert peak(experts / name) - peak(experts / "eight-dense") < 0.25 * dense + stored.unpacking_bytes


@pytest.mark.parametrize(
    ("gpu", "ram", "accelerate", "refusal"),
    [
        (200 * MIB, 200 * MIB, False, None),
        (100 * MIB, 900 * MIB, True, "0.1 GiB of cuda:0 are free"),
        (200 * MIB, 100 * MIB, False, "0.1 GiB of RAM are free"),
        (200 * MIB, 100 * MIB, True, None),
        (200 * MIB, 0, True, "of RAM are free"),
    ],
    ids=["both hold it", "not the GPU", "not RAM, which it passes", "past RAM", "no RAM to unpack in"],
)
def test_a_gpu_holds_it_dense_and_ram_what_passes(experts: Path, monkeypatch, gpu, ram, accelerate, refusal) -> None:
    stored = read_checkpoint(experts / "eight")
    monkeypatch.setattr(loading, "free_bytes", lambda torch, device: gpu)
    monkeypatch.setattr(loading, "available_memory", lambda: ram)
    monkeypatch.setattr(loading, "find_spec", lambda name: object() if accelerate else None)

    def look() -> None:
        device = torch.device("cuda:0")
        loading._refuse_too_large(torch, "m", stored, HfOptions(), dtype="float32", device=device)

    if refusal is None:
        look()
        return
    with pytest.raises(DoesNotFitError) as caught:
        look()
    assert refusal in str(caught.value)
    assert ("Install accelerate" in str(caught.value)) is (ram == 100 * MIB)
