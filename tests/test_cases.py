"""Inputs from public reports, in ../shared/cases, each run by the real commands against its expected result."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bundle.hubserver import serve
from tests.command_line import Done, Lbx

ROOT = Path(__file__).parents[1]

Shared = Callable[[str], Path]


class Case:
    """One folder of ../shared/cases, copied to where commands may write."""

    def __init__(self, lbx: Lbx, source: Path, folder: Path) -> None:
        self.lbx, self.shared = lbx, source.parents[1]
        self.folder = folder / source.name
        shutil.copytree(source, self.folder, copy_function=shutil.copyfile)
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o755)

    def bundle(self) -> Done:
        return self.lbx("bundle", self.folder / "benchmark.toml", "-o", self.folder / "out")

    def call(self, *words: object) -> str:
        done = self.lbx(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def unpack(self) -> tuple[str, Path]:
        """Bundle the case's benchmark: its name, and the unpacked bundle."""
        bundled = self.bundle()
        assert bundled.returncode == 0, bundled.stderr
        name = tomllib.loads((self.folder / "benchmark.toml").read_text("utf-8"))["name"]
        unpacked = self.folder / "unpacked"
        self.call("unpack", self.folder / "out" / f"{name}.tar", "--allow-unsigned", "--to", unpacked)
        return name, unpacked

    def bundle_from_hub(self, recipe: Path, hub: Path) -> Done:
        """Bundle a recipe from a hub on loopback, and from what the authors' repositories hold."""
        upstreams = [self.shared / "data" / name for name in ("upstream", "upstream_more")]
        with serve(hub, upstreams) as server:
            return self.lbx("bundle", recipe, "--hub", server.url, "--mirror", server.mirror, "-o", self.folder / "out")

    def card(self, more: str = "", answers: str = "answers.json") -> Path:
        """A model that gives the scripted answers."""
        path = self.folder / "model.toml"
        path.write_text(f'name = "m"\nbackend = "scripted"\n[weights]\npath = "{answers}"\n{more}', "utf-8")
        return path

    def run(self) -> dict[str, dict[str, Any]]:
        """Bundle the benchmark and run it with the scripted answers: {sample id: {column: value, metric: score}}."""
        name, unpacked = self.unpack()
        self.call("run", "--bundle", unpacked, "--model", self.card(), "--tasks", name, "--no-plan", "-o", self.results)
        return self.stored()

    @property
    def results(self) -> Path:
        return self.folder / "results.duckdb"

    def stored(self) -> dict[str, dict[str, Any]]:
        rows = self.query("SELECT * FROM generations ORDER BY ALL")
        found = {row["sample_id"]: row for row in rows}
        for row in self.query("SELECT sample_id, metric, score, extracted FROM scores"):
            found[row["sample_id"]][row["metric"]] = row["score"]
            found[row["sample_id"]][f"{row['metric']}_extracted"] = row["extracted"]
        return found

    def query(self, sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.call("sql", self.results, sql, "--format", "json"))
        return rows


def scores(metric: str, expected: dict[str, float]) -> Callable[[Case], None]:
    """The case runs, and its samples have these scores."""

    def check(case: Case) -> None:
        answers = case.run()
        assert {sample: answers[sample][metric] for sample in expected} == expected

    return check


def choices(expected: dict[str, str]) -> Callable[[Case], None]:
    """The case runs, and these options are read from its answers; "" for answers that are marked without one."""

    def check(case: Case) -> None:
        answers = case.run()
        assert {sample: row["accuracy_extracted"] for sample, row in answers.items()} == expected

    return check


def equal_texts(**expected: dict[str, float]) -> Callable[[Case], None]:
    """As `scores`, by metric; LongBench's F1 is the official one in any form of Unicode."""

    def check(case: Case) -> None:
        answers = case.run()
        stored = {
            metric: {sample: answers[sample][metric] for sample in samples} for metric, samples in expected.items()
        }
        assert stored == expected

    return check


