"""Distributions of two models by position in long texts."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbx.backends import Backend, load, read_card
from lbx.base.errors import BackendError, UsageError
from lbx.engine.model import TextBackend
from lbx.report.rows.depth_parity import summarise_by_bin
from lbx.results import Store
from lbx.running.depth import Depth, DepthText, compare_by_depth
from lbx.running.distributions import AUDIT_STEP
from tests.parity.test_distributions import divergences, log_probs
from tests.parity.test_measuring import F32, card
from tests.running.engine_parts import scripted

Load = Callable[[], Backend]


def text(words: int, seed: int = 0, **limits: int) -> DepthText:
    chosen = random.Random(seed).choices(["one", "two", "the river", "Paris", "is", "of a", "7", ".\n"], k=words)
    return DepthText(f"text {seed}", " ".join(chosen), **limits)


@pytest.fixture
def hf(tiny: Path, tmp_path: Path) -> Path:
    return card(tmp_path, "hf", tiny / "hf", 'dtype = "float32"\n')


@pytest.fixture
def gguf(tiny: Path, tmp_path: Path) -> Path:
    return card(tmp_path, "llamacpp", tiny / "tiny.gguf", F32)


def loads(path: Path) -> Load:
    return lambda: load(read_card(path))


def compared(texts: Sequence[DepthText], folder: Path, first: Path, *others: Path, chunk: int = 0) -> Depth:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return compare_by_depth(texts, loads(first), [loads(one) for one in others], folder=work, chunk=chunk)


def full_logits(path: Path, tokens: Sequence[int]) -> np.ndarray:
    """Of one pass of transformers over the whole text, without a cache."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0].double().numpy()


