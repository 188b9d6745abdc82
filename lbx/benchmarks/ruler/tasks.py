"""RULER's tasks: names, settings of the generators, settings in a bundle, and texts of the authors' files.

The settings of the generators are those of ``scripts/synthetic.yaml`` in
https://github.com/NVIDIA/RULER/tree/c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a, as a test checks. Settings that a bundle
may change are in its file ``ruler/ruler.toml``. Templates and constants are read from the authors' files in the bundle.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from string import Formatter
from typing import Any

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.base.tables import check_keys, read_table
from lbx.benchmarks.base.data_files import damaged_file_error, read_text
from lbx.benchmarks.base.sources import DataSource, assigned_texts, read_literals

LENGTHS = (4096, 8192, 16384, 32768, 65536, 131072)
"""Standard lengths of samples in tokens, answer included."""
LONGEST = 1 << 24
"""Maximum length in tokens, far above any context window."""


@dataclass(frozen=True, slots=True)
class NeedleRules:
    """Settings of a needle task.

    Attributes:
        haystack: "noise" (one sentence, repeated), "needle" (other needles) or "essay".
        key, value: type of keys and of values: "words", "numbers" or "uuids".
        keys, values, queries: number of keys, of values for each key, and of keys asked for.
    """

    haystack: str = "noise"
    key: str = "words"
    value: str = "numbers"
    keys: int = 1
    values: int = 1
    queries: int = 1


NEEDLES: Mapping[str, NeedleRules] = {
    "niah_single_1": NeedleRules(),
    "niah_single_2": NeedleRules("essay"),
    "niah_single_3": NeedleRules("essay", value="uuids"),
    "niah_multikey_1": NeedleRules("essay", keys=4),
    "niah_multikey_2": NeedleRules("needle"),
    "niah_multikey_3": NeedleRules("needle", key="uuids", value="uuids"),
    "niah_multivalue": NeedleRules("essay", values=4),
    "niah_multiquery": NeedleRules("essay", queries=4),
}
QUESTIONS: Mapping[str, str] = {"qa_1": "squad", "qa_2": "hotpotqa"}
"""{question task: dataset of the questions}."""
TASKS = (*NEEDLES, "vt", "cwe", "fwe", *QUESTIONS)
"""The 13 tasks, in the authors' order."""
STANDARD_TASKS = tuple(f"{task}_{length}" for length in LENGTHS for task in TASKS)

_NAME = re.compile(rf"({'|'.join(TASKS)})_([1-9][0-9]{{0,7}})")


def is_task(name: str) -> bool:
    """Whether a name is a task at some length: "vt_32768", "qa_1_5000"."""
    match = _NAME.fullmatch(name)
    return match is not None and int(match[2]) <= LONGEST


def split_task(name: str) -> tuple[str, int]:
    """Split a name into task and length: ("vt", 32768) for "vt_32768"."""
    task, _, length = name.rpartition("_")
    return task, int(length)


def task_name(task: str, length: int) -> str:
    return f"{task}_{length}"


def constants_key(task: str) -> str:
    """Key of a task in the authors' constants.py."""
    if task in NEEDLES:
        return "niah"
    if task in QUESTIONS:
        return "qa"
    return {"vt": "variable_tracking", "cwe": "common_words_extraction", "fwe": "freq_words_extraction"}[task]


SETTINGS_FILE = "ruler/ruler.toml"
_MOST_SAMPLES = 100_000


