"""HELMET's tasks: seven categories of datasets, each at five lengths in tokens.

Source: configs/*.yaml and scripts/generate_configs.py of the revision in ``SCRIPT``'s recipe. A task is a dataset and a
length, "json_kv_8k". The authors' program ignores ``stop_new_line`` in those files, so that no answer ends at
a line break.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lbx.base.errors import StoreError
from lbx.benchmarks.base.sources import DataSource
from lbx.benchmarks.metrics.helmet import TEXT_METRICS

NAME = "helmet"
SCRIPT = "princeton-nlp/HELMET/data.py"
PROMPTS = "princeton-nlp/HELMET/prompts"
FOLDER = "princeton-nlp/HELMET"
"""Name of the snapshot with the folder ``data`` of the authors' archive."""
INFINITEBENCH = "xinrongzhang2022/InfiniteBench"
NARRATIVEQA, MULTI_LEXSUM = "deepmind/narrativeqa", "allenai/multi_lexsum"
LLAMA2 = "meta-llama/Llama-2-7b-hf"
"""Repository of the tokenizer by which long documents are cut."""
DATA = DataSource(
    "bundle/helmet.toml",
    (
        FOLDER,
        "CogComp/trec",
        "PolyAI/banking77",
        "clinc/clinc_oos",
        "xingkunliuxtracta/nlu_evaluation_data",
        INFINITEBENCH,
        NARRATIVEQA,
        MULTI_LEXSUM,
    ),
    required_file=SCRIPT,
    more_recipes=("bundle/helmet_hub.toml", "bundle/infinitebench.toml"),
    licences="scripts MIT; data: see its card",
    real_rows="no",
)

