"""Runs two by two: differences against SciPy's paired test, verdicts in words, and what is refused."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows.comparison import cautions
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from tests.command_line import Lbx
from tests.report.made_answers import Answer, make
from tests.report.made_runs import add_run

RUN = RunRow("a", "demo", "scripted", "1", {"longbench": 2}, "digest", {"seed": 0}, {"cores": 2}, "0.1")
FIRST, SECOND = "llama2-7b-chat-4k", "llama3-8b-instruct"


def run(store: Store, name: str, scores: Mapping[str, Mapping[str, float]], **changes: Any) -> None:
    """A run with these scores of LongBench's tasks, {task: {document/question: score}}."""
    answer = changes.pop("answer", {})
    store.begin_run(dataclasses.replace(RUN, run_id=name, model=changes.pop("model", name), **changes))
    for task, found in scores.items():
        samples = [
            SampleRow(Sample("longbench", task, key, key.partition("/")[0], "?", ("yes",), length=1000), place)
            for place, key in enumerate(found)
        ]
        told = {"prompt_tokens": 9, "original_tokens": 9, "truncated": False, **answer}
        generations = [
            GenerationRow(name, "longbench", task, key, 0, f"{name} {value}" if value else "no", **told)
            for key, value in found.items()
        ]
        version = BENCHMARKS["longbench"].metric_version
        rows = [
            ScoreRow(name, "longbench", task, key, 0, "f1", version, value, None, True) for key, value in found.items()
        ]
        store.write(samples=samples, generations=generations, scores=rows)
    aggregate_scores(store, name, BENCHMARKS["longbench"])


def random_scores(seed: int, count: int = 40) -> dict[str, float]:
    values = np.random.default_rng(seed).random(count)
    return {f"d{place}/q": float(value) for place, value in enumerate(values)}


