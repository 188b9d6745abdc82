"""Long answers that end far below their budget: cells kept for what they are likely to take, beside all that they may.

    python -m bench.reasoning [--budget N] [--document N] [--questions N]

A random Llama answers questions on one document, each with a budget of 8,192 tokens, in a memory that holds the
document and three and a half such budgets. Answers end, by a token of half of the vocabulary, after 5 to 20% of it.
Both ways run in one process, one after the other, with the same sampled tokens. Exit code 1: answers differ.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.figures import ratio, table
from bench.model import REPOSITORY, Shape, make_hf

SHAPE = Shape(vocabulary=2048, hidden=128, intermediate=256, layers=4, heads=4, kv_heads=2, context=131_072)
FEWEST, MOST = 0.05, 0.20  # of the budget


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--budget", type=int, default=8192, help="tokens that an answer may take")
    parser.add_argument("--document", type=int, default=4096, help="tokens")
    parser.add_argument("--questions", type=int, default=32)
    args = parser.parse_args()
    from lbx.inference.model import MemoryTraits

    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
        model = _load(Path(folder), cells=args.document + 64 + 7 * args.budget // 2, questions=args.questions)
        requests = _requests(args)
        with patch.object(MemoryTraits, "resumes", False):
            whole = _run(model, requests)
        likely = _run(model, requests)
        model.close()
    rows = [
        [name, f"{tokens / seconds:.0f}", str(passes), str(computed)]
        for name, (seconds, passes, computed, answers) in (("all that they may", whole), ("what is likely", likely))
        for tokens in [sum(map(len, answers.values()))]
    ]
    rows.append(
        ["ratio", *(ratio(float(one), float(other)) for one, other in zip(rows[1][1:], rows[0][1:], strict=True))]
    )
    print(table(["room for", "tokens/s", "passes", "tokens computed"], rows))
    differ = sum(whole[3][n] != likely[3][n] for n in whole[3])
    print(f"{differ} of {len(requests)} answers differ")
    return 1 if differ else 0


def _load(folder: Path, *, cells: int, questions: int) -> Any:
    from lbx.backends import load, resolve_model

    hf = make_hf(folder, [(REPOSITORY / "README.md").read_text("utf-8")], SHAPE, dtype="float32")
    card = resolve_model(str(hf))
    options: Any = replace(card.options, dtype="float32", kv_cells=cells, max_sequences=questions + 2, threads=1)
    return load(replace(card, context_window=cells, options=options))


def _requests(args: argparse.Namespace) -> Sequence[Any]:
    from lbx.base.records import Request, SampleKey, Sampling

    rng = random.Random(0)

    def tokens(count: int) -> list[int]:
        return rng.choices(range(2, SHAPE.vocabulary // 2), k=count)

    document = tokens(args.document)
    return [
        Request(
            SampleKey("bench", "bench", str(number)),
            (*document, *tokens(32)),
            max_new_tokens=args.budget,
            min_new_tokens=int(args.budget * rng.uniform(FEWEST, MOST)),
            sampling=Sampling(temperature=1.0, seed=0),
        )
        for number in range(args.questions)
    ]


def _run(model: Any, requests: Sequence[Any]) -> tuple[float, int, int, dict[int, tuple[int, ...]]]:
    """(seconds, passes, tokens computed, the answers' tokens)"""
    from lbx.inference.batching import DecodeBatch

    passes: list[int] = []
    ends = range(SHAPE.vocabulary // 2, SHAPE.vocabulary)
    begun = time.perf_counter()
    found = dict(DecodeBatch(model.sequences(), requests, model.tokenizer, ends, passes.append).run())
    seconds = time.perf_counter() - begun
    return seconds, len(passes), sum(passes), {n: one.output_ids or () for n, one in found.items()}


if __name__ == "__main__":
    sys.exit(main())
