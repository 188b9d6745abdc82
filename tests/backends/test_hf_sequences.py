"""Many sequences of a Hugging Face model in one pass: the numbers are those of each sequence computed alone."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

import torch

from lbx.backends import load, resolve_model
from lbx.backends.hf.check import try_out
from lbx.backends.hf.options import HfOptions
from lbx.base.errors import BackendError, UsageError
from lbx.base.records import Request, SampleKey
from lbx.inference.batching import DecodeBatch
from lbx.inference.completing import complete, complete_all
from lbx.inference.decoding import Decoding
from lbx.inference.model import NO_FOREIGN_CELLS, Extend
from lbx.planning.work import not_shared

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"

# Largest |packed - single| as a part of the single logits' range. Measured on the tiny models here: 2e-6 in float32,
# 7e-3 in bfloat16 (the shapes of matrix products differ, and with them the order of their sums).
FLOAT32, BFLOAT16 = 2e-5, 0.05


def loaded(folder: Path, tmp_path: Path, **options):
    """The model with these options in its card; a small memory is a small window's."""
    card = tmp_path / "card.toml"
    window = min(2048, options.get("kv_cells") or 2048)
    lines = [f"{name} = {value!r}" for name, value in options.items()]
    head = f'backend = "hf"\ncontext_window = {window}\n\n[weights]\npath = "{folder}"\n\n[options]\n'
    card.write_text(head + "\n".join(lines) + "\n", "utf-8")
    return load(resolve_model(str(card)))


@pytest.fixture(scope="module")
def backend(tiny_hf, tmp_path_factory):
    """Small steps and a small memory, so that a test reaches their ends."""
    backend = loaded(
        tiny_hf, tmp_path_factory.mktemp("cards"), max_sequences=8, kv_cells=700, prefill_chunk=64, threads=2
    )
    yield backend
    backend.close()


@pytest.fixture
def memory(backend):
    memory = backend.sequences()
    yield memory
    for sequence in range(memory.max_sequences):
        memory.drop(sequence)
    assert memory.used_cells == 0


def tokens_of(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(10, 300) for _ in range(count)]


def alone(backend, tokens):
    """Logits after the tokens, by the path of one sequence on a cache of its own."""
    import torch
    from transformers import DynamicCache

    with torch.inference_mode():
        out = backend._model(
            input_ids=torch.tensor([list(tokens)]), past_key_values=DynamicCache(config=backend._model.config)
        )
    return out.logits[0, -1].float().numpy()


def apart(ours, theirs) -> float:
    return float(np.abs(ours - theirs).max() / np.ptp(theirs))


def fill(memory, sequence: int, tokens) -> np.ndarray:
    """Extend in as many passes as it takes; the last logits."""
    out = None
    for at in range(0, len(tokens), memory.max_step):
        piece = tokens[at : at + memory.max_step]
        (out,) = memory.extend([Extend(sequence, piece, at + memory.max_step >= len(tokens))])
    return out


# --- numbers


