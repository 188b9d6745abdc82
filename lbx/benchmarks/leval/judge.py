"""L-Eval's judge: the rubric of Evaluation/llm_eval.py (cd34b05), which a bundle brings along. lbx ships none of it.

The script is parsed and never run: both texts stand in a dict beside what is no literal. Its judge reads the question,
the reference and two answers, and never the document; temperature 0, at most 2,048 new tokens.
"""

from __future__ import annotations

from pathlib import Path

from lbx.benchmarks.base.files import damaged, read_text
from lbx.benchmarks.base.literals import texts_of_keys
from lbx.benchmarks.base.templates import template_fields
from lbx.benchmarks.judge.benchmark import PAIR, Rubric

SCRIPT = "OpenLMLab/LEval/Evaluation/llm_eval.py"
NAME = "leval"
VERDICTS = (("[[A]]", "first"), ("[[B]]", "second"), ("[[C]]", "tie"))
"""In the order in which the script looks for them."""

_KEYS = ("system_prompt", "prompt_template", "output_format")
_FIELDS = {"question": "question", "ref_answer": "reference", "answer_a": "a", "answer_b": "b"}


def official_rubric(path: Path) -> Rubric:
    """The script's rubric.

    Raises:
        BundleError: the file is not the one that lbx was written for.
    """
    where = str(path)
    system, template, form = texts_of_keys(read_text(path), where, "judge_prompts", _KEYS).values()
    if form != VERDICTS[0][0]:
        raise damaged(where, f"its judge's verdicts are read as {form!r}, not as {VERDICTS[0][0]!r}")
    return Rubric(NAME, PAIR, system, _our_names(template, where), VERDICTS, source=SCRIPT)


def _our_names(template: str, where: str) -> str:
    """The template with our names of its fields, each of which it has."""
    try:
        pieces = list(template_fields(template))
    except ValueError as exc:
        raise damaged(where, f"its judge's prompt is no template: {exc}") from exc
    if {name for _, name in pieces if name is not None} != set(_FIELDS):
        raise damaged(where, f"its judge's prompt has other fields than {', '.join(_FIELDS)}")
    literal = (text.replace("{", "{{").replace("}", "}}") for text, _ in pieces)
    return "".join(
        text + (f"{{{_FIELDS[name]}}}" if name else "") for text, (_, name) in zip(literal, pieces, strict=True)
    )
