"""L-Eval's judge: the rubric of Evaluation/llm_eval.py (cd34b05), which a bundle brings along. lbx ships none of it.

The script is parsed and never run: both texts stand in a dict beside what is no literal. Its judge reads the question,
the reference and two answers, and never the document; temperature 0, at most 2,048 new tokens.
"""

from __future__ import annotations

from pathlib import Path

from lbx.benchmarks.base.files import damaged, read_text
from lbx.benchmarks.base.known_judge import KnownJudge
from lbx.benchmarks.base.literals import texts_of_keys
from lbx.benchmarks.base.templates import template_fields
from lbx.benchmarks.judge.judging import PAIR, Rubric
from lbx.benchmarks.leval.tasks import BASELINE, published_run_id

SCRIPT = "OpenLMLab/LEval/Evaluation/llm_eval.py"
NAME = "leval"
VERDICTS = (("[[A]]", "first"), ("[[B]]", "second"), ("[[C]]", "tie"))
"""In the order in which the script looks for them."""

_WIN_RATES = {"claude-100k": 60.94, "gpt4-32k": 54.16, "llama2-13b-chat-4k": 42.44}
KNOWN_JUDGE = KnownJudge(
    name="GPT-4",
    opponent=BASELINE,
    opponent_run=published_run_id(BASELINE),
    win_rates=_WIN_RATES,
    runs={model: published_run_id(model) for model in _WIN_RATES},
    ordered=(("claude-100k", "llama2-13b-chat-4k"), ("gpt4-32k", "llama2-13b-chat-4k")),
    questions=96,
    mark="LLM",
)
"""Whom the authors had compare published answers with turbo-16k's (figs/overall.png of OpenLMLab/LEval, cd34b05). Of
Claude and GPT-4-32k no order is known: their win rates lie within one another's intervals.
"""

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
