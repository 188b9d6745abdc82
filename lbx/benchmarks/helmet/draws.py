"""HELMET's draws: choice and order of rows, demonstrations and labels.

Source: the load_* functions of data.py. ``Dataset.shuffle(seed)`` of the library ``datasets`` is numpy's
``default_rng(seed).permutation``, and ``random.seed(42)`` precedes each dataset. Demonstrations of a question are drawn
by the SHA-256 of the question's key, so that they are the same at all depths and lengths.

The authors draw the demonstrations of narrativeqa and multi_lexsum from numpy's global state, which differs between
backends. lbx draws by the SHA-256 of the question or of the case instead.
"""

from __future__ import annotations

import hashlib
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from lbx.base.records import EVIDENCE_DEPTH
from lbx.benchmarks.base.data_files import DataRow, damaged_file_error
from lbx.benchmarks.base.sources import RowSource
from lbx.benchmarks.helmet import texts as places
from lbx.benchmarks.helmet.tasks import PROMPTS
from lbx.benchmarks.helmet.texts import Texts, fill
from lbx.benchmarks.retrieval.chunks import ChunkTokenizer

MAX_LABEL = 1000
"""Largest relevance of a ranked passage."""
SEED = 42
_HASH_RANGE = 2**31
_SHORTEST_BOOK, _SHORTEST_STORY = 65536, 131072
"""Tokens of Llama 2, BOS included, of the shortest book or lawsuit, and of a story that is too short."""


class DrawSize(NamedTuple):
    """Size and seed of a draw.

    Attributes:
        items: number of documents or demonstrations in a prompt, or of Llama 2's tokens of its document.
        limit: number of questions, texts or rows.
        shots: number of demonstrations of the answer.
    """

    items: int = 0
    limit: int = 100
    shots: int = 2
    seed: int = SEED


class DrawnRow(NamedTuple):
    """Row of a dataset that is asked.

    Attributes:
        fields: values of the template's other fields.
        meta: data for the score.
        question_id: shared by rows with the same question on other documents, or "" if rows share documents instead.
    """

    row_id: str
    context: str
    question: str
    references: tuple[str, ...]
    fields: Mapping[str, str] = {}
    meta: Mapping[str, Any] = {}
    question_id: str = ""


def _order(count: int, seed: int) -> list[int]:
    order: list[int] = np.random.default_rng(seed).permutation(count).tolist()
    return order


def _hash(text: str) -> int:
    return int(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), 16)


def own_order(key: str, count: int) -> list[int]:
    """Order of the demonstrations' rows, drawn by lbx for a question of narrativeqa or a case of multi_lexsum."""
    return _order(count, (_hash(key) + SEED) % _HASH_RANGE)


def _select(source: RowSource, indices: Sequence[int]) -> list[DataRow]:
    wanted = set(indices)
    rows = {index: row for index, row in enumerate(source.rows()) if index in wanted}
    return [rows[index] for index in indices]


def _shuffle(source: RowSource, size: DrawSize) -> list[DataRow]:
    return _select(source, _order(source.count(), size.seed)[: size.limit])


def _texts_of(row: DataRow, name: str) -> tuple[str, ...]:
    values = row.get(name, list)
    if not values or not all(isinstance(value, str) for value in values):
        raise damaged_file_error(row.location, f"the field {name!r} must be a list of at least one text")
    return tuple(values)


def _parts_of(row: DataRow, name: str) -> list[DataRow]:
    values = row.get(name, list)
    if not all(isinstance(value, dict) for value in values):
        raise damaged_file_error(row.location, f"the field {name!r} must be a list of objects")
    return [DataRow(row.location, value) for value in values]


