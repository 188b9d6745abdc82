"""What others can do with a bundle, without lbx: tar, sha256sum, BagIt, huggingface_hub offline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import bagit
import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from lbx.bundle import ArchiveFormat, CreateResult, create, unpack, verify, verify_folder
from lbx.bundle.volumes import MAX_VOLUME
from tests.bundle.hubserver import HubServer, serve
from tests.bundle.sealed import make_key
from tests.bundle.small_hub import DATASET, MODEL

REPOSITORY = Path(__file__).resolve().parents[2]
LONG = "deep/" * 30 + "文本.jsonl"


def run(*command: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def made(bundle: Callable[..., CreateResult], hub: HubServer) -> CreateResult:
    long = hub.hub / "datasets/org/data" / LONG
    long.parent.mkdir(parents=True)
    long.write_text("{}\n")
    return bundle(DATASET + MODEL)


def test_tar_and_sha256sum_check_and_unpack_it(made: CreateResult, tmp_path: Path) -> None:
    assert run("sha256sum", "-c", made.sums.name, cwd=made.archive.parent) == "demo.tar: OK\n"
    (tmp_path / "plain").mkdir()
    run("tar", "xf", made.archive, cwd=tmp_path / "plain")
    root = tmp_path / "plain/demo"
    run("sha256sum", "--quiet", "--strict", "-c", "tagmanifest-sha256.txt", "manifest-sha256.txt", cwd=root)
    assert any(path.as_posix().endswith(LONG) for path in root.rglob("*"))
    ours = unpack(made.archive, tmp_path / "ours").root
    assert run("diff", "-r", root, ours, cwd=tmp_path) == ""
    assert verify_folder(root).digest == made.digest
    assert Bundle(root).digest == made.digest


def officers_lines() -> str:
    """The commands that the documents give the officer, as they stand there."""
    section = (REPOSITORY / "docs" / "officer.md").read_text("utf-8").split("\n## ")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert sum(line.startswith(("ssh-keygen -Y verify", "sha256sum", "tar", "lbx verify")) for line in lines) >= 6
    return "\n".join(lines)


def check_by_hand(folder: Path, commands: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", officers_lines()],
        cwd=folder,
        env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder with `lbx` in it, this one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "lbx").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lbx.cli "$@"\n')
    (folder / "lbx").chmod(0o755)
    return folder


@pytest.mark.parametrize("volume_size", [MAX_VOLUME, 1 << 20])
def test_every_line_that_the_page_gives_the_officer_works(
    bundle: Callable[..., CreateResult], tmp_path: Path, commands: Path, volume_size: int
) -> None:
    made = bundle(
        DATASET, name="long", archive_format=ArchiveFormat(volume_size=volume_size, key=make_key(tmp_path, "bundler"))
    )
    out = made.archive.parent
    shutil.copy(tmp_path / "bundler.pub", out)
    done = check_by_hand(out, commands)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('Good "lbx-bundle" signature for bundler') == 2
    assert f"{made.digest}  tagmanifest-sha256.txt" in done.stdout
    assert all(f"{path.name}: OK" in done.stdout for path in made.volumes)
    assert json.loads((out / "evidence.json").read_text())["result"] == "intact"
    assert run("diff", "-r", out / "long", unpack(made.archive, tmp_path / "ours").root, cwd=out) == ""


@pytest.mark.parametrize("what", ["a volume", "the sums", "the signer"])
def test_the_officers_lines_stop_at_what_is_wrong(
    bundle: Callable[..., CreateResult], tmp_path: Path, commands: Path, what: str
) -> None:
    made = bundle(
        DATASET, name="long", archive_format=ArchiveFormat(volume_size=1 << 20, key=make_key(tmp_path, "bundler"))
    )
    out = made.archive.parent
    shutil.copy(tmp_path / "bundler.pub", out)
    if what == "a volume":
        content = bytearray(made.volumes[1].read_bytes())
        content[1000] ^= 1
        made.volumes[1].write_bytes(content)
    elif what == "the sums":
        made.sums.write_text(made.sums.read_text().replace("0", "1"))
    else:
        shutil.copy(make_key(tmp_path, "other").with_suffix(".pub"), out / "bundler.pub")
    assert check_by_hand(out, commands).returncode == 1  # lbx finds it in the first place
    (commands / "lbx").write_text("#!/bin/sh\n")
    assert check_by_hand(out, commands).returncode != 0  # and so do the others alone
    assert not (out / "long").exists()


def test_tag_files_come_first_and_all_names_are_sorted(made: CreateResult) -> None:
    names = run("tar", "tf", made.archive, "--quoting-style=literal", cwd=made.archive.parent).splitlines()
    tags = [name for name in names if not name.startswith("demo/data/")]
    payload = [name for name in names if name.startswith("demo/data/")]
    assert names == sorted(tags) + sorted(payload)
    assert len(tags) == 6


def test_bagit_accepts_it(made: CreateResult, tmp_path: Path) -> None:
    root = unpack(made.archive, tmp_path / "root").root
    bag = bagit.Bag(str(root))
    assert bag.version_info == (1, 0)
    assert bag.validate(processes=1)
    assert bag.info["Payload-Oxum"] == f"{made.bytes}.{made.files}"
    (root / "data/hub/models--org--model/refs/main").write_text("0" * 40)
    with pytest.raises(bagit.BagValidationError):
        bag.validate(processes=1)


def test_the_hub_library_finds_a_model_offline_by_its_name(made: CreateResult, tmp_path: Path) -> None:
    root = unpack(made.archive, tmp_path / "root").root
    before = verify_folder(root).digest
    code = (
        "import json, huggingface_hub as h\n"
        "one = h.hf_hub_download('org/model', 'config.json')\n"
        "all = h.snapshot_download('org/model')\n"
        "data = h.hf_hub_download('org/data', 'a.jsonl', repo_type='dataset')\n"
        "print(json.dumps([one, all, data]))"
    )
    offline = {"HF_HUB_CACHE": str(root / "data/hub"), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    config, folder, data = map(Path, json.loads(run(sys.executable, "-c", code, cwd=tmp_path, **offline)))
    assert config.is_relative_to(root)
    assert json.loads(config.read_text()) == {"model_type": "llama"}
    assert folder == Bundle(root).snapshot("model", "org/model")
    assert data.read_text() == '{"question": "why?"}\n'
    assert verify_folder(root).digest == before  # a read-only mount is enough


def test_the_real_data_makes_the_journey(shared: Callable[[str], Path], upstreams: list[Path], tmp_path: Path) -> None:
    hub = shared("data/hub")
    recipes = [REPOSITORY / "bundle" / f"{name}.toml" for name in ("longbench", "longbench_v2", "leval")]
    with serve(hub, upstreams) as server:
        made = create(recipes, tmp_path / "out", name="real", hub=server.url, mirror=server.mirror)
    report = verify(made.archive)
    assert (report.digest, report.files, report.sums) == (made.digest, made.files, "real.SHA256SUMS")
    root = Bundle(unpack(made.archive, tmp_path / "root").root)
    for repo in ("THUDM/LongBench", "THUDM/LongBench-v2", "L4NLP/LEval"):
        folder, served = root.snapshot("dataset", repo), hub / "datasets" / repo
        assert folder is not None
        for path in (path for path in served.rglob("*") if path.is_file()):
            assert (folder / path.relative_to(served)).read_bytes() == path.read_bytes()
    for source in (source for recipe in recipes for source in tomllib.loads(recipe.read_text())["source"]):
        if source["kind"] == "https":
            (path,) = (one for upstream in upstreams if (one := upstream / source["url"].split("/", 3)[3]).is_file())
            here = root.file(source["to"])
            assert here is not None and here.read_bytes() == path.read_bytes()
    whole = bytearray(made.archive.read_bytes())
    whole[whole.index(b"PK\x03\x04") + 1_000_000] ^= 1
    made.archive.write_bytes(whole)
    with pytest.raises(BundleError, match=r"real\.tar does not have the sha256"):
        verify(made.archive)
    made.sums.unlink()  # without it the file within is named
    with pytest.raises(
        BundleError, match=r"differ from its manifest \(1\): data/hub/datasets--THUDM--LongBench/.*data\.zip"
    ):
        verify(made.archive)


def test_the_hub_can_be_served_by_hand(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "upstream").mkdir()
    (tmp_path / "upstream/file.txt").write_text("hello")
    script = Path(__file__).with_name("hubserver.py")
    command = [sys.executable, script, "--hub", tmp_path / "hub", "--upstream", tmp_path / "upstream", "--port", "0"]
    with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
        assert run(sys.executable, "-c", fetch, f"{url}/upstream/file.txt", cwd=tmp_path) == "hello\n"
        process.kill()
