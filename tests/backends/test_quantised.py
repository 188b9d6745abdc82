"""Folders in the formats that people release: read exactly, or refused by name; nothing of them is left out."""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import profiles

torch = pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

from lbx.backends import load, resolve_model  # noqa: E402
from lbx.backends.hf.checkpoint import Checkpoint, DenseTensors, read_checkpoint  # noqa: E402
from lbx.base.errors import BackendError  # noqa: E402
from tests.backends import quantised_folders as folders  # noqa: E402
from tests.backends.quantised_folders import Maker, compressed_settings, quantise_folder  # noqa: E402

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
GPTQ = {"quant_method": "gptq", "group_size": 32}
BNB = {"quant_method": "bitsandbytes"}
MODEL_OPT = {"quant_method": "modelopt"}


def compressed(kind: str, **weights: Any) -> tuple[Callable[[], Maker], Mapping[str, Any], str, float]:
    return lambda: folders.compressed(kind, **weights), compressed_settings(kind, **weights), "", 0.0


def integers(bits: int, *, symmetric: bool) -> tuple[Callable[[], Maker], Mapping[str, Any], str, float]:
    return compressed(
        "pack-quantized", num_bits=bits, type="int", strategy="group", group_size=32, symmetric=symmetric
    )  # fmt: skip


def eight(kind: str, number: str, **weights: Any) -> tuple[Callable[[], Maker], Mapping[str, Any], str, float]:
    return compressed(kind, num_bits=8, type=number, **({"symmetric": True} | weights))


# What makes a weight; what config.json says; how the title begins, "" where the case's name has it; the largest
# difference from the format's own library, as a part of the weight's range: libraries that compute in bfloat16 round.
CASES: dict[str, tuple[Callable[[], Maker], Mapping[str, Any], str, float]] = {
    "fp8 in blocks": (lambda: folders.float8_blocks(64, 32), FP8 | {"weight_block_size": [64, 32]}, "FP8", 0),
    "fp8 in blocks that do not divide": (
        lambda: folders.float8_blocks(80, 48), FP8 | {"weight_block_size": [80, 48]}, "FP8", 0,
    ),
    "fp8 in blocks with scales of 2^n": (
        lambda: folders.float8_blocks(64, 32, torch.float8_e8m0fnu, "scale"), FP8 | {"weight_block_size": [64, 32]},
        "FP8 with scales of 2^n", 0,
    ),
    "fp8 with one scale": (lambda: folders.float8_scalar("weight_scale_inv"), FP8, "FP8", 0),
    "fp8 with one scale, as Mistral names it": (lambda: folders.float8_scalar("qscale_weight"), FP8, "FP8", 0),
    "fbgemm fp8": (lambda: folders.float8_scalar(rows=True), {"quant_method": "fbgemm_fp8"}, "FP8", 0),
    "ModelOpt fp8": (
        lambda: folders.float8_scalar(**{".input_scale": torch.tensor(0.5)}), MODEL_OPT | {"quant_algo": "FP8"},
        "FP8", 0,
    ),
    "ModelOpt nvfp4": (folders.nvfp4, MODEL_OPT | {"quant_algo": "NVFP4"}, "NVFP4", 0),
    "ModelOpt nvfp4, AWQ": (
        lambda: folders.nvfp4(awq=True), MODEL_OPT | {"quant_algo": "NVFP4_AWQ"}, "NVFP4", 0,
    ),
    "fp8 with experts of four bits": (
        lambda: folders.mxfp4("scale"), FP8 | {"weight_block_size": [128, 128]}, "MXFP4", 0,
    ),
    "AWQ": (lambda: folders.awq(32), {"quant_method": "awq", "bits": 4, "group_size": 32}, "AWQ int4", 0),
    **{f"GPTQ {bits}": (lambda bits=bits: folders.gptq(bits, 32), GPTQ | {"bits": bits}, f"GPTQ int{bits}", 0)
       for bits in (2, 3, 4, 8)},
    **{
        f"GPTQ {bits}, zero points of 0": (
            lambda bits=bits: folders.gptq(bits, 32, positive=True), GPTQ | {"bits": bits}, f"GPTQ int{bits}", 0
        )
        for bits in (2, 3, 4, 8)
    },
    "GPTQ act-order": (lambda: folders.gptq(4, 32, act_order=True), GPTQ | {"bits": 4, "desc_act": True}, "GPTQ", 0),
    "GPTQ v2": (
        lambda: folders.gptq(4, 32, version=2), GPTQ | {"bits": 4, "checkpoint_format": "gptq_v2"}, "GPTQ int4", 0,
    ),
    **{f"compressed-tensors int{bits}, {'' if same else 'a'}symmetric": integers(bits, symmetric=same)
       for bits in (3, 4, 8) for same in (True, False)},
    "compressed-tensors int4 by rows": compressed(
        "pack-quantized", num_bits=4, type="int", strategy="channel", symmetric=True
    ),
    "compressed-tensors int8": eight("int-quantized", "int", strategy="channel"),
    "compressed-tensors int8, asymmetric": eight("int-quantized", "int", strategy="channel", symmetric=False),
    "compressed-tensors FP8 by rows": eight("float-quantized", "float", strategy="channel"),
    "compressed-tensors FP8": eight("float-quantized", "float", strategy="tensor"),
    "compressed-tensors FP8 in blocks": eight(
        "float-quantized", "float", strategy="block", block_structure=[64, 32]
    ),
    "compressed-tensors NVFP4": (
        *compressed(
            "nvfp4-pack-quantized", num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True
        )[:3],
        2**-7,
    ),
    "compressed-tensors MXFP4": compressed(
        "mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32, symmetric=True
    ),
    "compressed-tensors MXFP8": eight(
        "mxfp8-quantized", "float", strategy="group", group_size=32, scale_dtype="torch.uint8"
    ),
    "bitsandbytes nf4": (lambda: folders.bits_and_bytes("nf4"), BNB | {"load_in_4bit": True}, "bitsandbytes nf4", 0),
    "bitsandbytes nf4, nested": (
        lambda: folders.bits_and_bytes("nf4", nested=True), BNB | {"load_in_4bit": True}, "bitsandbytes nf4", 1e-6,
    ),
    "bitsandbytes fp4": (lambda: folders.bits_and_bytes("fp4"), BNB | {"load_in_4bit": True}, "bitsandbytes fp4", 0),
    "bitsandbytes int8": (
        lambda: folders.bits_and_bytes("int8"), BNB | {"load_in_8bit": True}, "bitsandbytes int8", 1e-6,
    ),
    "torchao int8": (lambda: folders.torch_ao("int8"), {"quant_method": "torchao"}, "torchao int8", 0),
    "torchao FP8": (lambda: folders.torch_ao("float8"), {"quant_method": "torchao"}, "torchao FP8", 0),
}  # fmt: skip


