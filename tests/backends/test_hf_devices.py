"""What a GPU or several need of the Hugging Face backend, as far as it shows without one.

Kernels are compared with each other on the CPU. Calls of CUDA's kernels and the passes of a model that lies on two
devices are traced with torch's fake tensors, which have devices and shapes but no numbers: a tensor on the wrong device
is an error there, too. (A torch without CUDA cannot index fake tensors of a GPU, but those of "cpu:0" and "cpu:1".)
"""

from __future__ import annotations

import contextlib
import math
import random
import warnings
from importlib.util import find_spec

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs lbx[hf]")
pytest.importorskip("transformers", reason="needs lbx[hf]")

import torch
import transformers

from lbx.backends import load, resolve_model
from lbx.backends.hf import attention, loading
from lbx.backends.hf.attention import Layout, QueryRows, ScoreOptions, TensorSegment
from lbx.backends.hf.kernel import make_layout
from lbx.backends.hf.options import HfOptions
from lbx.backends.hf.packing_probe import probe_model
from lbx.backends.hf.sequence_memory import HfSequences
from lbx.base.errors import BackendError, UsageError
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete
from lbx.engine.cell_table import AttentionSegment
from lbx.engine.model import SequenceExtension

SCORES = ScoreOptions(0.3)


def card_for(folder, tmp_path, **options):
    card = tmp_path / "card.toml"
    lines = [f"{name} = {value!r}" for name, value in options.items()]
    card.write_text(f'backend = "hf"\n\n[weights]\npath = "{folder}"\n\n[options]\n' + "\n".join(lines) + "\n", "utf-8")
    return resolve_model(str(card))


# --- kernels

HEADS, KV_HEADS, SIZE, CELLS = 6, 2, 16, 90


def plain(query, key, value, hidden, scale):
    """Attention by its definition in float64, and its log-sum-exp; hidden has shape (tokens, cells)."""
    shared = query.shape[1] // key.shape[1]
    key, value = (states.double().repeat_interleave(shared, 1) for states in (key, value))
    scores = (query.double() @ key.transpose(-1, -2) * scale).masked_fill(torch.as_tensor(hidden), -math.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1)


def states(tokens, cells, value_size=SIZE, dtype=torch.float32):
    made = torch.Generator().manual_seed(tokens)
    shapes = [(1, tokens, HEADS, SIZE), (1, KV_HEADS, cells, SIZE), (1, KV_HEADS, cells, value_size)]
    query, key, value = (torch.randn(shape, generator=made).to(dtype) for shape in shapes)
    return query.transpose(1, 2), key, value


@pytest.mark.parametrize("kernel", ["cpu", "hand"])
@pytest.mark.parametrize("value_size", [SIZE, SIZE - 4, SIZE + 8])
@pytest.mark.parametrize("tokens", [1, 12, 200])
@pytest.mark.parametrize("kind", ["all", "causal", "mask"])
def test_a_part_is_attention_by_its_definition(kernel, value_size, tokens, kind, monkeypatch):
    """With query heads that share keys, values of another size than keys, cells in a span or scattered."""
    if kernel == "hand":
        monkeypatch.setattr(attention, "run_kernel", attention.matmul_attention)
        monkeypatch.setattr(attention, "_WEIGHTS_AT_ONCE", 50 * CELLS)
    query, key, value = states(tokens, max(CELLS, tokens), value_size)
    cells, hidden, mask = torch.randperm(CELLS), torch.zeros(tokens, CELLS, dtype=torch.bool), None
    if kind == "causal":
        cells, hidden = slice(0, tokens), torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    elif kind == "mask":
        hidden = torch.rand(tokens, CELLS) < 0.5
        hidden[:, 3] = False
        mask = attention.make_mask(hidden, torch.float32)
    ours, sums = attention._attend_segment(query, key, value, TensorSegment(cells, mask, kind == "causal"), SCORES)
    theirs, expected = plain(query, key[:, :, cells], value[:, :, cells], hidden, 0.3)
    assert ours.shape == (1, HEADS, tokens, value_size)
    assert (ours - theirs).abs().max() < 1e-5
    assert (sums - expected).abs().max() < 1e-5


