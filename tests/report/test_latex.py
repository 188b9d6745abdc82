"""Tables in LaTeX: what stands in them, and that a real TeX sets them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lbx.base.columns import Column
from lbx.report.format.render import escape_latex, latex_pieces
from lbx.report.format.sheets import Sheet

NASTY = (
    "a\\b_c%d&e#f$g{h}i~j^k<l>m|n\"o`p'q--r,,s[t]*u",
    "[starts with a bracket]",
    "*starts with a star",
    "模型 中文",
    "نموذج",
    "café – “Ünïcödé” … ß",
    "a\x1bb\u202ec\nd",
    "\\input{/etc/passwd}\\write18{id}",
)


def document(*sheets: Sheet) -> str:
    return "".join(latex_pieces(sheets))


def scores(names: tuple[str, ...] = ("qasper", "trec")) -> Sheet:
    columns = [Column("run", "run"), *(Column(name, name, "number", across=True) for name in names)]
    cells = ["44.9 ± 6.3", "1.5 [0.3, 7.9]", "-", "100.00 (all alike)", "", "-2.25", "1,234"]
    rows = [[run, *(cells[(at + n) % len(cells)] for n in range(len(names)))] for at, run in enumerate(NASTY)]
    return Sheet("As the paper has it: 5% & more", columns, rows, ["A note_with \\marks."], frozenset({(0, 1), (1, 2)}))


def test_numbers_stand_in_their_column_with_the_interval_behind_and_the_best_is_bold() -> None:
    columns = [Column("run", "run"), Column("x", "x_1", "number", across=True)]
    text = document(Sheet("T", columns, [["a", "44.9 ± 6.3"], ["b", "5.25"], ["c", "-"]], (), frozenset({(0, 1)})))
    assert "{lS[table-format=2.2]@{\\,}l}" in text
    assert "run & \\multicolumn{2}{c}{x\\_1} \\\\" in text
    assert "\na & \\bfseries 44.9 & {\\scriptsize $\\pm$ 6.3} \\\\" in text
    assert "\nb & 5.25 & \\\\" in text and "\nc & {-} & \\\\" in text


def test_marks_are_braced_only_where_tex_takes_them_for_something_else() -> None:
    columns = [Column("run", "run"), Column("x", "x", "number")]
    rows = [["a-b, c", "1.5 [0.3, 7.9]"], ["[b] *c*", "-"], ["d--e---f,,g", "2"], ["*h", ""]]
    text = document(Sheet("T", columns, rows))
    for line in (
        "\na-b, c & 1.5 & {\\scriptsize [0.3, 7.9]} \\\\",
        "\n{[b] *c*} & {-} &",
        "\nd-{}-e-{}-{}-f,{},g & 2 &",
    ):
        assert line in text, line
    assert "\n{*h} & " in text


def test_a_wide_table_is_continued() -> None:
    names = tuple(f"task{n}" for n in range(20))
    text = document(scores(names))
    assert text.count("\\begin{tabular}") == 3 and text.count("(continued)") == 2
    assert all(f"{{{name}}}" in text for name in names)


def test_no_character_keeps_a_meaning() -> None:
    for name in NASTY:
        plain = re.sub(r"\\foreignletters\{[^{}]*\}\{[^{}]*\}|\\[a-z]+\{\}|\\[_%&#${}]", "", escape_latex(name))
        assert "–" in name or not re.search("--|,,", plain), name
        assert not set(plain.replace("-{}", "").replace(",{}", "")) & set('\\_%&#$~^<>|"'), name
    assert escape_latex("a\x1bb\nc") == "a\\textbackslash{}x1bb\\textbackslash{}nc"


def test_without_rows_the_sentence_stands() -> None:
    text = document(Sheet("Failed samples", [Column("a", "a")], [], ["No sample failed."]))
    assert "No sample failed." in text and "tabular" not in text


def test_tex_sets_it(tmp_path: Path) -> None:
    if not shutil.which("pdflatex"):
        pytest.skip("no pdflatex here: apt-get install texlive-latex-recommended texlive-science")
    (tmp_path / "t.tex").write_text(document(scores(), scores(tuple(f"task{n}" for n in range(20)))), "utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"],
        cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-3000:]
    log = (tmp_path / "t.log").read_text("utf-8", "replace")
    assert (tmp_path / "t.pdf").stat().st_size > 10_000
    assert not re.search(r"^(?:!|LaTeX Warning: (?!Label|Float|Text page)|Package siunitx Warning)", log, re.MULTILINE)
