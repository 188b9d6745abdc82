"""A tiny chat model for real servers, as a folder and as GGUF with the same numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.backends.tiny import export_gguf, make_model

WINDOW = 4096
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "{{ message['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|><think>"
    "{% if enable_thinking is defined and enable_thinking is false %}</think>{% endif %}{% endif %}"
)
"""llama.cpp and lbx find the marks of reasoning in it. Without thinking the prompt is longer, as in Qwen3's."""
REASONED = "Which harbour did the grey ship leave, and when was it seen again?"
"""The question on which the model closes its reasoning."""
_REASONING_TOKENS = 6


def make_served(folder: Path) -> tuple[Path, Path]:
    """The folder and the GGUF file: random weights, float32, exact in float16; heads that vLLM computes on a CPU."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = make_model(folder / "hf", window=WINDOW, width=128)
    model = AutoModelForCausalLM.from_pretrained(path).float()
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.chat_template = TEMPLATE
    _keep_words(model, tokenizer)
    _teach_closing(model, tokenizer)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    plain = export_gguf(path, folder / "plain.gguf", "f32")
    tool = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--chat-template", TEMPLATE]
    subprocess.run([*tool, str(plain), str(folder / "served.gguf")], check=True, capture_output=True)
    plain.unlink()
    return path, folder / "served.gguf"


def _keep_words(model, tokenizer) -> None:
    """Leave only tokens of printable text and the end of a message: detokenizers differ on broken UTF-8."""
    import torch

    end = tokenizer.convert_tokens_to_ids("<|end|>")
    special = {*tokenizer.all_special_ids, *tokenizer.convert_tokens_to_ids(["<think>", "</think>"])} - {end}
    texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    with torch.no_grad():
        for token, text in enumerate(texts):
            if token in special or not (text.isascii() and text.isprintable()):
                model.lm_head.weight[token] = 0


def _teach_closing(model, tokenizer) -> None:
    """Point the output row of ``</think>`` at the state after some tokens of the answer to ``REASONED``."""
    import torch

    row = tokenizer.convert_tokens_to_ids("</think>")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": REASONED}], tokenize=False, add_generation_prompt=True, enable_thinking=True
    )
    prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    with torch.no_grad():
        model.generation_config.eos_token_id = None
        ids = model.generate(**prompt, max_new_tokens=_REASONING_TOKENS, do_sample=False)
        state = model.model(ids).last_hidden_state[0, -1]
        wanted = model.lm_head(state).max() * 1.25
        model.lm_head.weight[row] = (state * (wanted / state.dot(state))).half().float()
        model.generation_config.eos_token_id = [1, tokenizer.convert_tokens_to_ids("<|end|>")]
