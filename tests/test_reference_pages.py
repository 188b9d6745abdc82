"""The pages of the reference contain what the code has: commands, options, names of the API, messages, columns."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Annotated

import pytest
import typer

import lbx
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report.reports import NAMES
from tests.command_line import Lbx
from tests.doc_commands import ROOT, Root
from tests.test_docs import script
from tools.reference.commands import command_section, commands, option_index
from tools.reference.json_keys import OUTPUTS
from tools.reference.messages import Message, entries_of, messages, unresolved_messages
from tools.reference.sources import bracketed, literal_words
from tools.reference.tables import metrics

COMMANDS, API, MESSAGES, COLUMNS = (
    (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("commands", "api", "messages", "columns")
)
MOST_WITHOUT_REMEDY = 15
"""Errors that name no remedy; the number may only fall."""


def test_every_command_and_option_is_in_the_page() -> None:
    sections = dict(re.findall(r"^###? (lbx [a-z ]+)\n(.*?)(?=^##|\Z)", COMMANDS, re.MULTILINE | re.DOTALL))
    assert sections.keys() == commands().keys()
    assert {name.split()[1] for name in sections} == set(Root.commands)
    for name, command in commands().items():
        for option in command.params:
            if (
                option.param_type_name == "option"
                and not option.name.startswith("help")
                and not hasattr(command, "commands")
            ):
                assert f"`{option.opts[0]}`" in sections[name], (name, option.opts)


def test_a_made_up_option_appears_with_type_default_and_help() -> None:
    app = typer.Typer()

    @app.command()
    def made_up(
        file: Annotated[Path, typer.Argument(help="The file.", metavar="FILE")],
        limit: Annotated[int, typer.Option("--made-up", "-u", help="A made-up | limit.", metavar="N", min=2)] = 3,
    ) -> None:
        """Do something."""

    command = typer.main.get_command(app)
    section = command_section("lbx made", command)
    assert "| `--made-up`, `-u` N | whole number from 2 | `3` | A made-up \\| limit. |" in section
    assert "| `FILE` | The file. |" in section
    assert "Do something." in section
    assert "| `--made-up`, `-u` | [made](#lbx-made) |" in option_index({"lbx made": command})


def test_every_public_name_is_in_the_page() -> None:
    for name in lbx.__all__:
        assert f"lbx.{name}\n" in API or name == "bundle", name
    for name in lbx.bundle.__all__:
        assert f"lbx.bundle.{name}\n" in API or f"lbx.{name}\n" in API, name
    assert " at 0x" not in API, "every generation gives the same page"
    for field in lbx.RunSpec.command_line_fields():
        assert f"| `{field}` |" in API, field


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "lbx" / "base").mkdir(parents=True)
    shutil.copy(ROOT / "lbx" / "base" / "errors.py", folder / "lbx" / "base")
    (folder / "lbx" / "made.py").write_text(
        '''
from lbx.base.errors import LbxError, UsageError
from lbx.base.visible import as_command
_FIX = "Choose another."
_MOST = 2000
class OddError(UsageError): ...
def check(path, names, exc):
    """Check it.

    Raises:
        OddError: the file is odd.
    """
    why = "is odd" if names else "is even"
    command = as_command("lbx", "run", path)
    raise OddError(f"{path.name} {why}: {', '.join(map(str, names))}.", fix=_FIX, command=command)
def make_error(where, what) -> UsageError:
    return UsageError(f"{where}: {what}.", fix="Correct it.")
def use(exc):
    if exc:
        raise make_error(exc.path, f"there are more than {_MOST:,} names")
    log.warning(f"Reading {exc.strerror or exc} takes long.")
    raise LbxError("It failed" + (" twice." if exc else "."))
'''
    )
    (folder / "lbx" / "followed.py").write_text(
        """
from lbx.base.errors import LbxError, UsageError
def read(path):
    try:
        parse(path)
    except UsageError as exc:
        raise LbxError(exc.cause) from exc
    except ValueError as exc:
        raise UsageError(f"{path}: {exc}.") from exc
def parse(path):
    if path.suffix:
        raise ValueError(f"the ending {path.suffix} is not known")
    refuse(path, "it is a pipe" if path.is_fifo() else "it is a folder")
