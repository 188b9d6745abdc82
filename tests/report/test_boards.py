"""Boards: the numbers of the benchmarks' own leaderboards, of runs and of published models."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.benchmarks.longbench.paper_tables import CATEGORIES
from lbx.benchmarks.longbench.tasks import TASKS
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES as DIMENSIONS
from lbx.benchmarks.lveval import LEVELS
from lbx.report.format.table_cells import sheet
from lbx.report.query import ReportQuery
from lbx.report.reports import REPORTS, read_report
from lbx.report.rows.board import BOARDS
from lbx.results import Store
from tests.command_line import Lbx
from tests.report.made_runs import Answer, add_run, trec
from tests.scored_parts import made_sample

Shared = Callable[[str], Path]
Rows = list[dict[str, Any]]
TRIES = (1, 2, 3)
V2_PARTS = ("overall", "easy", "hard", "short", "medium", "long")
HOSTILE = "<b>|\\%_{}\u202e\x1b[31m`x`"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


def rows_of(store: Store, name: str, **wanted: Any) -> Rows:
    return read_report(store, f"board_{name}", ReportQuery(**wanted)).dicts()


def published_rows(store: Store, name: str, model: str) -> Rows:
    return [row for row in rows_of(store, name, models=[model]) if row["model"].endswith("*")]


def v2(right: int, of: int, *, failed: int = 0) -> list[Answer]:
    """Answers to LongBench v2: the first ``right`` of them are right, the last ``failed`` of them failed."""
    found: list[Answer] = []
    for place in range(of):
        meta = {
            "difficulty": "easy" if place % 2 == 0 else "hard", "length": ("short", "medium", "long")[place % 3],
            "domain": "Multi-Document QA", "sub_domain": "Legal", "choices": {},
        }  # fmt: skip
        sample = Sample("longbench_v2", "mcq", f"{place}", f"d{place}", "?", ("A",), length=9_000, meta=meta)
        output = "The correct answer is (A)." if place < right else "The correct answer is (B)."
        found.append((sample, None if place >= of - failed else output))
    return found


def test_every_board_of_an_empty_file_is_an_empty_table(store: Store) -> None:
    for name in BOARDS:
        table = read_report(store, name)
        assert table.rows == []
        assert {column.name for column in REPORTS[name].columns} <= set(table.columns)


def test_boards_say_how_sure_their_numbers_are_unless_asked_not_to(store: Store) -> None:
    add_run(store, "plain", v2(9, 24))
    add_run(store, "reasons", v2(14, 24), settings={"cot": True})
    add_run(store, "l", leval_answers(), model="other")
    sure = {
        (run, name): tuple(ends) for run, name, *ends in store.query(
            "SELECT run_id, name, 100 * low, 100 * high, method FROM group_scores WHERE benchmark = 'longbench_v2' "
            "AND metric = 'accuracy'"
        ).rows
    }  # fmt: skip
    row, *_ = rows_of(store, "longbench_v2")
    ends = ("low", "high", "method")
    assert tuple(row[f"hard_{end}"] for end in ends) == sure["plain", "hard"]
    assert tuple(row[f"overall_cot_{end}"] for end in ends) == sure["reasons", "all"]
    sheet_of = sheet(REPORTS["board_longbench_v2"], read_report(store, "board_longbench_v2"))
    texts = dict(zip((column.name for column in sheet_of.columns), sheet_of.rows[0], strict=True))
    assert re.fullmatch(r"\d+\.\d (± \d+\.\d|\[\d+\.\d, \d+\.\d\])", texts["overall"])
    assert sheet_of.notes == ["Scores are followed by 95% intervals."]

    alone = ReportQuery(without_intervals=True)
    for name in ("longbench_v2", "leval_rouge"):
        assert not [column for column in read_report(store, f"board_{name}", alone).columns if column.endswith("_low")]
    plain = sheet(REPORTS["board_longbench_v2"], read_report(store, "board_longbench_v2", alone))
    assert "37.5" in plain.rows[0]
    assert plain.notes == []


def leval_answers() -> list[Answer]:
    asked = [made_sample("leval", "gov_report_summ", number) for number in range(6)]
    return [(one, "here" if at % 2 else "so it is") for at, one in enumerate(asked)]


# LongBench


def test_questions_after_the_same_worked_examples_are_independent(store: Store) -> None:
    """L-Eval's gsm100 is 100 questions on one document; an import may know no documents of another task."""
    gsm = [(Sample("leval", "gsm100", f"{n}", "the examples", "?", ("18",)), "The answer is 18" if n < 84 else "3")
           for n in range(100)]  # fmt: skip
    quality = [(Sample("leval", "quality", f"{n}", "", "?", ("A",)), "A" if n < 9 else "B") for n in range(20)]
    add_run(store, "r", [*gsm, *quality])
    table = read_report(store, "board_leval_exam")
    made = sheet(REPORTS["board_leval_exam"], table)
    (shown,) = made.rows
    cells = dict(zip([column.name for column in made.columns], shown, strict=True))
    assert cells["gsm100"].startswith("84") and "document" not in cells["gsm100"]
    assert table.dicts()[0]["gsm100_low"] is not None
    assert table.dicts()[0]["quality_cluster_by"] == "sample"


