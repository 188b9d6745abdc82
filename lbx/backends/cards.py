r"""Model cards, TOML files with the location of a model's weights and settings, and the registry of backends.

name = "qwen3-8b"                 shown in reports; default: the card's file name
backend = "llamacpp"              llamacpp, hf, scripted or endpoint
context_window = 32768            tokens; default: what the model's files declare, rope scaling included
stop = ["\nUser:"]               strings that end an answer, besides the benchmark's own; they end no reasoning

[weights]                         exactly one of path, bundle, repo
repo = "Qwen/Qwen3-8B-GGUF"       a hub repository inside the bundle; revision = "..." if it has several
file = "*Q4_K_M*.gguf"            glob for one of its files (GGUF only)

[chat]
template_file = "chat.jinja"      or template = "..."; default: the model's own; enabled = false: none
kwargs = { enable_thinking = false }
reasoning = ["<think>", "</think>"]    opening and closing marks of reasoning; default: detected from the model

[sampling]                        the model's recommended sampling, for benchmarks that sample
temperature = 0.6

[options]                         of the backend: see lbx/backends/*/options.py

For a model on a server (backend = "endpoint"), [options] contains url and name, and there is no [weights];
[tokenizer], with the keys of [weights], gives the location of the model's tokenizer.

Embedding models also need a card: backend = "sentence_transformers" or "llamacpp_embedding", [weights] and [options];
or backend = "endpoint_embedding" and [options].

The registry (``KINDS``) names the class of each backend's options and the loading function. Cards and model files are
found without loading a backend.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lbx.backends.endpoint.options import EndpointEmbeddingOptions, EndpointOptions
from lbx.backends.headers import DeclaredWindow
from lbx.backends.hf.options import HfOptions, SentenceTransformersOptions
from lbx.backends.llama.options import LlamaEmbeddingOptions, LlamaOptions
from lbx.backends.options import BackendOptions, ScriptedOptions
from lbx.base.bundle_folder import FILES, HUB, Bundle
from lbx.base.errors import BackendError, UsageError
from lbx.base.inputs import expand_user, read_input
from lbx.base.limits import CONTEXT_TOKENS, SET_CONTEXT_TOKENS, TABLE_BYTES
from lbx.base.records import Sampling, sha256_text
from lbx.base.tables import check_table, from_table, read_table, suggest_names
from lbx.base.visible import as_command
from lbx.engine.sampling_settings import RANGES, find_out_of_range


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendKind:
    """Description of a backend, before its library is imported.

    Attributes:
        options: class of the table ``[options]`` in cards.
        load: "module:function", imported when a model is loaded.
        library, extra: package that the backend imports, and the extra of lbx that installs it, or "" for none.
        embeds: whether the backend runs embedding models instead of text-generating models.
        gguf: whether the weights are a GGUF file.
        remote: whether a server loads the weights; the card may name a tokenizer.
    """

    options: type[BackendOptions]
    load: str
    library: str = ""
    extra: str = ""
    embeds: bool = False
    gguf: bool = False
    remote: bool = False


KINDS: dict[str, BackendKind] = {
    "llamacpp": BackendKind(
        options=LlamaOptions, load="lbx.backends.llama.backend:load", library="llama_cpp", extra="llama", gguf=True
    ),
    "hf": BackendKind(options=HfOptions, load="lbx.backends.hf.backend:load", library="transformers", extra="hf"),
    "scripted": BackendKind(options=ScriptedOptions, load="lbx.backends.scripted:load"),
    "endpoint": BackendKind(options=EndpointOptions, load="lbx.backends.endpoint.backend:load", remote=True),
    "sentence_transformers": BackendKind(
        options=SentenceTransformersOptions,
        load="lbx.backends.hf.embedding:load",
        library="sentence_transformers",
        extra="hf",
        embeds=True,
    ),
    "llamacpp_embedding": BackendKind(
        options=LlamaEmbeddingOptions,
        load="lbx.backends.llama.embedding:load",
        library="llama_cpp",
        extra="llama",
        embeds=True,
        gguf=True,
    ),
    "endpoint_embedding": BackendKind(
        options=EndpointEmbeddingOptions, load="lbx.backends.endpoint.embedding:load", embeds=True, remote=True
    ),
}
"""Backends by name in cards."""

OPTIONS = {name: kind.options for name, kind in KINDS.items() if not kind.embeds}
"""Names of backends for text-generating models."""


def suggest_backend(name: str, names: Collection[str]) -> str:
    """Fix for an error about an unknown backend: similar names, and the hint that servers need a card."""
    server = 'To use a server (vLLM, SGLang, an API), write a card with backend = "endpoint" (docs/models.md).'
    return f"{suggest_names(name, names, cutoff=0.6)} {server}"


def load_backend(card: ModelCard, weights: Path | None, *, debug: bool) -> Any:
    """Load the model of a card. The only function that imports the module of a backend.

    Raises:
        BackendError: the weights are damaged, or the library is not installed.
    """
    module, _, function = card.kind.load.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(card, weights, debug=debug)
    except ImportError as exc:
        raise missing_library_error(card, str(exc)) from exc


def missing_library_error(card: ModelCard, reason: str) -> BackendError:
    """Create the error for a backend whose library is missing."""
    extra = card.kind.extra or card.backend
    return BackendError(
        f"The backend {card.backend} needs a library that is not installed ({reason}).",
        fix=f"Install lbx[{extra}].",
        command=as_command("pip", "install", f"lbx[{extra}]"),
    )


_TOP: dict[str, type] = {"name": str, "backend": str, "context_window": int, "stop": list}
_TABLES: dict[str, type] = dict.fromkeys(("weights", "tokenizer", "chat", "sampling", "options"), dict)
_KEY_ALIASES: Mapping[str, str] = {
    **dict.fromkeys(
        ("n_ctx", "num_ctx", "ctx_size", "context_length", "max_model_len", "max_seq_len"), "context_window"
    ),
    **dict.fromkeys(("stops", "stop_strings", "stop_sequences", "stop_words", "until"), "stop"),
}
"""Names that other tools give to the keys of a card."""
_SOURCE_KEYS = ("path", "bundle", "repo")
_WEIGHTS_KEYS = (*_SOURCE_KEYS, "model", "model_path", "file", "weights")
"""Common top-level keys that belong in the table of the weights."""

_WEIGHTS: dict[str, type] = dict.fromkeys((*_SOURCE_KEYS, "revision", "file"), str)
_CHAT: dict[str, type] = {"enabled": bool, "template": str, "template_file": str, "kwargs": dict, "reasoning": list}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Weights:
    """Location of a model's weights: exactly one of path, bundle and repo.

    Attributes:
        path: a local file or folder.
        bundle: a path under the bundle's ``data/files``.
        repo: a model repository of the hub inside the bundle.
        revision: revision of ``repo``, needed only if the bundle contains several.
        file: a glob inside the folder that picks the GGUF file (of a split model, all files).
    """

    path: Path | None = None
    bundle: str = ""
    repo: str = ""
    revision: str | None = None
    file: str = ""

    @property
    def source(self) -> str:
        """Name of the source in a bundle: a path, or a repository with the revision."""
        return self.bundle or self.repo + (f" at {self.revision}" if self.revision else "")


NO_WEIGHTS = Weights()
"""Weights of an endpoint without a tokenizer."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Settings of a card for converting a question into a chat.

    Attributes:
        enabled: false treats the model as a base model and ignores its template.
        template: Jinja source that replaces the model's own.
        kwargs: further variables for the template, e.g. { enable_thinking = false }.
        reasoning: the marks that open and close the model's reasoning, if lbx cannot detect them; write control tokens
            as text.
    """

    enabled: bool = True
    template: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    reasoning: tuple[str, str] | None = None

    def choose_template(self, default_template: str | None) -> str | None:
        """Choose between the card's template and the model's own, or None for a base model."""
        if not self.enabled:
            return None
        return default_template if self.template is None else self.template

    def settings(self, default_template: str | None) -> dict[str, Any]:
        """Chat settings that can change an output, for the table ``runs``."""
        template = self.choose_template(default_template)
        settings = {"template_sha256": sha256_text(template) if template else None, "kwargs": dict(self.kwargs)}
        return settings if self.reasoning is None else {**settings, "reasoning": list(self.reasoning)}


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Model card: a model with its settings.

    Attributes:
        name: name in reports.
        backend: key of ``KINDS``.
        weights: location of the weights; for an endpoint, of the tokenizer, or ``NO_WEIGHTS``.
        context_window: tokens, or None to use the model's declared window.
        stop: strings that end an answer, besides the benchmark's own; the text of a control token means that token.
        sampling: the model's recommended sampling, or None.
        source: the card's file, or None for a model given by its weights.
        hash_weights: whether every byte of the weights is hashed to identify them, instead of samples.
    """

    name: str
    backend: str
    weights: Weights
    options: BackendOptions
    context_window: int | None = None
    stop: tuple[str, ...] = ()
    chat: Chat = Chat()
    sampling: Sampling | None = None
    source: Path | None = None
    hash_weights: bool = False

    @property
    def embeds(self) -> bool:
        """Whether the card is for an embedding model instead of a text-generating model."""
        return self.kind.embeds

    @property
    def kind(self) -> BackendKind:
        return KINDS[self.backend]

    def options_as(self, options_class: type[T]) -> T:
        """Return the options, checked to be of a class. Raises TypeError if the card is for another backend."""
        if not isinstance(self.options, options_class):
            raise TypeError(f"the card has {type(self.options).__name__}, not {options_class.__name__}")
        return self.options


