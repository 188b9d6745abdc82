"""What is known before the first download: licences, gates, sizes, and disks that are too small."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lbx.base.errors import FetchError, UsageError
from lbx.bundle import CreateResult, Outline, survey
from tests.bundle.hubserver import Faults, HubServer
from tests.bundle.small_hub import DATASET, FAST, MODEL
from tests.bundle.test_create import PROMPT
from tests.small_disks import small_disk

Make = Callable[..., CreateResult]
Recipe = Callable[..., Path]


def resolved(hub: HubServer) -> list[str]:
    return [path for method, path, _ in hub.log if method == "GET" and "/resolve/" in path]


def test_licence_gate_and_size_of_every_source_are_told_before_any_download(bundle: Make, hub: HubServer) -> None:
    (hub.hub / "models/org/model/.hub.json").write_text(json.dumps({"cardData": {"license": ["a", "b"]}}))
    seen: list[Outline] = []

    def look(outline: Outline) -> None:
        assert not resolved(hub)
        seen.append(outline)

    made = bundle(DATASET + MODEL + PROMPT, on_outline=look)
    (outline,) = seen
    lines = {line.source: (line.licence, line.gated, line.files) for line in outline.lines}
    assert lines == {
        "dataset org/data": ("mit", False, 5),
        "model org/model": ("a, b", False, 4),
        "owner/repo/prompt.txt": ("MIT", False, 1),
    }
    assert (outline.files, outline.bytes) == (made.files, made.bytes)
    # All but the two refs comes over the network; the archive's tag files are estimated, never below what they take.
    assert outline.fetch_bytes == made.bytes - 2 * 40
    assert made.archive.stat().st_size <= outline.archive_bytes <= made.archive.stat().st_size + 20_000
    assert json.loads(outline.to_json())["lines"][0]["licence"] == "mit"
    assert [source["licence"] for source in made.sources] == ["mit", "a, b", "MIT"]


def test_a_survey_downloads_nothing_and_leaves_nothing(hub: HubServer, recipe: Recipe, tmp_path: Path) -> None:
    outline = survey([recipe(DATASET + MODEL)], tmp_path / "out", hub=hub.url, retry=FAST)
    assert outline.files == 9
    assert not resolved(hub)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_licence_that_the_hub_does_not_say_can_stand_in_the_recipe(bundle: Make, hub: HubServer) -> None:
    (hub.hub / "datasets/org/data/.hub.json").write_text("{}")
    assert bundle(DATASET).sources[0]["licence"] == ""
    assert bundle(DATASET + 'licence = "CC0-1.0"\n', out="said").sources[0]["licence"] == "CC0-1.0"


def test_a_gated_source_without_a_token_stops_before_any_download(
    bundle: Make, hub: HubServer, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    faults.guarded = {"org/model": "hf_good"}
    with pytest.raises(FetchError) as caught:
        bundle(DATASET + MODEL)
    assert "The model org/model is gated (licence: mit): " in caught.value.cause
    assert "no token is set" in caught.value.cause
    assert f"Accept them at {hub.url}/org/model" in caught.value.fix
    assert caught.value.command.startswith("HF_TOKEN=")
    assert not resolved(hub)


def test_a_token_that_has_not_been_let_in_is_told_from_none(
    bundle: Make, hub: HubServer, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.guarded = {"org/model": "hf_good"}
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(FetchError, match=r"is gated .* the current token has no access"):
        bundle(DATASET + MODEL)
    assert not resolved(hub)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    made = bundle(DATASET + MODEL)
    assert [source["gated"] for source in made.sources] == [False, True]


def test_a_gate_that_closes_in_between_names_the_file(bundle: Make, faults: Faults) -> None:
    def shut(outline: Outline) -> None:
        faults.guarded = {"org/model": "hf_good"}

    with pytest.raises(FetchError, match=r"Access to .* of the model org/model was denied: .* answered 40[13]"):
        bundle(MODEL, on_outline=shut)


@pytest.fixture(name="small_disk")
def disk_for_one(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB: it takes org/data's download or its archive, but not both."""
    with small_disk(tmp_path / "small", 4 << 20) as folder:
        yield folder


def test_a_disk_for_one_of_both_takes_neither_unless_the_downloads_go_elsewhere(
    bundle: Make, hub: HubServer, small_disk: Path, tmp_path: Path
) -> None:
    out = str(small_disk / "out")
    with pytest.raises(UsageError, match="too small: 3 MiB must be downloaded and the archive needs 3 MiB") as it:
        bundle(DATASET, out=out)
    assert "--work" in it.value.fix
    assert not resolved(hub)
    made = bundle(DATASET, out=out, work=tmp_path / "work")
    assert made.archive.is_file()
    assert list((tmp_path / "work").iterdir()) == []


def test_each_disk_is_named_that_is_too_small(bundle: Make, hub: HubServer, small_disk: Path, tmp_path: Path) -> None:
    two = DATASET + MODEL
    with pytest.raises(UsageError, match=rf"disk of {small_disk}.* too small: 5 MiB must be downloaded, but 4 MiB"):
        bundle(two, work=small_disk)
    with pytest.raises(UsageError, match=rf"disk of {small_disk}.* too small: 5 MiB are needed for the archive"):
        bundle(two, out=str(small_disk), work=tmp_path / "work")
    assert not resolved(hub)


LIMITED = """
import resource, sys
from pathlib import Path
from lbx.bundle import create
from lbx.base.errors import LbxError
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
try:
    create([Path(sys.argv[1])], Path(sys.argv[2]), hub=sys.argv[3])
except LbxError as error:
    print(f"{type(error).__name__}: {error}")
"""


@pytest.mark.parametrize(
    ("limit", "cause"),
    [(2 << 20, "FetchError: big.jsonl of the dataset"), (3_150_000, "UsageError: Could not write the bundle")],
)
def test_a_disk_that_fills_up_on_the_way_is_an_error_and_the_same_command_goes_on(
    bundle: Make, hub: HubServer, recipe: Recipe, tmp_path: Path, limit: int, cause: str
) -> None:
    """A limit on the size of a file fails the same call to write(2) as a full disk, in the download or the archive."""
    whole = bundle(DATASET, out="whole").archive.read_bytes()
    environment = {key: value for key, value in os.environ.items() if key != "HF_HUB_OFFLINE"}
    command = [sys.executable, "-c", LIMITED, str(recipe(DATASET)), str(tmp_path / "out"), hub.url, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.startswith(cause), done
    assert "File too large" in done.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".demo.partial"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != limit
    assert bundle(DATASET).archive.read_bytes() == whole
