"""Options of the commands to judge, rate and annotate: models and people judge answers, people write questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from lbx.cli.loading import completion
from lbx.cli.options import (
    RUN_FORMS,
    AsJson,
    LocalSessionOptions,
    OnlyTasks,
    PageOptions,
    ResultsArgument,
    bundle_option,
)
from lbx.cli.spec_options import JudgeSpecOptions


class RatingKind(StrEnum):
    SCORE = "score"
    PAIR = "pair"


class Questions(StrEnum):
    HUMAN = "human"
    LLM = "llm"
    BOTH = "both"
    OPEN = "open"
    ALL = "all"


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(LocalSessionOptions):
    """Judges with L-Eval's rubric from the bundle, or with your own. Calibrate a judge before you trust it:
    `--calibrate` compares it with GPT-4.

    Example: lbx judge results.duckdb --bundle long --judge my-judge.toml --run RUN --against turbo-16k-0613
    """

    BRIEF: ClassVar[Sequence[str]] = (
        "bundle",
        "model",
        "runs",
        "against",
        "rubric",
        "calibrate",
        "limit",
        "dry_run",
    )

    results: Annotated[Path, typer.Argument(help="The results file with the answers.", metavar="RESULTS")]
    judge: JudgeSpecOptions
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            rich_help_panel="What to ask",
            help="Judge published answers instead, to compare this judge with GPT-4.",
        ),
    ] = False
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            rich_help_panel="What to ask",
            help="Only count verdicts and tokens.",
        ),
    ] = False
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            rich_help_panel="Output",
            help="Where to write judgements; default: the results file itself.",
        ),
    ] = None
    save_spec: Annotated[
        Path | None,
        typer.Option(
            "--save-spec",
            metavar="FILE",
            rich_help_panel="Output",
            help="Write the judge's work for `lbx submit --spec FILE` without running the judge.",
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class RateOptions(PageOptions):
    """Saves every rating immediately in RESULTS.ratings.jsonl. Ctrl-C moves the ratings into the results file and
    stops. Repeat the command to continue.

    Example: lbx rate results.duckdb --bundle long --run A --run B --rater ann --rater bob
    """

    BRIEF: ClassVar[Sequence[str]] = (
        "bundle",
        "runs",
        "tasks",
        "kind",
        "questions",
        "items",
        "raters",
        "names",
        "collect",
    )

    results: ResultsArgument
    bundle: Annotated[
        Path | None,
        bundle_option("The bundle with the documents; without it, the page shows none."),
    ] = None
    runs: Annotated[
        tuple[str, ...],
        typer.Option(
            "--run",
            metavar="RUN",
            help=f"Run with the answers: {RUN_FORMS}. Can be repeated; default: all runs of the file.",
            autocompletion=completion("runs"),
        ),
    ] = ()
    kind: Annotated[
        RatingKind,
        typer.Option(
            "--kind", metavar="KIND", help="score: rate each answer on a scale; pair: choose the better of two answers."
        ),
    ] = RatingKind.SCORE
    questions: Annotated[
        Questions | None,
        typer.Option(
            "--questions",
            metavar="WHICH",
            help="L-Eval's for people (human), for a judge (llm) or both; open: all with free-text answers; all. "
            "Default: the first of human, open, all that has any.",
        ),
    ] = None
    tasks: OnlyTasks = ()
    items: Annotated[
        int | None, typer.Option("--items", "-n", metavar="N", min=1, help="Only the first N questions over all tasks.")
    ] = None
    raters: Annotated[
        int | None, typer.Option("--raters", metavar="N", min=1, help="Number of raters, named rater-1, rater-2 ...")
    ] = None
    names: Annotated[
        tuple[str, ...], typer.Option("--rater", metavar="NAME", help="Name of a rater. Can be repeated.")
    ] = ()
    raters_per_item: Annotated[
        int, typer.Option("--raters-per-item", metavar="N", min=1, help="Number of raters for each question.")
    ] = 1
    agreement: Annotated[
        float,
        typer.Option("--agreement", metavar="SHARE", min=0, max=1, help="Share of questions that all raters get."),
    ] = 0.2
    scale: Annotated[
        str | None,
        typer.Option(
            "--scale", metavar="LOW-HIGH", help="Range of scores: two whole numbers, the best last; default: 1-5."
        ),
    ] = None
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion",
            metavar="TEXT",
            help="Question that a rating answers, shown to raters; default: how well it answers.",
        ),
    ] = ""
    reference_open: Annotated[
        bool, typer.Option("--reference-open", help="Show references immediately; default: after a key press.")
    ] = False
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", help="Seed for the order of answers and the assignment of questions to raters."
        ),
    ] = 0
    collect: Annotated[
        bool, typer.Option("--collect", help="Only move ratings from the journal into the results file, then stop.")
    ] = False
    journals: Annotated[
        tuple[Path, ...],
        typer.Option(
            "--journal", metavar="FILE", help="With --collect: also read another machine's journal. Can be repeated."
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class AnnotateOptions(PageOptions):
    """Every edit is saved immediately in OUT.edits.jsonl, and can be undone. OUT is written on request, and at the end
    (Ctrl-C). Repeat the command to continue.

    Example: lbx annotate LEval-data/summary/qmsum.jsonl --new-pairs 2
    """

    BRIEF: ClassVar[Sequence[str]] = ("output", "new_pairs", "read_only", "take", "official", "write")

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The dataset: one document per line, like L-Eval's. It is never written to."
        ),
    ]
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT", help="Where to write the edited dataset; default: FILE with .annotated."
        ),
    ] = None
    new_pairs: Annotated[
        int, typer.Option("--new-pairs", metavar="N", min=0, help="Offer N empty pairs for each document.")
    ] = 0
    read_only: Annotated[bool, typer.Option("--read-only", help="Only browse and search.")] = False
    take: Annotated[
        Path | None,
        typer.Option(
            "--take",
            metavar="DIR",
            help="First apply the *_cleaned.json files that L-Eval's own tool wrote to this folder.",
        ),
    ] = None
    official: Annotated[
        Path | None,
        typer.Option(
            "--official",
            metavar="DIR",
            help="Also write *_cleaned.json and X.cleaned.jsonl in the format of L-Eval's own tool, which loses keys.",
        ),
    ] = None
    write: Annotated[
        bool, typer.Option("--write", help="Write the saved edits (OUT, --official) and stop without opening a page.")
    ] = False
