"""Options and arguments that several commands share, declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ReportFormat(StrEnum):
    TABLE = "table"
    MARKDOWN = "markdown"
    CSV = "csv"
    JSON = "json"
    HTML = "html"


class SqlFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class SamplingSource(StrEnum):
    OFFICIAL = "official"
    MODEL = "model"


BundleDir = Annotated[Path, typer.Option("--bundle", "-b", metavar="DIR", help="The folder that `lbx unpack` made.")]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help="A model card (.toml, or its name in models/), a .gguf file, or a model folder.",
    ),
]
BackendName = Annotated[
    str | None,
    typer.Option("--backend", metavar="NAME", help="llamacpp, hf or scripted, where the model leaves a choice."),
]
Tasks = Annotated[
    list[str],
    typer.Option(
        "--tasks",
        "-t",
        metavar="NAMES",
        help="Benchmarks or tasks: leval, longbench/qasper, 'lveval/*_16k'; commas or repeated. 'all'.",
    ),
]
Results = Annotated[Path, typer.Argument(help="The results file that `lbx run` wrote.", metavar="RESULTS")]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="Only the first N samples of each task.")
]
Documents = Annotated[
    int | None,
    typer.Option(
        "--documents", metavar="N", min=1, help="Only the first N documents of each task, with all their questions."
    ),
]
DrawSamples = Annotated[
    int | None,
    typer.Option(
        "--sample",
        metavar="N",
        min=1,
        help="Whole documents of each task, drawn at random until they have N samples; a smaller N is part of a "
        "larger one, --seed draws others.",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Seed of sampled answers, and of what --sample draws.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--ids",
        metavar="NAMES",
        help="Only these samples: their ids, alone or after the task (leval/tpo/0); commas or repeated, or @FILE.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        help="CPU threads of each process that holds a model, whatever its card says; every core without.",
    ),
]
Iterations = Annotated[
    int | None,
    typer.Option("--iterations", metavar="N", min=1, help="Ask every sample so many times; as its authors do without."),
]
MaxPromptTokens = Annotated[
    int | None,
    typer.Option("--max-prompt-tokens", metavar="N", min=1, help="Prompt limit instead of the benchmark's own."),
]
MaxNewTokens = Annotated[
    int | None,
    typer.Option("--max-new-tokens", metavar="N", min=1, help="Answer budget instead of the benchmark's own."),
]
Chat = Annotated[bool, typer.Option("--chat/--no-chat", help="Use the model's chat template where the benchmark does.")]
Thinking = Annotated[
    bool | None,
    typer.Option("--thinking/--no-thinking", help="Have the model reason first, or not; its template decides without."),
]
ThinkingTokens = Annotated[
    int | None,
    typer.Option(
        "--thinking-tokens", metavar="N", min=1, help="Reasoning budget apart from the answer's; implies --thinking."
    ),
]
BothKinds = Annotated[
    bool,
    typer.Option(
        "--both-kinds",
        help="Ask with reasoning and without, as two runs that read each document once (LongBench Pro's two prompts).",
    ),
]
Cot = Annotated[bool, typer.Option("--cot", help="LongBench v2: reason on the document, then answer.")]
NoContext = Annotated[bool, typer.Option("--no-context", help="LongBench v2: ask without the document.")]
Rag = Annotated[
    int,
    typer.Option(
        "--rag", metavar="N", min=0, help="Put the N best chunks in place of the document (LongBench v1 and v2)."
    ),
]
Retriever = Annotated[
    str, typer.Option("--retriever", metavar="CARD", help="What finds the chunks: bm25, or an embedding model's card.")
]
ChunkWords = Annotated[
    int | None,
    typer.Option(
        "--chunk-words", metavar="N", min=1, help="Size of a chunk; 500 for bm25, 200 for embeddings without."
    ),
]
Embedding = Annotated[
    str | None,
    typer.Option("--embedding", metavar="CARD", help="Card of the embedding model for LongBench Pro's summaries (t4)."),
]
Batching = Annotated[
    bool, typer.Option("--batching/--no-batching", help="Answer many prompts in lock-step, or one after the other.")
]
Workers = Annotated[int, typer.Option("--workers", metavar="N", min=0, help="Processes; 0 means every core.")]
ModelWorkers = Annotated[
    int,
    typer.Option(
        "--workers",
        metavar="N",
        min=0,
        help="Processes that hold the model, each on its share of cores or GPUs: one that is killed costs no answer. "
        "0 loads it in this process.",
    ),
]
VerifyBatching = Annotated[
    int,
    typer.Option(
        "--verify-batching",
        metavar="N",
        min=0,
        help="Afterwards ask N answers again alone, and say how many differ and by how little.",
    ),
]
HashBundle = Annotated[
    bool,
    typer.Option(
        "--hash-bundle",
        help="First hash every file of the bundle. Without it sizes and times are checked, and the bytes of what is "
        "younger than the manifest.",
    ),
]
Shards = Annotated[
    Path | None,
    typer.Option("--shards", metavar="FILE", help="The plan of shards that `lbx submit` wrote; goes with --shard."),
]
ShardNumber = Annotated[
    int | None, typer.Option("--shard", metavar="I", min=0, help="Ask only shard I of --shards, from 0.")
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        "--scratch",
        metavar="DIR",
        help="A folder on this machine's own disk: write there, and copy to the results file now and then and at "
        "the end, however that comes.",
    ),
]
CopyEvery = Annotated[
    float,
    typer.Option(
        "--copy-every", metavar="MIN", min=0, help="With --scratch: minutes between copies; 0 copies at the end only."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
