"""A stand-in for PBS or LSF on this machine.

Its programs take the options that the documentation of the real ones has, and refuse others. ``BatchSystem`` runs the
jobs, each in a session of its own, and signals all processes of a job like the real ones.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

PATIENCE_S = 180.0
PROGRAMS = {"pbs": ("qsub", "qstat"), "lsf": ("bsub", "bjobs")}
OPTIONS = {"qsub": "S N j o r q l J W v P A", "bsub": "J o q W n R gpu Q wa wt w P"}
FLAGS = {"qsub": "", "bsub": "r"}
PREFIXES = {"qsub": "#PBS", "bsub": "#BSUB"}


def refuse(text: str) -> NoReturn:
    print(text, file=sys.stderr)
    raise SystemExit(1)


def read_options(program: str, words: list[str], script: str) -> tuple[dict[str, list[str]], list[str]]:
    """Options of the script's directives and of the command line, whose values count."""
    parser = argparse.ArgumentParser(program, allow_abbrev=False, add_help=False)
    for name in OPTIONS[program].split():
        parser.add_argument(f"-{name}", action="append", default=[])
    for name in FLAGS[program].split():
        parser.add_argument(f"-{name}", action="append_const", const="", default=[])
    parser.add_argument("operands", nargs="*")
    given = vars(parser.parse_args(words))
    operands = given.pop("operands")
    text = script or Path(operands[0]).read_text()
    for line in text.splitlines():
        if program == "qsub" and line.strip() and not line.startswith("#"):
            break  # PBS reads no directives after the first command
        if line.startswith(f"{PREFIXES[program]} "):
            directive = vars(parser.parse_args(shlex.split(line)[1:]))
            assert not directive.pop("operands"), line
            for name, values in directive.items():
                given[name] = given[name] if given[name] and name not in "lR" else [*given[name], *values]
    return given, [text, *operands]


def qsub(words: list[str]) -> dict[str, Any]:
    given, (text, *_) = read_options("qsub", words, "")
    (name,) = given["N"]
    if not re.fullmatch(r"[\w+-][\w.+-]{0,229}", name):
        refuse(f"qsub: illegal -N value {name}")
    assert (given["S"], given["r"], given["j"], given["o"]) == (["/bin/bash"], ["y"], ["oe"], ["/dev/null"])
    resources = dict(value.split("=", 1) for value in given["l"])
    if "select" in resources and not re.fullmatch(
        r"1(:(ncpus|ngpus|\w+_type)=\w+|:mem=\d+[kmgt]b)+", resources["select"]
    ):
        refuse(f"qsub: illegal -l value {resources['select']}")
    indices, limit = [0], 0
    if given["J"]:
        match = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?(?:%(\d+))?", given["J"][0])
        if not match or int(match[1]) >= int(match[2]):
            refuse("qsub: illegal -J value")
        indices, limit = list(range(int(match[1]), int(match[2]) + 1, int(match[3] or 1))), int(match[4] or 0)
    after = [value.removeprefix("depend=afterany:") for value in given["W"]]
    environment = dict(value.split("=", 1) for value in given["v"])
    return {
        "text": text, "name": name, "indices": indices, "limit": limit, "array": bool(given["J"]), "after": after,
        "environment": environment, "time": resources.get("walltime"), "requeue": None,
    }  # fmt: skip


def bsub(words: list[str]) -> dict[str, Any]:
    given, (text, *rest) = read_options("bsub", words, sys.stdin.read())
    assert not rest, "a script in the arguments is a command, whose #BSUB lines are not read"
    match = re.fullmatch(r"([\w.+-]+)(?:\[1-(\d+)\](?:%(\d+))?)?", given["J"][0])
    if not match:
        refuse(f"bsub: bad job name {given['J'][0]}")
    for value in given["R"]:
        if not re.fullmatch(r"span\[hosts=1\]|rusage\[mem=\d+[KMGT]B?/host\]", value):
            refuse(f"bsub: bad resource requirement {value}")
    assert bool(given["wa"]) == bool(given["wt"]) and given["o"] == ["/dev/null"] and given["r"] == [""]
    assert all(re.fullmatch(r"(\d+:)?\d+", value) for value in given["W"])
    after = [value.removeprefix("ended(").removesuffix(")") for value in given["w"]]
    return {
        "text": text, "name": match[1], "indices": list(range(1, int(match[2] or 1) + 1)), "limit": int(match[3] or 0),
        "array": bool(match[2]), "after": after, "environment": {}, "requeue": int(*given["Q"]) if given["Q"] else None,
    }  # fmt: skip


