"""Model cards, recipes and what a bundle's own files name: nothing outside is read under the bundle's digest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.attacks.attack_parts import Said, lbx, main, refused
from tests.bundle.forge import FILES, members
from tests.bundle.sealed import seal


def asking(bundle: Path, model: object, folder: Path) -> Said:
    return main("run", "-b", bundle, "-m", model, "-t", "all", "-o", folder / "r.duckdb", "--no-plan")


@pytest.mark.parametrize(
    "commit",
    ["../../../../../secret", "/etc", "..", ".", "", "a/../../b", "0\n1", "x" * 5000, "\udcff", "0 ; 1"],
    ids=ascii,
)
def test_a_ref_that_leads_out_of_the_bundle_is_refused(commit: str, tmp_path: Path) -> None:
    hub = "data/hub/models--org--model"
    text = commit.encode("utf-8", "surrogateescape")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/config.json").write_text("{}")
    sums = seal(tmp_path / "in", members({**FILES, f"{hub}/refs/main": text, f"{hub}/snapshots/0/config.json": b"{}"}))
    assert main("unpack", sums, "--allow-unsigned", "--to", tmp_path / "deep/out").code == 0
    said = asking(tmp_path / "deep/out", "org/model", tmp_path)
    refused(said)
    assert "does not contain a commit" in " ".join(said.err.split()), said


CARDS = {
    "weights of a bundle elsewhere": 'backend = "llamacpp"\n[weights]\nbundle = "../../../secret.gguf"\n',
    "absolute weights of a bundle": 'backend = "llamacpp"\n[weights]\nbundle = "/etc/passwd"\n',
    "a revision elsewhere": 'backend = "hf"\n[weights]\nrepo = "org/model"\nrevision = "../../../../../secret"\n',
    "a file elsewhere": 'backend = "llamacpp"\n[weights]\nbundle = "x"\nfile = "../../../*.gguf"\n',
    "too deep": "x = " + "[" * 20_000 + "]" * 20_000,
    "a number of thousands of digits": "context_window = " + "9" * 100_000,
    "NUL": 'name = "\0"',
    "not UTF-8": "\udcff\udcfe",
    "too large": "#" * (17 << 20),
    "a window of no tokens": 'backend = "llamacpp"\ncontext_window = -1\n[weights]\npath = "x"\n',
    "a template elsewhere": 'backend = "llamacpp"\n[weights]\npath = "x"\n[chat]\ntemplate_file = "/dev/zero/x"\n',
}


@pytest.mark.parametrize("case", CARDS)
def test_a_card_that_leads_astray_is_refused(case: str, small: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.gguf").write_bytes(b"GGUF")
    card = tmp_path / "card.toml"
    card.write_bytes(CARDS[case].encode("utf-8", "surrogateescape"))
    refused(asking(small / "bundle", card, tmp_path))
    refused(main("bundle", card, "-o", tmp_path / "out", "--dry-run"))


def test_a_fifo_in_the_place_of_a_card_or_recipe_is_not_waited_for(small: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "card.toml")
    refused(lbx("bundle", tmp_path / "card.toml", "-o", tmp_path / "out"), "not a regular file")
    model = lbx("run", "-b", small / "bundle", "-m", tmp_path / "card.toml", "-t", "all", "-o", tmp_path / "r")
    refused(model)
