"""Helpers for backends on torch and transformers: devices, the number format that a model is computed in,
quiet output, short exception messages.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from lbx.backends.headers import DeclaredWindow, window_in_config
from lbx.backends.options import AUTO
from lbx.base.errors import BackendError
from lbx.base.inputs import SMALL, read_input
from lbx.base.phases import phases
from lbx.base.resources import shorten_spins
from lbx.base.tokenizer_files import read_tokenizer_file

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tekken.json",
    "vocab.txt",
)
_MORE_TOKENIZER_FILES = ("merges.txt", "added_tokens.json")

IMPORTS = "imports of torch and transformers"
"""Name of the phase of a run's start that imports the libraries."""
_COMPILER = "torch._dynamo"
_MARKS = ("allow_in_graph", "assume_constant_result", "disable")
"""Names of the compiler's decorators that torch and transformers apply on import."""

# Rotary embeddings with factors that change with the length of the input seen so far.
_LENGTH_DEPENDENT = ("dynamic", "longrope")


def refuse_without_tokenizer(folder: Path) -> None:
    """Raise BackendError for a folder without a usable tokenizer.

    Without a vocabulary transformers would make up an empty one, and read no word.
    """
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise BackendError(
            f"{folder} has no tokenizer: it needs one of {', '.join(_TOKENIZER_FILES)}.",
            fix="Copy the model's tokenizer files into it.",
        )
    check_tokenizer_file(folder / "tokenizer.json")


def vocabulary_files(folder: Path) -> list[Path]:
    """Files that define the tokenizer of a folder: tokenizer.json, or else all other tokenizer files."""
    names = (*_TOKENIZER_FILES, *_MORE_TOKENIZER_FILES)
    files = [folder / name for name in names if (folder / name).is_file()]
    return files[:1] if files[:1] == [folder / _TOKENIZER_FILES[0]] else files


