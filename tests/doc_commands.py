"""The command lines in the documents: found in their Markdown, and parsed as the shell and lbx would."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from markdown_it import MarkdownIt

from lbx.benchmarks.registry import BENCHMARKS
from lbx.cli.main import COMMANDS, app, load_command
from lbx.report.reports import NAMES, REPORTS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "models/*/README.md", "tests/*.md")
    for path in sorted(ROOT.glob(pattern))
]
_SHELL = ("", "sh", "bash", "shell")
_BETWEEN = {"&&", "||", "|", ";", "<(", ")", "(", "&"}

Root: Any = typer.main.get_command(app)
Root.commands = {name: load_command(name) for name in COMMANDS}


class Line(NamedTuple):
    """One command of a document: the page, its words, and the whole line that it stands in."""

    page: Path
    words: list[str]
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text}"

    @property
    def lbx(self) -> list[str] | None:
        """The arguments of lbx, where the command calls it, also behind a container's words."""
        for number, word in enumerate(self.words[:-1]):
            following = self.words[number + 1]
            if word == "lbx" and (following in Root.commands or following.startswith("--")):
                return self.words[number + 1 :]
        return None


def blocks(page: Path) -> Iterator[str]:
    """A page's blocks of shell commands: indented ones, and fenced ones that name no other language."""
    for token in MarkdownIt().parse(page.read_text("utf-8")):
        indented = token.type == "code_block" and not _is_data(token.content)
        if indented or (token.type == "fence" and token.info.strip() in _SHELL):
            yield token.content


def _is_data(block: str) -> bool:
    """Whether an indented block is TOML or JSON lines."""
    try:
        return bool(tomllib.loads(block))
    except tomllib.TOMLDecodeError:
        pass
    try:
        return bool([json.loads(line) for line in block.splitlines()])
    except ValueError:
        return False


def commands(page: Path) -> Iterator[Line]:
    """Each command in a page's blocks; a pipeline has several."""
    for block in blocks(page):
        for text in block.replace("\\\n", " ").splitlines():
            reader = shlex.shlex(text, posix=True, punctuation_chars=True)
            reader.whitespace_split = True
            words: list[str] = []
            for word in [*reader, ";"]:
                if word not in _BETWEEN:
                    words.append(word)
                elif words:
                    yield Line(page, words, text.strip())
                    words = []


def mentions(page: Path) -> Iterator[Line]:
    """What stands in a page's text as code and begins with ``lbx``."""
    for token in MarkdownIt().enable("table").parse(page.read_text("utf-8")):
        for child in token.children or ():
            if child.type == "code_inline" and child.content.startswith("lbx "):
                yield Line(page, shlex.split(child.content), child.content)


def check(arguments: list[str]) -> None:
    """Parse lbx's arguments as lbx does, and look whether tasks, reports, recipes and cards have the right names.

    Raises:
        a TyperException: as lbx would; AssertionError: a name is wrong.
    """
    command, rest = Root, without_redirection(arguments)
    if rest[0].startswith("--"):
        assert rest[0] in {name for option in command.params for name in option.opts}, rest
        return
    name = ""
    while hasattr(command, "commands"):
        if (default := getattr(command, "default_part", "")) and rest[0] not in command.commands:
            rest = [default, *rest]
        name, *rest = rest
        command = command.commands[name]
    context = command.make_context(name, list(rest), resilient_parsing=False)
    given = context.params
    if context.args:  # what submit passes on to run
        context = Root.commands["run"].make_context("run", [*context.args, "--output", "-"])
        given = context.params
    own = {path.parent.name for path in ROOT.glob("bundle/examples/*/benchmark.toml")}
    for task in (part for names in given.get("task_names") or given.get("tasks") or () for part in names.split(",")):
        family, _, one = task.partition("/")
        assert family in {*BENCHMARKS, "all", "longbench_e", *own}, task
        known = BENCHMARKS[family].catalogue.names if family in list(BENCHMARKS) else ()
        assert not one or not known or "*" in one or one in known, task
    assert given.get("view") in {None, *NAMES, *REPORTS}, given
    for recipe in map(str, given.get("recipes") or ()):
        assert not recipe.startswith(("bundle/", "models/")) or (ROOT / recipe).is_file(), recipe


def check_mention(arguments: list[str]) -> None:
    """Whether a command that is only mentioned exists, and each of its options; the rest may be left out."""
    command, rest = Root, list(arguments)
    while rest and hasattr(command, "commands") and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]
    assert command is not Root or (rest and rest[0].startswith("--")) or rest == ["COMMAND", "--help"], arguments
    own = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
    if "submit" in arguments:
        own |= {name for option in Root.commands["run"].params for name in (*option.opts, *option.secondary_opts)}
    if command is not Root:
        for word in rest:
            assert not word.startswith("-") or word.partition("=")[0] in own, (arguments, word)


def without_redirection(words: list[str]) -> list[str]:
    """The words up to ``> FILE``."""
    return words[: words.index(">")] if ">" in words else words
