"""Backend with prepared answers for tests, demonstrations and dry runs, without any model library.

The table is JSON Lines, or one JSON object. Keys are ``str(SampleKey)``, e.g. "longbench/qasper/17" or
"longbenchpro/t1/ab12#2" (iteration 2); "*" answers everything else.

    {"key": "leval/quality/0", "text": "(A)"}
    {"key": "leval/quality/1", "error": "out of memory", "delay_s": 0.2}
    {"key": "leval/quality/2", "dies": true}     kills its process, as the system does when memory runs out
    {"*": "I do not know."}                      the short form: key to text, or to an object with the fields above

A text may contain reasoning, e.g. "<think>three ships</think>(B)": it is split off and counted like a real model's.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lbx.backends.cards import ModelCard
from lbx.backends.weights import weights_settings
from lbx.base.errors import BackendError, PromptError, UsageError
from lbx.base.inputs import LARGE, read_input
from lbx.base.records import Completion, Request, replace_surrogates
from lbx.base.tables import check_keys, check_type, from_table
from lbx.base.version import __version__
from lbx.engine.decoding import Decoding
from lbx.engine.model import BackendInfo, CompletionResult
from lbx.engine.reasoning import choose_marks, encode_separately
from lbx.engine.token_budget import check_fits

WINDOW = 1_000_000
_LONGEST_S = 86_400
BOS, EOS = 256, 257
_CONTROL = {"<s>": BOS, "</s>": EOS}
_FORMAT = 'Write one object on each line: {"key": "*", "text": "..."}.'


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """Scripted answer: text, error message, or death of the process, after a delay in seconds."""

    text: str = ""
    error: str = ""
    dies: bool = False
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.delay_s <= _LONGEST_S:
            raise UsageError(f"delay_s must be 0 to {_LONGEST_S} seconds, not {self.delay_s}.")


class ByteTokenizer:
    """Tokenizer whose ids 0 to 255 are the bytes of UTF-8, 256 is ``<s>`` and 257 is ``</s>``."""

    bos_token, eos_token = "<s>", "</s>"
    bos_id: int | None = BOS
    prefix_ids: tuple[int, ...] = (BOS,)
    template_names: tuple[str, ...] = ()

    def __init__(self, chat_template: str | None = None, reasoning: tuple[str, str] | None = None) -> None:
        self.chat_template = chat_template
        self.reasoning_marks = choose_marks(chat_template, lambda text: False, reasoning)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        return _CONTROL

    hidden_tokens = control_tokens

    def encode_pieces(self, pieces: Sequence[str | int]) -> list[int]:
        return encode_separately(self, pieces)

    def encode(self, text: str, *, special: bool) -> list[int]:
        if not special or "<" not in text:
            return list(replace_surrogates(text).encode())
        ids: list[int] = []
        while text:
            at, control = min(((text.find(m), m) for m in _CONTROL if m in text), default=(len(text), ""))
            ids += replace_surrogates(text[:at]).encode()
            ids += [_CONTROL[control]] if control else []
            text = text[at + len(control) :]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < BOS).decode("utf-8", "replace")


@dataclass(eq=False)
class ScriptedBackend:
    """Backend that answers from a table, with the window, stop rules and token counts of a real model."""

    _entries: Mapping[str, ScriptedAnswer]
    tokenizer: ByteTokenizer
    info: BackendInfo
    eos_ids: frozenset[int] = frozenset((EOS,))

    def generate_many(
        self, requests: Sequence[Request], *, one_by_one: bool = False
    ) -> Iterator[tuple[int, CompletionResult]]:
        for index, request in enumerate(requests):
            result: CompletionResult
            try:
                result = self._answer(request)
            except (PromptError, BackendError) as exc:
                result = exc
            yield index, result

    def takes_system(self) -> bool:
        return False

    def close(self) -> None:
        """Ignore the call: there are no resources to free."""

    def _answer(self, request: Request) -> Completion:
        check_fits(request, self.info.context_window)
        entry = self._entries.get(str(request.key)) or self._entries.get("*")
        if entry is None:
            raise BackendError(
                f"The table of answers has no entry for {request.key}.",
                fix='Add one, or a default under the key "*".',
            )
        start = time.perf_counter()
        if entry.delay_s:
            time.sleep(entry.delay_s)
        if entry.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if entry.error:
            raise BackendError(entry.error)
        decoding = Decoding(request, self.tokenizer, (EOS,))
        for token in (*self.tokenizer.encode(entry.text, special=False), EOS):
            if not decoding.push(token):
                break
        return decoding.completion(decode_s=time.perf_counter() - start)


def load(card: ModelCard, weights: Path, *, debug: bool = False) -> ScriptedBackend:
    """Load the scripted backend with a table of answers.

    Raises:
        UsageError: the table is not in the format of this module.
    """
    answers = read_answers(weights)  # before the fingerprint, so that too large files are refused unhashed
    tokenizer = ByteTokenizer(card.chat.choose_template(None), card.chat.reasoning)
    info = BackendInfo(
        name="scripted",
        version=f"lbx {__version__}",
        model=card.name,
        context_window=card.context_window or WINDOW,
        settings={**weights_settings(card, weights), "chat": card.chat.settings(None)},
        counted_in="bytes",
    )
    return ScriptedBackend(answers, tokenizer, info)


def read_answers(path: Path) -> dict[str, ScriptedAnswer]:
    """Read a table of answers from a .jsonl or .json file. The last answer to a repeated key wins."""
    entries: dict[str, ScriptedAnswer] = {}
    for location, row in _rows(path):
        if "key" in row:
            check_keys(row, ("key", "text", "error", "dies", "delay_s"), location)
            rest = {name: value for name, value in row.items() if name != "key"}
            entries[check_type(row["key"], str, f"{location} key")] = from_table(ScriptedAnswer, rest, location)
            continue
        for key, value in row.items():
            fields = {"text": value} if isinstance(value, str) else check_type(value, dict, f"{location} {key}")
            entries[key] = from_table(ScriptedAnswer, fields, f"{location} {key}")
    if not entries:
        raise UsageError(f"The table of answers {path} contains no answer.", fix=_FORMAT)
    return entries


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        text = read_input(path, LARGE).decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(
            f"The table of answers {path} cannot be read: {exc}.", fix="It is a file of JSON lines, in UTF-8."
        ) from exc
    pieces = list(enumerate(text.split("\n"), start=1)) if path.suffix == ".jsonl" else [(1, text)]
    for number, piece in pieces:
        if not piece.strip():
            continue
        location = f"The table of answers {path}, line {number}:"
        try:
            row = json.loads(piece)
        except (ValueError, RecursionError) as exc:  # a number of thousands of digits, brackets within brackets
            raise UsageError(f"{location} not valid JSON: {exc}.", fix=_FORMAT) from exc
        yield location, check_type(row, dict, location)
