"""Which connections and name look-ups processes tried, read from what strace recorded of them.

    strace -f -qq -e trace=network,io_uring_setup,execve -o record COMMAND
    python tests/image/attempts.py record          exit code 1, and each attempt on a line, when there was any

An attempt counts whatever came of it: in a namespace without interfaces every one fails at once, and it is that one
was made at all that must not be. Loopback counts, too: a resolver may listen there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

# A call that names an Internet address goes there, or listens there. A socket that is made and not used, and those of
# the other families, stay inside the machine.
_CALL = re.compile(r"\b(connect|sendto|sendmsg|sendmmsg|bind)\(.*\bsa_family=AF_INET6?\b")
# Requests through io_uring are not system calls of their own: strace would not see where they go.
_UNSEEN = re.compile(r"\bio_uring_setup\(")


def attempts(lines: Iterable[str]) -> list[str]:
    """The recorded calls that name an Internet address, or that could hide one."""
    return [line.strip() for line in lines if _CALL.search(line) or _UNSEEN.search(line)]


def main(paths: list[str]) -> int:
    lines = [line for path in paths for line in Path(path).read_text("utf-8", "replace").splitlines()]
    programs = sum("execve(" in line for line in lines)
    if not programs:
        print("network: the record is empty, so it shows nothing")
        return 2
    found = attempts(lines)
    for line in found:
        print(f"network: tried {line}")
    print(f"network: {len(found)} attempts to reach an Internet address or a resolver, by {programs} programs watched")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
