"""Typer app of lbx, its entry point, and conversion of errors to messages and exit codes.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 done but some samples failed, 4 undecided, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import traceback
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, TyperException

from lbx.base.errors import ConflictError, InUseError, LbxError, files_read
from lbx.base.exit_codes import ExitCode
from lbx.base.phases import phases
from lbx.base.standard_streams import ClosedOutputError, prepare_standard_streams
from lbx.base.version import __version__
from lbx.cli.command_builder import Command, CommandSpec, PlainTypes, build_command
from lbx.cli.error_conversion import as_lbx_error, offer_own_file, with_other_output
from lbx.cli.output import Notes, answer, show_error, show_traceback, show_usage_error


def _version(value: bool) -> None:
    if value:
        answer(f"lbx {__version__}")
        raise typer.Exit


def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show tracebacks, the libraries' own logs, and what a run's start costs.")
    ] = False,
) -> None:
    if debug:
        os.environ["LBX_DEBUG"] = "1"


_SUBMIT_COMMANDS = {
    "slurm": CommandSpec(
        "Cluster",
        "Submit a run as a Slurm job array of shards, with a dependent job that merges them.",
        "cli.cluster_options:SubmitSlurmOptions",
        "cli.cluster:submit_array",
    ),
    "pbs": CommandSpec(
        "Cluster",
        "Submit a run as a job array of shards to PBS Professional or OpenPBS, with a dependent job that merges them.",
        "cli.cluster_options:SubmitPbsOptions",
        "cli.cluster:submit_array",
    ),
    "lsf": CommandSpec(
        "Cluster",
        "Submit a run as a job array of shards to IBM Spectrum LSF, with a dependent job that merges them.",
        "cli.cluster_options:SubmitLsfOptions",
        "cli.cluster:submit_array",
    ),
    "kubernetes": CommandSpec(
        "Cluster",
        "Write a run as a Kubernetes Indexed Job. Submit it with kubectl; lbx does not.",
        "cli.cluster_options:SubmitKubernetesOptions",
        "cli.cluster:write_for_kubernetes",
    ),
}
_RUNS_COMMANDS = {
    "list": CommandSpec(
        "Exchange",
        "List the runs of a results file: answers, size, state, times, model, facts.",
        "cli.runs_options:ListRunsOptions",
        "cli.runs:list_runs",
    ),
    "rename": CommandSpec(
        "Exchange",
        "Rename a run or a judge.",
        "cli.runs_options:RenameRunOptions",
        "cli.runs:rename",
    ),
    "remove": CommandSpec(
        "Exchange",
        "Remove runs, judges or comparisons by position, and give their space back on request.",
        "cli.runs_options:RemoveRunsOptions",
        "cli.runs:remove",
    ),
    "note": CommandSpec(
        "Exchange",
        "Record facts about a run that its settings lack, for exported result files, or show the recorded facts.",
        "cli.runs_options:NoteRunOptions",
        "cli.runs:note_facts",
    ),
    "extract": CommandSpec(
        "Exchange",
        "Copy runs into a new results file, with their judgements and ratings, on request without texts.",
        "cli.runs_options:ExtractRunsOptions",
        "cli.runs:extract_runs",
    ),
    "texts": CommandSpec(
        "Exchange",
        "List the columns of a results file that hold texts, with their origins and sizes.",
        "cli.runs_options:ListTextsOptions",
        "cli.runs:list_texts",
    ),
}
COMMANDS = {
    "bundle": CommandSpec(
        "The six steps of the main job",
        "Fetch everything that the recipes name, check it, and write one archive. Needs a network, or your mirrors.",
        "cli.gap_options:BundleOptions",
        "cli.bundling:make_bundle",
    ),
    "verify": CommandSpec(
        "The six steps of the main job",
        "Check an archive without unpacking it: the signer, every volume, then every file against the manifest. Or "
        "check a results file by its attestation, row by row.",
        "cli.gap_options:VerifyOptions",
        "cli.receiving:verify",
    ),
    "unpack": CommandSpec(
        "The six steps of the main job",
        "Verify an archive and unpack it, completely or not at all.",
        "cli.gap_options:UnpackOptions",
        "cli.receiving:unpack",
    ),
    "plan": CommandSpec(
        "The six steps of the main job",
        "Estimate a run (tokens, shared prefixes, truncation, memory, time) and what its questions can decide.",
        "cli.measure_options:PlanOptions",
        "cli.planning:show_plan",
        loads_model=True,
    ),
    "run": CommandSpec(
        "The six steps of the main job",
        "Run every sample through a model and write answers and scores to one file. Repeat the command to continue.",
        "cli.measure_options:RunOptions",
        "cli.running:run",
        loads_model=True,
    ),
    "report": CommandSpec(
        "The six steps of the main job",
        "Print tables from a results file.",
        "cli.read_options:ReportOptions",
        "cli.reporting:report",
    ),
    "doctor": CommandSpec(
        "Measure",
        "Show the capabilities of this machine: CPU code in use, GPU, memory and its limits, backends, "
        "whether it is offline.",
        "cli.measure_options:DoctorOptions",
        "cli.machine:doctor",
    ),
    "tasks": CommandSpec(
        "Measure",
        "List the benchmarks and tasks of a bundle, or all that lbx supports.",
        "cli.measure_options:TasksOptions",
        "cli.running:show_tasks",
    ),
    "models": CommandSpec(
        "Measure",
        "List the models for --model: cards and weights in models/ and this folder, and weights in the bundle.",
        "cli.measure_options:ModelsOptions",
        "cli.models:show_models",
    ),
    "prompts": CommandSpec(
        "Measure",
        "Show the prompts that a run would send: text, truncation, tokens, budgets, stop rules, sampling.",
        "cli.measure_options:PromptsOptions",
        "cli.showing:show_prompts",
        loads_model=True,
    ),
    "parity": CommandSpec(
        "Measure",
        "Compare two models on the same prompts: token ids, logits, greedy answers, scores.",
        "cli.measure_options:ParityOptions",
        "cli.comparing:compare",
        loads_model=True,
    ),
    "check": CommandSpec(
        "Read",
        "Check a run's scores by conditions, for continuous integration: at least a score, not worse than another run.",
        "cli.read_options:CheckOptions",
        "cli.gates:check",
    ),
    "show": CommandSpec(
        "Read",
        "Show a stored answer: question, references, reasoning, output, scores, marks of possible problems, "
        "its prompt.",
        "cli.read_options:ShowOptions",
        "cli.showing:show_answers",
        loads_model=True,
    ),
    "browse": CommandSpec(
        "Read",
        "Browse stored answers: question, searchable document, reasoning, answer, scores, opinions of judges "
        "and raters.",
        "cli.read_options:BrowseOptions",
        "cli.showing:browse",
        loads_model=True,
    ),
    "sql": CommandSpec(
        "Read",
        "Query a results file with SQL, read-only.",
        "cli.read_options:SqlOptions",
        "cli.querying:answer_query",
    ),
    "judge": CommandSpec(
        "Judges and people",
        "Have a model rate or compare stored answers. Repeat the command to continue.",
        "cli.people_options:JudgeOptions",
        "cli.judging:judge_answers",
        loads_model=True,
    ),
    "rate": CommandSpec(
        "Judges and people",
        "People rate stored answers, blind, on a local page, each with a secret link.",
        "cli.people_options:RateOptions",
        "cli.people:rate",
    ),
    "annotate": CommandSpec(
        "Judges and people",
        "Browse, search and edit a dataset of questions on documents; unedited text keeps its bytes.",
        "cli.people_options:AnnotateOptions",
        "cli.people:annotate",
    ),
    "import": CommandSpec(
        "Exchange",
        "Import an official script's predictions into a results file and score them, or import judgements or "
        "people's ratings.",
        "cli.exchange_options:ImportOptions",
        "cli.exchanging:import_files",
    ),
    "export": CommandSpec(
        "Exchange",
        "Export runs' answers in the official script's format for its own scorer, write that scorer's result files, "
        "or write files of other evaluation tools.",
        "cli.exchange_options:ExportOptions",
        "cli.exchanging:export_files",
    ),
    "score": CommandSpec(
        "Exchange",
        "Score stored outputs again with the metrics of this lbx, which replaces their earlier scores.",
        "cli.exchange_options:ScoreOptions",
        "cli.exchanging:score_outputs",
        loads_model=True,
    ),
    "merge": CommandSpec(
        "Exchange",
        "Merge results files: shards of one run become that run again, and other runs stay separate.",
        "cli.exchange_options:MergeOptions",
        "cli.cluster:merge_files",
    ),
    "runs": CommandSpec(
        "Exchange",
        "List, rename, remove and annotate the runs of a results file. `lbx runs FILE` lists them.",
        parts=_RUNS_COMMANDS,
        default_part="list",
    ),
    "attest": CommandSpec(
        "Exchange",
        "Sign a statement on runs that binds every row, so that `lbx verify` finds a value that was changed later.",
        "cli.gap_options:AttestOptions",
        "cli.attesting:attest",
    ),
    "submit": CommandSpec(
        "Cluster",
        "Run on many machines: plan shards of equal cost, and submit them to Slurm, PBS or LSF, or write them for "
        "Kubernetes.",
        parts=_SUBMIT_COMMANDS,
    ),
    "status": CommandSpec(
        "Cluster",
        "Show the progress of each shard of a submitted run. Opens only copies, so runs are not disturbed.",
        "cli.cluster_options:StatusOptions",
        "cli.cluster:show_status",
    ),
}
"""{name: command}, in the order of ``lbx --help``."""


class _CommandGroup(PlainTypes, TyperGroup):
    """Group that builds a command in ``COMMANDS`` on demand."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name, help=escape(row.line), rich_help_panel=row.group) for name, row in COMMANDS.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        name, subcommand, rest = super().resolve_command(ctx, args)
        with phases.measure("imports"):
            return name, load_command(name) if name and subcommand else None, rest


