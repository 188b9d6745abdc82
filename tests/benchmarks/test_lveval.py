"""LV-Eval on data, prompts and a config.py made up here."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from lbx.base.records import Sample, ScoredSample, Truncation
from lbx.benchmarks.lveval import CONFIG, DATASETS, LEVELS, METRICS, REPO, LVEval

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
ROW: dict[str, object] = {
    "input": "Where?",
    "context": "In {Paris}.",
    "answers": ["in Paris", "Paris"],
    "length": 15000,
    "dataset": "factrecall_en",
    "language": "en",
    "answer_keywords": "Paris",
    "confusing_facts": "In London.",
}
PROMPTS = {dataset: f"{dataset}: {{context}} | {{input}} =" for dataset in DATASETS}
NEW_TOKENS = {dataset: 7 + number for number, dataset in enumerate(DATASETS)}
CONFIG_PY = f"""
from metrics import (
    qa_f1_score,
)

DATASET_MAXGEN = {NEW_TOKENS!r}

DATASET_PROMPT = {PROMPTS!r}

DATASET_METRIC = {{
    "factrecall_en": qa_f1_score,
}}
"""


def zipped(dataset: str, folder: str = "", **levels: list[dict[str, object]]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for level, rows in levels.items():
            text = "".join(json.dumps(row) + "\n" for row in rows)
            archive.writestr(f"{folder or dataset}/{dataset}{level}.jsonl", text)
            archive.writestr(f"__MACOSX/{dataset}/._{dataset}{level}.jsonl", "not this")
    return buffer.getvalue()


def made(make_bundle: MakeBundle, config: str = CONFIG_PY, **datasets: list[dict[str, object]]) -> Bundle:
    """A bundle with each dataset's rows at the level 16k."""
    content: dict[str, bytes | Path] = {f"files/{CONFIG}": config.encode()}
    for dataset, rows in datasets.items():
        content[f"hub:{REPO}/{dataset}.zip"] = zipped(dataset, _16k=rows)
    return make_bundle(content)


def sample_of(task: str, answers: list[str], keywords: object = None) -> Sample:
    return Sample("lveval", task, "0000", "c", "q", tuple(answers), meta={"answer_keywords": keywords})


def scores(sample: Sample, output: str) -> dict[str, float]:
    return {score.metric: score.score for score in LVEval().score(sample, output)}


def test_the_official_order() -> None:
    assert len(LVEval.catalogue.names) == 55
    assert LVEval.catalogue.names[:2] == ("hotpotwikiqa_mixup_16k", "hotpotwikiqa_mixup_32k")
    assert LVEval.catalogue.names[-1] == "dureader_mixup_256k"


def test_tasks_are_what_the_zips_hold(make_bundle: MakeBundle) -> None:
    bundle = make_bundle(
        {
            f"hub:{REPO}/dureader_mixup.zip": zipped("dureader_mixup", _256k=[ROW], _16k=[ROW, ROW]),
            f"hub:{REPO}/factrecall_en.zip": zipped("factrecall_en", _32k=[ROW] * 3),
            f"hub:{REPO}/loogle_SD_mixup.zip": zipped("loogle_SD_mixup", folder="data/x", _64k=[ROW], _512k=[ROW]),
        }
    )
    found = LVEval().tasks(bundle)
    assert [(task.full_name, task.samples, task.language) for task in found] == [
        ("lveval/loogle_SD_mixup_64k", 1, "en"),
        ("lveval/factrecall_en_32k", 3, "en"),
        ("lveval/dureader_mixup_16k", 2, "zh"),
        ("lveval/dureader_mixup_256k", 1, "zh"),
    ]
    assert [task.metrics for task in found[:3]] == [
        ("keyword_f1", "keyword_f1_paper", "f1"),
        ("f1",),
        ("rouge_l", "rouge_l_unlimited"),
    ]


def test_samples(make_bundle: MakeBundle) -> None:
    bare = {key: value for key, value in ROW.items() if key not in ("language", "answer_keywords", "confusing_facts")}
    bundle = made(make_bundle, multifieldqa_en_mixup=[ROW, bare], cmrc_mixup=[bare])
    first, second = LVEval().samples(bundle, "multifieldqa_en_mixup_16k")
    assert (first.sample_id, second.sample_id) == ("0000", "0001")
    assert (first.context, first.question, first.references) == ("In {Paris}.", "Where?", ("in Paris", "Paris"))
    assert (first.length, first.length_unit, first.language) == (15000, "words", "en")
    assert (first.meta["answer_keywords"], first.meta["category"]) == ("Paris", "single-hop QA")
    assert "answer_keywords" not in second.meta
    assert LVEval().evidence(first) == ("in Paris", "Paris")
    (chinese,) = LVEval().samples(bundle, "cmrc_mixup_16k")
    assert (chinese.length_unit, chinese.language) == ("characters", "zh")
    with pytest.raises(BundleError, match="does not contain Infinigence/LVEval, cmrc_mixup_32k"):
        list(LVEval().samples(bundle, "cmrc_mixup_32k"))


