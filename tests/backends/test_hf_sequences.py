"""The memories of transformers: kinds of model, growth, failures. Their contract: test_sequence_memory.py."""

from __future__ import annotations

import gc
import random
import signal
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

from lbx.backends.hf import decoder, kernel  # noqa: E402
from lbx.backends.hf.packing_probe import probe_model  # noqa: E402
from lbx.base.errors import BackendError  # noqa: E402
from lbx.engine.batching import DecodeBatch, complete, complete_all  # noqa: E402
from lbx.engine.model import SequenceExtension  # noqa: E402
from lbx.running.jobs import reason_not_shared  # noqa: E402
from tests.backends.memories import (  # noqa: E402
    FALCON_H1,
    FLOAT32,
    emptied,
    hf_subject,
    load_hf,
    prefill,
    questions,
    rows_alone,
    run_schedule,
    save_hf,
    tokens_of,
)

LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "original_max_position_embeddings": 256,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
PACKED = {
    "llama": ("LlamaConfig", {}),
    "llama-yarn": ("LlamaConfig", {"rope_parameters": YARN}),
    "llama-one-head": ("LlamaConfig", {"num_key_value_heads": 1}),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2},
    ),
    "phi3": ("Phi3Config", {"sliding_window": None}),
    "gemma": ("GemmaConfig", {"head_dim": 16}),
    "olmo": ("OlmoConfig", {}),
    "olmo2": ("Olmo2Config", {}),
    "gpt-neox": ("GPTNeoXConfig", {"num_key_value_heads": 4}),
    "gpt2": ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4}),
    "opt": ("OPTConfig", {"word_embed_proj_dim": 64, "ffn_dim": 96}),
    "granite": ("GraniteConfig", {}),
    "mistral-sliding": ("MistralConfig", {"sliding_window": 16}),
    "gemma2": ("Gemma2Config", {"head_dim": 16, "sliding_window": 16}),
    "gemma3": ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": 16}),
    "gpt-oss": (
        "GptOssConfig",
        {"head_dim": 16, "sliding_window": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "llama4": (
        "Llama4TextConfig",
        {
            "head_dim": 16, "attention_chunk_size": 16, "layer_types": ["chunked_attention", "full_attention"],
            "no_rope_layers": [1, 0], "floor_scale": 16, "num_local_experts": 4, "intermediate_size_mlp": 96,
        },
    ),
    "deepseek-v3": (
        "DeepseekV3Config",
        {
            "num_key_value_heads": 4, "kv_lora_rank": 32, "q_lora_rank": 24, "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16, "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1,
        },
    ),
}  # fmt: skip
STATES = {
    "mamba": ("MambaConfig", {"state_size": 8}),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
    "falcon-h1": FALCON_H1,
}
PHI3_LONG = {"sliding_window": None, "original_max_position_embeddings": 256, "rope_parameters": LONGROPE}


@pytest.fixture
def load_small(tiny_hf, tmp_path):
    """Loads a model in a small memory with small steps: (class, its configuration), or none for the tiny Llama."""
    backends = []

    def load(kind=None, **options):
        folder = save_hf(*kind, tiny_hf, tmp_path) if kind else tiny_hf  # type: ignore[call-arg]
        small = {"max_sequences": 8, "kv_cells": 700, "prefill_chunk": 64}
        backends.append(load_hf(folder, tmp_path, **small | options))
        return hf_subject(backends[-1])

    yield load
    for backend in backends:
        backend.close()


@pytest.fixture(scope="module")
def tiny(tiny_hf, tmp_path_factory):
    backend = load_hf(tiny_hf, tmp_path_factory.mktemp("cards"), max_sequences=8, kv_cells=700, prefill_chunk=64)
    yield hf_subject(backend)
    backend.close()


@pytest.fixture
def memory(tiny):
    return emptied(tiny.memory)


# --- bookkeeping


def test_scattered_cells_are_gathered(tiny, memory):
    """The first tokens are in front, the last after the cells of a dropped sequence."""
    head, tail = tokens_of(64, 1), tokens_of(15, 2)
    prefill(memory, 0, head)
    prefill(memory, 1, tokens_of(600))
    prefill(memory, 0, tail[:10])
    memory.drop(1)
    assert memory._table.mask_columns([0]).span is None
    tiny.check(prefill(memory, 0, tail[10:]), head + tail)
    memory.fork(0, 74, [3, 4])
    results = memory.extend([SequenceExtension(3, [50, 51], True), SequenceExtension(4, [60], True)])
    assert memory._table.mask_columns([3, 4]).span is None
    for logits, more in zip(results, ([50, 51], [60]), strict=True):
        tiny.check(logits, (head + tail)[:74] + more)


def test_the_store_grows_only_where_cells_are_used(tiny, memory):
    memory.release()
    prefill(memory, 0, tokens_of(200))
    capacity = memory._store.current_pass.capacity
    memory.fork(0, 200, range(1, 8))
    prefill(memory, 5, tokens_of(capacity - 200))
    assert memory.used_cells == memory._store.current_pass.capacity == capacity == 256
    assert memory._store.bytes == capacity * memory.cell_bytes
    memory.extend([SequenceExtension(n, [5], False) for n in range(3)])  # each begins a block of 64 cells
    assert memory._store.current_pass.capacity == 512
    assert memory._store.bytes == 512 * memory.cell_bytes
    memory.release()
    assert memory._store.bytes == 0


def test_a_released_store_is_free_at_once(memory):
    prefill(memory, 0, tokens_of(200))
    keys = weakref.ref(memory._store.cell_layers[0].keys)
    gc.disable()
    try:
        memory.release()
        assert keys() is None
    finally:
        gc.enable()


def test_too_little_memory_is_refused_before_the_store_grows(tiny, memory, monkeypatch):
    from lbx.backends.hf import sequence_memory

    memory.release()
    tokens = tokens_of(200)
    prefill(memory, 0, tokens)
    monkeypatch.setattr(sequence_memory, "available_memory", lambda: 1000)
    with pytest.raises(BackendError, match=r"needs 0.00 GB more to grow to \d+ tokens; 0.00 GB are free"):
        for _ in range(10):
            memory.extend([SequenceExtension(1, tokens[:60], False)])
    assert memory.length(0) == 200
    tiny.check(prefill(memory, 0, [5]), [*tokens, 5])


@pytest.mark.parametrize(
    ("kind", "failure"),
    [(None, KeyboardInterrupt), (None, RuntimeError), (None, MemoryError), (FALCON_H1, KeyboardInterrupt)],
)
def test_a_failure_in_the_middle_of_a_pass_drops_the_sequences_named(load_small, kind, failure, monkeypatch):
    subject = load_small(kind)
    memory, tokens, other = subject.memory, tokens_of(50), tokens_of(30, 1)
    prefill(memory, 0, tokens)
    memory.fork(0, 50, [1, 2, 4])
    prefill(memory, 3, other)
    memory.extend([SequenceExtension(n, [40 + n], True) for n in (1, 2, 4)])

    def fail(*_):
        raise failure("in the second layer")

    decode = kernel.Kernel.decode

    def fail_in_the_second_layer(self, arguments, dtype):
        decode(self, arguments, dtype) if arguments.layer_end == 1 else fail()

    monkeypatch.setattr(decoder, "_PRODUCTS_PER_CALL", 1)
    monkeypatch.setattr(kernel.Kernel, "decode", fail_in_the_second_layer)
    handle = subject.backend._model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(BackendError if failure is not KeyboardInterrupt else KeyboardInterrupt, match="second layer"):
        memory.extend([SequenceExtension(1, [5], True), SequenceExtension(2, [6], True)])
    handle.remove()
    monkeypatch.undo()
    assert [memory.length(n) for n in range(5)] == [50, 0, 0, 30, 51]
    assert memory.used_cells == 81
    assert subject.backend._model.config._attn_implementation == "sdpa"
    texts = {0: [*tokens, 5], 3: [*other, 6], 1: [7, 8], 4: [*tokens, 44, 9]}
    items = [SequenceExtension(n, text[memory.length(n) :], True) for n, text in texts.items()]
    for item, logits in zip(items, memory.extend(items), strict=True):
        subject.check(logits, texts[item.sequence])


def test_interruptions_anywhere_leave_the_sequences_that_were_not_named(tiny, memory):
    """A signal at any moment of a pass: named sequences are complete or dropped, all others are complete."""

    def stop(*_):
        raise KeyboardInterrupt

    rng, document, stopped = random.Random(17), tokens_of(80), 0
    prefill(memory, 0, document)
    handler = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(60):
            memory.fork(0, 80, [1, 2])
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.015))
                memory.extend([SequenceExtension(1, [5] * 20, True), SequenceExtension(2, [6] * 20, True)])
                memory.extend([SequenceExtension(1, [5], True), SequenceExtension(2, [6], True)])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                stopped += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert memory.length(0) == 80
            assert {memory.length(n) for n in (1, 2)} <= {0, 80, 100, 101}
            memory.drop(1)
            memory.drop(2)
            assert memory.used_cells == 80
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert stopped
    assert tiny.backend._model.config._attn_implementation == "sdpa"
    results = memory.extend([SequenceExtension(0, [5], True), SequenceExtension(1, [7, 8], True)])
    for logits, tokens in zip(results, ([*document, 5], [7, 8]), strict=True):
        tiny.check(logits, tokens)


