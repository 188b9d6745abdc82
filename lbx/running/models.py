"""Models and tasks of a run, looked up by name, and the run's prompter: chat template, reasoning switches, limits.

Families with samples that depend on the tokenizer of a run's model get that model without its weights.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lbx.backends import Backend, ModelCard, is_debugging, load, load_embedding_model, resolve_embedder, resolve_model
from lbx.backends.endpoint.options import EndpointEmbeddingOptions, EndpointOptions
from lbx.backends.options import ScriptedOptions
from lbx.backends.serving.command import ServerCommand
from lbx.backends.tokenizer_loading import (
    CountingBackend,
    context_window_of,
    load_tokenizer,
    tokenizer_backend,
    with_small_cache,
)
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BackendError, DoesNotFitError, UsageError
from lbx.base.phases import phases
from lbx.benchmarks.base.benchmark import Benchmark, ModelTokenizer, UnloadedModel
from lbx.benchmarks.registry import BENCHMARKS
from lbx.engine.model import AnsweringBackend
from lbx.engine.prompter import ChatTemplate, Prompter, Tokenizer
from lbx.engine.reasoning import THINK, ReasoningSwitch, Values, find_levels, find_switch
from lbx.engine.wrapping import Wrapper
from lbx.options.asking import ASKING, CARD_TEMPLATE, EFFORTS, MODES
from lbx.options.run_spec import RunSettings
from lbx.options.task_selection import model_families, select_tasks
from lbx.running.retrieving import ChunkFinder, common_retrieval_rules

if TYPE_CHECKING:
    from lbx.base.records import Task
    from lbx.options.run_spec import RunSpec


log = logging.getLogger("lbx")

_MAX_NAMES = 3


def choose_tasks(
    bundle: Bundle, names: Sequence[str], settings: RunSettings, benchmarks: Mapping[str, Benchmark]
) -> list[Task]:
    """Choose the tasks of a run by names and patterns.

    Args:
        benchmarks: benchmarks of the run.

    Raises:
        UsageError: a name is unknown, or a task's benchmark does not support the prompting mode.
    """
    tasks = select_tasks(bundle, list(names), benchmarks)
    for mode in MODES:
        if getattr(settings, mode) == ASKING[mode].default:
            continue
        without = [task.full_name for task in tasks if mode not in benchmarks[task.benchmark].protocol.modes]
        if without:
            more = f" and {len(without) - _MAX_NAMES} more" if len(without) > _MAX_NAMES else ""
            knowing = [name for name, benchmark in benchmarks.items() if mode in benchmark.protocol.modes]
            option = ASKING[mode].names[0].rpartition("/")[2]  # "--no-..." for options that are on by default
            raise UsageError(
                f"{option} does not apply to {', '.join(without[:_MAX_NAMES])}{more}.",
                fix=f"It applies to {' and '.join(knowing)}: pass only their tasks, or remove the option.",
            )
    for task in tasks:
        benchmarks[task.benchmark].protocol.check_mode(task.name, settings.mode(context_window=0))
    return tasks


def server_address(card: ModelCard) -> tuple[str, int] | None:
    """Host and port of a card's model server, the only address that a run may reach, or None for a local model."""
    options = card.options
    if isinstance(options, EndpointEmbeddingOptions):
        options = options.connection
    return options.address if isinstance(options, EndpointOptions) else None


def embedding_servers(spec: RunSpec, bundle: Bundle) -> list[tuple[str, int] | None]:
    """Addresses of the servers of a run's embedding models, each None for a local model.

    Raises:
        UsageError: the model that ranks chunks does not exist.
    """
    servers = [server_address(resolve_embedder(spec.retriever, bundle=bundle))] if spec.has_embedding_retriever else []
    if spec.embedding is not None:
        with contextlib.suppress(UsageError):  # the name of vectors already in the results file
            servers.append(server_address(resolve_embedder(spec.embedding, bundle=bundle)))
    return servers


