"""Results files in a folder, each with what it must hold; a run of some questions, and what a kill leaves of it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import lbx.benchmarks.own.benchmark
import lbx.running.runner
from lbx.backends.scripted import ScriptedBackend
from lbx.base.errors import BackendError, StoreError
from lbx.base.records import SampleKey
from lbx.results import Store
from tests.anyorder.killing import Answers, Watch, watched
from tests.anyorder.ledger import Held, check, check_views
from tests.anyorder.small_world import Key, World
from tests.command_line import Lbx

FINE, FAILS, EMPTY = "fine", "fails", "empty"
"""How a model is that is asked: every second question may fail, or get an empty answer."""


class Files:
    """Results files in a folder, and what is done to them.

    Args:
        folder: new.
        empty: a results file without a row.
    """

    def __init__(self, world: World, folder: Path, empty: Path) -> None:
        self.world, self.folder, self._empty = world, folder, empty
        self.lbx = Lbx()
        self.held: dict[str, Held] = {}
        self.names: dict[Any, str] = {}
        """{what makes a run: the name that lbx gives it}."""
        self.dealt: tuple[int, str] | None = None
        """Of which weights and tasks there are shards."""
        for place in ("", "disk"):
            (folder / place).mkdir()
        self._patches = contextlib.ExitStack()
        self._patches.enter_context(mock.patch.object(lbx.running.runner, "BATCH_ROWS", 3))
        self._patches.enter_context(mock.patch.object(lbx.running.runner, "BATCH_SECONDS", 3600.0))

    def end(self) -> None:
        self._patches.close()
        shutil.rmtree(self.folder)

    # Files

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.duckdb"

    def runs(self, name: str, *, judges: bool = False) -> list[str]:
        """Runs of a file that have answers."""
        kinds = self.held[name].kinds if name in self.held else {}
        answered = {key[0] for key in self.held[name].answers} if name in self.held else set()
        return sorted(run for run, kind in kinds.items() if run in answered and (kind[0] == "judge") == judges)

    def is_there(self, name: str) -> bool:
        """Whether there is such a results file; a run that was killed as it began may have left one without tables."""
        if name not in self.held or not self.path(name).exists():
            assert name not in self.held or not self.held[name].answers, "a results file is gone"
            return False
        return bool(self.held[name].answers) or bool(runs_in(self.path(name)))

    def check(self, *names: str) -> None:
        for name in names:
            if self.is_there(name):
                self._check_right(name)
                check(self.path(name), self.held[name], self._empty)

    def look_at_reports(self) -> None:
        """What reports show of each whole file."""
        for name, held in self.held.items():
            if self.is_there(name) and not held.dirty:
                check_views(self.path(name), self._empty)

    def _check_right(self, name: str) -> None:
        """How many of the numbers are right, counted by hand; the official number is one of all of the questions."""
        held, questions = self.held[name], self.world.questions["tales/numbers"]
        with Store(self.path(name), read_only=True) as store:
            shown = store.query("SELECT run_id, n, score, official FROM task_scores WHERE task = 'numbers'").rows
        numbers = {run: rest for run, *rest in shown}
        for run in {key[0] for key in held.answers} - held.dirty:
            said = {key[3:]: answer[0] or "" for key, answer in held.answers.items()
                    if key[:3] == (run, "tales", "numbers") and not answer[1]}  # fmt: skip
            if not said:
                assert run not in numbers
                continue
            right = [questions[sample] in text for (sample, _), text in said.items()]
            n, score, official = numbers[run]
            assert (n, score) == (len(right), pytest.approx(sum(right) / len(right)))
            times = 1 + max(iteration for _, iteration in said)
            assert (official is not None) == (len(said) == times * len(questions)), (run, official, said)

    # Asking

    def _ask(
        self,
        file: str,
        kind: tuple[Any, ...],
        name: str | None,
        asked: list[Key],
        options: tuple[Any, ...],
        mood: str = FINE,
        retry: tuple[str, ...] = (),
        *,
        scratch: bool = False,
        kill: int = 0,
    ) -> None:
        """``lbx run`` of these questions, and what must come of it."""
        held = self.held.get(file, Held())
        model, path = self.folder / "m.jsonl", self.path(file)
        self.world.write_model(model, kind[1])
        disk = ("--scratch", self.folder / "disk") if scratch else ()
        if not scratch:
            self._forget_disk(held)
        begun = held.pending if held.pending is not None else held.answers
        command = ("run", "-b", self.world.bundle, "-m", model, "-o", path, "--no-plan", "--json", *options, *disk)
        with watched(self.folder, kill) as watch, self._in_mood(mood):
            done = self.lbx(*command, *(f"--retry-{what}" for what in retry))
        refused = name is not None and held.kinds.get(name, kind) != kind
        if watch.dead:
            self._after_kill(file, held, watch, begun, scratch=scratch)
            if not refused:
                self._name_killed(file, kind, name)
            self.check(file)
            return
        if refused:
            assert done.returncode == 1 and "different settings" in " ".join(done.stderr.split()), done.stderr
            self._keep(file, held, begun)
            self.check(file)
            return
        told = json.loads(done.stdout)
        run = told["run_id"]
        self._is_named(kind, name, run)
        after = {**begun}
        for key in asked:
            if (run, *key) not in after or self._is_asked_again(after[run, *key], retry):
                after[run, *key] = self._answer(kind[1], key, mood)
        failures = any(key[0] == run and failed for key, (_, failed) in after.items())
        assert done.returncode == (3 if failures else 0), done.stderr
        held.kinds[run] = kind
        held.dirty.discard(run)
        self._keep(file, held, after)
        self.check(file)

    # What becomes of a file

    def _keep(self, file: str, held: Held, answers: Answers) -> None:
        """The file is there, and nothing on the scratch disk."""
        held.answers, held.pending = answers, None
        if self.path(file).exists():
            self.held[file] = held

    def _after_kill(self, file: str, held: Held, watch: Watch, begun: Answers, *, scratch: bool) -> None:
        path = self.path(file)
        if scratch:
            copied, count = watch.published.get(path, (None, 0))
            places = [place for place in watch.committed if place.is_relative_to(self.folder / "disk")]
            changes = [change for place in places for change in watch.committed[place]]
            live = {**begun}
            for change in changes:
                change(live)
            if copied:
                held.answers = {**begun}
                for change in changes[:count]:
                    change(held.answers)
            held.pending = live if any((self.folder / "disk").iterdir()) else None
        else:
            for change in watch.committed.get(path, ()):
                change(held.answers)
        self.held[file] = held

    def _name_killed(self, file: str, kind: tuple[Any, ...], name: str | None) -> None:
        """A killed command did not say what its run is called, if it came to have one."""
        held = self.held[file]
        left = [*(self.folder / "disk").glob(f"*/{self.path(file).name}")] if held.pending is not None else []
        entered = {run for path in (self.path(file), *left) for run in runs_in(path)}
        new = entered - held.kinds.keys()
        assert len(new) <= 1, new
        run = new.pop() if new else name or self.names.get(kind)
        if run in entered:
            self._is_named(kind, name, run)
            held.kinds[run] = kind
            held.dirty.add(run)

    def _is_named(self, kind: tuple[Any, ...], name: str | None, run: str) -> None:
        """Lbx calls the same run the same, and no other."""
        if name:
            assert run == name
            return
        assert self.names.setdefault(kind, run) == run
        assert len({*self.names.values()}) == len(self.names), self.names

    def _forget_disk(self, held: Held) -> None:
        """As the message tells people to: what lies on the disk beside a file that goes on without it is removed."""
        if held.pending is not None:
            shutil.rmtree(self.folder / "disk")
            (self.folder / "disk").mkdir()
            for one in self.held.values():
                one.pending = None

    @staticmethod
    def _is_asked_again(answer: tuple[str | None, bool], retry: tuple[str, ...]) -> bool:
        output, failed = answer
        return "failed" in retry if failed else "empty" in retry and not output

    # The model

    def _wrong(self, key: Key) -> bool:
        return [*self.world.questions["/".join(key[:2])]].index(key[2]) % 2 == 1

    def _answer(self, weights: int, key: Key, mood: str) -> tuple[str | None, bool]:
        if mood == FINE or not self._wrong(key):
            return self.world.answer(weights, key), False
        return (None, True) if mood == FAILS else ("", False)

    @contextlib.contextmanager
    def _in_mood(self, mood: str) -> Iterator[None]:
        answer = ScriptedBackend._answer
        wrong = {str(SampleKey(*key)) for key in self.world.keys(",".join(self.world.questions), iterations=2)
                 if self._wrong(key)}  # fmt: skip

        def in_mood(self: ScriptedBackend, request: Any) -> Any:
            if str(request.key) in wrong and mood == FAILS:
                raise BackendError("Out of memory.")
            if str(request.key) in wrong and mood == EMPTY:
                with mock.patch.object(self, "_entries", {"*": type(next(iter(self._entries.values())))("")}):
                    return answer(self, request)
            return answer(self, request)

        with mock.patch.object(ScriptedBackend, "_answer", in_mood):
            yield


def runs_in(path: Path) -> list[str]:
    """None where there is no results file, or one without tables."""
    try:
        with Store(path, read_only=True) as store:
            return [run for (run,) in store.query("SELECT run_id FROM runs").rows]
    except StoreError:
        return []
