"""Every type in which llama.cpp reads weights gives the numbers that it stands for, on this machine's CPU variant.

Rows of the embedding are exact: no product rounds them. Products are, too, as far as float32 can add: activations,
which llama.cpp rounds to 8 bits in blocks of 32 or 256 for most types, are whole numbers here, up to 127 in each block,
which that rounding leaves as they are.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
gguf = pytest.importorskip("gguf", reason="needs lbx[dev]")

from lbx.backends import load, load_embedder, resolve_embedder, resolve_model  # noqa: E402
from lbx.backends.llama import trial  # noqa: E402
from lbx.backends.llama.formats import NO_WEIGHTS, PLAIN, REARRANGED, REMOVED, slow_format_warning, tensor_types  # noqa: E402
from lbx.backends.llama.library import find_libraries, load_llama_cpp, log, select_variant  # noqa: E402
from lbx.backends.weights import list_models  # noqa: E402
from lbx.base.errors import BackendError  # noqa: E402
from lbx.engine.model import SequenceExtension  # noqa: E402
from tests.backends.llama_types import (  # noqa: E402
    TYPES,
    VOCABULARY,
    WIDTH,
    WITHOUT_REFERENCE,
    block_of,
    numbers_of,
    stored,
    traits,
    write_transparent,
)
from tests.command_line import Lbx  # noqa: E402

ULP = 2.0**-24
"""Of a float32's size: the most that rounding it once moves it."""
every_type = pytest.mark.parametrize("number", TYPES, ids=TYPES.get)


def logits(path: Path, tokens: range, together: int, **options) -> np.ndarray:
    """(tokens, VOCABULARY), each token alone in a sequence and so many of them in a pass, through lbx's own backend."""
    card = resolve_model(str(path))
    cells = 128 * 32  # a sequence's share of a padded pass begins at a multiple of 32
    options = dataclasses.replace(card.options, max_sequences=128, kv_cells=cells, **options)  # type: ignore[call-arg]
    found = []
    with closing(load(dataclasses.replace(card, options=options))) as backend:
        memory = backend.sequences()
        for at in range(0, len(tokens), together):
            for sequence in range(memory.max_sequences):
                memory.drop(sequence)
            some = tokens[at : at + together]
            found += memory.extend([SequenceExtension(sequence, [token], True) for sequence, token in enumerate(some)])
    return np.stack(found)


# --- the table


def test_the_table_is_that_of_the_installed_llama_cpp(tmp_path):
    """Newer ones may know more: then the table gets rows, and FIRST_UNKNOWN_TYPE is moved."""
    path = write_transparent(
        tmp_path / "m.gguf", {"output": np.zeros((VOCABULARY, 4 * WIDTH), np.uint8)}, {"output": 9999}
    )
    log.clear()
    llama_cpp = load_llama_cpp()
    assert not llama_cpp.llama_model_load_from_file(bytes(path), llama_cpp.llama_model_default_params())
    assert f"should be in [0, {trial.FIRST_UNKNOWN_TYPE})" in log.error_text()
    known = {number: traits(number) for number in range(trial.FIRST_UNKNOWN_TYPE)}
    read = {number: known[number].name.decode().upper() for number in known if number == 0 or known[number].to_float}
    assert read == TYPES
    assert {number for number in known if known[number].quantised and number in read} == TYPES.keys() - PLAIN.keys()
    assert {n: known[n].name.decode().upper() for n in NO_WEIGHTS} == NO_WEIGHTS
    assert {n for n in known if not known[n].block} == REMOVED.keys() | REARRANGED.keys()
    assert all(f"TYPE_{name} REMOVED" in known[number].name.decode() for number, name in REARRANGED.items())


def test_types_without_a_reference_of_others_are_these():
    """What gguf-py comes to read is held against it, and not against this folder's own definition."""
    read = {*gguf.quants._type_traits, gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16}
    assert {TYPES[number] for number in TYPES.keys() - read} == {"Q1_0", "Q2_0"}
    assert WITHOUT_REFERENCE.keys() == TYPES.keys() - read


