"""Model cards: strict reading, and what a bad one says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lbx.backends import KINDS, read_card
from lbx.backends.hf.options import HfOptions, SentenceTransformersOptions
from lbx.backends.llama.options import LlamaEmbeddingOptions, LlamaOptions
from lbx.base.errors import UsageError
from lbx.base.records import Sampling

MODELS = Path(__file__).parents[2] / "models"
GOOD = 'backend = "llamacpp"\n[weights]\npath = "m.gguf"\n'


@pytest.fixture
def card(tmp_path):
    def read(text: str):
        path = tmp_path / "card.toml"
        path.write_text(text, "utf-8")
        return read_card(path)

    return read


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.toml")), ids=lambda p: p.name)
def test_cards_of_the_project_are_valid(path):
    assert read_card(path).backend in KINDS


def test_the_example_card_shows_the_defaults():
    example = read_card(MODELS / "example.toml")
    assert example.options == LlamaOptions()
    assert example.weights.repo
    assert example.sampling == Sampling(temperature=0.6, top_p=0.95, top_k=20)
    assert example.chat.kwargs == {"enable_thinking": True}


def test_the_embedding_cards_show_the_defaults():
    official, gguf = (read_card(MODELS / f"qwen3-embedding-8b{name}.toml") for name in ("", "-gguf"))
    assert official.options == SentenceTransformersOptions()
    assert gguf.options == LlamaEmbeddingOptions(max_length=8192)
    assert official.embeds
    assert gguf.embeds


def test_a_short_card_has_defaults(card, tmp_path):
    found = card(GOOD)
    assert found.name == "card"
    assert found.weights.path == tmp_path / "m.gguf"
    assert found.context_window is None
    assert found.sampling is None
    assert found.chat.choose("own") == "own"


def test_chat_settings(card, tmp_path):
    (tmp_path / "chat.jinja").write_text("{{ messages }}")
    assert card(GOOD + '[chat]\ntemplate_file = "chat.jinja"').chat.choose("own") == "{{ messages }}"
    assert card(GOOD + '[chat]\ntemplate = "x"').chat.choose(None) == "x"
    off = card(GOOD + "[chat]\nenabled = false").chat
    assert off.choose("own") is None
    assert off.settings("own") != card(GOOD).chat.settings("own")


def test_stop_strings(card):
    assert card('stop = ["\\nUser:", "<|im_end|>"]\n' + GOOD).stop == ("\nUser:", "<|im_end|>")
    assert card(GOOD).stop == ()


def test_numbers_may_be_whole(card):
    assert card(GOOD + "[sampling]\ntemperature = 1").sampling == Sampling(temperature=1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("backend = ", "not valid TOML"),
        ('backend = "lamacpp"\n[weights]\npath = "m"', "'lamacpp' does not exist. Did you mean llamacpp?"),
        (
            '[weights]\npath = "m"',
            "it names no backend. Write backend = one of endpoint, endpoint_embedding, hf, llamacpp,",
        ),
        ("contextwindow = 5\n" + GOOD, "no setting 'contextwindow'. Did you mean context_window?"),
        ('context_window = "5"\n' + GOOD, "context_window must be a whole number, not '5'"),
        ("context_window = true\n" + GOOD, "context_window must be a whole number, not True"),
        ("context_window = 0\n" + GOOD, "context_window = 0 must be at least 1"),
        ('name = " "\n' + GOOD, "name is empty"),
        ('stop = "User:"\n' + GOOD, """stop must be a list of texts, not 'User:'. Write e.g. stop = ["\\nUser:"]."""),
        ('stop = ["User:", ""]\n' + GOOD, "stop must be a list of texts, none of them empty, not ['User:', '']"),
        ("stop = [3]\n" + GOOD, "stop must be a list of texts, not [3]"),
        (
            'stop_strings = ["a"]\n' + GOOD,
            "card.toml has no setting 'stop_strings'. Write stop, at the top of the card,",
        ),
        (
            GOOD + '[sampling]\nstop_sequences = ["a"]',
            "[sampling] has no setting 'stop_sequences'. Write stop, at the top",
        ),
        (
            GOOD + "[options]\nn_ctx = 9",
            "[options] has no setting 'n_ctx'. Write context_window, at the top of the card,",
        ),
        ('backend = "hf"\nmodel = "x.gguf"', "no setting 'model'. Write where the weights are in a table of their own"),
        ('backend = "hf"\nweights = "x.gguf"', 'table of their own: [weights], and below it path = "x.gguf".'),
        (
            'backend = "hf"\nrepo = "a/b"',
            'in a table of their own: [weights], and below it repo = "a/b".',
        ),
        ("max_model_len = 9\n" + GOOD, "has no setting 'max_model_len'. Write context_window, at"),
        (GOOD + '[options]\nstop = ["a"]', "[options] has no setting 'stop'. stop stands at the top of a card"),
        (GOOD + '[chat]\nstop = ["a"]', "[chat] has no setting 'stop'. stop stands at the top of a card"),
        (GOOD + "context_window = 5", "[weights] has no setting 'context_window'. context_window stands at the top"),
        ('backend = "hf"', "needs exactly one of path, bundle, repo; it has none"),
        (GOOD + 'repo = "a/b"', "it has path and repo"),
        (GOOD + 'revision = "main"', "revision goes with repo only"),
        (GOOD + 'patth = "main"', "[weights] has no setting 'patth'. Did you mean path?"),
        (GOOD + "[options]\nn_gpu_layer = 3", "no setting 'n_gpu_layer'. Did you mean n_gpu_layers"),
        (GOOD + '[options]\ndtype = "float32"', "no setting 'dtype'"),
        (GOOD + '[options]\ncache_type_v = "q8_0"', "needs flash attention"),
        (GOOD + '[options]\ncache_type_k = "f17"', "cache_type_k must be f16"),
        (GOOD + "[options]\nprefill_chunk = 0", "must be at least 1"),
        (
            'backend = "hf"\n[weights]\npath="m"\n[options]\ndevice = "gpu"',
            "device must be auto, cpu, cuda or cuda:N, not 'gpu'",
        ),
        (GOOD + "[sampling]\ntemprature = 1", "no setting 'temprature'. Did you mean temperature?"),
        (GOOD + "[sampling]\ntop_p = 0", "top_p = 0.0 is out of range"),
        (GOOD + "[sampling]\ntemperature = nan", "temperature = nan is out of range"),
        (GOOD + "[chat]\nkwargs = 3", "kwargs must be a table"),
        (GOOD + '[chat]\ntemplate = "x"\ntemplate_file = "y"', "both template and template_file"),
        (GOOD + '[chat]\ntemplate_file = "y"', "cannot be read"),
        ("weights = 3\n" + 'backend = "hf"', "weights must be a table"),
    ],
)
def test_bad_cards_are_explained(card, text, message):
    with pytest.raises(UsageError) as caught:
        card(text)
    assert message in str(caught.value)
    assert "card.toml" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_is_registered_is_there(kind):
    module, _, function = kind.load.partition(":")
    place = importlib.util.find_spec(module).origin
    assert re.search(rf"^def {function}\(", Path(place).read_text("utf-8"), re.MULTILINE)
    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    assert kind.extra in ("", *extras["optional-dependencies"])


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:3"])
def test_devices(device):
    assert HfOptions(device=device).device == device


def test_importing_the_room_loads_no_library_of_an_extra():
    code = (
        "import sys, lbx.backends, lbx.backends.llama.backend, lbx.backends.hf.backend, lbx.backends.scripted\n"
        "import lbx.backends.hf.embedding\n"
        "print(sorted({'torch', 'transformers', 'llama_cpp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