def wander(backend, memory, seed: int, rounds: int, tolerance: float) -> float:
    """A random schedule of fork, extend and drop; the largest difference from each sequence alone."""
    rng, told, worst = random.Random(seed), {}, 0.0
    for _ in range(rounds):
        for sequence in rng.sample(sorted(told), len(told) // 3):
            memory.drop(sequence)
            del told[sequence]
        if told and rng.random() < 0.6:
            source = rng.choice(sorted(told))
            length = rng.randint(0, len(told[source])) if memory.traits.forks_anywhere else len(told[source])
            targets = rng.sample([s for s in range(memory.max_sequences) if s != source], rng.randint(1, 4))
            memory.fork(source, length, targets)
            for target in targets:
                told[target] = told[source][:length]
                if not length:
                    del told[target]
        chosen = rng.sample(range(memory.max_sequences), rng.randint(1, 5))
        items = [Extend(s, tokens_of(rng, rng.choice([1, 1, 2, 12])), rng.random() < 0.8) for s in chosen]
        for item, logits in zip(items, memory.extend(items), strict=True):
            told[item.sequence] = [*told.get(item.sequence, []), *item.tokens]
            assert (logits is not None) == item.wants_logits
            if logits is not None:
                expected = alone(backend, told[item.sequence])
                worst = max(worst, apart(logits, expected))
                assert worst < tolerance
                if tolerance == FLOAT32:
                    assert np.argmax(logits) == np.argmax(expected)
        assert [memory.length(s) for s in range(memory.max_sequences)] == [
            len(told.get(s, [])) for s in range(memory.max_sequences)
        ]
        prefixes = {tuple(tokens[:n]) for tokens in told.values() for n in range(1, len(tokens) + 1)}
        assert len(prefixes) <= memory.used_cells <= sum(map(len, told.values()))
    return worst


@pytest.mark.parametrize("seed", range(4))
def test_any_schedule_gives_the_logits_of_each_sequence_alone(backend, memory, seed):
    print(f"float32, largest difference: {wander(backend, memory, seed, 25, FLOAT32):.1e} of the range")


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [({"attention": "eager"}, FLOAT32), ({"dtype": "bfloat16"}, BFLOAT16)],
    ids=["eager", "bfloat16"],
)
def test_other_arithmetic_too(tiny_hf, tmp_path, options, tolerance):
    backend = loaded(tiny_hf, tmp_path, max_sequences=8, kv_cells=700, prefill_chunk=64, **options)
    memory = backend.sequences()
    print(f"{options}, largest difference: {wander(backend, memory, 9, 20, tolerance):.1e} of the range")
    assert backend._model.config._attn_implementation == backend.info.settings["attention"]
    backend.close()


def test_scattered_cells_are_gathered(backend, memory):
    """The first tokens lie in front, the last behind what another sequence has left, far apart."""
    rng = random.Random(8)
    head, tail = tokens_of(rng, 20), tokens_of(rng, 15)
    fill(memory, 0, head)
    fill(memory, 1, tokens_of(rng, 600))
    fill(memory, 0, tail[:10])
    memory.drop(1)
    columns = memory._table.columns([0])
    assert columns.span is None
    assert apart(fill(memory, 0, tail[10:]), alone(backend, head + tail)) < FLOAT32
    memory.fork(0, 30, [3, 4])
    ours = memory.extend([Extend(3, [50, 51], True), Extend(4, [60], True)])
    assert memory._table.columns([3, 4]).span is None
    for logits, more in zip(ours, ([50, 51], [60]), strict=True):
        assert apart(logits, alone(backend, (head + tail)[:30] + more)) < FLOAT32


def test_logits_are_copies(memory):
    (first,) = memory.extend([Extend(0, [20, 21], True)])
    kept = first.copy()
    first += 1
    (again,) = memory.extend([Extend(1, [20, 21], True)])
    assert np.array_equal(again, kept)
    assert again.base is None


# --- bookkeeping


def test_a_full_memory_is_refused_and_nothing_has_changed(backend, memory):
    assert (memory.max_cells, memory.max_sequences, memory.max_step) == (700, 8, 64)
    tokens = tokens_of(random.Random(1), 690)
    fill(memory, 0, tokens)
    memory.fork(0, 690, [1])
    with pytest.raises(BackendError, match=r"is full: 12 more tokens are needed, and 10 of its 700 cells are free"):
        memory.extend([Extend(0, [5] * 6, True), Extend(1, [6] * 6, True)])
    assert (memory.length(0), memory.length(1), memory.used_cells) == (690, 690, 690)
    ours = memory.extend([Extend(0, [5] * 5, True), Extend(1, [6] * 5, True)])
    assert memory.used_cells == 700
    assert apart(ours[0], alone(backend, [*tokens, *[5] * 5])) < FLOAT32
    assert apart(ours[1], alone(backend, [*tokens, *[6] * 5])) < FLOAT32
    with pytest.raises(BackendError, match="is full"):
        memory.extend([Extend(0, [5], True)])


