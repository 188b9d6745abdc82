"""Source files of lbx as syntax trees, and templates of the texts that their expressions make.

A template has ``{words}`` in place of a value, and ``[one | other]`` in place of a text that depends on the situation:
these three signs are ``OPEN``, ``BAR`` and ``CLOSE``, until ``bracketed`` writes them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
OPEN, BAR, CLOSE = "\ue000", "\ue001", "\ue002"
REPEATED = "{text of another error}"
"""Placeholder of an error that is raised again."""
_MOST_ALTERNATIVES = 4
_FEWEST_WORDS = 3
"""Literal words of the shortest sentence."""
_SHORTEST_WORD = 4
"""Letters of a word by which a text can be found."""
_DEEPEST = 12
_REASONS = ("exc", "error", "exception", "problem", "why")
"""Names of variables whose value is the reason of an error."""
_VALUES_FIRST = re.compile(r"(?:[^\w{\ue000-\ue002]*\{[^{}]*\}|, (?:line|row) (?=\{))*[^\w{\ue000-\ue002]*")
_TEXT_ATTRIBUTES = ("not_compared", "note", "notes", "problem")
"""Attributes whose values are sentences, wherever they are set."""
_COLLECTORS = ("dict", "filter", "fromkeys", "list", "sorted", "str", "tuple")
_TRANSPARENT = (
    "capitalize", "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rstrip", "split", "splitlines",
    "strip",
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

    @cached_property
    def calls(self) -> Mapping[str, Sequence[tuple[Module, ast.Call]]]:
        """{name of a function or method: its calls}."""
        found: dict[str, list[tuple[Module, ast.Call]]] = {}
        for module in self.modules.values():
            for call in module.calls:
                found.setdefault(called_name(call), []).append((module, call))
        return found

    @cached_property
    def error_classes(self) -> Mapping[str, ast.ClassDef | None]:
        """Classes of errors by name: ``LbxError`` and its subclasses."""
        classes: dict[str, ast.ClassDef | None] = {"LbxError": None}
        defined = [
            node for module in self.modules.values() for node in module.tree.body if isinstance(node, ast.ClassDef)
        ]
        for _ in range(4):  # subclasses of subclasses
            for node in defined:
                if any(isinstance(base, ast.Name) and base.id in classes for base in node.bases):
                    classes[node.name] = node
        return classes

    @cached_property
    def values_by_attribute(self) -> Mapping[str, Sequence[tuple[Module, ast.expr]]]:
        """Values that constructors and calls of ``append`` and ``extend`` give to the attributes with texts."""
        found: dict[str, list[tuple[Module, ast.expr]]] = {name: [] for name in _TEXT_ATTRIBUTES}
        for module in self.modules.values():
            for call in module.calls:
                for keyword in call.keywords:
                    if keyword.arg in found:
                        found[keyword.arg].append((module, keyword.value))
                match call:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Attribute(attr=name), attr="append" | "extend"), args=[value]
                    ):
                        if name in found:
                            found[name].append((module, value))
        return found

    @cached_property
    def _definitions(self) -> Mapping[str, Sequence[tuple[Module, Function]]]:
        found: dict[str, list[tuple[Module, Function]]] = {}
        for module in self.modules.values():
            for name, function in module.functions.items():
                found.setdefault(name, []).append((module, function))
        return found

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

    def find_method(self, name: str) -> tuple[Module, Function] | None:
        """Find the only function or method of lbx with a name."""
        found = self._definitions.get(name, ())
        return found[0] if len(found) == 1 else None

    def callers(self, module: Module, function: Function) -> Iterator[tuple[Module, ast.Call]]:
        """Yield the calls of a function, with their modules."""
        for caller, call in self.calls.get(function.name, ()):
            found = self.find_function(caller, function.name) or self.find_method(function.name)
            if found == (module, function):
                yield caller, call

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
        seen: expressions that were followed, if texts are sought everywhere: in callers, in functions that are called,
            and in collections.
    """

    project: Project
    module: Module
    arguments: Mapping[str, tuple[Scope, ast.expr]] = field(default_factory=dict)
    depth: int = 0
    seen: set[object] | None = field(default=None, compare=False)

    def of_call(self, module: Module, function: Function, call: ast.Call) -> Scope:
        """Return the scope of a function that is called here."""
        bound = {name: (self, value) for name, value in bind_arguments(function, call).items()}
        return Scope(self.project, module, bound, self.depth + 1, self.seen)

    def texts(self, node: ast.expr) -> list[str]:
        """Return the templates of the texts that an expression may have; one without words if they are not found."""
        text = self.template(node)
        if max(map(len, literal_words(skip_values(text))), default=0) < _SHORTEST_WORD:
            found = list(dict.fromkeys(_variants(replace(self, seen=set()).template(node))))
            return [text for text in found if len(literal_words(text)) >= _FEWEST_WORDS or REPEATED in text] or found
        return list(dict.fromkeys(_variants(text)))

    def template(self, node: ast.expr | None) -> str:
        """Return the template of an expression whose value is a text; "" for None."""
        return " ".join(self._text(node).replace("{reason}: {reason}", "{reason}").split()) if node is not None else ""

    def _text(self, node: ast.expr) -> str:
        if self.seen is not None and isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            return self._found_texts(node)
        match node:
            case ast.Constant(value=None):
                return ""
            case ast.Constant(value=value):
                return f"{value:,}" if isinstance(value, int) else str(value)
            case ast.JoinedStr(values=parts):
                return "".join(map(self._text, parts))
            case ast.FormattedValue(value=value) | ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self._text(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right) if _is_number(right) or _is_number(left):
                return self._text(left if _is_number(right) else right)
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
            return replace(scope, depth=self.depth + 1, seen=self.seen)._text(value)
        if values := self._assigned(node, name):
            deeper = replace(self, depth=self.depth + 1)
            return _alternatives(*dict.fromkeys(map(deeper._text, values)))
        found = self.project.find_constant(self.module, name)
        if found and (_is_text(found[1]) or _is_number(found[1])):
            return Scope(self.project, found[0], {}, self.depth + 1)._text(found[1])
        return _placeholder(name)

    def _found_texts(self, node: ast.expr) -> str:
        """Return all texts that an expression may have, wherever they are written."""
        if isinstance(node, ast.Call) and called_name(node) == "getMessage":
            return REPEATED
        plain = replace(self, seen=None)
        found = []
        for scope, leaf in self._next(node):
            text = replace(scope, seen=None)._text(leaf)
            found.append(text if literal_words(text) else scope._text(leaf))
        worded = [text for text in found if literal_words(text) or REPEATED in text]
        return _alternatives(*worded) if worded else plain._text(node)

    def _leaves(self, node: ast.expr) -> Iterator[tuple[Scope, ast.expr]]:
        """Yield the expressions, each with its scope, whose values are those of an expression, or are in it."""
        match node:
            case _ if _is_text(node):
                yield self, node
            case ast.Constant():
                return
            case ast.IfExp(body=first, orelse=second) | ast.BinOp(left=first, op=ast.Add(), right=second):
                yield from self._leaves(first)
                yield from self._leaves(second)
            case ast.BoolOp(op=ast.And(), values=[*_, value]) | ast.Subscript(value=value) | ast.Starred(value=value):
                yield from self._leaves(value)
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                for part in parts:
                    yield from self._leaves(part)
            case ast.Dict(values=parts):
                for part in parts:
                    yield from self._leaves(part)
            case ast.ListComp(elt=value) | ast.GeneratorExp(elt=value) | ast.NamedExpr(value=value):
                yield from self._leaves(value)
            case ast.YieldFrom(value=value) | ast.Yield(value=ast.expr() as value):
                yield from self._leaves(value)
            case ast.Name(id=name):
                yield from self._leaves_of_name(node, name)
            case ast.Attribute(value=ast.Name(id=name) as owner) if self._caught_classes(owner, name):
                yield from self._leaves_of_name(owner, name)
            case ast.Attribute(attr=attribute) if attribute in _TEXT_ATTRIBUTES:
                yield from self._leaves_of_attribute(attribute)
            case ast.Call():
                yield from self._leaves_of_call(node)
            case _:
                yield self, node

    def _next(self, node: ast.expr, scope: Scope | None = None) -> Iterator[tuple[Scope, ast.expr]]:
        """Yield the leaves of another expression, unless it was followed before."""
        scope = replace(scope or self, seen=self.seen, depth=self.depth + 1)
        key = (node, *(value for _, value in scope.arguments.values()))
        if self.seen is not None and key not in self.seen and scope.depth <= _DEEPEST:
            self.seen.add(key)
            yield from scope._leaves(node)

    def _leaves_of_name(self, node: ast.Name, name: str) -> Iterator[tuple[Scope, ast.expr]]:
        if name in self.arguments:
            scope, value = self.arguments[name]
            yield from self._next(value, scope)
            return
        if caught := self._caught_classes(node, name):
            if caught <= self.project.error_classes.keys():
                yield self, ast.Constant(REPEATED)
            for call in self.module.calls:
                if called_name(call) in caught - self.project.error_classes.keys() and call.args:
                    yield from self._next(call.args[0])
            return
        for function in self.module.enclosing(node):
            if not isinstance(function, Function):
                continue
            if values := _bound_values(function, name):
                for value, position in values:
                    for scope, part in self._items(value, position):
                        yield from self._next(part, scope)
                return
            if any(parameter.arg == name for parameter in (*function.args.args, *function.args.kwonlyargs)):
                for module, call in self.project.callers(self.module, function):
                    if argument := bind_arguments(function, call).get(name):
                        yield from self._next(argument, Scope(self.project, module))
                return
        if found := self.project.find_constant(self.module, name):
            yield from self._next(found[1], Scope(self.project, found[0]))
        elif function_found := self.project.find_function(self.module, name):
            for value in _results(function_found[1]):
                yield from self._next(value, Scope(self.project, function_found[0]))
        else:
            yield self, node

    def _leaves_of_attribute(self, attribute: str) -> Iterator[tuple[Scope, ast.expr]]:
        for module, value in self.project.values_by_attribute[attribute]:
            yield from self._next(value, Scope(self.project, module))

    def _leaves_of_call(self, call: ast.Call) -> Iterator[tuple[Scope, ast.expr]]:
        name, arguments = called_name(call), call.args
        is_method = isinstance(call.func, ast.Attribute)
        found = self.project.find_function(self.module, name) or (self.project.find_method(name) if is_method else None)
        if found:
            for value in _results(found[1]):
                yield from self._next(value, self.of_call(*found, call))
        elif isinstance(call.func, ast.Attribute) and name in (*_TRANSPARENT, "get", "values"):
            yield from self._next(call.func.value)
            for argument in arguments[1:] if name == "get" else ():
                yield from self._next(argument)
        elif name in _COLLECTORS and arguments:
            for argument in arguments:
                yield from self._next(argument)
        else:
            yield self, call

    def _caught_classes(self, node: ast.AST, name: str) -> set[str]:
        """Return the classes of the error to which an ``except`` clause gives a name; empty if none does."""
        while (parent := self.module.parents.get(node)) is not None:
            node = parent
            if isinstance(node, ast.ExceptHandler) and node.name == name and node.type:
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                return {getattr(kind, "id", getattr(kind, "attr", "")) for kind in kinds}
        return set()

    def _items(self, node: ast.expr, position: int | None) -> Iterator[tuple[Scope, ast.expr]]:
        """Yield the parts of tuples at a position, or the expression itself without one."""
        if position is None or self.depth > _DEEPEST:
            yield self, node
            return
        match node:
            case ast.Tuple(elts=parts) if parts and not any(isinstance(part, ast.Tuple) for part in parts):
                if position < len(parts):
                    yield self, parts[position]
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    yield from self._items(part, position)
            case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part):
                yield from self._items(part, position)
            case ast.Name(id=name):
                for function in self.module.enclosing(node):
                    if isinstance(function, Function):
                        for value, inner in _bound_values(function, name):
                            if inner is None and value is not node:
                                yield from self._items(value, position)
            case ast.Call() if called_name(node) == "zip" and position < len(node.args):
                yield self, node.args[position]
            case ast.Call(func=ast.Attribute(value=ast.Dict(keys=keys, values=values), attr="items")):
                yield from ((self, part) for part in (values if position else keys) if part)
            case ast.Call() if found := self.project.find_function(self.module, called_name(node)):
                scope = self.of_call(*found, node)
                for value in _results(found[1]):
                    yield from scope._items(value, position)

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
        repeats = any(isinstance(part, ast.Name) and part.id == name for value in values for part in ast.walk(value))
        is_usable = 0 < len(values) <= _MOST_ALTERNATIVES and all(map(_is_text, values)) and not repeats
        return values if is_usable else []

    def _call(self, call: ast.Call) -> str:
        name, arguments = called_name(call), call.args
        if name == "as_command":
            return " ".join(map(self._text, arguments))
        if name == "format_count" and len(arguments) > 1:
            plural = self._text(arguments[2]) if len(arguments) > 2 else f"{self._text(arguments[1])}s"
            return f"{self._text(arguments[0])} {plural}"
        if name in ("format_duration", "format_size"):
            return self._text(arguments[0])
        if name == "suggest_names":
            return _alternatives("Did you mean {names}?", "Available: {names}.")
        if name == "len" and arguments:
            return "{number of " + self._text(arguments[0]).strip("{}") + "}"
        if name == "get" and arguments and isinstance(arguments[0], ast.Constant):
            return _placeholder(str(arguments[0].value))
        if name in ("join", "map", "filter", "sub", "findall") and arguments:
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


