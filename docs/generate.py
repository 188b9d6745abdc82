"""Generates documentation from the code: pages of the reference, option tables, model cards, the digest of the views.

    python docs/generate.py            write the files
    python docs/generate.py --check    list outdated files, and exit with 1 if there are any

In a page, the text between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is replaced. Other files are rewritten.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lbx.backends.cards import KINDS, OPTIONS, Chat, Weights
from lbx.base.records import Sampling
from lbx.cli.main import load_command
from lbx.options.option import fields_of
from lbx.results import Store
from lbx.results.file import contents
from lbx.results.schema import SCHEMA_VERSION
from lbx.results.views import VIEWS
from tools.reference.commands import commands_page, option_tables
from tools.reference.json_keys import json_page
from tools.reference.messages import messages_page
from tools.reference.python_api import python_page
from tools.reference.tables import columns_page, recipes_page

ROOT = Path(__file__).resolve().parent.parent
MEANINGS = ROOT / "docs" / "schema.toml"
_REGION = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_ATTRIBUTE = re.compile(r"^(\w+): (.*)$", re.DOTALL)


def meanings(cls: type) -> dict[str, str]:
    """Return each field's description: the help of an option, or a line of the docstring's "Attributes".

    Raises:
        ValueError: a field is not described, or only in a group.
    """
    found = {field.name: field.option.help for field in fields_of(cls).values() if field.option}
    doc = inspect.getdoc(cls) or ""
    entries = re.split(r"\n(?=    \w)", doc.partition("Attributes:\n")[2].split("\n\n")[0])
    for entry in entries:
        if match := _ATTRIBUTE.match(" ".join(entry.split())):
            found[match[1]] = match[2].replace("``", "`")
    if lacking := [field.name for field in dataclasses.fields(cls) if field.name not in found]:
        raise ValueError(f"{cls.__name__}'s docstring does not describe {', '.join(lacking)}")
    return found


def toml_value(field: dataclasses.Field[Any]) -> str:
    """Return an option's default as TOML, or an example value if the default is to leave it out."""
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    if value is None:
        return "true"
    return json.dumps(value) if isinstance(value, (str, bool)) else repr(value)


def default_cell(field: dataclasses.Field[Any]) -> str:
    return "left out" if field.default is None else f"`{toml_value(field)}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def option_table(cls: type) -> str:
    """Return a backend's options as a Markdown table: name, default, meaning."""
    described = meanings(cls) if dataclasses.fields(cls) else {}
    rows = [f"| `{f.name}` | {default_cell(f)} | {cell(described[f.name])} |" for f in dataclasses.fields(cls)]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def commented(cls: type, *, active: bool = False, given: dict[str, str] | None = None) -> str:
    """Return the options as lines of a card, each below its meaning, commented out unless active or given."""
    described, lines = meanings(cls), list[str]()
    for field in dataclasses.fields(cls):
        lines += textwrap.wrap(described[field.name], 112, initial_indent="# ", subsequent_indent="# ")
        value = (given or {}).get(field.name)
        line = f"{field.name} = {value or toml_value(field)}"
        lines.append(line if value or (active and field.default is not None) else f"# {line}")
    return "\n".join(lines)


def example_card() -> str:
    others = [
        f"\n# With backend = {json.dumps(name)} the options and their defaults are:\n\n{commented(kind.options)}\n"
        for name, kind in KINDS.items()
        if name not in ("llamacpp", "scripted")
    ]
    return f"{_CARD}{commented(OPTIONS['llamacpp'], active=True)}\n{''.join(others)}"


def endpoint_card() -> str:
    given = {"url": '"http://127.0.0.1:8080/v1"', "model": '"Qwen/Qwen3-8B"'}
    return f"{_ENDPOINT}{commented(OPTIONS['endpoint'], given=given)}\n{_ENDPOINT_CHAT}"


