"""Draws and prompts of HELMET, equal to those of the authors' code for three tokenizers.

The golden prompts are of made-up rows, each as bare text and in the model's chat template, cut and uncut, and as a
message for a server, uncut. Left out is in-context learning with the labels' names or without balance, which no
category has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lbx.backends.cards import Chat
from lbx.base.errors import EmptyPromptError
from lbx.base.records import SampleKey, Sampling
from lbx.benchmarks.helmet.benchmark import SERVER_MARGIN
from lbx.engine.chat_template import ChatTemplate
from lbx.engine.prompter import Prompter
from lbx.engine.wrapping import Tokenizer
from tests.golden.helmet_draws import FOLDER, SOURCE, MadeData, golden_prompts, read_lines

pytestmark = pytest.mark.skipif(
    not (FOLDER.is_dir() and SOURCE.is_file()), reason="needs the golden prompts in ../shared, which are not here"
)
FOLDERS = {"llama2": "llama2", "llama31": "llama3_1", "qwen3": "qwen3"}
ROOM = 8
"""Tokens of the window beyond the limit, because the authors' cut may leave one token too many."""


def is_compared(case: dict[str, Any]) -> bool:
    return "icl" not in case["dataset"] or case["dataset"].endswith("shot_balance")


CASES = {case["case"]: case for case in read_lines("prompt_cases") if is_compared(case)} if FOLDER.is_dir() else {}
BOOKS = re.compile(r"(narrativeqa|infbench_.*|multi_lexsum)_\d{5,}")
"""Cases with documents of 32,000 tokens and more, which take seconds each."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, ruler_tokenizer: Callable[[str], Path]) -> MadeData:
    return MadeData.unpack(tmp_path_factory.mktemp("helmet"), ruler_tokenizer("llama2"))


@pytest.fixture(scope="module")
def tokenizer(ruler_tokenizer: Callable[[str], Path]) -> Callable[[str], Tokenizer]:
    from lbx.backends.tokenizer_loading import open_tokenizer

    @cache
    def load(name: str) -> Tokenizer:
        return open_tokenizer(ruler_tokenizer(FOLDERS[name]), Chat(), own_template=True, debug=False)[0]

    return load


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=pytest.mark.long if BOOKS.fullmatch(case["dataset"]) else ())
        for number, case in CASES.items()
    ],
)
def test_rows_and_prompts(number: int, made: MadeData, tokenizer: Callable[[str], Tokenizer]) -> None:
    case = CASES[number]
    kind, rows = made.rows(case)
    assert len(rows) == case["rows_after_load"]
    wrong, compared = [], Counter[str]()
    for golden in golden_prompts().get(number, ()):
        row, model = rows[golden["row"]], tokenizer(golden["tokenizer"])
        is_server, is_chat = golden["mode"] == "endpoint", golden["mode"] == "chat"
        if is_chat and model.chat_template is None:
            assert "chat template" in golden["error"]
            continue
        new_tokens = golden.get("generation_max_length", 0) or 20
        limit = golden["input_max_length"] - new_tokens - SERVER_MARGIN * is_server
        values = {**row.fields, "context": row.context, "question": row.question}
        prompt = made.texts.prompt(kind, values, chat=is_chat or is_server, new_tokens=new_tokens)
        window = limit + new_tokens + ROOM
        template = is_chat and ChatTemplate(
            str(model.chat_template), bos_token=model.bos_token, eos_token=model.eos_token
        )
        prompter = Prompter(model, context_window=window, template=template or None, sends_turns=is_server)
        compared["error" if "error" in golden else "prompt"] += 1
        try:
            request = prompter.read(SampleKey("helmet", "t", "0"), replace(prompt, limits={window: limit}), Sampling())
        except EmptyPromptError:
            if "error" not in golden:
                wrong.append(f"{golden['tokenizer']} {golden['mode']} {limit}: refused")
            continue
        if is_server:
            compared["server"] += not (is_cut := request.request.truncated)
            is_equal = sha256(request.text.encode()).hexdigest() == golden["prompt_sha256"]
            if not (is_cut or (is_equal and not golden["truncated"])):
                wrong.append(f"{golden['tokenizer']} server {limit}")
            continue
        got = (sha256(request.text.encode()).hexdigest(), len(request.request.token_ids))
        if "error" in golden or got != (golden["prompt_sha256"], golden["n_tokens"]):
            wrong.append(f"{golden['tokenizer']} {golden['mode']} {limit}: {got} {golden.get('n_tokens')}")
    assert compared["server"] or number != 18
    assert not wrong, f"{len(wrong)} of {compared} differ\n" + "\n".join(wrong[:10])
