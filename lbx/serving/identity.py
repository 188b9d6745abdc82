"""Identity of a server's command: its words and the contents of its local files, without machine-specific facts."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from lbx.backends.weights import fingerprint
from lbx.base.inputs import SMALL
from lbx.serving.command import HOST, PORT, ServerCommand, is_model, local_paths

_SECRETS = ("key", "cert", "password")
"""Parts of the names of options with files that results must not identify."""


def server_settings(command: ServerCommand, *, every_byte: bool = False) -> dict[str, Any]:
    """Settings of a run that identify its server: the command, the model's fingerprint, and other files by name.

    Args:
        every_byte: also read all bytes of the model.

    Raises:
        BackendError: a file of the model is missing or cannot be read.
    """
    words = [Path(command.words[0]).name, *command.words[1:]]
    models: list[Path] = []
    files: dict[str, str] = {}
    for number, option, path in local_paths(command):
        words[number] = f"{option}{path.name}"
        if is_model(path):
            models.append(path)
        elif _is_configuration(path) and not _is_secret(command, number, option):
            files[path.name] = "+".join(filter(None, (files.get(path.name), fingerprint(path))))
    settings: dict[str, Any] = {"serve": shlex.join(_without_address(words))}
    if files:
        settings["serve_files"] = files
    if models:
        settings["backend.weights"] = "+".join(map(fingerprint, models))
        if every_byte:
            settings["backend.weights_whole"] = "+".join(fingerprint(path, every_byte=True) for path in models)
    return settings


def _is_configuration(path: Path) -> bool:
    """Whether a file can change answers. Installed programs differ between machines in their first lines."""
    is_program = os.access(path, os.X_OK) and path.suffix not in (".sh", ".py")
    return path.is_file() and not is_program and path.stat().st_size <= SMALL


def _is_secret(command: ServerCommand, number: int, option: str) -> bool:
    name = option or (command.words[number - 1] if number else "")
    return name.startswith("-") and any(part in name for part in _SECRETS)


def _without_address(words: list[str]) -> list[str]:
    """Replace the values of --port and --host by their marks."""
    marks = {"--port": PORT, "--host": HOST}
    result = []
    for before, word in zip(["", *words], words, strict=False):
        name, equals, _ = word.partition("=")
        result.append(marks.get(before) or (f"{name}={marks[name]}" if equals and name in marks else word))
    return result
