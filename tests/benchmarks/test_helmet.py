"""HELMET on made-up rows and a stand-in of its prompts; no real row has been seen here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.inputs import link_tree
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, NoDataError
from lbx.base.number import task_number
from lbx.base.records import Sample, ScoredSample, Truncation
from lbx.benchmarks.base.paper_tables import BoardEntry
from lbx.benchmarks.helmet.tables import BOARDS
from lbx.benchmarks.helmet.tasks import CATEGORIES, DATASETS, LENGTHS, SELECTIONS, TASKS
from lbx.benchmarks.registry import BENCHMARKS
from lbx.benchmarks.retrieval.chunks import ChunkTokenizer
from lbx.engine.model import BackendInfo
from lbx.options.asking import Mode
from lbx.results import Store
from lbx.running.parity import Parity, ParityPrompt, PromptParity, summarise_by_task
from tests.backends.endpoint_servers import ScriptedServer, closing_all
from tests.benchmarks.helmet_rows import (
    PROMPT_FILE,
    Row,
    as_lines,
    asqa_row,
    book_rows,
    file_of,
    json_kv_row,
    kilt_row,
    made_content,
    msmarco_row,
    ruler_row,
)
from tests.command_line import Lbx
from tests.golden.helmet_draws import FOLDER, SOURCE, read_lines

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
HELMET = BENCHMARKS["helmet"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def bundle(make_bundle: MakeBundle, tmp_path: Path) -> Bundle:
    return make_bundle(made_content(tmp_path / "made"))


def first(bundle: Bundle, task: str) -> Sample:
    return next(iter(HELMET.samples(bundle, task)))


def test_tasks() -> None:
    assert len(TASKS) == 21 * 5 and TASKS[0] == "json_kv_8k"
    assert {task for tasks in SELECTIONS.values() for task in tasks} == set(TASKS)
    assert list(SELECTIONS)[4] == "helmet_rerank" and len(SELECTIONS) == len(CATEGORIES) == 7


def test_tasks_of_a_bundle(bundle: Bundle) -> None:
    assert {task.name: task.samples for task in HELMET.tasks(bundle)} == {
        "json_kv_8k": 5, "ruler_niah_mv_8k": 3, "kilt_nq_8k": 8, "kilt_popqa_8k": 3, "msmarco_rerank_8k": 3,
        **{f"alce_asqa_{label}": 3 for label in LENGTHS}, **{f"icl_nlu_{label}": 6 for label in LENGTHS},
    }  # fmt: skip
    for task in HELMET.tasks(bundle):
        samples = list(HELMET.samples(bundle, task.name))
        assert len(samples) == task.samples == len({sample.sample_id for sample in samples})
        assert all(sample.context not in json.dumps(dict(sample.meta)) for sample in samples), (
            "documents are not stored"
        )


def test_prompts(bundle: Bundle) -> None:
    kv = first(bundle, "json_kv_8k")
    prompt = HELMET.prompt(bundle, kv, Mode(context_window=32768))
    demos = "Key a= b\n\nKey c= d\n\n"
    assert prompt.with_prefix_in_text.text == f"{kv.context}\n{demos}Key {kv.question}\nCorresponding value:"
    assert (prompt.document, prompt.chat, prompt.max_new_tokens) == (kv.context, False, 100)
    assert (prompt.truncation, prompt.limits) == (Truncation.DOCUMENT_END_ONCE, {32768: 8192 - 100})
    assert HELMET.prompt(bundle, kv, Mode(context_window=4096)).limits == {4096: 3996}
    assert HELMET.prompt(bundle, kv, Mode(context_window=64)).limits == {}
    niah = HELMET.prompt(bundle, first(bundle, "ruler_niah_mv_8k"))
    assert niah.after == "\nof door?" and niah.answer_prefix == "\nThe numbers of door are"
    cited = HELMET.prompt(bundle, first(bundle, "alce_asqa_8k"))
    assert cited.chat and not cited.answer_prefix and cited.text.count("Cite. D") == 2
    assert "(30) T 29" in cited.text and "(31)" not in cited.text
    icl = first(bundle, "icl_nlu_8k")
    assert HELMET.prompt(bundle, icl).before == "Write {label}.\n" and icl.context.count(" -> ") == 510


def test_models_without_a_template_begin_with_the_answers_beginning(bundle: Bundle) -> None:
    """The authors' prompt_template, and the text before the output that eval.py scores."""
    sample, base, chat = first(bundle, "alce_asqa_8k"), Mode(chat_template=False), Mode()
    prompt = HELMET.prompt(bundle, sample, base)
    assert (prompt.chat, prompt.answer_prefix) == (False, "\n\nAnswer:")
    assert prompt.text == HELMET.prompt(bundle, sample, chat).text
    assert HELMET.next_step(bundle, sample, base, [" A red cat."]) == "Answer: A red cat."
    assert HELMET.next_step(bundle, sample, chat, [" A red cat."]) == " A red cat."
    assert HELMET.next_step(bundle, sample, base, ["\n"]) == "Answer:\n"
    kv = first(bundle, "json_kv_8k")
    assert HELMET.prompt(bundle, kv, base) == HELMET.prompt(bundle, kv, chat)
    assert HELMET.next_step(bundle, kv, chat, ["x"]) == "Corresponding value:x", "no template for any model"


