"""Where a model's chat template lies, and templates that take a message as a list of parts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lbx.backends.cards import ModelCard
from lbx.backends.tokenizer_loading import load_tokenizer
from lbx.backends.weights import resolve_model
from lbx.engine.chat_template import ChatTemplate
from lbx.engine.wrapping import Wrapper

DEMO = Path(__file__).parents[2] / "models" / "demo" / "hf"
SIMPLE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
TOOLS, RAG = f"TOOLS {SIMPLE}", f"RAG {SIMPLE}"
TEXTS = "{% for part in m['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
SMOLVLM = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}{% if message['content'][0]['type'] == "
    "'image' %}{{':'}}{% else %}{{': '}}{% endif %}{% for line in message['content'] %}{% if line['type'] == 'text' %}"
    "{{line['text']}}{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n"
    "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
LLAVA = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}{{ content['text'] + ' '}}"
    "{% endfor %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
PARTS = {
    "SmolVLM": SMOLVLM,
    "LLaVA": LLAVA,
    "system messages as text": (
        "{% for m in messages %}[{{ m.role }}] {% if m.role == 'system' %}{{ m.content }}{% else %}"
        + TEXTS
        + "{% endif %}\n{% endfor %}"
    ),
    "answers as text": (
        "{% for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' %}{{ m.content }}{% else %}"
        + TEXTS
        + "{% endif %}\n{% endfor %}"
    ),
    "no system message": (
        "{% for m in messages if m.role != 'system' %}[{{ m.role }}] " + TEXTS + "\n{% endfor %}[assistant]"
    ),
}
BOTH = {
    "text or parts": (
        "{% for m in messages %}{% if m.content is string %}S{{ m.content }}{% else %}P"
        + TEXTS
        + "{% endif %}{% endfor %}"
    ),
    "text": SIMPLE,
}
CONVERSATION = ("a <question>", "an answer", "another")


@pytest.fixture(autouse=True)
def libraries() -> None:
    for library in ("torch", "transformers"):
        pytest.importorskip(library, reason="needs lbx[hf]")


def folder_with(folder: Path, files: dict[str, Any]) -> ModelCard:
    """The demo model's folder with more files; a table is merged into the JSON file that is there."""
    shutil.copytree(DEMO, folder)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        known = json.loads(path.read_text()) if path.exists() and isinstance(content, dict) else {}
        path.write_text(json.dumps(known | content) if isinstance(content, dict) else content)
    return resolve_model(str(folder))


def texts_of(template: ChatTemplate) -> list[str]:
    first, *turns = CONVERSATION
    return [template.render(first), template.render(first, "a system message"), template.render(first, turns=turns)]


@pytest.mark.parametrize("name", PARTS)
def test_a_template_of_parts_is_rendered_as_transformers_renders_parts(name: str, tmp_path: Path) -> None:
    import transformers

    card = folder_with(tmp_path / "m", {"chat_template.jinja": PARTS[name]})
    tokenizer = load_tokenizer(card, None).tokenizer
    assert tokenizer.chat_template == PARTS[name]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    as_text = {"system messages as text": "system", "answers as text": "assistant"}.get(name)

    def message(role: str, text: str) -> dict[str, Any]:
        return {"role": role, "content": text if role == as_text else [{"type": "text", "text": text}]}

    conversations = [
        [message("user", CONVERSATION[0])],
        [message("system", "a system message"), message("user", CONVERSATION[0])],
        [message(role, text) for role, text in zip(("user", "assistant", "user"), CONVERSATION, strict=True)],
    ]
    expected = [
        theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) for messages in conversations
    ]
    template = ChatTemplate(PARTS[name], bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
    assert texts_of(template) == expected
    wrapper = Wrapper(tokenizer, template)
    document = "  A document with {'type': 'text'} and <image>.\n"
    wrapped = wrapper.wrap(document, chat=True)
    assert wrapped.user_text.strip() == document.strip()
    assert wrapper.system_place("Be brief.", chat=True) == ("text" if name == "no system message" else "message")
    assert wrapper.encode(wrapped)[1:].count(tokenizer.bos_id) == 0


@pytest.mark.parametrize("name", BOTH)
def test_a_template_that_takes_text_gets_text(name: str) -> None:
    template = ChatTemplate(BOTH[name])
    assert template.render("a question") == ChatTemplate(BOTH[name]).render_messages(
        [{"role": "user", "content": "a question"}]
    )


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content[:1] }}{% endfor %}",
        "{% for m in messages %}{% if m.content is not string %}{{ m.content }}{% endif %}{% endfor %}",
        "{% for m in messages %}{% if m.content is not string %}{{ m.content | tojson }}{% endif %}{% endfor %}",
    ],
)
def test_a_list_of_parts_itself_is_no_prompt(source: str) -> None:
    assert "text" not in ChatTemplate(source).render("a question")


