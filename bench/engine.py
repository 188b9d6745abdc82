"""lbx beside asking one question at a time: tokens computed, seconds, memory and answers.

    python -m bench.engine [--smollm2] [--documents N] [--threads N] [--only hf,llamacpp-lbx] [--sample N] ...

A random Llama of 25 M parameters, or with --smollm2 a real chat model (SmolLM2-135M-Instruct, GGUF in Q4_1), answers
L-Eval's questions, greedily, 32 new tokens each: by lbx, by each backend's own high-level interface, and by
lm-evaluation-harness, on the same prompts, in processes of their own that are pinned to the same CPU cores. Columns:

    computed   prompt tokens that went through the model; "/ tree" is that over the tokens of the prompts' prefix
               tree, the lower bound
    x naive    the time of the backend's "naive" over this one's: each question alone, without a cache between them
    x loop     the time of the backend's "reuse" over this one's: llama-cpp-python's own class or transformers'
               generate, question after question, keeping the longest prefix of the one before
    peak MB    resident memory of the process at its highest, its libraries included; "work" is what answering added
    = naive    answers equal to the naive ones, to the letter
    = alone    answers equal to those of lbx --no-batching

Exit code 1: lbx answered otherwise in batches than alone (but for rounded weights on llama.cpp, where no card asks for
that), or computed more than 1.02 of the tree. Times are not asserted.
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
    REPOSITORY,
    ContenderFailedError,
    Job,
    ScaledResult,
    count_equal,
    decode_outputs,
    ratio,
    run_contender,
    scale_result,
    table,
    usable_cores,
)
from bench.inputs import (
    Question,
    documents,
    fetch_smollm2,
    link_bundle,
    make_gguf,
    make_hf,
    make_questions,
    write_cards,
)
from lbx.backends.hf.tokenizer import HfTokenizer
from lbx.base.layout import Bundle
from lbx.inference.endings import named_ends
from lbx.inference.prefix import PrefixPlan, plan_prefixes

TASKS = ("quality", "tpo", "coursera")
WINDOW = 16_384
REAL_WINDOW = 8_192
REAL_QUESTIONS = 12
OTHER_PYTHON = REPOSITORY / ".venv-bench" / "bin" / "python"
LM_EVAL = "hf-lm-eval"
MOST_COMPUTED = 1.02
SLOW = ("llamacpp-naive", "hf-naive", LM_EVAL)
"""Contenders that read every prompt whole; timing a sample of the prompts is enough."""


def main() -> int:
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as temporary:
        folder = args.folder or Path(temporary)
        bundle = link_bundle(Path(temporary) / "bundle")
        if args.smollm2:
            folder = _link_smollm2(Path(temporary) / "smollm2")
        weights = _model(folder, bundle)
        window, most = (REAL_WINDOW, REAL_QUESTIONS) if args.smollm2 else (WINDOW, None)
        tokenizer = _tokenizer(weights["hf"])
        questions = [
            question
            for task in args.tasks.split(",")
            for question in make_questions(
                bundle, tokenizer, task, documents=args.documents or None, new_tokens=args.new_tokens, window=window
            )[:most]
        ]
        cards = write_cards(folder, threads=args.threads, dtype=args.dtype, device="cpu")
        job = _job(args, questions, weights, cards)
        if args.smollm2:
            job = replace(job, window=window, never=sorted(named_ends(tokenizer.control_tokens)))
        plan = plan_prefixes(job.prompts)
        _print_mix(args, questions, plan)
        results = _run(args, job, folder)
    return _report(args, plan, results, tokenizer)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smollm2", action="store_true", help="a real chat model, and 12 questions a document")
    parser.add_argument("--dtype", default="float32", help="of transformers' weights")
    parser.add_argument("--tasks", default=",".join(TASKS), help="of L-Eval")
    parser.add_argument("--documents", type=int, default=1, help="of each task, at even distances; 0: all of them")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="CPU cores that every contender is pinned to")
    parser.add_argument("--sample", type=int, default=8, help="naive and lm-eval answer one prompt in so many; 1: all")
    parser.add_argument("--only", default="", help="contenders, by their names or their backend's")
    parser.add_argument("--folder", type=Path, help="keep the model here, and use the one that is there")
    args = parser.parse_args()
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
    args: argparse.Namespace, questions: Sequence[Question], weights: dict[str, Path], cards: dict[str, Path]
) -> Job:
    return Job(
        prompts=[list(question.request.token_ids) for question in questions],
        texts=[question.text for question in questions],
        new_tokens=args.new_tokens,
        window=WINDOW,
        weights={name: str(path) for name, path in weights.items()},
        cards={name: str(path) for name, path in cards.items()},
        cores=usable_cores(args.threads),
        dtype=args.dtype,
    )


def _names(only: str) -> list[str]:
    requested = [part for part in only.split(",") if part]
    unknown = [part for part in requested if part not in CONTENDERS and part not in ("hf", "llamacpp")]
    if unknown:
        sys.exit(f"There is no contender {unknown[0]}. There are: {', '.join(CONTENDERS)}, hf, llamacpp.")
    return [name for name in CONTENDERS if not requested or name in requested or name.partition("-")[0] in requested]


def _every(args: argparse.Namespace, name: str) -> int:
    return int(args.sample) if name in SLOW else 1


def _run(args: argparse.Namespace, job: Job, folder: Path) -> dict[str, ScaledResult]:
    results = {}
    for name in args.names:
        if name == LM_EVAL and not OTHER_PYTHON.exists():
            print(f"{name}: left out, because .venv-bench is missing; .ci/bench-setup.sh makes it", flush=True)
            continue
        every = _every(args, name)
        try:
            result = run_contender(name, job.part(every), folder, python=OTHER_PYTHON if name == LM_EVAL else None)
        except ContenderFailedError as exc:
            print(f"{name}: failed, {exc}", flush=True)
            continue
        results[name] = scale_result(job, every, result)
        notes = "".join(f"; {note}" for note in result.notes)
        print(f"{name}: {result.wall_s:.1f} s, {result.cpu_s:.1f} CPU s{notes}", flush=True)
    return results


def _print_mix(args: argparse.Namespace, questions: Sequence[Question], plan: PrefixPlan) -> None:
    prompts = sum(len(question.request.token_ids) for question in questions)
    cut = sum(question.request.truncated for question in questions)
    print(
        f"{args.tasks}: {len(questions)} questions, {prompts} prompt tokens, {plan.tree_tokens} in their prefix tree: "
        f"bound {prompts / plan.tree_tokens:.2f}x; {cut} prompts cut; {args.threads} thread(s), pinned",
        flush=True,
    )


HEADER = (
    "contender", "asked", "computed", "/ tree", "wall s", "CPU s", "x naive wall", "x naive CPU", "x loop CPU",
    "x lm-eval CPU", "peak MB", "work", "= naive", "= alone",
)  # fmt: skip


def _report(
    args: argparse.Namespace, plan: PrefixPlan, results: dict[str, ScaledResult], tokenizer: HfTokenizer
) -> int:
    answers = {name: decode_outputs(scaled.result.outputs, tokenizer.decode) for name, scaled in results.items()}
    rows = []
    for name, scaled in results.items():
        backend, result = name.partition("-")[0], scaled.result
        naive, loop, harness = (results.get(other) for other in (f"{backend}-naive", f"{backend}-reuse", LM_EVAL))
        rows.append(
            [
                name,
                str(len(answers[name])),
                f"{scaled.computed:.0f}",
                f"{scaled.computed / plan.tree_tokens:.3f}",
                f"{scaled.wall_s:.1f}",
                f"{scaled.cpu_s:.1f}",
                ratio(naive.wall_s if naive else None, scaled.wall_s),
                ratio(naive.cpu_s if naive else None, scaled.cpu_s),
                ratio(loop.cpu_s if loop else None, scaled.cpu_s),
                ratio(harness.cpu_s if harness else None, scaled.cpu_s) if backend == "hf" else "",
                f"{result.peak_mb:.0f}",
                f"{result.peak_mb - result.loaded_mb:.0f}",
                _equal_answers(args, answers, name, f"{backend}-naive"),
                _equal_answers(args, answers, name, f"{backend}-lbx-alone"),
            ]
        )
    print("\n" + table(HEADER, rows) + "\n")
    if args.sample > 1:
        print(f"Of {', '.join(SLOW)} every {args.sample}th prompt was timed and scaled by prompt tokens.")
    return _verdict(plan, results, answers, rounded=args.smollm2)


def _equal_answers(args: argparse.Namespace, answers: dict[str, list[str]], name: str, other: str) -> str:
    """ "n of n" answers equal, if either may have answered a sample only."""
    if name == other or name not in answers or other not in answers:
        return ""
    every, others = _every(args, name), _every(args, other)
    longer, shorter = (answers[other], answers[name]) if every > others else (answers[name], answers[other])
    equal, total = count_equal(longer, shorter, 1 if every == others else max(every, others))
    return f"{equal} of {total}"


def _verdict(
    plan: PrefixPlan, results: dict[str, ScaledResult], answers: dict[str, list[str]], *, rounded: bool
) -> int:
    """Print what failed; 1 if lbx answered otherwise in batches than alone, or computed too much.

    Args:
        rounded: llama.cpp's weights are in a format whose answers may differ at near-ties, as long as no card asks for
            ``batch_invariant``.
    """
    failed = False
    for backend in ("llamacpp", "hf"):
        lbx = results.get(f"{backend}-lbx")
        if lbx is None:
            continue
        share = lbx.computed / plan.tree_tokens
        if share > MOST_COMPUTED:
            print(f"{backend}-lbx computed {share:.3f} of the tree, goal at most {MOST_COMPUTED}: FAILED")
            failed = True
        alone = answers.get(f"{backend}-lbx-alone")
        if alone is not None and alone != answers[f"{backend}-lbx"] and not (rounded and backend == "llamacpp"):
            print(f"{backend}-lbx answered otherwise in batches than alone: FAILED")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
