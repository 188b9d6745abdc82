"""Two revisions of a benchmark and one results file: refused by name before a model is loaded, with a way out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import BundleError
from lbx.options.run_spec import RunSpec
from lbx.results import Store
from lbx.running.preparing import resolve
from lbx.running.resolved_run import check_samples
from tests.command_line import Done, Lbx, fails
from tests.running.engine_parts import v2_bundle, v2_row

QUESTIONS = 70
"""More than one commit holds."""

DEFINITION = """
name = "town"
[[task]]
name = "qa"
data = "qa.jsonl"
language = "en"
metrics = ["exact_match"]
prompt = "{document}\\n{question}"
max_new_tokens = 8
"""

Revision = Callable[..., Path]


def rows(**changes: object) -> list[dict[str, object]]:
    """The questions; ``changes`` are of the last one."""
    made: list[dict[str, object]] = [
        {"id": f"q{n}", "document": f"House {n} is red.", "question": f"Which colour is {n}?", "references": ["red"]}
        for n in range(QUESTIONS)
    ]
    made[-1] |= changes
    return made


@pytest.fixture(scope="module")
def revision(lbx: Lbx, tmp_path_factory: pytest.TempPathFactory) -> Revision:
    """revision(question="...") -> an unpacked bundle in which the last question has other fields."""

    def make(**changes: object) -> Path:
        folder = tmp_path_factory.mktemp("town")
        (folder / "benchmark.toml").write_text(DEFINITION)
        (folder / "qa.jsonl").write_text("\n".join(map(json.dumps, rows(**changes))))
        return lbx.unpacked(folder / "benchmark.toml", folder)

    return make


@pytest.fixture(scope="module")
def first(revision: Revision) -> Path:
    return revision()


@pytest.fixture(scope="module")
def second(revision: Revision) -> Path:
    return revision(question="Which colour has the last one?")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    answers = [{"key": f"town/qa/q{n}", "text": "red"} for n in range(QUESTIONS)]
    (folder / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))
    card = folder / "m.toml"
    card.write_text('name = "m"\nbackend = "scripted"\ncontext_window = 4000\n[weights]\npath = "answers.jsonl"\n')
    return card


@pytest.fixture
def unloadable(model: Path, tmp_path: Path) -> Path:
    """A card of a model that fails when it is loaded."""
    card = tmp_path / "unloadable.toml"
    card.write_text(model.read_text().replace("answers.jsonl", "nothing.jsonl"))
    return card


def run(lbx: Lbx, bundle: Path, model: Path, output: Path, *more: object) -> Done:
    return lbx("run", "--bundle", bundle, "--model", model, "--tasks", "town", "--no-plan", *more, "-o", output)


def answered(path: Path) -> list[tuple[object, ...]]:
    with Store(path, read_only=True) as store:
        return [*store.query("SELECT run_id, count(*) FROM generations GROUP BY ALL ORDER BY ALL").rows]


@pytest.mark.parametrize(
    "field, value, part",
    [
        ("question", "Which colour has the last one?", "question"),
        ("document", "House 69 is blue.", "document"),
        ("references", ["blue"], "references"),
    ],
)
def test_another_revision_is_refused_before_the_model_is_loaded(
    lbx: Lbx, first: Path, revision: Revision, model: Path, unloadable: Path, tmp_path: Path,
    field: str, value: object, part: str,
) -> None:  # fmt: skip
    results = tmp_path / "results.duckdb"
    assert run(lbx, first, model, results).returncode == 0
    before = answered(results)
    assert before[0][1] == QUESTIONS
    other = revision(**{field: value})
    done = run(lbx, other, unloadable, results)
    fails(
        done,
        1,
        "different revision",
        f"1 sample differs: town/qa/q69 ({part})",
        "The file is unchanged.",
        "try: lbx run",
    )
    assert answered(results) == before
    plan = lbx("plan", "--bundle", other, "--model", unloadable, "--tasks", "town", "--history", results)
    fails(plan, 1, f"town/qa/q69 ({part})")


def test_the_command_of_the_message_asks_everything(
    lbx: Lbx, first: Path, second: Path, model: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results.duckdb"
    assert run(lbx, first, model, results).returncode == 0
    (tmp_path / "results-2.duckdb").touch()
    done = run(lbx, second, model, results)
    fails(done, 1)
    command = shlex.split(done.stderr.rpartition("try: ")[2])
    assert command[-1] == str(tmp_path / "results-3.duckdb")
    assert lbx(*command[1:]).returncode == 0
    assert [count for _, count in answered(Path(command[-1]))] == [QUESTIONS]


def test_every_sample_that_differs_is_counted(
    lbx: Lbx, first: Path, revision: Revision, model: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results.duckdb"
    assert run(lbx, first, model, results).returncode == 0
    with Store(results) as store:
        store.query("UPDATE samples SET question = question || '?' WHERE sample_id IN ('q3', 'q10')")
    done = run(lbx, revision(references=["blue"]), model, results)
    fails(done, 1, "3 samples differ: town/qa/q3 (question), and 2 more")


def test_samples_that_are_not_asked_are_not_compared(
    lbx: Lbx, first: Path, second: Path, model: Path, tmp_path: Path
) -> None:
    """Runs of two revisions share a file as long as they are asked the unchanged questions."""
    results = tmp_path / "results.duckdb"
    assert run(lbx, first, model, results).returncode == 0
    assert run(lbx, second, model, results, "--limit", QUESTIONS - 1).returncode == 0
    assert sorted(count for _, count in answered(results)) == [QUESTIONS - 1, QUESTIONS]


def test_a_run_of_which_some_batches_were_committed_is_refused_at_once(
    lbx: Lbx, first: Path, second: Path, model: Path, unloadable: Path, tmp_path: Path
) -> None:
    """As an lbx left it that compared samples when it wrote them."""
    results = tmp_path / "results.duckdb"
    assert run(lbx, first, model, results).returncode == 0
    assert run(lbx, second, model, results, "--limit", 64, "--name", "partly").returncode == 0
    before = answered(results)
    done = run(lbx, second, unloadable, results, "--name", "partly")
    fails(done, 1, "town/qa/q69 (question)", "--name partly")
    assert answered(results) == before


def test_a_session_that_wrote_while_the_model_was_loaded_is_noticed_before_the_first_answer(
    lbx: Lbx, first: Path, second: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sessions find no file; the other one is complete when this one has loaded its model."""
    from lbx.running import execution

    results = tmp_path / "results.duckdb"
    load = execution.open_asker

    def slowly(resolved: object, server: object) -> object:
        monkeypatch.setattr(execution, "open_asker", load)
        assert run(lbx, first, model, results).returncode == 0
        return load(resolved, server)  # type: ignore[arg-type]

    monkeypatch.setattr(execution, "open_asker", slowly)
    done = run(lbx, second, model, results)
    fails(done, 1, "town/qa/q69 (question)")
    with Store(results, read_only=True) as store:
        assert store.query("SELECT count(*) FROM runs").rows == [(1,)]
    assert [count for _, count in answered(results)] == [QUESTIONS]


