"""Many sequences in one llama.cpp context: the same numbers as one at a time, and every cell accounted for."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain import PlainLlama

from lbx.backends import load, resolve_model
from lbx.backends.llama.layout import GRAIN, Blocks, PassSize, pass_size
from lbx.backends.llama.loose import LooseCells
from lbx.backends.llama.options import LlamaOptions
from lbx.base.errors import BackendError, PromptError, UsageError
from lbx.base.records import Completion, Request, SampleKey, Sampling
from lbx.inference.batching import DecodeBatch
from lbx.inference.completing import complete, complete_all
from lbx.inference.decoding import Decoding
from lbx.inference.model import Extend
from lbx.inference.prefix import capacity_of

pytest.importorskip("llama_cpp", reason="needs lbx[llama]")

# Largest |d| of logits between one sequence and many, as a share of their range: float32 sums in another order and
# keys and values rounded to float16. Measured on these models: 0.0004 at most, in the median 5e-8.
TOLERANCE = 0.002


def loaded(path: Path, window: int = 0, **options):
    card = resolve_model(str(path))
    return load(dataclasses.replace(card, context_window=window or None, options=LlamaOptions(**options)))


@pytest.fixture(scope="module")
def sliding_gguf(tiny_gguf, tmp_path_factory) -> Path:
    from llama_kinds import write_kind

    path = tmp_path_factory.mktemp("kinds") / "gemma3.gguf"
    return write_kind("gemma3", tiny_gguf, path, attention__sliding_window=16)


@pytest.fixture(scope="module", params=["tiny", "tiny-loose", "sliding"])
def small(request):
    """Room for 256 tokens of up to 6 sequences, 64 at a step: a model with full attention, one with sliding.

    Cells laid out so that every sequence gets the same numbers as alone, or wherever llama.cpp puts them: of the
    layers whose attention slides fewer than the window has.
    """
    kind, _, loose = request.param.partition("-")
    backend = loaded(
        request.getfixturevalue(f"{kind}_gguf"), 256, max_sequences=6, prefill_chunk=64, batch_invariant=not loose
    )
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def roomy(tiny_gguf):
    """A window of 2,048 tokens, and room for branches besides."""
    backend = loaded(tiny_gguf, 2048, kv_cells=4096)
    yield backend
    backend.close()


@pytest.fixture
def memory(llama):
    """The tiny model's, empty."""
    return emptied(llama.sequences())


def emptied(memory):
    for sequence in range(memory.max_sequences):
        memory.drop(sequence)
    assert (memory.used_cells, free_cells(memory)) == (0, room(memory))
    return memory


def free_cells(memory) -> int:
    """How many tokens there is room for now, in whole blocks."""
    memory._begin()
    return memory._cells.free


def room(memory) -> int:
    """Cells of an empty memory: in blocks, there are two more for the ends of trunks."""
    return memory.max_cells + (2 * memory.traits.grain if memory.traits.grain > 1 else 0)


def tokens(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(10, 450), k=count)


def prefill(memory, sequence: int, ids) -> np.ndarray:
    """Logits after the last token."""
    for at in range(0, len(ids), memory.max_step):
        part = ids[at : at + memory.max_step]
        found = memory.extend([Extend(sequence, part, at + len(part) == len(ids))])
    return found[0]


def same_next(ours: np.ndarray, alone: np.ndarray) -> None:
    assert ours.dtype == np.float32
    assert ours.shape == alone.shape
    assert np.abs(ours - alone).max() <= TOLERANCE * np.ptp(alone)
    assert ours.argmax() == alone.argmax()


# --- the count of cells, without a model


