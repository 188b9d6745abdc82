"""Up to which length a model keeps what it scores on short texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lbx.base.errors import UsageError
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows.effective_context import choose_lengths
from lbx.results import Store
from lbx.statistics.estimates import binomial_interval
from tests.report.made_answers import Answer, make

Lines = list[dict[str, Any]]


def lines_of(path: Path, **wanted: Any) -> Lines:
    """The rows of the report."""
    with Store(path, read_only=True) as store:
        return read_report(store, "effective_context", ReportQuery(**wanted)).dicts()


def answers(
    task: str,
    lengths: Mapping[int, Sequence[float]],
    *,
    tokens: bool = True,
    cut: bool | None = False,
    metric: str = "f1",
    **how: Any,
) -> list[Answer]:
    """So many answers with these scores to documents of each length, in tokens or in words."""
    return [
        Answer(
            f"{length}-{at}",
            {metric: score},
            task=task,
            document=f"{task} {length} {at}",
            length=1 if tokens else length,
            values={"truncated": cut, **({"original_tokens": length} if tokens else {})},
            **how,
        )
        for length, scores in lengths.items()
        for at, score in enumerate(scores)
    ]


def spread(mean: float, count: int, width: float = 0.1) -> list[float]:
    """Scores of exactly this mean."""
    return [mean + width * (-1) ** at for at in range(count)]


def test_bins_are_averaged_over_the_tasks_that_have_them_all(tmp_path: Path) -> None:
    rows = [
        *answers("qasper", {3000: spread(0.8, 20), 6000: spread(0.75, 40), 9000: spread(0.5, 16)}),
        *answers("musique", {3000: spread(0.6, 10), 6000: spread(0.55, 12), 9000: spread(0.3, 14)}),
        *answers("hotpotqa", {3000: spread(0.9, 40), 6000: spread(0.9, 9), 9000: spread(0.1, 40)}),
    ]
    lines = lines_of(make(tmp_path / "r.duckdb", rows))
    assert [(line["length_up_to"], line["n"]) for line in lines] == [(4096, 30), (8192, 52), (16384, 30)]
    assert [line["score"] for line in lines] == pytest.approx([0.7, 0.65, 0.4])
    assert [line["kept"] for line in lines] == pytest.approx([1, 0.65 / 0.7, 0.4 / 0.7])
    assert {(line["task_names"], line["left_out"]) for line in lines} == {("qasper, musique", "hotpotqa")}
    assert {(line["length_unit"], line["tasks"]) for line in lines} == {("prompt tokens", 2)}
    assert {(line["effective"], line["kept_to"], line["lost_from"]) for line in lines} == {(8192, 8192, 16384)}
    assert [line["verdict"] for line in lines] == ["kept", "kept", "lost"]


def test_what_is_left_above_the_threshold_has_the_interval_of_independent_lengths(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    short, long = random.uniform(0.3, 1, 40), random.uniform(0.2, 0.9, 40)
    rows = answers("qasper", {3000: short.tolist(), 6000: long.tolist()})
    for keep in (0.85, 0.7):
        _, line = lines_of(make(tmp_path / f"{keep}.duckdb", rows), keep_share=keep)
        assert line["margin"] == pytest.approx(long.mean() - keep * short.mean(), abs=1e-12)
        half = (line["margin_high"] - line["margin_low"]) / 2
        assert line["margin_low"] == pytest.approx(line["margin"] - half)
        se = np.hypot(stats.sem(long), keep * stats.sem(short))
        assert half == pytest.approx(stats.t.ppf(0.975, 39) * se, abs=1e-9), "each length's own interval"


def test_the_range_says_how_sure_it_is(tmp_path: Path) -> None:
    """Undecided at 8,192, lost at 16,384, kept again at 32,768, which no longer counts."""
    rows = answers(
        "qasper", {3000: spread(0.8, 40), 6000: spread(0.7, 30, 0.3), 9000: spread(0.3, 40), 20_000: spread(0.8, 40)}
    )
    lines = lines_of(make(tmp_path / "r.duckdb", rows))
    assert [line["verdict"] for line in lines] == ["kept", "undecided", "lost", "kept"]
    assert {(line["effective"], line["kept_to"], line["lost_from"]) for line in lines} == {(8192, 4096, 16384)}


def test_an_absolute_score_can_be_asked_for(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", answers("qasper", {3000: spread(0.87, 40, 0.01), 6000: spread(0.8, 40, 0.01)}))
    first, second = lines_of(path, keep_score=0.856)
    assert (first["verdict"], second["verdict"]) == ("kept", "lost")
    assert (first["effective"], first["lost_from"], first["rule"]) == (4096, 8192, "at least 85.6")
    assert first["margin_low"] == pytest.approx(first["low"] - 0.856)
    nothing = lines_of(path, keep_score=0.9)[0]
    assert (nothing["effective"], nothing["kept_to"], nothing["lost_from"]) == (None, None, 4096)
    with pytest.raises(UsageError, match="exclude each other"):
        lines_of(path, keep_score=0.9, keep_share=0.5)


def test_where_everything_is_right_wilson_s_intervals_decide(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", answers("qasper", {3000: [1.0] * 100, 6000: [1.0] * 80}))
    _, line = lines_of(path)
    low, _ = binomial_interval(1.0, 80)
    assert line["margin_low"] == pytest.approx(1 - 0.85 - (1 - low)), "the shortest can be no better than it is"
    assert line["verdict"] == "kept"


def test_of_nothing_nothing_is_kept(tmp_path: Path) -> None:
    lines = lines_of(make(tmp_path / "r.duckdb", answers("qasper", {3000: [0.0] * 40, 6000: [0.0] * 40})))
    assert {(line["effective"], line["kept_to"], line["lost_from"]) for line in lines} == {(None, None, None)}
    assert {line["verdict"] for line in lines} == {"undecided"}


def test_levels_of_lveval_are_lengths_of_a_dataset(tmp_path: Path) -> None:
    rows = [
        Answer(
            f"{level} {at}",
            {"f1": score},
            benchmark="lveval",
            task=f"factrecall_en_{level}",
            question=f"question {at}",
            values={"original_tokens": tokens, "truncated": False},
        )
        for level, tokens, mean in (("16k", 20_000, 0.8), ("32k", 40_000, 0.7))
        for at, score in enumerate(spread(mean, 30, 0.2))
    ]
    lines = lines_of(make(tmp_path / "r.duckdb", rows))
    assert [(line["length_up_to"], line["task_names"]) for line in lines] == [
        (32_768, "factrecall_en"),
        (65_536, "factrecall_en"),
    ]
    assert [line["cluster_by"] for line in lines] == ["question", "question"]
    unpaired = np.hypot(lines[1]["se"], 0.85 * lines[0]["se"]) * stats.t.ppf(0.975, 29)
    assert (lines[1]["margin_high"] - lines[1]["margin_low"]) / 2 < unpaired / 4, "the same questions rise and fall"


def test_words_stand_in_where_nobody_counted_tokens(tmp_path: Path) -> None:
    rows = [
        *answers("qasper", {3000: spread(0.8, 30), 6000: spread(0.7, 30)}, tokens=False),
        *answers("multifieldqa_zh", {3000: spread(0.5, 30), 6000: spread(0.4, 30)}, tokens=False, unit="characters"),
        *answers("musique", {3000: spread(0.5, 30), 6000: spread(0.4, 30)}),
    ]
    lines = lines_of(make(tmp_path / "r.duckdb", rows))
    assert {(line["length_unit"], line["task_names"]) for line in lines} == {
        ("words", "qasper"),
        ("prompt tokens", "musique"),
        ("characters", "multifieldqa_zh"),
    }


def test_several_answers_to_a_question_are_one_sample(tmp_path: Path) -> None:
    rows = [
        row for at in range(3) for row in answers("qasper", {3000: spread(0.8, 12), 6000: [0.5] * 12}, iteration=at)
    ]
    lines = lines_of(make(tmp_path / "r.duckdb", rows))
    assert [(line["n"], line["verdict"], line["effective"]) for line in lines] == [(12, "not compared", None)] * 2
    assert {line["works_to"] for line in lines} == {"needs 30 questions a length, has 12"}


@pytest.mark.parametrize(
    ("samples", "lengths", "tasks"),
    [
        ({}, [], []),
        ({"a": {1: 30}}, [], []),
        ({"a": {1: 29, 2: 30}}, [], []),
        ({"a": {1: 30, 2: 30}}, [1, 2], ["a"]),
        ({"a": {1: 15, 2: 15}, "b": {1: 15, 2: 9}}, [], []),
        ({"a": {1: 15, 2: 20}, "b": {1: 15, 2: 10}}, [1, 2], ["a", "b"]),
        ({"a": {1: 30, 2: 5, 4: 30}}, [1, 4], ["a"]),
        ({"a": {1: 30, 2: 30, 4: 30}, "b": {2: 30, 4: 30}}, [2, 4], ["a", "b"]),
        ({"a": {1: 30, 2: 30, 4: 30, 8: 30, 16: 30}, "b": {2: 30, 4: 30}}, [1, 2, 4, 8, 16], ["a"]),
        ({"a": {1: 30, 2: 30, 4: 30}, "b": {1: 30, 2: 30}, "c": {2: 30, 4: 30}}, [2, 4], ["a", "c"]),
        ({"a": {1: 30, 4: 30}, "b": {2: 30, 8: 30}, "c": {1: 30, 4: 30}}, [1, 4], ["a", "c"]),
    ],
)
def test_lengths_and_tasks_are_chosen_together(
    samples: dict[str, dict[int, int]], lengths: list[int], tasks: list[str]
) -> None:
    assert choose_lengths(samples) == (lengths, tasks)


def test_llama2_falls_less_than_it_seems(imports: Path) -> None:
    """Published answers: pooled over tasks the score falls from 41.6 to 22.8, on nine tasks from 46.7 to 37.8."""
    with Store(imports, read_only=True) as store:
        ((run,),) = store.query("SELECT run_id FROM runs WHERE model = 'llama2-7b-chat-4k'").rows
        pooled = dict(store.query(
            "SELECT (2 ** ceil(log2(length)))::BIGINT, round(100 * avg(score), 1) FROM scores "
            "JOIN samples USING (benchmark, task, sample_id) "
            "WHERE headline AND length_unit = 'words' AND run_id = ? GROUP BY ALL", [run]
        ).rows)  # fmt: skip
    assert (pooled[4096], pooled[16384]) == (41.6, 22.8)
    words = [line for line in lines_of(imports, runs=[run]) if line["length_unit"] == "words"]
    lines = [line for line in words if line["verdict"] != "not compared"]
    assert [(line["length_up_to"], round(100 * line["score"], 1)) for line in lines] == [
        (4096, 46.7),
        (8192, 41.7),
        (16384, 37.8),
    ]
    assert {line["tasks"] for line in lines} == {9}


@pytest.mark.parametrize("model", ["llama2-7b-chat-4k", "llama3-8b-instruct"])
def test_published_answers_claim_no_length(imports: Path, model: str) -> None:
    """A model of 4k tokens was credited with 8,192 words, and with 32,768 characters at a score of 7."""
    with Store(imports, read_only=True) as store:
        ((run,),) = store.query("SELECT run_id FROM runs WHERE model = ?", [model]).rows
        table = read_report(store, "effective_context", ReportQuery(runs=[run]))
    sheets = REPORTS["effective_context"].sheets(table)
    lines = [line for line in lines_of(imports, runs=[run]) if line["length_up_to"]]
    assert {line["length_unit"] for line in lines} == {"words", "characters"}
    for line in lines:
        assert (line["effective"], line["kept_to"], line["lost_from"]) == (None, None, None)
        assert "unknown whether prompts were cut" in line["why"] and line["verdict"] in ("no claim", "not compared")
    if model.startswith("llama2"):
        assert {line["why"] for line in lines if line["length_unit"] == "characters"} == {
            "it is unknown whether prompts were cut; the score up to 16,384, 7.2, is not significantly above the "
            "floor, 10.0"
        }
    assert [row[-1] for shown in sheets for row in shown.rows] == ["prompts may be cut", ""] * 2


def test_prompts_that_were_cut_end_what_is_claimed(tmp_path: Path) -> None:
    """One of 40 cut is no matter, three are: and what falls there is the cut's doing as much as the length's."""

    def file(name: str, cut: int, score: float) -> Path:
        long = answers("qasper", {6000: spread(score, 40)}, cut=True)[:cut]
        long += answers("qasper", {6000: spread(score, 40)})[cut:]
        return make(tmp_path / name, [*answers("qasper", {3000: spread(0.8, 40)}), *long])

    assert {line["effective"] for line in lines_of(file("one", 1, 0.8))} == {8192}
    first, second = lines_of(file("three", 3, 0.8))
    assert (first["effective"], first["kept_to"], first["verdict"]) == (4096, 4096, "kept")
    assert second["verdict"] == "no claim"
    assert first["why"] == "8% of the prompts up to 8,192 were cut"
    lost = lines_of(file("lost", 40, 0.2))
    assert {(line["effective"], line["kept_to"], line["lost_from"]) for line in lost} == {(4096, 4096, None)}
    assert lines_of(file("whole", 0, 0.2))[0]["lost_from"] == 8192


def test_where_some_may_have_been_cut_nothing_is_claimed(tmp_path: Path) -> None:
    rows = [*answers("qasper", {3000: spread(0.8, 40), 6000: spread(0.8, 30)}),
            *answers("qasper", {6001: spread(0.8, 10)}, cut=None)]  # fmt: skip
    lines = lines_of(make(tmp_path / "r.duckdb", rows))
    assert {(line["effective"], line["why"]) for line in lines} == {(4096, "it is unknown whether prompts were cut")}


def test_a_score_like_guessing_is_kept_at_no_length(tmp_path: Path) -> None:
    """Of multiple choice 28% is guessing, and 60% is not; it falls to guessing, which is a loss."""

    def choices(name: str, short: int, long: int) -> Lines:
        rows = answers("mcq", {3000: [1.0] * short + [0.0] * (100 - short), 6000: [1.0] * long + [0.0] * (100 - long)},
                       metric="accuracy", benchmark="longbench_v2")  # fmt: skip
        return lines_of(make(tmp_path / name, rows))

    guessing = choices("a", 28, 28)
    assert {(line["effective"], line["kept_to"], line["lost_from"]) for line in guessing} == {(None, None, None)}
    assert guessing[0]["why"] == "the score up to 4,096, 28.0, is not significantly above chance, 25.0"
    assert [line["verdict"] for line in guessing] == ["no claim", "undecided"]
    fallen = choices("b", 60, 26)
    assert {(line["effective"], line["kept_to"], line["lost_from"]) for line in fallen} == {(4096, 4096, 8192)}
    barely = choices("c", 36, 33)
    assert {(line["effective"], line["kept_to"]) for line in barely} == {(4096, 4096)}
    assert barely[0]["why"] == "the score up to 8,192, 33.0, is not significantly above chance, 25.0"
    assert {line["effective"] for line in choices("d", 70, 70)} == {8192}


def test_of_little_little_is_kept(tmp_path: Path) -> None:
    rows = answers("qasper", {3000: spread(0.07, 40, 0.06), 6000: spread(0.08, 40, 0.06)})
    lines = lines_of(make(tmp_path / "r.duckdb", rows))
    assert {line["effective"] for line in lines} == {None}
    assert lines[0]["why"] == "the score up to 4,096, 7.0, is not significantly above the floor, 10.0"


def test_a_rule_that_nothing_meets_is_said(tmp_path: Path) -> None:
    path = make(tmp_path / "r.duckdb", answers("qasper", {3000: spread(0.8, 40), 6000: spread(0.7, 40)}))
    assert {line["why"] for line in lines_of(path, keep_score=0.9)} == {"the score up to 4,096 is not at least 90"}


@pytest.mark.parametrize(
    "rows",
    [
        [],
        answers("qasper", {3000: [0.5]}),
        answers("qasper", {3000: [float("nan")] * 40, 6000: spread(0.5, 40)}),
        answers("qasper", {3000: [0.5] * 40, 6000: [0.5] * 40}),
        [Answer("q", {"f1": 1.0}, length=0)],
    ],
    ids=["empty", "one sample", "nan", "all alike", "no length"],
)
def test_odd_files_have_words(tmp_path: Path, rows: list[Answer]) -> None:
    path = make(tmp_path / "r.duckdb", rows)
    with Store(path, read_only=True) as store:
        made = REPORTS["effective_context"].sheets(read_report(store, "effective_context"), in_text=True)
    assert "nan" not in " ".join(text for shown in made for row in shown.rows for text in row)
    assert made[-1].notes