def changed(source: Path, to: Path, change: Callable[[Any], None]) -> Path:
    """The model of a folder after a change of its weights or config."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    with torch.no_grad():
        change(model)
    model.save_pretrained(to)
    AutoTokenizer.from_pretrained(source).save_pretrained(to)
    return to


def add_noise(model: Any) -> None:
    import torch

    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.add_(0.02 * torch.randn_like(parameter))


@pytest.fixture
def noisy(tiny: Path, tmp_path: Path) -> Path:
    """The tiny model with slightly different weights."""
    return changed(tiny / "hf", tmp_path / "noisy", add_noise)


def test_the_numbers_are_those_of_a_plain_loop(tiny: Path, hf: Path, noisy: Path, tmp_path: Path) -> None:
    texts = [text(700, max_tokens=1500), text(900, 1, max_tokens=1500)]
    other = card(tmp_path, "hf", noisy, 'dtype = "float32"\n')
    found = compared(texts, tmp_path, hf, other)
    ((_, bins, _),) = found.pairs
    backend = load(read_card(hf))
    for one in texts:
        tokens = one.token_ids(backend)[: one.max_tokens]
        first, second = full_logits(tiny / "hf", tokens), full_logits(noisy, tokens)
        kl, count = divergences(first, second)[:-1], len(tokens) - 1
        at = np.arange(count)
        for got in (item for item in bins if item.text == one.name):
            part = slice(got.start, min(got.stop, count))
            assert got.positions == len(kl[part])
            assert got.kl == pytest.approx(kl[part].mean(), abs=1e-4)
            assert got.kl_p99 == pytest.approx(np.quantile(kl[part], 0.99), rel=1e-3)
            assert got.kl_max == pytest.approx(kl[part].max(), rel=1e-3)
            same = first[:-1].argmax(axis=1) == second[:-1].argmax(axis=1)
            assert got.same_top == pytest.approx(same[part].mean(), abs=2 / got.positions)
            for logits, mean in ((first, got.reference_log_prob), (second, got.log_prob)):
                assert mean == pytest.approx(log_probs(logits)[at, tokens[1:]][part].mean(), abs=1e-5)
    assert sum(item.audited_positions for item in bins) == 2 * -(-1500 // AUDIT_STEP)
    backend.close()
    assert max(item.kl_error_max or 0 for item in bins) < 1e-4
    assert all(item.seconds > 0 and item.reference_seconds > 0 for item in bins)


@pytest.mark.parametrize("options", ["", F32, "flash_attention = true\n", "flash_attention = false\n"])
def test_small_passes_and_whole_windows_on_llama(options: str, tiny: Path, tmp_path: Path) -> None:
    backend = load(read_card(card(tmp_path, "llamacpp", tiny / "tiny.gguf", options)))
    assert isinstance(backend, TextBackend)
    window = backend.info.context_window
    tokens = (text(window, 5).token_ids(backend))[:window]
    assert len(tokens) == window

    def logits(count: int, chunk: int) -> np.ndarray:
        return np.concatenate([part.copy() for part in backend.text_logits(tokens[:count], chunk)])

    usual = logits(window, 128)
    for count, chunk in ((window, 100), (window - 8, 32), (500, 3)):
        assert np.array_equal(logits(count, chunk), usual[:count])
    backend.close()


@pytest.mark.parametrize("backend", ["hf", "gguf"])
def test_chunks_threads_and_order_change_nothing(
    backend: str, hf: Path, gguf: Path, noisy: Path, tmp_path: Path
) -> None:
    first = {"hf": hf, "gguf": gguf}[backend]
    other = card(tmp_path, "hf", noisy, 'dtype = "float32"\n')
    texts = [text(700), text(650, 1)]
    usual = compared(texts, tmp_path, first, other)
    single = [shutil.copy(path, tmp_path / f"single-{number}.toml") for number, path in enumerate((first, other))]
    for path in single:
        path.write_text(path.read_text("utf-8") + "threads = 1\n", "utf-8")
    for chunk, paths in ((64, (first, other)), (256, single)):
        for got, item in zip(
            compared(texts[::-1], tmp_path, *paths, chunk=chunk).pairs[0].bins,
            sorted(usual.pairs[0].bins, key=lambda item: -int(item.text[-1])),
            strict=True,
        ):
            assert (got.text, got.start, got.positions) == (item.text, item.start, item.positions)
            assert got.same_top == item.same_top
            for name in ("kl", "kl_p99", "kl_max", "log_prob", "reference_log_prob"):
                assert getattr(got, name) == pytest.approx(getattr(item, name), rel=1e-5)


def test_two_formats_of_the_same_weights(hf: Path, gguf: Path, tmp_path: Path) -> None:
    (pair,) = compared([text(900)], tmp_path, hf, gguf).pairs
    row, *_ = summarise_by_bin(pair.bins)
    assert row["kl"] < 1e-5 and row["kl_p99"] < 1e-4 and row["same_top"] > 0.99
    assert row["perplexity_ratio"] == pytest.approx(1, abs=1e-4)
    assert (row["kl_low"], row["same_top_low"], row["perplexity_ratio_low"]) == (None, None, None)


def test_a_rotary_base_that_is_off_by_one_percent_shows_with_depth(tiny: Path, gguf: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    base = card(wrong, "llamacpp", tiny / "tiny.gguf", F32 + "rope_freq_base = 10100.0\n")
    found = compared([text(1900, seed, max_tokens=2048) for seed in range(6)], tmp_path, gguf, base)
    early, late = summarise_by_bin(found.pairs[0].bins)
    assert (early["start"], late["start"], early["texts"], late["texts"]) == (0, 1024, 6, 6)
    assert late["kl_low"] is not None and early["kl_high"] is not None
    assert late["kl"] > early["kl"] > 0


def test_a_window_that_cuts_the_text_shows_after_it(tiny: Path, tmp_path: Path) -> None:
    cards = []
    for name, window in (("whole", None), ("window", 1024)):
        folder = shutil.copytree(tiny / "hf", tmp_path / name)
        config = json.loads((folder / "config.json").read_text("utf-8"))
        config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": window}
        (folder / "config.json").write_text(json.dumps(config), "utf-8")
        cards.append(card(tmp_path, "hf", folder, 'dtype = "float32"\n'))
    found = compared([text(1900, max_tokens=2048)], tmp_path, *cards)
    early, late = summarise_by_bin(found.pairs[0].bins)
    assert early["kl"] < 1e-5 and early["same_top"] > 0.99
    assert late["kl"] > 1e-3 and late["kl"] > 100 * early["kl"]


def test_a_missing_head_shows_everywhere(tiny: Path, hf: Path, tmp_path: Path) -> None:
    def remove_head(model: Any) -> None:
        attention = model.model.layers[1].self_attn
        attention.o_proj.weight[:, : attention.head_dim] = 0

    without = card(tmp_path, "hf", changed(tiny / "hf", tmp_path / "without", remove_head), 'dtype = "float32"\n')
    found = compared([text(1900, max_tokens=2048)], tmp_path, hf, without)
    early, late = summarise_by_bin(found.pairs[0].bins)
    assert early["kl"] > 1e-3 and late["kl"] > 1e-3
    assert 0.2 < late["kl"] / early["kl"] < 5


def test_a_text_counts_in_the_bins_that_it_covers(gguf: Path, tmp_path: Path) -> None:
    texts = [text(1900, max_tokens=tokens) for tokens in (400, 800, 1400, 1600)]
    (pair,) = compared(texts, tmp_path, gguf, gguf).pairs
    assert [(row["start"], row["texts"], row["positions"]) for row in summarise_by_bin(pair.bins)] == [
        (0, 3, 799 + 1024 + 1024),
        (1024, 1, 1599 - 1024),
    ]


def test_types_of_keys_and_values_are_compared(demo_gguf: Path, tmp_path: Path) -> None:
    cards = []
    for name in ("f32", "f16", "q8_0"):
        folder = tmp_path / name
        folder.mkdir()
        types = f'cache_type_k = "{name}"\ncache_type_v = "{name}"\nflash_attention = true\n'
        cards.append(card(folder, "llamacpp", demo_gguf, types))
    found = compared([text(900, max_tokens=1024)], tmp_path, *cards)
    kl = [summarise_by_bin(pair.bins)[0]["kl"] for pair in found.pairs]
    assert 0 <= kl[0] < kl[1]
    first, second = (pair.row.kv_bytes_per_token for pair in found.pairs)
    assert first and second and first > second


def test_what_cannot_be_compared_is_refused(hf: Path, gguf: Path, demo_gguf: Path, tmp_path: Path) -> None:
    stranger = card(tmp_path, "llamacpp", demo_gguf, F32)
    with pytest.raises(UsageError, match="different token ids"):
        compared([text(700)], tmp_path, gguf, stranger)
    with pytest.raises(UsageError, match="less than half of the first bin"):
        compared([text(20)], tmp_path, gguf, gguf)
    with pytest.raises(UsageError, match="more than the context window"):
        compared([text(3000, max_tokens=3000)], tmp_path, gguf, gguf)
    scripted(tmp_path / "scripted", {"key": "answer"})
    card_path = tmp_path / "scripted" / "model.toml"
    with pytest.raises(UsageError, match="cannot be the reference"):
        compared([text(2000)], tmp_path, card_path, gguf)
    with pytest.raises(UsageError, match="different token ids"):
        compared([text(2000)], tmp_path, gguf, card_path)


@pytest.mark.parametrize("known", [0, 1])
def test_every_candidate_is_checked_before_the_reference_reads(
    gguf: Path, demo_gguf: Path, tmp_path: Path, known: int
) -> None:
    folder, read = tmp_path / "work", []
    texts, stranger = [text(700, at) for at in range(known + 1)], card(tmp_path, "llamacpp", demo_gguf, F32)
    with Store(tmp_path / "r.duckdb") as store:
        if known:
            compare_by_depth(
                texts[:1], loads(gguf), [loads(gguf)], folder=folder, open_store=lambda: nullcontext(store)
            )
        with pytest.raises(UsageError, match="different token ids"):
            compare_by_depth(
                texts,
                loads(gguf),
                [loads(gguf), loads(stranger)],
                folder=folder,
                open_store=lambda: nullcontext(store),
                progress=lambda *seen: read.append(seen),
            )
    assert not read


def test_a_candidate_without_probabilities_is_refused_at_once(tmp_path: Path) -> None:
    """The reference has the tokenizer of bytes, too, but returns logits."""
    scripted(tmp_path, {"key": "answer"})
    load_scripted = loads(tmp_path / "model.toml")

    class _Reading(type(load_scripted())):  # type: ignore[misc]
        def text_logits(self, tokens: Sequence[int], chunk: int = 0) -> Any:
            assert len(tokens) == 2, "the reference was read"
            yield np.zeros((2, 256), np.float32)

    def load_reference() -> Backend:
        backend = load_scripted()
        backend.__class__ = _Reading
        return backend

    with pytest.raises(UsageError, match="does not return"):
        compare_by_depth([text(700)], load_reference, [load_scripted], folder=tmp_path / "work")


def test_a_model_of_whole_texts_is_refused_at_once(hf: Path, tiny: Path, tmp_path: Path) -> None:
    read: list[object] = []
    whole = loads(hf)()
    whole._chunk = 0  # type: ignore[attr-defined]  # as for models that transformers computes only in one pass
    with pytest.raises(BackendError, match="only as a whole"):
        compare_by_depth(
            [text(700)], loads(hf), [lambda: whole], folder=tmp_path, progress=lambda *seen: read.append(seen)
        )
    assert not read


def test_little_more_of_a_text_is_encoded_than_is_read(gguf: Path) -> None:
    backend = load(read_card(gguf))
    short, long = text(5000), text(400_000)
    encode, lengths = backend.tokenizer.encode, list[int]()

    def counted(part: str, **options: Any) -> list[int]:
        lengths.append(len(part))
        return encode(part, **options)

    whole = short.token_ids(backend)
    backend.tokenizer.encode = counted  # type: ignore[method-assign]
    assert [short.token_ids(backend, limit) for limit in (1, 1000, 3000)] == [whole[:n] for n in (1, 1000, 3000)]
    assert short.token_ids(backend, 10**6) == whole
    long.token_ids(backend, 1000)
    assert max(lengths[4:]) < 40_000
    backend.close()


def test_a_bin_is_covered_by_half_of_its_tokens(gguf: Path, tmp_path: Path) -> None:
    noisy = card(tmp_path, "llamacpp", read_card(gguf).weights.path, F32)  # type: ignore[arg-type]
    found = compared([text(1400, max_tokens=1536)], tmp_path, gguf, noisy)
    assert [row["start"] for row in summarise_by_bin(found.pairs[0].bins)] == [0, 1024]