@pytest.fixture(scope="session")
def wide(once: Callable[..., Path]) -> Path:
    """A model whose matrices have several blocks of every format in each direction."""
    from tests.backends.tiny import make_model

    with contextlib.redirect_stderr(io.StringIO()):
        return once("wide-hf", lambda folder: make_model(folder / "hf", width=128)) / "hf"


def dense_tensors(stored: Checkpoint) -> dict[str, torch.Tensor]:  # type: ignore[name-defined]
    with DenseTensors(stored, torch.float32) as tensors:
        return {name: tensor[...] for name, tensor in tensors.items()}


def logits(folder: Path) -> Any:
    backend = load(resolve_model(str(folder)))
    try:
        with torch.no_grad():
            return backend._model(torch.arange(3, 60)[None]).logits[0], backend
    finally:
        backend.close()


@pytest.mark.filterwarnings("ignore")  # of the formats' own libraries
@pytest.mark.parametrize("name", CASES)
def test_a_format_is_read_as_its_own_library_means_it(wide: Path, tmp_path: Path, name: str) -> None:
    from safetensors.torch import load_file

    make, settings, title, rounding = CASES[name]
    folder = quantise_folder(wide, tmp_path / "m", make(), settings)
    stored = read_checkpoint(folder)
    ours, meant = dense_tensors(stored), load_file(tmp_path / "m-dense" / "model.safetensors")
    assert ours.keys() == meant.keys()
    assert len(stored.weights) == 14
    assert stored.title.startswith(title or name.removeprefix("compressed-tensors ").partition(",")[0].split(" ")[0])
    for tensor, one in meant.items():
        assert float((ours[tensor] - one).abs().max()) <= rounding * float(one.max() - one.min()), tensor
    found, backend = logits(folder)
    twin, dense = logits(tmp_path / "m-dense")
    assert float((found - twin).abs().max()) <= 4 * rounding * float(twin.max() - twin.min())
    assert backend.eos_ids == dense.eos_ids
    assert backend.info.settings["stored_as"] == stored.title
    assert any("is stored as" in note for note in backend.info.notes)
    assert "stored_as" not in dense.info.settings


