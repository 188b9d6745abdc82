"""Models' own files, which promise what they do not hold, or name what is not theirs."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

import pytest

from tests.attacks.attack_parts import TESTS, Said, lbx, main, process, refused

DEMO = TESTS.parent / "models/demo/hf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The demo's model, to be spoilt."""
    return Path(shutil.copytree(DEMO, tmp_path / "model"))


def plan(small: Path, model: Path) -> tuple[object, ...]:
    return ("plan", "-b", small / "bundle", "-m", model, "-t", "needle/single_en", "-n", 1)


def changed(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "model.safetensors",
        "chat_template.jinja",
        "a.model",
        "vocab.tiktoken",
        "additional_chat_templates/tools.jinja",
    ],
)
def test_a_pipe_among_a_models_files_is_not_waited_for(name: str, small: Path, folder: Path) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    refused(main(*plan(small, folder)), name)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    refused(main(*plan(small, folder)), name)
    assert main("models", folder).code in (0, 1, 2)


def test_a_pipe_in_place_of_a_model_is_not_waited_for(small: Path, tmp_path: Path) -> None:
    for name in ("t.jsonl", "m.gguf"):
        os.mkfifo(tmp_path / name)
        refused(main(*plan(small, tmp_path / name)), name)


def test_an_adapter_beside_a_model_is_refused(small: Path, folder: Path) -> None:
    """With peft installed transformers would add it, from wherever it says its base is; without, leave it out."""
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/etc", "peft_type": "LORA"}))
    refused(main(*plan(small, folder)), "adapter_config.json", "merge_and_unload")


CONFIGS: dict[str, dict[str, object]] = {
    "a billion layers": {"num_hidden_layers": 10**9},
    "a billion layers, as a float": {"num_hidden_layers": 1e9},
    "inside": {"text_config": {"num_hidden_layers": 10**9}},
    "experts": {"num_local_experts": 10**12},
    "heads": {"num_attention_heads": 10**15},
    "a backbone's": {"vision_config": {"depth": 10**10}},
    "a window of a million million": {"max_position_embeddings": 10**12},
    "a window that no register holds": {"max_position_embeddings": 2**70},
    "an endless window": {"max_position_embeddings": float("inf")},
    "a window inside": {"text_config": {"n_positions": 2**70}},
    "a sliding window": {"sliding_window": 2**70},
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_configuration_of_a_billion_layers_does_not_hang(case: str, small: Path, folder: Path) -> None:
    changed(folder / "config.json", **CONFIGS[case])
    refused(main(*plan(small, folder)), "more than any model")


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"9" * 100_000, b"{}" + b" " * (65 << 20), b"\xff\xfe\x00"], ids=len
)
def test_a_configuration_that_cannot_be_read_is_told_as_a_sentence(content: bytes, small: Path, folder: Path) -> None:
    (folder / "config.json").write_bytes(content)
    refused(main(*plan(small, folder)), "config.json")


@pytest.mark.parametrize("name", ["../other/model.safetensors", "/etc/passwd", "sub/../../x.safetensors"])
def test_an_index_takes_no_weights_from_elsewhere(name: str, small: Path, folder: Path) -> None:
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(main(*plan(small, folder)), "lists weights outside the model's folder")


def test_code_and_pickles_beside_a_configuration_are_not_run(small: Path, folder: Path, tmp_path: Path) -> None:
    """Outside a bundle, where no rule about formats was held."""
    changed(
        folder / "config.json", auto_map={"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}, model_type="evil"
    )
    pwned = tmp_path / "PWNED"
    for name in ("evil.py", "modeling_evil.py", "sitecustomize.py", "torch.py", "numpy.py"):
        (folder / name).write_text(f"open({str(pwned)!r}, 'w')")
    refused(main(*plan(small, folder)))
    (next(folder.glob("*.safetensors"))).rename(folder / "pytorch_model.bin")
    refused(main(*plan(small, folder)), "only pickled ones")
    assert not pwned.exists()


def test_a_kernel_of_the_hub_is_not_asked_for(small: Path, folder: Path, tmp_path: Path) -> None:
    """`_attn_implementation` names a repository of compiled code. There is no network here to fetch it with."""
    changed(folder / "config.json", _attn_implementation="kernels-community/evil", attn_implementation="org/evil")
    command = " ".join(map(str, ("-P", "-m", "lbx.cli", *plan(small, folder))))
    said = offline(command, tmp_path)
    assert "Traceback" not in said.err and "did not expect" not in said.err, said
    if said.code == 0:
        assert "evil" not in said.out + said.err
    else:
        refused(said)


def offline(command: str, folder: Path) -> Said:
    import sys

    whole = f"exec {sys.executable} {command}"
    if process("unshare", "-rn", "true").code == 0:
        return process("unshare", "-rn", "bash", "-c", whole, cwd=folder)
    return process("bash", "-c", whole, cwd=folder)


def header(value: object, length: int | None = None) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(data) if length is None else length) + data


