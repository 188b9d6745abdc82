"""What ``lbx plan`` and ``lbx run`` do before the first sample: bundle, tasks, retrieval, model, settings."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lbx.cli.output import note
from lbx.errors import UsageError

if TYPE_CHECKING:
    from lbx.backends import Backend, ModelCard
    from lbx.backends.embedding import Embedder
    from lbx.benchmarks.base import Benchmark
    from lbx.engine.retrieving import Finder
    from lbx.engine.selection import Selection
    from lbx.engine.settings import RunSettings
    from lbx.engine.work import Work
    from lbx.layout import Bundle
    from lbx.prompts import ChatTemplate
    from lbx.records import Chunk, Sample, Task
    from lbx.store import RunRow

BM25 = "bm25"

_SWITCHES = ("enable_thinking", "thinking")
"""What chat templates call the switch between reasoning first and answering at once."""


def choose_tasks(bundle: Bundle, names: Sequence[str], settings: RunSettings) -> list[Task]:
    """The tasks that ``--tasks`` means.

    Raises:
        UsageError: a name is unknown, or a task's benchmark does not know the way to ask.
    """
    from lbx.benchmarks import BENCHMARKS, select

    tasks = select(bundle, [part.strip() for name in names for part in name.split(",") if part.strip()])
    for mode, option in (("cot", "--cot"), ("no_context", "--no-context"), ("rag", "--rag")):
        if not getattr(settings, mode):
            continue
        without = [task.full_name for task in tasks if mode not in BENCHMARKS[task.benchmark].modes]
        if without:
            more = f" and {len(without) - 3} more" if len(without) > 3 else ""
            knowing = [name for name, benchmark in BENCHMARKS.items() if mode in benchmark.modes]
            raise UsageError(
                f"{option} means nothing to {', '.join(without[:3])}{more}.",
                fix=f"It belongs to {' and '.join(knowing)}: name only their tasks, or leave it out.",
            )
    for task in tasks:
        BENCHMARKS[task.benchmark].check_mode(task.name, settings.mode(context_window=0))
    return tasks


@dataclasses.dataclass(frozen=True, slots=True)
class Loaded:
    """A model beside what it is asked."""

    bundle: Bundle
    tasks: list[Task]
    card: ModelCard
    backend: Backend


class Retrieval(NamedTuple):
    """What --rag, --retriever, --chunk-words and --threads say."""

    best: int
    retriever: str
    words: int | None
    threads: int | None = None


def finder_for(retrieval: Retrieval, bundle: Bundle) -> Finder | None:
    """What finds chunks, where --rag asks for any.

    Raises:
        UsageError: an option says how to find chunks, and none are asked for.
    """
    from lbx.engine.retrieving import Finder

    if not retrieval.best:
        for option, given in (("--retriever", retrieval.retriever != BM25), ("--chunk-words", retrieval.words)):
            if given:
                raise UsageError(
                    f"{option} says how chunks are found, and without --rag none are asked for.",
                    fix="Say how many stand in place of the document (--rag N), or leave it out.",
                )
        return None
    by_bm25 = retrieval.retriever == BM25
    embedder = None if by_bm25 else load_embedding_model(retrieval.retriever, bundle, retrieval.threads)
    return Finder(retrieval.best, embedder, retrieval.words)


def model_server(bundle: Bundle, model: str, backend: str | None, threads: int | None) -> tuple[str, int] | None:
    """Host and port of the server that runs the model, all that a run may reach; None where the model runs here."""
    from lbx.backends import resolve_model
    from lbx.backends.options import EndpointOptions

    options = resolve_model(model, backend=backend, bundle=bundle, threads=threads).options
    return options.address if isinstance(options, EndpointOptions) else None


def load_model(
    bundle: Bundle, tasks: list[Task], model: str, backend: str | None, threads: int | None = None
) -> Loaded:
    """Load the model that ``--model`` names."""
    from lbx.backends import load, resolve_model

    card = resolve_model(model, backend=backend, bundle=bundle, threads=threads)
    loaded = load(card, bundle=bundle, debug=debugging())
    say_notes(loaded)
    return Loaded(bundle, tasks, card, loaded)


def say_notes(backend: Backend) -> None:
    """What is worth knowing about how a model is computed here."""
    for text in backend.info.notes:
        note(text)


def load_to_count(
    bundle: Bundle, tasks: list[Task], model: str, backend: str | None, threads: int | None = None
) -> Loaded:
    """Load a model whose cache does not fit with a small one: enough to count tokens as for the large one.

    Raises:
        DoesNotFitError: its weights do not fit either.
    """
    from lbx.backends import load, resolve_model
    from lbx.backends.counting import CountingBackend, with_small_cache

    card = resolve_model(model, backend=backend, bundle=bundle, threads=threads)
    loaded = load(with_small_cache(card), bundle=bundle, debug=debugging())
    say_notes(loaded)
    return Loaded(bundle, tasks, card, CountingBackend(loaded, card))


def load_embedding_model(name: str, bundle: Bundle | None, threads: int | None = None) -> Embedder:
    """Load the embedding model whose card is named."""
    from lbx.backends.embedding import load_embedder
    from lbx.backends.weights import resolve_embedder

    return load_embedder(resolve_embedder(name, bundle=bundle, threads=threads), bundle=bundle, debug=debugging())


def check_embedding(name: str, bundle: Bundle, tasks: Sequence[Task], output: Path) -> None:
    """Refuse now an ``--embedding`` that would fail after hours of answers.

    Raises:
        UsageError: no task needs one, or it names no embedding model.
        BackendError: its weights or its library are missing.
    """
    from lbx.backends.embedding import check_embedder
    from lbx.backends.weights import resolve_embedder
    from lbx.store import Store
    from lbx.store.caches import embedding_models

    if not any("similarity" in task.metrics for task in tasks):
        raise UsageError(
            "--embedding means nothing to these tasks: it is the half of the summary metric of longbench_pro's t4.",
            fix="Add 'longbench_pro/t4.*' to --tasks, or leave it out. Chunks are found by --retriever.",
        )
    if output.is_file() and output.stat().st_size:
        with Store(output) as store:
            if name in embedding_models(store):
                return
    check_embedder(resolve_embedder(name, bundle=bundle), bundle)


def debugging() -> bool:
    return bool(os.environ.get("LBX_DEBUG"))


def check_reasoning_budget(loaded: Loaded, settings: RunSettings) -> None:
    """Raise UsageError where reasoning would take the whole context window, and every sample fail."""
    info = loaded.backend.info
    if (budget := settings.reasoning_budget(info.context_window)) >= info.context_window:
        raise UsageError(
            f"--thinking-tokens {budget} leaves no room for a prompt: the context window of {info.model} has "
            f"{info.context_window} tokens.",
            fix="Give reasoning less.",
        )


def make_work(
    loaded: Loaded,
    settings: RunSettings,
    selection: Selection,
    chunks: Callable[[Benchmark, Sample], Sequence[Chunk]] | None = None,
) -> Work:
    """Everything but the run's name, which needs the settings first."""
    from lbx.benchmarks import BENCHMARKS
    from lbx.engine.work import Work, nothing_retrieved
    from lbx.prompts import Prompter

    info = loaded.backend.info
    if settings.max_prompt_tokens and info.settings.get("tokenizer", "") is None:
        raise UsageError(
            f"--max-prompt-tokens cuts prompts, and the card of {info.model} has no tokenizer to count them with.",
            fix="Add [tokenizer] to its card, or leave it out: the server refuses what does not fit.",
        )
    prompter = Prompter(
        loaded.backend.tokenizer,
        context_window=info.context_window,
        template=_template(loaded, settings),
        max_prompt_tokens=settings.max_prompt_tokens,
        max_new_tokens=settings.max_new_tokens,
        thinking_tokens=settings.reasoning_budget(info.context_window),
    )
    return Work(
        run_id="",
        bundle=loaded.bundle,
        tasks=loaded.tasks,
        benchmarks=BENCHMARKS,
        backend=loaded.backend,
        prompter=prompter,
        settings=settings,
        selection=selection,
        mode=dataclasses.replace(
            settings.mode(info.context_window), reasoning_block=settings.thinks and _has_reasoning_block(loaded)
        ),
        chunks=chunks or nothing_retrieved,
    )


