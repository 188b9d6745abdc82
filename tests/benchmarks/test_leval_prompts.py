"""L-Eval's prompts, read out of a stand-in for its authors' script; ``just official`` compares with the real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lbx.backends.scripted import ByteTokenizer
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, EmptyPromptError
from lbx.base.records import Prompt, Sample, Sampling, Truncation
from lbx.benchmarks.leval.benchmark import LEval
from lbx.benchmarks.leval.prompts import CONFIG, FOUNDING_ANSWERS, FOUNDING_SCRIPT, SCRIPT
from lbx.benchmarks.leval.tasks import KINDS
from lbx.engine.prompter import ChatTemplate, Prompter
from lbx.options.asking import Mode
from tests.leval_scripts import CONFIG_PY, FOUNDING_PROMPT, FOUNDING_PY, SCRIPT_PY

MakeBundle = Callable[[dict[str, bytes | Path]], Bundle]
PLAIN = {f"files/{CONFIG}": CONFIG_PY, f"files/{SCRIPT}": SCRIPT_PY}


@pytest.fixture
def scripted(make_bundle: MakeBundle) -> Bundle:
    return make_bundle(dict(PLAIN))


def asked(bundle: Bundle, task: str, question: str = "who?", window: int = 16384, document: str = "doc") -> Prompt:
    sample = Sample("leval", task, "000-00", document, question, ("three words long",))
    return LEval().prompt(bundle, sample, Mode(context_window=window))


@pytest.mark.parametrize("task", KINDS)
def test_each_task_has_its_message_and_its_template(scripted: Bundle, task: str) -> None:
    prompt = asked(scripted, task)
    system = {"gsm100": "Count. ", "codeU": "Run."}
    kind = KINDS[task]
    if kind in ("math", "code"):
        assert (prompt.system, prompt.text) == (system[task], "doc\n\nwho?")
    elif kind in ("f1", "rouge"):
        assert (prompt.system, prompt.text) == (
            "Write. ",
            "Text: doc Task: who? About 3 words. Output: ",
        )
    else:
        assert (prompt.system, prompt.text) == ("Choose. ", "Text: doc Asked: who? \nAnswer: ")
    assert prompt.document == "doc"
    assert prompt.source == SCRIPT
    assert prompt.truncation is (Truncation.WORDS_START if task == "codeU" else Truncation.WORDS_END)


def test_sci_fi_is_asked_twice_and_its_answers_are_joined(scripted: Bundle) -> None:
    family, sample = LEval(), Sample("leval", "sci_fi", "0", "doc", "Is it so in the story.", ("True [fact: False]",))
    second = family.next_step(scripted, sample, Mode(), ["True"])
    assert second is not None
    assert (second.text, second.document, second.system) == ("Is it so in the world\nReally?", "", "")
    joined = family.next_step(scripted, sample, Mode(), [" True\n", "False "])
    assert joined == "True [fact: False]"
    assert [score.score for score in family.score(sample, joined)] == [1.0, 1.0, 1.0]
    other = Sample("leval", "tpo", "0", "doc", "which?", ("A",))
    assert family.next_step(scripted, other, Mode(), ["A"]) == "A"


@pytest.mark.parametrize(
    ("window", "limit"),
    [(4096, 3488), (8192, 7488), (16384, 15488), (16000, 15488), (32768, 31488), (128000, 127488), (131072, 127488)],
)
def test_the_documents_limit_is_of_the_window_in_thousands(scripted: Bundle, window: int, limit: int) -> None:
    assert asked(scripted, "tpo", window=window).limits == {window: limit}


def kept_officially(document: str, limit: int, count: Callable[[str], int], *, start: bool) -> str:
    """The loop of the authors' runners."""
    dropped = 0
    while count(document) > limit:
        words = document.split(" ")
        document = " ".join(words[dropped - limit :] if start else words[: limit - dropped])
        dropped += 250
    return document


@pytest.mark.parametrize("task", ["tpo", "codeU"])
@pytest.mark.parametrize("words", [1, 500, 900, 1200, 5000])
def test_whole_words_are_dropped_as_the_runners_do(scripted: Bundle, task: str, words: int) -> None:
    document = " ".join(f"w{number % 7}" * (1 + number % 3) for number in range(words))
    prompter = Prompter(ByteTokenizer(), context_window=4096)
    read = prompter.read(("leval", task, "0", 0), asked(scripted, task, window=4096, document=document), Sampling())
    expected = kept_officially(document, 3488, lambda text: len(text) + 1, start=task == "codeU")
    prompt = asked(scripted, task, document=expected)
    assert read.text == prompt.system + prompt.text
    assert read.request.truncated == (document != expected)
    if read.cut_at is not None:
        at = len(prompt.system + prompt.before) + (0 if task == "codeU" else len(expected))
        assert read.cut_at == at
        assert read.request.tokens_cut == len(document) - len(expected)


