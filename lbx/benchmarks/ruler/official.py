"""RULER's templates and constants, read from the authors' files in the bundle."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.benchmarks.base.files import damaged_file_error, read_text
from lbx.benchmarks.base.literals import assigned_texts, read_literals
from lbx.benchmarks.base.sources import DataSource
from lbx.benchmarks.ruler.tasks import family_of

SCRIPTS = "NVIDIA/RULER/scripts/data"
CONSTANTS = f"{SCRIPTS}/synthetic/constants.py"
DATA = DataSource("bundle/ruler.toml", required_file=CONSTANTS, more_recipes=("bundle/ruler_essays.toml",))
TASK_TEMPLATE = "{task_template}"
"""Field of a model's template for the template of the task."""
_FIELDS = {
    "niah": ("context", "query", "type_needle_v"),
    "variable_tracking": ("context", "query", "num_v"),
    "common_words_extraction": ("context", "query", "num_cw"),
}
"""Fields of the texts in constants.py, if there are others than context and query."""


@dataclass(frozen=True, slots=True)
class TaskTexts:
    """Texts of a group of tasks in constants.py.

    Attributes:
        answer_tokens: budget of an answer.
    """

    template: str
    answer_prefix: str
    answer_tokens: int


def task_texts(bundle: Bundle, task: str) -> TaskTexts:
    """Return the texts of a task. Raises BundleError: the bundle lacks constants.py, or has another one."""
    path = DATA.official_file(bundle, CONSTANTS)
    entry = read_literals(path, ("TASKS",))["TASKS"]
    group = family_of(task)
    values: Any = entry.get(group) if isinstance(entry, Mapping) else None
    match values:
        case {"template": str(template), "answer_prefix": str(prefix), "tokens_to_generate": int(tokens)} if tokens > 0:
            for text in (template, prefix):
                _check_fields(text, _FIELDS.get(group, ("context", "query")), path)
            return TaskTexts(template, prefix, tokens)
    raise damaged_file_error(str(path), f"TASKS has no usable entry {group!r}")


def _check_fields(text: str, names: Collection[str], path: Path) -> str:
    """Return a text that has no fields but the named ones, and no formats, which could be of any width."""
    try:
        fields = [field for field in Formatter().parse(text) if field[1] is not None]
    except ValueError as exc:
        raise damaged_file_error(str(path), f"a text has unpaired braces ({exc})") from exc
    for _, name, form, conversion in fields:
        if name not in names or form or conversion:
            raise damaged_file_error(str(path), f"a text has the unknown field {{{name}}}, or a field with a format")
    return text


def model_template(bundle: Bundle, name: str) -> str:
    """Return a model's template from template.py.

    Raises:
        UsageError: the authors have no template of that name.
        BundleError: the bundle lacks template.py, or has another one.
    """
    path = DATA.official_file(bundle, f"{SCRIPTS}/template.py")
    templates = read_literals(path, ("Templates",))["Templates"]
    if not isinstance(templates, dict) or TASK_TEMPLATE not in str(templates.get("base")):
        raise damaged_file_error(str(path), "Templates has no entry 'base'")
    if name not in templates:
        names = ", ".join(sorted(map(str, templates)))
        raise UsageError(
            f"RULER has no template {name!r}.", fix=f"Pass --prompt-template card (the model's own) or one of {names}."
        )
    template = _check_fields(str(templates[name]), ("task_template",), path)
    _check_fields(template.format(task_template=""), (), path)  # formatted again with the task's texts
    return template


def needle_text(bundle: Bundle) -> str:
    """Sentence with a needle, with fields for its kind, key and value."""
    return _assigned_text(bundle, "niah.py", "needle", ("type_needle_v", "key", "value"))


def noise_text(bundle: Bundle) -> str:
    """Line of the haystack of noise."""
    return _assigned_text(bundle, "niah.py", "haystack")


def document_text(bundle: Bundle) -> str:
    """Heading and text of a document among others, with fields for its number and text."""
    return _assigned_text(bundle, "qa.py", "DOCUMENT_PROMPT", ("i", "document"))


def _assigned_text(bundle: Bundle, file: str, name: str, fields: Collection[str] | None = None) -> str:
    path = DATA.official_file(bundle, f"{SCRIPTS}/synthetic/{file}")
    text = _find_text(read_text(path), path, name)
    return text if fields is None else _check_fields(text, fields, path)


@lru_cache(maxsize=8)
def _find_text(content: str, path: Path, name: str) -> str:
    texts = assigned_texts(content, str(path), name)
    if not texts:
        raise damaged_file_error(str(path), f"it assigns no text to {name}")
    return texts[0]
