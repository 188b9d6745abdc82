"""Every file that a command takes, in the place of which lies something else: a pipe, a device, noise, a bomb.

One command, one message, nothing written; it ends by itself, within memory. What is taken here by chance (an empty
file of ids, say) does no harm.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lbx.base.inputs import read_file_or_pipe, read_input
from tests import profiles
from tests.attacks.jail import Jail
from tests.attacks.results_parts import results_file

Command = tuple[object, ...]

RUN = ("run", "-b", "bundle", "-t", "needle", "-o", "out/new.duckdb", "--no-plan")
PLAN = ("plan", "-b", "bundle", "-t", "needle", "--no-measure-speed")
MODEL = ("-m", "oracle.jsonl")
IMPORT = ("-o", "out/new.duckdb", "--model-name", "m")

INPUTS: dict[str, Callable[[Path], Command]] = {
    "report x.duckdb": lambda x: ("report", x),
    "report --format html x.duckdb": lambda x: ("report", x, "--format", "html", "-o", "out/page.html"),
    "report --reference x.csv": lambda x: ("report", "r.duckdb", "reference", "--reference", x),
    "sql x.duckdb": lambda x: ("sql", x, "SELECT * FROM runs"),
    "sql --attach x.duckdb": lambda x: ("sql", "r.duckdb", "SELECT * FROM o.runs", "--attach", f"o={x}"),
    "score x.duckdb": lambda x: ("score", x),
    "merge x.duckdb": lambda x: ("merge", x, "r.duckdb", "-o", "out/all.duckdb"),
    "merge --shard-plan x.json": lambda x: ("merge", "r.duckdb", "-o", "out/all.duckdb", "--shard-plan", x),
    "merge --update -o x.duckdb": lambda x: ("merge", "r.duckdb", "-o", x, "--update"),
    "status x": lambda x: ("status", x),
    "export x.duckdb": lambda x: ("export", "longbench", x, "--run", "r1", "-o", "out/preds"),
    "export --documents-file x.jsonl": lambda x: (
        "export", "leval_ratings", "r.duckdb", "-o", "out/rated", "--documents-file", x
    ),
    "show x.duckdb": lambda x: ("show", x),
    "runs x.duckdb": lambda x: ("runs", x),
    "runs note x.duckdb": lambda x: ("runs", "note", x, "r1", "a=b"),
    "runs rename x.duckdb": lambda x: ("runs", "rename", x, "r1", "other"),
    "import longbench qasper.jsonl": lambda x: ("import", "longbench", x, *IMPORT),
    "import longbench_v2 x.jsonl": lambda x: ("import", "longbench_v2", x, *IMPORT),
    "import longbench_pro x.jsonl": lambda x: ("import", "longbench_pro", x, *IMPORT),
    "import lveval hotpotwikiqa_mixup_16k.jsonl": lambda x: ("import", "lveval", x, *IMPORT),
    "import babilong qa1_0k.csv": lambda x: ("import", "babilong", x, *IMPORT),
    "import leval x.pred.jsonl": lambda x: ("import", "leval", x, *IMPORT),
    "import leval_judge x.pred.judge.jsonl": lambda x: ("import", "leval_judge", x, *IMPORT[:2]),
    "import leval_ratings x.json": lambda x: ("import", "leval_ratings", x, "-o", "r.duckdb"),
    "import -o x.duckdb": lambda x: ("import", "longbench", "qasper.jsonl", "--model-name", "m", "-o", x),
    "judge x.duckdb": lambda x: ("judge", x, "-b", "bundle", "-j", "oracle.jsonl", "--questions", "open"),
    "judge --rubric x.toml": lambda x: (
        "judge", "r.duckdb", "-b", "bundle", "-j", "oracle.jsonl", "--run", "r1", "--rubric", x, "-o", "out/j.duckdb"
    ),
    "judge --judge x.toml": lambda x: ("judge", "r.duckdb", "-b", "bundle", "-j", x, "--run", "r1"),
    "browse x.duckdb": lambda x: ("browse", x, "--port", "0"),
    "rate x.duckdb": lambda x: ("rate", x, "--port", "0", "--rater", "ann"),
    "rate --collect --journal x.jsonl": lambda x: ("rate", "r.duckdb", "--collect", "--journal", x),
    "annotate x.jsonl": lambda x: ("annotate", x, "--write", "-o", "out/y.jsonl"),
    "annotate --take x": lambda x: ("annotate", "data.jsonl", "--write", "-o", "out/y.jsonl", "--take", x),
    "run --spec x.toml": lambda x: ("run", "--spec", x, "-o", "out/new.duckdb"),
    "run --spec x.duckdb": lambda x: ("run", "--spec", x, "--run", "r1", "-o", "out/new.duckdb"),
    "run --shard-plan x.json": lambda x: (*RUN, *MODEL, "--shard-plan", x, "--shard", "0"),
    "run --ids x.txt": lambda x: (*RUN, *MODEL, "--ids", f"@{x}"),
    "run --model x.toml": lambda x: (*RUN, "-m", x),
    "run --model x.jsonl": lambda x: (*RUN, "-m", x),
    "run --model x.gguf": lambda x: (*RUN, "-m", x),
    "run --retriever x.toml": lambda x: (*RUN, *MODEL, "--rag", "2", "--retriever", x),
    "run --embedding x.toml": lambda x: (*RUN, *MODEL, "--embedding", x),
    "run -o x.duckdb": lambda x: (*RUN[:-3], "-o", x, *MODEL),
    "plan --model x.toml": lambda x: (*PLAN, "-m", x),
    "plan --history x.duckdb": lambda x: (*PLAN, *MODEL, "--history", x),
    "prompts --model x.jsonl": lambda x: ("prompts", "-b", "bundle", "-t", "needle", "-m", x),
    "parity x.toml": lambda x: ("parity", x, "oracle.jsonl"),
    "tasks --bundle x": lambda x: ("tasks", "-b", x),
    "models --bundle x": lambda x: ("models", "-b", x),
    "submit slurm --spec x.toml": lambda x: ("submit", "slurm", "--spec", x, "--shards", "2", "-o", "out/s"),
    "verify x.tar": lambda x: ("verify", x, "--allow-unsigned"),
    "verify x.SHA256SUMS": lambda x: ("verify", x, "--allow-unsigned"),
    "verify --trust x.pub": lambda x: ("verify", "small.SHA256SUMS", "--trust", x),
    "unpack x.tar": lambda x: ("unpack", x, "--allow-unsigned", "--to", "out/bundle"),
    "unpack --base x": lambda x: ("unpack", "small.tar", "--allow-unsigned", "--to", "out/bundle", "--base", x),
    "bundle x.toml": lambda x: ("bundle", x, "-o", "out"),
    "bundle --sign x": lambda x: ("bundle", "small.toml", "-o", "out", "--sign", x),
    "bundle --since x.SHA256SUMS": lambda x: ("bundle", "small.toml", "-o", "out", "--since", x),
    "bundle --include-image x.tar": lambda x: ("bundle", "small.toml", "-o", "out", "--include-image", x),
}  # fmt: skip


def write(content: bytes | Callable[[], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content())


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def grow(path: Path, start: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(start)
        file.truncate(1 << 40)


SHAPES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "an empty file": write(b""),
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a dead link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a socket": listen,
    "a terabyte of nothing": grow,
    "a terabyte that begins like JSON": partial(grow, start=b"{"),
    "noise": write(lambda: random.Random(1).randbytes(1 << 16)),
    "zeros": write(bytes(1 << 20)),
    "UTF-16": write("{'a': 1}\n".encode("utf-16")),
    "half a character": write(b'{"pred": "\xed\xa0\x80\xff"}\n'),
    "brackets": write(b"[" * 300_000),
    "braces": write(b'{"a":' * 100_000),
    "a long number": write(b"1" * 100_000),
    "a long line": write(b"a" * (8 << 20)),
    "null": write(b"null\n"),
    "numbers that are none": write(b'{"pred": NaN, "score": Infinity, "length": -1e999}\n'),
    "steering": write('\x1b]0;owned\x07\u202e = [\x9b31m\n{"\x1b": '.encode()),
}


@pytest.fixture
def place(small: Path, tmp_path: Path) -> Path:
    """A folder with all that a command needs beside the one input."""
    folder = tmp_path / "place"
    folder.mkdir()
    for name in ("bundle", "needle"):
        (folder / name).symlink_to(small / name)
    for name in ("small.toml", "small.tar", "small.SHA256SUMS"):
        shutil.copy(small / name, folder)
    shutil.copy(small / "oracle.jsonl", folder)
    shutil.copy(_results(small), folder / "r.duckdb")
    (folder / "qasper.jsonl").write_text('{"pred": "a", "answers": ["a"], "all_classes": null, "length": 1}\n')
    (folder / "data.jsonl").write_text('{"input": "text", "instructions": ["q"], "outputs": ["a"]}\n')
    (folder / "out").mkdir()
    return folder


def _results(small: Path) -> Path:
    path = small / f"r{os.getpid()}.duckdb"
    return path if path.exists() else results_file(path)


PLACES = tuple(SHAPES)[:10]
"""What any command may be given; the others, those that read text there."""
TEXTS = (".toml", ".json", ".jsonl", ".csv", ".txt", ".pub", ".SHA256SUMS", ".gguf")
LIBRARIES = ("report x.duckdb", "run --model x.gguf", "unpack x.tar", "bundle --include-image x.tar")
"""Read by a library or as they come, not whole by ``inputs``: each is given everything."""


def shapes(what: str) -> list[str]:
    """Shapes that are worth a try in this place. One's own private key is read by ssh-keygen, to its end."""
    allowed = list(SHAPES) if what.endswith(TEXTS) else list(PLACES)
    return [shape for shape in allowed if what != "bundle --sign x" or not shape.startswith("a terabyte")]


