"""Options of the commands of ``lbx runs``."""

from dataclasses import dataclass
from typing import Annotated

import typer

from lbx.cli.loading import completion
from lbx.cli.options import RUN_FORMS, AsJson, ResultsArgument

RunArgument = Annotated[
    str, typer.Argument(help=f"The run: {RUN_FORMS}.", metavar="RUN", autocompletion=completion("runs"))
]


@dataclass(frozen=True, kw_only=True)
class ListRunsOptions:
    """`lbx runs FILE` is the same command. Sizes are estimates: bytes of a run's own texts and rows before
    compression; questions, which runs share, are not counted.

    Example: lbx runs list results.duckdb
    """

    results: ResultsArgument
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class RenameRunOptions:
    """Changes the name everywhere in the file: answers, scores, judgements, ratings. All or nothing is changed.

    Example: lbx runs rename results.duckdb OLD NEW
    """

    results: ResultsArgument
    run: RunArgument
    new_name: Annotated[str, typer.Argument(help="The new name.", metavar="NEW")]
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class RemoveRunsOptions:
    """Removes runs or judges with their answers, scores and sessions, and questions that no other run uses, all or
    nothing. Refuses runs that a judge or people rated, unless --with-dependents. Removed texts stay in free blocks of
    the file until --vacuum.

    Example: lbx runs remove results.duckdb RUN --vacuum
    """

    results: ResultsArgument
    runs: Annotated[
        tuple[str, ...],
        typer.Argument(
            help=f"The runs, each {RUN_FORMS}; none to only --vacuum.",
            metavar="[RUN]...",
            autocompletion=completion("runs"),
        ),
    ] = ()
    with_dependents: Annotated[
        bool,
        typer.Option("--with-dependents", help="Also remove judgements and people's ratings of their answers."),
    ] = False
    vacuum: Annotated[
        bool,
        typer.Option("--vacuum", help="Rewrite the file without free blocks. Needs room for a copy next to it."),
    ] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class NoteRunOptions:
    """Leaderboards want these facts in result files: PE and IDD for L-Eval, type for LongBench Pro. They are not part
    of the run's name. Without KEY=VALUE, shows the recorded facts.

    Example: lbx runs note results.duckdb RUN PE=no "Max-Ctx=16k" IDD=no
    """

    results: ResultsArgument
    run: RunArgument
    said: Annotated[
        tuple[str, ...], typer.Argument(metavar="[KEY=VALUE]...", help="Facts to record; KEY= removes one.")
    ] = ()
    as_json: AsJson = False