def lines(store: Store, **wanted: Any) -> dict[str, dict[str, Any]]:
    return {row["task"]: row for row in read_report(store, "comparison", ReportQuery(**wanted)).dicts()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with Store(tmp_path / "r.duckdb") as opened:
        yield opened


def test_without_shared_documents_it_is_the_paired_t_test(store: Store) -> None:
    a, b = random_scores(1), random_scores(2)
    run(store, "a", {"qasper": a})
    run(store, "b", {"qasper": b})
    row = lines(store, baseline="a")["qasper"]
    wanted = stats.ttest_rel(list(b.values()), list(a.values()))
    ends = wanted.confidence_interval()
    assert (row["low"], row["high"], row["p"]) == pytest.approx((ends.low, ends.high, wanted.pvalue), abs=1e-9)
    assert (row["n"], row["clusters"], row["test"], row["df"]) == (40, 40, "t", pytest.approx(39))
    assert row["difference"] == pytest.approx(row["score_b"] - row["score_a"])
    assert row["wins"] + row["losses"] == 40


def test_the_other_way_round_is_the_negative(store: Store) -> None:
    run(store, "a", {"qasper": random_scores(1), "narrativeqa": random_scores(3)})
    run(store, "b", {"qasper": random_scores(2), "narrativeqa": random_scores(4)})
    one, other = lines(store, baseline="a"), lines(store, baseline="b")
    assert one.keys() == other.keys() == {"overall", "category single-document QA", "category_en single-document QA",
                                          "language en", "qasper", "narrativeqa"}  # fmt: skip
    for name, row in one.items():
        back = other[name]
        assert (row["difference"], row["low"], row["high"]) == pytest.approx(
            (-back["difference"], -back["high"], -back["low"])
        )
        assert (row["wins"], row["losses"]) == (back["losses"], back["wins"])
        assert (row["p"], row["p_holm"], row["se"], row["df"]) == pytest.approx(
            (back["p"], back["p_holm"], back["se"], back["df"])
        )


def test_right_and_wrong_is_mcnemar(store: Store) -> None:
    a = {f"d{place}/q": float(place < 20) for place in range(40)}
    b = {f"d{place}/q": float(place < 32 and place > 1) for place in range(40)}
    run(store, "a", {"qasper": a})
    run(store, "b", {"qasper": b})
    row = lines(store, baseline="a")["qasper"]
    assert (row["wins"], row["ties"], row["losses"], row["test"]) == (12, 26, 2, "mcnemar")
    assert row["p"] == pytest.approx(stats.binomtest(2, 14).pvalue, abs=1e-12)
    assert row["verdict"] == "better"


def test_a_handful_of_documents_that_differ_flip_signs(store: Store) -> None:
    a = {f"d{place % 8}/{place}": 0.5 for place in range(40)}
    b = {key: value + 0.1 * (key.startswith(("d0", "d1", "d2"))) for key, value in a.items()}
    run(store, "a", {"qasper": a})
    run(store, "b", {"qasper": b})
    row = lines(store, baseline="a")["qasper"]
    assert (row["clusters"], row["test"], row["p"]) == (8, "sign flips", 2 / 2**3)
    assert row["verdict"].startswith("undecided: needs about ")


@pytest.mark.parametrize(
    ("documents", "wanted", "note"),
    [
        (4, "2 more documents (10 questions) if the difference stays at 65.0", "4 documents cannot go below p = 0.125"),
        (5, "1 more document (5 questions) if the difference stays at 68.0", "5 documents cannot go below p = 0.0625"),
    ],
)
def test_few_documents_say_how_many_more_and_why(store: Store, documents: int, wanted: str, note: str) -> None:
    rights = (4, 2, 4, 3, 4)[:documents]
    run(store, "a", {"qasper": {f"d{at}/{n}": 0.0 for at in range(documents) for n in range(5)}})
    run(store, "b", {"qasper": {f"d{at}/{n}": float(n < some) for at, some in enumerate(rights) for n in range(5)}})
    table = read_report(store, "comparison", ReportQuery(baseline="a"))
    (row,) = [row for row in table.dicts() if row["level"] == "benchmark"]
    assert row["verdict"] == f"undecided: needs about {wanted}" and row["low"] > 0
    assert any(note in text for text in REPORTS["comparison"].notes(table))


def test_only_samples_that_both_answered_count(store: Store) -> None:
    a, b = random_scores(1), random_scores(2, 50)
    run(store, "a", {"qasper": a, "trec": random_scores(9, 3)})
    run(store, "b", {"qasper": {key: b[key] for key in list(b)[10:]}})
    found = lines(store, baseline="a")
    assert found["qasper"]["n"] == found["overall"]["n"] == 30
    kept = list(a)[10:]
    assert found["qasper"]["score_a"] == pytest.approx(np.mean([a[key] for key in kept]))
    assert found["qasper"]["score_b"] == pytest.approx(np.mean([b[key] for key in kept]))
    assert "trec" not in found


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        (0.0, "same outputs"),
        (0.001, "same within 1"),
        (0.05, "better"),
        (-0.05, "worse"),
        (0.006, "better, by less than 1"),
    ],
)
def test_verdicts(store: Store, changed: float, wanted: str) -> None:
    a = {key: 0.3 + value / 5 for key, value in random_scores(1, 200).items()}
    noise = random_scores(2, 200) if changed else dict.fromkeys(a, 0.5)
    spread = 0.02 if changed != 0.001 else 0.04
    run(store, "a", {"qasper": a}, model="m")
    b = {key: value + changed + spread * (noise[key] - 0.5) for key, value in a.items()}
    run(store, "b", {"qasper": b}, model="n")
    if not changed:
        with store.transaction() as connection:
            connection.execute("UPDATE generations SET output = 'x'")
    assert lines(store, baseline="m")["qasper"]["verdict"] == wanted


def test_averages_and_groups_of_a_part_of_the_samples_say_so(store: Store) -> None:
    """Of two runs of two tasks, one was killed in the first."""
    counts = {"longbench/qasper": 40, "longbench/narrativeqa": 40}
    run(store, "a", {"qasper": random_scores(1), "narrativeqa": random_scores(2)}, task_samples=counts)
    run(store, "b", {"qasper": dict([*random_scores(3).items()][:30])}, task_samples=counts)
    run(store, "c", {"qasper": random_scores(4), "narrativeqa": random_scores(5)}, task_samples=counts)
    found = lines(store, baseline="a", runs=["b"])
    assert {row["coverage"] for name, row in found.items() if name != "qasper"} == {"30 of 80"}
    assert found["qasper"]["coverage"] == "30 of 40"
    assert {row["coverage"] for row in lines(store, baseline="a", runs=["c"]).values()} == {None}