@pytest.mark.skipif(not (FOLDER.is_dir() and SOURCE.is_file()), reason="needs the golden data in ../shared")
def test_the_texts_that_the_authors_score(make_bundle: MakeBundle) -> None:
    """Output with or without the beginning of the answer, by whether the model has a template."""
    bundle = make_bundle({"files/princeton-nlp/HELMET/data.py": SOURCE})
    compared = set()
    for record in read_lines("scores"):
        name = next((name for name in DATASETS if record["dataset"].startswith(name) and DATASETS[name].chat), "")
        if name and not record["thinking"]:
            sample = Sample("helmet", f"{name}_8k", "0", "", "", (), meta={"fields": {}})
            mode = Mode(chat_template=record["chat"])
            assert HELMET.next_step(bundle, sample, mode, [record["raw_output"]]) == record["scored_output"]
            compared.add((name, record["chat"], not record["raw_output"].strip()))
    assert len(compared) > 15, compared


def test_an_empty_answer_is_marked_though_its_beginning_is_scored(tmp_path: Path) -> None:
    """A model without a chat template, whose answers begin with "Answer:", asked in a chat category and another."""
    lbx = Lbx()
    bundle, results = unpacked(lbx, tmp_path), tmp_path / "r.duckdb"
    card = scripted(tmp_path, 100_000, {"*": " "})
    lbx.ok(
        "run", "--bundle", bundle, "--model", card, "-o", results, "--tasks", "helmet/alce_asqa_8k,helmet/json_kv_8k"
    )
    with Store(results, read_only=True) as store:
        outputs = store.query("SELECT DISTINCT output FROM generations ORDER BY ALL").rows
    assert outputs == [("Answer: ",), ("Corresponding value: ",)]
    for kept in ((), ("--keep-answers",)):
        bare = tmp_path / f"bare{len(kept)}.duckdb"
        lbx.ok("runs", "extract", results, "--without-texts", *kept, "-o", bare)
        for path in (results, bare):
            with Store(path, read_only=True) as store:
                marked = store.query("SELECT task, n, empty_answers FROM guards ORDER BY ALL").rows
            assert marked == [("alce_asqa_8k", 3, 3), ("json_kv_8k", 5, 5)]


def test_demonstrations_of_a_question_are_the_same_at_every_depth(bundle: Bundle) -> None:
    samples = list(HELMET.samples(bundle, "kilt_nq_8k"))
    assert [sample.sample_id for sample in samples[:2]] == ["q0-0", "q0-1"]
    assert all(
        one.meta["fields"] == other.meta["fields"] for one, other in zip(samples[::2], samples[1::2], strict=True)
    )
    assert len({sample.meta["fields"]["demos"] for sample in samples}) > 1
    assert HELMET.cluster(samples[0], "a") == HELMET.cluster(samples[1], "b") == "kilt_nq/q0"
    for sample in HELMET.samples(bundle, "kilt_popqa_8k"):
        assert "Question 2" not in sample.question and sample.question not in sample.meta["fields"]["demos"]


def score(bundle: Bundle, task: str, output: str) -> float:
    return HELMET.score(first(bundle, task), output)[0].score


