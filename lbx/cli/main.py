"""The command line: one Typer app, one place where errors become a paragraph and an exit code.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 done but some samples failed, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, TyperException

from lbx.base.errors import LbxError
from lbx.base.version import __version__
from lbx.cli.output import Notes, answer, show_error, show_traceback, show_usage_error
from lbx.cli.stopping import stoppable

if TYPE_CHECKING:
    from typer._click import Command, Context


def _version(asked: bool) -> None:
    if asked:
        answer(f"lbx {__version__}")
        raise typer.Exit


def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and the libraries' own logs.")] = False,
) -> None:
    if debug:
        os.environ["LBX_DEBUG"] = "1"


COMMANDS = {
    "bundle": (
        "bundling",
        "Fetch everything the recipes name, check it, and write one archive. Needs a network (or your mirrors).",
    ),
    "verify": (
        "bundle_commands",
        "Check an archive without unpacking it: who signed it, every volume, then every file against the manifest.",
    ),
    "unpack": ("bundle_commands", "Verify an archive and unpack it, all or nothing."),
    "tasks": ("run_commands", "List what the bundle holds to run."),
    "models": (
        "model_commands",
        "List what --model can name: cards and weights in models/ and in this folder, and weights in the bundle.",
    ),
    "plan": (
        "plan_commands",
        "Count what a run would read and take: tokens, shared prefixes, truncation, memory, time.",
    ),
    "prompts": (
        "show_commands",
        "Show the prompts that a run would send: text, cut, tokens, budgets, stop rules, sampling.",
    ),
    "run": (
        "run_commands",
        "Ask a model every sample and write answers and scores to one file. The same command again continues.",
    ),
    "judge": (
        "judge_commands",
        "Have a model judge stored answers: which of two is better, or how good one is. "
        "The same command again continues.",
    ),
    "score": (
        "result_commands",
        "Score stored outputs again with this lbx's metrics; older metric versions stay beside the new one.",
    ),
    "import": (
        "result_commands",
        "Read an official script's predictions into a results file and score them; or judgements, or people's ratings.",
    ),
    "export": (
        "result_commands",
        "Write runs' answers in the official script's format, for its own scorer to read, or what that would write.",
    ),
    "show": (
        "show_commands",
        "Show a stored answer: question, references, reasoning, output, scores, what may have spoilt it, its prompt.",
    ),
    "metadata": (
        "result_commands",
        "Record what a run's settings do not say about it, for exported result files, or show what is recorded.",
    ),
    "report": ("report_commands", "Print tables from a results file."),
    "sql": ("sql_commands", "Query a results file with SQL, read-only."),
    "parity": ("parity_commands", "Compare two models on the same prompts: token ids, logits, greedy answers, scores."),
    "annotate": (
        "annotate_commands",
        "Browse, search and edit a dataset of questions on documents: what is not edited keeps its bytes.",
    ),
    "browse": (
        "browse_commands",
        "Browse stored answers: question, document with a search, reasoning, answer, scores, "
        "what judges and people said.",
    ),
    "rate": (
        "rate_commands",
        "Have people rate stored answers, blind, on a page of this machine; one secret link a rater.",
    ),
    "merge": (
        "cluster_commands",
        "Join results files: parts of one run become that run again, other runs stand side by side.",
    ),
    "status": (
        "cluster_commands",
        "Show how far each shard of a submitted run is. Runs are not disturbed: only copies are opened.",
    ),
    "doctor": (
        "doctor",
        "Show what this machine can do: CPU code in use, GPU, memory and its limits, backends, whether it is offline.",
    ),
    "submit": (
        "cluster_commands",
        "Run on many machines: plan shards of equal cost, and give them to Slurm or Kubernetes.",
    ),
}
"""Each command: the module with the function of its name, and the first sentences of that function's docstring."""
_LOAD_A_MODEL = ("plan", "prompts", "run", "judge", "show", "browse", "score", "parity")


class _Group(TyperGroup):
    """Knows a command by its row in the table, and imports its module when it is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=line) for name, (_, line) in COMMANDS.items()}

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        name, known, rest = super().resolve_command(ctx, args)
        return name, load(name) if name and known else None, rest


def load(name: str) -> Command:
    """A command with its options. Imports its module, and none of another command."""
    module = importlib.import_module(f"lbx.cli.{COMMANDS[name][0]}")
    command = getattr(module, "import_" if name == "import" else name)
    if isinstance(command, typer.Typer):
        return typer.main.get_group(command)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    alone.command(name, help=_help(command))(stoppable(command, loads_model=name in _LOAD_A_MODEL))
    return typer.main.get_command(alone)


app = typer.Typer(
    name="lbx",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Measure how well local language models understand long text, on machines with no internet.\n\n"
    "On a connected machine: [bold]lbx bundle[/]. Across the gap: [bold]lbx verify[/], [bold]lbx unpack[/], "
    "[bold]lbx run[/], [bold]lbx report[/].",
)
app.callback()(options)


def _help(command: Callable[..., None]) -> str:
    """The docstring with each paragraph in one line, for the terminal to wrap."""
    return "\n\n".join(" ".join(part.split()) for part in (command.__doc__ or "").split("\n\n"))


def main() -> None:
    """Entry point of the ``lbx`` program."""
    log = logging.getLogger("lbx")
    log.handlers, log.propagate = [Notes()], False
    log.setLevel(logging.INFO)
    if "--debug" in sys.argv:  # wherever it stands, not only before the command
        sys.argv.remove("--debug")
        os.environ["LBX_DEBUG"] = "1"
    try:
        sys.exit(_call())
    except TyperException as error:
        show_usage_error(error)
        sys.exit(error.exit_code)
    except Abort:
        sys.exit(1)
    except KeyboardInterrupt:  # before a command began
        sys.exit(130)
    except LbxError as error:
        if os.environ.get("LBX_DEBUG"):
            raise
        show_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has left (`lbx report ... | head`): that is no failure of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("LBX_DEBUG"):
            raise
        show_error(_in_words(error))
        sys.exit(1)


def _call() -> int | None:
    try:
        code: int | None = app(standalone_mode=False)
    finally:
        # Typer sets a hook of its own, which shows names as they are.
        sys.excepthook = lambda *failure: show_traceback("".join(traceback.format_exception(*failure)))
    return code


def _in_words(error: Exception) -> LbxError:
    if isinstance(error, OSError):
        return _from_os_error(error)
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):  # from Python 3.13 on an OSError
        return LbxError(f"The operating system refused: {error}.")
    if isinstance(error, MemoryError):
        return LbxError(
            "There is not enough memory for this; what was committed before is safe.",
            fix="Give a smaller file, or more memory; `lbx doctor` says what binds.",
        )
    return LbxError(
        f"lbx met something it did not expect: {type(error).__name__}: {error}.",
        fix="What was committed before is safe. Please report it with the traceback that --debug shows.",
    )


def _from_os_error(error: OSError) -> LbxError:
    place = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return LbxError(f"The disk is full{place}.", fix="Make room, then repeat the same command to continue.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return LbxError(f"No permission: {error.strerror}{place}.", fix="Choose a place that you may write to.")
    return LbxError(f"The operating system refused: {error.strerror or error}{place}.")


if __name__ == "__main__":
    main()
