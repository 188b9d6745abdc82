"""What reaches the model of one of the authors' scripts, as the recorder wrote it down."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

RECORDER = Path(__file__).with_name("recorder.py")
ANSWER = "The correct answer is (B)"
"""What every model says; both sides build their second steps on it."""


class ScriptError(Exception):
    """One of the authors' scripts stopped, or made more or fewer calls than there are prompts."""


@dataclass(frozen=True, slots=True)
class Call:
    """One prompt as a model gets it.

    Attributes:
        text: the user's last message, or the whole text where there are no messages.
        ids: None where the script leaves them to a server.
        system, history: the messages before the last.
        max_new_tokens, temperature: None where nothing is said of it; 0.0 is greedy.
        ends: token ids that end the answer beside the model's own.
        min_new_tokens: tokens before which nothing ends it.
    """

    text: str
    ids: tuple[int, ...] | None = None
    system: str = ""
    history: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    temperature: float | None = None
    ends: tuple[int, ...] = ()
    min_new_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """One of the authors' scripts as it is to be run.

    Attributes:
        path: the file.
        argv: its arguments.
        rows: configuration of the data set -> the rows it gets.
        reads: files and folders that it looks for in the folder it is started in.
        chat: whether the model has a ``chat`` method of its own.
        wrapper: (module, model name) to ask for what it puts around a prompt.
        function: (name, arguments by name) of what is called with rows, arguments and a file, in place of its main.
        libraries: a folder of libraries that it needs and lbx does without; with it, ``datasets`` is the real one.
        answers: gives what the model says, in turn.
        chat_template: of the tokenizer.
        results: folder of JSON files that it writes, which are read.
    """

    path: Path
    argv: Sequence[str]
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    reads: Sequence[Path] = ()
    chat: bool = False
    wrapper: tuple[str, str] | None = None
    function: tuple[str, Mapping[str, Any]] | None = None
    libraries: Path | None = None
    answers: Callable[[], Sequence[str]] = lambda: (ANSWER,)
    chat_template: str = ""
    results: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A script's calls in their order.

    Attributes:
        loaded: configurations of the data set, in the order in which they were loaded.
        wrapper: what it puts around prompts, where it was asked.
        results: {name: content} of the JSON files that it wrote.
        error: the first error that it logged, and went on.
    """

    calls: Sequence[Call]
    loaded: Sequence[str]
    wrapper: tuple[str, str] = ("", "")
    results: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def record(script: Script, tokenizer: Path) -> Recorded:
    """Run the script in a folder and a process of its own.

    Raises:
        ScriptError: it stopped with an error.
    """
    with tempfile.TemporaryDirectory(prefix="lbx-official-") as scratch:
        folder = Path(scratch)
        work = folder / "work"
        work.mkdir()
        for place in script.reads:
            (work / place.name).symlink_to(place.resolve())
        rows = {name: str(_write_rows(work, name, lines)) for name, lines in script.rows.items()}
        job = {
            "script": str(script.path.resolve()),
            "argv": list(script.argv),
            "tokenizer": str(tokenizer.resolve()),
            "answers": list(script.answers()),
            "rows": rows,
            "chat": script.chat,
            "wrapper": script.wrapper,
            "function": script.function,
            "datasets": bool(script.libraries),
            "chat_template": script.chat_template,
        }
        (folder / "job.json").write_text(json.dumps(job), "utf-8")
        command = [sys.executable, str(RECORDER), str(folder / "job.json"), str(folder / "calls.jsonl")]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        if script.libraries:
            environment |= {"PYTHONPATH": str(script.libraries), "HF_HOME": str(folder)}
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
            raise ScriptError(f"{script.path.name} stopped: {last.strip()}")
        written = [path for path in (work / script.results).rglob("*.*") if script.results]
        results = {path.name: json.loads(path.read_bytes()) for path in written}
        error = next((line for line in done.stderr.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)), "")
        return replace(_read(folder / "calls.jsonl"), results=results, error=error)


def _write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def _read(path: Path) -> Recorded:
    calls, loaded, wrapper = [], [], ("", "")
    with path.open("rb") as lines:
        for line in lines:
            what = json.loads(line)
            match what["kind"]:
                case "wrapper":
                    wrapper = (what["wrapper"][0], what["wrapper"][1])
                case "loaded":
                    loaded.append(what["name"])
                case _:
                    calls.append(_call(what))
    return Recorded(calls, loaded, wrapper)


def _call(what: Mapping[str, Any]) -> Call:
    options = what["options"]
    names = ("max_new_tokens", "max_tokens", "max_tokens_to_sample")
    budget = next((options[name] for name in names if options.get(name) is not None), None)
    temperature = 0.0 if options.get("do_sample") is False else options.get("temperature")
    if what["kind"] == "messages":
        system = "".join(one["content"] for one in what["messages"] if one["role"] == "system")
        *history, text = [one["content"] for one in what["messages"] if one["role"] != "system"]
        return Call(text, None, system, tuple(history), budget, temperature)
    ids = tuple(what["ids"]) if "ids" in what else None
    # generate() takes the model's own end token from its configuration where it is told nothing; told, it comes first.
    ends = tuple((options.get("eos_token_id") or [None])[1:])
    shortest = options.get("min_length", 0) - len(ids or ()) if "min_length" in options else 0
    return Call(what["text"], ids, "", (), budget, temperature, ends, shortest)
