"""Model cards: strict reading, and what a bad one says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lbx.backends import KINDS, load, read_card
from lbx.backends.cards import refuse_without_end
from lbx.backends.hf.options import HfOptions, SentenceTransformersOptions
from lbx.backends.llama.options import LlamaEmbeddingOptions, LlamaOptions
from lbx.base.errors import BackendError, UsageError
from lbx.base.records import Sampling

MODELS = Path(__file__).parents[2] / "models"
GOOD = 'backend = "llamacpp"\n[weights]\npath = "m.gguf"\n'
VECTORS = GOOD.replace("llamacpp", "sentence_transformers")
SERVED = 'backend = "endpoint"\n[options]\n'
EMBEDS = 'backend = "endpoint_embedding"\n[options]\n'
URL = 'url = "http://h/v1"\n'


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
    assert found.chat.choose_template("own") == "own"


def test_chat_settings(card, tmp_path):
    (tmp_path / "chat.jinja").write_text("{{ messages }}")
    assert card(GOOD + '[chat]\ntemplate_file = "chat.jinja"').chat.choose_template("own") == "{{ messages }}"
    assert card(GOOD + '[chat]\ntemplate = "x"').chat.choose_template(None) == "x"
    off = card(GOOD + "[chat]\nenabled = false").chat
    assert off.choose_template("own") is None
    assert off.settings("own") != card(GOOD).chat.settings("own")


def test_stop_strings(card):
    assert card('stop = ["\\nUser:", "<|im_end|>"]\n' + GOOD).stop == ("\nUser:", "<|im_end|>")
    assert card(GOOD).stop == ()


def test_numbers_may_be_whole(card):
    assert card(GOOD + "[sampling]\ntemperature = 1").sampling == Sampling(temperature=1.0)


BAD_CARDS = [
    ("backend = ", "not valid TOML"),
    ('backend = "lamacpp"\n[weights]\npath = "m"', "unknown backend 'lamacpp'. Did you mean llamacpp?"),
    ('[weights]\npath = "m"', "Set backend to one of endpoint, endpoint_embedding, hf, llamacpp,"),
    ("contextwindow = 5\n" + GOOD, "'contextwindow'. Did you mean context_window?"),
    ('context_window = "5"\n' + GOOD, "context_window must be a whole number, not '5'"),
    ("context_window = true\n" + GOOD, "context_window must be a whole number, not True"),
    ("context_window = 0\n" + GOOD, "context_window must be at least 1, not 0"),
    ('name = " "\n' + GOOD, "name must not be empty"),
    ('stop = "User:"\n' + GOOD, """not 'User:'. Write e.g. stop = ["\\nUser:"]."""),
    ('stop = ["User:", ""]\n' + GOOD, "a list of non-empty strings, not ['User:', '']"),
    ("stop = [3]\n" + GOOD, "stop must be a list of strings, not [3]"),
    ('stop_strings = ["a"]\n' + GOOD, "'stop_strings'. Use stop at the top of the card,"),
    (GOOD + '[sampling]\nstop_sequences = ["a"]', "[sampling] has no setting 'stop_sequences'. Use stop at the top"),
    (GOOD + "[options]\nn_ctx = 9", "[options] has no setting 'n_ctx'. Use context_window at the top of the card,"),
    ('backend = "hf"\nmodel = "x.gguf"', "'model'. Set the path of the weights in a separate table"),
    ('backend = "hf"\nweights = "x.gguf"', '[weights], and below it path = "x.gguf".'),
    ('backend = "hf"\nrepo = "a/b"', '[weights], and below it repo = "a/b".'),
    ("max_model_len = 9\n" + GOOD, "'max_model_len'. Use context_window at"),
    (GOOD + '[options]\nstop = ["a"]', "[options] has no setting 'stop'. Move stop to the top of the card"),
    (GOOD + '[chat]\nstop = ["a"]', "[chat] has no setting 'stop'. Move stop to the top of the card"),
    (GOOD + "context_window = 5", "[weights] has no setting 'context_window'. Move context_window to the top"),
    ('backend = "hf"', "exactly one of path, bundle, repo; it has none"),
    (GOOD + 'repo = "a/b"', "it has path and repo"),
    (GOOD + 'revision = "main"', "revision requires repo"),
    (GOOD + 'patth = "main"', "[weights] has no setting 'patth'. Did you mean path?"),
    (GOOD + "[options]\nn_gpu_layer = 3", "'n_gpu_layer'. Did you mean n_gpu_layers"),
    (GOOD + '[options]\ndtype = "float32"', "no setting 'dtype'"),
    (GOOD + '[options]\ncache_type_v = "q8_0"', "cache_type_v = 'q8_0' needs flash attention"),
    (GOOD + '[options]\ncache_type_k = "f17"', "cache_type_k must be f16"),
    (GOOD + "[options]\nprefill_chunk = 0", "prefill_chunk must be at least 1, not 0"),
    ('backend = "hf"\n[weights]\npath="m"\n[options]\ndevice = "gpu"', "auto, cpu, cuda or cuda:N, not 'gpu'"),
    (GOOD + "[sampling]\ntemprature = 1", "'temprature'. Did you mean temperature?"),
    (GOOD + "[sampling]\ntop_p = 0", "top_p = 0.0"),
    (GOOD + "[sampling]\ntemperature = nan", "temperature = nan"),
    (GOOD + "[chat]\nkwargs = 3", "kwargs must be a table"),
    (GOOD + '[chat]\ntemplate = "x"\ntemplate_file = "y"', "both template and template_file"),
    (GOOD + '[chat]\ntemplate_file = "y"', "cannot be read"),
    ("weights = 3\n" + 'backend = "hf"', "weights must be a table"),
    ('backend = "hf"\n[tokenizer]\npath = "x"\n[weights]\npath = "x"', "only endpoints support [tokenizer]"),
    (SERVED + 'url = "127.0.0.1:8080"', "url = '127.0.0.1:8080'"),
    (SERVED + 'url = "http://127.0.0.1:port/v1"', "url = 'http://127.0.0.1:port/v1'"),
    (SERVED + 'url = "http://me:secret@h/v1"', "user name or password"),
    (SERVED + 'url = "http://h/v1?key=1"', "url = 'http://h/v1?key=1'"),
    (SERVED + URL + 'api = "responses"', "api must be"),
    (SERVED + URL + 'server = "ollama"', "server must be"),
    (SERVED + URL + "concurrency = 0", "concurrency must be at least 1, not 0"),
    (SERVED + URL + "retries = -1", "retries must be at least 0, not -1"),
    (SERVED + URL + "timeout_s = 0", "timeout_s must be more than 0 seconds, not 0.0"),
    (SERVED + URL + "pause_s = -1", "seconds, not -1.0"),
    (SERVED + URL + "pause_s = nan", "seconds, not nan"),
    (SERVED + URL + 'extra_body = "x"', "extra_body must be a table"),
    (SERVED + URL + "extra_body = { n = 2, temperature = 1 }", "extra_body contains n, temperature"),
    (SERVED + URL + "extra_body = { since = 2024-01-01 }", "Write dates as strings"),
    (SERVED + URL + "extra_body = { x = inf }", "extra_body cannot be sent as JSON"),
    (SERVED + URL + 'modle = "x"', "no setting 'modle'. Did you mean model"),
    (SERVED + URL + '[weights]\npath = "x"', "endpoints do not support [weights]"),
    (SERVED + URL + '[tokenizer]\nfile = "x"', "[tokenizer] needs exactly one of path, bundle, repo"),
    ("context_window = 5\n" + VECTORS, "embedding models do not support context_window"),
    (VECTORS + "[chat]\nenabled = false", "embedding models do not support chat"),
    (VECTORS + "[sampling]\ntemperature = 1", "embedding models do not support sampling"),
    (VECTORS + '[options]\npooling = "max"', "pooling must be '', mean, last, cls, not 'max'"),
    (VECTORS + '[options]\ndtype = "auto"', "dtype must be float32"),
    (VECTORS + '[options]\npadding_side = "middle"', "padding_side must be auto, left, right, not 'middle'"),
    (VECTORS + "[options]\nbatch_tokens = 0", "batch_tokens must be at least 1, not 0"),
    (VECTORS + '[options]\nquery_prefx = "q"', "no setting 'query_prefx'. Did you mean query_prefix"),
    (VECTORS + "[options]\nmax_length = -1", "max_length must be at least 0, not -1"),
    (EMBEDS, "url = ''"),
    (EMBEDS + 'url = "ftp://x"', "url = 'ftp://x'"),
    (EMBEDS + URL + "batch_texts = 0", "batch_texts must be at least 1, not 0"),
    (EMBEDS + URL + "concurrency = 2", "concurrency"),
    (EMBEDS + URL + '[weights]\npath = "x"', "do not support [weights]"),
    (EMBEDS + URL + '[tokenizer]\npath = "x"', "embedding models do not support tokenizer"),
    ("context_window = 5\n" + EMBEDS + URL, "embedding models do not support context_window"),
]


@pytest.mark.parametrize(("text", "named"), BAD_CARDS)
def test_bad_cards_are_explained(card, text, named):
    with pytest.raises(UsageError) as caught:
        card(text)
    assert named in str(caught.value)
    assert "card.toml" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (SERVED + URL + 'api = "completions"', r"no \[tokenizer\]"),
        (SERVED + URL + "[chat]\nenabled = false", "the server applies its own"),
        ("context_window = 4096\n" + SERVED + URL, r"has no \[tokenizer\]"),
    ],
)
def test_cards_of_servers_that_contradict_themselves(card, text, named):
    with pytest.raises(UsageError, match=named):
        load(card(text))


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


def test_a_model_needs_a_token_or_a_string_that_ends_its_answers(card):
    with pytest.raises(BackendError, match="No token ends the answers of card") as refused:
        refuse_without_end(card(GOOD), frozenset())
    assert "Convert the model again" in refused.value.fix and "stop" in refused.value.fix
    refuse_without_end(card(GOOD), {1})
    refuse_without_end(card('stop = ["\\n"]\n' + GOOD), frozenset())
