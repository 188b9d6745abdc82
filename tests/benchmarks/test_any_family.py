"""Questions that every family answers: its rows as samples, damaged and missing files, odd outputs, evidence."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, NoDataError
from lbx.base.records import Sample, Score
from lbx.benchmarks import graphwalks, infinitebench, lveval, mrcr
from lbx.benchmarks.base.data_files import DataRow
from lbx.benchmarks.helmet.tasks import dataset_of as helmet_dataset
from lbx.benchmarks.leval import tasks as leval
from lbx.benchmarks.longbench import tasks as longbench
from lbx.benchmarks.longbench.benchmark import make_sample
from lbx.benchmarks.longbench_pro import tasks as longbench_pro
from lbx.benchmarks.metrics.keyword_gate import NO_KEYWORDS
from lbx.benchmarks.registry import BENCHMARKS
from lbx.benchmarks.ruler.aggregates import metrics_of as ruler_metrics
from tests.profiles import examples

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
Row = dict[str, Any]


def as_lines(rows: Sequence[object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_array(rows: Sequence[object]) -> bytes:
    return b"[\n" + b",\n".join(json.dumps(row).encode() for row in rows) + b"]"


def as_zip(member: str, rows: Sequence[object]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(member, as_lines(rows))
    return buffer.getvalue()


@dataclass(frozen=True)
class Data:
    """A task of a family as its authors publish it.

    Attributes:
        file: in the dataset, made by ``write``.
        parquet: the folder that the hub's parquet of it has.
        row: one record.
        first_line: the line of the first record.
        missing: what a bundle without it is said to lack.
    """

    task: str
    file: str
    write: Callable[[Sequence[object]], bytes]
    parquet: str
    row: Row
    missing: str
    first_line: int = 1

    def place(self, family: str, file: str) -> str:
        return f"hub:{BENCHMARKS[family].data.repositories[0]}/{file}"


V2_TEXTS = ("domain", "sub_domain", "difficulty", "length", "question", "choice_A", "choice_B", "choice_C", "choice_D")
DOCUMENT = "A document."
ANSWERED = {"input": "q", "context": DOCUMENT, "answers": ["a"], "length": 5000, "language": "en"}
PRO_ROW = {
    "id": "x", "context": DOCUMENT, "language": "English", "token_length": "8k",
    "primary_task": "T3. Evidence-Grounded QA",
    "secondary_task": "T3.2 Single-Hop Fact QA", "contextual_requirement": "Full", "question_nonthinking": "q",
    "question_thinking": "think", "answer": ["a"], "difficulty": "Easy",
}  # fmt: skip
DATA = {
    "longbench": Data(
        "qasper", "data.zip", lambda rows: as_zip("data/qasper.jsonl", rows), "qasper",
        {**ANSWERED, "all_classes": None, "_id": "x"}, "THUDM/LongBench, qasper",
    ),
    "longbench_v2": Data(
        "mcq", "data.json", as_array, "default",
        {"_id": "x", **dict.fromkeys(V2_TEXTS, "t"), "answer": "C", "context": DOCUMENT},
        r"THUDM/LongBench-v2, data\.json", 2,
    ),
    "longbench_pro": Data(
        "t3.2", "longbench_pro.json", as_array, "default", PRO_ROW, "caskcsg/LongBench-Pro", 2
    ),
    "lveval": Data(
        "lic_mixup_16k", "lic_mixup.zip", lambda rows: as_zip("lic_mixup/lic_mixup_16k.jsonl", rows),
        "lic_mixup_16k", {**ANSWERED, "answer_keywords": "a"}, "Infinigence/LVEval, lic_mixup_16k",
    ),
    "leval": Data(
        "multidoc_qa", "LEval/Generation/multidoc_qa.jsonl", as_lines, "multidoc_qa",
        {"input": DOCUMENT, "instructions": ["q"], "outputs": ["a"], "evaluation": "f1", "source": "s"},
        r"L4NLP/LEval, multidoc_qa\.jsonl",
    ),
}  # fmt: skip


def with_rows(make_bundle: MakeBundle, family: str, *rows: object) -> Bundle:
    data = DATA[family]
    return make_bundle({data.place(family, data.file): data.write(rows)})


@pytest.mark.parametrize("family", DATA)
def test_rows_are_samples_in_either_form(family: str, make_bundle: MakeBundle, tmp_path: Path) -> None:
    """The hub's parquet gives the samples of the authors' file."""
    data, benchmark = DATA[family], BENCHMARKS[family]
    bundle = with_rows(make_bundle, family, data.row)
    (task,) = benchmark.tasks(bundle)
    assert (task.benchmark, task.name, task.samples) == (family, data.task, 1)
    samples = list(benchmark.samples(bundle, data.task))
    assert [(sample.benchmark, sample.task, sample.references) for sample in samples] == [
        (family, data.task, ("C",) if family == "longbench_v2" else ("a",))
    ]
    assert samples[0].context == DOCUMENT not in json.dumps(dict(samples[0].meta)), "documents are not stored"
    (tmp_path / "rows.jsonl").write_bytes(as_lines([data.row]))
    duckdb.execute(f"COPY (FROM read_json('{tmp_path}/rows.jsonl')) TO '{tmp_path}/0.parquet' (FORMAT parquet)")
    (bundle.snapshot("dataset", benchmark.data.repositories[0]) / data.file).unlink()  # type: ignore[operator]
    converted = make_bundle({data.place(family, f"{data.parquet}/test/0000.parquet"): tmp_path / "0.parquet"})
    assert [(task.name, task.samples) for task in benchmark.tasks(converted)] == [(data.task, 1)]
    assert list(benchmark.samples(converted, data.task)) == samples


@pytest.mark.parametrize("family", DATA)
def test_a_bundle_without_data_or_prompts(family: str, make_bundle: MakeBundle) -> None:
    data, benchmark = DATA[family], BENCHMARKS[family]
    empty = make_bundle({"files/other": b""})
    assert benchmark.tasks(empty) == []
    with pytest.raises(NoDataError, match=f"does not contain {data.missing}") as caught:
        list(benchmark.samples(empty, data.task))
    assert caught.value.command == f"lbx bundle {benchmark.data.recipe}"
    (sample,) = benchmark.samples(with_rows(make_bundle, family, data.row), data.task)
    if family != "longbench_pro":  # whose prompts are its questions
        with pytest.raises(NoDataError, match="official prompts and settings") as caught:
            benchmark.prompt(empty, sample)
        assert caught.value.command == f"lbx bundle {benchmark.data.recipe}"


MISSING = object()


@pytest.mark.parametrize(
    ("family", "changes", "what"),
    [
        ("longbench", {"context": None}, "the field 'context' is NoneType, not str"),
        ("longbench", {"context": MISSING}, "the field 'context' is missing"),
        ("longbench", {"answers": "a"}, "the field 'answers' is str, not list"),
        ("lveval", {"context": None}, "the field 'context' is NoneType, not str"),
        ("lveval", {"input": MISSING}, "the field 'input' is missing"),
        ("lveval", {"answers": "Paris"}, "the field 'answers' is str, not list"),
        ("lveval", {"length": "16k"}, "the field 'length' is str, not int"),
        ("longbench_v2", {"context": MISSING}, "the field 'context' is missing"),
        ("longbench_v2", {"answer": 3}, "the field 'answer' is int, not str"),
        ("leval", {"outputs": ["c", "d"]}, "instructions and outputs must be lists of texts with equal lengths"),
        ("leval", {"instructions": [3]}, "instructions and outputs must be lists of texts with equal lengths"),
        ("leval", {"evaluation": MISSING}, "the field 'evaluation' is missing"),
        ("longbench_pro", {"context": MISSING}, "the field 'context' is missing"),
        ("longbench_pro", {"question_thinking": MISSING}, "the field 'question_thinking' is missing"),
        ("longbench_pro", {"secondary_task": MISSING}, "the field 'secondary_task' is missing"),
        ("longbench_pro", {"id": MISSING}, "the field 'id' is missing"),
        ("longbench_pro", {"id": True}, "the field 'id' must be text"),
        ("longbench_pro", {"language": "French"}, "the language 'French'"),
        ("longbench_pro", {"answer": None}, "the field 'answer' must be a list"),
        ("longbench_pro", {"token_length": "long"}, "the field 'token_length' is 'long'"),
        ("longbench_pro", {"difficulty": 3}, "the field 'difficulty' is int, not str"),
        ("longbench_pro", {"secondary_task": 7}, "the field 'secondary_task' is int, not str"),
    ],
)
def test_damaged_rows(family: str, changes: Row, what: str, make_bundle: MakeBundle) -> None:
    data = DATA[family]
    row = {key: value for key, value in {**data.row, **changes}.items() if value is not MISSING}
    bundle = with_rows(make_bundle, family, {**data.row, "_id": "first"}, row)
    with pytest.raises(BundleError, match=f"{Path(data.file).name}.*line {data.first_line + 1} is damaged: {what}"):
        list(BENCHMARKS[family].samples(bundle, data.task))


def answered(family: str, task: str, references: Sequence[object], **meta: Any) -> Sample:
    """A sample with references as the data may hold them."""
    if family == "longbench":
        row = {**DATA["longbench"].row, "answers": list(references)}
        return make_sample(task, DataRow("made up", row), 0, meta.get("all_classes", ()))
    if family == "lveval":
        texts, fault = lveval.parse_references(list(references))
        meta |= {"fault": fault} if fault else {}
        return Sample(family, task, "0", "", "q", texts, meta=meta)
    return Sample(family, task, "0", "", "q", tuple(map(str, references)), meta=meta)


@pytest.mark.parametrize(
    ("family", "task", "references", "output", "error"),
    [
        ("longbench", "passage_retrieval_en", ["Paragraph 1", "12"], "Paragraph 1", "IndexError"),
        ("longbench", "passage_retrieval_zh", ["Paragraph 1"], "段落1", "IndexError"),
        ("longbench", "passage_retrieval_zh", [None], "段落1", "TypeError"),
        ("longbench", "qasper", ["a word", 42], "a word", "AttributeError"),
        ("longbench", "dureader", [None], "词", "AttributeError"),
        ("longbench", "gov_report", [None, "a b"], "a b", None),
        ("longbench", "passage_count", [3], "3", None),
        ("longbench", "trec", [None], "Date", "TypeError"),
        ("longbench", "trec", [None], "nothing of them", None),
        ("longbench", "lcc", [None], "x = 1", None),
        ("longbench", "lcc", [1], "x = 1", "TypeError"),
        ("longbench", "lcc", [1], "# a comment", None),
        ("longbench", "repobench-p_e", ["y", 1], "y", "TypeError"),
        ("leval", "quality", [" "], "A", "The reference is blank"),
        ("leval", "coursera", [""], "A", "The reference is blank"),
        ("leval", "sci_fi", ["True [fact: False]"], "True, but false in fact", 'The answer has no "[fact:"'),
        ("leval", "sci_fi", ["True"], "True [fact: True]", 'The reference has no "[fact:"'),
        ("leval", "gsm100", [], "5", "There is no reference"),
        ("leval", "quality", ["A"], "", None),
        ("leval", "sci_fi", ["True [fact: False]"], "[FACT:", None),
        ("lveval", "factrecall_en_16k", [None, "Paris"], "in Paris", lveval.NO_TEXT),
        ("lveval", "dureader_mixup_16k", [1], "in Paris", lveval.NO_TEXT),
        ("lveval", "dureader_mixup_16k", [], "in Paris", None),
    ],
)
def test_where_the_official_script_stops(
    family: str, task: str, references: list[object], output: str, error: str | None
) -> None:
    sample = answered(family, task, references, all_classes=["Date", "Food"] if task == "trec" else [])
    scores = BENCHMARKS[family].score(sample, output)
    assert tuple(score.metric for score in scores) == metrics_of(family, task)
    for score in scores:
        assert score.error is None if error is None else error in str(score.error) and score.score == 0
    stored = replace(sample, meta=json.loads(json.dumps(dict(sample.meta))))
    assert BENCHMARKS[family].score(stored, output) == scores


@pytest.mark.parametrize(
    ("task", "keywords", "references", "error"),
    [
        ("loogle_SD_mixup_16k", "...", ["Paris"], NO_KEYWORDS),
        ("loogle_SD_mixup_16k", 5, ["Paris"], lveval.KEYWORDS_NO_TEXT),
        ("lic_mixup_16k", ["Paris"], ["Paris"], lveval.KEYWORDS_NO_TEXT),
        ("lic_mixup_16k", None, ["。"], NO_KEYWORDS),
        ("loogle_SD_mixup_16k", 0, ["Paris"], None),
        ("factrecall_en_16k", 5, ["Paris"], None),
    ],
)
def test_where_lvevals_script_stops_on_keywords(
    task: str, keywords: object, references: list[object], error: str | None
) -> None:
    sample = answered("lveval", task, references, answer_keywords=keywords)
    first, *_ = BENCHMARKS["lveval"].score(sample, "in Paris")
    assert first.error == error and (first.score == 0.0 or error is None)


@pytest.mark.parametrize(
    ("family", "task", "references", "evidence"),
    [
        ("longbench", "passage_retrieval_en", ["Paragraph 2"], ["Paragraph 2:"]),
        ("longbench", "qasper_e", ["BERT", "Yes", "unanswerable", "no."], ["BERT"]),
        *[("longbench", task, ["12"], []) for task in ("multi_news", "trec", "triviaqa", "passage_count", "lcc")],
        ("leval", "natural_question", ["14 November 2001"], ["14 November 2001"]),
        ("leval", "topic_retrieval_longchat", ["The role of music"], ["The role of music"]),
        ("leval", "scientific_qa", ["Yes."], []),
        *[("leval", task, ["A"], []) for task in ("tpo", "gsm100", "codeU", "sci_fi", "news_summ")],
        ("lveval", "lic_mixup_16k", ["贝多芬", "", "。", " 贝多芬 "], ["贝多芬"]),
        ("lveval", "lic_mixup_16k", [], []),
        ("lveval", "dureader_mixup_16k", ["贝多芬"], []),
        ("needle", "single_en", ["4821"], ["4821"]),
    ],
)
def test_evidence(family: str, task: str, references: list[object], evidence: list[str]) -> None:
    sample = answered(family, task, references, answer_keywords="...")
    assert list(BENCHMARKS[family].evidence(sample)) == evidence


def metrics_of(family: str, task: str) -> tuple[str, ...]:
    match family:
        case "longbench":
            return longbench.METRICS[longbench.rules_of(task).metric]
        case "longbench_pro":
            return longbench_pro.METRICS[longbench_pro.TASKS[task].metric]
        case "lveval":
            return lveval.METRICS[lveval.rules_of(task).metric]
        case "leval":
            return leval.METRICS[leval.KINDS[task]]
        case "longbench_v2":
            return ("accuracy", "compensated", "empty")
        case "mrcr":
            return mrcr.METRICS
        case "graphwalks":
            return graphwalks.METRICS
        case "helmet":
            return helmet_dataset(task).metrics
        case "infinitebench":
            return infinitebench.TASKS[task].metrics
        case "babilong":
            return ("accuracy",)
        case "ruler":
            return ruler_metrics(task)
        case _:
            return ("recall",)


pieces = [
    "a", "b", "A", "the", "不是", "段落", "Paragraph ", "0", "12", "4,821", ".", "。", "\n", "`", "#", "//", "\0",
    "Final Answer: [", "]", ", ",
    "[Answer]", "[答案]", "[[1, 2]]", "True", "[fact: False]", "The correct answer is ", "(C)", "北京",
]  # fmt: skip
texts = st.text(max_size=60) | st.lists(st.sampled_from(pieces), max_size=12).map("".join)
anything = st.text(st.characters(codec=None, exclude_categories=()), max_size=80)
json_values = st.none() | st.integers() | texts | st.lists(texts, max_size=2)
TASKS = {name: family.catalogue.names or ("single_en",) for name, family in BENCHMARKS.items()}


@pytest.mark.parametrize("family", TASKS)
@settings(max_examples=examples(300))
@given(data=st.data(), output=texts | anything, similarity=st.none() | st.floats())
def test_any_output_has_a_score(family: str, data: st.DataObject, output: str, similarity: float | None) -> None:
    task = data.draw(st.sampled_from(TASKS[family]))
    odd = json_values if family in ("longbench", "lveval") else texts
    references = data.draw(st.lists(odd, min_size=family == "needle", max_size=3))
    meta = {
        "topic": 0,
        "evaluation": "exam",
        "prefix": data.draw(texts),
        "all_classes": ["a", "the"],
        "answer_keywords": data.draw(json_values),
    }
    sample = answered(family, task, references, **meta)
    sample = replace(sample, language=data.draw(st.sampled_from(["en", "zh"])))
    compared = BENCHMARKS[family].similarity_input(sample, output)
    assert compared is None or (compared.text and len(compared.references) == len(sample.references))
    scores = BENCHMARKS[family].score(sample, output, similarity=similarity)
    assert scores == BENCHMARKS[family].score(sample, output, similarity=similarity)
    _check(scores, metrics_of(family, task), whole=family != "longbench_pro")


def _check(scores: Sequence[Score], metrics: tuple[str, ...], *, whole: bool) -> None:
    names = tuple(score.metric for score in scores)
    assert names == metrics if whole else names and set(names) <= set(metrics)
    assert all(0.0 <= score.score <= 1.0 and not math.isnan(score.score) for score in scores)
    assert all(score.score == 0.0 for score in scores if score.error)