def resolve_card(spec: RunSpec, bundle: Bundle) -> ModelCard:
    """Resolve the card of a run's model. The card contains no url if the run starts the model's server.

    Raises:
        UsageError: the model does not exist, or --serve does not apply to it.
    """
    card = resolve_model(
        spec.model, backend=spec.backend, bundle=bundle, threads=spec.threads, context_window=spec.context_window
    )
    if spec.serve is None:
        return card
    if not isinstance(card.options, EndpointOptions):
        raise UsageError(
            f"--serve starts a model server, but {card.name} runs with the backend {card.backend}.",
            fix='Pass a card with backend = "endpoint" (docs/models.md), or remove --serve.',
        )
    command = ServerCommand.parse(spec.serve)
    if card.options.url.rstrip("/") not in ("", command.url(command.port) if command.port else ""):
        raise UsageError(
            f"The card {card.name} has the url {card.options.url}, but --serve starts another server.",
            fix="Remove url from the card, or remove --serve to use the server that already runs.",
        )
    return with_url(card, "")


def with_url(card: ModelCard, url: str) -> ModelCard:
    """Copy of a served model's card with another url."""
    return replace(card, options=replace(card.options_as(EndpointOptions), url=url))


@phases.measure("load model")
def load_model(card: ModelCard, bundle: Bundle | None) -> Backend:
    loaded = load(card, bundle=bundle, debug=is_debugging())
    for text in loaded.info.notes:
        log.info(text)
    return loaded


def load_to_count(card: ModelCard, bundle: Bundle) -> Backend:
    """Load a model only to count tokens, with a small cache if the full cache does not fit.

    A folder with a tokenizer but no weights suffices.

    Raises:
        DoesNotFitError: the weights do not fit either.
    """
    if backend := tokenizer_backend(card, bundle, debug=is_debugging()):
        return backend
    return CountingBackend(load_model(with_small_cache(card), bundle), card)


def load_to_forecast(card: ModelCard, bundle: Bundle) -> tuple[Backend, bool]:
    """Load a model, and tell whether to measure the speed: not if there is only memory for counting tokens.

    Raises:
        BackendError: the model cannot be loaded at all.
    """
    if isinstance(card.options, EndpointOptions) and not card.options.url:
        log.info("The server is started only for a run: lbx counts the prompts, and does not measure its speed.")
        return load_to_count(card, bundle), False
    try:
        return load_model(card, bundle), True
    except DoesNotFitError as error:
        backend = load_to_count(card, bundle)
        log.info(f"{error} lbx still counts its tokens.")
        return backend, False


def make_finder(spec: RunSpec, bundle: Bundle, tasks: Sequence[Task]) -> ChunkFinder | None:
    """Make the finder of chunks, or None if the run reads whole documents.

    Raises:
        UsageError: the authors of the tasks retrieve in different ways, or not in the requested way.
        BundleError, BackendError: the bundle lacks a required file, or a library or model is missing.
    """
    if not spec.rag:
        return None
    rules = common_retrieval_rules([BENCHMARKS[task.benchmark] for task in tasks], spec)
    embedder = load_embedding_model(spec.retriever, bundle, spec.threads) if spec.has_embedding_retriever else None
    try:
        return ChunkFinder(bundle, spec, embedder, rules)
    except BaseException:
        if embedder:
            embedder.close()
        raise


def has_reasoning_block(card: ModelCard, backend: Backend) -> bool:
    """Whether the model reasons in a separate block: the template reads a reasoning switch, or the tags are known."""
    source = card.chat.choose_template(backend.tokenizer.chat_template) or ""
    if _has_known_tags(card, backend.tokenizer, source):
        return True
    template = ChatTemplate(source, kwargs=card.chat.kwargs)
    switch = find_switch(template, backend.tokenizer.reasoning_marks, EFFORTS)
    return switch != ReasoningSwitch(None, None) or bool(find_levels(template, EFFORTS))


def _has_known_tags(card: ModelCard, tokenizer: Tokenizer, source: str) -> bool:
    tags = tokenizer.reasoning_marks
    if card.chat.reasoning is not None or tags != THINK:
        return True
    return any(tag in source for tag in THINK[:2]) or len(tokenizer.encode(THINK.close, special=True)) == 1


def make_prompter(card: ModelCard, backend: Backend, settings: RunSettings) -> Prompter:
    """Make the prompter for a model and a run's settings, and log settings that do not reach the model.

    Raises:
        UsageError: the template does not support the requested reasoning effort, or ``settings.template`` cannot be
            applied.
    """
    window = backend.info.context_window
    return Prompter(
        backend.tokenizer,
        context_window=window,
        template=_template(card, backend, settings),
        max_prompt_tokens=settings.max_prompt_tokens,
        max_new_tokens=settings.max_new_tokens,
        thinking_tokens=settings.reasoning_budget(window),
        stop=card.stop,
        sends_system=backend.takes_system if isinstance(backend, AnsweringBackend) else None,
        sends_turns=backend.info.wraps_prompts,
    )


