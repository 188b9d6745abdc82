"""Runs one of the authors' scripts with a recorder where its model would be. A program of its own, apart from lbx.

    python recorder.py JOB.json CALLS.jsonl

What stands in is only what the script would reach outside itself: weights and ``generate``, servers and their client
libraries, the hub, CUDA, child processes, and a person at the keyboard. Prompts are built, cut and tokenised by the
script's own code and by the real transformers. A tokenizer asked for by any name is the one of the job, so that both
sides count alike.

JOB.json: {"script", "argv", "tokenizer", "answers": said in turn, "rows": {data set's configuration: JSON lines},
"chat": whether the model has a ``chat`` method, "wrapper": null or [module, model name] to ask the script what it puts
around a prompt, "function": null or [name, arguments] to call with the rows in place of the script's main, "datasets":
whether the library of this name is the real one, "chat_template": of the tokenizer, or ""}.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import importlib.util
import io
import json
import os
import runpy
import sys
import time
from contextlib import redirect_stdout
from itertools import cycle
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TextIO

SENTINEL = "\ue000lbx\ue001"
"""Stands for a prompt while the script wraps it; private-use characters, in nobody's words."""


class Recorder:
    """Writes a line for every call of a model, and has its answers."""

    def __init__(self, sink: TextIO, answers: list[str]) -> None:
        self._sink = sink
        self._answers = cycle(answers)

    @property
    def answer(self) -> str:
        return next(self._answers)

    def call(self, **what: Any) -> None:
        self._sink.write(json.dumps(what) + "\n")
        self._sink.flush()