def test_questions_needed_are_those_that_would_do(store: Store) -> None:
    """A tenth of the questions that a decided difference took say, about, how many more it takes."""
    noise, base = random_scores(2, 1000), random_scores(1, 1000)
    b = {key: value + 0.03 + 0.5 * (noise[key] - 0.5) for key, value in base.items()}
    run(store, "a", {"qasper": dict(list(base.items())[:100])})
    run(store, "b", {"qasper": dict(list(b.items())[:100])})
    said = lines(store, baseline="a")["qasper"]["verdict"]
    count = int(said.removeprefix("undecided: needs about ").partition(" more questions if ")[0].replace(",", ""))
    row = lines(store, baseline="a")["qasper"]
    spread = row["se"] * 100**0.5
    assert 100 + count == pytest.approx((2.8016 * spread / row["difference"]) ** 2, rel=0.1)


def test_holm_over_tasks_and_over_runs(store: Store) -> None:
    run(store, "a", {"qasper": random_scores(1), "narrativeqa": random_scores(2)})
    for name, seed in (("b", 3), ("c", 5)):
        run(store, name, {"qasper": random_scores(seed), "narrativeqa": random_scores(seed + 1)})
    rows = read_report(store, "comparison", ReportQuery(baseline="a")).dicts()
    tasks = [row for row in rows if row["level"] == "task"]
    ps = sorted(row["p"] for row in tasks)
    assert len(ps) == 4
    least = next(row for row in tasks if row["p"] == ps[0])
    assert least["p_holm"] == pytest.approx(min(1, 4 * ps[0]))
    (alone,) = [
        row
        for row in read_report(store, "comparison", ReportQuery(runs=["a", "b"])).dicts()
        if row["level"] == "benchmark"
    ]
    assert alone["p_holm"] == alone["p"]


CUT = {"finish_reason": "length"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bundle_digest": "other"}, "different bundles"),
        ({"settings": {"seed": 0, "thinking": True}}, "different modes (plain, thinking)"),
        ({"settings": {"seed": 0, "max_new_tokens": 2}, "answer": CUT}, "different max_new_tokens (default, 2)"),
        ({"settings": {"seed": 0, "max_new_tokens": [2]}, "answer": CUT}, "different max_new_tokens (default, [2])"),
        ({"answer": {"truncated": True}}, "40 prompts cut in only one run, with the same tokenizer"),
    ],
)
def test_what_was_not_asked_alike_is_refused(store: Store, changes: dict[str, Any], reason: str) -> None:
    run(store, "a", {"qasper": random_scores(1)})
    run(store, "b", {"qasper": random_scores(2)}, **changes)
    with pytest.raises(UsageError) as caught:
        lines(store, baseline="a")
    assert reason in str(caught.value)
    assert "--allow-different-settings" in str(caught.value.fix)
    assert lines(store, baseline="a", allow_different_settings=True)["qasper"]["caution"] == reason
    answers = read_report(store, "changes", ReportQuery(baseline="a"))
    assert {row["caution"] for row in answers.dicts()} == {None if "cut" in reason else reason}
    assert cautions(answers) == ([] if "cut" in reason else [f"Caution: {reason}."])


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("cut", [CUT, {"reasoning_closed": False}])
def test_limits_of_the_answer_count_only_where_they_ended_one(store: Store, cut: dict[str, Any], place: int) -> None:
    """The default of --thinking-tokens depends on the context window."""
    settings = ({"seed": 0, "thinking": True, "thinking_tokens": budget} for budget in (8192, 32768, 32768, 8192))
    whole = {"finish_reason": "stop", "reasoning_closed": True}
    for number, name in enumerate("abcd"):
        answer = cut if number == 2 + place else whole
        run(store, name, {"qasper": random_scores(number)}, settings=next(settings), answer=answer)
    assert not lines(store, baseline="a", runs=["b"])["qasper"]["caution"]
    with pytest.raises(UsageError, match="different thinking_tokens"):
        lines(store, baseline="ab"[place], runs=["cd"[place]])