def load_command(name: str) -> Command:
    """Build a command with its options, without importing modules of other commands."""
    return build_command(name, COMMANDS[name])


app = typer.Typer(
    name="lbx",
    cls=_CommandGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help", "--help-all"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Measure how well local language models understand long text, on machines with no internet.\n\n"
    "[bold]lbx bundle[/] runs on a connected machine, the other commands where the models are.",
)
app.callback()(options)


def main() -> None:
    """Run the ``lbx`` program."""
    prepare_standard_streams()
    phases.count_since_process_start("imports")
    files_read.clear()
    gc.set_threshold(50_000)  # imported objects stay alive: 80 collections would take a tenth of the import time
    log = logging.getLogger("lbx")
    log.handlers, log.propagate = [Notes()], False
    log.setLevel(logging.INFO)
    if "--debug" in sys.argv:  # in any position, not only before the command
        sys.argv.remove("--debug")
        os.environ["LBX_DEBUG"] = "1"
    code = _run_command()
    # Everything is saved. Python waits for its threads, then ends; it would print a traceback of a signal.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(code))
        atexit.register(signal.signal, number, signal.SIG_IGN)
    sys.exit(code)


def _run_command() -> int:
    """Run the command that ``sys.argv`` names, print an error, and return the exit code."""
    code: int = ExitCode.FAILED
    try:
        code = _call() or 0
    except TyperException as error:
        show_usage_error(error, _alternatives(error))
        code = error.exit_code
    except Abort:
        pass
    except KeyboardInterrupt:  # before the start of a command
        code = ExitCode.INTERRUPTED
    except ClosedOutputError:
        code = 0
    except LbxError as error:
        if os.environ.get("LBX_DEBUG"):
            raise
        if isinstance(error, ConflictError):
            error.command = with_other_output(sys.argv)
        if isinstance(error, InUseError):
            offer_own_file(error, sys.argv)
        show_error(error)
        code = error.exit_code
    except Exception as error:
        if os.environ.get("LBX_DEBUG"):
            raise
        show_error(as_lbx_error(error))
    return code