def test_scores_count_the_beginning_of_the_answer(bundle: Bundle) -> None:
    sample = first(bundle, "json_kv_8k")
    scores = {one.metric: one for one in HELMET.score(sample, f" {sample.references[0]}\nx")}
    assert (scores["substring_exact_match"].score, scores["exact_match"].score) == (1.0, 1.0)
    assert scores["exact_match"].extracted == sample.references[0]
    assert score(bundle, "ruler_niah_mv_8k", "12") == 0.5 and score(bundle, "ruler_niah_mv_8k", "") == 0.0
    assert score(bundle, "alce_asqa_8k", "A red [1] cat [2].") == 0.5
    ranking = first(bundle, "msmarco_rerank_8k").references[0]
    assert score(bundle, "msmarco_rerank_8k", ranking) == 1.0 > score(bundle, "msmarco_rerank_8k", ranking[::-1])
    label = first(bundle, "icl_nlu_8k").references[0]
    assert score(bundle, "icl_nlu_8k", f" {label}.") == 1.0 > score(bundle, "icl_nlu_8k", f" 0{label}")


def test_an_empty_answer_is_right_where_the_option_is_a() -> None:
    for letter, expected in (("A", 1.0), ("B", 0.0)):
        sample = Sample("helmet", "infbench_choice_8k", "0", "", "", (letter, f"{letter}. A red cat"))
        assert [HELMET.score(sample, text)[0].score for text in ("", f"So {letter}. a red CAT!")] == [expected, 1.0]


MISSING = object()


@pytest.mark.parametrize(
    ("dataset", "number", "row", "what"),
    [
        ("json_kv", 105, json_kv_row(1, answer=None), "the field 'answer' is NoneType, not str"),
        ("json_kv", 105, json_kv_row(1, demos=[["a"]]), "the field 'demos' must be a list of pairs of texts"),
        ("ruler_niah_mv", 8192, ruler_row(1, answer=[]), "the field 'answer' must be a list of at least one text"),
        ("ruler_niah_mv", 8192, ruler_row(1, answer=[3]), "the field 'answer' must be a list of at least one text"),
        ("ruler_niah_mv", 8192, {"context": "hay", "answer": ["a"]}, "cannot fill in a template: 'type_needle_v'"),
        ("kilt_nq", 50, kilt_row(9, answers="a"), "the field 'answers' is str, not list"),
        ("kilt_nq", 50, kilt_row(9, ctxs=["text"]), "the field 'ctxs' must be a list of objects"),
        ("kilt_nq", 50, kilt_row(9, ctxs=[{"text": "t"}]), "the field 'title' is missing"),
        ("kilt_nq", 50, kilt_row(9, id=7), "the ids of its rows are partly text, partly numbers"),
        ("kilt_popqa", 50, kilt_row(9, s_pop=0), "the field 's_pop' must be a number above 0"),
        ("kilt_popqa", 50, kilt_row(9, s_pop="5"), "the field 's_pop' must be a number above 0"),
        ("msmarco_rerank", 50, msmarco_row(9, qid=9), "the field 'qid' is int, not str"),
        (
            "msmarco_rerank",
            50,
            msmarco_row(9, ctxs=[{"id": "1", "text": "t", "label": "2"}]),
            "the field 'label' is str",
        ),
    ],
)
def test_damaged_rows(dataset: str, number: int, row: Row, what: str, make_bundle: MakeBundle, tmp_path: Path) -> None:
    content = made_content(tmp_path / "made")
    place = file_of(dataset, number)
    good = content[place]
    assert isinstance(good, bytes)
    bundle = make_bundle({**content, place: good + as_lines([row])})
    with pytest.raises(BundleError, match=f"damaged: {re.escape(what)}"):
        list(HELMET.samples(bundle, f"{dataset}_8k"))


