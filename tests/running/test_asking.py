"""One sample from prompt to row: steps, marks, and what fails for a sample alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lbx.backends.scripted import EOS
from lbx.base.bundle_folder import Bundle
from lbx.base.marks import QUESTION_CHANGED, UNFINISHED
from lbx.base.records import Prompt, Request, Sample, SampleKey, Truncation
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.longbench.benchmark import LongBench
from lbx.benchmarks.longbench_pro.benchmark import LongBenchPro
from lbx.benchmarks.longbench_v2 import LongBenchV2
from lbx.options.run_spec import RunSettings
from lbx.results import GenerationRow, Store
from lbx.running.answering import answer_job, is_reference_cut
from lbx.running.jobs import PendingSample, Work
from tests.running.engine_parts import (
    Watcher,
    longbench_bundle,
    longbench_row,
    make_work,
    pro_bundle,
    pro_row,
    run,
    run_row,
    scripted,
    v2_bundle,
    v2_row,
)

V2 = LongBenchV2()
KEY = SampleKey("longbench_v2", "mcq", "q0")
CHAT = "{% for m in messages %}<s>user: {{ m['content'] }} assistant: {% endfor %}"


def ask(work: Work, benchmark: Benchmark, sample: Sample) -> GenerationRow:
    work = dataclasses.replace(work, benchmarks={sample.benchmark: benchmark})
    *_, (_, row) = answer_job([work], [PendingSample(0, sample, 0, (0,))])
    return row


def one(tmp_path: Path, row: Mapping[str, Any], answers: Mapping[str, Any], settings: RunSettings, **card: Any) -> Any:
    """LongBench v2's only question asked: the work, the sample and its row."""
    bundle = v2_bundle(tmp_path / "bundle", [row])
    (task,) = V2.tasks(bundle)
    (sample,) = V2.samples(bundle, task.name)
    _, backend = scripted(tmp_path / "model", answers, **card)
    work = make_work(bundle, [task], backend, settings)
    return work, sample, ask(work, V2, sample)


def tokens(work: Work, benchmark: Benchmark, sample: Sample, output: str | None = None) -> Request:
    """The request of the first step, or of the second one after an output."""
    prompt = (
        benchmark.prompt(work.bundle, sample, work.mode)
        if output is None
        else benchmark.next_step(work.bundle, sample, work.mode, [output])
    )
    assert isinstance(prompt, Prompt)
    return work.prompter.request(sample.key, prompt, work.settings.sampling_for(prompt, 0))


def test_one_step(tmp_path: Path) -> None:
    work, sample, row = one(tmp_path, v2_row(0), {"*": "The correct answer is (A)"}, RunSettings(seed=3))
    request = tokens(work, V2, sample)
    assert (row.output, row.finish_reason, row.error, row.steps) == ("The correct answer is (A)", "stop", None, None)
    assert (row.prompt_tokens, row.output_tokens) == (len(request.token_ids), 25)
    assert (row.prompt_sha256, row.prompt_source) == (request.prompt_sha256, "THUDM/LongBench/prompts/0shot.txt")
    assert (row.seed, row.bos_tokens, row.truncated, row.tokens_cut) == (3, 1, False, 0)
    assert (row.reference_cut, row.reasoning_closed, row.reasoning) == (None, None, None)


def test_two_steps_are_added_up(tmp_path: Path) -> None:
    work, sample, row = one(tmp_path, v2_row(1), {"*": "It is (B), I think."}, RunSettings(cot=True))
    first, second = tokens(work, V2, sample), tokens(work, V2, sample, "It is (B), I think.")
    assert second.token_ids != first.token_ids
    assert row.prompt_tokens == len(first.token_ids) + len(second.token_ids)
    assert row.original_tokens == first.original_tokens + second.original_tokens
    assert row.output_tokens == 2 * 19
    assert row.prompt_sha256 == first.prompt_sha256
    assert row.prompt_source == "THUDM/LongBench/prompts/0shot_cot.txt"
    assert row.steps == [
        {
            "output": "It is (B), I think.",
            "reasoning": None,
            "finish_reason": "stop",
            "prompt_tokens": len(first.token_ids),
            "output_tokens": 19,
            "prompt_sha256": first.prompt_sha256,
            "prompt_source": "THUDM/LongBench/prompts/0shot_cot.txt",
            "output_ids": [*b"It is (B), I think.", EOS],
        }
    ]
    assert row.output_ids == (*b"It is (B), I think.", EOS)
    with Store(tmp_path / "results.duckdb") as store:
        store.begin_run(run_row())
        store.write(generations=[row])
        ((kept, ids),) = store.query("SELECT steps, output_ids FROM generations").rows
        assert json.loads(kept) == row.steps
        assert tuple(ids) == row.output_ids