def read_card(path: Path) -> ModelCard:
    """Read a model card from a TOML file.

    Raises:
        UsageError: the file cannot be read, is not TOML, or has a key or value that cards do not have.
    """
    table, _ = read_table(path, "The model card")
    return parse_card(table, path)


def parse_card(table: Mapping[str, Any], path: Path) -> ModelCard:
    """Parse the TOML table of a card. Relative paths start at the folder of ``path``."""
    location = f"The model card {path}:"
    _check_key_tables(table, location)
    stop = _stop(table.get("stop", []), location)
    check_table(table, _TOP | _TABLES, location)
    backend = table.get("backend", "")
    if not backend:
        raise UsageError(f"{location} backend is missing.", fix=f"Set backend to one of {', '.join(sorted(KINDS))}.")
    if backend not in KINDS:
        raise UsageError(f"{location} unknown backend {backend!r}.", fix=suggest_backend(str(backend), KINDS))
    kind = KINDS[backend]
    if kind.embeds:
        _check_embedding(table, location)
    window = table.get("context_window")
    if window is not None and window < 1:
        raise UsageError(f"{location} context_window must be at least 1, not {window}.")
    if window is not None and window > SET_CONTEXT_TOKENS:
        raise UsageError(f"{location} context_window must be at most {SET_CONTEXT_TOKENS:,}, not {f'{window}'[:40]}.")
    name = table.get("name", path.stem)
    if not name.strip():
        raise UsageError(f"{location} name must not be empty.")
    return ModelCard(
        name=name,
        backend=backend,
        weights=_tokenizer(table, path) if kind.remote else _weights_of_model(table, path),
        options=from_table(kind.options, table.get("options", {}), f"{location} [options]"),
        context_window=window,
        stop=stop,
        chat=_chat(table.get("chat", {}), path),
        sampling=_sampling(table["sampling"], location) if "sampling" in table else None,
        source=path,
    )