LENGTHS = {"8k": 8192, "16k": 16384, "32k": 32768, "64k": 65536, "128k": 131072}


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Dataset for in-context learning: configuration, splits and columns on the hub, and the number of labels.

    Attributes:
        test: the split with test rows, or "" if they are a tenth of the training rows.
    """

    repo: str
    label: str
    labels: int
    config: str = "default"
    test: str = "test"


@dataclass(frozen=True, slots=True)
class DatasetSettings:
    """Dataset of a category.

    Attributes:
        kind: the way in which samples, prompts and scores are made.
        metrics: stored metrics, the headline first. The category averages the headline.
        new_tokens: budget of an answer.
        sizes: number for each length: documents, pairs, demonstrations or tokens of the document.
        file, demo_file: path in the authors' folder, with "{}" for the number.
        chat: whether models with a chat template are asked in it.
        judge_metric: metric of a judge that the category averages instead of the headline.
        model_metrics: further metrics of the category that need a model.
        label_source: the data for in-context learning.
        popularity: upper bound of log10 of the page views, which questions must be below.
    """

    category: str
    kind: str
    metrics: tuple[str, ...]
    new_tokens: int
    sizes: tuple[int, ...]
    file: str = ""
    demo_file: str = ""
    chat: bool = False
    judge_metric: str = ""
    model_metrics: tuple[str, ...] = ()
    label_source: LabelledTexts | None = None
    popularity: float | None = None

    @property
    def limit(self) -> int:
        """Number of questions, texts or rows that are drawn."""
        return 500 if self.label_source else 100


def _metrics(headline: str) -> tuple[str, ...]:
    return (headline, *(metric for metric in TEXT_METRICS if metric != headline))


_SUBSTRING, _EXACT = _metrics("substring_exact_match"), _metrics("exact_match")
_ALL = tuple(LENGTHS.values())
RECALL, RAG, ICL, CITE, RERANK, LONG_QA, SUMM = CATEGORIES = (
    "Recall",
    "RAG",
    "ICL",
    "Cite",
    "Re-rank",
    "LongQA",
    "Summ",
)


def _needle(folder: str, new_tokens: int) -> DatasetSettings:
    return DatasetSettings(
        RECALL, "ruler", ("ruler_recall",), new_tokens, _ALL, f"ruler/{folder}/validation_{{}}.jsonl"
    )


def _kilt(test: str, demos: str, popularity: float | None = None) -> DatasetSettings:
    files = f"kilt/{test}.jsonl", f"kilt/{demos}.jsonl"
    return DatasetSettings(RAG, "kilt", _SUBSTRING, 20, (50, 105, 220, 440, 1000), *files, popularity=popularity)


def _icl(sizes: tuple[int, ...], label_source: LabelledTexts) -> DatasetSettings:
    return DatasetSettings(ICL, "icl", _EXACT, 20, sizes, label_source=label_source)


def _cite(name: str, metric: str) -> DatasetSettings:
    file, prompts = f"alce/{name}_eval_gtr_top2000.json", f"{PROMPTS}/{name}_revised.json"
    citations = ("citation_rec", "citation_prec")
    return DatasetSettings(
        CITE, "alce", (metric,), 300, (30, 75, 165, 345, 700), file, prompts, chat=True, model_metrics=citations
    )


def _book(
    category: str, kind: str, headline: str, new_tokens: int, *, margin: int, judge_metric: str = ""
) -> DatasetSettings:
    sizes = tuple(length - margin for length in _ALL)
    return DatasetSettings(category, kind, _metrics(headline), new_tokens, sizes, chat=True, judge_metric=judge_metric)


DATASETS: Mapping[str, DatasetSettings] = {
    "json_kv": DatasetSettings(
        RECALL, "json_kv", _SUBSTRING, 100, (105, 220, 440, 900, 1800), "json_kv/test_k{}_dep6.jsonl"
    ),
    "ruler_niah_mk_2": _needle("niah_multikey_2", 50),
    "ruler_niah_mk_3": _needle("niah_multikey_3", 100),
    "ruler_niah_mv": _needle("niah_multivalue", 50),
    "kilt_nq": _kilt("nq-dev-multikilt_1000_k{}_dep6", "nq-train-multikilt_1000_k3_dep6"),
    "kilt_hotpotqa": _kilt("hotpotqa-dev-multikilt_1000_k{}_dep3", "hotpotqa-train-multikilt_1000_k3_dep3"),
    "kilt_popqa": _kilt("popqa_test_1000_k{}_dep6", "popqa_test_1000_k3_dep6", 3),
    "kilt_triviaqa": _kilt("triviaqa-dev-multikilt_1000_k{}_dep6", "triviaqa-train-multikilt_1000_k3_dep6"),
    "icl_trec_coarse": _icl((400, 800, 1600, 3300, 6600), LabelledTexts(DATA.repositories[1], "coarse_label", 6)),
    "icl_trec_fine": _icl((400, 800, 1600, 3200, 6400), LabelledTexts(DATA.repositories[1], "fine_label", 50)),
    "icl_banking77": _icl((360, 720, 1450, 2900, 5900), LabelledTexts(DATA.repositories[2], "label", 77)),
    "icl_clinic150": _icl(
        (440, 880, 1750, 3525, 7050), LabelledTexts(DATA.repositories[3], "intent", 151, "plus", "validation")
    ),
    "icl_nlu": _icl((510, 1020, 2040, 4080, 8296), LabelledTexts(DATA.repositories[4], "label", 68, test="")),
    "alce_asqa": _cite("asqa", "str_em"),
    "alce_qampari": _cite("qampari", "qampari_rec_top5"),
    "msmarco_rerank": DatasetSettings(
        RERANK,
        "msmarco",
        ("NDCG@10",),
        200,
        (50, 130, 285, 600, 1000),
        "msmarco/test_reranking_data_k{}_dep3.jsonl",
        "msmarco/test_reranking_data_k10_dep3.jsonl",
    ),
    "narrativeqa": _book(LONG_QA, "narrativeqa", "rougeL_f1", 100, margin=300, judge_metric="gpt-4-score"),
    "infbench_qa": _book(LONG_QA, "infbench_qa", "rougeL_f1", 10, margin=210),
    "infbench_choice": _book(LONG_QA, "infbench_choice", "exact_match", 10, margin=210),
    "infbench_sum": _book(SUMM, "infbench_sum", "rougeLsum_f1", 1200, margin=1400, judge_metric="gpt-4-f1"),
    "multi_lexsum": _book(SUMM, "multi_lexsum", "rougeLsum_f1", 400, margin=700, judge_metric="gpt-4-f1"),
}
"""{dataset: its settings}, in the order of the authors' tables."""

