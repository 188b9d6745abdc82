"""Descriptions of the process that uses a results file, for users who want to write to the same file.

On this machine, /proc describes the process. A process on another machine is known only if it locks the file to replace
it (``lbx.results.whole.commit_copies.exclusive_lock``): then the lock's file contains a description, which is shown as
text only, because any user of the folder can write it.
"""

from __future__ import annotations

import json
import os
import pwd
import socket
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from lbx.base.inputs import SMALL, read_input
from lbx.base.processes import process_start_time
from lbx.base.visible import as_command, one_line
from lbx.results.rows import as_json

_LONGEST_TEXT, _LONGEST_COMMAND = 64, 200
_RECORD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FileUser:
    """A process that uses a file. Unknown values are "" or 0.

    Attributes:
        command: the command line, if the process is lbx.
        began: start time of the process, UTC.
    """

    user: str = ""
    host: str = ""
    process: int = 0
    command: str = ""
    began: str = ""

    def __str__(self) -> str:
        where = f"PID {self.process} on {self.host}" if self.host else f"PID {self.process}"
        since = f" since {self.began} UTC" if self.began else ""
        command = f": {self.command}" if self.command else ""
        return f"{self.user or 'an unknown user'} ({where}{since}{command})"

    def record(self) -> bytes:
        """Encode the description as the content of a lock file."""
        return as_json(asdict(self)).encode()


def this_process() -> FileUser:
    return _describe(os.getpid(), os.geteuid())


def find_user(path: Path, process: int) -> FileUser | None:
    """Describe a process that locks a file. Returns None if no process of this id on this machine locks the file.

    On a shared file system, a process of another machine may lock the file, and its id means another process here.
    """
    try:
        inode = path.stat().st_ino
        locks = [line.split() for line in read_input(Path("/proc/locks"), SMALL).decode().splitlines()]
        owner = Path(f"/proc/{process}").stat().st_uid
    except (OSError, UnicodeDecodeError):
        return None
    has_lock = any(str(process) in line and any(word.endswith(f":{inode}") for word in line) for line in locks)
    return _describe(process, owner) if has_lock else None


def read_record(path: Path) -> FileUser | None:
    """Read the description in a lock file. Returns None if there is none, or if it is malformed."""
    try:
        values = json.loads(read_input(path, _RECORD_BYTES))
        record = FileUser(**{field.name: values[field.name] for field in fields(FileUser)})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    texts = (record.user, record.host, record.command, record.began)
    if type(record.process) is not int or not all(type(text) is str and one_line(text) == text for text in texts):
        return None
    is_lbx = not record.command or record.command.startswith("lbx ")
    return record if is_lbx and max(map(len, texts)) <= _LONGEST_COMMAND else None


def _describe(process: int, owner: int) -> FileUser:
    began = process_start_time(process)
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = f"user {owner}"
    return FileUser(
        one_line(user)[:_LONGEST_TEXT],
        one_line(socket.gethostname())[:_LONGEST_TEXT],
        process,
        _command(process),
        f"{began:%Y-%m-%d %H:%M}" if began else "",
    )


def _command(process: int) -> str:
    """Return lbx's command line without interpreter and folder, or "" for another program or an unreadable line."""
    try:
        words = os.fsdecode(read_input(Path(f"/proc/{process}/cmdline"), SMALL)).rstrip("\0").split("\0")
    except OSError:
        return ""
    start = next((at for at, word in enumerate(words[:4]) if Path(word).name == "lbx" or word == "lbx.cli"), None)
    if start is None:
        return ""
    command = as_command("lbx", *words[start + 1 :])
    return command if len(command) <= _LONGEST_COMMAND else f"{command[: _LONGEST_COMMAND - 3]}..."
