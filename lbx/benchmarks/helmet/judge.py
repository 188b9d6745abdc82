"""HELMET's rubrics, by which GPT-4o rates answers on stories and summaries of books and lawsuits.

Source: scripts/eval_gpt4_longqa.py and eval_gpt4_summ.py, which are in the bundle; lbx ships none of their text and
never runs them. A judge rates an answer by one prompt, and a summary by three: fluency, recall of key points, precision
against an expert's summary. The authors sample at temperature 0.1; lbx decodes greedily.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import NoDataError
from lbx.base.records import Sample
from lbx.benchmarks.base.data_files import damaged_file_error, read_text
from lbx.benchmarks.base.rubric import RATING, FamilyRubrics, Rubric, RubricTexts, TextMaker
from lbx.benchmarks.base.sources import assigned_texts, template_fields
from lbx.benchmarks.helmet.files import read_key_points, read_long_summaries
from lbx.benchmarks.helmet.tasks import DATA, LENGTHS, NAME
from lbx.benchmarks.metrics.helmet import parse_output
from lbx.benchmarks.metrics.judged_json import ANSWER_FORMULA, MAX_CORRECTNESS, SUMMARY_FORMULA

ANSWER_SCRIPT, SUMMARY_SCRIPT = (f"princeton-nlp/HELMET/scripts/eval_gpt4_{name}.py" for name in ("longqa", "summ"))
_ANSWER_PROMPTS = {"judge_prompt": {"question", "correct_answers", "parsed_output"}}
_LAWSUIT_PROMPTS = {
    "fluency_prompt": {"text"},
    "recall_prompt": {"keypoints", "summary"},
    "precision_prompt": {"expert_summary", "summary"},
}
_PROMPTS = {
    "narrativeqa": _ANSWER_PROMPTS,
    "infbench_sum": {f"{name}_book": fields for name, fields in _LAWSUIT_PROMPTS.items()},
    "multi_lexsum": _LAWSUIT_PROMPTS,
}
"""{dataset: {name of a prompt in the script: its fields}}, in the order in which a judge is asked."""
_NEW_TOKENS = {ANSWER_SCRIPT: 2048, SUMMARY_SCRIPT: 4096}
_T = TypeVar("_T")
_RUBRICS = {f"{NAME}_{dataset}": dataset for dataset in _PROMPTS}


def read_rubric(bundle: Bundle, name: str) -> Rubric:
    """Parse a dataset's prompts in the official script. Raises BundleError if it differs from the supported version."""
    dataset = _RUBRICS[name]
    script = ANSWER_SCRIPT if dataset == "narrativeqa" else SUMMARY_SCRIPT
    path = DATA.official_file(bundle, script)
    prompts = []
    for prompt, fields in _PROMPTS[dataset].items():
        texts = assigned_texts(read_text(path), str(path), prompt)
        if len(texts) != 1 or _fields_of(texts[0]) != fields:
            raise damaged_file_error(str(path), f"{prompt} is not one text with {', '.join(sorted(fields))}")
        prompts += texts
    formula, high = (ANSWER_FORMULA, MAX_CORRECTNESS) if script == ANSWER_SCRIPT else (SUMMARY_FORMULA, 1)
    return Rubric(
        name,
        RATING,
        "",
        prompts[0],
        pattern=formula,
        high=high,
        max_new_tokens=_NEW_TOKENS[script],
        source=script,
        more_users=tuple(prompts[1:]),
    )


def _fields_of(template: str) -> set[str | None]:
    try:
        return {name for _, name in template_fields(template) if name is not None}
    except ValueError:
        return set()


def text_maker(bundle: Bundle, name: str) -> TextMaker:
    """Return the maker of texts for a rubric's prompts. Summaries need key points, and lawsuits the long summaries."""
    dataset = _RUBRICS[name]
    if dataset == "narrativeqa":
        return answer_texts
    points = read_key_points(bundle, dataset)
    experts = read_long_summaries(bundle) if dataset == "multi_lexsum" else None

    def make_texts(sample: Sample, answer: str) -> RubricTexts:
        expert = _of_sample(experts, sample, "long summary") if experts is not None else "".join(sample.references[:1])
        return summary_texts(answer, _of_sample(points, sample, "key points"), expert)

    return make_texts


def answer_texts(sample: Sample, answer: str) -> RubricTexts:
    """Question, correct answers as the text of a Python list, and the answer after "Answer:" in one line."""
    parsed = parse_output(answer.replace("\n", " "))
    golds = str(list(sample.references))
    values = {"question": sample.question, "correct_answers": golds, "parsed_output": parsed}
    return RubricTexts(sample.references, values)


def summary_texts(answer: str, key_points: Sequence[str], expert: str) -> RubricTexts:
    """Summary, numbered key points and the expert's summary."""
    summary = answer.strip()
    numbered = "\n".join(f"{number}. {point}" for number, point in enumerate(key_points, 1))
    values = {"text": summary, "summary": summary, "keypoints": numbered, "expert_summary": expert}
    return RubricTexts((expert, *key_points), {**values, "points": str(len(key_points))})


def _of_sample(values: Mapping[str, _T], sample: Sample, noun: str) -> _T:
    if sample.sample_id not in values:
        raise NoDataError(
            f"The bundle has no {noun} for the sample {sample.sample_id} of {sample.task}.",
            fix="Import answers of other programs with --bundle, or leave the task out with --tasks.",
        )
    return values[sample.sample_id]


RUBRICS = FamilyRubrics(
    {name: tuple(f"{dataset}_{label}" for label in LENGTHS) for name, dataset in _RUBRICS.items()},
    read_rubric,
    text_maker,
)
