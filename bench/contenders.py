"""lbx and other ways to answer the same prompts, each in a process of its own:

python -m bench.contenders NAME JOB.json RESULT.json PARENT
"""

from __future__ import annotations

import atexit
import ctypes
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bench.contest import Answer, Job, Lap, Loaded, Outputs, Result, Stopwatch, memory_mb, pin, read_job, write_json
from bench.llama_server import llama_server
from lbx.base.processes import end_with_parent

CHUNK = 512
"""Tokens that contenders other than lbx compute at once: llama.cpp's default."""
PAGE = 256
"""Tokens in a block of transformers' continuous batching: its own default."""


def count_forward(model: Any) -> Callable[[], int]:
    """Count the tokens that a model of transformers embeds: padding, too, is computed."""
    counted = 0

    def hook(_module: Any, arguments: Sequence[Any], _output: Any) -> None:
        nonlocal counted
        counted += arguments[0].numel()

    model.get_input_embeddings().register_forward_hook(hook)
    return lambda: counted


def count_decode(llama_cpp: Any) -> Callable[[], int]:
    """Count the tokens that go to llama.cpp: lbx calls the package's function, its high-level class the module's."""
    decode, counted = llama_cpp.llama_decode, 0

    def counting(context: Any, batch: Any) -> Any:
        nonlocal counted
        counted += batch.n_tokens
        return decode(context, batch)

    llama_cpp.llama_decode = llama_cpp.llama_cpp.llama_decode = counting
    return lambda: counted


def lbx(backend: str, *, batching: bool) -> Callable[[Job], Loaded]:
    """lbx's engine, on the backend of that name."""

    def load_it(job: Job) -> Loaded:
        from lbx.backends import load, resolve_model
        from lbx.base.records import Completion, Request, SampleKey
        from lbx.engine.batching import complete_all

        model = load(resolve_model(job.cards[backend]))
        counted = _lbx_counter(model, backend)
        requests = [
            Request(
                key=SampleKey("bench", "bench", str(number)),
                token_ids=tuple(ids),
                max_new_tokens=job.new_tokens,
                min_new_tokens=job.new_tokens if job.never else 0,
            )
            for number, ids in enumerate(job.prompts)
        ]

        def answer(numbers: range) -> list[str]:
            texts = [""] * len(numbers)
            for index, said in complete_all(model, [requests[number] for number in numbers], batching=batching):
                if not isinstance(said, Completion):
                    raise said
                texts[index] = said.text
            return texts

        return answer, counted, []

    return load_it


def _lbx_counter(model: Any, backend: str) -> Callable[[], int]:
    if backend == "hf":
        return count_forward(model._model)
    from lbx.backends.llama.library import load_llama_cpp

    return count_decode(load_llama_cpp())


def llama_high_level(job: Job) -> Loaded:
    """llama-cpp-python's ``Llama.generate``, a question at a time; it keeps the longest prefix of the one before."""
    from lbx.backends.llama.library import load_llama_cpp  # finds the folder of the CPU's variants

    llama_cpp = load_llama_cpp()
    model = llama_cpp.Llama(
        job.weights["llamacpp"],
        n_ctx=job.window,
        n_batch=CHUNK,
        n_ubatch=CHUNK,
        n_threads=len(job.cores),
        n_threads_batch=len(job.cores),
        n_gpu_layers=-1 if job.device == "cuda" else 0,
        verbose=False,
    )

    def silence(_ids: Any, scores: Any) -> Any:
        scores[list(job.never)] = -1e30
        return scores

    def answer(numbers: range) -> list[list[int]]:
        outputs = []
        for number in numbers:
            tokens = model.generate(job.prompts[number], temp=0.0, logits_processor=[silence] if job.never else None)
            outputs.append(list(islice(tokens, job.new_tokens)))
        return outputs

    return answer, count_decode(llama_cpp), []


def _transformers(job: Job) -> tuple[Any, Callable[[], int]]:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(len(job.cores))
    model = AutoModelForCausalLM.from_pretrained(job.weights["hf"], dtype=getattr(torch, job.dtype))
    model = model.to(job.device).eval()
    return model, count_forward(model)


