"""Made-up samples of every benchmark, and scores for them."""

from __future__ import annotations

import random
from collections.abc import Mapping

from lbx.base.records import Sample, ScoredSample
from lbx.benchmarks.leval.tasks import KINDS
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES
from lbx.benchmarks.longbench_v2 import DOMAINS
from lbx.benchmarks.registry import BENCHMARKS

Imported = dict[str, dict[str, list[ScoredSample]]]
"""Model -> task -> its scored rows."""

TASKS = {
    "longbench": ("qasper", "hotpotqa", "multifieldqa_zh", "lcc", "gov_report_e", "trec_e"),
    "longbench_v2": ("mcq",),
    "longbench_pro": ("t1.1", "t4.1", "t6.2"),
    "lveval": ("hotpotwikiqa_mixup_16k", "hotpotwikiqa_mixup_32k", "dureader_mixup_16k"),
    "leval": ("quality", "topic_retrieval_longchat", "sci_fi", "financial_qa", "gov_report_summ", "meeting_summ"),
    "mrcr": ("2needle", "8needle"),
    "graphwalks": ("bfs_128k", "parents_128k", "bfs_1m"),
    "helmet": ("json_kv_8k", "kilt_nq_8k", "infbench_choice_16k", "narrativeqa_8k", "msmarco_rerank_8k"),
    "babilong": ("qa1_4k", "qa2_4k", "qa8_4k", "qa1_8k"),
    "infinitebench": ("passkey", "longbook_qa_eng", "longbook_choice_eng", "math_calc"),
    "ruler": ("vt_4096", "cwe_4096", "qa_1_4096", "vt_8192"),
}
PARTS_SHARED = 3
"""How many questions a document has."""


def made_sample(benchmark: str, task: str, number: int) -> Sample:
    """One that every number of its benchmark can be made of."""
    chance = random.Random(number)
    domain = chance.choice(list(DOMAINS))
    metas: Mapping[str, Mapping[str, object]] = {
        "longbench_v2": {
            "difficulty": chance.choice(("easy", "hard")), "length": chance.choice(("short", "medium", "long")),
            "domain": domain, "sub_domain": "any", "choices": {"A": "one", "B": "two", "C": "three", "D": "four"},
        },
        "longbench_pro": {
            "token_length": chance.choice(CATEGORIES["length"]), "row": number, "secondary_task": task,
            "contextual_requirement": chance.choice(CATEGORIES["requirement"]),
            "difficulty": chance.choice(CATEGORIES["difficulty"]),
            "primary_task": chance.choice(CATEGORIES["primary_task"]),
        },
        "leval": {"evaluation": KINDS[task] if KINDS.get(task) in ("f1", "rouge") else "exam", "topic": number % 3},
        "mrcr": {"prefix": "x1", "message_lengths": []},
    }  # fmt: skip
    option = {"longbook_choice_eng": ("here", "A"), "math_calc": ("1", "2")}
    references = {"infinitebench": option.get(task, ("here",)), "longbench_v2": ("A",), "leval": ("True [fact: True]",)}
    return Sample(
        benchmark,
        task,
        f"s{number}",
        context=f"document {number // PARTS_SHARED}",
        question=f"Question {number}?",
        references=references.get(benchmark, ("here",)),
        length=chance.choice((3000, 5000, 9000)),
        meta=metas.get(benchmark, {}),
    )


def made_scores(sample: Sample, chance: random.Random) -> dict[str, float]:
    """Often 0, often 1. Who says nothing is not right."""
    values = {
        one.metric: chance.choice((0.0, 1.0, chance.random())) for one in BENCHMARKS[sample.benchmark].score(sample, "")
    }
    if "empty" in values:
        empty = float(chance.random() < 0.2)
        values |= {"empty": empty, "accuracy": 0.0 if empty else float(chance.random() < 0.5)}
    return values