def window_of(card: ModelCard, declared_window: DeclaredWindow | None) -> int:
    """Context window of a card's model in tokens: the card's, or else the declared window, or else 0.

    Raises:
        BackendError: the card's window exceeds the declared window, and no option of the card stretches the positions;
            or the declared window is longer than that of any model.
    """
    window, options = card.context_window, card.options
    if declared_window is None or not isinstance(options, LlamaOptions | HfOptions):
        return window or 0
    if declared_window.tokens > CONTEXT_TOKENS:
        raise BackendError(
            f"The files of {card.name} declare a context of {f'{declared_window.tokens:,}'[:40]} tokens, more than any "
            "model has.",
            fix="Do not trust these files; compare them with the originals (for a bundle: lbx verify).",
        )
    if isinstance(options, LlamaOptions) and options.replaces_scaling:
        return window or declared_window.base_tokens
    factor = options.rope_factor or 1 if isinstance(options, HfOptions) else 1
    reach = int(declared_window.tokens * factor)
    if window and window > reach and not options.extend_context:
        stretched = f", extended to {reach} by rope_factor" if factor > 1 else ""
        option = "rope_factor" if stretched else "rope_scaling"
        raise BackendError(
            f"The files of {card.name} declare a context of {declared_window.tokens} tokens{stretched}; "
            f"a context window of {window} exceeds it.",
            fix="Lower --context-window, or context_window in the card; or set "
            f"{option} or extend_context = true under [options] in the card.",
        )
    return window or reach


