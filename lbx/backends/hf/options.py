"""Options of models on transformers, and of embedding models on sentence-transformers."""

from dataclasses import dataclass
from typing import Annotated

from lbx.backends.options import (
    AUTO,
    DOCUMENT_PREFIX,
    EXTEND_CONTEXT,
    KV_CELLS,
    MAX_SEQUENCES,
    POOLING,
    PREFILL_CHUNK,
    QUERY_PREFIX,
    BackendOptions,
    Device,
    MaxLength,
    Threads,
)
from lbx.base.errors import UsageError
from lbx.options.option import CardOption

ROPE_SCALINGS = ("", "linear", "ntk", "dynamic", "yarn")
DTYPES = (AUTO, "float32", "bfloat16", "float16")
ATTENTIONS = (AUTO, "sdpa", "eager")
QUANTIZATIONS = ("", "4bit")
DEVICE_MAPS = ("", "auto", "balanced", "balanced_low_0", "sequential")
MOST_ROPE_FACTOR = 1024
PADDING_SIDES = ("auto", "left", "right")


@dataclass(frozen=True, slots=True, kw_only=True)
class HfOptions(BackendOptions):
    """Options of the Hugging Face backend."""

    device: Device = "auto"
    device_map: Annotated[
        str,
        CardOption(
            'spread the layers over all GPUs, as accelerate\'s "auto", "balanced", "balanced_low_0" or "sequential" '
            'do; "" puts all on `device`. A model too large for all GPUs together is refused.',
            choices=DEVICE_MAPS,
        ),
    ] = ""
    dtype: Annotated[
        str,
        CardOption(
            '"float32", "bfloat16", "float16" or "auto": config.json\'s dtype, on a CPU only if the processor '
            "multiplies it in hardware (bfloat16: AMX-BF16, AVX512-BF16 or ARM's BF16; float16: AMX-FP16), else "
            "float32; on a GPU without bfloat16, float16 in its place. A run prints it at the start, and it is part "
            "of the run's identity: if the nodes of a cluster differ, set one. On a GPU, float32 is never TF32.",
            choices=DTYPES,
        ),
    ] = "auto"
    quantization: Annotated[
        str,
        CardOption(
            '"4bit" (NF4 by bitsandbytes, which must be installed); "" loads the weights unchanged. The cache stays '
            "in `dtype`. There is no 8-bit option: results of LLM.int8 depend on the rest of the batch.",
            choices=QUANTIZATIONS,
        ),
    ] = ""
    attention: Annotated[
        str,
        CardOption(
            '"auto" is the first of these two that the model\'s class supports: "sdpa" (lbx computes shared prefixes '
            "once, by its own kernel or torch's), \"eager\" (the model's own code, slow). config.json's value is "
            "ignored.",
            choices=ATTENTIONS,
        ),
    ] = "auto"
    prefill_chunk: Annotated[int, PREFILL_CHUNK] = 512
    max_sequences: Annotated[int, MAX_SEQUENCES] = 32
    kv_cells: Annotated[
        int,
        KV_CELLS.with_help(
            "size of the KV cache in tokens; shared tokens count once. 0 means the context window on a CPU, and on "
            "a GPU the tokens that fit into four fifths of its free memory, at least the context window. Models "
            "that copy a whole document for each question use up to four context windows, or `kv_cells` if it is "
            "larger."
        ),
    ] = 0
    threads: Threads = 0
    rope_scaling: Annotated[
        str,
        CardOption(
            'stretch the positions by `rope_factor`: "linear" (divides them, as LongChat\'s and Vicuna\'s), "ntk" '
            '(fixed NTK: a larger base at every length), "dynamic" (transformers\' dynamic NTK: a base that grows '
            'with the prompt; prompts then run one by one) or "yarn". "" keeps config.json\'s values.',
            choices=ROPE_SCALINGS,
        ),
    ] = ""
    rope_factor: Annotated[
        float, CardOption("largest context as a multiple of max_position_embeddings; required by `rope_scaling`.")
    ] = 0.0
    extend_context: Annotated[
        bool,
        EXTEND_CONTEXT.with_help(
            "allow a context_window above the one that config.json declares, or `rope_factor` times it."
        ),
    ] = False

    def __post_init__(self) -> None:
        check_device(self.device)
        BackendOptions.__post_init__(self)
        if bool(self.rope_scaling) != bool(self.rope_factor):
            raise UsageError(
                "rope_scaling and rope_factor must be set together.",
                fix='Set both, e.g. rope_scaling = "ntk" and rope_factor = 4.0.',
            )
        if self.rope_scaling and not 1 <= self.rope_factor <= MOST_ROPE_FACTOR:
            raise UsageError(f"rope_factor must be between 1 and {MOST_ROPE_FACTOR}, not {self.rope_factor}.")
        if self.device_map and self.device != "auto":
            raise UsageError(
                f"device = {self.device!r} and device_map = {self.device_map!r} cannot be used together.",
                fix="Remove device: a device map uses all GPUs.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTransformersOptions(BackendOptions):
    """Options of embedding models on sentence-transformers."""

    device: Device = "auto"
    dtype: Annotated[
        str,
        CardOption(
            "float32 by default, also on a GPU, because LongBench Pro's published numbers used it "
            "(sentence-transformers 3.1 and transformers 4.51 load in float32); bfloat16 needs half of the memory.",
            choices=DTYPES[1:],
        ),
    ] = "float32"
    attention: Annotated[str, CardOption('"sdpa" or "eager".', choices=ATTENTIONS[1:])] = "sdpa"
    batch_tokens: Annotated[
        int, CardOption("tokens of a batch, including padding; a longer text forms its own batch.", minimum=1)
    ] = 8192
    padding_side: Annotated[
        str,
        CardOption(
            '"auto" pads a last-token model on the left, as LongBench Pro does, and others on the right.',
            choices=PADDING_SIDES,
        ),
    ] = "auto"
    max_length: MaxLength = 0
    pooling: Annotated[
        str,
        POOLING.with_help(
            'pooling of token vectors ("mean", "last" or "cls"); "" keeps the value in the model\'s folder.'
        ),
    ] = ""
    query_prefix: Annotated[
        str,
        QUERY_PREFIX.with_help(
            'precedes a query in retrieval; "" means the model\'s own prompt for queries, if it has one.'
        ),
    ] = ""
    document_prefix: Annotated[
        str, DOCUMENT_PREFIX.with_help("precedes every other text. Leave it empty for LongBench Pro's summaries.")
    ] = ""
    threads: Threads = 0

    def __post_init__(self) -> None:
        check_device(self.device)
        BackendOptions.__post_init__(self)


def check_device(device: str) -> None:
    """Raise UsageError for a device name that torch does not know."""
    name, _, number = device.partition(":")
    if name not in ("auto", "cpu", "cuda") or (number and not (name == "cuda" and number.isdecimal())):
        raise UsageError(f"device must be auto, cpu, cuda or cuda:N, not {device!r}.")
