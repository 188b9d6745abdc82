"""The documents say what is there: commands run or parse, links lead somewhere, generated tables are current."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

from lbx.report.reports import REPORTS
from lbx.results import Store
from lbx.results.read.queries import attach_files, open_query
from lbx.results.views import VIEWS
from tests.doc_commands import DOCUMENTS, ROOT, Line, Root, blocks, check, check_mention, commands, mentions

README = (ROOT / "README.md").read_text("utf-8")
EVERYTHING = "\n".join(path.read_text("utf-8") for path in DOCUMENTS)
COMMANDS = [line for page in DOCUMENTS for line in commands(page)]
RUN_PAGES = ("running.md", "planning.md", "prompts.md", "judging.md", "rescoring.md", "exchange.md")
"""Their lines of lbx that name the folder ``work`` are run, in this order; test_tutorials.py runs whole pages."""

NOT_RUN = {
    "alias": "sets up podman, below",
    "apptainer": "is not on machines that test; the lbx behind it is parsed",
    "podman": "needs a container engine; the lbx behind it is parsed, and test_image.py runs the image",
    "inspect": "opens a browser; test_inspect_log.py shows the same logs",
    "python3": "makes a virtual environment and needs the network",
    ".venv/bin/pip": "needs the network",
    ".venv/bin/python": "test_what_is_generated_is_current and test_site.py call both scripts",
    ".": "activates that environment",
    "python": "the demo's GGUF is made by the fixture demo_gguf; SmolLM2's files need the network",
    "~/lbx/bin/pip": "needs the network",
    "lbx/bin/pip": "needs a wheelhouse; tests/image installs from one",
    "python3.11": "makes a virtual environment for that",
    "export": "puts the lbx that pip installed onto the PATH",
    **dict.fromkeys(
        ("ls", "cp", "printf", "dd"), "is a tutorial's: tests/test_tutorials.py runs these pages as they stand"
    ),
    **dict.fromkeys(
        ("ssh-keygen", "echo", "sha256sum", "cut", "xargs", "tar", "cd", "diff", "find", "sort", "LC_ALL=C", "sed"),
        "is the officer's: tests/bundle/test_standard_tools.py runs that page's lines as they stand",
    ),
    "zcat": "is the recipient's of results: tests/attesting/test_attest_commands.py runs these lines as they stand",
}
"""Programs whose lines bash parses here and nobody runs here, each with the reason."""


def script(name: str) -> ModuleType:
    """docs/NAME.py as a module."""
    found = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_command_is_in_the_documents() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    for command in Root.commands:
        assert f"lbx {command}" in EVERYTHING, command
        assert f"lbx {command}" in changelog, command


def test_every_report_reads_a_view() -> None:
    assert {name for name, report in REPORTS.items() if not report.rows} <= set(VIEWS)


def test_what_is_generated_is_current() -> None:
    stale = [path.name for path, text in script("generate").generated() if path.read_text("utf-8") != text]
    assert not stale, f"run `just docs`: {stale} are not what the code says"


def test_every_option_of_a_backend_has_a_text_of_its_own() -> None:
    generate = script("generate")
    for name, kind in generate.KINDS.items():
        if not dataclasses.fields(kind.options):
            continue
        texts = list(generate.meanings(kind.options).values())
        assert len(set(texts)) == len(texts), name

    @dataclasses.dataclass
    class Grouped:
        """Options.

        Attributes:
            one, other: what two options share.
        """

        one: int = 0
        other: int = 0

    with pytest.raises(ValueError, match="does not describe one, other"):
        generate.meanings(Grouped)


def test_only_the_table_of_architectures_counts_families() -> None:
    counted = re.compile(r"\d+ (?:of \d+ )?(?:families|architectures|kinds of models)")
    said = script("generate").architectures()
    pages = [page for page in DOCUMENTS if page.name != "architectures.md"]
    wrong = [page.name for page in pages if counted.search(page.read_text("utf-8").replace(said, ""))]
    assert not wrong, f"{wrong}: write a region `generated: architectures` instead"


def test_every_column_is_described_and_nothing_else(tmp_path: Path) -> None:
    described = tomllib.loads((ROOT / "docs" / "schema.toml").read_text("utf-8"))
    with Store(tmp_path / "results.duckdb") as store:
        rows = store.query("SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal").rows
    columns: dict[str, set[str]] = {}
    for name, column in rows:
        columns.setdefault(name, set()).add(column)
    for table, meanings in described["tables"].items():
        assert meanings.keys() == {""} | columns[table], table
    for view, meanings in described["views"].items():
        assert meanings.keys() - {""} <= columns[view], view
        assert columns[view] <= described["columns"].keys() | meanings.keys(), view
    assert described["columns"].keys() <= {column for view in VIEWS for column in columns[view]}


def test_a_column_without_a_line_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    generate = script("generate")
    text = generate.MEANINGS.read_text("utf-8")
    for line in ("mean_tokens_cut", "cached_tokens"):
        monkeypatch.setattr(generate, "MEANINGS", tmp_path / "schema.toml")
        generate.MEANINGS.write_text(re.sub(f"^{line} = .*$", "", text, flags=re.MULTILINE), "utf-8")
        with pytest.raises(KeyError, match=line):
            generate.schema()


@pytest.mark.parametrize("line", COMMANDS, ids=str)
def test_every_command_line_is_right(line: Line) -> None:
    if (arguments := line.lbx) is not None:
        check(arguments)
    elif Path(line.words[0]).name == "just":
        assert line.words[1] in just_recipes(), line
    else:
        assert line.words[0] in NOT_RUN, f"{line.words[0]} is a program that no test knows; say in NOT_RUN why"


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_what_a_page_mentions_is_there(page: Path) -> None:
    for line in mentions(page):
        check_mention(line.words[1:])
    for block in blocks(page):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for name in re.findall(r"(?:`|bin/)just ([a-z][a-z-]+)", page.read_text("utf-8")):
        assert name in just_recipes(), name


def just_recipes() -> list[str]:
    just = Path(sys.executable).with_name("just")
    done = subprocess.run([just, "--summary"], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.split()


def test_a_wrong_option_or_name_is_found() -> None:
    for wrong in (
        "run --bundle b --model m --tasks leval -o r --bacth",
        "run --bundle b --model m --tasks leval/tpoo -o r",
        "report r.duckdb task_score",
        "submit slurm --bundle b --model m --tasks leval --shards 2 -o d --bacth 3",
        "bundle bundle/levall.toml",
    ):
        with pytest.raises((typer_errors(), AssertionError)):
            check(wrong.split())


def typer_errors() -> type[Exception]:
    from typer.exceptions import TyperException

    return TyperException


@pytest.fixture(scope="module")
def workplace(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages need of a clone, and the demo's GGUF made."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "bundle", folder / "bundle")
    shutil.copytree(ROOT / "models", folder / "models", ignore=shutil.ignore_patterns("*.gguf", "__pycache__"))
    shutil.copy(demo_gguf, folder / "models" / "demo" / "demo.gguf")
    return folder


def test_the_lines_of_the_first_pages_run(workplace: Path) -> None:
    pages = [next(page for page in DOCUMENTS if page.name == name) for name in RUN_PAGES]
    lines = [
        ["bundle", "bundle/demo.toml", "-o", "work"],
        ["unpack", "work/demo.tar", "--allow-unsigned", "--to", "work/demo"],
        *(line.lbx for page in pages for line in commands(page) if line.lbx and re.search(r"\bwork\b", line.text)),
    ]
    assert len(lines) > 15
    code = (
        "import json, sys\n"
        "from lbx.cli.main import app\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    print('$ lbx', *arguments, flush=True)\n"
        "    if app(arguments, standalone_mode=False): sys.exit('it failed')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(lines)], cwd=workplace, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_every_query_can_be_asked(tmp_path: Path) -> None:
    Store(tmp_path / "old.duckdb").close()
    files = {"old": tmp_path / "old.duckdb"}
    with Store(tmp_path / "results.duckdb", allowed_files=list(files.values())) as store:
        attach_files(store, files)
        queries = [line.lbx[2] for line in COMMANDS if line.lbx and line.lbx[0] == "sql"]
        assert queries
        for query in queries:
            with open_query(store, query) as answer:
                list(answer.rows)


def test_every_link_leads_to_a_page_and_a_heading() -> None:
    build = script("build")
    pages = [str(path.relative_to(ROOT)) for path in DOCUMENTS] + ["CHANGELOG.md"]
    anchors = {
        page: {build.anchor(text) for _, text in build.headings(build.parse((ROOT / page).read_text("utf-8")))}
        for page in pages
    }
    for page in pages:
        for link in build.links(build.parse((ROOT / page).read_text("utf-8"))):
            path, heading = build.target(page, str(link.attrGet("href")))
            assert (ROOT / path).exists(), f"{page} links to {path}"
            assert not heading or heading in anchors[path], f"{page} links to {path}#{heading}"


class Page(HTMLParser):
    """What a page of the site is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.places: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.places += [found[name] or "" for name in ("href", "src") if name in found]