@given(st.data())
def test_cells_in_use_are_the_distinct_tokens(data):
    """Against sets: each token that was added is a name, and a fork's tokens are the source's names."""
    cells, names = LooseCells(40, 5), itertools.count()
    held: list[list[int]] = [[] for _ in range(5)]
    for _ in range(data.draw(st.integers(1, 40))):
        sequence = data.draw(st.integers(0, 4))
        verb = data.draw(st.sampled_from(["grow", "share", "drop", "clear"]) if sequence else st.just("grow"))
        if verb == "grow":
            count = data.draw(st.integers(0, 12))
            if cells.needed([(sequence, count)]) <= cells.free:
                cells.place([(sequence, count)])
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
        assert blocks.free == count - len(in_use)
        assert blocks.end == grain * (1 + max(in_use, default=-1))
        for cells in held:
            assert cells == sorted(cells)
            assert [cell % grain for cell in cells] == [place % grain for place in range(len(cells))]
        partial = [cells[-1] // grain for cells in held if len(cells) % grain]
        assert len(partial) == len(set(partial))


def test_passes_are_padded_to_what_the_kernels_for_many_take():
    assert [PassSize(2).padded(n) for n in (0, 1, 2, 3)] == [0, 2, 2, 3]
    assert [PassSize(8, 4).padded(n) for n in (0, 1, 8, 9, 12)] == [0, 8, 8, 12, 12]
    assert pass_size(["Q4_K", "F32"]) == pass_size(["Q8_0", "F32", "Q6_K"]) == PassSize(8, 4)


# --- the same numbers


@pytest.mark.parametrize("length", [1, 63, 64, 65, 700])
def test_one_sequence_in_the_same_pieces_has_the_same_logits_to_the_bit(llama, memory, length):
    ids = tokens(length)
    alone = PlainLlama(llama).prefill(ids)
    assert np.array_equal(prefill(memory, 0, ids), alone)
    assert memory.length(0) == length


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_any_schedule_keeps_count_and_logits(small, seed):
    """Random forks, drops and mixed steps, in a memory so small that what is in use has to be moved together at times.

    Each sequence's logits are those of the path for one sequence, to the bit where cells are laid out for that.
    """
    rng, names, memory = random.Random(seed), itertools.count(), emptied(small.sequences())
    texts: dict[int, list[tuple[int, int]]] = {s: [] for s in range(6)}  # (token, name of its cell)
    last: dict[int, np.ndarray] = {}
    for _ in range(25):
        verb = rng.choice(("extend", "extend", "extend", "fork", "drop"))
        if verb == "drop":
            gone = rng.randrange(6)
            memory.drop(gone)
            texts[gone] = []
            last.pop(gone, None)
        elif verb == "fork":
            source, *targets = rng.sample(range(6), rng.randint(2, 4))
            length = len(texts[source])
            if memory.traits.forks_anywhere:
                length = rng.randint(0, length)
            for target in targets:
                texts[target] = texts[source][:length]
                last.pop(target, None)
            if memory.traits.grain * blocks_of(texts, {}, memory.traits.grain) > room(memory):
                with pytest.raises(BackendError, match="full"):
                    memory.fork(source, length, targets)
                texts.update({target: [] for target in targets})
            else:
                memory.fork(source, length, targets)
        else:
            items = [
                Extend(s, tokens(rng.choice((1, 1, 5, 20)), rng.randrange(10**6)), rng.random() < 0.7)
                for s in rng.sample(range(6), rng.randint(1, 3))
            ]
            more = {item.sequence: len(item.tokens) for item in items}
            if memory.traits.grain * blocks_of(texts, more, memory.traits.grain) > room(memory):
                with pytest.raises(BackendError, match=f"{free_cells(memory)} are free, .* more"):
                    memory.extend(items)
            else:
                for item, logits in zip(items, memory.extend(items), strict=True):
                    texts[item.sequence] = texts[item.sequence] + [(t, next(names)) for t in item.tokens]
                    assert (logits is not None) == item.wants_logits
                    last.pop(item.sequence, None)
                    if logits is not None:
                        last[item.sequence] = logits
        assert [memory.length(s) for s in range(6)] == [len(t) for t in texts.values()]
        assert free_cells(memory) == room(memory) - memory.traits.grain * blocks_of(texts, {}, memory.traits.grain)
    for sequence, logits in last.items():
        alone = PlainLlama(small).prefill([token for token, _ in texts[sequence]])
        assert memory.traits.grain == 1 or np.array_equal(logits, alone)
        same_next(logits, alone)


def blocks_of(texts, more: dict[int, int], grain: int) -> int:
    """Blocks that texts take when some have grown: full ones once, for all that share their tokens' cells."""
    found = set()
    for sequence, text in texts.items():
        for at in range(0, len(text) + more.get(sequence, 0), grain):
            block = tuple(name for _, name in text[at : at + grain])
            found.add(block if len(block) == grain else (sequence, at))
    return len(found)


@pytest.mark.parametrize("small", ["tiny"], indirect=True)
def test_a_prompt_begins_in_the_first_cell_and_padding_follows(small):
    """llama.cpp looks at 256 cells at a time: behind a block of padding every full pass would look at 256 more."""
    memory = emptied(small.sequences())
    prefill(memory, 0, tokens(64))
    assert memory._cells._edge == 64
    memory.extend([Extend(0, [7], True)])
    assert memory._cells._edge == 65


@pytest.mark.parametrize("small", ["tiny"], indirect=True)
def test_sequences_move_down_to_grow_where_there_is_no_room_above(small, monkeypatch):
    """What is free lies below them: their keys and values are moved, and stay the same."""
    memory, ids = emptied(small.sequences()), tokens(100)
    prefill(memory, 1, tokens(150, 1))
    prefill(memory, 0, ids)
    memory.fork(0, 70, [2])
    memory.drop(1)
    moved = []
    monkeypatch.setattr(
        type(memory._cells._blocks),
        "move",
        lambda self, block, *more, move=Blocks.move: (moved.append(block), move(self, block, *more)),
    )
    found = memory.extend([Extend(0, tokens(30, 2), True), Extend(2, tokens(34, 3), True)])
    assert len(moved) == 5
    found += memory.extend([Extend(2, tokens(64, 4), True)])
    for logits, text in zip(
        found,
        (ids + tokens(30, 2), ids[:70] + tokens(34, 3), ids[:70] + tokens(34, 3) + tokens(64, 4)),
        strict=True,
    ):
        assert np.array_equal(logits, PlainLlama(small).prefill(text))


@pytest.mark.parametrize("small", ["tiny"], indirect=True)
def test_what_is_left_moves_down_when_more_than_half_below_is_free(small):
    """A pass looks at every cell up to the last one in use."""
    memory, ids = emptied(small.sequences()), tokens(40)
    prefill(memory, 1, tokens(160, 1))
    prefill(memory, 0, ids)
    assert memory._cells._edge >= 160 + GRAIN
    memory.drop(1)
    assert memory._cells._edge == 2 * GRAIN
    assert np.array_equal(prefill(memory, 0, [7]), PlainLlama(small).prefill([*ids, 7]))


def test_thirty_two_sequences_of_one_document(roomy):
    """Questions of different lengths, nine at a step."""
    memory, document = emptied(roomy.sequences()), tokens(2000)
    questions = [tokens(1 + n % 20, 100 + n) for n in range(32)]
    prefill(memory, 0, document)
    memory.fork(0, 2000, range(1, 32))
    assert memory.used_cells == 2000 // GRAIN * GRAIN + 32 * GRAIN
    assert [memory.length(n) for n in range(32)] == [2000] * 32
    found = []
    for at in range(0, 32, 9):
        found += memory.extend([Extend(n, questions[n], True) for n in range(at, min(at + 9, 32))])
    ends = [2000 % GRAIN + len(question) for question in questions]
    assert memory.used_cells == 2000 // GRAIN * GRAIN + GRAIN * sum(-(-end // GRAIN) for end in ends)
    emptied(memory)
    for question, logits in zip(questions, found, strict=True):
        assert np.array_equal(logits, PlainLlama(roomy).prefill([*document, *question]))


@pytest.mark.parametrize("window", [16, 40])
def test_layers_that_slide_keep_windows_and_not_the_whole_text(tiny_gguf, tmp_path, capsys, window):
    """However the questions share, and however far their answers go beyond the windows of what they share."""
    from llama_kinds import write_kind

    path = write_kind("gemma3", tiny_gguf, tmp_path / "gemma3.gguf", attention__sliding_window=window)
    card = dataclasses.replace(resolve_model(str(path)), context_window=2048, options=LlamaOptions(prefill_chunk=64))
    backend = load(card, debug=True)
    (kept,) = map(
        int, re.findall(r" SWA KV cache, size = +(\d+) cells", capsys.readouterr().err.replace("non-SWA", ""))
    )
    assert kept <= 16 * window + 64 + 256, "of twelve sequences, and of what four groups of answers share"
    document = tokens(700)
    middles = [tokens(90, 1), tokens(90, 2), []]
    prompts = [(*document, *middle, *tokens(3, end)) for middle in middles for end in range(4, 9)]
    prompts += [(*tokens(500, n), *tokens(3, n)) for n in range(20, 23)]
    requests = [Request(SampleKey("a", "b", str(n)), ids, 60) for n, ids in enumerate(prompts)]
    batch = DecodeBatch(backend.sequences(), requests, backend.tokenizer, frozenset())
    found = dict(batch.run())
    assert batch.prompt_tokens == batch.plan.computed_tokens <= 1.02 * batch.plan.tree_tokens
    for place, request in enumerate(requests):
        alone = DecodeBatch(backend.sequences(), [request], backend.tokenizer, frozenset(), answers=1)
        assert said(found[place]) == said(dict(alone.run())[0])
    backend.close()


def test_layers_that_slide_have_room_for_what_all_hold_where_windows_take_more_than_the_text(tiny_gguf, tmp_path):
    """Sixteen windows of 64 tokens are more than 256: nothing that sequences share is held twice then."""
    from llama_kinds import write_kind

    path = write_kind("gemma3", tiny_gguf, tmp_path / "gemma3.gguf", attention__sliding_window=64)
    backend = loaded(path, 256, prefill_chunk=16)
    document = tokens(100)
    prompts = [(*document[:length], *tokens(1, length)) for length in range(30, 101, 10)]
    requests = [Request(SampleKey("a", "b", str(n)), ids, 14) for n, ids in enumerate(prompts)]
    batch = DecodeBatch(backend.sequences(), requests, backend.tokenizer, frozenset())
    found = dict(batch.run())
    assert len(found) == len(requests)
    for place, request in enumerate(requests):
        alone = DecodeBatch(backend.sequences(), [request], backend.tokenizer, frozenset(), answers=1)
        assert said(found[place]) == said(dict(alone.run())[0])
    backend.close()


@pytest.fixture(scope="module")
def wide_gguf(tmp_path_factory) -> Path:
    """Rows of 256 weights, which the block formats need."""
    pytest.importorskip("gguf", reason="needs lbx[dev]")
    from tiny import export_gguf, make_model

    folder = tmp_path_factory.mktemp("wide")
    return export_gguf(make_model(folder / "hf", 512, width=256), folder / "wide.gguf", "f16")


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
    backend = loaded(path, 512, kv_cells=1024, batch_invariant=True, **options)
    memory, document = emptied(backend.sequences()), tokens(203)
    texts = {n: document + tokens(1 + 7 * n, n) for n in range(1, 10)}
    prefill(memory, 0, document)
    memory.fork(0, len(document), list(texts))
    found = {n: [prefill(memory, n, text[len(document) :])] for n, text in texts.items()}
    for together in range(9, 0, -1):
        chosen = list(texts)[:together]
        for n in chosen:
            texts[n] = [*texts[n], int(found[n][-1].argmax())]
        for n, logits in zip(chosen, memory.extend([Extend(n, texts[n][-1:], True) for n in chosen]), strict=True):
            found[n].append(logits)
    for n, rows in found.items():
        steps = len(rows) - 1
        plain = PlainLlama(backend)
        alone = [plain.prefill(texts[n][: len(texts[n]) - steps])]
        alone += [plain.step(token) for token in texts[n][len(texts[n]) - steps :]]
        assert all(map(np.array_equal, rows, alone))
    backend.close()


# --- answers


def lockstep(backend, requests):
    """All answers at once: the shared beginning once, then the rest, then a token of each at a step."""
    memory = emptied(backend.sequences())
    size = memory.max_step // len(requests)
    prompts = [request.token_ids for request in requests]
    shared = next((n for n, column in enumerate(zip(*prompts, strict=False)) if len(set(column)) > 1), 0)
    shared = min(shared, min(map(len, prompts)) - 1)
    if shared:
        prefill(memory, 0, prompts[0][:shared])
        memory.fork(0, shared, range(1, len(prompts)))
    decodings = [Decoding(request, backend.tokenizer, backend.tokenizer.eos_ids) for request in requests]
    left = {n: list(prompt[shared:]) for n, prompt in enumerate(prompts)}
    while left:
        items = [Extend(n, ids[:size], len(ids) <= size) for n, ids in left.items()]
        for item, logits in zip(items, memory.extend(items), strict=True):
            n = item.sequence
            left[n] = left[n][size:]
            if logits is not None:
                token = decodings[n].take(logits)
                if token is None:
                    memory.drop(n)
                    del left[n]
                else:
                    left[n] = [token]
    assert memory.used_cells == 0
    return [decoding.completion() for decoding in decodings]


@pytest.mark.parametrize("invariant", [True, False])
@pytest.mark.parametrize("batching", [True, False])
def test_a_cache_is_as_large_as_what_is_asked_needs(tiny_gguf, batching, invariant):
    """The values of a token lie as far apart as the cache is long: each step of a larger one takes longer."""
    backend = loaded(tiny_gguf, 2048, batch_invariant=invariant)
    memory = backend.sequences()
    whole, sizes = memory._size, []

    def answers(count: int, length: int) -> list[str]:
        asked = [
            Request(SampleKey("b", "b", str(n)), tuple(tokens(length, n)), max_new_tokens=20, min_new_tokens=20)
            for n in range(count)
        ]
        computed = complete_all(backend, asked, batching=batching, computed=lambda _: sizes.append(memory._size))
        return [completion.text for _, completion in sorted(computed, key=lambda one: one[0])]

    few = answers(2, 100)
    assert set(sizes) == {512 if invariant and batching else 256}
    many = answers(5, 700)
    assert max(sizes) == (whole if batching else 1024 if invariant else 768)
    assert answers(2, 100) == few
    assert answers(5, 700) == many
    prefill(memory, 0, tokens(1500))
    assert memory._size == whole, "who does not say what is needed has all of it"
    assert backend.info.kv_cells == memory.max_cells == 2048
    backend.close()


def test_needles_are_found_together_as_alone(tmp_path):
    """The demo model's greedy answers, nine at once (some share their document), on every sample."""
    from lbx.benchmarks.needle.benchmark import Needle, NeedleSettings, make_sample
    from lbx.prompting.prompter import Prompter

    pytest.importorskip("gguf", reason="needs lbx[dev]")
    from tiny import EXPORTER, export_gguf

    exported = export_gguf(EXPORTER.parent / "hf", tmp_path / "demo.gguf", "f32")
    backend = loaded(exported, cache_type_k="f32", cache_type_v="f32")
    prompter = Prompter(backend.tokenizer, context_window=backend.info.context_window)
    samples = [
        make_sample(NeedleSettings(), kind, language, length=length, depth=depth, index=0)
        for kind in ("single", "multikey", "multiquery")
        for language in ("en", "zh")
        for length in (64, 300)
        for depth in (0.0, 0.5, 1.0)
    ]
    requests = [prompter.request(s.key, Needle().prompt(None, s), Sampling()) for s in samples]
    together = [done for at in range(0, 36, 9) for done in lockstep(backend, requests[at : at + 9])]
    alone = [complete(backend, request) for request in requests]
    assert len(alone) == 36
    assert [said(done) for done in together] == [said(done) for done in alone]
    assert {done.finish_reason for done in alone} >= {"stop"}
    backend.close()


def said(done):
    return done.text, done.output_tokens, done.finish_reason


def test_questions_of_one_document_are_answered_together_as_alone(llama):
    document = tokens(900)
    requests = [
        Request(SampleKey("made", "up", str(n)), (*document, *tokens(3 + 5 * n, n)), max_new_tokens=8 + 3 * n)
        for n in range(12)
    ]
    together = lockstep(llama, requests)
    assert [said(done) for done in together] == [said(complete(llama, request)) for request in requests]


def test_answers_that_were_thrown_out_go_on_as_alone(tiny_gguf, monkeypatch):
    """As none has ended, all are hoped to take 15 tokens. They are read again in one go, not one by one."""
    backend = loaded(tiny_gguf, 512, kv_cells=768, batch_invariant=True)
    ends, document = frozenset(), tokens(100)
    requests = [
        Request(
            SampleKey("made", "up", str(n)),
            (*document, *tokens(9, n)),
            max_new_tokens=120 - 3 * n,
            sampling=Sampling(temperature=1.0, seed=5),
        )
        for n in range(12)
    ]
    made_room = []
    make_room = DecodeBatch._make_room
    monkeypatch.setattr(DecodeBatch, "_make_room", lambda self: made_room.append(1) or make_room(self))
    found = dict(DecodeBatch(backend.sequences(), requests, backend.tokenizer, ends).run())
    assert made_room
    for n, request in enumerate(requests):
        ((_, alone),) = DecodeBatch(backend.sequences(), [request], backend.tokenizer, ends).run()
        assert found[n].output_ids == alone.output_ids
    backend.close()


def test_the_window_is_the_limit_however_large_the_memory(tiny_gguf):
    """What does not fit the context window is refused in a batch as alone, whole, and takes nobody with it."""
    backend = loaded(tiny_gguf, 256, kv_cells=1024)
    document = tokens(230)
    requests = [
        Request(SampleKey("made", "up", str(n)), (*document, *tokens(length, n)), max_new_tokens=8)
        for n, length in enumerate((10, 18, 19, 700, 0))
    ]
    found = dict(complete_all(backend, requests, batching=True))
    assert [type(found[n]) for n in range(5)] == [Completion, Completion, PromptError, PromptError, Completion]
    assert "the context window is 256" in str(found[2])
    for n in (0, 1, 4):
        assert said(found[n]) == said(complete(backend, requests[n]))
    backend.close()


# --- refusals


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([Extend(0, [], True)], "grow by no token"),
        ([Extend(1, [5], True), Extend(1, [6], True)], "twice"),
        ([Extend(0, [5] * 300, True), Extend(1, [5] * 213, True)], "513 tokens are more than a step takes: 512"),
        ([Extend(32, [5], True)], "among 32"),
        ([Extend(-1, [5], True)], "among 32"),
    ],
)
def test_what_cannot_be_asked(memory, items, message):
    prefill(memory, 0, [5, 6])
    with pytest.raises(ValueError, match=message):
        memory.extend(items)
    assert (memory.length(0), memory.length(1)) == (2, 0)
    assert memory.extend([]) == []


