"""``create`` against a real hub on loopback, honest and lying."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import FetchError, UsageError
from lbx.bundle import CreateResult, Retry, create, unpack, verify
from tests.bundle.hubserver import Faults, HubServer, commit_of
from tests.bundle.small_hub import DATASET, FAST, MODEL

Make = Callable[..., CreateResult]
Recipe = Callable[..., Path]


def https(sha256: str, to: str = "owner/repo/prompt.txt") -> str:
    url = "https://example.org/owner/repo/abc/prompt.txt"
    return f'[[source]]\nkind = "https"\nurl = "{url}"\nsha256 = "{sha256}"\nto = "{to}"\nlicence = "MIT"\n'


PROMPT = https(hashlib.sha256(b"Read this.").hexdigest())


def test_a_dataset_arrives_as_it_is(bundle: Make, hub: HubServer, tmp_path: Path) -> None:
    made = bundle(DATASET + MODEL + PROMPT)
    root = Bundle(unpack(made.archive, tmp_path / "root").root)
    folder = root.snapshot("dataset", "org/data")
    assert folder is not None
    served = hub.hub / "datasets/org/data"
    names = sorted(path.relative_to(served).as_posix() for path in served.rglob("*.jsonl"))
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == names
    assert all((folder / name).read_bytes() == (served / name).read_bytes() for name in names)
    assert (folder.parent.parent / "refs/main").read_text() == folder.name == commit_of(served)
    assert root.snapshot("model", "org/model")
    prompt = root.file("owner/repo/prompt.txt")
    assert prompt is not None
    assert prompt.read_text() == "Read this."
    assert root.digest == made.digest
    assert not (tmp_path / "out/.demo.partial").exists()


def test_the_bundle_says_where_everything_came_from(bundle: Make, hub: HubServer, tmp_path: Path) -> None:
    made = bundle(DATASET + PROMPT)
    sources = Bundle(unpack(made.archive, tmp_path / "root").root).description["sources"]
    files = [sources[0].pop("files"), sources[1].pop("files")]
    assert sources == [
        {
            "kind": "hub",
            "type": "dataset",
            "repo": "org/data",
            "resolved_repo": "org/data",
            "revision": "main",
            "commit": commit_of(hub.hub / "datasets/org/data"),
            "licence": "mit",
            "gated": False,
            "patterns": ["*.jsonl"],
            "allowed": [],
        },
        {
            "kind": "https",
            "url": "https://example.org/owner/repo/abc/prompt.txt",
            "to": "owner/repo/prompt.txt",
            "licence": "MIT",
            "allowed": [],
        },
    ]
    assert files[1] == [
        {"path": "data/files/owner/repo/prompt.txt", "size": 10, "sha256": hashlib.sha256(b"Read this.").hexdigest()}
    ]
    told = json.loads(made.to_json())
    assert (told["archive"], told["digest"], told["sources"][0]["repo"]) == (str(made.archive), made.digest, "org/data")
    assert made.files == len(files[0]) + 1
    assert made.bytes == sum(file["size"] for file in files[0]) + 10


def test_the_same_sources_give_the_same_bytes(bundle: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    first = bundle(DATASET + MODEL + PROMPT).archive.read_bytes()
    assert bundle(DATASET + MODEL + PROMPT, out="other").archive.read_bytes() == first
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    later = bundle(DATASET + MODEL + PROMPT, out="later").archive.read_bytes()
    assert later != first
    assert b"Bagging-Date: 1970-01-02\n" in later


def test_a_wrong_epoch_is_refused(bundle: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH='yesterday'"):
        bundle()


def test_a_tree_of_many_pages_is_read_to_its_end(bundle: Make, faults: Faults) -> None:
    whole = bundle(DATASET).files
    faults.page_size = 2
    assert bundle(DATASET, out="paged").files == whole


def test_small_files_without_lfs_are_checked_by_their_git_hash(bundle: Make, faults: Faults) -> None:
    faults.lfs_from = 1 << 40
    made = bundle(DATASET)
    assert verify(made.archive).files == made.files
    faults.corrupt = {"big.jsonl": 99}
    with pytest.raises(FetchError, match=r"big\.jsonl of the dataset org/data has the wrong hash: expected git"):
        bundle(DATASET, out="corrupt")


def test_a_revision_is_kept_beside_main(bundle: Make, hub: HubServer, tmp_path: Path) -> None:
    commit = commit_of(hub.hub / "datasets/org/data")
    made = bundle(DATASET + f'revision = "{commit}"\n')
    root = Bundle(unpack(made.archive, tmp_path / "root").root)
    assert root.snapshot("dataset", "org/data") == root.snapshot("dataset", "org/data", commit)
    refs = root.root / "data/hub/datasets--org--data/refs"
    assert sorted(path.name for path in refs.iterdir()) == sorted(["main", commit])


# What a hub can do wrong


def test_a_corrupt_body_of_the_right_size_is_never_accepted(bundle: Make, faults: Faults, tmp_path: Path) -> None:
    faults.corrupt = {"big.jsonl": 99}
    with pytest.raises(FetchError) as caught:
        bundle()
    assert "big.jsonl of the dataset org/data" in caught.value.cause
    assert "expected sha256" in caught.value.cause
    assert "got" in caught.value.cause
    assert not list((tmp_path / "out").glob("*.tar"))
    faults.corrupt = {}
    assert verify(bundle().archive).problems == []


def test_a_body_that_was_corrupt_once_is_fetched_again(bundle: Make, hub: HubServer, faults: Faults) -> None:
    faults.corrupt = {"big.jsonl": 1, "a.jsonl": 1, "prompt.txt": 1}
    verify(bundle(DATASET + PROMPT).archive)
    assert hub.fetched("big.jsonl") == ["", ""]


def test_a_broken_body_is_continued_where_it_broke(bundle: Make, hub: HubServer, faults: Faults) -> None:
    whole = bundle(out="whole").archive.read_bytes()
    hub.log.clear()
    faults.truncate = {"big.jsonl": 2}
    assert bundle().archive.read_bytes() == whole
    half = (3 << 20) // 2
    assert hub.fetched("big.jsonl") == ["", f"bytes={half}-", f"bytes={half + half // 2}-"]


def test_a_server_that_ignores_range_is_read_from_the_start(bundle: Make, hub: HubServer, faults: Faults) -> None:
    whole = bundle(out="whole").archive.read_bytes()
    hub.log.clear()
    faults.truncate, faults.ranges = {"big.jsonl": 1}, False
    assert bundle().archive.read_bytes() == whole
    assert len(hub.fetched("big.jsonl")) == 2


def test_a_body_that_always_breaks_at_its_start_ends_in_an_error(bundle: Make, hub: HubServer, faults: Faults) -> None:
    faults.truncate, faults.ranges = {"big.jsonl": 99}, False
    with pytest.raises(FetchError, match=r"big\.jsonl .* could not be downloaded in 3 attempts"):
        bundle()
    assert len(hub.fetched("big.jsonl")) == 3


def test_server_errors_pass(bundle: Make, faults: Faults) -> None:
    faults.failing = {"/revision/main": 2, "big.jsonl": 2, "prompt.txt": 2}
    verify(bundle(DATASET + PROMPT).archive)


def test_server_errors_that_stay_are_named(bundle: Make, faults: Faults) -> None:
    faults.failing = {"big.jsonl": 99}
    with pytest.raises(FetchError, match=r"big\.jsonl of the dataset org/data .* 3 attempts: the server answered 500"):
        bundle()
    faults.failing = {"/revision/main": 99}
    with pytest.raises(FetchError, match=r"The dataset org/data .* 3 attempts: .* answered 500"):
        bundle()


def test_a_missing_file_is_named_at_once(bundle: Make, hub: HubServer, faults: Faults) -> None:
    faults.missing = {"a.jsonl"}
    with pytest.raises(FetchError, match=r"a\.jsonl of the dataset org/data does not exist: .* answered 404"):
        bundle()
    assert len(hub.fetched("/a.jsonl")) == 1


def test_a_renamed_repository_keeps_its_old_place_and_records_its_new_name(
    bundle: Make, faults: Faults, tmp_path: Path
) -> None:
    faults.renamed = {"old/name": "org/data"}
    made = bundle(DATASET.replace("org/data", "old/name"))
    assert made.sources[0]["repo"] == "old/name"
    assert made.sources[0]["resolved_repo"] == "org/data"
    assert Bundle(unpack(made.archive, tmp_path / "root").root).snapshot("dataset", "old/name")


@pytest.mark.parametrize(
    ("text", "cause", "fix"),
    [
        (DATASET.replace("org/data", "org/nothing"), "The dataset org/nothing does not exist at http", "Correct repo"),
        (DATASET.replace('"dataset"', '"model"'), "The model org/data does not exist at http", "type"),
        (DATASET + 'revision = "v9"\n', "has no revision v9", "revision"),
        (DATASET.replace("*.jsonl", "bigg.jsonl"), 'files = "bigg.jsonl" does not match any of the', "big.jsonl"),
    ],
)
def test_what_the_hub_does_not_have_is_named(bundle: Make, text: str, cause: str, fix: str) -> None:
    with pytest.raises(FetchError) as caught:
        bundle(text)
    assert cause in caught.value.cause
    assert fix in caught.value.fix


def test_a_gated_repository_says_what_to_do(bundle: Make, faults: Faults) -> None:
    faults.gated = {"org/data"}
    with pytest.raises(FetchError, match=r"gated.*HF_TOKEN"):
        bundle()


def test_a_hub_that_does_not_answer_is_named(bundle: Make) -> None:
    with pytest.raises(
        FetchError, match=r"org/data could not be downloaded in 2 attempts: http://127\.0\.0\.1:9 does not"
    ):
        bundle(hub="http://127.0.0.1:9", retry=Retry(tries=2, delay_s=0, connect_s=2))


def test_a_server_that_is_no_hub_is_named(bundle: Make, hub: HubServer) -> None:
    (hub.upstreams[0] / "api/datasets/org/data/revision").mkdir(parents=True)
    (hub.upstreams[0] / "api/datasets/org/data/revision/main").write_text("<html>Please log in</html>")
    with pytest.raises(FetchError, match="did not answer like a Hugging Face hub"):
        bundle(hub=hub.mirror)


@pytest.mark.parametrize("option", ["hub", "mirror"])
@pytest.mark.parametrize("address", ["file:///srv/hub", "ftp://host/hub", "host:8000"])
def test_an_address_that_is_no_web_address_is_refused(bundle: Make, option: str, address: str) -> None:
    with pytest.raises(UsageError, match=f"--{option} {address} is not an http or https address") as caught:
        bundle(DATASET + https("0" * 64), **{option: address})
    assert ".." not in str(caught.value)


def test_offline_mode_is_named(hub: HubServer, recipe: Recipe, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from lbx.bundle import create\n"
        "try: create([Path(sys.argv[1])], Path(sys.argv[2]), hub=sys.argv[3])\n"
        "except Exception as exc: print(type(exc).__name__, exc)"
    )
    command = [sys.executable, "-c", code, str(recipe(DATASET)), str(tmp_path / "out"), hub.url]
    done = subprocess.run(command, env={"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=True)
    assert done.stdout == "FetchError The dataset org/data cannot be downloaded: HF_HUB_OFFLINE is set. Unset it.\n"


def test_wrong_content_at_an_https_address_is_refused(bundle: Make) -> None:
    with pytest.raises(FetchError, match=r"prompt\.txt has the wrong hash: expected sha256 1111"):
        bundle(https("1" * 64))


def test_a_file_that_the_mirror_lacks_is_named(bundle: Make, hub: HubServer) -> None:
    with pytest.raises(FetchError, match=r"prompt\.txt does not exist: .* answered 404"):
        bundle(PROMPT, mirror=f"{hub.url}/upstream/elsewhere")


def test_the_token_goes_to_the_hub_only(bundle: Make, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    bundle(DATASET + PROMPT)
    assert any("/resolve/" in path for path in hub.authorised)
    assert not any(path.startswith("/upstream") for path in hub.authorised)


# Disk, formats


def test_a_disk_that_is_too_small_is_refused_before_the_first_download(
    bundle: Make, hub: HubServer, faults: Faults
) -> None:
    faults.sizes = {"big.jsonl": 1 << 60}
    with pytest.raises(UsageError, match=r"too small: 1,073,741,824\.0 GiB must be downloaded"):
        bundle()
    assert not [path for _, path, _ in hub.log if "/resolve/" in path]


def test_a_tree_that_promises_too_few_bytes_is_found_out(bundle: Make, faults: Faults) -> None:
    faults.sizes = {"big.jsonl": 1000}
    with pytest.raises(FetchError, match=r"big\.jsonl.*3,145,728 bytes instead of the expected 1,000"):
        bundle()


@pytest.mark.parametrize("name", ["loader.py", "weights.bin", "optimizer.pt", "x.pkl", "x.ckpt"])
def test_an_unsafe_format_needs_leave_by_name(bundle: Make, hub: HubServer, name: str) -> None:
    (hub.hub / "datasets/org/data" / name).write_bytes(b"unsafe")
    text = DATASET.replace("*.jsonl", f"*{name}")
    with pytest.raises(UsageError) as caught:
        bundle(text)
    assert f"{name} is " in caught.value.cause
    assert f'allow = ["{name}"]' in caught.value.fix
    assert not [path for _, path, _ in hub.log if "/resolve/" in path]
    made = bundle(text + f'allow = ["{name}"]\n')
    assert [path.rpartition("/")[2] for path in made.sources[0]["allowed"]] == [name]


def test_a_configuration_that_names_code_needs_leave(bundle: Make, hub: HubServer) -> None:
    config = hub.hub / "models/org/model/config.json"
    config.write_text(json.dumps({"auto_map": {"AutoModel": "modeling.Model"}}))
    with pytest.raises(UsageError, match=r"config\.json is refused: it is a configuration, and it names code"):
        bundle(MODEL)
    assert hub.fetched("model.safetensors") == []
    made = bundle(MODEL + 'allow = ["config.json"]\n')
    assert [path.rpartition("/")[2] for path in made.sources[0]["allowed"]] == ["config.json"]


def test_leave_for_a_file_that_is_not_there_is_a_typo(bundle: Make) -> None:
    with pytest.raises(UsageError, match=r'allow = "lodaer\.py" does not match any'):
        bundle(DATASET + 'allow = ["lodaer.py"]\n')


def test_case_twins_are_refused(bundle: Make, hub: HubServer) -> None:
    (hub.hub / "datasets/org/data/A.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"a\.jsonl cannot go into the bundle: .*A\.jsonl only in upper and lower"):
        bundle()


# The command's surroundings


def test_progress_ends_at_the_total(bundle: Make) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}
    made = bundle(DATASET, progress=lambda stage, item, done, total: seen.setdefault(stage, []).append((done, total)))
    verify(made.archive, lambda stage, item, done, total: seen.setdefault(stage, []).append((done, total)))
    assert seen.pop("sums")[-1] == (made.archive.stat().st_size,) * 2
    assert set(seen) == {"fetch", "pack", "verify"}
    for steps in seen.values():
        assert steps == sorted(steps)
        assert steps[-1] == (made.bytes, made.bytes)
        assert len(steps) > made.files  # big files report more than once


def test_nothing_can_be_written_to_a_file(bundle: Make, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match="Cannot write to"):
        bundle(out="taken")


def test_two_runs_at_once_are_kept_apart(bundle: Make) -> None:
    refused: list[str] = []

    def second(stage: str, item: str, done: int, total: int) -> None:
        if not refused:
            with pytest.raises(UsageError) as caught:
                bundle()
            refused.append(str(caught.value))

    verify(bundle(progress=second).archive)
    assert "Another `lbx bundle`" in refused[0]


def test_bundling_again_replaces_the_archive(bundle: Make, hub: HubServer) -> None:
    first = verify(bundle().archive).digest
    (hub.hub / "datasets/org/data/a.jsonl").write_text("new\n")
    assert verify(bundle().archive).digest != first


def test_a_bundle_of_several_recipes_is_named_after_them(hub: HubServer, recipe: Recipe, tmp_path: Path) -> None:
    both = [recipe(DATASET, "one"), recipe(PROMPT, "two")]
    made = create(both, tmp_path / "out", hub=hub.url, mirror=hub.mirror, retry=FAST)
    assert made.archive == tmp_path / "out/one+two.tar"
    assert made.sums.read_text() == f"{hashlib.sha256(made.archive.read_bytes()).hexdigest()}  one+two.tar\n"