def test_the_site_is_plain_accessible_html_whose_links_hold(tmp_path: Path) -> None:
    written = script("build").build(tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in written} >= {"index.html", "docs/running.html"}
    found = {path: Page(path.read_text("utf-8")) for path in written}
    for path, page in found.items():
        assert page.tags.count("script") == 1
        assert not {"style", "iframe"} & set(page.tags)
        assert page.tags.count("h1") == page.tags.count("main") == 1
        assert len(page.ids) == len(set(page.ids)), path
        for place in page.places:
            if "://" in place:
                continue
            file, _, anchor = place.partition("#")
            other = (path.parent / file).resolve() if file else path
            assert other.is_file(), f"{path.name} links to {place}"
            assert not anchor or anchor in found[other].ids, f"{path.name} links to {place}"


def test_the_site_lists_its_pages_and_versions(tmp_path: Path) -> None:
    build = script("build")
    written = build.build(tmp_path / "0.10.0")
    listed = re.findall(
        r"^- \[[^]]+\]\(([^)]+)\): \S", (tmp_path / "0.10.0" / "llms.txt").read_text("utf-8"), re.MULTILINE
    )
    assert {tmp_path / "0.10.0" / path for path in listed} == set(written)
    (tmp_path / "0.9.1").mkdir()
    (tmp_path / "0.9.1" / "index.html").touch()
    build.list_versions(tmp_path)
    assert Page((tmp_path / "index.html").read_text("utf-8")).places == ["0.10.0/index.html", "0.9.1/index.html"]