EVERY = [(what, shape) for what in INPUTS for shape in shapes(what)]
ONE_EACH = [(what, shapes(what)[at % len(shapes(what))]) for at, what in enumerate(INPUTS)]
CASES = profiles.chosen(EVERY, [case for case in EVERY if case in ONE_EACH or case[0] in LIBRARIES])


@pytest.mark.parametrize("read", [read_input, read_file_or_pipe])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_kind_of_file_is_read_within_its_limit_or_refused(
    shape: str, read: Callable[[Path, int], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands read through ``inputs`` (tests/test_one_way.py), so that each needs only one of these kinds."""
    monkeypatch.chdir(tmp_path)
    path = Path("x")
    SHAPES[shape](path)
    regular, limit = path.is_file(), 2 << 20
    if regular and path.stat().st_size <= limit:
        assert read(path, limit) == path.read_bytes()
    else:
        with pytest.raises(OSError, match=r"regular file|too large|No such file|Too many levels|No such device"):
            read(path, limit)


@pytest.mark.parametrize(("what", "shape"), CASES)
def test_another_thing_in_the_place_of_a_file(
    what: str, shape: str, place: Path, jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    name = what.rsplit(maxsplit=1)[-1]
    (place / name).unlink(missing_ok=True)
    SHAPES[shape](place / name)
    ended = jail(place, *INPUTS[what](Path(name)))
    assert not ended.fault(may_change=("out/", name, "r.duckdb", "nowhere"), may_leave=KEPT), ended


KEPT = (".cache", "out/.", "out/y.jsonl.edits.jsonl", "x.duckdb")
"""What a refusal may leave: caches, what was downloaded for the next attempt, an empty journal. An empty file is a
place for results, and becomes a results file without any."""