def test_damaged_texts_and_demonstrations(make_bundle: MakeBundle, tmp_path: Path) -> None:
    content = {place: one for place, one in made_content(tmp_path / "made").items() if isinstance(one, bytes)}
    demos = {**content, file_of("kilt_nq", 0, demos=True): as_lines([kilt_row(10)])}
    prompts = {**PROMPT_FILE, "doc_prompt": "{number} {text}"}
    for changed, task, what in (
        (demos, "kilt_nq_8k", "it has fewer than 2 keys"),
        ({**content, file_of("alce_asqa", 0): json.dumps([asqa_row(1, qa_pairs=["x"])]).encode()}, "alce_asqa_8k",
         "the field 'qa_pairs' must be a list of objects"),
        ({**content, "files/princeton-nlp/HELMET/prompts/asqa_revised.json": json.dumps(prompts).encode()},
         "alce_asqa_8k", "cannot fill in a template: 'number'"),
        ({**content, "files/princeton-nlp/HELMET/data.py": b"def load_json_kv(): pass"}, "json_kv_8k",
         "load_json_kv contains 0 texts, and text 14 is missing"),
        ({**content, "files/princeton-nlp/HELMET/data.py": b"def ("}, "json_kv_8k", "it is not valid Python"),
    ):  # fmt: skip
        with pytest.raises(BundleError, match=re.escape(what)):
            list(HELMET.samples(make_bundle(changed), task))


def test_a_bundle_without_the_data(make_bundle: MakeBundle, tmp_path: Path) -> None:
    empty = make_bundle({"files/other": b""})
    assert HELMET.tasks(empty) == []
    script = {
        "files/princeton-nlp/HELMET/data.py": made_content(tmp_path / "made")["files/princeton-nlp/HELMET/data.py"]
    }
    bundle = make_bundle(script)
    for task, what in (
        ("json_kv_8k", "princeton-nlp/HELMET, data/json_kv/test_k105_dep6.jsonl"),
        ("icl_nlu_8k", "xingkunliuxtracta/nlu_evaluation_data, default/train"),
        ("infbench_qa_8k", "the tokenizer of meta-llama/Llama-2-7b-hf"),
    ):
        with pytest.raises(NoDataError, match=f"does not contain {what}") as caught:
            list(HELMET.samples(bundle, task))
        assert caught.value.command == "lbx bundle bundle/helmet.toml bundle/helmet_hub.toml bundle/infinitebench.toml"


@pytest.fixture
def with_books(make_bundle: MakeBundle, tmp_path: Path) -> Bundle:
    """Bundle with InfiniteBench's books. The demo's tokenizer stands in for Llama 2's."""
    pytest.importorskip("tokenizers", reason="needs lbx[hf]")
    content = made_content(tmp_path / "made")
    short = {"id": 9, "context": "A short book.", "input": "Q9", "answer": ["z"], "options": ["x", "y", "z", "w"]}
    rows = [*book_rows({1: "x", 2: "y", 3: "z"}), short]
    content |= {f"hub:xinrongzhang2022/InfiniteBench/longbook_{kind}_eng.jsonl": as_lines(rows)
                for kind in ("qa", "choice", "sum")}  # fmt: skip
    bundle = make_bundle(content)
    folder = bundle.root / "data/hub/models--meta-llama--Llama-2-7b-hf"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("0" * 40)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    link_tree(ROOT / "models/demo/hf/tokenizer.json", folder / "snapshots" / ("0" * 40) / "tokenizer.json")
    return bundle


def test_books_are_cut_by_the_tokenizer_in_the_bundle(with_books: Bundle) -> None:
    bundle = with_books
    samples = list(HELMET.samples(bundle, "infbench_choice_8k"))
    assert sorted(sample.sample_id for sample in samples) == ["1", "2", "3"]
    assert all(sample.context.endswith(" (cut)") and 5_000 < len(sample.context) < 60_000 for sample in samples)
    one = next(sample for sample in samples if sample.sample_id == "2")
    assert one.references == ("B", "B. y")
    prompt = HELMET.prompt(bundle, one)
    assert prompt.before.startswith("Like Q") and prompt.after == "\nQ2\nA x, B y, C z, D w"
    assert {task.name for task in HELMET.tasks(bundle)} >= {"infbench_qa_128k", "infbench_sum_8k"}
    for task in ("infbench_qa_16k", "infbench_sum_8k"):
        assert "Q2" not in first(bundle, task).meta["fields"]["demo"] or first(bundle, task).question != "Q2"


