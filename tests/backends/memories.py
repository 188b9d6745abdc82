"""Memories of every kind, and the logits that their models compute for one sequence alone."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lbx.backends import load, resolve_model
from lbx.backends.llama.options import LlamaOptions
from lbx.base.records import Completion, Request, SampleKey
from lbx.engine.model import MemoryFullError, SequenceExtension, SequenceMemory
from tests.toy import ToyBackend, ToyMemory, logits_after

# Largest |batched - alone| as a part of the logits' range. Measured on the models here: 2e-6 in float32 and 7e-3 in
# bfloat16, where sums of other shapes are added in another order; 4e-4 in llama.cpp, which rounds keys to float16.
FLOAT32, BFLOAT16, FLOAT16_KEYS = 2e-5, 0.05, 0.002

SMALL = {
    "vocab_size": 507,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.25,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_chunk_size": 16}
FALCON_H1 = ("FalconH1Config", MAMBA2 | {"mamba_d_ssm": 128, "head_dim": 16})
BLOOM = ("BloomConfig", {"n_layer": 2, "n_head": 4})


@dataclasses.dataclass
class Subject:
    """A memory under test.

    Attributes:
        alone: logits after a sequence, computed without the memory's sharing; may empty the memory.
        tolerance: for ``difference``; 0: equal to the bit.
    """

    backend: Any
    alone: Callable[[Sequence[int]], np.ndarray]
    tolerance: float

    @property
    def memory(self) -> SequenceMemory:
        return self.backend.sequences()

    @property
    def capacity(self) -> int:
        """Cells of an empty memory: with blocks, there are two more for the ends of trunks."""
        grain = self.memory.traits.grain
        return self.memory.max_cells + (2 * grain if grain > 1 else 0)

    def check(self, logits: np.ndarray, tokens: Sequence[int]) -> None:
        expected = self.alone(tokens)
        assert logits.dtype == np.float32
        assert logits.shape == expected.shape
        assert difference(logits, expected) <= self.tolerance
        assert self.tolerance == BFLOAT16 or logits.argmax() == expected.argmax()


def difference(logits: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(logits - expected).max() / np.ptp(expected))


def tokens_of(count: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(10, 300), k=count)


def prefill(memory: SequenceMemory, sequence: int, tokens: Sequence[int]) -> np.ndarray:
    """Logits after the last token."""
    logits = None
    for at in range(0, len(tokens), memory.max_step):
        part = tokens[at : at + memory.max_step]
        (logits,) = memory.extend([SequenceExtension(sequence, part, at + len(part) == len(tokens))])
    return logits


def emptied(memory: SequenceMemory) -> SequenceMemory:
    for sequence in range(memory.max_sequences):
        memory.drop(sequence)
    assert memory.used_cells == 0
    return memory


def questions(document: Sequence[int], count: int, new_tokens: int, **more: Any) -> list[Request]:
    """Requests that share a document and end in questions of different lengths."""
    return [
        Request(SampleKey("made", "up", str(n)), (*document, *tokens_of(5 + 3 * n, 500 + 31 * n)), new_tokens, **more)
        for n in range(count)
    ]


def said(completion: Completion) -> tuple[str, int, str]:
    return completion.text, completion.output_tokens, completion.finish_reason


def load_hf(folder: Path, tmp_path: Path, **options: Any) -> Any:
    """The model with these options; the window is at most ``kv_cells``."""
    card = tmp_path / "card.toml"
    window = min(2048, options.get("kv_cells") or 2048)
    lines = [f"{name} = {value!r}" for name, value in options.items()]
    head = f'backend = "hf"\ncontext_window = {window}\n\n[weights]\npath = "{folder}"\n\n[options]\n'
    card.write_text(head + "\n".join(lines) + "\n", "utf-8")
    return load(resolve_model(str(card)))


def load_llama(path: Path, window: int = 0, **options: Any) -> Any:
    card = resolve_model(str(path))
    return load(dataclasses.replace(card, context_window=window or None, options=LlamaOptions(**options)))


def save_hf(config_name: str, extra: dict[str, Any], tiny_hf: Path, folder: Path) -> Path:
    """A random model of a class of transformers, with the tiny model's tokenizer."""
    import torch
    import transformers

    torch.manual_seed(5)
    config = getattr(transformers, config_name)(**SMALL | extra)
    with contextlib.redirect_stderr(io.StringIO()):
        transformers.AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_hf / file, folder)
    return folder


def rows_alone(backend: Any, tokens: Sequence[int]) -> np.ndarray:
    """Logits after each token of one sequence by transformers, shape (tokens, vocabulary)."""
    import torch
    from transformers import DynamicCache

    model = backend._model
    with torch.inference_mode():
        output = model(input_ids=torch.tensor([list(tokens)]), past_key_values=DynamicCache(config=model.config))
    return output.logits[0].float().numpy()


def hf_subject(backend: Any, tolerance: float = FLOAT32) -> Subject:
    return Subject(backend, lambda tokens: rows_alone(backend, tokens)[-1], tolerance)


def llama_subject(backend: Any) -> Subject:
    from tests.backends.plain import PlainLlama

    exact = backend.sequences().traits.grain > 1
    return Subject(backend, lambda tokens: PlainLlama(backend).prefill(tokens), 0 if exact else FLOAT16_KEYS)