def test_longbench_is_what_its_tasks_average_to(imports: Path, shared: Shared) -> None:
    with Store(imports, read_only=True) as store:
        rows = {(row["model"], row["language"]): row for row in rows_of(store, "longbench")}
    codes = {"English": "en", "Chinese": "zh"}
    assert len(rows) == 4
    for (model, language), row in rows.items():
        scores = json.loads((shared(f"data/predictions/longbench/{model}") / "result.json").read_text("utf-8"))
        means = []
        for category in CATEGORIES:
            members = [
                scores[task]
                for task, kind in TASKS.items()
                if kind.category == category and task in scores and kind.language in (codes[language], "code")
            ]
            means.append(sum(members) / len(members))
            assert row[category] == pytest.approx(means[-1], abs=0.0501), (model, language, category)
        assert row["average"] == pytest.approx(sum(means) / 6, abs=0.0501)
        assert row["note"] is None
    assert [row["model"] for row in rows.values()] == ["llama3-8b-instruct", "llama2-7b-chat-4k"] * 2, "best first"


@pytest.mark.parametrize(
    ("model", "english", "chinese"),
    [
        ("GPT-3.5-Turbo-16k", (44.0, 39.8, 38.7, 26.5, 67.1, 54.1, 37.8), (44.5, 61.2, 28.7, 16.0, 29.2, 54.1, 77.5)),
        ("XGen-7B-8k", (28.3, 24.6, 20.4, 24.7, 56.2, 38.6, 5.3), (15.1, 14.8, 11.0, 2.2, 20.5, 38.6, 3.5)),
        ("ChatGLM3-6B-32k", (48.5, 40.3, 46.6, 29.5, 68.1, 56.2, 50.5), (52.8, 62.3, 44.8, 17.8, 42.0, 56.2, 94.0)),
        (
            "GPT-3.5-Turbo-16k [2023-07]",
            (45.5, 39.8, 38.7, 26.5, 76.0, 54.5, 37.8), (44.5, 61.2, 28.7, 16.0, 29.2, 54.5, 77.5),
        ),
        (
            "LongChat-7B-16k [2023-07]",
            (33.7, 29.3, 16.1, 25.8, 59.9, 57.0, 14.2), (23.7, 26.6, 19.1, 14.0, 20.8, 57.0, 4.8),
        ),
    ],
)  # fmt: skip
def test_published_models_average_as_their_readme_has_it(
    store: Store, model: str, english: tuple[float, ...], chinese: tuple[float, ...]
) -> None:
    add_run(store, "r", trec(3, 4))
    rows = {row["language"]: row for row in published_rows(store, "longbench", model) if row["model"] == f"{model}*"}
    for language, printed in (("English", english), ("Chinese", chinese)):
        own = [rows[language][column] for column in ("average", *CATEGORIES)]
        assert own == pytest.approx(printed, abs=0.11), "theirs are means of figures with more digits"


def test_radii(imports: Path) -> None:
    with Store(imports, read_only=True) as store:
        scores = {(row["language"], row["model"]): row for row in rows_of(store, "longbench")}
        radii = {(row["language"], row["model"]): row for row in rows_of(store, "longbench_radar")}
    for (language, model), row in radii.items():
        for category in CATEGORIES:
            best = max(found[category] for (other, _), found in scores.items() if other == language)
            assert row[category] == pytest.approx(40 + 60 * scores[language, model][category] / best, abs=0.01)
    assert radii["English", "llama3-8b-instruct"]["summarization"] == 100


