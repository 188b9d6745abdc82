"""The leaderboard of many runs: places are the same as where every pair is tested."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lbx.report import leaderboard


def made_rows(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    for number, score in enumerate(random.choice([0.0, 0.2, 0.21, 0.25, 0.6, 1.0], count).tolist()):
        se = float(random.choice([0.0, 0.004, 0.02]))
        rows.append(
            {"score": score, "se": se, "low": max(score - 3 * se, 0), "high": min(score + 3 * se, 1),
             "df": float(random.choice([3, 40, 1e6])), "method": "wilson" if number % 3 == 0 else "t", "asked": 100,
             "answered": 100, "failed_as_0": score, "failed_as_1": score}
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("count", [2, 3, 10, 60, 150])
def test_places_are_those_of_all_pairs(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    rows = made_rows(count)
    found = leaderboard.places(rows)
    monkeypatch.setattr(leaderboard, "_perhaps_apart", lambda rows: np.ones((len(rows), len(rows)), bool))
    assert found == leaderboard.places(rows)
    assert len(set(found)) > 3 or count < 10