def test_a_finished_step_is_not_asked_again(tmp_path: Path) -> None:
    work, sample, _ = one(tmp_path, v2_row(1), {"*": "It is (B), I think."}, RunSettings(cot=True))
    work = dataclasses.replace(work, benchmarks={sample.benchmark: V2})
    (_, begun), (_, whole) = answer_job([work], [PendingSample(0, sample, 0, (0,))])
    assert (begun.error_type, begun.output, len(begun.steps or ())) == (UNFINISHED, None, 1)
    with Store(tmp_path / "results.duckdb") as store:
        store.begin_run(run_row())
        store.write(generations=[begun])
        finished = store.read_finished_steps(begun.run_id)
        assert store.begin_run(run_row()) == set()
        store.write(generations=[dataclasses.replace(whole, error="changed", error_type=QUESTION_CHANGED)])
        assert store.read_finished_steps(begun.run_id) == {}, "asked anew"
    ((key, steps),) = finished.items()
    ((_, continued),) = answer_job([work], [PendingSample(0, sample, 0, (0,), {0: steps})])
    without_time = {"created_at": whole.created_at, "decode_s": whole.decode_s, "prefill_s": whole.prefill_s}
    assert key == sample.key and dataclasses.replace(continued, **without_time) == whole
    steps[0]["prompt_sha256"] = "another"
    rows = [row for _, row in answer_job([work], [PendingSample(0, sample, 0, (0,), {0: steps})])]
    assert [row.error_type for row in rows] == [UNFINISHED, None] and rows[1].output == whole.output


def test_steps_of_other_peoples_files_are_checked(tmp_path: Path) -> None:
    work, sample, _ = one(tmp_path, v2_row(1), {"*": "It is (B), I think."}, RunSettings(cot=True))
    work = dataclasses.replace(work, benchmarks={sample.benchmark: V2})
    (_, begun), (_, whole) = answer_job([work], [PendingSample(0, sample, 0, (0,))])
    (step,) = begun.steps or ()
    for change in ({"output": 5}, {"prompt_tokens": "a"}, {"output_ids": ["x"]}, {"decode_s": None}, None, [1]):
        steps: Any = [{**step, **change} if isinstance(change, dict) else change]
        rows = [row for _, row in answer_job([work], [PendingSample(0, sample, 0, (0,), {0: steps})])]
        assert [row.output for row in rows] == [None, whole.output], change


def test_a_first_step_at_its_limit_marks_the_row(tmp_path: Path) -> None:
    """The same text is 1,024 tokens too long for the first step and 128 for the second; then only for the second."""
    for number, (length, first, output) in enumerate(
        ((2000, "length", 128), (1024, "length", 128), (100, "stop", 100))
    ):
        _, _, row = one(tmp_path / str(number), v2_row(0), {"*": "x" * length}, RunSettings(cot=True))
        assert row.steps[0]["finish_reason"] == first
        assert row.finish_reason == first
        assert len(row.output) == output
    answer = {"*": "y" * 500}
    _, _, row = one(tmp_path / "last", v2_row(0), answer, RunSettings(cot=True))
    assert (row.steps[0]["finish_reason"], row.finish_reason) == ("stop", "length")


def test_an_empty_first_answer_is_the_answer(tmp_path: Path) -> None:
    _, _, row = one(tmp_path, v2_row(0), {"*": ""}, RunSettings(cot=True))
    assert (row.output, row.steps, row.error, row.output_tokens) == ("", None, None, 0)


def test_what_fails_becomes_a_row(tmp_path: Path) -> None:
    _, _, row = one(tmp_path / "a", v2_row(0), {"*": {"error": "out of memory"}}, RunSettings())
    assert (row.output, row.error, row.error_type) == (None, "out of memory", "BackendError")
    assert row.prompt_source == "THUDM/LongBench/prompts/0shot.txt"
    _, _, row = one(tmp_path / "b", v2_row(0), {"other": "x"}, RunSettings())
    assert row.error_type == "BackendError"
    assert "no entry for longbench_v2/mcq/q0" in row.error
    _, _, row = one(tmp_path / "c", v2_row(0), {"*": "x"}, RunSettings(), window=128)
    assert row.error_type == "EmptyPromptError"


