"""Files of L-Eval's rating page, read and written byte for byte.

Source: Evaluation/web_human_eval.py of
https://github.com/OpenLMLab/LEval/tree/cd34b050269148aed75acbbe4a599873ad0f37e9

    jsons/{n}_example.json     a document's unrated page: every list of its row as fields "KEY #i"
    jsons/{n}_evaled.json      the same, with a rating after the separator in each answer's field
    files_from_{name}.jsonl    a row per document, as lists again, sorted by file name (0, 1, 10, 11, 2)
    results_from_{name}.jsonl  {key: {"4.0": count}}

The page accepts any rating that ``float`` parses, saves edited texts, and drops carriage returns.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from lbx.base.errors import UsageError
from lbx.base.records import canonical_json, sha256_text
from lbx.benchmarks.base.prediction_lines import PredictionLine, prediction_file_error, read_bytes, split_rows

RATING_FORMAT = "leval_ratings"
SEPARATOR = "\n ---------------------- Your Score (1~5) ----------------------\n"
LOWEST, HIGHEST = 1.0, 5.0
ASKED, RIGHT = "instructions", "outputs"
_PAGE = re.compile(r"(\d+)_(example|evaled)\.json")
_FILES, _RESULTS = "files_from_", "results_from_"
_FIELD = " #"


@dataclass(frozen=True, slots=True)
class RatedAnswer:
    """An answer on a page. ``score_text`` is the text after the separator, or None without a separator."""

    key: str
    text: str
    score_text: str | None

    @property
    def score(self) -> float | None:
        """The rating as a number, or None for an empty text or a text that is not a number."""
        try:
            return float(self.score_text or "")
        except ValueError:
            return None


@dataclass(frozen=True, slots=True)
class RatedQuestion:
    """A question of a document. ``number`` is the index in the document, ``reference`` the page's correct answer."""

    number: int
    question: str
    reference: str
    answers: Sequence[RatedAnswer]


@dataclass(frozen=True, slots=True)
class RatedDocument:
    """The rating page of a document.

    Attributes:
        line: original text, verbatim.
        name: name of the page's file, such as "10_evaled.json", or "" for a line of a file of all pages.
        fields: fields of the page: {"KEY #i": text}, with input, source and evaluation.
    """

    line: PredictionLine
    name: str
    fields: Mapping[str, Any]

    @property
    def document(self) -> str:
        return str(self.fields["input"])

    @property
    def is_rated(self) -> bool:
        return not self.name.endswith("_example.json")

    def questions(self) -> list[RatedQuestion]:
        """List the questions in order. Raises UsageError if a required field is missing or not a string."""
        keys = {key.partition(_FIELD)[0]: None for key in self.fields if len(key.split(_FIELD)) == 2}
        models = [key for key in keys if key not in (ASKED, RIGHT)]
        questions: list[RatedQuestion] = []
        while f"{ASKED}{_FIELD}{len(questions)}" in self.fields:
            number = len(questions)
            texts = {key: self._text(key, number) for key in (ASKED, RIGHT, *models)}
            answers = [_answer(key, texts[key]) for key in models]
            questions.append(RatedQuestion(number, texts[ASKED], texts[RIGHT], answers))
        if not questions:
            raise prediction_file_error(
                self.line.location, f'it has no question: the key "{ASKED}{_FIELD}0" is missing'
            )
        return questions

    def _text(self, key: str, number: int) -> str:
        name = f"{key}{_FIELD}{number}"
        if not isinstance(self.fields.get(name), str):
            raise prediction_file_error(self.line.location, f"{name!r} should be text, but is missing or not text")
        return str(self.fields[name])


@dataclass(frozen=True, slots=True)
class RatingFiles:
    """Rating pages in the order of documents, and the name that the rater entered at the start."""

    documents: Sequence[RatedDocument]
    rater: str
    notes: tuple[str, ...] = ()

    @property
    def content_sha256(self) -> str:
        """Hash of documents and questions, which is equal for all raters' files of the same pages."""
        content = [
            [sha256_text(page.document), [question.question.replace("\r", "") for question in page.questions()]]
            for page in self.documents
        ]
        return sha256_text(canonical_json(content))