def test_a_book_is_counted_once(with_books: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenised = []

    def count_calls(tokenizer: ChunkTokenizer, text: str) -> list[int]:
        tokenised.append(len(text))
        return token_ends(tokenizer, text)

    token_ends = ChunkTokenizer.token_ends
    monkeypatch.setattr(ChunkTokenizer, "token_ends", count_calls)
    for task in ("infbench_choice_8k", "infbench_choice_16k", "infbench_qa_8k"):
        assert len(list(HELMET.samples(with_books, task))) == 3
    book = max(tokenised)
    assert tokenised.count(book) == 1 + 3, "once to be counted, and once to be cut for each task"


def test_tasks_are_listed_without_reading_the_rows(with_books: Bundle) -> None:
    """Books are gigabytes. A damaged row is found when samples are read."""
    book = next((with_books.root / "data/hub").glob("*InfiniteBench/snapshots/*/longbook_qa_eng.jsonl"))
    lines = book.read_bytes().splitlines(keepends=True)
    book.unlink()
    book.write_bytes(b"{\n" + b"".join(lines[1:]))
    counts = {task.name: task.samples for task in HELMET.tasks(with_books)}
    assert counts["infbench_qa_8k"] == counts["infbench_choice_8k"] == 4
    with pytest.raises(BundleError, match="line 1"):
        list(HELMET.samples(with_books, "infbench_qa_8k"))


def rows_of(task: str, *values: float) -> list[ScoredSample]:
    metric = HELMET.score(Sample("helmet", task, "", "", "", ()), "")[0].metric
    return [ScoredSample(Sample("helmet", task, f"{n}", "", "", ()), {metric: x}) for n, x in enumerate(values)]


def test_averages_name_what_is_whole() -> None:
    names = ("json_kv", "ruler_niah_mk_2", "ruler_niah_mk_3", "ruler_niah_mv", "kilt_nq", "narrativeqa", "alce_asqa")
    tasks: dict[str, Any] = {f"{name}_8k": rows_of(f"{name}_8k", 1.0, 0.5) for name in names}
    tasks["json_kv_16k"] = rows_of("json_kv_16k", 1.0)
    groups = {(group.grouping, group.name): group for group in HELMET.groups(tasks)}
    assert groups["Recall", "8k"].official == 75.0
    assert [groups[part].official for part in (("Recall", "16k"), ("RAG", "8k"), ("Cite", "8k"), ("length", "8k"))] == [
        None, None, None, None
    ]  # fmt: skip
    assert ("LongQA", "8k") not in groups, "a story needs the judge"
    assert groups["length", "8k"].score == 0.75 and groups["overall", "all"].score == 0.875
    assert {group.grouping for group in HELMET.groups(tasks, averages_only=True)} == {"overall", "length"}


RECIPE = """name = "r"
[[source]]
kind = "path"
path = "hub"
repo = "princeton-nlp/HELMET"
type = "dataset"
[[source]]
kind = "path"
path = "files"
to = "princeton-nlp/HELMET"
allow = ["data.py"]
"""


def unpacked(lbx: Lbx, folder: Path, **changes: bytes) -> Path:
    """Bundle of a local copy of the made-up data."""
    for place, content in {**made_content(folder / "made"), **changes}.items():
        path = place.replace("hub:princeton-nlp/HELMET", "hub").replace("files/princeton-nlp/HELMET", "files")
        if isinstance(content, bytes):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    (folder / "r.toml").write_text(RECIPE)
    return lbx.unpacked(folder / "r.toml", folder)


def scripted(folder: Path, window: int, answers: dict[str, str]) -> Path:
    """Card of a model with scripted answers."""
    (folder / "answers.jsonl").write_text(json.dumps(answers))
    card = folder / f"m{window}.toml"
    card.write_text(f'name = "m"\nbackend = "scripted"\ncontext_window = {window}\n[weights]\npath = "answers.jsonl"\n')
    return card


def test_prompts_cut_to_a_small_window_are_not_official(tmp_path: Path) -> None:
    """The authors cut to the length in the task's name. A smaller window leaves less of the document."""
    lbx = Lbx()
    rows = as_lines(json_kv_row(number, context="x" * 9000) for number in range(3))
    bundle = unpacked(lbx, tmp_path, **{file_of("json_kv", 105): rows})
    found = []
    for window, option in ((100_000, ""), (8192, ""), (4000, ""), (100_000, "20000"), (8192, "20000")):
        results = tmp_path / f"{window}{option}.duckdb"
        card = scripted(tmp_path, window, {"*": "v1"})
        arguments = (
            "--tasks",
            "helmet/json_kv_8k,helmet/ruler_*",
            *(("--max-prompt-tokens", option) if option else ()),
        )
        lbx.ok("run", "--bundle", bundle, "--model", card, "-o", results, *arguments)
        with Store(results, read_only=True) as store:
            cut = store.query("SELECT count(*) FILTER (truncated) FROM generations WHERE task = 'json_kv_8k'").rows
            sql = "SELECT task, bool_and(official IS NULL) FROM numbers WHERE kind = 'task' GROUP BY ALL"
            found.append((cut[0][0], dict(store.query(sql).rows)))
        board = json.loads(lbx.ok("report", results, "board_helmet", "--format", "json", "--no-interval").stdout)
        for words, is_said in (
            ("8k prompts cut to the window of 4,000 tokens", window == 4000),
            ("8k prompts limited to 20,000 tokens (--max-prompt-tokens)", option and window > 8192),
        ):
            assert (words in board[0]["note"]) == bool(is_said)
    whole = {"json_kv_8k": False, "ruler_niah_mv_8k": False}
    other = {**whole, "json_kv_8k": True}
    assert found == [(3, whole), (3, whole), (3, other), (0, other), (3, whole)]
    sample = next(HELMET.samples(Bundle(bundle), "json_kv_8k"))
    without_tokenizer = Mode(context_window=10**8, counted_in="characters")
    assert not HELMET.prompt(Bundle(bundle), sample, without_tokenizer).limits


@pytest.mark.parametrize("prompt_tokens", [4000, 9000])
def test_a_server_gets_messages_without_the_beginning_of_the_answer(prompt_tokens: int, tmp_path: Path) -> None:
    """The authors' models behind a server get the question's template as a message in every category (m:185).

    Without a tokenizer, prompts above the limit are sent whole.
    """
    lbx = Lbx()
    bundle, results = unpacked(lbx, tmp_path), tmp_path / "r.duckdb"

    def chatted(path: str, payload: Any, _before: int) -> tuple[int, dict[str, str], object]:
        if path.endswith("/models"):
            return 200, {}, {"object": "list", "data": [{"id": "m", "object": "model"}]}
        if payload is None:
            return 404, {}, {}
        choice = {"index": 0, "message": {"role": "assistant", "content": "red cat"}, "finish_reason": "stop"}
        return 200, {}, {"choices": [choice], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 5}}

    with closing_all() as things:
        things.append(server := ScriptedServer(chatted))
        (tmp_path / "m.toml").write_text(f'backend = "endpoint"\n[options]\nurl = "{server.url}"\napi = "chat"\n')
        arguments = ("--model", tmp_path / "m.toml", "--tasks", "helmet/json_kv_8k,helmet/alce_asqa_8k")
        lbx.ok("run", "--bundle", bundle, *arguments, "-o", results)
        sent = {payload["messages"][-1]["content"] for payload in server.posts("/v1/chat/completions")}
    opened = Bundle(bundle)
    for task in ("json_kv_8k", "alce_asqa_8k"):
        wanted = {HELMET.prompt(opened, sample).text for sample in HELMET.samples(opened, task)}
        assert wanted <= sent and not any(text.endswith(":") for text in wanted)
    with Store(results, read_only=True) as store:
        outputs = store.query("SELECT DISTINCT task, output FROM generations ORDER BY ALL").rows
        official = store.query("SELECT count(*), count(official) FROM task_scores WHERE headline").rows
    assert outputs == [("alce_asqa_8k", "red cat"), ("json_kv_8k", "red cat")]
    assert official == [(2, 2 if prompt_tokens < 8000 else 0)]
    board = json.loads(lbx.ok("report", results, "board_helmet", "--format", "json", "--no-interval").stdout)
    words = "8k prompts over the limit sent whole, because the server's card has no [tokenizer]"
    assert (words in board[0]["note"]) == (prompt_tokens > 8000)
    assert "chat template in every category" in board[0]["note"]
    lbx.ok("export", "helmet", results, "-o", tmp_path / "out")
    assert sorted(path.name[:8] + path.name[-12:] for path in tmp_path.glob("out/*/*")) == [
        "alce_asqTrue_42.json", "json_kv_True_42.json",
    ]  # fmt: skip
    lbx.ok("import", "helmet", tmp_path / "out/m", "--model-name", "m", "-o", tmp_path / "again.duckdb")
    numbers = "SELECT task, metric, official FROM numbers WHERE kind = 'task' ORDER BY ALL"
    with Store(results, read_only=True) as ours, Store(tmp_path / "again.duckdb", read_only=True) as theirs:
        assert prompt_tokens > 8000 or theirs.query(numbers).rows == ours.query(numbers).rows


