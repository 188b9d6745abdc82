"""``python -P -m lbx``: the same as ``lbx``. Without -P, Python itself runs files of the working folder first."""

from lbx.cli.__main__ import main

main()