# --- kinds of model


@pytest.mark.parametrize("kind", PACKED)
def test_kinds_that_are_packed(kind, load_small):
    subject = load_small(PACKED[kind])
    assert subject.memory.traits.forks_anywhere
    run_schedule(subject, seed=12, rounds=8)


@pytest.mark.parametrize("kind", STATES)
def test_kinds_with_states_that_grow_in_a_batch(kind, load_small):
    subject = load_small(STATES[kind])
    memory = subject.memory
    assert (memory.traits.forks_anywhere, memory.traits.trunks, memory.max_sequences) == (False, 8, 16)
    run_schedule(subject, seed=12, rounds=10)
    emptied(memory)
    prefill(memory, 0, [3] * 20)
    memory.fork(0, 20, range(1, 9))
    shapes = []
    hook = subject.backend._model.get_input_embeddings().register_forward_hook(
        lambda _, inputs, __: shapes.append(inputs[0].shape)
    )
    results = memory.extend([SequenceExtension(n, [40 + n], True) for n in range(1, 9)])
    hook.remove()
    assert shapes == [(8, 1)]
    for n, logits in enumerate(results, 1):
        subject.check(logits, [*[3] * 20, 40 + n])


def test_states_take_at_most_a_part_of_the_memory(tiny_hf, tmp_path, monkeypatch):
    from lbx.backends.hf import packing_probe

    folder = save_hf(*STATES["mamba"], tiny_hf, tmp_path)
    backend = load_hf(folder, tmp_path)
    backend.sequences()
    state = backend._packing.state_bytes
    prefill(backend._memory, 0, [3, 4])
    assert state == backend._memory.state_bytes
    # Of two layers: for each channel the last inputs of its convolution and eight numbers.
    config = backend._model.config
    assert state == 2 * config.intermediate_size * (config.conv_kernel + config.state_size) * 4
    assert backend._memory.max_sequences == 8 + 32
    backend.close()
    monkeypatch.setattr(packing_probe, "_STATES", 12 * state)
    monkeypatch.setattr(packing_probe, "_WEIGHTS_PART", 1 << 40)
    backend = load_hf(folder, tmp_path)
    assert backend.sequences().max_sequences == 8 + 4
    backend.close()


