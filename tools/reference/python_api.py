"""Page of the Python API: the names of ``lbx`` and ``lbx.bundle`` and the classes that they take and return."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, ForwardRef

import lbx
from lbx.base import errors
from lbx.options.option import fields_of
from tools.reference.markdown import code, escape, page, sentence, table

_SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")
_SECTION = re.compile(rf"({'|'.join(_SECTIONS)}):\n")
_ENTRY = re.compile(r"\n(?=    \S)")
_NAME = re.compile(r"[A-Z]\w+")
_MODULE = re.compile(r"\b(?:lbx(?:\.\w+)*|collections\.abc|pathlib|typing)\.(?=[A-Z])")
_LINE = 100
_INTRODUCTION = """\
Signatures and docstrings of everything that is public: the names of `lbx` and `lbx.bundle`, and the classes that their
functions and methods take and return. [lbx from Python](python.md) is the guide."""


def python_page() -> str:
    """Return the page of the Python API."""
    public = {f"lbx.{name}": getattr(lbx, name) for name in lbx.__all__ if name != "bundle"}
    bundle = {f"lbx.bundle.{name}": getattr(lbx.bundle, name) for name in lbx.bundle.__all__}
    known = {id(thing) for thing in (*public.values(), *bundle.values())}
    others = {f"{cls.__module__}.{cls.__name__}": cls for cls in _related([*public.values(), *bundle.values()], known)}
    ids = {id(thing) for thing in public.values()}
    bundle = {name: thing for name, thing in bundle.items() if id(thing) not in ids}
    groups = {"lbx": public, "lbx.bundle": bundle, "Classes of arguments and results": others}
    parts = [_INTRODUCTION]
    for title, things in groups.items():
        parts += [f"## {title}", *(_describe(name, thing) for name, thing in things.items())]
    return page("Python API", *parts, _errors())


def _errors() -> str:
    """Return the table of the subclasses of ``LbxError``."""
    rows = [
        (
            code(name),
            code(cls.__bases__[0].__name__),
            str(cls.exit_code),
            prose((inspect.getdoc(cls) or "").split("\n\n")[0]),
        )
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and issubclass(cls, lbx.LbxError) and cls is not lbx.LbxError
    ]
    head = ("class", "base", "exit code", "meaning")
    return f"## Errors\n\nThe subclasses of `LbxError`, in `lbx.base.errors`.\n\n{table(head, rows)}"


def _related(things: Iterable[Any], known: set[int]) -> list[type]:
    """Return the classes of lbx that the annotations of things, and of their fields and results, name."""
    found: dict[str, type] = {}
    waiting = [annotation for thing in things for annotation in _annotations(thing)]
    while waiting:
        owner, annotation = waiting.pop()
        for name in _NAME.findall(annotation):
            cls = getattr(sys.modules[owner.__module__], name, None)
            if inspect.isclass(cls) and cls.__module__.startswith("lbx.") and id(cls) not in known:
                known.add(id(cls))
                if cls.__module__ != "lbx.options.option":  # fields show their options
                    found[f"{cls.__module__}.{cls.__name__}"] = cls
                    waiting += [*_field_annotations(cls), *_results(cls)]
    return [found[name] for name in sorted(found)]


def _annotations(thing: Any) -> Iterator[tuple[Any, str]]:
    """Yield (owner, annotation) of a function, or of a class's fields and methods."""
    if inspect.isclass(thing):
        yield from _field_annotations(thing)
    functions = (function for _, function in _methods(thing)) if inspect.isclass(thing) else [thing]
    for function in functions:
        for annotation in getattr(function, "__annotations__", {}).values():
            yield function, _spell(annotation)


def _results(cls: type) -> Iterator[tuple[Any, str]]:
    """Yield (method, annotation) of the results of a class's methods."""
    for _, method in _methods(cls):
        yield method, _spell(inspect.get_annotations(method).get("return", ""))


def _field_annotations(cls: type) -> Iterator[tuple[type, str]]:
    for base in cls.__mro__:
        if base.__module__.startswith("lbx."):
            for name, annotation in inspect.get_annotations(base).items():
                if not name.startswith("_"):
                    yield base, _spell(annotation)