def float_id(case: Case) -> None:
    """An id that a data frame wrote as 1.0 is read as it is written."""
    (case.folder / "answers.json").write_text('{"*": "r"}')
    assert case.run()["1.0"]["f1"] == 1.0


def refused(*words: str) -> Callable[[Case], None]:
    """`lbx bundle` refuses the case and names the cause."""

    def check(case: Case) -> None:
        done = case.bundle()
        said = " ".join(done.stderr.split())
        assert done.returncode == 2, said
        assert "Traceback" not in said
        for word in words:
            assert word in said, said

    return check


def system_message(case: Case) -> None:
    """A blank line separates the system message from the document if the template has no system role."""
    name, unpacked = case.unpack()
    no_system = "[chat]\ntemplate = \"{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}[bot]\"\n"
    no_system = no_system.replace(
        "{% for", "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for"
    )
    shown = case.call("prompts", "--bundle", unpacked, "--model", case.card(no_system), "--tasks", name)
    assert "Answer in one word.\n\nThe" in shown


def edited_document(case: Case) -> None:
    """A template that deletes "/think" from documents ends no run: the sample has an answer or an error of its own."""
    (case.folder / "benchmark.toml").write_text(
        'name = "edits"\nprompt = "{document}\\n\\n{question}"\nmax_new_tokens = 64\n'
        '[[task]]\nname = "t"\ndata = "t.jsonl"\nmetrics = ["f1"]\n'
    )
    row = {"question": "Which day?", "references": "Tuesday"}
    texts = {"plain": "It comes on Tuesday.", "edited": "Write /think into the log. It comes on Tuesday."}
    rows = [json.dumps(row | {"id": name, "document": text}) for name, text in texts.items()]
    (case.folder / "t.jsonl").write_text("\n".join(rows))
    (case.folder / "answers.json").write_text('{"*": "It says so.</think>Tuesday"}')
    name, unpacked = case.unpack()
    card = case.card('[chat]\ntemplate_file = "NVIDIA-Nemotron-Nano-v2.jinja"\n')
    case.lbx("run", "--bundle", unpacked, "--model", card, "--tasks", name, "--no-plan", "-o", case.results)
    answers = case.stored()
    assert answers["plain"]["f1"] == 1.0
    if not answers["edited"]["error"]:
        shown = case.call("prompts", "--bundle", unpacked, "--model", card, "--tasks", name, "--ids", "edited")
        assert texts["edited"] in shown


def scaled_window(case: Case) -> None:
    """The window of a scaled context is the original one times the factor."""
    for kind in ("yarn", "linear"):
        (case.folder / f"m_{kind}").mkdir()
        shutil.copyfile(case.folder / f"config-{kind}.json", case.folder / f"m_{kind}" / "config.json")
    listed = case.lbx("models", "--json", cwd=case.folder)
    windows = {model["name"]: model["context_window"] for model in json.loads(listed.stdout)}
    assert {name: windows[name] for name in ("m_yarn", "m_linear")} == {"m_yarn": 16384, "m_linear": 16384}


def imported(folder: str, *words: str) -> Callable[[Case], None]:
    """An import that says what it found in the file."""

    def check(case: Case) -> None:
        done = case.lbx("import", "longbench", case.folder / folder, "--model-name", "m", "-o", case.results)
        assert done.returncode in (0, 2), done.stderr
        said = " ".join(f"{done.stdout} {done.stderr}".lower().split())
        assert any(word in said for word in words), said

    return check


def unclosed_reasoning(case: Case) -> None:
    """Reasoning that never closes is a wrong answer: 14 of 23."""
    done = case.bundle_from_hub(ROOT / "bundle" / "longbench_v2.toml", case.shared / "data" / "hub")
    assert done.returncode == 0, done.stderr
    bundle = case.folder / "unpacked"
    case.call("unpack", case.folder / "out" / "longbench_v2.tar", "--allow-unsigned", "--to", bundle)
    card = case.card(answers="half.json")
    case.call("run", "--bundle", bundle, "--model", card, "--tasks", "longbench_v2", "--no-plan", "-o", case.results)
    (score,) = case.query("SELECT n, official FROM task_scores WHERE headline")
    assert score["n"] == 23
    assert round(score["official"], 1) == 60.9


