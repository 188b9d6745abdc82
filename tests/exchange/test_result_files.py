"""The official scorers' result files, byte for byte as the scorers themselves wrote them of the same predictions."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lbx.base.errors import LbxError, UsageError
from lbx.base.records import SimilarityInput
from lbx.benchmarks.judge import Round
from lbx.benchmarks.registry import BENCHMARKS, format_names
from lbx.exchange.exporting import export
from lbx.exchange.prediction_files import OPINION_FORMATS
from lbx.results import RunRow, Store
from lbx.results.read.runs import set_metadata
from lbx.results.scoring.scores import Rescoring, rescore
from tests.exchange.import_parts import import_predictions
from tests.judged_rounds import PAIR, add_judge, both_orders

RECORDS = Path(__file__).parents[1] / "golden/records/result_files.json.gz"
SIMILARITY = 0.25
SLOWER = ("longbench", "longbench_e", "longbench_pro")
LONG = [pytest.mark.long("as of the other families, with more to write; CI compares the official files of all")]
FAMILIES = ("longbench", "longbench_e", "longbench_v2", "longbench_pro", "lveval")


class _Alike:
    """Stands for an embedding model as it did where the golden files were made: all texts are as similar."""

    def compute(self, store: Store, wanted: Sequence[SimilarityInput | None]) -> list[float | None]:
        return [None if one is None else SIMILARITY for one in wanted]


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with gzip.open(RECORDS, "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


def _score(store: Store) -> None:
    rescore(store, Rescoring(BENCHMARKS, similarities=_Alike(), processes=1))  # type: ignore[arg-type]


def _imported(store: Store, family: str, golden: dict[str, Any], folder: Path) -> list[str]:
    """The golden prediction files as runs: one of all, or in a format of one file one of each."""
    for place, text in golden[family]["predictions"].items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text, "utf-8")
    files = [folder / place for place in golden[family]["predictions"]]
    name = family.removesuffix("_e")
    places = files if name in ("longbench_v2", "longbench_pro") else [files[0].parent]
    return [import_predictions(store, name, place, model="m").run_id for place in places]


def _found(paths: Sequence[Path], folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in paths}


def _undated(files: dict[str, str]) -> dict[str, str]:
    return {
        place: "".join(line for line in text.splitlines(keepends=True) if '"date"' not in line)
        for place, text in files.items()
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_as_the_official_scorer_writes_them(family: str, golden: dict[str, Any], store: Store, tmp_path: Path) -> None:
    runs = _imported(store, family, golden, tmp_path / "in")
    _score(store)
    exported = export(store, family.removesuffix("_e"), runs, tmp_path / "out", results=True)
    found = _undated(_found(exported.files, tmp_path / "out"))
    wanted = {f"m/{place}" if family == "longbench_pro" else place: text
              for place, text in golden[family]["results"].items()}  # fmt: skip
    assert {place: found.pop(place) for place in wanted} == wanted
    assert list(found) == (["model_info.json"] if family == "longbench_pro" else [])
    assert exported.rows == sum(text.count("\n") for text in golden[family]["predictions"].values())


def _as_a_run_of_lbx(store: Store, run: str, settings: dict[str, Any]) -> None:
    with store.transaction() as connection:
        columns = "backend = 'scripted', settings = ?, metadata = NULL"
        connection.execute(f"UPDATE runs SET {columns} WHERE run_id = ?", [json.dumps(settings), run])
        connection.execute("UPDATE generations SET source_row = NULL")


@pytest.mark.parametrize("family", [pytest.param(name, marks=LONG if name in SLOWER else []) for name in FAMILIES])
def test_a_run_of_lbx_has_the_results_of_its_predictions(
    family: str, golden: dict[str, Any], store: Store, tmp_path: Path
) -> None:
    run, name = _imported(store, family, golden, tmp_path / "in")[0], family.removesuffix("_e")
    _score(store)
    settings = {"context_window": 131072, "thinking": False} if family == "longbench_pro" else {}
    _as_a_run_of_lbx(store, run, settings)
    made = export(store, name, run, tmp_path / "made", results=True)
    predictions = export(store, name, run, tmp_path / "predictions").files
    with Store(tmp_path / "again.duckdb") as again:
        place = predictions[0] if name in ("longbench_v2", "longbench_pro") else predictions[0].parent
        if name == "longbench_pro":
            place = place.rename(place.with_name("nonthinking_context-120000_bon-3_inference_1-of-1.jsonl"))
        second = import_predictions(again, name, place, model="m").run_id
        _score(again)
        official = export(again, name, second, tmp_path / "official", results=True)
    first, second_files = (
        _undated(_found(one.files, tmp_path / folder)) for one, folder in ((made, "made"), (official, "official"))
    )
    if info := json.loads(first.pop("model_info.json", "{}")):
        assert info == {"m": {"type": "Instruct", "context_length": "128k", "url": ""}}
        second_files.pop("model_info.json")
    assert first == second_files


def test_published_predictions(shared: Callable[[str], Path], store: Store, tmp_path: Path) -> None:
    """Of those tasks that are scored in no time; the lines of the file that the authors published."""
    folder = shared("data/predictions/longbench/llama3-8b-instruct")
    tasks = ("hotpotqa", "2wikimqa", "musique", "trec", "passage_count", "passage_retrieval_zh", "lsht", "triviaqa")
    (tmp_path / "in").mkdir()
    for task in tasks:
        (tmp_path / f"in/{task}.jsonl").write_bytes((folder / f"{task}.jsonl").read_bytes())
    run = import_predictions(store, "longbench", tmp_path / "in", model="m").run_id
    _score(store)
    (file,) = export(store, "longbench", run, tmp_path / "out", results=True).files
    lines = file.read_text("utf-8").splitlines()
    published = {line.rstrip(",") for line in (folder / "result.json").read_text("utf-8").splitlines()}
    assert {line.rstrip(",") for line in lines} <= published
    assert len(lines) == len(tasks) + 2


LEVAL = {
    "quality": ("exam", [("A", "A"), ("B", "A"), ("A", "A")]),
    "natural_question": ("f1", [("two words", "two words"), ("none of it", "other")]),
    "gov_report_summ": ("rouge", [("a b c d", "a b c d")]),
}


def _leval(write_lines: Callable, model: str = "org/m") -> Path:
    for task, (evaluation, rows) in LEVAL.items():
        lines = [
            {"query": f"{task} {place}", "gt": wanted, "m_pred": said, "evaluation": evaluation}
            for place, (said, wanted) in enumerate(rows)
        ]
        path: Path = write_lines(f"in/{task}.pred.jsonl", lines)
    return path.parent


def test_a_submission_to_l_eval(store: Store, tmp_path: Path, write_lines: Callable) -> None:
    run = import_predictions(
        store,
        "leval",
        _leval(write_lines),
        model="org/m",
        metadata={"PE": "no", "retrieval": "yes", "Params": "7B", "@b": "=1+1"},
    ).run_id
    _score(store)
    other = import_predictions(store, "leval", tmp_path / "in", model="n", run_id="n").run_id
    _score(store)
    exported = export(store, "leval", run, tmp_path / "out", results=True)
    found = _found(exported.files, tmp_path / "out")
    for task in LEVAL:  # the folder with the model's name
        assert found.pop(f"m/{task}.pred.jsonl") == (tmp_path / f"in/{task}.pred.jsonl").read_text("utf-8")
    rows = {place: list(csv.DictReader(text.splitlines())) for place, text in found.items()}
    assert [len(some) for some in rows.values()] == [1, 1, 1]
    said = {
        "Max-Ctx": "",
        "Tokens": "",
        "Ret.": "yes",
        "PE": "no",
        "IDD": "",
        "Chunking": "",
        "Params": "7B",
        "'@b": "'=1+1",
    }
    for table, task, figure, average, length in (
        ("exam", "quality", "66.67", "Avg", None),
        ("f1", "natural_question", "50.00", "F1 avg", "2.50"),
        ("rouge", "gov_report_summ", "100.00/100.00/100.00", "ROUGE avg", "4.00"),
    ):
        (row,) = rows[f"{table}_LEval_leaderboard.csv"]
        assert (row["Model"], row[task], row[average], row.get("Length")) == ("m", figure, "", length)
        assert {key: row[key] for key in said} == said
    both = export(store, "leval", [run, other], tmp_path / "both", results=True)
    text = _found(both.files, tmp_path / "both")["f1_LEval_leaderboard.csv"]
    twin = import_predictions(store, "leval", tmp_path / "in", model="x/m", run_id="twin").run_id
    _score(store)
    with pytest.raises(UsageError, match=r"m/quality\.pred\.jsonl cannot be extended with another run"):
        export(store, "leval", [run, twin], tmp_path / "twins", results=True)
    for family, rows in (("longbench_v2", "one.jsonl"), ("leval", "in/quality.pred.jsonl")):
        assert BENCHMARKS[family].results.join(rows, "{}", "{}") is None
    assert [(row["Model"], row["Params"]) for row in csv.DictReader(text.splitlines())] == [("m", "7B"), ("n", "")]


def test_what_judges_say_stands_in_tables_of_its_own(store: Store, tmp_path: Path, write_lines: Callable) -> None:
    run = import_predictions(store, "leval", _leval(write_lines), model="m").run_id
    _score(store)
    answer = store.query("SELECT task, sample_id, output FROM generations ORDER BY ALL").dicts()[0]
    for judge, against, said in (
        ("gpt", "published-turbo-16k-0613", ("[[A]]", "[[C]]")),
        ("small", "published-turbo-16k-0613", ("[[A]]", "nothing")),
        ("small-too", "published-claude-100k-no-length-hint", ("nothing", "nothing")),
        ("other", "somebody", ("[[A]]", "[[A]]")),
    ):
        asked = Round(
            "leval", answer["task"], answer["sample_id"], "", (), run, answer["output"],
            against_run_id=against, against="another",
        )  # fmt: skip
        add_judge(store, judge, both_orders(asked, *said), rubric=replace(PAIR, name="leval"), model=judge)
    files = _found(export(store, "leval", run, tmp_path / "out", results=True).files, tmp_path / "out")
    (row,) = csv.DictReader(files["llm_LEval_leaderboard.csv"].splitlines())
    assert [row[f"[gpt] {name}"] for name in ("n_wins", "n_draws", "win % vs turbo16k")] == ["1", "1", "75.00"]
    assert [row[f"[small] {name}"] for name in ("n_wins", "n_draws", "win % vs turbo16k")] == ["1", "0", "100.00"]
    (row,) = csv.DictReader(files["vsClaude_LEval_leaderboard.csv"].splitlines())
    assert row["[small-too] win % vs Claude100k"] == "" and not any("other" in name for name in row)


def test_the_leaderboards_list_of_models_grows(golden: dict[str, Any], store: Store, tmp_path: Path) -> None:
    (run,) = _imported(store, "longbench_pro", golden, tmp_path / "in")
    _score(store)
    set_metadata(store, run, {"url": "https://example.org", "context_length": "1M"})
    listed = tmp_path / "output/model_info.json"
    listed.parent.mkdir()
    listed.write_text(json.dumps({"Other": {"type": "Mixed"}, "m": {"type": "Thinking", "url": "kept"}}))
    export(store, "longbench_pro", run, listed.parent, results=True)
    assert json.loads(listed.read_text()) == {"Other": {"type": "Mixed"}, "m": {"type": "Mixed", "url": "kept"}}
    listed.write_text('{"m": {"type": ["Thinking"]}}')
    export(store, "longbench_pro", run, listed.parent, force=True, results=True)
    assert json.loads(listed.read_text()) == {"m": {"type": ["Thinking"]}}
    for wrong in (b"[]", b"[" * 200_000, b'{"Other": "\xff"}'):
        listed.write_bytes(wrong)
        with pytest.raises(UsageError, match=r"model_info\.json cannot be extended with another run"):
            export(store, "longbench_pro", run, listed.parent, force=True, results=True)
        assert listed.read_bytes() == wrong
    listed.unlink()
    export(store, "longbench_pro", run, listed.parent, force=True, results=True)
    assert json.loads(listed.read_text())["m"] == {
        "type": "Instruct", "context_length": "1M", "url": "https://example.org"
    }  # fmt: skip


def test_what_would_be_no_official_number_is_refused(
    golden: dict[str, Any], store: Store, tmp_path: Path, write_lines: Callable
) -> None:
    (run,) = _imported(store, "longbench_pro", golden, tmp_path / "in")

    def refused(family: str, run: str, message: str) -> None:
        with pytest.raises(LbxError, match=message):
            export(store, family, run, tmp_path / "out", results=True)
        assert not (tmp_path / "out").exists()

    refused("longbench_pro", run, "No answer of the run .* has a score.*lbx score")
    rescore(store, Rescoring(BENCHMARKS, processes=1))
    refused("longbench_pro", run, "without an embedding model.*--embedding")
    row = {"_id": "1", "difficulty": "easy", "length": "short", "answer": "A", "pred": "A", "judge": True}
    short = import_predictions(store, "longbench_v2", write_lines("one.jsonl", [row]), model="m").run_id
    _score(store)
    refused("longbench_v2", short, "no answer to a hard question, on which the official result.py stops")
    refused("longbench", short, "has no answers to longbench")
    rows = {"pred": "a", "answers": ["a"], "all_classes": None, "length": 1}
    folder = write_lines("pred/qasper.jsonl", [rows]).parent
    runs = [import_predictions(store, "longbench", folder, model="x/m", run_id=name).run_id for name in "ab"]
    _score(store)
    with pytest.raises(UsageError, match=r"result\.json cannot be extended with another run"):
        export(store, "longbench", runs, tmp_path / "out", results=True)
    assert not (tmp_path / "out").exists()
    (file,) = export(store, "longbench", "a", tmp_path / "out", results=True).files
    file.write_text("precious")
    with pytest.raises(UsageError, match=r"already exists.*--force"):
        export(store, "longbench", "a", tmp_path / "out", results=True)
    assert file.read_text() == "precious"


def test_a_folder_in_the_place_of_a_file(store: Store, tmp_path: Path, write_lines: Callable) -> None:
    rows = [{"pred": "a", "answers": ["a"], "all_classes": None, "length": 1}]
    write_lines("pred/qasper.jsonl", rows)
    run = import_predictions(store, "longbench", write_lines("pred/hotpotqa.jsonl", rows).parent, model="m").run_id
    out = tmp_path / "out/pred/m"
    (out / "hotpotqa.jsonl").mkdir(parents=True)
    (out / "qasper.jsonl").write_text("precious")
    with pytest.raises(LbxError, match=r"hotpotqa\.jsonl cannot be written: Is a directory.*No files were exported"):
        export(store, "longbench", run, tmp_path / "out", force=True)
    assert (out / "qasper.jsonl").read_text() == "precious"
    assert sorted(path.name for path in out.iterdir()) == ["hotpotqa.jsonl", "qasper.jsonl"]


def test_a_window_of_characters_is_no_window_of_tokens(golden: dict[str, Any], store: Store, tmp_path: Path) -> None:
    (run,) = _imported(store, "longbench_pro", golden, tmp_path / "in")
    _score(store)
    settings = json.dumps({"context_window": 100_000_000, "backend.tokenizer": None, "thinking": False})
    with store.transaction() as connection:
        connection.execute("UPDATE runs SET backend = 'endpoint', settings = ?", [settings])
    made = _found(export(store, "longbench_pro", run, tmp_path / "out", results=True).files, tmp_path / "out")
    assert not any("context-" in place for place in made)
    assert json.loads(made["model_info.json"])["m"]["context_length"] == "-"


def test_a_benchmark_without_a_scorer_of_its_own(store: Store, tmp_path: Path) -> None:
    store.begin_run(RunRow("r", "m", "scripted", "1", {}, "", {}, {}, "0"))
    with pytest.raises(UsageError, match="There is no prediction format 'needle'") as caught:
        export(store, "needle", "r", tmp_path / "out", results=True)
    for name in (*format_names(), *OPINION_FORMATS):
        assert f" {name}," in f"{caught.value},", name
    assert "your own benchmark" in str(caught.value)
    with pytest.raises(UsageError, match="Did you mean leval_judge"):
        export(store, "leval_jugde", "r", tmp_path / "out")