def test_forks_that_cannot_be(memory):
    prefill(memory, 0, tokens(10))
    for source, length, targets in (
        (0, 11, [1]),
        (0, -1, [1]),
        (0, 3, [1, 0]),
        (1, 1, [2]),
        (0, 1, [32]),
        (40, 1, [1]),
    ):
        with pytest.raises(ValueError):
            memory.fork(source, length, targets)
    memory.fork(0, 0, [1])
    assert [memory.length(n) for n in range(3)] == [10, 0, 0]


def test_a_full_memory_refuses_and_changes_nothing(small):
    memory = emptied(small.sequences())
    ids = tokens(200)
    prefill(memory, 0, ids)
    memory.fork(0, 200, [1, 2])
    prefill(memory, 1, tokens(50, 1))
    free, needed = (6, 62) if memory.traits.grain == 1 else (0, GRAIN)
    assert free_cells(memory) == free
    with pytest.raises(BackendError, match=f"256 tokens is full: {free} are free, {needed} more"):
        memory.extend([Extend(0, tokens(6, 2), True), Extend(2, tokens(56), True)])
    assert [memory.length(n) for n in range(3)] == [200, 250, 200]
    found = memory.extend([Extend(0, tokens(6, 2), True)])
    assert free_cells(memory) == 0
    memory.drop(0)
    assert free_cells(memory) == max(6, GRAIN if memory.traits.grain > 1 else 0), "the document is still held"
    memory.drop(1)
    memory.drop(2)
    assert free_cells(memory) == room(memory)
    same_next(found[0], PlainLlama(small).prefill([*ids, *tokens(6, 2)]))