def _has_reasoning_block(loaded: Loaded) -> bool:
    """Whether the model reasons in a block of its own: its template has a switch for it, or it knows the marks."""
    from lbx.prompts import knows_switch

    tokenizer = loaded.backend.tokenizer
    source = loaded.card.chat.choose(tokenizer.chat_template) or ""
    close = tokenizer.reasoning_marks.close
    return (
        any(knows_switch(source, name) for name in _SWITCHES)
        or close in source
        or len(tokenizer.encode(close, special=True)) == 1
    )


def _template(loaded: Loaded, settings: RunSettings) -> ChatTemplate | None:
    from lbx.prompts import ChatTemplate

    tokenizer, chat = loaded.backend.tokenizer, loaded.card.chat
    if loaded.backend.info.settings.get("api") == "chat":
        if settings.thinks or settings.thinking is False:
            note(
                f"--{'' if settings.thinks else 'no-'}thinking does not reach the model: its server wraps prompts. "
                "Variables of the server's chat template go into the card: kwargs under [chat]."
            )
        return None
    source = chat.choose(tokenizer.chat_template) if settings.chat else None
    if not source:
        if settings.thinks or settings.thinking is False:
            note(
                f"--{'' if settings.thinks else 'no-'}thinking does not reach the model: prompts go to it without a "
                "chat template. It does as it was trained."
            )
        return None
    kwargs = {**chat.kwargs, **_thinking_switch(source, chat.kwargs, settings)}
    return ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token, kwargs=kwargs)


