"""Command that starts lbx in a job: the installed program, or a container."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.resources import CPU_COUNT


class Runtime(StrEnum):
    NONE = "none"
    APPTAINER = "apptainer"
    PODMAN = "podman"


@dataclass(frozen=True, slots=True)
class Launch:
    """First words of lbx's command line in a job script.

    Attributes:
        lbx: program to run without a container.
        image: container image; "" for none.
        read, write: files and folders of the host, mounted in the container at the same paths.
        scratch: another writable mount, quoted for bash, which expands it on the node.
        gpu: whether the container sees the GPUs.
        cpu_count: CPUs of a job, for a container that does not see Slurm's variables; 0 sets no number.

    Raises:
        UsageError: an image without a runtime, or a runtime without an image; a path that cannot be mounted.
    """

    lbx: str = "lbx"
    runtime: Runtime = Runtime.NONE
    image: str = ""
    read_paths: Sequence[Path] = field(default_factory=tuple)
    write_paths: Sequence[Path] = field(default_factory=tuple)
    scratch: str = ""
    gpu: bool = False
    cpu_count: int = 0

    def __post_init__(self) -> None:
        if bool(self.image) != (self.runtime is not Runtime.NONE):
            raise UsageError(
                "--container and --runtime require each other.",
                fix="Pass the image with --container, and apptainer or podman with --runtime.",
            )

    @property
    def command(self) -> str:
        """Command line for bash, to be followed by lbx's arguments."""
        if self.runtime is Runtime.NONE:
            return self.lbx
        mounts = [f"{_word(path)}:{_word(path)}:ro" for path in self.read_paths]
        mounts += [f"{_word(path)}:{_word(path)}" for path in self.write_paths]
        mounts += [f"{self.scratch}:{self.scratch}"] if self.scratch else []
        cpus = [f"--env {CPU_COUNT}={self.cpu_count}"] if self.cpu_count else []
        if self.runtime is Runtime.APPTAINER:
            gpu = ["--nv"] if self.gpu else []
            binds = [part for mount in mounts for part in ("--bind", mount)]
            options = [*gpu, *cpus, *binds, shlex.quote(self.image)]
            return " ".join(["apptainer exec --containall --cleanenv", *options, "lbx"])
        gpu = ["--device nvidia.com/gpu=all"] if self.gpu else []
        binds = [part for mount in mounts for part in ("--volume", mount)]
        # Without --user, keep-id keeps the image's user, who may not write the run's folder. --read-only mounts a tmpfs
        # on /tmp; a second tmpfs would collide with a scratch folder that is /tmp.
        user = '--userns keep-id --user "$(id -u):$(id -g)"'
        options = [*gpu, *cpus, *binds, shlex.quote(self.image)]
        return " ".join([f"podman run --rm --network none --read-only {user}", *options])


def _word(path: Path) -> str:
    """Quote a path for bash; refuse characters that podman and apptainer would read as mount syntax."""
    if "," in str(path) or ":" in str(path) or not str(path).isprintable():
        raise UsageError(
            f"{str(path)!r} cannot be mounted in a container: it has a comma, a colon or a control character.",
            fix="Rename the folder.",
        )
    return shlex.quote(str(path))


def quote_for_bash(text: str) -> str:
    """Put a folder into double quotes: bash expands its variables (``${TMPDIR:-/tmp}``) but runs no command.

    Raises:
        UsageError: the text has a quote, a backslash, a command substitution or a control character.
    """
    if re.search(r'["`\\]|\$\(', text) or not text.isprintable():
        raise UsageError(
            f"--scratch {text!r} has a quote, a backslash or a command; only a folder and variables are allowed.",
            fix="For example: --scratch '${TMPDIR:-/tmp}' or --scratch /local.",
        )
    return f'"{text}"'
