"""Commands in any order, each a real one in this process; beside each results file what it must hold after it."""

from __future__ import annotations

import json
import shutil
from unittest import mock

import lbx.benchmarks.own.benchmark
import lbx.running.runner
from tests.anyorder.file_commands import FileCommands
from tests.anyorder.held_files import FINE
from tests.anyorder.killing import watched
from tests.anyorder.ledger import Held
from tests.anyorder.merge_commands import Merges
from tests.anyorder.opinion_commands import Opinions


class Journey(Merges, Opinions, FileCommands):
    """Results files in a folder, and what is done to them."""

    def run(
        self,
        file: str,
        weights: int = 0,
        tasks: str = "tales",
        limit: int | None = None,
        iterations: int = 1,
        name: str | None = None,
        mood: str = FINE,
        retry: tuple[str, ...] = (),
        scratch: bool = False,
        kill: int = 0,
    ) -> None:
        asked = self.world.keys(tasks, limit, iterations)
        more = ("--limit", limit) if limit else ()
        options = ("--tasks", tasks, "--iterations", iterations, *more, *(("--name", name) if name else ()))
        self._ask(file, ("run", weights, iterations), name, asked, options, mood, retry, scratch=scratch, kill=kill)

    def score(self, file: str, kill: int = 0) -> None:
        """``lbx score``."""
        if not self.is_there(file):
            return
        held = self.held[file]
        self._forget_disk(held)
        with watched(self.folder, kill) as watch:
            done = self.lbx("score", self.path(file), "--processes", 1)
        if watch.dead:
            held.dirty |= {*held.kinds}
        else:
            assert done.returncode == 0, done.stderr
            held.dirty.clear()
        self.check(file)

    def carry(self, file: str, to: str, run: int, kill: int = 0) -> None:
        """``lbx export`` of a run, ``lbx import`` of its files, and export again."""
        answered = sorted({key[:2] for key in self.held[file].answers if key[1] != "judge"})
        if not answered or file == to or not self.path(to).parent.is_dir():
            return
        name, benchmark = answered[run % len(answered)]
        exported = {
            key[1:]: answer for key, answer in self.held[file].answers.items()
            if key[:2] == (name, benchmark) and not answer[1] and key[4] == 0
        }  # fmt: skip
        files = self.folder / "exported"
        shutil.rmtree(files, ignore_errors=True)
        if not exported:  # nothing but failures
            return
        done = self.lbx("export", benchmark, self.path(file), "--run", name, "-o", files)
        assert done.returncode == 0, done.stderr
        held = self.held.get(to, Held())
        self._forget_disk(held)
        with watched(self.folder, kill) as watch:
            done = self.lbx("import", benchmark, files, "-o", self.path(to), "--model-name", "carried",
                            "-b", self.world.bundle, "--json", "--processes", 1)  # fmt: skip
        kind = ("import", benchmark, tuple(sorted(exported.items())))
        if watch.dead:
            self._after_kill(to, held, watch, {**held.answers}, scratch=False)
            self._name_killed(to, kind, None)
        else:
            assert done.returncode == 0, done.stderr
            carried = json.loads(done.stdout)["run_id"]
            self._is_named(kind, None, carried)
            held.kinds[carried] = kind
            held.answers |= {(carried, *key): answer for key, answer in exported.items()}
            held.dirty.discard(carried)
            self.held[to] = held
            again = self.folder / "again"
            shutil.rmtree(again, ignore_errors=True)
            done = self.lbx("export", benchmark, self.path(to), "--run", carried, "-o", again)
            assert done.returncode == 0, done.stderr
            assert [(one.name, one.read_bytes()) for one in sorted(again.iterdir())] == [
                (one.name, one.read_bytes()) for one in sorted(files.iterdir())
            ]
        self.check(file, to)

    def upgrade(self) -> None:
        """From now on lbx has a newer metric for the tales, by which all files are scored again."""
        own = lbx.benchmarks.own.benchmark.CustomBenchmark
        self._patches.enter_context(mock.patch.object(own, "metric_version", own.metric_version + 1))
        for file in [*self.held]:
            self.score(file)