def _answer(key: str, text: str) -> RatedAnswer:
    pieces = text.split(SEPARATOR)
    return RatedAnswer(key, pieces[0], pieces[1] if len(pieces) > 1 else None)


def read_pages(path: Path, rater: str | None = None) -> RatingFiles:
    """Read the folder of L-Eval's page (or its subfolder jsons/), a single page, or a files_from_NAME.jsonl.

    Raises:
        UsageError: no such files exist, a file is damaged, or the rater's name is unknown.
    """
    if not path.exists():
        raise UsageError(f"{path} does not exist.", fix="Give the folder or file that the page wrote.")
    if path.is_file():
        return _one_file(path, rater)
    pages = path / "jsons" if (path / "jsons").is_dir() else path
    folder = pages.parent if pages.name == "jsons" else pages
    of_all = sorted(folder.glob(f"{_FILES}*.jsonl"))
    name = rater or _only_name(of_all)
    documents = _pages(pages)
    if not documents and len(of_all) == 1:
        return _one_file(of_all[0], rater)
    if not documents:
        raise UsageError(
            f"{path} contains no page of L-Eval: no N_example.json, no N_evaled.json, no files_from_NAME.jsonl.",
            fix="Give the folder that web_human_eval.py wrote into, or its jsons/.",
        )
    files = official_files(documents, name) if name else {}
    notes = [
        f"{folder / file} is not what the page would write for these ratings, and is ignored"
        for file, text in files.items()
        if (folder / file).is_file() and read_bytes(folder / file) != text.encode()
    ]
    return RatingFiles(documents, _require_name(name, path), tuple(notes))


def _one_file(path: Path, rater: str | None) -> RatingFiles:
    if path.name.startswith(_RESULTS):
        raise UsageError(
            f"{path} counts the ratings by value, but not by answer.",
            fix="Give the files_from_NAME.jsonl next to it, or the folder.",
        )
    if _PAGE.fullmatch(path.name):
        return RatingFiles([_page(path)], _require_name(rater, path))
    name = rater or (_only_name([path]) if path.name.startswith(_FILES) else None)
    lines = split_rows(path, read_bytes(path)).lines
    return RatingFiles([_document(line, "", page_fields(line.values)) for line in lines], _require_name(name, path))


def _require_name(name: str | None, path: Path) -> str:
    if name and name.strip():
        return name
    raise UsageError(f"{path} does not contain the rater's name.", fix="Pass the rater's name: --rater NAME.")


def _only_name(files: Sequence[Path]) -> str | None:
    return files[0].name.removeprefix(_FILES).removesuffix(".jsonl") if len(files) == 1 else None


def page_line(path: Path) -> PredictionLine:
    """Read the object in a page's file. Raises UsageError unless the file contains exactly one object."""
    lines = split_rows(path, read_bytes(path)).lines
    if len(lines) != 1:
        raise prediction_file_error(str(path), "it should contain one object")
    return lines[0]


def _pages(folder: Path) -> list[RatedDocument]:
    """Read a page per document, in the documents' order: the rated page if it exists."""
    pages = {}
    for name in sorted((entry.name for entry in folder.iterdir()), key=lambda name: name.endswith("_evaled.json")):
        if page := _PAGE.fullmatch(name):
            pages[int(page[1])] = folder / name
    return [_page(file) for _, file in sorted(pages.items())]


def _page(path: Path) -> RatedDocument:
    line = page_line(path)
    _refuse_fields_without_question(line)
    return _document(line, path.name, line.values)


