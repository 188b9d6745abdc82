"""Numbers in a model's files, and in cards: each is checked before lbx computes with it."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lbx.backends import load, resolve_model
from lbx.backends.cards import parse_card
from lbx.backends.hf.folder_checks import refuse_unsafe_files
from lbx.backends.llama.formats import check_gguf
from lbx.base.errors import BackendError, UsageError

BAD = [-1, 1.5, math.nan, math.inf, -math.inf, 1e308, 2**63, 10**400, True, "8"]
WHOLE = [
    "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "hidden_size", "vocab_size", "head_dim", "intermediate_size",
    "sliding_window", "num_nextn_predict_layers", "kv_lora_rank", "num_kv_shared_layers",
]  # fmt: skip
NOT_ZERO = WHOLE[:10]
ROPE = ["factor", "rope_theta", "original_max_position_embeddings"]


def config_of(folder: Path, **values: object) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"} | values))
    return folder


@pytest.mark.parametrize("key", WHOLE)
@pytest.mark.parametrize("inside", [False, True], ids=["", "text_config"])
def test_a_number_of_config_json(key: str, inside: bool, tmp_path: Path) -> None:
    for value in (*BAD, *([0] if key in NOT_ZERO else [])):
        config_of(tmp_path, **({"text_config": {key: value}} if inside else {key: value}))
        with pytest.raises(BackendError, match=rf"config\.json has {key} = ") as refused:
            refuse_unsafe_files(tmp_path)
        assert len(refused.value.cause) < 300 and "compare its files" in refused.value.fix
    for value in (1, 8.0, None):
        refuse_unsafe_files(config_of(tmp_path, **{key: value}))


@pytest.mark.parametrize("key", ROPE)
@pytest.mark.parametrize("table", ["rope_scaling", "rope_parameters", "rope_parameters, by kind of layer"])
def test_a_number_of_a_rope_table(key: str, table: str, tmp_path: Path) -> None:
    name, _, by_kind = table.partition(", ")
    for value in (*(bad for bad in BAD if bad != 1.5 or key.startswith("original")), 0, [8]):
        rope = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4} | {key: value}
        config_of(tmp_path, **{name: {"full_attention": rope} if by_kind else rope})
        with pytest.raises(BackendError, match=rf"config\.json has {key} = "):
            refuse_unsafe_files(tmp_path)


def test_configurations_of_transformers_are_accepted(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs lbx[hf]")
    names = (
        "llama",
        "qwen3",
        "gemma3_text",
        "phi3",
        "mistral",
        "deepseek_v3",
        "gpt_oss",
        "falcon_h1",
        "bamba",
        "bloom",
    )
    for name in names:
        (tmp_path / "config.json").write_text(transformers.CONFIG_MAPPING[name]().to_json_string(use_diff=False))
        refuse_unsafe_files(tmp_path)


HEADER = {
    "context_length": [1 << 31, 2**63, 1.5, -1, math.nan, "8", True],
    "rope.scaling.original_context_length": [1 << 31, 2**63, 1.5, "8"],
    "rope.scaling.factor": [-1.0, math.nan, math.inf, 1e38, 1e308, "8", True],
    "rope.scale_linear": [-1.0, math.nan, math.inf],
    "rope.freq_base": [-1.0, math.nan, math.inf, 1e38],
    "block_count": [0, 1 << 31, 2**63, -1],
    "attention.head_count": [1 << 31, -1],
    "attention.key_length": [0, 1 << 31, "x"],
    "embedding_length": [0, 1 << 31],
}


def header_with(path: Path, key: str, value: Any) -> Path:
    import gguf

    kinds = gguf.GGUFValueType
    writer = gguf.GGUFWriter(path, "llama")
    kind = {bool: kinds.BOOL, str: kinds.STRING, float: kinds.FLOAT64}.get(type(value))
    writer.add_key_value(f"llama.{key}", value, kind or (kinds.INT64 if value < 0 else kinds.UINT64))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("key", HEADER)
def test_a_number_of_a_gguf_header(key: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs lbx[dev]")
    for value in HEADER[key]:  # type: ignore[attr-defined]
        with pytest.raises(BackendError, match=rf"m\.gguf has llama\.{key} = "):
            check_gguf(header_with(tmp_path / "m.gguf", key, value))
    check_gguf(header_with(tmp_path / "m.gguf", key, 8))


def test_a_header_without_a_window(demo_gguf: Path, tmp_path: Path) -> None:
    from tests.gguf_copy import gguf_copy

    path = gguf_copy(demo_gguf, tmp_path / "m.gguf", added={"llama.context_length": 0})
    with pytest.raises(BackendError, match="declare no context window") as refused:
        load(resolve_model(str(path)))
    assert "Pass --context-window" in refused.value.fix and "Lower" not in refused.value.fix
    backend = load(resolve_model(str(path), context_window=512))
    assert backend.info.context_window == 512
    backend.close()


def test_a_config_json_without_a_window_is_not_counted_in_a_small_one(tiny_hf: Path, tmp_path: Path) -> None:
    from lbx.backends.tokenizer_loading import CountingBackend, with_small_cache

    folder = shutil.copytree(tiny_hf, tmp_path / "m")
    card = resolve_model(str(folder))
    backend = load(with_small_cache(card))
    backend.info = replace(backend.info, declared_context=0)
    with pytest.raises(BackendError, match="declare no context window"):
        CountingBackend(backend, card)


CARD = {
    ("llamacpp", "prefill_chunk"): [0, -1, 2**40, 2**63],
    ("llamacpp", "kv_cells"): [-1, 2**40, 2**63],
    ("llamacpp", "n_gpu_layers"): [-2, 2**31],
    ("llamacpp", "yarn_original_context"): [-1, 2**32],
    ("llamacpp", "rope_freq_base"): [-1.0, math.nan, math.inf, 1e308],
    ("llamacpp", "rope_freq_scale"): [-1.0, math.nan, math.inf, 1e308],
    ("llamacpp", "threads"): [-1, 2**31],
    ("hf", "rope_factor"): [-1.0, math.nan, math.inf, 1e308],
    ("hf", "prefill_chunk"): [0, 2**40, 2**63],
    ("hf", "max_sequences"): [0, 2**40, 2**63],
    ("hf", "kv_cells"): [-1, 2**40, 2**63],
    ("hf", "threads"): [-1, 2**31],
}


@pytest.mark.parametrize(("backend", "key"), CARD, ids=lambda part: part)
def test_a_number_of_a_card(backend: str, key: str, tmp_path: Path) -> None:
    more = {"rope_scaling": "linear"} if key == "rope_factor" else {}
    for value in CARD[backend, key]:  # type: ignore[attr-defined]
        table = {"backend": backend, "weights": {"path": "m"}, "options": {key: value, **more}}
        with pytest.raises(UsageError, match=rf"card\.toml.*{key}"):
            parse_card(table, tmp_path / "card.toml")


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**63, 10**400], ids=["0", "-1", "2^31", "2^63", "10^400"])
def test_a_window_of_a_card(value: int, tmp_path: Path) -> None:
    for backend in ("llamacpp", "hf", "scripted"):
        table = {"backend": backend, "context_window": value, "weights": {"path": "m"}}
        with pytest.raises(UsageError, match=r"card\.toml: context_window must be"):
            parse_card(table, tmp_path / "card.toml")
