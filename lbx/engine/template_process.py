"""Main program of the process that renders untrusted chat templates within limits of time and memory.

The process reads one request per line and writes one answer per line, both JSON. The kernel kills the process if a
template exceeds the limits, which Jinja itself does not have.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.meta
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lbx.base.limits import TEMPLATE_BYTES, TEMPLATE_SECONDS

_ASKS_FOR_CLOCK = re.compile(r"\bstrftime_now\s+is\s+(not\s+)?(un)?defined")
_DATE = date(2024, 7, 26)
_MAX_ERROR_LENGTH = 1000
_WORD = re.compile(r"\w{1,20}")


def main() -> None:
    """Answer requests on standard input until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (TEMPLATE_BYTES, TEMPLATE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin.buffer:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + TEMPLATE_SECONDS, resource.RLIM_INFINITY))
        sys.stdout.buffer.write(json.dumps(_answer(json.loads(line))).encode() + b"\n")
        sys.stdout.buffer.flush()


def _answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a request with "found", "text", or an error of the template ("invalid") or the rendering ("failed")."""
    wrong = "invalid"
    try:
        if request.get("asks") == "variables":
            return {"found": _external_variables(request["source"])}
        template = _compile(request["source"])
        wrong = "failed"
        return {"text": template.render(_variables(request))} if "variables" in request else {}
    except MemoryError:
        return {wrong: "it takes too much memory"}
    except RecursionError:
        return {wrong: "it is nested too deeply, or recurses endlessly"}
    except jinja2.TemplateError as exc:
        return {wrong: f"{exc}"[:_MAX_ERROR_LENGTH].rstrip(".") or type(exc).__name__}
    except Exception as exc:  # any error of a template's expressions or of Jinja's compiler
        return {wrong: f"{type(exc).__name__}: {exc}"[:_MAX_ERROR_LENGTH].rstrip(".")}


def _external_variables(source: str) -> dict[str, tuple[list[str], bool]]:
    """Return {external variable: (words that it is compared with or set to, whether it is compared with a number)}."""
    undeclared = jinja2.meta.find_undeclared_variables(_environment().parse(source))
    values: dict[str, list[object]] = {name: [] for name in sorted(undeclared)}
    for node in _environment().parse(source).find_all((nodes.Compare, nodes.Assign, nodes.Filter)):
        operands = list(_operands(node))
        for name in {operand.name for operand in operands if isinstance(operand, nodes.Name)} & undeclared:
            values[name] += [operand.value for operand in operands if isinstance(operand, nodes.Const)]
    return {
        name: (
            list(dict.fromkeys(value for value in some if isinstance(value, str) and _WORD.fullmatch(value))),
            any(type(value) in (int, float) for value in some),
        )
        for name, some in values.items()
    }


def _operands(node: nodes.Node) -> Iterator[nodes.Node]:
    """Yield the names and constants that are direct operands of a comparison, an assignment or a default."""
    for child in node.iter_child_nodes(exclude=("test",)):
        if isinstance(child, nodes.Operand | nodes.List | nodes.Tuple | nodes.CondExpr | nodes.Filter | nodes.Or):
            yield from _operands(child)
        else:
            yield child


def _variables(request: Mapping[str, Any]) -> dict[str, Any]:
    clock = {} if _ASKS_FOR_CLOCK.search(request["source"]) else {"strftime_now": _DATE.strftime}
    return {**request["variables"], **clock}


@lru_cache(8)
def _compile(source: str) -> jinja2.Template:
    return _environment().from_string(source)


class _Generation(Extension):
    """Extension for the tag ``{% generation %}``, which marks text for training: the text is rendered unchanged."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _environment() -> jinja2.Environment:
    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = raise_exception
    return environment


def _tojson(value: object, indent: int | None = None) -> str:
    # Jinja's own tojson escapes <, > and & for HTML, which would change a prompt.
    return json.dumps(value, ensure_ascii=False, indent=indent)
