"""Kept token counts of RULER: used for the same texts only, also if the file is foreign, damaged or poisoned."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lbx.base.records import canonical_json, sha256_text
from lbx.benchmarks.ruler import generator
from lbx.benchmarks.ruler.generator import CountLog, cached_counts, count_cache_folder
from lbx.benchmarks.ruler.samples import SampleSet
from lbx.benchmarks.ruler.tasks import RulerSettings
from tests.made_ruler import MakeBundle

DESCRIPTION = {"task": "vt_4096"}
TEXTS = ["one", "two words", "three more words"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(generator, "_LOGS", {})
    yield


def count_all(texts: list[str] = TEXTS, bundled: Path | None = None) -> tuple[list[int], list[str]]:
    """Return the counts of texts, and the texts that were counted, in a process of its own."""
    generator._LOGS.clear()
    counted: list[str] = []
    with cached_counts(DESCRIPTION, bundled) as log:
        count = log.counter(lambda text: counted.append(text) or len(text.split()))  # type: ignore[func-returns-value]
        return [count(text) for text in texts], counted


def kept_file() -> Path:
    folder = count_cache_folder()
    assert folder
    return folder / f"{sha256_text(canonical_json(DESCRIPTION))}.json"


def test_texts_are_counted_once() -> None:
    assert count_all() == ([1, 2, 3], TEXTS)
    assert count_all() == ([1, 2, 3], [])
    assert count_all([*TEXTS, "a fourth"]) == ([1, 2, 3, 2], ["a fourth"])
    assert count_all([*TEXTS, "a fourth"]) == ([1, 2, 3, 2], [])


def test_another_text_of_the_same_length_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    count_all()
    assert count_all(["one", "two_words", "three more words"]) == ([1, 1, 3], ["two_words", "three more words"])
    assert "do not belong to these texts" in caplog.text


def test_lone_surrogates_are_counted() -> None:
    assert count_all(["\ud800"]) == ([1], ["\ud800"])


def poison(change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(kept_file().read_text())
    change(content)
    content["sha256"] = sha256_text(canonical_json(content["counts"]))
    kept_file().write_text(json.dumps(content))


@pytest.mark.parametrize("count", [-1, 10**400, 1.0, True, None, "1"])
def test_impossible_counts_are_counted_again(count: object, caplog: pytest.LogCaptureFixture) -> None:
    count_all()
    poison(lambda content: content["counts"][0].__setitem__(1, count))
    assert count_all() == ([1, 2, 3], TEXTS)
    assert "counted again" in caplog.text


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"counts": [[1]]}', b'{"counts": 1}']
)
def test_a_damaged_file_is_counted_again(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    count_all()
    kept_file().write_bytes(content)
    assert count_all() == ([1, 2, 3], TEXTS)
    assert "counted again" in caplog.text


def test_a_huge_file_is_not_read(caplog: pytest.LogCaptureFixture) -> None:
    count_all()
    with kept_file().open("r+b") as file:
        file.truncate(1 << 25)
    assert count_all() == ([1, 2, 3], TEXTS)
    assert "too large" in caplog.text


def test_the_bundle_has_precedence(tmp_path: Path) -> None:
    """Its digest covers its counts; a file of the cache is covered by nothing."""
    bundled = tmp_path / "bundled"
    bundled.mkdir()
    count_all()
    kept_file().rename(bundled / kept_file().name)
    count_all([*TEXTS, "a fourth"])
    poison(lambda content: content["counts"][0].__setitem__(1, 99))
    assert count_all(bundled=bundled) == ([1, 2, 3], [])


def test_two_readers_share_a_log() -> None:
    log = CountLog()
    first, second = (log.counter(lambda text: len(text.split())) for _ in range(2))
    assert [first(TEXTS[0]), first(TEXTS[1]), second(TEXTS[0]), second(TEXTS[1]), second(TEXTS[2])] == [1, 2, 1, 2, 3]
    assert first(TEXTS[2]) == 3
    assert len(log.entries) == 3


def test_other_texts_have_other_ids(make_bundle: MakeBundle) -> None:
    """Files that were changed leave a trace in each sample whose text they change; changed counts are found."""
    scripts = "files/NVIDIA/RULER/scripts/data"

    def make_ids(template: str = "Read: {context}") -> list[str]:
        generator._LOGS.clear()
        texts = {"template": template, "answer_prefix": " Words:", "tokens_to_generate": 50}
        files = {
            f"{scripts}/synthetic/constants.py": f"TASKS = {{'freq_words_extraction': {texts}}}",
            f"{scripts}/template.py": "Templates = {'base': '{task_template}'}",
        }
        bundle = make_bundle({name: text.encode() for name, text in files.items()})
        samples = SampleSet(bundle, RulerSettings(samples=3), "words", lambda text: len(text.split()))
        return [sample.sample_id for sample in samples.samples("ruler", "fwe_500")]

    first, second, third = make_ids()
    assert [name[:5] for name in (first, second, third)] == ["0000-", "0001-", "0002-"]
    assert make_ids() == [first, second, third]
    (file,) = kept_file().parent.iterdir()
    content = json.loads(file.read_text())
    content["counts"][-2][1] += 500  # the second sample seems too long, and gets fewer words
    content["sha256"] = sha256_text(canonical_json(content["counts"]))
    file.write_text(json.dumps(content))
    assert make_ids() == [first, second, third]
    assert not {*make_ids("Note: {context}")} & {first, second, third}