def add_benchmark(store: Store, name: str, benchmark: str, scores: Mapping[str, float], **answer: Any) -> None:
    """Answers of a run to another benchmark."""
    told = {"prompt_tokens": 9, "original_tokens": 9, "truncated": False, **answer}
    store.write(
        samples=[SampleRow(Sample(benchmark, "x", key, key, "?", ("yes",)), place) for place, key in enumerate(scores)],
        generations=[GenerationRow(name, benchmark, "x", key, 0, f"{name} {key}", **told) for key in scores],
        scores=[ScoreRow(name, benchmark, "x", key, 0, "f1", 1, value, None, True) for key, value in scores.items()],
    )
    aggregate_scores(store, name, BENCHMARKS[benchmark])


def test_only_pairs_that_differ_are_refused_where_it_matters(store: Store) -> None:
    """Of three runs, one has cut prompts of LongBench: its other benchmark and the other pair are compared."""
    for seed, name in enumerate("abc"):
        run(store, name, {"qasper": random_scores(seed)}, answer={"truncated": name == "c"})
        add_benchmark(store, name, "own", random_scores(seed + 5))
    table = read_report(store, "comparison")
    rows = table.dicts()
    compared = {(row["run_a"], row["run_b"], row["benchmark"]) for row in rows if row["verdict"] != "not compared"}
    assert compared == {("a", "b", "longbench"), ("a", "b", "own"), ("a", "c", "own"), ("b", "c", "own")}
    refused = [row for row in rows if row["verdict"] == "not compared"]
    reason = "40 prompts cut in only one run, with the same tokenizer"
    assert [(row["run_a"], row["run_b"], row["difference"], row["n"], row["caution"]) for row in refused] == [
        ("a", "c", None, None, reason), ("b", "c", None, None, reason),
    ]  # fmt: skip
    shown = sheet(REPORTS["comparison"], table)
    assert len(shown.rows) == len(rows) - 2
    for first in "ab":
        assert (
            f"Not compared: {first} and c, longbench: {reason}. --allow-different-settings shows them." in shown.notes
        )
    forced = read_report(store, "comparison", ReportQuery(allow_different_settings=True)).dicts()
    assert not any(row["verdict"] == "not compared" for row in forced)
    # The cut runs' places rest on the pairs that are not compared.
    board = read_report(store, "leaderboard")
    cautions = {(row["run_id"], row["benchmark"]): row["place_caution"] for row in board.dicts()}
    assert cautions == {(name, "longbench"): reason for name in "abc"} | {(name, "own"): None for name in "abc"}
    shown = sheet(REPORTS["leaderboard"], board)
    at = [column.name for column in shown.columns].index("place")
    assert [row[at].endswith("†") for row in shown.rows] == [row["benchmark"] == "longbench" for row in board.dicts()]
    assert any(note.startswith("† longbench: ") and reason in note for note in shown.notes)


def test_tasks_select_rows_and_change_no_number(store: Store) -> None:
    for seed, name in enumerate("ab"):
        run(
            store,
            name,
            {"qasper": random_scores(seed), "trec": random_scores(seed + 9)},
            answer={"truncated": name == "b"},
        )
        add_benchmark(store, name, "own", random_scores(seed + 5))
    every = lines(store, allow_different_settings=True)
    assert lines(store, tasks=["own"]) == {name: row for name, row in every.items() if row["benchmark"] == "own"}
    assert lines(store, tasks=["own/x"]).keys() == {"overall", "x"}, "the only task, so also the average"
    assert lines(store, tasks=["qasper"], allow_different_settings=True) == {"qasper": every["qasper"]}
    with pytest.raises(UsageError, match="80 prompts"):
        lines(store, tasks=["qasper"])
    with pytest.raises(UsageError, match="There is no task 'none'"):
        lines(store, tasks=["none"])


