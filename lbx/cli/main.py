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
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from lbx.base.errors import LbxError
from lbx.base.version import __version__
from lbx.cli.output import Notes, answer, show_error, show_traceback, show_usage_error
from lbx.cli.stopping import stoppable


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


_COMMANDS = {
    "bundle": "bundling",
    "verify": "bundle_commands",
    "unpack": "bundle_commands",
    "tasks": "run_commands",
    "models": "model_commands",
    "plan": "plan_commands",
    "prompts": "show_commands",
    "run": "run_commands",
    "judge": "judge_commands",
    "score": "result_commands",
    "import": "result_commands",
    "export": "result_commands",
    "show": "show_commands",
    "metadata": "result_commands",
    "report": "report_commands",
    "sql": "sql_commands",
    "parity": "parity_commands",
    "annotate": "annotate_commands",
    "browse": "browse_commands",
    "rate": "rate_commands",
    "merge": "cluster_commands",
    "status": "cluster_commands",
    "doctor": "doctor",
}
"""Each command, and the module with the function of its name."""
_LOAD_A_MODEL = ("plan", "prompts", "run", "judge", "show", "browse", "score", "parity")


def program(*names: str) -> typer.Typer:
    """The command line with these commands; without names, with all. Only their modules are imported."""
    app = typer.Typer(
        name="lbx",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        help="Measure how well local language models understand long text, on machines with no internet.\n\n"
        "On a connected machine: [bold]lbx bundle[/]. Across the gap: [bold]lbx verify[/], [bold]lbx unpack[/], "
        "[bold]lbx run[/], [bold]lbx report[/].",
    )
    app.callback()(options)
    for name in names or _COMMANDS:
        module = importlib.import_module(f"lbx.cli.{_COMMANDS[name]}")
        command = getattr(module, "import_" if name == "import" else name)
        app.command(name, help=_help(command))(stoppable(command, loads_model=name in _LOAD_A_MODEL))
    if not names:
        app.add_typer(importlib.import_module("lbx.cli.cluster_commands").submit)
    return app


def _help(command: Callable[..., None]) -> str:
    """The docstring with each paragraph in one line, for the terminal to wrap."""
    return "\n\n".join(" ".join(part.split()) for part in (command.__doc__ or "").split("\n\n"))


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module 'lbx.cli.main' has no attribute {name!r}")
    return program()


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
        code: int | None = program(*(name for name in sys.argv[1:2] if name in _COMMANDS))(standalone_mode=False)
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
