"""`lbx browse` of several results files: a start page, and the pages of each file below it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lbx.base.errors import UsageError
from lbx.results.read.stored_answers import AnswerKey
from lbx.web.browsing import BrowsingPages, answer_link
from lbx.web.several import SeveralPages, results_in
from tests.command_line import Lbx
from tests.report.made_answers import Answer, make
from tests.web.browsed_file import browsed_file
from tests.web.sites import client_of, site_of

ANSWER = answer_link(AnswerKey("one", "longbench", "qasper", "s7"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two good files, one in a folder below, a damaged and a foreign one, and links out of it."""
    top = tmp_path_factory.mktemp("several")
    folder = top / "work"
    (folder / "shards").mkdir(parents=True)
    browsed_file(folder / "a.duckdb")
    make(folder / "shards" / "0000.duckdb", [Answer("q", {"f1": 0.5})])
    (folder / "damaged.duckdb").write_bytes((folder / "a.duckdb").read_bytes()[:5000])
    (folder / "foreign.duckdb").write_text("not a database")
    (folder / "notes.txt").write_text("no results")
    browsed_file(top / "outside.duckdb", samples=2)
    (folder / "link.duckdb").symlink_to(top / "outside.duckdb")
    (top / "elsewhere").mkdir()
    browsed_file(top / "elsewhere" / "b.duckdb", samples=2)
    (folder / "linked").symlink_to(top / "elsewhere")
    return folder


def _client(*paths: Path) -> TestClient:
    with site_of(SeveralPages(paths, lambda path: BrowsingPages(path).routes).routes) as site:
        return client_of(site)


def _links(client: TestClient, text: str, beginning: str) -> list[str]:
    """The links of a page to paths with this beginning, without the root of the site."""
    root = client.base_url.path.rstrip("/")
    paths = [html.unescape(link).removeprefix(root) for link in re.findall(rf'href="({root}[^"]*)"', text)]
    return [path for path in paths if path.startswith(beginning)]


def _rows(text: str) -> dict[str, str]:
    """{name of a file: its row without tags}"""
    rows = re.findall(r"<tr data-scope[^>]*>(.*?)</tr>", text)
    cells = [[re.sub(r"<[^>]*>", "", cell) for cell in re.split(r"</td>", html.unescape(row))] for row in rows]
    return {name: "|".join(rest).strip("|") for name, *rest in cells}


def test_files_of_a_folder_are_listed_and_opened(folder: Path) -> None:
    client = _client(folder)
    start = client.get("/").text
    rows = _rows(start)
    names = {str(Path(name).relative_to(folder)): row for name, row in rows.items()}
    assert names.keys() == {"a.duckdb", "damaged.duckdb", "foreign.duckdb", "shards/0000.duckdb"}
    assert re.fullmatch(r"2\|longbench\|24\|[\d-]{10} [\d:]{5}\|done", names["a.duckdb"])
    assert names["shards/0000.duckdb"].startswith("1|longbench|1|")
    assert "not a results file" in names["foreign.duckdb"] or "foreign.duckdb" in names["foreign.duckdb"]
    links = _links(client, start, "/file/")
    assert len(links) == 2, "files that cannot be read have no page"
    first = client.get(links[0]).text
    assert "24 answers" in first and f'href="{client.base_url.path}"' in first
    answer = client.get(links[0].rstrip("/") + ANSWER)
    assert answer.status_code == 200 and "one says 7" in answer.text
    assert f'href="{html.escape(links[0].rstrip("/") + ANSWER)}"' in answer.text, (
        "the link without a secret names the file"
    )
    listed = _links(client, first, f"{links[0]}answer")
    assert len(listed) == 24 and client.get(listed[0]).status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/file/", "/file/none/", "/file/../a.duckdb/", "/file/..%2Foutside.duckdb/", "/file/%2Fetc%2Fpasswd/",
     "/file/link.duckdb/", "/file/none/answer?run=one", "/answer?run=one", "/file/%00/"],
)  # fmt: skip
def test_no_address_reaches_another_file(folder: Path, path: str) -> None:
    response = _client(folder).get(path)
    assert response.status_code in (400, 403, 404) and "says" not in response.text


def test_new_files_appear_and_removed_ones_go(tmp_path: Path) -> None:
    client = _client(tmp_path)
    assert "No results file" in client.get("/").text
    before = client.get("/state").json()
    path = make(tmp_path / "r.duckdb", [Answer("q", {"f1": 0.5})])
    assert client.get("/state").json() != before
    (link,) = _links(client, client.get("/").text, "/file/")
    assert client.get(link).status_code == 200
    path.rename(tmp_path / "away")
    (tmp_path / "r.duckdb").symlink_to(tmp_path / "away")
    assert client.get(link).status_code == 404, "a file that became a link"


def test_single_files_and_folders_are_named_as_given(folder: Path) -> None:
    assert list(results_in([folder / "a.duckdb", folder / "shards"])) == [
        str(folder / "a.duckdb"), str(folder / "shards" / "0000.duckdb"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="do not exist"):
        _client(folder, folder / "none.duckdb")


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x", "utf-8")
    done = Lbx()("browse", tmp_path)
    assert done.returncode == 2
    assert "ends with .duckdb. Name a results file, or a folder that has some." in " ".join(done.stderr.split())


def test_options_of_one_file_are_refused_for_several(folder: Path) -> None:
    done = Lbx()("browse", folder, "--run", "one")
    assert done.returncode == 2 and "one results file" in done.stderr
    assert Lbx()("browse", folder / "none.duckdb", folder).returncode == 2