def todays_hub(case: Case) -> None:
    """A renamed or parquet repository is bundled so that it can be run, or refused."""
    renamed = case.folder / "hub" / "datasets" / "zai-org" / "LongBench"
    parquet = case.folder / "hub" / "datasets" / "THUDM" / "LongBench" / "multi_news"
    for place in (renamed, parquet):
        place.mkdir(parents=True)
    shutil.copyfile(case.shared / "data/hub/datasets/THUDM/LongBench/data.zip", renamed / "data.zip")
    (table,) = (case.folder / "THUDM-LongBench-multi_news").iterdir()
    shutil.copyfile(table, parquet / table.name)
    (case.folder / "answers.json").write_text('{"*": "x"}')
    for name in ("zai", "parq_push"):
        done = case.bundle_from_hub(case.folder / f"{name}.toml", case.folder / "hub")
        assert "Traceback" not in done.stderr
        if done.returncode:
            continue
        unpacked = case.folder / name
        case.call("unpack", case.folder / "out" / f"{name}.tar", "--allow-unsigned", "--to", unpacked)
        case.call("run", "--bundle", unpacked, "--model", case.card(), "--tasks", "longbench/multi_news", "--limit", 1,
                  "--no-plan", "-o", case.folder / f"{name}.duckdb")  # fmt: skip


def served(kind: str, check: Callable[[Case, Done], None]) -> Callable[[Case], None]:
    """A run against the case's server."""

    def served_case(case: Case) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (case.folder / "benchmark.toml").write_text(
            'name = "served"\nprompt = "{document}\\n\\n{question}"\nmax_new_tokens = 8\n'
            '[[task]]\nname = "t"\ndata = "t.jsonl"\nmetrics = ["f1"]\n'
        )
        row = {"id": "a", "document": "Kelm froze in 1709.", "question": "When?", "references": "1709"}
        (case.folder / "t.jsonl").write_text(json.dumps(row))
        card = case.folder / "served.toml"
        card.write_text(
            f'name = "m"\nbackend = "endpoint"\n[options]\nurl = "http://127.0.0.1:{port}/v1"\nmodel = "m"\n'
        )
        command = [sys.executable, case.folder / "server.py", kind, str(port)]
        with subprocess.Popen(command, cwd=case.folder) as server:
            try:
                while server.poll() is None:
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                        break
                    time.sleep(0.1)
                name, unpacked = case.unpack()
                done = case.lbx("run", "--bundle", unpacked, "--model", card, "--tasks", name, "--no-plan", "-o",
                                case.results)  # fmt: skip
                check(case, done)
            finally:
                server.kill()

    return served_case


def says_empty(case: Case, done: Done) -> None:
    assert "empty" in done.stderr.lower(), done.stderr


def tells_servers_words(case: Case, done: Done) -> None:
    assert "Traceback" not in done.stderr
    assert "exceeds the available context size" in case.stored()["a"]["error"]


