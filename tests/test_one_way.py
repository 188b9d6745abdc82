"""Files are opened in two modules: what lbx reads in ``base.inputs``, what it writes in ``base.outputs``. A rule
over the syntax of every other module; who has a reason to open one itself stands here with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

LBX = Path(__file__).resolve().parents[1] / "lbx"
HOME = ("base/inputs.py", "base/outputs.py")

OPENING = frozenset(
    """
    open fdopen read_text read_bytes write_text write_bytes touch symlink_to hardlink_to mkfifo mknod link symlink
    mkstemp NamedTemporaryFile TemporaryFile SpooledTemporaryFile FileIO copyfile copy copy2 copytree move memmap
    safe_open load_file save_file from_pretrained SentenceTransformer llama_model_load_from_file GGUFReader
    fromfile loadtxt from_file ZipFile TarFile read_parquet read_csv load save
    """.split()  # noqa: SIM905
)
"""Names of functions and methods that open what their first argument names."""
OF_MODULES = frozenset({"copy", "load", "save", "link", "symlink", "move"})
"""Of these, which mean that only as a module's function: ``dict.copy`` opens nothing."""
MODULES = frozenset({"os", "io", "shutil", "numpy", "np", "torch", "tarfile", "codecs", "mmap"})

ALLOWED: dict[str, dict[str, str]] = {
    "backends/hf/embedding.py": {
        "SentenceTransformer": "model_files and refuse_unsound have looked at every file",
        "from_pretrained": "a method that is wrapped for a moment, and opens what the library opens",
    },
    "backends/hf/loading.py": {"from_pretrained": "refuse_unsound has looked at every file of the folder"},
    "backends/hf/checkpoint.py": {"safe_open": "behind require_file, in the one function that calls it"},
    "backends/hf/tokenizer.py": {
        "from_pretrained": "refuse_unsound has looked at every file of the folder",
        "from_file": "the same",
    },
    "backends/llama/library.py": {"llama_model_load_from_file": "check_gguf has opened every part before"},
    "backends/llama/tokenizer.py": {"NamedTemporaryFile": "made anew under a name that nobody knows before"},
    "benchmarks/base/data_files.py": {"ZipFile": "on a file of open_input", "open": "a member of such a zip"},
    "bundle/names.py": {"ZipFile": "on a file that is open"},
    "bundle/making/fetch.py": {"fdopen": "a descriptor of open_or_create"},
    "bundle/making/recipe.py": {"open": "tarfile, on a file of open_input"},
    "bundle/receiving/trusted_archive.py": {"TemporaryFile": "has no name that anybody could take"},
    "cli/machine.py": {"TemporaryFile": "has no name that anybody could take"},
    "base/standard_streams.py": {
        "open": "os.devnull, where nobody reads standard output any more, or a stream is closed",
        "fdopen": "that descriptor",
        "FileIO": "the descriptors of standard streams",
    },
    "base/journal_file.py": {"fdopen": "descriptors of open_or_create"},
    "base/crash_report.py": {"fdopen": "a pipe that this process has made"},
    "running/depth.py": {"load": "an array in the folder that the command has made", "save": "an array in memory"},
    "running/distributions.py": {"load": "an array of a file that is open"},
    "running/parity.py": {"load": "an array in the folder that the command has made", "save": "the same"},
    "report/draw/figures.py": {"read_text": "the style sheet of the package"},
    "report/page/page.py": {"read_text": "a file of the package"},
    "report/rows/reference.py": {"read_text": "files of the package"},
}


def opened(source: str) -> Iterator[tuple[int, str]]:
    """(line, name) of each mention of something that opens a file."""
    tree = ast.parse(source)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in OPENING:
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            # ``dict.copy`` opens nothing, and lbx's own records have fields that are called open.
            if of in MODULES or (node.attr not in OF_MODULES and (node.attr != "open" or id(node) in called)):
                yield node.lineno, node.attr
        elif isinstance(node, ast.Name) and node.id == "open" and id(node) in called:
            yield node.lineno, node.id
        elif isinstance(node, ast.ImportFrom) and not str(node.module).startswith("lbx."):
            yield from ((node.lineno, name.name) for name in node.names if name.name in OPENING)


@pytest.mark.parametrize("path", sorted(LBX.rglob("*.py")), ids=lambda path: str(path.relative_to(LBX)))
def test_files_are_opened_in_one_place(path: Path) -> None:
    name = str(path.relative_to(LBX))
    if name in HOME:
        return
    allowed = ALLOWED.get(name, {})
    found = list(opened(path.read_text("utf-8")))
    wrong = [f"lbx/{name}:{line}: {what}" for line, what in found if what not in allowed]
    assert not wrong, (
        f"{wrong}: read through lbx.base.inputs, write through lbx.base.outputs, or say why not in ALLOWED"
    )
    assert allowed.keys() <= {what for _, what in found}, "nothing needs this any more"


@pytest.mark.parametrize(
    "line",
    [
        "open('x')", "path.open()", "Path('x').read_text()", "path.write_bytes(b'')", "read = path.read_bytes",
        "os.open('x', 0)", "io.open('x')", "from os import open", "tempfile.NamedTemporaryFile()",
        "shutil.copyfile(a, b)", "shutil.copy(a, b)", "np.load('x')", "from safetensors import safe_open",
        "zipfile.ZipFile('x')", "tarfile.open('x')", "gguf.GGUFReader('x')", "duckdb.read_parquet('x')",
        "AutoModel.from_pretrained('x')",
    ],
)  # fmt: skip
def test_the_rule_sees(line: str) -> None:
    assert list(opened(line))


@pytest.mark.parametrize(
    "line", ["open_input(path)", "values.copy()", "texts.open", "json.load(file)", "self._load(x)", "read_bytes(path)"]
)
def test_the_rule_lets(line: str) -> None:
    assert not list(opened(line))
