"""Backend for embedding models in Hugging Face's format, on sentence-transformers and torch.

Embeddings equal those of ``SentenceTransformer(folder).encode(texts)``, with additional guarantees:
no code from the folder, no network, no pickled weights, no random numbers in place of missing ones, and batches
bounded in tokens instead of texts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from lbx.backends.cards import ModelCard, model_files
from lbx.backends.embedding import EmbedderInfo, batches, fingerprint_of, unit_rows
from lbx.backends.hf.checkpoint import read_checkpoint
from lbx.backends.hf.folder_checks import refuse_unsafe_files
from lbx.backends.hf.library import (
    choose_device,
    declared_window,
    first_line,
    length_dependent_ropes,
    prepare_environment,
    refuse_without_tokenizer,
    reset_rope_lengths,
    set_verbosity,
    show_warnings,
)
from lbx.backends.hf.options import SentenceTransformersOptions
from lbx.backends.options import thread_count
from lbx.backends.weights import fingerprint
from lbx.base.errors import BackendError
from lbx.base.inputs import SMALL, read_input
from lbx.base.records import replace_surrogates

if TYPE_CHECKING:
    from lbx.backends.embedding import Vectors

_MODULES = "modules.json"
_OWN = "sentence_transformers."
_POOLING_MODES = {"mean": "mean", "last": "lasttoken", "cls": "cls"}
# Tables of learned absolute positions, as transformers' models name them. Rotary positions are relative: with them
# it does not matter on which side a text is padded.
_POSITION_TABLES = ("position_embeddings", "embed_positions", "wpe")


@dataclass(eq=False)
class SentenceTransformersEmbedder:
    """Embedding model on sentence-transformers.

    Args:
        prompts: prefix of queries (True) and of other texts (False); None uses the model's own.
    """

    _model: Any
    info: EmbedderInfo
    _options: SentenceTransformersOptions
    _prompts: Mapping[bool, str | None]

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        import numpy as np

        if self._model is None:
            raise BackendError(f"The embedding model {self.info.name} is closed.", fix="Load it again.")
        clean = [replace_surrogates(text) for text in texts]
        prompt = self._prompts[query]
        vectors = np.zeros((len(clean), self.info.dimensions), np.float32)
        # With a rotary embedding that depends on the length of the input, the longest text would change the others.
        by_length = self._model.config is not None and length_dependent_ropes(self._model.config)
        for batch in batches(self._token_counts(clean, prompt), 1 if by_length else self._options.batch_tokens):
            if by_length:
                reset_rope_lengths(self._model)
            vectors[batch] = self._encode([clean[i] for i in batch], prompt)
        return unit_rows(vectors, self.info.name)

    def close(self) -> None:
        self._model = None

    def _token_counts(self, texts: Sequence[str], prompt: str | None) -> list[int]:
        """Number of tokens of each text as the model reads it: with prompt and special tokens, truncated."""
        before = prompt or ""
        if prompt is None and self._model.default_prompt_name is not None:
            before = self._model.prompts[self._model.default_prompt_name]
        if not texts:
            return []
        ids = self._model.tokenizer([before + text for text in texts], truncation=False, verbose=False)["input_ids"]
        return [min(len(row), self.info.max_tokens) for row in ids]

    def _encode(self, texts: list[str], prompt: str | None) -> Any:
        """Compute the vectors of one batch, shape (texts, dimensions), float32."""
        import torch

        try:
            vectors = self._model.encode(
                texts, prompt=prompt, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False
            )
            return vectors.float().cpu().numpy()
        except torch.OutOfMemoryError as exc:
            raise BackendError(
                f"Memory ran out while {self.info.name} computed {len(texts)} texts: {first_line(exc)}",
                fix="Lower batch_tokens or max_length in its card, or use dtype = 'bfloat16'.",
            ) from exc
        except (RuntimeError, TypeError, ValueError, IndexError) as exc:
            raise BackendError(
                f"The embedding model {self.info.name} failed on {len(texts)} texts: {first_line(exc)}",
                fix="If memory ran out, lower batch_tokens or max_length in its card.",
            ) from exc


def load(card: ModelCard, weights: Path, *, debug: bool = False) -> SentenceTransformersEmbedder:
    """Load an embedding model from a sentence-transformers folder. No code from the folder is run.

    Raises:
        ImportError: torch, transformers or sentence-transformers is not installed.
        BackendError: a file is missing, damaged or unsafe, or padding_side does not suit the model.
    """
    options = card.options_as(SentenceTransformersOptions)
    subfolders = _check_folder(weights, options)
    prepare_environment()
    import torch

    torch.set_num_threads(thread_count(options.threads))
    with show_warnings(debug):
        library, model = _load_model(weights, options, str(choose_device(torch, options.device)), debug=debug)
    if not (weights / _MODULES).is_file():
        _disable_chat_template(model)
    if options.pooling:
        _set_pooling(model, options.pooling, weights)
    side = model.tokenizer.padding_side = _padding_side(model, options.padding_side, card)
    if model.tokenizer.pad_token is None:  # masked, so that any token will do
        model.tokenizer.pad_token = model.tokenizer.eos_token or model.tokenizer.convert_ids_to_tokens(0)
    if options.max_length:
        _set_max_length(model, options.max_length, card)
    prompts: dict[bool, str | None] = {
        True: options.query_prefix or model.prompts.get("query") or None,
        False: options.document_prefix or None,
    }
    settings = {
        "dtype": options.dtype,
        "attention": options.attention,
        "padding_side": side,
        "max_length": model.max_seq_length,
        "pooling": list(_pooling_modes(model)),
        "prompts": [prompts[True], prompts[False]],
    }
    digests = json.dumps(
        {subfolder: fingerprint(weights / subfolder, every_byte=True) for subfolder in subfolders}, sort_keys=True
    )
    info = EmbedderInfo(
        name=card.name,
        backend="sentence_transformers",
        version=f"sentence-transformers {library.__version__}",
        fingerprint=fingerprint_of("sentence_transformers", digests, settings),
        dimensions=int(model.get_embedding_dimension()),
        max_tokens=_max_tokens(model, card),
    )
    return SentenceTransformersEmbedder(model, info, options, prompts)


def _check_folder(folder: Path, options: SentenceTransformersOptions) -> list[str]:
    """Refuse incomplete or unsafe models before loading them.

    Returns:
        The model's folders with files, relative to the model; "." first.
    """
    if not (folder / "config.json").is_file():
        raise BackendError(
            f"{folder} is not a Hugging Face model: it has no config.json.",
            fix="For a .gguf file, set backend = 'llamacpp_embedding' in the card.",
        )
    subfolders = {"."} | _module_folders(folder, options)
    for subfolder in sorted(subfolders):
        model_files(folder / subfolder)  # all of them regular files
        names = {p.name for p in (folder / subfolder).iterdir()}
        pickled = sorted(n for n in names if n.endswith((".bin", ".pt", ".pth", ".ckpt")))
        if pickled and not any(n.endswith(".safetensors") for n in names):
            raise BackendError(
                f"{folder / subfolder} has only pickled weights ({pickled[0]}), which can run code.",
                fix="Use a revision of the model with safetensors, or convert the model.",
            )
    if not any(folder.glob("*.safetensors")):
        raise BackendError(
            f"{folder} has no .safetensors weights.",
            fix="Add them to the recipe's files, or use a revision of the model that has them.",
        )
    refuse_unsafe_files(folder)
    refuse_without_tokenizer(folder)
    return sorted(subfolders)


def _module_folders(folder: Path, options: SentenceTransformersOptions) -> set[str]:
    """Folders that modules.json names. Raises BackendError for classes other than sentence-transformers' own."""
    path = folder / _MODULES
    if not path.is_file():
        if options.pooling:
            return set()
        raise BackendError(
            f"{folder} has no {_MODULES}, which defines the pooling of token vectors.",
            fix="Use a sentence-transformers model, or set pooling (mean, last or cls) in the card.",
        )
    try:
        modules = [(str(m["type"]), str(m["path"])) for m in json.loads(read_input(path, SMALL))]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as exc:
        raise BackendError(
            f"{path} cannot be read: {first_line(exc)}.",
            fix="Compare the file with its source (for a bundle: lbx verify).",
        ) from exc
    for kind, subfolder in modules:
        if not kind.startswith(_OWN):
            raise BackendError(
                f"{path} uses the class {kind} from the model's repository; lbx does not run a model's own code.",
                fix=f"Use a model with classes of {_OWN}* only, or its GGUF file on llama.cpp.",
            )
        if PurePosixPath(subfolder).is_absolute() or ".." in PurePosixPath(subfolder).parts:
            raise BackendError(
                f"{path} refers to a folder outside the model: {subfolder}.",
                fix="Do not trust this model; compare the file with its source (for a bundle: lbx verify).",
            )
    return {subfolder or "." for _, subfolder in modules if (folder / subfolder).is_dir()}


