"""Recipes: what is understood, what is refused, and what two of them make together."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.bundle.making.recipe import HttpsSource, HubSource, PathSource, load_recipes

REPOSITORY = Path(__file__).resolve().parents[2]
SHA = "0" * 64
HTTPS = f'[[source]]\nkind = "https"\nurl = "https://example.org/a"\nsha256 = "{SHA}"\nto = "x/a"\n'
HUB = '[[source]]\nkind = "hub"\nrepo = "o/r"\ntype = "dataset"\n'
PATH = '[[source]]\nkind = "path"\npath = "here"\nto = "there"\n'


def test_every_kind_of_source_is_read(recipe: Callable[..., Path]) -> None:
    path = recipe('description = "d"\n' + HUB + 'files = ["*.json"]\n' + HTTPS + PATH)
    loaded = load_recipes([path])
    assert loaded.name == "demo"
    assert loaded.description == "d"
    assert loaded.sources == (
        HubSource("o/r", "dataset", "main", ("*.json",)),
        HttpsSource("https://example.org/a", SHA, "x/a"),
        PathSource("here", to="there"),
    )
    assert loaded.sources[2].full_path == path.parent / "here"


@pytest.mark.parametrize(
    ("text", "cause", "fix"),
    [
        (HUB + 'revison = "main"', "no setting 'revison'", "Did you mean revision"),
        ('descripton = "x"\n' + HUB, "no setting 'descripton'", "Did you mean description"),
        (HUB.replace("hub", "hup"), "unknown kind 'hup'", "Did you mean hub"),
        (HUB.replace('kind = "hub"\n', ""), "has no kind", "Available: https, hub, path"),
        (HUB.replace('type = "dataset"\n', ""), "lacks type", "repo, type"),
        (HUB.replace('"dataset"', '"datasets"'), 'must be "dataset" or "model"', ""),
        (HUB.replace("o/r", "o/r/x"), "not a repository name", ""),
        (HUB.replace("o/r", "../etc"), "not a repository name", ""),
        (HUB + "files = 'a'", "must be a list", ""),
        (HUB + "files = []", "at least one", ""),
        (HUB + "files = [1]", "must be a list of texts", ""),
        (HUB + "revision = 3", "must be text in quotes", ""),
        (HUB + 'revision = "../x"', "revision", ""),
        (HUB + 'revision = ""', "is empty", ""),
        (HTTPS.replace("https://", "http://"), "not an https address", ""),
        (HTTPS.replace(SHA, "abc"), "64 lower-case hex", ""),
        (HTTPS.replace("x/a", "../a"), "leads out", ""),
        (HTTPS.replace("x/a", "/a"), "absolute", ""),
        (PATH.replace('to = "there"', ""), "either `to` or `repo`", ""),
        (PATH + 'repo = "o/r"', "either `to` or `repo`", ""),
        ("source = 3", "must be a list", ""),
        ("source = [3]", "not a table", ""),
        ("source = []", "no [[source]]", ""),
        ("", "lacks source", ""),
        ("[[source]\n", "not valid TOML", ""),
    ],
)
def test_a_wrong_recipe_is_named_with_its_mistake(recipe: Callable[..., Path], text: str, cause: str, fix: str) -> None:
    path = recipe(text)
    with pytest.raises(UsageError) as caught:
        load_recipes([path])
    assert str(path) in caught.value.cause
    assert cause in caught.value.cause
    assert fix in caught.value.fix


def test_a_wrong_source_is_counted(recipe: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"number 2 has no setting"):
        load_recipes([recipe(HUB + PATH + "colour = 'red'")])


def test_a_missing_recipe_names_the_nearest(recipe: Callable[..., Path], tmp_path: Path) -> None:
    recipe(HUB, "longbench")
    with pytest.raises(UsageError, match=r"Did you mean .*longbench\.toml"):
        load_recipes([tmp_path / "longbensh.toml"])
    with pytest.raises(UsageError, match=r"Recipe .* does not exist"):
        load_recipes([tmp_path / "no/such/place.toml"])
    with pytest.raises(UsageError, match="cannot be read"):
        load_recipes([tmp_path])


def test_a_recipe_in_another_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(UsageError, match="line 1: it is not UTF-8"):
        load_recipes([path])


def test_a_name_that_cannot_name_a_file_is_refused(recipe: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"'\.\./x' is not a valid bundle name"):
        load_recipes([recipe(HUB)], name="../x")


def test_recipes_compose(recipe: Callable[..., Path]) -> None:
    a = recipe(HUB + 'files = ["a"]\n' + HTTPS, "a")
    b = recipe(HTTPS + HUB + 'files = ["b", "a"]\nallow = ["b"]\n' + PATH, "b")
    both = load_recipes([a, b, a])
    assert both.name == "a+b"
    assert [type(source).__name__ for source in both.sources] == ["HubSource", "HttpsSource", "PathSource"]
    assert both.sources[0] == HubSource("o/r", "dataset", files=("a", "b"), allow=("b",))
    assert load_recipes([a, b], name="mine").name == "mine"


def test_all_files_and_some_files_make_all(recipe: Callable[..., Path]) -> None:
    both = load_recipes([recipe(HUB + 'files = ["a"]\n', "a"), recipe(HUB, "b")])
    assert both.sources == (HubSource("o/r", "dataset"),)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HUB, HUB + 'revision = "v2"\n'),
        (HTTPS, HTTPS.replace(SHA, "1" * 64)),
        (HTTPS, HTTPS.replace("example.org/a", "example.org/b")),
        (PATH, PATH.replace('"here"', '"elsewhere"')),
        (PATH, HTTPS.replace("x/a", "there")),
    ],
)
def test_contradicting_recipes_are_refused_by_name(recipe: Callable[..., Path], one: str, other: str) -> None:
    a, b = recipe(one, "a"), recipe(other, "b")
    with pytest.raises(UsageError, match=r"a\.toml.*b\.toml.*contradict"):
        load_recipes([a, b])


@pytest.mark.parametrize("path", sorted((REPOSITORY / "bundle").glob("*.toml")), ids=lambda path: path.stem)
def test_the_projects_recipes_are_valid(path: Path) -> None:
    loaded = load_recipes([path])
    assert loaded.name == path.stem
    assert loaded.description


def test_the_projects_recipes_compose() -> None:
    paths = sorted((REPOSITORY / "bundle").glob("*.toml"))
    assert len(load_recipes(paths, name="all").sources) == sum(len(load_recipes([path]).sources) for path in paths)


RENAMED = ("NVIDIA/RULER/scripts/data/synthetic/json/", "wonderwords/", "nltk/")
"""Folders of a bundle for data that has the names of the authors' scripts instead of its own."""
WITHOUT_COMMIT = ("https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v2.0.json",)
"""Addresses without a commit, pinned by their SHA-256 alone."""


