"""Files of strangers in the place of every file that lbx reads: nothing waits for one, nothing is filled by one."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.backends import cards, headers
from lbx.backends.cards import read_card
from lbx.backends.hf import checkpoint, folder_checks, quantisation
from lbx.backends.hf import library as dtypes
from lbx.backends.llama import variants
from lbx.base import tables
from lbx.base.bundle_folder import Bundle
from lbx.base.database import parquet_rows
from lbx.base.errors import LbxError
from lbx.base.inputs import is_results_file
from lbx.benchmarks.base import data_files, prediction_lines
from lbx.benchmarks.longbench_pro import tasks as longbench_pro_data
from lbx.benchmarks.needle import NeedleSettings
from lbx.bundle.making import recipe
from lbx.bundle.receiving import verification
from lbx.bundle.signing.signature import load_keys
from lbx.cli.command_builder import split_names
from lbx.cluster import merge
from lbx.cluster.folder import RunFolder
from lbx.exchange.annotation import dataset as pairs
from lbx.exchange.annotation.dataset import ANSWERS, Dataset, open_dataset
from lbx.opinions.journal import Journal, read_journal
from lbx.options.run_spec import RunSpec
from lbx.report.rows.reference import read_reference
from lbx.results.file.opening import connect
from lbx.running.forecast.shards import read_shards
from tests.attacks.attack_parts import main, refused
from tests.attacks.results_parts import results_file
from tests.profiles import examples

Reader = Callable[[Path], object]


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's whole name is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _linked_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


KINDS: dict[str, Reader] = {
    "a pipe": os.mkfifo,
    "a link to a pipe": _linked_pipe,
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "a socket": _socket,
    "a folder": Path.mkdir,
}


def _bundle(name: str) -> Callable[[Path], Path]:
    """A bundle in which the file of that name is the stranger's."""

    def made(path: Path) -> Path:
        root = path.parent / "bundle"
        for place in ("tagmanifest-sha256.txt", "lbx/bundle.json", name):
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            if place != name:
                (root / place).write_text("{}")
        path.rename(root / name)
        return root

    return made


def _as(name: str, read: Reader) -> Reader:
    """Reads a folder in which the file has this name."""

    def reader(path: Path) -> object:
        folder = path.parent / "folder"
        folder.mkdir()
        path.rename(folder / name)
        return read(folder)

    return reader


def _described(path: Path) -> object:
    root = _bundle("data/files/needle.toml")(path)
    return NeedleSettings.from_bundle(Bundle(root))


READERS: dict[str, Reader] = {
    "--journal": read_journal,
    "--trust": load_keys,
    "--ids @": lambda path: split_names("--ids", [f"@{path}"]),
    "--spec": RunSpec.read,
    "a recipe": lambda path: recipe.load_recipes([path]),
    "an image": recipe.list_images,
    "a card": read_card,
    "is it a card": cards.is_card,
    "its template": lambda path: read_card(_card_with_template(path)),
    "config.json": _as("config.json", headers.declared_window),
    "a GGUF's window": headers.declared_window,
    "a GGUF's tensors": headers.gguf_tensors,
    "dtype": _as("config.json", dtypes.checkpoint_dtype),
    "quantisation": _as("config.json", quantisation.read_settings),
    "safetensors": _as("model.safetensors", checkpoint.read_checkpoint),
    "its index": _as("model.safetensors.index.json", checkpoint.read_checkpoint),
    "chat_template.jinja": _as("chat_template.jinja", folder_checks.refuse_unsafe_files),
    "a model's file": cards.model_files,
    "lines of data": lambda path: list(data_files.read_jsonl(path)),
    "an array of data": lambda path: list(data_files.read_json_array(path)),
    "json data": data_files.read_json,
    "text data": data_files.read_text,
    "a zip": data_files.zip_members,
    "keys": lambda path: data_files.count_keys(path, "a"),
    "longbench pro": _as(longbench_pro_data.FILE, longbench_pro_data.find_data),
    "a table": tables.read_table,
    "predictions": prediction_lines.read_bytes,
    "parquet": lambda path: list(parquet_rows([path])),
    "a results file": lambda path: connect(path, read_only=True),
    "is it a results file": is_results_file,
    "shards.json": read_shards,
    "job.json": _as("job.json", lambda folder: RunFolder(folder).submission()),
    "a shard's log": merge._last_line,
    "a reference": read_reference,
    "a dataset": open_dataset,
    "a manifest": lambda path: Bundle(_bundle("tagmanifest-sha256.txt")(path)).digest,
    "bundle.json": lambda path: Bundle(_bundle("lbx/bundle.json")(path)).description,
    "needle.toml": _described,
    "tags": lambda path: verification.read_tags(_bundle("bagit.txt")(path), ["bagit.txt"]),
}


