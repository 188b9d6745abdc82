"""In which number format "auto" computes, by what the processor has, and that it is told and stored."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("torch", reason="needs lbx[hf]")

import torch

from lbx.backends import load, resolve_model
from lbx.backends.hf.library import choose_dtype, choose_for_processor, multiplying_feature, processor_features

AVX2 = {"avx2", "fma3", "f16c"}
ICE_LAKE = AVX2 | {"avx512_f", "avx512_vnni"}
ZEN4 = ICE_LAKE | {"avx512_bf16"}
SAPPHIRE_RAPIDS = ZEN4 | {"avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}
GRANITE_RAPIDS = SAPPHIRE_RAPIDS | {"amx_fp16"}
GRAVITON2 = {"neon", "fp16_arith", "dot"}
GRAVITON3 = GRAVITON2 | {"bf16", "sve", "i8mm"}


@pytest.mark.parametrize(
    ("own", "features", "name", "said"),
    [
        ("bfloat16", AVX2, "float32", "does not multiply in hardware"),
        ("bfloat16", ICE_LAKE, "float32", "AMX-BF16 or AVX512-BF16"),
        ("bfloat16", ZEN4, "bfloat16", "(AVX512-BF16)"),
        ("bfloat16", SAPPHIRE_RAPIDS, "bfloat16", "(AMX-BF16)"),
        ("bfloat16", GRAVITON2, "float32", "does not multiply"),
        ("bfloat16", GRAVITON3, "bfloat16", "(ARM BF16)"),
        ("bfloat16", set(), "float32", "does not multiply"),
        ("float16", SAPPHIRE_RAPIDS, "float32", "AMX-FP16"),  # it has AVX512-FP16, which oneDNN only converts with
        ("float16", GRANITE_RAPIDS, "float16", "(AMX-FP16)"),
        ("float16", GRAVITON3, "float32", "does not multiply"),
        ("float32", GRANITE_RAPIDS, "float32", "the checkpoint's own"),
        (None, GRANITE_RAPIDS, "float32", "names no format"),
    ],
)
def test_auto_is_the_checkpoints_own_where_the_processor_multiplies_it(own, features, name, said):
    chosen = choose_for_processor(own, features)
    assert chosen.name == name
    assert said in chosen.reason


def test_what_this_processor_has_is_what_its_own_list_says():
    """By torch's reading and by the kernel's: both or neither have each feature."""
    from lbx.cli.machine import _cpu

    listed, read = set(_cpu()["instructions"]), processor_features(torch)
    for ours, theirs in (("avx2", "avx2"), ("avx512_bf16", "avx512_bf16"), ("amx_bf16", "amx_bf16"), ("bf16", "bf16")):
        assert (ours in listed) == (theirs in read), ours


def test_the_choice_is_told_stored_and_part_of_the_runs_identity(tiny_hf, tmp_path):
    folder = shutil.copytree(tiny_hf, tmp_path / "tiny")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | {"dtype": "bfloat16"}), "utf-8")
    here = processor_features(torch)
    expected = "bfloat16" if multiplying_feature("bfloat16", here) else "float32"
    backend = load(resolve_model(str(folder)))
    assert str(backend._model.dtype) == f"torch.{expected}"
    assert backend.info.settings["dtype"] == expected
    (line,) = backend.info.notes
    assert line.startswith(f"tiny is computed in {expected}: ")
    assert backend.info.hardware["dtype_reason"] in line
    backend.close()
    assert choose_dtype(torch, "float16", torch.device("cpu"), folder) == ("float16", "as its card says")


def test_a_processor_without_onednn_multiplies_nothing_in_hardware(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    assert processor_features(torch) == frozenset()