def _alternatives(error: TyperException) -> str:
    """Name the option or command for an unknown option, or the order of arguments. Returns "" if none is known.

    Without the first of two arguments, Typer reports the last one as missing.
    """
    context, name = getattr(error, "ctx", None), getattr(error, "option_name", "")
    kind = type(error).__name__  # private in Typer
    if kind == "MissingParameter" and context is not None and error.format_message().startswith("Missing argument"):
        names = [piece.strip("{}") for piece in context.command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
        return f"The order is: {context.command_path} {' '.join(names)}." if names[1:] else ""
    if kind != "NoSuchOption" or context is None:
        return ""
    from lbx.options.meanings import OTHER_COMMANDS, RELATED  # verify and unpack do not load it

    if name in OTHER_COMMANDS:
        return OTHER_COMMANDS[name]
    helps = {opt: param.help for param in context.command.params for opt in param.opts if opt.startswith("--")}
    related = [other for names in RELATED if name in names for other in names if other in helps]
    similar = related or get_close_matches(name, helps, n=3)
    described = (f"{option} ({helps[option].split('. ')[0].rstrip('.')})" for option in similar)
    return f"Did you mean {' or '.join(described)}?" if similar else ""


def _call() -> int | None:
    try:
        code: int | None = app(standalone_mode=False)
    finally:
        # Replaces Typer's hook, which prints names without making control characters visible.
        sys.excepthook = lambda *failure: show_traceback("".join(traceback.format_exception(*failure)))
    return code