@dataclass(frozen=True, slots=True)
class RulerSettings:
    """Settings of the authors' scripts that a bundle may change. The defaults are the authors'.

    Attributes:
        samples: number of samples of each task.
        seed: seed of all random draws.
        remove_newline_tab: whether to join the lines of a sample, like ``--remove_newline_tab``.
        prepare_for_ns: whether to leave tokens free for a model's template without writing the template, like
            ``--prepare_for_ns``.

    Raises:
        UsageError: a value is of the wrong type or out of range.
    """

    samples: int = 500
    seed: int = 42
    remove_newline_tab: bool = False
    prepare_for_ns: bool = False

    def __post_init__(self) -> None:
        for name, least, most in (("samples", 1, _MOST_SAMPLES), ("seed", 0, 2**32 - 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise UsageError(f"{name} in {SETTINGS_FILE} must be a whole number from {least} to {most}.")
        for name in ("remove_newline_tab", "prepare_for_ns"):
            if type(getattr(self, name)) is not bool:
                raise UsageError(f"{name} in {SETTINGS_FILE} must be true or false.")

    @classmethod
    def from_bundle(cls, bundle: Bundle) -> RulerSettings:
        """Read the settings of a bundle, or return the defaults.

        Raises:
            BundleError: the file is not valid.
        """
        path = bundle.file(SETTINGS_FILE)
        if path is None:
            return cls()
        try:
            table, _ = read_table(path, "The settings of RULER")
            check_keys(table, [field.name for field in fields(cls)], f"{path}:")
            return cls(**table)
        except UsageError as exc:
            raise BundleError(exc.cause, fix=exc.fix) from exc


SCRIPTS = "NVIDIA/RULER/scripts/data"
CONSTANTS = f"{SCRIPTS}/synthetic/constants.py"
DATA = DataSource(
    "bundle/ruler.toml",
    required_file=CONSTANTS,
    more_recipes=("bundle/ruler_essays.toml",),
    licences="questions CC-BY-SA-4.0; essays not stated; scripts Apache-2.0",
    real_rows="some",
)
TASK_TEMPLATE = "{task_template}"
"""Field of a model's template that stands for the template of the task."""
_FIELDS = {
    "niah": ("context", "query", "type_needle_v"),
    "variable_tracking": ("context", "query", "num_v"),
    "common_words_extraction": ("context", "query", "num_cw"),
}
"""{key in constants.py: fields of the texts}, for texts with other fields than context and query."""


@dataclass(frozen=True, slots=True)
class TaskTexts:
    """Texts of a task in constants.py.

    Attributes:
        answer_tokens: number of tokens that an answer may take.
    """

    template: str
    answer_prefix: str
    answer_tokens: int


def task_texts(bundle: Bundle, task: str) -> TaskTexts:
    """Read the texts of a task. Raises BundleError if constants.py is missing in the bundle or is another version."""
    path = DATA.official_file(bundle, CONSTANTS)
    entry = read_literals(path, ("TASKS",))["TASKS"]
    group = constants_key(task)
    values: Any = entry.get(group) if isinstance(entry, Mapping) else None
    match values:
        case {"template": str(template), "answer_prefix": str(prefix), "tokens_to_generate": int(tokens)} if tokens > 0:
            for text in (template, prefix):
                _check_fields(text, _FIELDS.get(group, ("context", "query")), path)
            return TaskTexts(template, prefix, tokens)
    raise damaged_file_error(str(path), f"TASKS has no usable entry {group!r}")


def _check_fields(text: str, names: Collection[str], path: Path) -> str:
    """Check that a text contains only the named fields, without formats, which may be of any width. Return the text."""
    try:
        fields = [field for field in Formatter().parse(text) if field[1] is not None]
    except ValueError as exc:
        raise damaged_file_error(str(path), f"a text has unpaired braces ({exc})") from exc
    for _, name, format_spec, conversion in fields:
        if name not in names or format_spec or conversion:
            raise damaged_file_error(str(path), f"a text has the unknown field {{{name}}}, or a field with a format")
    return text


def model_template(bundle: Bundle, name: str) -> str:
    """Read a model's template from template.py.

    Raises:
        UsageError: template.py contains no template of that name.
        BundleError: template.py is missing in the bundle, or is another version.
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
    """Sentence of a needle, with fields for type, key and value."""
    return _assigned_text(bundle, "niah.py", "needle", ("type_needle_v", "key", "value"))


def noise_text(bundle: Bundle) -> str:
    """Sentence that a haystack of noise repeats."""
    return _assigned_text(bundle, "niah.py", "haystack")


def document_text(bundle: Bundle) -> str:
    """Template of a document among others, with fields for number and text."""
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
