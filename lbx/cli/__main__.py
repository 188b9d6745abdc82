"""``python -m lbx.cli``: the same as ``lbx``."""

from lbx.cli.main import main

main()
