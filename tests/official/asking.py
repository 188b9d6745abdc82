"""What lbx would send: samples in, calls out, through the same functions as a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from lbx.backends.hf.tokenizer import HfTokenizer
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import PromptError
from lbx.base.records import Chunk, Prompt, Sample
from lbx.benchmarks.registry import BENCHMARKS
from lbx.engine.prompter import ChatTemplate, Prompter
from lbx.options.asking import PLAIN, Mode
from lbx.options.run_spec import RunSettings
from tests.official.calls import ANSWER, Call

_WRAPPER = "{{ before }}{{ messages[0]['content'] }}{{ after }}"


class RememberingTokenizer(HfTokenizer):
    """One that knows the last texts again: questions on one document have it encoded over and over."""

    def __init__(self, tokenizer: Any, chat_template: str | None) -> None:
        super().__init__(tokenizer, chat_template)
        self._known = lru_cache(maxsize=16)(super().encode)

    def encode(self, text: str, *, special: bool) -> list[int]:
        return list(self._known(text, special=special))


class SpokenTokenizer(RememberingTokenizer):
    """A tokenizer by which a document can speak in control tokens, as in the authors' scripts."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        return super().encode(text, special=True)

    @property
    def control_tokens(self) -> Mapping[str, int]:  # type: ignore[override]
        return {}


@dataclass(frozen=True, slots=True)
class Sent:
    """What lbx would send for one step of a sample, and what it was made of.

    Attributes:
        kept: the document's part of the text, after truncation.
    """

    name: str
    sample: Sample
    prompt: Prompt
    call: Call
    kept: str
    asker: Asker

    def again(self, asker: Asker) -> Call:
        """The same step, asked by another asker."""
        return asker.sent(self.sample, self.prompt, self.name).call


class Asker:
    """lbx's side of one run of a script.

    Args:
        tokenizer: of transformers.
        window: of the model, in tokens; it decides which of the authors' limits holds.
        limit: a limit of the prompt in its place.
        wrapper: what a chat template puts around the user's words; None where a server does that.
    """

    def __init__(
        self,
        bundle: Bundle,
        tokenizer: Any,
        window: int,
        *,
        limit: int | None = None,
        wrapper: tuple[str, str] | None = None,
        mode: Mode = PLAIN,
        spoken: bool = False,
    ) -> None:
        self.bundle = bundle
        self.mode = replace(mode, context_window=window)
        self.window = window
        self._again = (tokenizer, limit, wrapper)
        template = None
        if wrapper and any(wrapper):
            template = ChatTemplate(_WRAPPER, kwargs=dict(zip(("before", "after"), wrapper, strict=True)))
        self.tokenizer = (SpokenTokenizer if spoken else RememberingTokenizer)(tokenizer, None)
        self._prompter = Prompter(
            self.tokenizer,
            context_window=window,
            template=template,
            max_prompt_tokens=limit,
            sends_system=(lambda: True) if wrapper is None else None,
        )

    def spoken(self) -> Asker:
        """The same, but that documents can speak in control tokens."""
        tokenizer, limit, wrapper = self._again
        return Asker(self.bundle, tokenizer, self.window, limit=limit, wrapper=wrapper, mode=self.mode, spoken=True)

    def ask(self, sample: Sample, chunks: Sequence[Chunk] = ()) -> list[Sent]:
        """Every step of the sample."""
        benchmark = BENCHMARKS[sample.benchmark]
        name = f"{sample.benchmark}/{sample.task}/{sample.sample_id}"
        steps = [self.sent(sample, benchmark.prompt(self.bundle, sample, self.mode, chunks), name)]
        following = benchmark.next_step(self.bundle, sample, self.mode, [ANSWER])
        if isinstance(following, Prompt):
            steps.append(self.sent(sample, following, f"{name} step 2"))
        return steps

    def sent(self, sample: Sample, prompt: Prompt, name: str) -> Sent:
        """One step, as it would be sent."""
        sampling = RunSettings().sampling_for(prompt, 0)
        try:
            read = self._prompter.read(sample.key, prompt, sampling)
        except PromptError as exc:
            return Sent(name, sample, prompt, Call(f"lbx asks nothing: {exc}"), "", self)
        request = read.request
        ends = [self.tokenizer.encode(text, special=False)[-1] for text in request.stop_tokens]
        call = Call(
            text=(request.kept or prompt.text) if request.system_place != "text" else read.text,
            ids=request.token_ids,
            system=request.system,
            max_new_tokens=request.max_new_tokens,
            temperature=sampling.temperature,
            ends=(*ends, *(-1 for _ in request.stop)),
            min_new_tokens=request.min_new_tokens,
        )
        before = (prompt.system if request.system_place == "text" else "") + prompt.before
        kept = (request.kept or before + prompt.document + prompt.after).removeprefix(before).removesuffix(prompt.after)
        return Sent(name, sample, prompt, call, kept, self)