@pytest.mark.parametrize("kind", ["gemma3", "llama4"])
def test_layers_with_a_window_attend_to_it_only(kind, tiny_hf, tmp_path):
    backend = load_hf(save_hf(*PACKED[kind], tiny_hf, tmp_path), tmp_path, max_sequences=8, kv_cells=2000)
    memory = backend.sequences()
    prefill(memory, 0, tokens_of(1001))
    memory.fork(0, 1001, range(1, 6))
    attended = {}
    for _ in range(3):
        memory.extend([SequenceExtension(s, [20 + s], True) for s in range(1, 6)])
        for window, layout in memory._store.current_pass.layouts.items():
            attended[window] = sum(cell_count(part.cells) for _, parts in layout.to(memory._device) for part in parts)
    assert attended.pop(None) >= 1016 if kind == "llama4" else not attended.pop(None, None)
    ((window, cells_seen),) = attended.items()
    assert window.size == 16
    assert cells_seen <= 16 + 5 * 3
    backend.close()


def test_decoding_copies_no_shared_cells(memory):
    prefill(memory, 0, tokens_of(600))
    memory.fork(0, 600, range(1, 6))
    for step in range(3):
        memory.extend([SequenceExtension(s, [20 + s + step], True) for s in range(1, 6)])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as passes:
        memory.extend([SequenceExtension(s, [30 + s], True) for s in range(1, 6)])
    copied = [event.input_shapes[0] for event in passes.events() if event.name in ("aten::clone", "aten::copy_")]
    assert copied
    assert not [shape for shape in copied if 600 <= max(shape, default=0) <= memory.max_cells]


def test_sequences_that_grow_together_keep_adjacent_cells(tiny, memory):
    """The kernel reads cells of one sequence from one place, and the answers are the same."""
    document = tokens_of(150)
    prefill(memory, 0, document)
    memory.fork(0, 150, range(1, 4))
    answers = [tokens_of(20, seed) for seed in range(1, 4)]
    for at in range(20):
        results = memory.extend([SequenceExtension(s, answers[s - 1][at : at + 1], True) for s in (1, 2, 3)])
    for s, logits in zip((1, 2, 3), results, strict=True):
        own = np.flatnonzero(memory._table.owners[s] & (memory._table.positions >= 150))
        assert (np.diff(own) == 1).all() and len(own) == 20
        tiny.check(logits, document + answers[s - 1])


def cell_count(index) -> int:
    return index.stop - index.start if isinstance(index, slice) else index.numel()


