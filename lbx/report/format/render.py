"""Renderers of tables for files and programs: Markdown, CSV, JSON and LaTeX.

The LaTeX is a complete document: booktabs, and siunitx columns for numbers.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lbx.base.csv_cells import escape_formula
from lbx.base.visible import escape_json, one_line
from lbx.report.format.sheets import Sheet, plain
from lbx.results import Table

_MARKDOWN = re.compile(r"`|<[a-z/!?]|&(?:#|\w+;)|\]\s*[(\[:]|\[\^|!\[|@[\w-]|://|www\.", re.IGNORECASE)
"""Text that markdown turns into links, pictures, HTML or footnotes."""
_OPENS, _CLOSES = re.compile(r"(?<!\w)_+[^\s_]"), re.compile(r"[^\s_]_+(?!\w)")
"""Underscores around words, which markdown turns into emphasis. (Underscores within words are literal.)"""


def markdown(sheet: Sheet) -> str:
    """Render a sheet as a GitHub-flavoured Markdown table under a heading. Cells with markup become code."""
    parts = [f"## {_escape(one_line(sheet.title))}"]
    if sheet.rows:
        rule = ["---" if column.kind == "text" else "---:" for column in sheet.columns]
        head = [_escape(one_line(column.heading)) for column in sheet.columns]
        body = [
            [f"**{_escape(cell)}**" if (at, n) in sheet.best else _escape(cell) for n, cell in enumerate(row)]
            for at, row in enumerate(sheet.rows)
        ]
        lines = [head, rule, *body]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join([*parts, *(_escape_note(one_line(note)) for note in sheet.notes)]) + "\n"


def _escape_note(note: str) -> str:
    """Escape a note like a cell, except for code between grave accents, such as a command."""
    parts = re.split("(`[^`]+`)", note)
    texts = [_escape(text) for text in parts[::2]]
    if any("`" in text for text in texts):
        return _escape(note)
    return "".join(text + code for text, code in itertools.zip_longest(texts, parts[1::2], fillvalue=""))


def _escape(cell: str) -> str:
    cell = cell.replace("\n", " ")
    emphasis = _OPENS.search(cell) and _CLOSES.search(cell)
    if not (_MARKDOWN.search(cell) or emphasis or cell.count("$") > 1 or cell.count("~") > 1):
        return re.sub(r"[\\|*]|^[#>+-](?= )", r"\\\g<0>", cell)
    longest = max(map(len, re.findall("`+", cell)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {cell} {fence}".replace("|", "\\|")


def csv_pieces(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield CSV line by line, with unrounded values.

    Control characters are escaped. Texts that spreadsheets would take for formulas get an apostrophe as a prefix.
    Numbers are unchanged, and NaN and infinity are empty. JSON and parquet keep every text unchanged.
    """
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    for row in itertools.chain([columns], rows):
        writer.writerow([_csv_cell(value) for value in row])
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def _csv_cell(value: object) -> object:
    if value is None or type(value) is int:
        return value
    text = plain(value)
    return text if text is None or isinstance(text, (bool, int, float)) else escape_formula(str(text))


def json_pieces(columns: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "") -> Iterator[str]:
    """Yield a JSON array of objects, one per line. (With one value per line, Python would take ten times as long.)"""
    encode = json.JSONEncoder(ensure_ascii=False).encode
    before = "[\n"
    for row in rows:
        yield f"{before}{indent}  {escape_json(encode(dict(zip(columns, map(plain, row), strict=True))))}"
        before = ",\n"
    yield "[]" if before == "[\n" else f"\n{indent}]"


def json_of_tables(tables: Mapping[str, Table]) -> Iterator[str]:
    """Yield several tables as a JSON object of arrays."""
    before = "{"
    for name, table in tables.items():
        yield f"{before}\n  {json.dumps(name)}: "
        yield from json_pieces(table.columns, table.rows, "  ")
        before = ","
    yield "\n}"


_PREAMBLE = r"""% Written by lbx. To copy a table into a paper, also copy the packages and definitions of this preamble.
\documentclass{article}
\usepackage[a4paper, margin=2cm]{geometry}
\usepackage{iftex, booktabs, graphicx, etoolbox, siunitx}
\sisetup{detect-weight = true, group-digits = none}
\robustify\bfseries
\ifPDFTeX\usepackage[T1]{fontenc}\usepackage{textcomp}\else\usepackage{fontspec}\fi
"""
_OTHER_LETTERS = r"""
% pdfTeX prints letters missing from its fonts as code points. LuaLaTeX and XeLaTeX print them in a font that has them,
% for example with \setmainfont{Noto Sans CJK SC}; right-to-left text also needs \usepackage[bidi=basic]{babel}.
\ifPDFTeX\newcommand{\foreignletters}[2]{#2}\else\newcommand{\foreignletters}[2]{#1}\fi
"""
_MOST_COLUMNS = 8
"""Maximum number of columns of a LaTeX table. Wider tables are continued in another table."""
_WIDEST = 95
"""Number of characters in a line of the LaTeX page. Wider tables are scaled down."""
_ESCAPED = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
    "±": r"$\pm$", "×": r"$\times$", "–": "--", "—": "---", "…": r"\ldots{}", "“": "``", "”": "''", "’": "'",
}  # fmt: skip
_LIGATURES = re.compile("[-–—](?=[-–—])|,(?=,)")
"""Repeated hyphens or commas, which LaTeX would join into another character."""
_STEERS = re.compile(r"[\[*]")
"""Characters that LaTeX would read at a row's start as an option of the preceding command."""
_FOREIGN = re.compile(r"[^\x20-\x7e\u00a1-\u00ac\u00ae-\u00ff±×–—…“”’]+")
_SCORE = re.compile(r"(-?\+?[\d,]+(?:\.\d+)?)(?: ((?:±|\[|\().*))?")


