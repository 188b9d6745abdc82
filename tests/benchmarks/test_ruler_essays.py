"""The essays of RULER: the whole file, the 49 files at its beginning, and bundles with other files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import pytest

from lbx.base.errors import BundleError, UsageError
from lbx.base.layout import Bundle
from lbx.benchmarks import select
from lbx.benchmarks.ruler import essays
from lbx.benchmarks.ruler.essays import FOLDER, WHOLE_FILE, essay_files, read_essays
from lbx.benchmarks.ruler.official import CONSTANTS

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
    monkeypatch.setattr(essays, "_SHA256_OF_49", sha256(JOINED.encode()).hexdigest())


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


def test_a_bundle_without_essays_is_not_a_small_window(tmp_path: Path) -> None:
    made = bundle(tmp_path, {CONSTANTS: ""})
    with pytest.raises(UsageError, match=r"does not contain the data of ruler/niah_single_2_4096\.") as refused:
        select(made, ["ruler/niah_single_2_4096"])
    assert refused.value.command == "lbx bundle bundle/ruler.toml bundle/ruler_essays.toml"
    with pytest.raises(BundleError) as missing:
        read_essays(made)
    assert missing.value.command == refused.value.command
