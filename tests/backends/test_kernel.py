"""The compiled kernel against references in float64, every variant that this processor can run."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lbx.backends.hf.kernel import VARIANTS, Kernel, find_kernel, kernel_file, make_layout
from lbx.engine.cell_table import AttentionSegment

REPOSITORY = Path(__file__).resolve().parents[2]
FEATURES = torch.cpu.get_capabilities()
RUNNABLE = [name for name, needs in VARIANTS.items() if all(FEATURES.get(need) for need in needs)]
CELLS = 2500
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 0.02}


@pytest.fixture(scope="module", params=RUNNABLE or [pytest.param("", marks=pytest.mark.skip("needs AVX2"))])
def kernel(request):
    if not kernel_file(request.param).is_file():
        pytest.skip("The kernel was not compiled: install a C++ compiler, and lbx again (just setup).")
    return Kernel(kernel_file(request.param))


def draw(heads, key_heads, tokens, size, value_size, dtype):
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(1, tokens, heads, size, generator=generator).transpose(1, 2)
    key = torch.randn(1, key_heads, CELLS, size, generator=generator)
    value = torch.randn(1, key_heads, CELLS, value_size, generator=generator)
    return query.to(dtype), key.to(dtype), value.to(dtype)


def reference(query, key, value, visible, scale):
    """Outputs and log-sum-exps in float64; ``visible`` has the cells of each token."""
    hidden = torch.ones(len(visible), CELLS, dtype=torch.bool)
    for row, cells in zip(hidden, visible, strict=True):
        row[cells] = False
    shared = query.shape[1] // key.shape[1]
    key, value = (states.double().repeat_interleave(shared, 1) for states in (key, value))
    scores = (query.double() @ key.transpose(-1, -2) * scale).masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def attend(kernel, query, key, value, cells, *, scale, counts=None, causal=False):
    """All tokens attend to the same cells, or each to its own row of them."""
    tokens = query.shape[2]
    columns = (cells.start, cells.stop) if isinstance(cells, slice) else cells.numpy()
    limits = np.arange(1, tokens + 1) if causal else None if counts is None else counts.numpy()
    return kernel.attend(query, key, value, make_layout([AttentionSegment(0, tokens, columns, limits=limits)]), scale)


def assert_close(found, expected, dtype):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.isfinite().all()
        assert (ours.double() - theirs).abs().max() <= TOLERANCES[dtype] * max(1.0, float(theirs.abs().max()))


SHAPES = [(9, 3, 64, 64), (4, 4, 80, 48), (8, 1, 36, 128), (2, 2, 192, 20)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("heads", "key_heads", "size", "value_size"), SHAPES)
class TestReference:
    def test_adjacent_cells(self, kernel, dtype, heads, key_heads, size, value_size):
        for tokens, cells in itertools.product((1, 7, 100), (1, 255, 257, 2313)):  # a block has 256 cells
            states = draw(heads, key_heads, tokens, size, value_size, dtype)
            found = attend(kernel, *states, slice(5, 5 + cells), scale=0.2)
            expected = reference(*states, [torch.arange(5, 5 + cells)] * tokens, 0.2)  # type: ignore[call-arg]
            assert_close(found, expected, dtype)

    def test_scattered_cells(self, kernel, dtype, heads, key_heads, size, value_size):
        cells = torch.randperm(CELLS, generator=torch.Generator().manual_seed(2))[:1100]
        states = draw(heads, key_heads, 5, size, value_size, dtype)
        found = attend(kernel, *states, cells, scale=0.2)
        assert_close(found, reference(*states, [cells] * 5, 0.2), dtype)  # type: ignore[call-arg]

    def test_causal(self, kernel, dtype, heads, key_heads, size, value_size):
        for tokens in (1, 6, 300):
            states = draw(heads, key_heads, tokens, size, value_size, dtype)
            found = attend(kernel, *states, slice(3, 3 + tokens), scale=0.2, causal=True)
            visible = [torch.arange(3, 4 + token) for token in range(tokens)]
            assert_close(found, reference(*states, visible, 0.2), dtype)  # type: ignore[call-arg]

    def test_private_cells(self, kernel, dtype, heads, key_heads, size, value_size):
        generator = torch.Generator().manual_seed(3)
        cells = torch.stack([torch.randperm(CELLS, generator=generator)[:700] for _ in range(6)])
        counts = torch.tensor([1, 700, 3, 256, 257, 512])
        states = draw(heads, key_heads, 6, size, value_size, dtype)
        found = attend(kernel, *states, cells, scale=0.2, counts=counts)
        visible = [row[:count] for row, count in zip(cells, counts, strict=True)]
        assert_close(found, reference(*states, visible, 0.2), dtype)  # type: ignore[call-arg]


def test_large_scores_do_not_overflow(kernel):
    query, key, value = draw(3, 3, 9, 64, 64, torch.float32)
    found = attend(kernel, query * 100, key, value, slice(0, 700), scale=1.0)
    expected = reference(query * 100, key, value, [torch.arange(700)] * 9, 1.0)
    assert_close(found, expected, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("hidden", [1, 256, 300, 1100, 2312])
class TestInfiniteScores:
    """Scores of the first cells are minus infinity."""

    def draw(self, tokens, hidden, dtype):
        query, key, value = draw(9, 3, tokens, 64, 64, dtype)
        query[..., 0] = 1.0
        key[:, :, :hidden, 0] = -torch.inf
        return query, key, value

    def test_adjacent_cells(self, kernel, dtype, hidden):
        for tokens in (1, 7, 100):
            states = self.draw(tokens, hidden, dtype)
            found = attend(kernel, *states, slice(0, 2313), scale=0.2)
            assert_close(found, reference(*states, [torch.arange(2313)] * tokens, 0.2), dtype)  # type: ignore[call-arg]

    def test_private_cells(self, kernel, dtype, hidden):
        states = self.draw(3, hidden, dtype)
        cells = torch.arange(2313).expand(3, -1)
        counts = torch.tensor([hidden + 1, min(hidden + 300, 2313), 2313])
        found = attend(kernel, *states, cells, scale=0.2, counts=counts)
        assert_close(found, reference(*states, [torch.arange(count) for count in counts], 0.2), dtype)  # type: ignore[call-arg]

    def test_causal(self, kernel, dtype, hidden):
        states = self.draw(2313, hidden, dtype)
        outputs, sums = attend(kernel, *states, slice(0, 2313), scale=0.2, causal=True)
        assert (outputs[:, :, :hidden] == 0).all() and (sums[:, :, :hidden] == -torch.inf).all()
        rows = torch.arange(hidden, 2313, 97)
        expected = reference(states[0][:, :, rows], *states[1:], [torch.arange(row + 1) for row in rows], 0.2)  # type: ignore[call-arg]
        assert_close((outputs[:, :, rows], sums[:, :, rows]), expected, dtype)

    def test_parts_without_a_finite_score(self, kernel, dtype, hidden):
        states = self.draw(7, hidden, dtype)
        bounds = (0, hidden // 2, hidden, 2313) if hidden > 1 else (0, 1, 2313)
        parts = [AttentionSegment(0, 7, span) for span in itertools.pairwise(bounds)]
        expected = reference(*states, [torch.arange(2313)] * 7, 0.2)  # type: ignore[call-arg]
        for order in (parts, parts[::-1]):
            assert_close(kernel.attend(*states, make_layout(order), 0.2), expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("tokens", [4, 200])
def test_nan_is_not_hidden(kernel, dtype, tokens):
    query, key, value = draw(3, 3, tokens, 64, 64, dtype)
    query[:, :, 2] = float("nan")
    outputs, sums = attend(kernel, query, key, value, slice(0, 2400), scale=0.1)
    is_nan = torch.arange(tokens) == 2
    assert (outputs.isnan().all(-1) == is_nan).all()
    assert (sums.isnan() == is_nan).all()
    for states in (key, value):
        changed = states.clone()
        changed[:, :, 2100] = float("nan")
        inputs = (changed, value) if states is key else (key, changed)
        outputs, _ = attend(kernel, query, *inputs, slice(0, 2400), scale=0.1)
        assert outputs.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_nan_in_a_private_cell_reaches_its_token_only(kernel, dtype):
    query, key, value = draw(6, 3, 3, 64, 64, dtype)
    cells = torch.arange(900).view(3, 300)
    for states in (key, value):
        changed = states.clone()
        changed[:, :, 420] = float("nan")  # of the second token
        inputs = (changed, value) if states is key else (key, changed)
        outputs, _ = attend(kernel, query, *inputs, cells, scale=0.1)
        assert outputs.isnan().any(-1).any(1).tolist() == [[False, True, False]]


def test_cells_that_no_token_sees_do_not_matter(kernel):
    query, key, value = draw(6, 3, 8, 64, 64, torch.float32)
    found = attend(kernel, query, key, value, slice(10, 18), scale=0.1, causal=True)
    for states in (key, value):
        states[:, :, :10] = states[:, :, 18:] = float("nan")
    again = attend(kernel, query, key, value, slice(10, 18), scale=0.1, causal=True)
    assert all(torch.equal(*pair) for pair in zip(found, again, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_row_depends_neither_on_other_rows_nor_on_threads(kernel, dtype):
    query, key, value = draw(9, 3, 300, 64, 64, dtype)
    threads = torch.get_num_threads()
    outputs = {}
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            outputs[count], _ = attend(kernel, query, key, value, slice(0, 2000), scale=0.1)
        part, _ = attend(kernel, query[:, :, 100:217], key, value, slice(0, 2000), scale=0.1)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(output, outputs[1]) for output in outputs.values())
    assert torch.equal(part, outputs[1][:, :, 100:217])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (386, 200), (1000, 7), (2, 1)])
class TestLinear:
    def draw(self, kernel, inputs, outputs, dtype):
        generator = torch.Generator().manual_seed(4)
        weight = torch.randn(outputs, inputs, generator=generator).to(dtype)
        if not kernel.can_multiply(weight):
            pytest.skip("This variant has no instructions for bfloat16.")
        bias = torch.randn(outputs, generator=generator).to(dtype)
        return torch.randn(3, 67, inputs, generator=generator).to(dtype), weight, bias

    def test_outputs(self, kernel, inputs, outputs, dtype):
        rows, weight, bias = self.draw(kernel, inputs, outputs, dtype)
        packed = kernel.pack(weight)
        for given in (None, bias):
            for some in (rows, rows[:1, :1], rows[:, :5], rows[:0]):
                expected = torch.nn.functional.linear(
                    some.double(), weight.double(), None if given is None else given.double()
                )
                assert torch.allclose(
                    kernel.multiply(some, packed, given).double(), expected, atol=TOLERANCES[dtype] * inputs**0.5
                )

    def test_the_weight_and_its_rows_are_kept(self, kernel, inputs, outputs, dtype):
        _, weight, _ = self.draw(kernel, inputs, outputs, dtype)
        packed, indices = kernel.pack(weight), torch.arange(outputs).flip(0)
        assert torch.equal(packed.to_dense(), weight)
        assert torch.equal(packed.rows(indices), weight[indices])
        assert torch.equal(kernel.pack(weight.t().contiguous().t()).numbers, packed.numbers)

    def test_an_output_depends_neither_on_other_rows_nor_on_threads(self, kernel, inputs, outputs, dtype):
        rows, weight, bias = self.draw(kernel, inputs, outputs, dtype)
        packed, threads = kernel.pack(weight), torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            expected = kernel.multiply(rows, packed, bias)
            torch.set_num_threads(5)
            assert torch.equal(kernel.multiply(rows, packed, bias), expected)
        finally:
            torch.set_num_threads(threads)
        assert all(
            torch.equal(kernel.multiply(rows[:, :count], packed, bias), expected[:, :count]) for count in range(1, 14)
        )


def test_unsupported_tensors_are_left_to_torch(kernel):
    query, key, value = draw(4, 2, 3, 64, 64, torch.float32)
    assert kernel.can_attend(query, key, value)
    assert not kernel.can_attend(query.half(), key.half(), value.half())
    assert not kernel.can_attend(query, key.bfloat16(), value)
    assert not kernel.can_attend(query, key.to("meta"), value)
    assert not kernel.can_attend(query, key.transpose(2, 3).contiguous().transpose(2, 3), value)
    assert not Kernel(kernel_file(RUNNABLE[0]), [torch.bfloat16]).can_attend(query, key, value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_parts_of_some_tokens_are_joined(kernel, dtype):
    """A group with a common prefix and rows of their own, another group, and windows inside a list of cells."""
    query, key, value = draw(9, 3, 400, 64, 64, dtype)
    generator = np.random.default_rng(5)
    listed = generator.permutation(CELLS)[:900]
    private = np.stack([generator.permutation(CELLS)[:40] for _ in range(50)])
    starts, limits = np.sort(generator.integers(0, 500, 150)), np.sort(generator.integers(501, 900, 150))
    parts = [
        AttentionSegment(0, 100, (100, 1500)),
        AttentionSegment(0, 60, (1500, 1560), limits=np.arange(1, 61)),
        AttentionSegment(60, 40, np.arange(2000, 2100), limits=np.arange(61, 101)),
        AttentionSegment(100, 150, listed, starts, limits),
        AttentionSegment(250, 50, (0, 20)),
        AttentionSegment(250, 50, private, limits=generator.integers(1, 41, 50)),
        AttentionSegment(300, 100, (700, 1900)),
    ]
    visible = [torch.empty(0, dtype=torch.int64)] * 400
    for part in parts:
        for token in range(part.tokens):
            cells = np.arange(*part.cells) if isinstance(part.cells, tuple) else part.cells
            cells = cells[token] if cells.ndim == 2 else cells
            start = 0 if part.starts is None else part.starts[token]
            seen = torch.from_numpy(cells[start : None if part.limits is None else part.limits[token]])
            visible[part.first_token + token] = torch.cat([visible[part.first_token + token], seen])
    scores = query.double() @ key.double().repeat_interleave(3, 1).transpose(-1, -2) * 0.2
    outputs, sums = kernel.attend(query, key, value, make_layout(parts), 0.2)
    for token, cells in enumerate(visible):  # a cell may be there twice
        chosen = scores[0, :, token, cells]
        expected = chosen.softmax(-1)[:, None] @ value.double().repeat_interleave(3, 1)[0, :, cells]
        found = (outputs[0, :, token], sums[0, :, token])
        assert_close(found, (expected[:, 0], chosen.logsumexp(-1)), dtype)


def test_the_fastest_variant_is_found():
    if not all(kernel_file(name).is_file() for name in RUNNABLE):
        pytest.skip("The kernel was not compiled: install a C++ compiler, and lbx again (just setup).")
    found = find_kernel()
    assert (found[0] if found else None) == (RUNNABLE[0] if RUNNABLE else None)


def build_kernel():
    spec = importlib.util.spec_from_file_location("build_kernel", REPOSITORY / ".ci" / "build_kernel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCES = kernel_file("x").parent


def seal(library, source=None):
    """Append what the build appends to a library."""
    if source is None:
        source = b"".join(path.read_bytes() for path in sorted((*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h"))))
    return library + hashlib.sha256(source + library).digest()


DAMAGE = {
    "empty": lambda library: b"",
    "truncated": lambda library: library[:4096],
    "truncated by a byte": lambda library: library[:-1],
    "changed": lambda library: library[:9000] + bytes([library[9000] ^ 1]) + library[9001:],
    "no library": lambda library: seal(b"no library"),
    "of another source": lambda library: seal(library[:-32], b"struct Arguments {};"),
    "without a digest": lambda library: library[:-32],
    "without a function": lambda library: seal(library[:-32].replace(b"decode_bfloat16", b"decode_bfloat32")),
}


def test_files_that_cannot_be_used_are_passed_over(kernel, tmp_path):
    """In a process of its own, which a damaged library could kill."""
    library = kernel_file(RUNNABLE[-1]).read_bytes()
    for name, damage in DAMAGE.items():
        (tmp_path / name).write_bytes(damage(library))
        assert damage(library) != library
    script = (
        "import sys; from pathlib import Path; from lbx.backends.hf import kernel as module\n"
        "for path in map(Path, sys.argv[1:]):\n"
        "    module.kernel_file = lambda variant: path\n"
        "    assert module.find_kernel.__wrapped__() is None, path\n"
        "print(sorted(module.unused_kernels()))"
    )
    command = [sys.executable, "-c", script, *(tmp_path / name for name in DAMAGE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert all(repr(name) in done.stdout for name in DAMAGE), done.stdout


def copy_sources(folder):
    for path in (*SOURCES.glob("*.cpp"), *SOURCES.glob("*.h")):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder / "kernel.cpp"


def test_a_build_of_another_source_is_refused(tmp_path):
    source = copy_sources(tmp_path)
    header = source.with_name("attention.h")
    content = header.read_text()
    header.write_text(content.replace("int64_t first_cell, columns;", "int64_t columns, first_cell;"))
    assert header.read_text() != content
    libraries = build_kernel().build_kernels(source)
    if not libraries:
        pytest.skip("There is no C++ compiler.")
    for library in libraries:
        with pytest.raises(OSError, match="compiled from the source of another version"):
            Kernel(library)


def test_a_machine_without_a_compiler_gets_a_wheel_without_kernels(tmp_path, monkeypatch, capsys):
    assert build_kernel().VARIANTS.keys() == VARIANTS.keys()
    source = copy_sources(tmp_path)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    assert build_kernel().build_kernels(source) == []
    assert sorted(tmp_path.iterdir()) == before
    assert "is left out" in capsys.readouterr().err


def test_the_kernel_loads_into_a_fresh_process():
    if not find_kernel():
        pytest.skip("The kernel was not compiled: install a C++ compiler, and lbx again (just setup).")
    script = "from lbx.backends.hf.kernel import find_kernel; print(find_kernel()[0])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == find_kernel()[0]
