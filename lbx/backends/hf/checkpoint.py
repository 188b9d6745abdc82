"""Checkpoint of a Hugging Face folder: plain tensors, and quantised weights with formats.

Names, shapes and number formats are checked before anything is loaded, so that no tensor is misread or ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from lbx.backends.hf.library import first_line, is_out_of_memory
from lbx.backends.hf.quantisation import (
    FORMATS,
    CheckpointFormatError,
    Shape,
    StoredWeight,
    WeightFormat,
    method_name,
    read_settings,
    require_parts,
    rounds_activations,
    weight_settings,
)
from lbx.base.errors import BackendError
from lbx.base.inputs import SMALL, read_input, require_file

_PLAIN = ("F16", "BF16", "F32", "F64")
_PLAIN_AND_INTEGERS = (*_PLAIN, "BOOL", "I16", "U16", "I32", "U32", "I64", "U64")
_DEQUANTISATION_BYTES = 12
"""Number of bytes per number during dequantisation: codes, scales and products in float32."""

# A tensor's part in the weight that its name begins with: ``a.b.SUFFIX`` to ``a.b.weight``, and ``a.b_SUFFIX`` to
# ``a.b``, as weights of several experts in one tensor are called.
_PARTS = {
    ".weight_scale_inv": "scale", ".weight_scale": "scale", ".qscale_weight": "scale", ".scale": "scale",
    "_scale_inv": "scale", ".weight_scale_2": "scale_2", "_weight_scale_2": "scale_2", "_weight_scale": "scale",
    ".weight_global_scale": "global", ".weight_packed": "weight", ".weight_shape": "shape",
    ".weight_zero_point": "zero", ".weight_g_idx": "order", ".pre_quant_scale": "pre_quant",
    ".qweight": "weight", ".qzeros": "zero", ".scales": "scale", ".g_idx": "order",
    "_blocks": "blocks", "_scales": "scales",
    ".weight.absmax": "absmax", ".weight.quant_map": "map", ".weight.nested_absmax": "nested",
    ".weight.nested_quant_map": "nested_map", ".weight.quant_state.bitsandbytes__nf4": "state",
    ".weight.quant_state.bitsandbytes__fp4": "state", ".SCB": "scale", ".weight_format": "layout",
    "._weight_qdata": "weight", "._weight_scale": "scale", "._weight_zero_point": "zero",
}  # fmt: skip
_SUFFIX = re.compile(f"(.+?)({'|'.join(map(re.escape, sorted(_PARTS, key=len, reverse=True)))})$")
ACTIVATION_SCALES = re.compile(
    r"[._](input_scale|input_global_scale|input_zero_point|activation_scale|act_scale|output_scale|qscale_act|"
    r"[kvq]_scale|[kvq]_zero_point|kv_scale|input_amax|output_amax|kv_cache_scale)$"
)
_NUMBERS = re.compile(r"\d+")
_FIX = "Use the authors' bfloat16 release of the model, another quantised folder of it, or a GGUF file."


class StoredTensor(NamedTuple):
    file: str
    dtype: str
    shape: Shape

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class DenseWeight:
    """Quantised weight with its format and dense shape."""

    weight: StoredWeight
    format: WeightFormat
    shape: Shape

    def dequantise(self, read_tensor: Callable[[str], Any]) -> Any:
        """Compute the weight in float32. Raises CheckpointFormatError if the result has another shape than declared.

        Args:
            read_tensor: reads a tensor by its name.
        """
        dense = self.format.dense({part: read_tensor(name) for part, name in self.weight.tensors.items()}, self.weight)
        if tuple(dense.shape) != self.shape:
            raise CheckpointFormatError(f"its shape is {list(dense.shape)}, not {list(self.shape)}")
        return dense


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Checkpoint of a model folder.

    Attributes:
        plain: tensors that are not quantised; ``weights`` are.
        rounds_activations: whether the format also rounds activations.
    """

    folder: Path
    tensors: Mapping[str, StoredTensor]
    plain: Mapping[str, StoredTensor]
    weights: Sequence[DenseWeight] = ()
    rounds_activations: bool = False

    @property
    def title(self) -> str:
        """Names of the quantised formats, or "" if the folder is not quantised."""
        titles = (dense.format.title.format_map(_Settings(dense.weight.settings)) for dense in self.weights)
        return " and ".join(dict.fromkeys(titles))

    def describe(self, dtype: str) -> str:
        """Clause on how quantised weights are computed in a number format, or "" if the folder is not quantised."""
        rounds = (
            "; activations are not rounded, as servers' kernels for it round them" if self.rounds_activations else ""
        )
        return f"{self.title}, and computed from its numbers in {dtype}{rounds}" if self.weights else ""

    def dense_bytes(self, bytes_per_number: float) -> float:
        """Size in bytes of all weights after dequantisation."""
        dense_numbers = sum(math.prod(weight.shape) for weight in self.weights)
        return (sum(tensor.numbers for tensor in self.plain.values()) + dense_numbers) * bytes_per_number

    @property
    def unpacking_bytes(self) -> int:
        """Number of bytes of RAM that dequantising the largest weight takes, or 0 if the folder is not quantised."""
        return _DEQUANTISATION_BYTES * max((math.prod(weight.shape) for weight in self.weights), default=0)