def refuse(path, why):
    text = f"{path}: {why}."
    raise UsageError(text)
def show(done, given):
    for text in done.notes:
        note(text)
    for text in (describe_speed(), describe_memory()):
        note(text)
    count, reason = choose()
    note(reason)
    note(given.text)
def describe_speed():
    return "" if idle else f"Other processes use {busy} CPUs."
def describe_memory():
    lines = []
    lines.append(f"Memory: {size} bytes are free.")
    return lines
def choose():
    return 3, "By the sizes of the files."
def finish(found):
    return Done(notes=[f"There are {len(found)} more files."])
"""
    )
    return folder


def test_a_made_up_message_appears_with_cause_fix_and_command(project: Path) -> None:
    found = {message.location: message for message in messages(project) if "made.py" in message.location}
    odd, worded, note, bare = (found[key] for key in sorted(found, key=lambda key: int(key.split(":")[1])))
    assert odd == Message(
        "OddError",
        "{path} is odd: {names}.",
        "Choose another.",
        "lbx run {path}",
        "the file is odd.",
        odd.location,
    )
    assert any(message.text == "{path} is even: {names}." for message in messages(project))
    assert (worded.kind, worded.text) == ("UsageError", "{path}: there are more than 2,000 names.")
    assert worded.fix == "Correct it."
    assert (note.kind, note.text) == ("note", "Reading {reason} takes long.")
    assert bracketed(bare.text) == "It failed[ twice. | .]"
    assert [message.lacks_fix for message in (odd, worded, note, bare)] == [False, False, False, True]
    assert odd.sort_key.startswith("is odd")


def test_texts_are_followed_through_variables_functions_callers_and_collections(project: Path) -> None:
    found = {message.text for message in messages(project) if "followed.py" in message.location}
    assert found == {
        "{path}: the ending {suffix} is not known.",
        "{path}: it is a pipe.",
        "{path}: it is a folder.",
        "There are {number of found} more files.",
        "Other processes use {busy} CPUs.",
        "Memory: {size} bytes are free.",
        "By the sizes of the files.",
    }
    (unresolved,) = unresolved_messages(project)
    assert unresolved.endswith(": {text}"), "given.text may be anything"


def test_every_text_is_found_in_the_source() -> None:
    assert not unresolved_messages(ROOT), "write the text where it is raised or printed, or where the tool finds it"


def test_messages_with_the_same_beginning_and_fix_are_one_entry() -> None:
    def error(text: str, fix: str) -> Message:
        return Message("BundleError", text, fix, "", "", "")

    damaged = [error(f"{{path}} is damaged: {why}.", "Copy it.") for why in ("it is empty", "it is cut", "a line")]
    damaged.append(error("{archive}, line {number} is damaged: it is old.", "Copy it."))
    exists = [error("{path} already exists.", "Remove it."), error("{out} already exists.", "Choose another.")]
    first, second = (entry.line for entry in entries_of([*damaged, *exists]))
    assert first == "- **{out} already exists.** Remove it. Or: Choose another. (BundleError)"
    assert second.startswith("- **{path} is damaged: {reason}.** Copy it.")
    assert second.endswith("Reasons: a line; it is cut; it is empty; it is old. (BundleError)")


def entry_pattern(line: str) -> str:
    """Regular expression for the messages of an entry."""
    text = re.sub(r"\\(?=\W)", "", line.split("**")[1])
    while "[" in text:
        text = re.sub(r"\[[^\[\]]*\]", "{}", text, count=1)
    return "".join(".*?" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{[^{}]*\})", text))


@pytest.mark.parametrize(
    ("words", "letter", "cause"),
    [
        ("parity nosuch other", "M", "Model nosuch not found: no file or folder has this name"),
        ("parity nosuch.toml other", "T", "The file nosuch.toml does not exist"),
        ("parity card.toml other", "H", "The model card card.toml has no setting 'foo'"),
        ("report none.duckdb", "T", "The results file none.duckdb does not exist"),
        ("report notes.txt", "I", "notes.txt is not a results file"),
        ("report none.duckdb nosuch", "T", "There is no report 'nosuch'"),
        ("verify none.tar", "A", "Archive none.tar does not exist"),
        ("bundle none.toml -o out", "R", "Recipe none.toml does not exist"),
        ("bundle bad.toml -o out", "I", "The recipe bad.toml is not valid TOML"),
        ("bundle space.toml -o out", "S", "space.toml, [[source]] number 1: type ="),
        ("import longbench none -o r.duckdb", "T", "The model's name is empty"),
        ("run --spec none.json -o r.duckdb", "T", "The spec none.json cannot be read"),
        ("annotate none.jsonl", "C", "none.jsonl cannot be read"),
        ("tasks -b empty", "I", "empty is not an unpacked bundle"),
        ("status empty", "W", "empty was not created by `lbx submit`"),
        ("models -b none", "B", "Bundle folder none does not exist"),
        ("merge notes.txt", "N", "No output file given"),
        ("run --nosuch", "N", "No such option: --nosuch"),
        ("nosuch", "N", "No such command 'nosuch'"),
        ("show", "M", "Missing argument 'RESULTS'"),
        ("run", "M", "Missing option '--output' / '-o'"),
        ("run -o", "O", "Option '-o' requires an argument"),
        ("runs remove a b --vacuum=3", "O", "Option '--vacuum' does not take a value"),
        ("verify a b c", "G", "Got unexpected extra argument(s) (b c)"),
        ("submit slurm --shards 0 -o out", "I", "Invalid value for '--shards'"),
    ],
)
def test_real_messages_are_found_by_their_first_words(words: str, letter: str, cause: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no results\n")
    (tmp_path / "bad.toml").write_text("a = \n")
    (tmp_path / "card.toml").write_text('name = "m"\nbackend = "hf"\nfoo = 1\n')
    (tmp_path / "space.toml").write_text(
        'name = "s"\n[[source]]\nkind = "hub"\nrepo = "a/b"\ntype = "space"\nrevision = "main"\n'
    )
    said = Lbx()(*words.split(), cwd=tmp_path).stderr.partition("error: ")[2]
    assert said.startswith(cause)
    section = re.split(r"^## ", MESSAGES, flags=re.MULTILINE)
    (lines,) = (part.splitlines() for part in section if part.startswith(f"{letter}\n"))
    entries = [line for line in lines if line.startswith("- **") and re.match(entry_pattern(line), said)]
    assert any(len(literal_words(line.split("**")[1])) > 1 for line in entries), said


def test_few_errors_name_no_remedy() -> None:
    bare = [f"{message.location}: {message.text}" for message in messages(ROOT) if message.lacks_fix]
    assert len(bare) <= MOST_WITHOUT_REMEDY, "give these errors a `fix`:\n" + "\n".join(bare)


def test_messages_are_found_by_their_first_words() -> None:
    lines = MESSAGES.splitlines()
    assert any(line.startswith("- **The disk is full") and "Make room" in line for line in lines)
    assert any("is not a Hugging Face model" in line for line in lines[lines.index("## I") : lines.index("## J")])


def test_reports_and_metrics_are_complete() -> None:
    for name in NAMES:
        assert f"## {name}\n" in COLUMNS
    for name in BENCHMARKS:
        assert f"| `{name}` |" in metrics()


@pytest.mark.parametrize("name", ["commands", "api", "messages", "columns", "recipes"])
def test_long_tables_and_lists_render_whole(name: str) -> None:
    text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    body = script("build").rendered(f"docs/{name}.md", []).body
    lines = text.splitlines()
    assert body.count("<tr>") == sum(line.startswith("| ") for line in lines) - sum(
        line.startswith("| ---") for line in lines
    )
    assert body.count("<li>") == sum(line.startswith("- ") for line in lines)
    assert "**" not in re.sub("<pre.*?</pre>", "", body, flags=re.DOTALL)


def test_every_key_of_json_output_has_a_meaning() -> None:
    text = (ROOT / "docs" / "json.md").read_text("utf-8")
    for output in OUTPUTS:
        section = text.partition(f"## {output.commands}\n")[2].partition("\n## ")[0]
        described = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
        assert described.keys() == {field.name for field in dataclasses.fields(output.cls)}, output.commands
