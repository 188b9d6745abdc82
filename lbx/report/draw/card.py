"""Function that draws the card of a results file: sentences, scores of models with curves by length, and facts.

The card is 1,200 x 630 px, the size of a link's preview, and its texts are large enough to be read at half of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lbx.base.units import format_count
from lbx.report.draw import svg
from lbx.report.draw.charts import Point, short_names

WIDTH, HEIGHT = 1200.0, 630.0
MOST_SENTENCES, MOST_MODELS = 5, 6
_TEXT, _LINE, _EDGE = 20.0, 26.0, 36.0
"""Size of texts, height of a line, and distance from the card's edge, px."""
_LEFT = 650.0
"""Width of the sentences, px."""
_MOST_LINES = 15
"""Maximum number of lines of all sentences."""
_LONGEST_NAME = 300.0
_BOLD = 1.1
"""Width of bold letters, of the width of others."""
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_MARK = "\u200e"
"""Left-to-right mark, which keeps a number after an Arabic name on its right."""


@dataclass(frozen=True, slots=True)
class Span:
    """Span of a sentence.

    Attributes:
        run_id: Run that the text names, or "".
        is_strong: Whether the text is bold.
    """

    text: str
    run_id: str = ""
    is_strong: bool = False


Sentence = Sequence[Span]


@dataclass(frozen=True, slots=True)
class ModelLine:
    """Score of a model on a card, and the curve by length.

    Attributes:
        curve: Scores by length, from the shortest, without unknown ones.
        n_working_lengths: Number of lengths to which the model works.
        reach: Length to which the model works, for readers, or "".
        has_missing: Whether answers are missing from the score.
    """

    name: str
    mark: int
    score: Point
    curve: Sequence[float] = ()
    n_working_lengths: int = 0
    reach: str = ""
    has_missing: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """Texts and scores of a card, the picture that summarises a results file.

    Attributes:
        sentences: Sentence of each benchmark, in versions from the longest to the shortest.
        subject: What the scores of the models are, such as "ruler".
        n_models: Number of models with a score, more than the card shows.
        facts: Facts on answers, bundle and version.
    """

    title: str
    sentences: Sequence[Sequence[Sentence]]
    subject: str
    models: Sequence[ModelLine]
    n_models: int
    facts: Sequence[str]


def draw_card(card: Card) -> str:
    """Draw a card as SVG text."""
    shown = card.sentences[:MOST_SENTENCES]
    parts = [_text(_EDGE, 52, svg.shorten(card.title, WIDTH - 2 * _EDGE, 30), "card-title")]
    most = _MOST_LINES // max(len(shown), 3)
    # All sentences have one form: the longest, or one of the brief ones.
    is_brief = any(len(_lines(versions[0])) > most for versions in shown)
    blocks = []
    for versions in shown:
        usable = versions[1:] if is_brief and len(versions) > 1 else versions
        blocks.append(next((lines for lines in map(_lines, usable) if len(lines) <= most), _lines(usable[-1])))
    more = len(card.sentences) - len(shown)
    if more:
        blocks.append([[(f"and {format_count(more, 'benchmark')} more", "card-quiet")]])
    top, bottom = 92.0, HEIGHT - 78
    free = bottom - top - _LINE * sum(map(len, blocks))
    gap, y = max(min(free / max(len(blocks), 1), 22.0), 4.0), top + _TEXT
    for block in blocks:
        for line in block:
            if y <= bottom:
                parts.append(_row(_EDGE, y, line))
            y += _LINE
        y += gap
    parts += _models(card, _EDGE + _LEFT + 30, top)
    marks = ["* answers missing"] if any(model.has_missing for model in card.models[:MOST_MODELS]) else []
    words = [(f" · {fact}" if at else fact, "card-quiet") for at, fact in enumerate([*marks, *card.facts])]
    facts = _wrap(words, WIDTH - 2 * _EDGE)[:2]
    parts.append(f'<path class="grid" d="{svg.path([(_EDGE, HEIGHT - 66), (WIDTH - _EDGE, HEIGHT - 66)])}"/>')
    parts += [_row(_EDGE, HEIGHT - 38 + at * _LINE * 0.92, line) for at, line in enumerate(facts)]
    return svg.chart(card.title, " ".join(plain_text(versions[0]) for versions in card.sentences), WIDTH, HEIGHT, parts)


def plain_text(sentence: Sentence) -> str:
    """Text of a sentence."""
    return "".join(piece.text for piece in sentence)


_Words = Sequence[tuple[str, str]]
"""Words with their CSS classes. A name is one word."""


def _lines(sentence: Sentence) -> list[_Words]:
    words = []
    for piece in sentence:
        if piece.run_id or piece.is_strong:
            name = svg.shorten(piece.text, _LONGEST_NAME, _TEXT)
            words.append((f"{_MARK}{name}{_MARK}" if _RIGHT_TO_LEFT.search(name) else name, "card-strong"))
        else:
            words += [(word, "") for word in _words(piece.text)]
    return _wrap(words, _LEFT)


def _words(text: str) -> list[str]:
    """Words with the preceding spaces."""
    return re.findall(r"\s*\S+|\s+$", text)


