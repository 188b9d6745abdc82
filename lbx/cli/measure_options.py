"""Options of the commands that measure, from ``lbx doctor`` and ``lbx tasks`` to ``lbx run`` and ``lbx parity``."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lbx.cli.options import AsJson, AskingHere, ResultsOutput, bundle_option
from lbx.cli.spec_options import OfRun, of_run

USUAL_LIMIT = 10
"""Samples of each task that ``lbx parity`` compares."""


class Need(StrEnum):
    LLAMACPP = "llamacpp"
    HF = "hf"
    GPU = "gpu"
    OFFLINE = "offline"


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """What `lbx models` lists here stands at the end, with the format that a folder stores its weights in.

    Every CPU variant of llama.cpp that could run here is tried: whether it multiplies correctly, and how many tokens a
    second one thread of it multiplies with a billion weights in Q4_K.

    Serves as a container's health check: fails (exit code 1) when no backend can run, when there is nowhere to write
    temporary files, or when something named by --need is missing. What is wrong, and how to fix it, comes last.

    Example: lbx doctor --need gpu --need offline
    """

    as_json: AsJson = False
    need: Annotated[
        tuple[Need, ...],
        typer.Option(
            "--need",
            metavar="NAME",
            help="Fail if it is missing: llamacpp, hf, gpu or offline (no network). Can be repeated.",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Without a bundle: the benchmarks that lbx knows, and the recipe that brings each.

    Example: lbx tasks --bundle demo
    """

    bundle: Annotated[Path | None, bundle_option("List what this bundle holds.")] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class Models:
    """Embedding models are for --embedding and --retriever. Nothing is loaded: context windows are what card or files
    say.

    Example: lbx models --bundle demo
    """

    bundle: Annotated[
        Path | None,
        bundle_option(
            "List what it holds and the cards beside it, not those of this folder; ./models is listed always."
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class Plan(OfRun):
    """Nothing is run but a calibration of a few seconds, and none where a results file (-o) tells of earlier sessions.

    Example: lbx plan --bundle demo --model demo-hf --tasks needle
    """

    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Base the estimate on the sessions in this results file."),
    ] = None
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate/--no-calibrate", help="Compute for a few seconds to estimate how long a run takes."),
    ] = True
    against: Annotated[
        tuple[str, ...],
        typer.Option(
            "--against",
            metavar="MODEL",
            help="Plan the same with this model, too, and say which is faster here: the GGUF of a folder, or the "
            "folder of a GGUF. Transformers on a CPU is measured in float32 and bfloat16, unless its card names one. "
            "Can be repeated.",
        ),
    ] = ()
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class Prompts(OfRun):
    """Without -o or a choice of samples (--ids, --limit, ...) the first one of each task is shown. The model is loaded
    for its tokenizer and asked nothing.

    Example: lbx prompts --bundle demo --model demo-hf --tasks needle --limit 2
    """

    full: Annotated[bool, typer.Option("--full", help="Show texts whole; default: their ends.")] = False
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write them as JSON lines, with token ids."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Run(AskingHere, OfRun):
    """Never touches the network, but for the one address of a card with backend = "endpoint". Exit code 3 means done,
    but some samples failed.

    Example: lbx run --bundle demo --model demo-hf --tasks needle -o results.duckdb
    """

    output: ResultsOutput
    shards: Annotated[
        Path | None,
        typer.Option(
            "--shards",
            metavar="FILE",
            rich_help_panel="One shard of many",
            help="The shard plan that `lbx submit` wrote; needs --shard.",
        ),
    ] = None
    shard: Annotated[
        int | None,
        typer.Option(
            "--shard",
            metavar="I",
            min=0,
            rich_help_panel="One shard of many",
            help="Run only shard I, counted from 0.",
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class Parity:
    """One after the other in memory. Says whether two formats of one model agree, and what a quantisation costs.

    Example: lbx parity models/my-model.toml my-model-q4_k_m.gguf --bundle demo --tasks needle
    """

    BRIEF: ClassVar[Sequence[str]] = ("bundle", "task_names", "limit", "positions", "max_new_tokens", "fail_above")

    first: Annotated[str, typer.Argument(metavar="MODEL_A", help="A model card, a .gguf file, or a model folder.")]
    second: Annotated[str, typer.Argument(metavar="MODEL_B", help="The model to compare it with.")]
    bundle: Annotated[Path | None, bundle_option("Where prompts come from; default: built-in ones.")] = None
    task_names: Annotated[
        tuple[str, ...], typer.Option("--tasks", "-t", metavar="NAMES", help="Which of the bundle's tasks.")
    ] = ()
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", metavar="N", min=1, help=f"Only the first N samples of each task; default: {USUAL_LIMIT}."
        ),
    ] = None
    documents: Annotated[int | None, of_run("documents")] = None
    sample: Annotated[int | None, of_run("sample")] = None
    seed: Annotated[int, of_run("seed")] = 0
    ids: Annotated[tuple[str, ...], of_run("ids")] = ()
    positions: Annotated[
        int,
        typer.Option(
            "--positions", metavar="N", min=0, help="Compare logits after each of the first N tokens of an answer."
        ),
    ] = 16
    max_prompt_tokens: Annotated[int | None, of_run("max_prompt_tokens")] = None
    max_new_tokens: Annotated[int | None, of_run("max_new_tokens")] = None
    chat: Annotated[bool, of_run("chat")] = True
    threads: Annotated[int | None, of_run("threads")] = None
    fail_above: Annotated[
        float | None,
        typer.Option(
            "--fail-above",
            metavar="X",
            min=0,
            help="Exit with 1 if any logit differs by more than X, token ids differ, or either cannot be compared.",
        ),
    ] = None
    as_json: AsJson = False