@pytest.mark.parametrize(
    ("task", "settings", "words"),
    [
        ("json_kv_8k", {"context_window": 4000}, "cut to the window of 4,000 tokens"),
        ("json_kv_8k", {"context_window": 4000, "max_prompt_tokens": 8092}, "cut to the window of 4,000 tokens"),
        ("json_kv_8k", {"max_prompt_tokens": 500}, "limited to 500 tokens (--max-prompt-tokens)"),
        ("json_kv_8k", {"max_prompt_tokens": 8092}, ""),
        (
            "json_kv_16k",
            {"context_window": 8192, "max_prompt_tokens": 16000},
            "cut to the window of 8,192 tokens",
        ),
        (
            "alce_asqa_128k",
            {"context_window": 131_072, "thinking_tokens": 8000},
            "cut to the window of 131,072 tokens less 8,000 for reasoning",
        ),
        (
            "json_kv_8k",
            {"context_window": 8192, "max_new_tokens": 500},
            "cut to the window of 8,192 tokens less 500 for the answer (--max-new-tokens)",
        ),
        ("json_kv_8k", {"context_window": 131_072, "thinking_tokens": 8000}, ""),
        (
            "json_kv_8k",
            {"context_window": 10**8, "backend.api": "chat", "backend.tokenizer": None},
            "over the limit sent whole, because the server's card has no [tokenizer]",
        ),
        (
            "json_kv_8k",
            {"context_window": 10**5, "backend.api": "chat", "backend.tokenizer": "x"},
            "over the limit cut otherwise than officially, for a server",
        ),
        ("json_kv_8k", {"context_window": "8"}, ""),
    ],
)
def test_the_board_names_the_limit_that_made_a_task_unofficial(task: str, settings: dict[str, Any], words: str) -> None:
    number = task_number(task)
    entry = BoardEntry("m", "r", attributes=settings, numbers={number: 1.0}, unofficial=frozenset({number}))
    note = BOARDS.complete_entry(entry).note or ""
    label = task.rpartition("_")[2]
    assert f"{label} prompts {words}" in f"{note}; ".split("; ") if words else f"{label} prompts" not in note