def test_every_page_is_in_the_sites_contents() -> None:
    listed = {name for names in script("build").CONTENTS.values() for name in names}
    assert {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} <= listed


def test_the_trees_are_the_tree() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    tops = _tree(README.split("## The tree")[1])
    assert tops == {"Containerfile", "Justfile", "bundle/", "models/", "lbx/", "docs/", "tests/", "bench/", ".ci/"}
    packages = {f"{path.name}/" for path in (ROOT / "lbx").iterdir() if (path / "__init__.py").exists()}
    assert _tree(contributing.split("## The packages")[1]) == packages
    assert {path.name for path in (ROOT / "lbx").glob("*.py")} == {"__init__.py", "__main__.py"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/extending.md"])
def test_names_and_files_for_contributors_exist(page: str) -> None:
    text = " ".join((ROOT / page).read_text("utf-8").split())
    for path in re.findall(r"`((?:lbx|tests|docs|bundle)/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    for name, path in re.findall(r"`(\w+)` (?:in|of|\() ?`(lbx/[\w/]+\.py)`", text):
        assert re.search(rf"^(?:class |def )?{name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE), (name, path)


def test_the_table_where_to_look_names_definitions() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Where to look")[1].split("\n## ")[0]
    rows = re.findall(r"^\| .+ \| `([\w/]+\.py)` \| `(\w+)` \|$", section, re.MULTILINE)
    assert len(rows) == len(section.split("|---|---|---|\n")[1].strip().splitlines()) >= 30
    for module, name in rows:
        source = (ROOT / module).read_text("utf-8")
        assert re.search(rf"^(?:{name} = | *(?:def|class) {name}\b)", source, re.MULTILINE), (module, name)


def _tree(section: str) -> set[str]:
    return set(re.findall(r"^([\w./]+)  ", section.split("```")[1], re.MULTILINE))


def test_the_two_commands_are_short_and_the_first() -> None:
    assert len(README.splitlines()) <= 130
    lines = [line.text for line in COMMANDS if line.page.name == "README.md" and line.page.parent == ROOT]
    assert [line.rpartition(" ")[2] for line in dict.fromkeys(lines)][:2] == ["demo", "test"]


def test_the_example_card_shows_every_key(tmp_path: Path) -> None:
    from dataclasses import fields

    from lbx.backends.cards import KINDS, Chat, Weights
    from lbx.base.records import Sampling

    text = (ROOT / "models" / "example.toml").read_text("utf-8")
    for cls in (Weights, Chat, Sampling, *(kind.options for kind in KINDS.values())):
        for field in fields(cls):
            assert re.search(rf"^(?:# )?{field.name} = ", text, re.MULTILINE), (cls.__name__, field.name)


def test_every_option_of_run_stands_in_a_panel() -> None:
    panels = {option.opts[0]: getattr(option, "rich_help_panel", None) for option in Root.commands["run"].params}
    assert {panel for panel in panels.values() if panel} == {
        "What to ask", "Which samples", "The model", "Retrieval and embeddings", "How it runs", "One shard of many",
        "Output",
    }  # fmt: skip
    assert [name for name, panel in panels.items() if not panel] in (["--help-all"], ["--help-all", "--help"])


def test_no_help_ends_in_without() -> None:
    groups = [Root, *(command for command in Root.commands.values() if hasattr(command, "commands"))]
    for command in (one for group in groups for one in group.commands.values()):
        for option in command.params:
            assert not str(getattr(option, "help", "")).rstrip(".").endswith("without"), (command.name, option.name)


def _templates() -> Iterator[str]:
    """Each text in lbx's code as a regular expression, with ``.+`` for the values in it."""
    for path in sorted((ROOT / "lbx").rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            parts = node.values if isinstance(node, ast.JoinedStr) else [] if id(node) in inner else [node]
            texts = [str(part.value) if isinstance(part, ast.Constant) else "" for part in parts]
            if len("".join(texts)) >= 15:
                yield "".join(re.escape(text) if text else ".*" for text in texts)


def test_the_messages_in_troubleshooting_are_lbxs() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    quoted = [block.strip() for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL)]
    assert len(quoted) > 12
    templates = [re.compile(template, re.DOTALL) for template in _templates()]
    for message in quoted:
        assert any(template.fullmatch(message) for template in templates), message