def longbench(task: str, lengths: dict[int, tuple[int, int]]) -> list[Answer]:
    """{length: (right, of)} of trec or trec_e, whose scores are 0 or 1."""
    found: list[Answer] = []
    for length, (right, of) in lengths.items():
        for place in range(of):
            meta = {"all_classes": ["Abbreviation", "City"]}
            identifier = f"{length}-{place}"
            sample = Sample("longbench", task, identifier, identifier, "?", ("Abbreviation",), length=length, meta=meta)
            found.append((sample, "Abbreviation" if place < right else "City"))
    return found


def test_e_has_its_buckets_by_category(store: Store) -> None:
    add_run(store, "r", longbench("trec_e", {100: (1, 2), 5_000: (1, 4), 9_000: (3, 4)}))
    rows = {row["category"]: row for row in rows_of(store, "longbench_e")}
    assert [rows["few-shot learning"][one] for one in ("0-4k", "4-8k", "8k+")] == [50, 25, 75]
    assert rows.keys() == {"average", "few-shot learning"}
    assert all(row["note"] == "not all tasks" for row in rows.values())


# LongBench v2


def test_v2_has_plain_and_cot_of_a_model_in_a_row(store: Store) -> None:
    counts = {"longbench_v2/mcq": 12}
    add_run(store, "p", v2(6, 12), model="M", counts=counts, metadata={"Params": "8B", "Date": "2025-01-01"})
    add_run(store, "c", v2(9, 12), model="M", settings={"cot": True, "context_window": 131_072}, counts=counts)
    add_run(store, "t", v2(4, 12), model="Thinks", settings={"thinking": True}, counts=counts)
    add_run(store, "n", v2(7, 12), model="M", settings={"no_context": True}, counts=counts)
    rows = rows_of(store, "longbench_v2")
    named = {(row["model"], row["mode"]): row for row in rows}
    m = named["M", None]
    assert (m["run_id"], m["reasoning_run_id"]) == ("p", "c")
    assert (m["params"], m["context"], m["date"]) == ("8B", "128k", "2025-01-01")
    assert (m["overall"], m["overall_cot"], m["easy"], m["long_cot"]) == (50.0, 75.0, 50.0, 75.0)
    thinks = named["Thinks", None]
    assert (thinks["overall"], thinks["overall_cot"]) == (None, 33.3), "a reasoning model has the second column alone"
    assert named["M", "no context"]["overall_cot"] is None
    human, random = named["Human*", None], named["Random*", None]
    assert human["overall"] == human["overall_cot"] == 53.7
    assert (human["easy"], human["hard_cot"], random["medium"]) == (100, 25.1, 25)
    assert [row["model"] for row in rows] == ["M", "M", "Human*", "Thinks", "Random*"], "by Overall w/ CoT, else plain"


def test_v2_beside_published_models(store: Store) -> None:
    add_run(store, "p", v2(6, 12))
    rows = rows_of(store, "longbench_v2", models=["Qwen2.5-72B", "DeepSeek-R1 "])
    assert {row["model"] for row in rows} == {
        "model",
        "Human*",
        "Random*",
        "Qwen2.5-72B Alibaba*",
        "DeepSeek-R1 / DeepSeek*",
    }
    (qwen,) = (row for row in rows if row["model"].startswith("Qwen"))
    assert [qwen[f"{part}{cot}"] for part in V2_PARTS for cot in ("", "_cot")] == [
        42.1, 43.5, 42.7, 47.9, 41.8, 40.8, 45.6, 48.9, 38.1, 40.9, 44.4, 39.8,
    ]  # fmt: skip
    assert (qwen["params"], qwen["context"]) == ("72B", "128k")
    with pytest.raises(UsageError, match="matches 'nobody'"):
        rows_of(store, "longbench_v2", models=["nobody"])


def test_v2_of_a_part_is_marked_and_stands_where_it_surely_belongs(store: Store) -> None:
    add_run(store, "part", v2(9, 9), counts={"longbench_v2/mcq": 503})
    add_run(store, "failed", v2(6, 12, failed=2), model="failed")
    rows = {row["model"]: row for row in rows_of(store, "longbench_v2")}
    assert (rows["model"]["overall"], rows["model"]["note"]) == (100.0, "9 of 503")
    assert (rows["failed"]["overall"], rows["failed"]["note"]) == (60.0, "10 of 12")
    assert list(rows) == ["Human*", "failed", "Random*", "model"], "with missing answers as 0"


