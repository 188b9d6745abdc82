"""lbx on transformers compared with vLLM's CPU build (a server and a client of it), on the same CPU cores.

    python -m bench.vllm [--dtypes float32,bfloat16] [--documents 2048,10240] [--questions 1,12,40] [--threads 2]

SmolLM2-135M-Instruct answers greedily, 32 new tokens each: 12 questions of L-Eval's coursera on two documents, then
questions of about 60 tokens on documents of random tokens, one document at a time. CPU seconds are those of all
processes, without starting; "vLLM / lbx" above 1 means that lbx needs fewer. Install vLLM by
`.ci/server-tools.sh vllm`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import engine
from bench.contest import Job, Result, count_equal, decode_outputs, ratio, run_contender, table
from bench.inputs import link_tree, write_cards
from bench.vllm_server import PYTHON
from lbx.backends.hf.tokenizer import HfTokenizer
from lbx.engine.sampling import ends_by_name

QUESTION_TOKENS = 60
VOCABULARY = 40_000
REAL = ("--smollm2", "--tasks", "coursera", "--documents", "2")


def main() -> int:
    args = parse_arguments()
    rows: list[list[str]] = []
    for dtype in args.dtypes.split(","):
        with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
            rows += _compare(dtype, args, Path(folder))
    print(table(("work", "vLLM s", "lbx s", "vLLM CPU s", "lbx CPU s", "vLLM / lbx", "equal answers"), rows))
    return 0


def parse_arguments(
    text: str | None = __doc__, documents: str = "2048,10240", questions: str = "1,12,40"
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--documents", default=documents, help="tokens of the random documents")
    parser.add_argument("--questions", default=questions, help="on each document")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def make_job(dtype: str, args: argparse.Namespace, folder: Path) -> tuple[list[str], Job, HfTokenizer]:
    """Prompts, of L-Eval and then random ones, weights and cards; and a label for each group of prompts."""
    if not PYTHON.exists():
        sys.exit("vLLM is not installed: run .ci/server-tools.sh vllm")
    words = [*REAL, "--threads", str(args.threads), "--dtype", dtype]
    job, _, tokenizer = engine.prepare_job(engine.parse_arguments(words), folder)
    labels, job = _add_documents(job, tokenizer, _numbers(args.documents), _numbers(args.questions))
    weights = _widen_window(Path(job.weights["hf"]), folder / "wide" / "hf", job.window)
    cells = job.window + max(job.groups) * (QUESTION_TOKENS + job.new_tokens)
    cards = write_cards(folder / "wide", threads=args.threads, dtype=dtype, device="cpu", kv_cells=cells)
    return labels, replace(job, weights={"hf": str(weights)}, cards={"hf": str(cards["hf"])}), tokenizer


def _compare(dtype: str, args: argparse.Namespace, folder: Path) -> list[list[str]]:
    labels, job, tokenizer = make_job(dtype, args, folder)
    results = {name: run_contender(name, job, folder) for name in ("vllm", "hf-lbx")}
    costs, equal = _by_group(job, results, tokenizer)
    return [_row(f"{dtype}, {label}", seconds, same) for label, seconds, same in zip(labels, costs, equal, strict=True)]


def _widen_window(model: Path, target: Path, window: int) -> Path:
    """Link a model's files to a folder, with a larger window in config.json."""
    link_tree(model, target)
    config = json.loads((model / "config.json").read_text())
    (target / "config.json").unlink()
    (target / "config.json").write_text(json.dumps(config | {"max_position_embeddings": window}))
    return target


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _add_documents(
    job: Job, tokenizer: HfTokenizer, lengths: Sequence[int], counts: Sequence[int]
) -> tuple[list[str], Job]:
    """Append random documents, a group for each length and count; returns the groups' labels as well."""
    source = random.Random(0)
    ends = ends_by_name(tokenizer.control_tokens)
    tokens = [token for token in range(VOCABULARY) if token not in ends]
    prompts, groups, labels = list(job.prompts), [len(job.prompts)], [f"L-Eval coursera, {len(job.prompts)} questions"]
    for length in lengths:
        for count in counts:
            document = source.choices(tokens, k=length)
            prompts += [document + source.choices(tokens, k=QUESTION_TOKENS) for _ in range(count)]
            groups.append(count)
            labels.append(f"{length} tokens, {count} questions")
    window = max(job.window, max(map(len, prompts)) + job.new_tokens)
    return labels, replace(job, prompts=prompts, groups=groups, window=window, never=sorted(ends))


def _by_group(
    job: Job, results: dict[str, Result], tokenizer: HfTokenizer
) -> tuple[list[tuple[float, ...]], list[str]]:
    """Wall and CPU seconds of both contenders, and the number of equal answers, of each group."""
    texts = {name: decode_outputs(result.outputs, tokenizer.decode) for name, result in results.items()}
    costs, equal, start = [], [], 0
    for at, size in enumerate(job.groups):
        laps = [result.laps[at] for result in results.values()]
        costs.append((*(lap.wall_s for lap in laps), *(lap.cpu_s for lap in laps)))
        equal.append(count_equal(*(answers[start : start + size] for answers in texts.values())))
        start += size
    return costs, equal


def _row(label: str, costs: tuple[float, ...], equal: str) -> list[str]:
    return [label, *(f"{seconds:.1f}" for seconds in costs), ratio(*costs[2:]), equal]


if __name__ == "__main__":
    sys.exit(main())
