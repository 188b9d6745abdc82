"""The options that say how samples are asked, all of them part of what a run is. Help and completion load them."""

import functools
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from lbx.base.limits import ITERATIONS
from lbx.base.option import Option, fields_of

Effort = Literal["low", "medium", "high"]
"""How much a model may be asked to reason."""
EFFORTS: tuple[str, ...] = get_args(Effort)

_asked = functools.partial(Option, "What to ask")
_found = functools.partial(Option, "Retrieval and embeddings")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AskingOptions:
    """How samples are asked: what is not as by default stands in the run's settings, of which its name is made.

    Of a spec with ``both_kinds`` two runs are made, whose settings say ``thinking`` instead.
    """

    rag: Annotated[
        int,
        _found(
            "Put the N best chunks in place of the document (LongBench v1, v2, L-Eval, benchmarks of your own).",
            metavar="N",
            judges=False,
        ),
    ] = 0
    iterations: Annotated[
        int | None,
        _asked("Ask each sample N times; default: as often as its authors do.", metavar="N", most=ITERATIONS),
    ] = None
    max_prompt_tokens: Annotated[
        int | None, _asked("Longest prompt; default: the benchmark's own limit.", metavar="N")
    ] = None
    max_new_tokens: Annotated[
        int | None,
        _asked("Longest answer; default: the benchmark's own limit.", metavar="N", judges=True, lengthens=True),
    ] = None
    sampling: Annotated[
        Literal["official", "model"],
        _asked(
            "official: the benchmark's own temperature; model: what the model's makers recommend.",
            metavar="KIND",
            judges=True,
        ),
    ] = "official"
    seed: Annotated[
        int, Option("Which samples", "Seed for sampled answers, and for --sample's draw.", metavar="N", judges=True)
    ] = 0
    chat: Annotated[
        bool, _asked("Wrap prompts in the model's chat template where the benchmark does.", judges=True, lengthens=True)
    ] = True
    thinking: Annotated[
        bool | None,
        _asked(
            "Have the model reason before it answers, or not; default: as its chat template decides.",
            judges=True,
            lengthens=True,
        ),
    ] = None
    thinking_tokens: Annotated[
        int | None,
        _asked(
            "Token budget for reasoning, beside the answer's; implies --thinking.",
            metavar="N",
            judges=True,
            lengthens=True,
        ),
    ] = None
    reasoning_effort: Annotated[
        Effort | None,
        _asked(
            "How much to reason: low, medium or high, where the model's chat template knows it; implies --thinking.",
            metavar="LEVEL",
            judges=True,
            lengthens=True,
        ),
    ] = None
    both_kinds: Annotated[
        bool,
        _asked(
            "Ask with reasoning and without it, as two runs that read each document once (LongBench Pro's two "
            "prompts).",
            judges=False,
        ),
    ] = False
    cot: Annotated[
        bool, _asked("LongBench v2: reason about the document first, then answer.", judges=False, lengthens=True)
    ] = False
    no_context: Annotated[
        bool, _asked("LongBench v2 and benchmarks of your own: ask without the document.", judges=False)
    ] = False
    length_hint: Annotated[
        bool,
        _asked(
            "L-Eval's open questions say how many words the reference has, as its published answers were asked; "
            "without, as its founding README has it for judges and people.",
            lengthens=True,
        ),
    ] = True
    batching: Annotated[
        bool, Option("How it runs", "Decode many answers together, or ask one prompt after the other.", judges=True)
    ] = True


ASKING = fields_of(AskingOptions)
OF_LENGTH = tuple(name for name, field in ASKING.items() if field.option and field.option.lengthens)
"""Those that bear on how long answers are."""
