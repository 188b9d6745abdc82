"""LongBench v2 on the real questions beside the checkout."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.benchmarks import LongBenchV2
from lbx.benchmarks.base import ScoredSample
from lbx.benchmarks.longbench_v2 import PROMPT, TASK
from lbx.errors import BundleError
from lbx.layout import Bundle
from lbx.records import Sample, Truncation

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
FIELDS = ("domain", "sub_domain", "difficulty", "length", "question", "choice_A", "choice_B", "choice_C", "choice_D")
ROW = {"_id": "x", **{name: f" {name} " for name in FIELDS}, "answer": "C", "context": " c $Q$ "}


def official_prompt(template: str, row: dict[str, str]) -> str:
    text = template.replace("$DOC$", row["context"].strip()).replace("$Q$", row["question"].strip())
    for letter in "ABCD":
        text = text.replace(f"$C_{letter}$", row[f"choice_{letter}"].strip())
    return text


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
        assert (prompt.truncation, prompt.limits) == (Truncation.MIDDLE_FLOOR, {131072: 120000})
        assert sample.length == len(row["context"])
        assert row["context"] not in json.dumps(dict(sample.meta), ensure_ascii=False)
    told = [_scored(sample, f"The correct answer is ({sample.references[0]})") for sample in samples]
    numbers = {score.metric: score for score in LongBenchV2().aggregate(TASK, told)}
    assert all(score.official == (0.0 if name == "empty" else 100.0) for name, score in numbers.items())
    assert (numbers["accuracy/short"].n, numbers["accuracy/medium"].n, numbers["accuracy/long"].n) == (16, 5, 2)


def _scored(sample: Sample, output: str) -> ScoredSample:
    return ScoredSample(sample, {score.metric: score.score for score in LongBenchV2().score(sample, output)})


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


def test_damaged_questions(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({"hub:THUDM/LongBench-v2/data.json": json.dumps([ROW, {"_id": "y"}], indent=1).encode()})
    with pytest.raises(BundleError, match=r"data\.json, line \d+ is damaged: the field 'context' is missing"):
        list(LongBenchV2().samples(bundle, TASK))
    (sample,) = [next(iter(LongBenchV2().samples(bundle, TASK)))]
    with pytest.raises(BundleError, match=r"0shot\.txt"):
        LongBenchV2().prompt(bundle, sample)


def test_published_predictions_give_the_published_row(shared: Callable[[str], Path]) -> None:
    """Letters that others published, without the right answers; 191 questions failed there and do not count."""
    folder = shared("data/predictions/longbench_v2")
    header, first = ((folder / "result.txt").read_text("utf-8").splitlines())[:2]
    published = dict(zip(header.split("\t"), first.split("\t"), strict=True))
    lines = (folder / "oneshot.jsonl").read_text("utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if "error" not in row]
    told = []
    for row in rows:
        # The judgement tells whether the letter was right; any other stands for the right one where it was not.
        answer = row["pred"] if row["judge"] else next(letter for letter in "ABCD" if letter != row["pred"])
        meta = {"difficulty": row["difficulty"], "length": row["length"]}
        sample = Sample("longbench_v2", TASK, row["_id"], "", "", (answer,), meta=meta)
        told.append(_scored(sample, f"The correct answer is ({row['pred']})"))
    numbers = {score.metric: str(score.official) for score in LongBenchV2().aggregate(TASK, told)}
    assert len(lines) - len(rows) == int(published["Errors"])
    for column in ("Overall", "Easy", "Hard", "Short", "Medium", "Long"):
        name = "accuracy" if column == "Overall" else f"accuracy/{column.lower()}"
        assert numbers.get(name, "none") == published[column], column