class FixedLayout(Layout):
    """The same parts for torch's kernels and for lbx's."""

    def __init__(self, rows, parts=()):
        self._by_device = {torch.device("cpu"): rows}
        self.for_kernel = make_layout(parts)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.03)])
def test_parts_together_are_attention_over_all_of_them(dtype, tolerance, monkeypatch):
    """Two groups of rows: one sees two parts whole and its own causally, the other a part under a mask."""
    query, key, value = states(20, CELLS, dtype=dtype)
    own = torch.ones(12, 12, dtype=torch.bool).triu(1)
    hidden = torch.ones(20, CELLS, dtype=torch.bool)
    hidden[:12, :40] = hidden[12:, :10] = False
    hidden[:12, 60:72] = own
    hidden[12:, 75:85] = torch.rand(8, 10, generator=torch.Generator().manual_seed(1)) < 0.5
    monkeypatch.setattr(attention, "find_kernel", lambda: None)
    layout = FixedLayout(
        [
            QueryRows(
                slice(0, 12),
                [
                    TensorSegment(slice(0, 30)),
                    TensorSegment(torch.arange(30, 40)),
                    TensorSegment(slice(60, 72), None, True),
                ],
            ),
            QueryRows(
                slice(12, 20),
                [
                    TensorSegment(slice(0, 10)),
                    TensorSegment(slice(75, 85), attention.make_mask(hidden[12:, 75:85], dtype)),
                ],
            ),
        ]
    )
    setattr(key, attention.LAYOUT, layout)
    ours, _ = attention._attention(None, query, key, value, None, scaling=0.3)
    theirs, _ = plain(query, key, value, hidden, 0.3)
    assert ours.shape == (1, 20, HEADS, SIZE)
    assert ours.dtype == dtype
    assert (ours - theirs.transpose(1, 2)).abs().max() < tolerance


