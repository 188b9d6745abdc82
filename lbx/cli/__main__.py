"""Start of ``lbx`` and ``python -P -m lbx.cli``. Without -P, Python would run files of the working folder first.

This module imports nothing that takes long, so that Ctrl-C during the imports of the command line shows no traceback.
"""

import os

from lbx.base.exit_codes import ExitCode


def main() -> None:
    """Run the ``lbx`` program."""
    try:
        from lbx.cli.main import main as run_program

        run_program()
    except KeyboardInterrupt:
        os._exit(ExitCode.INTERRUPTED)  # without the end of Python, which a further signal would interrupt


if __name__ == "__main__":
    main()
