"""Beginnings of prompts, computed with flash attention in a context of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.backends.llama.flash import BULK
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete_all
from lbx.engine.model import BulkExtension, SequenceExtension, bulk_tokens
from lbx.engine.prefix import plan_prefixes
from lbx.running.parity import forced_logits
from tests.backends.memories import FLOAT16_KEYS, difference, emptied, load_llama, tokens_of

pytest.importorskip("llama_cpp", reason="needs lbx[llama]")


@pytest.fixture(scope="module")
def exact(tiny_gguf):
    backend = load_llama(tiny_gguf, 2048, kv_cells=6000, max_sequences=12, batch_invariant=True)
    yield backend
    backend.close()


def in_bulk(memory, sequence: int, tokens, step: int = BULK) -> None:
    for at in range(0, len(tokens), step):
        memory.extend([BulkExtension(sequence, tokens[at : at + step], False)])


def logits_of(memory, sequence: int, tokens) -> np.ndarray:
    (logits,) = memory.extend([SequenceExtension(sequence, tokens, True)])
    assert logits is not None
    return logits


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), min_size=1, max_size=9), st.integers(1, 5))
def test_prompts_share_only_what_both_compute_in_bulk_or_neither(prompts, bulk):
    """Every token of a prompt is computed as in that prompt alone, whichever prompts the trunk was computed for."""
    plan = plan_prefixes(prompts, bulk=bulk)
    trunk: list[bool] = []
    for branch in plan.branches:
        alone = [place < bulk_tokens(branch.length, bulk) for place in range(branch.length)]
        assert trunk[: branch.reused_tokens] == alone[: branch.reused_tokens]
        trunk = alone[: branch.fork_at]
    assert all(branch.fork_at <= branch.length - 1 for branch in plan.branches)
    assert plan.branches == plan_prefixes(prompts).branches or any(len(prompt) > bulk for prompt in prompts)


def test_the_last_token_is_never_in_bulk():
    assert [bulk_tokens(n, 256) for n in (1, 256, 257, 512, 513)] == [0, 0, 256, 256, 512]
    assert bulk_tokens(1000, 0) == 0


@pytest.mark.parametrize("steps", [(256, 256, 256), (64, 200, 1), (63, 5, 256), (100, 33, 77)])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_numbers_do_not_depend_on_passes_neighbours_threads_or_the_cache(tiny_gguf, exact, steps, threads):
    """Three prompts with a common beginning, one after the other in one memory and each alone in another one."""
    beginning = tokens_of(512)
    texts = [beginning + tokens_of(256, 1), tokens_of(768, 2), beginning + tokens_of(256, 3)]
    alone = []
    for text in texts:
        memory = emptied(exact.sequences())
        in_bulk(memory, 0, text)
        alone.append(logits_of(memory, 0, [7]))
    backend = load_llama(
        tiny_gguf, 2048, kv_cells=3000, max_sequences=6, batch_invariant=True, threads=threads, prefill_chunk=512
    )
    memory = backend.sequences()
    logits_of(memory, 5, tokens_of(40, 9))
    for number, (text, step) in enumerate(zip(texts, steps, strict=True)):
        if number == 2:
            memory.fork(0, 512, [2])
        start = memory.length(number)
        in_bulk(memory, number, text[start : start + 128], step)
        memory.extend(
            [BulkExtension(number % 2 + 3, tokens_of(70, number), False), SequenceExtension(5, [number], True)]
        )
        in_bulk(memory, number, text[start + 128 :], step)
    rows = memory.extend([SequenceExtension(number, [7], True) for number in range(3)])
    assert all(map(np.array_equal, rows, alone))
    backend.close()


@pytest.mark.parametrize("batching", [True, False])
def test_answers_have_the_same_logits_together_as_alone(exact, batching):
    """Questions of lengths that end before and after a multiple of the bulk."""
    document, other = tokens_of(700), tokens_of(300, 50)
    prompts = [document + tokens_of(length, length) for length in (5, 40, 67, 68, 69, 70, 300, 600)]
    prompts += [other + tokens_of(length, length) for length in (1, 9, 230)] + [other[:100], other[:257]]
    seen: list[bytes] = []

    def answer(asked) -> list[str]:
        requests = [
            Request(SampleKey("a", "b", str(n)), tuple(ids), max_new_tokens=6, min_new_tokens=6)
            for n, ids in enumerate(asked)
        ]
        watch = lambda _position, logits, _token: seen.append(logits.tobytes())  # noqa: E731
        return [said.text for _, said in sorted(complete_all(exact, requests, batching=batching, watch=watch))]

    alone = [text for prompt in prompts for text in answer([prompt])]
    apart, seen = seen, []
    assert answer(prompts) == alone
    assert sorted(seen) == sorted(apart)


def test_flash_attention_rounds_as_little_as_attention_without_it(tiny_gguf, exact):
    plain = load_llama(tiny_gguf, 2048, flash_attention=False)
    assert (plain.info.settings["flash_attention"], exact.info.settings["flash_attention"]) == (False, "prompts")
    assert (plain.sequences().traits.bulk, exact.sequences().traits.bulk) == (0, BULK)
    text = tokens_of(1500)
    for ours, theirs in itertools.zip_longest(forced_logits(exact, text, [5, 6]), forced_logits(plain, text, [5, 6])):
        assert 0 < difference(ours, theirs) <= FLOAT16_KEYS
    plain.close()


@pytest.mark.parametrize(
    "options",
    [
        {"flash_attention": True},
        {"cache_type_k": "q8_0"},
        {"cache_type_k": "bf16", "cache_type_v": "bf16"},
        {"cache_type_k": "f32"},
        {"cache_type_k": "f32", "cache_type_v": "f32"},  # flash attention would round it to F16
    ],
)
def test_caches_in_other_formats_than_f16_have_no_second_context(tiny_gguf, options):
    backend = load_llama(tiny_gguf, 512, **options)
    assert backend.sequences().traits.bulk == 0
    assert backend.info.settings["flash_attention"] == options.get("flash_attention", False)
    backend.close()


def test_models_with_sliding_windows_have_no_second_context(sliding_gguf):
    backend = load_llama(sliding_gguf, 512)
    assert backend.sequences().traits.bulk == 0
    backend.close()


def test_a_failure_in_bulk_drops_every_sequence(exact):
    memory = emptied(exact.sequences())
    in_bulk(memory, 0, tokens_of(256))
    with pytest.raises(Exception, match="code -1"):
        memory.extend([BulkExtension(0, [10**6] * 64, False)])
    assert memory.length(0) == memory.used_cells == 0
    text = tokens_of(300, 4)
    in_bulk(memory, 1, text)
    assert np.isfinite(logits_of(memory, 1, [3])).all()
