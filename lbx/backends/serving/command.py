"""Command that starts a model server: words, address, the marks that lbx fills in, and identity.

The identity consists of the words and the contents of local files, without machine-specific facts.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.backends.weights import fingerprint
from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL

PORT, HOST = "{port}", "{host}"
LOOPBACK = "127.0.0.1"
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 (compared, never bound)
_MOST_WORDS = 1000
_WEIGHTS = (".gguf", ".safetensors")
_EXAMPLE = f"--serve 'vllm serve MODEL --host {LOOPBACK} --port {PORT}'"
_SCRIPT = "lbx starts the command without a shell: put it into a script, and pass the script's path."
_PARTS = re.compile(r"""'[^']*'|\\.|"(?P<double>(?:\\.|[^"\\])*)"|(?P<plain>[^'"\\]+)|.""", re.DOTALL)
_OPERATORS = re.compile(r"[|&;<>()`*?\n]|\$(?=[\w({?!@#*-])|(?<!\S)~")
_EXPANSIONS = re.compile(r"`|\$(?=[\w({?!@#*-])")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """Command that starts a model server, with ``{port}`` and ``{host}`` not filled in yet.

    Attributes:
        port: the port in the command, or None if lbx chooses one.
        host: host that lbx connects to; ``{host}`` for the name of this machine.
    """

    words: tuple[str, ...]
    port: int | None
    host: str

    @classmethod
    def parse(cls, text: str) -> ServerCommand:
        """Parse the value of --serve.

        Raises:
            UsageError: the value needs a shell, is not a command, contains a key, or names no port or several.
        """
        text = text.replace("\\\n", " ").strip()
        _refuse_shell(text)
        try:
            words = tuple(shlex.split(text))
        except ValueError as exc:
            raise UsageError(f"--serve cannot be read: {exc}.", fix=f"For example: {_EXAMPLE}.") from exc
        if not words or not words[0]:
            raise UsageError("--serve has no command.", fix=f"For example: {_EXAMPLE}.")
        if len(words) > _MOST_WORDS:
            raise UsageError(
                f"--serve has {len(words):,} words; the limit is {_MOST_WORDS:,}.",
                fix="Write the command into a script, and pass --serve 'SCRIPT {port}'.",
            )
        if _ASSIGNMENT.match(words[0]):
            raise UsageError(
                f"--serve begins with the assignment {words[0]!r}, which only a shell understands.",
                fix=f"Begin with env: --serve {shlex.quote('env ' + text)}",
            )
        if "--api-key" in (names := {word.partition("=")[0] for word in words}):
            raise UsageError(
                "--serve contains --api-key, and the command is stored in the results file.",
                fix="Put the key into the server's environment variable (VLLM_API_KEY, LLAMA_API_KEY), and set "
                "api_key_env in the card to its name.",
            )
        has_mark = any(PORT in word for word in words)
        return cls(words, _port(words, has_mark=has_mark), _host(words, given="--host" in names))

    def fill_in(self, port: int) -> list[str]:
        """Words of the command with a port and this machine's name filled in."""
        return [word.replace(PORT, str(port)).replace(HOST, socket.gethostname()) for word in self.words]

    @property
    def address_host(self) -> str:
        """Host that lbx connects to."""
        return socket.gethostname() if self.host == HOST else self.host

    def url(self, port: int) -> str:
        """Url of the server's API at a port."""
        host = self.address_host
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def with_absolute_paths(text: str) -> str:
    """Make the local paths in a command absolute, for a process in another folder that sees the same files."""
    command = ServerCommand.parse(text)
    words = list(command.words)
    for number, option, path in local_paths(command):
        words[number] = f"{option}{path.absolute()}"
    return shlex.join(words)


def is_model(path: Path) -> bool:
    """Whether a path is a model: a GGUF or safetensors file, or a folder with config.json."""
    return path.suffix in _WEIGHTS if path.is_file() else (path / "config.json").is_file()


def local_paths(command: ServerCommand) -> Iterator[tuple[int, str, Path]]:
    """Yield (index of the word, text before the path, path) of the local files and folders in a command.

    A folder counts if the word has a slash or the folder is a model: "serve" in `vllm serve` may also be a folder here.
    """
    for number, word in enumerate(command.words):
        name, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
        if not value or PORT in value or HOST in value or (number == 0 and "/" not in value):
            continue
        path = Path(value)
        try:
            if path.is_file() or (path.is_dir() and ("/" in value or is_model(path))):
                yield number, name + equals, path
        except (OSError, ValueError):  # too long for a path, or with a null byte
            continue


def option_values(words: Sequence[str], name: str) -> list[str]:
    """Values of an option in a command, in both spellings: ``--port 1`` and ``--port=1``."""
    following = [value for word, value in zip(words, [*words[1:], ""], strict=True) if word == name]
    return following + [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]


def _port(words: Sequence[str], *, has_mark: bool) -> int | None:
    values = {value for value in option_values(words, "--port") if PORT not in value}
    if len(values) + has_mark > 1:
        both = " and ".join([PORT] * has_mark + sorted(values))
        raise UsageError(f"--serve names several ports: {both}.", fix=f"Keep one of them; lbx fills in {PORT}.")
    if has_mark:
        return None
    if not values:
        raise UsageError(
            "--serve names no port, so lbx does not know the server's address.",
            fix=f"Add --port {PORT}, and lbx chooses a free one: {_EXAMPLE}.",
        )
    (text,) = values
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16):
        raise UsageError(f"--serve has --port {text!r}, which is not a port.", fix=f"Write --port {PORT}.")
    return int(text)


def _host(words: Sequence[str], *, given: bool) -> str:
    values = set(option_values(words, "--host"))
    if len(values) > 1:
        raise UsageError(f"--serve names several hosts: {' and '.join(sorted(values))}.", fix="Keep one of them.")
    if not given:
        return HOST if any(HOST in word for word in words) else LOOPBACK
    (host,) = values
    return LOOPBACK if host in _EVERYWHERE else host


def _refuse_shell(text: str) -> None:
    """Refuse syntax that a shell would interpret and lbx would pass on as text."""
    for part in _PARTS.finditer(text):
        plain, double = part["plain"] or "", part["double"] or ""
        if found := _OPERATORS.search(plain) or _EXPANSIONS.search(re.sub(r"\\.", "", double)):
            shown = "a line break" if found[0] == "\n" else repr(found[0])
            raise UsageError(f"--serve contains shell syntax: {shown}.", fix=_SCRIPT)


_SECRETS = ("key", "cert", "password")
"""Words in names of options whose files results must not identify."""


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
    """Replace the values of --port and --host by the marks."""
    marks = {"--port": PORT, "--host": HOST}
    result = []
    for before, word in zip(["", *words], words, strict=False):
        name, equals, _ = word.partition("=")
        result.append(marks.get(before) or (f"{name}={marks[name]}" if equals and name in marks else word))
    return result
