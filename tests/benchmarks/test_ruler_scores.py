"""RULER's scores, averages and published rows, against evaluate.py's files and the README's table."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.metrics import ruler
from lbx.benchmarks.registry import BENCHMARKS
from lbx.benchmarks.ruler import aggregates
from lbx.benchmarks.ruler.aggregates import EFFECTIVE, FALLING, LABELS, RISING, effective_length, groups, length_weights
from lbx.benchmarks.ruler.tasks import LENGTHS, TASKS, task_name
from lbx.report.rows.reference import load_published
from lbx.statistics.estimates import interval

Shared = Callable[[str], Path]
Averages = Mapping[int, float]


def test_every_score_of_an_output_is_the_official_one(shared: Shared) -> None:
    seen = 0
    for file in sorted(shared("golden/open/ruler_scores").glob("*/per_output.json")):
        rows: dict[str, list[dict]] = {}
        for golden in json.loads(file.read_text("utf-8")):
            task = golden["task"]
            if task not in rows:
                lines = (file.parent / f"{task}.jsonl").read_text("utf-8").splitlines()
                rows[task] = [json.loads(line) for line in lines]
            row = rows[task][golden["i"]]
            sample = Sample("ruler", task_name(task, 4096), "0", "", "", tuple(row["outputs"]))
            match, null = aggregates.score(sample, row["pred"])
            assert ruler.clean_prediction(row["pred"]) == golden["postprocessed"], golden
            assert (round(100 * match.score, 2), bool(null.score)) == (golden["score"], golden["null"]), golden
            assert match.metric == ("string_match_part" if task.startswith("qa") else "string_match_all")
            seen += 1
    assert seen > 1800


def test_a_sample_without_references_is_marked() -> None:
    for task in ("vt_4096", "qa_1_4096"):
        match, _ = aggregates.score(Sample("ruler", task, "0", "", "", ()), "text")
        assert (match.score, match.error) == (0.0, aggregates.NO_REFERENCES)


def answers(averages: Averages, tasks: tuple[str, ...] = TASKS, count: int = 10) -> dict[str, list[ScoredSample]]:
    """Answers with these mean scores in percent, of tasks at each length."""
    rows: dict[str, list[ScoredSample]] = {}
    for length, average in averages.items():
        for base in tasks:
            task = task_name(base, length)
            metrics = aggregates.metrics_of(task)
            rows[task] = [
                ScoredSample(
                    Sample("ruler", task, f"{at}", "", "", ("a",)), {metrics[0]: average / 100, metrics[1]: 0.0}
                )
                for at in range(count)
            ]
    return rows


def figures(rows: Mapping[str, list[ScoredSample]]) -> dict[str, float | None]:
    return {f"{group.grouping} {group.name}: {group.metric}": group.official for group in groups(rows)}


def test_a_number_of_a_task_is_rounded_last_as_officially() -> None:
    """0.125 + 1 + 0 of 16, x 100: 7.03125; and 100 x 0.0575 in the order sum / n x 100."""
    rows = answers({4096: 0.0}, ("vt",), 16)["vt_4096"]
    rows[0].scores["string_match_all"] = 0.125  # type: ignore[index]
    rows[1].scores["string_match_all"] = 1.0  # type: ignore[index]
    rows[2].scores["null"] = 1.0  # type: ignore[index]
    match, null = aggregates.aggregate("vt_4096", rows)
    assert (match.official, match.n) == (7.03, 16)
    assert (null.official, null.score, null.n) == (None, 1 / 16, 16)
    assert aggregates.aggregate("vt_4096", []) == []


README: Averages = dict(zip(LENGTHS, (96.6, 96.3, 95.2, 93.2, 87.0, 81.2), strict=True))
"""GPT-4-1106-preview."""


def test_averages_are_those_of_the_readme() -> None:
    made = figures(answers(README))
    assert made == {
        **{f"length {LABELS[length]}: average": average for length, average in README.items()},
        "overall all: average": 91.6,
        "overall all: weighted_increasing": 89.0,
        "overall all: weighted_decreasing": 94.1,
        "overall all: effective_length_k": 64.0,
    }


def test_an_average_without_all_of_its_parts_is_not_official() -> None:
    short = {length: README[length] for length in LENGTHS[:4]}
    made = figures(answers(short))
    assert (made["length 32k: average"], made["overall all: average"]) == (93.2, None)
    assert made["overall all: effective_length_k"] == 32, "of the lengths that the run has"
    rows = answers(README)
    del rows["qa_2_65536"]
    made = figures(rows)
    assert (made["length 64k: average"], made["length 32k: average"]) == (None, 93.2)
    assert made["overall all: average"] is made["overall all: effective_length_k"] is None
    without_8k = {length: average for length, average in README.items() if length != 8192}
    assert figures(answers(without_8k))["overall all: effective_length_k"] is None
    assert [group.metric for group in groups(answers({4096: 50.0}, ("vt",)))] == []


def test_other_lengths_have_an_average_of_their_own() -> None:
    made = groups(answers({2048: 90.0, 3000: 80.0, 4096: 70.0, 262144: 10.0}))
    assert [group.name for group in made if group.grouping == "length"] == ["2k", "3000", "4k", "256k"]
    (average,) = (group for group in made if (group.grouping, group.metric) == ("overall", "average"))
    assert average.score == pytest.approx(0.7)
    assert [group.grouping for group in groups(answers({2048: 90.0}))] == ["length"]


def test_every_average_is_the_mean_of_what_its_interval_is_made_of() -> None:
    for rows in (answers(README), answers({8192: 30.0, 131072: 60.0})):
        for group in groups(rows):
            if group.metric != EFFECTIVE:
                assert group.estimate is not None
                assert interval(group.estimate).value == pytest.approx(group.score, abs=1e-12)
        compared = groups(rows, averages_only=True)
        assert compared[0].grouping == "overall"
        assert {group.metric for group in compared} == {"average"}


def _averages(row: Mapping[str, str]) -> dict[int, float]:
    return {length: float(row[label]) for length, label in LABELS.items() if row[label] not in ("", "-")}


def _weighted(metric: str, averages: Averages) -> float:
    weights = length_weights(metric, list(averages))
    return sum(w * value for w, value in zip(weights, averages.values(), strict=True)) / sum(weights)


def test_the_readmes_averages_follow_from_its_lengths(shared: Shared) -> None:
    """Its weighted means are of unrounded averages: to a tenth, within the rounding of six printed figures."""
    rows = list(csv.DictReader(shared("reference/ruler.csv").read_text("utf-8").splitlines()))
    differing: dict[str, list[str]] = {}
    for row in rows:
        averages = _averages(row)
        for column, metric in (("avg", "average"), ("wavg_inc", RISING), ("wavg_dec", FALLING)):
            if row[column] in ("", "TBD"):
                continue
            difference = abs(_weighted(metric, averages) - float(row[column]))
            if difference > 0.05 + 1e-9:
                differing.setdefault(column, []).append(row["model"])
            assert difference < 0.1001 or row["model"] == "Qwen2.5-14B-Instruct-1M"
    assert differing == {
        "avg": ["Qwen2.5-14B-Instruct-1M", "Phi3-mini"],
        "wavg_inc": ["Jamba-1.5-mini", "Phi3-mini"],
        "wavg_dec": ["Qwen2", "GLM4", "Phi3-mini"],
    }


def test_the_readmes_effective_lengths(shared: Shared) -> None:
    """Five of its rows claim more than their averages reach; all five are of the models' own authors."""
    claims = {}
    for row in csv.DictReader(shared("reference/ruler.csv").read_text("utf-8").splitlines()):
        averages = _averages(row)
        longest = effective_length(averages)
        reached = f">{LABELS[longest]}" if longest == LENGTHS[-1] else LABELS.get(longest, "<4k")
        if reached != row["effective_length"].lower() and row["effective_length"]:
            claims[row["model"]] = (reached, row["effective_length"], row["reported_by_others"])
        underlined = "".join(str(int(averages.get(length, 0) >= 85.6)) for length in LENGTHS)
        assert underlined == row["underlined_4k_to_128k"] or row["model"] in ("Llama2", "Qwen3-14B")
    assert claims == {
        "Qwen3-14B": ("64k", ">128K", "yes"),
        "Qwen2.5-7B-Instruct-1M": ("64k", ">128K", "yes"),
        "Qwen3-8B": ("32k", "64K", "yes"),
        "Qwen3-4B": ("32k", "64K", "yes"),
        "EXAONE-4.0-1.2B": ("16k", "32K", "yes"),
    }