def test_an_empty_prompt_fails_its_sample(tmp_path: Path) -> None:
    bundle = v2_bundle(tmp_path / "bundle", [v2_row(0, context=" ", question=" "), v2_row(1)])
    (bundle.root / "data/files/THUDM/LongBench/prompts/0shot.txt").write_text(" $DOC$$Q$ ")
    _, backend = scripted(tmp_path / "model", {"*": "x"})
    with Store(tmp_path / "results.duckdb") as store:
        outcome = run(store, make_work(bundle, V2.tasks(bundle), backend, RunSettings()))
        assert (outcome.answered, outcome.failed) == (1, 1)
        ((kind, error),) = store.query("SELECT error_type, error FROM generations WHERE error IS NOT NULL").rows
        assert kind == "PromptError"
        assert "is empty" in error


def test_a_second_step_that_fails_fails_the_sample(tmp_path: Path) -> None:
    """The reasoning fills the window, so that nothing is left of the second prompt's room."""
    settings = RunSettings(cot=True, max_new_tokens=200)
    _, _, row = one(tmp_path, v2_row(0), {"*": "t" * 150}, settings, window=200 + 1)
    assert row.error_type == "EmptyPromptError"
    assert (row.output, row.steps) == (None, None)


# What truncation took


def marked(tmp_path: Path, row: Mapping[str, Any], limit: int) -> GenerationRow:
    made = one(tmp_path, row, {"*": "x"}, RunSettings(max_prompt_tokens=limit))[2]
    assert isinstance(made, GenerationRow)
    return made


def test_marks_of_truncation(tmp_path: Path) -> None:
    row = v2_row(0)
    whole = marked(tmp_path / "whole", row, 100_000)
    assert (whole.truncated, whole.reference_cut) == (False, None)
    cut = marked(tmp_path / "cut", row, 600)
    assert cut.original_tokens
    assert (cut.truncated, cut.prompt_tokens) == (True, 600)
    assert cut.tokens_cut == cut.original_tokens - 600
    assert cut.reference_cut is True, "only the question spells the right choice now"
    early = marked(tmp_path / "early", row | {"context": f"Colour A0 it was. {row['context']}"}, 600)
    assert early.reference_cut is False
    late = marked(tmp_path / "late", row | {"context": f"{row['context']} Colour A0 it was."}, 600)
    assert late.reference_cut is False
    nowhere = marked(tmp_path / "nowhere", row | {"context": row["context"].replace("colour", "paint")}, 600)
    assert nowhere.reference_cut is None


def test_a_cut_into_the_question_keeps_no_evidence(tmp_path: Path) -> None:
    """Less is kept than the question is long, and what is kept of it spells the answer."""
    row = v2_row(3, choice_A="a " * 300)
    (sample,) = V2.samples(v2_bundle(tmp_path / "x", [row]), "mcq")
    assert sample.references == ("D",)
    made = marked(tmp_path / "y", row, 60)
    assert (made.truncated, made.reference_cut) == (True, True)


BEFORE, DOCUMENT, AFTER = (
    "Read this: ",
    "north " * 9 + "the treasure" + " south" * 9,
    " Where is it? (the treasure, the sea)",
)


@given(st.integers(0, 200), st.integers(0, 200))
def test_reference_cut_looks_at_the_document_only(head: int, tail: int) -> None:
    """Whatever is cut out, one reference is gone exactly where none of the document's own words show it."""
    prompt = Prompt(BEFORE, DOCUMENT, AFTER, 1, Truncation.MIDDLE)
    text = prompt.text
    end = max(head, len(text) - tail)
    if head >= end:
        return
    kept = text[:head] + text[end:]
    # Where the texts at the cut agree by chance, nobody can tell from the kept text which of them is left.
    assume(head >= len(BEFORE) or kept[head : head + 1] != BEFORE[head])
    assume(tail >= len(AFTER) or not head or kept[head - 1] != text[end - 1])
    begin, over = len(BEFORE), len(BEFORE) + len(DOCUMENT)
    left = text[begin : min(head, over)] + text[min(max(end, begin), over) : over]
    request = Request(KEY, (), 1, truncated=True, kept=kept)
    assert is_reference_cut(["The Treasure "], prompt, request) is ("the treasure" not in left)


@pytest.mark.parametrize("folded", [True, False])
def test_reference_cut_looks_past_the_turns(folded: bool) -> None:
    prompt = Prompt(
        "Read: ", DOCUMENT, " Where?", 1, Truncation.DOCUMENT_MIDDLE, turns=("At the treasure.", "And the sea?")
    )
    after = prompt.with_turns_in_text.after if folded else prompt.after
    for left in ("north the treasure", "north south"):
        request = Request(KEY, (), 1, truncated=True, kept=f"Read: {left}{after}")
        assert is_reference_cut(["the treasure"], prompt, request) is ("treasure" not in left)


