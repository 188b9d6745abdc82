"""Answers asked again alone, on real models: with default settings they are the same, with flash attention not all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_parts import (
    longbench_bundle,
    longbench_row,
    make_work,
    pro_bundle,
    pro_row,
    run,
    scripted,
    v2_bundle,
    v2_row,
)

from lbx.backends import Backend, load, read_card
from lbx.base.errors import UsageError
from lbx.base.layout import Bundle
from lbx.base.records import Request, SampleKey
from lbx.benchmarks import BENCHMARKS
from lbx.inference.completing import complete
from lbx.inference.decoding import Decoding
from lbx.inference.model import LocalBackend
from lbx.planning.selection import EVERYTHING
from lbx.planning.settings import RunSettings
from lbx.planning.work import Work
from lbx.running.verifying import choose, refuse_unverifiable, verify
from lbx.store import Store
from lbx.store.verifications import Verification, stored_steps

Tokens = dict[SampleKey, tuple[int, ...]]


@contextlib.contextmanager
def loaded(folder: Path, backend: str, options: str = "") -> Iterator[Backend]:
    place = folder / ("tiny.gguf" if backend == "llamacpp" else "hf")
    card = folder / "card.toml"
    card.write_text(f'name = "tiny"\nbackend = "{backend}"\n[weights]\npath = "{place}"\n[options]\n{options}\n')
    found = load(read_card(card))
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Eight questions on each of six documents."""
    documents = [f"House {n} is where person {n} lives. " + "Rain falls on the roof. " * (4 + n) for n in range(6)]
    rows = [longbench_row(n, "qasper", context=documents[n // 8], input=f"Who lives in {n}?") for n in range(48)]
    return longbench_bundle(tmp_path_factory.mktemp("bundle"), {"qasper": rows})


def work_on(bundle: Bundle, backend: Any, limit: int | None = None, **settings: Any) -> Work:
    tasks = [task for name in ("longbench", "longbench_v2") for task in BENCHMARKS[name].tasks(bundle)]
    selection = EVERYTHING.first(tasks, limit) if limit else EVERYTHING
    return make_work(bundle, tasks, backend, RunSettings(**settings), selection=selection)


def again(store: Store, work: Work, count: int) -> Verification:
    return verify(store, work.run_id, work, count, lambda function: function([work]))


def flips(store: Store) -> list[dict[str, Any]]:
    return store.query("SELECT * FROM verifications WHERE NOT equal ORDER BY ALL").dicts()


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch) -> Tokens:
    """The tokens of every answer as they are chosen, by request; those of one that is made again follow."""
    tokens: Tokens = {}
    push = Decoding.push

    def remember(self: Any, token: int) -> bool:
        tokens[self._request.key] = (*tokens.get(self._request.key, ()), token)
        return push(self, token)

    monkeypatch.setattr(Decoding, "push", remember)
    return tokens


@pytest.mark.parametrize("backend", ["llamacpp", "hf"])
def test_with_default_settings_nothing_differs(tiny: Path, bundle: Bundle, tmp_path: Path, backend: str) -> None:
    with loaded(tiny, backend) as model, Store(tmp_path / "r.duckdb") as store:
        work = work_on(bundle, model, limit=16, max_new_tokens=24)
        run(store, work)
        found = again(store, work, 8)
        rows = store.query("SELECT v.output_alone = g.output, v.equal, v.first_difference, v.logit_gap FROM "
                           "verifications v JOIN generations g USING (run_id, task, sample_id)").rows  # fmt: skip
        (shown,) = store.query("SELECT checked, flips, flip_rate, median_gap FROM verification").rows
    assert (found.checked, found.prompts, found.flips, found.max_gap) == (8, 8, 0, None)
    assert str(found) == "8 answers asked again alone: all the same"
    assert rows == [(True, True, None, None)] * 8
    assert shown == (8, 0, 0.0, None)


def test_flash_attention_flips_near_ties_and_they_are_found(
    tiny: Path, bundle: Bundle, tmp_path: Path, batched: Tokens
) -> None:
    with loaded(tiny, "llamacpp", "flash_attention = true") as model, Store(tmp_path / "r.duckdb") as store:
        work = work_on(bundle, model, max_new_tokens=96)
        run(store, work)
        together = dict(batched)
        held = store.query("SELECT benchmark, task, sample_id, output_ids FROM generations").rows
        assert {SampleKey(*row[:3]): tuple(row[3]) for row in held} == together
        found = again(store, work, 48)
        rows = flips(store)
        assert 0 < len(rows) < 48
        assert found.flips == len(rows)
        for row in rows:
            key = SampleKey(row["benchmark"], row["task"], row["sample_id"])
            assert (row["first_difference"], pytest.approx(row["logit_gap"], abs=1e-6)) == exact(
                model, request_of(work, key), together[key]
            )
        assert found.max_gap == max(row["logit_gap"] for row in rows)
        assert found.max_gap < 0.1  # near-ties: nothing is wrong but the last bits
        (shown,) = store.query("SELECT flip_rate, max_gap FROM verification").rows
        assert shown == (len(rows) / 48, found.max_gap)


def request_of(work: Work, key: SampleKey) -> Request:
    benchmark = work.benchmarks[key.benchmark]
    (sample,) = [one for one in benchmark.samples(work.bundle, key.task) if one.sample_id == key.sample_id]
    prompt = benchmark.prompt(work.bundle, sample)
    return work.prompter.request(key, prompt, work.settings.sampling_for(prompt, 0))


def exact(model: LocalBackend, request: Request, together: tuple[int, ...]) -> tuple[int, float]:
    """Place and gap of the flip, from the tokens of both answers."""
    logits = []
    alone = complete(model, request, lambda _place, found, _token: logits.append(found)).output_ids
    assert alone is not None
    place = next(place for place, (a, b) in enumerate(zip(alone, together, strict=False)) if a != b)
    return place, float(logits[place][alone[place]] - logits[place][together[place]])


def test_an_answer_that_was_never_given_is_found(tiny: Path, bundle: Bundle, tmp_path: Path) -> None:
    """As a fault in batching would give it: words that the model is far from saying."""
    with loaded(tiny, "llamacpp") as model, Store(tmp_path / "r.duckdb") as store:
        work = work_on(bundle, model, limit=4, max_new_tokens=24)
        run(store, work)
        with store.transaction() as connection:
            connection.execute(
                "UPDATE generations SET output = output[:9] || '¿', output_ids = output_ids[:4] || [77] WHERE "
                "sample_id = 'id1'"
            )
            connection.execute("UPDATE generations SET output_tokens = output_tokens - 1 WHERE sample_id = 'id2'")
            connection.execute("UPDATE generations SET prompt_sha256 = 'other' WHERE sample_id = 'id3'")
        found = again(store, work, 4)
        one, two = flips(store)
    assert (found.checked, found.flips, len(found.problems)) == (3, 2, 1)
    assert "a different prompt now" in found.problems[0]
    assert (one["sample_id"], two["sample_id"]) == ("id1", "id2")
    assert one["logit_gap"] > 0.1
    assert one["first_difference"] == 4
    assert (two["first_difference"], two["logit_gap"]) == (None, None)  # the same text, but not of as many tokens
    assert "2 of 3 differ (67%); logit gap" in str(found)


def test_answers_without_token_ids_are_compared_by_text_and_that_is_said(
    tiny: Path, bundle: Bundle, tmp_path: Path
) -> None:
    """As a version of lbx left them that did not store ids."""
    with loaded(tiny, "llamacpp") as model, Store(tmp_path / "r.duckdb") as store:
        work = work_on(bundle, model, limit=3, max_new_tokens=12)
        run(store, work)
        with store.transaction() as connection:
            connection.execute("UPDATE generations SET output_ids = NULL WHERE sample_id <> 'id2'")
            connection.execute("UPDATE generations SET output = 'other' WHERE sample_id = 'id1'")
        found = again(store, work, 3)
        (flip,) = flips(store)
    assert (found.checked, found.flips, found.by_text) == (3, 1, 2)
    assert (flip["sample_id"], flip["first_difference"], flip["logit_gap"]) == ("id1", None, None)
    assert str(found).endswith("; 2 were stored without token ids, and only their text was compared")


def test_other_tokens_of_the_same_text_are_another_answer(tiny: Path, bundle: Bundle, tmp_path: Path) -> None:
    with loaded(tiny, "llamacpp") as model, Store(tmp_path / "r.duckdb") as store:
        work = work_on(bundle, model, limit=1, max_new_tokens=12)
        run(store, work)
        with store.transaction() as connection:
            connection.execute("UPDATE generations SET output_ids = list_concat(output_ids[:11], [77])")
        assert again(store, work, 1).flips == 1
        assert [row["first_difference"] for row in flips(store)] == [11]


def test_what_was_asked_again_is_not_asked_a_third_time(tiny: Path, bundle: Bundle, tmp_path: Path) -> None:
    asked: list[object] = []
    with loaded(tiny, "llamacpp") as model, Store(tmp_path / "r.duckdb") as store:
        work = work_on(bundle, model, limit=12, max_new_tokens=8)
        run(store, work)

        def call(function: Any) -> Any:
            asked.append(function)
            if len(asked) == 4:
                raise KeyboardInterrupt
            return function([work])

        with pytest.raises(KeyboardInterrupt):
            verify(store, work.run_id, work, 6, call)
        assert verify(store, work.run_id, work, 6, call).checked == 6
        assert len(asked) == 4 + 3
        assert verify(store, work.run_id, work, 6, call).checked == 6
        assert len(asked) == 7


def test_both_steps_of_a_chain_of_thought(tiny: Path, tmp_path: Path) -> None:
    bundle = v2_bundle(tmp_path / "b", [v2_row(number) for number in range(6)])
    with loaded(tiny, "llamacpp") as model, Store(tmp_path / "r.duckdb") as store:
        work = work_on(bundle, model, cot=True, max_new_tokens=16)
        run(store, work)
        found = again(store, work, 3)
        assert (found.checked, found.prompts, found.flips) == (3, 6, 0)
        assert store.query("SELECT step, count(*) FROM verifications GROUP BY ALL ORDER BY ALL").rows == [
            (0, 3),
            (1, 3),
        ]
        with store.transaction() as connection:
            connection.execute("""UPDATE generations SET steps = replace(steps::VARCHAR, '"stop"', '"length"')""")
            connection.execute("UPDATE generations SET output = '', output_tokens = output_tokens - 1")
            connection.execute("DELETE FROM verifications")
        assert again(store, work, 3).flips >= 3
        assert {row["step"] for row in flips(store)} >= {1}


def test_greedy_answers_first_spread_over_all(tmp_path: Path) -> None:
    """Temperature 0.1 of LongBench v2 is sampled; needles are greedy."""
    bundle = v2_bundle(tmp_path / "b", [v2_row(number) for number in range(10)])
    _, backend = scripted(tmp_path / "m", {"*": "(A)"})
    tasks = [*BENCHMARKS["longbench_v2"].tasks(bundle), *BENCHMARKS["needle"].tasks(bundle)[:2]]
    work = make_work(bundle, tasks, backend, RunSettings(), selection=EVERYTHING.first(tasks, 10))
    with Store(tmp_path / "r.duckdb") as store:
        run(store, work)
        few, some, many, every = (choose(store, work.run_id, work, count) for count in (4, 7, 25, 99))
        assert choose(store, work.run_id, work, 4) == few
    assert [key.benchmark for key in few] == ["needle"] * 4
    assert [key.task for key in few] == ["single_en"] * 2 + ["single_zh"] * 2
    assert set(few) < set(some) < set(many) < set(every)
    assert [key.benchmark for key in many] == ["needle"] * 20 + ["longbench_v2"] * 5
    assert [key.sample_id for key in many[20:]] == ["q0", "q1", "q2", "q5", "q7"]
    assert len(set(every)) == len(every) == 30


def test_sampled_answers_can_be_asked_again(tiny: Path, tmp_path: Path) -> None:
    """The seed is the sample's own, so that alone the same tokens are drawn."""
    bundle = pro_bundle(tmp_path / "b", [pro_row(number) for number in range(4)])
    with loaded(tiny, "llamacpp") as model, Store(tmp_path / "r.duckdb") as store:
        work = make_work(bundle, BENCHMARKS["longbench_pro"].tasks(bundle), model, RunSettings(max_new_tokens=16))
        run(store, work)
        found = again(store, work, 12)
        assert (found.checked, found.flips) == (12, 0)
        assert store.query("SELECT count(DISTINCT output_alone) > 4 FROM verifications").rows == [(True,)]
        assert len(stored_steps(store, work.run_id, SampleKey("longbench_pro", "t3.2", "q1", 2))) == 1


def test_what_cannot_be_verified_is_refused(tiny: Path, bundle: Bundle, tmp_path: Path) -> None:
    _, answers = scripted(tmp_path / "m", {"*": "(A)"})
    with pytest.raises(UsageError, match="does not apply to the backend scripted"):
        refuse_unverifiable([work_on(bundle, answers)])
    with loaded(tiny, "llamacpp") as model:
        refuse_unverifiable([work_on(bundle, model)])
        with pytest.raises(UsageError, match="--no-batching exclude each other"):
            refuse_unverifiable([work_on(bundle, model, batching=False)])
    with (
        loaded(tiny, "llamacpp", "max_sequences = 1") as model,
        pytest.raises(UsageError, match="one prompt at a time"),
    ):
        refuse_unverifiable([work_on(bundle, model)])
