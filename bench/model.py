"""A random Llama with a tokenizer of its own, the same numbers in Hugging Face's format and as GGUF.

What a benchmark of an engine needs of a model: real tokens, real shapes, and outputs that depend on the whole prompt,
so that a wrong mask shows. The weights keep the variance of what flows through; queries and keys are drawn larger, so
that attention picks out single tokens of a long document instead of averaging over all of them.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from lbx.backends.kinds import OPTIONS

REPOSITORY = Path(__file__).resolve().parents[1]
BOS, EOS = "<s>", "</s>"
ATTENTION_STD = 2.5
"""Standard deviation of attention scores before the softmax: of n tokens some n * exp(-2.5 ** 2) are seen."""


@dataclass(frozen=True)
class Shape:
    """Of a Llama; the default has some 25 M parameters."""

    vocabulary: int = 8192
    hidden: int = 512
    intermediate: int = 896
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    context: int = 16_384


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """A byte-level BPE of GPT-2's kind that puts a BOS before a text, the same for the same texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def make_config(shape: Shape) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=shape.context,
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )


def initialise(model: Any, seed: int, speakable: int) -> None:
    """Draw all weights in place, on whatever device they are.

    Only the first ``speakable`` tokens are ever said, and never the end of sequence: every answer is as long as asked.
    """
    import torch

    generator = torch.Generator(device=model.device).manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                weight.fill_(1.0)
                continue
            std = 1.0 if "embed_tokens" in name else weight.shape[1] ** -0.5
            if "q_proj" in name or "k_proj" in name:
                std *= ATTENTION_STD**0.5
            weight.normal_(0.0, std, generator=generator)
        model.lm_head.weight[model.config.eos_token_id] = 0.0
        model.lm_head.weight[speakable:] = 0.0


def make_hf(
    folder: Path,
    texts: Iterable[str],
    shape: Shape = Shape(),
    *,
    seed: int = 0,
    dtype: str = "float16",
    device: str = "cpu",
) -> Path:
    """Write FOLDER/hf: all numbers are of this type, so every format made from them holds the same."""
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = train_tokenizer(texts, shape.vocabulary)
    with torch.device(device):
        model = LlamaForCausalLM(make_config(shape))
    initialise(model, seed, tokenizer.get_vocab_size())
    model.to(getattr(torch, dtype)).save_pretrained(folder / "hf")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=shape.context,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder / "hf")
    return folder / "hf"


def make_gguf(folder: Path) -> Path:
    """Write FOLDER/hf as FOLDER/model.gguf: matrices float16, norms float32."""
    gguf: Path = _exporter().export_gguf(folder / "hf", folder / "model.gguf", "f16")
    return gguf


def fetch_smollm2(kind: str) -> Path:
    """The real chat model as "gguf" (a file, Q4_1) or "hf" (a folder), fetched where it is not kept."""
    command = [sys.executable, REPOSITORY / "models" / "smollm2" / "fetch.py", kind]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def _exporter() -> Any:
    """models/demo/export_gguf.py; models/ is no package."""
    if "export_gguf" not in sys.modules:
        path = REPOSITORY / "models" / "demo" / "export_gguf.py"
        spec = importlib.util.spec_from_file_location("export_gguf", path)
        assert spec is not None and spec.loader is not None
        sys.modules["export_gguf"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["export_gguf"])
    return sys.modules["export_gguf"]


def write_cards(folder: Path, **options: object) -> dict[str, Path]:
    """Model cards of both formats, {"hf": ..., "llamacpp": ...}; options that a backend has not are left out."""
    cards = {}
    for backend, weights in (("hf", folder / "hf"), ("llamacpp", folder / "model.gguf")):
        known = {field.name for field in fields(OPTIONS[backend])}
        lines = [f"{name} = {json.dumps(value)}" for name, value in options.items() if name in known]
        cards[backend] = folder / f"{backend}.toml"
        cards[backend].write_text(
            f'name = "bench-{backend}"\nbackend = "{backend}"\n\n[weights]\npath = {json.dumps(str(weights))}\n\n'
            "[options]\n" + "\n".join(lines) + "\n"
        )
    return cards