@pytest.mark.parametrize("kernel", ["cpu", "hand"])
def test_tokens_with_cells_of_their_own_are_each_one_alone(kernel, monkeypatch):
    """Of different numbers, some shared; what stands behind a row's last cell is hidden."""
    if kernel == "hand":
        monkeypatch.setattr(attention, "run_kernel", attention.matmul_attention)
    query, key, value = states(3, CELLS, SIZE - 4)
    own = [[5], [7, 80, 3, 2], [2, 50]]
    cells = torch.tensor([one + [0] * (4 - len(one)) for one in own])
    hidden = torch.arange(4) >= torch.tensor([len(one) for one in own])[:, None]
    mask = attention.make_mask(hidden, torch.float32).transpose(0, 2)
    ours, sums = attention._attend_segment(query, key, value, TensorSegment(cells, mask), SCORES)
    for token, seen in enumerate(own):
        theirs, expected = plain(query[:, :, [token]], key[:, :, seen], value[:, :, seen], False, 0.3)
        assert (ours[:, :, [token]] - theirs).abs().max() < 1e-5
        assert (sums[:, :, [token]] - expected).abs().max() < 1e-5


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("softcap", "sinks"), [(None, None), (2.0, None), (None, torch.linspace(-2, 3, 6))])
def test_caps_and_sinks_are_those_of_transformers_own_code(softcap, sinks, compiled, monkeypatch):
    """In rows of a batch, too: each is the one beside the other."""
    from types import SimpleNamespace

    from transformers.models.gemma2 import modeling_gemma2
    from transformers.models.gpt_oss import modeling_gpt_oss

    query, key, value = states(4, 40)
    setattr(
        key,
        attention.LAYOUT,
        FixedLayout(
            [QueryRows(slice(0, 4), [TensorSegment(slice(0, 25)), TensorSegment(slice(25, 40))])],
            [AttentionSegment(0, 4, (0, 25)), AttentionSegment(0, 4, (25, 40))],
        ),
    )
    if not compiled:
        monkeypatch.setattr(attention, "find_kernel", lambda: None)
    batch = query.transpose(0, 2)
    more = {"softcap": softcap, "s_aux": sinks, "scaling": 0.3}
    ours, _ = attention._attention(SimpleNamespace(), batch, key, value, None, sliding_window=8, **more)
    module = SimpleNamespace(num_key_value_groups=HEADS // KV_HEADS, sinks=sinks, training=False)
    eager = modeling_gemma2.eager_attention_forward if sinks is None else modeling_gpt_oss.eager_attention_forward
    theirs, _ = eager(module, query, key, value, None, dropout=0.0, **more)
    assert ours.shape == (4, 1, HEADS, SIZE)
    assert (ours[:, 0] - theirs[0]).abs().max() < 1e-5


def test_what_is_not_computed_here_is_refused():
    query, key, value = states(3, 3)
    with pytest.raises(ValueError, match="follows the cache's layout"):
        attention._attention(None, query, key, value, None)
    setattr(key, attention.LAYOUT, FixedLayout([], [AttentionSegment(0, 3, (0, 3))]))
    attention._attention(None, query, key, value, None, sliding_window=8)
    for mask, more in ((torch.zeros(1, 1, 3, 3), {}), (None, {"position_bias": torch.zeros(3)})):
        with pytest.raises(ValueError, match="no mask or position bias"):
            attention._attention(None, query, key, value, mask, **more)


# --- devices that are not there


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("value_size", [SIZE, SIZE - 8])
def test_cudas_kernels_are_called_with_what_they_take(dtype, masked, value_size, monkeypatch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    can = torch.backends.cuda
    monkeypatch.setattr(can, "can_use_flash_attention", lambda params: params.query.dtype is not torch.float32)
    monkeypatch.setattr(can, "can_use_efficient_attention", lambda params: True)
    flash = dtype is torch.bfloat16 and not masked
    monkeypatch.setattr(attention, "matmul_attention", None)
    if flash:
        monkeypatch.setattr(attention, "_efficient_attention", None)
    with FakeTensorMode():
        on = {"device": "cuda:1", "dtype": dtype}
        query = torch.empty(1, 20, HEADS, SIZE, **on).transpose(1, 2)
        key, value = torch.empty(1, KV_HEADS, CELLS, SIZE, **on), torch.empty(1, KV_HEADS, CELLS, value_size, **on)
        mask = torch.empty(1, 1, 20, CELLS, **on) if masked else None
        out, sums = attention.run_kernel(attention.KernelInputs(query, key, value, mask, False, SCORES))
    assert (out.shape, out.dtype) == ((1, HEADS, 20, value_size), dtype)
    assert (sums.shape, sums.dtype) == ((1, HEADS, 20), torch.float32)
    assert out.device == sums.device == torch.device("cuda:1")


@contextlib.contextmanager
def two_devices(monkeypatch, dtype):
    """A Llama whose first layer lies on one device and the rest on another; fake tensors check every operation."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        real = torch.from_numpy
        monkeypatch.setattr(torch, "from_numpy", lambda array: mode.from_tensor(real(array)))
        inner = model.model
        places = {inner.embed_tokens: 0, inner.rotary_emb: 0, inner.layers[0]: 0}
        for module in (inner.embed_tokens, inner.rotary_emb, *inner.layers, inner.norm, model.lm_head):
            device = f"cpu:{places.get(module, 1)}"
            lay_on(module, device, dtype)
            module.register_forward_pre_hook(moved_to(torch.device(device)), with_kwargs=True)
        yield model


def lay_on(module, device, dtype):
    """Weights without numbers on a device that need not be there; call it among fake tensors."""
    for one in module.modules():
        for name, old in [*one._parameters.items()]:
            if old is not None:
                one._parameters[name] = torch.nn.Parameter(torch.empty(old.shape, dtype=dtype, device=device), False)
        for name, old in [*one._buffers.items()]:
            one._buffers[name] = torch.empty(old.shape, device=device)


def moved_to(device):
    """What accelerate does before a module runs: tensors among its arguments go to its device."""

    def move(value):
        if isinstance(value, torch.Tensor):
            return value.to(device)
        return type(value)(map(move, value)) if isinstance(value, (tuple, list)) else value

    return lambda _, args, kwargs: (move(args), {name: move(value) for name, value in kwargs.items()})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_pass_over_two_devices_keeps_every_tensor_where_it_belongs(monkeypatch, dtype):
    """Single, causal, shared, scattered and masked parts. Only the copy of the logits to numpy cannot be faked."""
    with two_devices(monkeypatch, dtype) as model:
        memory = HfSequences(model, max_sequences=6, max_cells=250, max_step=200)
        memory.extend([SequenceExtension(0, range(60), False)])
        memory.extend([SequenceExtension(5, [9] * 3, False)])
        memory.extend([SequenceExtension(0, [7], False)])
        memory.drop(5)
        memory.fork(0, 61, [1, 2, 3])
        memory.extend(
            [
                SequenceExtension(1, [5] * 4, False),
                SequenceExtension(2, [6, 7], False),
                SequenceExtension(0, [8] * 30, False),
            ]
        )
        memory.extend(
            [SequenceExtension(1, [5], False), SequenceExtension(2, [6], False), SequenceExtension(4, range(20), False)]
        )
        keys = [layer.keys for layer in memory._store.layers]
        assert [str(states.device) for states in keys] == ["cpu:0", "cpu:1"]
        assert {states.dtype for states in keys} == {dtype}
        with pytest.raises(BackendError, match=r"numpy\(\)"):
            memory.extend([SequenceExtension(3, [5, 6], True), SequenceExtension(4, [6], True)])


# --- memory that runs out


class Full:
    """A hook that finds no memory for more than so many tokens."""

    def __init__(self, most: int) -> None:
        self.most, self.sizes = most, []

    def __call__(self, _, args):
        tokens = args[0].shape[1]
        self.sizes.append(tokens)
        if tokens > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.fixture
def memory(tiny_hf, tmp_path):
    backend = load(card_for(tiny_hf, tmp_path, max_sequences=8, kv_cells=700, prefill_chunk=64, threads=2))
    memory = backend.sequences()
    yield memory
    backend.close()


def test_a_pass_without_memory_is_computed_in_halves(memory):
    rng = random.Random(5)
    tokens = [rng.randrange(10, 300) for _ in range(50)]
    memory.extend([SequenceExtension(0, tokens, False)])
    memory.fork(0, 50, [1, 2])
    items = [
        SequenceExtension(1, tokens[:30], True),
        SequenceExtension(2, tokens[30:], False),
        SequenceExtension(3, tokens[:10], True),
    ]
    whole = memory.extend(items)
    for sequence in (1, 2, 3):
        memory.drop(sequence)
    memory.fork(0, 50, [1, 2])
    full = Full(16)
    hook = memory._model.model.rotary_emb.register_forward_pre_hook(full)
    halves = memory.extend(items)
    assert full.sizes == [60, 30, 15, 15, 30, 20, 10, 10, 10]
    assert [memory.length(s) for s in range(4)] == [50, 80, 70, 10]
    assert memory.used_cells == 50 + 60
    assert memory.max_step == 10, "later passes are small enough at once"
    assert halves[1] is None
    for ours, theirs in ((halves[0], whole[0]), (halves[2], whole[2])):
        assert np.abs(ours - theirs).max() / np.ptp(theirs) < 2e-5
    full.most = 0
    with pytest.raises(BackendError, match=r"failed on 1 sequences \(1 new tokens\): CUDA out of memory"):
        memory.extend([SequenceExtension(1, [5, 6], True), SequenceExtension(0, [5], True)])
    assert (memory.length(0), memory.length(1), memory.length(2)) == (0, 0, 70)
    assert memory.max_step == 10
    hook.remove()


def test_one_answer_without_memory_says_so(tiny_hf, tmp_path):
    backend = load(card_for(tiny_hf, tmp_path))
    request = Request(SampleKey("a", "b", "c"), tuple(range(10, 40)), 4)
    before = complete(backend, request).text
    hook = backend._model.model.rotary_emb.register_forward_pre_hook(Full(0))
    with pytest.raises(BackendError, match="CUDA out of memory") as caught:
        complete(backend, request)
    assert "kv_cells" in str(caught.value.fix)
    hook.remove()
    assert backend.sequences()._store.bytes == 0, "what the failed pass had found is given back"
    assert complete(backend, request).text == before
    backend.close()


# --- choices


@pytest.mark.parametrize(
    ("config", "modern", "expected"),
    [
        ('{"dtype": "float16"}', True, "float16"),
        ('{"torch_dtype": "bfloat16"}', True, "bfloat16"),
        ('{"torch_dtype": "bfloat16"}', False, "float16"),
        ('{"text_config": {"dtype": "float32"}}', False, "float32"),
        ('{"dtype": "float8_e4m3fn"}', True, "bfloat16"),
        ("{}", True, "bfloat16"),
        ("{", True, "bfloat16"),
    ],
)
def test_a_gpu_computes_in_the_checkpoints_dtype(config, modern, expected, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(config)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: modern)
    gpu = torch.device("cuda:0")
    assert loading.choose_dtype(torch, "auto", gpu, tmp_path).name == expected  # type: ignore[attr-defined]
    assert loading.choose_dtype(torch, "bfloat16", gpu, tmp_path).name == "bfloat16"  # type: ignore[attr-defined]


def test_a_gpus_memory_takes_as_many_cells_as_there_is_room_for(monkeypatch):
    """Two GPUs, three layers on one and one on the other; 400 bytes a token in all layers."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    layers = torch.nn.ModuleList(torch.nn.Linear(2, 2, device="meta") for _ in range(4))
    model = torch.nn.Sequential(layers)
    with FakeTensorMode():
        for layer, place in zip(layers, (0, 0, 0, 1), strict=True):
            lay_on(layer, f"cuda:{place}", torch.float32)
    free = {"cuda:0": 600_000, "cuda:1": 10_000_000}
    monkeypatch.setattr(loading, "free_bytes", lambda _, device: free[str(device)])

    def cells(model=model, **other):
        return loading.default_cells(torch, model, **{"window": 500, "max_sequences": 8, "kv_bytes": 400} | other)

    assert cells() == 600_000 * 0.8 / (400 * 3 / 4)
    assert cells(max_sequences=2) == 1000, "more than all sequences can fill is of no use"
    assert cells(kv_bytes=40_000) == 500, "at least the window"
    assert cells(kv_bytes=None) == 500
    on_cpu = torch.nn.Sequential(torch.nn.ModuleList([torch.nn.Linear(2, 2)]))
    assert cells(model=on_cpu) == 500


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"quantization": "3bit"}, "quantization"),
        ({"device_map": "gpu"}, "device_map"),
        ({"device_map": "auto", "device": "cuda:1"}, "cannot be used together"),
    ],
)
def test_options_are_checked(wrong, words):
    with pytest.raises(UsageError, match=words):
        HfOptions(**wrong)