WEIGHTS = {
    "a header of exabytes": header(b"{}", 1 << 60),
    "a header nested without end": header(b'{"a":' * 100_000),
    "a shape of more than there is": header({"w": {"dtype": "F32", "shape": [10**9, 10**9], "data_offsets": [0, 4]}}),
    "offsets backwards": header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}) + bytes(4),
    "offsets outside": header({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1 << 50]}}),
    "no header": b"",
}


def test_weights_that_promise_too_much_are_refused(small: Path, folder: Path) -> None:
    """Several in one process, which loads torch once."""
    (weights,) = folder.glob("*.safetensors")
    for content in WEIGHTS.values():
        weights.write_bytes(content)
        refused(main(*plan(small, folder)))


def gguf_with(demo: Path, to: Path, key: bytes, value: int) -> Path:
    """The demo's GGUF with another 32-bit number behind a key."""
    data = bytearray(demo.read_bytes())
    at = data.index(struct.pack("<Q", len(key)) + key) + 8 + len(key)
    assert struct.unpack_from("<I", data, at)[0] == 4, "a UINT32"
    struct.pack_into("<I", data, at + 4, value)
    to.write_bytes(data)
    return to


def test_a_gguf_that_promises_too_much_is_refused(small: Path, demo_gguf: Path, tmp_path: Path) -> None:
    good = demo_gguf.read_bytes()
    spoilt = [
        gguf_with(demo_gguf, tmp_path / "layers.gguf", b"llama.block_count", 10**9),
        gguf_with(demo_gguf, tmp_path / "heads.gguf", b"llama.attention.head_count", 4 * 10**9),
        gguf_with(demo_gguf, tmp_path / "window.gguf", b"llama.context_length", 4 * 10**9),
    ]
    for name, data in {
        "tensors": good[:8] + struct.pack("<Q", 1 << 60) + good[16:],
        "string": good[:24] + struct.pack("<Q", 1 << 62) + good[32:],
        "cut": good[: len(good) // 2],
    }.items():
        (tmp_path / f"{name}.gguf").write_bytes(data)
        spoilt.append(tmp_path / f"{name}.gguf")
    for path in spoilt:
        said = lbx(*plan(small, path))  # llama.cpp's assertions end a process
        assert said.code == 1 and said.err and "Traceback" not in said.err, (path.name, said)


MODULES = {
    "a class of torch": [{"idx": 0, "name": "0", "path": "", "type": "torch.jit"}],
    "a class of the folder": [{"idx": 0, "name": "0", "path": "", "type": "evil.Module"}],
    "a folder above": [{"idx": 0, "name": "0", "path": "../..", "type": "sentence_transformers.models.Transformer"}],
    "an absolute folder": [{"idx": 0, "name": "0", "path": "/etc", "type": "sentence_transformers.models.Transformer"}],
    "no list": {"a": 1},
    "too deep": None,
}


@pytest.mark.parametrize("case", MODULES)
def test_an_embedding_model_names_only_classes_and_folders_of_its_own(case: str, folder: Path, tmp_path: Path) -> None:
    from lbx.backends.cards import read_card
    from lbx.backends.embedding import check_embedder, load_embedder
    from lbx.base.errors import BackendError

    modules = MODULES[case]
    text = json.dumps(modules) if modules is not None else "[" * 100_000
    (folder / "modules.json").write_text(text)
    (tmp_path / "e.toml").write_text(f'backend = "sentence_transformers"\n[weights]\npath = "{folder}"\n')
    card = read_card(tmp_path / "e.toml")
    with pytest.raises(BackendError, match=r"modules\.json"):
        load_embedder(card, bundle=None)
    check_embedder(card, None)