def latex_pieces(sheets: Iterable[Sheet]) -> Iterator[str]:
    """Yield a LaTeX document of sheets in pieces."""
    yield _PREAMBLE
    yield _OTHER_LETTERS
    yield "\\begin{document}\n"
    for sheet in sheets:
        if not sheet.rows:
            yield f"\n\\section*{{{escape_latex(sheet.title)}}}\n" + "".join(
                f"{escape_latex(note)}\n" for note in sheet.notes
            )
        for number, columns in enumerate(_blocks(sheet)):
            yield _table(sheet, columns, continued=number > 0)
        yield "\\clearpage\n"
    yield "\\end{document}\n"


def escape_latex(text: str) -> str:
    """Escape a text such that LaTeX prints the same text in any position."""
    parts = []
    at = 0
    text = one_line(text)
    for match in _FOREIGN.finditer(text):
        parts.append(_plain(text[at : match.start()]))
        codes = " ".join(f"U+{ord(letter):04X}" for letter in match[0])
        parts.append(f"\\foreignletters{{{match[0]}}}{{{codes}}}")
        at = match.end()
    return "".join([*parts, _plain(text[at:])])


def _plain(text: str) -> str:
    return "".join(_ESCAPED.get(letter, letter) for letter in _LIGATURES.sub(r"\g<0>\0", text)).replace("\0", "{}")


def _blocks(sheet: Sheet) -> Iterator[list[int]]:
    if not sheet.rows:
        return
    fixed = [at for at, column in enumerate(sheet.columns) if not column.across]
    across = [at for at, column in enumerate(sheet.columns) if column.across]
    for start in range(0, max(1, len(across)), _MOST_COLUMNS):
        yield [*fixed, *across[start : start + _MOST_COLUMNS]]


class _Column:
    def __init__(self, sheet: Sheet, at: int) -> None:
        texts = [row[at] for row in sheet.rows]
        self.width = max(map(len, [sheet.columns[at].heading, *texts])) + 2
        scores = [None if sheet.columns[at].kind == "text" else _SCORE.fullmatch(text) for text in texts]
        numbers = [best[1] for best in scores if best]
        has_intervals = any(best and best[2] for best in scores)
        self._numeric = bool(numbers)
        self.layout = _layout(numbers) + ("@{\\,}l" if has_intervals else "")
        heading = sheet.columns[at].heading
        self.heading = f"\\multicolumn{{2}}{{c}}{{{escape_latex(heading)}}}" if has_intervals else self._text(heading)
        self.cells = [
            self._cell(text, best, (row, at) in sheet.best) + ("" if not has_intervals or (best and best[2]) else " &")
            for row, (text, best) in enumerate(zip(texts, scores, strict=True))
        ]

    def _cell(self, text: str, score: re.Match[str] | None, bold: bool) -> str:
        if score is None:
            return self._text(text)
        after = f" & {{\\scriptsize {escape_latex(score[2])}}}" if score[2] else ""
        return ("\\bfseries " if bold else "") + score[1].replace(",", "") + after

    def _text(self, text: str) -> str:
        """Escape a text, in braces in siunitx columns, which expect numbers, or if LaTeX would read it as an option."""
        return f"{{{escape_latex(text)}}}" if text and (self._numeric or _STEERS.match(text)) else escape_latex(text)


def _layout(numbers: Sequence[str]) -> str:
    if not numbers:
        return "l"
    plain = [number.replace(",", "").lstrip("+") for number in numbers]
    sign = "-" if any(text.startswith("-") for text in plain) else ""
    integer_digits = max(len(text.partition(".")[0].lstrip("-")) for text in plain)
    return f"S[table-format={sign}{integer_digits}.{max(len(text.partition('.')[2]) for text in plain)}]"


def _table(sheet: Sheet, indices: Sequence[int], *, continued: bool) -> str:
    columns = [_Column(sheet, at) for at in indices]
    lines = [
        f"\\begin{{tabular}}{{{''.join(column.layout for column in columns)}}}",
        "\\toprule",
        " & ".join(column.heading for column in columns) + " \\\\",
        "\\midrule",
        *(" & ".join(cells) + " \\\\" for cells in zip(*(column.cells for column in columns), strict=True)),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    body = "\n".join(lines)
    if sum(column.width for column in columns) > _WIDEST:
        body = f"\\resizebox{{\\linewidth}}{{!}}{{%\n{body}}}"
    caption = escape_latex(sheet.title) + (" (continued)" if continued else "")
    notes = "".join(f"\\par\\smallskip\\footnotesize {escape_latex(note)}\n" for note in sheet.notes)
    return f"\n\\begin{{table}}[!htp]\n\\centering\n\\caption{{{caption}}}\n{body}\n{notes}\\end{{table}}\n"
