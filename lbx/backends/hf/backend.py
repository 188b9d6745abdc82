"""Models in Hugging Face's format on transformers and torch: one sequence, prefilled in fixed chunks."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbx.backends.base import BackendInfo
from lbx.backends.cards import ModelCard
from lbx.backends.endings import named_ends
from lbx.backends.hf.files import refuse_unsound
from lbx.backends.hf.footprint import kv_bytes_per_token
from lbx.backends.hf.library import (
    attention_of,
    first_line,
    give_back_memory,
    go_offline,
    length_dependent,
    quiet,
    read_tokenizer,
    refuse_without_tokenizer,
    warnings_if,
)
from lbx.backends.hf.loading import default_cells, load_model
from lbx.backends.hf.tokenizer import HfTokenizer, own_chat_template
from lbx.backends.hf.vocabulary import refuse_foreign_tokenizer
from lbx.backends.loop import Prefilled, answer, reusable
from lbx.backends.options import AUTO, HfOptions, thread_count
from lbx.backends.sampling import left_out, recommended
from lbx.backends.weights import fingerprint
from lbx.errors import BackendError
from lbx.records import Completion, Request

if TYPE_CHECKING:
    from lbx.backends.hf.check import Packing
    from lbx.backends.hf.copies import HfCopies
    from lbx.backends.hf.sequence_memory import HfSequences
    from lbx.backends.hf.single import Forward
    from lbx.backends.sampling import Logits
    from lbx.backends.sequence_memory import SequenceMemory

_COPIES = 4
"""A document, its copy that grows, a question and its answer: so many sequences as long as the window are held."""
_SAMPLING = ("do_sample", "temperature", "top_p", "top_k", "min_p")
"""What generation_config.json recommends by."""


@dataclass(eq=False)
class HfBackend:
    """A causal language model with a KV cache for one sequence, or a memory of many (``sequences``), not both at once.

    Args:
        chunk: tokens of a prefill step; 0 prefills each prompt at once.
        eos_ids: tokens that end an answer.
        max_sequences, kv_cells: size of the memory of many sequences.
    """

    _model: Any
    tokenizer: HfTokenizer
    info: BackendInfo
    eos_ids: frozenset[int]
    _chunk: int
    _max_sequences: int
    _kv_cells: int

    def __post_init__(self) -> None:
        from lbx.backends.hf.single import Forward

        self._cache: Any = None
        self._kept: list[int] = []
        self._sequences: HfSequences | HfCopies | None = None
        self._packing: Packing | None = None
        self._advance: Forward | None = Forward(self._model)
        self._held = 0

    def generate(self, request: Request) -> Completion:
        window = self.info.context_window
        try:
            return answer(self, request, tokenizer=self.tokenizer, eos_ids=self.eos_ids, window=window)
        except (RuntimeError, TypeError, ValueError, IndexError, MemoryError) as exc:
            self._cache, self._kept = None, []
            give_back_memory(exc)
            raise BackendError(
                f"The model {self.info.model} failed on {request.key} ({len(request.token_ids)} tokens): "
                f"{first_line(exc)}",
                fix="If memory ran out, lower context_window, prefill_chunk or kv_cells in the model card.",
            ) from exc

    def prefill(self, ids: Sequence[int]) -> Prefilled:
        """Compute the prompt in chunks whose bounds are multiples of the chunk, reusing whole chunks."""
        ids = list(ids)
        chunk = self._chunk or len(ids)
        start = self._cut_back(reusable(self._kept, ids, chunk) if self._chunk else 0)
        logits = None
        for at in range(start, len(ids), chunk):
            logits = self._forward(ids[at : at + chunk])
        self._kept = ids
        return Prefilled(_as_numpy(logits), start)

    def step(self, token: int) -> Logits:
        return _as_numpy(self._forward([token]))

    def sequences(self) -> SequenceMemory | None:
        """The memory of many sequences, always the same one; None where the model can compute only one at a time.

        What it can is tried out on a few tokens at the first call; ``single_reason`` says why it cannot.
        """
        from lbx.backends.hf.check import layer_count
        from lbx.backends.hf.copies import HfCopies
        from lbx.backends.hf.sequence_memory import HfSequences

        packing = self._tried()
        if self._sequences is not None or packing.single_reason is not None:
            return self._sequences
        if packing.reason is None:
            self._sequences = HfSequences(
                self._model,
                layer_count(self._model),
                max_sequences=self._max_sequences,
                max_cells=self._kv_cells,
                max_step=self._chunk,
                parts=packing.parts,
                name=self.info.model,
                claim=self._yield_cache,
            )
        else:
            self._sequences = HfCopies(
                self._model,
                max_cells=max(self._kv_cells, _COPIES * self.info.context_window),
                max_step=self._chunk or self.info.context_window,
                pieces=self._chunk > 0,
                name=self.info.model,
                claim=self._yield_cache,
            )
        return self._sequences

    @property
    def single_reason(self) -> str | None:
        """Why ``sequences`` has given None, a clause; None before it was asked, or where it gave a memory."""
        return self._packing.single_reason if self._packing else None

    def close(self) -> None:
        if self._sequences is not None:
            self._sequences.close()
        self._model = self._cache = self._advance = None
        self._kept = []

    def _tried(self) -> Packing:
        """What the model can do; it is tried out once, before the first answer of either kind."""
        from lbx.backends.hf.check import packing_of

        self._refuse_closed()
        if self._packing is None:
            self._packing = packing_of(self._model, pieces=self._chunk > 0)
        return self._packing

    def _yield_cache(self) -> None:
        """Give the single sequence's memory back: a memory of many is about to take some."""
        self._refuse_closed()
        self._cache, self._kept = None, []

    def _refuse_closed(self) -> None:
        if self._model is None:
            raise BackendError(f"The model {self.info.model} is closed.")

    def _cut_back(self, length: int) -> int:
        """Forget all but the first tokens of the cache; returns how many were kept.

        Until the prefill is through, nothing counts as kept: it may fail or be interrupted halfway.
        """
        from lbx.backends.hf.cache import can_be_cut_back, make_cache
        from lbx.backends.hf.single import forget_lengths

        self._tried()
        if self._sequences is not None:
            self._sequences.release()
        if length and can_be_cut_back(self._cache):
            self._cache.crop(length - self._cache.get_seq_length())
        else:
            self._cache = make_cache(self._model.config)
            if length_dependent(self._model.config):
                forget_lengths(self._model)
            length = 0
        self._kept, self._held = [], length
        return length

    def _forward(self, tokens: Sequence[int]) -> Any:
        """Append tokens to the cache; logits of shape (1, 1 or len(tokens), vocabulary)."""
        from lbx.backends.hf.attention import InParts

        # The same arithmetic as with many sequences, so that few answers differ between the two.
        parts = InParts(self._model) if self._tried().parts else nullcontext()
        assert self._advance is not None
        with parts:
            logits = self._advance(tokens, self._cache, self._held)
        self._held += len(tokens)
        return logits


