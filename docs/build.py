"""Builds a site from the Markdown in this repository: ``just docs`` writes it to ``out/site``. No network, no scripts.

Each page is plain HTML with one style sheet; links between the Markdown files become links between pages.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))
CONTENTS: dict[str, list[str]] = {
    "Start": ["README.md", "docs/getting-started.md", "docs/glossary.md"],
    "Measure": [
        "docs/running.md",
        "docs/ruler.md",
        "docs/prompts.md",
        "docs/models.md",
        "docs/judging.md",
        "docs/judges.md",
        "docs/rating.md",
        "docs/intervals.md",
        "docs/judge-numbers.md",
        "docs/leaderboards.md",
        "docs/results.md",
        "docs/report-page.md",
        "docs/cookbook.md",
        "docs/browsing.md",
        "docs/annotating.md",
        "docs/python.md",
    ],
    "Cross the gap": ["docs/bundling.md", "docs/officer.md", "SECURITY.md"],
    "Machines": ["docs/container.md", "docs/clusters.md", "tests/architectures.md", "docs/speed.md"],
    "Extend": ["docs/own-benchmark.md", "docs/extending.md", "CONTRIBUTING.md", "CHANGELOG.md"],
}
"""The pages by section, in reading order. README.md is the first page."""
_SITE_ONLY = re.compile(r"<!-- site: (\S+) -->\n")

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --soft: #8882; --link: #0550ae; }
@media (prefers-color-scheme: dark) { :root { --link: #79b8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 0 1rem; font: 1rem/1.55 system-ui, sans-serif;
       display: grid; grid-template-columns: 14rem minmax(0, 1fr); gap: 0 2.5rem; }
header { grid-column: 1 / -1; border-bottom: 1px solid var(--line); padding: .7rem 0; }
header a { font-weight: 700; text-decoration: none; }
nav { padding-top: 1rem; } nav ul { list-style: none; margin: 0 0 1rem; padding: 0; } nav li { padding: .1rem 0; }
nav h2 { font-size: .8rem; text-transform: uppercase; letter-spacing: .05em; margin: 0; border: 0; }
nav [aria-current] { font-weight: 700; text-decoration: none; }
main { padding: 0 0 4rem; } main > :is(p, ul, ol) { max-width: 48rem; }
a { color: var(--link); } a:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
h1, h2, h3 { line-height: 1.25; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
img { max-width: 100%; }
pre { background: var(--soft); padding: .8rem; overflow-x: auto; border-radius: .3rem; }
code { font: .9em/1.4 ui-monospace, monospace; overflow-wrap: break-word; } pre code { overflow-wrap: normal; }
.table { overflow-x: auto; } table { border-collapse: collapse; font-size: .93rem; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: var(--soft); }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; }
@media (max-width: 50rem) { body { display: block; } nav { columns: 2; } nav section { break-inside: avoid; } }
@media print { nav, header { display: none; } body { display: block; } }
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self'; img-src 'self'">
<title>{title} - lbx</title>
<link rel="stylesheet" href="{up}style.css">
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><a href="{up}index.html">lbx</a></header>
<nav aria-label="Pages">
{nav}
</nav>
<main id="content">
{body}</main>
</body>
</html>
"""


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


def rendered(name: str, known: list[str]) -> tuple[str, str]:
    """Return title and HTML of one page's text."""
    tokens = parse(_with_site_parts((ROOT / name).read_text("utf-8")))
    title = name
    for token, text in headings(tokens):
        token.attrSet("id", anchor(text))
        title = text if token.tag == "h1" else title
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
    made = made.replace("<table>", '<div class="table" role="region" aria-label="Table" tabindex="0"><table>').replace(
        "</table>", "</table></div>"
    )
    return title, made.replace("<th>", '<th scope="col">')


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


def build(out: Path) -> list[Path]:
    """Write the site and return its pages."""
    shutil.rmtree(out, ignore_errors=True)
    known = pages()
    made = {name: rendered(name, known) for name in known}
    titles = {name: title for name, (title, _) in made.items()}
    written = []
    for name, (title, body) in made.items():
        path = out / place(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * place(name).count("/")
        text = _PAGE.format(title=html.escape(title), up=up, nav=navigation(name, titles), body=body)
        path.write_text(text, "utf-8")
        written.append(path)
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, out / "docs")
    (out / "style.css").write_text(_STYLE.lstrip(), "utf-8")
    return written


if __name__ == "__main__":
    site = build(ROOT / "out" / "site")
    print(f"{len(site)} pages: {os.path.relpath(site[0])}")
