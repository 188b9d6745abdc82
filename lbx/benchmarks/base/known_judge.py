"""A judge whose verdicts on published answers are known: what any other judge is held against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownJudge:
    """What is known of it.

    Attributes:
        name: what messages call it.
        opponent, opponent_run: the model that all others were compared with, and the run of its published answers.
        win_rates: {model: its win rate against the opponent, in percent}.
        runs: {model: the run of its published answers}.
        ordered: (better, worse) models, where the order of their win rates is beyond doubt.
        questions: how many answers of each model were compared.
        mark: of the questions that were asked.
    """

    name: str
    opponent: str
    opponent_run: str
    win_rates: Mapping[str, float]
    runs: Mapping[str, str]
    ordered: Sequence[tuple[str, str]]
    questions: int
    mark: str