def is_depth(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def depth_of(row: DataRow) -> dict[str, float]:
    """Return the depth of a row's gold document, if known, for ``Sample.meta``. Raises BundleError."""
    depth = row.values.get("depth")
    if depth is None:
        return {}
    if not is_depth(depth):
        raise damaged_file_error(row.location, "the field 'depth' must be a number")
    return {EVIDENCE_DEPTH: float(depth)}


def depth_id(name: str, meta: Mapping[str, Any]) -> str:
    """Id of a question at the depth in ``Sample.meta``, if any."""
    return f"{name}-{meta[EVIDENCE_DEPTH]:g}" if EVIDENCE_DEPTH in meta else name


def label_of(passage: DataRow) -> int:
    """Relevance of a ranked passage, 0 to 1,000. Raises BundleError."""
    label = passage.get("label", int)
    if not 0 <= label <= MAX_LABEL:
        raise damaged_file_error(passage.location, f"the field 'label' must be a number from 0 to {MAX_LABEL:,}")
    return label


def _first_rows(rows: Sequence[DataRow], key: str, order: Iterable[int], shots: int) -> list[DataRow]:
    """Select the first rows with different keys, in an order of the rows."""
    found: dict[object, DataRow] = {}
    for index in order:
        if len(found) == shots:
            break
        found.setdefault(_question_key(rows[index], key), rows[index])
    if len(found) < shots:
        raise damaged_file_error(rows[0].location if rows else "with demonstrations", f"it has fewer than {shots} keys")
    return list(found.values())


def _question_key(row: DataRow, name: str) -> str | int:
    row.identifier(name)
    key: str | int = row.values[name]
    return key


def json_kv_rows(source: RowSource, texts: Texts, size: DrawSize) -> Iterator[DrawnRow]:
    """Draw rows of the key-value task. Demonstrations are keys of the same object."""
    for row in _shuffle(source, size):
        pairs = row.get("demos", list)[: size.shots]
        if not all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair) for pair in pairs
        ):
            raise damaged_file_error(row.location, "the field 'demos' must be a list of pairs of texts")
        demos = "".join(texts.fill(places.JSON_KV_DEMO, key=key, value=f" {value}") + "\n\n" for key, value in pairs)
        key = row.get("question", str)
        answers = (row.get("answer", str),)
        depth = depth_of(row)
        yield DrawnRow(depth_id(key, depth), row.get("context", str), key, answers, {"demos": demos}, depth, key)


def ruler_rows(source: RowSource, size: DrawSize) -> Iterator[DrawnRow]:
    """Draw rows of a RULER task, which is a haystack and a question."""
    indices = _order(source.count(), size.seed)[: size.limit]
    for index, row in zip(indices, _select(source, indices), strict=True):
        values = row.values
        question = next((str(values[name]) for name in ("query", "question") if values.get(name) is not None), "")
        fields = {
            name: str(values[name]) for name in ("type_needle_v", "query", "num_v") if values.get(name) is not None
        }
        fields["example"] = f"{values['example']}\n\n" if values.get("example") else ""
        answers = _texts_of(row, "answer" if "answer" in values else "outputs")
        yield DrawnRow(f"{index:04d}", row.get("context", str), question, answers, fields)


def kilt_rows(
    source: RowSource, demo_source: RowSource, texts: Texts, size: DrawSize, popularity: float | None = None
) -> Iterator[DrawnRow]:
    """Draw questions with retrieved passages, each with all depths, in the file's order.

    Args:
        popularity: upper bound of log10 of a question's page views. With it, all questions are in one file.
    """
    key, chosen = draw_questions(source, size, popularity)
    demo_rows = list(_popular(demo_source, popularity)) if size.shots else []
    demo_texts: dict[object, str] = {}
    for row in _popular(source, popularity):
        name = _question_key(row, key)
        if name not in chosen:
            continue
        if name not in demo_texts and size.shots:
            rows = [demo for demo in demo_rows if popularity is None or _question_key(demo, key) != name]
            order = _order(len(rows), _hash(str(name)) % _HASH_RANGE)
            demos = (_kilt_demo(demo, texts) for demo in _first_rows(rows, key, order, size.shots))
            demo_texts[name] = "\n\n".join(demos) + "\n\n"
        depth = depth_of(row)
        yield DrawnRow(
            depth_id(str(name), depth),
            _passages(row, texts),
            row.get("question", str),
            _texts_of(row, "answers"),
            {"demos": demo_texts.get(name, "")},
            depth,
            question_id=str(name),
        )


