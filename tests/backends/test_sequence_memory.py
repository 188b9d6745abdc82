"""The contract of ``SequenceMemory``, for all memories: the numbers of each sequence alone, and every cell counted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Completion, Sampling
from lbx.engine.batching import DecodeBatch, complete, complete_all
from lbx.engine.model import MemoryFullError, SequenceExtension
from tests.backends.memories import (
    BFLOAT16,
    FLOAT32,
    KINDS,
    Subject,
    emptied,
    make_subject,
    prefill,
    questions,
    rows_alone,
    run_schedule,
    said,
    tokens_of,
)

LOADED = [kind for kind in KINDS if not kind.startswith("toy")]


@pytest.fixture(scope="module", params=KINDS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    folder = tmp_path_factory.mktemp("memory")
    subject = make_subject(request.param, folder, request.getfixturevalue)
    yield subject
    subject.backend.close()


@pytest.fixture
def subject(loaded: Subject) -> Iterator[Subject]:
    emptied(loaded.memory)
    yield loaded
    emptied(loaded.memory)


@pytest.mark.parametrize("seed", range(6))
def test_any_schedule_keeps_count_and_logits(subject: Subject, seed: int) -> None:
    run_schedule(subject, seed)


def test_a_full_memory_refuses_and_changes_nothing(subject: Subject) -> None:
    memory, tokens = subject.memory, tokens_of(150)
    prefill(memory, 0, tokens)
    memory.fork(0, 150, [1, 2])
    grown = list(tokens)
    with pytest.raises(MemoryFullError, match="full"):
        while True:
            before = [memory.length(sequence) for sequence in range(3)], memory.used_cells
            memory.extend([SequenceExtension(1, [7] * 60, False), SequenceExtension(2, [8], False)])
            grown += [7] * 60
    assert ([memory.length(sequence) for sequence in range(3)], memory.used_cells) == before
    memory.drop(2)
    memory.drop(0)
    assert memory.length(1) == len(grown)
    (logits,) = memory.extend([SequenceExtension(1, [9], True)])
    subject.check(logits, [*grown, 9])


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([SequenceExtension(0, [], True)], "no new tokens"),
        ([SequenceExtension(1, [5], True), SequenceExtension(1, [6], True)], "twice"),
        (
            [SequenceExtension(0, [5] * 40, True), SequenceExtension(1, [5] * 25, True)],
            "65 tokens exceed the limit of 64 per step",
        ),
        ([SequenceExtension(16, [5], True)], "sequence 16 is out of range"),
        ([SequenceExtension(-1, [5], True)], "sequence -1 is out of range"),
    ],
)
def test_wrong_items_are_value_errors(subject: Subject, items: list[SequenceExtension], message: str) -> None:
    memory = subject.memory
    prefill(memory, 0, [5, 6])
    with pytest.raises(ValueError, match=message):
        memory.extend([SequenceExtension(3, [9], False), *items] if len(items) == 1 and items[0].tokens else items)
    assert [memory.length(sequence) for sequence in (0, 1, 3)] == [2, 0, 0]
    assert memory.extend([]) == []


def test_wrong_forks_are_value_errors(subject: Subject) -> None:
    memory = subject.memory
    prefill(memory, 0, [5, 6, 7])
    prefill(memory, 1, [8])
    wrong = [(0, 4, [1]), (0, -1, [1]), (2, 1, [1]), (0, 3, [1, 0]), (0, 3, [16]), (16, 0, [1])]
    for source, length, targets in wrong + [(0, 2, [1])] * (not memory.traits.forks_anywhere):
        with pytest.raises(ValueError, match="sequence"):
            memory.fork(source, length, targets)
    assert [memory.length(sequence) for sequence in range(3)] == [3, 1, 0]
    memory.fork(2, 0, [1])
    assert memory.length(1) == 0


def test_logits_are_copies(subject: Subject) -> None:
    memory = subject.memory
    (first,) = memory.extend([SequenceExtension(0, [20, 21], True)])
    kept = first.copy()
    first += 1
    (again,) = memory.extend([SequenceExtension(1, [20, 21], True)])
    assert np.array_equal(again, kept)


@pytest.mark.parametrize("loaded", LOADED, indirect=True)
def test_questions_on_a_document_are_answered_together_as_alone(subject: Subject) -> None:
    """Prompts that exceed the window are refused by themselves."""
    backend = subject.backend
    requests = questions(tokens_of(150), 8, 10)
    requests += questions(tokens_of(250, 3), 1, 10)
    results = dict(complete_all(backend, requests, batching=True))
    assert sorted(results) == list(range(9))
    window = backend.info.context_window
    assert isinstance(results[8], PromptError) == (window < 250 + 5 + 10)
    answers = {n: result for n, result in results.items() if isinstance(result, Completion)}
    if subject.tolerance != BFLOAT16:
        assert {n: said(answer) for n, answer in answers.items()} == {
            n: said(complete(backend, requests[n])) for n in answers
        }
        assert len({answer.text for answer in answers.values()}) > 4
    assert sum(answer.cached_tokens for n, answer in answers.items() if n < 8) >= 7 * 150


@pytest.mark.parametrize("loaded", ["hf", "llama"], indirect=True)
def test_preempted_answers_go_on_with_the_same_tokens(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first the answers are expected to be short; the memory cannot hold all of them at their budgets."""
    backend, preempted = subject.backend, []
    preempt = DecodeBatch._preempt_youngest
    monkeypatch.setattr(DecodeBatch, "_preempt_youngest", lambda batch: preempted.append(1) or preempt(batch))
    exact = subject.tolerance == 0
    sampling = Sampling(temperature=1.0, seed=5) if exact else Sampling()
    requests = questions(tokens_of(50), 8, 100, sampling=sampling)
    results = dict(DecodeBatch(subject.memory, requests, backend.tokenizer, ()).run())
    assert preempted
    for number, request in enumerate(requests):
        answer = results[number].output_ids
        if exact:
            ((_, alone),) = DecodeBatch(subject.memory, [request], backend.tokenizer, ()).run()
            assert answer == alone.output_ids
            continue
        rows = rows_alone(backend, [*request.token_ids, *answer])[len(request.token_ids) - 1 : -1]
        for row, token in zip(rows, answer, strict=True):
            assert float(row.max() - row[token]) / np.ptp(row) < FLOAT32


