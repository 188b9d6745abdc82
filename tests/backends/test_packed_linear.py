"""Linear layers in the kernel's layout or oneDNN's: equal numbers, no second copy of the weights."""

from __future__ import annotations

import weakref

import pytest
import torch

from lbx.backends.hf import packed_linear
from lbx.backends.hf.packed_linear import OneDnnLinear, PackedEmbedding, PackedLinear, pack_linear_layers

DTYPES = sorted(packed_linear._packable_dtypes(), key=str)
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 0.05}

pytestmark = pytest.mark.skipif(not DTYPES, reason="this torch has no oneDNN for x86-64")


class Tied(torch.nn.Module):
    """An embedding with its weight in the last layer as well."""

    def __init__(self, dtype):
        super().__init__()
        self.embedding = torch.nn.Embedding(128, 64, dtype=dtype)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64, bias=bias, dtype=dtype) for bias in (True, False))
        self.head = torch.nn.Linear(64, 128, bias=False, dtype=dtype)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        states = self.embedding(tokens)
        for layer in self.layers:
            states = torch.nn.functional.silu(layer(states))
        return self.head(states)


def byte_count(model):
    return sum(tensor.nelement() * tensor.element_size() for tensor in [*model.parameters(), *model.buffers()])


@pytest.fixture(params=[(dtype, own) for dtype in DTYPES for own in (True, False)], ids=str)
def model(request, monkeypatch):
    dtype, is_own = request.param
    if not is_own:
        monkeypatch.setattr(packed_linear, "find_kernel", lambda: None)
    torch.manual_seed(0)
    return Tied(dtype)


def test_results_are_equal_and_memory_is_the_same(model):
    tokens = torch.arange(48).reshape(2, 24)
    with torch.inference_mode():
        expected, size = model(tokens), byte_count(model)
        pack_linear_layers(model)
        is_own = packed_linear._kernel_for(expected) is not None
        assert [type(layer) for layer in model.layers] == [PackedLinear, PackedLinear]
        assert type(model.head) is (PackedLinear if is_own else OneDnnLinear)
        assert type(model.embedding) is (PackedEmbedding if is_own else torch.nn.Embedding)
        assert byte_count(model) == size
        for inputs, outputs in ((tokens, expected), (tokens[:, :1], expected[:, :1]), (tokens[:0], expected[:0])):
            found = model(inputs)
            assert found.shape == outputs.shape
            assert torch.allclose(found, outputs, atol=TOLERANCES[found.dtype])


def test_originals_are_freed_one_by_one(model, monkeypatch):
    weights = [weakref.ref(layer.weight) for layer in model.layers]
    alive = []
    original = PackedLinear.__init__

    def initialise(self, linear):
        alive.append(sum(weight() is not None for weight in weights))
        original(self, linear)

    monkeypatch.setattr(PackedLinear, "__init__", initialise)
    pack_linear_layers(model)
    assert alive[:2] == [2, 1]


def test_inputs_may_be_views(model):
    layer = model.layers[0]
    states = torch.randn(5, 3, 64, dtype=layer.weight.dtype)
    with torch.inference_mode():
        expected = layer(states.transpose(0, 1))
        pack_linear_layers(model)
        found = model.layers[0](states.transpose(0, 1))
    assert torch.allclose(found, expected, atol=TOLERANCES[found.dtype])


def test_a_model_that_uses_the_weight_itself_gets_it_back(model):
    weight = model.layers[0].weight.detach().clone()
    states = torch.randn(4, 64, dtype=weight.dtype)
    with torch.inference_mode():
        expected, size = model.layers[0](states), byte_count(model)
        pack_linear_layers(model)
        layer = model.layers[0]
        assert torch.equal(layer.weight, weight)
        assert layer.weight is layer.weight
        assert torch.equal(layer(states), expected)
        assert byte_count(model) < size  # no longer packed; the weight is kept once


def test_a_tied_weight_is_kept_once_if_it_is_asked_for(model):
    weight, tokens = model.head.weight.detach().clone(), torch.arange(128)
    with torch.inference_mode():
        expected, size = model(tokens), byte_count(model)
        pack_linear_layers(model)
        assert torch.equal(model.embedding(tokens), weight)
        assert torch.equal(model.embedding.weight, weight) and model.embedding.weight is model.head.weight
        assert torch.equal(model.embedding(tokens), weight)
        assert torch.allclose(model(tokens), expected, atol=TOLERANCES[expected.dtype])
        assert byte_count(model) <= size


def test_another_number_format_is_refused_as_torch_does(model):
    pack_linear_layers(model)
    with pytest.raises(RuntimeError, match="dtype"):
        model.layers[0](torch.randn(2, 36, dtype=torch.float64))


def test_layers_that_cannot_be_packed_stay():
    layers = torch.nn.Sequential(
        torch.nn.Linear(4, 4, dtype=torch.float16), torch.nn.Linear(4, 4, device="meta"), torch.nn.Linear(4, 4)
    )
    layers[2].register_forward_pre_hook(lambda module, inputs: None)
    pack_linear_layers(layers)
    assert [type(layer) for layer in layers] == [torch.nn.Linear] * 3


def test_a_processor_without_onednn_keeps_its_layers(monkeypatch):
    monkeypatch.setattr(packed_linear.platform, "machine", lambda: "aarch64")  # type: ignore[attr-defined]
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4))
    pack_linear_layers(layers)
    assert type(layers[0]) is torch.nn.Linear