def require_window(card: ModelCard, declared_window: DeclaredWindow | None) -> int:
    """Context window of a card's model like ``window_of``. Raises BackendError if neither card nor files name it."""
    window = window_of(card, declared_window)
    if not window:
        raise BackendError(
            f"The files of {card.name} declare no context window: max_position_embeddings in config.json, or "
            "context_length in a GGUF header, is missing or 0.",
            fix="Pass --context-window, or set context_window in its card.",
        )
    return window


def window_notes(card: ModelCard, declared_window: DeclaredWindow | None) -> tuple[str, ...]:
    """Notes on a declared window that a card's model uses, for ``BackendInfo.notes``."""
    replaced = isinstance(card.options, LlamaOptions) and card.options.replaces_scaling
    note = "" if card.context_window or replaced or declared_window is None else declared_window.note(card.name)
    return (note,) if note else ()


def refuse_without_end(card: ModelCard, eos_ids: Collection[int]) -> None:
    """Raise BackendError if neither a token nor a string ends a model's answers: each would have its maximum length."""
    if not eos_ids and not card.stop:
        raise BackendError(
            f"No token ends the answers of {card.name}: its files name no control token as the end of a sequence.",
            fix="Convert the model again, with the tokenizer of its source. Or set stop in the model card, the strings "
            'that end an answer, e.g. stop = ["\\n"].',
        )


def _check_key_tables(table: Mapping[str, Any], location: str) -> None:
    """Refuse misplaced keys and other tools' names for keys.

    Misplaced keys are a card's key inside a table (TOML assigns every line to the table above it), or a table's key at
    the top level.
    """
    for name in ("", *_TABLES):
        keys = table.get(name, {}) if name else table
        table_location = f"{location} [{name}]" if name else location.removesuffix(":")
        for key in keys if isinstance(keys, Mapping) else ():
            if name and key in _TOP:
                fix = f"Move {key} to the top of the card, before its first table."
            elif not name and key in _WEIGHTS_KEYS and isinstance(keys[key], str):
                written = f'{key if key in _SOURCE_KEYS else "path"} = "{keys[key]}"'
                fix = f"Set the path of the weights in a separate table: [weights], and below it {written}."
            elif key in _KEY_ALIASES:
                fix = f"Use {_KEY_ALIASES[key]} at the top of the card, before its first table."
            else:
                continue
            problem = f"{key} must be a table" if key in _TABLES else f"has no setting {key!r}"
            raise UsageError(f"{table_location} {problem}.", fix=fix)


def _stop(texts: object, location: str) -> tuple[str, ...]:
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        kind = "non-empty strings" if isinstance(texts, list) and "" in texts else "strings"
        raise UsageError(
            f"{location} stop must be a list of {kind}, not {texts!r}.", fix='Write e.g. stop = ["\\nUser:"].'
        )
    return tuple(dict.fromkeys(texts))


def _check_embedding(table: Mapping[str, Any], location: str) -> None:
    """Refuse settings that only apply to text-generating models."""
    for key in ("context_window", "stop", "chat", "sampling", "tokenizer"):
        if key in table:
            raise UsageError(
                f"{location} embedding models do not support {key}.",
                fix="Remove it. To limit the length of a text, set max_length under [options].",
            )