@pytest.mark.parametrize("answer", [{"truncated": True, "original_tokens": 12}, {"truncated": None}])
def test_another_tokenizer_s_truncation_is_another_thing_and_an_unknown_one_a_warning(
    store: Store, answer: dict[str, Any]
) -> None:
    run(store, "a", {"qasper": random_scores(1)})
    run(store, "b", {"qasper": random_scores(2)}, answer=answer)
    wanted = None if answer["truncated"] else "unknown whether the same prompts were cut"
    assert lines(store, baseline="a")["qasper"]["caution"] == wanted


def test_all_pairs_only_of_a_few(store: Store) -> None:
    for name in "abcdefg":
        run(store, name, {"qasper": random_scores(ord(name))})
    with pytest.raises(UsageError, match="7 runs make 21 pairs"):
        lines(store)
    assert len(read_report(store, "comparison", ReportQuery(runs=list("abcdef"))).dicts()) == 15 * 5
    assert len(read_report(store, "comparison", ReportQuery(allow_different_settings=True)).dicts()) == 21 * 5


def test_runs_by_their_model_s_name(store: Store) -> None:
    run(store, "a", {"qasper": random_scores(1)}, model="m")
    run(store, "b", {"qasper": random_scores(2)}, model="n")
    run(store, "c", {"qasper": random_scores(3)}, model="n")
    assert lines(store, baseline="m", runs=["b"])["qasper"]["run_a"] == "a"
    with pytest.raises(UsageError, match="is ambiguous: it matches b, c"):
        lines(store, baseline="n")
    with pytest.raises(UsageError, match="No run 'o'"):
        lines(store, baseline="o")


def test_what_a_foreign_tool_wrote_is_compared_or_left_alone(store: Store) -> None:
    """Scores that are no numbers, and a task that the benchmark does not have."""
    run(store, "a", {"qasper": random_scores(1), "narrativeqa": random_scores(2)})
    run(store, "b", {"qasper": random_scores(3), "narrativeqa": random_scores(4)})
    with store.transaction() as connection:
        connection.execute("UPDATE scores SET score = 'inf' WHERE task = 'qasper' AND sample_id = 'd0/q'")
        for table in ("generations", "scores", "samples", "numbers"):
            connection.execute(f"UPDATE {table} SET task = 'foreign' WHERE task = 'narrativeqa'")
    found = lines(store, baseline="a")
    assert (found["qasper"]["p"], found["qasper"]["low"], found["qasper"]["method"]) == (None, None, "no number")
    assert found["qasper"]["verdict"].startswith("undecided")
    assert found["foreign"]["p"] is not None


def test_changes_are_the_answers_behind_it(store: Store) -> None:
    run(store, "a", {"qasper": random_scores(1, 5), "trec": random_scores(3, 5)})
    run(store, "b", {"qasper": random_scores(2, 5), "trec": random_scores(3, 5)}, answer={"finish_reason": "length"})
    rows = read_report(store, "changes", ReportQuery(baseline="a", allow_different_settings=True)).dicts()
    assert [abs(row["difference"]) for row in rows] == sorted((abs(row["difference"]) for row in rows), reverse=True)
    assert [row["task"] for row in rows] == ["qasper"] * 5 + ["trec"] * 5, "other outputs of one score come last"
    assert [row["difference"] for row in rows[5:]] == [0] * 5 and rows[5]["output_a"] != rows[5]["output_b"]
    first = rows[0]
    assert (first["question"], first["references"], first["flags_a"]) == ("?", '["yes"]', None)
    assert first["flags_b"] == "answer at its limit"
    assert first["output_a"].startswith("a ")
    assert len(read_report(store, "changes", ReportQuery(baseline="a", limit=2)).rows) == 2
    assert len(read_report(store, "changes", ReportQuery(baseline="a", tasks=["trec"])).rows) == 5
    with store.transaction() as connection:
        connection.execute("UPDATE generations SET output = 'x' WHERE task = 'trec'")
    assert read_report(store, "changes", ReportQuery(baseline="a", tasks=["trec"])).rows == [], (
        "the same outputs are no change"
    )
    with pytest.raises(UsageError, match="There is no task 'none'"):
        read_report(store, "changes", ReportQuery(baseline="a", tasks=["none"]))


