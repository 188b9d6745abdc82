"""Prediction files in CSV, each beside a file about its prompt: BABILong's, which pandas writes and reads."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.errors import UsageError
from lbx.base.records import Sample
from lbx.benchmarks.babilong import REPOS
from lbx.benchmarks.registry import BENCHMARKS
from lbx.exchange.exporting import export
from lbx.results import GenerationRow, RunRow, SampleRow, Store
from tests.exchange.import_parts import bundle_of, import_predictions

Row = dict[str, Any]

WAY = "instruction_yes_examples_yes_post_prompt_yes_chat_template_yes"


def as_csv(*rows: Row, columns: tuple[str, ...] = ("", "target", "output", "question")) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([number, *(row[name] for name in columns[1:])] for number, row in enumerate(rows))
    return file.getvalue().encode()


ANSWERS = [
    {"target": "garden", "output": 'In the\n"garden", now', "question": "Where is Mary? "},
    {"target": "office", "output": "", "question": "Where is Mary? "},
]


def write(folder: Path, task: str, content: bytes, way: str = WAY, text: str = '{"prompt": {}}') -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{task}_{way}.csv").write_bytes(content)
    (folder / f"{task}_{way}.json").write_text(text)
    return folder


def test_predictions_come_back_byte_for_byte(store: Store, scored: Callable, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", "qa1_0k", as_csv(*ANSWERS, columns=("Unnamed: 0", "target", "output", "question")))
    write(folder, "qa2_4k", as_csv(*ANSWERS)[:-1], text="{}\n\n")
    write(folder, "qa1_4k", b"\xef\xbb\xbf" + as_csv(*ANSWERS).replace(b"\n", b"\r\n") + b"\r\n\r\n")
    (folder / f"qa1_4k_{WAY}.json").unlink()
    done = import_predictions(store, "babilong", folder, model="org/m")
    assert (done.counts, done.ignored) == ({"qa1_0k": 2, "qa1_4k": 2, "qa2_4k": 2}, ())
    numbers = scored(store, "babilong", done.run_id)
    assert {task: number["accuracy"] for task, number in numbers.items()} == dict.fromkeys(done.counts, 50.0)
    files = export(store, "babilong", done.run_id, tmp_path / "out").files
    assert {file.name for file in files} == {file.name for file in folder.iterdir()}
    assert all(file.read_bytes() == (folder / file.name).read_bytes() for file in files)
    assert {file.parent for file in files} == {tmp_path / "out/m"}


def test_an_own_run_is_exported_as_the_authors_write_it(store: Store, tmp_path: Path) -> None:
    settings = {"examples": False, "chat": False, "sampling": "official"}
    store.begin_run(RunRow("r", "org/m", "hf", "", {"babilong": 1}, "", settings, {}, "1"))
    samples = [
        Sample("babilong", "qa1_0k", f"{at:04d}", "", one["question"], (one["target"],))
        for at, one in enumerate(ANSWERS)
    ]
    outputs = [f" {one['output']}\n" for one in ANSWERS]
    store.write(
        samples=[SampleRow(sample, at) for at, sample in enumerate(samples)],
        generations=[GenerationRow("r", *one.key, output=output) for one, output in zip(samples, outputs, strict=True)],
    )
    store.finish_run("r", "done")
    done = export(store, "babilong", "r", tmp_path)
    way = "instruction_yes_examples_no_post_prompt_yes_chat_template_no"
    assert (tmp_path / f"m/qa1_0k_{way}.csv").read_bytes() == as_csv(*ANSWERS)
    assert json.loads((tmp_path / f"m/qa1_0k_{way}.json").read_text()) == {
        "prompt": {"instruction": True, "examples": False, "post_prompt": True, "chat_template": False},
        "generate_kwargs": {"max_new_tokens": 20, "do_sample": False},
    }
    assert (done.rows, len(done.files)) == (2, 2)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\n,target,output,question\n", "no row below"),
        (as_csv(*ANSWERS).replace(b",output,", b",answer,"), "line 2: the key 'output' is missing"),
        (as_csv(*ANSWERS) + b"2,a\n", "line 5: it has 2 cells, but the header has 4"),
        (as_csv(*ANSWERS) + b'2,"a\n', "line 5: it is not valid CSV"),
        (as_csv(*ANSWERS) + b"2,\xff\n", "line 5: it is not UTF-8"),
        (b" \n", "the file is empty"),
        (b"{}\n", "no row below the header"),
    ],
)
def test_bad_predictions(content: bytes, why: str, store: Store, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", "qa1_0k", content)
    with pytest.raises(UsageError, match=why):
        import_predictions(store, "babilong", folder, model="m")
    assert store.query("SELECT count(*) FROM runs").rows == [(0,)]


def test_two_kinds_of_prompts_are_two_runs(store: Store, tmp_path: Path) -> None:
    folder = write(tmp_path / "in", "qa1_0k", as_csv(*ANSWERS))
    write(folder, "qa2_0k", as_csv(*ANSWERS), way="instruction_no")
    with pytest.raises(UsageError, match=rf"2 kinds of prompts: instruction_no, {WAY}"):
        import_predictions(store, "babilong", folder, model="m")
    done = import_predictions(store, "babilong", folder / "qa2_0k_instruction_no.csv", model="m")
    assert done.counts == {"qa2_0k": 2}
    with pytest.raises(UsageError, match=r"named after tasks, such as qa1_0k\.csv|folders: in"):
        import_predictions(store, "babilong", tmp_path, model="m")


def test_only_files_with_the_bundles_questions_answer_its_samples(store: Store, tmp_path: Path) -> None:
    rows = [{"input": "", "target": one["target"], "question": one["question"]} for one in ANSWERS]
    parts = {"0k": [*rows, rows[0]], "4k": [rows[1], rows[0]]}
    bundle = bundle_of(
        tmp_path / "bundle",
        {f"{REPOS[0]}:data/qa1/{length}.json": json.dumps(each).encode() for length, each in parts.items()},
    )
    folder = write(tmp_path / "in", "qa1_0k", as_csv(*ANSWERS))
    write(folder, "qa1_4k", as_csv(*ANSWERS))
    done = import_predictions(store, "babilong", folder, model="m", bundle=bundle)
    assert done.unmatched == 2
    ids = store.query("SELECT task, sample_id FROM generations ORDER BY ALL").rows
    assert ids[:2] == [("qa1_0k", "0000"), ("qa1_0k", "0001")]
    assert all(name.startswith("unmatched-") for _, name in ids[2:])


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=9), min_size=1))
def test_any_text_survives_a_csv_file(texts: list[str]) -> None:
    form = BENCHMARKS["babilong"].predictions
    assert form is not None
    lines = form.format_rows([{"": 0, "output": text} for text in texts])
    assert [cells[1] for cells in csv.reader(io.StringIO("".join(lines), newline=""))] == ["output", *texts]