def _spell(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return _MODULE.sub("", inspect.formatannotation(annotation))


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that lbx's classes define with a docstring, as functions."""
    names = dict.fromkeys(name for base in cls.__mro__ if base.__module__.startswith("lbx.") for name in base.__dict__)
    for name in sorted(names):
        static = inspect.getattr_static(cls, name)
        function = static.fget if isinstance(static, property) else getattr(static, "__func__", static)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def _describe(name: str, thing: Any) -> str:
    if inspect.isclass(thing):
        return _describe_class(name, thing)
    if callable(thing) and inspect.isfunction(thing):
        return _describe_function(name, thing, "###")
    return f"### {name}\n\n{escape(inspect.formatannotation(thing))}"


def _describe_function(name: str, function: Any, level: str) -> str:
    return "\n\n".join(
        [f"{level} {name}", _signature(name.rpartition(".")[2], function), *_docstring(inspect.getdoc(function))]
    )


def _signature(name: str, function: Any, *, is_method: bool = False) -> str:
    signature = inspect.signature(function)
    arguments = _arguments(list(signature.parameters.values())[1 if is_method else 0 :])
    result = signature.return_annotation
    returned = "" if result is inspect.Signature.empty else f" -> {_spell(result)}"
    text = f"{name}({', '.join(arguments)}){returned}"
    if len(text) > _LINE:
        text = f"{name}(\n{''.join(f'    {argument},' + chr(10) for argument in arguments)}){returned}"
    return f"```python\n{text}\n```"


def _arguments(parameters: list[inspect.Parameter]) -> list[str]:
    """Return the parameters' texts, with a star before the first that must be a keyword."""
    arguments: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in "".join(arguments):
            arguments.append("*")
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" * (parameter.kind is parameter.VAR_KEYWORD)
        kind = "" if parameter.annotation is parameter.empty else f": {_spell(parameter.annotation)}"
        default = "" if parameter.default is parameter.empty else f" = {_value(parameter.default)}"
        arguments.append(f"{star}{parameter.name}{kind}{default}")
    return arguments


def _value(default: object) -> str:
    """Return a default as text; a function is its name, since its representation has an address."""
    return default.__name__ if inspect.isfunction(default) else repr(default)


def sections(docstring: str | None) -> Iterator[tuple[str, str]]:
    """Yield ("", text) and (title, text) of a docstring's parts in their order; entries of sections are indented."""
    title = ""
    for paragraph in (docstring or "").split("\n\n"):
        match = _SECTION.match(paragraph)
        yield (match[1], paragraph[match.end() :]) if match else (title, paragraph)


def entries(docstring: str | None, title: str) -> Iterator[tuple[list[str], str]]:
    """Yield (names, description) of each entry of a docstring's section; [] for an entry without a name."""
    for name, text in sections(docstring):
        for entry in _ENTRY.split(f"\n{text}") if name == title else ():
            if match := re.match(r"([\w.*]+(?:, [\w.*]+)*): (.*)", " ".join(entry.split())):
                yield match[1].split(", "), match[2]
            elif entry.strip():
                yield [], " ".join(entry.split())


def _docstring(docstring: str | None, *, without: str = "") -> Iterator[str]:
    """Yield a docstring's paragraphs, and each of its sections as a list."""
    for title, text in sections(docstring):
        if not title and text.strip():
            is_block = all(line.startswith("    ") for line in text.splitlines())
            yield f"```text\n{inspect.cleandoc(text)}\n```" if is_block else prose(text)
        elif title and title != without:
            lines = (
                f"- {', '.join(map(code, names))}: {prose(meaning)}" if names else f"- {prose(meaning)}"
                for names, meaning in entries(f"{title}:\n{text}", title)
            )
            yield f"**{title}**\n\n" + "\n".join(lines)


def prose(text: str) -> str:
    """Convert a docstring's paragraph to Markdown: literals are code."""
    return escape(" ".join(text.split()).replace("``", "`"))


def _describe_class(name: str, cls: type) -> str:
    is_data = dataclasses.is_dataclass(cls)
    doc = "" if is_data and (cls.__doc__ or "").startswith(f"{cls.__name__}(") else inspect.getdoc(cls)
    bases = [code(base.__name__) for base in cls.__bases__ if base.__module__.startswith("lbx.")]
    parts = [f"### {name}"]
    if (constructor := cls.__dict__.get("__init__")) and not is_data:
        parts.append(_signature(cls.__name__, constructor, is_method=True).replace(" -> None", ""))
    parts += [f"A subclass of {', '.join(bases)}."] if bases else []
    fields = field_rows(cls)
    parts += _docstring(doc, without="Attributes" if fields else "")
    parts += [table(["field", "type", "default", "meaning"], fields)] if fields else []
    for method_name, function in _methods(cls):
        is_property = isinstance(inspect.getattr_static(cls, method_name), property)
        shown = f"{code(_spell(function.__annotations__['return']))}" if is_property else ""
        parts += [f"#### {cls.__name__}.{method_name}", shown or _signature(method_name, function, is_method=True)]
        parts += _docstring(inspect.getdoc(function))
    return "\n\n".join(parts)


def field_rows(cls: type) -> list[tuple[str, str, str, str]]:
    """Return rows (name, type, default, meaning) of a class's fields; an option's help is its meaning."""
    docstrings = [inspect.getdoc(base) for base in reversed(cls.__mro__) if base.__doc__]
    meanings = {name: text for doc in docstrings for names, text in entries(doc, "Attributes") for name in names}
    if dataclasses.is_dataclass(cls):
        options = {name: field.option for name, field in fields_of(cls).items()}
        kinds = {
            field.name: field.type.__origin__ if options.get(field.name) else field.type  # type: ignore[union-attr]
            for field in dataclasses.fields(cls)
        }
        meanings |= {name: option.help for name, option in options.items() if option}
        defaults = {field.name: _default(field) for field in dataclasses.fields(cls)}
    else:
        kinds = inspect.get_annotations(cls)
        defaults = {name: code(_value(value)) for name, value in getattr(cls, "_field_defaults", {}).items()}
    return [
        (code(name), code(_spell(kind)), defaults.get(name, ""), prose(sentence(meanings.get(name, ""))))
        for name, kind in kinds.items()
        if not name.startswith("_")
    ]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return code(_value(field.default))
    if field.default_factory is dataclasses.MISSING:
        return "required"
    return code(repr(field.default_factory())) if field.default_factory in (dict, list) else "made on creation"