# --- numbers


@every_type
def test_rows_are_the_numbers_that_they_stand_for(number, tmp_path):
    """Exactly: the embedding of a token is dequantised, and multiplied with nothing but 1."""
    data, numbers = stored(number)
    assert len(np.unique(numbers)) > 30 or TYPES[number] in ("Q1_0", "Q2_0", "TQ1_0", "TQ2_0")
    path = write_transparent(tmp_path / "m.gguf", {"token_embd": data}, {"token_embd": number})
    assert np.array_equal(logits(path, range(VOCABULARY), 128)[:, :WIDTH], numbers)


@pytest.mark.parametrize("repack", [True, False], ids=["rearranged", "plain"])
@every_type
def test_products_are_those_of_the_numbers(number, repack, tmp_path):
    """As closely as float32 adds: a weight alone, times 127, and whole rows of weights times whole numbers.

    With one number beside zeros a product is rounded four times at most (scales, code, offset, their sum), of terms no
    larger than twice the block's largest number: one is its offset. With many, adding each of WIDTH terms rounds once
    more.
    """
    data, numbers = stored(number)
    rng = np.random.default_rng(number)
    many = rng.integers(-127, 128, (WIDTH, WIDTH))
    many[:, ::32] = 127
    inputs = np.concatenate([127 * np.eye(WIDTH), many])
    tensors = {"token_embd": inputs.astype(np.float32), "output": data}
    path = write_transparent(tmp_path / "m.gguf", tensors, {"output": number})
    block, _ = block_of(number)
    largest = np.abs(numbers).reshape(VOCABULARY, -1, block).max(2).repeat(block, axis=1).astype(np.float64)
    roundings = np.where(np.arange(VOCABULARY) < WIDTH, 4, 4 + WIDTH)[:, None]
    bound = roundings * ULP * 2 * (np.abs(inputs) @ largest.T)
    product = inputs @ numbers.T.astype(np.float64)
    for together, tokens in ((128, range(VOCABULARY)), (1, range(WIDTH - 8, WIDTH + 8))):
        off = np.abs(logits(path, tokens, together, repack=repack) - product[tokens])
        assert (off <= bound[tokens]).all(), f"{(off / bound[tokens]).max():.3g} times the bound, {together} together"


@pytest.mark.parametrize("number", [2, 8, 12], ids=TYPES.get)
def test_what_torch_computes_between_two_passes_changes_nothing(number, tmp_path):
    """With AMX, torch clears the tile registers' shapes of its thread when it is done; llama.cpp sets them once."""
    torch = pytest.importorskip("torch", reason="needs lbx[hf]")
    data, _ = stored(number)
    inputs = np.random.default_rng(number).standard_normal((VOCABULARY, WIDTH))
    tensors = {"token_embd": inputs.astype(np.float32), "output": data}
    path = write_transparent(tmp_path / "m.gguf", tensors, {"output": number})
    before = logits(path, range(VOCABULARY), 128)
    square = torch.ones(256, 256, dtype=torch.bfloat16)
    assert (square @ square == 256).all()
    assert np.array_equal(logits(path, range(VOCABULARY), 128), before)