def test_cells_are_free_when_no_sequence_shares_them_and_then_taken_again(memory):
    fill(memory, 0, tokens_of(random.Random(2), 60))
    memory.fork(0, 60, [1, 2])
    memory.fork(0, 40, [3])
    memory.extend([Extend(s, [30 + s] * 4, False) for s in (0, 1, 2, 3)])
    assert memory.used_cells == 60 + 16
    memory.drop(0)
    assert (memory.used_cells, memory.length(0), memory.length(1)) == (72, 0, 64)
    memory.drop(1)
    memory.drop(2)
    assert memory.used_cells == 44
    memory.drop(2)
    room = memory._store.now.room
    fill(memory, 5, tokens_of(random.Random(4), room - 44))
    assert memory.used_cells == memory._store.now.room == room
    memory.fork(3, 0, [5])
    assert (memory.length(5), memory.used_cells) == (0, 44)


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([Extend(0, [], True)], "no token"),
        ([Extend(0, [5], True), Extend(0, [6], True)], "twice"),
        ([Extend(0, [5] * 65, True)], "66 tokens are more than a step takes: 64"),
        ([Extend(8, [5], True)], "no sequence 8"),
        ([Extend(-1, [5], True)], "no sequence -1"),
    ],
)
def test_what_cannot_be_meant_is_a_value_error(memory, items, words):
    with pytest.raises(ValueError, match=words):
        memory.extend([Extend(3, [9], False), *items])
    assert memory.used_cells == 0
    assert memory.extend([]) == []


def test_a_fork_takes_no_more_than_there_is(memory):
    fill(memory, 0, [5, 6, 7])
    fill(memory, 1, [8])
    for source, length, targets in [(0, 4, [1]), (0, -1, [1]), (2, 1, [1]), (0, 2, [1, 0]), (0, 2, [8]), (9, 0, [1])]:
        with pytest.raises(ValueError, match="sequence"):
            memory.fork(source, length, targets)
    assert [memory.length(s) for s in range(3)] == [3, 1, 0]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError, MemoryError])
def test_a_failure_in_the_middle_of_a_pass_drops_the_sequences_named(backend, memory, failure):
    rng = random.Random(6)
    tokens, other = tokens_of(rng, 50), tokens_of(rng, 30)
    fill(memory, 0, tokens)
    memory.fork(0, 50, [1, 2])
    fill(memory, 3, other)
    raised = BackendError if failure is not KeyboardInterrupt else KeyboardInterrupt

    def fail(*_):
        raise failure("in the second layer")

    handle = backend._model.model.layers[1].register_forward_pre_hook(fail)
    try:
        with pytest.raises(raised, match="in the second layer"):
            memory.extend([Extend(1, [5] * 20, True), Extend(2, [6] * 20, True)])
    finally:
        handle.remove()
    assert [memory.length(s) for s in range(4)] == [50, 0, 0, 30]
    assert memory.used_cells == 80
    assert backend._model.config._attn_implementation == "sdpa"
    ours = memory.extend([Extend(0, [5], True), Extend(3, [6], True), Extend(1, [7, 8], True)])
    for logits, told in zip(ours, ([*tokens, 5], [*other, 6], [7, 8]), strict=True):
        assert apart(logits, alone(backend, told)) < FLOAT32


def test_too_little_memory_is_refused_before_the_store_grows(backend, memory, monkeypatch):
    from lbx.backends.hf import sequence_memory as hf_sequences

    memory.release()
    tokens = tokens_of(random.Random(5), 200)
    fill(memory, 0, tokens)
    monkeypatch.setattr(hf_sequences, "available_bytes", lambda: 1000)
    with pytest.raises(BackendError, match=r"has to grow to \d+ tokens, which takes 0.00 GB more; 0.00 GB are free"):
        for _ in range(10):
            memory.extend([Extend(1, tokens[:60], False)])
    assert memory.length(0) == 200
    (ours,) = memory.extend([Extend(0, [5], True)])
    assert apart(ours, alone(backend, [*tokens, 5])) < FLOAT32


def test_branches_take_no_copy_of_what_they_share(tiny_hf, tmp_path):
    """The store is at most a quarter and one block of cells larger than what lies in it."""
    backend = loaded(tiny_hf, tmp_path, max_sequences=16, kv_cells=8192)
    memory = backend.sequences()
    rng = random.Random(2)
    fill(memory, 0, tokens_of(rng, 1900))
    one = memory._store.bytes
    memory.fork(0, 1900, range(1, 16))
    memory.extend([Extend(i, tokens_of(rng, 30), False) for i in range(16)])
    assert memory.used_cells == 1900 + 16 * 30
    assert memory._store.bytes <= (memory.used_cells * 5 / 4 + 256) * memory.cell_bytes
    copies = 16 * 1930 * memory.cell_bytes
    print(f"store of 1,900 tokens {one:,} bytes, with 16 branches {memory._store.bytes:,}, as 16 copies {copies:,}")
    backend.close()