@pytest.mark.filterwarnings("ignore")  # of the format's own library
def test_groups_of_modules_have_settings_of_their_own(wide: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    names = ("compressed-tensors int8", "compressed-tensors int4, symmetric")
    made = [quantise_folder(wide, tmp_path / str(n), CASES[name][0](), CASES[name][1]) for n, name in enumerate(names)]
    eight, four = ([load_file(f"{folder}{end}/model.safetensors") for end in ("", "-dense")] for folder in made)
    stored, dense = (
        {name: tensor for name, tensor in one.items() if "mlp" in name}
        | {name: tensor for name, tensor in other.items() if "mlp" not in name}
        for one, other in zip(eight, four, strict=True)
    )
    groups = [dict(CASES[name][1]["config_groups"]["group_0"]) for name in names]
    groups[0]["targets"] = ["re:.*mlp.*"]
    config(made[0], format="mixed-precision", config_groups={"group_1": groups[1], "group_0": groups[0]})
    save_file(stored, made[0] / "model.safetensors")
    found = read_checkpoint(made[0])
    assert set(found.title.split(" and ")) == {"int8", "int4, packed"}
    ours = dense_tensors(found)
    assert ours.keys() == dense.keys()
    assert all(torch.equal(ours[name].float(), tensor) for name, tensor in dense.items())


@pytest.mark.parametrize(
    ("family", "make", "settings", "weights"),
    [
        (
            "qwen3_moe",
            lambda: folders.float8_blocks(48, 20),
            FP8 | {"weight_block_size": [48, 20]},
            2 * (4 + 1 + 4 * 3),
        ),
        ("deepseek_v3", lambda: folders.float8_blocks(48, 20), FP8 | {"weight_block_size": [48, 20]}, None),
        ("qwen3_moe", lambda: folders.gptq(4, 32), GPTQ | {"bits": 4}, None),
        ("qwen3_5, with eyes", lambda: folders.gptq(4, 32), GPTQ | {"bits": 4}, None),
        ("gpt_oss", folders.gpt_oss, {"quant_method": "mxfp4"}, 2 * 2),
    ],
)
def test_experts_are_read(
    tiny_hf: Path,
    tmp_path: Path,
    family: str,
    make: Callable[[], Maker],
    settings: Mapping[str, Any],
    weights: int | None,
) -> None:
    from safetensors.torch import load_file

    from tests.backends.tiny import make_tokenizer
    from tests.tiny_families import configs, making

    with contextlib.redirect_stderr(io.StringIO()):
        source = making.make(configs.FAMILIES[family], tmp_path / "source", make_tokenizer())
    folder = quantise_folder(source, tmp_path / "m", make(), settings)
    stored = read_checkpoint(folder)
    assert weights in (None, len(stored.weights))
    ours, meant = dense_tensors(stored), load_file(tmp_path / "m-dense" / "model.safetensors")
    assert ours.keys() == meant.keys()
    assert all(torch.equal(ours[name].float(), tensor) for name, tensor in meant.items())
    assert torch.equal(logits(folder)[0], logits(tmp_path / "m-dense")[0])


def test_models_are_listed_with_their_formats(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lbx.backends.weights import list_models

    shutil.copytree(whole, tmp_path / "models")
    config(tmp_path / "models" / "AWQ", version="gemv")
    monkeypatch.chdir(tmp_path)
    listed = {Path(one.name).name: one for one in list_models()}
    assert (listed["dense"].stored_as, listed["ModelOpt nvfp4"].stored_as) == ("", "NVFP4")
    assert listed["GPTQ 4"].files_exist
    assert "awq:gemv, a format that lbx does not support" in listed["AWQ"].problem


ALONE = """
import socket, sys
from pathlib import Path
def nowhere(*_): raise AssertionError("it asked the network")
socket.socket.connect = socket.getaddrinfo = nowhere
from lbx.backends import load, resolve_model
load(resolve_model(sys.argv[1])).close()
print(sorted({"bitsandbytes", "kernels", "gptqmodel", "compressed_tensors", "optimum"} & set(sys.modules)))
"""


@pytest.mark.parametrize("name", profiles.chosen(["AWQ", "GPTQ 4", "ModelOpt nvfp4"], ["GPTQ 4"]))
def test_no_kernel_and_no_librarys_code_is_asked_for(whole: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE, str(whole / name)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def config(folder: Path, **changes: Any) -> None:
    table = json.loads((folder / "config.json").read_text())
    table["quantization_config"] = table.get("quantization_config", {}) | changes
    (folder / "config.json").write_text(json.dumps(table))


def refusal(folder: Path) -> str:
    with pytest.raises(BackendError) as caught:
        load(resolve_model(str(folder)))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "method",
    ["aqlm", "hqq", "quark", "eetq", "spqr", "vptq", "higgs", "exl3", "quanto", "fp_quant", "sinq", "nobody-knows"],
)
def test_what_is_not_read_is_refused_by_its_name(wide: Path, tmp_path: Path, method: str) -> None:
    folder = quantise_folder(wide, tmp_path / "m", folders.gptq(4, 32), {"quant_method": method, "bits": 4})
    said = refusal(folder)
    assert method.replace("_", "-") in said
    assert "truncated" not in said


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("gptq:marlin", {"checkpoint_format": "marlin"}),
        ("awq:gemv", {"quant_method": "awq", "version": "gemv"}),
        ("awq:llm-awq", {"quant_method": "awq", "version": "llm-awq"}),
    ],
)
def test_variants_are_refused_by_their_names(wide: Path, tmp_path: Path, method: str, changes: dict[str, Any]) -> None:
    folder = quantise_folder(wide, tmp_path / "m", folders.gptq(4, 32), GPTQ | {"bits": 4})
    config(folder, **changes)
    assert method in refusal(folder)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