def _load_model(folder: Path, options: SentenceTransformersOptions, device: str, *, debug: bool) -> tuple[Any, Any]:
    """Load the model, and return the module sentence_transformers and the model."""
    if title := read_checkpoint(folder).title:
        raise BackendError(
            f"The embedding model in {folder} is stored as {title}; lbx reads quantised folders of language models "
            "only.",
            fix="Use the model in bfloat16 or float32, or its GGUF file on llama.cpp.",
        )
    import sentence_transformers
    import torch
    import transformers

    set_verbosity(transformers, debug)
    logging.getLogger("sentence_transformers").setLevel(logging.INFO if debug else logging.ERROR)
    try:
        with _collect_reports(transformers) as reports:
            model = sentence_transformers.SentenceTransformer(
                str(folder),
                device=device,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={
                    "dtype": getattr(torch, options.dtype),
                    "attn_implementation": options.attention,
                    "use_safetensors": True,
                },
            )
    except ImportError as exc:  # sentence-transformers is installed: the model needs another library
        raise BackendError(
            f"The embedding model in {folder} needs another library: {first_line(exc)}",
            fix="Install the library that the message names.",
        ) from exc
    except Exception as exc:  # safetensors and tokenizers raise bare classes of their own; all mean "not loadable"
        raise BackendError(
            f"The embedding model in {folder} cannot be loaded: {first_line(exc)}",
            fix="A file may be cut off or missing (for a bundle: lbx verify), the device may be full, or the model "
            "needs its own code, which is not supported.",
        ) from exc
    _check_complete(reports, folder)
    return sentence_transformers, model.eval()


