"""Judges and raters of answers."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.opinions.journal import Journal, journal_of, move_journal, parse_rating
from lbx.opinions.rating_rows import ratings_of
from lbx.opinions.rating_session import Opinion, RatingSession
from lbx.opinions.rating_sets import make_rating_set
from lbx.results import Store
from tests.anyorder.held_files import Files
from tests.anyorder.killing import Answers, watched
from tests.anyorder.ledger import RATING, Rating


class Opinions(Files):
    """``lbx judge`` and ``lbx rate``."""

    def judge(
        self, file: str, weights: int, run: int, against: int, *, limit: int | None = None, scratch: bool = False,
        name: str | None = None, kill: int = 0,
    ) -> None:  # fmt: skip
        """``lbx judge``: one run's answers beside another's, in both orders."""
        runs = self.runs(file)
        if len(runs) < 2:
            return
        mine = runs[run % len(runs)]
        theirs = [one for one in runs if one != mine][against % (len(runs) - 1)]
        held, path = self.held[file], self.path(file)
        if not scratch:
            self._forget_disk(held)
        begun = held.pending if held.pending is not None else held.answers
        rounds = self._rounds(begun, mine, theirs)
        card = self.folder / "j.jsonl"
        card.write_text(json.dumps({"*": f"{('FIRST', 'SAME')[weights % 2]} j{weights}"}))
        more = ("--scratch", self.folder / "disk") if scratch else ()
        more += ("--name", name) if name else ()
        command = ("judge", path, "-b", self.world.bundle, "--judge", card, "--run", mine, "--against", theirs,
                   "--rubric", self.world.rubric, "--no-plan", "--json", *more)  # fmt: skip
        kind = ("judge", weights)
        with watched(self.folder, kill) as watch:
            done = self.lbx(*command)
        if watch.dead:
            self._after_kill(file, held, watch, begun, scratch=scratch)
            self._name_killed(file, kind, name)
        elif not rounds:
            assert done.returncode == 2 and "No questions to judge" in " ".join(done.stderr.split()), done.stderr
            self._keep(file, held, begun)
        else:
            assert done.returncode == 0, done.stderr
            judge = json.loads(done.stdout)["run_id"]
            self._is_named(kind, name, judge)
            held.kinds[judge] = kind
            held.dirty.discard(judge)
            self._keep(file, held, begun | self._judged(path, begun, judge, weights, (mine, theirs)))
        self.check(file)

    @staticmethod
    def _rounds(answers: Answers, mine: str, theirs: str) -> set[tuple[object, ...]]:
        """(benchmark, task, sample id, iteration, the opponent's, whether it comes first) of what can be compared."""
        good: dict[str, dict[tuple[str, str, str], list[int]]] = {mine: {}, theirs: {}}
        for (run, benchmark, task, name, iteration), (_, failed) in answers.items():
            if run in good and not failed and benchmark not in ("judge",):
                good[run].setdefault((benchmark, task, name), []).append(iteration)
        return {
            (*place, i, i if i in good[theirs][place] else min(good[theirs][place]), first)
            for place in good[mine].keys() & good[theirs].keys()
            for i in good[mine][place]
            for first in (True, False)
        }

    def _judged(self, path: Path, begun: Answers, judge: str, weights: int, asked: tuple[str, str]) -> Answers:
        """The judge's new answers, which are to all rounds of these two runs; their names are lbx's own."""
        with Store(path, read_only=True) as store:
            rows = store.query(
                "SELECT run_id, against_run_id, benchmark, task, sample_id, iteration, against_iteration, "
                "answer_first, current, round_id, rubric, output FROM judgements WHERE judge_id = ?", [judge]
            ).rows  # fmt: skip
        said = f"{('FIRST', 'SAME')[weights % 2]} j{weights}"
        new: Answers = {}
        current: Counter[tuple[object, ...]] = Counter()
        for run, against, *place, is_current, name, rubric, output in rows:
            key = (judge, "judge", rubric, name, 0)
            assert output == said, "a verdict under another judge's name"
            current[run, against, *place] += is_current
            if key not in begun:
                new[key] = (said, False)
        assert set(current.values()) <= {0, 1}, "a round is doubled"
        for runs in {(run, against) for run, against, *_ in rows} | {asked}:
            there = {one[2:] for one, count in current.items() if one[:2] == runs and count}
            possible = self._rounds(begun, *runs)
            assert there == possible if runs == asked else there <= possible, f"rounds: {there ^ possible}"
        return new

    def rate(self, file: str, value: int, *, collect: bool = True, kill: int = 0) -> None:
        """``lbx rate``, without its page: someone rates the first questions, and the ratings are moved, or not."""
        if not self.runs(file):
            return
        held, path = self.held[file], self.path(file)
        self._forget_disk(held)
        with watched(self.folder, kill) as watch, Journal(journal_of(path)) as journal:
            with Store(path) as store:
                try:
                    chosen, _ = make_rating_set(store, (), kind="score", questions="all", limit=2)
                except UsageError:
                    return
                said = ratings_of(store, chosen.set_id).dicts()
            book = RatingSession(chosen, ["ann"], journal, said)
            before = len(journal.records)
            for item in book.queue("ann"):
                for place in range(len(book.values("ann", item))):
                    book.save("ann", item, [Opinion(place, value)])
            held.journal |= _ratings(journal.records[before:])
            if collect:
                move_journal(path, journal)
        if watch.dead:
            self._after_collecting(file)
        elif collect:
            held.ratings |= held.journal
            held.journal.clear()
        self.check(file)

    def collect(self, file: str, kill: int = 0) -> None:
        """``lbx rate --collect``."""
        if not self.is_there(file):
            return
        held, path = self.held[file], self.path(file)
        self._forget_disk(held)
        with watched(self.folder, kill) as watch:
            done = self.lbx("rate", path, "--collect")
        if watch.dead:
            self._after_collecting(file)
        else:
            assert done.returncode == 0, done.stderr
            held.ratings |= held.journal
            held.journal.clear()
        self.check(file)

    def _after_collecting(self, file: str) -> None:
        """A rating is in the journal, or in the file, or in both."""
        held, path = self.held[file], self.path(file)
        journal = journal_of(path)
        lines = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        written = _ratings(lines)
        with Store(path, read_only=True) as store:
            moved = set(store.query(f"SELECT {RATING} FROM ratings").rows)
        assert moved >= held.ratings and moved | written == held.ratings | held.journal, "a rating is lost"
        held.ratings, held.journal = moved, written
        held.dirty |= {*held.kinds}


def _ratings(records: list[dict[str, Any]]) -> set[Rating]:
    """What lines of a journal say."""
    rows = [parse_rating(row) for record in records for row in record.get("ratings", ())]
    names = RATING.split(", ")
    return {tuple(_value(getattr(row, name)) for name in names) for row in rows}


def _value(value: object) -> object:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
