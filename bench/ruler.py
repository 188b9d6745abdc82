"""RULER's samples made by lbx and by the authors' scripts: CPU seconds, memory, and whether the samples are equal.

    python -m bench.ruler BUNDLE SCRIPTS TOKENIZER [--packages DIR] [--tasks vt,...] [--lengths 4096,...] [--samples N]

BUNDLE is an unpacked bundle of bundle/ruler.toml and bundle/ruler_essays.toml, SCRIPTS the folder ``scripts`` of a
clone of NVIDIA/RULER, TOKENIZER a folder with a tokenizer.json, DIR a folder with the scripts' own packages (pip
install --target DIR nltk==3.9.1 wonderwords==2.2.0 scipy pyyaml tenacity). Each contender makes each task in a process
of its own, start-up included, one after the other. Figures are CPU seconds of all its threads, and its largest resident
memory. Exit code 1: a sample of lbx differs from the authors'.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from lbx.backends.cards import Chat
from lbx.backends.tokenizer_loading import hash_tokenizer, open_tokenizer
from lbx.base.bundle_folder import Bundle
from lbx.benchmarks.ruler.needles import read_essays
from lbx.benchmarks.ruler.samples import SampleSet
from lbx.benchmarks.ruler.sentences import PARAMETERS_FILE
from lbx.benchmarks.ruler.tasks import TASKS, RulerSettings, task_name

_MIB = 1 << 20


class Cost(NamedTuple):
    cpu_s: float
    memory_mib: float


def main() -> int:
    args = parse_arguments()
    if args.only:
        _make_samples(args.bundle, args.tokenizer, args.only, args.samples, args.output)
        return 0
    totals = [0.0, 0.0]
    differences = 0
    print("task             length    authors s   lbx s  ratio   authors MiB  lbx MiB  equal")
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as name:
        folder = Path(name)
        scripts = _copy_scripts(args.scripts, args.bundle, folder)
        for length in args.lengths:
            for task in args.tasks:
                authors, lines = _run_authors(args, scripts, folder, task, length)
                own, own_lines = _run_lbx(args, folder, task, length)
                equal = lines == own_lines
                differences += not equal
                totals = [totals[0] + authors.cpu_s, totals[1] + own.cpu_s]
                print(
                    f"{task:16} {length:>6}  {authors.cpu_s:10.1f} {own.cpu_s:7.1f} {authors.cpu_s / own.cpu_s:6.1f}"
                    f"   {authors.memory_mib:11.0f} {own.memory_mib:8.0f}  {'yes' if equal else 'NO'}",
                    flush=True,
                )
    print(f"all              {'':6}  {totals[0]:10.1f} {totals[1]:7.1f} {totals[0] / totals[1]:6.1f}")
    return 1 if differences else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("scripts", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--packages", type=Path, default=Path())
    parser.add_argument("--tasks", type=_names, default=list(TASKS))
    parser.add_argument("--lengths", type=lambda text: [int(part) for part in _names(text)], default=[4096])
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _names(text: str) -> list[str]:
    return text.split(",")


def _copy_scripts(scripts: Path, bundle: Path, folder: Path) -> Path:
    """Copy the scripts with the corpora of the bundle next to them, and punkt's parameters for nltk."""
    copy = folder / "scripts"
    shutil.copytree(scripts, copy)
    source = bundle / "data/files/NVIDIA/RULER/scripts/data/synthetic/json"
    target = copy / "data/synthetic/json"
    for path in (*target.iterdir(), target):
        path.chmod(0o755)
    for path in source.glob("*.json"):
        (target / path.name).unlink(missing_ok=True)
        shutil.copy(path, target)
    essays = " ".join(read_essays(Bundle(bundle)).words)
    if not (target / "PaulGrahamEssays.json").exists():
        (target / "PaulGrahamEssays.json").write_text(json.dumps({"text": essays}))
    (folder / "nltk/tokenizers").mkdir(parents=True)
    shutil.unpack_archive(bundle / "data/files" / PARAMETERS_FILE, folder / "nltk/tokenizers")
    return copy


def _run_authors(
    args: argparse.Namespace, scripts: Path, folder: Path, task: str, length: int
) -> tuple[Cost, list[object]]:
    output = folder / "authors" / str(length)
    # prepare.py starts its generator as "python".
    (folder / "bin").mkdir(exist_ok=True)
    python = folder / "bin/python"
    if not python.exists():
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    environment = {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(args.packages.resolve()),
        "NLTK_DATA": str(folder / "nltk"),
    }
    command = [
        sys.executable, "prepare.py", "--save_dir", output, "--benchmark", "synthetic", "--task", task,
        "--tokenizer_path", args.tokenizer.resolve(), "--tokenizer_type", "hf", "--max_seq_length", length,
        "--model_template_type", "base", "--num_samples", args.samples,
    ]  # fmt: skip
    cost = _measure(command, scripts / "data", environment)
    rows = map(json.loads, (output / task / "validation.jsonl").read_text().splitlines())
    return cost, [[row["input"] + row["answer_prefix"], row["outputs"], row["length"]] for row in rows]


def _run_lbx(args: argparse.Namespace, folder: Path, task: str, length: int) -> tuple[Cost, list[object]]:
    output = folder / "lbx.jsonl"
    command = [
        sys.executable, "-m", "bench.ruler", args.bundle.resolve(), args.scripts.resolve(), args.tokenizer.resolve(),
        "--only", task_name(task, length), "--samples", args.samples, "--output", output,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        cost = _measure(command, Path(__file__).parent.parent, {"XDG_CACHE_HOME": cache})
    return cost, [json.loads(line) for line in output.read_text().splitlines()]


def _make_samples(bundle: Path, tokenizer: Path, task: str, samples: int, output: Path) -> None:
    loaded, _ = open_tokenizer(tokenizer, Chat(), own_template=False, debug=False)
    sample_set = SampleSet(
        Bundle(bundle),
        RulerSettings(samples=samples),
        hash_tokenizer(loaded, tokenizer),
        loaded.count,  # type: ignore[attr-defined]
    )
    with output.open("w") as file:
        for sample in sample_set.samples("ruler", task):
            text = sample.context + sample.meta["answer_prefix"]
            file.write(json.dumps([text, sample.references, sample.length]) + "\n")


def _measure(command: Sequence[object], folder: Path, environment: Mapping[str, str]) -> Cost:
    process = subprocess.Popen(
        list(map(str, command)), cwd=folder, env={**os.environ, **environment},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{command[1]} ended with status {status}.")
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / _MIB)


if __name__ == "__main__":
    sys.exit(main())