@cache
def _bound_values(function: Function, name: str) -> Sequence[tuple[ast.expr, int | None]]:
    """Return what a function binds to a name, each with its position if it is one of several values."""
    return [*_find_bound_values(function, name)]


def _find_bound_values(function: Function, name: str) -> Iterator[tuple[ast.expr, int | None]]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[target], value=value):
                yield from _matches(target, value, name)
            case ast.AugAssign(target=target, value=value) if not _is_text(value):  # a text only continues another
                yield from _matches(target, value, name)
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
                yield from _matches(target, value, name)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from _matches(target, value, name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="append" | "extend"), args=[value]):
                if owner == name:
                    yield value, None


def _matches(target: ast.expr, value: ast.expr, name: str) -> Iterator[tuple[ast.expr, int | None]]:
    if isinstance(target, ast.Name) and target.id == name:
        yield value, None
    elif isinstance(target, ast.Tuple):
        for position, part in enumerate(target.elts):
            if isinstance(part, ast.Name) and part.id == name:
                yield value, position


@cache
def _results(function: Function) -> list[ast.expr]:
    """Return what a function returns or yields."""
    nodes = (node for node in ast.walk(function) if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom))
    return [node.value for node in nodes if node.value is not None]


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
    return f"{OPEN}{BAR.join(shown)}{CLOSE}"