CASES: dict[str, Callable[[Case], None]] = {
    "mc-explained": scores(
        "accuracy",
        dict.fromkeys(["explains", "answer-colon", "ruled-out", "zh", "letter-first", "boxed"], 1.0),
    ),
    "mc-gap-jsonl": refused("quiz.jsonl, line 1", "'b' is empty", "'c'"),
    "mc-index": refused("quiz.jsonl, line 3", "'3'", "position"),
    "mc-na": choices(dict.fromkeys(["na", "na2", "qa", "deg", "amp", "cpp", "rd", "vit", "hep"], "")),
    "mc-numbers": choices(
        dict.fromkeys(["thousand", "thousand-box", "thousand-bare", "nbsp"], "D")
        | dict.fromkeys(["decimal", "neg", "range", "frac", "clock", "exp", "word", "x"], "")
    ),
    "mc-two-letters": choices(
        dict.fromkeys(["or", "both", "either", "slash", "are", "aswell", "answer-list", "least", "contradict"], "")
        | {"instead": "B", "over": "C", "ticks": "B", "yesno": "B", "boxes": "B", "notment": ""}
    ),
    "mc-verdicts": choices(
        dict.fromkeys(["ticks", "ticks2", "yesno", "boxes", "json", "zero"], "B")
        | dict.fromkeys(["prob", "notm", "cross"], "")
    ),
    "mc-yesno": choices(
        dict.fromkeys(["yes", "yes2", "true"], "A")
        | dict.fromkeys(["no", "no2", "false", "false2", "stmt"], "B")
        | dict.fromkeys(["ng", "ng2"], "C")
    ),
    "list-jsonl": refused("t.jsonl, line 2", "JSON list"),
    "em-a": scores(
        "exact_match",
        dict.fromkeys(["A-plain", "A-dot", "A-newline", "B-dot", "plus", "plus-dot"], 1.0)
        | dict.fromkeys(["A-wrong", "minus-said", "decimal", "percent"], 0.0),
    ),
    "uni-nfd": equal_texts(
        exact_match=dict.fromkeys(["fr", "vi", "ko", "refnfd", "angstrom", "jafull", "jahalf", "fullA"], 1.0),
        contains=dict.fromkeys(["fr", "vi", "ko", "refnfd", "angstrom", "jafull", "jahalf", "fullA"], 1.0),
        f1=dict.fromkeys(["fr", "vi", "ko", "refnfd"], 0.0),
    ),
    "num-dash": equal_texts(
        exact_match=dict.fromkeys(["hy", "en", "em", "hyph", "fig", "word"], 1.0) | dict.fromkeys(["to", "mid"], 0.0),
        contains=dict.fromkeys(["hy", "en", "em", "hyph", "fig", "apo", "word", "word2"], 1.0) | {"to": 0.0},
        f1=dict.fromkeys(["hy", "en", "apo"], 0.0),
    ),
    "contains-space": equal_texts(contains={"pct": 0.0, "ko": 0.0, "en": 0.0, "tab": 1.0}),
    "ext-group2": scores("exact_match", dict.fromkeys(["one", "two", "txt"], 1.0)),
    "float-id": float_id,
    "csv-sepline": scores("f1", {"1": 1.0}),
    "csv-trailing-comma": scores("f1", {"1": 1.0}),
    "csv-comma-in-header": scores("f1", {"1": 1.0}),
    "template": system_message,
    "templates": edited_document,
    "yarn-in-config": scaled_window,
    "import (repeated rows)": imported("dup", "5 rows answer a question again"),
    "import (rows of a resumed run)": imported("resumed", "80 rows answer a question again"),
    "import (reasoning in answers)": imported("think", "<think>"),
    "import-answers (a text)": imported("ansstr", "line 1: 'answers' must be a list with a reference answer, not text"),
    "import-answers (a list in a list)": imported(
        "ansnest", "line 1: 'answers' must be a list of texts, without a list"
    ),
    "import-answers (an empty list)": imported("ansempty", "line 1: 'answers' must be a list"),
    "import-answers (a key twice)": imported("dupkey", "line 1: cannot parse its json (the key 'pred' occurs twice)"),
    "v2-think": unclosed_reasoning,
    "hub-parquet": todays_hub,
    "endpoint (an answer in the reasoning)": served("inreasoning", says_empty),
    "endpoint (no answer)": served("nullboth", says_empty),
    "endpoint (an error with status 200)": served("error200", tells_servers_words),
}
"""By folder; several of one folder say in brackets which it is."""


@pytest.fixture(scope="module")
def lbx() -> Lbx:
    return Lbx()


@pytest.mark.parametrize("name", CASES)
def test_case_has_its_expected_result(name: str, lbx: Lbx, shared: Shared, tmp_path: Path) -> None:
    CASES[name](Case(lbx, shared("cases") / name.partition(" ")[0], tmp_path))
