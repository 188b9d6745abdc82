"""Options of the commands that measure, from ``lbx doctor`` and ``lbx tasks`` to ``lbx run`` and ``lbx parity``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from lbx.cli.options import LocalSessionOptions
from lbx.cli.spec_options import SpecOptions
from lbx.options.common import BUNDLE, HISTORY, LIMIT, MEASURE_SPEED, OUTPUT, SHARD_PLAN, TASKS, AsJson, Full
from lbx.options.option import Argument, Option, option_of, process_option, shard_option
from lbx.options.run_spec import RunSpec
from lbx.report.query import ReportQuery

DEFAULT_PARITY_LIMIT = 10
"""Samples of each task that ``lbx parity`` compares."""
DEFAULT_DEPTH_DOCUMENTS = 6
"""Documents of each task that ``lbx parity --depth`` reads, as many as an interval needs."""


class Need(StrEnum):
    LLAMACPP = "llamacpp"
    HF = "hf"
    GPU = "gpu"
    OFFLINE = "offline"


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Lists the models of `lbx models` at the end, with the format of each folder's weights.

    Tests every CPU variant of llama.cpp that can run here: checks its products, and measures the tokens per second that
    one of its threads multiplies with a billion weights in Q4_K.

    Serves as a container's health check: fails (exit code 1) if no backend can run, if temporary files cannot be
    written, or if something given with --need is missing. Problems and their fixes come last.

    Example: lbx doctor --need gpu --need offline
    """

    as_json: AsJson = False
    need: Annotated[
        tuple[Need, ...],
        Option("Fail if this is missing: llamacpp, hf, gpu or offline (no network). Can be repeated.", "NAME"),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class TasksOptions:
    """Without a bundle, lists the benchmarks that lbx supports, and the recipe for each.

    Example: lbx tasks --bundle demo
    """

    bundle: Annotated[Path | None, BUNDLE.with_help("List the tasks of this bundle.")] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ModelsOptions:
    """Embedding models are for --embedding and --retriever. No model is loaded: context windows come from card or
    files.

    Example: lbx models --bundle demo
    """

    bundle: Annotated[
        Path | None,
        BUNDLE.with_help(
            "List the weights of this bundle and the cards next to it, not this folder's; ./models is always listed."
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class PlanOptions(SpecOptions):
    """Computes for a few seconds to measure the speed, or not at all if --history has earlier sessions.

    Example: lbx plan --bundle demo --model demo-hf --tasks needle
    """

    BRIEF: ClassVar[Sequence[str]] = (*SpecOptions.BRIEF, "history", "models", "margin")

    history: Annotated[
        Path | None,
        HISTORY.with_help(
            "A results file whose sessions replace the measurement. It may be missing, and must not have other "
            "versions of the questions."
        ),
    ] = None
    measure_speed: Annotated[bool, MEASURE_SPEED] = True
    models: Annotated[int, Option("Show what the questions can decide between N models.", "N", minimum=2)] = 2
    margin: Annotated[
        float | None,
        option_of(ReportQuery, "margin").with_help(
            "Show the number of documents that find a difference of POINTS; default: 1."
        ),
    ] = None
    alternatives: Annotated[
        tuple[str, ...],
        Option(
            "Plan this model, too, and show which one is faster here: the GGUF of a folder, or the folder of "
            "a GGUF. Transformers on a CPU is measured in float32 and bfloat16, unless the card sets one. "
            "Can be repeated.",
            "MODEL",
            ("--alternative",),
        ),
    ] = ()
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class PromptsOptions(SpecOptions):
    """Without -o or a number of samples (--ids, --limit, ...), shows the first one of each task. Loads the model only
    for its tokenizer, and generates no answers.

    Example: lbx prompts --bundle demo --model demo-hf --tasks needle --limit 2
    """

    BRIEF: ClassVar[Sequence[str]] = (*SpecOptions.BRIEF, "output")

    full: Full = False
    output: Annotated[
        Path | None,
        OUTPUT.with_help("Write the prompts as JSON lines, with token ids."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunOptions(LocalSessionOptions, SpecOptions):
    """Never uses the network, except the one address of a card with backend = "endpoint". Exit code 3: done, but some
    samples failed. To look before you run: --dry-run for tokens and time, `lbx prompts` for the texts.

    Example: lbx run --bundle demo --model demo-hf --tasks needle -o results.duckdb
    """

    BRIEF: ClassVar[Sequence[str]] = (*SpecOptions.BRIEF, "output", "dry_run")

    output: Annotated[Path, OUTPUT.with_help("The results file; created if missing.", panel="Output")]
    dry_run: Annotated[bool, process_option("Show the plan of the run (`lbx plan`), and generate no answers.")] = False
    shard_plan: Annotated[
        Path | None,
        replace(SHARD_PLAN, panel="One shard of many"),
    ] = None
    shard: Annotated[
        int | None,
        shard_option("Run only shard I, counted from 0.", "I", minimum=0),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ParityOptions:
    """Loads one model after the other. Shows whether two formats of one model agree, and the cost of a quantisation.

    Example: lbx parity models/my-model.toml my-model-q4_k_m.gguf --bundle demo --tasks needle
    """

    BRIEF: ClassVar[Sequence[str]] = (
        "bundle",
        "task_names",
        "limit",
        "fail_above",
        "depth",
        "texts",
        "length",
        "output",
    )

    first: Annotated[str, Argument("The reference: a model card, .gguf file or model folder.", "MODEL_A")]
    candidates: Annotated[tuple[str, ...], Argument("The model to compare it with; with --depth, several.", "MODEL_B")]
    depth: Annotated[
        bool,
        Option("Compare next-token distributions by position in long texts, not answers."),
    ] = False
    texts: Annotated[
        tuple[Path, ...],
        Option("--depth: read this text file. Can be repeated.", "FILE", ("--text",)),
    ] = ()
    length: Annotated[
        int | None,
        Option("--depth: read the first N tokens of each text; default: the context window.", "N", minimum=1024),
    ] = None
    output: Annotated[Path | None, OUTPUT.with_help("--depth: store in this results file.")] = None
    bundle: Annotated[Path | None, BUNDLE.with_help("Bundle with the prompts; default: built-in prompts.")] = None
    task_names: Annotated[
        tuple[str, ...],
        TASKS.with_help("Tasks of the bundle that provide the prompts.", completion=""),
    ] = ()
    limit: Annotated[
        int | None,
        LIMIT.with_help(f"Only the first N samples of each task; default: {DEFAULT_PARITY_LIMIT}."),
    ] = None
    documents: Annotated[
        int | None,
        option_of(RunSpec, "documents").with_help(
            f"Only the first N documents of each task; default with --depth: {DEFAULT_DEPTH_DOCUMENTS}."
        ),
    ] = None
    sample: Annotated[int | None, option_of(RunSpec, "sample")] = None
    seed: Annotated[int, option_of(RunSpec, "seed")] = 0
    ids: Annotated[tuple[str, ...], option_of(RunSpec, "ids")] = ()
    questions: Annotated[str | None, option_of(RunSpec, "questions")] = None
    positions: Annotated[
        int,
        Option("Compare logits after each of the first N tokens of an answer.", "N"),
    ] = 16
    max_prompt_tokens: Annotated[int | None, option_of(RunSpec, "max_prompt_tokens")] = None
    max_new_tokens: Annotated[int | None, option_of(RunSpec, "max_new_tokens")] = None
    chat: Annotated[bool, option_of(RunSpec, "chat")] = True
    threads: Annotated[int | None, option_of(RunSpec, "threads")] = None
    context_window: Annotated[int | None, option_of(RunSpec, "context_window")] = None
    fail_above: Annotated[
        float | None,
        Option(
            "Exit with code 1 if any logit differs by more than X, token ids differ, or either cannot be compared.",
            "X",
            minimum=0,
        ),
    ] = None
    as_json: AsJson = False