def test_a_model_whose_sequences_go_in_one_row_is_tried_in_five_passes(tiny_hf, tmp_path):
    """Each reads all weights, before the first question is asked."""
    passes = []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, _, __: passes.append(1) if isinstance(module, torch.nn.Embedding) else None
    )
    try:
        backend = load_hf(tiny_hf, tmp_path)
        backend.sequences()
    finally:
        hook.remove()
    assert len(passes) == 5
    assert backend.sequences().traits.forks_anywhere
    backend.close()


@pytest.mark.parametrize("window", [16, 4096])
def test_a_window_that_is_computed_wrongly_is_found_out(window, tiny_hf, tmp_path, monkeypatch):
    """Longer than the trial's prompts, too."""
    from lbx.engine.cell_table import AttentionWindow

    monkeypatch.setattr(AttentionWindow, "first", lambda self, positions: positions * 0)
    backend = load_hf(save_hf("MistralConfig", {"sliding_window": window}, tiny_hf, tmp_path), tmp_path)
    assert not backend.sequences().traits.forks_anywhere
    assert "differ from single ones" in backend._packing.reason
    assert backend._model.config.sliding_window == window
    backend.close()


def test_dynamic_embeddings_are_asked_one_at_a_time(tiny_hf, tmp_path):
    backend = load_hf(save_hf("LlamaConfig", {"rope_parameters": DYNAMIC}, tiny_hf, tmp_path), tmp_path)
    reason = backend.sequences().traits.single_reason
    assert "dynamic" in reason
    assert reason_not_shared(backend, batching=True) == reason
    assert reason_not_shared(backend, batching=False) is None
    requests = questions(tokens_of(500), 4, 6)
    alone = [complete(backend, request) for request in requests]
    for batching in (False, True):
        found = dict(complete_all(backend, requests, batching=batching))
        assert [found[n].output_ids for n in range(4)] == [one.output_ids for one in alone]
        assert {one.cached_tokens for one in found.values()} == {0}
    backend.close()


def test_longrope_shares_among_long_prompts_and_among_short_ones(tiny_hf, tmp_path):
    """All of a long prompt is turned by other factors than a short one, what both begin with, too."""
    backend = load_hf(save_hf("Phi3Config", PHI3_LONG, tiny_hf, tmp_path), tmp_path)
    document = tokens_of(300, 4)
    short = questions(document[:150], 3, 6)
    requests = [*short, *questions(document, 3, 6), *questions(document[:260], 2, 6)]
    batch = DecodeBatch(backend.sequences(), requests, backend.tokenizer, backend.eos_ids)
    found = dict(batch.run())
    for number, request in enumerate(requests):
        tokens = list(request.token_ids)
        for token in found[number].output_ids:
            row = rows_alone(backend, tokens)[-1]
            assert float(row.max() - row[token]) / np.ptp(row) < FLOAT32
            tokens.append(token)
    kept = [found[number].cached_tokens for number in range(len(requests))]
    assert sorted(kept) == [0, 0, 150, 150, 260, 260, 300, 300]
    assert sum(kept) == sum(map(len, (request.token_ids for request in requests))) - batch.prompt_tokens
    backend.close()


@pytest.mark.parametrize("sizes", [(256, 1, 1), (250, 20, 1), (100, 156, 1, 2)])
def test_a_longrope_sequence_that_outgrows_the_short_factors_is_computed_again(sizes, tiny_hf, tmp_path):
    backend = load_hf(save_hf("Phi3Config", PHI3_LONG, tiny_hf, tmp_path), tmp_path)
    subject, tokens, held = hf_subject(backend), tokens_of(300), sizes[0]
    memory = subject.memory
    prefill(memory, 0, tokens[:held])
    memory.fork(0, held, [1])
    for size in sizes[1:]:
        logits = prefill(memory, 1, tokens[held : held + size])
        held += size
        subject.check(logits, tokens[:held])
        assert memory.length(1) == held > sizes[0] == memory.length(0)
    assert held > 256
    subject.check(prefill(memory, 0, [7]), [*tokens[: sizes[0]], 7])
    backend.close()


@pytest.mark.parametrize("lost", ["mask", "positions"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_would_be_wrong_in_silence_is_found_out(lost, dtype, tiny_hf, tmp_path):
    """Code that ignores what it is given, as a model that knows no packing does."""
    backend = load_hf(tiny_hf, tmp_path, dtype=dtype, attention="eager")  # "sdpa" is computed without a mask
    inner = backend._model.model
    whole = inner.forward

    def deaf(*args, attention_mask=None, position_ids=None, **rest):
        given = {"attention_mask": attention_mask, "position_ids": position_ids}
        given["attention_mask" if lost == "mask" else "position_ids"] = None
        return whole(*args, **given, **rest)

    inner.forward = deaf
    backend._packing = probe_model(backend._model, "deaf").packing
    assert not backend.sequences().traits.forks_anywhere, "copies need neither"
    assert "differ from single ones" in backend._packing.reason
    backend.close()
