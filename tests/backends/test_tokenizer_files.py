"""What a model's folder says of its tokenizer holds, whatever class transformers reads it with."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from lbx.backends.cards import Chat
from lbx.backends.tokenizer_loading import open_tokenizer
from tests.backends.vocabularies import SENTENCES, make_byte_level, make_sentencepiece

tokenizers = pytest.importorskip("tokenizers", reason="needs lbx[hf]")
for library in ("transformers", "gguf"):
    pytest.importorskip(library, reason="needs lbx[hf,dev]")

TEXTS = (*SENTENCES, " a  space\n\n", "they'll use HARBOURS 123456", "a</s>b</s> c")


def rewrite(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), "utf-8")


def load(folder: Path) -> Any:
    return open_tokenizer(folder, Chat(), own_template=True, debug=False)[0]


def written(folder: Path) -> Any:
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture
def byte_level(tmp_path: Path) -> Path:
    with contextlib.redirect_stderr(io.StringIO()):
        return make_byte_level(tmp_path).folder


@pytest.fixture
def sentencepiece(tmp_path: Path) -> Path:
    with contextlib.redirect_stderr(io.StringIO()):
        return make_sentencepiece(tmp_path).folder


def assert_reads_as_written(folder: Path) -> None:
    tokenizer, file = load(folder), written(folder)
    for text in TEXTS:
        assert tokenizer.encode(text, special=True) == file.encode(text, add_special_tokens=False).ids, text
    assert (tokenizer.bos_id, tokenizer.bos_token, tokenizer.eos_token) == (file.token_to_id("<s>"), "<s>", "</s>")


def test_a_class_adds_no_space_that_the_file_does_not_ask_for(sentencepiece: Path) -> None:
    """As for Yi."""
    normalizer = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    rewrite(sentencepiece / "tokenizer.json", pre_tokenizer=None, normalizer=normalizer)
    rewrite(sentencepiece / "tokenizer_config.json", tokenizer_class="LlamaTokenizer", add_bos_token=False)
    assert_reads_as_written(sentencepiece)
    assert load(sentencepiece).prefix_ids == ()


def test_a_class_splits_words_as_the_file_says(byte_level: Path) -> None:
    """As for GPT-4, whose folder names GPT-2's class."""
    table = json.loads((byte_level / "tokenizer.json").read_text("utf-8"))
    split = {"type": "Split", "pattern": {"Regex": r"\p{N}{1,3}|\s+|\w"}, "behavior": "Isolated", "invert": False}
    before = {"type": "Sequence", "pretokenizers": [split, table["pre_tokenizer"] | {"use_regex": False}]}
    rewrite(byte_level / "tokenizer.json", pre_tokenizer=before)
    rewrite(byte_level / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
    assert_reads_as_written(byte_level)


@pytest.mark.parametrize(
    ("tokenizer_class", "in_file", "declared", "prefix"),
    [
        ("LlamaTokenizerFast", False, True, (0,)),  # DeepSeek
        ("PreTrainedTokenizerFast", False, True, (0,)),
        ("LlamaTokenizerFast", True, False, ()),
        ("PreTrainedTokenizerFast", True, False, (0,)),  # ignored the declaration in every version
        ("LlamaTokenizerFast", True, True, (0,)),
        ("LlamaTokenizerFast", False, None, ()),
    ],
)
def test_a_text_has_the_declared_bos(
    byte_level: Path, tokenizer_class: str, in_file: bool, declared: bool | None, prefix: tuple[int, ...]
) -> None:
    if not in_file:
        rewrite(byte_level / "tokenizer.json", post_processor=None)
    config = {} if declared is None else {"add_bos_token": declared}
    rewrite(byte_level / "tokenizer_config.json", tokenizer_class=tokenizer_class, **config)
    assert load(byte_level).prefix_ids == prefix
    assert_reads_as_written(byte_level)