def _split_alternatives(text: str) -> list[str]:
    """Return the alternatives of a text that begins with them and has nothing else, or the text itself."""
    if not text.startswith(OPEN):
        return [text]
    parts, level = [""], 0
    for position, sign in enumerate(text):
        level += (sign == OPEN) - (sign == CLOSE)
        if level == 0 and position < len(text) - 1:
            return [text]
        if sign == BAR and level == 1:
            parts.append("")
        elif position and level:
            parts[-1] += sign
    return parts


def _variants(text: str) -> Iterator[str]:
    """Yield a template's texts with different first words."""
    begin = len(text) - len(skip_values(text))
    if not text.startswith(OPEN, begin):
        yield text
        return
    end = next(
        position
        for position in range(begin, len(text))
        if text.count(OPEN, begin, position + 1) == text.count(CLOSE, begin, position + 1)
    )
    parts = _split_alternatives(text[begin : end + 1])
    if len(parts) == 1 and len(literal_words(parts[0])) < _FEWEST_WORDS and literal_words(text[end + 1 :]):
        parts = [""]  # a few words that may be missing
    for part in parts if any(map(literal_words, parts)) else parts[:1]:
        yield from _variants(f"{text[:begin]}{part}{text[end + 1 :]}".strip())


def skip_values(template: str) -> str:
    """Return a template from its first word or alternatives on."""
    match = _VALUES_FIRST.match(template)
    return template[match.end() :] if match else template


def bracketed(template: str) -> str:
    """Write the alternatives of a template in brackets."""
    return template.replace(OPEN, "[").replace(BAR, " | ").replace(CLOSE, "]")


def literal_words(template: str) -> list[str]:
    """Return the words of a template that are no values."""
    return re.findall(r"[^\W\d_]{2,}", re.sub(r"\{[^{}]*\}", " ", template))
