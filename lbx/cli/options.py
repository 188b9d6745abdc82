"""Options and arguments that several commands share, declared once. The panels are those of ``lbx run --help``."""

from __future__ import annotations

import functools
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ReportFormat(StrEnum):
    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    LATEX = "latex"
    HTML = "html"


class SqlFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class JudgedQuestions(StrEnum):
    LLM = "llm"
    HUMAN = "human"
    BOTH = "both"
    OPEN = "open"


class OrdersOfPairs(StrEnum):
    BOTH = "both"
    GIVEN = "given"


class Effort(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SamplingSource(StrEnum):
    OFFICIAL = "official"
    MODEL = "model"


_asked = functools.partial(typer.Option, rich_help_panel="What to ask")
_which = functools.partial(typer.Option, rich_help_panel="Which samples")
_model = functools.partial(typer.Option, rich_help_panel="The model")
_found = functools.partial(typer.Option, rich_help_panel="Retrieval and embeddings")
_how = functools.partial(typer.Option, rich_help_panel="How it runs")
_shard = functools.partial(typer.Option, rich_help_panel="One shard of many")
_output = functools.partial(typer.Option, rich_help_panel="Output")
_web = functools.partial(typer.Option, rich_help_panel="The page")

# What to ask.
BundleDir = Annotated[Path, _asked("--bundle", "-b", metavar="DIR", help="The folder that `lbx unpack` made.")]
Tasks = Annotated[
    list[str],
    _asked(
        "--tasks",
        "-t",
        metavar="NAMES",
        help="Benchmarks or tasks: leval, longbench/qasper, 'lveval/*_16k', or all. Separate several by commas, or "
        "repeat the option.",
    ),
]
Iterations = Annotated[
    int | None,
    _asked("--iterations", metavar="N", min=1, help="Ask each sample N times; default: as often as its authors do."),
]
MaxPromptTokens = Annotated[
    int | None,
    _asked("--max-prompt-tokens", metavar="N", min=1, help="Longest prompt; default: the benchmark's own limit."),
]
MaxNewTokens = Annotated[
    int | None,
    _asked("--max-new-tokens", metavar="N", min=1, help="Longest answer; default: the benchmark's own limit."),
]
Sampling = Annotated[
    SamplingSource,
    _asked(
        "--sampling",
        metavar="KIND",
        help="official: the benchmark's own temperature; model: what the model's makers recommend.",
    ),
]
Chat = Annotated[
    bool, _asked("--chat/--no-chat", help="Wrap prompts in the model's chat template where the benchmark does.")
]
Thinking = Annotated[
    bool | None,
    _asked(
        "--thinking/--no-thinking",
        help="Have the model reason before it answers, or not; default: as its chat template decides.",
    ),
]
ThinkingTokens = Annotated[
    int | None,
    _asked(
        "--thinking-tokens",
        metavar="N",
        min=1,
        help="Token budget for reasoning, beside the answer's; implies --thinking.",
    ),
]
ReasoningEffort = Annotated[
    Effort | None,
    _asked(
        "--reasoning-effort",
        metavar="LEVEL",
        help="How much to reason: low, medium or high, where the model's chat template knows it; implies --thinking.",
    ),
]
BothKinds = Annotated[
    bool,
    _asked(
        "--both-kinds",
        help="Ask with reasoning and without it, as two runs that read each document once (LongBench Pro's two "
        "prompts).",
    ),
]
Cot = Annotated[bool, _asked("--cot", help="LongBench v2: reason about the document first, then answer.")]
NoContext = Annotated[bool, _asked("--no-context", help="LongBench v2: ask without the document.")]
LengthHint = Annotated[
    bool,
    _asked(
        "--length-hint/--no-length-hint",
        help="L-Eval's open questions say how many words the reference has, as its published answers were asked; "
        "without, as its founding README has it for judges and people.",
    ),
]

# Of a judge.
JudgeModel = Annotated[
    str,
    _model(
        "--judge",
        "-j",
        metavar="MODEL",
        help="The judge: a model card (.toml, or its name in models/), a .gguf file, or a model folder.",
    ),
]
JudgedRuns = Annotated[
    list[str] | None,
    _asked(
        "--run",
        metavar="RUN",
        help="Whose answers are judged: a run of the file, or a model whose answers the bundle brings (claude-100k, "
        "gpt4-32k, llama2-13b-chat-4k). Can be repeated.",
    ),
]
Against = Annotated[
    str | None,
    _asked(
        "--against",
        metavar="RUN",
        help="Whose answers they are compared with, named likewise; officially turbo-16k-0613.",
    ),
]
Questions = Annotated[
    JudgedQuestions | None,
    _asked(
        "--questions",
        metavar="WHICH",
        help="L-Eval's questions for the judge (llm: 96), for people (human: 85) or both; open: all that are not "
        "closed, of any benchmark. Default: llm, with a rubric of your own open.",
    ),
]
JudgedTasks = Annotated[
    list[str] | None,
    _which("--tasks", "-t", metavar="NAMES", help="Only answers to these benchmarks or tasks."),
]
RubricFile = Annotated[
    str, _asked("--rubric", metavar="FILE", help="leval, the official one, or a TOML file of your own.")
]
Orders = Annotated[
    OrdersOfPairs,
    _asked("--orders", metavar="WHICH", help="both: each pair in both orders, as officially; given: the judged first."),
]
Calibrate = Annotated[
    bool,
    _asked(
        "--calibrate",
        help="Judge the published answers of Claude, GPT-4 and Llama 2 against turbo's instead: what this judge says "
        "of them stands beside what GPT-4 said.",
    ),
]
SaveSpec = Annotated[
    Path | None,
    _output("--save-spec", metavar="FILE", help="Ask nothing; write the judge's work for `lbx submit --spec FILE`."),
]
JudgeOutput = Annotated[
    Path | None,
    _output("--output", "-o", metavar="FILE", help="Where judgements go; default: the results file itself."),
]

# Which samples.
Limit = Annotated[
    int | None, _which("--limit", "-n", metavar="N", min=1, help="Only the first N samples of each task.")
]
Documents = Annotated[
    int | None,
    _which(
        "--documents", metavar="N", min=1, help="Only the first N documents of each task, with all their questions."
    ),
]
DrawSamples = Annotated[
    int | None,
    _which(
        "--sample",
        metavar="N",
        min=1,
        help="Draw whole documents of each task at random until they have N samples. A smaller N draws a part of a "
        "larger one; --seed changes the draw.",
    ),
]
Seed = Annotated[int, _which("--seed", metavar="N", min=0, help="Seed for sampled answers, and for --sample's draw.")]
Ids = Annotated[
    list[str] | None,
    _which(
        "--ids",
        metavar="NAMES",
        help="Only these samples: ids, alone or after the task (leval/tpo/0); commas or repeated, or @FILE.",
    ),
]
RetryFailed = Annotated[bool, _which("--retry-failed", help="Ask samples again that failed in an earlier session.")]
RetryEmpty = Annotated[
    bool, _which("--retry-empty", help="Ask samples again whose answer was empty in an earlier session.")
]

# The model.
Model = Annotated[
    str,
    _model(
        "--model",
        "-m",
        metavar="MODEL",
        help="A model card (.toml, or its name in models/), a .gguf file, or a model folder.",
    ),
]
BackendName = Annotated[
    str | None,
    _model("--backend", metavar="NAME", help="llamacpp, hf or scripted, where the model leaves a choice."),
]
Threads = Annotated[
    int | None,
    _model(
        "--threads",
        metavar="N",
        min=1,
        help="CPU threads of each process that holds a model, whatever its card says; default: all cores.",
    ),
]
HashWeights = Annotated[
    bool,
    _model(
        "--hash-weights",
        help="Tell the model from others by every byte of its weights; by default, above 512 MiB, by pieces of every "
        "tensor.",
    ),
]

# Retrieval and embeddings.
Rag = Annotated[
    int,
    _found(
        "--rag",
        metavar="N",
        min=0,
        help="Put the N best chunks in place of the document (LongBench v1, v2, L-Eval).",
    ),
]
Summaries = Annotated[
    int,
    _found(
        "--summaries",
        metavar="N",
        min=0,
        help="Have the model sum up each document in parts of N words first, and ask about the summaries (lbx's own).",
    ),
]
Retriever = Annotated[
    str,
    _found(
        "--retriever",
        metavar="CARD",
        help="What ranks the chunks: bm25, bm25-characters (LongBench v1's own script), or an embedding model's card.",
    ),
]
ChunkWords = Annotated[
    int | None,
    _found("--chunk-words", metavar="N", min=1, help="Words in a chunk; default: 500 with bm25, 200 with embeddings."),
]
ChunkTokens = Annotated[
    int | None,
    _found(
        "--chunk-tokens",
        metavar="N",
        min=1,
        help="Tokens in a chunk, counted as the authors count: L-Eval has 1024 (the default there), LongBench v2 128.",
    ),
]
Embedding = Annotated[
    str | None,
    _found("--embedding", metavar="CARD", help="Embedding model's card, for LongBench Pro's summaries (t4)."),
]

# How it runs.
Batching = Annotated[
    bool, _how("--batching/--no-batching", help="Decode many answers together, or ask one prompt after the other.")
]
ModelWorkers = Annotated[
    int,
    _how(
        "--workers",
        metavar="N",
        min=0,
        help="Worker processes that each hold the model, on their share of cores or GPUs; losing one costs no "
        "answer. 0 loads the model in this process.",
    ),
]
CountFirst = Annotated[
    bool, _how("--plan/--no-plan", help="Count tokens and estimate the time before the first sample.")
]
VerifyBatching = Annotated[
    int,
    _how(
        "--verify-batching",
        metavar="N",
        min=0,
        help="Afterwards ask N answers again, each alone, and report how many differ and by how much.",
    ),
]
HashBundle = Annotated[
    bool,
    _how(
        "--hash-bundle",
        help="Hash every file of the bundle first; default: compare names, sizes and times, and hash only files newer "
        "than the manifest.",
    ),
]

# One shard of many.
Shards = Annotated[
    Path | None, _shard("--shards", metavar="FILE", help="The shard plan that `lbx submit` wrote; needs --shard.")
]
ShardNumber = Annotated[int | None, _shard("--shard", metavar="I", min=0, help="Run only shard I, counted from 0.")]
Scratch = Annotated[
    Path | None,
    _shard(
        "--scratch",
        metavar="DIR",
        help="A folder on this machine's own disk: write there, and copy to the results file at intervals and at "
        "the end, however the run ends.",
    ),
]
CopyEvery = Annotated[
    float,
    _shard(
        "--copy-every", metavar="MIN", min=0, help="With --scratch: minutes between copies; 0 copies at the end only."
    ),
]

# Output.
ResultsOutput = Annotated[
    Path, _output("--output", "-o", metavar="FILE", help="The results file; created where there is none.")
]
JudgeName = Annotated[
    str | None,
    _output("--name", metavar="NAME", help="Name of the judge; default: made from model, backend, bundle and rubric."),
]
RunName = Annotated[
    str | None,
    _output("--run", metavar="NAME", help="Name of the run; default: made from model, backend, bundle and settings."),
]
Metadata = Annotated[
    list[str] | None,
    _output(
        "--metadata",
        metavar="KEY=VALUE",
        help="Record what the run's settings do not say about it, for exported result files; not part of its name. "
        "Can be repeated.",
    ),
]
Log = Annotated[
    Path | None,
    _output("--log", metavar="FILE", help="Write a progress line every minute here; default: RESULTS.log."),
]
AsJson = Annotated[bool, _output("--json", help="Print the answer as JSON.")]

# Of commands that read a results file.
Results = Annotated[Path, typer.Argument(help="The results file that `lbx run` wrote.", metavar="RESULTS")]
OnlyRuns = Annotated[list[str] | None, typer.Option("--run", metavar="RUN", help="Only this run. Can be repeated.")]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=0, help="Processes; 0 means one for each core.")]

# Of commands that serve a page.
Host = Annotated[str, _web("--host", metavar="ADDRESS", help="Where to listen; other machines only if you insist.")]
Port = Annotated[int, _web("--port", metavar="N", min=0, max=65535, help="The port; 0 takes any that is free.")]
Uds = Annotated[
    Path | None,
    _web("--uds", metavar="FILE", help="Listen at a Unix socket instead: the way into a container without network."),
]
Others = Annotated[
    bool, _web("--others-may-reach-it", help="Allow a --host that other machines can reach, unencrypted.")
]
