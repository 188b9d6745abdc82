"""Models and tasks by the names that a spec gives them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lbx.backends import Backend, ModelCard, load, load_embedder, resolve_embedder, resolve_model
from lbx.backends.counting import CountingBackend, with_small_cache
from lbx.backends.endpoint.options import EndpointEmbeddingOptions, EndpointOptions
from lbx.base.errors import UsageError
from lbx.benchmarks import BENCHMARKS, select
from lbx.planning.asking import ASKING
from lbx.planning.choices import Retrieval
from lbx.planning.retrieving import Finder, rules_of
from lbx.planning.settings import MODES, RunSettings

if TYPE_CHECKING:
    from lbx.backends import Embedder
    from lbx.base.layout import Bundle
    from lbx.base.records import Task
    from lbx.running.spec import RunSpec

log = logging.getLogger("lbx")

_NAMED = 3


def debugging() -> bool:
    """Whether libraries' own logs are wanted."""
    return bool(os.environ.get("LBX_DEBUG"))


def choose_tasks(bundle: Bundle, names: Sequence[str], settings: RunSettings) -> list[Task]:
    """The tasks that names and patterns mean.

    Raises:
        UsageError: a name is unknown, or a task's benchmark does not know the way to ask.
    """
    tasks = select(bundle, list(names))
    for mode in MODES:
        if getattr(settings, mode) == ASKING[mode].default:
            continue
        without = [task.full_name for task in tasks if mode not in BENCHMARKS[task.benchmark].modes]
        if without:
            more = f" and {len(without) - _NAMED} more" if len(without) > _NAMED else ""
            knowing = [name for name, benchmark in BENCHMARKS.items() if mode in benchmark.modes]
            option = ASKING[mode].names[0].rpartition("/")[2]  # "--no-..." of what is on by default
            raise UsageError(
                f"{option} does not apply to {', '.join(without[:_NAMED])}{more}.",
                fix=f"It applies to {' and '.join(knowing)}: name only their tasks, or remove it.",
            )
    for task in tasks:
        BENCHMARKS[task.benchmark].check_mode(task.name, settings.mode(context_window=0))
    return tasks


def server_of(card: ModelCard) -> tuple[str, int] | None:
    """Host and port of the server that runs the model, all that a run may reach; None where the model runs here."""
    options = card.options
    if isinstance(options, EndpointEmbeddingOptions):
        options = options.connection
    return options.address if isinstance(options, EndpointOptions) else None


def embedding_servers(spec: RunSpec, bundle: Bundle) -> list[tuple[str, int] | None]:
    """The same of the embedding models that a run asks.

    Raises:
        UsageError: the one that ranks chunks is not there.
    """
    servers = [server_of(resolve_embedder(spec.retriever, bundle=bundle))] if spec.retrieval.embeds else []
    if spec.embedding is not None:
        with contextlib.suppress(UsageError):  # the name of vectors that the results file has already
            servers.append(server_of(resolve_embedder(spec.embedding, bundle=bundle)))
    return servers


def card_of(spec: RunSpec, bundle: Bundle) -> ModelCard:
    """The card that the spec's model means."""
    return resolve_model(spec.model, backend=spec.backend, bundle=bundle, threads=spec.threads)


def load_model(card: ModelCard, bundle: Bundle | None) -> Backend:
    """Load a model, and log what is worth knowing about how it is computed here."""
    loaded = load(card, bundle=bundle, debug=debugging())
    for text in loaded.info.notes:
        log.info(text)
    return loaded


def load_to_count(card: ModelCard, bundle: Bundle) -> Backend:
    """Load a model whose cache does not fit with a small one: enough to count tokens as for the large one.

    Raises:
        DoesNotFitError: its weights do not fit either.
    """
    return CountingBackend(load_model(with_small_cache(card), bundle), card)


def load_embedding_model(name: str, bundle: Bundle | None, threads: int | None = None) -> Embedder:
    """Load the embedding model whose card is named."""
    return load_embedder(resolve_embedder(name, bundle=bundle, threads=threads), bundle=bundle, debug=debugging())


def finder_for(retrieval: Retrieval, bundle: Bundle, tasks: Sequence[Task]) -> Finder | None:
    """What finds chunks; None where whole documents are read.

    Raises:
        UsageError: the tasks' authors retrieve in different ways, or not as it was asked for.
        BundleError, BackendError: what it needs is not there.
    """
    if not retrieval.best:
        return None
    rules = rules_of([BENCHMARKS[task.benchmark] for task in tasks], retrieval)
    embedder = load_embedding_model(retrieval.retriever, bundle, retrieval.threads) if retrieval.embeds else None
    try:
        return Finder(bundle, retrieval, embedder, rules)
    except BaseException:
        if embedder:
            embedder.close()
        raise
