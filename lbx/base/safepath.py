"""Removal of the working folder from Python's module search path.

``python -m`` puts the working folder first on ``sys.path``, and an empty or relative entry of PYTHONPATH refers to it,
too: a file ``signal.py`` planted there would run instead of Python's own. This module only imports modules that are
already loaded. Modules that Python imports before the first line of lbx cannot be protected here: ``lbx`` and
``python -P -m lbx`` are safe, ``python -m lbx`` is not.

Entries added by the installation (``.pth`` files, a user's packages) and absolute folders in PYTHONPATH are the user's
choice and remain.
"""

import os
import sys


def leave_out_working_folder() -> None:
    """Remove the working folder from ``sys.path``, for this process and every Python that it starts."""
    try:
        here = os.getcwd()
    except OSError:  # it has been removed
        here = ""
    if not sys.flags.safe_path and sys.path[:1] in ([""], [here]):
        del sys.path[0]
    if path := os.environ.get("PYTHONPATH"):
        entries = path.split(os.pathsep)
        for folder in [os.path.abspath(entry) for entry in entries if not os.path.isabs(entry)]:
            if folder in sys.path:
                sys.path.remove(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(entry for entry in entries if os.path.isabs(entry))
    package_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if package_root not in sys.path:  # a checkout that is not installed: last, so that it shadows no other module
        sys.path.append(package_root)
    os.environ["PYTHONSAFEPATH"] = "1"
