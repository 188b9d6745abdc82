"""lbx beside the loop that a user writes: tokens computed, seconds, memory and answers.

    python -m bench.engine [--smollm2] [--documents N] [--threads N] [--only hf,llamacpp-lbx] ...

A random Llama of 25 M parameters, or with --smollm2 a real chat model (SmolLM2-135M-Instruct, GGUF in Q4_1), answers
L-Eval's questions, greedily, 32 new tokens each: by lbx and by each backend's own high-level interface, on the same
prompts, in processes of their own that are pinned to the same CPU cores. Columns:

    computed   prompt tokens that went through the model; "/ tree" is that over the tokens of the prompts' prefix
               tree, the lower bound
    x loop     the time of the backend's "reuse" over this one's: llama-cpp-python's own class or transformers'
               generate, question after question, keeping the longest prefix of the one before
    peak MB    resident memory of the process at its highest, its libraries included; "work" is what answering added
    = loop     answers equal to those of "reuse", to the letter
    = alone    answers equal to those of lbx --no-batching

Exit code 1: lbx answered otherwise in batches than alone (but for llama.cpp, where the cards do not ask for that), or
computed more than 1.02 of the tree. Times are not asserted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.contenders import CONTENDERS
from bench.contest import (
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
from bench.inputs import (
    documents,
    fetch_smollm2,
    link_bundle,
    make_gguf,
    make_hf,
    make_requests,
    write_cards,
)
from lbx.backends.hf.tokenizer import HfTokenizer
from lbx.base.bundle_folder import Bundle
from lbx.base.records import Request
from lbx.engine.prefix import PrefixPlan, plan_prefixes
from lbx.engine.sampling_settings import find_end_tokens

BACKENDS = ("hf", "llamacpp")
TASKS = ("quality", "tpo", "coursera")
WINDOW = 16_384
REAL_WINDOW = 8_192
REAL_QUESTIONS = 12
MOST_COMPUTED = 1.02


def main() -> int:
    args = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as temporary:
        job, requests, tokenizer = prepare_job(args, Path(temporary))
        plan = plan_prefixes(job.prompts)
        _print_mix(args, requests, plan)
        results = _run(args.names, job, args.folder or Path(temporary))
    return _report(job, plan, results, tokenizer)


def prepare_job(args: argparse.Namespace, temporary: Path) -> tuple[Job, list[Request], HfTokenizer]:
    """Make the model, its cards and the prompts."""
    folder = args.folder or temporary
    bundle = link_bundle(temporary / "bundle")
    if args.smollm2:
        folder = _link_smollm2(temporary / "smollm2")
    weights = _model(folder, bundle)
    window, most = (REAL_WINDOW, REAL_QUESTIONS) if args.smollm2 else (WINDOW, None)
    tokenizer = _tokenizer(weights["hf"])
    requests = [
        request
        for task in args.tasks.split(",")
        for request in make_requests(
            bundle, tokenizer, task, documents=args.documents or None, new_tokens=args.new_tokens, window=window
        )[:most]
    ]
    cards = write_cards(folder, threads=args.threads, dtype=args.dtype, device="cpu")
    job = _job(args, requests, weights, cards)
    if args.smollm2:
        job = replace(job, window=window, never=sorted(find_end_tokens(tokenizer.control_tokens)))
    return job, requests, tokenizer


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smollm2", action="store_true", help="a real chat model, and 12 questions a document")
    parser.add_argument("--dtype", default="float32", help="of transformers' weights")
    parser.add_argument("--tasks", default=",".join(TASKS), help="of L-Eval")
    parser.add_argument("--documents", type=int, default=1, help="of each task, at even distances; 0: all of them")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="CPU cores that every contender is pinned to")
    parser.add_argument("--only", default="", help="contenders, by their names or their backend's")
    parser.add_argument("--folder", type=Path, help="keep the model here, and use the one that is there")
    args = parser.parse_args(words)
    args.names = _names(args.only)
    return args


def _model(folder: Path, bundle: Bundle) -> dict[str, Path]:
    weights = {"hf": folder / "hf", "llamacpp": folder / "model.gguf"}
    if not all(path.exists() for path in weights.values()):
        folder.mkdir(parents=True, exist_ok=True)
        make_hf(folder, documents(bundle))
        make_gguf(folder)
    return weights


def _link_smollm2(folder: Path) -> Path:
    """A folder with SmolLM2 under the names of the random model."""
    folder.mkdir()
    for kind, name in (("gguf", "model.gguf"), ("hf", "hf")):
        (folder / name).symlink_to(fetch_smollm2(kind))
    return folder


def _tokenizer(folder: Path) -> HfTokenizer:
    from transformers import AutoTokenizer

    return HfTokenizer(AutoTokenizer.from_pretrained(folder), None)


def _job(
    args: argparse.Namespace, requests: Sequence[Request], weights: dict[str, Path], cards: dict[str, Path]
) -> Job:
    return Job(
        prompts=[list(request.token_ids) for request in requests],
        new_tokens=args.new_tokens,
        window=WINDOW,
        weights={name: str(path) for name, path in weights.items()},
        cards={name: str(path) for name, path in cards.items()},
        cores=usable_cores(args.threads),
        dtype=args.dtype,
    )


def _names(only: str) -> list[str]:
    requested = [part for part in only.split(",") if part]
    unknown = [part for part in requested if part not in CONTENDERS and part not in BACKENDS]
    if unknown:
        sys.exit(f"There is no contender {unknown[0]}. There are: {', '.join(CONTENDERS)}, hf, llamacpp.")
    chosen = requested or BACKENDS
    return [name for name in CONTENDERS if name in chosen or name.partition("-")[0] in chosen]


def _run(names: Sequence[str], job: Job, folder: Path) -> dict[str, Result]:
    results = {}
    for name in names:
        try:
            result = run_contender(name, job, folder)
        except ContenderFailedError as exc:
            print(f"{name}: failed, {exc}", flush=True)
            continue
        results[name] = result
        notes = "".join(f"; {note}" for note in result.notes)
        print(f"{name}: {result.wall_s:.1f} s, {result.cpu_s:.1f} CPU s{notes}", flush=True)
    return results


def _print_mix(args: argparse.Namespace, requests: Sequence[Request], plan: PrefixPlan) -> None:
    prompts = sum(len(request.token_ids) for request in requests)
    cut = sum(request.truncated for request in requests)
    print(
        f"{args.tasks}: {len(requests)} questions, {prompts} prompt tokens, {plan.tree_tokens} in their prefix tree: "
        f"bound {prompts / plan.tree_tokens:.2f}x; {cut} prompts cut; {args.threads} thread(s), pinned",
        flush=True,
    )


HEADER = (
    "contender", "computed", "/ tree", "wall s", "CPU s", "x loop CPU", "peak MB", "work", "= loop", "= alone",
)  # fmt: skip


def _report(job: Job, plan: PrefixPlan, results: dict[str, Result], tokenizer: HfTokenizer) -> int:
    answers = {name: decode_outputs(result.outputs, tokenizer.decode) for name, result in results.items()}
    rows = []
    for name, result in results.items():
        loop, alone = (f"{name.partition('-')[0]}-{other}" for other in ("reuse", "lbx-alone"))
        computed = _prompt_tokens_computed(job, result)
        rows.append(
            [
                name,
                str(computed),
                f"{computed / plan.tree_tokens:.3f}",
                f"{result.wall_s:.1f}",
                f"{result.cpu_s:.1f}",
                ratio(results[loop].cpu_s if loop in results else None, result.cpu_s),
                f"{result.peak_mb:.0f}",
                f"{result.peak_mb - result.loaded_mb:.0f}",
                *(count_equal(answers[name], answers[other]) if other in answers else "" for other in (loop, alone)),
            ]
        )
    print("\n" + table(HEADER, rows) + "\n")
    return _verdict(job, plan, results, answers)


def _prompt_tokens_computed(job: Job, result: Result) -> int:
    """All tokens but those of the answers, of which each but the last is fed back."""
    return result.tokens - len(job.prompts) * (job.new_tokens - 1)


def _verdict(job: Job, plan: PrefixPlan, results: dict[str, Result], answers: dict[str, list[str]]) -> int:
    """Print what failed; 1 if lbx answered otherwise in batches than alone, or computed too much."""
    failed = False
    for backend in ("llamacpp", "hf"):
        lbx = results.get(f"{backend}-lbx")
        if lbx is None:
            continue
        share = _prompt_tokens_computed(job, lbx) / plan.tree_tokens
        if share > MOST_COMPUTED:
            print(f"{backend}-lbx computed {share:.3f} of the tree, goal at most {MOST_COMPUTED}: FAILED")
            failed = True
        alone = answers.get(f"{backend}-lbx-alone")
        if alone is not None and alone != answers[f"{backend}-lbx"] and backend == "hf":
            print(f"{backend}-lbx answered otherwise in batches than alone: FAILED")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
