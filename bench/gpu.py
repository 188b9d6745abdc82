"""lbx on a GPU: how much of the card's matrix rate prefill reaches, and tokens a second beside transformers' own ways.

    python -m bench.gpu [--documents N] [--questions N] [--length N] [--tiny]

A random Llama of 1.5 B parameters (the shape of Llama 3.2 1B with an output matrix of its own) in bfloat16 reads
documents of random tokens, each with several questions. Every contender runs in a process of its own:

    prefill    one document and one new token, after a document that warms up: FLOPs of the layers and of causal
               attention over the seconds it took, beside what a large bfloat16 matrix product reaches on this card
    answers    all questions: prompt tokens answered a second (a shared one counts for each question that it serves),
               new tokens a second, and the most of the GPU's memory that torch took

Exit code: 2 where torch sees no CUDA device, 1 where lbx answered otherwise than "generate" in float32 (--dtype
float32; in bfloat16 near-ties fall either way, and the share of equal answers is only printed). --tiny runs all of it
on whatever there is, a CPU too, with a model that is no measure of anything: it shows that the benchmark works.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.contest import (
    REPOSITORY,
    ContenderFailedError,
    Job,
    Result,
    count_equal,
    decode_outputs,
    ratio,
    run_contender,
    table,
    usable_cores,
)
from bench.inputs import Shape, make_hf, write_cards

FULL = Shape(vocabulary=128_256, hidden=2048, intermediate=8192, layers=16, heads=32, kv_heads=8, context=40_960)
TINY = Shape(vocabulary=2048, hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, context=1024)
CONTENDERS = ("hf-lbx", "hf-naive", "hf-batch")
QUESTION = 64
NO_GPU = 2
GOAL = 0.70


def main() -> int:
    import torch

    args = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not args.tiny:
        print(
            "bench-gpu: torch sees no CUDA device, so nothing was measured. Run it on a machine with an NVIDIA GPU and "
            "a CUDA build of torch; --tiny tries the benchmark itself out on a CPU.",
            file=sys.stderr,
        )
        return NO_GPU
    shape = TINY if args.tiny else FULL
    args.vocabulary = shape.vocabulary
    dtype = args.dtype or ("float32" if device == "cpu" else "bfloat16")
    rate = matrix_rate(device, dtype, 256 if args.tiny else 8192)
    print(f"{_name(device)}, torch {torch.__version__}: {rate / 1e12:.2f} TFLOP/s in a {dtype} matrix product")
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as temporary:
        folder = Path(temporary)
        make_hf(folder, [(REPOSITORY / "README.md").read_text("utf-8")], shape, dtype=dtype, device=device)
        job = _job(args, shape, folder, device, dtype)
        print(
            f"{parameters(shape) / 1e9:.3f} B parameters; {args.documents} documents of {args.length} tokens, "
            f"{args.questions} questions each, {args.new_tokens} new tokens; prefill_chunk {args.prefill_chunk}",
            flush=True,
        )
        _prefill(args, shape, job, folder, rate)
        return _answers(args, job, folder)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--documents", type=int, default=2)
    parser.add_argument("--questions", type=int, default=16, help="on each document")
    parser.add_argument("--length", type=int, default=0, help="of a document in tokens; default: 32768, tiny 256")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--prefill-chunk", type=int, default=2048, help="tokens that lbx computes at once")
    parser.add_argument("--dtype", default="", help="bfloat16 by default; float32 on a CPU")
    parser.add_argument("--tiny", action="store_true", help="a small model on any device, to try the benchmark out")
    args = parser.parse_args()
    args.length = args.length or (256 if args.tiny else 32_768)
    if args.tiny:
        args.questions, args.new_tokens = min(args.questions, 3), min(args.new_tokens, 8)
    return args


def _name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


def matrix_rate(device: str, dtype: str, size: int, *, seconds: float = 1.0) -> float:
    """FLOP/s of the product of two square matrices: the best of several runs, each of many products."""
    import torch

    left, right = (torch.randn(size, size, device=device, dtype=getattr(torch, dtype)) for _ in range(2))

    def run(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            left @ right
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - start) / times

    run(3)
    times = max(1, int(seconds / 5 / run(3)))
    return 2 * size**3 / min(run(times) for _ in range(5))


def layer_parameters(shape: Shape) -> int:
    """Of all layers' matrices: what every token of a prompt is multiplied with. Only a last one meets the output's."""
    head = shape.hidden // shape.heads
    attention = shape.hidden * head * (2 * shape.heads + 2 * shape.kv_heads)
    return shape.layers * (attention + 3 * shape.hidden * shape.intermediate)


def parameters(shape: Shape) -> int:
    """All of them but the norms'."""
    return layer_parameters(shape) + 2 * shape.vocabulary * shape.hidden


