"""The report `decision`: the comparison's numbers as which model, how sure, why not surer, and what to ask next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import UsageError
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report.format.table_cells import sheet
from lbx.report.page import pieces
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import GenerationRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from tests.report.test_comparing import add_benchmark, lines, random_scores, run


@pytest.fixture
def store(tmp_path: Path) -> Store:
    with Store(tmp_path / "r.duckdb") as opened:
        yield opened


def decide(store: Store, **wanted: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows, and the sentences below the table."""
    table = read_report(store, "decision", ReportQuery(**wanted))
    return table.dicts(), list(sheet(REPORTS["decision"], table).notes)


def _three(store: Store, **changes: Any) -> None:
    """Of LongBench, c is better than a beyond doubt, and b is not; the other benchmark decides nothing."""
    base = {f"d{place // 2}/{key}": value / 2 for place, (key, value) in enumerate(random_scores(1, 60).items())}
    noise = dict(zip(base, random_scores(2, 60).values(), strict=True))
    run(store, "a", {"qasper": base})
    run(store, "b", {"qasper": {key: value + 0.3 + 0.5 * (noise[key] - 0.5) for key, value in base.items()}})
    run(store, "c", {"qasper": {key: value + 0.32 + 0.02 * noise[key] for key, value in base.items()}}, **changes)
    for seed, name in enumerate("abc"):
        add_benchmark(store, name, "own", random_scores(seed + 5, 12))


def test_rows_are_the_comparison_s_numbers_the_right_way_round(store: Store) -> None:
    _three(store)
    compared = {
        (row["run_a"], row["run_b"], row["benchmark"]): row
        for row in read_report(store, "comparison").dicts()
        if row["level"] == "benchmark"
    }
    rows, _ = decide(store)
    assert {(row["benchmark"], row["leader"]) for row in rows} == {("longbench", "c"), ("own", rows[-1]["leader"])}
    assert len(rows) == 4
    for row in rows:
        key = (row["leader"], row["rival"], row["benchmark"])
        sign = -1 if key in compared else 1
        other = compared.get(key) or compared[row["rival"], row["leader"], row["benchmark"]]
        assert row["lead"] == pytest.approx(sign * other["difference"])
        assert {row["score"], row["rival_score"]} == {other["score_a"], other["score_b"]}
        assert row["score"] - row["rival_score"] == pytest.approx(row["lead"])
        assert sorted((abs(row["low"]), abs(row["high"]))) == pytest.approx(
            sorted((abs(other["low"]), abs(other["high"])))
        )
        assert row["low"] <= row["lead"] <= row["high"]
        assert [row[name] for name in ("n", "clusters", "p", "p_holm", "se")] == [
            other[name] for name in ("n", "clusters", "p", "p_holm", "se")
        ]
        words = {"better": "worse", "worse": "better"} if sign < 0 else {}
        stays = f"stays at {100 * other['difference']:.1f}", f"stays at {100 * row['lead']:.1f}"
        assert row["verdict"] == words.get(other["verdict"], other["verdict"]).replace(*stays)
        assert row["spread"] == pytest.approx(row["se"] * row["clusters"] ** 0.5)


def test_paragraphs_say_which_how_sure_why_and_what_next(store: Store) -> None:
    _three(store)
    rows, notes = decide(store)
    (row,) = [row for row in rows if (row["benchmark"], row["rival"]) == ("longbench", "b")]
    (text,) = [note for note in notes if note.startswith("longbench: ")]
    assert text.startswith("longbench: c comes first with ") and " Better than a (by 3" in text
    assert f" Not surely better than b (by {100 * row['lead']:.1f}" in text and ", undecided)" in text
    assert " Why not surer: 60 questions on 30 documents, between which the difference varies by " in text
    further = f"about {row['further_clusters']:,} more documents ({row['further_samples']:,} questions)"
    condition = f"if the difference stays at {100 * row['lead']:.1f}"
    assert row["verdict"] == f"undecided: needs {further} {condition}"
    assert f" Next: {further} would decide it against b {condition}." in text
    over = next(note for note in notes if note.startswith("Over all 2 benchmarks: "))
    assert over.endswith("The lead over every other run is decided on none.") and "c leads" in over


def test_a_score_over_some_of_a_run_s_questions_says_so(store: Store) -> None:
    """The leader answered 60 questions, of which it has 20 in common with the other run."""
    scores = random_scores(1, 60)
    run(store, "a", {"qasper": scores})
    run(store, "b", {"qasper": {key: value / 2 for key, value in [*scores.items()][:20]}})
    (row,), notes = decide(store)
    assert (row["leader"], row["n"], row["same_samples"]) == ("a", 20, False)
    score = 100 * row["score"]
    assert f"longbench: a comes first with {score:.1f} on the 20 questions that both it and b answered." in notes[-1]
    run(store, "c", {"qasper": {key: value / 2 for key, value in scores.items()}})
    rows, _ = decide(store)
    assert {row["rival"]: row["same_samples"] for row in rows} == {"b": False, "c": True}


