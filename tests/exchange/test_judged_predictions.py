"""Answers for a judge: files of one model over all open tasks, and published ones as runs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.base.bundle_folder import FILES, Bundle
from lbx.base.errors import BundleError, StoreError, UsageError
from lbx.benchmarks.leval.judge import published_files
from lbx.exchange.exporting import export
from lbx.exchange.importing import import_published_run
from lbx.opinions.answer_files import export_judge_answers
from lbx.results import GenerationRow, RunRow, Store
from lbx.results.whole.run_changes import score_with
from tests.exchange.import_parts import bundle_of, import_predictions, real_bundle

HERE = f"{FILES}/OpenLMLab/LEval/Predictions"
PARTS = {"llm_gpt4_eval": 96, "human_eval": 85, "llm_turbo_eval": 181}
LARGER = pytest.mark.long("read as the first, and larger")
EACH_PART = [pytest.param(part, marks=[LARGER] if at else []) for at, part in enumerate(PARTS)]
MODELS = ["claude-100k", "gpt4-32k", "llama2-13b-chat-4k", "turbo-16k-0613"]
NARRATIVE_QA = {"llm_gpt4_eval": 22, "human_eval": 10, "llm_turbo_eval": 32}
"""Rows of a task whose data ../shared lacks."""
ROW = {"query": "Who?", "gt": "Ann", "prompt": "{} {}", "m_pred": "Bob", "evaluation": "LLM"}


@pytest.fixture
def judged(shared: Callable) -> Path:
    return Path(shared("data/judgements/leval"))


def _with_published(bundle: Bundle, judged: Path, *parts: str, place: str = HERE) -> Bundle:
    for part in parts:
        shutil.copytree(judged / part, bundle.root / place / part, ignore=shutil.ignore_patterns("jsons"))
    return bundle


def _document(name: str, marks: tuple[str, ...], *asked: tuple[str, str]) -> list[dict[str, object]]:
    questions, answers = ([pair[place] for pair in asked] for place in (0, 1))
    return [{"instructions": questions, "outputs": answers, "input": name, "evaluation": mark} for mark in marks]


def _small_bundle(root: Path) -> Bundle:
    """Two open tasks: a question that both judge and people see, and one for the judge alone."""
    tasks = {
        "financial_qa": _document("report", ("f1", "LLM", "human"), ("Who?", "Ann")),
        "narrative_qa": _document("tale", ("LLM",), ("Why?", "Fun")) + _document("saga", ("f1",), ("Why?", "Fun")),
    }
    return bundle_of(
        root,
        {
            f"L4NLP/LEval:LEval/Generation/{task}.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode()
            for task, rows in tasks.items()
        },
    )


@pytest.mark.parametrize("part", EACH_PART)
def test_real_files_find_the_bundles_questions_and_come_back_byte_for_byte(
    part: str, shared: Callable, judged: Path, store: Store, tmp_path: Path
) -> None:
    bundle = real_bundle(shared, tmp_path / "bundle")
    for model in MODELS:
        file = judged / part / f"{model}.pred.jsonl"
        done = import_predictions(store, "leval", file, model=model, bundle=bundle)
        assert sum(done.counts.values()) == PARTS[part] and done.unmatched == NARRATIVE_QA[part]
        (again,) = export(store, "leval", done.run_id, tmp_path / model).files
        assert again.name == file.name and again.read_bytes() == file.read_bytes()
        rows = store.query(
            "SELECT a.question, a.\"references\", coalesce(a.meta->>'$.judged_by[0]', a.meta->>'evaluation'), "
            "g.source_row FROM generations g JOIN samples a USING (benchmark, task, sample_id) WHERE run_id = ? AND "
            "NOT starts_with(g.sample_id, 'unmatched')",
            [done.run_id],
        ).rows
        assert len(rows) == PARTS[part] - NARRATIVE_QA[part]
        for question, references, mark, source_row in rows:
            held = json.loads(source_row)
            assert (question, json.loads(references)) == (held["query"], [held["gt"]])
            assert mark in ("LLM", "human")
    # Every model answers the same samples, so that they can be compared.
    ((asked, together),) = store.query(
        "SELECT count(DISTINCT (task, sample_id, iteration)), count(*) FROM generations"
    ).rows
    assert together == len(MODELS) * asked and asked == PARTS[part]


def test_a_question_with_both_marks_counts_twice(shared: Callable, judged: Path, store: Store, tmp_path: Path) -> None:
    file = judged / "llm_turbo_eval" / "turbo-16k-0613.pred.jsonl"
    bundle = real_bundle(shared, tmp_path / "bundle")
    for run, how in (("bundle", {"bundle": bundle}), ("bare", {})):
        import_predictions(store, "leval", file, model="turbo", run_id=run, **how)
        rows = store.query(
            "SELECT (task, sample_id), iteration, source_row FROM generations WHERE run_id = ? ORDER BY created_at",
            [run],
        ).rows
        marks = Counter(json.loads(row)["evaluation"] for _, _, row in rows)
        assert marks == {"LLM": 96, "human": 85}
        twice = [json.loads(row)["evaluation"] for _, iteration, row in rows if iteration == 1]
        assert twice == (["human"] * 8 if run == "bundle" else [])
        assert len({(name, iteration) for name, iteration, _ in rows}) == 181


def test_answers_for_a_judge_are_scored_by_no_metric(store: Store, tmp_path: Path, write_lines: Callable) -> None:
    bundle = _small_bundle(tmp_path / "bundle")
    file = write_lines("m.pred.jsonl", [ROW, {**ROW, "query": "Why?", "gt": "Fun"}])
    run = import_predictions(store, "leval", file, model="m", bundle=bundle).run_id
    assert score_with(store, None, run_ids=[run], processes=1) == 0
    assert store.query("SELECT task, sample_id, iteration FROM generations ORDER BY created_at").rows == [
        ("financial_qa", "000-00", 0),
        ("narrative_qa", "000-00", 0),  # the one for the judge, not its namesake about another document
    ]
    assert store.query("SELECT * FROM scores").rows == []


def test_the_prompts_tell_by_which_protocol_answers_were_asked(store: Store, write_lines: Callable) -> None:
    for name, rows, hint in (
        ("no number", [ROW, {**ROW, "gt": "two words"}], False),
        ("another number", [{**ROW, "prompt": "in 2012 words {} {}"}], False),
        ("a number", [ROW, {**ROW, "gt": "two words", "prompt": "about 2 words {} {}"}], None),
        ("no prompt", [ROW, {**ROW, "prompt": None}], None),
    ):
        file = write_lines(f"{name}/m.pred.jsonl", rows)
        run = import_predictions(store, "leval", file, model="m", run_id=name).run_id
        ((settings,),) = store.query("SELECT settings FROM runs WHERE run_id = ?", [run]).rows
        assert json.loads(settings).get("length_hint") is hint, name


def test_what_the_judge_would_be_given_for_no_text(store: Store, write_lines: Callable) -> None:
    rows = [{**ROW, "m_pred": 7, "query": None}, {**ROW, "m_pred": None, "gt": 2.0}, {**ROW, "other_pred": "?"}]
    done = import_predictions(store, "leval", write_lines("m.pred.jsonl", rows), model="m")
    found = store.query(
        "SELECT output, question, \"references\"->>'$[0]' FROM generations JOIN samples USING (benchmark, task, "
        "sample_id) ORDER BY generations.created_at"
    ).rows
    assert found == [("7", "None", "Ann"), ("None", "Who?", "2.0"), ("Bob", "Who?", "Ann")]
    first, second, third = done.notes
    assert "line 1: the answer is not text; its Python" in first and "line 2: the answer is not text" in second
    assert "line 3: 'other_pred' ignored: 'm_pred' has the answer" in third


def test_a_row_that_metrics_score_has_no_place_between_those_for_a_judge(store: Store, write_lines: Callable) -> None:
    for changes, why in (
        ({"evaluation": "f1"}, "line 2: 'evaluation' is 'f1'; a file without a task name has rows for a judge"),
        ({"evaluation": None}, "line 2: 'evaluation' must be text, not null"),
        ({"evaluation": "human", "gt": ...}, "line 2: the key 'gt' is missing"),
        ({"m_pred": ..., "n_pred": "x"}, "line 2: the key 'm_pred' is missing"),
    ):
        second = {key: value for key, value in {**ROW, **changes}.items() if value is not ...}
        with pytest.raises(UsageError, match=why):
            import_predictions(store, "leval", write_lines("m.pred.jsonl", [ROW, second]), model="m")
    with pytest.raises(UsageError, match=r"leval has no task 'narrative-qa'\. Did you mean narrative_qa\?"):
        file = write_lines("narrative-qa.pred.jsonl", [{**ROW, "evaluation": "f1"}])
        import_predictions(store, "leval", file, model="m")
    assert store.query("SELECT * FROM runs").rows == []


def test_published_answers_are_runs(shared: Callable, judged: Path, store: Store, tmp_path: Path) -> None:
    bundle = _with_published(real_bundle(shared, tmp_path / "bundle"), judged, "llm_gpt4_eval", "human_eval")
    assert set(MODELS) < set(published_files(bundle, length_hint=True))
    assert not published_files(bundle, length_hint=False)
    for model in MODELS:
        run = import_published_run(store, bundle, model)
        assert run == f"published-{model}" == import_published_run(store, bundle, model)
        ((settings, status),) = store.query("SELECT settings, status FROM runs WHERE run_id = ?", [run]).rows
        told = json.loads(settings)
        assert (told["published"], told["length_hint"], told["judged"], status) == (True, True, True, "done")
        files = export(store, "leval", run, tmp_path / model).files
        assert [(file.parent.name, file.name) for file in files] == [
            ("llm_gpt4_eval", f"{model}.pred.jsonl"),
            ("human_eval", f"{model}.pred.jsonl"),
        ]
        for file in files:
            assert file.read_bytes() == (judged / file.parent.name / file.name).read_bytes()
    assert store.query("SELECT DISTINCT count(*) FROM generations GROUP BY run_id").rows == [(181,)]
    # The judge's answer comes first.
    marks = store.query(
        "SELECT DISTINCT iteration, source_row->>'evaluation' FROM generations WHERE iteration = 1"
    ).rows
    assert marks == [(1, "human")]


def test_published_answers_of_the_protocol_without_lengths(store: Store, tmp_path: Path, write_lines: Callable) -> None:
    bundle = _small_bundle(tmp_path / "bundle")
    place = "bundle/data/files/OpenLMLab/LEval-cd1cfc3/Predictions"
    write_lines(f"{place}/llm_turbo_eval/m.pred.jsonl", [ROW, {**ROW, "evaluation": "human", "m_pred": "Eve"}])
    assert import_published_run(store, bundle, "m", length_hint=False) == "published-m-no-length-hint"
    asked = "SELECT task, sample_id, iteration, output FROM generations ORDER BY iteration"
    both = [("financial_qa", "000-00", 0, "Bob"), ("financial_qa", "000-00", 1, "Eve")]
    assert store.query(asked).rows == both
    with pytest.raises(BundleError, match=r"no published answers of 'm' with a length hint.*lbx bundle bundle/leval"):
        import_published_run(store, bundle, "m")
    with pytest.raises(BundleError, match=r"of '\.\./m' without.* It has those for m\."):
        import_published_run(store, bundle, "../m", length_hint=False)
    write_lines(f"{place}/llm_turbo_eval/m.pred.jsonl", [ROW])
    with pytest.raises(StoreError, match="was imported from files with other content"):
        import_published_run(store, bundle, "m", length_hint=False)
    assert store.query(asked).rows == both


def _as_made(store: Store, imported: str, run_id: str, model: str, **settings: object) -> None:
    """The first answers of an import as a run of lbx."""
    store.begin_run(RunRow(run_id, model, "scripted", "1", {}, "", settings, {}, "0"))
    store.write(
        generations=[
            GenerationRow(run_id, "leval", task, name, 0, output=output)
            for task, name, output in store.query(
                "SELECT task, sample_id, output FROM generations WHERE run_id = ? AND iteration = 0", [imported]
            ).rows
        ]
    )


def _with_scripts(bundle: Bundle, shared: Callable) -> Bundle:
    (scripts,) = shared("data/upstream_more/OpenLMLab/LEval").glob("*/Baselines")
    shutil.copytree(scripts, bundle.root / FILES / "OpenLMLab/LEval/Baselines")
    return bundle


@pytest.mark.parametrize("part", EACH_PART)
def test_answers_for_a_judge_go_out_as_the_official_runner_writes_them(
    part: str, shared: Callable, judged: Path, store: Store, tmp_path: Path
) -> None:
    bundle = _with_scripts(real_bundle(shared, tmp_path / "bundle"), shared)
    file = judged / part / "turbo-16k-0613.pred.jsonl"
    imported = import_predictions(store, "leval", file, model="m", bundle=bundle)
    _as_made(store, imported.run_id, "made", "org/turbo-16k-0613")
    done = export_judge_answers(store, part, ["made"], bundle, tmp_path / "out")
    (made,) = done.files
    assert made.name == file.name and done.rows == PARTS[part] - NARRATIVE_QA[part]
    lines = made.read_text("ascii").splitlines()
    assert [json.dumps(json.loads(line)) for line in lines] == lines
    held = {
        (row[0],) for row in store.query("SELECT question FROM samples WHERE NOT starts_with(sample_id, 'unm')").rows
    }
    wanted = [row for row in map(json.loads, file.read_text("utf-8").splitlines()) if (row["query"],) in held]
    twice = Counter(row["query"] + row["gt"] for row in wanted)
    for line, row in zip(lines, wanted, strict=True):
        own = json.loads(line)
        assert list(own) == list(row)
        assert own.pop("prompt") == row.pop("prompt"), "as it was published"
        if twice[row["query"] + row["gt"]] == 1 or row["evaluation"] == "LLM":
            assert own == row  # a run of lbx is asked once where the authors' was asked for the judge and for people
    again = import_predictions(store, "leval", made, model="again", bundle=bundle)
    assert sum(again.counts.values()) == done.rows and again.unmatched == 0


def test_what_cannot_go_to_a_judge(shared: Callable, store: Store, tmp_path: Path, write_lines: Callable) -> None:
    bundle = _with_scripts(_small_bundle(tmp_path / "bundle"), shared)
    run = import_predictions(store, "leval", write_lines("m.pred.jsonl", [ROW]), model="m", bundle=bundle).run_id
    _as_made(store, run, "made", "m")
    _as_made(store, run, "twin", "org/m")
    for metric, runs, why in (
        ("ngram_eval", ["made"], "Unknown answers for a judge: 'ngram_eval'.* Use llm_gpt4_eval"),
        ("human_eval", ["nothing"], "No run 'nothing'"),
        ("human_eval", [run], r"was imported\. Leave out --judged"),
        ("llm_gpt4_eval", ["made", "twin"], r"Two of the runs use the model m and would write the same file"),
    ):
        with pytest.raises(UsageError, match=why):
            export_judge_answers(store, metric, runs, bundle, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    done = export_judge_answers(store, "llm_turbo_eval", ["made"], bundle, tmp_path / "out")
    rows = [json.loads(line) for line in done.files[0].read_text().splitlines()]
    assert [(row["query"], row["evaluation"], row["m_pred"]) for row in rows] == [
        ("Who?", "LLM", "Bob"),
        ("Who?", "human", "Bob"),
    ]
    assert done.left_out == {"not answered": 1}
    store.write(generations=[GenerationRow("twin", "leval", "financial_qa", "000-00", 0, error="no")])
    with pytest.raises(UsageError, match="has no answer to a question of human_eval"):
        export_judge_answers(store, "human_eval", ["twin"], bundle, tmp_path / "twin")
