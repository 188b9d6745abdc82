"""Models that cannot be loaded: one sentence each, no traceback, and the process lives on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from lbx.backends import load, read_card, resolve_model
from lbx.backends.hf.folder_checks import refuse_foreign_tokenizer
from lbx.base.errors import BackendError
from lbx.running.models import load_to_count
from tests.gguf_copy import gguf_copy

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"


@pytest.fixture
def folder(tiny_hf, tmp_path) -> Path:
    """A copy of the tiny model to damage."""
    return Path(shutil.copytree(tiny_hf, tmp_path / "hf"))


def refusal(path: Path) -> str:
    with pytest.raises(BackendError) as caught:
        load(resolve_model(str(path)))
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


# --- GGUF


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"GGML"])
def test_not_a_gguf_file(tmp_path, content):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert "is not a GGUF file" in refusal(path)


@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 0.999])
def test_a_gguf_file_that_was_cut_off(tiny_gguf, tmp_path, share):
    data = tiny_gguf.read_bytes()
    path = tmp_path / "m.gguf"
    path.write_bytes(data[: int(len(data) * share)])
    said = refusal(path)
    assert "llama.cpp cannot load" in said
    assert "no reason given" not in said
    assert "truncated" in said


def test_llama_loads_a_good_file_after_a_bad_one(tiny_gguf, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(tiny_gguf.read_bytes()[:5000])
    refusal(path)
    load(resolve_model(str(tiny_gguf))).close()


def test_a_gguf_file_of_an_unknown_architecture(tiny_gguf, tmp_path):
    said = refusal(gguf_copy(tiny_gguf, tmp_path / "m.gguf", architecture="nosuch5"))
    assert "does not know the architecture nosuch5." in said
    assert "transformers" in said


def test_a_gguf_file_with_another_models_tokens(tiny_gguf, tmp_path):
    said = refusal(gguf_copy(tiny_gguf, tmp_path / "m.gguf", tokens=200))
    assert "'token_embd.weight' has wrong shape" in said


def test_an_assertion_of_llama_ends_in_a_sentence(tiny_gguf, tmp_path):
    """Two tokens with the same text: llama.cpp asserts, which no exception handler can stop."""
    data = tiny_gguf.read_bytes()
    user, other = b"\x08\x00\x00\x00\x00\x00\x00\x00<|user|>", b"\x07\x00\x00\x00\x00\x00\x00\x00<think>"
    assert data.count(user) == data.count(other) == 1
    path = tmp_path / "m.gguf"
    path.write_bytes(data.replace(b"<|user|>", b"</think>", 1))
    code = f"from lbx.backends import load, resolve_model\nload(resolve_model({str(path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("llama.cpp aborted: llama-vocab.cpp:")
    assert "damaged" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_cache_larger_than_a_gpu_takes_in_one_piece_is_no_damage():
    """llama.cpp's assertion on a Vulkan device whose buffers have at most 128 MiB."""
    text = (
        b"/ggml-backend.cpp:941: pre-allocated tensor (cache_k_l0) in a buffer (Vulkan0) that cannot run the operation"
    )
    code = f"from lbx.backends.llama.library import _on_abort\n_on_abort({text!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("llama.cpp aborted: ggml-backend.cpp:941: pre-allocated tensor (cache_k_l0)")
    assert "lower kv_cells or context_window in the model card, or set offload_kqv = false" in done.stderr
    assert "damaged" not in done.stderr


def test_a_context_beyond_training_is_refused(tiny_gguf, tiny_hf, tmp_path):
    for backend, path in (("llamacpp", tiny_gguf), ("hf", tiny_hf)):
        card = tmp_path / f"{backend}.toml"
        text = f'backend = "{backend}"\ncontext_window = 4096\n[weights]\npath = {str(path)!r}\n'
        card.write_text(text)
        with pytest.raises(BackendError, match="context of 2048 tokens; a context window of 4096 exceeds it"):
            load(read_card(card))
        with pytest.raises(BackendError, match="context of 2048 tokens; a context window of 4096 exceeds it"):
            load_to_count(read_card(card), None)
        card.write_text(text + "[options]\nextend_context = true\n")
        load_to_count(read_card(card), None).close()
        backend_object = load(read_card(card))
        assert backend_object.info.context_window == 4096
        backend_object.close()


def test_a_context_that_memory_cannot_hold(tiny_gguf, tmp_path):
    card = tmp_path / "huge.toml"
    card.write_text(
        f'backend = "llamacpp"\ncontext_window = 2000000000\n[weights]\npath = {str(tiny_gguf)!r}\n'
        "[options]\nextend_context = true\n"
    )
    with pytest.raises(BackendError, match=r"for 2000000000 tokens takes 953\.7 GiB; .* set flash_attention = false"):
        load(read_card(card))


# --- Hugging Face


def change_config(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def cut_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:50_000])


