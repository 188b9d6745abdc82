"""Source files of lbx as syntax trees, and templates of the texts that their expressions make.

A template has ``{words}`` in place of a value, and ``[one | other]`` in place of a text that depends on the situation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
_MOST_ALTERNATIVES = 4
_DEEPEST = 12
_REASONS = ("exc", "error", "exception", "problem", "why")
"""Names of variables whose value is the reason of an error."""
_TRANSPARENT = (
    "capitalize", "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rstrip", "strip",
)  # fmt: skip
"""Methods of texts that a template need not show."""


@dataclass(eq=False)
class Module:
    """A source file.

    Attributes:
        name: dotted name, such as "lbx.base.errors".
        parents: {child: node}.
        nodes: all nodes of the tree.
    """

    name: str
    path: str
    tree: ast.Module
    parents: Mapping[ast.AST, ast.AST] = field(init=False)
    nodes: Sequence[ast.AST] = field(init=False)

    def __post_init__(self) -> None:
        self.nodes = list(ast.walk(self.tree))
        self.parents = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    @cached_property
    def imports(self) -> Mapping[str, tuple[str, str]]:
        """{name in this module: (module, name there)}."""
        nodes = (node for node in self.nodes if isinstance(node, ast.ImportFrom) and node.module)
        return {alias.asname or alias.name: (str(node.module), alias.name) for node in nodes for alias in node.names}

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        """Functions and methods by name."""
        return {node.name: node for node in self.nodes if isinstance(node, Function)}

    @cached_property
    def constants(self) -> Mapping[str, ast.expr]:
        """Values of the names that the module assigns at its top level."""
        found: dict[str, ast.expr] = {}
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                found[node.target.id] = node.value
        return found

    @cached_property
    def calls(self) -> Sequence[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    def enclosing(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the functions and classes around a node, the innermost first."""
        while (parent := self.parents.get(node)) is not None:
            node = parent
            if isinstance(node, Function | ast.ClassDef):
                yield node


class Project:
    """The modules of a package below a folder."""

    def __init__(self, root: Path, package: str = "lbx") -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted((root / package).rglob("*.py")):
            place = path.relative_to(root)
            name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
            self.modules[name] = Module(name, str(place), ast.parse(path.read_text("utf-8")))

    def find_function(self, module: Module, name: str) -> tuple[Module, Function] | None:
        """Find a function or method by the name that a module calls it by."""
        for _ in range(3):  # a package imports the names of its modules
            if name in module.functions:
                return module, module.functions[name]
            if name not in module.imports or module.imports[name][0] not in self.modules:
                return None
            source, name = module.imports[name]
            module = self.modules[source]
        return None

    def find_constant(self, module: Module, name: str) -> tuple[Module, ast.expr] | None:
        """Find the value of a name that a module or the module that it imports it from assigns."""
        if name in module.constants:
            return module, module.constants[name]
        source, original = module.imports.get(name, ("", ""))
        return self.find_constant(self.modules[source], original) if source in self.modules else None


def called_name(call: ast.Call) -> str:
    """Return the name of the function or method that is called."""
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def bind_arguments(function: Function, call: ast.Call) -> dict[str, ast.expr]:
    """Return {parameter: argument, or default}."""
    positional = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
    defaults = function.args.defaults
    bound = dict(zip(positional[len(positional) - len(defaults) :], defaults, strict=True)) if defaults else {}
    keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    bound |= {argument.arg: default for argument, default in keywords if default is not None}
    bound |= dict(zip(positional, call.args, strict=False))
    return bound | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