def test_a_task_is_its_benchmark_s(tmp_path: Path) -> None:
    """Two benchmarks have a task of that name; without a benchmark before it the name means both."""
    answers = [
        Answer(f"q{n}", {"f1": float(run == "b")}, run, benchmark)
        for benchmark in ("longbench", "own") for run in "ab" for n in range(2)
    ]  # fmt: skip
    with Store(make(tmp_path / "r.duckdb", answers), read_only=True) as store:

        def benchmarks(*tasks: str) -> list[str]:
            return [row["benchmark"] for row in read_report(store, "changes", ReportQuery(tasks=tasks)).dicts()]

        assert benchmarks("own/qasper") == ["own"] * 2
        assert benchmarks("longbench/qasper") == ["longbench"] * 2
        assert benchmarks("qasper") == benchmarks("own/qasper", "longbench/qasper") == ["longbench"] * 2 + ["own"] * 2
        with pytest.raises(UsageError, match="There is no task 'leval/qasper'") as caught:
            benchmarks("own/qasper", "leval/qasper")
        assert "longbench/qasper, own/qasper" in str(caught.value.fix)


def test_published_predictions(shared: Callable[[str], Path], tmp_path: Path) -> None:
    """Two models' published answers: which tasks 200 questions decide, and which they do not."""
    lbx, out, tasks = Lbx(), tmp_path / "r.duckdb", ("multi_news", "samsum", "trec", "narrativeqa", "repobench-p")
    for model in (FIRST, SECOND):
        (tmp_path / model).mkdir()
        for task in tasks:
            source = shared("data/predictions/longbench") / model / f"{task}.jsonl"
            shutil.copyfile(source, tmp_path / model / source.name)
        assert lbx("import", "longbench", tmp_path / model, "--model-name", model, "-o", out).returncode == 0
    with Store(out, read_only=True) as store:
        found = lines(store, baseline=FIRST)
        alone = {row["model"]: row for row in read_report(store, "task_scores").dicts() if row["task"] == "multi_news"}
    news = found["multi_news"]
    assert f"{100 * news['difference']:.2f} {50 * (news['high'] - news['low']):.2f}" == "0.97 0.69"
    unpaired = sum(row["se"] ** 2 for row in alone.values()) ** 0.5
    assert unpaired / news["se"] > 1.7
    decided = {task for task in tasks if not found[task]["verdict"].startswith("undecided")}
    assert decided == {"multi_news", "samsum"}
    unknown = "unknown whether the bundles are the same and whether the same prompts were cut"
    assert {row["caution"] for row in found.values()} == {unknown}
    done = lbx("report", out, "comparison", "--baseline", FIRST)
    assert done.returncode == 0
    assert "intervals may be too narrow" in " ".join(done.stdout.split())


def test_the_report_s_columns_are_there() -> None:
    from lbx.report.rows.comparison import COLUMNS

    assert {column.name for column in REPORTS["comparison"].columns} <= {*COLUMNS}
    assert COLUMNS[:13] == (
        "run_a", "run_b", "benchmark", "task", "metric", "n", "score_a", "score_b", "difference", "same_outputs",
        "samples", "bundle_samples", "coverage",
    )  # fmt: skip


@pytest.mark.parametrize("times", [(3, 1), (1, 3), (1, 1)], ids=["more", "fewer", "alike"])
def test_with_uneven_iterations_all_three_numbers_are_of_samples(tmp_path: Path, times: tuple[int, int]) -> None:
    """Every third sample has two answers, or as many of each run as ``times`` say; each sample counts once."""
    answers = [
        Answer(f"q{n}", {"f1": random.Random(f"{run} {task} {n} {i}").random()}, run, task=task, iteration=i,
               values={"truncated": False})
        for task in ("qasper", "hotpotqa") for n in range(12) for run, some in zip("ab", times, strict=True)
        for i in range(2 if n % 3 == 0 else some)
    ]  # fmt: skip
    with Store(make(tmp_path / "r.duckdb", answers), read_only=True) as store:
        found = lines(store, baseline="a")
        effect = read_report(store, "truncation_effect", ReportQuery(runs=("a", "b"))).dicts()
        view = store.query("FROM comparison").dicts()
    means = {
        (run, task): np.mean([
            np.mean([x.scores["f1"] for x in answers if (x.run, x.task, x.name) == (run, task, f"q{n}")])
            for n in range(12)
        ])
        for run in "ab" for task in ("qasper", "hotpotqa")
    }  # fmt: skip
    for task in ("qasper", "hotpotqa"):
        wanted = pytest.approx((means["a", task], means["b", task], means["b", task] - means["a", task]))
        assert tuple(found[task][name] for name in ("score_a", "score_b", "difference")) == wanted
        of_task = [row["score"] for row in effect if row["task"] == task and row["against"]]
        assert tuple(of_task) == wanted
        (of_view,) = [row for row in view if row["task"] == task]
        assert tuple(of_view[name] for name in ("score_a", "score_b", "difference")) == wanted
        assert of_view["samples"] == found[task]["samples"] == 12
    for row in found.values():
        assert row["difference"] == pytest.approx(row["score_b"] - row["score_a"]), row["task"]