@pytest.mark.parametrize("dataset", DATASETS)
def test_prompts(make_bundle: MakeBundle, dataset: str) -> None:
    bundle = made(make_bundle, **{dataset: [ROW]})
    (sample,) = LVEval().samples(bundle, f"{dataset}_16k")
    prompt = LVEval().prompt(bundle, sample)
    assert prompt.text == PROMPTS[dataset].format(**ROW)
    assert prompt.document == ROW["context"]
    assert prompt.max_new_tokens == NEW_TOKENS[dataset]
    assert (prompt.truncation, prompt.chat, prompt.temperature) == (Truncation.MIDDLE, True, None)
    assert (prompt.limits[16384], prompt.limits[32768], prompt.limits[200000]) == (15500, 31500, 199500)
    assert prompt.source == CONFIG


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ("DATASET_PROMPT = {", r"config\.py, line 1 is damaged: it is not valid Python \('\{' was never closed\)"),
        ("x = 1\0", "it is not valid Python"),
        ("(" * 300, "it is not valid Python"),
        ("DATASET_MAXGEN = {}", "it assigns no value to DATASET_PROMPT"),
        ("DATASET_PROMPT = {}\nif 1:\n    DATASET_MAXGEN = {}", "it assigns no value to DATASET_MAXGEN"),
        (
            "DATASET_MAXGEN = {}\n\nDATASET_PROMPT = dict(a=1)",
            r"line 3 is damaged: the value of DATASET_PROMPT is not a",
        ),
        ("DATASET_MAXGEN = {}\nDATASET_PROMPT = {'a': open('/x').read()}", "line 2 .* lbx does not run the file"),
        ("DATASET_MAXGEN = {}\nDATASET_PROMPT = {[]: 1}", "line 2 .* not a literal"),
        ("DATASET_PROMPT = DATASET_MAXGEN = []", "DATASET_PROMPT has no entry for factrecall_en"),
        ("DATASET_PROMPT = DATASET_MAXGEN = {'lic_mixup': ''}", "DATASET_PROMPT has no entry for factrecall_en"),
        ("DATASET_PROMPT = DATASET_MAXGEN = {'factrecall_en': 16}", "DATASET_PROMPT must be text for factrecall_en"),
        ("DATASET_PROMPT = DATASET_MAXGEN = {'factrecall_en': ''}", "DATASET_MAXGEN must be a whole number above 0"),
        ("DATASET_MAXGEN: dict = {}\nDATASET_PROMPT = {'factrecall_en': '{x}'}", "Cannot fill in"),
    ],
)
def test_damaged_config(make_bundle: MakeBundle, config: str, what: str) -> None:
    bundle = made(make_bundle, config, factrecall_en=[ROW])
    (sample,) = LVEval().samples(bundle, "factrecall_en_16k")
    with pytest.raises(BundleError, match=what):
        LVEval().prompt(bundle, sample)


