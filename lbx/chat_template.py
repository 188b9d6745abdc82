"""Chat templates: the Jinja text by which a model's makers turn a question into what the model reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lbx.errors import BackendError

TEMPLATE_FIX = "Give another one in the model card ([chat] template_file), or switch it off ([chat] enabled = false)."
_ASKS_FOR_CLOCK = re.compile(r"\bstrftime_now\s+is\s+(not\s+)?(un)?defined")
_DATE = date(2024, 7, 26)


class ChatTemplate:
    """A model's Jinja chat template, rendered as transformers renders it.

    A prompt must not change overnight: a template that asks whether there is a ``strftime_now`` is told that there is
    none and falls back to its own date; one that calls it unasked is told that it is 26 July 2024.

    Args:
        source: the Jinja text.
        bos_token, eos_token: what ``{{ bos_token }}`` and ``{{ eos_token }}`` stand for.
        kwargs: further variables, e.g. {"enable_thinking": False}.

    Raises:
        BackendError: the template is not valid Jinja.
    """

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", kwargs: Mapping[str, object] | None = None
    ) -> None:
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as exc:
            raise _not_jinja(exc) from exc
        self._variables: dict[str, object] = {**(kwargs or {}), "bos_token": bos_token, "eos_token": eos_token}
        if not _ASKS_FOR_CLOCK.search(source):
            self._variables["strftime_now"] = _DATE.strftime

    def render(self, content: str) -> str:
        """The text a model reads when the user says ``content``, up to where its answer begins.

        Raises:
            BackendError: the template fails, e.g. it insists on a system message.
        """
        messages = [{"role": "user", "content": content}]
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._variables)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as exc:
            raise BackendError(
                f"The model's chat template failed on a user message: {exc}.",
                fix=TEMPLATE_FIX,
            ) from exc


class _Generation(Extension):
    """``{% generation %}``: marks what the assistant says, for training; the text inside is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def knows_switch(template_source: str, name: str) -> bool:
    """Whether a chat template reads the variable of that name, so that a value given for it can do something.

    Raises:
        BackendError: the template is not valid Jinja.
    """
    try:
        return name in jinja2.meta.find_undeclared_variables(_environment().parse(template_source))
    except jinja2.TemplateError as exc:
        raise _not_jinja(exc) from exc


def _environment() -> jinja2.Environment:
    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


def _not_jinja(exc: jinja2.TemplateError) -> BackendError:
    return BackendError(f"The model's chat template is not valid Jinja: {exc}.", fix=TEMPLATE_FIX)


def _tojson(value: object, indent: int | None = None) -> str:
    # Jinja's own tojson escapes <, > and & for HTML, which would change a prompt.
    return json.dumps(value, ensure_ascii=False, indent=indent)