@pytest.mark.parametrize("small", ["tiny"], indirect=True)
def test_a_full_memory_has_no_block_for_the_end_of_a_fork(small):
    memory = emptied(small.sequences())
    prefill(memory, 0, tokens(200))
    memory.fork(0, 200, [1, 2, 3])
    assert free_cells(memory) == 0
    with pytest.raises(BackendError, match=f"0 are free, {GRAIN} more"):
        memory.fork(1, 199, [4])
    assert [memory.length(n) for n in range(5)] == [200, 200, 200, 200, 0]
    memory.fork(1, 192, [4])
    assert memory.length(4) == 192


def test_a_failure_of_the_model_drops_every_sequence(memory):
    ids = tokens(30)
    for n in range(3):
        prefill(memory, n, ids)
    with pytest.raises(BackendError, match=r"failed on 2 tokens of 2 sequences: code -1: .*token"):
        memory.extend([Extend(0, [5], True), Extend(2, [10**6], True)])
    assert [memory.length(n) for n in range(3)] == [0, 0, 0]
    emptied(memory)
    assert np.array_equal(prefill(memory, 1, [*ids, 7]), prefill(memory, 0, [*ids, 7]))


def test_no_numbers_drop_everything(memory, monkeypatch):
    """NaN in one sequence's cells reaches all others, by a weight of 0 times NaN."""
    prefill(memory, 0, tokens(5))
    monkeypatch.setattr(memory, "_logits", lambda row: np.full(10, np.nan, np.float32))
    with pytest.raises(BackendError, match="NaN"):
        memory.extend([Extend(1, [5], True)])
    emptied(memory)