@pytest.mark.parametrize(
    ("options", "library"), [({"quantization": "4bit"}, "bitsandbytes"), ({"device_map": "auto"}, "accelerate")]
)
def test_a_library_that_is_not_there_is_named(options, library, tiny_hf, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda name: None if name == library else find_spec("json"))
    with pytest.raises(BackendError, match=f"needs the package {library}, which is not installed"):
        load(card_for(tiny_hf, tmp_path, **options))


def test_parts_that_no_gpu_holds_are_refused(monkeypatch):
    model = torch.nn.Linear(1, 1)
    model.hf_device_map = {"layers.0": 0, "layers.1": "cpu", "layers.2": "disk"}
    with pytest.raises(BackendError, match=r"2 of its parts are not on a GPU, e\.g\. layers\.1"):
        loading._refuse_offloading(torch, model, "large")
    model.hf_device_map = {"": "cpu"}
    loading._refuse_offloading(torch, model, "on a machine without a GPU")


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_refused(device, tiny_hf, tmp_path):
    with pytest.raises(BackendError, match=rf"The GPU {device} does not exist: torch finds 0 GPUs\.") as caught:
        load(card_for(tiny_hf, tmp_path, device=device))
    assert caught.value.command == "lbx doctor"


def test_a_placement_that_needs_ram_is_refused(tiny_hf, monkeypatch):
    """Accelerate's own placement of weights without numbers, over two GPUs of a given size."""
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate, which a device_map alone takes")
    config = transformers.AutoConfig.from_pretrained(tiny_hf)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    whole = sum(parameter.nbytes for parameter in model.parameters())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for share, fits in ((0.9, True), (0.3, False)):
        sizes = {0: int(whole * share), 1: int(whole * share), "cpu": whole}
        model.hf_device_map = accelerate.infer_auto_device_map(model, sizes, ["LlamaDecoderLayer"])
        assert ("cpu" not in model.hf_device_map.values()) is fits
        if fits:
            assert set(model.hf_device_map.values()) == {0, 1}
            loading._refuse_offloading(torch, model, "spread")
    with pytest.raises(BackendError, match="of its parts are not on a GPU"):
        loading._refuse_offloading(torch, model, "spread")