class StandIns:
    """Modules and functions in place of what the script would reach outside itself."""

    def __init__(self, job: dict[str, Any], recorder: Recorder) -> None:
        self._job = job
        self._recorder = recorder
        self._tokenizer: Any = None

    def install(self) -> None:
        self._real_libraries()
        self._device()
        self._data()
        self._clients()
        self._missing()
        builtins.input = lambda *_: ""
        time.sleep = lambda _: None

    def rows(self, name: str) -> list[Any]:
        """A configuration's; none where the bundle lacks it."""
        place = self._job["rows"].get(name)
        return [json.loads(line) for line in Path(place).read_bytes().splitlines()] if place else []

    def _real_libraries(self) -> None:
        import transformers

        self._tokenizer = self._remembering(transformers.AutoTokenizer.from_pretrained(self._job["tokenizer"]))
        if self._job["chat_template"]:
            self._tokenizer.chat_template = self._job["chat_template"]
        tokenizers = SimpleNamespace(from_pretrained=lambda *_, **__: self._tokenizer)
        models = SimpleNamespace(from_pretrained=lambda *_, **__: self._model())
        configs = SimpleNamespace(from_pretrained=lambda *_, **__: SimpleNamespace(attn_config={}))
        for name in ("AutoTokenizer", "LlamaTokenizer"):
            setattr(transformers, name, tokenizers)
        for name in ("AutoModel", "AutoModelForCausalLM", "LlamaForCausalLM"):
            setattr(transformers, name, models)
        transformers.AutoConfig = configs
        transformers.pipeline = lambda *_, **__: self._pipeline

    def _remembering(self, tokenizer: Any) -> Any:
        """The tokenizer, which also keeps the text that it last turned into ids."""
        kind = type(tokenizer)

        class Remembering(kind):  # type: ignore[misc, valid-type]
            last = ""

            def __call__(self, text: str, *args: Any, **kwargs: Any) -> Any:
                self.last = text if isinstance(text, str) else text[0]
                return super().__call__(text, *args, **kwargs)

        tokenizer.__class__ = Remembering
        return tokenizer

    def _model(self) -> Any:
        model = SimpleNamespace(device="cpu", config=SimpleNamespace(), generate=self._generate, name_or_path="")
        model.generation_config = SimpleNamespace(eos_token_id=self._tokenizer.eos_token_id)
        model.to = model.eval = model.bfloat16 = lambda *_, **__: model
        if self._job.get("chat"):
            model.chat = self._chat
        return model

    def _generate(self, input_ids: Any, **options: Any) -> Any:
        import torch

        options.pop("attention_mask", None)
        options.pop("token_type_ids", None)
        self._recorder.call(kind="ids", ids=input_ids[0].tolist(), text=self._tokenizer.last, options=options)
        said = self._tokenizer(self._recorder.answer, add_special_tokens=False, return_tensors="pt").input_ids
        ids = torch.cat([input_ids, said.long()], dim=1)
        return {"sequences": ids} if options.get("return_dict_in_generate") else ids

    def _chat(self, _tokenizer: Any, text: str, **options: Any) -> tuple[str, list[str]]:
        self._recorder.call(kind="text", text=text, options=options)
        return self._recorder.answer, []

    def _pipeline(self, text: str, **options: Any) -> list[dict[str, str]]:
        self._recorder.call(kind="text", text=text, options=options)
        return [{"generated_text": text + self._recorder.answer}]

    def _device(self) -> None:
        """One CUDA device that is this processor; child processes run in this one, one after the other."""
        import torch
        import torch.distributed
        import torch.multiprocessing

        real = torch.device

        class AnyDevice(type):
            def __call__(cls, *_: Any, **__: Any) -> Any:
                return real("cpu")

            def __instancecheck__(cls, one: object) -> bool:
                return isinstance(one, real)

        class Process:
            def __init__(self, target: Any, args: Any = ()) -> None:
                self._run = lambda: target(*args)

            def start(self) -> None:
                self._run()

            def join(self) -> None:
                """It is over already."""

        class Lock:
            def __enter__(self) -> None: ...

            def __exit__(self, *_: object) -> None: ...

        torch.device = AnyDevice("device", (), {})
        torch.cuda.device_count = lambda: 1
        torch.distributed.destroy_process_group = lambda: None
        for name, value in (("Process", Process), ("Lock", Lock), ("set_start_method", lambda *_, **__: None)):
            setattr(torch.multiprocessing, name, value)

    def _data(self) -> None:
        """The hub's data sets are the job's rows; the order stays, so that calls can be told apart by it."""
        recorder = self._recorder
        if self._job["datasets"]:
            self._hub()
            return

        def load_dataset(_repo: str, name: str = "default", **_: Any) -> Any:
            if any(key.startswith(f"{name}/") for key in self._job["rows"]):
                return _Splits(lambda split: load_dataset("", f"{name}/{split}"))
            recorder.call(kind="loaded", name=name)
            return self.rows(name)

        class Dataset(list[Any]):
            from_list = classmethod(lambda cls, rows: cls(rows))

            def shuffle(self, **_: Any) -> Dataset:
                return self

            def shard(self, **_: Any) -> Dataset:
                return self

            def to_list(self) -> list[Any]:
                return list(self)

        _enter("datasets", load_dataset=load_dataset, Dataset=Dataset)

    def _hub(self) -> None:
        """The real library, in one process; only what it would load from the hub is the job's rows. No NLI model."""
        datasets: Any = importlib.import_module("datasets")
        real = datasets.load_dataset
        datasets.disable_progress_bars()

        def load_dataset(path: str, *args: Any, features: Any = None, **options: Any) -> Any:
            if path == "json":
                return real(path, *args, features=features, **options)
            repo = path.rpartition("/")[2].lower()
            found = {}
            for name in self._job["rows"]:
                if name.startswith(f"{repo}/"):
                    loaded = datasets.Dataset.from_list(self.rows(name), features=features)
                    for column in {"coarse_label", "fine_label", "label", "intent"} & {*loaded.column_names}:
                        labels = datasets.ClassLabel(num_classes=1 + max(loaded[column]))
                        loaded = loaded.cast_column(column, labels)
                    found[name.rpartition("/")[2]] = loaded
            return datasets.DatasetDict(found)

        datasets.load_dataset = load_dataset
        for name in ("map", "filter"):
            method = getattr(datasets.Dataset, name)
            setattr(datasets.Dataset, name, lambda *args, method=method, num_proc=1, **more: method(*args, **more))
        if any("alce" in part for part in self._job["argv"]):
            nltk: Any = importlib.import_module("nltk")
            nltk.sent_tokenize = lambda text: [text]
            alce: Any = importlib.import_module("eval_alce")
            alce.compute_autoais = lambda *_, **__: {}

    def _clients(self) -> None:
        """Servers' client libraries, and the tokenizers that would come from their makers."""
        recorder, tokenizer = self._recorder, self._tokenizer

        class Reply(SimpleNamespace):
            def __getitem__(self, name: str) -> Any:
                return getattr(self, name)

        def create(*, messages: Any, model: str, **options: Any) -> Any:
            recorder.call(kind="messages", messages=messages, options=options)
            return Reply(choices=[Reply(message=Reply(content=recorder.answer))])

        def complete(*, prompt: str, model: str, **options: Any) -> Any:
            recorder.call(kind="text", text=prompt, options=options)
            return Reply(completion=recorder.answer)

        def client(*_: Any, **__: Any) -> Any:
            return Reply(chat=Reply(completions=Reply(create=create)), completions=Reply(create=complete))

        def generate(texts: list[str], options: dict[str, Any]) -> list[Any]:
            for text in texts:
                recorder.call(kind="text", text=text, options=options)
            return [Reply(outputs=[Reply(text=recorder.answer)]) for _ in texts]

        def encode(text: str, **_: Any) -> list[int]:
            ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
            return ids

        encoding = SimpleNamespace(encode=encode, decode=lambda ids: tokenizer.decode(ids, skip_special_tokens=True))
        _enter("openai", OpenAI=client, ChatCompletion=Reply(create=create), api_key="")
        _enter("zhipuai", ZhipuAI=client)
        _enter("vllm", LLM=lambda *_, **__: Reply(generate=generate), SamplingParams=lambda **options: options)
        _enter("anthropic", Anthropic=client, HUMAN_PROMPT="\n\nHuman:", AI_PROMPT="\n\nAssistant:")
        _enter("tiktoken", encoding_for_model=lambda _: encoding, Encoding=SimpleNamespace)
        _enter("icetk", icetk=encoding)
        _enter("sentence_transformers", SentenceTransformer=None)
        _enter("pkg_resources", parse_version=lambda text: tuple(text.split(".")))

    def _missing(self) -> None:
        """What speeds a model up or scores its answers, where it is not installed; and FastChat's loader."""
        _enter("llama_flash_attn_monkey_patch", replace_llama_attn_with_flash_attn=lambda: None)
        if importlib.util.find_spec("pytrec_eval") is None:
            _enter("pytrec_eval")
        load = lambda *_, **__: (self._model(), None)  # noqa: E731
        conversation = None
        if importlib.util.find_spec("fastchat") is not None:
            conversation = importlib.import_module("fastchat.model").get_conversation_template
        _enter("fastchat")
        _enter("fastchat.model", load_model=load, get_conversation_template=conversation or _Conversation)