def load(card: ModelCard, weights: Path, *, debug: bool = False) -> HfBackend:
    """Load a model folder: config.json, safetensors, tokenizer. No code from the folder is run.

    Raises:
        ImportError: torch or transformers is not installed.
        BackendError: something is missing or damaged, or the model is of a kind that transformers does not know.
    """
    options = card.options_as(HfOptions)
    _check_folder(weights)
    go_offline()
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")  # a store that grows leaves no holes
    import torch
    import transformers

    from lbx.backends.hf.single import goes_in_pieces

    quiet(transformers, debug)
    torch.set_num_threads(thread_count(options.threads))
    with warnings_if(debug):
        raw_tokenizer = read_tokenizer(transformers, weights)
    model, dtype, device = load_model(torch, transformers, card.name, weights, options, debug=debug)
    own = own_chat_template(raw_tokenizer)
    tokenizer = HfTokenizer(raw_tokenizer, card.chat.choose(own), card.chat.reasoning)
    rows = int(model.get_input_embeddings().num_embeddings)
    refuse_foreign_tokenizer(raw_tokenizer, rows, tokenizer.chat_template, weights)
    eos_ids = _eos_ids(model, raw_tokenizer)
    whole = length_dependent(model.config) or not goes_in_pieces(model, card.name)
    chunk = 0 if whole else options.prefill_chunk
    window = _window(card, model.config.get_text_config(decoder=True), options)
    wishes = _generation_config(weights)
    penalty, told = left_out(wishes.get("repetition_penalty"))
    kv_bytes = kv_bytes_per_token(model.config, model.dtype.itemsize)
    kv_cells = options.kv_cells or default_cells(
        torch, model, window=window, max_sequences=options.max_sequences, kv_bytes=kv_bytes
    )
    info = BackendInfo(
        name="hf",
        version=f"transformers {transformers.__version__}",
        model=card.name,
        context_window=window,
        settings={
            "weights": fingerprint(weights),
            "chat": card.chat.settings(own),
            "device": device.type,
            "dtype": dtype.name,
            "attention": attention_of(model),
            "prefill_chunk": chunk,
            "extend_context": options.extend_context,
            "eos_ids": sorted(eos_ids),
            "torch": torch.__version__.partition("+")[0],
        }
        | ({"quantization": options.quantization} if options.quantization else {})
        | ({"rope_scaling": options.rope_scaling, "rope_factor": options.rope_factor} if options.rope_scaling else {}),
        hardware=_hardware(torch, device, model) | {"dtype_reason": dtype.reason} | penalty,
        prefill_chunk=chunk,
        trained_context=int(getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None) or 0),
        default_sampling=recommended({name: wishes.get(name) for name in _SAMPLING}),
        weights_bytes=int(model.get_memory_footprint()),
        kv_bytes_per_token=kv_bytes,
        kv_cells=kv_cells,
        on_gpu=device.type == "cuda",
        notes=((f"{card.name} is computed in {dtype.name}: {dtype.reason}.",) if options.dtype == AUTO else ()) + told,
    )
    return HfBackend(model, tokenizer, info, eos_ids, chunk, options.max_sequences, kv_cells)


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise BackendError(f"{folder} is not a Hugging Face model: it has no config.json.")
    if not any(folder.glob("*.safetensors")):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth"))
        raise BackendError(
            f"{folder} has no .safetensors weights" + (", only pickled ones, which can run code." if pickled else "."),
            fix="Take a revision of the model with safetensors, or convert it.",
        )
    refuse_unsound(folder)
    refuse_without_tokenizer(folder)


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """End of sequence and end of turn: ``generate``'s, the tokenizer's own, and what is named so."""
    listed = getattr(model.generation_config, "eos_token_id", None)
    ids = set(listed) if isinstance(listed, (list, tuple)) else {listed}
    named = named_ends({token.content: number for number, token in tokenizer.added_tokens_decoder.items()})
    return frozenset(int(i) for i in ids | {tokenizer.eos_token_id} | named if i is not None)