def test_without_intervals_the_paragraphs_are_shorter(store: Store) -> None:
    _three(store)
    rows, notes = decide(store, without_intervals=True)
    assert "low" not in rows[0] and any("would decide it against b if " in note for note in notes)
    assert 'id="decisions"' in "".join(pieces(store, ReportQuery(without_intervals=True)))


def test_all_decided_asks_for_nothing(store: Store) -> None:
    base = random_scores(1)
    run(store, "a", {"qasper": base})
    run(store, "b", {"qasper": {key: value + 1 for key, value in base.items()}})
    (row,), (*_, text) = decide(store)
    assert (row["leader"], row["verdict"], row["further_clusters"]) == ("b", "better", None)
    assert text.endswith(" No further question is needed.")
    assert "Over all" not in text


def test_of_one_document_nothing_can_be_planned(store: Store) -> None:
    run(store, "a", {"qasper": {"d/1": 0.5, "d/2": 0.5}})
    run(store, "b", {"qasper": {"d/1": 1.0, "d/2": 0.5}})
    (row,), (*_, text) = decide(store)
    assert row["verdict"] == "undecided: one document" and row["spread"] is None
    assert "Next: one document, so no number of questions can be planned; ask about other documents." in text


def test_pairs_that_are_not_compared_are_named(store: Store) -> None:
    _three(store, answer={"truncated": True})
    rows, notes = decide(store)
    refused = [row for row in rows if row["verdict"] == "not compared"]
    reason = "60 prompts cut in only one run, with the same tokenizer"
    assert [(row["benchmark"], row["leader"], row["lead"], row["caution"]) for row in refused] == [
        ("longbench", "b", None, reason)
    ]
    said = f"Not compared: b and c, which ranks higher, longbench: {reason}. --allow-different-settings shows them."
    assert said in notes
    forced, texts = decide(store, allow_different_settings=True)
    assert not any(row["verdict"] == "not compared" for row in forced)
    assert any(f"Besides the model: {reason}." in text for text in texts)
    own, _ = decide(store, tasks=["own"])
    assert {row["benchmark"] for row in own} == {"own"}
    assert {row["rival"] for row in decide(store, runs=["a", "b"])[0]} == {"a"} or len(
        decide(store, runs=["a", "b"])[0]
    ) == 2


def test_nothing_to_compare_is_refused_as_by_the_comparison(store: Store) -> None:
    run(store, "a", {"qasper": random_scores(1)})
    run(store, "b", {"qasper": random_scores(2)}, bundle_digest="other")
    for name in ("comparison", "decision"):
        with pytest.raises(UsageError, match="different bundles"):
            read_report(store, name)


def test_many_runs_are_compared_with_the_leader(store: Store) -> None:
    """Without asking for a baseline; the numbers are those of the comparison with it."""
    for name in "abcdefgh":
        run(store, name, {"qasper": random_scores(ord(name))})
    rows, notes = decide(store)
    (leader,) = {row["leader"] for row in rows}
    other = {row["run_b"]: row for row in read_report(store, "comparison", ReportQuery(baseline=leader)).dicts()
             if row["level"] == "benchmark"}  # fmt: skip
    assert {row["rival"]: -row["lead"] for row in rows} == pytest.approx(
        {name: row["difference"] for name, row in other.items()}
    )
    assert len(rows) == 7 and len(sheet(REPORTS["decision"], read_report(store, "decision")).rows) == 5
    assert "2 more rivals: JSON and csv have all." in notes


def test_it_is_on_the_page_below_the_scores(store: Store) -> None:
    _three(store, model="<b>c</b>")
    page = "".join(pieces(store))
    first = page.partition('id="scores"')[2]
    at = [first.index(text) for text in ('class="scores"', 'id="decisions"', 'id="findings"') if text in first]
    assert at == sorted(at) and 'id="decisions"' in first
    assert "would decide it against" in first and "<b>c</b>" not in page
    assert lines(store)["overall"]["verdict"] not in first.partition('id="decisions"')[0]


