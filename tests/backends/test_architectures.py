"""Some of the architectures of ``just architectures``: every way of attention and of memory is among them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

import torch

from lbx.backends import load, resolve_model
from lbx.backends.hf.folder_checks import refuse_unsafe_files
from lbx.backends.hf.single import Forward, full_logits, make_cache
from lbx.base.errors import BackendError
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete
from tests import profiles
from tests.backends.tiny import make_tokenizer
from tests.tiny_families.answers import (
    CHUNK,
    NEAR_TIE,
    NEW_TOKENS,
    card_of,
    crossing_prompts,
    hf_card,
    look,
    plain_model,
    prompts,
    references,
)
from tests.tiny_families.configs import FAMILIES, Family, decoders
from tests.tiny_families.excluded import EXCLUDED
from tests.tiny_families.known import NOT_LOADED
from tests.tiny_families.making import make
from tests.tiny_families.shrinking import COMMON, WINDOW

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
    "llama, longrope": ("sdpa", "depends on the length"),  # transformers keeps keys with short factors
    "phimoe, longrope": ("sdpa", COPIES),
    "dynamic rope": ("sdpa", "depends on the length"),  # factors that outlive a prompt
    "hunyuan_vl": ("sdpa", "yes"),  # factors that files call dynamic, and are not
    "gemma4, with eyes": ("sdpa", "yes"),  # heads of two sizes; a vocabulary for each layer
    "minimax": ("sdpa", COPIES),  # a cache of its own, and forgets between pieces of several tokens
    "xlstm": ("eager", COPIES),  # a cache of its own that is of no kind of transformers'
    "rwkv": ("eager", COPIES),  # a memory by a name of its own
    "recurrent_gemma": ("sdpa", "copied logits differ"),  # states in its layers, for one sequence at a time
    "unlimited_ocr": ("sdpa", "copied logits differ"),  # windows for what it writes, not for what it reads
}
REFUSED = {
    "paligemma": "has other logits if it is computed in parts",  # a prompt's tokens see those behind them
    "kosmos-2.5": "has other logits if it is computed in parts",  # positions that begin elsewhere
    "xlnet": "cannot continue a sequence",
    "cpmant": "cannot be computed token by token",
}
EXPERTS = 4
OTHERS = [name for name in FAMILIES if name not in (*CHOSEN, *NOT_LOADED)]
"""Families whose kinds of attention and of cache are those of a chosen one. `just architectures` asks all."""
PAGE = Path(__file__).parents[2] / "tests" / "architectures.md"


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
        return make(FAMILIES[name], tmp_path / "model", make_tokenizer())

    return of


def test_prompts_are_longer_than_any_window():
    assert min(map(len, prompts())) > 3 * WINDOW


@pytest.mark.parametrize("name", CHOSEN)
def test_it_loads_and_answers_as_generate_does(name, made):
    attention, sharing = CHOSEN[name]
    found = look(made(name))
    assert found.good, found
    assert (len(found.cold), len(found.after)) == (11, 12)
    assert found.attention == attention
    if found.single is None:
        assert (found.how, len(found.among)) == (sharing, 12)
    else:
        assert sharing in found.single


@pytest.mark.parametrize("name", profiles.chosen(OTHERS, OTHERS[:1]))
def test_the_other_families_answer_as_generate_does(name, made):
    found = look(made(name))
    assert found.good, found
    assert found.how


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_answer_otherwise_than_generate_is_refused(name, made):
    with pytest.raises(BackendError, match=REFUSED[name]):
        load(hf_card(made(name)))


def test_phi_4_multimodal_keeps_the_prompt_that_generate_forgets(tmp_path):
    """transformers drops its cache beyond the original length too, but then computes from the last token alone."""
    folder = make(Family("phi4_multimodal", FAMILIES["longrope"].options), tmp_path / "model", make_tokenizer())
    model, ids = plain_model(folder), list(crossing_prompts()[1])
    backend = load(hf_card(folder))
    answer = complete(backend, Request(SampleKey("a", "b", "c"), tuple(ids), NEW_TOKENS)).output_ids
    backend.close()
    assert len(ids) < WINDOW < len(ids) + len(answer)
    for token in answer:
        row = full_logits(model, ids)[-1]
        assert row.max() - row[token] <= NEAR_TIE * (row.max() - row.min())
        ids.append(token)
    assert tuple(references(model)[len(prompts()) + 1].tokens) != tuple(answer), "transformers has mended it"


def test_an_encoder_is_refused(tmp_path):
    """Its class is one for causal models, and without is_decoder each token sees those behind it."""
    folder = make(Family("bert"), tmp_path / "model", make_tokenizer())
    with pytest.raises(BackendError, match="has other logits if it is computed in parts") as caught:
        load(hf_card(folder))
    assert "an encoder" in caught.value.fix


def test_every_text_decoder_of_transformers_is_in_the_table_or_left_out_with_a_reason():
    """One that transformers gains is a family of its own at once, and lacks a row until the table is written anew."""
    rows = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text("utf-8").splitlines() if "| " in line]
    assert rows[2:] == list(FAMILIES), "just architectures --write tests/architectures.md"
    kinds = {family.model_type for family in FAMILIES.values()}
    assert kinds | EXCLUDED.keys() >= decoders().keys()
    assert not kinds & EXCLUDED.keys()
    assert decoders().keys() >= EXCLUDED.keys()


def test_the_table_explains_each_family_that_does_not_load():
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if "| does not load: " in line]
    assert {line.split(" | ")[0].removeprefix("| ") for line in lines} == set(NOT_LOADED)
    assert all(NOT_LOADED[line.split(" | ")[0].removeprefix("| ")] in line for line in lines)


def test_most_families_share_what_prompts_have_in_common():
    sharing = [line for line in PAGE.read_text("utf-8").splitlines() if " | yes" in line]
    assert len(sharing) >= 0.95 * (len(FAMILIES) - len(NOT_LOADED))


def test_no_kind_s_own_numbers_are_taken_for_damage(tmp_path):
    """As a vocabulary for each layer, which Gemma 3n and 4 have, was taken for so many layers."""
    from transformers import CONFIG_MAPPING

    for kind in sorted({family.model_type for family in FAMILIES.values()}):
        config = CONFIG_MAPPING[kind]()
        (tmp_path / "config.json").write_text(config.to_json_string(use_diff=False), "utf-8")
        refuse_unsafe_files(tmp_path)


@pytest.mark.parametrize(("heads", "ties"), [(4, True), (16, False)])
def test_an_index_of_few_heads_differs_from_generate_by_ties_alone(heads, ties, tmp_path, monkeypatch):
    """Whether in pieces as at once: no, as torch breaks ties; yes, once they are broken by place."""
    folder = make(Family("deepseek_v32", {"index_n_heads": heads}), tmp_path / "model", make_tokenizer())
    model, ids = plain_model(folder), list(prompts()[0])
    chosen, nudge = [], 0.0
    topk = torch.Tensor.topk

    def watched(scores, k, **more):
        if scores.shape[-1] > EXPERTS:
            places = torch.arange(scores.shape[-1])
            scores = scores + nudge * places
            picked = topk(scores, k, **more)
            chosen.append([(row, set(place.tolist())) for row, place in zip(scores[0], picked.indices[0], strict=True)])
            return picked
        return topk(scores, k, **more)

    def in_pieces(size):
        chosen.clear()
        cache, forward = make_cache(model.config), Forward(model)
        for at in range(0, len(ids), size):
            logits = forward(ids[at : at + size], cache, at)
        calls = [call for layer in (0, 1) for call in chosen[layer::2]]
        return logits[0, -1], [row for call in calls for row in call][: len(ids)]

    monkeypatch.setattr(torch.Tensor, "topk", watched)
    (whole, at_once), (parts, piece_by_piece) = in_pieces(len(ids)), in_pieces(CHUNK)
    differing = [
        (row[place].item(), other[place].item() if place < len(other) else 0.0)
        for (row, first), (other, second) in zip(at_once, piece_by_piece, strict=True)
        for place in first ^ second
        if row[place] > -1e30  # not of a later token
    ]
    assert bool(differing) == ties
    assert all(scores == (0.0, 0.0) for scores in differing)
    nudge = 1e-5
    (whole, _), (parts, _) = in_pieces(len(ids)), in_pieces(CHUNK)
    assert float((whole - parts).abs().max()) < 1e-4 * float(whole.max() - whole.min())


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
    assert "Remove attention" in caught.value.fix


def test_a_part_that_needs_a_library_is_refused_with_its_name(made, monkeypatch):
    import transformers

    def lacking(*_, **__):
        raise ImportError("TimmWrapperModel requires the timm library")

    folder = made("llama")
    monkeypatch.setattr(transformers.LlamaForCausalLM, "from_pretrained", lacking)
    with pytest.raises(BackendError, match="requires the timm library") as caught:
        load(hf_card(folder))
    assert "Install the library" in caught.value.fix


def test_a_model_that_forgets_is_refused(made, monkeypatch):
    """As lbx itself made Mamba do: a memory by a name that the model does not know is passed over in silence."""
    from lbx.backends.hf import single

    monkeypatch.setattr(single, "_CACHE_ARGUMENTS", ("past_key_values",))
    with pytest.raises(BackendError, match="cannot continue a sequence"):
        load(hf_card(made("mamba2")))
