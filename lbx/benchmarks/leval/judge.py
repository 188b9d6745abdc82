"""L-Eval's judge, GPT-4 by the rubric of ``lbx.benchmarks.leval.rubric``, and its raters: files, published answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lbx.base.layout import FILES, Bundle
from lbx.base.records import Sample
from lbx.benchmarks.base.marks import HUMAN, LLM, MARKS
from lbx.benchmarks.base.official_judge import OfficialJudge
from lbx.benchmarks.base.prediction_lines import PredictionLine
from lbx.benchmarks.base.rating_files import ImportedRatings, RatingForm
from lbx.benchmarks.base.rubric import Rubric
from lbx.benchmarks.leval.files import RatingFiles, read
from lbx.benchmarks.leval.judge_lines import FastChatForm, LEvalJudgeForm
from lbx.benchmarks.leval.rubric import NAME, SCRIPT, official_rubric
from lbx.benchmarks.leval.tasks import BASELINE

if TYPE_CHECKING:
    from lbx.store import Store

_PUBLISHED = {True: "OpenLMLab/LEval/Predictions", False: "OpenLMLab/LEval-cd1cfc3/Predictions"}
_ENDING = ".pred.jsonl"


class LEvalJudge(OfficialJudge):
    """GPT-4 by the script's rubric, and people."""

    benchmark = NAME
    title = "L-Eval"
    source = SCRIPT
    baseline = BASELINE
    forms = (LEvalJudgeForm(), FastChatForm())
    answer_files: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "llm_gpt4_eval": (LLM,),
        "human_eval": (HUMAN,),
        "llm_turbo_eval": MARKS,
    }

    def rubric(self, path: Path) -> Rubric:
        return official_rubric(path)

    def published(self, bundle: Bundle, *, length_hint: bool = True) -> Mapping[str, Sequence[str]]:
        """Of a model in two files, one for each mark, or in one for both."""
        root = _PUBLISHED[length_hint]
        folders: dict[str, list[str]] = {}
        for folder in self.answer_files:
            for path in (bundle.root / FILES / root / folder).glob(f"*{_ENDING}"):
                folders.setdefault(path.name.removesuffix(_ENDING), []).append(folder)
        *halves, _ = self.answer_files
        return {
            name: [f"{root}/{folder}/{name}{_ENDING}" for folder in (halves if {*halves} <= {*held} else held[-1:])]
            for name, held in sorted(folders.items())
        }

    def settings_of(self, lines: Sequence[PredictionLine]) -> Mapping[str, Any]:
        """That no prompt says how many words its reference has, where every row has one."""
        prompts = [(line.values.get("prompt"), line.values.get("gt")) for line in lines]
        told = any(
            not isinstance(prompt, str) or re.search(rf"(?<!\d){len(str(gt).split())}(?!\d)", prompt)
            for prompt, gt in prompts
        )
        return {} if told else {"length_hint": False}

    def row(self, model: str, sample: Sample, mark: str, prompt: str, output: str) -> dict[str, Any]:
        return {
            "query": sample.question,
            "gt": sample.references[0],
            "prompt": prompt,
            f"{model}_pred": output,
            "evaluation": mark,
        }


class LEvalRatings(RatingForm):
    """What the page of Evaluation/web_human_eval.py writes. What enters it is loaded with the store only."""

    name = "leval_ratings"

    def read(self, path: Path, rater: str | None) -> RatingFiles:
        return read(path, rater)

    def write(self, store: Store, files: Any, *, bundle: Bundle | None, set_id: str | None) -> ImportedRatings:
        from lbx.benchmarks.leval.ratings import import_ratings

        return import_ratings(store, files, bundle=bundle, set_id=set_id)

    def export(
        self, store: Store, set_id: str | None, rater: str | None, *, bundle: Bundle | None, documents: Path | None
    ) -> dict[str, str]:
        from lbx.benchmarks.leval.export import export_ratings

        return export_ratings(store, set_id, rater, bundle=bundle, documents=documents)