def test_interruptions_anywhere_leave_what_was_not_named_as_it_was(backend, memory):
    """A signal at any moment of a pass: sequences named are whole or gone, all others are whole."""
    import signal

    def stop(*_):
        raise KeyboardInterrupt

    rng = random.Random(17)
    kept = tokens_of(rng, 80)
    fill(memory, 0, kept)
    before = signal.signal(signal.SIGALRM, stop)
    stopped = 0
    try:
        for _ in range(60):
            memory.fork(0, 80, [1, 2])
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.015))
                memory.extend([Extend(1, [5] * 20, True), Extend(2, [6] * 20, True)])
                memory.extend([Extend(1, [5], True), Extend(2, [6], True)])
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                stopped += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert memory.length(0) == 80
            assert {memory.length(s) for s in (1, 2)} <= {0, 80, 100, 101}
            memory.drop(1)
            memory.drop(2)
            assert memory.used_cells == 80
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    print(f"stopped {stopped} of 60 times")
    assert backend._model.config._attn_implementation == "sdpa"
    ours = memory.extend([Extend(0, [5], True), Extend(1, [7, 8], True)])
    for logits, told in zip(ours, ([*kept, 5], [7, 8]), strict=True):
        assert apart(logits, alone(backend, told)) < FLOAT32


@pytest.mark.parametrize("wrong", [{"max_sequences": 0}, {"kv_cells": -1}])
def test_options_are_checked(wrong):
    with pytest.raises(UsageError, match=f"{next(iter(wrong))} = .* too small"):
        HfOptions(**wrong)


def test_a_closed_model_says_so(tiny_hf, tmp_path):
    backend = loaded(tiny_hf, tmp_path, max_sequences=2)
    memory = backend.sequences()
    assert backend.sequences() is memory
    assert (memory.max_cells, memory.max_step) == (2048, 512)
    memory.extend([Extend(0, [5], False)])
    backend.close()
    assert memory._store.bytes == 0
    with pytest.raises(BackendError, match="closed"):
        memory.extend([Extend(0, [5], False)])
    with pytest.raises(BackendError, match="closed"):
        backend.sequences()


# --- kinds of model


SMALL = {
    "vocab_size": 507,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.25,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
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
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_chunk_size": 16}
STATES = {
    "mamba": ("MambaConfig", {"state_size": 8}),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
    "falcon-h1": ("FalconH1Config", MAMBA2 | {"mamba_d_ssm": 128, "head_dim": 16}),
}
PHI3_LONG = {"sliding_window": None, "original_max_position_embeddings": 256, "rope_parameters": LONGROPE}
COPIED = {"bloom": ("BloomConfig", {"n_layer": 2, "n_head": 4})}
PHI3_LONG = {"sliding_window": None, "original_max_position_embeddings": 256, "rope_parameters": LONGROPE}


def made(name: str, config_name: str, extra, tiny_hf: Path, folder: Path) -> Path:
    import torch
    import transformers

    torch.manual_seed(5)
    config = getattr(transformers, config_name)(**SMALL | extra)
    with contextlib.redirect_stderr(io.StringIO()):
        transformers.AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_hf / file, folder)
    return folder


@pytest.mark.parametrize("kind", PACKED)
def test_kinds_that_are_packed(kind, tiny_hf, tmp_path):
    backend = loaded(made(kind, *PACKED[kind], tiny_hf, tmp_path), tmp_path, max_sequences=8, kv_cells=700)
    memory = backend.sequences()
    print(f"{kind}: largest difference {wander(backend, memory, 12, 6, FLOAT32):.1e} of the range")
    backend.close()


