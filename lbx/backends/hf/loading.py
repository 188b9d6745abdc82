"""Loading of causal language models of transformers, from files to the devices that compute.

transformers initialises missing weights and ignores unknown ones, which it reports only in its log: ``check_complete``
refuses both.

A model that needs more memory than is available is refused before it is loaded.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from lbx.backends.hf.checkpoint import ACTIVATION_SCALES, Checkpoint, DenseTensors, read_checkpoint
from lbx.backends.hf.library import Dtype, choose_device, choose_dtype, first_line, is_out_of_memory, show_warnings
from lbx.backends.hf.options import HfOptions
from lbx.backends.options import AUTO
from lbx.base.errors import BackendError, DoesNotFitError
from lbx.base.phases import phases
from lbx.base.resources import available_memory
from lbx.base.visible import as_command

_IRREGULAR_CACHE_SETTINGS = ("kv_lora_rank", "num_kv_shared_layers", "kv_shared_layer_ids")
"""Settings of models whose cache size per token does not follow from heads and head size."""
_TRIM, _MMAP = -1, -3
"""glibc's numbers of two thresholds: free bytes kept at the heap's end, and bytes of a block allocated outside it."""
_LARGEST = 32 << 20
"""glibc raises the second to this by itself when blocks of that size are freed, and the first to twice this."""


def refuse_too_large(name: str, needed_bytes: float, free: int | None, memory_name: str, fix: str = "") -> None:
    """Raise DoesNotFitError before weights are loaded that cannot fit: Linux grants memory that it does not have.

    Args:
        needed_bytes: peak use of this memory while loading.
        free: bytes, or None if unknown: then no model is refused.
        memory_name: name in the message, e.g. "RAM" or "cuda:0".
    """
    if free is not None and needed_bytes > free:
        raise DoesNotFitError(
            f"The weights of {name} take {needed_bytes / 2**30:.1f} GiB; {free / 2**30:.1f} GiB of "
            f"{memory_name} are free.",
            fix=fix or "Use a smaller dtype, a smaller model, or a machine with more memory.",
        )


@contextmanager
def release_at_once() -> Iterator[None]:
    """Return freed blocks to the system at once while weights are loaded.

    glibc would keep them in its heap: the sources of converted or merged weights, as much as the model again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        yield
        return
    mallopt(_MMAP, 256 << 10)
    try:
        yield
    finally:
        mallopt(_MMAP, _LARGEST)
        mallopt(_TRIM, 2 * _LARGEST)


