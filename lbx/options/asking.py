"""Options that identify a run, each declared once: type, help, bounds, and label in views."""

from dataclasses import dataclass, fields
from typing import Annotated, Literal, get_args

from lbx.base.limits import ITERATIONS
from lbx.options.option import fields_of, process_option, question_option, retrieval_option, sample_option

Effort = Literal["low", "medium", "high"]
EFFORTS: tuple[str, ...] = get_args(Effort)
CARD_TEMPLATE = "card"
"""Value of ``PromptOptions.template`` for the model's own chat template."""
BM25 = "bm25"
BM25_CHARACTERS = "bm25-characters"
"""With ``BM25``, the values of --retriever that name no embedding model; this one is LongBench v1's own script."""


Seed = Annotated[int, sample_option("Seed for sampled answers and for --sample.", "N", judges=True)]
Rag = Annotated[
    int,
    retrieval_option(
        "Replace the document by its N best chunks (LongBench v1, v2, L-Eval, your own benchmarks).",
        "N",
        judges=False,
        label="rag",
    ),
]


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class _AnswerOptions:
    iterations: Annotated[
        int | None,
        question_option(
            "Ask each sample N times; default: the benchmark's own number.", metavar="N", maximum=ITERATIONS
        ),
    ] = None
    max_prompt_tokens: Annotated[
        int | None, question_option("Maximum number of prompt tokens; default: the benchmark's own limit.", metavar="N")
    ] = None
    max_new_tokens: Annotated[
        int | None,
        question_option(
            "Maximum number of answer tokens; default: the benchmark's own limit.",
            metavar="N",
            judges=True,
            lengthens=True,
        ),
    ] = None
    sampling: Annotated[
        Literal["official", "model"],
        question_option(
            "official: the benchmark's own temperature; model: the settings recommended by the model's authors.",
            metavar="KIND",
            judges=True,
        ),
    ] = "official"
    seed: Seed = 0
    chat: Annotated[
        bool,
        question_option(
            "Wrap prompts in the model's chat template if the benchmark does.", judges=True, lengthens=True
        ),
    ] = True
    thinking: Annotated[
        bool | None,
        question_option(
            "Turn the model's reasoning on or off; default: the default of its chat template.",
            judges=True,
            lengthens=True,
        ),
    ] = None
    thinking_tokens: Annotated[
        int | None,
        question_option(
            "Token budget for reasoning, in addition to the answer's; implies --thinking.",
            metavar="N",
            judges=True,
            lengthens=True,
        ),
    ] = None
    reasoning_effort: Annotated[
        Effort | None,
        question_option(
            "Reasoning effort: low, medium or high, if the model's chat template supports it; implies --thinking.",
            metavar="LEVEL",
            judges=True,
            lengthens=True,
            label="effort",
        ),
    ] = None
    both_kinds: Annotated[
        bool,
        question_option(
            "Ask with and without reasoning, as two runs that share each document's prefill (LongBench Pro's two "
            "prompts).",
            judges=False,
        ),
    ] = False


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class PromptOptions:
    """Options that change a benchmark's prompts. ``Benchmark.modes`` lists the options that a benchmark supports."""

    cot: Annotated[
        bool,
        question_option(
            "LongBench v2: reason about the document first, then answer.", judges=False, lengthens=True, label="cot"
        ),
    ] = False
    no_context: Annotated[
        bool,
        question_option(
            "LongBench v2 and your own benchmarks: ask without the document.", judges=False, label="no context"
        ),
    ] = False
    length_hint: Annotated[
        bool,
        question_option(
            "Include the reference's number of words in L-Eval's open questions, as for its published answers. Turn it "
            "off for judges and raters, as in its README.",
            lengthens=True,
            label="no length hint",
        ),
    ] = True
    template: Annotated[
        str,
        question_option(
            "RULER: make the prompts in the model's chat template (card), or in a template of the authors, such as "
            "meta-llama3; default: in none.",
            metavar="NAME",
            names=("--prompt-template",),
            judges=False,
            label="template",
        ),
    ] = ""
    instruction: Annotated[
        bool,
        question_option("BABILong: include the instruction in the prompt.", judges=False, label="no instruction"),
    ] = True
    examples: Annotated[
        bool, question_option("BABILong: include the examples in the prompt.", judges=False, label="no examples")
    ] = True
    post_prompt: Annotated[
        bool,
        question_option(
            "BABILong: include the form of the answer in the prompt.", judges=False, label="no post-prompt"
        ),
    ] = True
    rag: Rag = 0


@dataclass(frozen=True, kw_only=True)
class Mode(PromptOptions):
    """Options of a run as benchmarks receive them. The defaults select each benchmark's standard prompts.

    Attributes:
        thinking: whether the model should reason first; selects the benchmark's reasoning prompts and budgets, if any.
        thinking_tokens: separate budget for reasoning; 0 means that reasoning and answer share one budget.
        context_window: context window of the model in tokens, or 0 without a model.
        reasoning_block: whether the model always writes a separate reasoning block, regardless of the prompt; LongBench
            Pro uses its plain question for such models.
        chat_template: whether chat prompts are put into a template, by lbx or by a server. HELMET asks other models
            with the beginning of the answer.
        server_template: whether a server puts every prompt into its template, bare ones too. HELMET sends it messages.
        counted_in: unit of the context window: "tokens", "characters" without a tokenizer, or "bytes".
    """

    thinking: bool = False
    thinking_tokens: int = 0
    context_window: int = 0
    reasoning_block: bool = False
    chat_template: bool = True
    server_template: bool = False
    counted_in: str = "tokens"


PLAIN = Mode()


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AskingOptions(PromptOptions, _AnswerOptions):
    """Options that identify a run: values other than the defaults are stored in the run's settings and change its name.

    A spec with ``both_kinds`` makes two runs; their settings contain ``thinking`` instead.
    """

    batching: Annotated[
        bool, process_option("Decode several answers together, or run one prompt at a time.", judges=True)
    ] = True


ASKING = fields_of(AskingOptions)
MODES = tuple(field.name for field in fields(PromptOptions))
LENGTH_OPTIONS = tuple(name for name, field in ASKING.items() if field.option and field.option.lengthens)
"""Names of the options that change the length of answers."""


def view_labels(settings: str) -> list[str]:
    """SQL expressions of the labels of a run's settings in views, each NULL for a default.

    Args:
        settings: SQL of the JSON column.
    """
    return [
        _view_label(f"{settings}->>'{field.name}'", field.option.label, field.default)
        for field in ASKING.values()
        if field.option and field.option.label
    ]


def _view_label(value: str, label: str, default: object) -> str:
    if isinstance(default, bool):
        return f"CASE WHEN {value} = '{str(not default).lower()}' THEN '{label}' END"
    return f"'{label} ' || ({value})"