def _wrap(words: _Words, width_px: float) -> list[_Words]:
    lines: list[list[tuple[str, str]]] = [[]]
    width = 0.0
    for word, kind in words:
        wide = svg.text_width(word, _TEXT * (_BOLD if kind == "card-strong" else 1))
        if lines[-1] and width + wide > width_px and word[:1].isspace() | bool(kind == "card-strong"):
            lines.append([])
            width = 0.0
        lines[-1].append((word if lines[-1] else word.lstrip(" ·"), kind))
        width += wide
    return list(lines)


def _row(x: float, y: float, words: _Words) -> str:
    spans = "".join(
        f'<tspan class="{kind}">{_escape(word)}</tspan>' if kind else _escape(word) for word, kind in words if word
    )
    return f'<text class="card-text" x="{svg.px(x)}" y="{svg.px(y)}" xml:space="preserve">{spans}</text>'


def _escape(word: str) -> str:
    bare = word.strip(_MARK)
    return word.replace(bare, svg.escape_text(bare)) if bare else ""


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    name = svg.escape_text(words)
    return f'<text class="{kind}" x="{svg.px(x)}" y="{svg.px(y)}" text-anchor="{anchor}">{name}</text>'


def _models(card: Card, x: float, top: float) -> Iterator[str]:
    """Draw the models' scores with intervals on one scale, and the curves by length."""
    models = card.models[:MOST_MODELS]
    if not models:
        return
    end, has_curves = WIDTH - _EDGE, any(len(model.curve) > 1 for model in models)
    dots_end = end - 180 if has_curves else end - 8
    yield _text(x, top + _TEXT, svg.shorten(f"{card.subject}, percent", dots_end - x, _TEXT), "card-text card-strong")
    if has_curves:
        yield _text(end, top + _TEXT, "works to", "card-text card-quiet", "end")
    values = [end for model in models for end in (model.score.value, model.score.low, model.score.high)]
    scale = svg.axis([svg.number(v) for v in values if svg.is_finite(v)], x + 6, dots_end, most=3)
    bottom = HEIGHT - 112
    tall = min((bottom - top - 38) / len(models), 74.0)
    rows_end = top + 38 + tall * len(models)
    for at, (pixel, words) in enumerate(scale.ticks):
        yield f'<path class="grid" d="{svg.path([(pixel, top + 34), (pixel, rows_end)])}"/>'
        if at in (0, len(scale.ticks) - 1):
            yield _text(pixel, rows_end + 21, words, "card-text card-quiet", "start" if at == 0 else "end")
    if card.n_models > len(models):
        more = f"and {card.n_models - len(models):,} more"
        yield _text((x + dots_end) / 2, rows_end + 21, more, "card-text card-quiet", "middle")
    names = short_names([model.name for model in models], (end - x - 70) / _TEXT * 11)
    for at, (model, name) in enumerate(zip(models, names, strict=True)):
        drawn = _model(model, name, scale, (x, end, dots_end), (top + 38 + tall * at, tall))
        yield f'<g class="c{model.mark % svg.COLOURS}">{drawn}</g>'


def _model(
    model: ModelLine, name: str, scale: svg.Axis, ends: tuple[float, float, float], box: tuple[float, float]
) -> str:
    (x, end, dots_end), (y, tall) = ends, box
    middle = y + tall - 18
    score = "" if model.score.value is None else f"{model.score.value:.1f}{'*' if model.has_missing else ''}"
    body = _text(x, y + 22, name, "card-text") + _text(end, y + 22, score, "card-text card-strong", "end")
    if model.score.has_interval:
        body += svg.whisker(scale(model.score.low), middle, scale(model.score.high), middle)
    tip = svg.escape_text(f"{model.name}: {score}")
    spot = svg.spot(model.mark, 0, 0, tip)
    body += f'<g transform="translate({svg.px(scale(model.score.value))} {svg.px(middle)}) scale(1.7)">{spot}</g>'
    return (
        body
        + _spark(model, dots_end + 24, end - 72, middle - 14, middle + 12)
        + (_text(end, middle + 7, model.reach, "card-text", "end") if model.reach else "")
    )


def _spark(model: ModelLine, x: float, end: float, top: float, bottom: float) -> str:
    """Draw a curve that is solid up to the length to which the model works, and dashed beyond."""
    if len(model.curve) < 2:
        return ""
    step, scale = (end - x) / (len(model.curve) - 1), svg.axis([0.0, max([*model.curve, 1e-9])], bottom, top, most=1)
    points = [(x + step * at, scale(value)) for at, value in enumerate(model.curve)]
    kept, rest = points[: model.n_working_lengths], points[max(model.n_working_lengths - 1, 0) :]
    lines = [f'<path class="line" d="{svg.path(kept)}"/>'] if len(kept) > 1 else []
    lines += [f'<path class="line beyond" d="{svg.path(rest)}"/>'] if len(rest) > 1 else []
    if kept:
        at, y = kept[-1]
        lines.append(f'<path class="whisker" d="{svg.path([(at, y - 9), (at, y + 9)])}"/>')
    return "".join(lines)