@pytest.mark.parametrize("kind", ["hf", "hf copies", "llama"])
def test_a_closed_model_says_so(kind: str, tmp_path: pytest.TempPathFactory, request: pytest.FixtureRequest) -> None:
    subject = make_subject(kind, tmp_path, request.getfixturevalue)
    backend, memory = subject.backend, subject.memory
    assert backend.sequences() is memory
    memory.extend([SequenceExtension(0, [5], False)])
    backend.close()
    with pytest.raises(BackendError, match="closed"):
        memory.extend([SequenceExtension(0, [5], True)])
    with pytest.raises(BackendError, match="closed"):
        backend.sequences()


@pytest.fixture(scope="module", params=["hf", "llama"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from tests.backends.memories import load_hf, load_llama
    from tests.backends.tiny import EXPORTER, export_gguf

    folder, temporary = EXPORTER.parent / "hf", tmp_path_factory.mktemp("demo")
    if not (folder / "model.safetensors").is_file():
        pytest.skip("models/demo/hf has no weights: make them with models/demo/train.py")
    if request.param == "hf":
        backend = load_hf(folder, temporary, max_sequences=16, kv_cells=4096)
    else:
        gguf = export_gguf(folder, temporary / "demo.gguf", "f32")
        backend = load_llama(gguf, cache_type_k="f32", cache_type_v="f32")
    yield backend
    backend.close()


def test_needles_are_found_together_as_alone(demo: object) -> None:
    """The demo model's answers to ten prompts at a time, some of which share their document."""
    from lbx.benchmarks.needle import Needle, NeedleSettings, make_sample
    from lbx.engine.prompter import Prompter

    prompter = Prompter(demo.tokenizer, context_window=demo.info.context_window)  # type: ignore[attr-defined]
    samples = [
        make_sample(NeedleSettings(), kind, language, length=length, depth=depth, index=0)
        for kind in ("single", "multikey", "multiquery")
        for language in ("en", "zh")
        for length in (64, 300)
        for depth in (0.0, 0.5, 1.0)
    ]
    requests = [prompter.request(s.key, Needle().prompt(None, s), Sampling()) for s in samples]
    together = dict(complete_all(demo, requests, batching=True))
    assert [said(together[n]) for n in range(36)] == [said(complete(demo, request)) for request in requests]
    correct = sum(all(ref in together[n].text for ref in s.references) for n, s in enumerate(samples))
    assert correct >= 12, "the answers compared are not noise"