MUTATED = ("fp8 in blocks", "ModelOpt fp8", "ModelOpt nvfp4", "AWQ", "GPTQ 4", "dense")


@pytest.fixture(scope="session")
def whole(wide: Path, once: Callable[..., Path]) -> Path:
    """A folder of each format that is to be broken."""

    def make(place: Path) -> None:
        for name in MUTATED[:-1]:
            quantise_folder(wide, place / name, CASES[name][0](), CASES[name][1])
        shutil.copytree(wide, place / "dense")

    return once("whole-formats", make)


def _of_scales(names: list[str]) -> list[str]:
    return [name for name in names if "scale" in name or "zeros" in name]


# Parts that a row can do without, and these folders cannot: without them all was read, and wrongly. Where one is lost
# everywhere, only config.json can say so: of columns in order, or of inputs whose scale is part of a norm, it does not.
NEEDED = [
    ("bitsandbytes nf4, nested", ".weight.nested_absmax", True),
    ("bitsandbytes nf4, nested", ".weight.nested_quant_map", True),
    ("compressed-tensors int4, asymmetric", ".weight_zero_point", True),
    ("compressed-tensors int8, asymmetric", ".weight_zero_point", True),
    ("GPTQ act-order", ".g_idx", True),
    ("GPTQ 4", ".g_idx", False),
    ("ModelOpt nvfp4, AWQ", ".pre_quant_scale", False),
]


@pytest.mark.filterwarnings("ignore")  # of the formats' own libraries
@pytest.mark.parametrize(
    ("name", "suffix", "all_of_them"),
    [(name, suffix, lost) for name, suffix, told in NEEDED for lost in (False, True)[: 1 + told]],
)
def test_no_part_that_a_weight_needs_is_done_without(
    wide: Path, tmp_path: Path, name: str, suffix: str, all_of_them: bool
) -> None:
    folder = quantise_folder(wide, tmp_path / "m", CASES[name][0](), CASES[name][1])

    def drop(tensors: dict[str, Any]) -> None:
        lost = [one for one in tensors if one.endswith(suffix)]
        for one in lost if all_of_them else lost[:1]:
            del tensors[one]

    rewritten(folder, drop)
    assert "truncated" not in refusal(folder)


