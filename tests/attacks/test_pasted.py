"""Commands that messages show, to be pasted into a shell: they say what was meant, whatever a file is called."""

from __future__ import annotations

import ast
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.visible import as_command, one_line
from lbx.web import SiteSocket
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import inside_folder, lbx, results_file

LBX = Path(__file__).parents[2] / "lbx"
PROGRAMS = ("lbx", "ssh", "ssh-keygen", "jq", "kubectl", "podman", "gunzip", "pip", "sbatch", "scancel", "rm", "tar")
WITHIN = re.compile(rf"(?:^|[`:;,.(] ?)(?:{'|'.join(PROGRAMS)}) [^`;,:(]*$")
"""The text before a value that stands in a command."""
PROSE = ("ssh-keygen could not sign with",)
SCRIPTS = ("cluster/scheduler.py", "cluster/schedulers.py", "cluster/scheduler.py")
"""What they make is no message: scripts, each of whose values has its own rule there."""


def unquoted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Values that stand as they are in the midst of a command."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            before = ""
            for part in node.values:
                if isinstance(part, ast.Constant):
                    before += str(part.value)
                elif isinstance(part, ast.FormattedValue):
                    if (found := WITHIN.search(before)) and not is_safe(part) and not found[0].startswith(PROSE):
                        yield node.lineno, ast.unparse(node)
                    before += "VALUE"
        if isinstance(node, ast.keyword) and node.arg == "command" and not is_command(node.value):
            yield node.value.lineno, ast.unparse(node)


def is_safe(part: ast.FormattedValue) -> bool:
    """Words that were quoted, and constants of lbx's own."""
    called = isinstance(part.value, ast.Call) and getattr(part.value.func, "id", "") == "as_command"
    return called or (isinstance(part.value, ast.Name) and (part.value.id.isupper() or part.value.id == "__version__"))


def is_command(value: ast.expr) -> bool:
    """A text of lbx's own, whole or with what was quoted; a name is looked at where it is made."""
    match value:
        case ast.JoinedStr(parts):
            return all(is_safe(part) for part in parts if isinstance(part, ast.FormattedValue))
        case ast.IfExp(_, one, other):
            return is_command(one) and is_command(other)
        case ast.Call(ast.Name("as_command")):
            return True
    return isinstance(value, ast.Constant | ast.Name | ast.Attribute)


def test_no_message_puts_a_name_into_a_command_by_hand() -> None:
    places = [
        f"{path.relative_to(LBX)}:{line}: {text}"
        for path in sorted(LBX.rglob("*.py"))
        if str(path.relative_to(LBX)) not in SCRIPTS
        for line, text in unquoted(ast.parse(path.read_text("utf-8")))
    ]
    assert not places, "\n".join(places)


def typed(line: str, folder: Path) -> list[str]:
    """The words that a shell makes of a pasted line, its programs' arguments included, run in an empty folder."""
    programs = "".join(f"{name}() {{ printf '%s\\0' {name} \"$@\"; }}; " for name in PROGRAMS if "-" not in name)
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{programs}{line}"], cwd=folder, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, (line, done.stderr)
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=())), max_size=4))
def test_any_words_come_back_as_they_were(words: list[str]) -> None:
    words = [word for word in words if can_be_an_argument(word)]
    line = as_command("lbx", *words)
    assert one_line(line) == line, "what is copied is what was meant"
    assert [*map(os.fsdecode, map(os.fsencode, typed(line, Path("/"))))] == ["lbx", *words]
    if "$'" not in line:
        assert shlex.split(line) == ["lbx", *words]


def can_be_an_argument(word: str) -> bool:
    try:
        return os.fsdecode(os.fsencode(word)) == word
    except UnicodeEncodeError:
        return False


@given(st.text(st.characters(exclude_characters="\0/", exclude_categories=("Cs",)), min_size=1, max_size=20))
def test_any_file_is_a_file_and_no_option(name: str) -> None:
    (word,) = (
        shlex.split(as_command(Path(name)))
        if "$'" not in as_command(Path(name))
        else typed(f"lbx {as_command(Path(name))}", Path("/"))[1:]
    )
    assert not word.startswith("-")
    assert Path(word) == Path(name)


NAMES = {
    "backquotes": "a`touch x`",
    "a substitution": "$(touch x)",
    "a semicolon": "a;touch x;",
    "a pipe": "a|touch x",
    "an ampersand": "a&touch x&",
    "a line": "a\ntouch x\n",
    "a quote": "a'\"b",
    "a dash": "-rf",
    "a home": "~root",
    "a star": "*",
    "an exclamation": "!!",
    "a comment": "#a",
    "an escape": "a\x1b]0;x\x07",
    "a direction": "a\u202eb",
    "bytes": "a\udcffb",
}


def tried(err: str) -> str:
    """The next command of an error."""
    (line,) = [line for line in err.splitlines() if line.startswith("  try: ")]
    return line.removeprefix("  try: ")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return results_file(tmp_path_factory.mktemp("made") / "made.duckdb").read_bytes()


@pytest.mark.parametrize("what", NAMES)
def test_a_file_s_name_writes_no_command(made: bytes, tmp_path: Path, what: str) -> None:
    name, empty = NAMES[what], tmp_path / "empty"
    empty.mkdir()
    with inside_folder(tmp_path):
        file, packed, listed = Path(f"{name}.duckdb"), Path(f"{name}.jsonl"), Path(f"{name}.list.jsonl")
        file.write_bytes(made)
        packed.write_bytes(b"\x1f\x8b" + bytes(20))
        listed.write_text("[]")
        bundle = Path(f"{name}.folder")
        for command, meant in (
            (["rate", file, "--journal", "j"], ["lbx", "rate", file]),
            (["import", "longbench", packed, "--model-name", "m", "-o", "new.duckdb"], ["gunzip", packed]),
            (["import", "longbench", listed, "--model-name", "m", "-o", "new.duckdb"], ["jq", "-c", ".[]", listed]),
            (["annotate", listed], ["jq", "-c", ".[]", listed]),
            (["tasks", "--bundle", bundle], ["lbx", "unpack", "NAME.tar", "--to", bundle]),
        ):
            dashed = [f"./{one}" if isinstance(one, Path) and str(one).startswith("-") else one for one in command]
            said = lbx(*dashed)
            refused(said)
            line = tried(said.err).partition(" > ")[0]
            words = typed(line, empty)[: len(meant)]
            wanted = [f"./{one}" if isinstance(one, Path) and str(one).startswith("-") else str(one) for one in meant]
            assert words == wanted, line
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("what", NAMES)
def test_a_tunnel_is_a_tunnel(tmp_path: Path, what: str) -> None:
    """What `--uds` prints, to be pasted on another machine."""
    with socket.socket(socket.AF_UNIX) as held:
        path = tmp_path / f"{NAMES[what]}.sock"
        words = typed(SiteSocket(held, "127.0.0.1", 8765, uds=path).tunnel, tmp_path)
    assert words[:2] == ["ssh", "-L"]
    assert words[2] == f"8765:{path}"
    assert len(words) == 4
    assert list(tmp_path.iterdir()) == []
