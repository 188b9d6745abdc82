"""The tutorials run as printed: each in a folder with what a clone has, block by block, with the output that it prints.

A comment before a block changes that: ``not run: REASON``, ``needs Slurm``, ``repeat until: TEXT`` in its output, and
``rated`` for a page that people rate answers on, which this test opens and ends as they would. A block of TOML or JSON
after a sentence that ends in a file's name is that file. Every line of a block of text is in the output above it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
from markdown_it import MarkdownIt

from tests.cluster import real_slurm
from tests.doc_commands import ROOT

PAGES = [ROOT / "docs" / "getting-started.md", *sorted((ROOT / "docs").glob("tutorial-*.md"))]
_FILE = re.compile(r"`([\w./-]+)`:$")
_COMMENT = re.compile(r"<!-- (.*) -->\s*$")
_ANSWER = re.compile(r'<section class="answer.*?</section>', re.DOTALL)
_LINK = re.compile(r"(http://127\.0\.0\.1:\d+)(/\S*?)(\?token=\S+)")


class Block(NamedTuple):
    """A block of a page, the comment before it, and the file that the sentence before it names."""

    language: str
    text: str
    comment: str
    file: str


def blocks(page: Path) -> Iterator[Block]:
    comment, sentence = "", ""
    for token in MarkdownIt().parse(page.read_text("utf-8")):
        if token.type == "html_block" and (found := _COMMENT.match(token.content)):
            comment = found[1]
        elif token.type == "inline":
            comment, sentence = "", token.content
        elif token.type in ("code_block", "fence"):
            file = _FILE.search(sentence)
            yield Block(token.info.strip(), token.content, comment, file[1] if file else "")
            comment = ""


class Workplace:
    """A folder like a clone, in which a reader works."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = {**environment, "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}"}
        shutil.copytree(ROOT / "bundle", folder / "bundle")
        shutil.copytree(ROOT / "models", folder / "models", ignore=shutil.ignore_patterns("*.gguf", "__pycache__"))

    def run(self, text: str, until: str = "") -> str:
        """Run a block and return its output; repeat it until the output contains a text."""
        end = time.monotonic() + real_slurm.PATIENCE_S
        while True:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text],
                cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            output = done.stdout + done.stderr
            if done.returncode == 0 and until in words_of(output):
                return output
            assert until and time.monotonic() < end, f"{text}\n{output}"
            time.sleep(1)

    def rate(self, text: str) -> str:
        """Rate every answer that each link of the command offers, then press Ctrl-C."""
        words = f"exec {text.strip()} --port 0"  # tests run at the same time
        with subprocess.Popen(
            ["bash", "-c", words], cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            try:
                output = process.stdout.readline()
                link = _LINK.search(output)
                assert link, output
                rate_all(link)
            finally:
                process.send_signal(signal.SIGINT)
            output += process.stdout.read()
        assert process.returncode == 0, output
        return output


def rate_all(link: re.Match[str]) -> None:
    """Rate as a person would: 1 for an answer that does not know, 5 for any other."""
    here = {"base_url": link[1] + link[2], "headers": {"origin": link[1]}, "follow_redirects": True}
    with httpx2.Client(**here, trust_env=False, timeout=60) as client:
        text = client.get(link[3]).text
        while open_answers := [one for one in _ANSWER.findall(text) if 'aria-pressed="true"' not in one]:
            item = re.search(r'action="[^"]*(/item/\d+)"', text)
            place = re.search(r'value="rate-(\d+)-1"', open_answers[0])
            assert item and place, text
            value = 1 if "I do not know" in open_answers[0] else 5
            text = client.post(item[1], data={"do": f"rate-{place[1]}-{value}"}).text


def words_of(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_printed(page: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    for library in ("llama_cpp", "gguf"):
        pytest.importorskip(library, reason="needs lbx[llama,dev]")
    parts = list(blocks(page))
    with ExitStack() as stack:
        environment = dict(os.environ)
        no_slurm = real_slurm.missing()
        if any(block.comment.startswith("needs Slurm") for block in parts) and not no_slurm:
            environment = stack.enter_context(real_slurm.running(tmp_path_factory.mktemp("slurm"))).environment
        place = Workplace(tmp_path / "clone", environment)
        output = ""
        for block in parts:
            kind, _, detail = block.comment.partition(": ")
            if block.language in ("toml", "json"):
                assert block.file, block.text
                (place.folder / block.file).write_text(block.text, "utf-8")
            elif block.language == "text":
                for line in filter(None, map(words_of, block.text.splitlines())):
                    assert line in words_of(output), f"{line}\nis not in\n{output}"
            elif kind == "not run" or ("needs Slurm" in kind and no_slurm):
                continue
            elif kind == "rated":
                output = place.rate(block.text)
            else:
                output = place.run(block.text, detail)


def test_every_tutorial_is_run() -> None:
    assert len(PAGES) == 5
    for page in PAGES:
        assert sum(not block.language and not block.comment.startswith("not run") for block in blocks(page)) >= 4, page
