"""HELMET's judges: prompts and scores equal those of the authors' scripts with made-up replies."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.records import Prompt, RoundSample, Sample
from lbx.benchmarks.base.aggregates import mean
from lbx.benchmarks.base.rubric import Rubric, RubricTexts
from lbx.benchmarks.helmet import judge
from lbx.benchmarks.judge import JudgeBenchmark, Round
from lbx.benchmarks.metrics.helmet import parse_output
from lbx.benchmarks.metrics.judged_json import last_object, summary_scores
from lbx.options.asking import PLAIN
from tests.golden.helmet_draws import FOLDER, SOURCE, read_lines
from tests.running.engine_parts import write_bundle

pytestmark = pytest.mark.skipif(
    not (FOLDER.is_dir() and SOURCE.is_file()), reason="needs the golden judgements in ../shared, which are not here"
)
NO_BUNDLE = Bundle.__new__(Bundle)


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """The authors' scripts in a bundle."""
    scripts = (judge.ANSWER_SCRIPT, judge.SUMMARY_SCRIPT)
    folder = SOURCE.parent / "scripts"
    return write_bundle(tmp_path, {f"files/{name}": (folder / Path(name).name).read_bytes() for name in scripts})


def judged_files() -> Iterator[Any]:
    for record in read_lines("judge") if FOLDER.is_dir() else ():
        if "rows" in record:
            yield pytest.param(record, id=record["results_file"].replace("_v1__in8192_size100_shots2_sampFalse", " "))


def texts_of(dataset: str, row: dict[str, Any], sample: Sample) -> RubricTexts:
    if dataset == "narrativeqa":
        return judge.answer_texts(sample, row["output"])
    return judge.summary_texts(row["output"], row["keypoints"], row["expert"])


@pytest.mark.parametrize("record", list(judged_files()))
def test_prompts_and_scores(record: dict[str, Any], bundle: Bundle) -> None:
    dataset = next(name for name in ("narrativeqa", "infbench_sum", "multi_lexsum") if name in record["results_file"])
    rubric = judge.read_rubric(bundle, f"helmet_{dataset}")
    ratings, wrong = [], []
    for number, row in enumerate(record["rows"]):
        sample = Sample(
            "helmet", f"{dataset}_8k", str(number), "", row.get("question", ""), tuple(row.get("answer", ()))
        )
        texts = texts_of(dataset, row, sample)
        judging, asked = make_round(rubric, sample, row["output"], texts)
        replies = row["replies"] if "replies" in row else [row["reply"]]
        hashes = row["prompt_sha256"] if "replies" in row else [row["prompt_sha256"]]
        prompts = [judging.prompt(bundle, asked).text]
        said = [reply or "" for reply in replies]
        while isinstance(step := judging.next_step(bundle, asked, PLAIN, said[: len(prompts)]), Prompt):
            prompts.append(step.text)
        if [sha256(text.encode()).hexdigest() for text in prompts] != hashes:
            wrong.append(f"row {number}: another prompt")
        scores = judging.score(asked, step)
        rating = float(str(scores[0].extracted)) if scores else None
        if rating is not None:
            ratings.append(rating)
        if rating != official_rating(row):
            wrong.append(f"row {number}: {rating}, officially {official_rating(row)}")
        if "replies" in row and row["scores"]:
            found = summary_scores(replies, len(row["keypoints"]))
            assert found is not None and found._asdict() == {name: row["scores"][name] for name in found._fields}
    assert not wrong, "\n".join(wrong[:10])
    assert mean(ratings) == pytest.approx(record.get("gpt-4-score") or record["averaged"]["gpt-4-f1"], abs=1e-15)


def make_round(rubric: Rubric, sample: Sample, answer: str, texts: RubricTexts) -> tuple[JudgeBenchmark, RoundSample]:
    one = Round(*sample.key[:3], sample.question, texts.references, "run", answer, texts=texts.values)
    judging = JudgeBenchmark(rubric, [one])
    (asked,) = judging.samples(NO_BUNDLE, rubric.name)
    assert isinstance(asked, RoundSample)
    return judging, asked


def official_rating(row: dict[str, Any]) -> float | None:
    scores = row["scores"]
    if not scores:
        return None
    return float(scores["f1"] if "f1" in scores else scores["fluency"] * scores["correctness"])


def test_functions() -> None:
    functions = {
        "eval_gpt4_longqa.parse_json": last_object,
        "eval_gpt4_summ.parse_json": lambda text: last_object(text, has_block=True),
        "eval_gpt4_longqa.parse_output": lambda text: parse_output(text.replace("\n", " ")),
    }
    compared = [record for record in read_lines("functions") if record["f"] in functions]
    wrong = [record for record in compared if functions[record["f"]](*record["args"]) != record["result"]]
    assert not wrong and len(compared) > 30