@dataclass(frozen=True)
class Scope:
    """Place of an expression.

    Attributes:
        arguments: the function's arguments, each with the scope of the call, if the call is known.
    """

    project: Project
    module: Module
    arguments: Mapping[str, tuple[Scope, ast.expr]] = field(default_factory=dict)
    depth: int = 0

    def of_call(self, module: Module, function: Function, call: ast.Call) -> Scope:
        """Return the scope of a function that is called here."""
        bound = {name: (self, value) for name, value in bind_arguments(function, call).items()}
        return Scope(self.project, module, bound, self.depth + 1)

    def template(self, node: ast.expr | None) -> str:
        """Return the template of an expression whose value is a text; "" for None."""
        return " ".join(self._text(node).replace("{reason}: {reason}", "{reason}").split()) if node is not None else ""

    def _text(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=None):
                return ""
            case ast.Constant(value=value):
                return f"{value:,}" if isinstance(value, int) else str(value)
            case ast.JoinedStr(values=parts):
                return "".join(map(self._text, parts))
            case ast.FormattedValue(value=value) | ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self._text(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._text(left) + self._text(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if _is_text(left):
                return _alternatives(self._text(left), "")
            case ast.IfExp(body=body, orelse=other) if _is_text(body) or _is_text(other):
                return _alternatives(self._text(body), self._text(other))
            case ast.IfExp(body=body):
                return self._text(body)
            case ast.BoolOp(op=ast.Or(), values=values):
                return _alternatives(*dict.fromkeys(map(self._text, values)))
            case ast.BoolOp(values=values):
                return _alternatives(self._text(values[-1]), "")
            case ast.Call():
                return self._call(node)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in _REASONS:
                return "{reason}" if attribute in ("args", "msg", "strerror") else _placeholder(attribute)
            case ast.Attribute(value=value, attr="name" | "path" | "value"):
                return self._text(value) if not _is_self(value) else "{" + node.attr + "}"
            case ast.Attribute(attr=attribute):
                return _placeholder(attribute)
            case ast.Subscript(slice=ast.Constant(value=str(key))):
                return _placeholder(key)
            case ast.Subscript(value=value) | ast.UnaryOp(operand=value) | ast.Await(value=value):
                return self._text(value)
            case ast.BinOp(left=left, right=right):
                return self._text(right if isinstance(left, ast.Constant) else left)
            case ast.GeneratorExp(generators=loops) | ast.ListComp(generators=loops) | ast.SetComp(generators=loops):
                return self._text(loops[0].iter)
            case ast.List(elts=parts) | ast.Tuple(elts=parts) if parts:
                return " ".join(map(self._text, parts))
        return "{value}"

    def _name(self, node: ast.Name, name: str) -> str:
        if self.depth > _DEEPEST:
            return _placeholder(name)
        if name in self.arguments:
            scope, value = self.arguments[name]
            return Scope(scope.project, scope.module, scope.arguments, self.depth + 1)._text(value)
        if values := self._assigned(node, name):
            deeper = Scope(self.project, self.module, self.arguments, self.depth + 1)
            return _alternatives(*dict.fromkeys(map(deeper._text, values)))
        found = self.project.find_constant(self.module, name)
        if found and (_is_text(found[1]) or _is_number(found[1])):
            return Scope(self.project, found[0], {}, self.depth + 1)._text(found[1])
        return _placeholder(name)

    def _assigned(self, node: ast.Name, name: str) -> list[ast.expr]:
        """Return the values that the function around a variable assigns to it; [] if one is no text."""
        function = next((part for part in self.module.enclosing(node) if isinstance(part, Function)), None)
        values: list[ast.expr] = []
        for statement in ast.walk(function) if function else ():
            match statement:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    values.append(value)
                case ast.NamedExpr(target=ast.Name(id=target), value=value) if target == name:
                    values.append(value)
                case ast.AugAssign(target=ast.Name(id=target)) if target == name:
                    return []
        is_usable = 0 < len(values) <= _MOST_ALTERNATIVES and all(map(_is_text, values))
        return values if is_usable else []

    def _call(self, call: ast.Call) -> str:
        name, arguments = called_name(call), call.args
        if name == "as_command":
            return " ".join(map(self._text, arguments))
        if name == "format_count" and len(arguments) > 1:
            plural = self._text(arguments[2]) if len(arguments) > 2 else f"{self._text(arguments[1])}s"
            return f"{self._text(arguments[0])} {plural}"
        if name == "suggest_names":
            return "[Did you mean {names}? | Available: {names}.]"
        if name == "len" and arguments:
            return "{number of " + self._text(arguments[0]).strip("{}") + "}"
        if name in ("join", "map", "filter") and arguments:
            return self._text(arguments[-1])
        if name == "format" and isinstance(call.func, ast.Attribute):
            return re.sub(r"\{[^{}]*\}", "{value}", self._text(call.func.value))
        if isinstance(call.func, ast.Attribute) and (name in _TRANSPARENT or _is_text(call.func.value)):
            return self._text(call.func.value)
        found = self.project.find_function(self.module, name) if self.depth <= _DEEPEST else None
        if found and (texts := _returned_texts(found[1])):
            scope = self.of_call(*found, call)
            return _alternatives(*dict.fromkeys(map(scope._text, texts)))
        if len(arguments) == 1 or (arguments and isinstance(call.func, ast.Name)):
            return self._text(arguments[0])
        return _placeholder(name)


def _returned_texts(function: Function) -> list[ast.expr]:
    """Return the expressions of a function that returns a few literal texts; [] for other functions."""
    values = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    texts = [value for value in values if value is not None and _is_text(value)]
    return texts if 0 < len(texts) == len(values) <= _MOST_ALTERNATIVES else []


def _is_text(node: ast.expr) -> bool:
    """Whether an expression contains a literal text that is part of its value."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, str)
        case ast.JoinedStr(values=values):
            return any(isinstance(part, ast.Constant) for part in values)
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
            return _is_text(left) or _is_text(right)
        case ast.IfExp(body=body, orelse=other):
            return _is_text(body) or _is_text(other)
        case ast.BoolOp(values=values):
            return any(map(_is_text, values))
        case ast.Call(func=ast.Attribute(value=value)):
            return _is_text(value)
        case ast.Call(func=ast.Name(id="as_command" | "format_count" | "suggest_names")):
            return True
    return False


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _placeholder(name: str) -> str:
    words = "reason" if name in _REASONS else name.strip("_").replace("_", " ").lower()
    return "{" + (words or "value") + "}"


def _alternatives(*texts: str) -> str:
    """Join texts of which one is shown, in brackets; a single text is in brackets if it may be missing."""
    if any(text == "{reason}" for text in texts):
        return "{reason}"
    shown = list(dict.fromkeys(part for text in texts for part in _split_alternatives(text) if part))
    if (len(shown) == 1 and len(texts) == 1) or not shown:
        return "".join(texts)
    return f"[{' | '.join(shown)}]"


def _split_alternatives(text: str) -> list[str]:
    """Return the alternatives of a text that consists of nothing else, or the text itself."""
    inner = text[1:-1]
    return inner.split(" | ") if text.startswith("[") and text.endswith("]") and not {"[", "]"} & {*inner} else [text]


def literal_words(template: str) -> list[str]:
    """Return the words of a template that are no values."""
    return re.findall(r"[^\W\d_]{2,}", re.sub(r"\{[^{}]*\}", " ", template))
