"""A results file with rows in every table that an attestation binds: two runs, a judge, ratings, retrieved chunks."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import duckdb

from lbx.base.records import Chunk, JudgedAnswer, RoundSample, Sample, sha256_text
from lbx.benchmarks.registry import BENCHMARKS
from lbx.bundle.signing.signature import RESULTS_NAMESPACE
from lbx.bundle.signing.trust import Trust
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.attesting.attestation import attest_results, attestation_path
from lbx.results.attesting.checking import ResultsReport, check_results
from lbx.results.file.caches import store_chunks
from lbx.results.scoring.aggregation import aggregate_scores
from tests.page_parts import results_file

TASK = ("longbench", "qasper")
DOCUMENT = "The kettle is blue."
RETRIEVER = "bm25 500"
JUDGED = """
    UPDATE runs SET settings = '{"dtype":"bf16","n":0,"retriever":"bm25 500","weights":"cd"}' WHERE run_id = 'first';
    UPDATE generations SET output_ids = [1, 2, 3], reasoning = 'I think', steps = '[{"output":"a","prompt":"b"}]',
        prefill_s = 0.1, decode_s = 1e-7, seed = 1, source_row = '{"pred": 1}' WHERE error IS NULL;
"""


def make_key(folder: Path, name: str = "key") -> Path:
    """A key pair without a passphrase."""
    key = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"{name}@lab", "-f", key], check=True)
    return key


def results_to_attest(path: Path) -> Path:
    """The file. Texts have choices in their meta, and the judge and the raters saw both runs."""
    results_file(path, tasks=("qasper",), samples=6)
    with duckdb.connect(str(path)) as connection:
        connection.execute(JUDGED)
    meta = {"choices": {"A": "blue", "B": "red"}, "category": "qa"}
    with Store(path) as store:
        samples = [
            Sample(*TASK, f"extra {n}", DOCUMENT, f"Which colour, {n}?", ("blue",), length=4, meta=meta)
            for n in range(3)
        ]
        store.write(
            samples=[SampleRow(sample, 10 + n) for n, sample in enumerate(samples)],
            generations=[
                GenerationRow(run, *sample.key, output=f"{run}: blue")
                for run in ("first", "second")
                for sample in samples
            ],
            scores=[
                ScoreRow(run, *sample.key, "qa_f1", 1, score, "blue", True)
                for run, score in (("first", 0.0), ("second", 1 / 3))
                for sample in samples
            ],
        )
        for run in ("first", "second"):
            aggregate_scores(store, run, BENCHMARKS["longbench"])
        store_chunks(store, RETRIEVER, [(samples[0], [Chunk(n, n, 0.5, f"chunk {n}") for n in range(2)])])
        _judge(store)
        write_ratings(
            store,
            sets=[RatingSetRow("pairs", "pair", "all", ["first", "second"])],
            items=[RatingItemRow("pairs", 0, *TASK, "extra 0", 0, {"marks": ["human"], "note": "a text"})],
            ratings=[
                RatingRow("pairs", 0, "ann", "first", against_run_id="second", verdict="answer", comment="better"),
                RatingRow("pairs", 0, "bob", "first", against_run_id="second", verdict="tie", seconds=2.5),
            ],
        )
    return path


def _judge(store: Store) -> None:
    settings = {"rubric": "leval", "rubric_sha256": "", "rubric_source": "", "orders": "both"}
    store.begin_run(RunRow("umpire", "umpire", "hf", "1", {"judge": 1}, "", settings, {}, "1"))
    first, second = (sha256_text(f"{run}: blue") for run in ("first", "second"))
    pair = JudgedAnswer(
        kind="pair", benchmark=TASK[0], task=TASK[1], sample_id="", run_id="first", against_run_id="second",
        answer_first=True, marks=("LLM", "human"), answer_sha256=first, against_sha256=second,
        verdicts=(("[[A]]", "first"), ("[[B]]", "second")),
    )  # fmt: skip
    alone = JudgedAnswer(
        kind="score", benchmark=TASK[0], task=TASK[1], sample_id="", run_id="second", answer_sha256=second,
        pattern="[[{rating}]]", scale_low=1.0, scale_high=5.0,
    )  # fmt: skip
    for number, about in enumerate((pair, pair, alone)):
        sample = RoundSample(
            "judge", "leval", f"round {number}", "", "Which is better?", ("blue",), meta={"prompt": "a text"},
            subject=replace(about, sample_id=f"extra {number}"),
        )  # fmt: skip
        store.write(
            samples=[SampleRow(sample, number)],
            generations=[GenerationRow("umpire", *sample.key, output="The first [[A]]")],
            scores=[ScoreRow("umpire", *sample.key, "verdict", 1, 1.0, "answer", True)],
        )
    store.finish_run("umpire", "done")


def attest(path: Path, key: Path, *runs: str) -> Path:
    """The attestation of a file, in its usual place."""
    attest_results(path, attestation_path(path), key, runs)
    return attestation_path(path)


def check(path: Path, key: Path, *runs: str, attestation: Path | None = None) -> ResultsReport:
    """Evidence on a file."""
    trust = Trust.from_key_file(key.with_suffix(".pub"), namespace=RESULTS_NAMESPACE)
    return check_results(path, attestation or attestation_path(path), trust, runs)


def changed_rows(report: ResultsReport) -> list[tuple[str, str, tuple[object, ...], tuple[str, ...]]]:
    """(kind, table, key, columns) of each change."""
    return [(change.kind, change.table, tuple(change.key.values()), tuple(change.columns)) for change in report.changes]