def https_sources() -> list[HttpsSource]:
    paths = (REPOSITORY / "bundle").glob("*.toml")
    return [s for path in paths for s in load_recipes([path]).sources if isinstance(s, HttpsSource)]


def test_https_sources_are_pinned_to_a_commit_and_lie_without_it() -> None:
    for source in https_sources():
        if source.to.startswith(RENAMED):
            assert source.url in WITHOUT_COMMIT or re.search("/[0-9a-f]{40}/", source.url)
            continue
        owner, repo, commit, *rest = source.url.removeprefix("https://raw.githubusercontent.com/").split("/")
        assert len(commit) == 40
        # Of two commits of one repository the older one's places say so.
        assert source.to in ("/".join([owner, folder, *rest]) for folder in (repo, f"{repo}-{commit[:7]}"))


def test_pinned_hashes_are_those_of_the_authors_files(upstreams: list[Path]) -> None:
    checked = set()
    for source in https_sources():
        places = [folder / source.url.partition("githubusercontent.com/")[2] for folder in upstreams]
        for place in places:
            if place.is_file():
                assert sha256(place.read_bytes()).hexdigest() == source.sha256, source.to
                checked.add(source.to.split("/")[1])
    assert checked >= {"RULER", "LEval", "LVEval", "LongBench"}
