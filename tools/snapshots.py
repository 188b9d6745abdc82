"""Dump every report of several results files, to compare two revisions of lbx byte by byte.

    python -m tools.snapshots files FOLDER          make the results files, with the first revision
    python -m tools.snapshots dump FOLDER OUTPUT    write all reports of them, with each revision
    diff -r OUTPUT_1 OUTPUT_2

Files: published predictions, published judgements and ratings, the demo, and files that ``tests/consistency`` draws.
Stored answers are copied into new files by the revision that dumps them, which scores them again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import duckdb

from lbx.report.reports import NAMES
from tests.command_line import Lbx

ROOT = Path(__file__).resolve().parents[1]
TESTS, SHARED = ROOT / "tests", ROOT.parent / "shared"

FORMATS = ("table", "markdown", "csv", "json", "latex")
DRAWN_FILES = 8
COPIED_TABLES = (
    "runs",
    "samples",
    "generations",
    "scores",
    "rounds",
    "sessions",
    "rating_sets",
    "rating_items",
    "ratings",
    "depth_pairs",
    "depth_parity",
)


def make_files(folder: Path) -> None:
    folder.mkdir(parents=True)
    predictions, judgements = SHARED / "data/predictions", SHARED / "data/judgements/leval"
    for format_, path, model in (
        ("longbench", predictions / "longbench/llama2-7b-chat-4k", "llama2-7b-chat-4k"),
        ("longbench", predictions / "longbench/llama3-8b-instruct", "llama3-8b-instruct"),
        ("longbench_v2", predictions / "longbench_v2/oneshot.jsonl", "gpt-4o-mini"),
        ("leval", predictions / "leval/ngram_eval/llama2-13b-chat-4k", "llama2-13b-chat-4k"),
    ):
        _lbx("import", format_, path, "-o", folder / "predictions.duckdb", "--model-name", model)
    for model in ("claude-100k", "gpt4-32k", "turbo-16k-0613"):
        file = judgements / "human_eval" / f"{model}.pred.jsonl"
        _lbx("import", "leval", file, "--model-name", model, "-o", folder / "rated.duckdb")
    _lbx("import", "leval_ratings", judgements / "human_eval/jsons", "--rater", "author", "-o", folder / "rated.duckdb")
    _lbx("import", "leval_judge", TESTS / "data/leval_judge/ours.pred.judge.jsonl", "-o", folder / "judged.duckdb")
    demo = ROOT / "work/demo/results.duckdb"
    if not demo.exists():
        sys.exit(f"{demo} is missing. Run `just demo` first.")
    shutil.copy(demo, folder / "demo.duckdb")
    (folder / "drawn.json").write_text(json.dumps(_drawn_files()))


def _lbx(*arguments: object) -> str:
    done = Lbx()(*arguments)
    if done.returncode:
        sys.exit(f"{arguments}: {done.stderr}")
    return str(done.stdout)


def _drawn_files() -> list[dict[str, Any]]:
    from hypothesis import HealthCheck, given, seed, settings

    from tests.consistency.made_files import MadeFile, made_files

    found: list[dict[str, Any]] = []

    @seed(7)
    @settings(max_examples=DRAWN_FILES * 6, database=None, suppress_health_check=list(HealthCheck))
    @given(made_files())
    def collect(made: MadeFile) -> None:
        value = dataclasses.asdict(made)
        for run in value["runs"]:
            run.pop("versions", None)
        found.append(value)

    collect()
    rich = [made for made in found if len(made["runs"]) > 1 and made["questions"] > 2]
    judged = [made for made in rich if made["judged"] and made["rated"]]
    return judged[: DRAWN_FILES // 2] + [made for made in rich if made not in judged][: DRAWN_FILES // 2]


def _write_drawn(path: Path, value: dict[str, Any]) -> None:
    from tests.consistency.made_files import MadeFile, MadeRun, write

    def as_tuple(item: Any) -> Any:
        return tuple(map(as_tuple, item)) if isinstance(item, list) else item

    runs = tuple(MadeRun(**{name: as_tuple(item) for name, item in run.items()}) for run in value["runs"])
    write(path, MadeFile(**{name: as_tuple(item) for name, item in value.items() if name != "runs"}, runs=runs))


def _copy_answers(source: Path, target: Path) -> None:
    """Copy stored rows into a file of this revision's schema, and add their numbers up again."""
    from lbx.results import Store

    with Store(target):
        pass
    with duckdb.connect(str(target)) as connection:
        connection.execute(f"ATTACH '{source}' AS old (READ_ONLY)")
        for table in COPIED_TABLES:
            columns = [
                {row[0] for row in connection.execute(f"DESCRIBE {name}").fetchall()}
                for name in (f"old.{table}", f"main.{table}")
            ]
            names = ", ".join(f'"{name}"' for name in sorted(columns[0] & columns[1]))
            connection.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM old.{table}")
    _lbx("score", target)


def dump_reports(folder: Path, output: Path) -> None:
    output.mkdir(parents=True)
    os.environ["COLUMNS"] = "200"
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)  # names of files are part of reports
        for source in sorted(folder.glob("*.duckdb")):
            _copy_answers(source.resolve(), Path(source.name))
        for number, value in enumerate(json.loads((folder / "drawn.json").read_text())):
            _write_drawn(Path(f"drawn{number:02}.duckdb"), value)
        real_files = {source.name for source in folder.glob("*.duckdb")}
        for path in sorted(Path().glob("*.duckdb")):
            for report in ("", *NAMES):
                for format_ in FORMATS if path.name in real_files else ("table", "json"):
                    done = Lbx()("report", path, *([report] if report else []), "--format", format_)
                    text = f"{done.returncode}\n{done.stdout}\n{done.stderr}"
                    (output / f"{path.stem}.{report or 'all'}.{format_}").write_text(text)
            done = Lbx()("report", path, "--format", "html", "-o", "page.html", "--allow-different-settings")
            page = Path("page.html").read_text() if done.returncode == 0 else done.stderr
            (output / f"{path.stem}.html").write_text(page)
            Path("page.html").unlink(missing_ok=True)


if __name__ == "__main__":
    folder = Path(sys.argv[2]).resolve()
    if sys.argv[1] == "files":
        make_files(folder)
    else:
        dump_reports(folder, Path(sys.argv[3]).resolve())