KINDS = (
    "toy", "toy blocks", "toy copies",
    "hf", "hf eager", "hf bfloat16", "hf mask", "hf states", "hf copies",
    "llama", "llama loose", "llama sliding",
)  # fmt: skip


def make_subject(kind: str, tmp_path: Path, fixture: Callable[[str], Any]) -> Subject:
    """A memory for at least 6 sequences and 256 tokens (copies: 1,600), at most 64 at a step."""
    library, _, variant = kind.partition(" ")
    if library == "toy":
        options: dict[str, Any] = {"blocks": {"grain": 4}, "copies": {"copies": True, "forks_anywhere": False}}
        cells = 1600 if variant == "copies" else 256
        memory = ToyMemory(max_cells=cells, max_step=64, **options.get(variant, {}))
        return Subject(ToyBackend(memory), logits_after, 0)
    if library == "hf":
        pytest.importorskip("torch", reason="needs lbx[hf]")
        pytest.importorskip("transformers", reason="needs lbx[hf]")
        folder = fixture("tiny_hf")
        if special := {"states": FALCON_H1, "copies": BLOOM}.get(variant):
            folder = save_hf(*special, folder, tmp_path)
        options = {"eager": {"attention": "eager"}, "bfloat16": {"dtype": "bfloat16"}, "copies": {"kv_cells": 1600}}
        with contextlib.ExitStack() as stack:
            if variant == "mask":  # as a model whose code calls its own attention
                from transformers.integrations.sdpa_attention import sdpa_attention_forward
                from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

                from lbx.backends.hf.attention import PACKED_ATTENTION

                patch = stack.enter_context(pytest.MonkeyPatch.context())
                patch.setitem(ALL_ATTENTION_FUNCTIONS._global_mapping, PACKED_ATTENTION, sdpa_attention_forward)
            backend = load_hf(
                folder,
                tmp_path,
                **{"max_sequences": 8, "kv_cells": 256, "prefill_chunk": 64} | options.get(variant, {}),
            )
            backend.sequences()  # tries what the model can do
        return hf_subject(backend, BFLOAT16 if variant == "bfloat16" else FLOAT32)
    pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
    path = fixture("sliding_gguf" if variant == "sliding" else "tiny_gguf")
    return llama_subject(load_llama(path, 256, max_sequences=6, prefill_chunk=64, batch_invariant=variant != "loose"))


def used_cells(subject: Subject, texts: Mapping[int, list[tuple[int, int]]]) -> int:
    """Cells of sequences of (token, number of its cell): full blocks count once for all that share them."""
    traits = subject.memory.traits
    if traits.copies:
        return sum(map(len, texts.values()))
    blocks = set()
    for sequence, text in texts.items():
        for at in range(0, len(text), traits.grain):
            block = tuple(cell for _, cell in text[at : at + traits.grain])
            blocks.add(block if len(block) == traits.grain else (sequence, at))
    return len(blocks) * traits.grain


def run_schedule(subject: Subject, seed: int, rounds: int = 25) -> None:
    """Random forks, drops and mixed passes; lengths, cells and logits must be those of the sequences by themselves."""
    rng, cells, memory = random.Random(seed), itertools.count(), subject.memory
    texts: dict[int, list[tuple[int, int]]] = {sequence: [] for sequence in range(6)}
    computed: list[tuple[list[int], np.ndarray]] = []
    for _ in range(rounds):
        verb = rng.choice(("extend", "extend", "extend", "fork", "drop"))
        if verb == "drop":
            gone = rng.randrange(6)
            memory.drop(gone)
            texts[gone] = []
        elif verb == "fork":
            source, *targets = rng.sample(range(6), rng.randint(2, 4))
            length = rng.randint(0, len(texts[source])) if memory.traits.forks_anywhere else len(texts[source])
            after = texts | dict.fromkeys(targets, texts[source][:length])
            if used_cells(subject, after) > subject.capacity:
                with pytest.raises(MemoryFullError):
                    memory.fork(source, length, targets)
                after |= {target: [] for target in targets}
            else:
                memory.fork(source, length, targets)
            texts = after
        else:
            items = [
                SequenceExtension(
                    sequence, tokens_of(rng.choice((1, 1, 5, 20)), rng.randrange(10**6)), rng.random() < 0.7
                )
                for sequence in rng.sample(range(6), rng.randint(1, 3))
            ]
            after = texts | {
                item.sequence: [*texts[item.sequence], *((token, next(cells)) for token in item.tokens)]
                for item in items
            }
            if used_cells(subject, after) > subject.capacity:
                with pytest.raises(MemoryFullError):
                    memory.extend(items)
            else:
                for item, logits in zip(items, memory.extend(items), strict=True):
                    assert (logits is not None) == item.wants_logits
                    if logits is not None:
                        computed.append(([token for token, _ in after[item.sequence]], logits))
                texts = after
        assert [memory.length(sequence) for sequence in range(6)] == [len(text) for text in texts.values()]
        assert memory.used_cells == used_cells(subject, texts)
    assert computed
    for tokens, logits in computed:
        subject.check(logits, tokens)
