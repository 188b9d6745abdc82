"""What ``lbx run`` takes before the first token is read and after the last answer, beside the library by hand.

    python -m bench.start [--backend llamacpp|hf] [--model MODEL] [--bundle DIR --tasks NAMES] [--times N]

Two questions are asked, in processes of their own, by turns: by ``lbx run`` into a new results file, and by a few lines
that import the library, load the model, and read a prompt of three words. Printed are CPU seconds, of all threads and
child processes, the least of N times: until the model's first pass, after its last one to the end of the process, and
what of them was tokenizing the questions. Without a bundle of yours it is the first of the embedded needle.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import ratio, table
from bench.job import REPOSITORY, own_cores, pin

_RECIPE = """
name = "start"

[[source]]
kind = "path"
path = "%s"
to = "needle"
licence = "MIT"
"""
_TURNS = ("lbx", "by hand")
_COLUMNS = ("before the first token", "of it tokenizing", "after the last answer", "together, without tokenizing")


def main() -> int:
    if sys.argv[1:2] == ["probe"]:
        _probe(sys.argv[2], sys.argv[3:])
        return 0
    args = _arguments()
    pin(own_cores(1))
    found: dict[str, list[list[float]]] = {turn: [] for turn in _TURNS}
    with tempfile.TemporaryDirectory(prefix="lbx-bench-") as folder:
        bundle = args.bundle or _bundle(Path(folder))
        for _ in range(args.times):
            results = Path(folder) / "results.duckdb"
            results.unlink(missing_ok=True)
            asked = ["--bundle", str(bundle), "--model", args.model, "--tasks", args.tasks, "--limit", "2"]
            asked += ["--max-new-tokens", "2", "--no-plan", "--threads", "1", "-o", str(results)]
            found["lbx"].append(_measured("lbx", asked, Path(folder)))
            found["by hand"].append(_measured(args.backend, [args.model], Path(folder)))
    least = {turn: [min(column) for column in zip(*laps, strict=True)] for turn, laps in found.items()}
    rows = [[turn, *(f"{seconds:.2f}" for seconds in figures)] for turn, figures in least.items()]
    print(table(("CPU seconds", *_COLUMNS), rows))
    ours, theirs = (least[turn][-1] for turn in _TURNS)
    print(f"lbx's own part: {ours - theirs:.2f} CPU s, goal 1; {ratio(ours, theirs)} times the library by hand")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", choices=_BY_HAND, default="llamacpp")
    parser.add_argument("--model", help="a GGUF or a folder; default: SmolLM2, which models/smollm2/fetch.py fetches")
    parser.add_argument("--bundle", type=Path, help="an unpacked one")
    parser.add_argument("--tasks", default="needle/single_en")
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    kind = "gguf" if args.backend == "llamacpp" else "hf"
    fetch = [sys.executable, "models/smollm2/fetch.py", kind]
    args.model = args.model or subprocess.check_output(fetch, cwd=REPOSITORY, text=True).strip()
    return args


def _bundle(folder: Path) -> Path:
    (folder / "start.toml").write_text(_RECIPE % (REPOSITORY / "bundle" / "needle"))
    for command in (["bundle", "start.toml", "-o", "."], ["unpack", "start.tar", "--allow-unsigned", "--to", "start"]):
        subprocess.run([sys.executable, "-m", "lbx.cli", *command], cwd=folder, check=True, capture_output=True)
    return folder / "start"


def _measured(what: str, arguments: list[str], folder: Path) -> list[float]:
    """The columns' seconds."""
    marks = folder / "marks.json"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = ""
    command = [sys.executable, "-m", "bench.start", "probe", str(marks), what, *arguments]
    before = _cpu_s(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told = json.loads(marks.read_text("utf-8"))
    end = _cpu_s(resource.RUSAGE_CHILDREN) - before - told["last"]
    return [told["first"], told["tokenizing"], end, told["first"] - told["tokenizing"] + end]


def _cpu_s(*whose: int) -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in whose)


class _Marks:
    """CPU seconds of this process, kept in a file: when the model's first pass began, and its last one ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = {"tokenizing": 0.0}

    def around_pass(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        def computing(*args: Any, **kwargs: Any) -> Any:
            self._told.setdefault("first", self._now())
            try:
                return compute(*args, **kwargs)
            finally:
                self._told["last"] = self._now()
                self._path.write_text(json.dumps(self._told), "utf-8")

        return computing

    def around_tokenizing(self, tokenize: Callable[..., Any]) -> Callable[..., Any]:
        def tokenizing(*args: Any, **kwargs: Any) -> Any:
            before = self._now()
            try:
                return tokenize(*args, **kwargs)
            finally:
                self._told["tokenizing"] += self._now() - before

        return tokenizing

    @staticmethod
    def _now() -> float:
        return _cpu_s(resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def _probe(marks: str, arguments: list[str]) -> None:
    what, *rest = arguments
    _BY_HAND.get(what, _lbx_run)(_Marks(Path(marks)), rest)


def _lbx_run(marks: _Marks, arguments: list[str]) -> None:
    from lbx.cli.main import main as lbx
    from lbx.prompts import Prompter
    from lbx.runs import loading

    load = loading.load

    def loaded(*args: Any, **kwargs: Any) -> Any:
        model = load(*args, **kwargs)
        memory: Any = model.sequences()
        memory.extend = marks.around_pass(memory.extend)
        return model

    loading.load = loaded
    Prompter.request = marks.around_tokenizing(Prompter.request)  # type: ignore[method-assign]
    sys.argv = ["lbx", "run", *arguments]
    lbx()


def _llama(marks: _Marks, arguments: list[str]) -> None:
    from lbx.backends.llama.library import library  # which says where the wheel's CPU variants lie

    llama_cpp = library()
    model = llama_cpp.Llama(
        arguments[0], n_ctx=0, n_batch=256, n_ubatch=256, n_threads=1, n_threads_batch=1, verbose=False
    )
    marks.around_pass(model.eval)(model.tokenize(b"One two three"))


def _transformers(marks: _Marks, arguments: list[str]) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(arguments[0])
    model = AutoModelForCausalLM.from_pretrained(arguments[0], dtype=torch.float32).eval()
    with torch.inference_mode():
        marks.around_pass(model)(**tokenizer("One two three", return_tensors="pt"))


_BY_HAND: dict[str, Callable[[_Marks, list[str]], None]] = {"llamacpp": _llama, "hf": _transformers}

if __name__ == "__main__":
    sys.exit(main())
