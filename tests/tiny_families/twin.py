"""A model on transformers beside the same numbers as GGUF on llama.cpp."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lbx.backends import load
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import DecodeBatch, complete
from lbx.running.parity import forced_logits
from tests.tiny_families.answers import CHUNK, MOST_COMPUTED, NEW_TOKENS, card_of, hf_card, prompts

REPOSITORY = Path(__file__).parents[2]
CONVERTER = REPOSITORY / ".venv-convert" / "bin" / "python"
SAME = 1e-3
"""Largest difference of logits, as a part of their range, that summing in another order explains."""

_STEPS = 3


class Twin(NamedTuple):
    """Logits of both backends, behind four prompts and a few further tokens of each.

    Attributes:
        largest: difference of a logit.
        part: of the logits' range.
        top: how many of ``places`` have the same likeliest token.
        together: how many of the four answers are the same together as alone on llama.cpp; None: one at a time.
        computed: tokens of prompts that were computed together there, as a part of their tree's.
    """

    largest: float
    part: float
    top: int
    places: int
    together: int | None
    computed: float

    @property
    def good(self) -> bool:
        return self.part <= SAME

    @property
    def shares_well(self) -> bool:
        """Whether what is shared changes no answer, and is computed once."""
        return self.together is None or (self.together == len(prompts()) and self.computed <= MOST_COMPUTED)


def convert(folders: Sequence[Path]) -> dict[Path, str | None]:
    """Write each folder's GGUF beside it, by llama.cpp's own converter; why it made none, or None."""
    script = Path(__file__).with_name("convert.py")
    command = [str(CONVERTER), str(script), *map(str, folders)]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: dict[Path, str | None] = dict.fromkeys(folders, f"the converter ended with exit code {done.returncode}")
    for line in done.stdout.splitlines():
        said = json.loads(line)
        found[Path(said["folder"])] = said["error"]
    return found


def compare(folder: Path) -> Twin:
    """Hold a folder against the GGUF beside it, all in float32, the cache too.

    Raises:
        LbxError: llama.cpp does not load it, or fails.
    """
    # What of the tokenizer the GGUF has is not looked at: the tokens are given.
    ours = load(hf_card(folder))
    theirs = load(
        card_of(
            folder.with_suffix(".gguf"), "llamacpp", cache_type_k="f32", cache_type_v="f32", repack=False, threads=1,
            prefill_chunk=CHUNK, max_sequences=4, extend_context=True,
        )
    )  # fmt: skip
    largest = part = 0.0
    top = places = 0
    try:
        for ids in prompts():
            answer = _greedy(ours, ids)
            tokens = [token for _, token in answer[:-1]]
            for (here, _), there in zip(answer, forced_logits(theirs, ids, tokens), strict=True):
                size = min(len(here), len(there))  # some formats fill the vocabulary up
                distance = float(np.abs(here[:size] - there[:size]).max())
                distance = distance if np.isfinite(distance) else float("inf")
                largest, part = max(largest, distance), max(part, distance / float(np.ptp(here)))
                top += int(np.argmax(here[:size]) == np.argmax(there[:size]))
                places += 1
        together, computed = _together(theirs)
    finally:
        ours.close()
        theirs.close()
    return Twin(largest, part, top, places, together, computed)


def _greedy(backend: Any, ids: Sequence[int]) -> list[tuple[Any, int]]:
    """Some tokens of an answer that does not end, each with its logits."""
    found: list[tuple[Any, int]] = []
    request = Request(SampleKey("a", "b", "c"), tuple(ids), _STEPS + 1, min_new_tokens=_STEPS + 1)
    complete(backend, request, lambda _place, logits, token: found.append((logits, token)))
    return found


def _together(backend: Any) -> tuple[int | None, float]:
    memory = backend.sequences()
    requests = [Request(SampleKey("a", "b", str(n)), ids, NEW_TOKENS) for n, ids in enumerate(prompts())]
    batch = DecodeBatch(memory, requests, backend.tokenizer, backend.eos_ids)
    found = {n: said.output_ids for n, said in batch.run()}
    alone = {n: complete(backend, request).output_ids for n, request in enumerate(requests)}
    return sum(found[n] == alone[n] for n in alone), batch.prompt_tokens / batch.plan.tree_tokens