@pytest.mark.parametrize("kind", STATES)
def test_kinds_with_states_that_grow_in_a_batch(kind, tiny_hf, tmp_path):
    backend = loaded(made(kind, *STATES[kind], tiny_hf, tmp_path), tmp_path, max_sequences=8, kv_cells=4000)
    memory = backend.sequences()
    assert (memory.traits.forks_anywhere, memory.traits.trunks, memory.max_sequences) == (False, 8, 16)
    print(f"{kind}: largest difference {wander(backend, memory, 12, 10, FLOAT32):.1e} of the range")
    memory.drop(0)
    fill(memory, 0, [3] * 20)
    with pytest.raises(ValueError, match="has 20 tokens and is forked there, not at 10"):
        memory.fork(0, 10, [1])
    memory.fork(0, 20, range(1, 9))
    passes = backend._model.get_input_embeddings().register_forward_hook(
        lambda _, given, __: rows.append(given[0].shape)
    )
    rows: list = []
    ours = memory.extend([Extend(s, [40 + s], True) for s in range(1, 9)])
    passes.remove()
    assert rows == [(8, 1)]
    for s, logits in enumerate(ours, 1):
        assert apart(logits, alone(backend, [*[3] * 20, 40 + s])) < FLOAT32
    assert memory.length(0) == 20
    backend.close()


def test_states_take_at_most_a_part_of_the_memory(tiny_hf, tmp_path, monkeypatch):
    from lbx.backends.hf import check

    folder = made("mamba", *STATES["mamba"], tiny_hf, tmp_path)
    backend = loaded(folder, tmp_path)
    backend.sequences()
    state = backend._packing.state_bytes
    fill(backend._memory, 0, [3, 4])
    assert state == backend._memory.state_bytes
    # Of two layers: for each channel the last inputs of its convolution and eight numbers.
    config = backend._model.config
    assert state == 2 * config.intermediate_size * (config.conv_kernel + config.state_size) * 4
    assert backend._memory.max_sequences == 8 + 32
    backend.close()
    monkeypatch.setattr(check, "_STATES", 12 * state)
    monkeypatch.setattr(check, "_WEIGHTS_PART", 1 << 40)
    backend = loaded(folder, tmp_path)
    assert backend.sequences().max_sequences == 8 + 4
    backend.close()


def test_a_failure_leaves_the_states_of_sequences_that_were_not_named(tiny_hf, tmp_path):
    backend = loaded(made("falcon-h1", *STATES["falcon-h1"], tiny_hf, tmp_path), tmp_path, max_sequences=8)
    memory = backend.sequences()
    tokens = tokens_of(random.Random(6), 50)
    fill(memory, 0, tokens)
    memory.fork(0, 50, [1, 2, 3])
    memory.extend([Extend(s, [40 + s], True) for s in (1, 2, 3)])

    def fail(*_):
        raise KeyboardInterrupt

    handle = backend._model.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(KeyboardInterrupt):
        memory.extend([Extend(1, [5], True), Extend(3, [6], True)])
    handle.remove()
    assert [memory.length(s) for s in range(4)] == [50, 0, 51, 0]
    ours = memory.extend([Extend(0, [5], True), Extend(2, [6], True), Extend(1, [7, 8], True)])
    for logits, told in zip(ours, ([*tokens, 5], [*tokens, 42, 6], [7, 8]), strict=True):
        assert apart(logits, alone(backend, told)) < FLOAT32
    backend.close()


@pytest.mark.parametrize("kind", ["gemma3", "llama4"])
def test_layers_that_do_not_see_everything_look_at_what_they_see(kind, tiny_hf, tmp_path):
    """However long the document is, a sliding layer looks at its window only."""
    backend = loaded(made(kind, *PACKED[kind], tiny_hf, tmp_path), tmp_path, max_sequences=8, kv_cells=2000)
    memory = backend.sequences()
    fill(memory, 0, tokens_of(random.Random(6), 1001))
    memory.fork(0, 1001, range(1, 6))
    looked = {}
    for _ in range(3):
        memory.extend([Extend(s, [20 + s], True) for s in range(1, 6)])
        for reach, layout in memory._store.now.layouts.items():
            looked[reach] = sum(cells(part.cells) for _, parts in layout.on(memory._device) for part in parts)
    assert looked.pop(None) >= 1016 if kind == "llama4" else not looked.pop(None, None)
    ((reach, seen),) = looked.items()
    assert reach.tokens == 16
    assert seen <= 16 + 5 * 3
    backend.close()