def test_the_packages_rows_are_the_readmes(shared: Shared) -> None:
    published = [model for model in load_published() if model.benchmark == "ruler"]
    rows = list(csv.DictReader(shared("reference/ruler.csv").read_text("utf-8").splitlines()))
    assert len(published) == len(rows) == 45
    for model, row in zip(published, rows, strict=True):
        assert model.model.partition(" (")[0] == row["model"]
        assert model.model.endswith("reported by its authors)") == (row["reported_by_others"] == "yes")
        assert (model.about.get("params", ""), model.about["context"].lower()) == (
            row["size"],
            row["claimed_length"].lower(),
        )
        figures = {line: figure.value for line, figure in model.scores.items()}
        averages = _averages(row)
        columns = {"average": "avg", RISING: "wavg_inc", FALLING: "wavg_dec"}
        expected = {f"length {LABELS[length]}: average": value for length, value in averages.items()}
        expected |= {
            f"overall: {metric}": float(row[column])
            for metric, column in columns.items()
            if row[column] not in ("", "TBD")
        }
        if len(averages) > 1:
            expected[f"overall: {EFFECTIVE}"] = effective_length(averages) / 1024
        assert figures == expected
        assert model.doubt is None


def test_questions_return_at_other_lengths_and_documents_do_not() -> None:
    def cluster(task: str, sample_id: str) -> str:
        return BENCHMARKS["ruler"].cluster(Sample("ruler", task, sample_id, "", "", ("a",)), "")

    assert cluster("qa_1_4096", "0003-aaaaaaaa") == cluster("qa_1_8192", "0003-bbbbbbbb")
    assert cluster("qa_1_4096", "0003-aaaaaaaa") != cluster("qa_2_4096", "0003-aaaaaaaa")
    assert cluster("vt_4096", "0003-aaaaaaaa") != cluster("vt_8192", "0003-aaaaaaaa")


def test_plugged_into_the_family() -> None:
    family = BENCHMARKS["ruler"]
    assert family.chance(Sample("ruler", "vt_4096", "0", "", "", ("a",))) == 0
    assert family.scoring.is_in_paper("string_match_all", "string_match_all")
    assert not family.scoring.is_in_paper("null", "string_match_all")