@pytest.mark.parametrize(
    "moment", ["llama_decode", "llama_memory_seq_cp", "llama_memory_seq_rm", "llama_state_seq_set_data"]
)
def test_an_interruption_leaves_nothing_half_done(llama, memory, monkeypatch, moment):
    ids = tokens(600)
    prefill(memory, 0, ids)

    class Interrupted:
        def __getattr__(self, name):
            if name != moment:
                return getattr(llama._lib, name)

            def interrupted(*arguments):
                getattr(llama._lib, name)(*arguments)
                raise KeyboardInterrupt  # Python sees Ctrl-C when the call comes back

            return interrupted

    monkeypatch.setattr(memory, "_lib", Interrupted())
    monkeypatch.setattr(memory._cells, "_lib", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        memory.fork(0, 600, [1])
        memory.extend([Extend(1, [5], True)])
    monkeypatch.undo()
    assert memory.length(0) == memory.length(1) == 0
    emptied(memory)
    assert np.array_equal(prefill(memory, 1, ids), PlainLlama(llama).prefill(ids))


def test_a_closed_model_says_so(tiny_gguf):
    backend = loaded(tiny_gguf, 256)
    memory = backend.sequences()
    prefill(memory, 0, [5])
    backend.close()
    assert memory.length(0) == 0
    memory.drop(0)
    with pytest.raises(BackendError, match="closed"):
        memory.extend([Extend(0, [5], True)])
    with pytest.raises(BackendError, match="closed"):
        memory.fork(0, 0, [1])
    with pytest.raises(BackendError, match="closed"):
        backend.tokenizer.encode("a word", special=False)


# --- which models, how much room


def test_a_recurrent_models_sequences_begin_as_copies_of_others_as_they_stand(tiny_gguf, tmp_path):
    from llama_kinds import write_kind

    backend = loaded(write_kind("mamba", tiny_gguf, tmp_path / "mamba.gguf"), 256, prefill_chunk=16)
    memory = backend.sequences()
    begin, documents = tokens(10), [tokens(100, 1), tokens(120, 2)]
    ends = [[*tokens(shared, 3), *tokens(4, shared)] for shared in (1, 3, 3, 5)]
    prompts = [(*begin, *document, *end) for document in documents for end in ends]
    requests = [Request(SampleKey("a", "b", str(n)), ids, 8) for n, ids in enumerate(prompts)]
    batch = DecodeBatch(memory, requests, backend.tokenizer, backend.eos_ids)
    found = dict(batch.run())
    assert batch.prompt_tokens == batch.plan.computed_tokens < sum(map(len, prompts)) / 2
    for place, request in enumerate(requests):
        assert said(found[place]) == said(complete(backend, request))
    prefill(memory, 0, begin)
    with pytest.raises(ValueError, match="has 10 tokens and is forked there, not at 5"):
        memory.fork(0, 5, [1])
    backend.close()


def test_a_model_that_picks_what_it_sees_holds_one_sequence(tiny_gguf, tmp_path):
    """Sparse attention: what prompts share is read once, each of them is a first part of the one sequence."""
    from llama_kinds import write_kind

    path = write_kind("gemma3", tiny_gguf, tmp_path / "sparse.gguf", attention__indexer__head_count=2)
    backend = loaded(path, 256, prefill_chunk=64)
    document = tokens(150)
    requests = [Request(SampleKey("a", "b", str(n)), (*document, *tokens(5 + n, n)), 8) for n in range(4)]
    alone = [complete(backend, request) for request in requests]
    batch = DecodeBatch(backend.sequences(), requests, backend.tokenizer, backend.eos_ids)
    found = dict(batch.run())
    assert [said(found[n]) for n in range(4)] == [said(one) for one in alone]
    assert batch.prompt_tokens == batch.plan.computed_tokens == 150 + 5 + 6 + 7 + 8
    memory = backend.sequences()
    same_next(prefill(memory, 0, document), PlainLlama(backend).prefill(document))
    prefill(memory, 0, document)
    memory.fork(0, 100, [1])
    with pytest.raises(ValueError, match="sequence 1 has 100 tokens, and another has 150"):
        memory.extend([Extend(1, [5], True)])
    backend.close()


def test_options_set_the_room(tiny_gguf, sliding_gguf):
    backend = loaded(tiny_gguf, 256, kv_cells=1000, max_sequences=256, prefill_chunk=16)
    memory = backend.sequences()
    assert (memory.max_sequences, memory.max_step, backend.info.context_window) == (253, 16, 256)
    assert 1000 <= memory.max_cells < 1256, "llama.cpp rounds up"
    assert prefill(memory, 252, tokens(40)) is not None
    assert (backend.info.hardware["max_sequences"], backend.info.hardware["kv_cells"]) == (253, 1000)
    backend.close()
    backend = loaded(sliding_gguf, 256, max_sequences=256)
    assert (backend.sequences().max_sequences, capacity_of(backend.sequences()).answers) == (12, 8)
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
        loaded(tiny_gguf, 256, kv_cells=100)
    with pytest.raises(BackendError, match=r"KV cache of tiny for 2000000000 tokens takes .* GiB; .* Lower kv_cells"):
        loaded(tiny_gguf, 256, kv_cells=2_000_000_000)