def test_twins_and_hostile_names_keep_rows_of_their_own(store: Store) -> None:
    for seed in (1, 2):
        add_run(store, f"{HOSTILE}{seed}", v2(6, 12), model=HOSTILE, settings={"seed": seed})
    rows = [row for row in rows_of(store, "longbench_v2") if row["model"] == HOSTILE]
    assert {row["run_id"] for row in rows} == {f"{HOSTILE}1", f"{HOSTILE}2"}
    assert all(row["differs_in"] for row in rows)


def test_v2_is_what_the_official_script_printed(imports: Path, shared: Shared) -> None:
    with Store(imports, read_only=True) as store:
        (row,) = (row for row in rows_of(store, "longbench_v2") if row["run_id"])
    names, printed = shared("data/predictions/longbench_v2/result.txt").read_text("utf-8").splitlines()[:2]
    official = dict(zip(names.lower().split("\t"), printed.split("\t"), strict=True))
    assert [row[part] for part in V2_PARTS[:-1]] == [float(official[part]) for part in V2_PARTS[:-1]]
    assert (row["long"], row["note"]) == (None, "312 of 503")


# LongBench Pro


def pro(model_right: int, iterations: int = 3) -> list[Answer]:
    """One question of Pro's t3.2, right in so many of its iterations."""
    meta = {
        "token_length": "8k", "contextual_requirement": "Partial", "difficulty": "Easy",
        "primary_task": "T3. Evidence-Grounded QA", "secondary_task": "T3.2 Single-Hop Fact QA", "row": 0,
    }  # fmt: skip
    sample = Sample("longbench_pro", "t3.2", "q", "d", "?", ("Paris",), language="en", length=8_192, meta=meta)
    return [(sample, "[Answer]\nParis" if at < model_right else "[Answer]\nRome") for at in range(iterations)]


def test_pro_has_a_row_a_model_sorted_by_the_larger_score(store: Store) -> None:
    add_run(store, "n", pro(1), model="M", settings={"context_window": 131_072})
    add_run(store, "t", pro(3), model="M", settings={"context_window": 131_072, "thinking": True})
    rows = rows_of(store, "longbench_pro", models=["Qwen3-8B", "GPT-5"])
    mine = rows[-1]
    assert (mine["model"], mine["type"], mine["window"], mine["truncated"]) == ("M", "Mixed", "128k", "120k")
    assert (mine["nonthinking"], mine["thinking"]) == (pytest.approx(1 / 3, abs=1e-4), 1.0)
    assert (mine["run_id"], mine["reasoning_run_id"]) == ("n", "t")
    assert mine["note"] == "not all tasks"
    assert [row["model"] for row in rows] == ["GPT-5*", "Qwen3-8B*", "M"]
    assert (rows[0]["nonthinking"], rows[0]["type"], rows[0]["window"]) == (None, "Thinking", "272k")
    tries = {row["model"]: row for row in rows_of(store, "longbench_pro_tries")}
    assert [tries["M (nonthinking)"][f"bon@{n}"] for n in TRIES] == [1, 1, 1]
    assert tries["M (thinking)"]["pass@3"] == 1


def test_pro_shows_what_the_authors_summaries_say(store: Store, shared: Shared) -> None:
    add_run(store, "n", pro(1))
    output = shared("data/judgements/longbench_pro/output")
    info = json.loads((output / "model_info.json").read_text("utf-8"))
    for path in output.glob("*/*_summary.json"):
        summary, model = json.loads(path.read_text("utf-8")), path.parent.name
        mode = path.name.partition("_")[0]
        board = {row["model"]: row for row in published_rows(store, "longbench_pro", model)}[f"{model}*"]
        assert board[mode] == pytest.approx(summary["average_overall_metric"], abs=1e-6)
        assert board["type"] == info[model]["type"]
        assert board["window"] == info[model]["context_length"]
        official = ("token_length", "contextual_requirement", "difficulty", "primary_task", "language")
        for ours, theirs in zip(DIMENSIONS, official, strict=True):
            rows = {row["model"]: row for row in published_rows(store, f"longbench_pro_{ours}", model)}
            printed = summary[f"average_{theirs}_metric"]
            own = {name: rows[f"{model} ({mode})*"][name] for name in printed}
            assert own == pytest.approx(printed, abs=1e-6)
            assert set(DIMENSIONS[ours]) == set(printed)
        tries = {row["model"]: row for row in published_rows(store, "longbench_pro_tries", model)}[f"{model} ({mode})*"]
        for n in TRIES:
            assert tries[f"bon@{n}"] == pytest.approx(summary[f"BoN-{n}"]["overall_metric"], abs=1e-6)
            assert tries[f"pass@{n}"] == pytest.approx(summary[f"pass@{n}"], abs=1e-6)