def test_config_is_read_and_never_run(make_bundle: MakeBundle, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    lines = [
        f"open({str(trace)!r}, 'w').close()",
        "DATASET_PROMPT = nothing()",
        CONFIG_PY,
        "PATTERN = '\\d'",  # Python warns of this one, which is not the user's matter
    ]
    bundle = made(make_bundle, "\n".join(lines), factrecall_en=[ROW])
    (sample,) = LVEval().samples(bundle, "factrecall_en_16k")
    assert LVEval().prompt(bundle, sample).max_new_tokens == NEW_TOKENS["factrecall_en"]  # the last value counts
    assert not trace.exists()


def test_damaged_zips(make_bundle: MakeBundle) -> None:
    bundle = make_bundle({f"hub:{REPO}/lic_mixup.zip": zipped("lic_mixup", _16k=[ROW])[:-30]})
    with pytest.raises(BundleError, match=r"lic_mixup\.zip is damaged"):
        LVEval().tasks(bundle)


def test_only_the_first_answer_counts() -> None:
    for task in ("factrecall_en_16k", "loogle_CR_mixup_16k"):
        assert scores(sample_of(task, ["Paris", "London"]), "London")["f1"] == 0.0
        assert set(scores(sample_of(task, ["Paris", "London"]), "Paris").values()) == {1.0}
    assert scores(sample_of("dureader_mixup_16k", ["巴黎", "伦敦"]), "伦敦") == {
        "rouge_l": 0.0,
        "rouge_l_unlimited": 0.0,
    }
    assert scores(sample_of("dureader_mixup_16k", ["巴黎", "伦敦"]), "巴黎的")["rouge_l"] == pytest.approx(1.0)


def test_metrics_stand_beside_one_another() -> None:
    sample = sample_of("hotpotwikiqa_mixup_16k", ["it was Paris"], "Paris")
    assert scores(sample, "it was London") == {"keyword_f1": 0.0, "keyword_f1_paper": 0.0, "f1": pytest.approx(2 / 3)}
    assert scores(sample, "Paris") == {"keyword_f1": 0.5, "keyword_f1_paper": 1.0, "f1": 0.5}
    assert scores(sample_of("cmrc_mixup_16k", ["巴黎的人"]), "巴黎") == {
        "keyword_f1": 0.0,  # one of three words
        "keyword_f1_paper": 0.0,
        "f1": 0.5,
    }


def rows(task: str, *values: float) -> list[ScoredSample]:
    metrics = METRICS[DATASETS[task.rpartition("_")[0]].metric]
    return [ScoredSample(sample_of(task, []), dict.fromkeys(metrics, value)) for value in values]


def test_aggregate() -> None:
    found = LVEval().aggregate("lic_mixup_16k", rows("lic_mixup_16k", 0.1, 0.2, 1.0))
    assert [(score.metric, score.n, score.official) for score in found] == [
        ("keyword_f1", 3, 43.33),
        ("keyword_f1_paper", 3, None),
        ("f1", 3, None),
    ]
    assert found[0].score == pytest.approx(1.3 / 3)
    assert LVEval().aggregate("lic_mixup_16k", []) == []


def test_groups() -> None:
    tasks = {task: rows(task, 0.0, 1 / 3) for task in LVEval.catalogue.names}
    tasks["lic_mixup_32k"] = rows("lic_mixup_32k", 1.0)
    found = {(group.grouping, group.name): group for group in LVEval().groups(tasks)}
    assert [name for grouping, name in found if grouping == "length"] == list(LEVELS)
    assert [name for grouping, name in found if grouping == "dataset"] == list(DATASETS)
    assert found["length", "16k"].official == 16.67
    assert found["length", "32k"].official == round((10 * 16.67 + 100) / 11, 2)
    assert found["dataset", "lic_mixup"].official == round((4 * 16.67 + 100) / 5, 2)
    assert (found["dataset", "lic_mixup"].n, found["overall", "all"].n) == (9, 109)
    assert found["overall", "all"].score == pytest.approx((54 / 6 + 1) / 55)
    assert found["overall", "all"].official is None
    assert found["category", "multi-hop QA"].score == pytest.approx((24 / 6 + 1) / 25)
    assert all(group.metric == "average" for group in found.values())


def test_groups_of_a_part() -> None:
    two = {task: rows(task, 0.5) for task in ("factrecall_en_16k", "lic_mixup_16k")}
    assert [(group.grouping, group.name, group.score, group.official) for group in LVEval().groups(two)] == [
        ("overall", "all", 0.5, None),
        ("length", "16k", 0.5, None),
    ]
    assert LVEval().groups({"lic_mixup_16k": rows("lic_mixup_16k", 0.5)}) == []
    assert LVEval().groups({"lic_mixup_16k": [], "factrecall_en_16k": []}) == []


def test_published_averages(shared: Callable[[str], Path]) -> None:
    """The published averages are the means of the published scores, which are rounded."""
    import csv

    with shared("reference/lveval.csv").open(encoding="utf-8") as file:
        scores = {
            f"{line['dataset']}_{line['level']}": float(line["score_percent"])
            for line in csv.DictReader(file)
            if line["model"] == "ChatGLM3-6B-32k"
        }
    groups = LVEval().groups({task: rows(task, scores[task] / 100) for task in LVEval.catalogue.names})
    published = {(group.grouping, group.name): group.official for group in groups}
    assert [published["length", level] for level in LEVELS] == [30.70, 26.62, 17.62, 11.56, 7.17]
    assert published["dataset", "loogle_SD_mixup"] == 22.29
    assert published["dataset", "multifieldqa_en_mixup"] == 12.93
    assert published["dataset", "lic_mixup"] == 15.02
