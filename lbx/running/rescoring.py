"""Score stored outputs again, optionally with an embedding model."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lbx.base.layout import Bundle
from lbx.benchmarks.registry import BENCHMARKS
from lbx.running.bundle_rules import refuse_new_rules, score_by_bundle
from lbx.running.listening import Listener
from lbx.running.models import load_embedding_model
from lbx.scoring.scores import Rescoring, rescore
from lbx.scoring.similarity import Similarities
from lbx.store import Store
from lbx.store.caches import embedding_models
from lbx.store.opening import require_file
from lbx.store.runs import resolve_runs
from lbx.store.texts import require_texts


class Embedding(NamedTuple):
    """An embedding model's card, a bundle that may contain its weights, and the number of CPU threads."""

    name: str
    bundle: Bundle | None = None
    threads: int | None = None


def score(
    results: str | os.PathLike[str],
    *,
    runs: Sequence[str] = (),
    embedding: str | None = None,
    bundle: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] | None = None,
    workers: int = 0,
    threads: int | None = None,
    listener: Listener | None = None,
) -> int:
    """Score stored outputs again, adding to the old scores; returns the number of scored outputs.

    Args:
        runs: names of runs; empty means all.
        embedding: card of the embedding model that computes half of the score of some tasks' answers.
        bundle: where to look for its weights. Own benchmarks that the file and the bundle have must be the same.
        output: a new results file, with scores by the rules of the bundle's own benchmarks; see ``score_by_bundle``.
        workers: processes; 0 means every core.

    Raises:
        LbxError: a run does not exist, the embedding model cannot be loaded, or the bundle has other rules or
            questions than the file and there is no ``output``.
    """
    path, opened = Path(results), Bundle(Path(bundle)) if bundle is not None else None
    if output is not None:
        return score_by_bundle(
            path, Path(output), opened, runs=runs, embedding=embedding, workers=workers, listener=listener
        ).score_count
    require_file(path)
    with Store(path) as store:
        require_texts(store, "Scoring needs answers and references.")
        runs = resolve_runs(store, runs)
        if opened is not None:
            refuse_new_rules(store, opened)
        model = Embedding(embedding, opened, threads) if embedding else None
        return score_with(store, model, run_ids=runs, workers=workers, listener=listener)


def score_with(
    store: Store, embedding: Embedding | None, *, run_ids: Sequence[str], workers: int, listener: Listener | None = None
) -> int:
    """Score stored outputs of an open results file; see ``score``."""
    listener = listener or Listener()
    progress = listener.counted
    is_stored = embedding is not None and embedding.name in embedding_models(store)
    embedder = load_embedding_model(*embedding) if embedding and not is_stored else None
    stored = embedding.name if embedding and is_stored else None
    try:
        similarities = Similarities(embedder, model=stored, progress=functools.partial(progress, "texts embedded"))
        rescoring = Rescoring(BENCHMARKS, run_ids, similarities, workers)
        return rescore(store, rescoring, functools.partial(progress, "outputs scored"), listener.said)
    finally:
        if embedder:
            embedder.close()
