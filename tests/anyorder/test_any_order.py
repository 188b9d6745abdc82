"""Any order of commands: no committed row is lost, doubled or under another run's name, and the numbers are those of a
file made from scratch.

Hypothesis gives the commands in any order; a failing order is printed as calls that make a test of test_orders.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.anyorder.held_files import EMPTY, FAILS, FINE
from tests.anyorder.journey import Journey

QUICK_ORDERS, ALL_ORDERS = 6, 120
COMMANDS = 12

files = st.sampled_from(["a", "b"])
all_files = st.sampled_from(["a", "b", "c", "cluster/results"])
weights = st.integers(0, 1)
place = st.integers(0, 3)
kill = st.one_of(st.just(0), st.integers(1, 40))
moods = st.sampled_from([FINE, FINE, FAILS, EMPTY])
retries = st.sampled_from([(), (), ("failed",), ("empty",), ("failed", "empty")])
tasks = st.sampled_from(["tales", "tales/numbers", "leval", "tales,leval"])


class AnyOrder(RuleBasedStateMachine):
    """Commands in any order."""

    new_journey: Callable[[], Journey]

    def __init__(self) -> None:
        super().__init__()
        self.journey = self.new_journey()

    @initialize(weights=weights, tasks=tasks, other=st.booleans())
    def begin(self, weights: int, tasks: str, other: bool) -> None:
        self.journey.run("a", weights=weights, tasks=tasks)
        if other:
            self.journey.run("a", weights=1 - weights, tasks=tasks)

    @rule(file=files, weights=weights, tasks=tasks, limit=st.sampled_from([None, None, 1, 2]),
          iterations=st.sampled_from([1, 1, 2]), name=st.sampled_from([None, None, "mine"]), mood=moods, retry=retries,
          scratch=st.booleans(), kill=kill)  # fmt: skip
    def run(self, **asked: Any) -> None:
        self.journey.run(**asked)

    @rule(file=files, weights=weights, mood=moods, retry=retries, scratch=st.booleans(), kill=kill)
    def run_again(self, **asked: Any) -> None:
        self.journey.run(**asked, limit=None)

    @rule(file=all_files, kill=kill)
    def score(self, **asked: Any) -> None:
        self.journey.score(**self._there(asked))

    @rule(file=all_files, weights=weights, run=place, against=place, scratch=st.booleans(), kill=kill)
    def judge(self, **asked: Any) -> None:
        self.journey.judge(**self._there(asked))

    @rule(file=all_files, value=st.integers(1, 5), collect=st.booleans(), kill=kill)
    def rate(self, **asked: Any) -> None:
        self.journey.rate(**self._there(asked))

    @rule(file=all_files, kill=kill)
    def collect(self, **asked: Any) -> None:
        self.journey.collect(**self._there(asked))

    @rule(file=all_files, to=st.sampled_from(["b", "c", "d"]), run=place, kill=kill)
    def carry(self, **asked: Any) -> None:
        self.journey.carry(**self._there(asked))

    @rule(
        sources=st.sampled_from([("a",), ("a", "b"), ("b", "a"), ("a", "cluster/results")]),
        force=st.sampled_from([True, True, False]),
        kill=kill,
    )
    def merge(self, **asked: Any) -> None:
        self.journey.merge(**asked, output="c")

    @rule(file=all_files, without_texts=st.booleans(), kill=st.integers(0, 4))
    def extract(self, **asked: Any) -> None:
        self.journey.extract(**self._there(asked))

    @rule(file=files, run=place, name=st.sampled_from(["mine", "other"]), kill=kill)
    def rename(self, **asked: Any) -> None:
        self.journey.rename(**self._there(asked))

    @rule(file=files, run=place, value=st.integers(1, 5), kill=kill)
    def note(self, **asked: Any) -> None:
        self.journey.note(**self._there(asked))

    @rule(file=files, run=place, with_dependents=st.booleans(), vacuum=st.booleans(), kill=kill)
    def remove(self, **asked: Any) -> None:
        self.journey.remove(**self._there(asked))

    @rule(file=files, kill=kill)
    def vacuum(self, **asked: Any) -> None:
        self.journey.vacuum(**self._there(asked))

    @rule()
    def upgrade(self) -> None:
        self.journey.upgrade()

    @precondition(lambda self: not self.journey.dealt)
    @rule(weights=weights, tasks=tasks)
    def deal(self, **asked: Any) -> None:
        self.journey.deal(**asked)

    @precondition(lambda self: self.journey.dealt)
    @rule(number=st.integers(0, 1), mood=moods, retry=retries, scratch=st.booleans(), kill=kill)
    def shard(self, **asked: Any) -> None:
        self.journey.shard(**asked)

    @precondition(lambda self: self.journey.dealt)
    @rule(force=st.booleans(), kill=kill)
    def gather(self, **asked: Any) -> None:
        self.journey.gather(**asked)

    def _there(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The first file in the place of one that is not there."""
        return asked if self.journey.is_there(asked["file"]) else {**asked, "file": "a"}

    def teardown(self) -> None:
        self.journey.look_at_reports()
        self.journey.end()


def test_any_order_of_commands(new_journey: Callable[[], Journey]) -> None:
    quick = settings.get_current_profile_name() == "quick"

    class Machine(AnyOrder):
        pass

    Machine.new_journey = staticmethod(new_journey)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=QUICK_ORDERS if quick else ALL_ORDERS,
            stateful_step_count=COMMANDS,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