_CARD = """\
# A model card with every key. Copy it, keep the keys that you need, and use it with --model FILE, or with --model NAME
# if it is in models/. lbx refuses unknown keys and suggests the nearest one.
# Written by docs/generate.py from lbx/backends.

name = "qwen3-8b"               # the model's name in reports; default: this file's name
backend = "llamacpp"            # llamacpp (GGUF files), hf (config.json and safetensors), scripted (a table of answers)
                                # or endpoint (a server: example-endpoint.toml); for embedding models
                                # sentence_transformers or llamacpp_embedding
context_window = 40960          # tokens that prompt and answer may take together; default: the model's own window.
                                # llama.cpp allocates the KV cache for all of it.
# stop = ["\\nUser:"]            # strings that end an answer, in addition to the benchmark's; ignored in reasoning

[weights]                       # exactly one of repo, bundle and path
repo = "Qwen/Qwen3-8B-GGUF"     # a model repository of the hub, in the bundle by a recipe or by this card
# revision = "main"             # needed only if the bundle has several revisions
file = "*Q4_K_M*.gguf"          # the GGUF file in the folder; for a split model, all its parts match
# bundle = "models/my.gguf"     # or a path under the bundle's data/files
# path = "../weights/my.gguf"   # or a file or folder of this machine, relative to this card

# [tokenizer]                   # only for an endpoint: its tokenizer's location, with the keys of [weights]

[chat]
enabled = true                  # false: use it as a base model, even if it has a chat template
# template_file = "chat.jinja"  # a Jinja file that replaces the model's own template, relative to this card
# template = "..."              # or the template itself
kwargs = { enable_thinking = true }     # more variables for the template, e.g. reasoning_effort = "low"
# reasoning = ["<think>", "</think>"]   # marks around the reasoning; default: detected from the model

[sampling]                      # the makers' recommendation, for LongBench Pro and --sampling model; default: the
                                # model's files
temperature = 0.6               # 0 is greedy
top_p = 0.95                    # in (0, 1]; 1 keeps every token
top_k = 20                      # 0 keeps every token
min_p = 0.0                     # drops tokens less likely than this share of the likeliest
# seed = 0                      # each run sets it: --seed

[options]                       # the backend's; here llamacpp's, with their defaults
"""
_ENDPOINT = """\
# A model on a server: llama-server, llama-cpp-python's server, vLLM, SGLang, or a hosted one. lbx run connects only to
# this address. Copy this card, and use it with --model FILE.
# Written by docs/generate.py from lbx/backends.

name = "qwen3-8b-served"
backend = "endpoint"
context_window = 40960          # default: the server's answer (llama-cpp-python's server and hosted ones give none).
                                # Only with [tokenizer].

[tokenizer]                     # exactly one of repo, bundle and path: the folder or .gguf file of the same model.
repo = "Qwen/Qwen3-8B"          # lbx reads only its tokenizer. With it lbx wraps prompts in the chat template and cuts
                                # them, as for models that it runs itself.
# path = "../weights/my.gguf"
# Without [tokenizer] the server's chat interface gets the user's text: the server's template wraps it, lbx cuts no
# prompt (one that does not fit is a failed sample), few-shot prompts become chats as well, and lbx plan counts
# characters.

[options]
"""
_ENDPOINT_CHAT = """
[chat]
kwargs = { enable_thinking = true }     # with api = "chat" lbx sends them to the server
# Reasoning and answer share one budget (the sum of --thinking-tokens and the answer's): HTTP has only one.
"""