def test_outputs_are_the_same_only_where_all_iterations_are(store: Store) -> None:
    def answers(second: str) -> list[tuple[Sample, str]]:
        samples = [Sample("longbench", "qasper", f"{n}", f"text {n}", "?", (f"{n}",), "en", 9) for n in range(12)]
        return [(sample, output) for sample in samples for output in (sample.sample_id, second, "no")]

    for name, second in (("a", "none"), ("b", "none"), ("c", "other")):
        add_run(store, name, answers(second))
    found = {
        (row["run_b"], row["level"]): row for row in read_report(store, "comparison", ReportQuery(baseline="a")).dicts()
    }
    assert {verdict for (run_b, _), row in found.items() if (verdict := row["verdict"]) and run_b == "b"} == {
        "same outputs"
    }
    assert (found["b", "task"]["same_outputs"], found["c", "task"]["same_outputs"]) == (36, 24)
    assert found["c", "task"]["verdict"] == found["c", "benchmark"]["verdict"] == "equal scores, within 25"


def test_a_difference_that_is_the_same_everywhere_is_one(store: Store) -> None:
    for name, value in (("a", 0.25), ("b", 0.5)):
        run(store, name, {"qasper": {f"d{place}/q": value for place in range(20)}})
    assert lines(store, baseline="a")["qasper"]["verdict"] == "better"
    assert lines(store, baseline="b")["qasper"]["verdict"] == "worse"


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_a_verdict_beside_an_interval_with_0_is_explained(store: Store, first: str, second: str) -> None:
    """Of twelve documents six differ, all in one direction: the exact test decides at p = 2 / 2^6."""
    documents = [f"d{place // 2:02}/q{place}" for place in range(24)]
    run(store, "a", {"qasper": dict.fromkeys(documents, 0.0)})
    right = {key: float(place < 12) for place, key in enumerate(documents)}
    run(store, "b", {"qasper": right | {documents[0]: 0.0, documents[2]: 0.0, documents[4]: 0.0}})
    table = read_report(store, "comparison", ReportQuery(baseline=first, runs=(second,)))
    (row,) = [row for row in table.dicts() if row["level"] == "task"]
    assert (row["test"], row["p_holm"], row["verdict"]) == (
        "sign flips",
        2 / 2**6,
        {"b": "better", "a": "worse"}[second],
    )
    assert row["low"] < 0 < row["high"]
    words = "An interval may contain 0 where the verdict is better or worse: an exact test of the documents that differ"
    for name in ("comparison", "decision"):
        notes = sheet(REPORTS[name], read_report(store, name)).notes
        assert sum(note.startswith(words) for note in notes) == 1, name


@pytest.mark.parametrize("name", ["comparison", "decision"])
def test_one_run_is_named_as_the_reason_for_no_rows(store: Store, name: str) -> None:
    run(store, "a", {"qasper": random_scores(1)})
    assert "the file has one run, or" in sheet(REPORTS[name], read_report(store, name)).notes[0]


def test_no_two_columns_of_a_report_have_one_heading() -> None:
    for name, report in REPORTS.items():
        headings = [column.heading for column in report.columns]
        assert len(set(headings)) == len(headings), (name, headings)