def test_reference_cut_without_evidence() -> None:
    prompt = Prompt(BEFORE, DOCUMENT, AFTER, 1, Truncation.MIDDLE)
    cut = Request(KEY, (), 1, truncated=True, kept=BEFORE + "north" + AFTER)
    assert is_reference_cut(["the treasure"], prompt, cut) is True
    assert is_reference_cut(["the treasure", "NORTH"], prompt, cut) is False
    assert is_reference_cut([], prompt, cut) is None
    assert is_reference_cut(["", " "], prompt, cut) is None
    assert is_reference_cut(["a lighthouse"], prompt, cut) is None
    assert is_reference_cut(["the treasure"], prompt, Request(KEY, (), 1)) is None


# Reasoning and chat


def test_thinking_budgets_from_settings_to_columns(tmp_path: Path) -> None:
    bundle = pro_bundle(tmp_path / "bundle", [pro_row(number) for number in range(4)])
    benchmark = LongBenchPro()
    (task,) = benchmark.tasks(bundle)
    answers = {
        "longbench_pro/t3.2/q0": "<think>" + "a" * 20 + "</think>[Answer]\nIn 1900 the ship left the harbour.",
        "longbench_pro/t3.2/q1": "<think>" + "a" * 100,
        "longbench_pro/t3.2/q2": "[Answer]\nno reasoning",
        "longbench_pro/t3.2/q3": "<think>b</think>" + "c" * 60,
    }
    _, backend = scripted(tmp_path / "model", answers, template=CHAT)
    work = make_work(bundle, [task], backend, RunSettings(iterations=1, thinking_tokens=50, max_new_tokens=45))
    with Store(tmp_path / "results.duckdb") as store:
        assert run(store, work).answered == 4
        found = store.query(
            "SELECT output, reasoning, reasoning_tokens, reasoning_closed, finish_reason, output_tokens, bos_tokens "
            "FROM generations ORDER BY sample_id"
        ).rows
        assert found == [
            ("[Answer]\nIn 1900 the ship left the harbour.", "a" * 20, 35, True, "stop", 78, 1),
            ("", "a" * 43, 50, False, "length", 50, 1),
            ("[Answer]\nno reasoning", None, 0, None, "stop", 21, 1),
            ("c" * 45, "b", 16, True, "length", 61, 1),
        ]
        guards = store.query("SELECT n, reasoning_unclosed, answers_cut, doubled_bos, mode FROM guards").rows
        assert guards == [(4, 1, 1, 0, "thinking")]


def test_every_iteration_has_its_seed(tmp_path: Path) -> None:
    bundle = pro_bundle(tmp_path / "bundle", [pro_row(0)])
    (task,) = LongBenchPro().tasks(bundle)
    answers = {"longbench_pro/t3.2/q0#2": "third", "*": "other"}
    _, backend = scripted(tmp_path / "model", answers)
    with Store(tmp_path / "results.duckdb") as store:
        run(store, make_work(bundle, [task], backend, RunSettings(seed=7)))
        found = store.query("SELECT iteration, seed, output FROM generations ORDER BY 1").rows
        assert found == [(0, 7, "other"), (1, 8, "other"), (2, 9, "third")]


def qasper(folder: Path, count: int) -> Bundle:
    return longbench_bundle(folder, {"qasper": [longbench_row(number, "qasper") for number in range(count)]})


def test_a_run_that_is_interrupted_goes_on(tmp_path: Path) -> None:
    bundle = qasper(tmp_path / "bundle", 5)
    tasks = LongBench().tasks(bundle)
    _, backend = scripted(tmp_path / "model", {"longbench/qasper/id3": {"error": "no"}, "*": "person 1"})
    with Store(tmp_path / "results.duckdb") as store:
        work = make_work(bundle, tasks, backend, RunSettings())
        with pytest.raises(KeyboardInterrupt):
            run(store, work, Watcher(raise_at=2))
        assert store.query("SELECT status FROM runs").rows == [("interrupted",)]
        assert store.query("SELECT n FROM task_results").rows == [(2,)]
        outcome = run(store, work)
        assert (outcome.answered, outcome.failed, outcome.done_before, outcome.failures) == (2, 1, 2, 1)
        assert store.query("SELECT n, official FROM task_scores").rows == [(4, 62.5)]
        assert store.query("SELECT status FROM runs").rows == [("done",)]
