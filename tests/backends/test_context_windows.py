"""The context window that a model's files declare, rope scaling included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest

from lbx.backends import load, resolve_model
from lbx.backends.cards import parse_card
from lbx.backends.headers import declared_window
from lbx.backends.tokenizer_loading import CountingBackend, with_small_cache
from lbx.backends.weights import list_models
from lbx.base.errors import BackendError
from tests.backends.tiny import make_tokenizer


def yarn(factor: Any, original: int | None = None, **more: Any) -> dict[str, Any]:
    table = {"type": "yarn", "factor": factor, **more}
    return {"rope_scaling": table | ({"original_max_position_embeddings": original} if original else {})}


def scaled(kind: str, factor: Any, **more: Any) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": kind, "factor": factor, **more}}


PUBLISHED = {
    # name: (max_position_embeddings, further fields, window)
    "Qwen2.5, long texts": (32_768, yarn(4.0, 32_768), 131_072),
    "Qwen3, long texts": (40_960, yarn(4.0, 32_768), 131_072),
    "Qwen3-VL, long texts": (1_000_000, yarn(3.0, 256_000, mrope_section=[24, 20, 20]), 768_000),
    "DeepSeek-V3": (163_840, yarn(40, 4096, mscale=1.0, mscale_all_dim=1.0), 163_840),
    "gpt-oss": (131_072, yarn(32.0, 4096, truncate=False), 131_072),
    "Llama-3.1": (131_072, scaled("llama3", 8.0, original_max_position_embeddings=8192), 131_072),
    "Phi-4-mini": (
        131_072,
        {
            "original_max_position_embeddings": 4096,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]},
        },
        131_072,
    ),
    "vicuna-7b-v1.5-16k": (4096, {"rope_scaling": {"type": "linear", "factor": 4.0}}, 16_384),
    "internlm2": (32_768, scaled("dynamic", 2.0), 65_536),
    "Hunyuan": (32_768, scaled("dynamic", 1.0, alpha=1000.0), 32_768),
    "Qwen2-VL": (32_768, {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, 32_768),
    "Gemma 3": (131_072, {"model_type": "gemma3_text"} | scaled("linear", 8.0), 131_072),
}  # fmt: skip
SHAPES = {
    "yarn without original": (4096, yarn(4.0), 16_384),
    "yarn without factor": (16_384, yarn(None, 4096), 16_384),
    "linear with original": (16_384, scaled("linear", 4.0, original_max_position_embeddings=4096), 16_384),
    "dynamic with a fixed alpha": (4096, scaled("dynamic", 4.0, alpha=1000.0), 4096),
    "rope_parameters": (4096, {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}, 16_384),
    "a table for each kind of layer": (
        65_536,
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192},
                "sliding_attention": {"rope_type": "default"},
            }
        },
        65_536,
    ),
    "a factor of text": (4096, yarn("4.0"), 4096),
    "true as a factor": (4096, yarn(True), 4096),
    "an endless factor": (4096, yarn(float("inf")), 4096),
    "no table": (4096, {"rope_scaling": None}, 4096),
    "a list": (4096, {"rope_scaling": [4.0]}, 4096),
}


@pytest.mark.parametrize("inside", [False, True], ids=["", "text_config"])
@pytest.mark.parametrize("name", [*PUBLISHED, *SHAPES])
def test_the_window_of_a_config_json(name: str, inside: bool, tmp_path: Path) -> None:
    positions, more, window = (PUBLISHED | SHAPES)[name]
    config = {"max_position_embeddings": positions} | more
    (tmp_path / "config.json").write_text(json.dumps({"text_config": config} if inside else config))
    found = declared_window(tmp_path)
    assert found is not None
    assert (found.positions, found.tokens) == (positions, window)
    assert bool(found.note("m")) == (positions != window)


def header(
    path: Path, positions: int, kind: str = "", *, original: int = 0, architecture: str = "llama", **keys: float
) -> Path:
    """A GGUF file without tensors whose rope keys follow its vocabulary, as an editor of headers leaves them."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(positions)
    writer.add_token_list(["a", "b"])
    if kind:
        writer.add_string(f"{architecture}.rope.scaling.type", kind)
    for key, value in keys.items():
        writer.add_float32(f"{architecture}.rope.{key.replace('__', '.')}", value)
    if original:
        writer.add_rope_scaling_orig_ctx_len(original)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("positions", "keys", "window"),
    [
        (32_768, {"kind": "yarn", "scaling__factor": 4.0, "original": 32_768}, 131_072),
        (163_840, {"kind": "yarn", "scaling__factor": 40.0, "original": 4096}, 163_840),
        (4096, {"kind": "linear", "scaling__factor": 4.0}, 16_384),
        (4096, {"scaling__factor": 4.0}, 16_384),  # llama.cpp takes no type for linear
        (4096, {"scale_linear": 4.0}, 16_384),
        (4096, {"kind": "none", "scaling__factor": 4.0}, 4096),
        (131_072, {"kind": "longrope", "original": 4096}, 131_072),
        (131_072, {"kind": "linear", "scaling__factor": 8.0, "architecture": "gemma3"}, 131_072),
        (4096, {}, 4096),
    ],
)
def test_the_window_of_a_gguf_header(positions: int, keys: dict[str, Any], window: int, tmp_path: Path) -> None:
    found = declared_window(header(tmp_path / "m.gguf", positions, **keys))
    assert found is not None
    assert (found.positions, found.tokens) == (positions, window)