class _Settings(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read the checkpoint of a folder: names, shapes and settings of the tensors.

    Raises:
        BackendError: a file cannot be read, its index is another model's, or a tensor is in a format that lbx does not
            read, or lacks its scales.
    """
    tensors, metadata = _read_tensors(folder)
    settings = read_settings(folder)
    groups, plain = _group_parts(tensors)
    weights = []
    for name, parts in groups.items():
        try:
            weight = _stored_weight(name, parts, tensors, weight_settings(name, settings, metadata))
            weights.append(_match_format(folder, _with_state(folder, weight, tensors)))
        except (CheckpointFormatError, re.error) as exc:
            raise BackendError(f"{folder} stores {name} in an unsupported way: {exc}.", fix=_FIX) from exc
    _refuse_missing_parts(folder, weights)
    _refuse_unknown_formats(folder, plain, settings)
    if settings and not weights and settings.get("format") != "dense":
        raise BackendError(
            f"{folder / 'config.json'} declares weights stored as {method_name(settings)}, but the folder has none.",
            fix="Use config.json and the weights from the same folder.",
        )
    model_tensors = {name: tensor for name, tensor in plain.items() if not ACTIVATION_SCALES.search(name)}
    rounds = len(model_tensors) < len(plain) or bool(settings and rounds_activations(settings))
    return Checkpoint(folder, tensors, model_tensors, weights, rounds)


# Files


def _read_tensors(folder: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """Read {name: tensor} of the model's files, and the files' metadata."""
    single_file, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single_file.exists() or not index.exists():
        files = [single_file] if single_file.exists() else sorted(folder.glob("*.safetensors"))[:1]
        return _read_header(files[0]) if files else ({}, {})
    try:
        listed = json.loads(read_input(index, SMALL))["weight_map"]
        files_by_tensor = {str(name): str(file) for name, file in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise BackendError(f"{index} cannot be read.", fix="Copy it again from its source.") from exc
    tensors: dict[str, StoredTensor] = {}
    metadata: dict[str, str] = {}
    for file in sorted(set(files_by_tensor.values())):
        header, header_metadata = _read_header(folder / file)
        tensors |= header
        metadata |= header_metadata
    for name, file in files_by_tensor.items():
        if name not in tensors or tensors[name].file != file:
            location = f"in {tensors[name].file}" if name in tensors else "in none of the files"
            raise BackendError(
                f"{index} lists {name} in {file}, but it is {location}.",
                fix="The files belong to several models, or their names are mixed up: copy all files from one folder.",
            )
    return tensors, metadata


def _read_header(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    try:
        with _open_safetensors(path, "np") as file:  # checks that offsets, shapes and number formats fit together
            names = list(file.keys())
            slices = [(name, file.get_slice(name)) for name in names]
            tensors = {
                name: StoredTensor(path.name, tensor_slice.get_dtype(), tuple(tensor_slice.get_shape()))
                for name, tensor_slice in slices
            }
            return tensors, dict(file.metadata() or {})
    except Exception as exc:  # safetensors has its own bare exception class
        raise BackendError(
            f"{path} cannot be read: {first_line(exc).rstrip('.')}.",
            fix="The file may be truncated: copy it again (for a bundle: lbx verify).",
        ) from exc


def _open_safetensors(path: Path, framework: str) -> Any:
    """Open a .safetensors file. Raises OSError and safetensors' own errors."""
    from safetensors import safe_open

    require_file(path)
    return safe_open(path, framework)


# Tensors


def _group_parts(tensors: Mapping[str, StoredTensor]) -> tuple[dict[str, dict[str, str]], dict[str, StoredTensor]]:
    """Group the tensors of weights that may be quantised as {weight: {role: tensor}}, and return all other tensors."""
    groups: dict[str, dict[str, str]] = {}
    for name in tensors:
        if (match := _SUFFIX.match(name)) is None:
            continue
        stem, suffix = match.groups()
        main = next((candidate for candidate in (f"{stem}.weight", stem) if candidate in tensors), None)
        part = _PARTS[suffix]
        if part in ("weight", "blocks"):
            groups.setdefault(stem if part == "blocks" else f"{stem}.weight", {})[part] = name
        elif main is not None and tensors[main].dtype not in _PLAIN:
            groups.setdefault(main, {"weight": main})[part] = name
        elif main is None:
            owner = stem if suffix.startswith("_") else f"{stem}.weight"
            groups.setdefault(owner, {})[part] = name
    groups = {name: parts for name, parts in groups.items() if parts.keys() & {"weight", "blocks"}}
    taken = {tensor for parts in groups.values() for tensor in parts.values()}
    return groups, {name: tensor for name, tensor in tensors.items() if name not in taken}


def _stored_weight(
    name: str, parts: Mapping[str, str], tensors: Mapping[str, StoredTensor], settings: Mapping[str, Any]
) -> StoredWeight:
    return StoredWeight(
        name,
        parts,
        {part: tensors[tensor].shape for part, tensor in parts.items()},
        {part: tensors[tensor].dtype for part, tensor in parts.items()},
        settings,
    )


def _with_state(folder: Path, weight: StoredWeight, tensors: Mapping[str, StoredTensor]) -> StoredWeight:
    """Add the settings of a weight that bitsandbytes stores in a separate tensor."""
    if "state" not in weight.tensors:
        return weight
    name = weight.tensors["state"]
    with _open_safetensors(folder / tensors[name].file, "np") as file:
        try:
            state = json.loads(bytes(file.get_tensor(name).tolist()))
        except (ValueError, RecursionError):
            state = None
    return replace(weight, settings={**weight.settings, "state": state, **(state if isinstance(state, dict) else {})})


def _match_format(folder: Path, weight: StoredWeight) -> DenseWeight:
    rows = [row for row in FORMATS if row.matches(weight)]
    if not rows:
        raise _unsupported_error(folder, weight)
    require_parts(weight)
    try:
        return DenseWeight(weight, rows[0], rows[0].shape(weight))
    except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError) as exc:
        raise CheckpointFormatError(f"its tensors do not match each other ({exc})") from exc