def test_a_step_copies_no_more_than_what_is_an_answers_own(backend, memory):
    """However long the document is that the answers share."""
    fill(memory, 0, tokens_of(random.Random(6), 600))
    memory.fork(0, 600, range(1, 6))
    for step in range(3):
        memory.extend([Extend(s, [20 + s + step], True) for s in range(1, 6)])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as passes:
        memory.extend([Extend(s, [30 + s], True) for s in range(1, 6)])
    copied = [event.input_shapes[0] for event in passes.events() if event.name in ("aten::clone", "aten::copy_")]
    assert copied
    assert not [shape for shape in copied if 600 <= max(shape, default=0) <= memory.max_cells]


def cells(chosen) -> int:
    return chosen.stop - chosen.start if isinstance(chosen, slice) else chosen.numel()


def test_a_model_whose_sequences_go_in_one_row_is_tried_in_five_passes(tiny_hf, tmp_path):
    """Each reads all weights, before the first question is asked."""
    passes = []
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, _, __: passes.append(1) if isinstance(module, torch.nn.Embedding) else None
    )
    try:
        backend = loaded(tiny_hf, tmp_path)
        backend.sequences()
    finally:
        hook.remove()
    assert len(passes) == 5
    assert backend.sequences().traits.forks_anywhere
    backend.close()


@pytest.mark.parametrize("window", [16, 4096])
def test_a_window_that_is_computed_wrongly_is_found_out(window, tiny_hf, tmp_path, monkeypatch):
    """Longer than the trial's prompts, too."""
    from lbx.inference.cell_table import Reach

    monkeypatch.setattr(Reach, "first", lambda self, positions: positions * 0)
    backend = loaded(made("wide", "MistralConfig", {"sliding_window": window}, tiny_hf, tmp_path), tmp_path)
    assert not backend.sequences().traits.forks_anywhere
    assert "differ from single ones" in backend._packing.reason
    assert backend._model.config.sliding_window == window
    backend.close()


@pytest.mark.parametrize("kind", COPIED)
def test_kinds_whose_sequences_are_copied(kind, tiny_hf, tmp_path):
    backend = loaded(made(kind, *COPIED[kind], tiny_hf, tmp_path), tmp_path, kv_cells=4000)
    memory = backend.sequences()
    assert not memory.traits.forks_anywhere
    print(f"{kind}: largest difference {wander(backend, memory, 12, 10, FLOAT32):.1e} of the range")
    memory.drop(0)
    fill(memory, 0, [3] * 20)
    with pytest.raises(ValueError, match="has 20 tokens and is forked there, not at 10"):
        memory.fork(0, 10, [1])
    with pytest.raises(BackendError, match=r"memory of .* is full"):
        while True:
            memory.extend([Extend(1, [3] * memory.max_step, False)])
    backend.close()


def test_dynamic_embeddings_are_asked_one_at_a_time(tiny_hf, tmp_path):
    backend = loaded(made("dynamic", "LlamaConfig", {"rope_parameters": DYNAMIC}, tiny_hf, tmp_path), tmp_path)
    reason = backend.sequences().traits.single_reason
    assert "dynamic" in reason
    assert not_shared(backend, batching=True) == reason
    assert not_shared(backend, batching=False) is None
    requests = questions(backend, tokens_of(random.Random(4), 500), 4, 6)
    alone = [complete(backend, request) for request in requests]
    for batching in (False, True):
        found = dict(complete_all(backend, requests, batching=batching))
        assert [found[n].output_ids for n in range(4)] == [one.output_ids for one in alone]
        assert {one.cached_tokens for one in found.values()} == {0}
    backend.close()


def test_answers_that_were_thrown_out_go_on_with_the_same_tokens(tiny_hf, tmp_path, monkeypatch):
    """As none has ended, all are hoped to take 12 tokens; four whole ones have room."""
    backend = loaded(tiny_hf, tmp_path, kv_cells=500)
    requests = questions(backend, tokens_of(random.Random(4), 100), 12, 100)
    made_room = []
    make_room = DecodeBatch._make_room
    monkeypatch.setattr(DecodeBatch, "_make_room", lambda self: made_room.append(1) or make_room(self))
    found = dict(DecodeBatch(backend.sequences(), requests, backend.tokenizer, ()).run())
    assert made_room
    for number, request in enumerate(requests):
        tokens = list(request.token_ids)
        for token in found[number].output_ids:
            expected = alone(backend, tokens)
            assert float(expected.max() - expected[token]) / np.ptp(expected) < FLOAT32
            tokens.append(token)
    backend.close()


