"""What the card of a model that turns text into vectors may hold under ``[options]``."""

from __future__ import annotations

from dataclasses import dataclass

from lbx.backends.options import ATTENTIONS, DTYPES, EndpointOptions, at_least, check_device, one_of

POOLINGS = ("", "mean", "last", "cls")
PADDING_SIDES = ("auto", "left", "right")


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceTransformersOptions:
    """Options of embedding models on sentence-transformers.

    Attributes:
        device: "auto" (the first GPU, else the CPU), "cpu", "cuda" or "cuda:N".
        dtype: float32 by default, also on a GPU, because LongBench Pro's published numbers used it
            (sentence-transformers 3.1 and transformers 4.51 load in float32); bfloat16 needs half of the memory.
        attention: "sdpa" or "eager".
        batch_tokens: tokens of a batch, including padding; a longer text is a batch of its own.
        padding_side: "auto" pads a last-token model on the left, as LongBench Pro does, and others on the right.
        max_length: cut texts to this many tokens, at their end; 0 means the model's own maximum.
        pooling: how token vectors become one ("mean", "last", "cls"); "" keeps the value in the model's folder.
        query_prefix: precedes a query in retrieval; "" means the model's own prompt for queries, if it has one.
        document_prefix: precedes every other text. Leave it empty for LongBench Pro's summaries.
        threads: CPU threads; 0 means one for each CPU that this process may use.
    """

    device: str = "auto"
    dtype: str = "float32"
    attention: str = "sdpa"
    batch_tokens: int = 8192
    padding_side: str = "auto"
    max_length: int = 0
    pooling: str = ""
    query_prefix: str = ""
    document_prefix: str = ""
    threads: int = 0

    def __post_init__(self) -> None:
        check_device(self.device)
        one_of(self, DTYPES[1:], "dtype")
        one_of(self, ATTENTIONS[1:], "attention")
        at_least(self, 1, "batch_tokens")
        one_of(self, PADDING_SIDES, "padding_side")
        one_of(self, POOLINGS, "pooling")
        at_least(self, 0, "max_length", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaEmbeddingOptions:
    """Options of embedding models on llama.cpp.

    Attributes:
        prefill_chunk: tokens computed at once, if the model can be computed in pieces (causal, last token).
        flash_attention: use flash attention; off by default, as for models that write text.
        n_gpu_layers: layers to put on a GPU; -1 means all (without effect if llama.cpp was built without GPU).
        threads: CPU threads; 0 means one for each CPU that this process may use.
        repack: let llama.cpp rearrange quantised weights for this CPU (faster, other rounding).
        max_length: cut texts to this many tokens, at their end; 0 means the model's own maximum.
        pooling: how token vectors become one ("mean", "last", "cls"); "" keeps the model file's value.
        append_eos: end every text with the end-of-sequence token, if the model file fails to ask for it.
        query_prefix: precedes a query in retrieval.
        document_prefix: precedes every other text.
    """

    prefill_chunk: int = 512
    flash_attention: bool = False
    n_gpu_layers: int = -1
    threads: int = 0
    repack: bool = True
    max_length: int = 0
    pooling: str = ""
    append_eos: bool = False
    query_prefix: str = ""
    document_prefix: str = ""

    def __post_init__(self) -> None:
        at_least(self, 1, "prefill_chunk")
        at_least(self, -1, "n_gpu_layers")
        at_least(self, 0, "threads", "max_length")
        one_of(self, POOLINGS, "pooling")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointEmbeddingOptions:
    """Options of embedding models behind an OpenAI-compatible server (``/v1/embeddings``).

    Attributes:
        url: the API's address, e.g. "http://127.0.0.1:8080/v1"; never with a password in it.
        model: its name on the server; "" if the server has only one. Vectors are stored under the card's name and this
            one: rename the card when the server gets other weights under an old name.
        api_key_env: name of the environment variable that holds the key; "" sends none.
        timeout_s: seconds that the server may take for one answer, including its queue.
        retries: further attempts after 408, 409, 429, 5xx and broken connections, with growing pauses.
        batch_texts: texts in one request.
        max_characters: cut texts to this many characters, at their end; 0 sends them whole, and most servers refuse
            one that is too long for the model.
        dimensions: length of the vectors to ask for, if the model has a choice; 0 means its own.
        query_prefix: precedes a query in retrieval.
        document_prefix: precedes every other text.
    """

    url: str = ""
    model: str = ""
    api_key_env: str = ""
    timeout_s: float = 300.0
    retries: int = 5
    batch_texts: int = 32
    max_characters: int = 0
    dimensions: int = 0
    query_prefix: str = ""
    document_prefix: str = ""

    def __post_init__(self) -> None:
        _ = self.connection  # which is checked as it is made
        at_least(self, 1, "batch_texts")
        at_least(self, 0, "max_characters", "dimensions")

    @property
    def connection(self) -> EndpointOptions:
        """The same as of a model that writes text."""
        return EndpointOptions(
            url=self.url,
            model=self.model,
            api_key_env=self.api_key_env,
            timeout_s=self.timeout_s,
            retries=self.retries,
            concurrency=1,
        )
