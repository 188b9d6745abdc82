"""``lbx rate``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lbx.base.commands import as_command
from lbx.base.errors import UsageError
from lbx.cli.options import Host, Others, Port, Results, Uds
from lbx.cli.spec_options import of_run
from lbx.cli.web import check_web


class RatingKind(StrEnum):
    SCORE = "score"
    PAIR = "pair"


class Questions(StrEnum):
    HUMAN = "human"
    LLM = "llm"
    BOTH = "both"
    OPEN = "open"
    ALL = "all"


def rate(
    *,
    results: Results,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", "-b", metavar="DIR", help="Where documents are; without it there are none to see."),
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="NAME", help="Whose answers; repeated. Default: all runs of the file."),
    ] = None,
    kind: Annotated[
        RatingKind, typer.Option("--kind", help="score: each answer on a scale; pair: the better one of each two.")
    ] = RatingKind.SCORE,
    questions: Annotated[
        Questions | None,
        typer.Option(
            "--questions",
            help="Of L-Eval those marked for people (human), for a judge (llm), both; open: all that are answered in "
            "words. Default: the first of human, open, all that there are any of.",
        ),
    ] = None,
    pattern: Annotated[str, typer.Option("--match", metavar="PATTERN", help="Only these: 'leval/*_summ/*'.")] = "*",
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="The first N questions.")
    ] = None,
    raters: Annotated[
        int | None, typer.Option("--raters", metavar="N", min=1, help="So many raters: rater-1, rater-2 ...")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--rater", metavar="NAME", help="A rater by name. Can be repeated.")
    ] = None,
    raters_per_item: Annotated[
        int, typer.Option("--raters-per-item", metavar="N", min=1, help="How many raters get each question.")
    ] = 1,
    agreement: Annotated[
        float,
        typer.Option("--agreement", metavar="SHARE", min=0, max=1, help="Share of questions that all raters get."),
    ] = 0.2,
    scale: Annotated[
        str | None,
        typer.Option("--scale", metavar="LOW-HIGH", help="Of scores: whole numbers, the best last; default: 1-5."),
    ] = None,
    reference_open: Annotated[
        bool, typer.Option("--reference-open", help="Show references at once; default: on a key.")
    ] = False,
    seed: Annotated[int, of_run("seed")] = 0,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    uds: Uds = None,
    others: Others = False,
    collect: Annotated[
        bool, typer.Option("--collect", help="Only move ratings from the journal into the results file, and stop.")
    ] = False,
    journals: Annotated[
        list[Path] | None,
        typer.Option("--journal", metavar="FILE", help="With --collect: another machine's journal, too. Repeated."),
    ] = None,
) -> None:
    """Have people rate stored answers, blind, on a page of this machine; one secret link a rater.

    Every key is saved at once in RESULTS.ratings.jsonl. Ctrl-C ends it and moves the ratings into the results file. The
    same command again continues.

    Example: lbx rate results.duckdb --bundle long --run A --run B --rater ann --rater bob
    """
    if not results.is_file():
        raise UsageError(f"There is no results file {results}.", fix="Answers come first.", command="lbx run --help")
    if collect:
        from lbx.cli.collecting import collect_ratings

        collect_ratings(results, journals or [])
        return
    if journals:
        raise UsageError(
            "--journal is for --collect.", command=as_command("lbx", "rate", results, "--collect", "--journal", "FILE")
        )
    if scale and kind is RatingKind.PAIR:
        raise UsageError("--scale is for --kind score: of two answers the better one is chosen.", fix="Leave it out.")
    check_web()
    from lbx.cli.rating import rate_answers

    rate_answers(
        results=results,
        bundle=bundle,
        runs=runs,
        kind=str(kind),
        questions=questions and str(questions),
        pattern=pattern,
        limit=limit,
        raters=raters,
        names=names,
        raters_per_item=raters_per_item,
        agreement=agreement,
        scale=scale,
        reference_open=reference_open,
        seed=seed,
        host=host,
        port=port,
        uds=uds,
        others=others,
    )
