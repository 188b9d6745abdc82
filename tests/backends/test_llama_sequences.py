"""The memory of llama.cpp: layout of cells, kinds of model, failures. Its contract: test_sequence_memory.py."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.backends import load, resolve_model
from lbx.backends.llama.cache_cells import GRAIN, Blocks, PassSize, PlainCells, pass_size
from lbx.backends.llama.options import LlamaOptions
from lbx.base.errors import BackendError, UsageError
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import DecodeBatch, complete_all
from lbx.engine.model import SequenceExtension
from lbx.engine.prefix import decode_capacity
from tests.backends.llama_kinds import write_kind
from tests.backends.memories import FLOAT16_KEYS, difference, emptied, load_llama, prefill, said, tokens_of
from tests.backends.plain import PlainLlama

pytest.importorskip("llama_cpp", reason="needs lbx[llama]")


@pytest.fixture(scope="module")
def small(tiny_gguf):
    """Room for 256 tokens of up to 6 sequences, 64 at a step, in cells that give the numbers of each alone."""
    backend = load_llama(tiny_gguf, 256, max_sequences=6, prefill_chunk=64, batch_invariant=True)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def wide_gguf(tmp_path_factory):
    """Rows of 256 weights, which the block formats need."""
    pytest.importorskip("gguf", reason="needs lbx[dev]")
    from tests.backends.tiny import export_gguf, make_model

    folder = tmp_path_factory.mktemp("wide")
    return export_gguf(make_model(folder / "hf", 512, width=256), folder / "wide.gguf", "f16")


@pytest.fixture
def memory(llama):
    return emptied(llama.sequences())


def free_cells(memory) -> int:
    """Cells of free blocks."""
    memory._begin()
    return memory._cells.free


# --- the count of cells, without a model


@given(st.data())
def test_cells_in_use_are_the_distinct_tokens(data):
    """Against sets: each token that was added is a name, and a fork's tokens are the source's names."""
    cells, names = PlainCells(40, 5), itertools.count()
    held: list[list[int]] = [[] for _ in range(5)]
    for _ in range(data.draw(st.integers(1, 40))):
        sequence = data.draw(st.integers(0, 4))
        verb = data.draw(st.sampled_from(["grow", "share", "drop", "clear"]) if sequence else st.just("grow"))
        if verb == "grow":
            count = data.draw(st.integers(0, 12))
            if cells.required_cells([(sequence, count)]) <= cells.free:
                cells.allocate([(sequence, count)])
                held[sequence] += itertools.islice(names, count)
        elif verb == "share":
            source = data.draw(st.integers(0, 4).filter(lambda s, t=sequence: s != t))
            length = data.draw(st.integers(0, len(held[source])))
            cells.drop(sequence)
            cells.share(source, length, sequence)
            held[sequence] = held[source][:length]
        elif verb == "drop":
            cells.drop(sequence)
            held[sequence] = []
        else:
            cells.clear()
            held = [[] for _ in range(5)]
        assert [cells.length(s) for s in range(5)] == [len(h) for h in held]
        assert cells.free == 40 - len(set().union(*held))


@given(st.data())
def test_blocks_keep_every_token_in_its_lane_and_in_order(data):
    """Cells are named by hand: whatever is shared, moved or dropped, a sequence's cells rise and keep their lanes."""
    grain, count = data.draw(st.sampled_from([1, 2, 5])), 9
    blocks = Blocks(count, 4, grain)
    held: list[list[int]] = [[] for _ in range(4)]
    for _ in range(data.draw(st.integers(1, 30))):
        sequence = data.draw(st.integers(0, 3))
        verb = data.draw(st.sampled_from(["grow", "grow", "share", "drop"]))
        if verb == "grow":
            tokens = data.draw(st.integers(1, 3 * grain))
            found = blocks.assign([(sequence, tokens)])
            if found is not None:
                held[sequence] += blocks.grow(sequence, tokens, found[0]).tolist()
            else:
                above = set(range(1 + max((cell // grain for cell in held[sequence]), default=0), count))
                taken = {cell // grain for cells in held for cell in cells}
                assert len(above - taken) < blocks.missing(sequence, tokens)
        elif verb == "share":
            source = data.draw(st.integers(0, 3).filter(lambda s, t=sequence: s != t))
            whole = data.draw(st.integers(0, len(held[source]) // grain)) * grain
            blocks.drop(sequence)
            blocks.share(source, whole, sequence)
            held[sequence] = held[source][:whole]
        else:
            before = {cell // grain for cells in held for cell in cells}
            held[sequence] = []
            assert blocks.drop(sequence) == sorted(before - {cell // grain for cells in held for cell in cells})
        in_use = {cell // grain for cells in held for cell in cells}
        assert [blocks.length(s) for s in range(4)] == [len(cells) for cells in held]
        assert blocks.free_blocks == count - len(in_use)
        assert blocks.end == grain * (1 + max(in_use, default=-1))
        for cells in held:
            assert cells == sorted(cells)
            assert [cell % grain for cell in cells] == [place % grain for place in range(len(cells))]
        partial = [cells[-1] // grain for cells in held if len(cells) % grain]
        assert len(partial) == len(set(partial))


def test_passes_are_padded_to_what_the_kernels_for_many_take():
    assert [PassSize(2).padded_size(n) for n in (0, 1, 2, 3)] == [0, 2, 2, 3]
    assert [PassSize(8, 4).padded_size(n) for n in (0, 1, 8, 9, 12)] == [0, 8, 8, 12, 12]
    assert pass_size(["Q4_K", "F32"]) == pass_size(["Q8_0", "F32", "Q6_K"]) == PassSize(8, 4)


# --- the same numbers


@pytest.mark.parametrize("length", [1, 63, 64, 65, 700])
def test_one_sequence_in_the_same_pieces_has_the_same_logits_to_the_bit(llama, memory, length):
    ids = tokens_of(length)
    alone = PlainLlama(llama).prefill(ids)
    assert np.array_equal(prefill(memory, 0, ids), alone)
    assert memory.length(0) == length


def test_a_prompt_begins_in_the_first_cell_and_padding_follows(small):
    """llama.cpp looks at 256 cells at a time: behind a block of padding every full pass would look at 256 more."""
    memory = emptied(small.sequences())
    prefill(memory, 0, tokens_of(64))
    assert memory._cells._edge == 64  # type: ignore[attr-defined]
    memory.extend([SequenceExtension(0, [7], True)])
    assert memory._cells._edge == 65  # type: ignore[attr-defined]


def test_sequences_move_down_to_grow_where_there_is_no_room_above(small, monkeypatch):
    """What is free lies below them: their keys and values are moved, and stay the same."""
    memory, ids = emptied(small.sequences()), tokens_of(100)
    prefill(memory, 1, tokens_of(150, 1))
    prefill(memory, 0, ids)
    memory.fork(0, 70, [2])
    memory.drop(1)
    moved = []
    monkeypatch.setattr(
        type(memory._cells._blocks),  # type: ignore[attr-defined]
        "move",
        lambda self, block, *more, move=Blocks.move: (moved.append(block), move(self, block, *more)),
    )
    found = memory.extend([SequenceExtension(0, tokens_of(30, 2), True), SequenceExtension(2, tokens_of(34, 3), True)])
    assert len(moved) == 5
    found += memory.extend([SequenceExtension(2, tokens_of(64, 4), True)])
    for logits, text in zip(
        found,
        (ids + tokens_of(30, 2), ids[:70] + tokens_of(34, 3), ids[:70] + tokens_of(34, 3) + tokens_of(64, 4)),
        strict=True,
    ):
        assert np.array_equal(logits, PlainLlama(small).prefill(text))


def test_what_is_left_moves_down_when_more_than_half_below_is_free(small):
    """A pass looks at every cell up to the last one in use."""
    memory, ids = emptied(small.sequences()), tokens_of(40)
    prefill(memory, 1, tokens_of(160, 1))
    prefill(memory, 0, ids)
    assert memory._cells._edge >= 160 + GRAIN  # type: ignore[attr-defined]
    memory.drop(1)
    assert memory._cells._edge == 2 * GRAIN  # type: ignore[attr-defined]
    assert np.array_equal(prefill(memory, 0, [7]), PlainLlama(small).prefill([*ids, 7]))


def test_thirty_two_sequences_of_one_document(tiny_gguf):
    """Questions of different lengths, nine at a step."""
    backend = load_llama(tiny_gguf, 2048, kv_cells=4096, batch_invariant=True)
    memory, document = backend.sequences(), tokens_of(2000)
    questions = [tokens_of(1 + n % 20, 100 + n) for n in range(32)]
    prefill(memory, 0, document)
    memory.fork(0, 2000, range(1, 32))
    assert memory.used_cells == 2000 // GRAIN * GRAIN + 32 * GRAIN
    assert [memory.length(n) for n in range(32)] == [2000] * 32
    found = []
    for at in range(0, 32, 9):
        found += memory.extend([SequenceExtension(n, questions[n], True) for n in range(at, min(at + 9, 32))])
    ends = [2000 % GRAIN + len(question) for question in questions]
    assert memory.used_cells == 2000 // GRAIN * GRAIN + GRAIN * sum(-(-end // GRAIN) for end in ends)
    emptied(memory)
    for question, logits in zip(questions, found, strict=True):
        assert np.array_equal(logits, PlainLlama(backend).prefill([*document, *question]))
    backend.close()


def check_together(backend, prompts, new_tokens) -> DecodeBatch:
    """Answers of one batch are those of a batch for each prompt."""
    requests = [Request(SampleKey("a", "b", str(n)), tuple(ids), new_tokens) for n, ids in enumerate(prompts)]
    batch = DecodeBatch(backend.sequences(), requests, backend.tokenizer, frozenset())
    answers = dict(batch.run())
    assert len(answers) == len(requests)
    for index, request in enumerate(requests):
        alone = DecodeBatch(backend.sequences(), [request], backend.tokenizer, frozenset(), max_answers=1)
        assert said(answers[index]) == said(dict(alone.run())[0])
    return batch


@pytest.mark.parametrize("window", [16, 40])
def test_sliding_layers_keep_windows_and_not_the_whole_text(tiny_gguf, tmp_path, capsys, window):
    """However the questions share, and however far answers go beyond the windows of shared text."""
    path = write_kind("gemma3", tiny_gguf, tmp_path / "gemma3.gguf", attention__sliding_window=window)
    card = dataclasses.replace(resolve_model(str(path)), context_window=2048, options=LlamaOptions(prefill_chunk=64))
    backend = load(card, debug=True)
    log = capsys.readouterr().err.replace("non-SWA", "")
    (cells,) = map(int, re.findall(r" SWA KV cache, size = +(\d+) cells", log))
    assert cells <= 16 * window + 64 + 256, "of twelve sequences, and of what four groups of answers share"
    document = tokens_of(700)
    middles = [tokens_of(90, 1), tokens_of(90, 2), []]
    prompts = [(*document, *middle, *tokens_of(3, end)) for middle in middles for end in range(4, 9)]
    prompts += [(*tokens_of(500, n), *tokens_of(3, n)) for n in range(20, 23)]
    batch = check_together(backend, prompts, 60)
    assert batch.prompt_tokens == batch.plan.computed_tokens <= 1.02 * batch.plan.tree_tokens
    backend.close()


def test_sliding_layers_keep_everything_if_windows_take_more(tiny_gguf, tmp_path):
    """Sixteen windows of 64 tokens are more than 256 cells."""
    path = write_kind("gemma3", tiny_gguf, tmp_path / "gemma3.gguf", attention__sliding_window=64)
    backend = load_llama(path, 256, prefill_chunk=16)
    document = tokens_of(100)
    check_together(backend, [(*document[:length], *tokens_of(1, length)) for length in range(30, 101, 10)], 14)
    backend.close()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in ("F16", "Q8_0", "Q4_0", "Q4_K_M", "Q6_K")),
        ("Q8_0, output in Q6_K", {}),
        ("Q4_K_M", {"repack": False}),
        ("F16", {"cache_type_k": "bf16", "cache_type_v": "bf16"}),
    ],
)
def test_rounded_weights_give_the_same_numbers_together_as_alone(wide_gguf, tmp_path, kind, options):
    """Kernels differ by format and by how many tokens there are: no pass of 1 to 9 sequences may show it."""
    import llama_cpp

    path = tmp_path / f"{kind}.gguf"
    parameters = llama_cpp.llama_model_quantize_default_params()
    whole, _, output = kind.partition(", output in ")
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{whole}")
    if output:
        parameters.output_tensor_type = getattr(llama_cpp, f"GGML_TYPE_{output}")
    assert not llama_cpp.llama_model_quantize(str(wide_gguf).encode(), str(path).encode(), parameters)
    backend = load_llama(path, 512, kv_cells=1024, batch_invariant=True, **options)
    memory, document = emptied(backend.sequences()), tokens_of(203)
    texts = {n: document + tokens_of(1 + 7 * n, n) for n in range(1, 10)}
    prefill(memory, 0, document)
    memory.fork(0, len(document), list(texts))
    found = {n: [prefill(memory, n, text[len(document) :])] for n, text in texts.items()}
    for together in range(9, 0, -1):
        chosen = list(texts)[:together]
        for n in chosen:
            texts[n] = [*texts[n], int(found[n][-1].argmax())]
        for n, logits in zip(
            chosen, memory.extend([SequenceExtension(n, texts[n][-1:], True) for n in chosen]), strict=True
        ):
            found[n].append(logits)
    for n, rows in found.items():
        steps = len(rows) - 1
        plain = PlainLlama(backend)
        alone = [plain.prefill(texts[n][: len(texts[n]) - steps])]
        alone += [plain.step(token) for token in texts[n][len(texts[n]) - steps :]]
        assert all(map(np.array_equal, rows, alone))
    backend.close()


@pytest.mark.parametrize("invariant", [True, False])
@pytest.mark.parametrize("batching", [True, False])
def test_a_cache_is_as_large_as_what_is_asked_needs(tiny_gguf, batching, invariant):
    """The values of a token lie as far apart as the cache is long: each step of a larger one takes longer."""
    backend = load_llama(tiny_gguf, 2048, batch_invariant=invariant)
    memory = backend.sequences()
    whole, sizes = memory._size, []

    def answers(count: int, length: int) -> list[str]:
        asked = [
            Request(SampleKey("b", "b", str(n)), tuple(tokens_of(length, n)), max_new_tokens=20, min_new_tokens=20)
            for n in range(count)
        ]
        computed = complete_all(backend, asked, batching=batching, on_tokens=lambda _: sizes.append(memory._size))
        return [completion.text for _, completion in sorted(computed, key=lambda one: one[0])]

    few = answers(2, 100)
    assert set(sizes) == {512 if invariant and batching else 256}
    many = answers(5, 700)
    assert max(sizes) == (whole if batching else 1024 if invariant else 768)
    assert answers(2, 100) == few
    assert answers(5, 700) == many
    prefill(memory, 0, tokens_of(1500))
    assert memory._size == whole, "who does not say what is needed has all of it"
    assert backend.info.kv_cells == memory.max_cells == 2048
    backend.close()


# --- failures


def test_a_full_memory_has_no_block_for_the_end_of_a_fork(small):
    memory = emptied(small.sequences())
    prefill(memory, 0, tokens_of(200))
    memory.fork(0, 200, [1, 2, 3])
    assert free_cells(memory) == 0
    with pytest.raises(BackendError, match=f"0 are free, {GRAIN} more"):
        memory.fork(1, 199, [4])
    assert [memory.length(n) for n in range(5)] == [200, 200, 200, 200, 0]
    memory.fork(1, 192, [4])
    assert memory.length(4) == 192


def test_a_failure_of_the_model_drops_every_sequence(memory):
    ids = tokens_of(30)
    for n in range(3):
        prefill(memory, n, ids)
    with pytest.raises(BackendError, match=r"failed on 2 tokens of 2 sequences: code -1: .*token"):
        memory.extend([SequenceExtension(0, [5], True), SequenceExtension(2, [10**6], True)])
    assert [memory.length(n) for n in range(3)] == [0, 0, 0]
    emptied(memory)
    assert np.array_equal(prefill(memory, 1, [*ids, 7]), prefill(memory, 0, [*ids, 7]))


def test_no_numbers_drop_everything(memory, monkeypatch):
    """NaN in one sequence's cells reaches all others, by a weight of 0 times NaN."""
    prefill(memory, 0, tokens_of(5))
    monkeypatch.setattr(memory, "_logits", lambda row: np.full(10, np.nan, np.float32))
    with pytest.raises(BackendError, match="NaN"):
        memory.extend([SequenceExtension(1, [5], True)])
    emptied(memory)


@pytest.mark.parametrize(
    "moment", ["llama_decode", "llama_memory_seq_cp", "llama_memory_seq_rm", "llama_state_seq_set_data"]
)
def test_an_interruption_leaves_nothing_half_done(small, monkeypatch, moment):
    memory, ids = emptied(small.sequences()), tokens_of(100)
    prefill(memory, 0, ids)

    class Interrupted:
        def __getattr__(self, name):
            if name != moment:
                return getattr(small._lib, name)

            def interrupted(*arguments):
                getattr(small._lib, name)(*arguments)
                raise KeyboardInterrupt  # Python sees Ctrl-C when the call comes back

            return interrupted

    monkeypatch.setattr(memory, "_lib", Interrupted())
    monkeypatch.setattr(memory._cells, "_lib", Interrupted())  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        memory.fork(0, 100, [1])
        memory.extend([SequenceExtension(1, [5], True)])
    monkeypatch.undo()
    assert memory.length(0) == memory.length(1) == 0
    emptied(memory)
    assert np.array_equal(prefill(memory, 1, ids), PlainLlama(small).prefill(ids))


# --- which models, how much room


def test_a_recurrent_models_sequences_begin_as_copies_of_others_as_they_stand(tiny_gguf, tmp_path):
    backend = load_llama(write_kind("mamba", tiny_gguf, tmp_path / "mamba.gguf"), 256, prefill_chunk=16)
    begin, documents = tokens_of(10), [tokens_of(100, 1), tokens_of(120, 2)]
    ends = [[*tokens_of(shared, 3), *tokens_of(4, shared)] for shared in (1, 3, 3, 5)]
    prompts = [(*begin, *document, *end) for document in documents for end in ends]
    batch = check_together(backend, prompts, 8)
    assert batch.prompt_tokens == batch.plan.computed_tokens < sum(map(len, prompts)) / 2
    prefill(backend.sequences(), 0, begin)
    with pytest.raises(ValueError, match="has 10 tokens and can only be forked at its end, not at 5"):
        backend.sequences().fork(0, 5, [1])
    backend.close()


def test_a_model_that_picks_what_it_sees_holds_one_sequence(tiny_gguf, tmp_path):
    """Sparse attention: what prompts share is read once, each of them is a first part of the one sequence."""
    path = write_kind("gemma3", tiny_gguf, tmp_path / "sparse.gguf", attention__indexer__head_count=2)
    backend = load_llama(path, 256, prefill_chunk=64)
    document = tokens_of(150)
    batch = check_together(backend, [(*document, *tokens_of(5 + n, n)) for n in range(4)], 8)
    assert batch.prompt_tokens == batch.plan.computed_tokens == 150 + 5 + 6 + 7 + 8
    memory = backend.sequences()
    assert difference(prefill(memory, 0, document), PlainLlama(backend).prefill(document)) <= FLOAT16_KEYS
    prefill(memory, 0, document)
    memory.fork(0, 100, [1])
    with pytest.raises(ValueError, match="sequence 1 has 100 tokens, but another has 150"):
        memory.extend([SequenceExtension(1, [5], True)])
    backend.close()


def test_options_set_the_room(tiny_gguf, sliding_gguf):
    backend = load_llama(tiny_gguf, 256, kv_cells=1000, max_sequences=256, prefill_chunk=16)
    memory = backend.sequences()
    assert (memory.max_sequences, memory.max_step, backend.info.context_window) == (253, 16, 256)
    assert 1000 <= memory.max_cells < 1256, "llama.cpp rounds up"
    assert prefill(memory, 252, tokens_of(40)) is not None
    assert (backend.info.hardware["max_sequences"], backend.info.hardware["kv_cells"]) == (253, 1000)
    backend.close()
    backend = load_llama(sliding_gguf, 256, max_sequences=256)
    assert (backend.sequences().max_sequences, decode_capacity(backend.sequences()).max_answers) == (12, 8)
    backend.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_sequences": 0}, "at least 1"), ({"max_sequences": 257}, "at most 256"), ({"kv_cells": -1}, "at least 0")],
)
def test_options_out_of_range(options, message):
    with pytest.raises(UsageError, match=message):
        LlamaOptions(**options)


def test_room_that_cannot_be(tiny_gguf):
    with pytest.raises(BackendError, match="kv_cells = 100 of tiny is smaller than its context window of 256"):
        load_llama(tiny_gguf, 256, kv_cells=100)
    with pytest.raises(BackendError, match=r"KV cache of tiny for 2000000000 tokens takes .* GiB; .* Lower kv_cells"):
        load_llama(tiny_gguf, 256, kv_cells=2_000_000_000)