def test_it_goes_on_until_question_and_answer_fit(scripted: Bundle) -> None:
    document, question = " ".join(["word"] * 690), "?" * 400  # 3,449 tokens: within the document's limit
    prompter = Prompter(ByteTokenizer(), context_window=4096)
    read = prompter.read(("leval", "tpo", "0", 0), asked(scripted, "tpo", question, 4096, document), Sampling())
    assert len(read.request.token_ids) <= 4096 - 512
    assert question in read.text
    kept = read.text.count("word")
    assert kept < 690
    assert kept == 3488 - 250 * ((3488 - kept) // 250)
    with pytest.raises(EmptyPromptError, match="would remove the whole document"):
        prompter.request(("leval", "tpo", "0", 0), asked(scripted, "tpo", "?" * 4000, 4096, document), Sampling())


def test_the_last_words_go_one_by_one(scripted: Bundle) -> None:
    prompter = Prompter(ByteTokenizer(), context_window=16384, max_prompt_tokens=100)
    read = prompter.read(("leval", "tpo", "0", 0), asked(scripted, "tpo", document="word " * 400), Sampling())
    assert read.text == "Choose. Text: " + " ".join(["word"] * 12) + " Asked: who? \nAnswer: "


def test_a_limit_of_ones_own_holds_for_the_whole_prompt(scripted: Bundle) -> None:
    prompter = Prompter(ByteTokenizer(), context_window=16384, max_prompt_tokens=600)
    read = prompter.read(("leval", "tpo", "0", 0), asked(scripted, "tpo", document="ab " * 4000), Sampling())
    assert len(read.request.token_ids) <= 600


SYSTEM = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}<assistant>"
REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" + SYSTEM
FORGETS = "{% for m in messages if m.role == 'user' %}<user>{{ m.content }}{% endfor %}<assistant>"


@pytest.mark.parametrize(
    ("template", "place", "text"),
    [
        (SYSTEM, "message", "<system>Choose.<user>Text: doc Asked: who? \nAnswer:<assistant>"),
        (REFUSES, "text", "<user>Choose. Text: doc Asked: who? \nAnswer:<assistant>"),
        (FORGETS, "text", "<user>Choose. Text: doc Asked: who? \nAnswer: <assistant>"),
        (None, "text", "Choose. Text: doc Asked: who? \nAnswer: "),
    ],
)
def test_the_system_message_stands_where_the_template_has_a_place(
    scripted: Bundle, template: str | None, place: str, text: str
) -> None:
    chat = ChatTemplate(template) if template else None
    prompter = Prompter(ByteTokenizer(template), context_window=16384, template=chat)
    read = prompter.read(("leval", "tpo", "0", 0), asked(scripted, "tpo"), Sampling())
    assert (read.request.system_place, read.text) == (place, text)


@pytest.mark.parametrize(
    "content", [b"def get_sys_prompt(a, b): return a", b"(", b"x = 1", CONFIG_PY.replace(b"gsm", b"\\xff")[:60]]
)
@pytest.mark.parametrize("place", [CONFIG, SCRIPT])
def test_another_file_in_its_place_is_named(make_bundle: MakeBundle, place: str, content: bytes) -> None:
    bundle = make_bundle({**PLAIN, f"files/{place}": content})
    with pytest.raises(BundleError, match=Path(place).name):
        asked(bundle, "tpo")


ROW = json.dumps({"query": "q", "gt": "a", "prompt": FOUNDING_PROMPT, "turbo-16k-0613_pred": "a"}).encode()
FOUNDING = {f"files/{FOUNDING_SCRIPT}": FOUNDING_PY, f"files/{FOUNDING_ANSWERS}": ROW}


@pytest.mark.parametrize("task", ["financial_qa", "gov_report_summ", "tpo"])
def test_the_founding_protocol_tells_nothing_of_the_reference(make_bundle: MakeBundle, task: str) -> None:
    bundle = make_bundle({**PLAIN, **FOUNDING})
    sample = Sample("leval", task, "000-00", "doc", "who?", ("three words long",))
    prompt = LEval().prompt(bundle, sample, Mode(context_window=16384, length_hint=False))
    if task == "tpo":
        assert prompt == asked(bundle, task)
        return
    assert (prompt.system, prompt.text) == (
        "You read pictures. Now read a text.",
        "The text: doc The task: who? Output: ",
    )
    assert (prompt.max_new_tokens, prompt.limits, prompt.source) == (1024, {16384: 15000}, FOUNDING_ANSWERS)


@pytest.mark.parametrize(
    ("place", "content"),
    [
        (FOUNDING_SCRIPT, b"("),
        (FOUNDING_SCRIPT, b"x = 1"),
        (FOUNDING_ANSWERS, b""),
        (FOUNDING_ANSWERS, ROW.replace(b"Output", b"Answer")),
        (FOUNDING_ANSWERS, None),
    ],
)
def test_the_founding_files_must_be_what_they_were(make_bundle: MakeBundle, place: str, content: bytes | None) -> None:
    there = {**PLAIN, **FOUNDING, f"files/{place}": content}
    bundle = make_bundle({name: text for name, text in there.items() if text is not None})
    sample = Sample("leval", "financial_qa", "000-00", "doc", "who?", ("three words long",))
    with pytest.raises(BundleError, match=r"turbo.?16k"):
        LEval().prompt(bundle, sample, Mode(context_window=16384, length_hint=False))


def test_the_settings_must_be_there_with_the_script(make_bundle: MakeBundle) -> None:
    with pytest.raises(BundleError, match=r"LEval_config\.py"):
        asked(make_bundle({f"files/{SCRIPT}": SCRIPT_PY}), "tpo")