def test_longrope_shares_among_long_prompts_and_among_short_ones(tiny_hf, tmp_path):
    """All of a long prompt is turned by other factors than a short one, what both begin with, too."""
    backend = loaded(made("longrope", "Phi3Config", PHI3_LONG, tiny_hf, tmp_path), tmp_path)
    document = tokens_of(random.Random(4), 300)
    short = questions(backend, document[:150], 3, 6)
    requests = [*short, *questions(backend, document, 3, 6), *questions(backend, document[:260], 2, 6)]
    batch = DecodeBatch(backend.sequences(), requests, backend.tokenizer, backend.eos_ids)
    found = dict(batch.run())
    for number, request in enumerate(requests):
        tokens = list(request.token_ids)
        for token in found[number].output_ids:
            expected = alone(backend, tokens)
            gap = float(expected.max() - expected[token]) / np.ptp(expected)
            assert gap < FLOAT32
            tokens.append(token)
    kept = [found[number].cached_tokens for number in range(len(requests))]
    assert sorted(kept) == [0, 0, 150, 150, 260, 260, 300, 300]
    assert sum(kept) == sum(map(len, (request.token_ids for request in requests))) - batch.prompt_tokens
    backend.close()


@pytest.mark.parametrize("sizes", [(256, 1, 1), (250, 20, 1), (100, 156, 1, 2)])
def test_a_longrope_sequence_that_outgrows_the_short_factors_is_computed_again(sizes, tiny_hf, tmp_path):
    backend = loaded(made("longrope", "Phi3Config", PHI3_LONG, tiny_hf, tmp_path), tmp_path)
    memory, tokens, held = backend.sequences(), tokens_of(random.Random(4), 300), sizes[0]
    fill(memory, 0, tokens[:held])
    memory.fork(0, held, [1])
    for size in sizes[1:]:
        logits = fill(memory, 1, tokens[held : held + size])
        held += size
        assert apart(logits, alone(backend, tokens[:held])) < FLOAT32
        assert memory.length(1) == held > sizes[0] == memory.length(0)
    assert held > 256
    other = fill(memory, 0, [7])
    assert apart(other, alone(backend, [*tokens[: sizes[0]], 7])) < FLOAT32
    backend.close()