def _thinking_switch(source: str, given: Any, settings: RunSettings) -> dict[str, bool]:
    """The template's switch as the command line wants it; says so where that cannot work."""
    from lbx.prompts import knows_switch

    known = [name for name in _SWITCHES if knows_switch(source, name)]
    if settings.thinking is None and not settings.thinks:
        if known and not any(name in given for name in known):
            note(
                "This model can reason before it answers, and its chat template decides whether it does: "
                "say --thinking or --no-thinking."
            )
        return {}
    if not known:
        note(
            f"The model's chat template knows no switch for --{'' if settings.thinks else 'no-'}thinking: "
            "the model does as it was trained."
        )
    return dict.fromkeys(known, settings.thinks)


def make_run_row(name: str | None, work: Work, offline: str, checked: str = "") -> RunRow:
    """The run's row. Tasks and samples are no part of its identity, so a run can be extended to more of them."""
    from lbx import __version__
    from lbx.records import canonical_json, sha256_text
    from lbx.store import RunRow

    info = work.backend.info
    settings = {**work.settings.to_json(), "context_window": info.context_window}
    if budget := work.settings.reasoning_budget(info.context_window):
        settings["thinking_tokens"] = budget
    settings |= {f"backend.{name}": value for name, value in info.settings.items()}
    if allowed := work.bundle.allowed:  # code or pickles lay beside what was read: every run says so
        settings["bundle.allowed"] = allowed
    digest = work.bundle.digest
    identity = sha256_text(canonical_json([info.model, info.name, digest, settings]))[:8]
    return RunRow(
        run_id=name or f"{info.model}-{info.name}-{identity}",
        model=info.model,
        backend=info.name,
        backend_version=info.version,
        benchmark_versions={b: work.benchmarks[b].metric_version for b in {t.benchmark for t in work.tasks}},
        bundle_digest=digest,
        settings=settings,
        hardware={**info.hardware, "network": offline, **({"bundle_check": checked} if checked else {})},
        lbx_version=__version__,
        task_samples={task.full_name: task.samples for task in work.tasks},
    )


def open_bundle(folder: Path | None) -> Bundle | None:
    """The bundle, where one is named."""
    from lbx.layout import Bundle

    return Bundle(folder) if folder else None