def _card_with_template(path: Path) -> Path:
    card = path.with_name("card.toml")
    card.write_text(f'backend = "hf"\n[weights]\npath = "."\n[chat]\ntemplate_file = "{path.name}"\n')
    return card


class WaitedError(Exception):
    """What a test ends with where something waits."""


@contextmanager
def _at_once(seconds: int = 20) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise WaitedError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True)  # a library that waits hears no signal
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_not_waited_for(reader: str, kind: str, tmp_path: Path) -> None:
    """It is refused, or passed over; a reader of zeros would end by the alarm, or by the memory."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "strange"
    KINDS[kind](path)
    with _at_once(), suppress(LbxError, OSError, ValueError):
        READERS[reader](path)


def test_a_pipe_that_lbx_was_started_with_is_read(tmp_path: Path) -> None:
    """As ``--ids @<(grep ...)`` and ``--journal /dev/stdin`` give it: who started lbx holds its other end."""
    reader, writer = os.pipe()
    os.write(writer, b"one\ntwo\n")
    os.close(writer)
    assert split_names("--ids", [f"@/dev/fd/{reader}"]) == ("one", "two")
    os.close(reader)
    reader, writer = os.pipe()
    with subprocess.Popen(["cat", "/dev/zero"], stdout=writer) as endless, _at_once():
        os.close(writer)
        with pytest.raises(LbxError, match="too large"):
            split_names("--ids", [f"@/dev/fd/{reader}"])
        os.close(reader)
        endless.kill()


@pytest.mark.parametrize("reader", ["--journal", "--ids @", "config.json", "is it a card", "text data"])
def test_a_small_file_without_end_fills_no_memory(reader: str, tmp_path: Path) -> None:
    """It takes no room on the disk; what reads it whole takes what it says it has."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "strange"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with _at_once(), suppress(LbxError, OSError, ValueError):
        READERS[reader](path)


def test_a_log_without_end_fills_no_memory(tmp_path: Path) -> None:
    """Somebody who may write to the folder has put it where lbx goes on with its own."""
    file, out = tmp_path / "data.jsonl", tmp_path / "out.jsonl"
    file.write_text('{"input": "d", "instructions": ["q"], "outputs": ["a"]}\n')
    for kept, opened_with in (
        (tmp_path / "r.duckdb.ratings.jsonl", Journal),
        (tmp_path / "out.jsonl.edits.jsonl", lambda _: Dataset(file, out)),
    ):
        with kept.open("wb") as made:
            made.truncate(1 << 40)
        with _at_once(), pytest.raises(LbxError, match="too large"):
            opened_with(kept)


def test_what_lies_beside_a_results_file_is_not_waited_for(tmp_path: Path) -> None:
    """DuckDB opens its log by its name."""
    path = results_file(tmp_path / "results.duckdb")
    for log in (".wal", ".wal.checkpoint", ".wal.recovery"):
        os.mkfifo(f"{path}{log}")
        with _at_once():
            refused(main("report", path), "is a device or a pipe")
        Path(f"{path}{log}").unlink()
    assert main("report", path).code == 0