def draw_questions(source: RowSource, size: DrawSize, popularity: float | None) -> tuple[str, dict[Any, int]]:
    """Draw the questions of a file. Returns the field that identifies a question, and {question: number of rows}."""
    rows = _popular(source, popularity)
    first = next(rows, None)
    key = "id" if first and "id" in first.values else "question"
    counts = Counter(_question_key(row, key) for row in chain([first] if first else [], rows))
    return key, _draw(counts, size, source)


def draw_queries(source: RowSource, size: DrawSize) -> dict[Any, int]:
    """Draw the queries of a file: {query's id: number of rows}."""
    return _draw(Counter(row.get("qid", str) for row in source.rows()), size, source)


def _draw(counts: Counter[Any], size: DrawSize, source: RowSource) -> dict[Any, int]:
    try:
        names = sorted(counts)
    except TypeError as exc:
        location = next(source.rows()).location
        raise damaged_file_error(location, "the ids of its rows are partly text, partly numbers") from exc
    chosen = random.Random(size.seed).sample(names, min(size.limit, len(names)))  # noqa: S311 - the authors' draw
    return {name: counts[name] for name in chosen}


def _popular(source: RowSource, popularity: float | None) -> Iterator[DataRow]:
    for row in source.rows():
        if popularity is not None:
            views = row.values.get("s_pop")
            if isinstance(views, bool) or not isinstance(views, int | float) or views <= 0:
                raise damaged_file_error(row.location, "the field 's_pop' must be a number above 0")
            if not math.log10(views) < popularity:  # or NaN
                continue
        yield row


def _passages(row: DataRow, texts: Texts) -> str:
    parts = _parts_of(row, "ctxs")
    return "\n\n".join(
        texts.fill(places.KILT_PASSAGE, title=part.get("title", str), text=part.get("text", str)) for part in parts
    )


def _kilt_demo(row: DataRow, texts: Texts) -> str:
    question, answer = row.get("question", str), _texts_of(row, "answers")[0]
    return texts.fill(places.KILT_DEMO, documents=_passages(row, texts), question=question, answer=answer)


def msmarco_rows(source: RowSource, demo_source: RowSource, texts: Texts, size: DrawSize) -> Iterator[DrawnRow]:
    """Draw queries with passages to rank, each with all depths, in the file's order."""
    chosen = draw_queries(source, size)
    demo_rows = list(demo_source.rows()) if size.shots else []
    removes_all = len(demo_rows) > 2 * sum(chosen.values())
    for row in source.rows():
        name = row.get("qid", str)
        if name not in chosen:
            continue
        passages = _parts_of(row, "ctxs")
        passage = places.RANKED_TITLED if passages and "title" in passages[0].values else places.RANKED_PASSAGE
        excluded = {*chosen} if removes_all else {name}
        rows = [demo for demo in demo_rows if demo.get("qid", str) not in excluded]
        order = _order(len(rows), _hash(name) % _HASH_RANGE)
        demos = _first_rows(rows, "qid", order, size.shots)
        labels = {part.get("id", str): label_of(part) for part in passages}
        depth = depth_of(row)
        yield DrawnRow(
            depth_id(name, depth),
            _ranking_passages(passages, passage, texts),
            row.get("query", str),
            (_ranking(passages),),
            {"demos": "".join(_ranked_demo(demo, passage, texts) for demo in demos)},
            {"labels": {name: label for name, label in labels.items() if label > 0}, **depth},
            name,
        )


def _ranking_passages(passages: Sequence[DataRow], text_key: tuple[str, int], texts: Texts) -> str:
    fields = [
        {name: part.get(name, str) for name in ("id", "title", "text") if name in part.values} for part in passages
    ]
    return "\n\n".join(texts.fill(text_key, **values) for values in fields)


def _ranking(passages: Sequence[DataRow]) -> str:
    ordered = sorted(passages, key=lambda part: part.get("label", int), reverse=True)
    return " > ".join(part.get("id", str) for part in ordered)