def hf_generate(*, clear: bool) -> Callable[[Job], Loaded]:
    """transformers' ``generate``, a question at a time; its cache keeps what a question shares with the one before,
    unless ``clear`` forgets that one.
    """

    def load_it(job: Job) -> Loaded:
        import torch
        from transformers import DynamicCache

        model, counted = _transformers(job)
        cache, kept = DynamicCache(config=model.config), list[int]()

        def answer(numbers: range) -> list[list[int]]:
            outputs = []
            for number in numbers:
                prompt = list(job.prompts[number])
                most = 0 if clear else min(len(prompt) - 1, len(kept))  # the last token's logits are wanted
                shared = next((at for at in range(most) if prompt[at] != kept[at]), most)
                if len(kept) > shared:
                    cache.crop(shared - len(kept))
                ids = torch.tensor([prompt], device=job.device)
                tokens = model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    past_key_values=cache,
                    max_new_tokens=job.new_tokens,
                    do_sample=False,
                    pad_token_id=model.config.eos_token_id,
                    suppress_tokens=list(job.never) or None,
                )[0].tolist()
                outputs.append(tokens[len(prompt) :])
                kept[:] = tokens[:-1]
            return outputs

        return answer, counted, []

    return load_it


def hf_generate_batch(job: Job) -> Loaded:
    """transformers' continuous batching, prefixes shared in blocks. On a GPU it finds its own bounds; on a CPU its
    defaults take gigabytes, so its memory is bounded to the window there, as lbx's is.
    """
    from transformers import ContinuousBatchingConfig, GenerationConfig

    model, counted = _transformers(job)
    bounds: dict[str, Any] = {}
    if job.device == "cpu":
        bounds = {"page_size": PAGE, "num_blocks": -(-job.window // PAGE), "max_batch_tokens": CHUNK}
    notes = ["bounds: " + (", ".join(f"{name} {value}" for name, value in bounds.items()) or "its own")]
    sharing = ContinuousBatchingConfig(allow_block_sharing=True, **bounds)
    config = GenerationConfig(
        max_new_tokens=job.new_tokens,
        do_sample=False,
        eos_token_id=model.config.eos_token_id,
        pad_token_id=model.config.eos_token_id,
    )

    def answer(numbers: range) -> list[list[int]]:
        asked = [list(job.prompts[number]) for number in numbers]
        found = model.generate_batch(asked, generation_config=config, continuous_batching_config=sharing)
        # Answers carry names that count up in the order of the prompts.
        ordered = [found[name] for name in sorted(found, key=lambda name: int(name.rpartition("_")[2]))]
        if len(ordered) != len(asked) or any(one.error for one in ordered):
            raise RuntimeError(f"generate_batch left {len(asked) - len(ordered)} prompts unanswered, or failed")
        return [list(one.generated_tokens) for one in ordered]

    return answer, counted, notes


def vllm(job: Job) -> Loaded:
    """vLLM's server with prefix caching, its default."""
    from bench.vllm_server import VllmServer

    server = VllmServer(job)
    atexit.register(server.stop)
    return server.answer, lambda: 0, []


CONTENDERS: dict[str, Callable[[Job], Loaded]] = {
    "llamacpp-reuse": llama_high_level,
    "llamacpp-lbx": lbx("llamacpp", batching=True),
    "llamacpp-lbx-alone": lbx("llamacpp", batching=False),
    "llama-server-1": llama_server(1),
    "llama-server-4": llama_server(4),
    "hf-naive": hf_generate(clear=True),
    "hf-reuse": hf_generate(clear=False),
    "hf-batch": hf_generate_batch,
    "hf-lbx": lbx("hf", batching=True),
    "hf-lbx-alone": lbx("hf", batching=False),
    "vllm": vllm,
}


def _return_freed_memory() -> None:
    """Return memory that loading freed, so that it does not count as used."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def _synchronize(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def _gpu_mb(device: str) -> float:
    if device != "cuda":
        return 0.0
    import torch

    return float(torch.cuda.max_memory_allocated()) / 1e6


def work_off(job: Job, answer: Answer, counted: Callable[[], int]) -> tuple[Outputs, list[Lap]]:
    """Answer the job's groups one after the other."""
    outputs: list[Any] = []
    laps: list[Lap] = []
    for size in job.groups or (len(job.prompts),):
        numbers, before = range(len(outputs), len(outputs) + size), counted()
        _synchronize(job.device)
        watch = Stopwatch()
        outputs += answer(numbers)
        _synchronize(job.device)
        laps.append(Lap(*watch.read(), counted() - before))
    return outputs, laps


def main(arguments: Sequence[str]) -> None:
    name, asked, answered, parent = arguments
    end_with_parent(int(parent))
    job = read_job(Path(asked))
    pin(job.cores)
    answer, counted, notes = CONTENDERS[name](job)
    _return_freed_memory()
    loaded, _ = memory_mb()
    outputs, laps = work_off(job, answer, counted)
    _, peak = memory_mb()
    write_json(Result(outputs, laps, loaded, peak, _gpu_mb(job.device), notes), Path(answered))


if __name__ == "__main__":
    main(sys.argv[1:])