def schema() -> str:
    """Return the tables with their columns, types and keys, and the views with their columns."""
    described = tomllib.loads(MEANINGS.read_text("utf-8"))
    parts = [f"Schema version {SCHEMA_VERSION}. Columns in bold are the table's key."]
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.duckdb") as store:
        columns = store.query(
            "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
            "WHERE NOT internal ORDER BY table_oid, column_index"
        ).rows
        keys = dict(
            store.query(
                "SELECT table_name, constraint_column_names FROM duckdb_constraints() "
                "WHERE constraint_type = 'PRIMARY KEY'"
            ).rows
        )
    names = dict.fromkeys(name for name, *_ in columns if name != "lbx_schema" and name not in VIEWS)
    if wrong := {*described["tables"]} ^ {*names} | {*described["views"]} ^ {*VIEWS}:
        raise ValueError(f"{MEANINGS.name} and the results file differ in {', '.join(sorted(wrong))}")
    for name in names:
        meaning = described["tables"][name]
        parts.append(f"### `{name}`\n\n{meaning['']}\n")
        rows = ["| column | type | meaning |", "|---|---|---|"]
        for _, column, kind, nullable in (row for row in columns if row[0] == name):
            shown = f"**`{column}`**" if column in keys[name] else f"`{column}`"
            null = ", or NULL" if nullable else ""
            rows.append(f"| {shown} | {kind}{null} | {cell(meaning[column])} |")
        parts[-1] += "\n" + "\n".join(rows)
    for name in VIEWS:
        meaning = described["columns"] | described["views"][name]
        rows = ["| column | type | meaning |", "|---|---|---|"]
        rows += [
            f"| `{column}` | {kind} | {cell(meaning[column])} |" for view, column, kind, _ in columns if view == name
        ]
        parts.append(f"### The view `{name}`\n\n{sentence(meaning[''])}\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def architectures() -> str:
    """Return the totals of tests/architectures.md in a sentence."""
    lines = (ROOT / "tests" / "architectures.md").read_text("utf-8").splitlines()
    of_all, sharing = (line for line in lines if " families load, " in line or " share what prompts " in line)
    loaded, families, alike = re.findall(r"\d+", of_all)[:3]
    shared = re.findall(r"\d+", sharing)[0]
    return textwrap.fill(
        f"Of the {families} families of text models in transformers, {loaded} load, {alike} give the same answers as "
        f"its own `generate`, and {shared} compute shared prefixes once: "
        "[Architectures](../tests/architectures.md) (`just architectures`) has the result for each family, with the "
        "reasons for the others.",
        120,
    )


SITE_TABLES: dict[str, Callable[[], str]] = {"schema": schema}
"""Tables that appear only on the site, each in place of ``<!-- site: NAME -->``."""
REGIONS: dict[str, Callable[[], str]] = {
    "architectures": architectures,
    **{f"options-{name}": lambda name=name: option_tables(load_command(name)) for name in ("run", "rate")},  # type: ignore[misc]
    **{f"options-{name}": lambda kind=kind: option_table(kind.options) for name, kind in KINDS.items()},  # type: ignore[misc]
    "keys-weights": lambda: key_table(Weights),
    "keys-chat": lambda: key_table(Chat),
    "keys-sampling": lambda: key_table(Sampling),
}


def views_digest() -> str:
    """Return the digest that identifies this version's views in a results file."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "new.duckdb") as store:
        stored = store.query("SELECT view_name, sql FROM duckdb_views() WHERE NOT internal").rows
        return f"{contents.views_digest(dict(stored))}\n"


FILES: dict[str, Callable[[], str]] = {
    "docs/api.md": python_page,
    "docs/columns.md": columns_page,
    "docs/commands.md": commands_page,
    "docs/json.md": json_page,
    "docs/messages.md": messages_page,
    "docs/recipes.md": recipes_page,
    "lbx/results/views.sha256": views_digest,
    "models/example.toml": example_card,
    "models/example-endpoint.toml": endpoint_card,
}


def key_table(cls: type) -> str:
    """Return the keys of one of a card's tables as a Markdown table."""
    described = meanings(cls)
    rows = [f"| `{field.name}` | {cell(described[field.name])} |" for field in dataclasses.fields(cls)]
    return "\n".join(["| key | meaning |", "|---|---|", *rows])


def generated() -> Iterator[tuple[Path, str]]:
    """Yield each file with generated parts, and its current text."""
    for name, make in FILES.items():
        yield ROOT / name, make()
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text("utf-8")
        if _REGION.search(text):
            yield page, _REGION.sub(lambda found: f"{found[1]}\n{REGIONS[found[2]]()}\n\n{found[3]}", text)


def main() -> int:
    stale = [(path, text) for path, text in generated() if not path.is_file() or path.read_text("utf-8") != text]
    for path, text in stale:
        print(path.relative_to(ROOT))
        if "--check" not in sys.argv:
            path.write_text(text, "utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
