"""Generator of variable tracking (vt): chains of assignments between lines of noise, after an example."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from lbx.benchmarks.ruler.generator import (
    Candidate,
    CountTokens,
    Generator,
    SampleBudget,
    UnusableDrawError,
    join_lines,
)
from lbx.benchmarks.ruler.tasks import TaskTexts

_NAMES = 5
"""Number of variables in a chain, which makes four hops."""
_EXAMPLE_TOKENS = 500
_EXAMPLE_STEP = 5
_EXAMPLE_VALUE = "12345"
_HEAD_CHARACTERS = 20
"""Number of characters at the start of the task's template that locate it. The example is inserted before them."""


class _Draws:
    """Random state that the example and the samples share."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - the authors' draws
        self._numbers = np.random.RandomState(seed)

    def name(self, letters: int) -> str:
        return "".join(self.random.choices(string.ascii_uppercase, k=letters))

    def value(self) -> str:
        return str(self._numbers.randint(10000, 99999))

    def names(self, letters: int) -> list[str]:
        names = [self.name(letters) for _ in range(_NAMES)]
        while len(set(names)) < _NAMES:
            names.append(self.name(letters))
        return names


class _ChainTexts(Generator):
    def __init__(self, draws: _Draws, noise: str, template: str, budget: SampleBudget, *, joins_lines: bool) -> None:
        self.budget = budget
        self._draws = draws
        self._noise = noise
        self._template = template
        self._joins_lines = joins_lines

    def _hide_chain(self, names: list[str], value: str, size: int) -> str:
        links = (f"VAR {name} = VAR {before} " for before, name in pairwise(names))
        lines = [self._noise] * size
        positions = sorted(self._draws.random.sample(range(size), _NAMES))
        for count, (position, link) in enumerate(zip(positions, [f"VAR {names[0]} = {value}", *links], strict=True)):
            lines.insert(position + count, link)
        context = "\n".join(lines).replace(". \n", ".\n")
        return self._template.format(context=context, query=value, num_v=_NAMES)

    def _shape(self, text: str) -> str:
        return join_lines(text) if self._joins_lines else text


class _Example(_ChainTexts):
    def draw(self, size: int, number: int) -> Candidate:
        text, names = self._draw_chain(size)
        return Candidate(self._shape(text), tuple(names), _EXAMPLE_VALUE)

    def draw_in_search(self, size: int) -> str:
        return self._draw_chain(size)[0]

    def _draw_chain(self, size: int) -> tuple[str, list[str]]:
        names = self._draws.names(3)
        if len(names) > _NAMES:
            raise UnusableDrawError("two variables have the same name")
        return self._hide_chain(names, _EXAMPLE_VALUE, size), names


class Chains(_ChainTexts):
    """Generator of variable tracking (vt).

    Args:
        noise: line of the haystack.
        template: template of the samples, with the model's template.
        texts: texts of the task, for the example.
        template_tokens: tokens left free for a model's template.
    """

    def __init__(
        self, noise: str, template: str, texts: TaskTexts, budget: SampleBudget, seed: int, *, template_tokens: int,
        joins_lines: bool,
    ) -> None:  # fmt: skip
        draws = _Draws(seed)
        super().__init__(draws, noise, template, budget, joins_lines=joins_lines)
        advice = f"Leave the task out: at every length its example must fit into {_EXAMPLE_TOKENS} tokens."
        limit = _EXAMPLE_TOKENS - template_tokens
        example_budget = replace(budget, limit=limit, answer=0, step=_EXAMPLE_STEP, advice=advice)
        own_template = texts.template + texts.answer_prefix
        self._example_texts = _Example(draws, noise, own_template, example_budget, joins_lines=joins_lines)
        self._head = texts.template[:_HEAD_CHARACTERS]
        self._example = ""

    def samples(self, count: CountTokens) -> Iterator[Candidate]:
        example = next(self._example_texts.samples(count))
        self._example = f"{example.text} {' '.join(example.outputs)}\n"
        return super().samples(count)

    def find_size(self, count: CountTokens, extra: int = 0) -> int:
        return super().find_size(count, count(self._example))

    def draw(self, size: int, number: int) -> Candidate:
        text, names, value = self._draw_chain(size)
        at = text.find(self._head)
        if at < 0:
            raise UnusableDrawError("the sample does not contain the beginning of the template")
        text = f"{text[:at]}{self._draw_example()}\n{text[at:]}"
        return Candidate(self._shape(text), tuple(names), value)

    def draw_in_search(self, size: int) -> str:
        return self._draw_chain(size)[0]

    def _draw_chain(self, size: int) -> tuple[str, list[str], str]:
        names = self._draws.names(5)
        values = [self._draws.value() for _ in range(0, len(names), _NAMES)]
        if len(names) > _NAMES:
            raise UnusableDrawError("two variables have the same name")
        return self._hide_chain(names, values[0], size), names, values[0]

    def _draw_example(self) -> str:
        """Draw new names and a new value for the example."""
        text = self._example
        for name in text.strip().split()[-_NAMES:]:
            text = text.replace(name, self._draws.name(len(name)))
        return text.replace(_EXAMPLE_VALUE, self._draws.value())
