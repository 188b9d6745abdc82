r"""HELMET's metrics that need no model, with the extraction of answers.

Source: utils.py, data.py and eval_alce.py of
https://github.com/princeton-nlp/HELMET/tree/4526dfbdc512bd9ff721da336bff4e3e75ecfd27 . Details of that code:

- ``parse_output`` takes the rest of the line after the first "Answer:", in any case. "Answer:\nx" gives "".
- Matches, F1 and ROUGE are those of the whole output and of the extracted answer, whichever is larger for each metric.
- Every "id" is deleted before rankings are read ("did" becomes "d"), and the longest list of numbers counts.
- Gain of NDCG is linear, as trec_eval computes it, and is rounded to 5 decimals for each question.
- A gold answer of only articles and punctuation ("A", "The") is in every output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import log2

from lbx.benchmarks.metrics.f1 import (
    YES_NO,
    english_tokens,
    normalized_match,
    qa_f1,
    substring_match,
)
from lbx.benchmarks.metrics.rouge import stemmed_rouge

TEXT_METRICS = (
    "exact_match",
    "f1",
    "substring_exact_match",
    "rougeL_f1",
    "rougeL_recall",
    "rougeLsum_f1",
    "rougeLsum_recall",
)
_RANKING = re.compile(r"\d+(?:\s*>\s*\d+)*")
_TOP = 5


def parse_output(output: str, prefix: str = "Answer:") -> str:
    """Extract the answer: the rest of the line after the first ``prefix``, or else the first line.

    A second prefix before the answer is removed.
    """
    found = re.search(rf"{prefix}(.*)", output, re.IGNORECASE) or re.match("(.*)", output)
    assert found is not None  # the second pattern matches every text
    return re.sub(f"^{re.escape(prefix)}", "", found[1].strip(), flags=re.IGNORECASE).strip()


def text_scores(output: str, references: Sequence[str]) -> dict[str, float]:
    """Score a text by each of ``TEXT_METRICS``, for the best reference. All are 0 without references."""
    values = (
        normalized_match(output, references),
        qa_f1(output, references, whole_answers=YES_NO),
        substring_match(output, references),
        *stemmed_rouge(output, references),
    )
    return dict(zip(TEXT_METRICS, values, strict=True))


def best_text_scores(output: str, references: Sequence[str], prefix: str) -> tuple[dict[str, float], str]:
    """Score an output and the extracted answer. Returns the larger score for each metric, and the answer."""
    answer = parse_output(output, prefix)
    whole, extracted = text_scores(output, references), text_scores(answer, references)
    return {metric: max(value, extracted[metric]) for metric, value in whole.items()}, answer


def choice_scores(output: str, letter: str, option: str) -> tuple[dict[str, float], str]:
    """Score a multiple-choice answer by the letter and by "A. text of the option".

    The output is right, too, if it contains the latter. The letter A is an article, so that an empty output equals it.
    """
    scores, answer = best_text_scores(output, (letter, option), "Answer:")
    contains = float(option.lower() in output.lower())
    return {**scores, "exact_match": max(scores["exact_match"], contains), "substring_exact_match": contains}, answer


def parse_ranking(output: str) -> list[str]:
    """Extract the ranked ids, best first: the longest text such as "3 > 1 > 2". The whole text without a number."""
    text = re.sub(r"[\[\]:]", "", output).lower().replace("id", "")
    longest = max((match[0] for match in _RANKING.finditer(text)), key=len, default="")
    if not longest:
        return [text]
    return list(dict.fromkeys(number.strip() for number in longest.split(">")))


def ndcg(ranking: Sequence[str], labels: Mapping[str, int], depth: int = 10) -> float:
    """NDCG of the first ``depth`` ids, with linear gain, or 0 without relevant documents."""
    ideal = _gain(sorted(labels.values(), reverse=True)[:depth])
    return round(_gain([labels.get(name, 0) for name in ranking[:depth]]) / ideal, 5) if ideal else 0.0


def _gain(labels: Sequence[int]) -> float:
    return sum(max(label, 0) / log2(rank + 1) for rank, label in enumerate(labels, 1))


def clean_cited_answer(output: str) -> str:
    """Join the lines of an answer and remove citations ("[1]"), as ALCE does before comparisons."""
    text = re.sub(r"\n+", " ", output).replace("<|im_end|>", "")
    return re.sub(r"\[\d+", "", re.sub(r" \[\d+", "", text)).replace(" |", "").replace("]", "")


def answered_share(answer: str, questions: Sequence[Sequence[str]]) -> float:
    """Share of the questions with any short answer in a cleaned answer (ALCE's str_em), or 0.0 without questions."""
    return sum(substring_match(answer, golds) for golds in questions) / len(questions) if questions else 0.0


def list_recall(answer: str, groups: Sequence[Sequence[str]]) -> float:
    """Share of right items in a list with commas, of which 5 are enough (QAMPARI's rec_top5), or 0.0 without items."""
    items = answer.rstrip().rstrip(".").rstrip(",").split(",")
    named = {name for item in items if (name := tuple(english_tokens(item)))}
    found = sum(any(tuple(english_tokens(gold)) in named for gold in group) for group in groups)
    return min(_TOP, found) / min(_TOP, len(groups)) if groups else 0.0
