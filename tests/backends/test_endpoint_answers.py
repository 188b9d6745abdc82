"""What is made of a server's answer is what the decode loop makes of the same tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lbx.backends.cards import Chat
from lbx.backends.endpoint.answers import Reply, make_completion, read_reply, stopped_early
from lbx.backends.endpoint.tokenizer import CharacterTokenizer, PromptText
from lbx.backends.scripted import EOS, ByteTokenizer
from lbx.backends.tokenizer_loading import open_tokenizer
from lbx.base.errors import BackendError
from lbx.base.records import Request, SampleKey
from lbx.engine.decoding import Decoding
from tests.backends.endpoint_servers import DEMO

PIECES = st.lists(st.sampled_from(["<think>", "</think>", "a", "b", " ", "\n", "是", "<thi"]), max_size=12).map("".join)
STOPS = st.sampled_from([(), ("\n",), ("b",), ("\n", "ab"), ("是",)])


def request(**changes: Any) -> Request:
    return Request(SampleKey("t", "t", "1"), (97,), **({"max_new_tokens": 1000} | changes))


def reply(text: str, finish: str = "stop", **changes: Any) -> Reply:
    plain = {"reasoning": None, "prompt_tokens": 1, "output_tokens": None, "reasoning_tokens": None, "model": None}
    return Reply(
        text=text, finish_reason=finish, **(plain | {"cached_tokens": None, "prefill_s": 0, "decode_s": 0} | changes)
    )


@given(PIECES, STOPS, st.booleans(), st.integers(0, 2))
@example("<think>\n</think>\nab\n", ("\n",), False, 1)
@example("a\n</think>", ("\n",), False, 0)
@example("a<think></think>ab", ("b",), False, 2)
@example("是<think></think>", ("是",), False, 1)
def test_the_decode_loop_says_the_same(text: str, stop: tuple[str, ...], opened: bool, least: int) -> None:
    asked, tokenizer = request(stop=stop, opens_reasoning=opened, min_new_tokens=least), ByteTokenizer()
    decoding = Decoding(asked, tokenizer, (EOS,))
    for token in (*text.encode(), EOS):
        if not decoding.push(token):
            break
    wanted = decoding.completion()
    found = make_completion(asked, reply(text), tokenizer, drops_first_space=False)
    for name in ("text", "reasoning", "reasoning_closed", "finish_reason", "stop_in_reasoning"):
        assert getattr(found, name) == getattr(wanted, name), name


@given(PIECES, STOPS)
@example("a<think></think>\n<think>", ("\n",))
def test_a_stop_string_that_was_sent_changes_nothing_or_is_found_out(text: str, stop: tuple[str, ...]) -> None:
    asked, tokenizer = request(stop=stop), ByteTokenizer()
    places = [at for one in stop if (at := text.find(one)) >= 0]
    cut = reply(text[: min(places)] if places else text)
    if stopped_early(asked, cut, tokenizer):
        return  # it is asked again without
    whole = make_completion(asked, reply(text), tokenizer, drops_first_space=False)
    found = make_completion(asked, cut, tokenizer, drops_first_space=False)
    if whole.reasoning is not None and found.reasoning is None:
        # Words, a stop string, and a closing mark far behind it: whoever sends the stop string never sees the mark.
        assert text[: min(places)].strip()
        return
    assert (found.text, found.reasoning, found.reasoning_closed) == (
        whole.text,
        whole.reasoning,
        whole.reasoning_closed,
    )


def test_counts_come_from_the_server_and_else_from_the_tokenizer() -> None:
    said = make_completion(
        request(), reply("<think>ab</think>c", output_tokens=9), ByteTokenizer(), drops_first_space=False
    )
    assert (said.output_tokens, said.reasoning_tokens) == (9, 2)
    said = make_completion(request(), reply("abc"), CharacterTokenizer(), drops_first_space=False)
    assert (said.output_tokens, said.reasoning_tokens) == (None, 0), "characters are no tokens"
    said = make_completion(request(), reply("<think>ab</think>c"), CharacterTokenizer(), drops_first_space=False)
    assert (said.output_tokens, said.reasoning_tokens) == (None, None)
    said = make_completion(
        request(), reply("c", reasoning="ab", reasoning_tokens=7), ByteTokenizer(), drops_first_space=False
    )
    assert (said.reasoning, said.reasoning_tokens) == ("ab", 7)


def test_what_is_read_of_an_answer() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
    found = read_reply({"choices": [{"text": "x", "finish_reason": None}], "usage": usage}, 1.5)
    assert (found.text, found.finish_reason, found.cached_tokens, found.decode_s) == ("x", "stop", 4, 1.5)
    assert read_reply({"choices": [{"text": "x", "finish_reason": "length"}], "usage": None}, 0).prompt_tokens is None
    wrong = {"prompt_ms": None, "predicted_ms": 1}, {"prompt_ms": 1, "predicted_ms": math.nan}
    for timings in (*wrong, {"prompt_ms": 10**400, "predicted_ms": 1}, {"prompt_ms": "1", "predicted_ms": 1}):
        found = read_reply({"choices": [{"text": "x"}], "timings": timings}, 1.5)
        assert (found.prefill_s, found.decode_s) == (0, 1.5)
    timings = {"prompt_ms": 500, "predicted_ms": 250.0}
    found = read_reply({"choices": [{"text": "x"}], "timings": timings, "usage": {"completion_tokens": 1 << 31}}, 1.5)
    assert (found.prefill_s, found.decode_s, found.output_tokens) == (0.5, 0.25, None)
    for broken in ({}, {"choices": None}, {"choices": ["x"]}, {"choices": [{"text": 3}]}):
        with pytest.raises(BackendError):
            read_reply(broken, 0)


@pytest.mark.parametrize("count", [0, -1, 743.0, "743", True, None, 1 << 40])
def test_a_count_that_is_none_is_unknown(count: object) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count}
    found = read_reply({"choices": [{"text": "x"}], "usage": usage}, 0)
    assert (found.prompt_tokens, found.output_tokens) == (None, None)


@pytest.mark.parametrize(("finish", "tokens", "read"), [(None, 8, "length"), ("", 8, "length"), (None, 7, "stop")])
def test_an_answer_without_a_finish_reason_that_filled_its_budget_was_cut(
    finish: object, tokens: int, read: str
) -> None:
    body = {"choices": [{"text": "x", "finish_reason": finish}], "usage": {"completion_tokens": tokens}}
    assert read_reply(body, 0, budget=8).finish_reason == read


@pytest.mark.parametrize("model", [None, "", 3, ["m"], "m" * 1000])
def test_the_name_of_the_served_model(model: object) -> None:
    found = read_reply({"choices": [{"text": "x"}], "model": model}, 0).model
    assert found == ("m" * 500 if isinstance(model, str) and model else None)


@pytest.mark.parametrize(("text", "ends"), [("\nfoo", True), ("  \nfoo", True), ("", False), ("foo", False)])
def test_whether_a_stop_string_ended_the_answer(text: str, ends: bool) -> None:
    said = make_completion(request(stop=("\n",)), reply(text), ByteTokenizer(), drops_first_space=False)
    assert said.ended_by_stop == ends


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tokenizer that puts a space before a text and drops it when decoding, as Llama 2's."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs lbx[hf]")
    transformers = pytest.importorskip("transformers", reason="needs lbx[hf]")
    characters = ["▁", *"abcdefghijklmnopqrstuvwxyz.,</>"]
    vocab = {token: number for number, token in enumerate(["<unk>", "<s>", "</s>", *characters, "▁a", "▁the"])}
    merges = [("▁", "a"), ("t", "h"), ("th", "e"), ("▁", "the")]
    vocab |= {token: len(vocab) + n for n, token in enumerate(["th", "the"])}
    raw = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    raw.decoder = tokenizers.decoders.Metaspace(prepend_scheme="first", split=False)
    folder = tmp_path_factory.mktemp("spm")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    fast.save_pretrained(folder)
    return open_tokenizer(folder, Chat(), own_template=True, debug=False)[0]


@pytest.fixture(scope="module")
def demo() -> Any:
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    return open_tokenizer(DEMO / "hf", Chat(), own_template=True, debug=False)[0]


def test_which_tokenizers_drop_the_first_space(sentencepiece: Any, demo: Any) -> None:
    assert PromptText(sentencepiece).drops_first_space
    assert not PromptText(demo).drops_first_space
    assert not PromptText(CharacterTokenizer()).drops_first_space
    said = make_completion(request(), reply(" the boat"), sentencepiece, drops_first_space=True)
    assert said.text == "the boat"


@pytest.mark.parametrize("name", ["sentencepiece", "demo"])
def test_ids_as_text_and_back(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer = request.getfixturevalue(name)
    prompts = PromptText(tokenizer)
    for text in ("the boat", " the boat.", "a, the  a", ""):
        ids = tokenizer.encode(text, special=False)
        found = prompts.find_text(ids, special=True)
        assert found is not None
        assert found.strip() == text.strip(), "a leading space may be one that the tokenizer adds itself"
    spelled = tokenizer.encode("the </s> a", special=False)
    assert prompts.find_text(spelled, special=True) is None, "read as text, it would end the sequence"
    assert prompts.find_text(spelled, special=False) == "the </s> a"
    wrapped = tokenizer.encode("<s>the boat</s>", special=True)
    assert prompts.find_text(wrapped, special=True) == "<s>the boat</s>"
    assert prompts.find_text(wrapped, special=False) is None