PLACES: dict[str, tuple[dict[str, Any], str | None, str]] = {
    # name: (files, template, words of the note)
    "tokenizer_config.json": ({"tokenizer_config.json": {"chat_template": SIMPLE}}, SIMPLE, ""),
    "chat_template.jinja": ({"chat_template.jinja": SIMPLE}, SIMPLE, ""),
    "chat_template.json": ({"chat_template.json": {"chat_template": SIMPLE}}, SIMPLE, "the one in chat_template.json"),
    "processor_config.json": (
        {"processor_config.json": {"chat_template": SIMPLE, "processor_class": "XProcessor"}},
        SIMPLE,
        "the one in processor_config.json",
    ),
    "two alike": ({"chat_template.jinja": SIMPLE, "chat_template.json": {"chat_template": SIMPLE}}, SIMPLE, ""),
    "two different": (
        {"chat_template.jinja": SIMPLE, "chat_template.json": {"chat_template": RAG}},
        SIMPLE,
        "chat_template.json has another chat template",
    ),
    "a default among others": (
        {"chat_template.jinja": SIMPLE, "additional_chat_templates/tool_use.jinja": TOOLS}, SIMPLE, ""
    ),
    "a list with a default": (
        {"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": RAG},
                                                     {"name": "default", "template": SIMPLE}]}}, SIMPLE, ""
    ),
    "a default in another file": (
        {"tokenizer_config.json": {"chat_template": SIMPLE}, "additional_chat_templates/tool_use.jinja": TOOLS},
        SIMPLE, "",
    ),
    "no template": ({"tokenizer_config.json": {"chat_template": ""}}, None, ""),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_a_template_is_found_wherever_it_lies(place: str, tmp_path: Path) -> None:
    from lbx.backends import load

    files, source, words = PLACES[place]
    card = folder_with(tmp_path / "m", files)
    tokenizer = load_tokenizer(card, None).tokenizer
    assert (tokenizer.chat_template, tokenizer.template_names) == (source, ())
    backend = load(card)
    assert backend.tokenizer.chat_template == source
    notes = [note for note in backend.info.notes if "chat template" in note]
    assert len(notes) == bool(words) and all(words in note for note in notes)
    backend.close()


NAMED: dict[str, dict[str, Any]] = {
    "a file": {"additional_chat_templates/tool_use.jinja": TOOLS, "additional_chat_templates/rag.jinja": RAG},
    "a list": {
        "tokenizer_config.json": {
            "chat_template": [{"name": "rag", "template": RAG}, {"name": "tool_use", "template": TOOLS}]
        }
    },
    "a processor's": {"chat_template.json": {"chat_template": {"rag": RAG, "tool_use": TOOLS}}},
}


@pytest.mark.parametrize("kind", [*NAMED, "gguf"])
def test_named_templates_without_a_default_are_named_and_not_chosen(kind: str, demo_gguf: Path, tmp_path: Path) -> None:
    if kind == "gguf":
        from tests.gguf_copy import gguf_copy

        keys = {f"tokenizer.chat_template.{name}": text for name, text in (("rag", RAG), ("tool_use", TOOLS))}
        card = resolve_model(str(gguf_copy(demo_gguf, tmp_path / "m.gguf", added=keys)))
    else:
        card = folder_with(tmp_path / "m", NAMED[kind])
    tokenizer = load_tokenizer(card, None).tokenizer
    assert (tokenizer.chat_template, tokenizer.template_names) == (None, ("rag", "tool_use"))