TASKS = tuple(f"{name}_{label}" for name in DATASETS for label in LENGTHS)
SELECTIONS = {
    f"{NAME}_{category.lower().replace('-', '')}": tuple(
        f"{name}_{label}" for name, dataset in DATASETS.items() if dataset.category == category for label in LENGTHS
    )
    for category in CATEGORIES
}


def split_task(task: str) -> tuple[str, str]:
    """Split a task into dataset and length: ("json_kv", "8k") for "json_kv_8k"."""
    name, _, label = task.rpartition("_")
    return name, label


def dataset_of(task: str) -> DatasetSettings:
    return DATASETS[split_task(task)[0]]


def size_of(task: str) -> int:
    """Number of documents, pairs, demonstrations or tokens of a task (``DatasetSettings.sizes``)."""
    return dataset_of(task).sizes[list(LENGTHS).index(split_task(task)[1])]


def prompt_limit(task: str) -> int:
    """Tokens to which the authors cut a task's prompts: the length in the name less the answer's budget."""
    return LENGTHS[split_task(task)[1]] - dataset_of(task).new_tokens


@dataclass(frozen=True, slots=True)
class AskedTask:
    """Task with the settings of a run.

    Attributes:
        chat: whether the prompts were messages in a chat template.
        new_tokens: budget of an answer.
        limit: tokens to which prompts were cut.
        limit_reason: words on a limit other than the authors', or "".
    """

    chat: bool
    new_tokens: int
    limit: int
    limit_reason: str


def asked_task(task: str, settings: Mapping[str, Any]) -> AskedTask:
    """Task with the settings of a run. Raises StoreError like ``read_setting``."""
    dataset, official = dataset_of(task), prompt_limit(task)
    is_bare = read_setting(settings, "backend.chat", {}).get("template_sha256", "") is None
    has_template = read_setting(settings, "chat", True) and not is_bare
    chat = settings.get("backend.api") == "chat" or (dataset.chat and has_template)
    new_tokens = read_setting(settings, "max_new_tokens", dataset.new_tokens)
    reasoning = read_setting(settings, "thinking_tokens", 0) if chat else 0
    most, window = (read_setting(settings, name, 0) for name in ("max_prompt_tokens", "context_window"))
    limit, reason = (most, f"limited to {most:,} tokens (--max-prompt-tokens)") if most else (official, "")
    room = window - max(new_tokens + reasoning, 0 if most else dataset.new_tokens)
    if window and room < limit:
        less = [f"{reasoning:,} for reasoning"] if reasoning else []
        less += [f"{new_tokens:,} for the answer (--max-new-tokens)"] if new_tokens > dataset.new_tokens else []
        less_text = f" less {' and '.join(less)}" if less else ""
        limit, reason = room, f"cut to the window of {window:,} tokens{less_text}"
    return AskedTask(chat, new_tokens, limit, reason if limit != official else "")


def read_setting(settings: Mapping[str, Any], name: str, default: Any) -> Any:
    """Setting of a run, or the default.

    Raises:
        StoreError: the type differs from the default's, or a number is negative or huge.
    """
    value = settings.get(name)
    if value is None:
        return default
    types = (float, int) if isinstance(default, float) else (type(default),)
    if type(value) not in types or (type(value) in (float, int) and not 0 <= value < 1 << 63):
        raise StoreError(
            f"The setting {name!r} contains a value that lbx never writes.",
            fix="Ask the author of the results file.",
        )
    return value


def official_name(task: str) -> str:
    """Name of a task's dataset in the authors' files, with the number of documents or demonstrations, if any."""
    name, size = split_task(task)[0], size_of(task)
    match DATASETS[name].kind:
        case "icl":
            return f"{name}_{size}shot_balance"
        case "infbench_qa" | "infbench_choice" | "infbench_sum":
            return f"{name}_eng_{size}"
        case "alce" | "narrativeqa" | "multi_lexsum":
            return f"{name}_{size}"
    return {"kilt_popqa": "kilt_popqa_3", "msmarco_rerank": "msmarco_rerank_psg"}.get(name, name)