def main(program: str, state: Path, words: list[str]) -> None:
    jobs = {job["id"]: job for job in (json.loads(path.read_text()) for path in state.glob("*.json"))}
    if program in ("qsub", "bsub"):
        job = (qsub if program == "qsub" else bsub)(words)
        number = 101 + len(jobs)
        job["id"] = f"{number}{'[]' if job['array'] else ''}.here" if program == "qsub" else str(number)
        if missing := [one for one in job["after"] if one not in jobs]:
            refuse(f"{program}: Unknown Job Id {missing[0]}")
        job["states"] = {str(index): "waiting" for index in job["indices"]}
        with (state / f"{number}.json").open("x") as file:
            file.write(json.dumps(job))
        print(job["id"] if program == "qsub" else f"Job <{number}> is submitted to default queue <normal>.")
        return
    job = jobs.get(words[-1])
    if job is None or set(job["states"].values()) == {"over"}:
        known = "Job has finished, use -x or -H to obtain historical job information"
        refuse(f"qstat: {words[-1]} {known}" if program == "qstat" else f"Job <{words[-1]}> is not found")
    letters = {"waiting": ("Q", "PEND"), "running": ("R", "RUN"), "over": ("X", "EXIT")}
    if program == "qstat":
        print("Job id            Name             User              Time Use S Queue\n---- ---- ---- ---- - ----")
        print(f"{job['id']}  {job['name'][:15]}  me  0 B workq")
    for index, word in job["states"].items():
        if program == "qstat":
            print(f"{job['id'].replace('[]', f'[{index}]')}  {job['name'][:15]}  me  00:00:00 {letters[word][0]} workq")
        else:
            print(f"{index:<9} {letters[word][1]:<5}")


class BatchSystem:
    """Runs the jobs of one folder's queue while a test waits."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.state, programs = folder / "state", folder / "bin"
        for place in (self.state, programs):
            place.mkdir()
        for program in PROGRAMS[kind]:
            file = programs / program
            words = [sys.executable, __file__, program, str(self.state)]
            file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            file.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        self.running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self.codes: list[tuple[str, int]] = []
        """Exit codes by index of the array, in their order; 0 for a job of its own."""

    def jobs(self) -> dict[str, dict[str, Any]]:
        paths = sorted(self.state.glob("*.json"))
        return {job["id"]: job for job in (json.loads(path.read_text()) for path in paths)}

    def step(self) -> None:
        """Collect what has ended, and start what may start."""
        for (name, index), process in list(self.running.items()):
            if (code := process.poll()) is not None:
                del self.running[name, index]
                self.codes.append((index, code))
                requeued = code == self.jobs()[name]["requeue"]
                self._set(name, index, "waiting" if requeued else "over")
        for name, job in self.jobs().items():
            if any(set(self.jobs()[parent]["states"].values()) != {"over"} for parent in job["after"]):
                continue
            for index, word in job["states"].items():
                under_way = sum(key[0] == name for key in self.running)
                if word == "waiting" and (not job["limit"] or under_way < job["limit"]):
                    self._start(name, job, index)
                    self._set(name, index, "running")

    def until(self, condition: Callable[[], object], told: Callable[[], str]) -> None:
        """Run jobs until something is so."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, told()
            self.step()
            time.sleep(0.1)

    def is_over(self) -> bool:
        return all(set(job["states"].values()) == {"over"} for job in self.jobs().values())

    def signal(self, name: str, index: int, *numbers: int) -> None:
        """Send signals to all processes of a job."""
        process = self.running[name, str(index)]
        for number in numbers:
            for member in _session(process.pid):
                os.kill(member, number)

    def lose_node(self, name: str, index: int) -> None:
        """Kill all processes of a job and let it wait again, as its option -r asks for."""
        self.signal(name, index, signal.SIGKILL)
        self.running.pop((name, str(index))).wait()
        self._set(name, str(index), "waiting")

    def stop(self) -> None:
        for name, index in list(self.running):
            self.signal(name, int(index), signal.SIGKILL)
            self.running.pop((name, index)).wait()

    def _start(self, name: str, job: dict[str, Any], index: str) -> None:
        number = name.partition(".")[0].removesuffix("[]")
        own = {
            "pbs": {"PBS_JOBID": name, "PBS_O_PATH": self.environment["PATH"], "PBS_ARRAY_INDEX": index},
            "lsf": {"LSB_JOBID": number, "LSB_JOBINDEX": index if job["array"] else "0"},
        }[self.kind]
        if not job["array"]:
            own.pop("PBS_ARRAY_INDEX", None)
        environment = {name: os.environ[name] for name in ("HOME", "PATH", "TMPDIR") if name in os.environ}
        script = self.state / f"{number}.sh"
        if (
            not script.exists()
        ):  # never again: bash reads it piece by piece, and would end at a file that is written anew
            script.write_text(job["text"])  # as it was when it was submitted
        self.running[name, index] = subprocess.Popen(
            ["/bin/bash", script], env={**environment, **own, **job["environment"]}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip

    def _set(self, name: str, index: str, word: str) -> None:
        path = self.state / f"{name.partition('.')[0].removesuffix('[]')}.json"
        job = json.loads(path.read_text())
        job["states"][index] = word
        part = path.with_suffix(".part")
        part.write_text(json.dumps(job))
        part.replace(path)


def _session(leader: int) -> list[int]:
    """Processes of a session; groups of their own included."""
    members = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            members.append(int(path.name))
    return members


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
