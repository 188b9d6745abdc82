"""Same as ``lbx``: ``python -P -m lbx.cli``. Without -P, Python would run files of the working folder first."""

from lbx.cli.main import main

main()
