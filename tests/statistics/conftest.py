"""Real answers with their scores, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.results import Store
from lbx.results.scoring.score_columns import read_scores
from tests.scored_parts import Imported


@pytest.fixture(scope="session")
def imported(imports: Path) -> Imported:
    """The published predictions beside the checkout, with the scores that lbx gives them."""
    with Store(imports, read_only=True) as store:
        models = dict(store.query("SELECT run_id, model FROM runs").rows)
        found = read_scores(store)
    return {models[run]: {task: list(rows) for task, rows in tasks.items()} for (run, _), tasks in found.items()}