def _generation_config(folder: Path) -> dict[str, Any]:
    """What generation_config.json says; {} where it is missing or cannot be read."""
    try:
        table = json.loads((folder / "generation_config.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _window(card: ModelCard, config: Any, options: HfOptions) -> int:
    trained = getattr(config, "max_position_embeddings", None)
    reach = int(trained * (options.rope_factor or 1)) if trained else 0
    window = card.context_window or reach
    if not window:
        raise BackendError(
            f"The config.json of {card.name} does not say how long its context is.",
            fix="Set context_window in its card.",
        )
    if trained and window > reach and not options.extend_context:
        stretched = f", stretched to {reach}" if options.rope_scaling else ""
        raise BackendError(
            f"{card.name} was made for a context of {trained} tokens{stretched}; context_window = {window} is beyond.",
            fix="Lower it, or set extend_context = true under the card's [options].",
        )
    return int(window)


def _hardware(torch: Any, device: Any, model: Any) -> dict[str, Any]:
    found = {"torch": torch.__version__, "threads": torch.get_num_threads(), "device": str(device)}
    if device.type == "cuda":
        found |= {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
        places = {str(parameter.device) for parameter in model.parameters()}
        return found | ({"devices": sorted(places)} if len(places) > 1 else {})
    return found | {"cpu": torch.backends.cpu.get_cpu_capability()}


def _as_numpy(logits: Any) -> Logits:
    """The last position's logits as float32, shape (vocabulary,)."""
    found: Logits = logits[0, -1].float().cpu().numpy()
    return found
