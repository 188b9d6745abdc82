"""The documents' pictures: all are made by `docs/pictures.py`, and show what today's pages show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chromium import CHROMIUM
from tests.doc_commands import DOCUMENTS, ROOT
from tests.test_docs import script

pictures = script("pictures")
png = pictures.png_files
MOST_BYTES = 150_000


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of the pages that the pictures would show now."""
    found, folder = {}, tmp_path_factory.mktemp("pages")
    for picture in pictures.PICTURES:
        with picture.site(folder) as link:
            found[picture.name] = pictures.digest(pictures.shown_text(link, picture.path))
    yield found


def test_documents_show_only_pictures_of_the_script() -> None:
    shown = {
        Path(name).name for page in DOCUMENTS for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))
    }
    assert shown == {picture.name for picture in pictures.PICTURES}
    assert {path.name for path in (ROOT / "docs").glob("*.png")} == shown


@pytest.mark.parametrize("picture", pictures.PICTURES, ids=lambda picture: str(picture.name))
def test_a_picture_is_current(picture: object, digests: dict[str, str]) -> None:
    file = (ROOT / "docs" / picture.name).read_bytes()  # type: ignore[attr-defined]
    assert png.read_size(file) == picture.size  # type: ignore[attr-defined]
    assert len(file) <= MOST_BYTES
    current = png.read_texts(file).get("lbx-digest") == digests[picture.name]  # type: ignore[attr-defined]
    assert current, "the page has changed: run `just pictures`"


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; .ci/browser-tools.sh installs it")
@pytest.mark.long("test_a_picture_is_current compares each page with its picture")
def test_the_script_makes_all_pictures(tmp_path: Path, digests: dict[str, str]) -> None:
    pytest.importorskip("playwright.sync_api", reason="no playwright here; it is in lbx[dev]")
    pictures.make_pictures(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == digests.keys()
    for picture in pictures.PICTURES:
        file = (tmp_path / picture.name).read_bytes()
        assert png.read_size(file) == picture.size
        assert len(file) <= MOST_BYTES
        assert png.read_texts(file) == {"lbx-digest": digests[picture.name]}, "the same page twice"


def test_a_palette_keeps_the_pixels(tmp_path: Path) -> None:
    import zlib

    import numpy as np

    rng = np.random.default_rng(7)
    pixels = rng.integers(0, 6, (5, 9, 3), dtype=np.uint8) * 50
    lines = np.hstack([np.zeros((5, 1), np.uint8), pixels.reshape(5, 27)])
    above, left = np.zeros_like(pixels), np.zeros_like(pixels)
    above[1:], left[:, 1:] = pixels[:-1], pixels[:, :-1]
    lines[1, 0], lines[1, 1:] = 1, (pixels[1] - left[1]).ravel()
    lines[2, 0], lines[2, 1:] = 2, (pixels[2] - above[2]).ravel()
    mean = (above[3].astype(int) + left[3]) // 2
    lines[3, 0], lines[3, 1:] = 3, (pixels[3].astype(int) - mean).astype(np.uint8).ravel()
    header = b"\0\0\0\x09\0\0\0\x05\x08\x02\0\0\0"
    source = png._SIGNATURE + b"".join(
        png._chunk(kind, data)
        for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    )
    made = dict(png._chunks(png.with_palette(source, {"key": "value"})))
    palette = np.frombuffer(made[b"PLTE"], np.uint8).reshape(-1, 3)
    places = np.frombuffer(zlib.decompress(made[b"IDAT"]), np.uint8).reshape(5, 10)[:, 1:]
    assert (palette[places] == pixels).all()
    assert made[b"tEXt"] == b"key\0value"
