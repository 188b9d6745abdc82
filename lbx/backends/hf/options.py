"""Options of models on transformers, and of embedding models on sentence-transformers."""

from __future__ import annotations

from dataclasses import dataclass

from lbx.backends.options import AUTO, POOLINGS, BackendOptions, check_at_least, check_choice
from lbx.base.errors import UsageError

ROPE_SCALINGS = ("", "linear", "ntk", "dynamic", "yarn")
DTYPES = (AUTO, "float32", "bfloat16", "float16")
ATTENTIONS = (AUTO, "sdpa", "eager")
QUANTIZATIONS = ("", "4bit")
DEVICE_MAPS = ("", "auto", "balanced", "balanced_low_0", "sequential")
MOST_ROPE_FACTOR = 1024
PADDING_SIDES = ("auto", "left", "right")


@dataclass(frozen=True, slots=True, kw_only=True)
class HfOptions(BackendOptions):
    """Options of the Hugging Face backend.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "cuda" or "cuda:N".
        device_map: spread the layers over all GPUs, as accelerate's "auto", "balanced", "balanced_low_0" or
            "sequential" do; "" puts all on ``device``. A model too large for all GPUs together is refused.
        dtype: "float32", "bfloat16", "float16" or "auto": config.json's dtype, on a CPU only if the processor
            multiplies it in hardware (bfloat16: AMX-BF16, AVX512-BF16 or ARM's BF16; float16: AMX-FP16), else float32;
            on a GPU without bfloat16, float16 in its place. A run prints it at the start, and it is part of the run's
            identity: if the nodes of a cluster differ, set one. On a GPU, float32 is never TF32.
        quantization: "4bit" (NF4 by bitsandbytes, which must be installed); "" loads the weights unchanged. The
            cache stays in ``dtype``. There is no 8-bit option: results of LLM.int8 depend on the rest of the batch.
        attention: "auto" is the first of these two that the model's class supports: "sdpa" (lbx computes shared
            prefixes once, by its own kernel or torch's), "eager" (the model's own code, slow). config.json's value is
            ignored.
        prefill_chunk: tokens that a prefill step computes at once.
        max_sequences: questions that can be answered at once; fewer if recurrent states are large.
        kv_cells: size of the KV cache in tokens; shared tokens count once. 0 means the context window on a CPU, and on
            a GPU the tokens that fit into four fifths of its free memory, at least the context window. Models that
            copy a whole document for each question use up to four context windows, or ``kv_cells`` if it is larger.
        threads: CPU threads; 0 means one for each CPU that this process may use.
        rope_scaling: stretch the positions by ``rope_factor``: "linear" (divides them, as LongChat's and Vicuna's),
            "ntk" (fixed NTK: a larger base at every length), "dynamic" (transformers' dynamic NTK: a base that grows
            with the prompt; prompts then run one by one) or "yarn". "" keeps config.json's values.
        rope_factor: largest context as a multiple of max_position_embeddings; required by ``rope_scaling``.
        extend_context: allow a context_window above the one that config.json declares, or ``rope_factor`` times it.
    """

    device: str = "auto"
    device_map: str = ""
    dtype: str = "auto"
    quantization: str = ""
    attention: str = "auto"
    prefill_chunk: int = 512
    max_sequences: int = 32
    kv_cells: int = 0
    threads: int = 0
    rope_scaling: str = ""
    rope_factor: float = 0.0
    extend_context: bool = False

    def __post_init__(self) -> None:
        check_device(self.device)
        check_choice(self, ROPE_SCALINGS, "rope_scaling")
        if bool(self.rope_scaling) != bool(self.rope_factor):
            raise UsageError(
                "rope_scaling and rope_factor must be set together.",
                fix='Set both, e.g. rope_scaling = "ntk" and rope_factor = 4.0.',
            )
        if self.rope_scaling and not 1 <= self.rope_factor <= MOST_ROPE_FACTOR:
            raise UsageError(f"rope_factor must be between 1 and {MOST_ROPE_FACTOR}, not {self.rope_factor}.")
        check_choice(self, DEVICE_MAPS, "device_map")
        if self.device_map and self.device != "auto":
            raise UsageError(
                f"device = {self.device!r} and device_map = {self.device_map!r} cannot be used together.",
                fix="Remove device: a device map uses all GPUs.",
            )
        check_choice(self, QUANTIZATIONS, "quantization")
        check_choice(self, DTYPES, "dtype")
        check_choice(self, ATTENTIONS, "attention")
        check_at_least(self, 1, "prefill_chunk", "max_sequences")
        check_at_least(self, 0, "kv_cells", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTransformersOptions(BackendOptions):
    """Options of embedding models on sentence-transformers.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "cuda" or "cuda:N".
        dtype: float32 by default, also on a GPU, because LongBench Pro's published numbers used it
            (sentence-transformers 3.1 and transformers 4.51 load in float32); bfloat16 needs half of the memory.
        attention: "sdpa" or "eager".
        batch_tokens: tokens of a batch, including padding; a longer text forms its own batch.
        padding_side: "auto" pads a last-token model on the left, as LongBench Pro does, and others on the right.
        max_length: cut texts to this many tokens, at their end; 0 means the model's own maximum.
        pooling: pooling of token vectors ("mean", "last" or "cls"); "" keeps the value in the model's folder.
        query_prefix: precedes a query in retrieval; "" means the model's own prompt for queries, if it has one.
        document_prefix: precedes every other text. Leave it empty for LongBench Pro's summaries.
        threads: CPU threads; 0 means one for each CPU that this process may use.
    """

    device: str = "auto"
    dtype: str = "float32"
    attention: str = "sdpa"
    batch_tokens: int = 8192
    padding_side: str = "auto"
    max_length: int = 0
    pooling: str = ""
    query_prefix: str = ""
    document_prefix: str = ""
    threads: int = 0

    def __post_init__(self) -> None:
        check_device(self.device)
        check_choice(self, DTYPES[1:], "dtype")
        check_choice(self, ATTENTIONS[1:], "attention")
        check_at_least(self, 1, "batch_tokens")
        check_choice(self, PADDING_SIDES, "padding_side")
        check_choice(self, POOLINGS, "pooling")
        check_at_least(self, 0, "max_length", "threads")


def check_device(device: str) -> None:
    """Raise UsageError for a name that torch does not know."""
    name, _, number = device.partition(":")
    if name not in ("auto", "cpu", "cuda") or (number and not (name == "cuda" and number.isdecimal())):
        raise UsageError(f"device must be auto, cpu, cuda or cuda:N, not {device!r}.")
