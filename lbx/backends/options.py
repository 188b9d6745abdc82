"""Options in the table ``[options]`` of model cards: base class, and options that several backends share.

The class of a backend's options, with a field for each option, is in the folder of the backend.
"""

from dataclasses import dataclass
from typing import Annotated

from lbx.base.resources import usable_cpu_count
from lbx.options.option import CardOption, fields_of

AUTO = "auto"
MOST_THREADS = 512  # llama.cpp's own limit
POOLINGS = ("", "mean", "last", "cls")

PREFILL_CHUNK = CardOption("tokens that a prefill step computes at once.", minimum=1)
FLASH_ATTENTION = CardOption("use flash attention; off by default, as for models that write text.")
N_GPU_LAYERS = CardOption(
    "layers to put on a GPU; -1 means all (no effect if llama.cpp was built without GPU).", minimum=-1
)
Threads = Annotated[int, CardOption("CPU threads; 0 means one for each CPU that this process may use.")]
Repack = Annotated[bool, CardOption("let llama.cpp rearrange quantised weights for this CPU (faster, other rounding).")]
EXTEND_CONTEXT = CardOption("allow a context_window above the one that the model file declares.")
MAX_SEQUENCES = CardOption("questions that can be answered at once; fewer if recurrent states are large.", minimum=1)
KV_CELLS = CardOption(
    "size of the KV cache in tokens; shared tokens count once. 0 means context_window. A larger cache "
    "answers more questions on a long document at once."
)
MaxLength = Annotated[int, CardOption("cut texts to this many tokens, at their end; 0 means the model's own maximum.")]
POOLING = CardOption(
    'pooling of token vectors ("mean", "last" or "cls"); "" keeps the model file\'s value.', choices=POOLINGS
)
QUERY_PREFIX = CardOption("precedes a query in retrieval.")
DOCUMENT_PREFIX = CardOption("precedes every other text.")
Device = Annotated[str, CardOption('"auto" (the first GPU, else the CPU), "cpu", "cuda" or "cuda:N".')]
URL = CardOption('the API\'s address, e.g. "http://127.0.0.1:8080/v1"; it must not contain a password.')
SERVER_MODEL = CardOption(
    'its name on the server; "" if the server has only one. If the server loads other weights under the '
    "same name, rename the card: lbx cannot detect the change."
)
ApiKeyEnv = Annotated[str, CardOption('name of the environment variable with the API key; "" sends no key.')]
TimeoutS = Annotated[float, CardOption("maximum seconds for one answer, including its time in the server's queue.")]
Retries = Annotated[
    int, CardOption("further attempts after 408, 409, 429, 5xx and broken connections, with growing pauses.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOptions:
    """Base class of backend options. Each field of a subclass is an option.

    Raises:
        UsageError: the value of an option is invalid.
    """

    def __post_init__(self) -> None:
        for name, field in fields_of(type(self)).items():
            field.check(getattr(self, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedOptions(BackendOptions):
    """Options of the scripted backend: none, because the model file itself is the table of answers."""


def thread_count(threads: int) -> int:
    """Number of threads to compute with, where 0 requests one for each CPU that this process may use."""
    return threads or min(usable_cpu_count(), MOST_THREADS)