def negative_order(tensors: dict[str, Any]) -> None:
    tensors["model.layers.0.mlp.up_proj.g_idx"][0] = -1


def strange_state(tensors: dict[str, Any]) -> None:
    name = next(one for one in tensors if one.endswith("bitsandbytes__nf4"))
    state = json.loads(bytes(tensors[name].tolist())) | {"quant_type": "\x1b[2Jnf4"}
    tensors[name] = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "change"), [("GPTQ 4", negative_order), ("bitsandbytes nf4", strange_state)])
def test_numbers_that_mean_nothing_are_refused(
    wide: Path, tmp_path: Path, name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    folder = quantise_folder(wide, tmp_path / "m", CASES[name][0](), CASES[name][1])
    rewritten(folder, change)
    assert "truncated" not in refusal(folder)


def drop_scale(tensors: dict[str, Any], chance: random.Random) -> None:
    del tensors[chance.choice([name for name in _of_scales(list(tensors)) if "input" not in name])]


def rename_scale(tensors: dict[str, Any], chance: random.Random) -> None:
    name = chance.choice([name for name in _of_scales(list(tensors)) if "input" not in name])
    tensors[chance.choice([name + "_x", name.replace("model.", "modal."), name + ".1"])] = tensors.pop(name)


def scale_of_other_blocks(tensors: dict[str, Any], chance: random.Random) -> None:
    name = chance.choice([name for name in _of_scales(list(tensors)) if "input" not in name and "_2" not in name])
    tensor = tensors[name]
    tensors[name] = torch.cat([tensor.reshape(-1, *tensor.shape[1:])] * 2) if tensor.dim() else tensor.repeat(3)


def extra_tensor(tensors: dict[str, Any], chance: random.Random) -> None:
    name = chance.choice([name for name in tensors if ".layers." in name])
    stem = name.rpartition(".")[0]
    tensors[f"{stem}.{chance.choice(['extra', 'weight_scales', 'lora_A', 'bias_2', 'scale_x'])}"] = torch.ones(3)


def other_layer(tensors: dict[str, Any], chance: random.Random) -> None:
    name = chance.choice([name for name in tensors if ".layers.1." in name and "input_scale" not in name])
    tensors[name.replace(".layers.1.", f".layers.{chance.randint(2, 9)}.")] = tensors.pop(name)


def drop_weight(tensors: dict[str, Any], chance: random.Random) -> None:
    del tensors[chance.choice([name for name in tensors if name.endswith(("weight", "qweight"))])]


@pytest.mark.parametrize("seed", range(200))
def test_no_mutated_folder_runs(whole: Path, tmp_path: Path, seed: int) -> None:
    """A scale dropped, renamed or of another block, an extra tensor, one of another layer, shards swapped, config.json
    without its quantisation, quantisation without its config.json."""
    chance = random.Random(seed)
    name = MUTATED[seed % len(MUTATED)]
    folder = Path(shutil.copytree(whole / name, tmp_path / "m"))
    changes = [extra_tensor, other_layer, drop_weight, "shards"]
    if name != "dense":
        changes += [drop_scale, rename_scale, scale_of_other_blocks, "no config", "dense weights"]
    change = changes[seed // len(MUTATED) % len(changes)]
    if change == "shards":
        _swap_shards(folder, chance)
    elif change == "no config":
        table = json.loads((folder / "config.json").read_text())
        del table["quantization_config"]
        (folder / "config.json").write_text(json.dumps(table))
    elif change == "dense weights":
        shutil.copy(whole / f"{name}-dense" / "model.safetensors", folder / "model.safetensors")
    else:
        rewritten(folder, lambda tensors: change(tensors, chance))
    said = refusal(folder)
    assert "truncated" not in said


def _swap_shards(folder: Path, chance: random.Random) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    chance.shuffle(names)
    parts = {f"model-0000{n + 1}-of-00002.safetensors": names[n::2] for n in range(2)}
    for file, held in zip(parts, reversed(parts.values()), strict=True):
        save_file({name: tensors[name] for name in held}, folder / file)
    places = {name: file for file, held in parts.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
