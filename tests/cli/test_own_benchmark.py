"""Every command line of docs/own-benchmark.md, in its order, on the example; and the same with the demo's model."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from tests.command_line import Lbx, fails

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "bundle" / "examples" / "handbook"
DOCUMENT = (ROOT / "docs" / "own-benchmark.md").read_text("utf-8")


def commands() -> list[list[str]]:
    lines = [line.strip() for line in DOCUMENT.split("## Quick start")[1].split("\n## ")[0].splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("lbx ")]


def right_answers() -> str:
    lines = []
    for task in ("facts", "choices", "facts_zh"):
        for text in (EXAMPLE / f"{task}.jsonl").read_text("utf-8").splitlines():
            row = json.loads(text)
            references = row.get("references", row.get("answers"))
            said = references[0] if isinstance(references, list) else "B"
            name = row.get("id", row.get("_id"))
            lines.append(json.dumps({"key": f"handbook/{task}/{name}", "text": said}))
    return "\n".join(lines)


MODEL = {"models/demo/hf": "models/my-model.toml"}
"""Of the document, and in its place one whose answers are known."""


def test_the_quick_start_runs_in_a_clone(lbx: Lbx, tmp_path: Path) -> None:
    for library in ("torch", "transformers"):
        pytest.importorskip(library, reason="needs lbx[hf]")
    shutil.copytree(EXAMPLE, tmp_path / "bundle" / "examples" / "handbook")
    shutil.copytree(ROOT / "models", tmp_path / "models", ignore=shutil.ignore_patterns("*.gguf"))
    for command in commands():
        lbx.ok(*command, cwd=tmp_path)
    assert lbx.rows(tmp_path / "results.duckdb", "SELECT count(*) AS n FROM generations WHERE error IS NULL") == [
        {"n": 16}
    ]


@pytest.fixture(scope="module")
def place(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every command of the document has been called."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(EXAMPLE, folder / "bundle" / "examples" / "handbook")
    (folder / "models").mkdir()
    (folder / "models" / "answers.jsonl").write_text(right_answers())
    (folder / "models" / "my-model.toml").write_text(
        'name = "m"\nbackend = "scripted"\ncontext_window = 4000\n[weights]\npath = "answers.jsonl"\n'
    )
    called = [[MODEL.get(word, word) for word in command] for command in commands()]
    assert {command[0] for command in called} >= {
        "bundle",
        "tasks",
        "plan",
        "run",
        "report",
        "score",
        "export",
        "import",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(ROOT))
        for command in called:
            done = lbx(*command)
            assert done.returncode == 0, (command, done.stderr)
            (folder / f"said-{command[0]}").write_text(done.stdout)
    return folder


def test_the_document_is_true(lbx: Lbx, place: Path) -> None:
    assert "handbook/facts_zh" in (place / "said-tasks").read_text()
    assert "handbook/choices" in (place / "said-plan").read_text()
    scores = lbx.rows(place / "results.duckdb", "SELECT run_id, task, official FROM task_scores WHERE metric IN "
                  "('f1', 'accuracy') AND run_id = 'mine' ORDER BY task")  # fmt: skip
    # One in three is "B"; the others' answers are scripted right.
    assert [(row["task"], round(float(str(row["official"])), 1)) for row in scores] == [
        ("choices", 33.3), ("facts", 100.0), ("facts_zh", 100.0),
    ]  # fmt: skip
    exported = (place / "predictions" / "facts.jsonl").read_text("utf-8").splitlines()
    assert json.loads(exported[0])["output"] == "31 metres"
    imported = lbx.rows(
        place / "others.duckdb", "SELECT task, official FROM task_scores WHERE metric = 'f1' ORDER BY task"
    )
    assert imported == [{"task": "facts", "official": 100.0}, {"task": "facts_zh", "official": 100.0}]
    (versions,) = lbx.rows(place / "results.duckdb", "SELECT benchmark_versions FROM runs WHERE run_id = 'mine'")
    assert "handbook" in str(versions)


def test_two_halves_are_merged(lbx: Lbx, place: Path) -> None:
    halves = []
    for name in ("facts", "facts_zh"):
        halves.append(place / f"{name}.duckdb")
        lbx.ok("run", "--bundle", place / "handbook", "--model", place / "models" / "my-model.toml", "--no-plan",
                   "--tasks", f"handbook/{name}", "--name", "both", "-o", halves[-1])  # fmt: skip
    lbx.ok("merge", *halves, "-o", place / "all.duckdb")
    groups = lbx.rows(place / "all.duckdb", 'SELECT "grouping", name, n FROM group_scores ORDER BY ALL')
    assert {"grouping": "overall", "name": "all", "n": 9} in groups


@pytest.mark.parametrize(
    "name, old, new, task",
    [
        ("benchmark.toml", '"contains"]', '"rouge1"]', "facts"),
        ("benchmark.toml", 'stop = ["\\n"]', "extract = '.+'", "facts"),
        ("choices.jsonl", '"The horn"', '"The trumpet"', "choices"),
    ],
)
def test_changed_samples_go_into_a_file_of_their_own(
    lbx: Lbx, place: Path, tmp_path: Path, name: str, old: str, new: str, task: str
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "handbook")
    definition = tmp_path / "handbook" / "benchmark.toml"
    changed = tmp_path / "handbook" / name
    assert old in changed.read_text("utf-8")
    changed.write_text(changed.read_text("utf-8").replace(old, new), "utf-8")
    done = lbx("run", "--bundle", lbx.unpacked(definition, tmp_path), "--model", place / "models" / "my-model.toml",
               "--no-plan", "--tasks", f"handbook/{task}", "-o", place / "results.duckdb")  # fmt: skip
    fails(done, 1, f"handbook/{task}")


def test_a_recipe_takes_the_folder_along(lbx: Lbx, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "handbook")
    source = '[[source]]\nkind = "path"\npath = "handbook"\nto = "benchmarks/handbook"\n'
    (tmp_path / "recipe.toml").write_text('name = "x"\n' + source)
    listed = lbx("tasks", "--bundle", lbx.unpacked(tmp_path / "recipe.toml", tmp_path), "--json")
    assert [row["task"].partition("/")[0] for row in json.loads(listed.stdout)] == ["handbook"] * 3


def test_the_demo_model_answers_it(lbx: Lbx, place: Path, tmp_path: Path) -> None:
    for library in ("torch", "transformers"):
        pytest.importorskip(library, reason="needs lbx[hf]")
    card = tmp_path / "demo.toml"
    card.write_text(f'name = "demo"\nbackend = "hf"\n[weights]\npath = "{ROOT / "models" / "demo" / "hf"}"\n')
    lbx.ok("run", "--bundle", place / "handbook", "--model", card, "--no-plan", "--tasks", "handbook",
               "--max-prompt-tokens", "200", "--max-new-tokens", "4", "-o", tmp_path / "r.duckdb")  # fmt: skip
    found = lbx.rows(tmp_path / "r.duckdb", "SELECT count(*) FILTER (WHERE truncated) AS cut, count(*) AS n, "
                 "max(cached_tokens) AS shared FROM generations")  # fmt: skip
    assert (found[0]["cut"], found[0]["n"]) == (12, 12)
    assert int(str(found[0]["shared"])) > 0, "questions on one document share what was read of it"


def test_a_judge_without_a_rubric_is_told_how_to_give_one(lbx: Lbx, place: Path) -> None:
    judge = (
        "judge",
        place / "results.duckdb",
        "--bundle",
        place / "handbook",
        "--judge",
        place / "models/answers.jsonl",
    )
    done = lbx(*judge, "--run", "mine")
    fails(done, 1, "does not contain", "Pass your own rubric with --rubric FILE.toml (see docs/judges.md)")
    assert "connected machine" not in done.stderr


def test_mistakes_and_other_names_are_told(lbx: Lbx, place: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('name = "x"\n[[task]]\nname = "t"\n')
    fails(lbx("bundle", bad, "-o", tmp_path), 2, "lacks data", "docs/own-benchmark.md", "--dry-run")
    fails(
        lbx("export", "handbok", place / "results.duckdb", "--run", "mine", "-o", tmp_path), 2, "Did you mean handbook?"
    )
    fails(lbx("import", "handbook", place / "predictions", "--model-name", "m", "-o", tmp_path / "r"), 2,
          "There is no prediction format 'handbook'",
          "by its name and with --bundle, if the bundle contains it")  # fmt: skip
    model = place / "models" / "my-model.toml"
    run = ("run", "--bundle", place / "handbook", "--model", model, "-o", tmp_path / "r", "--tasks")
    fails(lbx(*run, "handbook/fact"), 2, "Did you mean handbook/facts")
