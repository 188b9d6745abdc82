"""Runs of a file that are renamed, removed and described."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from held_files import Files, runs_in
from killing import Answers, watched
from ledger import Held, Rating, rows_in


class FileCommands(Files):
    """``lbx runs``."""

    def rename(self, file: str, run: int, name: str, kill: int = 0) -> None:
        """``lbx runs rename``: everything of the run has the new name, or nothing where it was killed or refused."""
        if not (there := sorted(runs_in(self.path(file)))):
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

    def note(self, file: str, run: int, value: int, kill: int = 0) -> None:
        """``lbx runs note``, which changes no answer and no number."""
        if not (there := sorted(runs_in(self.path(file)))):
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


def without(rows: Iterable[Rating], runs: set[str]) -> set[Rating]:
    """Ratings of other runs' answers."""
    return {row for row in rows if not {row[3], row[5]} & runs}
