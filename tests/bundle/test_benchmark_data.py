"""Data of built-in benchmarks: in each layout that hubs serve it becomes the same samples, or is refused now."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.task_selection import select_tasks
from tests.bundle.hubserver import Faults, HubServer, serve
from tests.command_line import Lbx, fails

Shared = Callable[[str], Path]
PARQUET = "refs/convert/parquet"


@pytest.fixture
def datasets(tmp_path: Path) -> Path:
    folder = tmp_path / "hub/datasets"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def hub(datasets: Path, upstreams: list[Path]) -> Iterator[HubServer]:
    with serve(datasets.parent, upstreams, Faults()) as server:
        yield server


@pytest.fixture
def bundle(hub: HubServer, tmp_path: Path) -> Callable[..., Bundle]:
    """bundle(recipe) -> what is unpacked inside the gap."""

    def make(recipe: Path, *, says: str = "") -> Bundle:
        lbx, out = Lbx(), tmp_path / "out"
        made = lbx("bundle", recipe, "--hub", hub.url, "--mirror", hub.mirror, "-o", out, "--bundle-name", "made")
        assert made.returncode == 0, made.stderr
        assert says in made.stderr
        unpacked = lbx("unpack", "--allow-unsigned", out / "made.tar", "--to", tmp_path / "inside")
        assert unpacked.returncode == 0, unpacked.stderr
        return Bundle(tmp_path / "inside")

    return make


@pytest.fixture
def refused(hub: HubServer, tmp_path: Path) -> Callable[..., None]:
    """refused(recipe, word...): nothing is bundled, and the error has these words."""

    def check(recipe: Path, *words: str) -> None:
        out = tmp_path / "out"
        made = Lbx()("bundle", recipe, "--hub", hub.url, "--mirror", hub.mirror, "-o", out, "--bundle-name", "made")
        fails(made, 2, *words)
        error = made.stderr.partition("error:")[2]
        assert "check the archive" not in error and tempfile.gettempdir() not in error
        assert not (out / "made.tar").exists()

    return check


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., Path]:
    def write(repo: str, *, files: str = "*", revision: str = "main") -> Path:
        path = tmp_path / "recipe.toml"
        path.write_text(
            f'name = "r"\n[[source]]\nkind = "hub"\ntype = "dataset"\nrepo = "{repo}"\nfiles = ["{files}"]\n'
            f'revision = "{revision}"\n'
        )
        return path

    return write


@pytest.fixture
def write_parquet(datasets: Path, tmp_path: Path) -> Callable[[list[dict], str], Path]:
    def write(rows: list[dict], place: str) -> Path:
        table, path = tmp_path / "rows.jsonl", datasets / place
        table.write_text("\n".join(map(json.dumps, rows)), "utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        duckdb.execute(
            f"COPY (SELECT * FROM read_json('{table}', format='newline_delimited', maximum_object_size={64 << 20}, "
            f"maximum_depth=3, map_inference_threshold=-1)) TO '{path}' (FORMAT parquet)"
        )
        return path

    return write


@pytest.fixture
def news(shared: Shared) -> list[dict]:
    with zipfile.ZipFile(shared("data/hub/datasets/THUDM/LongBench/data.zip")) as archive:
        lines = archive.read("data/multi_news.jsonl").decode("utf-8").splitlines()
    return [json.loads(line) for line in lines[:5]]


@pytest.fixture
def questions(shared: Shared) -> list[dict]:
    rows = json.loads(shared("data/hub/datasets/THUDM/LongBench-v2/data.json").read_text("utf-8"))
    return [{**row, "context": row["context"][:1000]} for row in rows[:5]]


def _tasks(bundle: Bundle, *names: str) -> list[tuple[str, int]]:
    """Each task and its samples, every one of them read."""
    tasks = select_tasks(bundle, list(names))
    for task in tasks:
        assert len(list(BENCHMARKS[task.benchmark].samples(bundle, task.name))) == task.samples
    return [(task.full_name, task.samples) for task in tasks]


def _link(datasets: Path, place: str, file: Path) -> None:
    (datasets / place).parent.mkdir(parents=True, exist_ok=True)
    (datasets / place).symlink_to(file)


def test_a_repository_under_its_new_name(shared: Shared, datasets: Path, bundle: Callable[..., Bundle]) -> None:
    """The whole data.zip as zai-org/LongBench, by a recipe that says so."""
    _link(datasets, "zai-org/LongBench/data.zip", shared("data/hub/datasets/THUDM/LongBench/data.zip"))
    made = bundle(shared("cases/hub-parquet/zai.toml"))
    tasks = _tasks(made, "longbench")
    assert ("longbench/multi_news", 200) in tasks
    task = BENCHMARKS["longbench"]
    assert task.prompt(made, next(iter(task.samples(made, "multi_news")))).text


def test_parquet_as_it_is_pushed_to_a_hub(shared: Shared, datasets: Path, bundle: Callable[..., Bundle]) -> None:
    file = "THUDM-LongBench-multi_news/test-00000-of-00001.parquet"
    _link(datasets, f"THUDM/LongBench/multi_news/{Path(file).name}", shared(f"cases/hub-parquet/{file}"))
    assert _tasks(bundle(shared("cases/hub-parquet/parq_push.toml")), "longbench") == [("longbench/multi_news", 6)]


@pytest.mark.parametrize("repo", ["THUDM/LongBench", "zai-org/LongBench"])
def test_parquet_as_a_hub_converts_it(
    repo: str,
    news: list[dict],
    write_parquet: Callable[[list[dict], str], Path],
    recipe: Callable[..., Path],
    bundle: Callable[..., Bundle],
) -> None:
    write_parquet(news, f"{repo}/multi_news/test/0000.parquet")
    write_parquet(news, f"{repo}/multi_news_e/test/0000.parquet")
    made = bundle(recipe(repo, revision=PARQUET))
    assert _tasks(made, "longbench", "longbench_e") == [("longbench/multi_news", 5), ("longbench/multi_news_e", 5)]


@pytest.mark.parametrize("repo", ["THUDM/LongBench-v2", "zai-org/LongBench-v2"])
@pytest.mark.parametrize("ids", ["text", "integers"])
@pytest.mark.parametrize(
    "place", ["data.json", "default/train/0000.parquet", "data/train-00000-of-00001.parquet", "lines"]
)
def test_layouts_of_longbench_v2(
    repo: str,
    ids: str,
    place: str,
    questions: list[dict],
    datasets: Path,
    write_parquet: Callable[[list[dict], str], Path],
    recipe: Callable[..., Path],
    bundle: Callable[..., Bundle],
) -> None:
    if ids == "integers":
        questions = [{**row, "_id": number} for number, row in enumerate(questions)]
    if place.endswith("parquet"):
        write_parquet(questions, f"{repo}/{place}")
    else:
        path = datasets / repo / ("data.json" if place == "lines" else place)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(questions) if place == "data.json" else "\n".join(map(json.dumps, questions)))
    made = bundle(recipe(repo))
    assert _tasks(made, "longbench_v2") == [("longbench_v2/mcq", 5)]
    assert [sample.sample_id for sample in BENCHMARKS["longbench_v2"].samples(made, "mcq")] == [
        str(row["_id"]) for row in questions
    ]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (
            "data.jsonl",
            (
                "longbench_v2",
                "none of its files has a supported layout",
                "bundle/longbench_v2.toml",
                "docs/bundling.md",
            ),
        ),
        ("parquet/train.parquet", ("longbench_v2", "none of its files has a supported layout")),
        ("default/partial-train/0000.parquet", ("only part of the rows",)),
        ("data.json", ("longbench_v2/mcq", "data.json, line 1", "the field 'context' is missing")),
    ],
)
def test_what_cannot_be_read_inside_is_refused(
    place: str,
    words: tuple[str, ...],
    questions: list[dict],
    datasets: Path,
    write_parquet: Callable[[list[dict], str], Path],
    recipe: Callable[..., Path],
    refused: Callable[..., None],
) -> None:
    repo = "zai-org/LongBench-v2"
    if place.endswith("parquet"):
        write_parquet(questions, f"{repo}/{place}")
    else:
        (datasets / repo).mkdir(parents=True)
        (datasets / repo / place).write_text(json.dumps([{"id": 3}]))
    refused(recipe(repo), repo, *words)


def test_two_splits_and_two_names_are_refused(
    questions: list[dict],
    datasets: Path,
    write_parquet: Callable[[list[dict], str], Path],
    recipe: Callable[..., Path],
    refused: Callable[..., None],
) -> None:
    first, second = "THUDM/LongBench-v2", "zai-org/LongBench-v2"
    for split in ("train", "test"):
        write_parquet(questions, f"{first}/default/{split}/0000.parquet")
    refused(recipe(first), first, "several splits", "default/test", "default/train")
    (datasets / second).mkdir(parents=True)
    (datasets / second / "data.json").write_text(json.dumps(questions))
    path = recipe(first)
    path.write_text(path.read_text() + f'[[source]]\nkind = "hub"\ntype = "dataset"\nrepo = "{second}"\n')
    refused(path, first, second, "the same dataset under several names")


def test_a_dataset_that_no_benchmark_reads_is_named(
    datasets: Path, recipe: Callable[..., Path], bundle: Callable[..., Bundle]
) -> None:
    (datasets / "mirror/LongBench").mkdir(parents=True)
    (datasets / "mirror/LongBench/data.zip").write_bytes(b"anything")
    bundle(recipe("mirror/LongBench"), says="No benchmark reads the dataset mirror/LongBench")