# LV-Eval


def lveval(task: str, right: int, of: int) -> list[Answer]:
    samples = [Sample("lveval", task, f"{at}", f"d{at}", "?", ("blue",), language="en", length=9) for at in range(of)]
    return [(sample, "blue" if at < right else "red") for at, sample in enumerate(samples)]


def test_lveval_by_dataset_and_level(store: Store) -> None:
    answers = [one for level, right in zip(LEVELS, (4, 3, 2, 1, 0), strict=True) for one in
               lveval(f"factrecall_en_{level}", right, 4)]  # fmt: skip
    add_run(store, "r", answers)
    rows = {row["dataset"]: row for row in rows_of(store, "lveval")}
    assert [rows["factrecall_en"][level] for level in LEVELS] == [100, 75, 50, 25, 0]
    assert rows["factrecall_en"]["mean"] == 50
    assert rows["factrecall_en"]["note"] is None
    assert rows["all"]["note"] == "not all tasks"


def test_published_means_are_those_of_lv_evals_readme(store: Store) -> None:
    add_run(store, "r", lveval("factrecall_en_16k", 1, 2))
    rows = {row["dataset"]: row for row in published_rows(store, "lveval", "ChatGLM3-6B-32k")}
    assert [rows["all"][level] for level in LEVELS] == pytest.approx([30.70, 26.62, 17.62, 11.56, 7.17], abs=0.011)
    means = {"loogle_SD_mixup": 22.29, "cmrc_mixup": 28.16, "factrecall_zh": 6.10, "dureader_mixup": 19.57}
    assert {name: rows[name]["mean"] for name in means} == pytest.approx(means, abs=0.011)
    (qwen,) = (row for row in published_rows(store, "lveval", "Qwen2-72B") if row["dataset"] == "all")
    assert qwen["32k"] is None, "published at 16k alone"
    assert qwen["16k"] is not None


# L-Eval


