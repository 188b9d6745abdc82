"""One name, one sample: what one file does not know of it another may, and what contradicts it is refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lbx.base.errors import ConflictError
from lbx.base.records import sha256_text
from lbx.results import SampleRow, Store
from tests.results.store_rows import generation, sample

WHOLE = {"context": "document", "question": "Where?", "references": ("here",), "language": "zh", "length": 7}
"""What a bundle knows of the sample."""

UNKNOWN = {"context": "", "question": "", "references": (), "language": "en", "length": 0, "meta": {}}
"""What a prediction file knows of it at least: nothing."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.duckdb") as opened:
        yield opened


def stored(store: Store) -> tuple[object, ...]:
    (row,) = store.query(
        'SELECT context_sha256, question, "references"::VARCHAR, language, length, meta::VARCHAR FROM samples'
    ).rows
    return row


def knowing(*names: str, sample_id: str = "s1") -> SampleRow:
    """The sample as a file has it that knows these fields alone."""
    made = {**UNKNOWN, **{name: WHOLE[name] for name in names}}
    if "references" in names:
        made["meta"] = {"depth": 0.5}
    return sample(sample_id, **made)


FIELDS = ("context", "question", "references")
PARTS = [part for size in range(4) for part in itertools.combinations(FIELDS, size)]


def test_two_files_know_together_what_each_of_them_knows(store: Store) -> None:
    """Each of the two knows any of document, question and references."""
    pairs = {f"{'+'.join(a)} then {'+'.join(b)}": (a, b) for a in PARTS for b in PARTS}
    for turn in (0, 1):
        store.write(samples=[knowing(*parts[turn], sample_id=name) for name, parts in pairs.items()])
    found = store.query('SELECT sample_id, context_sha256, question, "references"::VARCHAR FROM samples').rows
    assert len(found) == len(pairs) == 64
    for name, document, question, references in found:
        both = {field for part in pairs[name] for field in part}
        assert document == (sha256_text("document") if "context" in both else None), name
        assert question == ("Where?" if "question" in both else ""), name
        assert references == ('["here"]' if "references" in both else "[]"), name


def test_the_bundle_has_the_last_word(store: Store) -> None:
    """Language and length of an unknown document are guesses; a known document's are not replaced."""
    imported, bundled = knowing("question", "references"), sample(**WHOLE, meta={"depth": 0.25})
    for rows in ([imported, bundled], [bundled, imported]):
        store.query("DELETE FROM samples")
        for row in rows:
            store.write(samples=[row])
        assert stored(store) == (sha256_text("document"), "Where?", '["here"]', "zh", 7, '{"depth":0.25}')


def test_rows_of_one_batch_complete_each_other(store: Store) -> None:
    """As a run of several iterations writes them."""
    store.write(samples=[knowing("references"), *[sample(**WHOLE)] * 3])
    assert stored(store)[:3] == (sha256_text("document"), "Where?", '["here"]')


CHOICES = {"choices": {"A": "the horn", "B": "the drum"}}


@pytest.mark.parametrize(
    "other",
    [
        {"context": "another"},
        {"question": "When?"},
        {"references": ("there",)},
        {"references": ("here", "there")},
        {"meta": {"choices": {"A": "the horn", "B": "the flute"}}},
    ],
)
def test_what_contradicts_is_refused(store: Store, other: dict[str, object]) -> None:
    whole = {**WHOLE, "meta": CHOICES}
    store.write(samples=[sample(**whole)])
    before = stored(store)
    (name,) = other
    part = {"context": "document", "meta": "choices"}.get(name, name)
    for row in (sample(**{**whole, **other}), sample(**{**UNKNOWN, **other})):
        with pytest.raises(ConflictError, match=f"1 sample differs: needle/single_en/s1 .{part}."):
            store.write(samples=[row], generations=[generation("r2")])
    assert stored(store) == before
    assert store.query("SELECT count(*) FROM generations").rows == [(0,)]
    store.query("DELETE FROM samples")
    store.write(samples=[sample(**UNKNOWN | {name: whole[name]})])
    with pytest.raises(ConflictError, match=f"needle/single_en/s1 .{part}."):
        store.write(samples=[sample(**{**whole, **other})])