def test_prompts_cut_for_a_server_are_not_official(bundle: Bundle) -> None:
    """The authors keep 100 tokens free in them, and lbx some more."""
    mode = Mode(context_window=10**6, server_template=True)
    prompt = HELMET.prompt(bundle, first(bundle, "json_kv_8k"), mode)
    assert (prompt.chat, prompt.answer_prefix, prompt.limits) == (True, "", {10**6: 8192 - 100 - 108})


def test_parity_scores_what_a_run_stores(bundle: Bundle) -> None:
    """An answer to bare text is scored with its beginning, so that a later label does not count."""
    sample = first(bundle, "icl_nlu_8k")
    gold = sample.references[0]
    prompt = ParityPrompt(sample.key, HELMET.prompt(bundle, sample), sample, HELMET, bundle)
    outputs = (f" {gold}\n\nfoo\nlabel: {gold}0", f" {gold}0")
    model = BackendInfo("scripted", "1", "model", 1000, {})
    parity = Parity(model, model, None, (), (PromptParity(prompt, 1, outputs=outputs, reasoned=(False, False)),))
    (compared, _) = summarise_by_task(parity)
    assert (compared.score_first, compared.score_second) == (1.0, 0.0)


def test_an_answer_without_a_bundle_has_no_prompt(tmp_path: Path) -> None:
    bundle = Bundle(unpacked(Lbx(), tmp_path))
    with pytest.raises(NoDataError, match="imported without the bundle"):
        HELMET.prompt(bundle, Sample("helmet", "infbench_sum_8k", "a", "", "", ("r",)))


