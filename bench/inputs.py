"""Models and prompts for the benchmarks: a random Llama in both formats, SmolLM2, and L-Eval's prompts from ../shared.

Outputs of the random Llama depend on the whole prompt, so that a wrong mask shows: its weights keep the variance of
activations, and queries and keys are drawn larger, so that attention picks out single tokens of a long document.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.contest import REPOSITORY
from lbx.backends.cards import OPTIONS
from lbx.base.bundle_folder import BUNDLE_JSON, FILES, HUB, TAG_MANIFEST, Bundle, repo_folder
from lbx.base.records import Request, Sample, Sampling
from lbx.benchmarks.leval.benchmark import LEval
from lbx.benchmarks.leval.tasks import KINDS
from lbx.engine.prompter import Prompter

if TYPE_CHECKING:
    from lbx.engine.prompter import Tokenizer

SHARED = REPOSITORY.parent / "shared"
LEVAL_REVISION = "cd34b050269148aed75acbbe4a599873ad0f37e9"
BOS, EOS = "<s>", "</s>"
ATTENTION_STD = 2.5
"""Standard deviation of attention scores before the softmax: n * exp(-2.5 ** 2) of n tokens get most of the weight."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a Llama; the default has 25 M parameters."""

    vocabulary: int = 8192
    hidden: int = 512
    intermediate: int = 896
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    context: int = 16_384


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """A byte-level BPE of GPT-2's kind that puts a BOS before a text, the same for the same texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    return tokenizer


def make_config(shape: Shape) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=shape.context,
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )


def initialise(model: Any, seed: int, speakable: int) -> None:
    """Draw all weights in place.

    Answers consist of the first ``speakable`` tokens without the end of sequence: each is as long as asked.
    """
    import torch

    generator = torch.Generator(device=model.device).manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                weight.fill_(1.0)
                continue
            std = 1.0 if "embed_tokens" in name else weight.shape[1] ** -0.5
            if "q_proj" in name or "k_proj" in name:
                std *= ATTENTION_STD**0.5
            weight.normal_(0.0, std, generator=generator)
        model.lm_head.weight[model.config.eos_token_id] = 0.0
        model.lm_head.weight[speakable:] = 0.0


def make_hf(
    folder: Path,
    texts: Iterable[str],
    shape: Shape = Shape(),
    *,
    seed: int = 0,
    dtype: str = "float16",
    device: str = "cpu",
) -> Path:
    """Write FOLDER/hf in one type, so that every format made from it has the same numbers."""
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = train_tokenizer(texts, shape.vocabulary)
    with torch.device(device):
        model = LlamaForCausalLM(make_config(shape))
    initialise(model, seed, tokenizer.get_vocab_size())
    model.to(getattr(torch, dtype)).save_pretrained(folder / "hf")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=shape.context,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder / "hf")
    return folder / "hf"


def make_gguf(folder: Path) -> Path:
    """Write FOLDER/hf as FOLDER/model.gguf: matrices float16, norms float32."""
    gguf: Path = _exporter().export_gguf(folder / "hf", folder / "model.gguf", "f16")
    return gguf


def fetch_smollm2(kind: str) -> Path:
    """SmolLM2-135M-Instruct as "gguf" (a file, Q4_1) or "hf" (a folder); downloaded once."""
    command = [sys.executable, str(REPOSITORY / "models" / "smollm2" / "fetch.py"), kind]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def _exporter() -> Any:
    """models/demo/export_gguf.py; models/ is no package."""
    if "export_gguf" not in sys.modules:
        path = REPOSITORY / "models" / "demo" / "export_gguf.py"
        spec = importlib.util.spec_from_file_location("export_gguf", path)
        assert spec is not None and spec.loader is not None
        sys.modules["export_gguf"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["export_gguf"])
    return sys.modules["export_gguf"]


def write_cards(folder: Path, **options: object) -> dict[str, Path]:
    """Model cards of both formats, {"hf": ..., "llamacpp": ...}; options that a backend lacks are left out."""
    cards = {}
    for backend, weights in (("hf", folder / "hf"), ("llamacpp", folder / "model.gguf")):
        known = {field.name for field in fields(OPTIONS[backend])}
        lines = [f"{name} = {json.dumps(value)}" for name, value in options.items() if name in known]
        cards[backend] = folder / f"{backend}.toml"
        cards[backend].write_text(
            f'name = "bench-{backend}"\nbackend = "{backend}"\n\n[weights]\npath = {json.dumps(str(weights))}\n\n'
            "[options]\n" + "\n".join(lines) + "\n"
        )
    return cards


def link_bundle(root: Path, shared: Path = SHARED) -> Bundle:
    """A folder in the form of an unpacked bundle that holds L-Eval.

    Raises:
        FileNotFoundError: the data is not there.
    """
    data = shared / "data" / "hub" / "datasets" / "L4NLP" / "LEval" / "LEval"
    upstreams = [shared / "data" / part / "OpenLMLab" / "LEval" for part in ("upstream", "upstream_more")]
    if not all(folder.is_dir() for folder in (data, *upstreams)):
        raise FileNotFoundError(f"L-Eval is not in {shared}")
    commit = "0" * 40
    repo = root / HUB / repo_folder("dataset", "L4NLP/LEval")
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    link_tree(data, repo / "snapshots" / commit / "LEval")
    for upstream in upstreams:
        link_tree(upstream / LEVAL_REVISION, root / FILES / "OpenLMLab" / "LEval")
    (root / BUNDLE_JSON).parent.mkdir()
    (root / BUNDLE_JSON).write_text("{}")
    (root / TAG_MANIFEST).write_text("")
    return Bundle(root)


def documents(bundle: Bundle) -> Iterator[str]:
    """Every document of each task."""
    available = {task.name for task in LEval().tasks(bundle)}
    for task in (name for name in KINDS if name in available):
        yield from dict.fromkeys(sample.context for sample in LEval().samples(bundle, task))


def make_requests(
    bundle: Bundle,
    tokenizer: Tokenizer,
    task: str,
    *,
    documents: int | None = None,
    new_tokens: int = 32,
    window: int = 1 << 20,
) -> list[Request]:
    """Greedy requests of ``lbx run`` without a chat template, in the data's order.

    Args:
        documents: number of the task's documents, taken at even distances; None takes all.
        window: longer prompts are cut as L-Eval's authors cut them.
    """
    benchmark = LEval()
    prompter = Prompter(tokenizer, context_window=window, max_new_tokens=new_tokens)
    samples = _select_documents(list(benchmark.samples(bundle, task)), documents)
    return [prompter.request(sample.key, benchmark.prompt(bundle, sample), Sampling()) for sample in samples]


def _select_documents(samples: Sequence[Sample], documents: int | None) -> list[Sample]:
    groups = [list(group) for _, group in groupby(samples, key=lambda sample: sample.context)]
    if documents is None or documents >= len(groups):
        return list(samples)
    indices = [(2 * number + 1) * len(groups) // (2 * documents) for number in range(documents)]
    return [sample for index in indices for sample in groups[index]]


def link_tree(source: Path, target: Path) -> None:
    """Hard links to a file, or to all files of a folder: symbolic links must not lead out of a bundle."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link, dirs_exist_ok=True)
    else:
        _link(source, target)


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
