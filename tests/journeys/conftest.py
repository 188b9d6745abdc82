"""All families in one real bundle, made by the commands themselves from a hub on loopback, and models to ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.backends.endpoint_servers import Answer, ScriptedServer
from tests.bundle.hubserver import serve
from tests.command_line import Lbx
from tests.journeys.asking import PARTS, Asking
from tests.journeys.made_families import FAMILIES, kind, write_hub

Once = Callable[[str, Callable[[Path], object]], Path]
RECIPES = ("longbench", "longbench_v2", "longbench_pro", "lveval", "leval")


@pytest.fixture(scope="session")
def world(shared: Callable[[str], Path], once: Once, upstreams: list[Path]) -> Path:
    """bundle/, which ``lbx bundle`` and ``lbx unpack`` made; FAMILY.json, a model of each family's answers."""
    shared("data")

    def make(folder: Path) -> None:
        lbx, families = Lbx(), {name: made(shared) for name, made in FAMILIES.items()}
        write_hub(folder / "hub", families.values())
        for name, made in families.items():
            (folder / f"{name}.json").write_text(json.dumps(made.answers))
        with serve(folder / "hub", upstreams) as hub:
            recipes = [Path("bundle") / f"{name}.toml" for name in RECIPES]
            _run(
                lbx, "bundle", *recipes, "--bundle-name", "all", "--hub", hub.url, "--mirror", hub.mirror, "-o", folder
            )
        _run(lbx, "verify", "--allow-unsigned", folder / "all.tar")
        _run(lbx, "unpack", "--allow-unsigned", folder / "all.tar", "--to", folder / "bundle")

    return once("journeys", make)


def _run(lbx: Lbx, *arguments: object) -> None:
    done = lbx(*arguments)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def embedding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An embedding model on loopback: its vectors tell two kinds of texts apart."""

    def answer(path: str, payload: Any, _: int) -> Answer:
        if payload is None:
            return (200, {}, {"data": [{"id": "kinds"}]}) if path == "/v1/models" else (404, {}, {})
        vectors = [[float(kind(text)), float(not kind(text))] for text in payload["input"]]
        return 200, {}, {"data": [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]}

    server = ScriptedServer(answer)
    card = tmp_path_factory.mktemp("embedding") / "kinds.toml"
    card.write_text(f'backend = "endpoint_embedding"\n[options]\nurl = "{server.url}"\n')
    yield card
    server.close()


@pytest.fixture
def whole(family: str, world: Path, embedding: Path) -> Asking:
    """All tasks of the family."""
    more = ["--embedding", embedding] if family == "longbench_pro" else []
    return Asking(Lbx(), world / "bundle", family, world / f"{family}.json", more)


@pytest.fixture
def part(family: str, whole: Asking) -> Asking:
    """Some of its tasks."""
    return replace(whole, tasks=PARTS[family])


@pytest.fixture
def asked_whole(family: str, whole: Asking, once: Once) -> Path:
    """A file in which the whole family was asked without any ado. Only to read."""
    return once(f"journeys-{family}", lambda folder: whole(folder / "whole.duckdb")) / "whole.duckdb"


@pytest.fixture
def asked_part(family: str, part: Asking, once: Once) -> Path:
    """The same of the tasks of ``part``."""
    return once(f"journeys-{family}-part", lambda folder: part(folder / "part.duckdb")) / "part.duckdb"