# --- libraries that lbx does not bring along


def answers(backend):
    requests = [Request(SampleKey("a", "b", str(i)), (*range(10, 60), 70 + i), 6) for i in range(4)]
    return [complete(backend, request).text for request in requests]


def test_a_device_map_changes_no_answer(tiny_hf, tmp_path):
    pytest.importorskip("accelerate", reason="needs accelerate, which a device_map alone takes")
    plain = load(card_for(tiny_hf, tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spread = load(card_for(tiny_hf, tmp_path, device_map="auto"))
    assert answers(spread) == answers(plain)
    assert probe_model(spread._model, "spread").packing.by_segments
    plain.close()
    spread.close()


def test_accelerates_hooks_leave_the_packed_passes_alone(tiny_hf):
    """Hooks on every module, as for many GPUs; all of them are the CPU here."""
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate, which a device_map alone takes")
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_hf, dtype=torch.float32, attn_implementation="sdpa")
    tokens, own = [*range(10, 60)], [[7, 8, 9], [11]]

    def said():
        memory = HfSequences(model.eval(), max_sequences=4, max_cells=200, max_step=64)
        memory.extend([SequenceExtension(0, tokens, False)])
        memory.fork(0, 50, [1, 2])
        return memory.extend([SequenceExtension(1, own[0], True), SequenceExtension(2, own[1], True)])

    before = said()
    places = {name: "cpu" for name, module in model.named_modules() if name and not list(module.children())}
    accelerate.dispatch_model(model, places, force_hooks=True, main_device="cpu")
    assert hasattr(model.model.layers[1].self_attn.k_proj, "_hf_hook")
    for ours, theirs in zip(said(), before, strict=True):
        assert np.array_equal(ours, theirs)


def test_quantised_weights_are_packed_like_others(tiny_hf, tmp_path):
    for library in ("accelerate", "bitsandbytes"):
        pytest.importorskip(library, reason=f"needs {library}, which quantization alone takes")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backend = load(card_for(tiny_hf, tmp_path, quantization="4bit", max_sequences=8))
        assert backend.info.settings["quantization"] == "4bit"
        assert backend.sequences().traits.forks_anywhere
        assert len(set(answers(backend))) > 1
    backend.close()
