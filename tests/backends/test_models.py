"""What holds for every backend that runs a real model, checked on the same weights in both formats."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lbx.base.errors import BackendError, PromptError
from lbx.base.records import Request, SampleKey, Sampling
from lbx.engine.batching import DecodeBatch, complete, complete_all
from tests.backends.plain import Steps
from tests.backends.tiny import CHAT, SENTENCES

TEXT = "\n".join(SENTENCES * 20)


def request_for(backend, length: int, **changes) -> Request:
    """A request with the first ``length`` tokens of a text, BOS included."""
    ids = [backend.tokenizer.bos_id, *backend.tokenizer.encode(TEXT, special=False)][:length]
    assert len(ids) == length
    fields = {"key": SampleKey("made", "up", str(length)), "token_ids": tuple(ids), "max_new_tokens": 24} | changes
    return Request(**fields)


def said(completion):
    return completion.text, completion.output_tokens, completion.finish_reason


# --- tokens


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT,
        " leading and  double spaces , kept .",
        "小船 été \U0001f6f6 \x00 nul",
        "a <|user|> in a document</s><s> and <think>thoughts</think><|end|>",
        "\n\n\n",
        "lone \ud83d surrogate",
    ],
)
def test_both_libraries_give_the_same_ids_and_the_text_back(hf, llama, text, special):
    ids = hf.tokenizer.encode(text, special=special)
    assert ids == llama.tokenizer.encode(text, special=special)
    assert hf.tokenizer.decode(ids) == llama.tokenizer.decode(ids)
    if not special:
        assert hf.tokenizer.decode(ids) == text.replace("\ud83d", "\ufffd")


def test_control_tokens_in_a_document_stay_text(backend):
    tokenizer = backend.tokenizer
    marks = set(tokenizer.control_tokens.values())
    assert set(tokenizer.hidden_tokens) == {"<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>"}
    assert set(tokenizer.control_tokens) == {*tokenizer.hidden_tokens, "<think>", "</think>"}
    for mark, number in tokenizer.control_tokens.items():
        assert tokenizer.encode(mark, special=True) == [number]
        spelled = tokenizer.encode(mark, special=False)
        assert not marks & set(spelled)
        assert tokenizer.decode(spelled) == mark
        assert tokenizer.decode([number]) == ("" if mark in tokenizer.hidden_tokens else mark)


def test_facts_about_bos_and_template(backend):
    tokenizer = backend.tokenizer
    assert (tokenizer.bos_token, tokenizer.bos_id, tokenizer.eos_token) == ("<s>", 0, "</s>")
    assert tokenizer.prefix_ids == (0,)
    assert tokenizer.chat_template == CHAT
    assert 0 not in tokenizer.encode("plain", special=False), "encode never adds BOS"


def test_half_a_character_decodes_to_a_replacement_character(hf, llama):
    ids = hf.tokenizer.encode("\U0001f6f6", special=False)
    assert len(ids) > 1
    assert hf.tokenizer.decode(ids[:-1]) == llama.tokenizer.decode(ids[:-1])
    assert "\ufffd" in llama.tokenizer.decode(ids[:-1])


def test_thinking_stays_in_the_text(backend):
    ids = backend.tokenizer.encode("<think>so it is</think>(B)", special=True)
    assert backend.tokenizer.decode(ids) == "<think>so it is</think>(B)"


# --- answers


@pytest.mark.parametrize("length", [1, 40, 511, 512, 513, 1100])
def test_both_libraries_give_the_same_greedy_answer(hf, llama, length):
    request = request_for(hf, length, max_new_tokens=40)
    assert said(complete(hf, request)) == said(complete(llama, request))


def test_generate_agrees_with_transformers_own(hf):
    import torch

    request = request_for(hf, 600)
    ids = torch.tensor([request.token_ids])
    with torch.inference_mode():
        out = hf._model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, pad_token_id=1
        )
    assert complete(hf, request).text == hf.tokenizer.decode(out[0, 600:].tolist())


def test_logits_of_both_libraries_are_close(hf, llama):
    ids = request_for(hf, 700).token_ids
    ours, theirs = Steps(hf).prefill(ids), Steps(llama).prefill(ids)
    assert ours.dtype == theirs.dtype == np.float32
    assert ours.shape == theirs.shape == (llama.tokenizer.size,)
    assert np.abs(ours - theirs).max() < 0.01 * np.ptp(ours)


@pytest.mark.parametrize("batching", [False, True])
def test_what_is_asked_together_changes_no_answer(backend, batching):
    """Beginnings of one text, and one of them with a word changed in its middle; each prefix is read once."""
    requests = [request_for(backend, length, max_new_tokens=6) for length in (1500, 1024, 700, 1025, 511)]
    other = list(requests[0].token_ids)
    other[600] = (other[600] + 1) % 300 + 10
    requests.append(dataclasses.replace(requests[0], token_ids=tuple(other)))
    alone = [complete(backend, request) for request in requests]
    assert [one.cached_tokens for one in alone] == [0] * 6
    found = dict(complete_all(backend, requests, batching=batching))
    assert [said(found[n]) for n in range(6)] == [said(one) for one in alone]
    assert sorted(found[n].cached_tokens for n in range(6)) == [0, 510, 600, 699, 1023, 1024]


def test_sampling_depends_on_seed_and_key_only(backend):
    hot = Sampling(temperature=1.0, top_p=0.95, seed=5)
    request = request_for(backend, 600, sampling=hot)
    first = said(complete(backend, request))
    complete(backend, request_for(backend, 90, sampling=hot))
    assert said(complete(backend, request)) == first
    other_seed = dataclasses.replace(request, sampling=dataclasses.replace(hot, seed=6))
    other_key = dataclasses.replace(request, key=request.key._replace(iteration=1))
    assert said(complete(backend, other_seed)) != first
    assert said(complete(backend, other_key)) != first


def test_end_of_sequence_ends_the_answer_uncounted(backend):
    request = request_for(backend, 60)
    greedy = backend.tokenizer
    ids = _greedy_ids(backend, request, 6)
    end = ids[5]
    first = ids.index(end)
    ((_, completion),) = DecodeBatch(backend.sequences(), [request], greedy, {end}).run()
    assert completion.finish_reason == "stop"
    assert completion.output_tokens == first
    assert completion.text == greedy.decode(ids[:first])


def test_end_of_sequence_and_end_of_turn_are_known(hf, llama):
    assert hf.info.settings["eos_ids"] == llama.info.settings["eos_ids"] == [1, 4]


def test_a_stop_string_is_not_part_of_the_text(backend):
    request = request_for(backend, 60)
    whole = complete(backend, request)
    assert whole.finish_reason == "length"
    assert whole.output_tokens == 24
    stop = whole.text[8:11]
    completion = complete(backend, dataclasses.replace(request, stop=("never said", stop)))
    assert completion.text == whole.text[: whole.text.index(stop)]
    assert completion.finish_reason == "stop"
    assert completion.output_tokens < 24


def test_min_new_tokens_holds_the_end_back(backend):
    request = request_for(backend, 60, min_new_tokens=3)
    ids = _greedy_ids(backend, request, 1)
    ((_, completion),) = DecodeBatch(backend.sequences(), [request], backend.tokenizer, {ids[0]}).run()
    assert completion.output_tokens >= 3


def test_a_stop_string_cannot_be_the_first_token(backend):
    """samsum: the line break that ends the answer may not begin it."""
    request = request_for(backend, 60)
    first = backend.tokenizer.decode(_greedy_ids(backend, request, 1))
    ended = complete(backend, dataclasses.replace(request, stop=(first,)))
    assert said(ended) == ("", 0, "stop")
    held = complete(backend, dataclasses.replace(request, stop=(first,), min_new_tokens=1))
    assert held.text
    assert not held.text.startswith(first)


def test_what_does_not_fit_is_a_prompt_error_with_numbers(backend):
    with pytest.raises(PromptError, match=r"2000 tokens .* 49: together 2049, but the context window is 2048"):
        complete(backend, dataclasses.replace(request_for(backend, 200), token_ids=(5,) * 2000, max_new_tokens=49))
    full = dataclasses.replace(request_for(backend, 200), token_ids=(5,) * 2047, max_new_tokens=1)
    assert complete(backend, full).output_tokens <= 1


def test_info_names_what_can_change_an_output(hf, llama):
    assert hf.info.context_window == llama.info.context_window == 2048
    assert {"dtype", "attention", "prefill_chunk", "device", "weights", "chat"} <= set(hf.info.settings)
    assert {"flash_attention", "cache_type_k", "cache_type_v", "prefill_chunk", "weights", "chat"} <= set(
        llama.info.settings
    )
    assert hf.info.settings["chat"] == llama.info.settings["chat"]
    assert llama.info.hardware["variant"]
    assert llama.info.hardware["threads"] >= 1


def test_a_closed_backend_says_so(tiny_hf, tiny_gguf):
    from lbx.backends import load, resolve_model

    for path in (tiny_hf, tiny_gguf):
        backend = load(resolve_model(str(path)))
        backend.close()
        backend.close()
        with pytest.raises(BackendError, match="closed"):
            complete(backend, Request(SampleKey("a", "b", "c"), (0, 5), 4))


def _greedy_ids(backend, request: Request, count: int) -> list[int]:
    """The first greedy tokens, taken from the logits by hand."""
    steps = Steps(backend)
    logits = steps.prefill(request.token_ids)
    ids = []
    for _ in range(count):
        ids.append(int(np.argmax(logits)))
        logits = steps.step(ids[-1])
    return ids
