"""``lbx bundle`` as a person uses it: what it says before it fetches, what it hands over, and what goes back."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

from lbx.base.bundle_folder import Bundle
from tests.command_line import Lbx, fails

RECIPE = """
name = "mine"

[[source]]
kind = "path"
path = "a.txt"
to = "a.txt"
licence = "CC0-1.0"
"""


def write(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("ours")
    (tmp_path / "mine.toml").write_text(RECIPE)
    return tmp_path / "mine.toml"


def test_a_dry_run_lists_licences_and_writes_nothing(lbx: Lbx, tmp_path: Path) -> None:
    recipe = write(tmp_path)
    done = lbx.ok("bundle", recipe, "-o", tmp_path / "out", "--dry-run")
    head, _rule, row, total = done.stdout.splitlines()
    assert head.split() == ["source", "revision", "licence", "gated", "files", "size"]
    assert row.split() == ["a.txt", "CC0-1.0", "no", "1", "4", "bytes"]
    assert total.startswith("mine: 1 file, 4 bytes; 0 bytes to download")
    told = json.loads(lbx("bundle", recipe, "-o", tmp_path / "out", "--dry-run", "--json").stdout)
    assert told["lines"][0]["licence"] == "CC0-1.0"
    assert not list((tmp_path / "out").iterdir())


def test_the_list_stands_before_the_work_and_the_answer_alone_on_standard_output(lbx: Lbx, tmp_path: Path) -> None:
    done = lbx("bundle", write(tmp_path), "-o", tmp_path / "out", "--volume-size", "64Ki", "--json")
    assert json.loads(done.stdout)["volumes"] == [str(tmp_path / "out/mine.tar")]
    assert "CC0-1.0" in done.stderr
    fails(lbx("bundle", write(tmp_path), "--volume-size", "1"), 2, "--volume-size 1 is out of range")
    fails(
        lbx("bundle", write(tmp_path), "--sign", tmp_path / "none"),
        2,
        "does not exist. Create one.",
        "ssh-keygen -t ed25519",
    )


def test_a_run_says_which_unsafe_files_its_bundle_holds(lbx: Lbx, bundle: Path, answers: Path, tmp_path: Path) -> None:
    results = tmp_path / "results.duckdb"
    lbx.ok("run", "-b", bundle, "-m", answers, "-t", "needle/single_en", "--limit", 1, "-o", results)
    (row,) = lbx.rows(results, "SELECT settings FROM runs")
    settings = row["settings"] if isinstance(row["settings"], dict) else json.loads(row["settings"])
    assert settings["bundle.allowed"] == ["data/files/needle/notes.py"]


# What the officer sees of files that run when they are loaded, and how they are kept out


def test_unsafe_files_stand_in_the_evidence_and_can_be_refused(lbx: Lbx, archive: Path, tmp_path: Path) -> None:
    unsafe = "data/files/needle/notes.py"
    anyone = ["--allow-unsigned"]
    assert f"  unsafe     {unsafe}: allowed by the recipe\n" in lbx("verify", archive, *anyone).stdout
    for command in (["verify", archive], ["unpack", archive, "--to", tmp_path / "root"]):
        fails(lbx(*command, *anyone, "--refuse-unsafe"), 1, "--refuse-unsafe does not", unsafe)
    assert not list(tmp_path.iterdir())
    assert (
        f"  unsafe     {unsafe}: allowed by the recipe\n"
        in lbx("unpack", archive, *anyone, "--to", tmp_path / "root").stdout
    )
    fails(lbx("verify", tmp_path / "root", *anyone, "--refuse-unsafe"), 1, "--refuse-unsafe does not", unsafe)
    again = lbx("unpack", archive, *anyone, "--to", tmp_path / "root")
    assert "already contains this bundle" in again.stdout
    assert unsafe in again.stdout
    assert "every file was hashed again" in again.stdout
    fails(lbx("unpack", archive, *anyone, "--to", tmp_path / "root", "--refuse-unsafe"), 1, unsafe)


def test_a_zip_bomb_inside_a_bundle_stops_a_run_by_its_name(lbx: Lbx, answers: Path, tmp_path: Path) -> None:
    """Put there after `lbx unpack`, which refuses it: whoever reads the file looks again."""
    data = tmp_path / "recipe/LongBench"
    data.mkdir(parents=True)
    with zipfile.ZipFile(data / "data.zip", "w") as archive:
        row = {"input": "Who?", "context": "Ann came.", "answers": ["Ann"], "length": 2}
        archive.writestr("data/qasper.jsonl", json.dumps(row) + "\n")
    recipe = tmp_path / "recipe/r.toml"
    recipe.write_text(
        'name = "r"\n[[source]]\nkind = "path"\npath = "LongBench"\nrepo = "THUDM/LongBench"\ntype = "dataset"\n'
    )
    out, root = tmp_path / "out", tmp_path / "root"
    assert lbx("bundle", recipe, "-o", out).returncode == 0
    assert lbx("unpack", out / "r.tar", "--allow-unsigned", "--to", root).returncode == 0
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data/qasper.jsonl", bytes(20 << 20))
    snapshot = Bundle(root).snapshot("dataset", "THUDM/LongBench")
    assert snapshot is not None
    (snapshot / "data.zip").write_bytes(bomb.getvalue())
    said = ("data.zip is damaged", "would unpack to 20,971,520, a zip bomb (more than 200 times its size)")
    asked = ["-b", root, "-m", answers, "-t", "longbench/qasper"]
    fails(lbx("plan", *asked), 1, *said)
    fails(lbx("run", *asked, "-o", tmp_path / "r.duckdb"), 1, "data.zip (changed)")
    fails(lbx("verify", root, "--allow-unsigned"), 1, "data.zip (changed)")
    (data / "data.zip").write_bytes(bomb.getvalue())
    fails(lbx("bundle", recipe, "-o", tmp_path / "again"), 2, "data.zip is unsafe", "a zip bomb")