def free_bytes(torch: Any, device: Any) -> int | None:
    """Free bytes of memory on a device, or None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available_memory()


def kv_bytes_per_token(config: Any, bytes_per_number: int) -> int | None:
    """Bytes that a token takes in the cache, over all layers, or None if some layers do not keep all tokens.

    Layers with sliding attention keep all tokens (see ``lbx.backends.hf.cell_store``).
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    text = config.get_text_config(decoder=True)
    if any(getattr(text, setting, None) for setting in _IRREGULAR_CACHE_SETTINGS):
        return None
    layers = DynamicCache(config=config).layers
    if not layers or any(type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
        return None
    mixed = getattr(text, "is_heterogeneous", False)  # heads of one size here and of another there
    numbers = [_numbers_per_token(text.per_layer_config[at] if mixed else text) for at in range(len(layers))]
    return None if None in numbers else sum(filter(None, numbers)) * bytes_per_number


def _numbers_per_token(layer: Any) -> int | None:
    """Count of key and value numbers per token in one layer, or None if the configuration does not define it."""
    heads = getattr(layer, "num_attention_heads", None)
    hidden = getattr(layer, "hidden_size", None)
    size = getattr(layer, "head_dim", None) or (hidden // heads if isinstance(heads, int) and hidden else None)
    kv_heads = getattr(layer, "num_key_value_heads", None) or heads
    return 2 * kv_heads * size if isinstance(kv_heads, int) and isinstance(size, int) else None


_BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "4bit": 0.5}
_USABLE_SHARE = 0.8
"""Share of a GPU's free memory for sequences; the rest is for the results of a pass."""


_MOST_CELLS = 1 << 20
"""Limit of cells: with more of them, the table of their owners would itself be large."""


class LoadedWeights(NamedTuple):
    """Loaded weights: model, number format, device of the input tokens, and checkpoint."""

    model: Any
    dtype: Dtype
    device: Any
    checkpoint: Checkpoint


def load_model(
    torch: Any, transformers: Any, name: str, folder: Path, options: HfOptions, *, debug: bool
) -> LoadedWeights:
    """Load a model's weights on the device and in the number format of the card.

    Raises:
        BackendError: a file is damaged or missing, the model does not fit, or a library is not installed.
    """
    device = choose_device(torch, options.device)
    _refuse_without_libraries(options)
    dtype = choose_dtype(torch, options.dtype, device, folder)
    checkpoint = read_checkpoint(folder)
    _refuse_double_quantisation(checkpoint, options, name)
    _refuse_too_large(torch, name, checkpoint, options, dtype=dtype.name, device=device)
    torch.set_float32_matmul_precision("highest")  # float32 means float32 on a GPU, too, not TF32
    with show_warnings(debug), release_at_once():
        model = _load_files(torch, transformers, name, checkpoint, options, dtype=dtype.name, device=device)
    _refuse_offloading(torch, model, name)
    if not options.device_map and not options.quantization:
        try:
            model = model.to(device)
        except RuntimeError as exc:
            raise _too_large_error(name, str(device), exc) from exc
    from lbx.backends.hf.packed_linear import pack_linear_layers

    with phases.measure("pack weights"):
        pack_linear_layers(model)
    return LoadedWeights(model.eval(), dtype, device, checkpoint)


def default_cells(torch: Any, model: Any, *, window: int, max_sequences: int, kv_bytes: int | None) -> int:
    """Default number of the memory's cells, for cards that do not set it.

    On a CPU, the context window. On GPUs, the tokens that fit into free memory, but at least the context window.
    """
    layers = _layer_devices(model)
    if not kv_bytes or not layers or any(device.type != "cuda" for device in layers):
        return window
    share = {device: layers.count(device) / len(layers) for device in layers}
    fitting_cells = min(
        int(_USABLE_SHARE * (free_bytes(torch, device) or 0) / (kv_bytes * part)) for device, part in share.items()
    )
    return max(window, min(fitting_cells, max_sequences * window, _MOST_CELLS))


def _layer_devices(model: Any) -> list[Any]:
    devices: dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        layer = re.match(r"(.*?\.\d+)\.", name)
        if layer:
            devices.setdefault(layer[1], parameter.device)
    return list(devices.values())


def _free_weight_bytes(torch: Any, device: Any, options: HfOptions) -> int | None:
    if device.type == "cuda" and options.device_map:
        return sum(free_bytes(torch, torch.device("cuda", i)) or 0 for i in range(torch.cuda.device_count()))
    return free_bytes(torch, device)


def _refuse_too_large(
    torch: Any, name: str, checkpoint: Checkpoint, options: HfOptions, *, dtype: str, device: Any
) -> None:
    """Refuse weights that exceed the memory of the devices, or the RAM for dequantising or copying."""
    dense, unpacking = checkpoint.dense_bytes(_BYTES[options.quantization or dtype]), checkpoint.unpacking_bytes
    if device.type != "cuda":
        refuse_too_large(name, dense + unpacking, free_bytes(torch, device), str(device))
        return
    refuse_too_large(name, dense, _free_weight_bytes(torch, device, options), str(device))
    skips_ram = options.device_map or options.quantization or _can_skip_ram(device)
    refuse_too_large(
        name,
        unpacking if skips_ram else dense + unpacking,
        available_memory(),
        "RAM",
        fix="" if skips_ram else "Install accelerate: the weights are then loaded to the GPU without a copy in RAM.",
    )


def _can_skip_ram(device: Any) -> bool:
    """Whether weights are loaded tensor by tensor to a GPU, without a complete copy in RAM."""
    return device.type == "cuda" and find_spec("accelerate") is not None


def _refuse_without_libraries(options: HfOptions) -> None:
    needed = {"accelerate": options.device_map or options.quantization, "bitsandbytes": options.quantization}
    for library, option in needed.items():
        if option and find_spec(library) is None:
            raise BackendError(
                f"{'quantization' if options.quantization else 'device_map'} = {option!r} needs the package "
                f"{library}, which is not installed.",
                fix=f"Install {library}, or remove the option from the model card.",
                command=as_command("pip", "install", library),
            )


def _load_files(
    torch: Any, transformers: Any, name: str, checkpoint: Checkpoint, options: HfOptions, *, dtype: str, device: Any
) -> Any:
    folder = checkpoint.folder
    number = getattr(torch, dtype)
    more: dict[str, Any] = {}
    if options.quantization:
        more["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=number
        )
    if options.device_map:
        more["device_map"] = options.device_map
    elif options.quantization or _can_skip_ram(device):
        more["device_map"] = {"": str(device)}
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        # None lets each part's class choose an attention it supports; otherwise config.json's choice would apply.
        config._attn_implementation = None if options.attention == AUTO else options.attention
        if options.rope_scaling:
            stretch_positions(config, options, name)
        kind = _model_class(transformers, config)
        if checkpoint.weights:  # dense by now: transformers must not see the format any more
            kind, config = _concrete_class(kind, config)
            for part in (config, config.get_text_config(decoder=True)):
                part.__dict__.pop("quantization_config", None)
        with DenseTensors(checkpoint, number) if checkpoint.weights else nullcontext() as tensors:
            model, report = kind.from_pretrained(
                None if checkpoint.weights else folder,
                config=config,
                state_dict=tensors,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=number,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # check_complete names them; transformers' own exception does not
                **more,
            )
    except BackendError:
        raise
    except Exception as exc:  # safetensors has its own bare exception class; everything here means "not loadable"
        if is_out_of_memory(exc):
            raise _too_large_error(name, str(device), exc) from exc
        if isinstance(exc, ValueError) and "attention implementation" in str(exc):
            raise BackendError(
                f"transformers has no {options.attention} attention for this model: {first_line(exc)}",
                fix="Remove attention from the model card: lbx then uses one that the model supports.",
            ) from exc
        if isinstance(exc, ImportError):
            raise BackendError(
                f"The model in {folder} cannot be loaded: {first_line(exc)}",
                fix="Install the library that the message names: transformers needs it for this model.",
            ) from exc
        raise BackendError(
            f"The model in {folder} cannot be loaded: {first_line(exc)}",
            fix="A file may be cut off or missing (for a bundle: lbx verify); a model that needs its own code is not "
            "supported.",
        ) from exc
    check_complete(model, report, folder)
    if checkpoint.weights and (folder / "generation_config.json").is_file():  # which is read only along with weights
        model.generation_config = transformers.GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model


def _model_class(transformers: Any, config: Any) -> Any:
    """Auto class that generates text, which for some vision models is the class for text and images."""
    writes = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    if not writes and type(config) in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        return transformers.AutoModelForImageTextToText
    return transformers.AutoModelForCausalLM


def _concrete_class(kind: Any, config: Any) -> tuple[Any, Any]:
    """Return the class that an Auto class would choose, and the configuration, nested for text-only classes.

    Auto classes need a folder, and dequantised weights have none.
    """
    config_class = kind._model_mapping[type(config)]
    concrete = config_class[0] if isinstance(config_class, tuple | list) else config_class
    of_text = config.sub_configs.get("text_config")
    return concrete, config.get_text_config() if of_text and concrete.config_class == of_text else config


def _refuse_double_quantisation(checkpoint: Checkpoint, options: HfOptions, name: str) -> None:
    if checkpoint.weights and options.quantization:
        raise BackendError(
            f"{name} is stored as {checkpoint.title}: quantization = {options.quantization!r} would round it again.",
            fix="Remove the option from the model card.",
        )


def _too_large_error(name: str, device: str, exc: BaseException) -> BackendError:
    return BackendError(
        f"{name} does not fit on {device}: {first_line(exc)}",
        fix="Use a smaller dtype, quantization = '4bit', device_map = 'auto' over several GPUs, or another device.",
    )


def _refuse_offloading(torch: Any, model: Any, name: str) -> None:
    """Refuse device maps that leave layers in RAM or on disk, because each pass would wait for copies."""
    device_map = getattr(model, "hf_device_map", {})
    outside = sorted(part for part, device in device_map.items() if str(device) in ("cpu", "disk"))
    if "disk" in map(str, device_map.values()) or (outside and torch.cuda.is_available()):
        raise BackendError(
            f"{name} does not fit on {torch.cuda.device_count()} GPUs: {len(outside)} of its parts are not on a GPU, "
            f"e.g. {outside[0]}.",
            fix="Use a smaller dtype, quantization = '4bit', or more GPUs.",
        )


def stretch_positions(config: Any, options: HfOptions, name: str) -> None:
    """Write the card's ``rope_scaling`` into a model's configuration, before the model is created.

    Fixed NTK is no kind of transformers' own: it is the default one with the base times factor ** (d / (d - 2)), d the
    rotated dimensions of a head.

    Raises:
        BackendError: the model has no rotary embedding, several, or one that its config.json scales already.
    """
    text = config.get_text_config(decoder=True)
    rope = getattr(text, "rope_parameters", None)
    if not isinstance(rope, dict) or "rope_theta" not in rope:
        raise BackendError(
            f"{name} has no rotary embedding that rope_scaling can stretch, or several (one for each kind of layer).",
            fix="Remove rope_scaling and rope_factor from its card.",
        )
    kind, factor = rope.get("rope_type", "default"), options.rope_factor
    if kind != "default":
        raise BackendError(
            f"The config.json of {name} already scales its rotary embedding ({kind}).",
            fix="Remove rope_scaling and rope_factor from its card; context_window may be as large as in config.json.",
        )
    if options.rope_scaling == "ntk":
        size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        rotated = int(size * rope.get("partial_rotary_factor", 1.0))
        scaled = {"rope_theta": rope["rope_theta"] * factor ** (rotated / (rotated - 2))}
    else:
        scaled = {"rope_type": options.rope_scaling, "factor": factor}
    if options.rope_scaling == "yarn":
        scaled["original_max_position_embeddings"] = text.max_position_embeddings
    text.rope_parameters = rope | scaled


_FIX_OTHER_MODEL = "config.json or the .safetensors files belong to another model: use the files of one model."
_LAYER = re.compile(r"(?:(?:model|language_model|transformer|backbone)\.)*(?:layers|h)\.(\d+)\.")
# Computed anew (the rotary embedding's frequencies, positions, masks), or of parts that read no text and predict ahead.
_NOT_NEEDED = re.compile(
    r"(?:^|\.)(?:inv_freq|position_ids|masked_bias|attn\.bias|attention\.bias)$"
    r"|(?:^|[._])(?:mtp|nextn|vision|visual|vit|audio|speech|image|video|multi_modal|multimodal|mm)(?:[._]|$)"
)
_QUANTISATION_PARTS = re.compile(r"scale|zero|qweight|packed|g_idx|absmax|SCB|blocks|quant")


def check_complete(model: Any, report: Mapping[str, Any], folder: Path) -> None:
    """Check that a model fully matches its files.

    Args:
        report: transformers' loading info: missing, mismatched and unexpected keys.

    Raises:
        BackendError: tensors are missing, unexpected or of another shape; the message names them.
    """
    if other := sorted(report.get("mismatched_keys", ()), key=str):
        name, shape, expected_shape = other[0]
        raise BackendError(
            f"The weights in {folder} do not match the model in its config.json: {len(other)} tensors have another "
            f"shape, e.g. {name} {tuple(shape)}, not {tuple(expected_shape)}.",
            fix=_FIX_OTHER_MODEL,
        )
    if lacking := sorted(map(str, report.get("missing_keys", ()))):
        raise BackendError(
            f"The weights in {folder} are incomplete: {len(lacking)} tensors are missing, e.g. {lacking[0]}.",
            fix="A file of the model may be missing, or config.json belongs to another model.",
        )
    _refuse_extra_tensors(model.config, sorted(map(str, report.get("unexpected_keys", ()))), folder)


def _refuse_extra_tensors(config: Any, extra_keys: list[str], folder: Path) -> None:
    text = config.get_text_config(decoder=True)
    layers = getattr(text, "num_hidden_layers", None)
    layers = layers if isinstance(layers, int) else None
    ahead = getattr(text, "num_nextn_predict_layers", None) or 0
    unused = []
    for key in extra_keys:
        layer = _LAYER.match(key)
        number = int(layer[1]) if layer and layers is not None else None
        if number is not None and layers is not None and number >= layers:
            if number < layers + ahead:  # layers after the last one predict several tokens ahead
                continue
            raise BackendError(
                f"The weights in {folder} do not match the model in its config.json: it has {layers} layers, "
                f"but they have {number + 1}.",
                fix=_FIX_OTHER_MODEL,
            )
        tied = key.endswith("lm_head.weight") and getattr(text, "tie_word_embeddings", False)
        if not (tied or _NOT_NEEDED.search(key) or ACTIVATION_SCALES.search(key)):
            unused.append(key)
    if not unused:
        return
    count = f"{len(unused)} tensors of its files, e.g. {unused[0]}" if len(unused) > 1 else unused[0]
    if scales := [key for key in unused if _QUANTISATION_PARTS.search(key)]:
        raise BackendError(
            f"The model in {folder} seems to be quantised, but a tensor for dequantising its weights would be ignored: "
            f"{scales[0]}.",
            fix="Use the authors' bfloat16 release of the model, or another quantised folder of it.",
        )
    raise BackendError(
        f"The model in {folder} would be loaded without some of its tensors: its config.json describes a model without "
        f"{count}.",
        fix=_FIX_OTHER_MODEL,
    )
