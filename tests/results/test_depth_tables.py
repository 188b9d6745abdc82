"""Comparisons by position in results files: merged, extracted, and kept when runs are removed."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lbx.base.errors import StoreError
from lbx.results import DepthRow, Store
from lbx.results.file.depth import begin_depth_pair, read_depth_pairs, write_depth_rows
from lbx.results.whole.extracting import copy_runs
from lbx.results.whole.merging import merge_files
from lbx.results.whole.run_changes import remove_runs
from tests.made_depth import F16, Q4, add_depth, depth_pair, depth_rows
from tests.results.store_rows import RUN

OTHER = depth_pair("q8", F16 | {"backend.weights": "q80" * 8})


def file(path: Path, texts: range, *, kl: float = 0.01) -> Path:
    with Store(path) as store:
        add_depth(store, texts=texts, kl=kl)
    return path


def bins(path: Path) -> dict[str, list[DepthRow]]:
    with Store(path, read_only=True) as store:
        return {pair.row.pair_id: list(pair.bins) for pair in read_depth_pairs(store)}


def merged(target: Path, *sources: Path) -> dict[str, list[DepthRow]]:
    with Store(target, allowed_files=sources) as store:
        merging = merge_files(store, sources)
    assert merging.rows["depth_parity"] == sum(map(len, bins(target).values()))
    return bins(target)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with Store(tmp_path / "r.duckdb") as store:
        assert begin_depth_pair(store, depth_pair()) == []
        write_depth_rows(store, depth_rows(depth_pair(), [1]))
        assert begin_depth_pair(store, depth_pair()) == depth_rows(depth_pair(), [1])
        ((row, rows, _),) = read_depth_pairs(store)
    assert rows == depth_rows(depth_pair(), [1])
    assert (row.settings, row.reference_settings, row.hardware) == (Q4, F16, {"stored_as": "Q4_K"})


def test_halves_of_a_comparison_become_one(tmp_path: Path) -> None:
    first, second = file(tmp_path / "a.duckdb", range(5)), file(tmp_path / "b.duckdb", range(3, 8))
    whole = file(tmp_path / "whole.duckdb", range(8))
    assert merged(tmp_path / "ab.duckdb", first, second) == merged(tmp_path / "ba.duckdb", second, first) == bins(whole)
    # The same texts in another folder are the same texts.
    moved = file(tmp_path / "moved.duckdb", range(5))
    with Store(moved) as store, store.transaction() as connection:
        connection.execute("UPDATE depth_parity SET text = '/elsewhere/' || text")
    assert merged(tmp_path / "places.duckdb", first, moved) == bins(first)
    # Another machine's last bits
    nearly = file(tmp_path / "nearly.duckdb", range(5), kl=0.01 + 1e-9)
    assert merged(tmp_path / "first.duckdb", first, nearly) == bins(first)
    other = file(tmp_path / "other.duckdb", range(5), kl=5)
    with pytest.raises(StoreError, match="differ in kl"):
        merged(tmp_path / "refused-kl.duckdb", first, other)
    with Store(nearly) as store, store.transaction() as connection:
        connection.execute("UPDATE depth_parity SET positions = 7 WHERE start = 1024")
    with pytest.raises(StoreError, match="different rows of depth_parity"):
        merged(tmp_path / "refused.duckdb", first, nearly)


def test_a_run_comes_with_the_comparisons_of_its_model(tmp_path: Path) -> None:
    source = tmp_path / "r.duckdb"
    with Store(source) as store:
        add_depth(store, depth_pair(), OTHER)
        store.begin_run(dataclasses.replace(RUN, run_id="a", model="renamed", backend="llamacpp", settings=Q4))
        store.begin_run(dataclasses.replace(RUN, run_id="b", model="else", backend="llamacpp"))
    for runs, models in (((), ["q4", "q8"]), (["a"], ["q4"]), (["b"], [])):
        target = tmp_path / f"{'-'.join(runs) or 'all'}.duckdb"
        with Store(source, read_only=True, allowed_files=[target]) as store:
            copied = copy_runs(store, target, runs, "none")
        with Store(target, read_only=True) as store:
            pairs = read_depth_pairs(store)
        assert sorted(pair.row.model for pair in pairs) == models
        assert all(pair.row.settings in (Q4, OTHER.settings) and len(pair.bins) == 16 for pair in pairs)
        assert (copied.rows["depth_pairs"], copied.rows["depth_parity"]) == (len(models), 16 * len(models))
    remove_runs(source, ["a"])
    assert len(bins(source)) == 2, "a comparison is no part of a run"


def test_comparisons_stay_together_whenever_a_candidate_came(tmp_path: Path) -> None:
    later = [depth_pair(), depth_pair(reference="elder"), OTHER]
    pairs = [
        dataclasses.replace(pair, created_at=datetime(2026, 1, day, tzinfo=UTC)) for day, pair in enumerate(later, 1)
    ]
    with Store(tmp_path / "r.duckdb") as store:
        for pair in pairs:
            begin_depth_pair(store, pair)
        found = [pair.row.comparison_id for pair in read_depth_pairs(store)]
    assert found == [pairs[0].comparison_id] * 2 + [pairs[1].comparison_id]
