"""``just test`` asks what the README promises, and CI asks the rest: no test is asked nowhere."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests import promises

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("promise", "long", "slurm", "image", "install")


@pytest.mark.parametrize("place", [place for places in promises.PROMISES.values() for place in places])
def test_a_place_has_tests(place: str) -> None:
    """A file or test that was renamed, or left out for good, does not take its promise along in silence."""
    path, _, name = place.partition("::")
    files = [ROOT / path] if path.endswith(".py") else sorted((ROOT / path).rglob("test_*.py"))
    assert re.search(rf"^def {name or 'test_'}", "".join(file.read_text("utf-8") for file in files), re.MULTILINE)


def test_every_promise_of_the_readme_has_places() -> None:
    promised = re.findall(r"^- \*\*(.+?)\.\*\*", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert promised
    assert set(promised) <= promises.PROMISES.keys()


def test_a_place_is_a_whole_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "PROMISES", {"one": ("tests/a", "tests/b.py"), "two": ("tests/c.py::test_d",)})
    inside = ("tests/a/test_x.py::test_y", "tests/b.py::test_y[1]", "tests/c.py::test_d", "tests/c.py::test_d[1]")
    outside = ("tests/ab/test_x.py::test_y", "tests/b.pyc::test_y", "tests/c.py::test_da", "tests/c.py::test_e")
    assert [test for test in (*inside, *outside) if promises.proves(test)] == list(inside)
    files = ("tests/a/test_x.py", "tests/b.py", "tests/c.py", "tests/ab/test_x.py", "tests/d.py")
    assert [file for file in files if promises.in_file(file)] == ["tests/a/test_x.py", "tests/b.py", "tests/c.py"]


def test_what_just_test_leaves_out_ci_asks() -> None:
    """Whatever marks a test has; but those marked long, of which each says what CI asks in its place."""
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert any(line.startswith(".venv/bin/just test ") for line in lines)
    recipe = re.search(r"^test \*args: .*\n.* pytest .*\n", (ROOT / "Justfile").read_text("utf-8"), re.MULTILINE)
    assert recipe is not None
    chosen = [Expression.compile(_marks(line)) for line in (recipe[0], *lines) if "test" in line and "-m" in line]
    assert len(chosen) == 4
    for count in range(len(MARKS) + 1):
        for marks in itertools.combinations(MARKS, count):
            asked = any(one.evaluate(lambda name, marks=marks, **_: name in marks) for one in chosen)
            assert asked or "long" in marks, marks


def _marks(line: str) -> str:
    """The marks by which a line chooses tests."""
    chosen = re.search(r"-m ?(?:'(.+?)'|(\w+))", line)
    assert chosen is not None, line
    return chosen[1] or chosen[2]
