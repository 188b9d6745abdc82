"""Options of the commands of ``lbx runs``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lbx.options.common import OUTPUT, RUN_FORMS, RUN_NAME, AsJson, ResultsArgument
from lbx.options.option import Argument, Option

RunArgument = Annotated[str, RUN_NAME]


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
    new_name: Annotated[str, Argument("The new name.", "NEW")]
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class RemoveRunsOptions:
    """Removes runs or judges with their answers, scores and sessions, and questions that no other run uses, all or
    nothing, or comparisons by position (pair_id in the report depth_parity). Refuses runs that a judge or people rated,
    unless --with-dependents. Removed texts stay in free blocks of the file until --vacuum.

    Example: lbx runs remove results.duckdb RUN --vacuum
    """

    results: ResultsArgument
    runs: Annotated[
        tuple[str, ...],
        RUN_NAME.with_help(f"The runs, each {RUN_FORMS}; none to only --vacuum.", metavar="[RUN]..."),
    ] = ()
    with_dependents: Annotated[
        bool,
        Option("Also remove judgements and people's ratings of their answers."),
    ] = False
    vacuum: Annotated[
        bool,
        Option("Rewrite the file without free blocks. Needs room for a copy next to it."),
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
    facts: Annotated[tuple[str, ...], Argument("Facts to record; KEY= removes one.", "[KEY=VALUE]...")] = ()
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ExtractRunsOptions:
    """Judgements and ratings on the runs come along, with the judges. The new file is written whole or not at all.

    With --without-texts it has no questions, references, choices, prompts, chunks, answers, reasoning, comments or
    messages. Every report without texts shows the same numbers. It keeps names, settings, paths and hashes; sentences
    among them are left out and named.

    Example: lbx runs extract results.duckdb --without-texts -o shared.duckdb
    """

    results: ResultsArgument
    runs: Annotated[
        tuple[str, ...],
        RUN_NAME.with_help(f"A run or judge: {RUN_FORMS}. Default: all."),
    ] = ()
    output: Annotated[Path, OUTPUT.with_help("The new results file.")]
    without_texts: Annotated[bool, Option("Leave out all texts.")] = False
    keep_answers: Annotated[bool, Option("With --without-texts: keep the models' answers.")] = False
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class ListTextsOptions:
    """Origins: dataset (questions, references, choices), retriever (parts of documents), model, judge, person, file
    (rows of an imported file, which may have texts of any origin), message (of an error), fact (sentences among
    settings, hardware and notes), unknown (columns of other programs). Sizes are bytes before compression. The file
    does not record licences.

    Example: lbx runs texts results.duckdb
    """

    results: ResultsArgument
    as_json: AsJson = False
