"""Model cards with scores, read by huggingface_hub's own functions."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import EvalResult, ModelCard

from lbx.results import Store
from tests.command_line import Lbx, fails
from tests.exchange.tool_export_parts import exported, numbers_of, odd_file
from tests.page_parts import results_file


def read_cards(folder: Path) -> dict[str, list[EvalResult]]:
    """{model: results} of the cards in a folder."""
    cards = [ModelCard(path.read_text("utf-8")) for path in sorted(folder.glob("*/model-index.yaml"))]
    return {card.data.model_name: card.data.eval_results for card in cards}


def check_numbers(results: Path, folder: Path) -> None:
    found = {}
    for model, rows in read_cards(folder).items():
        tasks = found.setdefault(model, {})
        for row in rows:
            if row.dataset_config:
                benchmark = row.dataset_name.removesuffix(f" {row.dataset_config}")
                tasks.setdefault(f"{benchmark}/{row.dataset_config}", {})[row.metric_type] = row.metric_value
    with Store(results, read_only=True) as store:
        models = dict(store.query("SELECT run_id, model FROM runs").rows)
    assert found == {
        models[run]: {
            task: {metric: round(100 * score, 2) for metric, (score, _) in numbers.items()}
            for task, numbers in tasks.items()
        }
        for run, tasks in numbers_of(results).items()
    }


def test_published_predictions_are_read(published: Path, tmp_path: Path) -> None:
    folder = exported(published, "model_index", tmp_path / "out")
    check_numbers(published, folder)
    assert not [*folder.glob("NOTICE*")]
    (llama,) = (rows for model, rows in read_cards(folder).items() if model.startswith("llama3"))
    average, *_ = llama
    assert (average.dataset_type, average.metric_type, average.dataset_config) == ("THUDM/LongBench", "average", None)
    with Store(published, read_only=True) as store:
        ((score, low, high),) = store.query(
            "SELECT score, low, high FROM leaderboard WHERE run_id LIKE 'llama3%' AND benchmark = 'longbench'"
        ).rows
    assert average.metric_value == round(100 * score, 2)
    assert average.metric_args["interval"] == [round(100 * low, 2), round(100 * high, 2)]


def test_odd_names_and_failures_are_read(tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb")
    with Store(results) as store, store.transaction() as connection:
        connection.execute("UPDATE runs SET model = ? WHERE run_id = 'org/two'", ["- a: [b]\n---\n#'\"\u202e猫"])
    folder = exported(results, "model_index", tmp_path / "out")
    names = read_cards(folder)
    assert "org/one" in names and len(names) == 2
    assert not any("\n" in name or "\u202e" in name for name in names)


def test_a_score_of_some_samples_says_so(lbx: Lbx, tmp_path: Path) -> None:
    results = results_file(tmp_path / "part.duckdb", runs=("org/one",), samples=20)
    with Store(results) as store, store.transaction() as connection:
        connection.execute(
            "DELETE FROM generations WHERE task = 'qasper' AND sample_id IN "
            "(SELECT sample_id FROM samples WHERE task = 'qasper' ORDER BY position LIMIT 5)"
        )
        connection.execute("""UPDATE runs SET task_samples = '{"longbench/qasper": 20, "longbench/hotpotqa": 20}'""")
        connection.execute(
            "DELETE FROM scores WHERE NOT EXISTS (FROM generations g WHERE g.run_id = scores.run_id AND "
            "g.task = scores.task AND g.sample_id = scores.sample_id)"
        )
    folder = exported(results, "model_index", tmp_path / "out")
    (rows,) = read_cards(folder).values()
    names = [row.metric_name for row in rows if row.dataset_config == "qasper"]
    assert names and all("15 of 20 samples" in name for name in names)


def test_a_run_without_scores_is_refused(lbx: Lbx, tmp_path: Path) -> None:
    results = results_file(tmp_path / "none.duckdb", runs=("org/one",))
    with Store(results) as store, store.transaction() as connection:
        for name in ("scores", "numbers"):
            connection.execute(f"DELETE FROM {name}")
    fails(lbx("export", "model_index", results, "-o", tmp_path / "out"), 2, "No metric has scored")
    assert not (tmp_path / "out").exists()


def test_a_second_export_needs_force(lbx: Lbx, tmp_path: Path) -> None:
    results = odd_file(tmp_path / "odd.duckdb")
    command = ("export", "model_index", results, "--run", "org/one", "-o", tmp_path / "out")
    lbx.ok(*command)
    fails(lbx(*command), 2, "already exist", "--force")
