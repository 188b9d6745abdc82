"""Results files that pages are made of in tests, and what a page holds."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from lbx.base.records import Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.report import page as report_page
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from tests.made_numbers import task_row

EVIL = "</script><b onload=x>&amp;\0\x1b[31m\u202e\u2066]]>--><!--"
SPELLED = "</script><b onload=x>&amp;\\x00\\x1b[31m\\u202e\\u2066]]>--><!--"
NAMES = ("a<b|c&d\\%_{}", "日本語のモデル", "نموذج عربي", "plain")


_METRICS = {"lcc": "edit_similarity", "repobench-p": "edit_similarity", "trec": "classification"}


def results_file(
    path: Path,
    runs: Sequence[str] = ("first", "second"),
    tasks: Sequence[str] = ("qasper", "hotpotqa"),
    samples: int = 12,
    *,
    output: str = "answer",
    failed: Iterable[int] = (3,),
    score: float | None = None,
    done: bool = True,
    iterations: int = 1,
    benchmark: str = "longbench",
) -> Path:
    """A file of scored answers: of run r and sample i the score is i / samples + r / 10, up to 1, or ``score``.

    Args:
        failed: numbers of the samples on which every run fails.
        done: whether the runs have come to their end.
    """
    failed = set(failed)
    with Store(path) as store:
        for r, run in enumerate(runs):
            store.begin_run(RunRow(run, run, "hf", "1", {benchmark: 1}, "ab" * 32, {"dtype": "bf16", "n": r}, {}, "1"))
            for task in tasks:
                _write_task(store, run, task, samples, r, output, failed, score, iterations, benchmark)
            if benchmark in BENCHMARKS:
                aggregate_scores(store, run, BENCHMARKS[benchmark])
            if done:
                store.finish_run(run, "done")
    return path


def _write_task(store, run, task, samples, r, output, failed, score, iterations, benchmark) -> None:  # type: ignore[no-untyped-def]
    asked, generations, scores = [], [], []
    metric = _METRICS.get(task, "f1")
    version = BENCHMARKS[benchmark].metric_version if benchmark in BENCHMARKS else 1
    for i in range(samples):
        name = f"{task}-{i:03d}"
        document = f"document {i % 5} of {task}"
        sample = Sample(benchmark, task, name, document, f"question {i}", (f"reference {i}",), "en", 900 * (i + 1))
        asked.append(SampleRow(sample, i))
        for n in range(iterations):
            key = (run, benchmark, task, name, n)
            if i in failed:
                row = GenerationRow(*key, error=f"the card caught fire {output}", error_type="BackendError")
            else:
                row = GenerationRow(
                    *key, output=f"{output} {i} of {run}", reasoning="because" if i % 4 == 0 else None,
                    finish_reason="length" if i % 5 == 0 else "stop", prompt_tokens=1000, output_tokens=10,
                    original_tokens=1000 + 500 * i, truncated=i % 3 == 0, prefill_s=1.0, decode_s=0.5,
                )  # fmt: skip
                value = min(1.0, i / samples + r / 10) if score is None else score
                scores.append(ScoreRow(*key, metric, version, value, output[:50], True))
            generations.append(row)
    store.write(samples=asked, generations=generations, scores=scores)
    if scores and benchmark not in BENCHMARKS:
        mean = math.fsum(row.score for row in scores) / len(scores)
        store.write_results(
            [task_row(run, benchmark, task, metric, len(scores), mean, official=100 * mean, metric_version=version)]
        )


def write_page(path: Path) -> str:
    """Write the page of a results file next to it, and return its address."""
    with Store(path, read_only=True) as store:
        path.with_suffix(".html").write_text("".join(report_page.pieces(store)), "utf-8")
    return path.with_suffix(".html").as_uri()


class Page(HTMLParser):
    """A page taken apart: tags with their attributes, texts outside of style and script, blocks of data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.blocks: dict[str, str] = {}
        self.cells: list[list[str]] = []
        self._open: list[str] = []
        self._block = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        self._open.append(tag)
        self._block = dict(attributes).get("id") or tag
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("script", "style"):
            self.blocks[self._block] = self.blocks.get(self._block, "") + data
            return
        self.texts.append(data)
        if "td" in self._open or "th" in self._open:
            self.cells[-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def ids(self) -> list[str]:
        return [a["id"] or "" for _, a in self.tags if "id" in a]

    def headings(self) -> list[str]:
        return [(a["aria-labelledby"] or "").removesuffix("-title") for tag, a in self.tags if tag == "section"]

    def answers(self) -> list[dict[str, Any]]:
        """What the script would show: an object for each answer."""
        import numpy as np

        names = json.loads(self.blocks["names"])
        data = {name: gzip.decompress(base64.b64decode(self.blocks[f"column-{name}"])) for name in names["columns"]}
        c = {
            name: np.frombuffer(data[name], f"<u{bits // 8}").tolist() if bits else json.loads(data[name])
            for name, bits in names["columns"].items()
        }
        samples = np.cumsum(c["sample"]).tolist()
        of_answers = [text for _, _, *several in c["texts"] for text in several]
        texts = zip(of_answers[::3], of_answers[1::3], of_answers[2::3], strict=True)
        found = []
        for i, mark in enumerate(c["marks"]):
            s = samples[i]
            output, reasoning, extracted = next(texts) if mark & 1 << 15 else (None, None, None)
            found.append({
                "run": names["runs"][c["run"][i]], "task": names["tasks"][c["task"][s]], "id": c["id"][s],
                "iteration": c["iteration"][i], "score": None if c["score"][i] == 0xFFFF else c["score"][i] / 10_000,
                "marks": [name for bit, name in enumerate(names["marks"]) if mark & 1 << bit], "alike": c["alike"][i],
                "question": c["texts"][s][0], "references": c["texts"][s][1],
                "output": output, "reasoning": reasoning, "extracted": extracted,
            })  # fmt: skip
        assert next(texts, None) is None
        return found


def style_and_script(page: str) -> tuple[str, str]:
    ((style,), (script,)) = (re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL) for tag in ("style", "script"))
    return style, script
