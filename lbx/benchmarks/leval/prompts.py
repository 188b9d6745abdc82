"""L-Eval's prompts, with the texts of the script that asked gpt-3.5-turbo, and of the retrieval baseline's script.

The script and its settings (``SCRIPT``, ``CONFIG``) are Python files in the bundle. They are parsed for their texts and
never run. Every model is asked in turbo's words; the authors' runners of llama2, longchat, vicuna and claude each have
others.

- A system message for each task, by the chain of conditions in ``get_sys_prompt``.
- closed tasks: a template around document and question; gsm100 and codeU are document, blank line, question.
- open tasks: another template, which includes the reference's number of words.
- sci_fi: the same question again in a second call, its closing words exchanged, without the document, as in the runners
  of local models (the API runners ask it in the same conversation). Both answers are joined as "X [fact: Y]".

A document that is too long loses whole words (``Truncation.WORDS_END``; codeU's its first words) until its tokens are
within the limit: the window in thousands of tokens, less 512. The official script stops there; lbx continues until
question and answer fit, too.

The retrieval baseline is Baselines/turbo4k-retrieve-test.py of OpenLMLab/LEval.

The script cuts a document into chunks of 1,024 tokens, ranks them by question and a sentence on the answer's form, and
passes the best four to langchain's "stuff" chain, which puts them, the best first and with a blank line between them,
into a prompt of its own. That sentence is in the script and the prompt in langchain, so a bundle includes both, and
their literals are read; lbx has neither text. The rows that the authors published with BM25 (commit b5df024, deleted
since) record the script's idea of the prompt, which differs from the prompt that langchain sends.

sci_fi is asked in this way as any closed task, with the words for multiple choice, as in the script. The script
asks no second question; here it follows as without chunks, because no answer can be scored without it.
The script sets neither a limit nor a temperature for the answer: both are taken from L-Eval's other prompts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from lbx.base.records import Chunk, Prompt, Sample, Truncation
from lbx.benchmarks.base.data_files import damaged_file_error, read_jsonl, read_text
from lbx.benchmarks.base.sources import (
    assigned_texts,
    assigned_values,
    fill_format,
    parse_python,
    read_literals,
    unparse,
)
from lbx.benchmarks.leval.tasks import KINDS, OPEN
from lbx.benchmarks.retrieval import BM25_ELASTICSEARCH
from lbx.benchmarks.retrieval.retriever import RetrievalRules

CONFIG = "OpenLMLab/LEval/Baselines/LEval_config.py"
SCRIPT = "OpenLMLab/LEval/Baselines/turbo16k-test.py"
FOUNDING_SCRIPT = "OpenLMLab/LEval-cd1cfc3/Tools/turbo16k_api_call.py"
FOUNDING_ANSWERS = "OpenLMLab/LEval-cd1cfc3/Predictions/llm_gpt4_eval/turbo-16k-0613.pred.jsonl"
MAX_NEW_TOKENS = 512
_FOUNDING_NEW_TOKENS, _FOUNDING_ROOM = 1024, 1000

WORDS = "\0len(out.split())\0"
"""Placeholder for a reference's number of words, as ``lbx.benchmarks.base.sources.text_of`` reads the f-string."""


class _Branch(NamedTuple):
    """System message, sent if ``text`` occurs in the value called ``name``, or always if ``text`` is None."""

    text: str | None
    name: str
    message: str


class _Script(NamedTuple):
    """Texts of the script: two templates, and the changes for sci_fi's second question.

    The second question replaces ``old`` by ``new``, and ends in ``end``.
    """

    closed_template: str
    open_template: str
    old: str
    new: str
    end: str


def official_prompt(config: Path, script: Path, sample: Sample, context_window: int) -> Prompt:
    """Fill in the script's prompt for one question.

    Raises:
        BundleError: the files differ from the supported version.
    """
    kind = KINDS[sample.task]
    texts = _script(read_text(script), str(script))
    if kind in ("math", "code"):
        before, document, after = "", sample.context, f"\n\n{sample.question}"
    else:
        template = texts.closed_template
        if kind in OPEN:
            template = texts.open_template.replace(WORDS, str(len(sample.references[0].split())))
        fields = {"0": sample.context, "1": sample.question}
        before, document, after = fill_format(template, fields, document="0", source=SCRIPT)
    # The script counts "16k" as 16,000 tokens, the model's makers as 16,384
    return Prompt(
        before=before,
        document=document,
        after=after,
        max_new_tokens=MAX_NEW_TOKENS,
        truncation=Truncation.WORDS_START if kind == "code" else Truncation.WORDS_END,
        system=_system_message(config, sample.task, "ngram_eval" if kind in OPEN else "exam_eval"),
        limits={context_window: limit} if (limit := (_window_size(context_window) - MAX_NEW_TOKENS)) > 0 else {},
        source=SCRIPT,
    )


