"""People's ratings beside predictions: they belong to the runs that gave the answers, on the bundle's questions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from lbx.base.bundle_folder import FILES
from lbx.opinions.rating_files import export_ratings, import_ratings
from lbx.opinions.rating_pages import read_pages
from lbx.opinions.rating_sets import Item, documents
from lbx.results import Store
from tests.exchange.import_parts import bundle_of, import_predictions, real_bundle

KEYS = {
    "turbo-16k-0613": "turbo-16k-0613_pred",
    "gpt4-32k": "gpt4_outputs",
    "llama2-13b-chat-4k": "llama2-13b-chat-4k_pred",
}


def test_ratings_belong_to_the_runs_of_the_answers(shared: Callable, store: Store, tmp_path: Path) -> None:
    judged = shared("data/judgements/leval/human_eval")
    bundle = real_bundle(shared, tmp_path / "bundle")
    gold = bundle.root / FILES / "OpenLMLab/LEval/Predictions/human_eval/claude.gpt4.ref.jsonl"
    gold.parent.mkdir(parents=True)
    shutil.copyfile(judged / gold.name, gold)
    runs = {
        key: import_predictions(store, "leval", judged / f"{model}.pred.jsonl", model=model, bundle=bundle).run_id
        for model, key in KEYS.items()
    }
    done = import_ratings(store, read_pages(judged / "jsons", "author"), bundle=bundle)
    assert {key: done.runs[key] for key in runs} == runs
    assert len(done.new_runs) == 4
    assert (done.questions, done.ratings) == (85, 21)
    tasks = dict(store.query("SELECT task, count(*) FROM rating_items GROUP BY ALL").rows)
    assert tasks["judged"] == 10  # narrative_qa, whose data are not in ../shared
    assert tasks["paper_assistant"] == 3
    (rated,) = store.query("SELECT DISTINCT task FROM rated_answers").rows
    assert rated == ("paper_assistant",)
    made = export_ratings(store, None, None, bundle=bundle)
    assert len(made) == 12
    for name, text in made.items():
        assert text.encode() == (judged / name).read_bytes()


def test_a_document_is_found_beside_a_question_of_that_name_elsewhere(tmp_path: Path) -> None:
    """Imports do not know documents; a task of one's own may be called as one of L-Eval's."""
    row = {"instructions": ["Who?"], "outputs": ["He"], "input": "a tale", "evaluation": "f1"}
    bundle = bundle_of(
        tmp_path / "bundle", {"L4NLP/LEval:LEval/Generation/narrative_qa.jsonl": json.dumps(row).encode() + b"\n"}
    )
    items = [Item(n, name, "narrative_qa", "000-00", "Who?", (), "", ()) for n, name in enumerate(("leval", "mine"))]
    assert documents(bundle, items) == {items[0].document_key: "a tale"}
