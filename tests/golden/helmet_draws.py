"""Rows and prompts of HELMET as lbx draws them from the made-up data of the golden prompts."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from lbx.benchmarks.base.data_files import DataRow
from lbx.benchmarks.base.sources import JsonArray, JsonLines
from lbx.benchmarks.helmet import draws
from lbx.benchmarks.helmet.draws import BookCutter, CitedPrompts, DrawnRow, DrawSize
from lbx.benchmarks.helmet.texts import Texts
from lbx.benchmarks.retrieval.chunks import ChunkTokenizer
from tests.golden.case import SHARED

FOLDER = SHARED / "helmet"
SOURCE = next(iter(SHARED.parents[1].glob("data/upstream_more/princeton-nlp/HELMET/*/data.py")), Path("missing"))
RULER_KINDS = {"niah_mv": "several", "niah_mq": "several", "qa_1": "qa", "qa_2": "qa"}
LABELLED = {
    "trec_coarse": ("trec", "coarse_label", 6),
    "trec_fine": ("trec", "fine_label", 50),
    "banking77": ("banking77", "l", 77),
    "clinic150": ("clinc_oos", "l", 151),
    "nlu": ("nlu", "l", 68),
}
"""{name: (file, field of the label, number of labels)}."""


@dataclass(frozen=True)
class Rows:
    """Rows in memory."""

    values: Sequence[dict[str, Any]]

    def rows(self) -> Iterator[DataRow]:
        return (DataRow(f"row {number}", row) for number, row in enumerate(self.values, 1))

    def count(self) -> int:
        return len(self.values)


@cache
def read_lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@dataclass(frozen=True)
class MadeData:
    """Made-up data, the authors' texts and Llama 2's tokenizer."""

    root: Path
    cutter: BookCutter
    texts: Texts

    @classmethod
    def unpack(cls, folder: Path, llama2: Path) -> MadeData:
        with tarfile.open(FOLDER / "inputs.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        texts = Texts(SOURCE)
        cutter = BookCutter(ChunkTokenizer(llama2 / "tokenizer.json"), texts, {})
        return cls(next(folder.glob("*/data")).parent, cutter, texts)

    def rows(self, case: Mapping[str, Any]) -> tuple[str, list[DrawnRow]]:
        """Draw the rows of a case of the authors' ``load_data``: (key of the template, rows)."""
        name, size = case["dataset"], DrawSize(0, case["mts"], case["shots"], case["seed"])
        family = name.partition("_")[0]
        if family == "icl":
            return "icl", list(self._icl_rows(name, size))
        if family == "ruler":
            task = name.removeprefix("ruler_")
            kind = RULER_KINDS.get(task, task if task in ("vt", "cwe", "fwe") else "niah")
            return f"ruler_{kind}", list(draws.ruler_rows(self._lines(case["path"]), size))
        match family:
            case "json":
                return "json_kv", list(draws.json_kv_rows(self._lines(case["path"]), self.texts, size))
            case "kilt" | "msmarco":
                files = self._lines(case["path"]), self._lines(case["demo"])
                if family == "msmarco":
                    return "msmarco", list(draws.msmarco_rows(*files, self.texts, size))
                popularity = float(name.rpartition("_")[2]) if "popqa" in name else None
                return "kilt", list(draws.kilt_rows(*files, self.texts, size, popularity))
            case "alce":
                prompts = CitedPrompts.parse(DataRow("prompts", json.loads((SOURCE.parent / case["demo"]).read_text())))
                size = size._replace(items=int(name.rpartition("_")[2]))
                return "alce", list(draws.alce_rows(JsonArray(self.root / case["path"], "docs"), prompts, size))
        return self._book_rows(name, size)

    def _lines(self, path: str) -> JsonLines:
        return JsonLines(self.root / path)

    def _hub(self, name: str) -> Any:
        return json.loads((self.root / "hub" / f"{name}.json").read_text("utf-8"))

    def _icl_rows(self, name: str, size: DrawSize) -> Iterator[DrawnRow]:
        dataset, shots = name.removeprefix("icl_").removesuffix("shot_balance").rsplit("_", 1)
        file, label, labels = LABELLED[dataset]
        splits = self._hub(file)
        train = draws.labelled_texts(Rows(splits["train"]), label, labels)
        if dataset != "nlu":
            test = draws.labelled_texts(Rows(splits["test"]), label, labels)
        else:
            train, test = draws.split_training_rows(train, size.seed)
        return draws.icl_rows(train, test, self.texts, labels, size._replace(items=int(shots)))

    def _book_rows(self, name: str, size: DrawSize) -> tuple[str, list[DrawnRow]]:
        kind = "_".join(name.split("_")[:2])
        rest = self.cutter, size._replace(items=int(name.rpartition("_")[2]))
        if name.startswith("infbench"):
            books = self._hub("infinitebench")
            rows = books["rows"][f"longbook_{kind.removeprefix('infbench_')}_eng"]
            source = Rows([{**row, "context": books["books"][row["context"]]} for row in rows])
            return kind, list(draws.book_rows(source, kind, *rest))
        order = global_order()
        if name.startswith("narrativeqa"):
            splits = self._hub("narrativeqa")
            source, train = Rows(splits["test"]), Rows(splits["train"])
            return "narrativeqa", list(draws.narrativeqa_rows(source, train, *rest, order))
        splits = self._hub("multi_lexsum")
        for row in splits["train"]:  # the authors draw demonstrations for these rows, too
            if row["summary/short"] is not None:
                order("", 1)
        source, train = Rows(splits["validation"]), Rows(splits["train"])
        return kind, list(draws.multi_lexsum_rows(source, train, *rest, order))


def global_order() -> Callable[[str, int], list[int]]:
    """Make the function that draws demonstrations from numpy's global state after ``set_seed(42)``."""
    generator = np.random.RandomState(42)

    def draw(key: str, count: int) -> list[int]:
        _, numbers, position, *_ = generator.get_state(legacy=True)
        seed = int(numbers[position if position < len(numbers) else 0])
        generator.random_sample()
        order: list[int] = np.random.default_rng(seed).permutation(count).tolist()
        return order

    return draw


@cache
def golden_prompts() -> dict[int, list[dict[str, Any]]]:
    """Prompts by number of the case."""
    found: dict[int, list[dict[str, Any]]] = {}
    for prompt in read_lines("prompts"):
        found.setdefault(prompt["case"], []).append(prompt)
    return found
