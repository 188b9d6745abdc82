"""Chat templates: Jinja source from a model's files that turns messages into a prompt."""

from __future__ import annotations

import atexit
import copy
import json
import os
import select
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain, combinations
from typing import Any, NamedTuple

from lbx.base.errors import BackendError
from lbx.base.limits import TEMPLATE_BYTES, TEMPLATE_CHARACTERS, TEMPLATE_GROWTH, TEMPLATE_SECONDS
from lbx.base.processes import DEVNULL, PIPE, Popen, start_python

TEMPLATE_FIX = "Set another one in the model card ([chat] template_file), or disable it ([chat] enabled = false)."
_PROBE = "\ue009lbx{}\ue00a"
_WALL_S = 60.0
_SHORT = 1 << 16
"""Maximum bytes of the answer to the shortest request."""
_PROGRAM = """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
from lbx.engine.template_process import main
main()
"""


class TemplateLimitError(BackendError):
    """Rendering a template exceeded the limit of time or memory."""


class ChatTemplate:
    """Jinja chat template of a model, rendered like in transformers, but in a process with limits.

    Prompts must not depend on the date: a template that checks for ``strftime_now`` does not find it and uses its own
    date; one that calls it without a check gets 26 July 2024.

    Args:
        source: Jinja source.
        bos_token, eos_token: values of ``{{ bos_token }}`` and ``{{ eos_token }}``.
        kwargs: further variables, e.g. {"enable_thinking": False}.

    Raises:
        BackendError: the template is not valid Jinja, or takes too much time or memory.
    """

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", kwargs: Mapping[str, object] | None = None
    ) -> None:
        self.source = source
        self._list_roles: dict[tuple[str, ...], Collection[str]] = {}
        self._variables: dict[str, object] = {**(kwargs or {}), "bos_token": bos_token, "eos_token": eos_token}
        _request_answer({"source": source})

    def render(self, content: str, system: str = "", turns: Sequence[str] = ()) -> str:
        """Render a user message up to the beginning of the answer.

        Args:
            system: system message, or "" for none.
            turns: further messages, alternating between assistant and user.

        Raises:
            BackendError: the template fails, e.g. it requires a system message, or takes too much time or memory.
        """
        messages = [{"role": "system", "content": system}] if system else []
        messages += conversation(content, turns)
        roles = self._roles_with_lists(messages)
        return self.render_messages([_with_content_list(one) if one["role"] in roles else one for one in messages])

    def _roles_with_lists(self, messages: Sequence[Mapping[str, str]]) -> Collection[str]:
        """Roles whose messages the template only renders if the content is a list, as in templates of vision models."""
        roles = tuple(dict.fromkeys(message["role"] for message in messages))
        if roles not in self._list_roles:
            self._list_roles[roles] = self._find_roles_with_lists(messages, roles)
        return self._list_roles[roles]

    def _find_roles_with_lists(self, messages: Sequence[Mapping[str, str]], roles: Sequence[str]) -> Collection[str]:
        probes = [{**message, "content": _PROBE.format(number)} for number, message in enumerate(messages)]
        for part_roles in chain.from_iterable(combinations(roles, count) for count in range(len(roles) + 1)):
            try:
                text = self.render_messages(
                    [_with_content_list(one) if one["role"] in part_roles else one for one in probes]
                )
            except TemplateLimitError:
                raise
            except BackendError:
                continue
            is_listed = "'type'" in text or '"type"' in text  # the list itself, not its texts
            if not is_listed and all(text.count(probe["content"]) == 1 for probe in probes):
                return part_roles
        others = [
            message for message in messages if message["role"] != "system"
        ]  # templates may leave out the system's
        return self._roles_with_lists(others) if "system" in roles else ()

    def render_messages(self, messages: Sequence[Mapping[str, Any]], *, adds_prompt: bool = True) -> str:
        """Render messages, by default followed by the beginning of the next answer (``adds_prompt``)."""
        variables = {"messages": messages, "add_generation_prompt": adds_prompt, **self._variables}
        text: str = _request_answer({"source": self.source, "variables": variables})["text"]
        return text

    def with_variables(self, values: Mapping[str, object]) -> ChatTemplate:
        """Copy of the template with additional variables."""
        template = copy.copy(self)
        template._variables = {**self._variables, **values}
        return template