def test_a_shard_and_its_submission_are_refused(
    lbx: Lbx, first: Path, second: Path, model: Path, unloadable: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    (folder / "shards").mkdir(parents=True)
    assert run(lbx, first, model, folder / "results.duckdb").returncode == 0
    submit = ("submit", "kubernetes", "--bundle", second, "--model", model, "--tasks", "town", "--shards", 2,
              "--image", "i", "--run-claim", "r", "--bundle-claim", "b")  # fmt: skip
    done = lbx(*submit, "-o", folder)
    fails(done, 1, str(folder / "results.duckdb"), "town/qa/q69 (question)", f"-o {tmp_path / 'job-2'}")
    assert not (folder / "shards.json").exists()

    lbx.ok(*submit, "-o", tmp_path / "other")
    said = []
    for shard in (0, 1):
        shards = ("--shard-plan", tmp_path / "other" / "shards.json", "--shard", shard, "--name", "other")
        said.append(run(lbx, second, unloadable, folder / "results.duckdb", *shards).stderr)
    assert sum("town/qa/q69 (question)" in " ".join(text.split()) for text in said) == 1


def test_a_merge_of_two_revisions_leaves_every_file_as_it_was(
    lbx: Lbx, first: Path, second: Path, model: Path, tmp_path: Path
) -> None:
    files = [tmp_path / "a.duckdb", tmp_path / "b.duckdb"]
    for bundle, file in zip((first, second), files, strict=True):
        assert run(lbx, bundle, model, file).returncode == 0
    before = [file.read_bytes() for file in files]
    done = lbx("merge", *files, "-o", tmp_path / "all.duckdb")
    fails(done, 1, "town/qa/q69 (question)", "All files are unchanged.", "into a separate results file")
    into = lbx("merge", files[1], "-o", files[0], "--update")
    fails(into, 1, "town/qa/q69 (question)", f"-o {tmp_path / 'a-2.duckdb'}")
    assert [file.read_bytes() for file in files] == before
    assert not (tmp_path / "all.duckdb").exists()


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"question": "Which colour has the last one?"}, "town/qa/q69, from another revision"),
        ({"document": "House 69 is blue."}, "town/qa/q69 (document)"),
    ],
)
def test_an_import_of_another_revision_writes_nothing(
    lbx: Lbx, first: Path, revision: Revision, model: Path, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    second, results, exported = revision(**changes), tmp_path / "results.duckdb", tmp_path / "predictions"
    assert run(lbx, second, model, tmp_path / "second.duckdb").returncode == 0
    lbx.ok("export", "town", tmp_path / "second.duckdb", "-o", exported)
    assert run(lbx, first, model, results).returncode == 0
    before = answered(results)
    done = lbx("import", "town", exported, "--model-name", "x", "--bundle", second, "-o", results)
    fails(done, 1, said, f"-o {tmp_path / 'results-2.duckdb'}")
    with Store(results, read_only=True) as store:
        assert store.query("SELECT count(*) FROM runs").rows == [(1,)]
    assert answered(results) == before


RUBRIC = """
name = "faithful"
kind = "score"
user = "{document}\\n{question}\\n{answer}"
max_new_tokens = 8
rating = "[[{rating}]]"
low = 1
high = 5
"""


def test_a_judge_is_not_shown_two_revisions_of_a_document(
    lbx: Lbx, first: Path, revision: Revision, model: Path, unloadable: Path, tmp_path: Path
) -> None:
    """Of answers whose documents' hashes are unknown, as in imports without a bundle."""
    results, rubric = tmp_path / "results.duckdb", tmp_path / "rubric.toml"
    rubric.write_text(RUBRIC)
    assert run(lbx, first, model, results, "--name", "r").returncode == 0
    with Store(results) as store:
        store.query("UPDATE samples SET context_sha256 = NULL")
    judge = ("judge", results, "--run", "r", "--rubric", rubric, "--no-plan", "--questions", "open")
    done = lbx(*judge, "--bundle", first, "--judge", model)
    assert done.returncode == 3, done.stderr  # the judge has no answers, which is told as any failed sample
    before = answered(results)
    done = lbx(*judge, "--bundle", revision(document="House 69 is blue."), "--judge", unloadable)
    fails(done, 1, "1 sample differs: judge/faithful/", "(document)", "-o FILE")
    assert answered(results) == before


def test_a_session_killed_after_a_commit_continues(lbx: Lbx, first: Path, model: Path, tmp_path: Path) -> None:
    """The comparison does not stand in the way of the same revision."""
    results = tmp_path / "results.duckdb"
    assert run(lbx, first, model, results, "--limit", 5).returncode == 0
    assert run(lbx, first, model, results).returncode == 0
    assert [count for _, count in answered(results)] == [QUESTIONS]


def test_a_repeated_id_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    bundle = v2_bundle(tmp_path / "bundle", [v2_row(0), v2_row(1), v2_row(2, _id="q1")])
    spec = RunSpec(bundle=str(bundle.root), model="not-needed", tasks=("longbench_v2",))
    with pytest.raises(BundleError, match="rows 2 and 3 have the same _id, 'q1'"):
        check_samples(resolve(spec), tmp_path / "results.duckdb")
