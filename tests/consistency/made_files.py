"""Results files that Hypothesis makes: few of them, each with much in it.

A file is drawn as a small description (``MadeFile``), which says all in a failure's message; ``write`` makes the file
of it, through the same Store and engine as ``lbx run``, ``score``, ``judge`` and ``rate``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from lbx.base.records import Sample, sha256_text
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.judge import Round
from lbx.benchmarks.longbench_pro.paper_tables import CATEGORIES
from lbx.benchmarks.registry import BENCHMARKS
from lbx.opinions.aggregation import write_ratings
from lbx.opinions.rating_rows import RatingItemRow, RatingRow, RatingSetRow
from lbx.results import GenerationRow, RunRow, SampleRow, ScoreRow, Store
from lbx.results.scoring.aggregation import aggregate_scores
from lbx.results.scoring.scores import Rescoring, rescore, score_rows
from tests.judged_rounds import PAIR, SCALE, Said, add_judge

Task = tuple[str, str]

_LINES = ("[Answer]\none\ntwo\nthree", "[Answer]\none\nthree", "[Answer]\ntwo", "[Answer]\nfour", "")
_ENGLISH = ("the red cat sat here now", "red cat", "cat dog", "dog", "")
_CHINESE = ("红色的猫坐在这里", "红色的猫", "猫", "狗", "")
_NUMBERS = ("3", "3 or 4", "5", "no number", "")
_CLASSES = ("City", "City Abbreviation", "Abbreviation", "none", "")

_PRO = {
    **dict.fromkeys(("t1.1", "t2.1", "t3.1", "t5.1", "t6.1", "t7.1", "t8.1", "t9.1", "t10.1", "t11.1"), _LINES),
    "t4.1": ("[Answer]\none", "[Answer]\none two", "[Answer]\nfour", "[Answer]\ntwo three", ""),
}
_LVEVAL = (
    "hotpotwikiqa_mixup", "loogle_SD_mixup", "loogle_CR_mixup", "loogle_MIR_mixup", "multifieldqa_en_mixup",
    "multifieldqa_zh_mixup", "factrecall_en", "factrecall_zh", "cmrc_mixup", "lic_mixup", "dureader_mixup",
)  # fmt: skip

_MRCR = tuple(("mrcr", task) for task in ("2needle", "4needle", "8needle"))
_GRAPHWALKS = tuple(("graphwalks", task) for task in ("bfs_128k", "parents_128k", "bfs_1m", "parents_1m"))

_HELMET = tuple(
    ("helmet", f"{name}_{length}")
    for name in ("json_kv", "ruler_niah_mv", "kilt_nq", "icl_nlu", "infbench_qa", "narrativeqa", "multi_lexsum")
    for length in ("8k", "128k")
)
_BABILONG = tuple(("babilong", f"qa{number}_{length}") for length in ("4k", "8k") for number in (1, 2, 3, 4, 6, 8))

_INFINITEBENCH = {
    "passkey": ("77", "77 12", "12", "none", ""),
    "kv_retrieval": ("77", "12 77", "12", "none", ""),
    "longbook_sum_eng": _ENGLISH,
    "longbook_qa_eng": _ENGLISH,
    "longbook_choice_eng": ("A", "the red cat", "B", "none", ""),
    "longbook_qa_chn": _CHINESE,
    "math_calc": ("12 77", "12", "77 12 77", "none", ""),
    "math_find": ("12", "12.5", "77", "none", ""),
}

_OPTIONS = {"longbook_choice_eng": ("the red cat", "A"), "math_calc": ("12", "77")}

_RULER = (
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
    "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2",
)  # fmt: skip
_RULER_LENGTHS = (2048, 4096, 8192, 131_072)

OUTPUTS: Mapping[Task, Sequence[str]] = {
    **{("longbench", task): _ENGLISH for task in ("qasper", "qasper_e", "gov_report_e", "triviaqa", "samsum")},
    ("longbench", "multifieldqa_zh"): _CHINESE,
    **{("longbench", task): _CLASSES for task in ("trec", "lsht", "trec_e")},
    **{("longbench", task): _NUMBERS for task in ("passage_count", "passage_retrieval_en", "passage_retrieval_zh")},
    ("longbench", "lcc"): ("return value", "return val", "ret", "x", ""),
    ("longbench_v2", "mcq"): (
        "The correct answer is (A)", "The correct answer is (B)", "no idea", "The correct answer is (A).", "",
    ),
    **{("longbench_pro", task): outputs for task, outputs in _PRO.items()},
    **{
        ("lveval", f"{dataset}_{level}"): _CHINESE if dataset in _LVEVAL[5:6] + _LVEVAL[7:] else _ENGLISH
        for dataset in _LVEVAL
        for level in ("16k", "32k")
    },
    **{("leval", task): ("A", "B", "A", "C", "") for task in ("quality", "tpo")},
    ("leval", "coursera"): ("AB", "A", "ABC", "C", ""),
    ("leval", "gsm100"): ("The answer is 7", "8", "The answer is 7", "seven", ""),
    ("leval", "codeU"): ("The answer is [1, 2]", "8", "[1, 2]", "[2]", ""),
    ("leval", "topic_retrieval_longchat"): _ENGLISH,
    ("leval", "sci_fi"): (
        "True [fact: False]", "True [fact: True]", "False [fact: False]", "False [fact: True]", "none",
    ),
    ("leval", "financial_qa"): _ENGLISH,
    ("leval", "gov_report_summ"): _ENGLISH,
    ("leval", "meeting_summ"): _ENGLISH,
    **{("needle", f"{kind}_{language}"): ("12 77", "77", "12", "5", "") for kind in ("single", "multikey")
       for language in ("en", "zh")},
    **dict.fromkeys(_MRCR, ("x1the red cat", "x1the cat", "the red cat", "x1", "")),
    **dict.fromkeys(_GRAPHWALKS, ("Final Answer: [aa, bb]", "Final Answer: [aa]", "Final Answer: [cc]", "aa", "")),
    **dict.fromkeys(_HELMET, ("the red cat", "a red cat sat", "red", "dog", "")),
    ("helmet", "msmarco_rerank_8k"): ("3 > 1 > 2", "1 > 3", "2 > 4", "4", ""),
    ("helmet", "alce_asqa_8k"): ("A red cat [1].", "red cat", "red", "dog", ""),
    **dict.fromkeys(_BABILONG, ("in the garden", "garden or office", "Garden. Office", "nowhere", "")),
    ("babilong", "qa5_4k"): ("Mary", "Mary or Bill", "Bill", "nobody", ""),
    **{("infinitebench", task): outputs for task, outputs in _INFINITEBENCH.items()},
    **{("ruler", f"{task}_{length}"): ("12 77", "77", "12", "\x005", "") for length in _RULER_LENGTHS
       for task in _RULER},
    ("mine", "t"): _ENGLISH,
    ("mine", "u"): _ENGLISH,
}  # fmt: skip
"""{task: outputs of it, the first one right}."""

SETS: Mapping[str, Sequence[Task]] = {
    name: [(benchmark, task) for benchmark, task in OUTPUTS if benchmark == family and task in tasks]
    for name, (family, tasks) in {
        "LongBench, some": ("longbench", ("qasper", "multifieldqa_zh", "trec", "lcc")),
        "LongBench, categories": (
            "longbench",
            ("trec", "triviaqa", "samsum", "lsht", "passage_count", "passage_retrieval_en", "passage_retrieval_zh"),
        ),
        "LongBench-E": ("longbench", ("qasper_e", "gov_report_e", "trec_e")),
        "v2": ("longbench_v2", ("mcq",)),
        "Pro, some": ("longbench_pro", ("t1.1", "t4.1", "t6.1")),
        "Pro": ("longbench_pro", tuple(_PRO)),
        "LV-Eval, some": ("lveval", ("hotpotwikiqa_mixup_16k", "hotpotwikiqa_mixup_32k", "dureader_mixup_16k")),
        "LV-Eval, a level": ("lveval", tuple(f"{dataset}_16k" for dataset in _LVEVAL)),
        "L-Eval, some": ("leval", ("topic_retrieval_longchat", "sci_fi", "financial_qa", "gov_report_summ")),
        "L-Eval, closed": ("leval", ("quality", "tpo", "coursera", "gsm100", "codeU", "sci_fi")),
        "needle": ("needle", ("single_en", "single_zh", "multikey_en")),
        "MRCR": ("mrcr", ("2needle", "4needle", "8needle")),
        "GraphWalks, some": ("graphwalks", ("bfs_128k", "parents_128k", "bfs_1m")),
        "HELMET, some": ("helmet", ("json_kv_8k", "kilt_nq_8k", "kilt_nq_128k", "infbench_qa_8k", "msmarco_rerank_8k")),
        "HELMET, judged": ("helmet", ("narrativeqa_8k", "multi_lexsum_128k", "alce_asqa_8k", "icl_nlu_128k")),
        "BABILong, some": ("babilong", ("qa1_4k", "qa6_4k", "qa8_8k", "qa1_8k")),
        "BABILong, a length": ("babilong", ("qa1_4k", "qa2_4k", "qa3_4k", "qa4_4k", "qa5_4k", "qa8_4k")),
        "InfiniteBench, some": ("infinitebench", ("passkey", "longbook_qa_eng", "longbook_qa_chn", "math_find")),
        "InfiniteBench, eight": ("infinitebench", tuple(_INFINITEBENCH)),
        "RULER, some": ("ruler", ("vt_2048", "vt_4096", "qa_1_4096", "qa_2_8192", "qa_1_131072")),
        "RULER, a length": ("ruler", tuple(f"{task}_4096" for task in _RULER)),
        "own": ("mine", ("t", "u")),
    }.items()
}  # fmt: skip

_IN_CHARACTERS = {True: ("longbench", "lveval", "needle"), False: ("mrcr", "graphwalks")}
"""{whether a question is Chinese: benchmarks that count its document in characters}."""

NAMES = (
    "model", "other", "a|b & c%_{}", "模型", "x vs y", "judge j: z", "=1+1", "**bold** <b>", "0.5", "a, b", "*",
)  # fmt: skip


def made_sample(task: Task, number: int, documents: int) -> Sample:
    """The question of this number, of as many documents; with all that any family's numbers are made of."""
    benchmark, name = task
    pick = number * 7 + len(name)
    metas: Mapping[str, Mapping[str, Any]] = {
        "longbench": {"all_classes": ["City", "Abbreviation"]},
        "longbench_v2": {
            "difficulty": ("easy", "hard")[pick % 2], "length": ("short", "medium", "long")[pick % 3],
            "domain": ("Multi-Document QA", "Code Repository Understanding", "Another")[pick % 3],
            "sub_domain": ("Legal", "Code repo QA")[pick // 3 % 2],
            "choices": {"A": "one", "B": "two", "C": "three", "D": "four"},
        },
        "longbench_pro": {
            "token_length": CATEGORIES["length"][(number + len(name)) % 6], "row": number * 100 + _place(name),
            "contextual_requirement": CATEGORIES["requirement"][pick % 2], "secondary_task": name,
            "difficulty": CATEGORIES["difficulty"][(number + _place(name)) % 4],
            "primary_task": CATEGORIES["primary_task"][_place(name)],
        },
        "lveval": {"answer_keywords": "red cat"},
        "leval": {
            "evaluation": {"financial_qa": "f1", "gov_report_summ": "rouge", "meeting_summ": "rouge"}.get(name, "exam"),
            "topic": number % 3,
        },
        "needle": {"depth": (0.0, 0.5)[number % 2], "needles": 1, "keys": ["k"]},
        "mrcr": {"prefix": "x1", "message_lengths": []},
        "graphwalks": {},
        "helmet": {"labels": {"3": 2, "1": 1}, "golds": [["red cat"], ["dog"]]},
        "babilong": {},
        "infinitebench": {},
        "ruler": {},
        "mine": {"metrics": ["f1", "exact_match"] if name == "t" else ["exact_match", "f1"]},
    }  # fmt: skip
    right = OUTPUTS[task][0]
    chinese = right == _CHINESE[0] or name.endswith("_zh") or (benchmark == "longbench_pro" and number % 2)
    references = {
        "longbench_v2": ("A",), "longbench_pro": ("one", "two", "three"), "needle": ("12", "77"),
        "graphwalks": ("aa", "bb"), "ruler": ("12", "77"), "babilong": ("Mary" if name == "qa5_4k" else "garden",),
        "infinitebench": _OPTIONS.get(name, (right,)),
    }  # fmt: skip
    special = {"passage_retrieval_en": "Paragraph 3", "passage_retrieval_zh": "段落3", "quality": "(A) yes"}
    return Sample(
        benchmark, name, f"s{number}",
        # At other levels LV-Eval has the same questions on other documents.
        f"document {number % documents} of {name if benchmark == 'lveval' else benchmark}",
        f"Question {number}?", references.get(benchmark, (special.get(name, right),)),
        "zh" if chinese else "en", (900, 4000, 8000, 1024, 1025, 0)[pick % 6] * (10 if benchmark == "mrcr" else 1),
        "characters" if benchmark in _IN_CHARACTERS[bool(chinese)] else "words",
        metas[benchmark],
    )  # fmt: skip


def _place(name: str) -> int:
    return list(_PRO).index(name) if name in _PRO else 0


@dataclass(frozen=True)
class MadeRun:
    """A run of a made file.

    Attributes:
        codes: what it says, question by question, again from the first where there are more: the place of an output,
            7 where the model failed, 8 where the prompt was empty, 9 where it was not asked.
        tasks: how many of the file's tasks it has, from the first or, where negative, from the last on.
        iterations: how often each question is asked; ``uneven``: every other one less often by one.
        counts: how many samples more than it asked the bundle has of each task; None: nobody counted.
        known: whether the backend measured tokens, truncation, reasoning; an import does not.
        versions: of the metrics: "today" or "old".
        state: "done"; "running", where nothing was added up; "continued", which was added up half-way and still runs;
            "interrupted"; "rescored".
    """

    name: str
    model: str
    codes: tuple[int, ...]
    tasks: int = 99
    iterations: int = 1
    uneven: bool = False
    counts: int | None = None
    known: bool = True
    versions: str = "today"
    state: str = "done"
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class MadeFile:
    """A results file: its tasks, how many questions on how many documents each has, runs, judges and ratings.

    Attributes:
        judged: codes of what a judge says, of the first run against the second, or alone; () for no judge.
        rated: codes of what people say, likewise.
        similarities: whether an embedding model scored LongBench Pro's summaries.
    """

    tasks: tuple[Task, ...]
    questions: int
    documents: int
    runs: tuple[MadeRun, ...]
    judged: tuple[int, ...] = ()
    rated: tuple[int, ...] = ()
    in_pairs: bool = True
    similarities: bool = True


_CODES = st.lists(st.sampled_from((0, 0, 0, 1, 2, 3, 4, 7, 8, 9)), min_size=1, max_size=11).map(tuple)


@st.composite
def made_runs(draw: st.DrawFn) -> MadeRun:
    ways = st.sampled_from(((), (("thinking", "true"),), (("cot", "true"),), (("seed", "1"),), (("seed", "2"),)))
    return MadeRun(
        draw(st.sampled_from(NAMES)),
        draw(st.sampled_from(NAMES)),
        draw(_CODES),
        draw(st.sampled_from((99, 1, -1))),
        draw(st.sampled_from((1, 1, 2, 3))),
        draw(st.booleans()),
        draw(st.sampled_from((None, 0, 0, 2))),
        draw(st.booleans()),
        draw(st.sampled_from(("today", "today", "old"))),
        draw(st.sampled_from(("done", "done", "running", "continued", "interrupted", "rescored"))),
        draw(ways),
    )


@st.composite
def made_files(draw: st.DrawFn) -> MadeFile:
    sets = draw(st.lists(st.sampled_from(sorted(SETS)), min_size=1, max_size=3, unique=True))
    runs = draw(st.lists(made_runs(), min_size=1, max_size=4, unique_by=lambda run: run.name))
    opinions = st.just(()) | st.lists(st.integers(0, 5), min_size=1, max_size=7).map(tuple)
    return MadeFile(
        tuple(dict.fromkeys(task for name in sets for task in SETS[name])),
        draw(st.sampled_from((1, 2, 3, 5, 13))),
        draw(st.sampled_from((1, 2, 4, 99))),
        tuple(runs),
        draw(opinions),
        draw(opinions),
        draw(st.booleans()),
        draw(st.booleans()),
    )


# Writing


class Older:
    """A family as an older lbx had it, which scored otherwise."""

    def __new__(cls, family: Benchmark) -> Benchmark:  # type: ignore[misc]
        older = copy.copy(family)
        older.metric_version = family.metric_version - 1
        return older


def write(path: Path, made: MadeFile) -> Path:
    with Store(path) as store:
        for run in made.runs:
            _write_run(store, made, run)
        if made.judged:
            _write_judge(store, made)
        if made.rated:
            _write_ratings(store, made)
    return path


def asked(made: MadeFile, run: MadeRun) -> dict[Task, list[tuple[Sample, int, int]]]:
    """{task: (sample, iteration, code) of each question that a run was asked}."""
    tasks = made.tasks[: run.tasks] if run.tasks > 0 else made.tasks[run.tasks :]
    found: dict[Task, list[tuple[Sample, int, int]]] = {}
    for place, task in enumerate(tasks):
        for number in range(made.questions):
            sample = made_sample(task, number, made.documents)
            for iteration in range(run.iterations - (run.uneven and number % 2)):
                code = run.codes[(place * 5 + number * 3 + iteration) % len(run.codes)]
                if code != 9:
                    found.setdefault(task, []).append((sample, iteration, code))
    return found


def _write_run(store: Store, made: MadeFile, run: MadeRun) -> None:
    rows = asked(made, run)
    counts = None if run.counts is None else {
        f"{benchmark}/{task}": len({sample.sample_id for sample, _, _ in some}) + run.counts
        for (benchmark, task), some in rows.items()
    }  # fmt: skip
    settings = {"run": run.name, **dict(run.settings)}
    store.begin_run(RunRow(
        run.name, run.model, "hf" if run.known else "import", "1", {}, "digest", settings, {}, "0.1",
        task_samples=counts,
    ))  # fmt: skip
    parts = [rows]
    if run.state == "continued":  # a limit first, then more
        parts = [{task: some[::2] for task, some in rows.items()}, {task: some[1::2] for task, some in rows.items()}]
    for at, part in enumerate(parts):
        _write_answers(store, made, run, part)
        if run.state not in ("running", "continued") or at < len(parts) - 1:
            _add_up(store, run, part)
    if run.state in ("running", "continued"):
        return
    if run.state == "rescored" and run.versions != "old" and not made.similarities:
        rescore(store, Rescoring(BENCHMARKS, [run.name], processes=1))
    store.finish_run(run.name, "interrupted" if run.state == "interrupted" else "done")


def _add_up(store: Store, run: MadeRun, rows: Mapping[Task, object]) -> None:
    for name in dict.fromkeys(benchmark for benchmark, _ in rows):
        aggregate_scores(store, run.name, _family(run, name))


def _family(run: MadeRun, name: str) -> Benchmark:
    return BENCHMARKS[name] if run.versions == "today" else Older(BENCHMARKS[name])


def _write_answers(
    store: Store, made: MadeFile, run: MadeRun, rows: Mapping[Task, Sequence[tuple[Sample, int, int]]]
) -> None:
    samples, generations, scores = [], [], []
    for task, some in rows.items():
        family = _family(run, task[0])
        for sample, iteration, code in some:
            key = (*sample.key[:3], iteration)
            output = OUTPUTS[task][code] if code < 7 else None
            samples.append(SampleRow(sample, int(sample.sample_id[1:])))
            generations.append(_generation(run, sample, iteration, output, code))
            if output is not None:
                scores += _scores(family, run, sample, output, key, similarities=made.similarities)
    store.write(samples=samples, generations=generations, scores=scores)


def _scores(
    family: Benchmark, run: MadeRun, sample: Sample, output: str, key: Any, *, similarities: bool
) -> Iterator[ScoreRow]:
    likeness = 0.7 if similarities and family.similarity_input(sample, output) else None
    made = family.score(sample, output, similarity=likeness)
    older = family.metric_version != BENCHMARKS[family.name].metric_version
    for row in score_rows(run.name, key, family, made):
        yield replace(row, score=row.score / 2) if older and row.metric != "empty" else row


def _generation(run: MadeRun, sample: Sample, iteration: int, output: str | None, code: int) -> GenerationRow:
    number = int(sample.sample_id[1:]) + iteration
    failure = {7: ("it broke", "BackendError"), 8: ("nothing is left", "EmptyPromptError")}.get(code, (None, None))
    told: dict[str, Any] = {}
    if run.known and output is not None:
        cut = number % 3 == 0
        told = {
            "finish_reason": "length" if number % 4 == 1 else "stop", "truncated": cut, "bos_tokens": 1 + number % 2,
            "prompt_tokens": 1000 + number, "original_tokens": 1000 + number + 600 * cut * (1 + number % 5),
            "tokens_cut": 600 * (1 + number % 5) if cut else 0, "reference_cut": number % 6 == 0 if cut else None,
            "cached_tokens": 100 * (number % 4), "output_tokens": 10 + number, "prefill_s": 1.5 + number,
            "decode_s": 0.5, "reasoning_closed": (None, True, False)[number % 3], "stop_in_reasoning": number % 5 == 4,
        }  # fmt: skip
    return GenerationRow(
        run.name, *sample.key[:3], iteration, output=output, error=failure[0], error_type=failure[1], **told
    )


# Judges and people


def _both(made: MadeFile) -> list[tuple[Sample, str, str]]:
    """Questions that the first two runs answered, with the answers of each; of one run its own alone."""
    held: list[dict[tuple[Task, str], tuple[Sample, str]]] = []
    for run in made.runs[:2]:
        held.append({
            (task, sample.sample_id): (sample, OUTPUTS[task][code])
            for task, some in asked(made, run).items()
            for sample, iteration, code in some
            if iteration == 0 and code < 7
        })  # fmt: skip
    return [(sample, output, held[-1][key][1]) for key, (sample, output) in held[0].items() if key in held[-1]]


def _write_judge(store: Store, made: MadeFile) -> None:
    pairs = made.in_pairs and len(made.runs) > 1
    texts = (
        ("[[A]]", "[[B]]", "[[C]]", "no verdict", "[[A]] or [[B]]", "") if pairs
        else ("[[1]]", "[[5]]", "[[3.5]]", "no rating", "[[2]] or [[4]]", "[[9]]")
    )  # fmt: skip
    said = []
    for number, (sample, one, other) in enumerate(_both(made)):
        for order in (True, False) if pairs else (True,):
            against: dict[str, Any] = {"against_run_id": made.runs[1].name, "against": other} if pairs else {}
            asked_of = Round(
                sample.benchmark, sample.task, sample.sample_id, sample.question, sample.references, made.runs[0].name,
                one, answer_first=order, document_sha256=sha256_text(sample.context),
                marks=(("LLM",), ("human",), ("LLM", "LLM"))[number % 3] if sample.benchmark == "leval" else (),
                **against,
            )  # fmt: skip
            code = made.judged[(2 * number + order) % len(made.judged)]
            said.append(Said(asked_of, texts[code], error="broke" if number % 7 == 6 else None, cut=code == 3))
    if said:
        add_judge(store, "the judge", said, rubric=PAIR if pairs else SCALE)


def _write_ratings(store: Store, made: MadeFile) -> None:
    pairs = made.in_pairs and len(made.runs) > 1
    questions = [sample for sample, _, _ in _both(made)]
    items = [
        RatingItemRow("set", n, *sample.key[:3], n) for n, sample in enumerate(questions)
    ]  # fmt: skip
    rows = []
    for n in range(len(items)):
        for place, rater in enumerate(("ann", "bob")):
            code = made.rated[(n * 2 + place) % len(made.rated)]
            for revision in range(1 + (code == 4)):
                what: dict[str, Any] = (
                    {"against_run_id": made.runs[1].name,
                     "verdict": ("answer", "against", "tie", "both_bad", "answer", None)[code - revision]}
                    if pairs else {"score": (1.0, 2.0, 3.0, 5.0, 4.0, None)[code - revision]}
                )  # fmt: skip
                rows.append(RatingRow("set", n, rater, made.runs[0].name, revision=revision, **what))
    runs = [run.name for run in made.runs[: 1 + pairs]]
    scale = (None, None) if pairs else (1.0, 5.0)
    write_ratings(store, [RatingSetRow("set", "pair" if pairs else "score", "human", runs, *scale)], items, rows)
