"""Print the part of requirements.lock that the named extras of lbx need here, hashes and all: what users install, with
nothing that only its tests need.

    python .ci/needs.py llama hf > runtime.txt        run it by an interpreter that has the lock installed

torch and llama-cpp-python are not in the lock (.ci/setup.sh says why) and not in what is printed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
UNLOCKED = re.compile("torch|llama-cpp-python|triton|(nvidia|cuda)-.*")  # the last: what torch's CUDA build brings


def locked(text: str) -> dict[str, str]:
    """Name -> the lines of its entry; of several entries for one name, the one whose marker holds here."""
    entries = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        requirement = Requirement(re.split(r"\s\\|\s--hash", entry, maxsplit=1)[0].replace("\\", " ").strip())
        if requirement.marker is None or requirement.marker.evaluate():
            entries[canonicalize_name(requirement.name)] = entry
    return entries


def needed(name: str, extras: frozenset[str], found: dict[str, frozenset[str]]) -> None:
    """Add the package, and what it needs with these extras, to ``found``: name -> extras already followed."""
    name = canonicalize_name(name)
    if name in found and extras <= found[name]:
        return
    found[name] = found.get(name, frozenset()) | extras
    environments = [dict(default_environment(), extra=extra) for extra in (found[name] or {""})]
    for requirement in map(Requirement, requires(name) or ()):
        if requirement.marker is None or any(map(requirement.marker.evaluate, environments)):
            needed(requirement.name, frozenset(requirement.extras), found)


def main(extras: list[str]) -> None:
    # From pyproject.toml, not from what is installed: an editable install keeps the requirements of its first day.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    direct = project["dependencies"] + [one for extra in extras for one in project["optional-dependencies"][extra]]
    found: dict[str, frozenset[str]] = {}
    for requirement in map(Requirement, direct):
        needed(requirement.name, frozenset(requirement.extras), found)
    entries = locked((ROOT / "requirements.lock").read_text("utf-8"))
    names = sorted(name for name in found if not UNLOCKED.fullmatch(name))
    if missing := [name for name in names if name not in entries]:
        sys.exit(f"needs: not in requirements.lock: {', '.join(missing)}. Run: just lock")
    print("\n".join(entries[name] for name in names))


if __name__ == "__main__":
    main(sys.argv[1:])