def check_tokenizer_file(file: Path) -> None:
    """Check a tokenizer.json if it exists. Raises BackendError if it is too large or would multiply texts."""
    try:
        read_tokenizer_file(file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise BackendError(f"{file} cannot be read: {reason}.", fix="Do not trust this model.") from exc


def choose_device(torch: Any, name: str) -> Any:
    """Resolve a card's option to a ``torch.device``.

    Raises:
        BackendError: the GPU does not exist.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BackendError(
            f"The GPU {name} does not exist: torch finds {torch.cuda.device_count()} GPUs.",
            fix="Set device = 'cpu' or 'auto' in the card, or start the container with its GPUs.",
            command="lbx doctor",
        )
    return device


def processor_features(torch: Any) -> frozenset[str]:
    """Instruction sets that torch's matrix products in rounded formats may use, by torch's names.

    Empty without oneDNN, which contains the kernels.
    """
    if not torch.backends.mkldnn.is_available():
        return frozenset()
    return frozenset(name for name, present in torch.cpu.get_capabilities().items() if present is True)


def prepare_environment() -> None:
    """Set environment variables of torch and the hub's libraries, before the import: offline, short spinning."""
    shorten_spins()
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


@phases.measure(IMPORTS)
def import_transformers() -> tuple[Any, Any]:
    """Import torch and transformers without modules that only training uses.

    transformers' models would import torch's distributed tensors, and SciPy for losses of object detection. It does
    without them where they are not installed.
    """
    import torch
    import transformers

    if "transformers.modeling_utils" not in sys.modules:  # else another part of this process has imported all of it
        for module in (transformers.utils, transformers.utils.import_utils):
            module.is_torch_distributed_available = module.is_scipy_available = lambda: False
    return torch, transformers


@contextmanager
def postpone_compiler() -> Iterator[None]:
    """Postpone the import of torch's compiler in a block without compilation.

    Its import takes as long as torch's, and torch and transformers do it only to mark functions.
    """
    if _COMPILER in sys.modules:
        yield
        return
    sys.modules[_COMPILER] = compiler = _PostponedCompiler()
    try:
        yield
    finally:
        if sys.modules.get(_COMPILER) is compiler:
            del sys.modules[_COMPILER]


class _PostponedCompiler(ModuleType):
    """Substitute for torch's compiler that marks no functions, and that the real module replaces at any other use."""

    def __init__(self) -> None:
        super().__init__(_COMPILER)
        self.__spec__ = find_spec(_COMPILER)
        self.__path__ = list(self.__spec__.submodule_search_locations or ()) if self.__spec__ else []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _MARKS:
            return lambda function=None, *_, **__: function or (lambda marked: marked)
        if sys.modules.get(_COMPILER) is self:
            del sys.modules[_COMPILER]
        return getattr(import_module(_COMPILER), name)


@contextmanager
def show_warnings(debug: bool) -> Iterator[None]:
    """Show Python's warnings only if requested."""
    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")
        yield


def set_verbosity(transformers: Any, debug: bool) -> None:
    """Keep transformers' log and progress bars off the terminal, except for debugging."""
    logging = transformers.utils.logging
    if debug:
        logging.set_verbosity_info()
        logging.enable_progress_bar()
    else:
        logging.set_verbosity_error()
        logging.disable_progress_bar()


def first_line(exc: BaseException) -> str:
    """First line of a foreign exception's message, or its class if the message is empty."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[0] if lines else type(exc).__name__


def attention_name(model: Any) -> str:
    """Attention implementation of a loaded model, by transformers' name."""
    return str(model.config.get_text_config(decoder=True)._attn_implementation)


def model_tokens(model: Any, count: int, seed: int) -> list[int]:
    """Fixed token ids, without meaning, to try a model with."""
    size = int(model.get_input_embeddings().num_embeddings)
    return [(7919 * (i + 1) * (seed + 3) + 101 * seed) % size for i in range(count)]


def input_device(model: Any) -> Any:
    """``torch.device`` of a model's input tokens: the first layer's device if the model uses several."""
    embedding = model.get_input_embeddings()
    return getattr(embedding, "device", None) or embedding.weight.device


def is_out_of_memory(exc: BaseException) -> bool:
    """Whether torch ran out of memory, on a GPU or on the CPU."""
    import torch

    return isinstance(exc, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(exc)


def release_gpu_memory(exc: BaseException) -> None:
    """Release GPU memory cached by torch, after running out of memory."""
    import torch

    if is_out_of_memory(exc) and torch.cuda.is_available():
        torch.cuda.empty_cache()


def declared_window(config: Any, *, with_scaling: bool = True) -> DeclaredWindow | None:
    """Context window that a configuration of transformers declares, by default enlarged by the rope scaling."""
    names = ("max_position_embeddings", "model_type", *(("rope_parameters",) if with_scaling else ()))
    return window_in_config({name: getattr(config, name, None) for name in names})


def length_dependent_ropes(config: Any) -> list[str]:
    """Types of a model's rotary embeddings whose factors depend on the input length."""
    rope = getattr(config.get_text_config(decoder=True), "rope_parameters", None)
    tables = [rope, *rope.values()] if isinstance(rope, dict) else []
    # With a fixed alpha the base is stretched once and for all (Hunyuan), though files call it dynamic.
    kinds = {str(table.get("rope_type")) for table in tables if isinstance(table, dict) and not table.get("alpha")}
    return sorted(kinds & set(_LENGTH_DEPENDENT))


def reset_rope_lengths(model: Any) -> None:
    """Reset rotary embeddings that stretch with the longest input so far.

    They keep their factors from one input to the next: results would depend on earlier inputs.
    """
    for module in model.modules():
        if not hasattr(module, "original_max_seq_len"):
            continue
        for name, factors in [*module.named_buffers(recurse=False), *vars(module).items()]:
            if name.endswith("original_inv_freq"):
                current = getattr(module, name.replace("original_", ""))
                setattr(
                    module, name.replace("original_", ""), factors.to(current.device, copy=True)
                )  # some write into it
            elif name.endswith("max_seq_len_cached"):
                setattr(module, name, module.original_max_seq_len)


# Processor features with which oneDNN (torch's matrix products use it) multiplies a rounded format natively:
# {torch's name: common name}. Without one of them it converts to float32 first, which is
# slower than float32 from the start. AVX512-FP16 is not among them: it sums in float16, and oneDNN only converts with
# it (uxlfoundation/oneDNN#2822, #5973). ARM's "bf16" is in Graviton 3 and Neoverse V1.
MULTIPLYING_FEATURES = {
    "bfloat16": {"amx_bf16": "AMX-BF16", "avx512_bf16": "AVX512-BF16", "bf16": "ARM BF16"},
    "float16": {"amx_fp16": "AMX-FP16"},
}


class Dtype(NamedTuple):
    """Number format by torch's name, with the reason for the choice, as a clause."""

    name: str
    reason: str


def choose_dtype(torch: Any, option: str, device: Any, folder: Path) -> Dtype:
    """Choose the number format for the weights in a folder on a ``torch.device``, from a card's option."""
    if option != AUTO:
        return Dtype(option, "as its card says")
    declared = checkpoint_dtype(folder)
    if device.type == "cpu":
        return choose_for_processor(declared, processor_features(torch))
    # Cards before Ampere compute bfloat16 by detours, if at all.
    if declared in (None, "bfloat16") and device.type == "cuda":
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            return Dtype("float16", "this GPU has no bfloat16")
        return Dtype("bfloat16", "the checkpoint's own" if declared else "its config.json names no format")
    return Dtype(declared or "bfloat16", "the checkpoint's own")


def choose_for_processor(declared: str | None, features: Collection[str]) -> Dtype:
    """Choose the checkpoint's number format if the processor multiplies it natively, or else float32.

    Args:
        declared: the checkpoint's format, or None if its files do not give it.
        features: features of the processor, by torch's names.
    """
    if declared is None:
        return Dtype("float32", "its config.json names no format")
    if declared == "float32":
        return Dtype("float32", "the checkpoint's own")
    if by := multiplying_feature(declared, features):
        return Dtype(declared, f"the checkpoint's own, which this processor multiplies in hardware ({by})")
    lacking = " or ".join(MULTIPLYING_FEATURES[declared].values())
    return Dtype(
        "float32", f"the checkpoint is {declared}, which this processor does not multiply in hardware ({lacking})"
    )


def multiplying_feature(dtype: str, features: Collection[str]) -> str | None:
    """Name of the processor feature that multiplies a number format natively, or None if it is missing."""
    return next((name for feature, name in MULTIPLYING_FEATURES[dtype].items() if feature in features), None)


def checkpoint_dtype(folder: Path) -> str | None:
    """Number format of the weights in config.json, or None if missing or not a format for computing."""
    try:
        config = json.loads(read_input(folder / "config.json", SMALL))
    except (OSError, ValueError, RecursionError):
        return None  # loading reports the error
    tables = [config, config.get("text_config")] if isinstance(config, dict) else []
    values = [table.get(key) for table in tables if isinstance(table, dict) for key in ("dtype", "torch_dtype")]
    return next((str(value) for value in values if value in ("float32", "bfloat16", "float16")), None)
