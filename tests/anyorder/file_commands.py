"""Runs of a file that are renamed, removed and described."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from lbx.results import Store
from tests.anyorder.held_files import Files, runs_in
from tests.anyorder.killing import Answers, watched
from tests.anyorder.ledger import Held, rows_in


class FileCommands(Files):
    """``lbx runs``."""

    def _listed(self, file: str) -> list[str]:
        """All runs of a file, judges after the others."""
        judges = self.runs(file, judges=True) if file in self.held else []
        return sorted(runs_in(self.path(file)), key=lambda run: (run in judges, run))

    def rename(self, file: str, run: int, name: str, kill: int = 0) -> None:
        """``lbx runs rename``: everything of the run has the new name, or nothing where it was killed or refused."""
        if not (there := self._listed(file)):
            return
        held, old = self.held[file], there[run % len(there)]
        self._forget_disk(held)
        with watched(self.folder, kill) as watch:
            done = self.lbx("runs", "rename", self.path(file), old, name)
        if not watch.dead and (name in there or held.journal):
            assert done.returncode in (1, 2), done.stdout
        elif not watch.dead or (name in runs_in(self.path(file)) and name not in there):
            assert watch.dead or done.returncode == 0, done.stderr
            self._renamed(file, held, old, name)
        self.check(file)

    def _renamed(self, file: str, held: Held, old: str, new: str) -> None:
        """The ledger has the new name; rounds and sets of ratings, which are named by their content, have new names."""

        def named(run: Any) -> Any:
            return new if run == old else run

        answers, ratings = rows_in(self.path(file))
        wanted = {(named(key[0]), *key[1:]): answer for key, answer in held.answers.items()}
        assert _without_rounds(answers) == _without_rounds(wanted)
        wanted_ratings = [(*row[:3], named(row[3]), row[4], named(row[5]), *row[6:]) for row in held.ratings]
        assert Counter(row[1:] for row in ratings) == Counter(row[1:] for row in wanted_ratings)
        held.answers, held.ratings = answers, ratings
        held.kinds = {named(run): kind for run, kind in held.kinds.items()}
        held.dirty = {*map(named, held.dirty)}

    def remove(
        self, file: str, run: int, *, with_dependents: bool = True, vacuum: bool = False, kill: int = 0
    ) -> None:  # fmt: skip
        """``lbx runs remove``: the run is gone with all that is about it, or nothing is."""
        if not (there := self._listed(file)):
            return
        held, path, name = self.held[file], self.path(file), there[run % len(there)]
        self._forget_disk(held)
        rounds = _rounds_on(path, name)
        before, ratings = held.ratings, {row for row in held.ratings if name in (row[3], row[5])}
        options = [
            option for option, wanted in (("--with-dependents", with_dependents), ("--vacuum", vacuum)) if wanted
        ]
        with watched(self.folder, kill) as watch:
            done = self.lbx("runs", "remove", path, name, *options)
        refused = bool(held.journal) or (not with_dependents and (rounds or ratings))
        if not watch.dead:
            assert done.returncode == (0 if not refused else 1 if held.journal else 2), done.stderr
        if name not in runs_in(path):
            assert not refused
            held.answers = {key: one for key, one in held.answers.items() if key[0] != name and key not in rounds}
            held.ratings = rows_in(path)[1]
            assert Counter(row[1:] for row in held.ratings) == Counter(row[1:] for row in before - ratings)
            empty = {judge for judge, *_ in rounds} - {key[0] for key in held.answers}
            held.kinds = {one: kind for one, kind in held.kinds.items() if one not in {name, *empty}}
            assert {*runs_in(path)} == {*there} - {name, *empty}
            held.dirty &= held.kinds.keys()
            assert not _unused_samples(path)
        else:
            assert watch.dead or refused
        self.check(file)

    def vacuum(self, file: str, kill: int = 0) -> bool:
        """``lbx runs remove --vacuum`` of no run: the same rows in a new file. Returns whether it was killed."""
        if not self.is_there(file):
            return False
        self._forget_disk(self.held[file])
        with watched(self.folder, kill) as watch:
            done = self.lbx("runs", "remove", self.path(file), "--vacuum")
        assert watch.dead or done.returncode == 0, done.stderr
        self.check(file)
        return watch.dead

    def note(self, file: str, run: int, value: int, kill: int = 0) -> None:
        """``lbx runs note``, which changes no answer and no number."""
        if not (there := self._listed(file)):
            return
        name = there[run % len(there)]
        self._forget_disk(self.held[file])
        with watched(self.folder, kill) as watch:
            done = self.lbx("runs", "note", self.path(file), name, f"PE={value}", "--json")
        assert watch.dead or json.loads(done.stdout)["PE"] == str(value), done.stderr
        self.check(file)


def _without_rounds(answers: Answers) -> Counter[Any]:
    """The answers, those of judges without the names of their rounds."""
    return Counter((key[:3] if key[1] == "judge" else key, answer) for key, answer in answers.items())


def _rounds_on(path: Path, run: str) -> set[tuple[str, str, str, str, int]]:
    """Other judges' answers about a run."""
    with Store(path, read_only=True) as store:
        rows = store.query(
            "SELECT judge_id, 'judge', rubric, round_id, judge_iteration FROM judgements "
            "WHERE judge_id <> $1 AND (run_id = $1 OR against_run_id = $1)", [run]
        ).rows  # fmt: skip
    return {*rows}


def _unused_samples(path: Path) -> int:
    with Store(path, read_only=True) as store:
        key = "benchmark, task, sample_id"
        used = f"SELECT {key} FROM generations UNION SELECT {key} FROM rating_items UNION SELECT {key} FROM judgements"
        ((count,),) = store.query(f"SELECT count(*) FROM samples ANTI JOIN ({used}) USING ({key})").rows
    return int(count)
