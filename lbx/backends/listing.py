"""What ``--model`` can name here: cards, weights, and what the bundle holds; found without loading any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lbx.backends.cards import NOTHING, ModelCard, check_window, read_card
from lbx.backends.headers import context_window
from lbx.backends.hf.stored import read_stored
from lbx.backends.llama.formats import check_gguf, format_title
from lbx.backends.weights import CARDS, is_first_gguf, model_files, resolve_embedder, resolve_model, weights_path
from lbx.base.errors import BackendError, LbxError, UsageError
from lbx.base.layout import FILES, HUB, Bundle
from lbx.base.tables import read_table


@dataclass(frozen=True, slots=True)
class Listed:
    """One model.

    Attributes:
        name: as ``--model`` (or, of an embedding model, ``--embedding`` and ``--retriever``) takes it.
        kind: "card" or "weights".
        backend: "" where a card cannot be read.
        embeds: whether it turns texts into vectors.
        context_window: tokens, by its card or else by its files; None where neither says.
        size_bytes: of its weights' files; None where they are not there, or elsewhere by design.
        stored_as: the format of few bits that its files store it in; "" where it is plain, or another's affair.
        there: whether it can be named now; None for a server's model, whose weights are its own affair.
        problem: what is missing or wrong, a sentence.
        needs_bundle: whether that is the bundle of its weights, as none is given.
    """

    name: str
    kind: str
    backend: str = ""
    embeds: bool = False
    context_window: int | None = None
    size_bytes: int | None = None
    stored_as: str = ""
    there: bool | None = False
    problem: str = ""
    needs_bundle: bool = False

    @property
    def state(self) -> str:
        """Whether it is there, and its format of few bits."""
        state = {True: "present", False: "missing", None: "on a server"}[self.there]
        return f"{state}, {self.stored_as}" if self.stored_as else state

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def list_models(bundle: Bundle | None = None) -> list[Listed]:
    """Cards and weights in models/ and beside the bundle (without one in this folder), then weights in the bundle."""
    beside = bundle.root.parent if bundle is not None else Path()
    models = [*_in_folder(CARDS, bundle, cards_only=False), *_in_folder(beside, bundle, cards_only=True)]
    if bundle is not None:
        models += _in_bundle(bundle)
    return list({one.name: one for one in models}.values())


def _in_folder(folder: Path, bundle: Bundle | None, *, cards_only: bool) -> Iterator[Listed]:
    """A folder's models. Beside a bundle there may be anything: what says no backend is no card there."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.suffix == ".toml":
            if not cards_only or is_card(path):
                yield _card(path, bundle)
        elif is_first_gguf(path) or holds_weights(path):
            yield _weights(str(path), path)


def is_card(path: Path) -> bool:
    """Whether a TOML file names a backend: recipes and others have none."""
    try:
        return "backend" in read_table(path)[0]
    except UsageError:
        return False


def holds_weights(folder: Path) -> bool:
    """Whether this is a folder with a model; the folder of cards and all models is none."""
    if folder.name == CARDS.name:
        return False
    return (folder / "config.json").is_file() or any(folder.glob("*.gguf"))


def _in_bundle(bundle: Bundle) -> Iterator[Listed]:
    hub = bundle.root / HUB
    for folder in sorted(hub.glob("models--*--*")):
        repo = folder.name.removeprefix("models--").replace("--", "/", 1)
        if snapshot := bundle.snapshot("model", repo):
            yield _weights(repo, snapshot)
    files = bundle.root / FILES
    for path in sorted(files.rglob("*")):
        if is_first_gguf(path) or path.name == "config.json":
            place = path.parent if path.name == "config.json" else path
            yield _weights(str(place), place)


def _card(path: Path, bundle: Bundle | None) -> Listed:
    name = path.stem if path.parent == CARDS else str(path)
    try:
        card = read_card(path)
    except LbxError as error:
        return Listed(name, "card", problem=error.cause)
    return _listed(name, "card", card, bundle)


def _weights(name: str, place: Path) -> Listed:
    """Weights that were named directly: a folder may hold either kind of model, or none that lbx can run."""
    if not place.exists():
        return Listed(name, "weights", problem=f"{place} is a link to nothing.")
    embeds = (place / "modules.json").is_file()
    try:
        card = (resolve_embedder if embeds else resolve_model)(str(place))
    except LbxError as error:
        return Listed(name, "weights", problem=error.cause)
    return _listed(name, "weights", card, None)


def _listed(name: str, kind: str, card: ModelCard, bundle: Bundle | None) -> Listed:
    listed = Listed(name, kind, card.backend, card.embeds, card.context_window)
    if bundle is None and card.weights != NOTHING and card.weights.path is None:
        listed = replace(listed, needs_bundle=True)
    if card.weights == NOTHING:
        return replace(listed, there=None)
    try:
        place = weights_path(card, bundle)
        size = sum(file.stat().st_size for file in model_files(place))
        stored_as = _stored_as(card, place)
    except (LbxError, OSError) as error:
        return replace(listed, problem=error.cause if isinstance(error, LbxError) else str(error))
    trained = context_window(place)
    listed = replace(
        listed, context_window=card.context_window or trained, size_bytes=size, stored_as=stored_as, there=True
    )
    try:
        check_window(card, trained)
    except BackendError as error:
        return replace(listed, problem=error.cause)
    return listed


def _stored_as(card: ModelCard, place: Path) -> str:
    if card.kind.gguf:
        check_gguf(place)
        return format_title(place)
    if card.backend != "hf" or find_spec("safetensors") is None:
        return ""
    return read_stored(place).title
