"""Builds a site from the Markdown in this repository: ``just docs`` writes it to ``out/site``, to open from a disk;
``python docs/build.py FOLDER`` writes it elsewhere. Each version of lbx has a folder in it; the first page lists them.

Each page is plain HTML with one style sheet; links between the Markdown files become links between pages. A script adds
search, with an index of all sections in ``search.js``; without scripts only search is missing. ``llms.txt`` lists the
pages for language models.
"""

from __future__ import annotations

import html
import json
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from lbx.base.version import __version__

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
CONTENTS: dict[str, list[str]] = {
    "Tutorials": [
        "README.md",
        "docs/getting-started.md",
        "docs/tutorial-bundler.md",
        "docs/tutorial-officer.md",
        "docs/tutorial-judge.md",
        "docs/tutorial-cluster.md",
    ],
    "How-to guides": [
        "docs/installation.md",
        "docs/bundling.md",
        "docs/officer.md",
        "docs/container.md",
        "docs/running.md",
        "docs/planning.md",
        "docs/reasoning.md",
        "docs/retrieval.md",
        "docs/ruler.md",
        "docs/own-benchmark.md",
        "docs/serving.md",
        "docs/gpus.md",
        "docs/quantised.md",
        "docs/clusters.md",
        "docs/reading-files.md",
        "docs/managing-runs.md",
        "docs/rescoring.md",
        "docs/revisions.md",
        "docs/checking.md",
        "docs/browsing.md",
        "docs/judges.md",
        "docs/rating.md",
        "docs/annotating.md",
        "docs/sharing.md",
        "docs/attesting.md",
        "docs/exchange.md",
        "docs/troubleshooting.md",
    ],
    "Explanation": [
        "docs/prompts.md",
        "docs/prefixes.md",
        "docs/judging.md",
        "docs/intervals.md",
        "docs/long-contexts.md",
        "docs/judge-numbers.md",
        "docs/leaderboards.md",
        "docs/speed.md",
        "SECURITY.md",
    ],
    "Reference": [
        "docs/commands.md",
        "docs/messages.md",
        "docs/recipes.md",
        "docs/results.md",
        "docs/models.md",
        "docs/columns.md",
        "docs/json.md",
        "docs/report-page.md",
        "docs/cookbook.md",
        "docs/python.md",
        "docs/api.md",
        "docs/glossary.md",
        "tests/architectures.md",
    ],
    "Project": [
        "docs/stability.md",
        "docs/tested.md",
        "docs/extending.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ],
}
"""The pages by section, in reading order. README.md is the first page."""
_SITE_ONLY = re.compile(r"<!-- site: (\S+) -->\n")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title} - lbx</title>
<link rel="stylesheet" href="{up}site.css">
<script defer src="{up}site.js"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>
<a href="{up}index.html">lbx {version}</a>
<a class="to-pages" href="#pages">All pages</a>
<form id="search" role="search" data-root="{up}" hidden>
<input type="search" aria-label="Search all pages" placeholder="Search: press /" autocomplete="off" spellcheck="false">
<div id="found" hidden><p role="status"></p><ol></ol></div>
</form>
</header>
{contents}<main id="content" tabindex="-1">
{body}</main>
<nav class="pages" id="pages" aria-label="Pages">
{navigation}
</nav>
</body>
</html>
"""
_POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'"


def pages() -> list[str]:
    """Return the existing pages, as paths in the repository."""
    return [name for names in CONTENTS.values() for name in names if (ROOT / name).is_file()]


def place(name: str) -> str:
    """Return the path of a Markdown file's page in the site."""
    return "index.html" if name == "README.md" else str(Path(name.lower()).with_suffix(".html"))


def anchor(heading: str) -> str:
    """Return a heading's anchor, by the rules of code hosts."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def parse(text: str) -> list[Token]:
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


def headings(tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    """Yield each heading's opening token and its text."""
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            children = tokens[number + 1].children or []
            yield token, "".join(child.content for child in children)


def links(tokens: list[Token]) -> Iterator[Token]:
    """Yield the tokens of links to another file or heading of the repository."""
    for token in tokens:
        for child in token.children or ():
            href = str(child.attrGet("href") or "")
            if child.type == "link_open" and "://" not in href and not href.startswith("mailto:"):
                yield child


def target(page: str, href: str) -> tuple[str, str]:
    """Return (path in the repository, anchor or "") of a relative link in a page."""
    path, _, heading = href.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page, heading


def _with_site_parts(text: str) -> str:
    """Insert the tables that only the site has."""

    def table(match: re.Match[str]) -> str:
        from generate import SITE_TABLES  # opens a results file: only the site's pages need it

        makers: dict[str, Callable[[], str]] = SITE_TABLES
        return makers[match[1]]() + "\n"

    return _SITE_ONLY.sub(table, text)


class Section(NamedTuple):
    """A heading with the text below it, up to the next heading.

    Attributes:
        level: 1 for the page's title.
    """

    level: int
    heading: str
    anchor: str
    text: str


class RenderedPage(NamedTuple):
    """A page's title, its HTML, and its sections in order."""

    title: str
    body: str
    sections: list[Section]