def _unsupported_error(folder: Path, weight: StoredWeight) -> BackendError:
    method = weight.settings["quant_method"]
    parts = ", ".join(f"{part} {weight.dtypes[part]}" for part in sorted(weight.dtypes))
    formats = [row for row in FORMATS if method in row.methods]
    if method == "none":
        return BackendError(
            f"{folder} stores {weight.name} in few bits ({parts}), but its config.json declares no quantisation.",
            fix="Copy config.json from the source of the weights.",
        )
    if not formats:
        return BackendError(f"{folder} is stored as {method}, a format that lbx does not support.", fix=_FIX)
    lacking = min((sorted(row.parts.keys() - weight.dtypes.keys()) for row in formats), key=len)
    problem = f"its {' and '.join(lacking)} is missing" if lacking else "lbx does not support this variant"
    return BackendError(f"{folder} stores {weight.name} as {method} with {parts}: {problem}.", fix=_FIX)


def _refuse_missing_parts(folder: Path, weights: Sequence[DenseWeight]) -> None:
    """Refuse weights that lack a tensor which the same weight of other layers or experts has."""
    first: dict[tuple[str, int], StoredWeight] = {}
    for dense in weights:
        weight = first.setdefault((_NUMBERS.sub("#", dense.weight.name), FORMATS.index(dense.format)), dense.weight)
        if lacking := sorted(weight.tensors.keys() ^ dense.weight.tensors.keys()):
            raise BackendError(
                f"{folder} stores {dense.weight.name} and {weight.name} in the same format, but only one of them has "
                f"its {' and '.join(lacking)}.",
                fix=_FIX,
            )


