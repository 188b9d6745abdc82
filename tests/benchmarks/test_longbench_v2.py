"""LongBench v2 on the real questions beside the checkout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.records import Chunk, Prompt, Sample, ScoredSample, Truncation
from lbx.benchmarks.longbench_v2 import DOMAINS, PROMPTS, TASK, LongBenchV2
from lbx.options.asking import Mode

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
FIELDS = ("domain", "sub_domain", "difficulty", "length", "question", "choice_A", "choice_B", "choice_C", "choice_D")
PROMPT = f"{PROMPTS}/0shot.txt"
ROW = {"_id": "x", **{name: f" {name} " for name in FIELDS}, "answer": "C", "context": " c $Q$ "}


CHUNKS = (Chunk(7, 0, 0.9, "seven "), Chunk(9, 2, 0.1, "nine"), Chunk(2, 1, 0.5, " two"))


def official_prompt(template: str, row: dict[str, str], *, context: str | None = None, response: str = "") -> str:
    """As pred.py fills its templates: one replacement after the other, the second step's reasoning last."""
    text = template.replace("$DOC$", (row["context"] if context is None else context).strip())
    text = text.replace("$Q$", row["question"].strip())
    for letter in "ABCD":
        text = text.replace(f"$C_{letter}$", row[f"choice_{letter}"].strip())
    return text.replace("$COT$", response) if response else text


def test_real_questions(bundle: Bundle) -> None:
    folder, template = bundle.snapshot("dataset", "THUDM/LongBench-v2"), bundle.file(PROMPT)
    assert folder
    assert template
    rows = json.loads((folder / "data.json").read_text("utf-8"))
    (task,) = LongBenchV2().tasks(bundle)
    assert (task.full_name, task.samples) == ("longbench_v2/mcq", 23)
    samples = list(LongBenchV2().samples(bundle, TASK))
    assert [sample.sample_id for sample in samples] == [row["_id"] for row in rows]
    assert [sample.meta["length"] for sample in samples].count("short") == 16
    for sample, row in zip(samples, rows, strict=True):
        prompt = LongBenchV2().prompt(bundle, sample)
        assert prompt.text == official_prompt(template.read_text("utf-8"), row)
        assert prompt.document == row["context"].strip()
        assert (prompt.max_new_tokens, prompt.temperature) == (128, 0.1)
        assert (prompt.truncation, prompt.limits) == (
            Truncation.MIDDLE_FLOOR,
            dict.fromkeys(range(128_000, 131_073), 120_000),
        )
        assert sample.length == len(row["context"])
        assert row["context"] not in json.dumps(dict(sample.meta), ensure_ascii=False)
    told = [_scored(sample, f"The correct answer is ({sample.references[0]})") for sample in samples]
    numbers = {score.metric: score for score in LongBenchV2().aggregate(TASK, told)}
    assert all(score.official == (0.0 if name == "empty" else 100.0) for name, score in numbers.items())
    assert (numbers["accuracy/short"].n, numbers["accuracy/medium"].n, numbers["accuracy/long"].n) == (16, 5, 2)


def test_two_rows_with_one_id_are_named(make_bundle: MakeBundle) -> None:
    data = json.dumps([ROW, {**ROW, "_id": "y"}, {**ROW, "question": "other"}])
    bundle = make_bundle({"hub:THUDM/LongBench-v2/data.json": data.encode()})
    with pytest.raises(BundleError, match=r"data\.json, line 1: rows 1 and 3 have the same _id, 'x'"):
        list(LongBenchV2().samples(bundle, TASK))


def _scored(sample: Sample, output: str) -> ScoredSample:
    return ScoredSample(sample, {score.metric: score.score for score in LongBenchV2().score(sample, output)})


def real(bundle: Bundle, name: str) -> tuple[str, list[Sample], list[dict[str, str]]]:
    """An official template, the samples and their rows."""
    folder, template = bundle.snapshot("dataset", "THUDM/LongBench-v2"), bundle.file(f"{PROMPTS}/{name}")
    assert folder
    assert template
    rows = json.loads((folder / "data.json").read_text("utf-8"))
    return template.read_text("utf-8"), list(LongBenchV2().samples(bundle, TASK)), rows