def test_from_the_users_folder_to_the_board(tmp_path: Path) -> None:
    """The command line, on a local copy of the data and a model with scripted answers."""
    lbx = Lbx()
    bundle = unpacked(lbx, tmp_path)
    answers = {str(sample.key): f" {sample.references[0]}" for sample in HELMET.samples(Bundle(bundle), "json_kv_8k")}
    card = scripted(tmp_path, 100_000, {"*": " 12 red cat", **answers})
    listed = lbx.ok("tasks", "--bundle", bundle).stdout
    assert "helmet/json_kv_8k" in listed and "needs an NLI model that is not here" in " ".join(listed.split())
    results = tmp_path / "r.duckdb"
    arguments = ("--bundle", bundle, "--model", card, "-o", results)
    lbx.ok("run", *arguments, "--tasks", "helmet_recall,helmet/alce_asqa_8k,helmet/kilt_nq_8k")
    with Store(results, read_only=True) as store:
        cited = store.query("SELECT DISTINCT output FROM generations WHERE task = 'alce_asqa_8k'").rows
    assert cited == [("Answer: 12 red cat",)], "the model has no template"
    board = json.loads(lbx.ok("report", results, "board_helmet", "--format", "json", "--no-interval").stdout)
    assert {line["category"]: line["8k"] for line in board} == {
        "average": 50.0, "Recall": 75.0, "RAG": 25.0, "Cite": 50.0,
    }, "with the beginning of the answer, 12 is 'answer 1'"  # fmt: skip
    assert "alce_asqa citation_rec" in board[0]["note"] and "LongQA, Summ" in board[0]["note"]
    lbx.ok("export", "helmet", results, "-o", tmp_path / "out")
    again = tmp_path / "again.duckdb"
    lbx.ok("import", "helmet", tmp_path / "out/m", "--model-name", "m", "--bundle", bundle, "-o", again)
    numbers = "SELECT task, metric, score, official FROM numbers WHERE kind = 'task' ORDER BY ALL"
    samples = "SELECT sample_id, context_sha256 FROM samples ORDER BY ALL"
    with Store(results, read_only=True) as ours, Store(again, read_only=True) as theirs:
        for query in (numbers, samples):
            assert theirs.query(query).rows == ours.query(query).rows
    part = ("--limit", "2", "-o", tmp_path / "part.duckdb", "--tasks", "helmet/json_kv_8k,helmet/kilt_nq_8k")
    lbx.ok("run", "--bundle", bundle, "--model", card, *part)
    lbx.ok("export", "helmet", tmp_path / "part.duckdb", "-o", tmp_path / "part")
    names = sorted(path.name for path in (tmp_path / "part/m").iterdir())
    assert ["_size2_" in names[0], "_size1_" in names[1]] == [True, True], "two depths of a question"
    lbx.ok("export", "helmet", tmp_path / "part.duckdb", "--results", "-o", tmp_path / "part")
    assert sorted(path.name for path in (tmp_path / "part/m").glob("*.score")) == [f"{name}.score" for name in names]
    imported = lbx.ok("import", "helmet", tmp_path / "part/m", "--model-name", "m", "-o", tmp_path / "back.duckdb")
    assert "size 2 instead of 100" in " ".join(imported.stderr.split())
    shown = lbx.ok("report", results, "board_helmet", "--published", "Llama-3.2-1B-Instruct").stdout
    assert "Llama-3.2-1B-Instruct*" in shown
    for report in ("paper", "task_scores", "leaderboard", "effective_context"):
        assert "helmet" in lbx.ok("report", results, report).stdout.casefold()
    (tmp_path / "hub/data/json_kv/test_k105_dep6.jsonl").write_text('{"context": 3}\n')
    refused = lbx("bundle", tmp_path / "r.toml", "-o", tmp_path / "again")
    assert refused.returncode and "the field 'demos' is missing" in refused.stderr
