"""Layers on the compiled kernel against transformers' modules, every variant that this processor can run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from lbx.backends.hf import attention, decoder, packed_linear, packing_probe
from lbx.backends.hf.decoder import CompiledDecoder
from lbx.backends.hf.kernel import Kernel, kernel_file
from lbx.backends.hf.packed_linear import pack_linear_layers
from lbx.backends.hf.sequence_memory import HfSequences
from lbx.engine.model import SequenceExtension
from tests.backends.test_kernel import RUNNABLE

SIZES = {
    "vocab_size": 300,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
KINDS = {
    "Llama": {},
    "Llama with biases": {"attention_bias": True, "mlp_bias": True},
    "Llama with tied embeddings": {"tie_word_embeddings": True},
    "Llama with scaled frequencies": {"rope_scaling": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    "Mistral": {"sliding_window": 9},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    "Qwen3": {},
    "SmolLM3": {"no_rope_layers": [1, 0, 1], "use_sliding_window": True, "sliding_window": 9, "pad_token_id": 0},
}
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 0.015}


@pytest.fixture(params=RUNNABLE or [pytest.param("", marks=pytest.mark.skip("needs AVX2"))])
def kernel(request, monkeypatch):
    if not kernel_file(request.param).is_file():
        pytest.skip("The kernel was not compiled: install a C++ compiler, and lbx again (just setup).")
    found = (request.param, Kernel(kernel_file(request.param)))
    for module in (attention, decoder, packed_linear):
        monkeypatch.setattr(module, "find_kernel", lambda: found)
    return found[1]


def make_model(kind, dtype=torch.float32, **settings):
    family = kind.partition(" ")[0]
    config = getattr(transformers, f"{family}Config")(**SIZES | KINDS.get(kind, {}) | settings)
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:  # zeros and ones would hide faults
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model.to(dtype).eval()


def draw_tokens(count, seed):
    return np.random.default_rng(seed).integers(1, 300, count).tolist()


def last_logits(model, tokens):
    with torch.inference_mode():
        return model(input_ids=torch.tensor([tokens])).logits[0, -1].float().numpy()


def difference(found, expected):
    return float(np.abs(found - expected).max() / np.ptp(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_modules(kernel, kind, dtype):
    if dtype not in kernel._decode:
        pytest.skip("This variant has no instructions for bfloat16.")
    document, first, second = draw_tokens(150, 0), draw_tokens(31, 1), draw_tokens(9, 2)
    model = make_model(kind, dtype)
    expected = [last_logits(model, [*document, *more]) for more in ((), first, second, [*first, 5], [*second, 6])]
    pack_linear_layers(model)
    memory = HfSequences(model, max_sequences=4, max_cells=700, max_step=512)
    assert memory.is_compiled
    found = memory.extend([SequenceExtension(0, document, True)])
    memory.fork(0, len(document), [1, 2])
    found += memory.extend([SequenceExtension(1, first, True), SequenceExtension(2, second, True)])
    found += memory.extend([SequenceExtension(1, [5], True), SequenceExtension(2, [6], True)])
    assert max(map(difference, found, expected)) < TOLERANCES[dtype]
    packed = [module for module in model.modules() if isinstance(module, packed_linear.PackedLinear)]
    assert len(packed) == 22 and all(module.panels for module in packed), "nothing has read a weight"


@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
def test_logits_depend_neither_on_neighbours_nor_on_threads(kernel, kind):
    """To the bit, as long as a token's attention is split the same way."""
    model = make_model(kind)
    pack_linear_layers(model)
    memory = HfSequences(model, max_sequences=12, max_cells=4000, max_step=512)
    prompt, threads = draw_tokens(40, 3), torch.get_num_threads()
    (alone,) = memory.extend([SequenceExtension(0, prompt, True)])
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            neighbours = [SequenceExtension(n, draw_tokens(7 * n, n), True) for n in range(1, 12)]
            memory.drop(0)
            found = memory.extend([*neighbours, SequenceExtension(0, prompt, True)])
            assert np.array_equal(found[-1], alone)
            for sequence in range(1, 12):
                memory.drop(sequence)
    finally:
        torch.set_num_threads(threads)


def test_weights_that_are_read_later_stay_in_memory(kernel):
    """To read the weight of a packed layer converts it back; the kernel still points to the panels."""
    model = make_model("Llama with tied embeddings")
    pack_linear_layers(model)
    memory = HfSequences(model, max_sequences=2, max_cells=64, max_step=64)
    linear = model.model.layers[0].mlp.gate_proj
    (expected,) = memory.extend([SequenceExtension(0, draw_tokens(20, 1), True)])
    shape = linear.panels.numbers.shape
    assert linear.weight.shape == (200, 96) and linear.panels is None
    overwritten = [torch.full(shape, torch.nan) for _ in range(200)]  # in memory that is free
    (found,) = memory.extend([SequenceExtension(1, draw_tokens(20, 1), True)])
    assert len(overwritten) == 200
    assert np.array_equal(found, expected)


def test_a_pass_is_computed_in_several_calls(kernel, monkeypatch):
    model = make_model("Llama")
    pack_linear_layers(model)
    prompt, results = draw_tokens(40, 3), []
    for products in (1, 1 << 40):
        monkeypatch.setattr(decoder, "_PRODUCTS_PER_CALL", products)
        memory = HfSequences(model, max_sequences=1, max_cells=64, max_step=64)
        results += memory.extend([SequenceExtension(0, prompt, True)])
    assert np.array_equal(*results)


@pytest.mark.parametrize(("kind", "settings"), [("Llama", {"hidden_act": "gelu"}), ("Olmo2", {})])
def test_other_layers_are_left_to_the_modules(kernel, kind, settings):
    model = make_model(kind, **settings)
    pack_linear_layers(model)
    assert CompiledDecoder.for_model(model) is None


def test_changed_layers_are_left_to_the_modules(kernel):
    for change in (
        lambda model: model.model.layers[1].register_forward_hook(print),
        lambda model: setattr(model.model.layers[1].mlp, "act_fn", torch.nn.GELU()),
        lambda model: model.model.layers[0].self_attn.q_proj.weight,  # converts it back
        lambda model: model.model.layers[0].input_layernorm.double(),
    ):
        model = make_model("Llama")
        pack_linear_layers(model)
        assert CompiledDecoder.for_model(model)
        change(model)
        assert CompiledDecoder.for_model(model) is None


def test_a_kernel_that_computes_something_else_is_not_used(kernel, monkeypatch):
    model = make_model("Llama")
    pack_linear_layers(model)
    assert packing_probe.probe_model(model, "tiny").packing.uses_kernel
    make_layer = decoder._make_layer

    def make_other_layer(layer):
        made = make_layer(layer)
        made.epsilon += 0.5
        return made

    monkeypatch.setattr(decoder, "_make_layer", make_other_layer)
    packing = packing_probe.probe_model(model, "tiny").packing
    assert packing.by_segments and packing.reason is None and not packing.uses_kernel
