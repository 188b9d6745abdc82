"""Authors' Python files, of which lbx reads the literals, and names of homes: deep, endless, nobody's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.backends import resolve_model
from lbx.backends.cards import window_of
from lbx.backends.headers import declared_window
from lbx.base.errors import BackendError, BundleError
from lbx.base.inputs import expand_user
from lbx.benchmarks.base.sources import assigned_texts, read_literals
from tests.attacks.attack_parts import refused
from tests.attacks.results_parts import lbx


def test_a_sum_of_many_is_read() -> None:
    text = "a = " + " + ".join(f"'{at}'" for at in range(1200))
    assert assigned_texts(text, "x.py", "a") == ["".join(map(str, range(1200)))]


DEEP = {
    "a deep f-string": "a = f'{" + "(" * 150 + "x" + ")" * 150 + ".b" * 1200 + "}'",
    "a sum in an f-string": "a = f'{" + " + ".join(["x"] * 1200) + "}'",
    "a deep list": "a = " + "[" * 80 + "]" * 80,
    "signs": "a = " + "-" * 1200 + "1",
    "brackets to the right": "a = 'x'" + " + ('x'" * 90 + ")" * 90,
    "attributes": "a = x" + ".y" * 1200,
}


@pytest.mark.parametrize("what", DEEP)
def test_deep_python_is_read_or_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "x.py"
    path.write_text(DEEP[what])
    for read in (lambda: assigned_texts(DEEP[what], "x.py", "a"), lambda: read_literals(path, ("a",))):
        try:
            read()
        except BundleError as exc:
            assert "x.py" in exc.cause


@given(st.lists(st.tuples(st.text(max_size=4), st.booleans()), min_size=1, max_size=12))
def test_any_sum_of_texts_is_what_python_makes_of_it(parts: list[tuple[str, bool]]) -> None:
    source = ""
    for text, bracketed in parts:
        source = f"{text!r}" if not source else f"({source}) + {text!r}" if bracketed else f"{text!r} + ({source})"
    assert assigned_texts(f"a = {source}", "x.py", "a") == [eval(source)]


@pytest.mark.parametrize("value", [-1, 0, 1.5, "5", True])
def test_a_window_that_is_no_number_of_tokens_is_not_read(tmp_path: Path, value: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": value}))
    assert declared_window(tmp_path) is None


@pytest.mark.parametrize("value", [10**12, 2**70])
def test_a_window_that_no_model_has_is_refused(tmp_path: Path, value: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": value}))
    with pytest.raises(BackendError, match="more than any model has"):
        window_of(resolve_model(str(tmp_path)), declared_window(tmp_path))


def test_nobody_s_home_is_a_name_like_any_other(tmp_path: Path) -> None:
    name = "~nobody-of-that-name/x.toml"
    assert expand_user(Path(name)) == Path(name)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"lbx_run": 1, "bundle": str(tmp_path), "model": name, "tasks": ["all"]}))
    (tmp_path / "bundle").mkdir()
    refused(lbx("run", "--spec", spec, "-o", tmp_path / "r.duckdb"))
    refused(lbx("run", "-b", tmp_path, "-m", name, "-t", "all", "-o", tmp_path / "r.duckdb"))
    refused(lbx("run", "-b", tmp_path, "-m", name, "-t", "all", "--ids", f"@{name}", "-o", tmp_path / "r.duckdb"))
    card = tmp_path / "card.toml"
    card.write_text(f'backend = "hf"\n[weights]\npath = "{name}"\n')
    refused(lbx("run", "-b", tmp_path, "-m", card, "-t", "all", "-o", tmp_path / "r.duckdb"))