class _Splits:
    """A configuration of which the script takes one split after the other."""

    def __init__(self, load: Any) -> None:
        self._load = load

    def __getitem__(self, split: str) -> Any:
        return self._load(split)


class _Conversation:
    """The form of FastChat's conversations, where that is not installed: what a model's makers put around a prompt."""

    roles = ("USER", "ASSISTANT")

    def __init__(self, _name: str) -> None:
        self._said: list[str] = []

    def append_message(self, role: str, text: str | None) -> None:
        self._said.append(f"{role}: {text} " if text else f"{role}:")

    def get_prompt(self) -> str:
        return "".join(self._said)


def _enter(name: str, **members: Any) -> None:
    """A module of that name that holds these and nothing else."""
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__dict__.update(members)
    sys.modules[name] = module


def _wrapper(module: str, model_name: str, tokenizer: Any) -> list[str]:
    """What the script's own ``build_chat`` puts before and after a prompt."""
    wrapped = runpy.run_path(module, run_name="probe")["build_chat"](tokenizer, SENTINEL, model_name)
    before, found, after = wrapped.partition(SENTINEL)
    if not found:
        raise SystemExit(f"build_chat of {module} does not put the prompt into its text as it is")
    return [before, after]


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    script = Path(job["script"])
    sys.dont_write_bytecode = True  # the checkout stays as it is
    sys.path[0] = str(script.parent)
    with Path(sys.argv[2]).open("w", encoding="utf-8") as sink:
        recorder = Recorder(sink, job["answers"])
        stand_ins = StandIns(job, recorder)
        stand_ins.install()
        if job.get("wrapper"):
            module, model_name = job["wrapper"]
            recorder.call(kind="wrapper", wrapper=_wrapper(module, model_name, stand_ins._tokenizer))
        sys.argv = [job["script"], *job["argv"]]
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            _run(job, stand_ins)


def _run(job: dict[str, Any], stand_ins: StandIns) -> None:
    """The script's main, or the one function that is named."""
    if job.get("function"):
        name, arguments = job["function"]
        called = runpy.run_path(job["script"], run_name="called")[name]
        called(stand_ins.rows("default"), SimpleNamespace(**arguments), io.StringIO())
        return
    try:
        runpy.run_path(job["script"], run_name="__main__")
    except SystemExit as exc:
        if exc.code not in (None, 0):
            raise


if __name__ == "__main__":
    main()
