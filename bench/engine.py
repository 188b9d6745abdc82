"""How much less lbx computes than asking one question at a time, and whether it says the same.

    python -m bench.engine [--smollm2] [--documents N] [--threads N] [--only hf,llamacpp-lbx] [--sample N] ...

A random Llama of 25 M parameters, or with --smollm2 a real chat model (SmolLM2-135M-Instruct, GGUF in Q4_1), answers
L-Eval's questions, greedily, 32 new tokens each: through lbx, through each backend's own high-level interface, and
through lm-evaluation-harness, all in this run, on the same prompts, in processes of their own that are pinned to the
same CPU cores. What is told apart:

    computed   prompt tokens that went through the model; "/ tree" is that over the tokens of the prompts' prefix
               tree, which is the least that can be
    x naive    how many times as long the backend's "naive" took: each question alone, everything forgotten between
    peak MB    resident memory of the process at its highest, its libraries included; "work" is what answering added
    = naive    how many answers are the naive ones, to the letter
    = alone    how many are those of lbx --no-batching
    x loop     how many times as long the backend's "reuse" took, the best that twenty lines do: llama-cpp-python's own
               class or transformers' generate, question after question, keeping the longest prefix of the one before

Exit code 1: lbx answered otherwise in batches than alone (but for rounded weights on llama.cpp, where no card asks for
that), or computed more than 1.02 of the tree; nobody asserts times.
The bound of a mix depends on the documents; the tasks whole have the one that is printed for them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.contenders import CONTENDERS
from bench.figures import MOST_COMPUTED, Standing, equal_outputs, ratio, standing, table, texts
from bench.job import ContenderFailedError, Job, own_cores, run_contender
from bench.model import REPOSITORY, fetch_smollm2, make_gguf, make_hf, write_cards
from bench.prompts import Asked, ask, documents, link_bundle, tasks_there
from lbx.backends.hf.tokenizer import HfTokenizer
from lbx.base.layout import Bundle
from lbx.inference.prefix import PrefixPlan, plan_prefixes
from lbx.inference.sampling import named_ends

TASKS = ("quality", "tpo", "coursera")
WINDOW = 16_384
REAL_WINDOW = 8_192
REAL_QUESTIONS = 12
OTHER_PYTHON = REPOSITORY / ".venv-bench" / "bin" / "python"
LM_EVAL = "hf-lm-eval"
GOALS = {("llamacpp-lbx", "llamacpp-naive"): 8.0, ("hf-lbx", "hf-naive"): 9.0, ("hf-lbx", LM_EVAL): 8.0}
SLOW = ("llamacpp-naive", "hf-naive", LM_EVAL)
"""Those that read every prompt whole: a sample of the prompts tells as much of them."""


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
        if not args.skip_whole:
            _print_whole(bundle, tokenizer)
        asked = [
            one
            for task in args.tasks.split(",")
            for one in ask(
                bundle, tokenizer, task, documents=args.documents or None, new_tokens=args.new_tokens, window=window
            )[:most]
        ]
        cards = write_cards(folder, threads=args.threads, dtype=args.dtype, device="cpu")
        job = _job(args, asked, weights, cards)
        if args.smollm2:
            job = replace(job, window=window, never=sorted(named_ends(tokenizer.control_tokens)))
        plan = plan_prefixes(job.prompts)
        _print_mix(args, asked, plan)
        found = _run(args, job, folder)
    return _report(args, job, plan, found, tokenizer)


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
    parser.add_argument("--json", type=Path, help="write all figures to this file, too")
    parser.add_argument("--skip-whole", action="store_true", help="do not count the tokens of whole L-Eval (a minute)")
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
    """A folder in which the real model has the names of the made one."""
    folder.mkdir()
    for kind, name in (("gguf", "model.gguf"), ("hf", "hf")):
        (folder / name).symlink_to(fetch_smollm2(kind))
    return folder


def _tokenizer(folder: Path) -> HfTokenizer:
    from transformers import AutoTokenizer

    return HfTokenizer(AutoTokenizer.from_pretrained(folder), None)


def _job(args: argparse.Namespace, asked: Sequence[Asked], weights: dict[str, Path], cards: dict[str, Path]) -> Job:
    return Job(
        prompts=[list(one.request.token_ids) for one in asked],
        texts=[one.text for one in asked],
        new_tokens=args.new_tokens,
        window=WINDOW,
        weights={name: str(path) for name, path in weights.items()},
        cards={name: str(path) for name, path in cards.items()},
        cores=own_cores(args.threads),
        dtype=args.dtype,
    )


def _names(only: str) -> list[str]:
    wanted = [part for part in only.split(",") if part]
    unknown = [part for part in wanted if part not in CONTENDERS and part not in ("hf", "llamacpp")]
    if unknown:
        sys.exit(f"There is no contender {unknown[0]}. There are: {', '.join(CONTENDERS)}, hf, llamacpp.")
    return [name for name in CONTENDERS if not wanted or name in wanted or name.partition("-")[0] in wanted]


def _every(args: argparse.Namespace, name: str) -> int:
    return int(args.sample) if name in SLOW else 1


def _run(args: argparse.Namespace, job: Job, folder: Path) -> dict[str, Standing]:
    found = {}
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
        found[name] = standing(job, every, result)
        notes = "".join(f"; {note}" for note in result.notes)
        print(f"{name}: {result.wall_s:.1f} s, {result.cpu_s:.1f} CPU s{notes}", flush=True)
    return found


def _print_mix(args: argparse.Namespace, asked: Sequence[Asked], plan: PrefixPlan) -> None:
    prompts = sum(len(one.request.token_ids) for one in asked)
    cut = sum(one.request.truncated for one in asked)
    print(
        f"{args.tasks}: {len(asked)} questions, {prompts} prompt tokens, {plan.tree_tokens} in their prefix tree: "
        f"bound {prompts / plan.tree_tokens:.2f}x; {cut} prompts cut; {args.threads} thread(s), pinned",
        flush=True,
    )


def _print_whole(bundle: Bundle, tokenizer: HfTokenizer) -> None:
    """What lbx would compute of all of L-Eval, uncut, by its planner; no model computes."""
    rows, prompts, tree, computed, repeated = [], 0, 0, 0, 0
    for task in tasks_there(bundle):
        asked = ask(bundle, tokenizer, task)
        plan = plan_prefixes([one.request.token_ids for one in asked])
        tokens = sum(len(one.request.token_ids) for one in asked)
        rows.append([task, str(len(asked)), str(tokens), str(plan.tree_tokens), ratio(tokens, plan.tree_tokens)])
        prompts, tree, computed = prompts + tokens, tree + plan.tree_tokens, computed + plan.computed_tokens
        repeated += sum(len(one.request.token_ids) * one.repeats for one in asked)
    rows.append(["all", str(sum(int(row[1]) for row in rows)), str(prompts), str(tree), ratio(prompts, tree)])
    print(table(["task", "questions", "prompt tokens", "tree", "bound"], rows))
    print(
        f"whole L-Eval: lbx computes {computed} of {prompts} prompt tokens, {computed / tree:.4f} of the tree;\n"
        f"with the questions that the data repeat for a judge, which lbx asks once, {prompts + repeated}, "
        f"{ratio(prompts + repeated, computed)} times as many\n"
    )


HEADER = (
    "contender", "asked", "computed", "/ tree", "wall s", "CPU s", "x naive wall", "x naive CPU", "x loop CPU",
    "x lm-eval CPU", "peak MB", "work", "= naive", "= alone",
)  # fmt: skip


def _report(
    args: argparse.Namespace, job: Job, plan: PrefixPlan, found: dict[str, Standing], tokenizer: HfTokenizer
) -> int:
    said = {name: texts(one.result.outputs, tokenizer.decode) for name, one in found.items()}
    rows = []
    for name, one in found.items():
        backend, result = name.partition("-")[0], one.result
        naive, loop, harness = found.get(f"{backend}-naive"), found.get(f"{backend}-reuse"), found.get(LM_EVAL)
        rows.append(
            [
                name,
                str(len(said[name])),
                f"{one.computed:.0f}",
                f"{one.computed / plan.tree_tokens:.3f}",
                f"{one.wall_s:.1f}",
                f"{one.cpu_s:.1f}",
                ratio(naive.wall_s if naive else None, one.wall_s),
                ratio(naive.cpu_s if naive else None, one.cpu_s),
                ratio(loop.cpu_s if loop else None, one.cpu_s),
                ratio(harness.cpu_s if harness else None, one.cpu_s) if backend == "hf" else "",
                f"{result.peak_mb:.0f}",
                f"{result.peak_mb - result.loaded_mb:.0f}",
                _equal(args, said, name, f"{backend}-naive"),
                _equal(args, said, name, f"{backend}-lbx-alone"),
            ]
        )
    print("\n" + table(HEADER, rows) + "\n")
    if args.sample > 1:
        print(f"Of {', '.join(SLOW)} every {args.sample}th prompt was timed and scaled by prompt tokens.")
    if args.json:
        args.json.write_text(json.dumps(_figures(job, plan, found), indent=1))
    return _verdict(plan, found, said, rounded=args.smollm2)


def _equal(args: argparse.Namespace, said: dict[str, list[str]], name: str, other: str) -> str:
    """ "n of n" answers equal, where either may have answered a sample only."""
    if name == other or name not in said or other not in said:
        return ""
    every, others = _every(args, name), _every(args, other)
    longer, shorter = (said[other], said[name]) if every > others else (said[name], said[other])
    equal, of = equal_outputs(longer, shorter, 1 if every == others else max(every, others))
    return f"{equal} of {of}"


def _figures(job: Job, plan: PrefixPlan, found: dict[str, Standing]) -> dict[str, Any]:
    return {
        "questions": len(job.prompts),
        "prompt_tokens": job.prompt_tokens,
        "tree_tokens": plan.tree_tokens,
        "cores": list(job.cores),
        "contenders": {
            name: {key: value for key, value in asdict(one.result).items() if key != "outputs"}
            | {"scale": one.scale, "computed": one.computed}
            for name, one in found.items()
        },
    }


def _verdict(plan: PrefixPlan, found: dict[str, Standing], said: dict[str, list[str]], *, rounded: bool) -> int:
    """Goals beside what was reached; 1 where lbx did not say the same, or computed too much.

    Args:
        rounded: llama.cpp's weights are in a format whose answers may differ at near-ties, as long as no card asks for
            ``batch_invariant``.
    """
    failed = False
    for (name, other), goal in GOALS.items():
        if name in found and other in found:
            reached = found[other].cpu_s / found[name].cpu_s
            print(f"{name} against {other}: {reached:.2f}x in CPU seconds, goal {goal:.0f}x")
    for backend in ("llamacpp", "hf"):
        one, naive = found.get(f"{backend}-lbx"), found.get(f"{backend}-naive")
        if one is None:
            continue
        if naive is not None:
            peaks = f"{one.result.peak_mb:.0f} MB, naive {naive.result.peak_mb:.0f} MB"
            print(f"{backend}-lbx at its peak: {peaks}; goal: no more")
        share = one.computed / plan.tree_tokens
        if share > MOST_COMPUTED:
            print(f"{backend}-lbx computed {share:.3f} of the tree, goal at most {MOST_COMPUTED}: FAILED")
            failed = True
        alone = said.get(f"{backend}-lbx-alone")
        if alone is not None and alone != said[f"{backend}-lbx"] and not (rounded and backend == "llamacpp"):
            print(f"{backend}-lbx answered otherwise in batches than alone: FAILED")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
