"""Commands in any order, each a real one in this process; beside each results file what it must hold after it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from command_line import Done, Lbx
from killing import Answers, Watch, watched
from known_faults import KNOWN
from ledger import ANSWER, RATING, Held, Rating, check, check_views
from small_world import Key, World

import lbx.benchmarks.own
import lbx.engine.runner
from lbx.backends.scripted import ScriptedBackend
from lbx.cluster.folder import RunFolder
from lbx.engine.planning.shards import read_shards
from lbx.errors import BackendError, StoreError, UsageError
from lbx.people.book import Book, Said
from lbx.people.choosing import rating_set
from lbx.people.collecting import collected
from lbx.people.journal import Journal, journal_of, row_of
from lbx.records import SampleKey
from lbx.store import Store
from lbx.store.ratings import ratings_of
from lbx.store.verifications import VerificationRow, keep_verifications

FINE, FAILS, EMPTY = "fine", "fails", "empty"
"""How a model is that is asked: every second question may fail, or get an empty answer."""
OFTEN = 0.00001
"""Minutes between copies of a scratch file: one at every commit."""


class Journey:
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
        self._upgraded = False
        for place in ("", "disk"):
            (folder / place).mkdir()
        self._patches = contextlib.ExitStack()
        self._patches.enter_context(mock.patch.object(lbx.engine.runner, "BATCH_ROWS", 3))
        self._patches.enter_context(mock.patch.object(lbx.engine.runner, "BATCH_SECONDS", 3600.0))

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
        return bool(self.held[name].answers) or bool(_runs_in(self.path(name)))

    def check(self, *names: str) -> None:
        for name in names:
            if self.is_there(name):
                self._check_right(name)
                check(self.path(name), self.held[name], self._empty)

    def look_at_reports(self) -> None:
        """What reports show of each whole file."""
        for name, held in self.held.items():
            if self.is_there(name) and not held.dirty | held.behind:
                check_views(self.path(name), self._empty)

    def _check_right(self, name: str) -> None:
        """How many of the numbers are right, counted by hand; the official number is one of all of the questions."""
        held, questions = self.held[name], self.world.questions["tales/numbers"]
        with Store(self.path(name), read_only=True) as store:
            shown = store.query("SELECT run_id, n, score, official FROM task_scores WHERE task = 'numbers'").rows
        numbers = {run: rest for run, *rest in shown}
        for run in {key[0] for key in held.answers} - held.dirty - held.behind:
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

    # Commands

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
        options = ("--tasks", tasks, "--iterations", iterations, *more, *(("--run", name) if name else ()))
        self._ask(file, ("run", weights, iterations), name, asked, options, mood, retry, scratch=scratch, kill=kill)

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
        scratch = scratch and not self._goes_around_log(path)
        self.world.write_model(model, kind[1])
        disk = ("--scratch", self.folder / "disk", "--copy-every", OFTEN) if scratch else ()
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
            assert done.returncode == 1 and "other settings" in " ".join(done.stderr.split()), done.stderr
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
        if any(key[0] == "tales" for key in asked):
            held.behind.discard(run)
        self._keep(file, held, after)
        self.check(file)

    def score(self, file: str, kill: int = 0) -> None:
        """``lbx score``."""
        if not self.is_there(file):
            return
        held = self.held[file]
        self._forget_disk(held)
        with watched(self.folder, kill) as watch:
            done = self.lbx("score", self.path(file), "--workers", 1)
        if watch.dead:
            held.dirty |= {*held.kinds}
        else:
            assert done.returncode == 0, done.stderr
            held.dirty.clear()
            held.behind.clear()
        self.check(file)

    def merge(self, sources: tuple[str, ...], output: str, *, force: bool = False, kill: int = 0) -> None:
        """``lbx merge`` of files; what only the replaced file holds stays in it, or the merge is refused."""
        sources = tuple(name for name in dict.fromkeys(sources) if self.is_there(name) and name != output)
        there = self.held.get(output)
        if not sources or self._goes_around_merge(there, sources, force=force):
            return
        for name in sources:
            self._forget_disk(self.held[name])
        with watched(self.folder, kill) as watch:
            done = self.lbx("merge", *map(self.path, sources), "-o", self.path(output), *(["--force"] if force else []))
        if not watch.dead:
            self._merged(done, [self.held[name] for name in sources], output, force=force)
        elif self.path(output).exists() and there is None:
            self.path(output).unlink()  # whole, and nobody was told
        self.check(*sources, output)

    def _merged(self, done: Done, sources: list[Held], output: str, *, force: bool) -> None:
        """What became of a merge: all that the files hold, and what the replaced one held beside; or a refusal."""
        there = self.held.get(output)
        joined = self._joined([*sources, *([there] if there and 4 not in KNOWN else [])])
        if joined is None or (there and not force):
            assert done.returncode in (1, 2), done.stderr
            return
        with Store(self.path(output), read_only=True) as store:
            held = {tuple(row[:5]): tuple(row[5:]) for row in store.query(f"SELECT {ANSWER} FROM generations").rows}
        for key, ways in joined.unsure.items():
            assert held[key] in ways
            joined.answers[key] = held[key]
        failures = any(failed for _, failed in joined.answers.values())
        assert done.returncode == (3 if failures else 0), done.stderr
        joined.unsure.clear()
        joined.journal = there.journal if there else set()
        self.held[output] = joined

    @staticmethod
    def _joined(files: list[Held]) -> Held | None:
        """All that some files hold; None where they contradict each other.

        Of failures and empty answers to one question the newer counts; which that is this ledger does not know.
        """
        joined = Held()
        for one in files:
            if any(joined.kinds.get(run, kind) != kind for run, kind in one.kinds.items()):
                return None
            joined.kinds |= one.kinds
            joined.ratings |= one.ratings
            joined.dirty |= one.dirty
            joined.behind |= one.behind
        for key in {key for one in files for key in one.answers}:
            ways = {one.answers[key] for one in files if key in one.answers}
            good = {answer for answer in ways if answer[0]}
            if len(good) > 1 or (4 in KNOWN and len(ways) > 1):
                return None
            joined.answers[key] = min(good or ways, key=repr)
            if not good and len(ways) > 1:
                joined.unsure[key] = ways
        return joined

    @staticmethod
    def _is_part(part: Held, whole: Held) -> bool:
        return part.answers.items() <= whole.answers.items() and part.ratings <= whole.ratings

    def _goes_around_merge(self, there: Held | None, sources: tuple[str, ...], *, force: bool) -> bool:
        lost = there is not None and force and not self._within(there, sources)
        return (4 in KNOWN and lost) or (10 in KNOWN and self._upgraded)

    def _within(self, part: Held, sources: tuple[str, ...]) -> bool:
        whole = self._joined([self.held[name] for name in sources])
        return whole is None or self._is_part(part, whole)

    def deal(self, weights: int, tasks: str) -> None:
        """``lbx submit``: a run in two shards."""
        if self.dealt:
            return
        self.world.write_model(self.folder / "m.jsonl", weights)
        done = self.lbx(
            "submit", "kubernetes", "-b", self.world.bundle, "-m", self.folder / "m.jsonl", "--tasks", tasks,
            "--iterations", 1, "-o", self.folder / "cluster", "--shards", 2, "--image", "i", "--run-claim", "r",
            "--bundle-claim", "b", "--characters",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.dealt = weights, tasks

    def shard(
        self, number: int, *, mood: str = FINE, retry: tuple[str, ...] = (), scratch: bool = False, kill: int = 0
    ) -> None:
        """A shard's ``lbx run``."""
        if not self.dealt:
            return
        weights, tasks = self.dealt
        folder = RunFolder(self.folder / "cluster")
        shard = read_shards(folder.plan_file).shards[number]
        asked = [(*task.split("/"), name, 0) for task, places in shard.samples.items() for name, _ in places.values()]
        options = ("--tasks", tasks, "--iterations", 1, "--run", "cluster", "--shards", folder.plan_file)
        self._ask(
            f"cluster/shards/{number:04d}", ("run", weights, 1), "cluster", asked,  # type: ignore[arg-type]
            (*options, "--shard", number), mood, retry, scratch=scratch, kill=kill,
        )  # fmt: skip

    def gather(self, *, force: bool = False, kill: int = 0) -> None:
        """``lbx merge`` of a cluster's folder."""
        shards = tuple(name for name in (f"cluster/shards/{n:04d}" for n in range(2)) if self.is_there(name))
        output = "cluster/results"
        there = self.held.get(output)
        if not shards or self._goes_around_merge(there, shards, force=force):
            return
        for name in shards:
            self._forget_disk(self.held[name])
        with watched(self.folder, kill) as watch:
            done = self.lbx("merge", self.folder / "cluster", *(["--force"] if force else []))
        if not watch.dead:
            sources = [self.held[name] for name in shards]
            asked = self.world.keys(self.dealt[1]) if self.dealt else []
            gaps = len(asked) > len({key for one in sources for key in one.answers})
            if gaps and done.returncode == 3:
                done.returncode = 3 if any(failed for one in sources for _, failed in one.answers.values()) else 0
            self._merged(done, sources, output, force=force)
        elif self.path(output).exists() and there is None:
            self.path(output).unlink()
        self.check(*shards, output)

    # Opinions

    def judge(
        self, file: str, weights: int, run: int, against: int, *, limit: int | None = None, scratch: bool = False,
        kill: int = 0,
    ) -> None:  # fmt: skip
        """``lbx judge``: one run's answers beside another's, in both orders."""
        runs = self.runs(file)
        if len(runs) < 2:
            return
        mine = runs[run % len(runs)]
        theirs = [one for one in runs if one != mine][against % (len(runs) - 1)]
        held, path = self.held[file], self.path(file)
        scratch = scratch and not self._goes_around_log(path)
        if not scratch:
            self._forget_disk(held)
        begun = held.pending if held.pending is not None else held.answers
        rounds = self._rounds(begun, mine, theirs)
        card = self.folder / "j.jsonl"
        card.write_text(json.dumps({"*": f"{('FIRST', 'SAME')[weights % 2]} j{weights}"}))
        disk = ("--scratch", self.folder / "disk", "--copy-every", OFTEN) if scratch else ()
        command = ("judge", path, "-b", self.world.bundle, "--judge", card, "--run", mine, "--against", theirs,
                   "--rubric", self.world.rubric, "--no-plan", "--json", *disk)  # fmt: skip
        kind = ("judge", weights)
        with watched(self.folder, kill) as watch:
            done = self.lbx(*command)
        if watch.dead:
            self._after_kill(file, held, watch, begun, scratch=scratch)
            self._name_killed(file, kind, None)
        elif not rounds:
            assert done.returncode == 2 and "nothing to judge" in " ".join(done.stderr.split()), done.stderr
            self._keep(file, held, begun)
        else:
            assert done.returncode == 0, done.stderr
            name = json.loads(done.stdout)["run_id"]
            self._is_named(kind, None, name)
            held.kinds[name] = kind
            held.dirty.discard(name)
            self._keep(file, held, begun | self._judged(path, begun, name, weights, (mine, theirs)))
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
                    chosen, _ = rating_set(store, (), kind="score", questions="all", limit=2)
                except UsageError:
                    return
                said = ratings_of(store, chosen.set_id).dicts()
            book = Book(chosen, ["ann"], journal, said)
            before = len(journal.records)
            for item in book.queue("ann"):
                for place in range(len(book.values("ann", item))):
                    book.say("ann", item, [Said(place, value)])
            held.journal |= _ratings(journal.records[before:])
            if collect:
                collected(path, journal)
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

    # Elsewhere

    def verify(self, file: str) -> None:
        """What ``--verify-batching`` stores of answers that are the same alone."""
        if not self.runs(file):
            return
        self._forget_disk(self.held[file])
        with Store(self.path(file)) as store:
            keep_verifications(store, [
                VerificationRow(*key, 0, True, None, None, output or "", datetime.now(UTC))
                for key, (output, failed) in self.held[file].answers.items() if not failed and key[1] != "judge"
            ])  # fmt: skip
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
            done = self.lbx("import", benchmark, files, "-o", self.path(to), "-m", "carried", "-b", self.world.bundle,
                            "--json", "--workers", 1)  # fmt: skip
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
            held.behind.discard(carried)
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
        """From now on lbx has a newer metric for the tales."""
        self._upgraded = True
        own = lbx.benchmarks.own.OwnBenchmark
        self._patches.enter_context(mock.patch.object(own, "metric_version", own.metric_version + 1))
        for held in self.held.values():
            held.behind |= {key[0] for key in held.answers if key[1] == "tales"}

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
        entered = {run for path in (self.path(file), *left) for run in _runs_in(path)}
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

    @staticmethod
    def _goes_around_log(path: Path) -> bool:
        return 3 in KNOWN and path.with_name(f"{path.name}.wal").exists()

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


def _runs_in(path: Path) -> list[str]:
    """None where there is no results file, or one without tables."""
    try:
        with Store(path, read_only=True) as store:
            return [run for (run,) in store.query("SELECT run_id FROM runs").rows]
    except StoreError:
        return []


def _ratings(records: list[dict[str, Any]]) -> set[Rating]:
    """What lines of a journal say."""
    rows = [row_of(row) for record in records for row in record.get("ratings", ())]
    names = RATING.split(", ")
    return {tuple(_value(getattr(row, name)) for name in names) for row in rows}


def _value(value: object) -> object:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
