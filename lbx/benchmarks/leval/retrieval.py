"""L-Eval's retrieval baseline: what Baselines/turbo4k-retrieve-test.py of OpenLMLab/LEval sends to a model.

The script cuts a document into chunks of 1,024 tokens, ranks them by question and a sentence on the answer's form, and
hands the best four to langchain's "stuff" chain, which puts them, the best first and with a blank line between them,
into a prompt of its own. That sentence stands in the script and the prompt in langchain, so a bundle brings both, and
their literals are read; lbx has neither text. The rows that the authors published with BM25 (commit b5df024, deleted
since) record the script's idea of the prompt, which is not what langchain sends.

sci_fi is asked in this way as any closed task, with the words for multiple choice, as the script has it. The script
asks nothing else; here the second question follows as it does without chunks, for without it no answer can be scored.
The script names neither a limit nor a temperature for the answer: both are those of L-Eval's other prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from lbx.base.records import Chunk, Prompt, Sample, Truncation
from lbx.benchmarks.base.files import damaged, read_text
from lbx.benchmarks.base.literals import read_literals, texts_given
from lbx.benchmarks.base.templates import fill_format
from lbx.benchmarks.leval.prompts import MAX_NEW_TOKENS, WORDS
from lbx.benchmarks.leval.tasks import KINDS, OPEN
from lbx.retrieval.ranking import BM25_ELASTICSEARCH
from lbx.retrieval.retriever import RetrievalRules

RETRIEVAL_SCRIPT = "OpenLMLab/LEval/Baselines/turbo4k-retrieve-test.py"
STUFF = "langchain-ai/langchain/langchain/chains/question_answering/stuff_prompt.py"
RULES = RetrievalRules(
    tokenizer="openai-community/gpt2",
    tokens=1024,
    between_words=True,
    bm25=BM25_ELASTICSEARCH,
    recipe="bundle/leval_retrieval.toml",
)


def answer_form(script: Path, sample: Sample) -> str:
    """What the script puts behind a question.

    Raises:
        BundleError: the file is not the script.
    """
    math, short, closed, free = _forms(read_text(script), str(script))
    match KINDS[sample.task]:
        case "math":
            return math
        case "topics" | "code":
            return short
        case kind if kind in OPEN:
            return free.replace(WORDS, str(len(sample.references[0].split())))
        case _:
            return closed


@lru_cache(maxsize=2)
def _forms(text: str, where: str) -> list[str]:
    forms = texts_given(text, where, "message")
    if len(forms) != 4 or forms[3].count(WORDS) != 1 or "\0" in "".join(forms).replace(WORDS, ""):
        raise damaged(where, "it should give four texts to message, of which the last has a number of words")
    return forms


def retrieval_prompt(stuff: Path, query: str, chunks: Sequence[Chunk]) -> Prompt:
    """langchain's prompt around chunks and question, a user's message without a system message.

    Raises:
        BundleError: the file is not langchain's.
    """
    text = read_literals(stuff, ("prompt_template",))["prompt_template"]
    if not isinstance(text, str):
        raise damaged(str(stuff), "prompt_template is no text")
    context = "\n\n".join(chunk.text for chunk in sorted(chunks, key=lambda chunk: chunk.rank))
    fields = {"context": context, "question": query}
    before, document, after = fill_format(text, fields, document="context", source=str(stuff))
    return Prompt(before, document, after, MAX_NEW_TOKENS, Truncation.DOCUMENT_END, source=STUFF)