def founding_prompt(script: Path, answers: Path, sample: Sample, context_window: int) -> Prompt:
    """Fill in the prompt of an open question for turbo at the founding README's date, without a length hint.

    The words come from a published row, and the script of that date shows where the system message ends. (The script's
    system messages are newer than the row.) A document that is too long loses last words as today, not in the script's
    steps of 500 from 11,000.

    Raises:
        BundleError: the files differ from the supported version.
    """
    published = _published_text(answers)
    plain = [text for text in assigned_texts(read_text(script), str(script), "context") if "\0" not in text]
    context = next((text for text in plain if published.endswith(text)), None)
    if context is None:
        raise damaged_file_error(str(answers), f"the end of its prompt differs from {script.name}")
    fields = {"0": sample.context, "1": sample.question}
    before, document, after = fill_format(context, fields, document="0", source=FOUNDING_ANSWERS)
    limit = _window_size(context_window) - _FOUNDING_ROOM
    return Prompt(
        before=before,
        document=document,
        after=after,
        max_new_tokens=_FOUNDING_NEW_TOKENS,
        truncation=Truncation.WORDS_END,
        system=published.removesuffix(context),
        limits={context_window: limit} if limit > 0 else {},
        source=FOUNDING_ANSWERS,
    )


def second_prompt(script: Path, sample: Sample) -> Prompt:
    """Fill in the prompt of sci_fi's second question."""
    texts = _script(read_text(script), str(script))
    text = sample.question.replace(texts.old, texts.new) + texts.end
    return Prompt(text, "", "", MAX_NEW_TOKENS, Truncation.REFUSE, source=SCRIPT)


def _window_size(window: int) -> int:
    return window if window % 1000 == 0 else window // 1024 * 1000


def _system_message(config: Path, task: str, metric: str) -> str:
    values = {"file_name": task, "args.metric": metric}
    for text, name, message in _branches(read_text(config), str(config)):
        if text is None or text in values[name]:
            return message
    raise damaged_file_error(str(config), f"it has no system message for {task}")


@lru_cache(maxsize=2)
def _branches(text: str, location: str) -> tuple[_Branch, ...]:
    for node in ast.walk(parse_python(text, location)):
        if isinstance(node, ast.FunctionDef) and node.name == "get_sys_prompt":
            return tuple(_read_branches(node.body, location))
    raise damaged_file_error(location, "it does not define get_sys_prompt")


def _read_branches(body: Sequence[ast.stmt], location: str) -> Iterator[_Branch]:
    match body:
        case [ast.If(test=ast.Compare(ast.Constant(str(text)), [ast.In()], [value]), body=branch, orelse=other), *_]:
            if (name := unparse(value)) not in ("file_name", "args.metric"):
                raise damaged_file_error(f"{location}, line {value.lineno}", f"the system message depends on {name}")
            yield _Branch(text, name, _read_message(branch, location))
            yield from _read_branches(other, location)
        case _:
            yield _Branch(None, "", _read_message(body, location))


def _read_message(body: Sequence[ast.stmt], location: str) -> str:
    match body:
        case [ast.Assign(value=ast.Constant(str(message)))]:
            return message
    raise damaged_file_error(location, "get_sys_prompt does not select between texts")


@lru_cache(maxsize=2)
def _script(text: str, location: str) -> _Script:
    match assigned_texts(text, location, "context"), assigned_values(text, location, "text_inputs"):
        case (
            [closed, of_open],
            [ast.BinOp(ast.Call(args=[ast.Constant(str(old)), ast.Constant(str(new))]), right=ast.Constant(str(end)))],
        ) if WORDS in of_open and "\0" not in closed + of_open.replace(WORDS, ""):
            return _Script(closed, of_open, old, new, end)
    raise damaged_file_error(location, "cannot find its prompts in the expected assignments")


def _published_text(path: Path) -> str:
    """Read the prompt of the first row. The prompts of all rows are equal except for document and question."""
    for row in islice(read_jsonl(path), 1):
        return row.get("prompt", str)
    raise damaged_file_error(str(path), "it is empty")


RETRIEVAL_SCRIPT = "OpenLMLab/LEval/Baselines/turbo4k-retrieve-test.py"
STUFF = "langchain-ai/langchain/langchain/chains/question_answering/stuff_prompt.py"
RULES = RetrievalRules(
    tokenizer="openai-community/gpt2",
    tokens=1024,
    between_words=True,
    bm25=BM25_ELASTICSEARCH,
    recipe="bundle/leval_retrieval.toml",
)


def read_answer_instruction(script: Path, sample: Sample) -> str:
    """Read the text that the script appends to a question.

    Raises:
        BundleError: the file is not the script.
    """
    math, short, closed, free = _read_answer_instructions(read_text(script), str(script))
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
def _read_answer_instructions(text: str, location: str) -> list[str]:
    texts = assigned_texts(text, location, "message")
    if len(texts) != 4 or texts[3].count(WORDS) != 1 or "\0" in "".join(texts).replace(WORDS, ""):
        raise damaged_file_error(location, "it must assign four texts to message, the last with a number of words")
    return texts


def retrieval_prompt(stuff: Path, query: str, chunks: Sequence[Chunk]) -> Prompt:
    """Fill in langchain's prompt with chunks and question, as a user's message without a system message.

    Raises:
        BundleError: the file is not langchain's.
    """
    text = read_literals(stuff, ("prompt_template",))["prompt_template"]
    if not isinstance(text, str):
        raise damaged_file_error(str(stuff), "prompt_template is not text")
    context = "\n\n".join(chunk.text for chunk in sorted(chunks, key=lambda chunk: chunk.rank))
    fields = {"context": context, "question": query}
    before, document, after = fill_format(text, fields, document="context", source=str(stuff))
    return Prompt(before, document, after, MAX_NEW_TOKENS, Truncation.DOCUMENT_END, source=STUFF)
