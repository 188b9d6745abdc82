"""Tensor types of GGUF files, and llama.cpp's support for them.

llama.cpp reports unknown types as damage, and loads types that are no weights: the first product with such a type ends
the process without a message. The type of every tensor is therefore checked before llama.cpp reads the file.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lbx.backends.cards import split_files
from lbx.backends.headers import GgufTensor, gguf_tensors, header_problem
from lbx.base.errors import BackendError
from lbx.base.inputs import open_input

_MAGIC = b"GGUF"
PLAIN = {0: "F32", 1: "F16", 30: "BF16"}
QUANTISED = {
    2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}  # fmt: skip
"""ggml's numbers and names of the types that llama.cpp 0.3.36 (as llama-cpp-python counts) computes with."""
NO_WEIGHTS = {9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64"}
"""ggml's types for other purposes: activations, indices."""
REMOVED = {4: "Q4_2", 5: "Q4_3"}
REARRANGED = {
    31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}  # fmt: skip
"""More removed types: llama.cpp now rearranges the plain type for the processor when it loads it."""
SLOW = {"Q4_1": ("Q4_0", "1.4 to 1.9"), "Q5_1": ("Q5_0", "1.3 to 1.7")}
"""Slow types: llama.cpp computes products of many tokens by the code for one. With the type to use instead, and its
speed-up for prompts on x86 (measured with SmolLM2-135M, on AVX2 and AVX-512)."""
_AMX_TYPES = {"Q4_1"}
"""Slow types with code for AMX (speed-up 1.1 there)."""
_INDICES = "I32", ".ffn_gate_tid2eid."
"""A table of integers that llama.cpp reads: the experts of each token."""
_LONGEST_NAME = 64
_USE_ANOTHER_FORMAT = "Use a GGUF file of the model in another format (Q4_K_M, Q8_0), or convert the model again."


def check_gguf(path: Path) -> None:
    """Raise BackendError if a file of a model is unreadable or no GGUF file, or the header contains a wrong number."""
    for part in split_files(path):
        try:
            with open_input(part) as stream:
                magic = stream.read(len(_MAGIC))
        except OSError as exc:
            raise BackendError(
                f"The model file {part} cannot be read: {exc.strerror}.",
                fix="Check that it is a regular file that you may read.",
            ) from exc
        if magic != _MAGIC:
            start = f"it begins with {magic!r}" if magic else "it is empty"
            raise BackendError(
                f"{part} is not a GGUF file: {start}.",
                fix="Download it again, or convert the model; a Git LFS pointer or a web page may have been saved "
                "in its place.",
            )
    if problem := header_problem(path):
        raise BackendError(
            f"{path} has {problem}.",
            fix="Do not trust this file; compare it with its source (for a bundle: lbx verify).",
        )


def format_title(path: Path) -> str:
    """Names of the quantised types of a GGUF model, the type of most weights first, or "" if not quantised.

    Raises:
        BackendError: as ``tensor_types``, or a header cannot be read.
    """
    types = tensor_types(path)
    if types is None:
        raise BackendError(f"The header of {path} cannot be read.", fix="The file may be truncated: download it again.")
    return " and ".join(name for name in types if name not in PLAIN.values())


def slow_format_warning(title: str, features: str) -> str:
    """Warning for a model in a format that is slow on this CPU, or "" for other formats.

    Args:
        features: the CPU code in use, as llama.cpp spells it.
    """
    name = title.partition(" and ")[0]
    if name not in SLOW or "AVX" not in features or (name in _AMX_TYPES and "AMX_INT8" in features):
        return ""
    other, times = SLOW[name]
    return (
        f"llama.cpp reads long prompts slowly in {name} on this CPU. "
        f"A {other} file of the same model reads them {times} times as fast."
    )


def tensor_types(path: Path) -> dict[str, int] | None:
    """Return {type: count of numbers} of a GGUF model, the largest count first, or None if a header is unreadable.

    Raises:
        BackendError: a tensor is stored as a type that llama.cpp does not compute with, or a file is missing.
    """
    counts: Counter[str] = Counter()
    for part in split_files(path):
        tensors = gguf_tensors(part)
        if tensors is None:
            return None
        for tensor in tensors:
            counts[_type_name(part, tensor)] += tensor.numbers
    return dict(counts.most_common())


def _type_name(path: Path, tensor: GgufTensor) -> str:
    number = tensor.type
    if name := PLAIN.get(number) or QUANTISED.get(number):
        return name
    other = NO_WEIGHTS.get(number, "")
    if other == _INDICES[0] and _INDICES[1] in tensor.name:
        return other
    fix = _USE_ANOTHER_FORMAT
    if other:
        why = f"{other}, a type that llama.cpp does not support for weights"
    elif name := REMOVED.get(number) or REARRANGED.get(number):
        why = f"{name}, which llama.cpp no longer supports"
        fix = (
            f"Use its {name[:-4]} file: llama.cpp rearranges it by itself."
            if number in REARRANGED
            else _USE_ANOTHER_FORMAT
        )
    else:
        why = f"type {number}, which this version of llama.cpp does not know"
        fix = f"A newer llama.cpp or a fork may have written it, or the file is damaged. {_USE_ANOTHER_FORMAT}"
    raise BackendError(f"{path} stores {tensor.name[:_LONGEST_NAME]} as {why}.", fix=fix)
