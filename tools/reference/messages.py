"""Page of the messages: every error and note with its cause and fix, found in the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tools.reference.markdown import code, escape, page
from tools.reference.python_api import entries, prose
from tools.reference.sources import (
    BAR,
    CLOSE,
    OPEN,
    REPEATED,
    Function,
    Module,
    Project,
    Scope,
    bracketed,
    called_name,
    literal_words,
    skip_values,
)

ROOT = Path(__file__).resolve().parents[2]
_NOTE_FUNCTIONS = frozenset({"note", "notes", "on_message"})
_ERROR = "error: "
"""Beginning of an error that is printed without ``LbxError``."""
_LOG_METHODS = ("info", "warning", "error")
_WRITTEN_BY_USERS = ("lbx/backends/scripted.py",)
"""Modules with an error whose text is written by the user: the key `error` of a table of answers."""
_FEWEST_WORDS = 3
"""Literal words of the shortest note that can be looked up."""
_REQUIREMENT = re.compile(r"\b(?:must|needs?|at most|only|exclude each other|use|write|pass)\b", re.IGNORECASE)
_VALUE = r"\{[^{}]*\}"
_PLACE = re.compile(rf"{OPEN}?{_VALUE}(?:,? \(?(?:line|row) {_VALUE}\)?|[{BAR}{CLOSE}]|{_VALUE})*")
"""Value in a template, or several values that name a place in a file."""
_INTRODUCTION = """\
Errors and notes of lbx, in alphabetical order. Find a message by its first words: a value at its beginning, such as
a path or "The model card m.toml", does not count. Braces stand for a value ({path}), and brackets for a text that
depends on the situation: [one | the other].

Messages with the same beginning and fix are one entry, with the reasons at its end. Where the fix depends on the
command, the entry has each of them, joined by "Or:".