@pytest.mark.parametrize(
    ("mode", "name", "budget"),
    [
        (Mode(), "0shot.txt", 128),
        (Mode(thinking=True), "0shot.txt", 128),
        (Mode(cot=True), "0shot_cot.txt", 1024),
        (Mode(no_context=True), "0shot_no_context.txt", 128),
        (Mode(no_context=True, cot=True), "0shot_no_context.txt", 1024),
        (Mode(rag=3), "0shot_rag.txt", 128),
        (Mode(rag=3, cot=True), "0shot_rag.txt", 1024),
    ],
)
def test_every_way_to_ask(bundle: Bundle, mode: Mode, name: str, budget: int) -> None:
    """Against pred.py's own way of making the first prompt; the second one has the reasoning and no document."""
    template, samples, rows = real(bundle, name)
    answer, _, _ = real(bundle, "0shot_cot_ans.txt")
    retrieved = "Retrieved chunk 1:  two\n\nRetrieved chunk 2: seven \n\nRetrieved chunk 3: nine"
    for sample, row in zip(samples, rows, strict=True):
        prompt = LongBenchV2().prompt(bundle, sample, mode, CHUNKS if mode.rag else ())
        assert prompt.text == official_prompt(template, row, context=retrieved if mode.rag else None)
        assert prompt.document == ("" if mode.no_context else retrieved if mode.rag else row["context"].strip())
        assert (prompt.max_new_tokens, prompt.temperature, prompt.source) == (budget, 0.1, f"{PROMPTS}/{name}")
        second = LongBenchV2().next_step(bundle, sample, mode, [" So it is $Q$, B. \n"])
        if not mode.cot:
            assert second == " So it is $Q$, B. \n"
            continue
        assert isinstance(second, Prompt)
        assert second.text == official_prompt(answer, row, response="So it is $Q$, B.")
        assert (second.document, second.max_new_tokens, second.temperature) == ("", 128, 0.1)
        assert (second.truncation, second.limits) == (
            Truncation.MIDDLE_FLOOR,
            dict.fromkeys(range(128_000, 131_073), 120_000),
        )
        assert second.source == f"{PROMPTS}/0shot_cot_ans.txt"


def test_an_empty_reasoning_ends_the_question(bundle: Bundle) -> None:
    """pred.py goes to the next question where the output is empty, but not where it is a blank."""
    sample = next(iter(LongBenchV2().samples(bundle, TASK)))
    assert LongBenchV2().next_step(bundle, sample, Mode(cot=True), [""]) == ""
    blank = LongBenchV2().next_step(bundle, sample, Mode(cot=True), [" \n"])
    assert isinstance(blank, Prompt)
    assert "$COT$" not in blank.text


def test_modes_that_contradict_each_other(bundle: Bundle) -> None:
    sample = next(iter(LongBenchV2().samples(bundle, TASK)))
    assert LongBenchV2().protocol.modes == {"cot", "no_context", "rag"}
    for ask in (
        lambda mode: LongBenchV2().protocol.check_mode(TASK, mode),
        lambda mode: LongBenchV2().prompt(bundle, sample, mode, CHUNKS),
    ):
        with pytest.raises(UsageError, match="without the document and with chunks of it"):
            ask(Mode(no_context=True, rag=2))
    LongBenchV2().protocol.check_mode(TASK, Mode(cot=True, rag=2))


def test_what_is_looked_for(bundle: Bundle) -> None:
    _, samples, rows = real(bundle, "0shot.txt")
    for sample, row in zip(samples, rows, strict=True):
        assert LongBenchV2().query(sample, bundle).split("\n") == "\n".join(
            [row["question"], *(row[f"choice_{letter}"] for letter in "ABCD")]
        ).split("\n")
        assert list(LongBenchV2().evidence(sample)) == [row[f"choice_{row['answer']}"]]


@pytest.mark.parametrize("template", ["<$DOC$> $Q$ $C_A$", "$Q$ and no document", "$C_B$ $DOC$ $Q$ $DOC$"])
def test_marks_are_filled_one_after_the_other(make_bundle: MakeBundle, template: str) -> None:
    """A document that holds a mark has it filled too, as officially."""
    bundle = make_bundle(
        {"hub:THUDM/LongBench-v2/data.json": json.dumps([ROW]).encode(), f"files/{PROMPT}": template.encode()}
    )
    (sample,) = LongBenchV2().samples(bundle, TASK)
    prompt = LongBenchV2().prompt(bundle, sample)
    assert prompt.text == official_prompt(template, ROW)
    assert prompt.document == ("c question" if "$DOC$" in template else "")


