"""Cost of `lbx parity --depth` beside the model's own passes: seconds, memory and disk.

    python -m bench.depth [--tokens 4096,32768] [--threads N] [--card CARD]

A random Qwen2 of 4 layers with a vocabulary of 150,000 and peaked distributions, on transformers, or the model of a
card, reads a text of random tokens. Columns:

    prefill     seconds of a prompt's prefill: only the logits after each pass
    passes      seconds of the passes with the logits of all tokens, which both models of a comparison need
    store       seconds of compressing and writing the distributions (reference), as a share of those of the passes
    compare     seconds of reading and comparing them (candidate), as a share
    beyond MB   highest resident memory of storing and comparing, less that of the prefill
    bytes       stored bytes of a position

Exit code 1: storing or comparing added more than 0.3 of the time, or more than 200 MB.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.contest import memory_mb, pin, table, usable_cores
from bench.inputs import initialise
from lbx.backends import load, resolve_model
from lbx.engine.model import SequenceExtension
from lbx.running.distributions import Distributions

VOCABULARY = 150_000
SPREAD = 4.5
"""Standard deviation of the logits. 8,600 tokens of a position are stored then, and 3,500 of SmolLM2's."""
MOST_TIME, MOST_MB = 0.3, 200
HEADER = ("tokens", "prefill s", "passes s", "store", "compare", "beyond MB", "bytes")


def main() -> int:
    args = parse_arguments()
    pin(usable_cores(args.threads))
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
        card = args.card or make_model(Path(folder), args.threads)
        backend = load(resolve_model(str(card)))
        rows = [measure(backend, int(tokens), Path(folder) / "distributions") for tokens in args.tokens.split(",")]
    print(table(HEADER, [[f"{value:,.0f}" if value > 100 else f"{value:.2f}" for value in row] for row in rows]))
    failed = any(max(store, compare) > MOST_TIME or beyond > MOST_MB for *_, store, compare, beyond, _ in rows)
    if failed:
        print(f"goal: at most {MOST_TIME} of the passes' time and {MOST_MB} MB: FAILED")
    return int(failed)


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", default="4096,32768", help="lengths of the text")
    parser.add_argument("--threads", type=int, default=2, help="CPU cores to stay on")
    parser.add_argument("--card", help="a model in place of the random one")
    return parser.parse_args(words)


def make_model(folder: Path, threads: int) -> Path:
    """Write the random model, and return its card."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = Qwen2ForCausalLM(config)
    initialise(model, 0, VOCABULARY)
    with torch.no_grad():
        model.lm_head.weight.mul_(SPREAD)
    model.save_pretrained(folder / "hf")
    tokenizer = Tokenizer(models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="w0", eos_token="w1").save_pretrained(folder / "hf")
    card = folder / "card.toml"
    card.write_text(
        f'name = "random"\nbackend = "hf"\n[weights]\npath = "{folder / "hf"}"\n'
        f'[options]\ndtype = "float32"\ndevice = "cpu"\nthreads = {threads}\n'
    )
    return card


def measure(backend: Any, count: int, file: Path) -> tuple[float, ...]:
    """The row of the table for a text of ``count`` random tokens."""
    tokens = random.Random(0).choices(range(20, 1000), k=count)

    def prefill() -> None:
        memory = backend.sequences()
        for start in range(0, count, memory.max_step):
            memory.extend([SequenceExtension(0, tokens[start : start + memory.max_step], wants_logits=True)])
        memory.drop(0)

    def read(use: Callable[[Any, int], object]) -> tuple[float, float]:
        """Seconds of the passes, and of the function that gets each pass's logits and position."""
        passes_s, use_s, start, clock = 0.0, 0.0, 0, time.perf_counter()
        for logits in backend.text_logits(tokens):
            begin = time.perf_counter()
            use(logits, start)
            end = time.perf_counter()
            passes_s, use_s, clock = passes_s + begin - clock, use_s + end - begin, end
            start += len(logits)
        return passes_s, use_s

    start = time.perf_counter()
    _, least_mb = _with_peak(prefill)
    prefill_s = time.perf_counter() - start
    with file.open("wb") as output:
        (store_passes_s, store_s), store_mb = _with_peak(
            lambda: read(lambda logits, start: _store(output, logits, tokens, start))
        )
    with file.open("rb") as stored:
        (compare_passes_s, compare_s), compare_mb = _with_peak(
            lambda: read(lambda logits, start: Distributions.load(stored).compare(logits, tokens, start))
        )
    return (
        count,
        prefill_s,
        (store_passes_s + compare_passes_s) / 2,
        store_s / store_passes_s,
        compare_s / compare_passes_s,
        max(store_mb, compare_mb) - least_mb,
        file.stat().st_size / count,
    )


def _store(file: Any, logits: Any, tokens: Sequence[int], start: int) -> None:
    for values in Distributions.of_logits(logits, tokens, start):
        np.save(file, values)


def _with_peak(work: Callable[[], Any]) -> tuple[Any, float]:
    """The function's result, and the highest resident memory meanwhile in MB."""
    Path("/proc/self/clear_refs").write_text("5")  # the highest is counted anew
    return work(), memory_mb()[1]


if __name__ == "__main__":
    sys.exit(main())