def _ranked_demo(row: DataRow, text_key: tuple[str, int], texts: Texts) -> str:
    passages = _parts_of(row, "ctxs")
    ending = texts.fill(places.RANKED_DEMO, row.get("query", str), _ranking(passages))
    return f"{_ranking_passages(passages, text_key, texts)}{ending}\n\n"


@dataclass(frozen=True, slots=True)
class CitedPrompts:
    """ALCE's prompt file: instruction, templates of a demonstration and of a document, and demonstrations."""

    instruction: str
    demo: str
    document: str
    demos: Sequence[DataRow]

    @classmethod
    def parse(cls, row: DataRow) -> CitedPrompts:
        instruction, demo, document = (row.get(name, str) for name in ("instruction", "demo_prompt", "doc_prompt"))
        return cls(instruction, demo, document, _parts_of(row, "demos"))

    def documents(self, row: DataRow, count: int | None = None) -> str:
        """Fill in the documents of a row, numbered from 1."""
        parts = _parts_of(row, "docs")[:count]
        return "\n\n".join(
            self._fill(self.document, {name: part.get(name, str) for name in ("title", "text")} | {"ID": str(number)})
            for number, part in enumerate(parts, 1)
        )

    def demo_text(self, row: DataRow) -> str:
        fields = {name: row.get(name, str) for name in ("question", "answer")}
        return self._fill(self.demo, {**fields, "instruction": self.instruction, "context": self.documents(row)})

    def _fill(self, template: str, values: Mapping[str, str]) -> str:
        return fill(template, values, PROMPTS)


def alce_rows(source: RowSource, prompts: CitedPrompts, size: DrawSize) -> Iterator[DrawnRow]:
    """Draw questions with documents to cite. Demonstrations are drawn for every row, in the file's order."""
    count = sum(1 for _ in source.rows())  # decides the draws; ``count`` of JSON arrays is an estimate for hostile rows
    generator = random.Random(size.seed)  # noqa: S311 - the authors' draws
    drawn = [generator.sample(range(len(prompts.demos)), size.shots) for _ in range(count)]
    indices = _order(count, size.seed)[: size.limit]
    for index, row in zip(indices, _select(source, indices), strict=True):
        demos = "".join(prompts.demo_text(prompts.demos[demo]) + "\n\n\n" for demo in drawn[index])
        if row.values.get("qa_pairs") is not None:
            golds = [_texts_of(pair, "short_answers") for pair in _parts_of(row, "qa_pairs")]
        else:
            golds = [
                _texts_of(DataRow(row.location, {"answers": group}), "answers") for group in row.get("answers", list)
            ]
        yield DrawnRow(
            f"{index:04d}",
            prompts.documents(row, size.items),
            row.get("question", str),
            tuple(dict.fromkeys(gold for group in golds for gold in group)),
            {"demo_text": demos, "instruction": prompts.instruction},
            {"golds": [list(group) for group in golds]},
        )


class LabelledText(NamedTuple):
    """Text with the number of a label."""

    text: str
    label: int


def labelled_texts(source: RowSource, label: str, labels: int) -> list[LabelledText]:
    """Read texts with labels. Raises BundleError if a label is not a number below ``labels``."""
    found = [LabelledText(row.get("text", str), row.get(label, int)) for row in source.rows()]
    if any(not 0 <= row.label < labels for row in found):
        location = next(source.rows()).location
        raise damaged_file_error(location, f"a value of {label!r} is outside of 0 to {labels - 1}")
    return found


def test_share(rows: int) -> int:
    """Number of test rows among training rows that must serve for both, a tenth."""
    return math.ceil(rows / 10)