def test_leval_is_what_its_leaderboards_rows_say(imports: Path, tmp_path: Path) -> None:
    """Against the official tables that `lbx export --results` writes, Length among them."""
    with Store(imports, read_only=True) as store:
        (f1,), rouge = rows_of(store, "leval_f1"), rows_of(store, "leval_rouge")
        assert rows_of(store, "leval_exam") == rows_of(store, "leval_gpt4") == []
    done = Lbx()("export", "leval", imports, "--run", f1["run_id"], "--results", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    tables = {}
    for name in ("f1", "rouge"):
        text = (tmp_path / f"{name}_LEval_leaderboard.csv").read_text("utf-8")
        (tables[name],) = csv.DictReader(io.StringIO(text))
    for column, cell in tables["f1"].items():
        own = {"Length": "length", "F1 avg": "average"}.get(column, column)
        if cell and column != "Model":
            assert f1[own] == pytest.approx(float(cell), abs=0.011), column
    assert [row["metric"] for row in rouge] == ["rouge1", "rouge2", "rougeL"]
    for column, cell in tables["rouge"].items():
        own = {"Length": "length", "ROUGE avg": "average"}.get(column, column)
        if cell and column != "Model":
            printed = [float(one) for one in cell.split("/")] * (1 if "/" in cell else 3)
            assert [row[own] for row in rouge] == pytest.approx(printed, abs=0.011), column


def leval(mark: str, *outputs: str) -> list[Answer]:
    meta = {"evaluation": mark, "source": "", "judged_by": []}
    return [
        (Sample("leval", "narrative_qa", f"{mark}-{at}", "d", "?", ("a b",), language="en", meta=meta), output)
        for at, output in enumerate(outputs)
    ]


def test_leval_lengths_count_words_by_part(store: Store) -> None:
    spaced = "one\u3000two\u00a0three\x1cfour \n five"
    add_run(store, "r", [*leval("f1", spaced, "a"), *leval("LLM", "a b c"), *leval("human", "a")], settings={"rag": 4})
    (f1,), (gpt4,), (gpt35,) = (rows_of(store, f"leval_{name}") for name in ("f1", "gpt4", "gpt35"))
    assert len(spaced.split()) == 5
    assert (f1["length"], gpt4["length"], gpt35["length"]) == (3.0, 3.0, 2.0)
    assert gpt4["win_rate"] is None, "no judge has read it"
    assert f1["ret"] == "yes"
    found = {row["model"]: row["win_rate"] for row in published_rows(store, "leval_gpt4", "GPT-4-32k")}
    assert found == {"GPT-4-32k*": 54.16}
    (turbo,) = (row for row in published_rows(store, "leval_rouge", "turbo-16k-0613") if row["metric"] == "rouge2"
                and row["gov_report_summ"])  # fmt: skip
    assert (turbo["gov_report_summ"], turbo["average"], turbo["length"]) == (15.6, 10.67, None)


# All


def test_a_run_that_goes_on_has_no_number_yet(store: Store) -> None:
    add_run(store, "r", v2(6, 12))
    store._connection.execute("DELETE FROM numbers WHERE kind IN ('task', 'group')")  # as before the first adding up
    store._connection.execute("UPDATE runs SET status = 'running'")
    (row,) = (row for row in rows_of(store, "longbench_v2") if row["run_id"])
    assert (row["overall"], row["note"]) == (None, "killed")


def test_a_killed_run_with_all_answers_is_not_marked(store: Store) -> None:
    add_run(store, "r", v2(6, 12), counts={"longbench_v2/mcq": 12})
    store._connection.execute("UPDATE runs SET status = 'running'")
    (row,) = (row for row in rows_of(store, "longbench_v2") if row["run_id"])
    assert (row["overall"], row["note"]) == (50.0, None)


@pytest.mark.parametrize("output_format", ["table", "markdown", "json", "html", "csv"])
def test_a_hostile_name_comes_through_as_text(tmp_path: Path, output_format: str) -> None:
    path = tmp_path / "results.duckdb"
    with Store(path) as store:
        add_run(store, "r", [*v2(6, 12), *pro(2)], model=HOSTILE, metadata={"date": HOSTILE})
    for name in ("board_longbench_v2", "board_longbench_pro"):
        done = Lbx()("report", path, name, "--format", output_format)
        assert done.returncode == 0, done.stderr
        assert not {"\x1b", "\u202e"} & set(done.stdout)
        assert "<b>" not in done.stdout or output_format in ("table", "markdown", "json", "csv")
        assert "x1b" in done.stdout or "u001b" in done.stdout


def test_settings_and_numbers_of_a_foreign_file_stop_nothing(store: Store) -> None:
    for name, settings in (("r", {"context_window": "huge", "files": 7}), ("s", {"max_prompt_tokens": [1]})):
        add_run(store, name, [*v2(6, 12), *pro(2), *leval("f1", "a")], settings=settings)
    store._connection.execute("UPDATE runs SET metadata = '[1]'")
    store._connection.execute(
        "UPDATE numbers SET official = 'nan', score = 'nan' WHERE kind = 'group' AND run_id = 'r'"
    )
    for name in BOARDS:
        assert all(value == value for row in read_report(store, name).rows for value in row), name
    (row,) = (row for row in rows_of(store, "longbench_v2") if row["run_id"] == "r")
    assert row["overall"] is None


@pytest.mark.parametrize("output_format", ["table", "markdown", "json", "html"])
def test_all_boards_of_a_file_in_every_format(imports: Path, output_format: str) -> None:
    done = Lbx()("report", imports, "board", "--published", "GPT", "--format", output_format)
    assert done.returncode == 0, done.stderr
    assert "llama3-8b-instruct" in done.stdout
    said = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.DOTALL).casefold()
    assert "nan" not in said.replace("finan", "").replace("nano", "")


def test_one_board_as_csv(imports: Path) -> None:
    assert Lbx()("report", imports, "board", "--format", "csv").returncode == 2
    done = Lbx()("report", imports, "board_longbench_v2", "--format", "csv")
    found = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["model"] for row in found] == ["Human*", "Random*", "gpt-4o-mini"]
