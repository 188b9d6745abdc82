"""How a job calls lbx: as it is installed, or in a container."""

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
    """What stands before lbx's arguments in a job script.

    Attributes:
        lbx: the program where there is no container.
        image: the container image; "" for none.
        read, write: folders and files of the machine that the container sees under their own names.
        scratch: one more that it may write, in words that bash expands on the node.
        gpu: whether the container sees the GPUs.
        cpu_count: CPUs of a job, for a container that does not see Slurm's variables; 0 sets no number.

    Raises:
        UsageError: an image without a runtime, or a runtime without an image; a path that cannot be mounted.
    """

    lbx: str = "lbx"
    runtime: Runtime = Runtime.NONE
    image: str = ""
    read: Sequence[Path] = field(default_factory=tuple)
    write: Sequence[Path] = field(default_factory=tuple)
    scratch: str = ""
    gpu: bool = False
    cpu_count: int = 0

    def __post_init__(self) -> None:
        if bool(self.image) != (self.runtime is not Runtime.NONE):
            raise UsageError(
                "--container and --runtime go together: which image, and whether apptainer or podman runs it."
            )

    @property
    def command(self) -> str:
        """For bash; lbx's arguments follow."""
        if self.runtime is Runtime.NONE:
            return self.lbx
        mounts = [f"{_word(path)}:{_word(path)}:ro" for path in self.read]
        mounts += [f"{_word(path)}:{_word(path)}" for path in self.write]
        mounts += [f"{self.scratch}:{self.scratch}"] if self.scratch else []
        cpus = [f"--env {CPU_COUNT}={self.cpu_count}"] if self.cpu_count else []
        if self.runtime is Runtime.APPTAINER:
            gpu = ["--nv"] if self.gpu else []
            binds = [part for mount in mounts for part in ("--bind", mount)]
            options = [*gpu, *cpus, *binds, shlex.quote(self.image)]
            return " ".join(["apptainer exec --containall --cleanenv", *options, "lbx"])
        gpu = ["--device nvidia.com/gpu=all"] if self.gpu else []
        binds = [part for mount in mounts for part in ("--volume", mount)]
        # keep-id alone leaves the image's user in place, who may not write the run's folder. --read-only brings a tmpfs
        # on /tmp with it; one of our own would collide with a scratch folder that is /tmp.
        user = '--userns keep-id --user "$(id -u):$(id -g)"'
        options = [*gpu, *cpus, *binds, shlex.quote(self.image)]
        return " ".join([f"podman run --rm --network none --read-only {user}", *options])


def _word(path: Path) -> str:
    """One word of bash, that podman and apptainer take for this path and for nothing behind it."""
    if "," in str(path) or ":" in str(path) or not str(path).isprintable():
        raise UsageError(
            f"{str(path)!r} cannot be mounted in a container: it has a comma, a colon or a control character.",
            fix="Give the folder another name.",
        )
    return shlex.quote(str(path))


def expanded_by_bash(text: str) -> str:
    """A folder in double quotes, whose variables (``${TMPDIR:-/tmp}``) bash fills in, and in which it runs nothing.

    Raises:
        UsageError: it has a quote, a backslash, a command or a control character.
    """
    if re.search(r'["`\\]|\$\(', text) or not text.isprintable():
        raise UsageError(
            f"--scratch {text!r} is more than a folder and variables: it has a quote, a backslash or a command.",
            fix="As in --scratch '${TMPDIR:-/tmp}' or --scratch /local.",
        )
    return f'"{text}"'