An error ends the command. It is printed as a paragraph, "error:" with the cause, then the fix, and "try:" with the next
command. In Python it is an exception with `cause`, `fix` and `command`, of the class named here
([Errors](api.md#errors)). A note says what is worth knowing, and the command continues. A finding is a line of
`lbx doctor`. Errors marked "usage" are about the syntax of a command, and those marked "error" about a crash."""
_FINDING = "Finding"
"""Class of the findings of ``lbx doctor``, which have a cause and a fix like errors."""
_FEWEST_REASONS = 3
"""Messages with the same beginning and fix that are one entry."""
_OF_TYPER = {
    "Got unexpected extra argument(s) ({arguments}).": "Remove them, or quote names with blanks.",
    "Invalid value for {option}: {reason}.": "",
    "Missing argument {argument}.": "",
    "Missing option {option}.": "",
    "No such command {name}.": "",
    f"No such option: {{option}}{OPEN} (Possible options: {{options}}){CLOSE}.": "",
    "Option {option} does not take a value.": "Leave out the = and what follows.",
    "Option {option} requires an argument.": "",
}
"""{message of the library that parses the command line: fix that its text does not give}."""


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
        words = re.sub(r"\W+", " ", skip_values(self.text).lstrip(OPEN) or self.text)
        return words.strip().casefold()

    @property
    def is_resolved(self) -> bool:
        """Whether the text has words by which it can be found."""
        return bool(literal_words(skip_values(self.text)))

    @property
    def form(self) -> str:
        """The text without the names of its values."""
        return _PLACE.sub("{}", self.text)

    @property
    def remedy(self) -> str:
        """Fix and command in Markdown."""
        parts = [escape(bracketed(self.fix))] if self.fix else []
        return " ".join([*parts, *([f"Try {code(bracketed(self.command))}."] if self.command else [])])

    @property
    def beginning(self) -> str:
        """The text up to the colon before its reason, or "" if that has too few words to be found by."""
        level = 0
        for position, sign in enumerate(self.text):
            level += (sign in OPEN + "{") - (sign in CLOSE + "}")
            if level == 0 and self.text.startswith(": ", position):
                beginning = self.text[:position]
                return beginning if len(literal_words(skip_values(beginning))) > 1 else ""
        return ""


@dataclass(frozen=True)
class Entry:
    """Messages that are looked up together.

    Attributes:
        message: one of the messages, whose text has "{reason}" in place of the reasons, if there are several.
        reasons: ends of the texts.
    """

    message: Message
    reasons: Sequence[str]
    remedies: Sequence[str]
    kinds: Sequence[str]

    @property
    def line(self) -> str:
        """The entry in Markdown."""
        reason = self.message.reason
        parts = [f"- **{escape(bracketed(self.message.text))}**", " Or: ".join(filter(None, self.remedies))]
        parts += [f"Occurs if {prose(_stop(reason))}"] if reason and len(self.remedies) == 1 else []
        parts += (
            [f"Reasons: {'; '.join(escape(bracketed(reason)) for reason in self.reasons)}."] if self.reasons else []
        )
        return " ".join(filter(None, [*parts, f"({', '.join(self.kinds)})"]))


def entries_of(found: Sequence[Message]) -> list[Entry]:
    """Join messages with the same beginning and fix, and messages with the same text and different fixes."""
    by_beginning: dict[tuple[str, str], list[Message]] = {}
    for message in found:
        if message.beginning and message.remedy:
            form = replace(message, text=message.beginning).form
            by_beginning.setdefault((form, message.remedy), []).append(message)
    reasons: dict[Message, list[str]] = {}
    joined: set[Message] = set()
    for group in by_beginning.values():
        ends = sorted({message.text[len(message.beginning) + 2 :].rstrip(".") for message in group}, key=str.casefold)
        if len(ends) >= _FEWEST_REASONS:
            joined |= {*group}
            shortest = min(group, key=lambda message: (len(message.beginning), message.beginning))
            reasons[replace(shortest, text=f"{shortest.beginning}: {{reason}}.", reason="")] = ends
    by_form: dict[tuple[str, bool], list[Message]] = {}
    for message in [*(message for message in found if message not in joined), *reasons]:
        by_form.setdefault((message.form, message.kind == "note"), []).append(message)
    entries = [
        Entry(
            min(group, key=lambda message: (len(message.text), message.text)),
            list(dict.fromkeys(reason for message in group for reason in reasons.get(message, ()))),
            list(dict.fromkeys(message.remedy for message in group)),
            list(dict.fromkeys(message.kind for message in group)),
        )
        for group in by_form.values()
    ]
    return sorted(entries, key=lambda entry: (entry.message.sort_key, entry.message.text))


def messages_page() -> str:
    """Return the page of all messages."""
    letters: dict[str, list[str]] = {}
    for entry in entries_of(messages(ROOT)):
        letters.setdefault(entry.message.sort_key[:1].upper(), []).append(entry.line)
    parts = [f"## {letter}\n\n" + "\n".join(lines) for letter, lines in sorted(letters.items())]
    return page("Messages", _INTRODUCTION, *parts)


def messages(root: Path) -> list[Message]:
    """Find the messages in the modules of ``lbx`` below a folder, in the order of the page."""
    found = [message for message in _found(Project(root)) if message.is_resolved]
    found += [Message("usage", text, fix, "lbx COMMAND --help", "", "typer") for text, fix in _OF_TYPER.items()]
    return sorted(found, key=lambda message: (message.sort_key, message.text, message.kind, message.fix))


def unresolved_messages(root: Path) -> list[str]:
    """Return the places of errors and notes whose text is not found in the source."""
    return [f"{message.location}: {message.text}" for message in _found(Project(root)) if not message.is_resolved]


def _found(project: Project) -> Iterator[Message]:
    makers = _makers(project)
    for module in project.modules.values():
        for message in _in_module(project, module, makers):
            if not (REPEATED in message.text or message.location.rpartition(":")[0] in _WRITTEN_BY_USERS):
                yield message


Makers = Mapping[tuple[str, str], Sequence[ast.Call]]


def _makers(project: Project) -> Makers:
    """Return {(module, name): the errors that it makes} of functions whose callers give the words of the message."""
    made: dict[tuple[str, str], list[ast.Call]] = {}
    for module in project.modules.values():
        for name, function in module.functions.items():
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            errors = [call for call in calls if called_name(call) in project.error_classes and call.args]
            if getattr(function.returns, "id", "") in project.error_classes and errors:
                made[module.name, name] = errors
    worded: set[tuple[str, str]] = set()
    for module in project.modules.values():
        for call in module.calls:
            if (found := project.find_function(module, called_name(call))) and (found[0].name, found[1].name) in made:
                scope = Scope(project, module)
                texts = (scope.template(argument) for argument in call.args)
                if any(len(literal_words(text)) >= _FEWEST_WORDS for text in texts):
                    worded.add((found[0].name, found[1].name))
    return {name: made[name] for name in worded}


def _in_module(project: Project, module: Module, makers: Makers) -> Iterator[Message]:
    scope, made_by_callers = Scope(project, module), {error for errors in makers.values() for error in errors}
    for call in module.calls:
        name, location = called_name(call), f"{module.path}:{call.lineno}"
        found = project.find_function(module, name)
        if name in project.error_classes or name == _FINDING:
            if call not in made_by_callers:
                yield from _errors(scope, call, location)
        elif found and (errors := makers.get((found[0].name, found[1].name))):
            for error in errors:
                yield from _errors(scope.of_call(*found, call), error, location)
        elif call.args and _is_note(call, name):
            around = (node.name for node in module.enclosing(call) if isinstance(node, Function))
            if _NOTE_FUNCTIONS.isdisjoint(around):
                for text in scope.texts(call.args[0]):
                    kind = "error" if text.startswith(_ERROR) else "note"
                    cause, _, command = text.removeprefix(_ERROR).partition(" try: ")
                    yield Message(kind, cause, "", command, "", location)
    for name, function in module.functions.items():
        if "note" in name or "doubt" in name:
            yield from _notes_of_report(scope, function)


def _errors(scope: Scope, call: ast.Call, location: str) -> Iterator[Message]:
    """Describe the error that a call makes, once for each of its texts; a class may define texts of its own."""
    kind = called_name(call)
    cls = scope.project.error_classes.get(kind)
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    remedies = {name: scope.template(keywords.get(name)) for name in ("fix", "command")}
    causes = scope.texts(call.args[0]) if call.args else [""]
    for own in ast.walk(cls) if cls else ():
        if isinstance(own, ast.Call) and called_name(own) == "__init__":
            inner = Scope(scope.project, scope.project.modules["lbx.base.errors"])
            inherited = {keyword.arg: inner.template(keyword.value) for keyword in own.keywords}
            remedies["fix"] = remedies["fix"] or inherited.get("fix", "").replace("{fix}", "")
            causes = causes if isinstance(own.args[0], ast.Name) else inner.texts(own.args[0])
    reason = _reason(scope.module, call, kind)
    for cause in causes:
        yield Message(
            kind.lower() if kind == _FINDING else kind,
            _stop(cause),
            _stop(remedies["fix"]),
            remedies["command"],
            reason,
            location,
        )


def _stop(text: str) -> str:
    """Add the full stop that ``lbx.cli.output.show_error`` adds."""
    return f"{text}." if text and not text.endswith((".", "!", "?", CLOSE)) else text


def _reason(module: Module, call: ast.Call, kind: str) -> str:
    """Return the situation that the docstring of the function gives for its only error of this class."""
    function = next((node for node in module.enclosing(call) if isinstance(node, Function)), None)
    if function is None or not (docstring := ast.get_docstring(function)):
        return ""
    errors = [node for node in ast.walk(function) if isinstance(node, ast.Call) and called_name(node) == kind]
    reasons = [text for names, text in entries(docstring, "Raises") if kind in names]
    if len(errors) != 1 or not reasons or reasons[0].casefold().startswith("always"):
        return ""
    return reasons[0] if reasons[0][:1] == "`" else f"{reasons[0][:1].lower()}{reasons[0][1:]}"


def _is_note(call: ast.Call, name: str) -> bool:
    receiver = getattr(getattr(call.func, "value", None), "id", "")
    if isinstance(call.func, ast.Attribute):
        is_log = name in _LOG_METHODS and receiver.lstrip("_") == "log"
        return is_log or name == "on_message" or ast.unparse(call.func) == "sys.stderr.write"
    return name in _NOTE_FUNCTIONS


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
