"""lbx on transformers compared with vLLM's CPU build (a server and a client of it), on the same CPU cores.

    python -m bench.vllm [--dtypes float32,bfloat16] [--documents 2048,10240] [--questions 1,12,40] [--threads 1,2]

SmolLM2-135M-Instruct answers greedily, 32 new tokens each: 12 questions of L-Eval's coursera on two documents, then
questions of about 60 tokens on documents of random tokens, one document at a time. Starting does not count. Columns:

    s             seconds by the clock; "vLLM / lbx" is their quotient, and above 1 means that lbx is faster
    CPU s         those of all threads and processes
    cores         CPU seconds over seconds by the clock: the cores that were kept busy, waiting in loops included

With several numbers of threads, a second table has the speed-up from the fewest to the most, the part of the work that
is not parallel by Amdahl's law, and what this law makes of 16 and 64 cores: a projection, which knows nothing of memory
bandwidth. Install vLLM by `.ci/server-tools.sh vllm`.
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
from typing import NamedTuple

from bench import engine
from bench.contest import Job, Lap, Scaling, count_equal, decode_outputs, ratio, run_contender, table
from bench.inputs import link_tree, write_cards
from bench.vllm_server import PYTHON
from lbx.backends.hf.tokenizer import HfTokenizer
from lbx.base.units import format_count
from lbx.engine.sampling_settings import find_end_tokens

QUESTION_TOKENS = 60
VOCABULARY = 40_000
REAL = ("--smollm2", "--tasks", "coursera", "--documents", "2")
NAMES = ("vLLM", "lbx")
PROJECTED = (16, 64)
HEADER = (
    "work", "threads", "vLLM s", "lbx s", "vLLM / lbx", "vLLM CPU s", "lbx CPU s", "vLLM cores", "lbx cores",
    "equal answers",
)  # fmt: skip


class Group(NamedTuple):
    """Questions that are asked together, their cost for vLLM and lbx, and how many answers are equal."""

    work: str
    threads: int
    theirs: Lap
    ours: Lap
    equal: str

    @property
    def laps(self) -> tuple[Lap, Lap]:
        return self.theirs, self.ours


def main() -> int:
    args = parse_arguments()
    threads = numbers(args.threads)
    groups: list[Group] = []
    for dtype in args.dtypes.split(","):
        for count in threads:
            with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
                groups += _compare(dtype, count, args, Path(folder))
    by_work = {work: [group for group in groups if group.work == work] for work in (group.work for group in groups)}
    print(table(HEADER, [_row(group) for alike in by_work.values() for group in alike]))
    if len(threads) > 1:
        few, many = min(threads), max(threads)
        measured = [f"{name} {what}" for what in ("x", "not parallel") for name in NAMES]
        projected = [f"{name}, {cores}" for cores in PROJECTED for name in HEADER[2:5]]
        print(f"\nFrom {few} to {many} threads, and a projection to {' and '.join(map(str, PROJECTED))} cores")
        rows = [[work, *_scaling_cells(alike)] for work, alike in by_work.items()]
        print(table(("work", *measured, *projected), rows))
    return 0


def parse_arguments(
    text: str | None = __doc__, documents: str = "2048,10240", questions: str = "1,12,40", threads: str = "1,2"
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--documents", default=documents, help="tokens of the random documents")
    parser.add_argument("--questions", default=questions, help="on each document")
    parser.add_argument("--threads", default=threads, help="CPU cores that both are pinned to, one thread for each")
    return parser.parse_args()


def make_job(dtype: str, threads: int, args: argparse.Namespace, folder: Path) -> tuple[list[str], Job, HfTokenizer]:
    """Prompts, of L-Eval and then random ones, weights and cards; and a label for each group of prompts."""
    if not PYTHON.exists():
        sys.exit("vLLM is not installed: run .ci/server-tools.sh vllm")
    words = [*REAL, "--threads", str(threads), "--dtype", dtype]
    job, _, tokenizer = engine.prepare_job(engine.parse_arguments(words), folder)
    labels, job = _add_documents(job, tokenizer, numbers(args.documents), numbers(args.questions))
    weights = _widen_window(Path(job.weights["hf"]), folder / "wide" / "hf", job.window)
    cells = job.window + max(job.groups) * (QUESTION_TOKENS + job.new_tokens)
    cards = write_cards(folder / "wide", threads=threads, dtype=dtype, device="cpu", kv_cells=cells)
    return labels, replace(job, weights={"hf": str(weights)}, cards={"hf": str(cards["hf"])}), tokenizer


def _compare(dtype: str, threads: int, args: argparse.Namespace, folder: Path) -> list[Group]:
    labels, job, tokenizer = make_job(dtype, threads, args, folder)
    results = [run_contender(name, job, folder) for name in ("vllm", "hf-lbx")]
    texts = [decode_outputs(result.outputs, tokenizer.decode) for result in results]
    groups, start = [], 0
    for at, (label, size) in enumerate(zip(labels, job.groups, strict=True)):
        equal = count_equal(*(answers[start : start + size] for answers in texts))
        theirs, ours = (result.laps[at] for result in results)
        groups.append(Group(f"{dtype}, {label}", threads, theirs, ours, equal))
        start += size
    return groups


def _widen_window(model: Path, target: Path, window: int) -> Path:
    """Link a model's files to a folder, with a larger window in config.json."""
    link_tree(model, target)
    config = json.loads((model / "config.json").read_text())
    (target / "config.json").unlink()
    (target / "config.json").write_text(json.dumps(config | {"max_position_embeddings": window}))
    return target


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def _add_documents(
    job: Job, tokenizer: HfTokenizer, lengths: Sequence[int], counts: Sequence[int]
) -> tuple[list[str], Job]:
    """Append random documents, a group for each length and count; returns the groups' labels as well."""
    source = random.Random(0)
    ends = find_end_tokens(tokenizer.control_tokens)
    tokens = [token for token in range(VOCABULARY) if token not in ends]
    prompts, groups, labels = list(job.prompts), [len(job.prompts)], [f"L-Eval coursera, {len(job.prompts)} questions"]
    for length in lengths:
        for count in counts:
            document = source.choices(tokens, k=length)
            prompts += [document + source.choices(tokens, k=QUESTION_TOKENS) for _ in range(count)]
            groups.append(count)
            labels.append(f"{length} tokens, {format_count(count, 'question')}")
    window = max(job.window, max(map(len, prompts)) + job.new_tokens)
    return labels, replace(job, prompts=prompts, groups=groups, window=window, never=sorted(ends))


def _row(group: Group) -> list[str]:
    theirs, ours = group.laps
    return [
        group.work,
        str(group.threads),
        *(f"{lap.wall_s:.1f}" for lap in group.laps),
        ratio(theirs.wall_s, ours.wall_s),
        *(f"{lap.cpu_s:.1f}" for lap in group.laps),
        *(f"{lap.busy_cores:.2f}" for lap in group.laps),
        group.equal,
    ]


def _scaling_cells(groups: Sequence[Group]) -> list[str]:
    """Speed-ups, parts that are not parallel, and projections, of one kind of work with several numbers of threads."""
    seconds = [{group.threads: group.laps[side].wall_s for group in groups} for side in range(len(NAMES))]
    scalings = [Scaling.from_seconds(by_threads) for by_threads in seconds]
    cells = [ratio(times[min(times)], times[max(times)]) for times in seconds]
    cells += [f"{scaling.serial_share:.0%}" for scaling in scalings]
    for cores in PROJECTED:
        theirs, ours = (scaling.seconds(cores) for scaling in scalings)
        cells += [f"{theirs:.1f}", f"{ours:.1f}", ratio(theirs, ours)]
    return cells


if __name__ == "__main__":
    sys.exit(main())