def _template(card: ModelCard, backend: Backend, settings: RunSettings) -> ChatTemplate | None:
    """Make the model's chat template, or None if prompts go to the model unchanged or a server applies the template."""
    tokenizer, chat = backend.tokenizer, card.chat
    if backend.info.wraps_prompts:
        if settings.template not in ("", CARD_TEMPLATE):
            raise UsageError(
                f"--prompt-template {settings.template} cannot be used with {card.name}: its server puts every prompt "
                "into the model's own chat template.",
                fix='Pass --prompt-template card, or set api = "completions" in the card if the server supports it.',
            )
        _report_ignored_options(
            settings,
            "its server applies the chat template",
            "Set variables of the server's chat template in the card: kwargs under [chat].",
        )
        return None
    source = chat.choose_template(tokenizer.chat_template) if settings.chat else None
    if settings.chat and chat.enabled and not source and tokenizer.template_names:
        raise UsageError(
            f"{card.name} has no default chat template, only named ones: {', '.join(tokenizer.template_names)}.",
            fix="Save the template to use to a file, and name the file in a model card (template_file under [chat]). "
            "To send prompts without a template, pass --no-chat.",
        )
    if settings.template == CARD_TEMPLATE and not source:
        raise UsageError(
            f"--prompt-template card needs the model's chat template, but {card.name} has none.",
            fix="Set its template in a card (template_file under [chat]), or remove the option.",
        )
    if not source:
        if settings.chat and chat.enabled and not isinstance(card.options, ScriptedOptions):
            log.warning(
                f"{card.name} has no chat template: its prompts are sent without one, as to a base model. If it was "
                "trained to chat, set its template in a card (template_file under [chat]). To confirm that it needs "
                "no template, pass --no-chat."
            )
        _report_ignored_options(
            settings, "its prompts have no chat template", "Without the option the model behaves as trained."
        )
        return None

    ends = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    template = ChatTemplate(source, **ends, kwargs=chat.kwargs)
    switch = find_switch(template, tokenizer.reasoning_marks, EFFORTS)
    levels = find_levels(template.with_variables(switch.on_values or {}), EFFORTS)
    can_reason = switch.on_values is not None or levels
    if settings.thinking is not False and not _has_known_tags(card, tokenizer, source) and can_reason:
        log.warning(
            f"The chat template of {card.name} can enable reasoning, but lbx found no reasoning tags in it. Reasoning "
            "between tags other than <think> and </think> is scored as part of the answer. Set the tags in the card: "
            'reasoning = ["OPENING", "CLOSING"] under [chat].'
        )
    values = _switch_values(switch, levels, chat.kwargs, settings)
    given = {**chat.kwargs, **values}
    return template.with_variables({**values, **_effort_values(levels, switch, given, settings)})


def _report_ignored_options(settings: RunSettings, reason: str, fix: str) -> None:
    if settings.reasoning_effort:
        raise UsageError(f"{_effort_option(settings)} does not reach the model: {reason}.", fix=fix)
    if settings.thinks or settings.thinking is False:
        log.info(f"{_thinking_option(settings)} does not reach the model: {reason}. {fix}")


def _thinking_option(settings: RunSettings) -> str:
    return f"--{'' if settings.thinks else 'no-'}thinking"


def _effort_option(settings: RunSettings) -> str:
    return f"--reasoning-effort {settings.reasoning_effort}"


