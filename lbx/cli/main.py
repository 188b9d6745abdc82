"""The command line: one Typer app, one place where errors become a paragraph and an exit code.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 done but some samples failed, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from lbx.cli import (
    bundle_commands,
    bundling,
    cluster_commands,
    doctor,
    model_commands,
    parity_commands,
    plan_commands,
    report_commands,
    result_commands,
    run_commands,
    show_commands,
)
from lbx.cli.output import Notes, answer, show_error, show_traceback, show_usage_error
from lbx.cli.stopping import stoppable
from lbx.errors import LbxError
from lbx.version import __version__

app = typer.Typer(
    name="lbx",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Measure how well local language models understand long text, on machines with no internet.\n\n"
    "On a connected machine: [bold]lbx bundle[/]. Across the gap: [bold]lbx verify[/], [bold]lbx unpack[/], "
    "[bold]lbx run[/], [bold]lbx report[/].",
)


def _version(asked: bool) -> None:
    if asked:
        answer(f"lbx {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and the libraries' own logs.")] = False,
) -> None:
    if debug:
        os.environ["LBX_DEBUG"] = "1"


COMMANDS: dict[str, Callable[..., None]] = {
    "bundle": bundling.bundle,
    "verify": bundle_commands.verify,
    "unpack": bundle_commands.unpack,
    "tasks": run_commands.tasks,
    "models": model_commands.models,
    "plan": plan_commands.plan,
    "prompts": show_commands.prompts,
    "run": run_commands.run,
    "score": result_commands.score,
    "import": result_commands.import_,
    "export": result_commands.export,
    "show": show_commands.show,
    "metadata": result_commands.metadata,
    "report": report_commands.report,
    "sql": report_commands.sql,
    "parity": parity_commands.parity,
    "merge": cluster_commands.merge,
    "status": cluster_commands.status,
    "doctor": doctor.doctor,
}


def _help(command: Callable[..., None]) -> str:
    """The docstring with each paragraph in one line, for the terminal to wrap."""
    return "\n\n".join(" ".join(part.split()) for part in (command.__doc__ or "").split("\n\n"))


_LOAD_A_MODEL = ("plan", "prompts", "run", "show", "score", "parity")
for _name, _command in COMMANDS.items():
    app.command(_name, help=_help(_command))(stoppable(_command, loads_model=_name in _LOAD_A_MODEL))
app.add_typer(cluster_commands.submit)


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
    except OSError as error:
        if os.environ.get("LBX_DEBUG"):
            raise
        show_error(_from_os_error(error))
        sys.exit(1)
    except Exception as error:
        if os.environ.get("LBX_DEBUG"):
            raise
        show_error(
            LbxError(
                f"lbx met something it did not expect: {type(error).__name__}: {error}.",
                fix="What was committed before is safe. Please report it with the traceback that --debug shows.",
            )
        )
        sys.exit(1)


def _call() -> int | None:
    try:
        code: int | None = app(standalone_mode=False)
    finally:
        # Typer sets a hook of its own, which shows names as they are.
        sys.excepthook = lambda *failure: show_traceback("".join(traceback.format_exception(*failure)))
    return code


def _from_os_error(error: OSError) -> LbxError:
    place = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return LbxError(f"The disk is full{place}.", fix="Make room, then repeat the same command to continue.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return LbxError(f"No permission: {error.strerror}{place}.", fix="Choose a place that you may write to.")
    return LbxError(f"The operating system refused: {error.strerror or error}{place}.")


if __name__ == "__main__":
    main()
