"""Tokenizers without the weights: the same tokens as the loaded model, and a hash that quantisations share."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.backends import resolve_model
from lbx.backends.cards import read_card
from lbx.backends.tokenizer_loading import context_window_of, load_tokenizer
from lbx.base.errors import BackendError, UsageError

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
HF = DEMO / "hf"
TEXT = "Three boats left the harbour.\n\n三条船 <s> |user|"


def card_of_server(folder: Path, *lines: str) -> Path:
    card = folder / "server.toml"
    options = 'backend = "endpoint"\n[options]\nurl = "http://127.0.0.1:1/v1"\n'
    card.write_text(options + "\n".join(lines), "utf-8")
    return card


def test_a_folders_tokenizer_needs_no_weights(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    shutil.copytree(HF, tmp_path / "m", ignore=shutil.ignore_patterns("*.safetensors"))
    card = resolve_model(str(tmp_path / "m"))
    tokenizer, sha256, _ = load_tokenizer(card, None)
    assert context_window_of(card, None) == 4096
    server = read_card(card_of_server(tmp_path, "[tokenizer]", 'path = "m"'))
    assert load_tokenizer(server, None).sha256 == sha256
    assert load_tokenizer(server, None).tokenizer.encode(TEXT, special=False) == tokenizer.encode(TEXT, special=False)
    assert context_window_of(server, None) is None


def test_a_token_of_another_file_changes_the_hash(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    shutil.copytree(HF, tmp_path / "m", ignore=shutil.ignore_patterns("*.safetensors"))
    before = load_tokenizer(resolve_model(str(tmp_path / "m")), None)
    config = tmp_path / "m/tokenizer_config.json"
    token = {"content": "needle", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {"99999": {**token, "special": False}}
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), "added_tokens_decoder": added}), "utf-8")
    after = load_tokenizer(resolve_model(str(tmp_path / "m")), None)
    assert before.count("a needle") != after.count("a needle")
    assert before.sha256 != after.sha256


def test_two_quantisations_share_the_hash(demo_gguf: Path, tmp_path: Path) -> None:
    export = [sys.executable, DEMO / "export_gguf.py", "--dtype", "f16", HF, tmp_path / "half.gguf"]
    subprocess.run(export, check=True, capture_output=True)
    full, half = (resolve_model(str(path)) for path in (demo_gguf, tmp_path / "half.gguf"))
    tokenizer, sha256, _ = load_tokenizer(full, None)
    other, other_sha256, _ = load_tokenizer(half, None)
    assert sha256 == other_sha256
    assert tokenizer.encode(TEXT, special=False) == other.encode(TEXT, special=False)
    assert context_window_of(full, None) == 4096


def test_a_table_of_answers_counts_bytes(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text('{"*": "yes"}', "utf-8")
    card = resolve_model(str(tmp_path / "answers.jsonl"))
    assert len(load_tokenizer(card, None).tokenizer.encode("日本", special=False)) == 6
    assert context_window_of(card, None) is None


def test_a_card_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no tokenizer.*\[tokenizer\]"):
        load_tokenizer(read_card(card_of_server(tmp_path)), None)


def _truncated(folder: Path) -> Path:
    (folder / "m.gguf").write_bytes(b"GGUF\3\0\0\0")
    return folder / "m.gguf"


def _growing(folder: Path) -> Path:
    steps = '{"normalizer": {"type": "Prepend", "prepend": "' + "x" * 100_000 + '"}}'
    shutil.copytree(HF, folder / "m")
    (folder / "m" / "tokenizer.json").write_text(steps, "utf-8")
    return folder / "m"


@pytest.mark.parametrize("make", [_truncated, _growing])
def test_a_damaged_tokenizer_is_refused_as_with_the_weights(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    for library in ("transformers", "llama_cpp"):
        pytest.importorskip(library, reason="needs lbx[hf,llama]")
    with pytest.raises(BackendError):
        load_tokenizer(resolve_model(str(make(tmp_path))), None)
