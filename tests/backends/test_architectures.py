"""Some of the architectures of ``just architectures``: every way of attention and of memory is among them."""

from __future__ import annotations

import json
import warnings

import pytest

pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

from tiny_families.answers import card_of, hf_card, look, prompts
from tiny_families.configs import COMMON, FAMILIES, WINDOW
from tiny_families.making import make

from lbx.backends import load, resolve_model
from lbx.base.errors import BackendError
from lbx.base.records import Request, SampleKey
from lbx.inference.completing import complete

STATES, COPIES = "yes, with states", "yes, by copies"
CHOSEN = {  # family: the attention that transformers has for it, and how it shares, or why it cannot
    "llama": ("sdpa", "yes"),
    "mixtral": ("sdpa", "yes"),  # experts
    "deepseek_v3": ("sdpa", "yes"),  # latent attention
    "mistral3, with eyes": ("sdpa", "yes"),  # no class for text alone
    "gemma2": ("eager", "yes"),  # soft-capping, windows
    "gpt_oss": ("eager", "yes"),  # sinks, windows, experts
    "bloom": ("eager", COPIES),  # ALiBi
    "mamba": ("eager", STATES),  # no attention at all; forgets between pieces of several tokens
    "mamba2": ("eager", STATES),
    "bamba": ("sdpa", STATES),  # recurrent first, so that its cache counts no tokens
    "jamba": ("sdpa", STATES),
    "qwen3_5, with eyes": ("sdpa", STATES),  # linear attention
    "llama4": ("sdpa", "yes"),  # chunks
    "glm_moe_dsa": ("sdpa", COPIES),  # an index of what to attend to
    "longrope": ("sdpa", COPIES),
    "dynamic rope": ("sdpa", "depends on the length"),  # factors that outlive a prompt
}


@pytest.fixture(autouse=True)
def quiet():
    """Transformers warns of kernels that are not installed, and of tiny configurations."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def made(tmp_path):
    def of(name: str):
        from tiny import make_tokenizer

        return make(FAMILIES[name], tmp_path / "model", make_tokenizer())

    return of


def test_prompts_are_longer_than_any_window():
    assert min(map(len, prompts())) > 3 * WINDOW


@pytest.mark.parametrize("name", CHOSEN)
def test_it_loads_and_answers_as_generate_does(name, made):
    attention, sharing = CHOSEN[name]
    found = look(made(name))
    assert found.good, found
    assert (len(found.cold), len(found.after)) == (4, 5)
    assert found.attention == attention
    if found.single is None:
        assert (found.how, len(found.among)) == (sharing, 4)
    else:
        assert sharing in found.single


def test_a_model_with_eyes_says_how_long_its_context_is(made):
    backend = load(resolve_model(str(made("mistral3, with eyes"))))
    assert backend.info.context_window == COMMON["max_position_embeddings"]
    backend.close()


@pytest.mark.parametrize("place", ["top", "text_config"])
def test_the_attention_is_not_config_jsons_choice(place, made):
    folder = made("llama" if place == "top" else "gemma3, with eyes")
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    table = config if place == "top" else config["text_config"]
    table |= {"_attn_implementation": "flash_attention_2", "attn_implementation": "flash_attention_2"}
    path.write_text(json.dumps(config), "utf-8")
    backend = load(hf_card(folder))
    assert backend.info.settings["attention"] == "sdpa"
    assert complete(backend, Request(SampleKey("a", "b", "c"), (5, 6, 7), 4)).output_tokens > 0
    backend.close()


def test_an_attention_that_the_model_lacks_is_refused_with_what_helps(made):
    with pytest.raises(BackendError, match="no sdpa attention for this model") as caught:
        load(card_of(made("gemma2"), attention="sdpa"))
    assert "Take attention out" in caught.value.fix


def test_a_model_that_insists_on_another_cache_is_refused_when_it_is_loaded(made):
    with pytest.raises(BackendError, match="cannot be computed token by token"):
        load(hf_card(made("minimax")))


def test_a_model_that_forgets_is_refused(made, monkeypatch):
    """As lbx itself made Mamba do: a memory by a name that the model does not know is passed over in silence."""
    from lbx.backends.hf import single

    monkeypatch.setattr(single, "_CACHES", ("past_key_values",))
    with pytest.raises(BackendError, match="forgets"):
        load(hf_card(made("mamba2")))
