"""What makes a run's prompts: the chat template with its variables for reasoning as the spec wants them, and limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from lbx.backends import Backend, ModelCard
from lbx.backends.options import ScriptedOptions
from lbx.base.errors import BackendError, UsageError
from lbx.inference.model import AnsweringBackend
from lbx.planning.asking import EFFORTS
from lbx.planning.settings import RunSettings
from lbx.prompting.prompter import ChatTemplate, Prompter, knows_switch

log = logging.getLogger("lbx")

_SWITCHES = ("enable_thinking", "thinking")
"""What chat templates call the switch between reasoning first and answering at once."""
_EFFORTS = ("reasoning_effort", "thinking_effort")
"""What they call the variable that says how much to reason."""
_NO_LEVEL = "\ue004"
"""A level that no template knows."""


def has_reasoning_block(card: ModelCard, backend: Backend) -> bool:
    """Whether the model reasons in a block of its own: its template has a variable for it, or it knows the marks."""
    tokenizer = backend.tokenizer
    source = card.chat.choose(tokenizer.chat_template) or ""
    close = tokenizer.reasoning_marks.close
    return (
        any(knows_switch(source, name) for name in (*_SWITCHES, *_EFFORTS))
        or close in source
        or len(tokenizer.encode(close, special=True)) == 1
    )


def make_prompter(card: ModelCard, backend: Backend, settings: RunSettings) -> Prompter:
    """What turns prompts into requests to one model as a run with these settings asks it.

    Says what of the settings does not reach the model.

    Raises:
        UsageError: a reasoning effort is asked for, and the template does not know it.
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
    """None where prompts go to the model as they are, or a server wraps them."""
    tokenizer, chat = backend.tokenizer, card.chat
    if backend.info.wraps_prompts:
        _say_unreached(
            settings,
            "its server wraps prompts",
            "Variables of the server's chat template go into the card: kwargs under [chat].",
        )
        return None
    source = chat.choose(tokenizer.chat_template) if settings.chat else None
    if not source:
        if settings.chat and chat.enabled and not isinstance(card.options, ScriptedOptions):
            log.warning(
                f"{card.name} has no chat template: prompts go to it as they are, as to a base model. If it was "
                "trained to chat, name its template in a card (template_file under [chat]); --no-chat confirms that "
                "none is wanted."
            )
        _say_unreached(
            settings, "prompts go to it without a chat template", "Without the option it behaves as trained."
        )
        return None

    def with_variables(variables: Mapping[str, Any]) -> ChatTemplate:
        ends = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
        return ChatTemplate(source, **ends, kwargs={**chat.kwargs, **variables})

    switch = _thinking_switch(source, chat.kwargs, settings)
    effort = _effort(source, chat.kwargs, settings, lambda level: with_variables({**switch, **level}))
    return with_variables({**switch, **effort})


def _say_unreached(settings: RunSettings, why: str, instead: str) -> None:
    if settings.reasoning_effort:
        raise UsageError(f"{_effort_option(settings)} does not reach the model: {why}.", fix=instead)
    if settings.thinks or settings.thinking is False:
        log.info(f"{_thinking_option(settings)} does not reach the model: {why}. {instead}")


def _thinking_option(settings: RunSettings) -> str:
    return f"--{'' if settings.thinks else 'no-'}thinking"


def _effort_option(settings: RunSettings) -> str:
    return f"--reasoning-effort {settings.reasoning_effort}"


def _thinking_switch(source: str, arguments: Mapping[str, Any], settings: RunSettings) -> dict[str, bool]:
    """The template's switch as the spec wants it; says so where that cannot work."""
    known = [name for name in _SWITCHES if knows_switch(source, name)]
    if settings.thinking is None and not settings.thinks:
        if known and not any(name in arguments for name in known):
            log.info(
                "This model can reason before it answers, and its chat template decides whether it does: "
                "give --thinking or --no-thinking."
            )
        return {}
    if not known and any(knows_switch(source, name) for name in _EFFORTS):
        if not settings.thinks:
            log.warning(
                "The model's chat template has no switch for --no-thinking: it says how much to reason, not whether, "
                "and models like gpt-oss always do. Ask for the least (--reasoning-effort low) in place of "
                "--no-thinking."
            )
    elif not known:
        option = _thinking_option(settings)
        log.info(f"The model's chat template has no switch for {option}: the model behaves as trained.")
    return dict.fromkeys(known, settings.thinks)


def _effort(
    source: str,
    arguments: Mapping[str, Any],
    settings: RunSettings,
    with_level: Callable[[Mapping[str, str]], ChatTemplate],
) -> dict[str, str]:
    """The template's variable for how much to reason, as the spec wants it.

    Raises:
        UsageError: the template has none, or treats this level as any other word.
    """
    names = [name for name in _EFFORTS if knows_switch(source, name)]
    if settings.reasoning_effort and not names:
        switch = any(knows_switch(source, name) for name in _SWITCHES)
        raise UsageError(
            f"The model's chat template does not know {_EFFORTS[0]}: {_effort_option(settings)} would do nothing.",
            fix="It knows --thinking and --no-thinking." if switch else "Remove it: the model behaves as trained.",
        )
    if not names or (not settings.reasoning_effort and settings.thinking is False):
        return {}

    def prompt(level: str) -> str | None:
        try:
            return with_level(dict.fromkeys(names, level)).render("")
        except BackendError:  # it refuses the level by name
            return None

    unknown = prompt(_NO_LEVEL)
    known = [level for level in EFFORTS if prompt(level) not in (None, unknown)]
    if not settings.reasoning_effort:
        if known and not any(name in arguments for name in names):
            log.info(
                f"This model's chat template decides how much it reasons: give --reasoning-effort {' or '.join(known)}."
            )
        return {}
    if settings.reasoning_effort not in known:
        raise UsageError(
            f"The model's chat template does not know {_effort_option(settings)}; it knows "
            f"{' and '.join(known) or 'no level that lbx does'}.",
            fix=f'Levels of its own go into the model card: kwargs = {{ {names[0]} = "..." }} under [chat].',
        )
    return dict.fromkeys(names, settings.reasoning_effort)
