"""Which samples are asked: the first ones, documents, a random draw, names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import UsageError
from lbx.base.records import Sample, Task
from lbx.benchmarks.registry import BENCHMARKS
from lbx.options.run_spec import SampleOptions
from lbx.options.sample_selection import EVERYTHING, Selection, select_samples
from tests.running.engine_parts import longbench_bundle, longbench_row

BUNDLE: Any = SimpleNamespace()


class Family:
    """Tasks whose samples are about documents that are given by number, in this order; 0 is no document."""

    def __init__(self, **tasks: Sequence[int]) -> None:
        self._tasks = tasks
        self.read: list[str] = []

    @property
    def tasks(self) -> list[Task]:
        return [Task("toy", name, ("f1",), len(documents)) for name, documents in self._tasks.items()]

    def samples(self, _bundle: Bundle, task: str) -> Iterator[Sample]:
        for place, document in enumerate(self._tasks[task]):
            sample_id = f"{task}-{place}"
            self.read.append(sample_id)
            yield Sample("toy", task, sample_id, f"document {document}" if document else "", "What?", ("so",))

    def select(self, **choice: Any) -> Selection:
        known: Any = {"toy": self}
        return select_samples(SampleOptions(**choice), BUNDLE, self.tasks, known)

    def places(self, task: str, **choice: Any) -> list[int]:
        (of_task,) = [one for one in self.tasks if one.name == task]
        return [place for place, _ in self.select(**choice).select(of_task, self.samples(BUNDLE, task))]


documents = st.lists(st.integers(0, 6), max_size=30)


@given(documents, st.integers(1, 40), st.integers(1, 40), st.integers(0, 3))
def test_a_smaller_sample_is_part_of_a_larger_one(data: list[int], one: int, other: int, seed: int) -> None:
    family = Family(a=data)
    few, many = (set(family.places("a", sample=count, seed=seed)) for count in sorted((one, other)))
    assert few <= many


@given(documents, st.integers(1, 40), st.integers(0, 3))
def test_a_sample_is_of_whole_documents_and_no_larger_than_it_must_be(data: list[int], count: int, seed: int) -> None:
    chosen = Family(a=data).places("a", sample=count, seed=seed)
    drawn = {data[place] for place in chosen} - {0}
    assert [place for place in range(len(data)) if data[place] in drawn] == [p for p in chosen if data[p]]
    assert len(chosen) >= min(count, len(data))
    largest = max((data.count(document) for document in drawn), default=1)
    assert len(chosen) < count + largest, "without the last document there would be too few"


@given(documents, st.permutations(range(6)), st.integers(1, 10))
def test_what_is_drawn_does_not_depend_on_the_order_of_the_data(data: list[int], order: list[int], count: int) -> None:
    data = [document for document in data if document]
    there = sorted(data, key=lambda document: order[document - 1])
    drawn = [{given[place] for place in Family(a=given).places("a", sample=count)} for given in (data, there)]
    assert drawn[0] == drawn[1]


def test_a_draw_is_the_same_for_ever() -> None:
    """SHA-256 of seed and document: these are fixed numbers, whatever Python or machine."""
    family = Family(a=[1, 1, 2, 3, 3, 3, 4, 5, 6, 6])
    assert family.places("a", sample=4) == [2, 3, 4, 5]
    assert family.places("a", sample=4, seed=1) == [3, 4, 5, 8, 9]
    assert family.places("a", sample=100) == list(range(10))


def test_tasks_that_share_documents_draw_the_same_ones() -> None:
    family = Family(a=[1, 2, 3, 4, 5], b=[5, 4, 3, 2, 1])
    drawn = family.select(sample=2, seed=4).positions
    assert drawn is not None
    assert {4 - place for place in drawn["toy/b"]} == drawn["toy/a"]


@given(documents, st.integers(1, 9))
def test_documents_come_with_all_their_questions(data: list[int], count: int) -> None:
    chosen = Family(a=data).places("a", documents=count)
    names = [document or f"question {place}" for place, document in enumerate(data)]
    first = list(dict.fromkeys(names))[:count]
    assert chosen == [place for place, name in enumerate(names) if name in first]


@given(documents, st.integers(1, 40), st.integers(1, 9))
def test_a_limit_is_what_the_others_choose_from(data: list[int], limit: int, count: int) -> None:
    family, shorter = Family(a=data), Family(a=data[:limit])
    assert family.places("a", limit=limit) == list(range(min(limit, len(data))))
    for how in ("documents", "sample"):
        assert family.places("a", limit=limit, **{how: count}) == shorter.places("a", **{how: count})


def test_nothing_is_read_behind_the_last_chosen_sample() -> None:
    family = Family(a=[1] * 50)
    assert family.places("a", limit=3) == [0, 1, 2]
    assert family.read == ["a-0", "a-1", "a-2"]


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)), st.integers(1, 9))
def test_both_and_the_first(one: set[int], other: set[int], count: int) -> None:
    task = Task("toy", "a", ("f1",), 10)
    both = Selection({"toy/a": one}) & Selection({"toy/a": other, "toy/b": frozenset({1})})
    assert both.positions == {"toy/a": one & other}
    assert (EVERYTHING & both) == (both & EVERYTHING) == both
    assert both.first([task], count).positions == {"toy/a": frozenset(sorted(one & other)[:count])}
    assert EVERYTHING.first([task], count).count(task) == count
    assert (EVERYTHING & EVERYTHING).count(task) == 10
    assert both.count(Task("toy", "c", ("f1",), 10)) == 0


def test_names_choose_samples_of_any_task_or_of_one() -> None:
    family = Family(a=[1, 2], b=[1, 2])
    assert family.select(ids=("toy/a/a-1", "b-0")).positions == {"toy/a": frozenset({1}), "toy/b": frozenset({0})}
    assert family.select(ids=("toy/a/a-1",)).count(family.tasks[1]) == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("toy/a/a-9", "No sample a-9 in toy/a. Did you mean a-1 or a-0?"),
        ("a-9", "No sample a-9 in toy/a or toy/b. Did you mean a-1 or a-0?"),
        ("toy/a/b-0", "No sample b-0 in toy/a. Did you mean a-0?"),
        ("xyz", "No sample xyz in toy/a or toy/b. The first ones are a-0, a-1, b-0."),
        ("toy/c/c-0", "--ids names toy/c/c-0, but --tasks does not include toy/c. Add it to --tasks"),
    ],
)
def test_a_name_that_there_is_not(name: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Family(a=[1, 2], b=[1]).select(ids=("a-0", name))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "choice", [{"documents": 1, "sample": 1}, {"ids": ("a",), "limit": 1}, {"ids": ("a",), "sample": 1}]
)
def test_ways_to_choose_that_exclude_each_other(choice: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        SampleOptions(**choice)


def test_samples_of_a_real_benchmark(tmp_path: Path) -> None:
    rows = [longbench_row(number, "qasper", context=f"document {number // 3} " * 9) for number in range(9)]
    bundle = longbench_bundle(tmp_path, {"qasper": rows})
    tasks = BENCHMARKS["longbench"].tasks(bundle)

    def chosen(**choice: Any) -> list[int]:
        (places,) = (select_samples(SampleOptions(**choice), bundle, tasks, BENCHMARKS).positions or {}).values()
        return sorted(places)

    assert chosen(documents=2) == [0, 1, 2, 3, 4, 5]
    assert chosen(ids=("id4", "longbench/qasper/id0")) == [0, 4]
    assert len(chosen(sample=4)) == 6, "whole documents of three questions"
