"""What the card of a model that writes text may hold under ``[options]``: a frozen dataclass for each backend, checked
when made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from lbx.base.errors import UsageError
from lbx.base.resources import usable_cpu_count

AUTO = "auto"
CACHE_TYPES = ("f16", "f32", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
ROPE_SCALINGS = ("", "none", "linear", "yarn")
HF_ROPE_SCALINGS = ("", "linear", "ntk", "dynamic", "yarn")
DTYPES = (AUTO, "float32", "bfloat16", "float16")
ATTENTIONS = (AUTO, "sdpa", "eager")
QUANTIZATIONS = ("", "4bit")
DEVICE_MAPS = ("", "auto", "balanced", "balanced_low_0", "sequential")
MOST_THREADS = 512  # llama.cpp's own limit
MOST_ROPE_FACTOR = 1024
MOST_SEQUENCES = 256  # llama.cpp's own limit
APIS = ("", "completions", "chat")
MOST_PAUSE_S = 3600
OWN_PARAMETERS = (
    "model", "prompt", "messages", "chat_template_kwargs", "max_tokens", "max_completion_tokens", "min_tokens", "stop",
    "temperature", "top_p", "top_k", "min_p", "samplers", "seed", "repeat_penalty", "repetition_penalty",
    "stream", "n", "best_of", "echo",
)  # fmt: skip
"""What a card may not send beside: lbx sends it itself, or could not read what comes of it."""

SERVERS = ("auto", "llama-server", "llama-cpp-python", "vllm", "sglang", "other")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaOptions:
    """Options of the llama.cpp backend.

    Attributes:
        prefill_chunk: tokens that a prefill step computes at once. On a CPU, 256 is 5% faster than llama.cpp's own 512
            and needs half of its memory beside the cache, which grows with this times the window; on a GPU more may be
            faster.
        flash_attention: use flash attention. Off by default, because on a CPU it flips near-ties: greedy answers then
            differ from those of Hugging Face in float32.
        cache_type_k, cache_type_v: number format of the KV cache: f16, f32, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0; a
            quantised V needs flash_attention.
        n_gpu_layers: layers to put on a GPU; -1 means all, 0 that it computes nothing (without effect if llama.cpp
            has no GPU). The number actually there is part of the run's identity.
        offload_kqv: keep the KV cache on the GPU, too; whether it was there is part of the run's identity.
        threads: CPU threads; 0 means one for each CPU that this process may use.
        repack: let llama.cpp rearrange quantised weights for this CPU (faster, other rounding).
        rope_scaling, rope_freq_base, rope_freq_scale, yarn_original_context: stretch the positions ("none", "linear"
            or "yarn"); "" and 0 keep the model file's values.
        extend_context: allow a context_window above the one that the model file declares.
        max_sequences: questions that can be answered at once, 1 to 256; llama.cpp's own limit leaves 253 of them. For
            models with sliding windows or recurrent states at most eight, and each takes a window or a state.
        kv_cells: tokens that the KV cache holds, shared ones counted once; 0 means as many as context_window. With
            more, more questions on a long document are answered at once.
        batch_invariant: give a prompt bit-identical logits alone and in a batch, on a CPU without flash_attention, in
            models without sliding attention; passes of few tokens are padded for that. Left out: true for weights in
            F32, F16, BF16 and Q8_0 (padded to 2 tokens: an answer that grows alone takes 1.3 times as long on one
            core), false for others (to 8 tokens: 2.7 to 5 times).
    """

    prefill_chunk: int = 256
    flash_attention: bool = False
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    n_gpu_layers: int = -1
    offload_kqv: bool = True
    threads: int = 0
    repack: bool = True
    rope_scaling: str = ""
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_original_context: int = 0
    extend_context: bool = False
    max_sequences: int = 32
    kv_cells: int = 0
    batch_invariant: bool | None = None

    def __post_init__(self) -> None:
        at_least(self, 1, "prefill_chunk", "max_sequences")
        at_least(self, 0, "threads", "yarn_original_context", "kv_cells", "rope_freq_base", "rope_freq_scale")
        at_least(self, -1, "n_gpu_layers")
        if self.max_sequences > MOST_SEQUENCES:
            raise UsageError(f"max_sequences = {self.max_sequences} is too large: it must be at most {MOST_SEQUENCES}.")
        one_of(self, CACHE_TYPES, "cache_type_k", "cache_type_v")
        one_of(self, ROPE_SCALINGS, "rope_scaling")
        if self.cache_type_v.startswith("q") and not self.flash_attention:
            raise UsageError(
                f"cache_type_v = {self.cache_type_v!r} needs flash attention.",
                fix="Set flash_attention = true, or cache_type_v to f16.",
            )

    @property
    def replaces_scaling(self) -> bool:
        """Whether the model file's rope scaling is replaced."""
        return bool(self.rope_scaling or self.rope_freq_base or self.rope_freq_scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class HfOptions:
    """Options of the Hugging Face backend.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "cuda" or "cuda:N".
        device_map: spread the layers over all GPUs, as accelerate's "auto", "balanced", "balanced_low_0" or
            "sequential" do; "" puts all on ``device``. A model that the GPUs together cannot hold is refused.
        dtype: "float32", "bfloat16", "float16" or "auto": config.json's dtype, on a CPU only if the processor
            multiplies it in hardware (bfloat16: AMX-BF16, AVX512-BF16 or ARM's BF16; float16: AMX-FP16), else float32;
            on a GPU without bfloat16, float16 in its place. A run prints it at the start, and it is part of the run's
            identity: if the nodes of a cluster differ, name one. On a GPU, float32 is never TF32.
        quantization: "4bit" (NF4 by bitsandbytes, which must be installed); "" loads the weights as they are. The
            cache stays in ``dtype``. There is no 8-bit option: results of LLM.int8 depend on the rest of the batch.
        attention: "auto" is the first of these two that the model's class supports: "sdpa" (lbx computes shared
            prefixes once, by torch's kernels), "eager" (the model's own code, slow). config.json's value is ignored.
        prefill_chunk: tokens that a prefill step computes at once.
        max_sequences: questions that can be answered at once; fewer if recurrent states are large.
        kv_cells: tokens that the KV cache may hold, shared ones counted once. 0 means as many as the context window on
            a CPU; on a GPU as many as fit into four fifths of its free memory, at least the context window. Models
            whose questions copy a whole document hold up to four context windows, or this if it is more.
        threads: CPU threads; 0 means one for each CPU that this process may use.
        rope_scaling: stretch the positions by ``rope_factor``: "linear" (divides them, as LongChat's and Vicuna's),
            "ntk" (fixed NTK: a larger base at every length), "dynamic" (transformers' dynamic NTK: a base that grows
            with the prompt; prompts then run one by one) or "yarn". "" keeps config.json's values.
        rope_factor: how many times longer than max_position_embeddings the context may become; goes with
            ``rope_scaling``.
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
        one_of(self, HF_ROPE_SCALINGS, "rope_scaling")
        if bool(self.rope_scaling) != bool(self.rope_factor):
            raise UsageError(
                "rope_scaling and rope_factor go together.",
                fix='Write both, e.g. rope_scaling = "ntk" and rope_factor = 4.0.',
            )
        if self.rope_scaling and not 1 <= self.rope_factor <= MOST_ROPE_FACTOR:
            raise UsageError(f"rope_factor = {self.rope_factor} is not a number of 1 to {MOST_ROPE_FACTOR}.")
        one_of(self, DEVICE_MAPS, "device_map")
        if self.device_map and self.device != "auto":
            raise UsageError(
                f"device = {self.device!r} and device_map = {self.device_map!r} exclude each other.",
                fix="Remove device: a device map takes every GPU there is.",
            )
        one_of(self, QUANTIZATIONS, "quantization")
        one_of(self, DTYPES, "dtype")
        one_of(self, ATTENTIONS, "attention")
        at_least(self, 1, "prefill_chunk", "max_sequences")
        at_least(self, 0, "kv_cells", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedOptions:
    """The scripted backend has no options; its answers are the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """Options of a model behind an OpenAI-compatible server.

    Attributes:
        url: the API's address, e.g. "http://127.0.0.1:8080/v1"; never with a password in it.
        model: its name on the server; "" if the server has only one. Rename the card when the server gets other weights
            under an old name: the server does not tell.
        api: "completions" (lbx wraps and cuts the prompts; needs the card's [tokenizer]) or "chat" (the server wraps
            them in its own template); "" is completions if there is a tokenizer, else chat.
        server: "auto" detects the software; behind a proxy name it: "llama-server", "llama-cpp-python", "vllm",
            "sglang" or "other". It decides which sampling parameters beyond OpenAI's are sent.
        api_key_env: name of the environment variable that holds the key; "" sends none.
        timeout_s: seconds that the server may take for one answer, including its queue.
        retries: further attempts after 408, 409, 429, 5xx and broken connections, with growing pauses.
        concurrency: requests under way at once; those on one document follow each other.
        pause_s: least seconds between the starts of two requests, retries included, for servers that limit the rate.
        extra_body: a table of further fields for every request; part of the run's identity, and kept in results files.
    """

    url: str = ""
    model: str = ""
    api: str = ""
    server: str = "auto"
    api_key_env: str = ""
    timeout_s: float = 1800.0
    retries: int = 5
    concurrency: int = 4
    pause_s: float = 0.0
    extra_body: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_url(self.url)
        one_of(self, APIS, "api")
        one_of(self, SERVERS, "server")
        if not self.timeout_s > 0:
            raise UsageError(f"timeout_s = {self.timeout_s} is not a number of seconds above 0.")
        at_least(self, 0, "retries")
        at_least(self, 1, "concurrency")
        if not 0 <= self.pause_s <= MOST_PAUSE_S:
            raise UsageError(f"pause_s = {self.pause_s} is not a number of seconds from 0 to {MOST_PAUSE_S}.")
        _check_extra_body(self.extra_body)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port: all that a run may reach over the network."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def thread_count(wanted: int) -> int:
    """Number of threads to compute with: the one asked for, or one for each CPU that this process may use."""
    return wanted or min(usable_cpu_count(), MOST_THREADS)


def check_device(device: str) -> None:
    """Raise UsageError for a name that torch has not."""
    name, _, number = device.partition(":")
    if name not in ("auto", "cpu", "cuda") or (number and not (name == "cuda" and number.isdecimal())):
        raise UsageError(f"device must be auto, cpu, cuda or cuda:N, not {device!r}.")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises where it is no number
    except ValueError:
        parts = SplitResult("", "", "", "", "")
    if parts.username or parts.password:
        raise UsageError(
            "url holds a user name or password, and cards and results get shared.",
            fix="Put the key into an environment variable, and its name into api_key_env.",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(
            f"url = {url!r} is not the address of a server.", fix='Write it like url = "http://127.0.0.1:8080/v1".'
        )


def _check_extra_body(table: dict[str, Any]) -> None:
    if own := [name for name in table if name in OWN_PARAMETERS]:
        raise UsageError(
            f"extra_body holds {', '.join(own)}, which lbx sets itself.",
            fix="Remove it: sampling and lengths are options of the run or stand under [sampling], variables of the "
            "template are kwargs under [chat].",
        )
    try:
        json.dumps(table, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise UsageError(f"extra_body cannot be sent as JSON: {exc}.", fix="Write dates as text.") from exc


def at_least(options: object, least: int, *names: str) -> None:
    """Raise UsageError for an option that is smaller."""
    for name in names:
        if not (value := getattr(options, name)) >= least:
            raise UsageError(f"{name} = {value} is too small: it must be at least {least}.")


def one_of(options: object, choices: tuple[str, ...], *names: str) -> None:
    """Raise UsageError for an option that is none of the choices."""
    for name in names:
        if (value := getattr(options, name)) not in choices:
            raise UsageError(f"{name} must be {', '.join(c or repr('') for c in choices)}, not {value!r}.")
