"""Options of the commands to judge, rate and annotate: models and people judge answers, people write questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from lbx.cli.command_builder import SpecValues
from lbx.cli.options import LocalSessionOptions, PageOptions
from lbx.opinions.judge_spec import JudgeSpec
from lbx.options.common import (
    BUNDLE,
    OUTPUT,
    RATER,
    RESULTS,
    RUN,
    RUN_FORMS,
    WHICH_QUESTIONS,
    AsJson,
    OnlyTasks,
    ResultsArgument,
)
from lbx.options.option import UNLIMITED, Argument, Option, output_option, question_option


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

    results: Annotated[Path, RESULTS.with_help("The results file with the answers.")]
    judge: SpecValues[JudgeSpec]
    calibrate: Annotated[
        bool,
        question_option("Judge published answers instead, to compare this judge with GPT-4."),
    ] = False
    dry_run: Annotated[
        bool,
        Option("Only count verdicts and tokens.", panel="What to ask"),
    ] = False
    output: Annotated[
        Path | None,
        OUTPUT.with_help("Where to write judgements; default: the results file itself.", panel="Output"),
    ] = None
    save_spec: Annotated[
        Path | None,
        output_option("Write the judge's work for `lbx submit --spec FILE` without running the judge.", "FILE"),
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
        BUNDLE.with_help("The bundle with the documents; without it, the page shows none."),
    ] = None
    runs: Annotated[
        tuple[str, ...],
        RUN.with_help(f"Run with the answers: {RUN_FORMS}. Can be repeated; default: all runs of the file."),
    ] = ()
    kind: Annotated[
        RatingKind,
        Option("score: rate each answer on a scale; pair: choose the better of two answers.", "KIND"),
    ] = RatingKind.SCORE
    questions: Annotated[
        Questions | None,
        WHICH_QUESTIONS.with_help(
            "L-Eval's for people (human), for a judge (llm) or both; open: all with free-text answers; all. "
            "Default: the first of human, open, all that has any."
        ),
    ] = None
    tasks: OnlyTasks = ()
    items: Annotated[int | None, Option("Only the first N questions over all tasks.", "N")] = None
    raters: Annotated[int | None, Option("Number of raters, named rater-1, rater-2 ...", "N")] = None
    names: Annotated[tuple[str, ...], RATER.with_help("Name of a rater. Can be repeated.")] = ()
    raters_per_item: Annotated[int, Option("Number of raters for each question.", "N", minimum=1)] = 1
    agreement: Annotated[
        float,
        Option("Share of questions that all raters get.", "SHARE", minimum=0, maximum=1),
    ] = 0.2
    scale: Annotated[
        str | None,
        Option("Range of scores: two whole numbers, the best last; default: 1-5.", "LOW-HIGH"),
    ] = None
    criterion: Annotated[
        str,
        Option("Question that a rating answers, shown to raters; default: how well it answers.", "TEXT"),
    ] = ""
    reference_open: Annotated[bool, Option("Show references immediately; default: after a key press.")] = False
    shuffle_seed: Annotated[
        int,
        Option("Seed for the order of answers and the assignment of questions to raters.", "N", minimum=UNLIMITED),
    ] = 0
    collect: Annotated[bool, Option("Only move ratings from the journal into the results file, then stop.")] = False
    journals: Annotated[
        tuple[Path, ...],
        Option("With --collect: also read another machine's journal. Can be repeated.", "FILE", ("--journal",)),
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
        Argument("The dataset: one document per line, like L-Eval's. It is never written to.", "FILE"),
    ]
    output: Annotated[
        Path | None,
        OUTPUT.with_help("Where to write the edited dataset; default: FILE with .annotated.", metavar="OUT"),
    ] = None
    new_pairs: Annotated[int, Option("Offer N empty pairs for each document.", "N")] = 0
    read_only: Annotated[bool, Option("Only browse and search.")] = False
    take: Annotated[
        Path | None,
        Option("First apply the *_cleaned.json files that L-Eval's own tool wrote to this folder.", "DIR"),
    ] = None
    official: Annotated[
        Path | None,
        Option(
            "Also write *_cleaned.json and X.cleaned.jsonl in the format of L-Eval's own tool, which loses keys.", "DIR"
        ),
    ] = None
    write: Annotated[bool, Option("Write the saved edits (OUT, --official) and stop without opening a page.")] = False
