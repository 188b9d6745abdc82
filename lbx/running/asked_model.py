"""The model that a run asks, for families with samples that depend on its tokenizer; its weights are not loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

from lbx.backends import ModelCard
from lbx.backends.tokenizer_loading import context_window_of, load_tokenizer
from lbx.base.errors import BackendError
from lbx.base.layout import Bundle
from lbx.base.run_options import EFFORTS
from lbx.benchmarks.base.benchmark import AskedModel, Benchmark, ModelTokenizer
from lbx.benchmarks.registry import model_families
from lbx.prompting.prompter import ChatTemplate, Tokenizer
from lbx.prompting.reasoning import find_switch
from lbx.prompting.wrapping import Wrapper
from lbx.running.models import debugging
from lbx.spec.settings import RunSettings


def bind_families(
    bundle: Bundle, names: Sequence[str], settings: RunSettings, find_card: Callable[[], ModelCard]
) -> list[Benchmark]:
    """Return the families among the named ones that need the model, with samples for it.

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
    model = AskedModel(context_window_of(card, bundle), functools.partial(load_model_tokenizer, card, bundle))
    window = model.context_window or 0
    mode = replace(settings.mode(window), thinking_tokens=settings.reasoning_budget(window))
    return [family.for_model(model, mode) for family in families]


def load_model_tokenizer(card: ModelCard, bundle: Bundle) -> ModelTokenizer:
    """Load a model's tokenizer, and count the tokens of its chat template; raises like ``load_tokenizer``."""
    tokenizer, sha256, count = load_tokenizer(card, bundle, debug=debugging())
    return ModelTokenizer(tokenizer, sha256, _wrapping_tokens(card, tokenizer), count)


def _wrapping_tokens(card: ModelCard, tokenizer: Tokenizer) -> int:
    if not tokenizer.chat_template:
        return 0
    ends = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    try:
        template = ChatTemplate(tokenizer.chat_template, **ends, kwargs=card.chat.kwargs)
        switch = find_switch(template, tokenizer.reasoning_marks, EFFORTS)
        # Runs with and without reasoning share the samples, so they must fit in both.
        wrappers = [Wrapper(tokenizer, template.with_variables(values or {})) for values in ({}, switch.on, switch.off)]
        return max(len(wrapper.encode(wrapper.wrap("", chat=True))) for wrapper in wrappers)
    except BackendError:  # raised again by each prompt in this template; bare prompts do not need it
        return 0