def test_groups_and_empty_answers() -> None:
    def sample(difficulty: str, length: str) -> Sample:
        return Sample("longbench_v2", TASK, "x", "", "", ("A",), meta={"difficulty": difficulty, "length": length})

    rows = [
        _scored(sample("easy", "short"), "The correct answer is (A)"),
        _scored(sample("hard", "medium"), "no idea"),
        _scored(sample("hard", "medium"), ""),
    ]
    numbers = {score.metric: (score.n, score.official) for score in LongBenchV2().aggregate(TASK, rows)}
    assert numbers == {
        "accuracy": (2, 50.0),
        "accuracy/easy": (1, 100.0),
        "accuracy/hard": (1, 0.0),
        "accuracy/short": (1, 100.0),
        "accuracy/medium": (1, 0.0),
        "compensated": (2, 62.5),
        "compensated/easy": (1, 100.0),
        "compensated/hard": (1, 25.0),
        "compensated/short": (1, 100.0),
        "compensated/medium": (1, 25.0),
        "accuracy_all": (3, 33.3),
        "empty": (3, 33.3),
    }
    assert LongBenchV2().aggregate(TASK, []) == []


def test_the_papers_tables() -> None:
    """Domains in the paper's order, whatever the data's; accuracy before compensated; nothing for an empty output."""

    def scored(domain: str, sub_domain: str, output: str, length: str = "short") -> ScoredSample:
        meta = {"difficulty": "easy", "length": length, "domain": domain, "sub_domain": sub_domain}
        return _scored(Sample("longbench_v2", TASK, "x", "", "", ("A",), meta=meta), output)

    right, wrong, none = "The correct answer is (A)", "The correct answer is (B)", "hm"
    rows = [
        scored("New domain", "New", right),
        scored("Code Repository Understanding", "Code repo QA", right, "long"),
        scored("Single-Document QA", "Legal", wrong),
        scored("Single-Document QA", "Academic", none),
        scored("Single-Document QA", "Academic", right),
        scored("Multi-Document QA", "Legal", ""),
    ]
    groups = LongBenchV2().groups({TASK: rows})
    assert [group.metric for group in groups[:4]] == ["accuracy", "compensated"] * 2
    found = [(g.grouping, g.name, g.n, g.official) for g in groups if g.metric == "accuracy"]
    assert found == [
        ("overall", "all", 5, 60.0),
        ("difficulty", "easy", 5, 60.0),
        ("length", "short", 4, 50.0),
        ("length", "long", 1, 100.0),
        ("domain", "Single-Document QA", 3, 33.3),
        ("domain", "Code Repository Understanding", 1, 100.0),
        ("domain", "New domain", 1, 100.0),
        ("sub_domain", "Single-Document QA: Academic", 2, None),
        ("sub_domain", "Single-Document QA: Legal", 1, None),
        ("sub_domain", "Code Repository Understanding: Code repo QA", 1, None),
        ("sub_domain", "New domain: New", 1, None),
    ]
    compensated = {(g.grouping, g.name): g.official for g in groups if g.metric == "compensated"}
    assert compensated["overall", "all"] == 65.0
    assert compensated["domain", "Single-Document QA"] == 41.7
    assert LongBenchV2().groups({}) == []


def test_the_real_domains_are_the_papers(shared: Callable[[str], Path]) -> None:
    """Those of the questions beside the checkout and of the published answers."""
    lines = (shared("data/predictions/longbench_v2") / "oneshot.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if "error" not in row]
    rows += json.loads((shared("data/hub/datasets/THUDM/LongBench-v2") / "data.json").read_text("utf-8"))
    assert {(row["domain"], row["sub_domain"]) for row in rows} <= {(d, s) for d, subs in DOMAINS.items() for s in subs}
    assert (len(DOMAINS), sum(map(len, DOMAINS.values()))) == (6, 20)
