"""A model card stands for a recipe of its weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.bundle import CreateResult, create
from lbx.bundle.making.recipe import load_recipes
from tests.bundle.hubserver import HubServer
from tests.bundle.small_hub import DATASET, FAST

REPOSITORY = Path(__file__).resolve().parents[2]


def write_card(tmp_path: Path, backend: str, weights: str, table: str = "weights", more: str = "") -> Path:
    path = tmp_path / "card.toml"
    path.write_text(f'backend = "{backend}"\nname = "A model, 8B"\n[{table}]\n{weights}\n{more}')
    return path


def names(made: CreateResult) -> list[str]:
    return sorted(
        file["path"].partition("/snapshots/")[2].partition("/")[2]
        for source in made.sources
        for file in source["files"]
        if "/snapshots/" in file["path"]
    )


@pytest.fixture
def model(hub: HubServer) -> Path:
    folder = hub.hub / "models/org/model"
    for name in (
        "pytorch_model.bin",
        "modeling.py",
        "m-Q4_K_M.gguf",
        "m-Q8_0.gguf",
        "tokenizer_config.json",
        "README.md",
    ):
        (folder / name).write_bytes(b"x")
    (folder / "LICENSE").write_text("do what you like")
    return folder


@pytest.mark.parametrize(
    ("backend", "weights", "table", "more", "found"),
    [
        ("llamacpp", 'repo = "org/model"\nfile = "*Q4_K_M*.gguf"', "weights", "", ["LICENSE", "m-Q4_K_M.gguf"]),
        (
            "hf",
            'repo = "org/model"',
            "weights",
            "",
            ["LICENSE", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"],
        ),
        (
            "endpoint",
            'repo = "org/model"',
            "tokenizer",
            '[options]\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\n',
            ["LICENSE", "config.json", "tokenizer.json", "tokenizer_config.json"],
        ),
    ],
)
def test_what_a_card_needs_comes_and_nothing_that_runs(
    hub: HubServer, model: Path, tmp_path: Path, backend: str, weights: str, table: str, more: str, found: list[str]
) -> None:
    made = create([write_card(tmp_path, backend, weights, table, more)], tmp_path / "out", hub=hub.url, retry=FAST)
    assert made.name == "A-model-8B"
    assert names(made) == found


def test_a_card_and_a_recipe_make_one_bundle(
    hub: HubServer, model: Path, recipe: Callable[..., Path], tmp_path: Path
) -> None:
    card = write_card(tmp_path, "llamacpp", 'repo = "org/model"\nfile = "*Q8_0*"')
    made = create([recipe(DATASET), card], tmp_path / "out", name="both", hub=hub.url, retry=FAST)
    assert "m-Q8_0.gguf" in names(made)
    assert "a.jsonl" in names(made)


def test_a_card_of_local_weights_has_nothing_to_fetch(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\[weights\] does not name a hub repository"):
        load_recipes([write_card(tmp_path, "llamacpp", 'path = "m.gguf"')])


def test_the_cards_of_this_repository_that_name_a_repository_load() -> None:
    loaded = [load_recipes([path]).sources for path in sorted((REPOSITORY / "models").glob("qwen3-embedding*.toml"))]
    assert {source.key for sources in loaded for source in sources} == {
        "model Qwen/Qwen3-Embedding-8B",
        "model Qwen/Qwen3-Embedding-8B-GGUF",
    }
