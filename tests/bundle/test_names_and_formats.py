"""Names that may stand in a bundle, and formats that may travel."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.bundle.names import (
    NAMES_CODE,
    PathSet,
    UnsafeContent,
    find_unsafe_content,
    is_bundle_name,
    needs_content_check,
    unsafe_format,
    unsafe_reason,
)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("C:/x", "absolute"),
        ("c:x", "absolute"),
        ("a/../b", "leads out"),
        ("..", "leads out"),
        ("a//b", "empty or '.'"),
        ("a/./b", "empty or '.'"),
        ("a/", "empty or '.'"),
        ("a\nb", "control"),
        ("a\0b", "control"),
        ("a\\b", "control"),
        ("a%0Ab", "percent"),
        ("a\ud800", "broken"),
        ("e\u0301.txt", "NFC"),
        ("x" * 256, "too long"),
        ("ab:c", "colon"),
        ("a\x9bb", "control"),
        ("pass\u200bword", "invisible"),
        ("a\u202etxt.exe", "invisible"),
        ("\ufeffa", "invisible"),
        ("a\u3164", "invisible"),
        ("a/CON/b", "device"),
        ("com1.txt", "device"),
        ("lpt\u00b9", "device"),
        ("a./b", "dot or a blank"),
        ("a ", "dot or a blank"),
        ("/".join(["x" * 200] * 6), "too long"),
    ],
)
def test_unsafe_names(path: str, reason: str) -> None:
    assert reason in unsafe_reason(path)


PORTABLE = ("console", "com10", "aux-data", "data.con")


@pytest.mark.parametrize(
    "path",
    [*("a", "a/b.txt", "..a/b..x", "长/文本.jsonl", "\u00e9.txt", "a b", "-x", ".gitattributes"), *PORTABLE],
)
def test_safe_names(path: str) -> None:
    assert unsafe_reason(path) == ""


@given(st.text(max_size=30))
def test_a_safe_name_stays_below_its_folder(path: str) -> None:
    if unsafe_reason(path) == "":
        root = Path("/root/folder")
        joined = root / path
        assert joined.parts[: len(root.parts)] == root.parts
        assert ".." not in joined.parts
        assert joined.as_posix() == f"{root}/{path}"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("a/b", "a/b", "twice"),
        ("README.md", "readme.md", "upper and lower"),
        ("Data/x", "data/y", "upper and lower"),
        ("stra\u00dfe", "STRASSE", "upper and lower"),
        ("a", "a/b", "is a file"),
        ("a/b", "a", "both a file and a folder"),
    ],
)
def test_paths_that_cannot_lie_side_by_side(first: str, second: str, reason: str) -> None:
    names = PathSet()
    assert names.add(first) == ""
    assert reason in names.add(second)


def test_paths_that_can() -> None:
    names = PathSet()
    assert [names.add(path) for path in ("a/b", "a/c", "ab", "a.b/c")] == [""] * 4


@pytest.mark.parametrize(("name", "fine"), [("long-bench_1.2+x", True), ("", False), (".x", False), ("a/b", False)])
def test_bundle_names(name: str, fine: bool) -> None:
    assert is_bundle_name(name) is fine


@pytest.mark.parametrize("name", ["x.bin", "X.PT", "a/b.pkl", "m.ckpt", "m.pth", "modeling.py", "lib.so", "run.sh"])
def test_unsafe_formats(name: str) -> None:
    assert unsafe_format(name)


@pytest.mark.parametrize(
    "name",
    ["m.safetensors", "m.gguf", "d.parquet", "d.jsonl", "d.json", "t.txt", "tokenizer.model", "d.zip", "LICENSE"],
)
def test_safe_formats(name: str) -> None:
    assert unsafe_format(name) == ""


def inside(name: str, content: bytes) -> UnsafeContent | None:
    return find_unsafe_content(name, len(content), io.BytesIO(content)) if needs_content_check(name) else None


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"auto_map": {"AutoConfig": "configuration_x.C"}}, True),
        ({"text_config": {"auto_map": {}}}, True),
        ({"model_type": "llama", "note": "auto_map"}, False),
        ([], False),
    ],
)
def test_configurations_that_name_code(content: object, found: bool) -> None:
    written = json.dumps(content).encode()
    assert (inside("config.json", written) is NAMES_CODE) is found
    assert (inside("deep/tokenizer_config.json", written) is NAMES_CODE) is found
    assert inside("data.json", written) is None


def test_a_broken_configuration_names_no_code() -> None:
    assert inside("config.json", b"{" * 100_000) is None


@pytest.mark.parametrize("content", [b'{"auto_map": {}, "a": "' + b" " * (16 << 20) + b'"}', b'{"a":' * 100_000])
def test_a_configuration_that_cannot_be_looked_through_is_unsafe(content: bytes) -> None:
    unsafe = inside("config.json", content)
    assert unsafe is not None and "to be checked" in unsafe.reason and unsafe.can_allow


def test_a_zip_bomb_is_never_let_through() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.jsonl", bytes(20 << 20))
    unsafe = inside("data.zip", packed.getvalue())
    assert unsafe is not None and not unsafe.can_allow
