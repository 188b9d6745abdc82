"""Files of HELMET in a bundle: the user's copy of the authors' data, data sets of the hub, Llama 2's tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import NoDataError
from lbx.benchmarks.base.data_files import DataRow, cached_by_mtime, read_json
from lbx.benchmarks.base.sources import JsonArray, JsonLines, RowSource, find_parquet
from lbx.benchmarks.helmet import draws
from lbx.benchmarks.helmet.draws import BookCutter, CitedPrompts, DrawnRow, DrawSize
from lbx.benchmarks.helmet.tasks import (
    DATA,
    FOLDER,
    INFINITEBENCH,
    LLAMA2,
    MULTI_LEXSUM,
    NARRATIVEQA,
    SCRIPT,
    DatasetSettings,
    LabelledTexts,
    dataset_of,
    size_of,
)
from lbx.benchmarks.helmet.texts import Texts
from lbx.benchmarks.retrieval.chunks import ChunkTokenizer

_BOOK_FILES = {
    "infbench_qa": "longbook_qa_eng.jsonl",
    "infbench_choice": "longbook_choice_eng.jsonl",
    "infbench_sum": "longbook_sum_eng.jsonl",
}


def draw_rows(bundle: Bundle, task: str) -> Iterator[DrawnRow]:
    """Draw the rows of a task. Raises NoDataError for missing files, BundleError for damaged files."""
    dataset, items = dataset_of(task), size_of(task)
    size = DrawSize(items, dataset.limit)
    texts = Texts(DATA.official_file(bundle, SCRIPT))
    match dataset.kind:
        case "json_kv":
            rows = draws.json_kv_rows(_lines(bundle, dataset.file, items), texts, size)
        case "ruler":
            rows = draws.ruler_rows(_lines(bundle, dataset.file, items), size)
        case "kilt" | "msmarco":
            source, demos = _lines(bundle, dataset.file, items), _lines(bundle, dataset.demo_file)
            if dataset.kind == "kilt":
                rows = draws.kilt_rows(source, demos, texts, size, dataset.popularity)
            else:
                rows = draws.msmarco_rows(source, demos, texts, size)
        case "alce":
            path = DATA.official_file(bundle, dataset.demo_file)
            prompts = CitedPrompts.parse(DataRow(str(path), read_json(path)))
            rows = draws.alce_rows(JsonArray(_path(bundle, dataset.file), "docs"), prompts, size)
        case "icl" if of := dataset.label_source:
            train, *tests = (draws.labelled_texts(split, of.label, of.labels) for split in _labelled_splits(bundle, of))
            train, test = (train, tests[0]) if tests else draws.split_training_rows(train)
            rows = draws.icl_rows(train, test, texts, of.labels, size)
        case _:
            rows = _draw_books(bundle, dataset, texts, size)
    return rows


def _draw_books(bundle: Bundle, dataset: DatasetSettings, texts: Texts, size: DrawSize) -> Iterator[DrawnRow]:
    tokenizer, counts = _open_tokenizer(_book_tokenizer(bundle))
    cutter = BookCutter(tokenizer, texts, counts)
    source = _book_source(bundle, dataset.kind)
    if dataset.kind in _BOOK_FILES:
        return draws.book_rows(source, dataset.kind, cutter, size)
    draw = draws.narrativeqa_rows if dataset.kind == "narrativeqa" else draws.multi_lexsum_rows
    return draw(source, _book_source(bundle, dataset.kind, "train"), cutter, size)


@cached_by_mtime
def _open_tokenizer(path: Path) -> tuple[ChunkTokenizer, dict[int, int]]:
    """Open a tokenizer, with an empty cache of counts: a book is in several tasks, and takes seconds to count."""
    return ChunkTokenizer(path), {}


def count_rows(bundle: Bundle, task: str) -> int:
    """Number of drawn rows of a task, or 0 without data. Documents that may be too short are counted."""
    dataset, size = dataset_of(task), size_of(task)
    try:
        match dataset.kind:
            case "json_kv" | "ruler":
                count = _lines(bundle, dataset.file, size).count()
            case "kilt" | "msmarco":
                _path(bundle, dataset.demo_file)
                return _count_questions(_path(bundle, dataset.file, size), dataset.kind, dataset.popularity)
            case "alce":
                DATA.official_file(bundle, dataset.demo_file)
                count = JsonArray(_path(bundle, dataset.file), "docs").count()
            case "icl" if of := dataset.label_source:
                rows = _labelled_splits(bundle, of)[-1].count()
                count = rows if of.test else draws.test_share(rows)
            case _:
                _book_tokenizer(bundle)
                count = _book_source(bundle, dataset.kind).count()
    except NoDataError:
        return 0
    return min(dataset.limit, count)


@cached_by_mtime
def _count_questions(path: Path, kind: str, popularity: float | None) -> int:
    source = JsonLines(path)
    if kind == "msmarco":
        return sum(draws.draw_queries(source, DrawSize()).values())
    return sum(draws.draw_questions(source, DrawSize(), popularity)[1].values())


def _path(bundle: Bundle, file: str, size: int = 0) -> Path:
    folder = bundle.snapshot("dataset", FOLDER)
    path = folder / "data" / file.format(size) if folder else None
    if path is None or not path.is_file():
        raise DATA.missing_data_error(bundle, f"{FOLDER}, data/{file.format(size)}")
    return path


def _lines(bundle: Bundle, file: str, size: int = 0) -> JsonLines:
    return JsonLines(_path(bundle, file, size))


_KEY_POINTS = {
    "infbench_sum": ("infbench/longbook_sum_eng_keypoints.jsonl", "keypoints"),
    "multi_lexsum": ("multi_lexsum/multi_lexsum_val.jsonl", "summary/short_keypoints"),
}
"""{kind: (file in the authors' archive, its field)} of the points that a judge looks for in a summary."""


def read_key_points(bundle: Bundle, kind: str) -> dict[str, tuple[str, ...]]:
    """Read {row's id: key points of its summary}, without rows that have none. Raises NoDataError without the file."""
    file, name = _KEY_POINTS[kind]
    return {
        row.identifier("id"): tuple(points)
        for row in _lines(bundle, file).rows()
        if isinstance(points := row.values.get(name), list) and all(isinstance(point, str) for point in points)
    }


def read_long_summaries(bundle: Bundle) -> dict[str, str]:
    """Read {lawsuit's id: long summary}, for lawsuits with such a summary. Raises NoDataError for missing data."""
    rows = _book_source(bundle, "multi_lexsum").rows()
    return {row.identifier("id"): summary for row in rows if isinstance(summary := row.values.get("summary/long"), str)}


def _split(bundle: Bundle, repo: str, config: str, split: str) -> RowSource:
    folder = bundle.snapshot("dataset", repo)
    source = find_parquet(folder, config, split) if folder else None
    if folder and source is None and config == "default":
        source = find_parquet(folder, "data", split)
    if source is None:
        raise DATA.missing_data_error(bundle, f"{repo}, {config}/{split}")
    return source


def _labelled_splits(bundle: Bundle, texts: LabelledTexts) -> list[RowSource]:
    return [_split(bundle, texts.repo, texts.config, split) for split in ("train", texts.test) if split]


def _book_source(bundle: Bundle, kind: str, split: str = "") -> RowSource:
    if kind == "narrativeqa":
        return _split(bundle, NARRATIVEQA, "default", split or "test")
    if kind == "multi_lexsum":
        return _split(bundle, MULTI_LEXSUM, "v20230518", split or "validation")
    folder = bundle.snapshot("dataset", INFINITEBENCH)
    if folder is None or not (path := folder / _BOOK_FILES[kind]).is_file():
        raise DATA.missing_data_error(bundle, f"{INFINITEBENCH}, {_BOOK_FILES[kind]}")
    return JsonLines(path)


def _book_tokenizer(bundle: Bundle) -> Path:
    folder = bundle.snapshot("model", LLAMA2)
    if folder is None or not (path := folder / "tokenizer.json").is_file():
        raise DATA.missing_data_error(bundle, f"the tokenizer of {LLAMA2}, by which long documents are cut")
    return path