def conversation(content: str, turns: Sequence[str] = ()) -> list[dict[str, str]]:
    """Messages of a conversation that alternate between user and assistant, the user first."""
    roles = ("user", "assistant")
    return [{"role": roles[index % 2], "content": text} for index, text in enumerate((content, *turns))]


def _with_content_list(message: Mapping[str, str]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


class Variable(NamedTuple):
    """Variable of a template: the words that the template compares it with, and whether it is compared with numbers."""

    words: tuple[str, ...]
    is_number: bool


def template_variables(source: str) -> dict[str, Variable]:
    """Find the external variables that a chat template reads, by name.

    Raises:
        BackendError: the template is not valid Jinja.
    """
    found = _request_answer({"source": source, "asks": "variables"})["found"]
    return {name: Variable(tuple(words), is_number) for name, (words, is_number) in found.items()}


class _Renderer:
    """Client of the process that renders templates, which starts at the first request and restarts after a crash."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: Popen[bytes] | None = None
        self._owner = 0

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Send a request and return the answer, or None if the process died or exceeded the time limit."""
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                self._process = start_python(
                    _PROGRAM, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, process_group=0, bufsize=0
                )
                self._owner = os.getpid()
            process = self._process
            try:
                answer = _exchange(process, json.dumps(request, default=str).encode() + b"\n")
            except BaseException:  # Ctrl-C, too, leaves an unread answer that would be taken for the next one
                self._end()
                raise
            if answer is None:
                self._end()
            return answer

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        process.wait()


def _exchange(process: Popen[bytes], request: bytes) -> dict[str, Any] | None:
    """Write a request to the rendering process and read the answer. None if the process dies or is too slow."""
    assert process.stdin is not None
    assert process.stdout is not None
    source, sink = process.stdout.fileno(), process.stdin.fileno()
    os.set_blocking(sink, False)
    end = time.monotonic() + _WALL_S
    unsent, parts, max_bytes = memoryview(request), bytearray(), TEMPLATE_GROWTH * len(request) + _SHORT
    while not parts.endswith(b"\n"):
        readable, writable, _ = select.select([source], [sink] if unsent else [], [], max(0.0, end - time.monotonic()))
        if not readable and not writable:
            return None
        if writable:
            try:
                unsent = unsent[os.write(sink, unsent) :]
            except BrokenPipeError:
                return None
        if readable:
            data = os.read(source, 1 << 16)
            if not data or len(parts) > max_bytes:
                return None
            parts += data
    with suppress(ValueError, RecursionError):
        answer = json.loads(parts)
        if isinstance(answer, dict):
            return answer
    return None


_renderer = _Renderer()
atexit.register(_renderer.close)


def _request_answer(request: Mapping[str, Any]) -> dict[str, Any]:
    if (length := len(request["source"])) > TEMPLATE_CHARACTERS:
        raise TemplateLimitError(
            f"The model's chat template has {length:,} characters, more than the limit of {TEMPLATE_CHARACTERS:,}.",
            fix=f"Do not trust this model. {TEMPLATE_FIX}",
        )
    answer = _renderer.ask(request)
    if answer is None:
        raise TemplateLimitError(
            f"The model's chat template takes more than {TEMPLATE_SECONDS} seconds or {TEMPLATE_BYTES >> 30} GiB of "
            f"memory, or its output is more than {TEMPLATE_GROWTH} times as long as its input.",
            fix=f"Do not trust this model. {TEMPLATE_FIX}",
        )
    if "invalid" in answer:
        raise BackendError(f"The model's chat template is not valid Jinja: {answer['invalid']}.", fix=TEMPLATE_FIX)
    if "failed" in answer:
        raise BackendError(f"The model's chat template failed on a user message: {answer['failed']}.", fix=TEMPLATE_FIX)
    return answer
