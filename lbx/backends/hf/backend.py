"""Backend for models in Hugging Face's format, on transformers and torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends.cards import ModelCard, model_files, refuse_without_end, require_window, window_notes
from lbx.backends.hf.folder_checks import read_json, refuse_foreign_tokenizer, refuse_unsafe_files
from lbx.backends.hf.library import (
    IMPORTS,
    attention_name,
    declared_window,
    import_transformers,
    postpone_compiler,
    prepare_environment,
    refuse_without_tokenizer,
    set_verbosity,
    show_warnings,
)
from lbx.backends.hf.loading import default_cells, kv_bytes_per_token, load_model
from lbx.backends.hf.options import HfOptions
from lbx.backends.hf.tokenizer import HfTokenizer, own_chat_template, read_tokenizer
from lbx.backends.options import AUTO, thread_count
from lbx.backends.weights import weights_settings
from lbx.base.errors import BackendError
from lbx.base.inputs import SMALL, read_input
from lbx.base.phases import phases
from lbx.engine.model import MIN_SEQUENCES, BackendInfo, ScoredExtension, SuppressedTokens, text_chunk
from lbx.engine.reasoning import is_control_name
from lbx.engine.sampling_settings import (
    find_end_tokens,
    ignored_generation_keys,
    ignored_repetition_penalty,
    recommended_sampling,
)

if TYPE_CHECKING:
    from lbx.backends.hf.packing_probe import Packing
    from lbx.backends.hf.sequence_copies import HfCopies
    from lbx.backends.hf.sequence_memory import HfSequences
    from lbx.engine.model import Logits

_COPIES = 4
"""Number of sequences as long as the window that the memory must fit: document, growing copy, question, answer."""
_SAMPLING = ("do_sample", "temperature", "top_p", "top_k", "min_p")
"""Keys of generation_config.json with recommended sampling."""

_SUPPRESSED = ("suppress_tokens", "begin_suppress_tokens")


@dataclass(eq=False)
class HfBackend:
    """Backend of a causal language model with a sequence memory.

    Args:
        chunk: tokens of a prefill step; 0 prefills each prompt at once.
        eos_ids: tokens that end an answer.
        max_sequences, kv_cells: size of the memory.
    """

    _model: Any
    tokenizer: HfTokenizer
    info: BackendInfo
    eos_ids: frozenset[int]
    _chunk: int
    _max_sequences: int
    _kv_cells: int
    _packing: Packing

    def __post_init__(self) -> None:
        self._memory: HfSequences | HfCopies | None = None

    def sequences(self) -> HfSequences | HfCopies:
        """Sequence memory of the model, the same object at each call."""
        if self._model is None:
            raise BackendError(f"The model {self.info.model} is closed.", fix="Load it again.")
        if self._memory is None:
            self._memory = self._make_memory()
        return self._memory

    def text_logits(self, tokens: Sequence[int], chunk: int = 0) -> Iterator[Logits]:
        """Yield the logits after each token of a text (``TextBackend``)."""
        from lbx.backends.hf.sequence_memory import HfSequences

        memory = self.sequences()
        if not isinstance(memory, HfSequences) or not self._chunk:
            raise BackendError(
                f"{self.info.model} computes a text only as a whole, so the logits within it cannot be read.",
                fix="Compare answers instead: leave out --depth.",
            )
        chunk = chunk or text_chunk(int(self._model.get_input_embeddings().num_embeddings))
        memory.release()
        try:
            for start in range(0, len(tokens), chunk):
                (logits,) = memory.extend([ScoredExtension(0, tokens[start : start + chunk], wants_logits=True)])
                assert logits is not None
                yield logits.reshape(-1, logits.shape[-1])
        finally:
            memory.release()

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._model = None

    def _make_memory(self) -> HfSequences | HfCopies:
        from lbx.backends.hf import sequence_copies, sequence_memory, single

        # A longrope model computes a prompt in one pass, with one set of factors; any number of tokens may follow.
        takes_chunks = self._chunk > 0 or single.longrope_length(self._model) is not None
        packing = self._packing
        if packing.reason is None:
            return sequence_memory.HfSequences(
                self._model,
                max_sequences=packing.sequence_limit(
                    max(MIN_SEQUENCES, self._max_sequences), self.info.weights_bytes or 0
                ),
                max_cells=self._kv_cells,
                max_step=self._chunk or self.info.context_window,
                by_segments=packing.by_segments,
                uses_kernel=packing.uses_kernel,
                takes_chunks=takes_chunks,
                name=self.info.model,
            )
        return sequence_copies.HfCopies(
            self._model,
            max_cells=max(self._kv_cells, _COPIES * self.info.context_window),
            max_step=self._chunk or self.info.context_window,
            takes_chunks=takes_chunks,
            single_reason=packing.single_reason,
            name=self.info.model,
        )


def load(card: ModelCard, weights: Path, *, debug: bool = False) -> HfBackend:
    """Load a model from a folder: config.json, safetensors, tokenizer. No code from the folder is run.

    Raises:
        ImportError: torch or transformers is not installed.
        BackendError: a file is missing or damaged, or transformers does not know the model's architecture.
    """
    options = card.options_as(HfOptions)
    _check_folder(weights)
    prepare_environment()
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # a store that grows leaves no holes
    torch, transformers = import_transformers()
    set_verbosity(transformers, debug)
    torch.set_num_threads(thread_count(options.threads))
    with nullcontext() if options.quantization else postpone_compiler():
        with phases.measure(IMPORTS):
            from lbx.backends.hf.packing_probe import probe_model
        with show_warnings(debug):
            raw_tokenizer = read_tokenizer(transformers, weights)
        model, dtype, device, checkpoint = load_model(torch, transformers, card.name, weights, options, debug=debug)
    own_template = own_chat_template(raw_tokenizer, weights)
    chat_template = card.chat.choose_template(own_template.source)
    tokenizer = HfTokenizer(raw_tokenizer, chat_template, card.chat.reasoning, own_template.names)
    rows = int(model.get_input_embeddings().num_embeddings)
    refuse_foreign_tokenizer(raw_tokenizer, rows, tokenizer.chat_template, weights)
    eos_ids, gap = _eos_ids(model, raw_tokenizer, weights)
    refuse_without_end(card, eos_ids)
    probe = probe_model(model, card.name)
    chunk = options.prefill_chunk if probe.takes_chunks else 0
    # Scaling by the card, which is part of the configuration by now, is not the files'.
    declared = declared_window(model.config.get_text_config(decoder=True), with_scaling=not options.rope_scaling)
    window = require_window(card, declared)
    generation_config = _generation_config(weights)
    penalty, note = ignored_repetition_penalty(generation_config.get("repetition_penalty"))
    ignored_keys, ignored_note = ignored_generation_keys(model.generation_config)
    suppressed_tokens = _suppressed_tokens(model)
    kv_bytes = kv_bytes_per_token(model.config, model.dtype.itemsize)
    kv_cells = (
        max(window, options.kv_cells)
        if options.kv_cells
        else default_cells(torch, model, window=window, max_sequences=options.max_sequences, kv_bytes=kv_bytes)
    )
    info = BackendInfo(
        name="hf",
        version=f"transformers {transformers.__version__}",
        model=card.name,
        context_window=window,
        settings={
            **weights_settings(card, weights),
            "chat": card.chat.settings(own_template.source),
            "device": device.type,
            "dtype": dtype.name,
            "attention": attention_name(model),
            "prefill_chunk": chunk,
            "extend_context": options.extend_context,
            "eos_ids": sorted(eos_ids),
            "torch": torch.__version__.partition("+")[0],
        }
        | suppressed_tokens.settings()
        | ({"tokenizer_gaps": ["eos_token_id"]} if gap else {})
        | ({"quantization": options.quantization} if options.quantization else {})
        | ({"stored_as": checkpoint.title} if checkpoint.weights else {})
        | ({"rope_scaling": options.rope_scaling, "rope_factor": options.rope_factor} if options.rope_scaling else {}),
        hardware=_hardware(torch, device, model)
        | ({"layers": "lbx" if probe.packing.uses_kernel else "transformers"} if device.type == "cpu" else {})
        | {"dtype_reason": dtype.reason, "architecture": str(model.config.model_type)}
        | ({"stored_as": stored_as} if (stored_as := checkpoint.describe(dtype.name)) else {})
        | penalty
        | ignored_keys,
        declared_context=declared.tokens if declared else 0,
        default_sampling=recommended_sampling({name: generation_config.get(name) for name in _SAMPLING}),
        weights_bytes=int(model.get_memory_footprint()),
        kv_bytes_per_token=kv_bytes,
        kv_cells=kv_cells,
        on_gpu=device.type == "cuda",
        suppressed_tokens=suppressed_tokens,
        notes=((f"{card.name} is computed in {dtype.name}: {dtype.reason}.",) if options.dtype == AUTO else ())
        + ((f"{card.name} is stored as {stored_as}.",) if stored_as else ())
        + ((own_template.note,) if own_template.note and chat_template == own_template.source else ())
        + gap
        + (_kernel_notes() if device.type == "cpu" else ())
        + window_notes(card, declared)
        + note
        + ignored_note,
    )
    return HfBackend(model, tokenizer, info, eos_ids, chunk, options.max_sequences, kv_cells, probe.packing)


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise BackendError(
            f"{folder} is not a Hugging Face model: it has no config.json.",
            fix="For a .gguf file, set backend = 'llamacpp' in the card. Otherwise pass the folder that contains "
            "config.json and the .safetensors files.",
        )
    if not any(folder.glob("*.safetensors")):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth"))
        raise BackendError(
            f"{folder} has no .safetensors weights" + (", only pickled ones, which can run code." if pickled else "."),
            fix="Use a revision of the model with safetensors, or convert the model.",
        )
    model_files(folder)  # all of them regular files
    refuse_unsafe_files(folder)
    _check_token_ids(folder)
    refuse_without_tokenizer(folder)


def _eos_ids(model: Any, tokenizer: Any, folder: Path) -> tuple[frozenset[int], tuple[str, ...]]:
    """Find the control tokens that end a sequence or turn: from ``generate``, from the tokenizer, and by name.

    Returns:
        The tokens, and a note if ``generate`` would end at an ordinary token, or no file declares an end.
    """
    listed = getattr(model.generation_config, "eos_token_id", None)
    ids = set(listed) if isinstance(listed, (list, tuple)) else {listed}
    added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items()}
    ids |= {tokenizer.eos_token_id, *find_end_tokens({text: number for number, text in added.items()})}
    texts = {int(i): tokenizer.convert_ids_to_tokens(int(i)) for i in ids if i is not None}
    # Ids beyond the vocabulary are rows without a token, which answers do not show.
    ordinary = {i for i, text in texts.items() if text is not None and i not in added and not is_control_name(text)}
    ends = frozenset(texts.keys() - ordinary)
    config, generation_config = read_json(folder / "config.json"), _generation_config(folder)
    tables = {"generation_config.json": generation_config, "config.json": config}
    sources = [name for name, table in tables.items() if isinstance(table, dict) and _has_eos(table)]
    if not ordinary and (sources or tokenizer.eos_token_id is not None):
        return ends, ()
    end_texts = ", ".join(str(texts[i]) for i in sorted(ends)) or "none"
    left_out = " or ".join(f"{i} ({texts[i]!r})" for i in sorted(ordinary))
    problem = (
        f"{' and '.join(sources) or 'The default of transformers'} ends answers at the ordinary token {left_out}"
        if ordinary
        else "No file of the model has an eos_token_id"
    )
    return ends, (f"{problem}. lbx ends them only at control tokens of the vocabulary: {end_texts}.",)


def _has_eos(config: Mapping[str, Any]) -> bool:
    text = config.get("text_config")
    return config.get("eos_token_id") is not None or (isinstance(text, dict) and _has_eos(text))


def _check_token_ids(folder: Path) -> None:
    """Refuse a generation_config.json or config.json if a list of token ids contains other values."""
    tables = {"generation_config.json": _generation_config(folder), "config.json": read_json(folder / "config.json")}
    for name, table in tables.items():
        for key in (*_SUPPRESSED, "eos_token_id") if isinstance(table, dict) else ():
            value = table.get(key)
            ids = value if isinstance(value, list) or key in _SUPPRESSED else [value]
            if value is not None and not (isinstance(ids, list) and all(type(i) is int for i in ids)):
                raise BackendError(
                    f"{folder / name} has {key} = {f'{value}'[:40]}: token ids are whole numbers.",
                    fix="Copy the file again from the source of the model.",
                )


def _suppressed_tokens(model: Any) -> SuppressedTokens:
    size = model.config.get_text_config(decoder=True).vocab_size
    lists = (getattr(model.generation_config, key, None) or () for key in _SUPPRESSED)
    return SuppressedTokens(*(frozenset(i for i in ids if 0 <= i < size) for ids in lists))  # generate ignores others


def _generation_config(folder: Path) -> dict[str, Any]:
    """Read generation_config.json, or return {} if it is missing or unreadable."""
    try:
        table = json.loads(read_input(folder / "generation_config.json", SMALL))
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _kernel_notes() -> tuple[str, ...]:
    from lbx.backends.hf.kernel import kernel_name, unused_kernels

    return tuple(
        f"lbx's compiled code in {name} is not used ({reason}). In use: {kernel_name()}. Install lbx again to compile "
        "it anew."
        for name, reason in unused_kernels().items()
    )


def _hardware(torch: Any, device: Any, model: Any) -> dict[str, Any]:
    hardware = {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": str(device)}
    if device.type == "cuda":
        hardware |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
        places = {str(parameter.device) for parameter in model.parameters()}
        return hardware | ({"devices": sorted(places)} if len(places) > 1 else {})
    from lbx.backends.hf.kernel import kernel_name

    return hardware | {"cpu": torch.backends.cpu.get_cpu_capability(), "attention_kernel": kernel_name()}