@pytest.mark.parametrize("lost", ["mask", "positions"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_would_be_wrong_in_silence_is_found_out(lost, dtype, tiny_hf, tmp_path):
    """Code that ignores what it is given, as a model that knows no packing does."""
    backend = loaded(tiny_hf, tmp_path, dtype=dtype, attention="eager")  # "sdpa" is computed without a mask
    inner = backend._model.model
    whole = inner.forward

    def deaf(*args, attention_mask=None, position_ids=None, **rest):
        given = {"attention_mask": attention_mask, "position_ids": position_ids}
        given["attention_mask" if lost == "mask" else "position_ids"] = None
        return whole(*args, **given, **rest)

    inner.forward = deaf
    backend._packing = try_out(backend._model, "deaf").packing
    assert not backend.sequences().traits.forks_anywhere, "copies need neither"
    assert "differ from single ones" in backend._packing.reason
    print(f"{lost} lost, {dtype}: {backend._packing.reason}")
    backend.close()


def test_a_model_with_an_attention_of_its_own_is_given_a_mask(tiny_hf, tmp_path, monkeypatch):
    """As many a model's code: what lbx has registered is never called, and the whole store would be looked at."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    from lbx.backends.hf.attention import ALL_ATTENTION_FUNCTIONS, PACKED_ATTENTION

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, PACKED_ATTENTION, sdpa_attention_forward)
    backend = loaded(tiny_hf, tmp_path, max_sequences=8, kv_cells=700, prefill_chunk=64)
    memory = backend.sequences()
    assert memory.traits.pass_price < NO_FOREIGN_CELLS, "strangers in a mask cost"
    print(f"own attention: largest difference {wander(backend, memory, 4, 12, FLOAT32):.1e} of the range")
    backend.close()


# --- answers


def in_lock_step(backend, requests: list[Request]) -> list[str]:
    """All answers at once: what the prompts share once, then the rest of each, then one token of each a step."""
    memory = backend.sequences()
    prompts = [request.token_ids for request in requests]
    shared = next(i for i, column in enumerate(zip(*prompts, strict=False)) if len(set(column)) > 1)
    fill(memory, 0, prompts[0][:shared])
    memory.fork(0, shared, range(1, len(prompts)))
    logits = [fill(memory, i, prompt[shared:]) for i, prompt in enumerate(prompts)]
    decodings = [Decoding(request, backend.tokenizer, backend.eos_ids) for request in requests]
    running = dict(enumerate(logits))
    while running:
        chosen = {i: decodings[i].take(row) for i, row in running.items()}
        for i in [i for i, token in chosen.items() if token is None]:
            memory.drop(i)
            del chosen[i]
        rows = memory.extend([Extend(i, [token], True) for i, token in chosen.items()])
        running = dict(zip(chosen, rows, strict=True))
    assert memory.used_cells == 0
    return [decoding.completion().text for decoding in decodings]


def questions(backend, document: list[int], count: int, new_tokens: int) -> list[Request]:
    """Prompts that share a document and end in a question of their own, of some length of its own."""
    rng = random.Random(21)
    return [
        Request(SampleKey("a", "b", str(i)), (*document, *tokens_of(rng, 8 + 3 * i)), new_tokens) for i in range(count)
    ]


def test_sixteen_questions_of_one_document_have_the_answers_they_have_alone(tiny_hf, tmp_path):
    backend = loaded(tiny_hf, tmp_path, max_sequences=16, kv_cells=4096)
    requests = questions(backend, tokens_of(random.Random(4), 900), 16, 12)
    together = in_lock_step(backend, requests)
    assert together == [complete(backend, request).text for request in requests]
    assert len(set(together)) > 8
    backend.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    if not (DEMO / "model.safetensors").is_file():
        pytest.skip("models/demo/hf has no weights: make them with models/demo/train.py")
    backend = loaded(DEMO, tmp_path_factory.mktemp("demo"), max_sequences=16, kv_cells=12000)
    yield backend
    backend.close()


def asked(backend, name: str, before_question: str, question: str, new_tokens: int) -> Request:
    ids = backend.tokenizer.encode(before_question + "\n\n" + question, special=False)
    return Request(SampleKey("needle", "made", name), (backend.tokenizer.bos_id, *ids), new_tokens)


@pytest.mark.parametrize("length", [200, 1000])
@pytest.mark.parametrize("name", ["en", "zh"])
def test_needles_of_one_document_are_found_as_one_at_a_time(demo, name, length):
    from lbx.benchmarks.needle.benchmark import make_document, make_needles
    from lbx.benchmarks.needle.text import LANGUAGES

    rng, language = random.Random(length), LANGUAGES[name]
    needles = make_needles(rng, rng, language, 8, 4)
    document = language.before + make_document(rng, rng, language, needles, length=length, depth=0.3)
    pairs = [[key] for key, _ in needles] + [
        [a[0], b[0]] for a, b in zip(needles, needles[1:] + needles[:1], strict=True)
    ]
    requests = [asked(demo, str(i), document, language.question(keys), 48) for i, keys in enumerate(pairs)]
    together = in_lock_step(demo, requests)
    assert together == [complete(demo, request).text for request in requests]
    if length == 200:
        found = sum(value in text for (_, value), text in zip(needles, together, strict=False))
        assert found >= 6, "the model finds needles: the answers compared are not noise"


@pytest.mark.parametrize("kind", ["single", "multikey", "multiquery"])
@pytest.mark.parametrize("name", ["en", "zh"])
def test_the_needle_benchmark_is_answered_as_one_at_a_time(demo, name, kind):
    """Ten prompts at once of which five each share a document up to the asked needle; two documents, one memory."""
    from lbx.benchmarks.needle.benchmark import NeedleSettings, make_sample
    from lbx.benchmarks.needle.text import LANGUAGES

    settings = NeedleSettings()
    for length in (64, 512):
        samples = [
            make_sample(settings, kind, name, length=length, depth=depth, index=index)
            for index in (0, 1)
            for depth in settings.depths
        ]
        requests = [
            asked(demo, s.sample_id, LANGUAGES[name].before + s.context, s.question, 32 * len(s.references))
            for s in samples
        ]
        assert in_lock_step(demo, requests) == [complete(demo, request).text for request in requests]