@contextmanager
def _collect_reports(transformers: Any) -> Iterator[list[Mapping[str, Any]]]:
    """Collect transformers' reports on the weights that it loads in this context.

    It fills weights that the files lack with random numbers. sentence-transformers does not ask for the report, and
    without it such a model would give plausible numbers.
    """
    base = transformers.PreTrainedModel
    original = base.__dict__["from_pretrained"]
    reports: list[Mapping[str, Any]] = []

    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        wants = kwargs.pop("output_loading_info", False)
        model, report = original.__func__(cls, *args, output_loading_info=True, **kwargs)
        reports.append(report)
        return (model, report) if wants else model

    base.from_pretrained = classmethod(from_pretrained)
    try:
        yield reports
    finally:
        base.from_pretrained = original


def _check_complete(reports: Sequence[Mapping[str, Any]], folder: Path) -> None:
    lacking = [str(k) for r in reports for k in (*r.get("missing_keys", ()), *r.get("mismatched_keys", ()))]
    # BERT's own pooler is used by no pooling of sentence-transformers, and many of its models come without.
    lacking = sorted(key for key in lacking if "pooler" not in key.split("."))
    if lacking:
        raise BackendError(
            f"The weights in {folder} are incomplete: {len(lacking)} tensors are missing or have another shape, "
            f"e.g. {lacking[0]}.",
            fix="A file of the model may be missing, or config.json belongs to another model.",
        )


def _disable_chat_template(model: Any) -> None:
    """Make a model encode texts without a chat template.

    If a folder is not marked as a sentence-transformers model, the library wraps texts in the chat template
    that the tokenizer happens to have. Decoders made into embedding models have inherited theirs, and were not trained
    with it.
    """
    reader = model[0]
    reader.modality_config = {kind: how for kind, how in reader.modality_config.items() if kind != "message"}
    reader.input_formatter.supported_modalities = list(reader.modality_config)


def _pooling_modules(model: Any) -> list[Any]:
    return [module for module in model.children() if hasattr(module, "pooling_mode")]


def _pooling_modes(model: Any) -> tuple[str, ...]:
    modes = [module.pooling_mode for module in _pooling_modules(model)]
    return tuple(name for mode in modes for name in ((mode,) if isinstance(mode, str) else mode))


def _set_pooling(model: Any, pooling: str, folder: Path) -> None:
    modules = _pooling_modules(model)
    if len(modules) != 1 or len(_pooling_modes(model)) != 1:
        raise BackendError(
            f"pooling = {pooling!r} does not apply to the model in {folder}: it has {len(modules)} pooling layers.",
            fix="Remove pooling from the card.",
        )
    modules[0].pooling_mode = _POOLING_MODES[pooling]


def _padding_side(model: Any, option: str, card: ModelCard) -> str:
    """Padding side of texts: as requested, or the harmless side.

    Padding on the left shifts a text by its neighbour's length, if the model has learned absolute positions.
    """
    absolute = any(name.rpartition(".")[2] in _POSITION_TABLES for name, _ in model.named_modules())
    if option == "auto":
        return "left" if "lasttoken" in _pooling_modes(model) and not absolute else "right"
    if option == "left" and absolute:
        raise BackendError(
            f"{card.name} counts positions from the left edge: with padding there, a text's vector would depend on the "
            "other texts of its batch.",
            fix="Set padding_side to 'right' or 'auto' in its card.",
        )
    return option


def _set_max_length(model: Any, max_length: int, card: ModelCard) -> None:
    declared = declared_window(model.config)
    if declared and max_length > declared.tokens:
        raise BackendError(
            f"{card.name} has positions for {declared.tokens} tokens, fewer than max_length = {max_length}.",
            fix="Lower max_length in its card.",
        )
    model.max_seq_length = max_length


def _max_tokens(model: Any, card: ModelCard) -> int:
    limit = model.max_seq_length
    if not limit or limit > 1 << 30:  # transformers writes 1e30 if a tokenizer gives no limit
        raise BackendError(
            f"The files of {card.name} declare no maximum text length.", fix="Set max_length in its card."
        )
    return int(limit)