def _weights_of_model(table: Mapping[str, Any], card: Path) -> Weights:
    location = f"The model card {card}:"
    if "tokenizer" in table:
        raise UsageError(
            f"{location} only endpoints support [tokenizer].", fix="Remove it: the weights include their own."
        )
    return _weights(table.get("weights", {}), card)


def _tokenizer(table: Mapping[str, Any], card: Path) -> Weights:
    """Location of the tokenizer in an endpoint's card, or ``NO_WEIGHTS``."""
    location = f"The model card {card}:"
    if "weights" in table:
        raise UsageError(
            f"{location} endpoints do not support [weights]: the server has them.",
            fix="Remove it. To give the path of the model's tokenizer, use [tokenizer].",
        )
    if "tokenizer" not in table:
        return NO_WEIGHTS
    return _weights(table["tokenizer"], card, "tokenizer")


def _weights(values: Mapping[str, Any], card: Path, name: str = "weights") -> Weights:
    location = f"The model card {card}: [{name}]"
    check_table(values, _WEIGHTS, location)
    keys = [key for key in _SOURCE_KEYS if values.get(key)]
    if len(keys) != 1:
        raise UsageError(
            f"{location} needs exactly one of {', '.join(_SOURCE_KEYS)}; it has {' and '.join(keys) or 'none'}.",
            fix="path is a local file or folder, bundle a path under the bundle's data/files, repo a hub repository "
            "inside the bundle.",
        )
    if ".." in Path(values.get("file", "")).parts:
        raise UsageError(
            f"{location} file = {values['file']!r} points outside the model's folder.",
            fix="Name a file in the folder, without `..`.",
        )
    if values.get("revision") and not values.get("repo"):
        raise UsageError(f"{location} revision requires repo.", fix="Add the repository, or remove revision.")
    return Weights(
        path=card.parent / expand_user(Path(values["path"])) if values.get("path") else None,
        bundle=values.get("bundle", ""),
        repo=values.get("repo", ""),
        revision=values.get("revision") or None,
        file=values.get("file", ""),
    )