@pytest.mark.parametrize("kind", [*KINDS, "brackets", "a bomb of zeros", "an odd table"])
def test_a_spoilt_cache_in_the_home_folder_is_found_out_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tried: list[str] = []

    def outcome(job: str, *_: Path) -> subprocess.CompletedProcess[str]:
        tried.append(job)
        said = {"check": '{"wrong": "", "tokens_per_s": 1.0}', "scores": json.dumps({str(file): 7 for file in files})}  # type: ignore[attr-defined]
        return subprocess.CompletedProcess([], 0, said[job], "")

    monkeypatch.setattr(variants, "_run", outcome)
    library = tmp_path / "libggml.so"
    files = [tmp_path / "libggml-cpu-zen4.so"]
    for file in (library, *files):
        file.write_bytes(b"code")
    first = variants.choose_variant(library, files)
    assert variants.choose_variant(library, files) == first and tried == ["scores", "check"]
    for place in tmp_path.rglob("*.json"):
        place.unlink()
        match kind:
            case "brackets":
                place.write_text("[" * 100_000)
            case "a bomb of zeros":
                place.touch()
                os.truncate(place, 1 << 40)
            case "an odd table":
                place.write_text('{"variant": "zen4", "file": "", "problem": 0, "tokens_per_s": "x"}')
            case _:
                place.with_name("elsewhere").unlink(missing_ok=True)
                KINDS[kind](place)
    with _at_once():
        assert variants.choose_variant(library, files) == first
    assert tried == ["scores", "check"] * 2


@pytest.mark.parametrize("model", ["~nobody-of-this-name/x.toml", "~nobody/x.toml", "~/no such/x.toml", "~"])
def test_a_home_folder_that_is_not_there_is_a_file_that_is_not_there(model: str, tmp_path: Path) -> None:
    spec = {"lbx_run": 1, "bundle": "b", "model": model, "tasks": ["needle"], "embedding": model}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    for command in ("run", "plan", "prompts"):
        more = ["-o", tmp_path / "r.duckdb"] if command == "run" else []
        refused(main(command, "--spec", tmp_path / "spec.json", *more))
    refused(main("plan", "--bundle", "b", "--model", model, "--tasks", "needle", "--ids", f"@{model}"))
    refused(main("models", model))


@given(st.integers(0, 40), st.sampled_from(["flip", "cut", "append", "nothing"]), st.integers(0, 10**6))
@settings(max_examples=examples(200), deadline=None)
def test_annotate_writes_what_it_opened_or_nothing(turn: int, change: str, at: int) -> None:
    """FILE changes while it is written, at any moment, at any byte; its time is set back."""
    lines = [json.dumps({"input": f"document {n}", "instructions": ["q"], "outputs": [f"a{n}"]}) for n in range(20)]
    content = "\n".join(lines).encode()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        file, out = Path(folder) / "data.jsonl", Path(folder) / "out.jsonl"
        file.write_bytes(content)
        file.chmod(0o600)
        patch.setattr(pairs, "_PIECE", 64)
        with Dataset(file, out) as dataset:
            dataset.set(7, 0, ANSWERS, "new", 0)
            pieces = dataset.pieces()

            def meddled() -> Iterator[bytes]:
                for number, piece in enumerate(pieces):
                    if number == turn:
                        _spoil(file, change, at % len(content))
                    yield piece

            patch.setattr(dataset, "pieces", meddled)
            with suppress(LbxError):
                dataset.write()
        assert not out.exists() or out.read_bytes() == content.replace(b'"a7"', b'"new"')
        assert out.exists() or change != "nothing"
        assert not out.exists() or out.stat().st_mode & 0o777 == 0o600


def _spoil(file: Path, change: str, at: int) -> None:
    times = file.stat()
    with file.open("r+b") as held:
        held.seek(at)
        sign = held.read(1)
        held.seek(at)
        match change:
            case "flip":
                held.write(bytes([sign[0] ^ 1]))
            case "cut":
                held.truncate()
            case "append":
                held.seek(0, os.SEEK_END)
                held.write(b"\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