def test_the_trial_of_the_variant_in_use_multiplies_every_type():
    """By experts, too, and in every buffer."""
    chosen, _ = select_variant()
    library, _ = find_libraries()
    command = [sys.executable, "-P", trial.__file__, "check", library, *filter(None, [chosen.file])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *products, outcome = done.stdout.splitlines()
    assert json.loads(outcome)["wrong"] == ""
    for kind in ("", " by experts"):
        tried = {re.sub(r" in .*", "", line) for line in products if re.search(rf" in CPU{kind}, ", line)}
        assert tried == set(TYPES.values())


OF_TO_FLOAT = """
import ctypes, json, sys
from lbx.backends.llama import trial
def addresses():
    known = [ggml.get_type_traits(number).contents for number in range(trial.FIRST_UNKNOWN_TYPE)]
    return [ctypes.cast(one.to_float, ctypes.c_void_p).value or 0 for one in known]
ggml = trial.Ggml(sys.argv[1])
before = addresses()
ggml.load_variant(sys.argv[2])
assert addresses() == before
ranges = [(line.split()[0].split("-"), line.split()[-1]) for line in open("/proc/self/maps")]
print(json.dumps([[file for (low, high), file in ranges if int(low, 16) <= one < int(high, 16)] for one in before]))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("first", [False, True], ids=["loaded", "linked in"])
def test_what_the_trial_decodes_with_is_not_of_the_variant(first):
    """Where the variant is loaded when llama.cpp asks for it; and before all others, where its functions go first:
    as near as this wheel comes to one with the CPU's code linked in."""
    chosen, _ = select_variant()
    if not chosen.file:
        pytest.skip("this llama-cpp-python was built for one machine: it has no CPU variants")
    library, _ = find_libraries()
    environment = {"LD_PRELOAD": chosen.file, "LD_LIBRARY_PATH": str(library.parent)} if first else {}
    command = [sys.executable, "-c", OF_TO_FLOAT, library, chosen.file]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    files = json.loads(done.stdout.splitlines()[-1])
    assert [{Path(file).name.partition(".")[0] for file in one} for one in files] == [
        {"libggml-base"} if number in TYPES and number else set() for number in range(trial.FIRST_UNKNOWN_TYPE)
    ]


@pytest.mark.parametrize("number", [*TYPES][1:], ids=TYPES.get)
def test_any_bytes_are_the_numbers_of_the_reference(number):
    """Scales that are no numbers, infinite, or smaller than any normal one, too, which no model hands through."""
    rng = np.random.default_rng(number)
    blocks = rng.integers(0, 256, (1 << 14, traits(number).size), dtype=np.uint8)
    blocks[:, 0] = np.arange(len(blocks))  # the scale of MXFP4; a half's lower byte of others
    blocks[: len(blocks) // 4, :2] = [0xFF, 0x7B]  # the largest half
    numbers, found = numbers_of(number, blocks), np.empty((len(blocks), traits(number).block), np.float32)
    traits(number).to_float(blocks.ctypes.data, found.ctypes.data, found.size)
    assert np.array_equal(found, numbers, equal_nan=True)


# --- what is no type of weights


NOT_READ = {
    **{number: f"{name}, a type that llama.cpp does not support for weights" for number, name in NO_WEIGHTS.items()},
    **{number: f"{name}, which llama.cpp no longer supports" for number, name in (REMOVED | REARRANGED).items()},
    **{
        number: f"type {number}, which this version of llama.cpp does not know"
        for number in (trial.FIRST_UNKNOWN_TYPE, 2**32 - 1)
    },
}


def stored_otherwise(path: Path, number: int, tensor: str = "output") -> Path:
    block, size = block_of(number)
    return write_transparent(path, {tensor: np.zeros((VOCABULARY, WIDTH // block * size), np.uint8)}, {tensor: number})


@pytest.mark.parametrize("number", NOT_READ)
@pytest.mark.parametrize("kind", ["text", "vectors"])
def test_other_types_are_refused_by_name_before_they_are_loaded(kind, number, tmp_path, monkeypatch):
    """llama.cpp calls some damaged; it loads others, and the first product with them ends the process."""
    path = stored_otherwise(tmp_path / "m.gguf", number)
    monkeypatch.setattr(load_llama_cpp(), "llama_model_load_from_file", lambda *_: pytest.fail("it is loaded"))
    with pytest.raises(BackendError) as caught:
        load(resolve_model(str(path))) if kind == "text" else load_embedder(resolve_embedder(str(path)))
    assert caught.value.cause == f"{path} stores output.weight as {NOT_READ[number]}."
    assert re.search(r"Use (a|its) .*file", caught.value.fix)
    assert "truncated" not in str(caught.value)


def test_the_table_of_experts_is_whole_numbers(tmp_path):
    path = stored_otherwise(tmp_path / "m.gguf", 26, "blk.0.ffn_gate_tid2eid")
    assert tensor_types(path)["I32"] == VOCABULARY * WIDTH


def test_a_header_that_hides_its_types_is_refused(tmp_path):
    """A text of any length is passed over; what llama.cpp takes and lbx does not is not run unseen."""
    long = write_transparent(tmp_path / "long.gguf", {}, {}, tokenizer__huggingface__json="x" * (3 << 20))
    load(resolve_model(str(long))).close()
    many = write_transparent(tmp_path / "many.gguf", {}, {}, x__words=[""] * ((1 << 20) + 1))
    with pytest.raises(BackendError, match=r"header of .*many\.gguf is too large for lbx"):
        load(resolve_model(str(many)))


# --- what is said of it


def test_types_are_listed_and_part_of_a_run(tmp_path, monkeypatch):
    models = tmp_path / "models"
    models.mkdir()
    write_transparent(models / "plain.gguf", {}, {})
    mixed = {
        "token_embd": stored(14).data,
        **{f"blk.0.{name}": stored(12).data[:WIDTH] for name in ("ffn_up", "ffn_gate", "ffn_down")},
    }
    types = {name: 14 if name == "token_embd" else 12 for name in mixed}
    path = write_transparent(models / "mixed.gguf", mixed, types)
    stored_otherwise(models / "old.gguf", 4)
    monkeypatch.chdir(tmp_path)
    listed = {Path(one.name).stem: one for one in list_models()}
    assert {name: one.stored_as for name, one in listed.items()} == {"plain": "", "mixed": "Q4_K and Q6_K", "old": ""}
    assert (listed["old"].files_exist, "Q4_2, which llama.cpp no longer supports" in listed["old"].problem) == (
        False,
        True,
    )
    shown = Lbx()("models", cwd=tmp_path)
    assert "present, Q4_K and Q6_K" in re.sub(r"\s+", " ", shown.stdout)
    assert {one["stored_as"] for one in json.loads(Lbx()("models", "--json", cwd=tmp_path).stdout)} == {
        "",
        "Q4_K and Q6_K",
    }
    with closing(load(resolve_model(str(path)))) as backend:
        assert backend.info.hardware["stored_as"] == "Q4_K and Q6_K"


@pytest.mark.parametrize(
    ("title", "features", "other"),
    [
        ("Q4_1", "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1", "Q4_0"),
        ("Q4_1 and Q6_K", "CPU : AVX512 = 1", "Q4_0"),
        ("Q5_1", "CPU : AVX512 = 1 | AMX_INT8 = 1", "Q5_0"),
        ("Q4_1", "CPU : AVX512 = 1 | AMX_INT8 = 1", ""),
        ("Q4_0 and Q4_1", "CPU : AVX2 = 1", ""),
        ("Q4_1", "CPU : NEON = 1", ""),
        ("", "CPU : AVX2 = 1", ""),
    ],
)
def test_a_format_that_is_slow_on_this_processor_is_named(title, features, other):
    note = slow_format_warning(title, features)
    assert (f"A {other} file" in note) if other else note == ""


def test_a_slow_format_is_named_before_anything_is_asked(tmp_path, monkeypatch):
    """The first lines of plan and run are the backend's notes."""
    path = write_transparent(tmp_path / "slow.gguf", {"token_embd": stored(7).data}, {"token_embd": 7})
    monkeypatch.setattr("lbx.backends.llama.backend.cpu_variant", lambda: {"features": "CPU : AVX2 = 1"})
    with closing(load(resolve_model(str(path)))) as backend:
        assert any("slowly in Q5_1" in note and "Q5_0" in note for note in backend.info.notes)