def _chat(table: Mapping[str, Any], card: Path) -> Chat:
    location = f"The model card {card}: [chat]"
    check_table(table, _CHAT, location)
    template = table.get("template")
    if "template_file" in table:
        if template is not None:
            raise UsageError(f"{location} has both template and template_file.", fix="Keep one of them.")
        file = card.parent / table["template_file"]
        try:
            template = read_input(file, TABLE_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(
                f"{location} template_file {file} cannot be read: {exc}.",
                fix="It is a UTF-8 file, relative to the card's folder.",
            ) from exc
    return Chat(
        enabled=table.get("enabled", True),
        template=template,
        kwargs=table.get("kwargs", {}),
        reasoning=_reasoning_marks(table["reasoning"], location) if "reasoning" in table else None,
    )


def _reasoning_marks(values: list[Any], location: str) -> tuple[str, str]:
    """Check a card's opening and closing marks. Neither may contain the other, or matches would be ambiguous."""
    texts = [value for value in values if isinstance(value, str) and value.strip() == value != ""]
    if len(values) != 2 or len(texts) != 2 or texts[0] in texts[1] or texts[1] in texts[0]:
        raise UsageError(
            f"{location} reasoning must be two strings without outer spaces, neither part of the other, not {values}.",
            fix='Give the opening and the closing mark of the reasoning, e.g. reasoning = ["<think>", "</think>"].',
        )
    return texts[0], texts[1]


def _sampling(table: Mapping[str, Any], location: str) -> Sampling:
    sampling = from_table(Sampling, table, f"{location} [sampling]")
    wrong = find_out_of_range(sampling)
    if wrong is not None:
        raise UsageError(
            f"{location} [sampling] {wrong} = {getattr(sampling, wrong)} is out of range.",
            fix=f"Allowed: {RANGES}.",
        )
    return sampling


CARDS = Path("models")
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_REPO = "models--"
_MODEL_FILES = (".safetensors", ".json", ".jinja", ".model", ".txt")


def paths_by_name(bundle: Bundle | None = None) -> dict[str, Path]:
    """Find the models that ``--model`` accepts by name, as {name: path of the card, file or folder}.

    They are in models/, in the bundle's folder (or the working folder), and in the bundle.
    """
    folder = bundle.root.parent if bundle is not None else Path()
    paths = dict(_in_folder(CARDS, cards_only=False)) | dict(_in_folder(folder, cards_only=True))
    return paths | dict(_in_bundle(bundle)) if bundle is not None else paths


def _in_folder(folder: Path, *, cards_only: bool) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of the models in a folder.

    The bundle's folder may contain any files: a TOML file without a backend is no card there.
    """
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.suffix == ".toml":
            if not cards_only or is_card(path):
                yield (path.stem if folder == CARDS else str(path)), path
        elif is_first_gguf(path) or has_weights(path):
            yield str(path), path


def _in_bundle(bundle: Bundle) -> Iterator[tuple[str, Path]]:
    hub = bundle.root / HUB
    for folder in sorted(hub.glob("models--*--*")):
        repo = _repo(folder)
        if snapshot := bundle.snapshot("model", repo):
            yield repo, snapshot
    for path in sorted((bundle.root / FILES).rglob("*")):
        if is_first_gguf(path) or path.name == "config.json":
            model_path = path.parent if path.name == "config.json" else path
            yield str(model_path), model_path


def is_card(path: Path) -> bool:
    """Whether a TOML file is a model card: it names a backend, as recipes do not."""
    try:
        return "backend" in read_table(path)[0]
    except UsageError:
        return False


def has_weights(folder: Path) -> bool:
    """Whether a folder contains a model. The folder of all cards and models does not count."""
    if folder.name == CARDS.name:
        return False
    return os.path.lexists(folder / "config.json") or any(folder.glob("*.gguf"))


def model_name(path: Path) -> str:
    """Name of a model without a card: of the file or folder, or, in a hub cache, of the repository."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 (a link keeps its own name)
    if path.parent.name == "snapshots" and path.parents[1].name.startswith(_REPO):
        return _repo(path.parents[1])
    return path.name if path.is_dir() else path.stem


def _repo(folder: Path) -> str:
    return folder.name.removeprefix(_REPO).replace("--", "/", 1)


def refuse_broken_links(model_path: Path) -> None:
    """Raise BackendError if a model file, or a file in the model folder, is a broken link."""
    for path in sorted(model_path.iterdir()) if model_path.is_dir() else [model_path]:
        if path.is_symlink() and not path.exists() and path.suffix in (*_MODEL_FILES, ".gguf"):
            raise BackendError(
                f"{path} is a link to {path.readlink()}, which does not exist.",
                fix="A cache of the hub has its files in blobs/: copy a snapshot with cp -rL, which follows links.",
            )


def split_files(path: Path) -> list[Path]:
    """Files of a GGUF model that may be split, given the first file.

    Raises:
        BackendError: a file of a split model is missing, or the given file is not the first.
    """
    match = _SHARD.search(path.name)
    if match is None:
        return [path]
    stem, total = path.name[: match.start()], int(match[2])
    parts = [path.with_name(f"{stem}-{n:05d}-of-{total:05d}.gguf") for n in range(1, total + 1)]
    if path != parts[0]:
        raise BackendError(
            f"{path} is part {int(match[1])} of {total} of a model.", fix=f"Use its first part: {parts[0]}."
        )
    for part in parts:
        if not part.is_file():
            raise BackendError(f"A part of the model is missing: {part}.", fix="Put all parts into one folder.")
    return parts


def is_first_gguf(path: Path) -> bool:
    """Whether a path is the first file of a GGUF model, which may be split."""
    part = _SHARD.search(path.name)
    return path.suffix == ".gguf" and (part is None or int(part[1]) == 1)


def model_files(path: Path) -> list[Path]:
    """Files of a model folder, or of a GGUF model given the first file.

    Raises:
        BackendError: a file is missing, or is a pipe, a device or a broken link, for which a library would wait.
    """
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix in _MODEL_FILES and not p.is_dir())
    else:
        files = split_files(path)
    for file in files:
        if not file.is_file():
            raise BackendError(f"{file} is not a regular file.", fix="Replace it with the model's file.")
    return files