def _refuse_fields_without_question(line: PredictionLine) -> None:
    """Raise UsageError if a field "KEY #i" belongs to no question."""
    number_asked = next(number for number in count() if f"{ASKED}{_FIELD}{number}" not in line.values)
    places = {str(number) for number in range(number_asked)}
    for name in line.values:
        _, *number = name.split(_FIELD)
        if len(number) == 1 and number[0] not in places:
            raise prediction_file_error(
                line.location, f"the key {name[:60]!r} belongs to none of its {number_asked:,} questions"
            )


def _document(line: PredictionLine, name: str, values: Mapping[str, Any]) -> RatedDocument:
    for key in ("input", "source", "evaluation"):
        line.text(key)
    return RatedDocument(line, name, values)


def page_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a dataset's object to page fields. Lists become fields "KEY #i" at the end, answers with a separator."""
    scalars = {key: value for key, value in row.items() if not isinstance(value, list)}
    for key, values in row.items():
        for number, value in enumerate(values if isinstance(values, list) else ()):
            rated = key in (ASKED, RIGHT) or not isinstance(value, str) or SEPARATOR in value
            scalars[f"{key}{_FIELD}{number}"] = value if rated else f"{value}{SEPARATOR}"
    return scalars


def make_page(gold: Mapping[str, Any], answers: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Build a document's unrated page.

    Args:
        gold: object in claude.gpt4.ref.jsonl, or in any dataset in L-Eval's format.
        answers: {key: an answer per question}, added after the answers in ``gold``.
    """
    together = dict(gold)
    for key, texts in answers.items():
        together[key] = [*together.get(key, ()), *texts]
    return page_fields(together)


def rated_page(page: Mapping[str, Any], score_texts: Mapping[tuple[str, int], str]) -> dict[str, Any]:
    """Build the page that is saved after rating. ``score_texts`` is {(key, question): rating}."""
    behind = {f"{key}{_FIELD}{number}": text for (key, number), text in score_texts.items()}
    return {
        key: value if key == "input" or not isinstance(value, str) else value.replace("\r", "") + behind.get(key, "")
        for key, value in page.items()
    }


def official_files(documents: Sequence[RatedDocument], rater: str) -> dict[str, str]:
    """Build files_from_NAME.jsonl and results_from_NAME.jsonl of rated pages, or {} if a page is not fully rated."""
    pages = sorted(documents, key=lambda document: document.name)
    if not pages or not all(page.is_rated for page in pages):
        return {}
    answers = [answer for page in pages for question in page.questions() for answer in question.answers]
    if any(answer.score_text is not None and answer.score is None for answer in answers):
        return {}
    rows = "".join(f"{json.dumps(_to_lists(page.fields))}\n" for page in pages)
    return {f"{_FILES}{rater}.jsonl": rows, f"{_RESULTS}{rater}.jsonl": json.dumps(_counts(pages))}


def _counts(pages: Iterable[RatedDocument]) -> dict[str, Counter[str]]:
    """Count how often each score was given to answers under each key, as L-Eval's page does."""
    counts: dict[str, Counter[str]] = {}
    for page in pages:
        for name, value in page.fields.items():
            key, *number = name.split(_FIELD)
            if len(number) == 1 and isinstance(value, str) and (score := _answer(key, value).score) is not None:
                counts.setdefault(key, Counter())[str(score)] += 1
    return counts


def _to_lists(page: Mapping[str, Any]) -> dict[str, Any]:
    questions = sum(name.startswith(f"{ASKED}{_FIELD}") for name in page)
    row: dict[str, Any] = {}
    for name, value in page.items():
        key, *number = name.split(_FIELD)
        if len(number) == 1:
            row.setdefault(key, [""] * questions)[int(number[0])] = value
    return {**row, **{key: page[key] for key in ("evaluation", "input", "source")}}


def mean_ratings(documents: Iterable[RatedDocument]) -> dict[str, float]:
    """Compute {key: mean rating}, as displayed at the end of L-Eval's page."""
    return {
        key: sum(float(score) * times for score, times in counted.items()) / counted.total()
        for key, counted in _counts(documents).items()
    }
