"""What the questions of a run can decide, before it."""

from __future__ import annotations

from lbx.running.detectable_differences import resolutions
from lbx.running.jobs import TaskQuestions


def test_tasks_that_share_documents_do_not_count_them_twice() -> None:
    documents = frozenset(f"document {number}" for number in range(40))
    tasks = [TaskQuestions("needle", name, 40, documents) for name in ("single_en", "single_zh")]
    own = [TaskQuestions("needle", name, 40, frozenset(f"{name} {d}" for d in documents)) for name in ("a", "b")]
    (shared,), (separate,) = resolutions(tasks, 2, 1.0, None), resolutions(own, 2, 1.0, None)
    assert (shared.samples, shared.documents, separate.documents) == (80, 40, 80)
    assert shared.detectable is not None and separate.detectable is not None
    assert shared.detectable > 1.3 * separate.detectable