def rendered(name: str, known: list[str]) -> RenderedPage:
    """Return one page's text as HTML."""
    tokens = parse(_with_site_parts((ROOT / name).read_text("utf-8")))
    for token, text in headings(tokens):
        token.attrSet("id", anchor(text))
    parts = sections(tokens)
    here = posixpath.dirname(place(name)) or "."
    for link in links(tokens):
        path, heading = target(name, str(link.attrGet("href")))
        if path in known:  # other files of the repository have no page: their names stay as text
            link.attrSet("href", posixpath.relpath(place(path), here) + (f"#{heading}" if heading else ""))
        else:
            link.attrs.pop("href")
    for token in tokens:  # comments mark generated parts
        if token.type == "html_block" and token.content.lstrip().startswith("<!--"):
            token.content = ""
    made = MarkdownIt("commonmark", {"html": True}).enable("table").renderer.render(tokens, _OPTIONS, {})
    made = made.replace("<table>", '<div class="table" role="group" aria-label="Table" tabindex="0"><table>').replace(
        "</table>", "</table></div>"
    )
    title = next((part.heading for part in parts if part.level == 1), name)
    made = made.replace("<th>", '<th scope="col">').replace("<pre>", '<pre tabindex="0">')
    return RenderedPage(title, made, parts)


def sections(tokens: list[Token]) -> list[Section]:
    """Return the sections below the headings of levels 1 to 3; deeper headings are part of the text."""
    parts: list[tuple[int, str, list[str]]] = []
    headed = {id(token): text for token, text in headings(tokens) if token.tag in ("h1", "h2", "h3")}
    skipped = False
    for token in tokens:
        if id(token) in headed:
            parts.append((int(token.tag[1]), headed[id(token)], []))
            skipped = True  # the heading's own text follows
        elif token.type == "inline" and skipped:
            skipped = False
        elif parts and token.type in ("inline", "fence", "code_block"):
            parts[-1][2].append(_plain_text(token))
    return [Section(level, text, anchor(text), " ".join(" ".join(texts).split())) for level, text, texts in parts]


def _plain_text(token: Token) -> str:
    children = token.children or []
    return "".join(" " if child.type == "softbreak" else child.content for child in children) or token.content


_OPTIONS = MarkdownIt("commonmark", {"html": True}).options


def navigation(current: str, titles: dict[str, str]) -> str:
    here = posixpath.dirname(place(current)) or "."
    parts = []
    for section, names in CONTENTS.items():
        items = []
        for name in (name for name in names if name in titles):
            mark = ' aria-current="page"' if name == current else ""
            text = "Overview" if name == "README.md" else html.escape(titles[name])
            items.append(f'<li><a href="{posixpath.relpath(place(name), here)}"{mark}>{text}</a></li>')
        parts.append(f"<section><h2>{section}</h2><ul>{''.join(items)}</ul></section>")
    return "\n".join(parts)


def contents(page: RenderedPage) -> str:
    """Return the list "On this page", or "" for fewer than two headings below the title."""
    parts = [part for part in page.sections if part.level > 1]
    if len(parts) < 2:
        return ""
    items = "".join(
        f'<li{" class=deep" if part.level > 2 else ""}><a href="#{part.anchor}">{html.escape(part.heading)}</a></li>'
        for part in parts
    )
    return f'<nav class="contents" aria-label="On this page"><h2>On this page</h2><ul>{items}</ul></nav>\n'


def search_index(pages: Mapping[str, RenderedPage]) -> str:
    """Return a script with the sections of all pages, for the site's search."""
    entries = [
        {
            "place": place(name) + (f"#{part.anchor}" if part.level > 1 else ""),
            "page": page.title,
            "heading": part.heading,
            "text": part.text,
        }
        for name, page in pages.items()
        for part in page.sections
    ]
    return f"const searchSections = {json.dumps(entries, ensure_ascii=False)};\n"


def build(out: Path) -> list[Path]:
    """Write the site and return its pages."""
    shutil.rmtree(out, ignore_errors=True)
    known = pages()
    made = {name: rendered(name, known) for name in known}
    titles = {name: page.title for name, page in made.items()}
    written = []
    for name, page in made.items():
        path = out / place(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = _PAGE.format(
            title=html.escape(page.title), policy=_POLICY, up="../" * place(name).count("/"), body=page.body,
            contents=contents(page), navigation=navigation(name, titles), version=__version__,
        )  # fmt: skip
        path.write_text(text, "utf-8")
        written.append(path)
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, out / "docs")
    for name in ("site.css", "site.js"):
        shutil.copy(ROOT / "docs" / name, out)
    (out / "search.js").write_text(search_index(made), "utf-8")
    (out / "llms.txt").write_text(page_list(made), "utf-8")
    return written


def page_list(pages: Mapping[str, RenderedPage]) -> str:
    """Return the pages by section, each with its first sentence, in the form of llmstxt.org."""
    lines = [f"# lbx {__version__}", "", f"> {first_sentence(pages['README.md'])}"]
    for section, names in CONTENTS.items():
        lines += ["", f"## {section}", ""]
        lines += [
            f"- [{pages[name].title}]({place(name)}): {first_sentence(pages[name])}" for name in names if name in pages
        ]
    return "\n".join(lines) + "\n"


def first_sentence(page: RenderedPage) -> str:
    text = next((section.text for section in page.sections if section.text), "")
    return re.split(r"(?<=[.:]) (?=[A-Z])", text, maxsplit=1)[0]


def list_versions(site: Path) -> None:
    """Write the first page of a site, with a link to each version in a folder of its own."""
    versions = sorted(
        (path.parent.name for path in site.glob("*/index.html")),
        key=lambda name: [*map(int, re.findall(r"\d+", name))],
        reverse=True,
    )
    items = "".join(f'<li><a href="{name}/index.html">lbx {name}</a></li>' for name in map(html.escape, versions))
    (site / "index.html").write_text(
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>lbx: versions of the documentation</title>\n'
        f"<h1>lbx: versions of the documentation</h1>\n<ul>{items}</ul>\n</html>\n",
        "utf-8",
    )


if __name__ == "__main__":
    site = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "out" / "site"
    written = build(site / __version__)
    list_versions(site)
    print(f"{len(written)} pages: {os.path.relpath(written[0])}")
