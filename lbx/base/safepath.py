"""Keeps the working folder from being searched for Python modules. Imports nothing that could be found there.

``python -m`` puts the folder that it is started in first on ``sys.path``, and an empty or relative entry of PYTHONPATH
means it, too: a file ``signal.py`` that somebody left there would run instead of Python's own. What Python imports
before the first line of lbx runs is out of reach here: ``lbx`` and ``python -P -m lbx`` are safe from it, ``python -m
lbx`` is not.

What the installation brings (``.pth`` files, a user's packages) and absolute folders in PYTHONPATH are the user's own
word and stay.
"""

import os
import sys


def leave_out_working_folder() -> None:
    """Take the working folder off ``sys.path``, for this process and every Python that it starts."""
    try:
        here = os.getcwd()
    except OSError:  # it has been removed
        here = ""
    if not sys.flags.safe_path and sys.path[:1] in ([""], [here]):
        del sys.path[0]
    if path := os.environ.get("PYTHONPATH"):
        entries = path.split(os.pathsep)
        for place in [os.path.abspath(entry) for entry in entries if not os.path.isabs(entry)]:
            if place in sys.path:
                sys.path.remove(place)
        os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in entries if os.path.isabs(entry))
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if own not in sys.path:  # a checkout that is not installed: last, where it shadows nothing
        sys.path.append(own)
    os.environ["PYTHONSAFEPATH"] = "1"
