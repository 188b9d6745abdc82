"""Prompt texts of HELMET's data.py, which a bundle contains. The file is parsed for text literals and never run."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from lbx.base.records import Prompt, Truncation
from lbx.benchmarks.base.data_files import damaged_file_error, read_text
from lbx.benchmarks.base.sources import fill_format, parse_python, template_fields, text_of
from lbx.benchmarks.helmet.tasks import SCRIPT


class Template(NamedTuple):
    """Place of a prompt's texts in data.py: a function, and indices of text literals.

    Attributes:
        user: index of the template of the question. The beginning of the answer is the next template.
        gap: separator of the two.
    """

    function: str
    user: int
    gap: str = "\n"


TEMPLATES: Mapping[str, Template] = {
    "json_kv": Template("load_json_kv", 0),
    "kilt": Template("load_qa", 3),
    "msmarco": Template("load_msmarco_rerank", 0),
    "icl": Template("load_icl", 46),
    "alce": Template("load_alce", 4, "\n\n"),
    "narrativeqa": Template("load_narrativeqa", 0),
    "infbench_qa": Template("load_infbench", 12, "\n\n"),
    "infbench_choice": Template("load_infbench", 16, "\n\n"),
    "infbench_sum": Template("load_infbench", 28, "\n\n"),
    "multi_lexsum": Template("load_multi_lexsum", 3, "\n\n"),
    "ruler_several": Template("load_ruler", 7),
    "ruler_niah": Template("load_ruler", 10),
    "ruler_vt": Template("load_ruler", 13),
    "ruler_cwe": Template("load_ruler", 16),
    "ruler_fwe": Template("load_ruler", 19),
    "ruler_qa": Template("load_ruler", 22),
}
KILT_DEMO, KILT_PASSAGE = ("load_qa", 30), ("load_qa", 31)
JSON_KV_DEMO = ("load_json_kv", 14)
RANKED_TITLED, RANKED_PASSAGE, RANKED_DEMO = (("load_msmarco_rerank", index) for index in (15, 18, 39))
ICL_ITEM = ("load_icl", 45)
STORY_START, STORY_DEMO, STORY_END = (("load_narrativeqa", index) for index in (23, 25, 27))
LAWSUIT_START, LAWSUIT_DEMO, LAWSUIT_END = (("load_multi_lexsum", index) for index in (12, 14, 16))
OPTIONS, BOOK_DEMOS = ("load_infbench", 37), ("load_infbench", 57)
BOOK_DEMO = {
    "infbench_qa": ("load_infbench", 48),
    "infbench_choice": ("load_infbench", 51),
    "infbench_sum": ("load_infbench", 55),
}
CUT_MARK = ("truncate_llama2", 0)


class Texts:
    """Text literals of data.py by function and index, in the file's order. Raises BundleError if one is missing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._texts = _read_texts(read_text(path), str(path))

    def __getitem__(self, text_key: tuple[str, int]) -> str:
        function, index = text_key
        texts = self._texts.get(function, ())
        if index >= len(texts):
            raise damaged_file_error(
                str(self._path), f"{function} contains {len(texts)} texts, and text {index} is missing"
            )
        return texts[index]

    def fill(self, text_key: tuple[str, int], *positional: str, **values: str) -> str:
        """Fill in a text: the values of an f-string in order (``positional``), or the fields of a template."""
        text = self[text_key]
        if "\0" in text:
            rest = iter(positional)
            return re.sub(r"\0[^\0]*\0", lambda _: next(rest, ""), text)
        fields = {**values, **{str(index): value for index, value in enumerate(positional)}}
        return fill(text, fields, str(self._path))

    def prompt(self, kind: str, values: Mapping[str, str], *, chat: bool, new_tokens: int) -> Prompt:
        """Fill in the prompt of a kind in ``TEMPLATES``: a message, or bare text with the beginning of the answer."""
        template = TEMPLATES[kind]
        user = self[template.function, template.user]
        before, document, after = fill_format(user, values, document="context", source=SCRIPT)
        return Prompt(
            before=before,
            document=document,
            after=after,
            answer_prefix="" if chat else template.gap + self.answer_start(kind, values),
            max_new_tokens=new_tokens,
            truncation=Truncation.DOCUMENT_END_ONCE,
            chat=chat,
            source=SCRIPT,
        )

    def answer_start(self, kind: str, values: Mapping[str, str]) -> str:
        """Beginning of the answer, without the separator."""
        return self.fill((TEMPLATES[kind].function, TEMPLATES[kind].user + 1), **values)


def fill(template: str, values: Mapping[str, str], location: str) -> str:
    """Fill in a template. Raises BundleError if ``values`` lacks a field."""
    try:
        return "".join(text if name is None else text + values[name] for text, name in _pieces(template))
    except (ValueError, KeyError) as exc:
        raise damaged_file_error(location, f"cannot fill in a template: {exc}") from exc


@lru_cache(maxsize=64)
def _pieces(template: str) -> tuple[tuple[str, str | None], ...]:
    return tuple(template_fields(template))


@lru_cache(maxsize=2)
def _read_texts(text: str, location: str) -> dict[str, tuple[str, ...]]:
    functions = [node for node in parse_python(text, location).body if isinstance(node, ast.FunctionDef)]
    return {function.name: _literals(function) for function in functions}


def _literals(function: ast.FunctionDef) -> tuple[str, ...]:
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Constant | ast.JoinedStr)]
    inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in nodes if isinstance(node, ast.JoinedStr)
    }
    outer = sorted((node for node in nodes if id(node) not in inner), key=lambda node: (node.lineno, node.col_offset))
    return tuple(text for node in outer if (text := text_of(node)) is not None)