def split_training_rows(
    rows: Sequence[LabelledText], seed: int = SEED
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Split rows into training and test rows, a tenth for the test, as ``train_test_split`` does."""
    order, test = _order(len(rows), seed), test_share(len(rows))
    return [rows[index] for index in order[test:]], [rows[index] for index in order[:test]]


def icl_rows(
    train: Sequence[LabelledText], test: Sequence[LabelledText], texts: Texts, labels: int, size: DrawSize
) -> Iterator[DrawnRow]:
    """Draw texts to label, each with other balanced demonstrations and other numbers of the labels."""
    if len(test) > size.limit:
        test = _balance([test[index] for index in _order(len(test), size.seed)], size.limit, size.seed)
    for index, row in enumerate(test):
        local_seed = (_hash(row.text) + size.seed) % _HASH_RANGE
        numbers = list(range(labels))
        random.Random(local_seed).shuffle(numbers)  # noqa: S311 - the authors' draw
        context = "\n\n".join(
            texts.fill(places.ICL_ITEM, text=demo.text, label=str(numbers[demo.label]))
            for demo in _balance(train, size.items, local_seed)
        )
        yield DrawnRow(f"{index:04d}", context, row.text, (str(numbers[row.label]),))


def _balance(rows: Sequence[LabelledText], count: int, seed: int) -> list[LabelledText]:
    """Draw rows in rounds of one row for each label, in random order within a round."""
    generator = random.Random(seed)  # noqa: S311 - the authors' draws
    by_label: dict[int, list[LabelledText]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    n_rounds = math.ceil(count / len(by_label)) if by_label else 0
    rounds: list[list[LabelledText]] = [[] for _ in range(n_rounds)]
    for members in by_label.values():
        indices = generator.sample(range(len(members)), n_rounds % len(members))
        while len(indices) < n_rounds:
            indices += generator.sample(range(len(members)), min(n_rounds - len(indices), len(members)))
        for members_of_round, index in zip(rounds, indices, strict=True):
            members_of_round.append(members[index])
    for members_of_round in rounds:
        generator.shuffle(members_of_round)
    return [row for members_of_round in rounds for row in members_of_round][:count]


class BookCutter:
    """Llama 2's tokenizer, by which long documents are selected and cut, the same for every model.

    Args:
        counts: tokens by hash of a text, which tasks may share.
    """

    def __init__(self, tokenizer: ChunkTokenizer, texts: Texts, counts: dict[int, int]) -> None:
        self.texts = texts
        self._tokenizer, self._mark, self._counts = tokenizer, texts[places.CUT_MARK], counts
        self._cuts: dict[tuple[str, int], str] = {}

    def count(self, text: str) -> int:
        """Number of tokens, BOS included."""
        if (name := _hash(text)) not in self._counts:
            self._counts[name] = len(self._tokenizer.token_ends(text)) + 1
        return self._counts[name]

    def shorten(self, text: str, tokens: int) -> str:
        """Shorten a text to about this number of tokens, mark included."""
        if (text, tokens) not in self._cuts:
            ends = [0, *self._tokenizer.token_ends(text)]
            last = tokens - len(self._tokenizer.token_ends(self._mark)) - 1  # both with BOS
            self._cuts[text, tokens] = text[: ends[last]] + self._mark if len(ends) > tokens else text
        return self._cuts[text, tokens]


DrawOrder = Callable[[str, int], Sequence[int]]


def narrativeqa_rows(
    source: RowSource, train: RowSource, cutter: BookCutter, size: DrawSize, demo_order: DrawOrder = own_order
) -> Iterator[DrawnRow]:
    """Draw questions on stories of more than 131,072 tokens."""
    train_count = train.count() if size.shots else 0
    are_long = [cutter.count(_inner(row, "document")) > _SHORTEST_STORY for row in source.rows()]
    indices = [index for index in _order(len(are_long), size.seed) if are_long[index]][: size.limit]
    drawn = list(zip(indices, _select(source, indices), strict=True))
    demos = {index: list(demo_order(_inner(row, "question"), train_count)[: size.shots]) for index, row in drawn}
    wanted = {demo for indices in demos.values() for demo in indices}
    demo_rows = {index: row for index, row in enumerate(train.rows()) if index in wanted} if size.shots else {}
    for index, row in drawn:
        pairs = [(_inner(demo_rows[demo], "question"), _answers(demo_rows[demo])[0]) for demo in demos[index]]
        demo = cutter.texts[places.STORY_START] + "\n\n".join(
            cutter.texts.fill(places.STORY_DEMO, *pair) for pair in pairs
        )
        yield DrawnRow(
            f"{index:05d}",
            cutter.shorten(_inner(row, "document"), size.items),
            _inner(row, "question"),
            _answers(row),
            {"demo": demo + cutter.texts[places.STORY_END] if size.shots else ""},
        )


def _inner(row: DataRow, name: str) -> str:
    return DataRow(row.location, row.get(name, dict)).get("text", str)


def _answers(row: DataRow) -> tuple[str, ...]:
    answers = tuple(part.get("text", str) for part in _parts_of(row, "answers"))
    if not answers:
        raise damaged_file_error(row.location, "the field 'answers' is empty")
    return answers


def multi_lexsum_rows(
    source: RowSource, train: RowSource, cutter: BookCutter, size: DrawSize, demo_order: DrawOrder = own_order
) -> Iterator[DrawnRow]:
    """Draw lawsuits of at least 65,536 tokens with a short summary."""
    summaries = [text for row in train.rows() if (text := row.values.get("summary/short"))] if size.shots else []
    drawn = []
    for index, row in enumerate(source.rows()):
        if row.values.get("summary/short") is None:
            continue
        name = row.identifier("id") if "id" in row.values else f"{index:05d}"
        demos = list(demo_order(name, len(summaries))[: size.shots]) if size.shots else []
        context = "\n\n".join(_texts_of(row, "sources"))
        if cutter.count(context) < _SHORTEST_BOOK:
            continue
        parts = [cutter.texts.fill(places.LAWSUIT_DEMO, str(summaries[demo])) for demo in demos]
        demo_text = (
            cutter.texts[places.LAWSUIT_START] + "\n\n".join(parts) + cutter.texts[places.LAWSUIT_END]
            if size.shots
            else ""
        )
        references = (row.get("summary/short", str),)
        drawn.append(DrawnRow(name, cutter.shorten(context, size.items), "", references, {"demo": demo_text}))
    order = _order(len(drawn), size.seed)[: size.limit] if len(drawn) > size.limit else range(len(drawn))
    yield from (drawn[index] for index in order)


def book_rows(source: RowSource, kind: str, cutter: BookCutter, size: DrawSize) -> Iterator[DrawnRow]:
    """Draw questions on InfiniteBench's books, or summaries. Demonstrations are other rows without the book."""
    shared: dict[str, str] = {}
    rows = [_book_row(row, kind, cutter.texts) for row in source.rows()]
    rows = [row._replace(context=shared.setdefault(row.context, row.context)) for row in rows]
    long = [row for row in rows if cutter.count(row.context) >= _SHORTEST_BOOK]
    for index in _order(len(long), size.seed)[: size.limit]:
        row = long[index]
        others = [other for other in rows if other.row_id != row.row_id]
        demos = [
            _book_demo(others[other], kind, cutter.texts) for other in _order(len(others), size.seed)[: size.shots]
        ]
        demo = cutter.texts.fill(places.BOOK_DEMOS, "\n\n".join(demos)) if size.shots else ""
        yield row._replace(context=cutter.shorten(row.context, size.items), fields={**row.fields, "demo": demo})


def _book_row(row: DataRow, kind: str, texts: Texts) -> DrawnRow:
    name, answers = row.identifier("id"), _texts_of(row, "answer")
    fields: dict[str, str] = {}
    if kind == "infbench_choice":
        options = _texts_of(row, "options")
        if len(options) != 4 or answers[0] not in options:
            raise damaged_file_error(row.location, "the field 'options' must be four texts, the answer among them")
        letter = chr(ord("A") + options.index(answers[0]))
        fields["options"] = texts.fill(places.OPTIONS, *options)
        answers = (letter, f"{letter}. {answers[0]}")
    return DrawnRow(name, row.get("context", str), row.get("input", str), answers, fields)


def _book_demo(row: DrawnRow, kind: str, texts: Texts) -> str:
    if kind == "infbench_sum":
        return texts.fill(places.BOOK_DEMO[kind], row.references[0].strip())
    values = {**row.fields, "question": row.question, "answer[0]": row.references[0]}
    return texts.fill(places.BOOK_DEMO[kind], **values)
