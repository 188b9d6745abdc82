"""Positions beyond what a model was trained for: the numbers of transformers itself with the same configuration."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from lbx.backends import load
from lbx.backends.cards import ModelCard, parse_card
from lbx.base.errors import BackendError, UsageError
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete
from tests.backends.plain import Steps

pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

TRAINED, FACTOR, THETA, ROTATED = 64, 4.0, 10000.0, 16
KINDS = {
    "linear": {"rope_type": "linear", "rope_theta": THETA, "factor": FACTOR},
    "dynamic": {"rope_type": "dynamic", "rope_theta": THETA, "factor": FACTOR},
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": THETA,
        "factor": FACTOR,
        "original_max_position_embeddings": TRAINED,
    },
    # The authors' runner: base * alpha ** (dim / (dim - 2)).
    "ntk": {"rope_type": "default", "rope_theta": THETA * FACTOR ** (ROTATED / (ROTATED - 2))},
}


@pytest.fixture(scope="module")
def short(once):
    """A folder of a tiny Llama that was made for TRAINED tokens."""
    from tests.backends.tiny import make_model

    return once("tiny-short", lambda folder: make_model(folder / "hf", window=TRAINED)) / "hf"


def card(folder, **options) -> ModelCard:
    table = {"backend": "hf", "weights": {"path": str(folder)}, "options": options}
    return parse_card(table, folder / "card.toml")


def loaded(folder, **options):
    return load(card(folder, **options))


def last_logits(folder, ids):
    """By transformers alone, the whole prompt at once."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0, -1].numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_the_trained_window_the_numbers_are_those_of_transformers(short, tmp_path, kind):
    folder = shutil.copytree(short, tmp_path / "edited")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"rope_parameters": KINDS[kind]}))
    ids = [7 + 13 * n % 400 for n in range(3 * TRAINED)]
    wanted, plain = last_logits(folder, ids), last_logits(short, ids)
    backend = loaded(short, rope_scaling=kind, rope_factor=FACTOR, prefill_chunk=32)
    got = Steps(backend).prefill(ids)
    assert np.abs(got - wanted).max() < 1e-3 * np.ptp(wanted)
    assert np.abs(got - plain).max() > 1e-2 * np.ptp(wanted), "unscaled it says something else"
    assert backend.info.context_window == TRAINED * FACTOR
    assert (backend.info.settings["rope_scaling"], backend.info.settings["rope_factor"]) == (kind, FACTOR)
    assert (backend.sequences().traits.single_reason is not None) == (kind == "dynamic")
    told = complete(backend, Request(SampleKey("b", "t", "s"), tuple(ids), 4))
    assert told.output_tokens
    backend.close()


def test_without_it_nothing_is_stored_and_the_window_stays(short):
    backend = loaded(short)
    assert backend.info.context_window == TRAINED
    assert not [name for name in backend.info.settings if name.startswith("rope")]
    backend.close()


def test_a_window_beyond_the_stretched_one_is_refused(short):
    table = {"backend": "hf", "context_window": 257, "weights": {"path": str(short)}}
    options = {"rope_scaling": "ntk", "rope_factor": FACTOR}
    with pytest.raises(BackendError, match="64 tokens, extended to 256 by rope_factor; a context window of 257"):
        load(parse_card(table | {"options": options}, short / "card.toml"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rope_scaling": "ntk"}, "rope_scaling and rope_factor must be set together"),
        ({"rope_factor": 2.0}, "rope_scaling and rope_factor must be set together"),
        ({"rope_scaling": "longrope", "rope_factor": 2.0}, "must be"),
        ({"rope_scaling": "ntk", "rope_factor": 0.5}, "must be between 1 and"),
        ({"rope_scaling": "ntk", "rope_factor": float("nan")}, "must be between 1 and"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_card(tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        card(tmp_path, **options)


@pytest.mark.parametrize(
    ("rope", "said"),
    [(KINDS["yarn"], r"already scales its rotary embedding \(yarn\)"), (None, "no rotary embedding")],
)
def test_a_model_that_cannot_be_stretched_is_refused(short, tmp_path, rope, said):
    folder = shutil.copytree(short, tmp_path / "other")
    config = json.loads((folder / "config.json").read_text())
    if rope is None:
        config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 64, "vocab_size": 500}
        config |= {"architectures": ["GPT2LMHeadModel"]}
    else:
        config |= {"rope_parameters": rope}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BackendError, match=said):
        loaded(folder, rope_scaling="linear", rope_factor=2.0)
