"""Check the language of the project: words that make prose vague, and names that are no nouns or verbs.

    python -m tools.language                  counts and limits; fails if a count is above the limit in a changed file
    python -m tools.language --list KIND      findings of one kind, e.g. messages, function or vague

LIMITS lists the kinds. Counts in prose are rates per 10,000 words; the rate matters, not the single word. Well-kept
packages contain 8 to 29 turns of phrase in docstrings and 8 to 25 in messages. A message is a string literal of at
least five words in lbx; pages are README.md and docs/. CONTRIBUTING.md contains examples.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LIMITS = {
    # Per 10,000 words: turns of phrase by where they are; in docstrings "has" as a verb, and nouns that fit anything.
    "docstrings": 19, "messages": 25, "pages": 41, "have": 14, "general": 23,
    # First lines of docstrings with a semicolon, and with a pronoun.
    "semicolon": 4, "pronoun": 565,
    # Names that are participles or adverbs, class names of two modules, and one-word names that name nothing.
    "function": 56, "parameter": 61, "field": 59, "class": 4, "module": 2, "duplicate": 4, "vague": 207,
}  # fmt: skip
"""Limits just above the counts of today; whoever lowers a count lowers the limit."""
PROSE = frozenset({"docstrings", "messages", "pages", "have", "general"})

PHRASES = re.compile(
    r"""\b(?:
        what | whose | (?:of|in)\ which | (?:how|so|as)\ many | how\ (?:much|far|often)
        | nobody | nothing | is\ none | none\ is | no\ such | there\ is\ none
        | stands? | stood | lies? | lay | beside | behind | apart | alone | goes | holds?
        | say | says | said | tells | told | where\ (?:there|it|that|they|one|an?|the)
        | (?:that|those)\ of | as\ (?:it|they)\ (?:is|are|was|were|has|have) | as\ of
        | made\ (?:of|from|by) | (?:is|are)\ made
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Clauses in place of nouns, things described by their absence, and things that stand, lie or speak."""

TENSES = "been begun become seen done found run come given taken written"
HAVE = re.compile(rf"\b(?:has|have)\b(?! (?:to|not|no longer|{TENSES.replace(' ', '|')}|\w+ed)\b)", re.IGNORECASE)
"""Has and have where a thing contains, stores, returns or needs another."""
GENERAL_NOUNS = re.compile(
    r"\b(?:parts?|pieces?|entry|entries|kinds?|places?|rules?|figures?|forms?|things?|stuff)\b", re.IGNORECASE
)
PRONOUNS = re.compile(
    r"""\b(?:
        its | their | they | them | (?<!if\ )it | ones?(?=\ (?:that|which|in)\b|[.,:;]|$)
        | (?:this|these)(?=\ (?:is|are|has|have|was|can|means)\b) | (?:this|that|these|those)(?=[.,:;]|$)
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Words for a noun which a first line seldom names. A condition such as "None if it is missing" names the noun."""

VAGUE_NAMES = frozenset(
    """
    about above across against all alone already also always among aside at away because below between both by each
    either else even ever every everybody few figure figures for form further here how if instead into just many more
    most much never of off often on only others otherwise out outlook over part parts place places
    px reading room say says seldom several since some still stuff sure than that there these thing things this those
    though three too toward under unlike until upon us very voices was were when where which while who why
    wish with within without yet
    """.split()  # noqa: SIM905
)
NO_NOUNS = frozenset(
    """
    after alike apart asked before begun beside bound built chosen cut done drawn elsewhere everyone found given grown
    heard held hidden kept known left lost made met now own paid perhaps put read rest said seen sent shown soon spent
    stood taken thrown together told whole won written
    """.split()  # noqa: SIM905
)
NOUNS_AND_FLAGS = frozenset("embed enabled failed feed need padded quantised seed speed truncated".split())  # noqa: SIM905
GENERATED = "<!-- Written by docs/generate.py"
"""Beginning of a page whose texts come from the code."""
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Findings:
    """Findings by kind, and number of words of prose by kind."""

    lines: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    words: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add_prose(self, kind: str, location: str, text: str, pattern: re.Pattern[str] = PHRASES) -> None:
        self.words[kind] += len(re.findall(r"[A-Za-z']+", text))
        self.add_matches(kind, location, text, pattern)

    def add_matches(self, kind: str, location: str, text: str, pattern: re.Pattern[str]) -> None:
        self.lines[kind] += [f"{location}: {match[0]!r} in {text.strip()[:100]!r}" for match in pattern.finditer(text)]

    def count(self, kind: str) -> float:
        """Findings per 10,000 words for prose, otherwise the number of findings."""
        n_findings = len(self.lines[kind])
        return n_findings / max(self.words[kind], 1) * 10_000 if kind in PROSE else n_findings


def is_participle(name: str) -> bool:
    """Whether the last word of a name is a participle or an adverb, e.g. ``_kept``, ``rows_found`` or ``RunAsked``."""
    word = re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name.strip("_")).lower().rsplit("_", 1)[-1]
    return word not in NOUNS_AND_FLAGS and (word in NO_NOUNS or (word.endswith("ed") and len(word) > 4))


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) and isinstance(node.body[0], ast.Expr):
            yield node.body[0]


def find_prose(source: str, path: str, findings: Findings) -> None:
    """Add the docstrings, comments and messages of a module."""
    tree = ast.parse(source)
    docstrings = set()
    for statement in _docstrings(tree):
        docstrings.add(id(statement.value))
        text = ast.get_source_segment(source, statement) or ""
        location = f"{path}:{statement.lineno}"
        findings.add_prose("docstrings", location, text)
        findings.add_prose("have", location, text, HAVE)
        findings.add_prose("general", location, text, GENERAL_NOUNS)
        first_line = text.strip().strip('"').splitlines()[0]
        findings.add_matches("semicolon", location, first_line, re.compile(";"))
        findings.add_matches("pronoun", location, first_line, PRONOUNS)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            findings.add_prose("docstrings", f"{path}:{token.start[0]}", token.string)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str) and len(node.value.split()) >= 5:
            findings.add_prose("messages", f"{path}:{node.lineno}", node.value)


def _is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in function.decorator_list)


def _names(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Yield (kind, name, line) of every function, parameter, class and field."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield "class", node.name, node.lineno
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    yield "field", statement.target.id, statement.lineno
        elif isinstance(node, ast.FunctionDef):
            if not _is_property(node):
                yield "function", node.name, node.lineno
            for argument in (*node.args.args, *node.args.kwonlyargs):
                yield "parameter", argument.arg, node.lineno


def find_names(source: str, path: str, findings: Findings) -> None:
    """Add the names of a module that are participles or adverbs, and one-word names that name nothing."""
    if is_participle(Path(path).stem):
        findings.lines["module"].append(path)
    for kind, name, line in _names(ast.parse(source)):
        if is_participle(name):
            findings.lines[kind].append(f"{path}:{line}: {name}")
        if name.strip("_").lower() in VAGUE_NAMES:
            findings.lines["vague"].append(f"{path}:{line}: {kind} {name}")


def _definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield (name, line) of every class and type alias of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if re.fullmatch("_?[A-Z]+[a-z][A-Za-z]*", name):
                yield name, node.lineno


def find_duplicates(sources: Mapping[str, str], findings: Findings) -> None:
    """Add the names that two modules give to classes or type aliases."""
    definitions = defaultdict(list)
    for path, source in sources.items():
        for name, line in _definitions(ast.parse(source)):
            definitions[name].append(f"{path}:{line}")
    for name, locations in sorted(definitions.items()):
        if len(locations) > 1:
            findings.lines["duplicate"].append(f"{name}: {', '.join(locations)}")


def find_all(root: Path) -> Findings:
    """Findings of ``lbx/``, ``docs/`` and ``README.md`` below a folder."""
    findings = Findings()
    sources = {str(path.relative_to(root)): path.read_text("utf-8") for path in sorted((root / "lbx").rglob("*.py"))}
    for path, source in sources.items():
        find_prose(source, path, findings)
        find_names(source, path, findings)
    find_duplicates(sources, findings)
    for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))):
        text = re.sub("```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        if not text.startswith(GENERATED):  # its texts are counted in the code
            findings.add_prose("pages", page.name, text)
    return findings


def changed_files(root: Path) -> list[str]:
    """Files that differ from the last commit, as paths below the folder. None where there is no repository."""
    command = ["git", "-C", str(root), "status", "--porcelain", "--no-renames", "--untracked-files=all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line[3:] for line in done.stdout.splitlines()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", choices=LIMITS, metavar="KIND", help="list the findings of one kind")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder with lbx/, docs/ and README.md")
    options = parser.parse_args(arguments)
    findings = find_all(options.root)
    if options.list:
        print("\n".join(findings.lines[options.list]))
        return 0
    counts = {kind: findings.count(kind) for kind in LIMITS}
    for kind, count in counts.items():
        print(f"{kind:12} {count:6.1f}  limit {LIMITS[kind]}")
    exceeded = [kind for kind, count in counts.items() if count > LIMITS[kind]]
    if exceeded:
        print(f"Above the limit: {', '.join(exceeded)}. Findings: python -m tools.language --list {exceeded[0]}")
    changed = changed_files(options.root)
    yours = [line for kind in exceeded for line in findings.lines[kind] if any(name in line for name in changed)]
    if yours:
        print("In files that you changed:", *yours, sep="\n")
    return 1 if yours else 0


if __name__ == "__main__":
    sys.exit(main())
