"""The committed demo model, and its way to GGUF: exporter, tokenizer parity, answers."""

import importlib.util
import json
import random
from pathlib import Path

import pytest

from lbx.base.errors import UsageError
from lbx.base.records import Sampling
from lbx.benchmarks.needle import Needle, NeedleSettings, make_sample
from lbx.engine.batching import complete
from lbx.engine.prompter import Prompter

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo"
HF = DEMO / "hf"
SETTINGS = NeedleSettings()
ODD_TEXTS = (
    "",
    " ",
    "\n\n \n\t x",
    "a  b   c",
    "I'm you're THEY'LL don't",
    "1 22 333 4444 55555 666666",
    "48.21, 4,821; 4821。４８２１ ٤٨",
    "naïve café ĠĊ Ġthe <s> </s> <s>text</s><s",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200b\u200d\ufeff\u00a0x\u2028y",
    "枫树的密码是 4821。繁體字與異體字𠮷野家",
    "عربى עברית हिन्दी ไทย 한국어 日本語ァ",
    "\x00\x01\x7f control",
    "code(x) == {'a': [1, 2]} // ÿ",
)


def _script(name: str):
    spec = importlib.util.spec_from_file_location(f"demo_{name}", DEMO / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _texts() -> list[str]:
    benchmark = Needle()
    samples = [
        make_sample(SETTINGS, kind, language, length=length, depth=0.5, index=index)
        for kind in ("single", "multiquery")
        for language in ("en", "zh")
        for length in (64, 1024)
        for index in range(3)
    ]
    rng = random.Random(5)
    wild = ["".join(chr(rng.choice([rng.randrange(32, 0x250), rng.randrange(0x4E00, 0x9FFF)])) for _ in range(200))
            for _ in range(20)]  # fmt: skip
    return [benchmark.prompt(None, sample).text for sample in samples] + list(ODD_TEXTS) + wild


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    pytest.importorskip("gguf", reason="needs lbx[dev]")
    return _script("export_gguf").export_gguf(HF, tmp_path_factory.mktemp("gguf") / "new" / "demo.gguf")


def _backend(path: Path):
    from lbx.backends import load, resolve_model

    return load(resolve_model(str(path)))


@pytest.fixture(scope="module")
def hf():
    pytest.importorskip("torch", reason="needs lbx[hf]")
    pytest.importorskip("transformers", reason="needs lbx[hf]")
    backend = _backend(HF)
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def llama(exported):
    pytest.importorskip("llama_cpp", reason="needs lbx[llama]")
    backend = _backend(exported)
    yield backend
    backend.close()


def test_folder_is_small_and_plain() -> None:
    weights = HF / "model.safetensors"
    assert 1_000_000 < weights.stat().st_size < 8_000_000
    config = json.loads((HF / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is True
    assert config["max_position_embeddings"] >= 2048
    assert "auto_map" not in config
    assert {path.suffix for path in HF.iterdir()} == {".json", ".safetensors"}
    assert "chat_template" not in json.loads((HF / "tokenizer_config.json").read_text())


def test_committed_tokenizer_is_the_one_that_the_script_makes() -> None:
    from tokenizers import Tokenizer

    made = _script("tokenizer").make_tokenizer()
    kept = Tokenizer.from_file(str(HF / "tokenizer.json"))
    assert made.get_vocab() == kept.get_vocab()
    for text in _texts():
        assert made.encode(text).ids == kept.encode(text).ids
        assert kept.decode(kept.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


def test_keys_are_one_token_and_values_two() -> None:
    from tokenizers import Tokenizer

    from lbx.benchmarks.needle import LANGUAGES

    tokenizer = Tokenizer.from_file(str(HF / "tokenizer.json"))
    for language in LANGUAGES.values():
        tokens = [
            tokenizer.encode(language.needle(key, "4821"), add_special_tokens=False).tokens for key in language.keys
        ]
        stop = tokenizer.encode(language.stop, add_special_tokens=False).tokens
        assert {tuple(line[-3:]) for line in tokens} == {("Ġ48", "21", *stop)}
        assert len({len(line) for line in tokens}) == 1
        assert len({tuple(line) for line in tokens}) == len(language.keys)


def test_gguf_holds_the_model(exported: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="needs lbx[dev]")
    numpy = pytest.importorskip("safetensors.numpy")
    config = json.loads((HF / "config.json").read_text())
    reader = gguf.GGUFReader(exported)
    said = {name: field.contents() for name, field in reader.fields.items()}
    assert said["general.architecture"] == "llama"
    assert said["llama.context_length"] == config["max_position_embeddings"]
    assert said["llama.embedding_length"] == config["hidden_size"]
    assert said["llama.block_count"] == config["num_hidden_layers"]
    assert said["llama.feed_forward_length"] == config["intermediate_size"]
    assert said["llama.attention.head_count"] == config["num_attention_heads"]
    assert said["llama.attention.head_count_kv"] == config["num_key_value_heads"]
    assert said["llama.rope.dimension_count"] == config["head_dim"]
    assert said["llama.rope.freq_base"] == pytest.approx(config["rope_parameters"]["rope_theta"])
    assert said["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(config["rms_norm_eps"])
    assert said["tokenizer.ggml.model"] == "gpt2"
    assert said["tokenizer.ggml.pre"] == "gpt-2"
    assert said["tokenizer.ggml.bos_token_id"] == 0
    assert said["tokenizer.ggml.eos_token_id"] == 1
    assert said["tokenizer.ggml.add_bos_token"] is True
    assert said["tokenizer.ggml.add_eos_token"] is False
    tokens = said["tokenizer.ggml.tokens"]
    assert len(tokens) == config["vocab_size"]
    assert tokens[:2] == ["<s>", "</s>"]
    assert list(said["tokenizer.ggml.token_type"][:3]) == [3, 3, 1]
    assert not Path(f"{exported}.part").exists()

    kept = numpy.load_file(HF / "model.safetensors")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert len(tensors) == len(kept)
    embedding = tensors["token_embd.weight"]
    assert embedding.tensor_type.name == "F16"
    assert (embedding.data == kept["model.embed_tokens.weight"]).all()
    assert tensors["blk.0.attn_norm.weight"].tensor_type.name == "F32"
    assert (tensors["blk.2.ffn_down.weight"].data == kept["model.layers.2.mlp.down_proj.weight"]).all()
    query, key = (kept[f"model.layers.1.self_attn.{part}_proj.weight"] for part in "qk")
    for name, weight in (("q", query), ("k", key)):
        written = tensors[f"blk.1.attn_{name}.weight"].data
        half = config["head_dim"] // 2
        for pair in (0, 3, half - 1):  # of head 1: rows i and i + d/2 became neighbours
            row = config["head_dim"]
            assert (written[row + 2 * pair] == weight[row + pair]).all()
            assert (written[row + 2 * pair + 1] == weight[row + pair + half]).all()


def test_exporter_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="needs lbx[dev]")
    export = _script("export_gguf").export_gguf
    with pytest.raises(UsageError, match=r"config\.json"):
        export(tmp_path, tmp_path / "x.gguf")
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((HF / name).read_bytes())
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        export(tmp_path, tmp_path / "x.gguf")
    config = json.loads((HF / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "qwen2"}))
    with pytest.raises(UsageError, match="Llama"):
        export(tmp_path, tmp_path / "x.gguf")
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokenizer = json.loads((HF / "tokenizer.json").read_text("utf-8"))
    (tmp_path / "tokenizer.json").write_text(json.dumps({**tokenizer, "normalizer": {"type": "NFC"}}), "utf-8")
    with pytest.raises(UsageError, match="byte-level"):
        export(tmp_path, tmp_path / "x.gguf")
    assert not (tmp_path / "x.gguf").exists()


def test_llama_cpp_reads_the_same_tokens(llama) -> None:
    transformers = pytest.importorskip("transformers", reason="needs lbx[hf]")
    tokenizer = transformers.AutoTokenizer.from_pretrained(HF)
    count = 0
    for text in _texts():
        with_bos = tokenizer(text)["input_ids"]
        bare = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert [0, *llama.tokenizer.encode(text, special=True)] == with_bos, text
        assert llama.tokenizer.encode(text, special=False) == bare, text
        assert llama.tokenizer.decode(bare) == text
        count += len(with_bos)
    assert count > 5000
    assert llama.tokenizer.prefix_ids == (llama.tokenizer.bos_id,)
    assert llama.tokenizer.control_tokens == {"<s>": 0, "</s>": 1}


def _outputs(backend, samples):
    prompter = Prompter(backend.tokenizer, context_window=backend.info.context_window)
    for sample in samples:
        request = prompter.request(sample.key, Needle().prompt(None, sample), Sampling())
        yield complete(backend, request)


def _samples(lengths, kinds=("single", "multikey"), per_cell=2):
    return [
        make_sample(SETTINGS, kind, language, length=length, depth=depth, index=index)
        for kind in kinds
        for language in ("en", "zh")
        for length in lengths
        for depth in (0.0, 0.5, 1.0)
        for index in range(per_cell)
    ]


def test_it_finds_single_needles_inside_its_trained_length(hf) -> None:
    samples = _samples((64, 128, 256), kinds=("single",))
    scores = [Needle().score(s, done.text)[0].score for s, done in zip(samples, _outputs(hf, samples), strict=True)]
    assert len(scores) == 36
    assert sum(scores) >= 34


def test_both_engines_give_the_same_answers(hf, llama) -> None:
    samples = _samples((64, 256, 1024), kinds=("single", "multiquery"), per_cell=1)
    ours = [(done.text, done.output_tokens, done.finish_reason) for done in _outputs(hf, samples)]
    theirs = [(done.text, done.output_tokens, done.finish_reason) for done in _outputs(llama, samples)]
    assert ours == theirs
    assert any(reason == "stop" for _, _, reason in ours)
