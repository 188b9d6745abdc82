"""Page of the messages: every error and note with its cause and fix, found in the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.reference.markdown import code, escape, page
from tools.reference.python_api import entries, prose
from tools.reference.sources import Function, Module, Project, Scope, called_name, literal_words

ROOT = Path(__file__).resolve().parents[2]
_NOTE_FUNCTIONS = ("note", "notify", "on_message", "warn")
_LOG_METHODS = ("info", "warning", "error")
_FEWEST_WORDS = 3
"""Literal words of the shortest note that can be looked up."""
_REQUIREMENT = re.compile(r"\b(?:must|needs?|at most|only|exclude each other|use|write|pass)\b", re.IGNORECASE)
_VALUE_FIRST = re.compile(r"^(?:[^\w{\[]*(?:\{[^{}]*\}|\[))+")
_INTRODUCTION = """\
Errors and notes of lbx, in alphabetical order. Find a message by its first words: a value at its beginning, such as
a path, does not count. Braces stand for a value ({path}), and brackets for a text that depends on the situation:
[one | the other].

An error ends the command. It is printed as a paragraph, "error:" with the cause, then the fix, and "try:" with the next
command. In Python it is an exception with `cause`, `fix` and `command`, of the class named here
([Errors](api.md#errors)). A note says what is worth knowing, and the command continues."""


@dataclass(frozen=True)
class Message:
    """A message's template.

    Attributes:
        kind: class of the error, or "note".
        command: the next command to type.
        reason: description of the situation in the docstring of the function that raises it.
        location: file and line.
    """

    kind: str
    text: str
    fix: str
    command: str
    reason: str
    location: str

    @property
    def lacks_fix(self) -> bool:
        """Whether an error names no remedy: no fix, no command, and no requirement in its text."""
        return self.kind != "note" and not (self.fix or self.command or _REQUIREMENT.search(self.text))

    @property
    def sort_key(self) -> str:
        words = re.sub(r"\W+", " ", _VALUE_FIRST.sub("", self.text) or self.text)
        return words.strip().casefold()


def messages_page() -> str:
    """Return the page of all messages."""
    letters: dict[str, list[str]] = {}
    for message in messages(ROOT):
        letters.setdefault(message.sort_key[:1].upper(), []).append(_line(message))
    parts = [f"## {letter}\n\n" + "\n".join(dict.fromkeys(lines)) for letter, lines in sorted(letters.items())]
    return page("Messages", _INTRODUCTION, *parts)


def _line(message: Message) -> str:
    parts = [f"- **{escape(message.text)}**", escape(message.fix)]
    parts += [f"Try {code(message.command)}."] if message.command else []
    parts += [f"Occurs if {prose(_stop(message.reason))}"] if message.reason else []
    parts += [f"({message.kind})"]
    return " ".join(filter(None, parts))


def messages(root: Path) -> list[Message]:
    """Find the messages in the modules of ``lbx`` below a folder, in the order of the page."""
    project = Project(root)
    classes = _error_classes(project)
    factories = _factories(project, classes)
    found = [
        message for module in project.modules.values() for message in _in_module(project, module, classes, factories)
    ]
    found = [message for message in found if literal_words(message.text)]  # others repeat the text of another error
    return sorted(found, key=lambda message: (message.sort_key, message.text, message.kind, message.fix))


def _error_classes(project: Project) -> dict[str, ast.ClassDef | None]:
    """Return the classes of errors by name: ``LbxError`` and its subclasses."""
    defined = [
        node for module in project.modules.values() for node in module.tree.body if isinstance(node, ast.ClassDef)
    ]
    classes: dict[str, ast.ClassDef | None] = {"LbxError": None}
    for _ in range(4):  # subclasses of subclasses
        for node in defined:
            if any(isinstance(base, ast.Name) and base.id in classes for base in node.bases):
                classes[node.name] = node
    return classes


Factories = Mapping[tuple[str, str], ast.Call]


def _factories(project: Project, classes: Mapping[str, object]) -> Factories:
    """Return {(module, name): the error that it makes} of functions whose callers give the words of the message."""
    makers: dict[tuple[str, str], ast.Call] = {}
    for module in project.modules.values():
        for name, function in module.functions.items():
            if getattr(function.returns, "id", "") not in classes:
                continue
            match [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]:
                case [ast.Call() as call] if called_name(call) in classes:
                    makers[module.name, name] = call
    worded: set[tuple[str, str]] = set()
    for module in project.modules.values():
        for call in module.calls:
            if (found := project.find_function(module, called_name(call))) and (found[0].name, found[1].name) in makers:
                scope = Scope(project, module)
                texts = (scope.template(argument) for argument in call.args)
                if any(len(literal_words(text)) >= _FEWEST_WORDS for text in texts):
                    worded.add((found[0].name, found[1].name))
    return {name: makers[name] for name in worded}


def _in_module(
    project: Project, module: Module, classes: Mapping[str, ast.ClassDef | None], factories: Factories
) -> Iterator[Message]:
    scope, made_by_callers = Scope(project, module), set(factories.values())
    for call in module.calls:
        name = called_name(call)
        found = project.find_function(module, name)
        if name in classes:
            if call not in made_by_callers:
                yield _error(scope, call, classes[name], f"{module.path}:{call.lineno}")
        elif found and (made := factories.get((found[0].name, found[1].name))):
            yield _error(scope.of_call(*found, call), made, classes[called_name(made)], f"{module.path}:{call.lineno}")
        elif call.args and _is_note(call, name):
            text = scope.template(call.args[0])
            if len(literal_words(text)) >= _FEWEST_WORDS:
                yield Message("note", text, "", "", "", f"{module.path}:{call.lineno}")
    for name, function in module.functions.items():
        if "note" in name or "doubt" in name:
            yield from _notes_of_report(scope, function)


def _error(scope: Scope, call: ast.Call, cls: ast.ClassDef | None, location: str) -> Message:
    """Describe the error that a call makes; a class may define texts of its own."""
    kind = called_name(call)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    texts = {name: scope.template(keywords.get(name)) for name in ("fix", "command")}
    cause = scope.template(call.args[0]) if call.args else ""
    for own in ast.walk(cls) if cls else ():
        if isinstance(own, ast.Call) and called_name(own) == "__init__":
            inner = Scope(scope.project, scope.project.modules["lbx.base.errors"])
            inherited = {keyword.arg: inner.template(keyword.value) for keyword in own.keywords}
            texts["fix"] = texts["fix"] or inherited.get("fix", "").replace("{fix}", "")
            cause = cause if isinstance(own.args[0], ast.Name) else inner.template(own.args[0])
    return Message(
        kind, _stop(cause), _stop(texts["fix"]), texts["command"], _reason(scope.module, call, kind), location
    )


def _stop(text: str) -> str:
    """Add the full stop that ``lbx.cli.output.show_error`` adds."""
    return f"{text}." if text and not text.endswith((".", "!", "?", "]")) else text


def _reason(module: Module, call: ast.Call, kind: str) -> str:
    """Return the situation that the docstring of the function gives for its only error of this class."""
    function = next((node for node in module.enclosing(call) if isinstance(node, Function)), None)
    if function is None or not (docstring := ast.get_docstring(function)):
        return ""
    errors = [node for node in ast.walk(function) if isinstance(node, ast.Call) and called_name(node) == kind]
    reasons = [text for names, text in entries(docstring, "Raises") if kind in names]
    return reasons[0] if len(errors) == 1 and reasons else ""


def _is_note(call: ast.Call, name: str) -> bool:
    receiver = getattr(getattr(call.func, "value", None), "id", "")
    return name.lstrip("_") in _NOTE_FUNCTIONS or (name in _LOG_METHODS and receiver.lstrip("_") == "log")


def _notes_of_report(scope: Scope, function: Function) -> Iterator[Message]:
    """Yield the sentences that a function of notes makes."""
    docstring = function.body[0].value if isinstance(function.body[0], ast.Expr) else None
    texts = [
        node for node in ast.walk(function) if isinstance(node, ast.JoinedStr | ast.Constant) and node is not docstring
    ]
    inner = {child for node in texts for child in ast.walk(node) if child is not node}
    for node in texts:
        if (
            node not in inner
            and len(literal_words(text := scope.template(node))) > _FEWEST_WORDS
            and text.endswith(".")
        ):
            yield Message("note", text, "", "", "", f"{scope.module.path}:{node.lineno}")