def _switch_values(
    switch: ReasoningSwitch,
    levels: Mapping[str, Sequence[str]],
    template_values: Mapping[str, Any],
    settings: RunSettings,
) -> Values:
    """Template values that set the reasoning switch by the settings. Logs a message if the template reads none."""
    if settings.thinking is None and not settings.thinks:
        if (
            switch.on_values is not None
            and switch.off_values is not None
            and not template_values.keys() & {*switch.on_values, *switch.off_values}
        ):
            log.info(
                "This model can reason before it answers, and its chat template sets the default. "
                "Pass --thinking or --no-thinking to choose."
            )
        return {}
    values = switch.on_values if settings.thinks else switch.off_values
    if values is None and levels:
        if not settings.thinks:
            log.warning(
                "The model's chat template cannot disable reasoning (--no-thinking): it only sets the effort, and "
                "models like gpt-oss always reason. Pass the least effort, --reasoning-effort low, instead."
            )
        return {}
    if values is None:
        log.info(
            f"The model's chat template has no switch for {_thinking_option(settings)}: the model behaves as trained, "
            "and reports label the run by its answers."
        )
        return {}
    if settings_text := {name: value for name, value in values.items() if not isinstance(value, bool)}:
        words = ", ".join(f"{name} = {value!r}" for name, value in settings_text.items())
        log.info(f"{_thinking_option(settings)} sets {words} in the model's chat template.")
    return values


def _effort_values(
    levels: Mapping[str, Sequence[str]],
    switch: ReasoningSwitch,
    template_values: Mapping[str, Any],
    settings: RunSettings,
) -> Values:
    """Template values that set the reasoning effort.

    Raises:
        UsageError: the template contains no such variable, or treats this level like any other word.
    """
    if settings.reasoning_effort and not levels:
        raise UsageError(
            f"The model's chat template does not support reasoning_effort: {_effort_option(settings)} has no effect.",
            fix="Remove the option: the model behaves as trained."
            if switch.on_values is None
            else "Pass --thinking or --no-thinking, which it supports.",
        )
    supported_levels = [level for level in EFFORTS if any(level in some for some in levels.values())]
    if not settings.reasoning_effort:
        if supported_levels and settings.thinking is not False and not template_values.keys() & levels.keys():
            log.info(
                "This model's chat template sets the reasoning effort. "
                f"Pass --reasoning-effort {' or '.join(supported_levels)} to choose."
            )
        return {}
    if settings.reasoning_effort not in supported_levels:
        raise UsageError(
            f"The model's chat template does not support {_effort_option(settings)}. It supports "
            f"{' and '.join(supported_levels) or 'none of the levels of lbx'}.",
            fix=f'Set other levels in the model card: kwargs = {{ {next(iter(levels))} = "..." }} under [chat].',
        )
    return {name: settings.reasoning_effort for name, some in levels.items() if settings.reasoning_effort in some}


def bind_families(
    bundle: Bundle, names: Sequence[str], settings: RunSettings, find_card: Callable[[], ModelCard]
) -> list[Benchmark]:
    """Bind the families among ``names`` with samples that depend on the model to the model.

    Args:
        names: names for ``--tasks``.
        find_card: called only if there are such families.

    Raises:
        UsageError: the model does not exist, or a family has no samples for it.
        BackendError: the model's files are missing or damaged.
    """
    families = model_families(bundle, names)
    if not families:
        return []
    card = find_card()
    model = UnloadedModel(context_window_of(card, bundle), functools.partial(load_model_tokenizer, card, bundle))
    window = model.context_window or 0
    mode = replace(settings.mode(window), thinking_tokens=settings.reasoning_budget(window))
    return [family.for_model(model, mode) for family in families]


def load_model_tokenizer(card: ModelCard, bundle: Bundle) -> ModelTokenizer:
    """Load a model's tokenizer, and count the tokens that the chat template adds. Raises like ``load_tokenizer``."""
    tokenizer, sha256, count = load_tokenizer(card, bundle, debug=is_debugging())
    if not tokenizer.chat_template:
        wrapping_tokens = 0
    else:
        ends = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
        try:
            template = ChatTemplate(tokenizer.chat_template, **ends, kwargs=card.chat.kwargs)
            switch = find_switch(template, tokenizer.reasoning_marks, EFFORTS)
            # Runs with and without reasoning share the samples, so they must fit in both.
            wrappers = [
                Wrapper(tokenizer, template.with_variables(values or {}))
                for values in ({}, switch.on_values, switch.off_values)
            ]
            wrapping_tokens = max(len(wrapper.encode(wrapper.wrap("", chat=True))) for wrapper in wrappers)
        except BackendError:  # raised again by each prompt in this template; bare prompts do not need it
            wrapping_tokens = 0
    return ModelTokenizer(tokenizer, sha256, wrapping_tokens, count)
