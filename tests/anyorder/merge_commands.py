"""Files that are merged, and a run in shards."""

from __future__ import annotations

from lbx.cluster.folder import RunFolder
from lbx.results.scoring.reading import open_with_numbers
from lbx.running.forecast.shards import read_shards
from tests.anyorder.held_files import FINE, Files
from tests.anyorder.killing import watched
from tests.anyorder.ledger import SHOWN, Held, rows_in, sorted_rows
from tests.command_line import Done


class Merges(Files):
    """``lbx merge``, ``lbx runs extract`` and ``lbx submit``."""

    def merge(self, sources: tuple[str, ...], output: str, *, force: bool = False, kill: int = 0) -> None:
        """``lbx merge`` of files; what only the replaced file holds stays in it, or the merge is refused."""
        sources = tuple(name for name in dict.fromkeys(sources) if self.is_there(name) and name != output)
        there = self.held.get(output)
        if not sources:
            return
        for name in sources:
            self._forget_disk(self.held[name])
        with watched(self.folder, kill) as watch:
            done = self.lbx(
                "merge", *map(self.path, sources), "-o", self.path(output), *(["--update"] if force else [])
            )
        if not watch.dead:
            self._merged(done, [self.held[name] for name in sources], output, force=force)
        else:
            self._killed([self.held[name] for name in sources], output, there)
        self.check(*sources, output)

    def _merged(self, done: Done, sources: list[Held], output: str, *, force: bool) -> None:
        """What became of a merge: all that the files hold, and what the replaced one held beside; or a refusal."""
        there = self.held.get(output)
        joined = self._joined([*sources, *([there] if there else [])])
        if joined is None or (there and not force):
            assert done.returncode in (1, 2), done.stderr
            return
        self._replaced(joined, output, there)
        failures = any(failed for _, failed in joined.answers.values())
        assert done.returncode == (3 if failures else 0), done.stderr

    def _killed(self, sources: list[Held], output: str, there: Held | None) -> None:
        """A merge that was killed leaves the file from before, or else, killed after its last rename, the new one."""
        if there is None:
            self.path(output).unlink(missing_ok=True)  # whole, and nobody was told
            return
        joined = self._joined([*sources, there])
        if joined is None or not self.is_there(output):
            return
        if rows_in(self.path(output)) != (there.answers, there.ratings):
            self._replaced(joined, output, there)
        else:  # either file: the new one may have numbers that a source's killed command left
            there.dirty |= joined.dirty

    def _replaced(self, joined: Held, output: str, there: Held | None) -> None:
        """The output holds what was joined; of unsure answers the one that the file holds."""
        held, _ = rows_in(self.path(output))
        for key, ways in joined.unsure.items():
            assert held[key] in ways
            joined.answers[key] = held[key]
        joined.unsure.clear()
        joined.journal = there.journal if there else set()
        self.held[output] = joined

    def extract(self, file: str, *, without_texts: bool, kill: int = 0) -> None:
        """``lbx runs extract``: every row and number in another file, or no file; the source stays as it was."""
        if not self.is_there(file):
            return
        output = self.folder / "extract.duckdb"
        with watched(self.folder, kill) as watch:
            done = self.lbx("runs", "extract", self.path(file), "-o", output,
                            *(["--without-texts"] if without_texts else []))  # fmt: skip
        assert watch.dead or done.returncode == 0, done.stderr
        if output.exists():
            answers, ratings = rows_in(self.path(file))
            if without_texts:
                answers = {key: (None, failed) for key, (_, failed) in answers.items()}
            assert rows_in(output) == (answers, ratings)
            with open_with_numbers(self.path(file)) as source, open_with_numbers(output) as copy:
                for view in SHOWN:
                    assert sorted_rows(copy, f"FROM {view}") == sorted_rows(source, f"FROM {view}"), view
            output.unlink()
        else:
            assert watch.dead
        self.check(file)

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
        for key in {key for one in files for key in one.answers}:
            ways = {one.answers[key] for one in files if key in one.answers}
            good = {answer for answer in ways if answer[0]}
            if len(good) > 1:
                return None
            joined.answers[key] = min(good or ways, key=repr)
            if not good and len(ways) > 1:
                joined.unsure[key] = ways
        return joined

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
        options = ("--tasks", tasks, "--iterations", 1, "--name", "cluster", "--shard-plan", folder.plan_file)
        self._ask(
            f"cluster/shards/{number:04d}", ("run", weights, 1), "cluster", asked,  # type: ignore[arg-type]
            (*options, "--shard", number), mood, retry, scratch=scratch, kill=kill,
        )  # fmt: skip

    def gather(self, *, force: bool = False, kill: int = 0) -> None:
        """``lbx merge`` of a cluster's folder."""
        shards = tuple(name for name in (f"cluster/shards/{n:04d}" for n in range(2)) if self.is_there(name))
        output = "cluster/results"
        there = self.held.get(output)
        if not shards:
            return
        for name in shards:
            self._forget_disk(self.held[name])
        with watched(self.folder, kill) as watch:
            done = self.lbx("merge", self.folder / "cluster", *(["--update"] if force else []))
        if not watch.dead:
            sources = [self.held[name] for name in shards]
            asked = self.world.keys(self.dealt[1]) if self.dealt else []
            gaps = len(asked) > len({key for one in sources for key in one.answers})
            if gaps and done.returncode == 3:
                done.returncode = 3 if any(failed for one in sources for _, failed in one.answers.values()) else 0
            self._merged(done, sources, output, force=force)
        else:
            self._killed([self.held[name] for name in shards], output, there)
        self.check(*shards, output)