def _refuse_unknown_formats(
    folder: Path, plain: Mapping[str, StoredTensor], settings: Mapping[str, Any] | None
) -> None:
    """Refuse tensors of few-bit numbers that no known format decodes."""
    for name, tensor in plain.items():
        few = tensor.dtype not in _PLAIN_AND_INTEGERS
        packed = tensor.dtype in ("I32", "U32", "I16", "U16") and len(tensor.shape) > 1
        if (few or packed) and not ACTIVATION_SCALES.search(name):
            declaration = (
                f"its config.json declares {method_name(settings)}"
                if settings
                else "its config.json declares no quantisation"
            )
            raise BackendError(
                f"{folder} stores {name} as {tensor.dtype}, but lbx finds no scales to dequantise it; {declaration}.",
                fix=_FIX,
            )


class DenseTensors:
    """Tensors of a folder for ``from_pretrained``, each read or dequantised when transformers accesses it.

    A model is therefore never in memory twice, whether transformers moves tensors to a GPU or merges experts. Use as a
    context manager: files are open inside, and errors of weights are raised at the exit.
    """

    def __init__(self, checkpoint: Checkpoint, dtype: Any) -> None:
        self._checkpoint, self._dtype = checkpoint, dtype
        self._open = ExitStack()
        self._one_at_a_time = Lock()
        self._error: Exception | None = None

    def __enter__(self) -> dict[str, Any]:
        """Return {name: object that returns the tensor for ``[...]``}: weights in the dtype, others unchanged."""
        tensors = self._checkpoint.tensors
        self._files = {
            file: self._open.enter_context(_open_safetensors(self._checkpoint.folder / file, "pt"))
            for file in sorted({tensor.file for tensor in tensors.values()})
        }
        plain = {name: self._files[tensors[name].file].get_slice(name) for name in self._checkpoint.plain}
        return plain | {
            dense.weight.name: _LazyTensor(partial(self._dequantise, dense)) for dense in self._checkpoint.weights
        }

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Raise the BackendError of a weight with another shape than declared, or that does not fit into memory."""
        self._open.close()
        if self._error is not None:
            raise self._error  # transformers reports another error, or no error

    def _dequantise(self, dense: DenseWeight) -> Any:
        with self._one_at_a_time:  # transformers takes several at once
            if self._error is not None:
                raise self._error
            try:
                return dense.dequantise(self._get).to(self._dtype)
            except (CheckpointFormatError, ValueError, TypeError, KeyError, IndexError, RuntimeError) as exc:
                why = f"{self._checkpoint.folder} stores {dense.weight.name} in an unsupported way: {exc}."
                self._error = exc if is_out_of_memory(exc) else BackendError(why, fix=_FIX)
                raise self._error from exc

    def _get(self, name: str) -> Any:
        return self._files[self._checkpoint.tensors[name].file].get_tensor(name)


class _LazyTensor:
    """Tensor that is computed when transformers reads it by ``tensor[...]``."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __getitem__(self, index: Any) -> Any:
        return self._make()[index]
