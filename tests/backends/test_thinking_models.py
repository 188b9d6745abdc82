"""Reasoning with real tokenizers and models: what the model says is forced, all else runs as for any answer."""

from __future__ import annotations

import json
import shutil

import pytest

from lbx.backends import load, read_card, resolve_model
from lbx.base.records import Prompt, Request, SampleKey, Sampling, Truncation
from lbx.engine.batching import complete
from lbx.engine.prompter import ChatTemplate, Prompter
from lbx.engine.reasoning import THINK, ReasoningMarks, split_reasoning
from tests.backends.forced import say
from tests.backends.tiny import CHAT

KEY = SampleKey("made", "up", "0")
HARMONY = ("<|user|>plan<|assistant|>", "<|user|>say<|assistant|>")


def written(tiny_hf, tiny_gguf, tmp_path, kind: str, chat: str):
    """A backend of either kind whose card has the given [chat] lines."""
    card = tmp_path / "card.toml"
    name, path = ("hf", tiny_hf) if kind == "hf" else ("llamacpp", tiny_gguf)
    card.write_text(f'backend = "{name}"\n[weights]\npath = "{path}"\n[chat]\n{chat}\n')
    return load(read_card(card))


def test_added_tokens_are_the_marks(backend):
    assert backend.tokenizer.reasoning_marks == THINK
    assert len(backend.tokenizer.encode("<think>", special=True)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "The ship left.",
        "<think>The fog, the harbour\n</think>\n\nThe ship left.",
        "\n<think>\nfog\n</think>(B)",
        "fog</think>(B)",
        "<think>小船在清晨离开港口",
        "The <think> tag",
        "< think>no",
        "</think",
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_real_tokenizers_split_like_the_whole_text(backend, text, opened):
    said = say(backend, text, special=True, opens_reasoning=opened)
    assert (said.reasoning, said.text) == split_reasoning(text, opened=opened)
    assert said.output_tokens == len(backend.tokenizer.encode(text, special=True))
    assert said.finish_reason == "stop"


def test_budgets_and_stop_strings_on_real_tokenizers(backend):
    encode = backend.tokenizer.encode
    block, tail = "<think>fog\nover the harbour</think>", "\n\nThe ship\nleft."
    inside = len(encode(block, special=True))
    said = say(backend, block + tail, special=True, stop=("\n",), min_new_tokens=1, thinking_tokens=inside)
    assert (said.text, said.reasoning) == ("The ship", "fog\nover the harbour")
    assert (said.reasoning_tokens, said.stop_in_reasoning, said.reasoning_closed) == (inside, True, True)
    short = say(backend, block + tail, special=True, thinking_tokens=inside - 1)
    assert (short.text, short.finish_reason, short.output_tokens) == ("", "length", inside - 1)
    assert (short.reasoning, short.reasoning_closed) == ("fog\nover the harbour", False)
    cut = say(backend, block + "The ship left.", special=True, thinking_tokens=inside, max_new_tokens=2)
    assert cut.text == backend.tokenizer.decode(encode("The ship left.", special=False)[:2])
    assert (cut.output_tokens, cut.finish_reason) == (inside + 2, "length")


def test_marks_with_control_tokens_are_seen(tiny_hf, tiny_gguf, tmp_path):
    text = "<|user|>plan<|assistant|>fog<|user|>say<|assistant|> The ship"
    found = []
    for kind in ("hf", "llama"):
        backend = written(tiny_hf, tiny_gguf, tmp_path, kind, f"reasoning = {json.dumps(HARMONY)}")
        assert backend.tokenizer.reasoning_marks == ReasoningMarks(*HARMONY)
        said = say(backend, text, special=True, thinking_tokens=30)
        assert (said.text, said.reasoning, said.reasoning_closed) == ("The ship", "fog", True)
        answer_tokens = len(backend.tokenizer.encode(" The ship", special=False))
        assert said.output_tokens - said.reasoning_tokens == answer_tokens
        plain = say(backend, "<think>fog</think>ship", special=True)
        assert (plain.text, plain.reasoning) == ("<think>fog</think>ship", None)
        backend.close()
        found.append(said.output_tokens)
    assert found[0] == found[1]


def test_a_models_own_output_is_the_split_of_its_tokens(backend):
    """Whatever a random model says, sampled: budgets hold, and text and reasoning are those of its tokens."""
    for number in range(12):
        request = Request(
            KEY._replace(sample_id=str(number)),
            (0, *range(20, 60)),
            max_new_tokens=12,
            thinking_tokens=20,
            sampling=Sampling(temperature=3.0),
            opens_reasoning=number % 2 == 1,
        )
        said = complete(backend, request)
        again = complete(backend, request)
        assert (said.text, said.reasoning) == (again.text, again.reasoning)
        assert said.output_tokens <= 32
        if said.reasoning is None:
            assert said.output_tokens <= 12
        elif not said.reasoning_closed:
            assert said.text == ""
            assert said.output_tokens <= 20


def test_the_template_opens_the_reasoning(tiny_hf, tiny_gguf, tmp_path):
    template = CHAT + "{% if not quick %}<think>\n{% else %}<think>\n\n</think>\n\n{% endif %}"
    for kind in ("hf", "llama"):
        backend = written(tiny_hf, tiny_gguf, tmp_path, kind, f"template = {json.dumps(template)}")
        tokenizer = backend.tokenizer
        prompt = Prompt("Read: ", "fog <s> </s>", " ship?", 5, Truncation.MIDDLE)
        for quick in (False, True):
            chat = ChatTemplate(template, bos_token="<s>", eos_token="</s>", kwargs={"quick": quick})
            prompter = Prompter(tokenizer, context_window=2048, template=chat, thinking_tokens=100)
            request = prompter.request(KEY, prompt, Sampling())
            assert request.opens_reasoning is not quick
            assert request.bos_tokens == request.token_ids.count(0) == 1
            assert request.thinking_tokens == 100
        backend.close()


# --- what the makers recommend


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20}', Sampling(0.6, 0.95, 20)),
        ('{"eos_token_id": [1, 4]}', None),
        ('{"do_sample": true, "temperature": -3}', None),
        ("{oops", None),
        (None, None),
    ],
)
def test_generation_config_recommends(tiny_hf, tmp_path, text, expected):
    folder = tmp_path / "model"
    shutil.copytree(tiny_hf, folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if text is not None:
        (folder / "generation_config.json").write_text(text)
    backend = load(resolve_model(str(folder)))
    assert backend.info.default_sampling == expected
    backend.close()


def test_a_penalty_in_the_models_files_is_told(tiny_hf, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_hf, folder)
    (folder / "generation_config.json").write_text('{"repetition_penalty": 1.05}')
    backend = load(resolve_model(str(folder)))
    assert backend.info.hardware["repetition_penalty_left_out"] == 1.05
    assert any("repetition penalty of 1.05" in note for note in backend.info.notes)
    backend.close()


def test_a_gguf_header_recommends(tiny_gguf, tmp_path):
    import gguf

    assert load(resolve_model(str(tiny_gguf))).info.default_sampling is None
    reader = gguf.GGUFReader(tiny_gguf)
    out = tmp_path / "sampling.gguf"
    writer = gguf.GGUFWriter(out, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(name, field.contents(), kind, sub_type=field.types[-1] if len(field.types) > 1 else None)
    writer.add_float32("general.sampling.temp", 0.5)
    writer.add_int32("general.sampling.top_k", 20)
    writer.add_float32("general.sampling.top_p", 0.75)
    writer.add_float32("general.sampling.penalty_repeat", 1.5)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    backend = load(resolve_model(str(out)))
    assert backend.info.default_sampling == Sampling(temperature=0.5, top_p=0.75, top_k=20)
    backend.close()
