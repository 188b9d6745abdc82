"""Orders of commands that were wrong once, each as short as it can be."""

from __future__ import annotations

from journey import Journey


def test_a_killed_run_that_goes_on_with_other_tasks_has_all_its_numbers(journey: Journey) -> None:
    """Killed between its last answer and its numbers; no command asks these tasks again."""
    journey.run("a", kill=17)
    assert journey.held["a"].dirty
    journey.run("a", tasks="leval")
