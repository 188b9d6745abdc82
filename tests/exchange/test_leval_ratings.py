"""L-Eval's rating pages through the results file: in, and out to the byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_files import export_ratings, import_ratings
from lbx.opinions.rating_pages import read_pages
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import Store
from tests.command_line import Lbx

PAGES = Path(__file__).parent / "leval_pages/human_eval"
GOLD = PAGES / "claude.gpt4.ref.jsonl"
OFFICIAL = ("jsons/*_e*.json", "files_from_*", "results_from_*")

Shared = Callable[[str], Path]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.duckdb"


def _official(folder: Path, *patterns: str) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text("utf-8") for name in patterns for file in folder.glob(name)}


def test_all_files_come_back(results: Path) -> None:
    with Store(results) as store:
        done = import_ratings(store, read_pages(PAGES))
        made = export_ratings(store, None, None, documents=GOLD)
    assert made == _official(PAGES, "jsons/*_evaled.json", "files_from_*", "results_from_*")
    assert (done.rater, done.questions, done.ratings) == ("Annotator.1", 16, 64)
    assert list(done.runs) == ["gpt4_outputs", "claude_outputs", "brook-7b_pred", "heron-chat_pred"]
    assert done.means["gpt4_outputs"] == 2.78125
    assert len([text for text in done.notes if "outside the scale" in text]) == 1


def test_what_the_file_holds_adds_up(results: Path) -> None:
    with Store(results) as store:
        done = import_ratings(store, read_pages(PAGES))
        again = import_ratings(store, read_pages(PAGES))
        counted = store.query("SELECT run_id, n_ratings, mean FROM rating_results WHERE task IS NULL").rows
        documents = store.query("SELECT count(DISTINCT context_sha256) FROM samples").rows
    assert {done.runs[key]: (16, mean) for key, mean in done.means.items()} == {
        run: (n, mean) for run, n, mean in counted
    }
    assert documents == [(11,)]
    assert (again.runs, again.new_runs) == (done.runs, [])


def test_two_raters_share_a_set_and_each_gets_the_own_files(results: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(PAGES / "jsons", other / "jsons")
    (other / "jsons/7_evaled.json").unlink()
    with Store(results) as store:
        first = import_ratings(store, read_pages(PAGES))
        second = import_ratings(store, read_pages(other, "Bo"))
        assert second.set_id == first.set_id
        assert second.new_runs == []
        with pytest.raises(UsageError, match=r"2 raters.*Annotator.1, Bo"):
            export_ratings(store, None, None, documents=GOLD)
        assert export_ratings(store, None, "Annotator.1", documents=GOLD) == _official(
            PAGES, "jsons/*_evaled.json", "files_from_*", "results_from_*"
        )
        made = export_ratings(store, None, "Bo", documents=GOLD)
    assert made.pop("jsons/7_example.json") == (other / "jsons/7_example.json").read_text("utf-8")
    assert made == _official(other, "jsons/*_evaled.json")


def test_a_file_of_all_comes_back(results: Path) -> None:
    with Store(results) as store:
        import_ratings(store, read_pages(PAGES / "files_from_Annotator.1.jsonl"))
        made = export_ratings(store, None, None, documents=GOLD)
    assert made == _official(PAGES, "files_from_*", "results_from_*")


def test_ratings_find_the_run_that_gave_the_answers(results: Path) -> None:
    with Store(results) as store:
        first = import_ratings(store, read_pages(PAGES))
        runs = store.query("SELECT run_id FROM runs ORDER BY ALL").rows
        store.connection.execute("DELETE FROM ratings; DELETE FROM rating_items; DELETE FROM rating_sets")
        assert import_ratings(store, read_pages(PAGES / "files_from_Annotator.1.jsonl")).runs == first.runs
        assert store.query("SELECT run_id FROM runs ORDER BY ALL").rows == runs


def test_the_published_rating_comes_back(shared: Shared, results: Path) -> None:
    folder = shared("data/judgements/leval/human_eval")
    with Store(results) as store:
        done = import_ratings(store, read_pages(folder / "jsons", "author"))
        made = export_ratings(store, None, None, documents=folder / "claude.gpt4.ref.jsonl")
        means = store.query("SELECT model, round(mean, 3) FROM rating_results WHERE task IS NULL ORDER BY ALL").rows
    assert (done.questions, done.ratings) == (85, 21)
    assert len(made) == 12
    for name, text in made.items():
        assert text.encode() == (folder / name).read_bytes()
    assert means == [
        ("chatglm2-6b-8k", 4.333),
        ("claude", 3.667),
        ("gpt4", 3.333),
        ("llama2-13b-chat-4k", 4.0),
        ("longchat-13b-16k-flash", 3.667),
        ("turbo-16k-0613", 3.333),
        ("vicuna-7b-2k", 4.0),
    ]


def test_documents_are_not_stored(results: Path) -> None:
    with Store(results) as store:
        import_ratings(store, read_pages(PAGES))
        with pytest.raises(UsageError, match=r"is missing.*--bundle DIR.*--documents-file FILE"):
            export_ratings(store, None, None)
    assert b"It was repaired in" not in results.read_bytes()


@pytest.mark.parametrize("first", [0, 1])
def test_a_set_of_lbx_is_written_as_the_page_writes_it(results: Path, first: int) -> None:
    """The same questions, answers and ratings, entered as `lbx rate` enters them: the official page's bytes. The first
    answer that did not fail is the one that is rated.
    """
    with Store(results) as store:
        done = import_ratings(store, read_pages(PAGES))
        if first:
            store.query("UPDATE generations SET iteration = 1")
            store.query(
                "INSERT INTO generations BY NAME FROM generations "
                "SELECT * REPLACE (0 AS iteration, NULL AS output, 'it broke' AS error)"
            )
        items = store.query("SELECT * FROM rating_items ORDER BY item").dicts()
        given = store.query("SELECT * FROM ratings WHERE score IS NOT NULL").dicts()
        write_ratings(
            store,
            sets=[RatingSetRow("own", "score", "human", list(done.runs.values()), 1, 5)],
            items=[RatingItemRow(**{**row, "meta": {}, "set_id": "own"}) for row in items],
            ratings=[
                RatingRow("own", row["item"], "Cy", row["run_id"], first, score=score, revision=revision)
                for row in given
                for revision, score in enumerate((1.0, row["score"]))  # a change of mind: the last one counts
            ],
        )
        made = export_ratings(store, "own", "Cy", documents=GOLD)
    pages = {name: json.loads(text) for name, text in made.items() if name.startswith("jsons/")}
    assert set(pages) == {f"jsons/{number}_evaled.json" for number in range(11)}
    for name, page in pages.items():
        official = json.loads((PAGES / name).read_text("utf-8"))
        for key, text in official.items():
            mine = page.get(key.replace("gpt4_outputs", "gpt4_pred").replace("claude_outputs", "claude_pred"))
            assert key == "source" or mine == text.replace("\n 4 ", "\n4").replace("----\n 4", "----\n4")
    assert set(made) - set(pages) == {"files_from_Cy.jsonl", "results_from_Cy.jsonl"}
    assert json.loads(made["results_from_Cy.jsonl"])["gpt4_pred"]["3.5"] == 1


@pytest.mark.parametrize("typed", ["inf", "-1e999", "nan"])
def test_what_python_takes_for_a_number_and_nobody_for_a_rating(tmp_path: Path, results: Path, typed: str) -> None:
    """The page's float() takes it, too; a mean of it would be no number."""
    folder = tmp_path / "typed"
    shutil.copytree(PAGES / "jsons", folder / "jsons")
    page = folder / "jsons/3_evaled.json"
    page.write_text(page.read_text("utf-8").replace('----\\n3.5"', f'----\\n{typed}"'), "utf-8")
    done = Lbx()("import", "leval_ratings", folder, "--rater", "Bo", "-o", results, "--json")
    told = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (told["ratings"], told["means"]["gpt4_outputs"]) == (63, None)
    assert any("gpt4_outputs #0 has no rating" in text for text in told["notes"])
    with Store(results, read_only=True) as store:
        counted = store.query("SELECT n_ratings, mean FROM rating_results WHERE model = 'gpt4' AND task IS NULL").rows
        assert counted == [(15, pytest.approx(41 / 15))]
        assert export_ratings(store, None, None, documents=GOLD)["jsons/3_evaled.json"] == page.read_text("utf-8")