def test_a_copy_is_equal_and_the_next_step_is_of_a_run_that_differs(store: Store) -> None:
    _three(store)
    base = {f"d{place // 2}/{key}": value / 2 for place, (key, value) in enumerate(random_scores(1, 60).items())}
    noise = dict(zip(base, random_scores(2, 60).values(), strict=True))
    run(store, "copy", {"qasper": {key: value + 0.32 + 0.02 * noise[key] for key, value in base.items()}})
    rows, notes = decide(store, tasks=["longbench"])
    (row,) = [row for row in rows if row["rival"] == "copy"]
    assert (row["lead"], row["verdict"]) == (0, "equal scores, within 10")  # three of thirty documents might differ
    assert row["equal_within"] == pytest.approx(0.1) and row["further_clusters"] is None
    (text,) = [note for note in notes if note.startswith("longbench: ")]
    assert " Equal on every common question to copy (so at most 10 points apart)." in text
    assert " varies by 0.0 points" not in text and " would decide it against b if the difference stays at " in text
    assert decide(store, runs=["c", "copy"], margin=10)[0][0]["verdict"] == "same within 10"


def test_a_difference_near_0_has_no_number_of_questions(store: Store) -> None:
    base = random_scores(1, 60)
    run(store, "a", {"qasper": base})
    for name, offset in (("b", -0.05), ("c", -0.005), ("tied", 0)):
        changed = [value + offset + 0.3 * (-1) ** place for place, value in enumerate(base.values())]
        run(store, name, {"qasper": dict(zip(base, changed, strict=True))})
    (row,), _ = decide(store, runs=["a", "tied"], margin=0)
    assert row["verdict"] == "undecided: needs many more questions; the difference is near 0"
    rows, (*_, text) = decide(store, runs=["a", "b", "c"])
    found = {row["rival"]: (row["verdict"].partition(" if ")[0], row["further_clusters"]) for row in rows}
    assert found["c"] == ("undecided: needs many more questions; the difference is near 0", None)
    assert found["b"][0] == f"undecided: needs about {found['b'][1]} more questions"
    assert f" Next: about {found['b'][1]} more questions would decide it against b if the difference stays" in text
    _, (*_, text) = decide(store, runs=["a", "c"])
    assert " Next: many more questions are needed against c; the difference is near 0." in text


@pytest.mark.parametrize("runs", [2, 8])
def test_a_killed_run_that_is_better_on_the_common_questions_is_named(store: Store, runs: int) -> None:
    """Also if more runs than the table shows rank before it."""
    base = random_scores(1)
    for place in range(1, runs):
        run(store, f"whole {place}", {"qasper": {key: value - place / 100 for key, value in base.items()}})
    begun = {key: value + 0.1 for key, value in [*base.items()][:20]}
    run(store, "begun", {"qasper": begun}, task_samples={"longbench/qasper": 40})
    rows, notes = decide(store)
    row = rows[-1]
    assert (row["leader"], row["rival"], row["verdict"]) == ("whole 1", "begun", "worse")
    text = next(note for note in notes if note.startswith("longbench: "))
    assert (
        " But begun is better on the 20 questions that both answered (lead -11.0 points), and comes later "
        "because it is incomplete." in text
    )
    assert " Next: begun was killed with 20 of 40 answers; repeat its command to finish it." in text
    store.finish_run("begun", "done")
    assert any(" Next: begun has 20 of 40 answers; ask it the others." in note for note in decide(store)[1])
    failed = [GenerationRow("begun", "longbench", "qasper", key, 0, error="it broke") for key in [*base][20:]]
    store.write(samples=[], generations=failed, scores=[])
    aggregate_scores(store, "begun", BENCHMARKS["longbench"])
    (text,) = [note for note in decide(store)[1] if note.startswith("longbench: ")]
    assert " Next: begun failed on 20 samples; repeat its command with --retry-failed." in text


@pytest.mark.parametrize("runs", [3, 8])
def test_a_run_in_another_mode_is_left_out(store: Store, runs: int) -> None:
    for place in range(1, runs):
        run(store, f"plain {place}", {"qasper": {key: value / place for key, value in random_scores(1).items()}})
    best = {key: value + 1 for key, value in random_scores(1).items()}
    run(store, "other", {"qasper": best}, settings={"seed": 0, "thinking": True})
    rows, notes = decide(store)
    assert {row["leader"] for row in rows} == {"plain 1"}
    (left_out,) = [row for row in rows if row["verdict"] == "not compared"]
    assert (left_out["rival"], left_out["rank"]) == ("other", 0)
    assert (
        "Not compared: plain 1 and other (thinking), which ranks higher, longbench: different modes (plain, thinking). "
        "--allow-different-settings shows them." in notes
    )
    assert ", which ranks higher, is left out: different modes (plain, thinking)." in "".join(pieces(store))
    assert {row["leader"] for row in decide(store, allow_different_settings=True)[0]} == {"other"}
