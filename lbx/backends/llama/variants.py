"""Choice of llama.cpp's CPU variant. A variant is trusted only after it has multiplied correctly on this machine.

llama.cpp relies on the processor's feature flags. That is not enough: a compiler may have dropped what an instruction
needs, a hypervisor may hide state that the processor announces. Each candidate is therefore tried in
a separate process (``trial.py``). If it crashes or computes wrongly, the next best is tried. The result is cached, by
the libraries' hash and the processor.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lbx.base.errors import BackendError
from lbx.base.inputs import LARGE, SMALL, expand_user, read_input
from lbx.base.outputs import write_file
from lbx.base.processes import DEVNULL, CompletedProcess, TimeoutExpired, python_command, run_tool

FOLDER_VARIABLE = "LBX_GGML_BACKENDS"
NATIVE = "native"
VARIANT = re.compile(r"libggml-cpu(?:-([\w.]+?))?\.(?:so|dylib)")
_CHECK_SCRIPT = Path(__file__).with_name("trial.py")
_TIMEOUT_S = 120.0
_LIMIT = 1 << 20
_PROCESSOR_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags", "Features")
_CRASH_SIGNALS = frozenset({signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT})


@dataclass(frozen=True, slots=True)
class VariantCheck:
    """Result of trying a variant.

    Attributes:
        variant: name of the variant, e.g. "zen4"; "native" for code that is linked into llama.cpp.
        file: path of the variant, or "" for native code.
        problem: fault of the variant, as the end of a sentence, or "" if every product was right.
        tokens_per_s: speed of one thread with 10^9 weights in Q4_K.
    """

    variant: str
    file: str
    problem: str
    tokens_per_s: float


def check_variants(library: Path, files: Sequence[Path] | None) -> Iterator[VariantCheck]:
    """Try the variants that claim to suit this processor, the best first by llama.cpp's scores.

    Args:
        library: libggml, in the folder of the same build's other libraries.
        files: the variants, or None if the CPU code is linked in.
    """
    if files is None:
        yield _cached_check(library, None)
        return
    scores = _scores(library, files)
    for file in sorted(files, key=lambda file: -scores[str(file)]):
        if scores[str(file)] > 0:
            yield _cached_check(library, file)


def choose_variant(library: Path, files: Sequence[Path] | None) -> tuple[VariantCheck, list[VariantCheck]]:
    """Return the best correct variant, and the better-scored ones that failed.

    Raises:
        BackendError: no variant multiplies correctly.
    """
    refused: list[VariantCheck] = []
    for check in check_variants(library, files):
        if not check.problem:
            return check, refused
        refused.append(check)
    if not refused:
        raise _no_variant_error(f"llama.cpp has no CPU code for this machine ({platform.machine()}).")
    reasons = "; ".join(f"{check.variant} {check.problem}" for check in refused)
    raise _no_variant_error(f"llama.cpp computes wrongly on this processor: {reasons}.")


def _no_variant_error(cause: str) -> BackendError:
    if folder := os.environ.get(FOLDER_VARIABLE, ""):
        cause += f" Its variants come from {FOLDER_VARIABLE}={folder}."
        return BackendError(cause, fix=f"Unset {FOLDER_VARIABLE}.", command="lbx doctor")
    return BackendError(cause, fix="Build the wheel with all CPU variants.", command=".ci/llama-wheel.sh python3")


def _scores(library: Path, files: Sequence[Path]) -> dict[str, int]:
    """Return {file: llama.cpp's own score}, 0 for a file that kills the process that loads it.

    The scores are cached by the files' sizes and times only: they set the order of trials, not which variant to trust.
    """
    if not files:
        return {}
    stats = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in (library, *files)]
    path = _cache_path("cpu-scores", repr(stats).encode())
    try:
        cached_scores = json.loads(read_input(path, _LIMIT))
        return {str(file): int(cached_scores[str(file)]) for file in files}
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        done = _run("scores", library, *files)
    if done is not None and done.returncode == 0:
        scores_by_file: dict[str, int] = json.loads(done.stdout)
        _cache_result(path, scores_by_file)
        return scores_by_file
    if len(files) == 1:
        return {str(files[0]): 0}
    return {name: score for file in files for name, score in _scores(library, [file]).items()}


def _cached_check(library: Path, file: Path | None) -> VariantCheck:
    parts = (_CHECK_SCRIPT, library, *library.parent.glob("libggml-base.so"), *([file] if file else []))
    path = _cache_path("cpu-variants", *(read_input(part, LARGE) for part in parts))
    try:
        previous = VariantCheck(**{**json.loads(read_input(path, _LIMIT)), "file": str(file or "")})
        if [type(value) for value in (previous.variant, previous.problem, previous.tokens_per_s)] == [str, str, float]:
            return previous
    except (OSError, ValueError, TypeError, RecursionError):
        pass  # not there, or of another version: found out again
    check, lasting = _run_check(library, file)
    if lasting:
        _cache_result(path, asdict(check))
    return check


def _cache_result(path: Path, result: Mapping[str, object]) -> None:
    """Cache a result. If the folder is not writable, the next process repeats the trial."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(result))
    except OSError:
        return


def _run_check(library: Path, file: Path | None) -> tuple[VariantCheck, bool]:
    """Try a variant, and return the result, and whether it is final, i.e. another trial would not help."""
    match = VARIANT.fullmatch(file.name) if file else None
    name, path = (match and match[1]) or NATIVE, str(file or "")
    done = _run("check", library, *([file] if file else []))
    if done is None:
        return VariantCheck(name, path, f"did not finish its trial in {_TIMEOUT_S:.0f} s", 0.0), False
    lines = done.stdout.splitlines() or ["its first product"]
    if done.returncode == 0:
        trial = json.loads(lines[-1])
        problem = f"multiplies wrongly ({trial['wrong']})" if trial["wrong"] else ""
        return VariantCheck(name, path, problem, trial["tokens_per_s"]), True
    if done.returncode > 0:
        why = (done.stderr.splitlines() or ["it gave no reason"])[-1]
        return VariantCheck(name, path, f"could not be tried ({why})", 0.0), False
    number = signal.Signals(-done.returncode)
    return VariantCheck(name, path, f"died ({number.name}) of {lines[-1]}", 0.0), number in _CRASH_SIGNALS


def _run(job: str, *paths: Path) -> CompletedProcess[str] | None:
    """Run the trial script, and return the process, or None if it does not finish in time."""
    command = python_command(str(_CHECK_SCRIPT), job, *map(str, paths))
    # On busy cores waiting threads would spin for seconds, llama.cpp's and numpy's.
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
    try:
        return run_tool(
            command,
            stdin=DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env=environment,
        )
    except TimeoutExpired:
        return None


def _cache_path(kind: str, *parts: bytes) -> Path:
    """Path of a cached result, named by all that the result depends on: code, processor and kernel."""
    digest = hashlib.sha256()
    for part in (*parts, f"{_processor()}{platform.machine()}{platform.release()}".encode()):
        digest.update(part)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand_user(Path(base)) / "lbx" / kind / f"{digest.hexdigest()[:24]}.json"


def _processor() -> str:
    try:
        first = read_input(Path("/proc/cpuinfo"), SMALL).decode("utf-8", "replace").split("\n\n", maxsplit=1)[0]
    except OSError:
        return platform.processor()
    fields = (line.partition(":") for line in first.splitlines())
    return ";".join(value.strip() for name, _, value in fields if name.strip() in _PROCESSOR_FIELDS)