def prefill_flops(shape: Shape, tokens: int) -> float:
    """Of one prompt: two for each parameter and token, and for each pair of a token and one it sees (itself and those
    before) two for the score and two for the value, in every dimension of every layer.
    """
    pairs = tokens * (tokens + 1) / 2
    return 2.0 * layer_parameters(shape) * tokens + 4.0 * shape.hidden * shape.layers * pairs


def prompts(rng: random.Random, vocabulary: int, documents: int, length: int, questions: int) -> list[list[int]]:
    """Documents of random tokens, each followed by each of its questions; 0 and 1 are BOS and EOS."""
    made = []
    for _ in range(documents):
        document = [0, *(rng.randrange(2, vocabulary) for _ in range(length - 1))]
        made += [document + [rng.randrange(2, vocabulary) for _ in range(QUESTION)] for _ in range(questions)]
    return made


def _job(args: argparse.Namespace, shape: Shape, folder: Path, device: str, dtype: str) -> Job:
    cards = write_cards(folder, dtype=dtype, device=device, prefill_chunk=args.prefill_chunk, max_sequences=64)
    made = prompts(random.Random(0), shape.vocabulary, args.documents, args.length, args.questions)
    return Job(
        prompts=made,
        new_tokens=args.new_tokens,
        window=shape.context,
        weights={"hf": str(folder / "hf")},
        cards={"hf": str(cards["hf"])},
        cores=usable_cores(),
        device=device,
        dtype=dtype,
    )


def _run(name: str, job: Job, folder: Path) -> Result | None:
    try:
        result = run_contender(name, job, folder)
    except ContenderFailedError as exc:
        print(f"{name}: failed, {exc}", flush=True)
        return None
    for note in result.notes:
        print(f"{name}: {note}", flush=True)
    return result


def _prefill(args: argparse.Namespace, shape: Shape, job: Job, folder: Path, rate: float) -> None:
    made = prompts(random.Random(1), shape.vocabulary, 3, args.length, 1)
    alone = replace(job, prompts=made, new_tokens=1, groups=[1, 1, 1])
    flops = prefill_flops(shape, args.length + QUESTION)
    rows = []
    for name in CONTENDERS[:2]:
        result = _run(name, alone, folder)
        if result is not None:
            seconds = min(lap.wall_s for lap in result.laps[1:])
            share = flops / seconds / rate
            rows.append([name, f"{seconds:.3f}", f"{(args.length + QUESTION) / seconds:.0f}", f"{share:.1%}"])
    print("\n" + table(["prefill of one document", "s", "tokens/s", "of the matrix rate"], rows))
    print(f"goal: {GOAL:.0%} of the matrix rate\n", flush=True)


def _answers(args: argparse.Namespace, job: Job, folder: Path) -> int:
    found = {}
    strangers = prompts(random.Random(2), args.vocabulary, 1, args.length, args.questions)
    for name in CONTENDERS:
        warm_up = strangers[:1] if name == "hf-naive" else strangers  # alone there is no batch to get used to
        made = [*warm_up, *job.prompts]
        result = _run(name, replace(job, prompts=made, groups=[len(warm_up), len(job.prompts)]), folder)
        if result is not None:
            found[name] = result
    decode = _decoder(Path(job.weights["hf"]))
    said = {name: decode_outputs(one.outputs[-len(job.prompts) :], decode) for name, one in found.items()}
    naive = found.get("hf-naive")
    rows = []
    for name, one in found.items():
        lap = one.laps[-1]
        rows.append(
            [
                name,
                f"{lap.wall_s:.2f}",
                f"{job.prompt_tokens / lap.wall_s:.0f}",
                f"{len(job.prompts) * job.new_tokens / lap.wall_s:.0f}",
                str(lap.tokens),
                ratio(naive.laps[-1].wall_s if naive else None, lap.wall_s),
                f"{one.gpu_mb:.0f}",
                count_equal(said[name], said["hf-naive"]) if naive else "",
            ]
        )
    header = ["answers", "wall s", "prompt tokens/s", "new tokens/s", "computed", "x naive", "GPU MB", "= naive"]
    print(table(header, rows))
    exact = job.dtype == "float32" and naive is not None and "hf-lbx" in said
    return int(len(found) < len(CONTENDERS) or (exact and said["hf-lbx"] != said["hf-naive"]))


def _decoder(folder: Path) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return lambda ids: tokenizer.decode(list(ids), skip_special_tokens=True)


if __name__ == "__main__":
    sys.exit(main())