def test_by_command(tmp_path: Path, results: Path) -> None:
    lbx = Lbx()
    done = lbx("import", "leval_ratings", str(PAGES), "-o", str(results))
    assert "64 ratings by Annotator.1 of 16 questions" in done.stdout
    assert "gpt4_outputs: 2.78125" in done.stdout
    lbx("export", "leval_ratings", str(results), "--documents-file", str(GOLD), "-o", str(tmp_path / "out"))
    assert _official(tmp_path / "out", *OFFICIAL) == _official(
        PAGES, "jsons/*_evaled.json", "files_from_*", "results_from_*"
    )


def test_two_raters_on_two_machines_are_merged(tmp_path: Path) -> None:
    lbx = Lbx()
    other = tmp_path / "other"
    shutil.copytree(PAGES / "jsons", other / "jsons")
    text = (other / "jsons/3_evaled.json").read_text("utf-8")
    (other / "jsons/3_evaled.json").write_text(text.replace('----\\n3.5"', '----\\n1"'), "utf-8")
    assert lbx("import", "leval_ratings", PAGES, "-o", tmp_path / "a.duckdb").returncode == 0
    assert lbx("import", "leval_ratings", other, "--rater", "Bo", "-o", tmp_path / "b.duckdb").returncode == 0
    done = lbx("merge", tmp_path / "a.duckdb", tmp_path / "b.duckdb", "-o", tmp_path / "all.duckdb")
    assert done.returncode == 0, done.stderr
    with Store(tmp_path / "all.duckdb", read_only=True) as store:
        assert store.query("SELECT rater, count(score) FROM ratings GROUP BY ALL ORDER BY ALL").rows == [
            ("Annotator.1", 64),
            ("Bo", 64),
        ]
        ours = export_ratings(store, None, "Annotator.1", documents=GOLD)
        theirs = export_ratings(store, None, "Bo", documents=GOLD)
    assert ours == _official(PAGES, "jsons/*_evaled.json", "files_from_*", "results_from_*")
    assert theirs["jsons/3_evaled.json"] == (other / "jsons/3_evaled.json").read_text("utf-8")
