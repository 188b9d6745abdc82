"""What lbx makes of a model on transformers, beside what ``generate`` says to the same prompts."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lbx.backends import load, resolve_model
from lbx.base.records import Completion, Request, SampleKey
from lbx.engine.batching import DecodeBatch, complete, complete_all
from tests.tiny_families.shrinking import WINDOW

CHUNK = 64
NEW_TOKENS = 12
NEAR_TIE = 1e-4
"""Where two answers part, the two tokens' logits may differ by so much of all logits' range: a tie but for rounding."""


class Said(NamedTuple):
    """An answer beside ``generate``'s.

    Attributes:
        equal: to the letter.
        gap: where they part, how far apart the two tokens' logits lie there, as a part of all logits' range.
    """

    equal: bool
    gap: float | None = None

    @property
    def good(self) -> bool:
        return self.equal or (self.gap is not None and abs(self.gap) <= NEAR_TIE)


MOST_COMPUTED = 1.02


@dataclass
class Found:
    """What was seen of one family.

    Attributes:
        refused: why it does not load, a sentence; None: it does.
        cold, after, among: each answer alone, one after the other, and together.
        single: why prompts cannot share; None: they do.
        how: "yes" part by part, "with states" in a batch beside that, "by a mask", or "by copies".
        computed: tokens of prompts that were computed among others, as a part of their tree's.
    """

    refused: str | None = None
    architecture: str = ""
    attention: str = ""
    cold: Sequence[Said] = ()
    after: Sequence[Said] = ()
    among: Sequence[Said] = ()
    single: str | None = None
    how: str = ""
    computed: float = 1.0

    @property
    def good(self) -> bool:
        answers = (*self.cold, *self.after, *self.among)
        return self.refused is None and self.computed <= MOST_COMPUTED and all(one.good for one in answers)


class Reference(NamedTuple):
    """What ``generate`` says: its tokens, and the logits that each was chosen from."""

    tokens: list[int]
    logits: list[np.ndarray]


def prompts() -> list[tuple[int, ...]]:
    """Four, always the same: three begin alike, by whole chunks and by less; all are longer than any window.

    >>> min(len(prompt) for prompt in prompts()) > 3 * WINDOW
    True
    """
    draw = random.Random(7)

    def some(count: int) -> list[int]:
        return [draw.randrange(10, 500) for _ in range(count)]

    document = [0, *some(2 * CHUNK + 5)]
    other = [0, *some(3 * WINDOW + 7)]
    return [tuple(ids) for ids in (document + some(40), document + some(55), document[: CHUNK + 30] + some(40), other)]


def crossing_prompts() -> list[tuple[int, ...]]:
    """Seven, always the same, that end before, at or behind a length at which the computation of a family changes.

    Answers to the first of each group cross the length. All begin as the first of ``prompts`` does.
    """
    draw = random.Random(8)
    lengths = (WINDOW // 2 - 6, WINDOW - 6, WINDOW, WINDOW + 1, 2 * WINDOW - 6, 2 * WINDOW, 2 * WINDOW + 1)
    return [(*prompts()[0][: n - 6], *(draw.randrange(10, 500) for _ in range(6))) for n in lengths]


def card_of(folder: Path, kind: str = "hf", **options: Any) -> Any:
    """A card of the weights, beside them."""
    card = folder.parent / f"{folder.name}-{kind}.toml"
    lines = [f"{name} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
             for name, value in options.items()]  # fmt: skip
    text = f'backend = "{kind}"\ncontext_window = 512\n\n[weights]\npath = "{folder}"\n\n[options]\n'
    card.write_text(text + "\n".join(lines) + "\n", "utf-8")
    return resolve_model(str(card))


def hf_card(folder: Path) -> Any:
    return card_of(
        folder, dtype="float32", device="cpu", threads=1, prefill_chunk=CHUNK, max_sequences=8, extend_context=True
    )


def references(model: Any) -> list[Reference]:
    """Answers of transformers' own ``generate`` to all prompts, each by a model that has seen no other."""
    import torch

    found = []
    for ids in prompts() + crossing_prompts():
        with torch.inference_mode():
            said = copy.deepcopy(model).generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=NEW_TOKENS,
                do_sample=False,
                pad_token_id=1,
                eos_token_id=1,
                output_logits=True,
                return_dict_in_generate=True,
            )
        tokens = said.sequences[0, len(ids) :].tolist()
        found.append(Reference(tokens, [row[0].float().numpy() for row in said.logits]))
    return found


def plain_model(folder: Path) -> Any:
    """The model as transformers itself loads and computes it."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    writes = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    kind = transformers.AutoModelForCausalLM if writes else transformers.AutoModelForImageTextToText
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def look(folder: Path) -> Found:
    """Load a folder and ask it everything.

    Raises:
        LbxError: it does not load, or fails on a prompt.
    """
    expected = references(plain_model(folder))
    backend = load(hf_card(folder))
    try:
        asked = prompts() + crossing_prompts()
        requests = [Request(SampleKey("a", "b", str(n)), ids, NEW_TOKENS) for n, ids in enumerate(asked)]
        compare = _Comparing(backend.eos_ids, expected)
        cold = [compare(n, complete(backend, request)) for n, request in enumerate(requests)]
        long, crossing = range(len(prompts())), range(len(prompts()), len(asked))
        turns = (1, 0, 2, 3, 0, *crossing)
        one_by_one = complete_all(backend, [requests[n] for n in turns], batching=False)
        after = [compare(turns[place], said) for place, said in one_by_one]
        memory = backend.sequences()
        among, computed = [], 1.0
        if memory.traits.single_reason is None:

            def together(numbers: Sequence[int]) -> DecodeBatch:
                batch = DecodeBatch(memory, [requests[n] for n in numbers], backend.tokenizer, backend.eos_ids)
                among.extend(compare(numbers[place], said) for place, said in batch.run())
                return batch

            batch = together(long)
            computed = batch.prompt_tokens / batch.plan.tree_tokens
            together((0, *crossing))
        return Found(
            architecture=type(backend._model).__name__,
            attention=backend.info.settings["attention"],
            cold=cold,
            after=after,
            among=among,
            single=memory.traits.single_reason,
            how=_how(memory),
            computed=computed,
        )
    finally:
        backend.close()


def _how(memory: Any) -> str:
    from lbx.backends.hf.sequence_copies import HfCopies

    if memory.traits.single_reason is not None:
        return ""
    if isinstance(memory, HfCopies):
        return "yes, by copies"
    if not memory.traits.forks_anywhere:
        return "yes, with states"
    return "yes" if memory._by_segments else "yes, by a mask"


@dataclass
class _Comparing:
    ends: frozenset[int]
    expected: Sequence[Reference]

    def __call__(self, number: int, said: Completion) -> Said:
        tokens, logits = self.expected[number]
        parts = (place for place, (a, b) in enumerate(zip(tokens, said.output_ids, strict=False)) if a != b)
        place = next(parts, None)
        if place is None:
            return Said(len(said.output_ids) >= len(tokens) or said.output_ids[-1] in self.ends)
        row = logits[place]
        return Said(False, float(row[tokens[place]] - row[said.output_ids[place]]) / float(np.ptp(row)))