def drop_a_tensor(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


DAMAGE = {
    "cut weights": (cut_weights, "model.safetensors cannot be read"),
    "missing tensor": (drop_a_tensor, "model.layers.1.mlp.up_proj.weight"),
    "other shapes": (lambda folder: change_config(folder, intermediate_size=48), "model.layers.0.mlp.down_proj.weight"),
    "more layers": (lambda folder: change_config(folder, num_hidden_layers=1), "it has 1 layers, but they have 2"),
    "pickled weights": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
        "only pickled ones",
    ),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
    "cut tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text('{"version": "1.0"'),
        "tokenizer.json cannot be read",
    ),
    "cut config": (lambda folder: (folder / "config.json").write_text("{"), "config.json cannot be read"),
    "other tokenizer": (lambda folder: shutil.copy(DEMO / "tokenizer.json", folder), "does not fit the model"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused(folder, damage):
    change, named = DAMAGE[damage]
    change(folder)
    assert named in refusal(folder)


def test_layers_that_predict_ahead_are_left_out(folder):
    change_config(folder, num_hidden_layers=1, num_nextn_predict_layers=1)
    load(resolve_model(str(folder))).close()


def test_weights_larger_than_memory(folder, tiny_gguf, tmp_path):
    header = json.dumps({"huge": {"dtype": "F32", "shape": [1 << 36, 4], "data_offsets": [0, 1 << 40]}}).encode()
    with (folder / "model.safetensors").open("wb") as file:  # a sparse file
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (1 << 40))
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:  # a sparse file
        file.write(b"GGUF")
        file.truncate(1 << 43)
    for model, takes in ((folder, "1024.0 GiB"), (path, "8192.0 GiB")):
        said = refusal(model)
        assert f"take {takes}" in said
        assert "a machine with more memory" in said


# --- a tokenizer beside weights that are not its own


class Added(NamedTuple):
    content: str
    special: bool


class Vocabulary:
    """As many tokens as are asked for, BOS and EOS among them, and those that were added behind."""

    bos_token_id, eos_token_id = 0, 1

    def __init__(self, size, added=()):
        self._size = size
        self.added_tokens_decoder = {size + i: token for i, token in enumerate(added)}

    def get_vocab(self):
        return {f"t{i}": i for i in range(self._size)} | {t.content: i for i, t in self.added_tokens_decoder.items()}


@pytest.mark.parametrize(
    ("tokens", "rows"),
    [(100, 100), (65, 128), (50_257, 51_200), (100_002, 102_400), (151_665, 152_064), (262_144, 262_208)],
)
def test_embeddings_may_be_padded(tokens, rows):
    refuse_foreign_tokenizer(Vocabulary(tokens), rows, None, Path("m"))


@pytest.mark.parametrize(("tokens", "rows"), [(2_882, 49_152), (32_000, 128_256), (128_256, 151_936), (101, 100)])
def test_another_models_tokenizer(tokens, rows):
    with pytest.raises(BackendError, match=f"tokenizer in m does not fit the model.*{rows:,} rows"):
        refuse_foreign_tokenizer(Vocabulary(tokens), rows, None, Path("m"))


def test_added_tokens_beyond_the_last_row_must_be_silent():
    vocabulary = Vocabulary(100, [Added("<image_soft_token>", True)])
    refuse_foreign_tokenizer(vocabulary, 100, "{{ messages }}", Path("m"))
    with pytest.raises(BackendError, match=r"'<image_soft_token>' \(100\)"):
        refuse_foreign_tokenizer(vocabulary, 100, "<image_soft_token>{{ messages }}", Path("m"))
    with pytest.raises(BackendError, match=r"'<tag>' \(100\)"):  # any document may spell it
        refuse_foreign_tokenizer(Vocabulary(100, [Added("<tag>", False)]), 100, None, Path("m"))
    vocabulary.eos_token_id = 100
    with pytest.raises(BackendError, match="1 tokens have higher ids"):
        refuse_foreign_tokenizer(vocabulary, 100, None, Path("m"))


def test_code_in_the_folder_is_not_run(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert "cannot be loaded" in refusal(folder)
    assert not (tmp_path / "ran").exists()


def test_a_gpu_that_is_not_there(tiny_hf, tmp_path):
    card = tmp_path / "gpu.toml"
    card.write_text(f'backend = "hf"\n[weights]\npath = {str(tiny_hf)!r}\n[options]\ndevice = "cuda:77"\n')
    with pytest.raises(BackendError, match="GPU cuda:77 does not exist"):
        load(read_card(card))


# --- libraries


@pytest.mark.parametrize(("module", "extra"), [("llama_cpp", "llama"), ("transformers", "hf"), ("torch", "hf")])
def test_a_missing_library_names_the_command(tiny_hf, tiny_gguf, monkeypatch, module, extra):
    from lbx.backends.llama import library

    library.load_llama_cpp.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BackendError) as caught:
        load(resolve_model(str(tiny_gguf if extra == "llama" else tiny_hf)))
    assert caught.value.command == f"pip install 'lbx[{extra}]'"
    library.load_llama_cpp.cache_clear()


def test_loading_and_answering_is_silent(tiny_hf, tiny_gguf):
    """Neither library writes to the terminal, and warnings are errors."""
    code = (
        "import sys\nfrom lbx.backends import load, resolve_model\nfrom lbx.engine.batching import complete\n"
        "from lbx.base.records import Request, SampleKey\n"
        "for path in sys.argv[1:]:\n"
        "    backend = load(resolve_model(path))\n"
        "    ids = backend.tokenizer.encode('a long text ' * 3000, special=False)\n"
        "    complete(backend, Request(SampleKey('a', 'b', 'c'), tuple(ids[:1000]), 4))\n"
        "    backend.close()\n"
    )
    command = [sys.executable, "-W", "error", "-W", "ignore::ResourceWarning", "-c", code, str(tiny_hf), str(tiny_gguf)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": "80"})
    assert done.stdout == ""
    assert done.stderr == ""
