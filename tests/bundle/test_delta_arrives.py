"""A delta on its side of the gap: made whole from its base, which is proven before it is used."""

from __future__ import annotations

from pathlib import Path

import bagit
import pytest

from lbx.base.errors import BundleError
from lbx.bundle import Trust, unpack, verify, verify_folder
from tests.bundle.forge import member, members
from tests.bundle.sealed import contents, refuse, seal

BASE = {"data/files/old/a.txt": b"same" * 100, "data/files/b.txt": b"also the same", "data/files/c.txt": b"goes"}
NEW = {"data/files/new/a.txt": BASE["data/files/old/a.txt"], "data/files/b.txt": b"also the same", "data/files/d": b"d"}
HELD = {"data/files/new/a.txt": "data/files/old/a.txt", "data/files/b.txt": "data/files/b.txt"}


@pytest.fixture
def base(place: Path) -> Path:
    return unpack(seal(place / "base", members(BASE)), place / "unpacked").root


@pytest.mark.parametrize("zstd", [False, True])
def test_a_delta_is_made_whole_from_its_base(place: Path, base: Path, key: Path, trust: Trust, zstd: bool) -> None:
    delta = seal(place / "delta", members(NEW, held=HELD), key=key, zstd=zstd)
    before = contents(base)
    report = verify(delta, trust=trust)
    assert (report.from_base, report.files, report.base["name"]) == (2, 3, "x")
    for number, given in enumerate((base, base / "lbx/bundle.json")):
        made = unpack(delta, place / f"root{number}", trust=trust, base=given)
        payload = {path: data for path, data in contents(made.root).items() if path.startswith("data/")}
        assert (payload, made.from_base) == (NEW, 2)
        assert verify_folder(made.root, trust=trust).digest == report.digest
        assert bagit.Bag(str(made.root)).validate(processes=1)
    assert contents(base) == before


def test_a_delta_without_its_base_is_refused(place: Path, base: Path) -> None:
    delta = seal(place / "delta", members(NEW, held=HELD))
    with pytest.raises(BundleError, match=r"is a delta: 2 of its 3 files are in the bundle x .*--base"):
        unpack(delta, place / "root")
    with pytest.raises(BundleError, match=r"Bundle folder .* does not exist"):
        unpack(delta, place / "root", base=place / "none")
    other = unpack(seal(place / "other", members()), place / "third").root
    with pytest.raises(
        BundleError,
        match=r"third lacks files that .* takes from its base bundle \(2\): data/files/b\.txt, data/files/old/a\.txt",
    ):
        unpack(delta, place / "root", base=other)
    assert not (place / "root").exists()


def test_a_changed_base_is_never_used(place: Path, base: Path) -> None:
    delta = seal(place / "delta", members(NEW, held=HELD))
    (base / "data/files/old/a.txt").write_bytes(b"SAME" * 100)
    with pytest.raises(BundleError, match=r"old/a\.txt has changed since x was bundled"):
        unpack(delta, place / "root", base=base)
    (base / "data/files/old/a.txt").unlink()
    (base / "data/files/old/a.txt").symlink_to(place / "elsewhere")
    (place / "elsewhere").write_bytes(NEW["data/files/new/a.txt"])
    with pytest.raises(BundleError, match="lacks files that"):
        unpack(delta, place / "root", base=base)
    assert not [path for path in place.iterdir() if "root" in path.name]


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"data/files/b.txt": "../../etc/passwd"}, "leads out of the folder"),
        ({"data/files/b.txt": "/etc/passwd"}, "does not name a file of the base|absolute"),
        ({"data/files/b.txt": "bagit.txt"}, "not a payload file"),
    ],
)
def test_a_delta_that_reaches_out_of_its_base_is_refused(
    place: Path, base: Path, held: dict[str, str], message: str
) -> None:
    delta = seal(place / "delta", members(NEW, held=held))
    with pytest.raises(BundleError, match=message):
        unpack(delta, place / "root", base=base)
    assert not (place / "root").exists()


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("data/files/m.pkl", b"runs when loaded", "m.pkl is unsafe: it is a pickle"),
        ("data/files/config.json", b'{"auto_map": {}}', "config.json is unsafe: it names code to run"),
        ("data/files/data.zip", None, "data.zip is unsafe"),
    ],
)
def test_what_was_harmless_in_the_base_is_looked_at_under_its_new_name(
    place: Path, bomb: bytes, path: str, content: bytes | None, said: str
) -> None:
    content = bomb if content is None else content
    base = unpack(seal(place / "base", members({"data/files/a.txt": content})), place / "unpacked").root
    delta = seal(place / "delta", members({path: content}, held={path: "data/files/a.txt"}))
    with pytest.raises(BundleError, match=said.replace(".", r"\.")):
        unpack(delta, place / "root", base=base)
    assert sorted(each.name for each in place.iterdir()) == ["base", "delta", "unpacked"]
    allowed = seal(place / "allowed", members({path: content}, held={path: "data/files/a.txt"}, allowed=[path]))
    if content is not bomb:
        assert unpack(allowed, place / "root", base=base).unsafe == [path]
    with pytest.raises(BundleError, match="--refuse-unsafe does not"):
        unpack(allowed, place / "other", base=base, unsafe=False)


def test_a_file_that_is_in_the_delta_and_in_its_base_is_refused(place: Path, base: Path) -> None:
    entries = [*members(NEW, held=HELD), member("x/data/files/b.txt", NEW["data/files/b.txt"])]
    refuse(
        seal(place / "delta", entries), Trust(allow_unsigned=True), "fetch.txt takes that file from the base", base=base
    )
