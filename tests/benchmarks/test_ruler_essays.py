"""The essays of RULER: the whole file, the 49 files at its beginning, and bundles with other files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.benchmarks.ruler import needles
from lbx.benchmarks.ruler.needles import FOLDER, WHOLE_FILE, essay_files, read_essays
from lbx.benchmarks.ruler.samples import SampleSet
from lbx.benchmarks.ruler.tasks import CONSTANTS, RulerSettings
from lbx.options.task_selection import select_tasks
from tests.made_ruler import ruler_files

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]

PARTS = {f"{FOLDER}/{name}.txt": text for name, text in {"b": " four  five", "a1": "two\nthree", "a": "one "}.items()}
JOINED = "one two\nthree four  five"


def bundle(root: Path, files: Mapping[str, str]) -> Bundle:
    (root / "lbx").mkdir()
    (root / "lbx" / "bundle.json").write_text('{"name": "t", "sources": []}')
    (root / "tagmanifest-sha256.txt").write_text("")
    for name, text in files.items():
        path = root / "data" / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return Bundle(root)


@pytest.fixture
def known_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needles, "_SHA256_OF_49", sha256(JOINED.encode()).hexdigest())


@pytest.mark.usefixtures("known_parts")
def test_the_parts_are_joined_by_name_and_limit_the_size(tmp_path: Path) -> None:
    made = bundle(tmp_path, PARTS)
    assert [Path(file).stem for file in essay_files(made)] == ["a", "a1", "b"]
    read = read_essays(made)
    assert read.words == ["one", "two", "three", "four", "five"]
    read.check_size(4, "ruler/niah_single_2_4096")  # "five" may be the beginning of a longer word
    with pytest.raises(UsageError, match=r"niah_single_2_4096 needs 5 words .* has 4\."):
        read.check_size(5, "ruler/niah_single_2_4096")


@pytest.mark.usefixtures("known_parts")
def test_the_whole_file_has_precedence_and_no_limit(tmp_path: Path) -> None:
    made = bundle(tmp_path, {**PARTS, WHOLE_FILE: json.dumps({"text": " six\n"})})
    assert essay_files(made) == [WHOLE_FILE]
    read = read_essays(made)
    assert read.words == ["", "six", ""]
    read.check_size(10**6, "ruler/niah_single_2_4096")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"does not contain RULER's essays"),
        (PARTS, r"PaulGrahamEssays is damaged: it does not have the 49 essays"),
        ({WHOLE_FILE: '{"text": " "}'}, r"PaulGrahamEssays\.json is damaged: it has no text"),
        ({WHOLE_FILE: '{"text": 1}'}, r"PaulGrahamEssays\.json is damaged: it has no text"),
    ],
)
def test_a_bundle_without_the_essays_is_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(BundleError, match=message):
        read_essays(bundle(tmp_path, files))


@pytest.mark.parametrize(("words", "is_refused"), [(3000, False), (2300, True), (1000, True)])
def test_a_search_near_the_end_of_the_parts_is_refused(
    make_bundle: MakeBundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: int, *, is_refused: bool
) -> None:
    """Texts of the search that exceed the parts repeat words, and may be too long only for that reason."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "word " * words
    monkeypatch.setattr(needles, "_SHA256_OF_49", sha256(text.encode()).hexdigest())
    files = {name: content for name, content in ruler_files().items() if "PaulGraham" not in name}
    made = make_bundle({**files, f"files/{FOLDER}/a.txt": text.encode()})
    samples = SampleSet(made, RulerSettings(samples=1), "words", lambda text: len(text.split()))
    if is_refused:
        with pytest.raises(UsageError, match=r"of essays, and the bundle has"):
            next(samples.samples("ruler", "niah_single_2_2200"))
    else:
        assert next(samples.samples("ruler", "niah_single_2_2200")).length


def test_a_bundle_without_essays_is_not_a_small_window(tmp_path: Path) -> None:
    made = bundle(tmp_path, {CONSTANTS: ""})
    with pytest.raises(UsageError, match=r"does not contain the data of ruler/niah_single_2_4096\.") as refused:
        select_tasks(made, ["ruler/niah_single_2_4096"])
    assert refused.value.command == "lbx bundle bundle/ruler.toml bundle/ruler_essays.toml"
    with pytest.raises(BundleError) as missing:
        read_essays(made)
    assert missing.value.command == refused.value.command
