"""Reports on formats of a model: difference by position, decision, answers that changed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import UsageError
from lbx.report import page
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.results import Store
from lbx.results.file.depth import begin_depth_pair, read_depth_pairs, write_depth_rows
from lbx.statistics.estimates import t_quantile
from tests.command_line import Lbx, fails
from tests.made_depth import F16, Q4, add_depth, depth_pair, depth_rows
from tests.report.made_answers import make
from tests.report.made_runs import Answer, add_run, trec
from tests.report.test_needles import needles

PAIR = replace(depth_pair(), backend="scripted", reference_backend="scripted")
Q8 = F16 | {"backend.weights": "q80" * 8}


def rows(path: Path, name: str, **query: Any) -> list[dict[str, Any]]:
    with Store(path, read_only=True) as store:
        return read_report(store, name, ReportQuery(**query)).dicts()


def notes(path: Path, name: str, **query: Any) -> str:
    with Store(path, read_only=True) as store:
        (sheet,) = REPORTS[name].sheets(read_report(store, name, ReportQuery(**query)))
    return " ".join(sheet.notes)


def file(path: Path, *texts: int, runs: dict[str, tuple[dict[str, Any], list[Answer]]] | None = None) -> Path:
    with Store(path) as store:
        add_depth(store, PAIR, texts=texts or range(8))
        for name, (settings, answers) in (runs or {}).items():
            add_run(store, name, answers, model=name, settings=settings)
    return path


def test_bins_are_means_over_texts_with_t_intervals(tmp_path: Path) -> None:
    early, late = rows(file(tmp_path / "r.duckdb"), "depth_parity")
    made = depth_rows(PAIR, range(8))
    kl = [row.kl for row in made if row.start == 0]
    mean = sum(kl) / 8
    half = t_quantile(0.975, 7) * (sum((value - mean) ** 2 for value in kl) / 7 / 8) ** 0.5
    assert (early["bin"], late["bin"], early["texts"], late["positions"]) == ("0 to 1k", "1k to 2k", 8, 8 * 975)
    assert (early["kl"], early["kl_low"], early["kl_high"]) == pytest.approx((mean, mean - half, mean + half))
    assert late["kl"] == pytest.approx(2 * early["kl"])
    p99 = (early["kl_p99"], early["kl_p99_low"], early["kl_p99_high"])
    assert p99 == pytest.approx((8 * mean, 8 * (mean - half), 8 * (mean + half)))
    assert early["perplexity_ratio"] == pytest.approx(2.718281828**mean)
    assert (early["tokens_per_s"], late["kl_error_max"]) == (512, 2e-7)


def test_few_texts_have_no_interval(tmp_path: Path) -> None:
    path = file(tmp_path / "r.duckdb", 1, 2, 3, 4, 5)
    assert all(row["kl"] > 0 and row["kl_low"] is row["kl_p99_low"] is None for row in rows(path, "depth_parity"))
    for name in ("depth_parity", "formats"):
        assert "Positions in fewer than 6 texts have no interval." in notes(path, name)


def test_candidates_that_have_not_read_all_texts_are_named(tmp_path: Path) -> None:
    path, unread = tmp_path / "r.duckdb", depth_pair("f32", F16 | {"backend.weights": "f32" * 8})
    with Store(path) as store:
        add_depth(store, depth_pair("q8", Q8), texts=range(3))
        add_depth(store, depth_pair())
        begin_depth_pair(store, unread)
    for name in ("depth_parity", "formats"):
        said = notes(path, name)
        assert "q8: has read 3 of 8 texts" in said and "f32: has read 0 of 8 texts" in said
        assert "Repeat the comparison's command" in said and "q4: has read" not in said
    assert Lbx().ok("report", path, "depth_parity", "-f", "svg").stdout.count('class="line') == 2


def test_the_reference_is_shown_by_its_most_complete_comparison(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    with Store(path) as store:
        for pair, texts, start in ((depth_pair("q8", Q8), range(3), 0), (depth_pair(), range(8), 1024)):
            begin_depth_pair(store, pair)
            write_depth_rows(store, [row for row in depth_rows(pair, texts) if row.start <= start])
    reference, first, second = rows(path, "formats")
    for name, value in (("length", 2000), ("texts", 8), ("bin", "1k to 2k")):
        assert reference[name] == second[name] == value != first[name]
    assert reference["memory_bytes"] == 400 * 2**20 + 2000 * 1024
    assert reference["tokens_per_s"] == 975 / 4


def test_the_last_positions_are_shown_at_the_length_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    with Store(path) as store:
        add_depth(store)
        late = [row for row in depth_rows(depth_pair(), range(5)) if row.start]
        deeper = {"start": 2048, "stop": 4096, "kl": 0.5}
        write_depth_rows(store, [replace(row, **deeper, positions=1024) for row in late])
        write_depth_rows(store, [replace(row, start=4096, stop=8192, positions=99) for row in late[:1]])
    _, candidate = rows(path, "formats")
    assert (candidate["length"], candidate["memory_bytes"]) == (4196, 100 * 2**20 + 4196 * 1024)
    assert (candidate["bin"], candidate["texts"], candidate["kl"], candidate["kl_low"]) == ("2k to 4k", 5, 0.5, None)
    assert "averages over positions 2k to 4k." in notes(path, "formats")


def test_texts_with_impossible_numbers_are_left_out(tmp_path: Path) -> None:
    """Each makes a text of its own impossible."""
    changes = (
        "kl = 'nan'", "kl = -1", "kl_p99 = 'inf'", "kl_error = 'inf'", "log_prob = '-inf'", "log_prob = 3",
        "log_prob = -1e300", "same_top = 7", "positions = -5", "positions = 5000", "stop = -2000000000", "seconds = -1",
        "audited_positions = -3", "start = -1024",
    )  # fmt: skip
    path, possible = tmp_path / "r.duckdb", range(len(changes), len(changes) + 6)
    with Store(path) as store:
        add_depth(store, texts=range(len(changes) + 6))
        with store.transaction() as connection:
            for text, change in enumerate(changes):
                where = f"WHERE start = 1024 AND text LIKE '%/s{text}'"
                connection.execute(f"UPDATE depth_parity SET {change} {where}")
        ((_, bins, invalid_texts),) = read_depth_pairs(store)
        assert (bins, invalid_texts) == (depth_rows(depth_pair(), possible), len(changes))
    for name in ("depth_parity", "formats"):
        assert "q4: left out 14 texts with impossible numbers." in notes(path, name)
    with Store(path) as store:
        assert len(begin_depth_pair(store, depth_pair())) == len(bins)
        write_depth_rows(store, depth_rows(depth_pair(), range(len(changes))))
        assert read_depth_pairs(store)[0].bins == depth_rows(depth_pair(), sorted(range(20), key=str))


def test_a_comparison_of_impossible_numbers_only_is_shown_without_numbers(tmp_path: Path) -> None:
    path = file(tmp_path / "r.duckdb")
    with Store(path) as store, store.transaction() as connection:
        connection.execute("UPDATE depth_parity SET kl = 'nan'")
        connection.execute("UPDATE depth_pairs SET weights_bytes = -1, reference_kv_bytes_per_token = 1::BIGINT << 62")
    for name in ("depth_parity", "formats"):
        assert "q4: left out 8 texts with impossible numbers." in notes(path, name)
    (reference, candidate) = rows(path, "formats")
    assert reference["memory_bytes"] is candidate["weights_bytes"] is candidate["kl"] is None


def test_inexact_divergences_and_those_of_servers_are_said(tmp_path: Path) -> None:
    path, pair = file(tmp_path / "r.duckdb"), replace(depth_pair("server"), backend="endpoint")
    assert "KL is less exact" not in notes(path, "depth_parity")
    with Store(path) as store:
        begin_depth_pair(store, pair)
        write_depth_rows(store, [replace(row, kl_error=3e-4) for row in depth_rows(pair, range(8))])
    said = notes(path, "depth_parity")
    assert "server: KL is less exact than 0.0001 nats" in said
    assert "server: its server gives only the likeliest tokens." in said
    assert said.count("is a lower bound") == 1


def test_equal_names_are_told_apart_by_their_settings(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    with Store(path) as store:
        add_depth(store, depth_pair("m", F16), depth_pair("m", F16 | {"backend.cache_type_k": "q8_0"}))
    assert {row["label"] for row in rows(path, "depth_parity")} == {"m (cache_type_k f16)", "m (cache_type_k q8_0)"}


def test_a_chart_has_a_line_for_each_candidate(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    with Store(path) as store:
        add_depth(store, depth_pair(), depth_pair("q8", Q8), texts=range(5))
    drawing = Lbx().ok("report", path, "depth_parity", "-f", "svg").stdout
    assert len(re.findall(r'<path class="line', drawing)) == 2
    assert len(re.findall(r'class="mark open"', drawing)) == 4, "no intervals"
    assert ">0.01<" in drawing and ">0.1<" in drawing and ">1k<" in drawing
    with Store(path) as store:
        add_depth(store, depth_pair(), depth_pair("q8", Q8), texts=range(8))
    drawing = Lbx().ok("report", path, "depth_parity", "-f", "svg").stdout
    assert "mark open" not in drawing and 'class="band"' in drawing


def test_the_page_has_sections_only_of_what_the_file_has(tmp_path: Path) -> None:
    with_runs = file(tmp_path / "runs.duckdb", runs={"a": (F16, trec(3, 9)), "b": (Q4, trec(4, 9))})
    without_runs = file(tmp_path / "alone.duckdb")
    for path, has_runs in ((with_runs, True), (without_runs, False)):
        with Store(path, read_only=True) as store:
            text = "".join(page.pieces(store))
        assert 'id="depth_parity"' in text and 'id="formats"' in text
        assert ('id="leaderboard"' in text) == has_runs
    with Store(with_runs) as store, store.transaction() as connection:
        connection.execute("DELETE FROM depth_parity; DELETE FROM depth_pairs")
    with Store(with_runs, read_only=True) as store:
        text = "".join(page.pieces(store))
    assert 'id="depth_parity"' not in text and 'id="formats"' not in text


def test_an_overview_names_the_comparison(tmp_path: Path) -> None:
    assert "depth_parity" in Lbx().ok("report", file(tmp_path / "r.duckdb")).stdout
    path = file(tmp_path / "runs.duckdb", runs={"a": (F16, trec(3, 9))})
    assert "| formats | depth_parity" in " ".join(Lbx().ok("report", path).stdout.split())


def test_comparisons_of_models_cannot_be_chosen_by_run(tmp_path: Path) -> None:
    path = file(tmp_path / "r.duckdb", runs={"a": (F16, trec(3, 9))})
    fails(Lbx()("report", path, "depth_parity", "--run", "a"), 2, "depth_parity is not about runs", "Omit --run")


def test_the_decision_joins_scores_and_positions(tmp_path: Path) -> None:
    runs = {"original": (F16, trec(400, 800)), "small": (Q4, trec(401, 800))}
    path = file(tmp_path / "r.duckdb", runs=runs)
    reference, candidate = rows(path, "formats")
    assert (reference["label"], reference["format"], reference["tokens_per_s"]) == (
        "original, the reference", "F16, KV f16", 975 / 4,
    )  # fmt: skip
    assert (candidate["format"], candidate["length"]) == ("Q4_K, KV f16", 2000)
    assert candidate["memory_bytes"] == 100 * 2**20 + 2000 * 1024
    assert candidate["kl"] == rows(path, "depth_parity")[1]["kl"]
    assert (candidate["reference_run"], candidate["run"], candidate["n"]) == ("original", "small", 800)
    (compared,) = [
        row for row in rows(path, "comparison", baseline="original") if row["level"] == "benchmark"
    ]  # the same numbers
    for name in ("difference", "low", "high"):
        assert candidate[name if name == "difference" else f"difference_{name}"] == compared[name]
    assert candidate["verdict"] == "yes"


@pytest.mark.parametrize(
    ("first", "second", "of", "margin", "verdict"),
    [
        (50, 20, 100, 1.0, "no"),
        (50, 49, 100, 5.0, "yes"),
        (50, 48, 100, 1.0, "many more questions needed; the difference is at the margin"),
        # Equal answers: up to three questions might differ.
        (1, 1, 1, 1.0, "about 300 more questions needed; no worse if the difference stays at 0.0"),
        (100, 100, 100, 1.0, "about 200 more questions needed; no worse if the difference stays at 0.0"),
        (50, 50, 100, 3.0, "yes"),
        (50, 50, 99, 3.0, "about 1 more question needed; no worse if the difference stays at 0.0"),
        # All differ alike.
        (100, 0, 100, 1.0, "no"),
        (0, 100, 100, 1.0, "yes"),
        (5, 0, 5, 1.0, "about 1 more question needed; worse if the difference stays at -100.0"),
        (6, 0, 6, 1.0, "no"),
        (1, 0, 1, 1.0, "undecided: one document"),
        (100, 99, 100, 1.0, "many more questions needed; the difference is at the margin"),
        (100, 100, 100, 0.0, "undecided: the difference is the margin"),
    ],
)
def test_verdicts(tmp_path: Path, first: int, second: int, of: int, margin: float, verdict: str) -> None:
    path = file(tmp_path / "r.duckdb", runs={"a": (F16, trec(first, of)), "b": (Q4, trec(second, of))})
    row = rows(path, "formats", margin=margin)[1]
    assert re.fullmatch(verdict, row["verdict"]), row
    assert f"by at most {margin:g} points" in notes(path, "formats", margin=margin)


def on_documents(questions: int, *right: int) -> list[Answer]:
    """Answers to so many questions on each document, of which so many are right."""
    samples = trec(questions, questions)[:1] * questions * len(right)
    return [
        (
            replace(sample, sample_id=f"{place}", context=f"document {document}"),
            "Abbreviation" if place % questions < right[document] else "City",
        )
        for place, (sample, _) in enumerate(samples)
        for document in [place // questions]
    ]


@pytest.mark.parametrize(
    ("reference", "candidate", "verdict"),
    [
        (trec(400, 400), trec(399, 400), "about 210 more questions needed; no worse if the difference stays at -0.2"),
        (trec(800, 800), trec(798, 800), "yes"),
        (
            on_documents(100, *[80] * 4),
            on_documents(100, *[80] * 3, 79),
            "about 4 more documents (400 questions) needed; no worse if the difference stays at -0.2",
        ),
        (on_documents(100, *[80] * 8), on_documents(100, *[80] * 6, 79, 79), "yes"),
        (on_documents(10, 10), on_documents(10, 9), "undecided: one document"),
    ],
)
def test_needed_questions_follow_the_rule_of_the_verdict(
    tmp_path: Path, reference: list[Answer], candidate: list[Answer], verdict: str
) -> None:
    path = file(tmp_path / "r.duckdb", runs={"a": (F16, reference), "b": (Q4, candidate)})
    assert rows(path, "formats")[1]["verdict"] == verdict


def test_runs_that_are_missing_or_ambiguous_are_said(tmp_path: Path) -> None:
    alone = file(tmp_path / "alone.duckdb", runs={"a": (F16, trec(3, 9)), "other": (Q8, trec(3, 9))})
    assert rows(alone, "formats")[1]["verdict"] == "not run"
    assert "not run" in Lbx().ok("report", alone, "formats").stdout
    several = file(
        tmp_path / "several.duckdb",
        runs={"a": (F16, trec(3, 9)), "b": (Q4, trec(3, 9)), "c": (Q4 | {"backend.weights_whole": "0"}, trec(2, 9))},
    )
    row = rows(several, "formats")[1]
    assert (row["verdict"], row["difference"]) == ("several runs", None)
    assert "several runs match (a, b, c). Choose one of each model with --run." in notes(several, "formats")
    chosen = Lbx().ok("report", several, "formats", "--run", "a", "--run", "c", "-f", "json").stdout
    assert '"run": "c"' in chosen or '"run":"c"' in chosen
    (row,) = rows(several, "formats", runs=["c"])[1:]
    assert (row["verdict"], row["caution"]) == ("not chosen", "--run leaves out a")
    assert "not run" not in notes(several, "formats", runs=["c"])
    fails(Lbx()("report", several, "formats", "--baseline", "a"), 2, "--baseline")


def test_the_score_of_a_part_of_the_samples_is_marked(tmp_path: Path) -> None:
    path = file(tmp_path / "r.duckdb", runs={"a": (F16, trec(9, 9)), "b": (Q4, trec(9, 9))})
    with Store(path) as store, store.transaction() as connection:
        connection.execute("""UPDATE runs SET task_samples = '{"longbench/trec": 200}' WHERE run_id = 'b'""")
    assert "b has answered 9 of 200 samples." in notes(path, "formats")
    assert "unfinished" not in rows(path, "formats")[1]["verdict"]
    with Store(path) as store, store.transaction() as connection:
        connection.execute("UPDATE runs SET status = 'interrupted', finished_at = now() WHERE run_id = 'b'")
    assert "b was interrupted with 9 of 200 answers; repeat its command to finish it." in notes(path, "formats")
    assert rows(path, "formats")[1]["verdict"] == "undecided: unfinished run"


@pytest.mark.parametrize("failing", ["a", "b"])
def test_failed_samples_decide_nothing(tmp_path: Path, failing: str) -> None:
    """Those of a format that runs out of memory might be the wrong ones."""
    answers = {name: trec(400, 400, failed=100) if name == failing else trec(500, 500) for name in "ab"}
    path = file(tmp_path / "r.duckdb", runs={"a": (F16, answers["a"]), "b": (Q4, answers["b"])})
    assert rows(path, "formats")[1]["verdict"] == "undecided: failed samples"
    assert f"100 samples of {failing} failed; repeat its command with --retry-failed." in notes(path, "formats")


def test_tasks_of_one_run_only_are_said(tmp_path: Path) -> None:
    more = [(replace(sample, task="lsht"), output) for sample, output in trec(9, 9)]
    path = file(tmp_path / "r.duckdb", runs={"a": (F16, trec(9, 9) + more), "b": (Q4, trec(9, 9))})
    assert "1 of 2 tasks of a is compared." in notes(path, "formats")


def test_comparisons_of_one_model_are_labelled_by_length_and_can_be_removed(tmp_path: Path) -> None:
    path = tmp_path / "r.duckdb"
    longer = replace(depth_pair(), pair_id="longer", comparison_id="longer")
    with Store(path) as store:
        add_depth(store)
        begin_depth_pair(store, longer)
        write_depth_rows(store, [row for row in depth_rows(longer, range(8)) if not row.start])
    assert {row["label"] for row in rows(path, "depth_parity")} == {"q4 (length 1025)", "q4 (length 2000)"}
    said = Lbx().ok("runs", "remove", path, "longer").stdout
    assert "Removed the comparison by position longer" in said
    with Store(path, read_only=True) as store:
        assert [pair.row.pair_id for pair in read_depth_pairs(store)] == [depth_pair().pair_id]
    merged = Lbx().ok("merge", path, "-o", tmp_path / "merged.duckdb").stdout
    assert "0 answers and 1 comparison by position in" in merged


def test_flips_are_counted_by_depth(tmp_path: Path) -> None:
    """As in ``comparison``, any lower score is a loss: half of two asked needles is one."""
    first = {(64, 0.0): [1.0, 1.0, 0.0], (64, 0.5): [1.0, 0.0], (128, 0.5): [1.0]}
    second = {(64, 0.0): [1.0, 0.0, 1.0], (64, 0.5): [1.0, 0.0], (128, 0.5): [0.5]}
    path = make(tmp_path / "r.duckdb", [*needles("single_en", first, run="a"), *needles("single_en", second, run="b")])
    found = [(row["depth"], row["n"], row["losses"], row["wins"]) for row in rows(path, "flips")]
    assert found == [(0.0, 3, 1, 1), (0.5, 3, 1, 0)]
    assert [(row["run_a"], row["run_b"]) for row in rows(path, "flips", baseline="b")] == [("b", "a")] * 2
    with pytest.raises(UsageError, match="No run"):
        rows(path, "flips", baseline="none")


def test_flips_are_counted_by_the_depth_of_the_evidence(tmp_path: Path) -> None:
    made = [
        replace(answer, benchmark="ruler", task="niah_single_1_4096", meta=meta)
        for run, score in (("a", 1.0), ("b", 0.0))
        for answer, meta in zip(
            needles("t", {(64, 0.5): [score] * 3}, run=run),
            [{"evidence_depth": 0.1}, {"evidence_depth": 0.1}, {"index": 7}],
            strict=True,
        )
    ]
    (row,) = rows(make(tmp_path / "r.duckdb", made), "flips")
    assert (row["benchmark"], row["depth"], row["n"], row["losses"]) == ("ruler", 0.1, 2, 2)


def test_flips_of_chosen_tasks(tmp_path: Path) -> None:
    made = [
        answer
        for run, score in (("a", 1.0), ("b", 0.0))
        for task in ("single_en", "single_fr")
        for answer in needles(task, {(64, 0.5): [score]}, run=run)
    ]
    path = make(tmp_path / "r.duckdb", made)
    counts = {tasks: [row["losses"] for row in rows(path, "flips", tasks=[*tasks])] for tasks in (
        (), ("needle/single_en",), ("needle",), ("needle/single_en", "needle/single_fr"))}  # fmt: skip
    assert [*counts.values()] == [[2], [1], [2], [2]]
    with pytest.raises(UsageError, match="needle/other"):
        rows(path, "flips", tasks=["needle/other"])
    with Store(path) as store, store.transaction() as connection:
        connection.execute("UPDATE scores SET metric_version = '2' WHERE run_id = 'b'")
    for tasks in ((), ("needle/single_en",)):
        (row,) = rows(path, "flips", tasks=[*tasks], allow_different_settings=True)
        assert "different metric versions" in row["caution"]


def test_flips_between_runs_that_cannot_be_compared_are_not_counted(tmp_path: Path) -> None:
    made = [answer for run in "ab" for answer in needles("single_en", {(64, 0.5): [float(run == "a")]}, run=run)]
    path = make(tmp_path / "r.duckdb", made)
    with Store(path) as store, store.transaction() as connection:
        connection.execute("UPDATE scores SET metric_version = '2' WHERE run_id = 'b'")
    (refused,) = rows(path, "flips")
    assert refused["n"] is None and refused["caution"]
    (counted,) = rows(path, "flips", allow_different_settings=True)
    assert (counted["n"], counted["losses"]) == (1, 1)