def test_a_window_that_does_not_follow_from_one_number_is_announced(tmp_path: Path) -> None:
    """As of Chinese-Alpaca-2-16k, whose number includes the factor, and vicuna-16k, whose number does not."""
    config = {"max_position_embeddings": 16_384} | scaled("linear", 4.0)
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = declared_window(tmp_path)
    assert found is not None
    note = found.note("alpaca")
    assert "alpaca" in note and "linear, factor 4" in note
    assert "65,536" in note and "context_window = 16384" in note
    config = {"max_position_embeddings": 40_960} | yarn(4.0, 32_768)
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = declared_window(tmp_path)
    assert found is not None
    assert "32,768 x 4 = 131,072" in found.note("qwen") and "40,960" in found.note("qwen")


@pytest.fixture(params=["yarn", "linear"])
def case(request: pytest.FixtureRequest, shared: Callable[[str], Path], tmp_path: Path) -> Path:
    pytest.importorskip("torch", reason="needs lbx[hf]")
    transformers = pytest.importorskip("transformers", reason="needs lbx[hf]")
    folder = shared("cases/yarn-in-config")
    tokenizer = make_tokenizer()
    config = json.loads((folder / f"config-{request.param}.json").read_text()) | {"vocab_size": len(tokenizer)}
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).save_pretrained(tmp_path / "m_yarn")
    tokenizer.save_pretrained(tmp_path / "m_yarn")
    (tmp_path / "m_yarn" / "config.json").write_text(json.dumps(config))
    for card in folder.glob("*.toml"):
        (tmp_path / card.name).write_text(card.read_text())
    return tmp_path


def test_transformers_gets_the_scaled_window(case: Path) -> None:
    backend = load(resolve_model(str(case / "m_yarn")))
    assert backend.info.context_window == backend.info.declared_context == 16_384
    assert any("4,096 x 4 = 16,384" in note for note in backend.info.notes)
    backend.close()
    backend = load(resolve_model(str(case / "yarn.toml")))
    assert backend.info.context_window == 16_384
    assert not any("16,384" in note for note in backend.info.notes), "the card names it"
    backend.close()
    with pytest.raises(BackendError, match="already scales its rotary embedding") as refused:
        load(resolve_model(str(case / "yarn2.toml")))
    assert "context_window" in refused.value.fix
    table = {"backend": "hf", "context_window": 16_385, "weights": {"path": str(case / "m_yarn")}}
    with pytest.raises(BackendError, match="16384 tokens; a context window of 16385"):
        load(parse_card(table, case / "card.toml"))


@pytest.mark.parametrize("options", [{}, {"rope_scaling": "linear", "rope_factor": 2.0}], ids=["file", "card"])
def test_a_model_loaded_only_to_count_tokens_has_the_scaled_window(options: dict[str, Any], case: Path) -> None:
    path = case / "m_yarn" / "config.json"
    config = json.loads(path.read_text())
    if options:
        path.write_text(json.dumps(config | {"rope_scaling": None}))
    card = parse_card({"backend": "hf", "weights": {"path": str(path.parent)}, "options": options}, case / "card.toml")
    backend = CountingBackend(load(with_small_cache(card)), card)
    assert backend.info.context_window == (8192 if options else 16_384)
    backend.close()


def test_the_list_of_models_has_the_scaled_window(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case)
    found = {one.name: one for one in list_models(None)}
    assert (found["yarn.toml"].context_window, found["yarn.toml"].problem) == (16_384, "")


def test_llama_cpp_gets_the_scaled_window(demo_gguf: Path, tmp_path: Path) -> None:
    pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
    from tests.gguf_copy import gguf_copy

    path = gguf_copy(demo_gguf, tmp_path / "m.gguf", added={"llama.rope.scaling.factor": 2.0})
    plain = declared_window(demo_gguf)
    assert plain is not None
    backend = load(resolve_model(str(path)))
    assert backend.info.context_window == backend.info.declared_context == 2 * plain.tokens
    assert any("linear, factor 2" in note for note in backend.info.notes)
    backend.close()
    table = {"backend": "llamacpp", "weights": {"path": str(path)}, "options": {"rope_scaling": "none"}}
    backend = load(parse_card(table, tmp_path / "card.toml"))
    assert backend.info.context_window == plain.tokens, "the card keeps the positions as they are"
    backend.close()
