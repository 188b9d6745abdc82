"""The way back across the gap: inside asks, outside answers, inside grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hubserver import HubServer
from small_hub import DATASET, FAST, MODEL
from test_create import PROMPT
from test_delta import change, packed
from test_local_sources import path_source

from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.bundle import CreateResult, create, unpack, verify_folder, write_request
from lbx.bundle.making.request import read_request

Make = Callable[..., CreateResult]
Recipe = Callable[..., Path]


@pytest.fixture
def held(bundle: Make, tmp_path: Path) -> Path:
    """What is inside: the dataset, and a file that exists nowhere else."""
    (tmp_path / "own.txt").write_text("ours")
    text = DATASET + path_source("own.txt", to="own/own.txt", licence="ours")
    return unpack(bundle(text, out="first").archive, tmp_path / "held").root


def answer(request: Path, hub: HubServer, out: Path) -> CreateResult:
    return create([request], out, hub=hub.url, mirror=hub.mirror, retry=FAST)


def test_a_request_is_answered_by_a_delta_that_the_bundle_grows_with(
    hub: HubServer, recipe: Recipe, held: Path, tmp_path: Path
) -> None:
    own = path_source("own.txt", to="own/own.txt", licence="ours")
    hub.log.clear()
    asked = write_request([recipe(DATASET + MODEL + PROMPT + own)], tmp_path / "wanted.json", have=held)
    assert hub.log == []  # made inside: nobody is called
    assert {line.source: line.state for line in asked.asked} == {
        "dataset org/data": "held, may have moved",
        "model org/model": "missing",
        "owner/repo/prompt.txt": "missing",
        "own/own.txt": "held",
    }
    assert (asked.base, asked.base_digest) == ("demo", Bundle(held).digest)
    change(hub)
    (tmp_path / "own.txt").unlink()  # the other side has no such file
    made = answer(tmp_path / "wanted.json", hub, tmp_path / "answer")
    assert sorted(name.rpartition("/")[2] for name in packed(made.archive)) == sorted(
        ["main", "a.jsonl", "main", "config.json", "model.safetensors", "tokenizer.json", "prompt.txt"]
    )
    grown = Bundle(unpack(made.archive, tmp_path / "grown", base=held).root)
    assert verify_folder(grown.root).digest == made.digest
    own_file, prompt, model = (
        grown.file("own/own.txt"),
        grown.file("owner/repo/prompt.txt"),
        grown.snapshot("model", "org/model"),
    )
    assert own_file is not None
    assert prompt is not None
    assert model is not None
    assert own_file.read_text() == "ours"
    assert [source["licence"] for source in grown.description["sources"]] == ["mit", "mit", "MIT", "ours"]


def test_a_model_card_is_enough_to_ask(hub: HubServer, held: Path, tmp_path: Path) -> None:
    (hub.hub / "models/org/model/m-Q4_K_M.gguf").write_bytes(b"GGUF4")
    (hub.hub / "models/org/model/m-Q8_0.gguf").write_bytes(b"GGUF8")
    card = tmp_path / "card.toml"
    card.write_text('backend = "llamacpp"\nname = "My model"\n[weights]\nrepo = "org/model"\nfile = "*Q4_K_M*.gguf"\n')
    write_request([card], tmp_path / "wanted.json", have=held)
    made = answer(tmp_path / "wanted.json", hub, tmp_path / "answer")
    assert made.name == "My-model"
    assert [path.rpartition("/")[2] for path in (file["path"] for file in made.sources[0]["files"])] == [
        "main",
        "m-Q4_K_M.gguf",
    ]


def test_nothing_held_is_asked_for_whole(hub: HubServer, recipe: Recipe, tmp_path: Path) -> None:
    asked = write_request([recipe(DATASET)], tmp_path / "wanted.json")
    assert [(line.state, asked.base) for line in asked.asked] == [("missing", "")]
    whole = create([recipe(DATASET)], tmp_path / "whole", hub=hub.url, retry=FAST)
    assert answer(tmp_path / "wanted.json", hub, tmp_path / "answer").archive.read_bytes() == whole.archive.read_bytes()


def test_nothing_missing_is_said(bundle: Make, recipe: Recipe, tmp_path: Path) -> None:
    root = unpack(bundle(PROMPT, out="first").archive, tmp_path / "held").root
    with pytest.raises(UsageError, match="No request is needed"):
        write_request([recipe(PROMPT)], tmp_path / "wanted.json", have=root)


def test_a_file_of_the_inside_alone_cannot_be_asked_for(recipe: Recipe, held: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("new")
    with pytest.raises(UsageError, match=r"is a local file \(new\.txt\)"):
        write_request([recipe(DATASET + path_source("new.txt", to="new.txt"))], tmp_path / "w.json", have=held)


def forged(tmp_path: Path, recipe: Recipe, held: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    file = tmp_path / "wanted.json"
    own = path_source("own.txt", to="own/own.txt", licence="ours")
    write_request([recipe(DATASET + own + MODEL)], file, have=held)
    table = json.loads(file.read_text())
    change(table)
    file.write_text(json.dumps(table))
    return file


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda t: t["source"].append({"kind": "path", "path": "/etc/passwd", "to": "x"}), "source of kind 'path'"),
        (lambda t: t["source"].append({"kind": "image", "path": "/etc/passwd"}), "source of kind 'image'"),
        (lambda t: t["source"].append("hub"), "is not a table"),
        (lambda t: t["source"][0].update(repo="../../x"), "not a repository name"),
        (
            lambda t: t["keep"][0]["files"].append({"path": "data/files/x", "size": 1, "sha256": "0" * 64}),
            "does not contain",
        ),
        (lambda t: t["keep"].append(7), "a source under `keep` is not valid"),
        (lambda t: t["base"].update(sources=[{"files": [{"path": "/x", "size": 1, "sha256": ""}]}]), "absolute"),
        (lambda t: t["base"].update(sources=7), "does not describe a bundle"),
        (lambda t: t.update(version=99), "version 99"),
        (lambda t: t.update(format="else"), "is not a request"),
        (lambda t: t.update(name="../x"), "is not a valid bundle name"),
    ],
)
def test_a_request_that_asks_for_more_than_it_may_is_refused(
    recipe: Recipe, held: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object], cause: str
) -> None:
    with pytest.raises(UsageError, match=cause):
        read_request(forged(tmp_path, recipe, held, change))


def test_a_request_is_answered_alone(recipe: Recipe, tmp_path: Path) -> None:
    write_request([recipe(DATASET)], tmp_path / "wanted.json")
    with pytest.raises(UsageError, match="answers only one request at a time"):
        create([tmp_path / "wanted.json", recipe(MODEL, "other")], tmp_path / "out", retry=FAST)
    with pytest.raises(UsageError, match=r"a \.json file"):
        write_request([recipe(DATASET)], tmp_path / "wanted.txt")
