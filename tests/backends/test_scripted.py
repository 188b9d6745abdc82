"""The scripted backend."""

from __future__ import annotations

import dataclasses
import json

import pytest

from lbx.backends import load, read_card, resolve_model
from lbx.base.errors import BackendError, PromptError, UsageError
from lbx.base.records import Request, SampleKey
from lbx.engine.batching import complete


@pytest.fixture
def table(tmp_path):
    def write(*rows: object, name: str = "answers.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        return path

    return write


def ask(backend, sample: str, iteration: int = 0, **changes):
    key = SampleKey("leval", "quality", sample, iteration)
    return complete(backend, Request(key, tuple(b"<doc>"), **({"max_new_tokens": 50} | changes)))


def test_answers_by_key_and_default(table):
    path = table(
        {"key": "leval/quality/1", "text": "(A) 是\u2028的"},
        {"key": "leval/quality/1#2", "text": "again"},
        {"*": "no idea", "leval/quality/7": {"text": "seven", "delay_s": 0.001}},
    )
    backend = load(resolve_model(str(path)))
    assert ask(backend, "1").text == "(A) 是\u2028的"
    assert ask(backend, "1", iteration=2).text == "again"
    assert ask(backend, "7").text == "seven"
    assert ask(backend, "8").text == "no idea"
    assert ask(backend, "8").finish_reason == "stop"
    assert backend.info.context_window == 1_000_000


def test_budget_and_stop_strings_are_obeyed(table):
    backend = load(resolve_model(str(table({"*": "first\nsecond"}))))
    cut = ask(backend, "1", max_new_tokens=3)
    assert (cut.text, cut.output_tokens, cut.finish_reason) == ("fir", 3, "length")
    stopped = ask(backend, "1", stop=("\n",))
    assert (stopped.text, stopped.output_tokens, stopped.finish_reason) == ("first", 5, "stop")


def test_a_scripted_failure_is_a_backend_error(table):
    backend = load(resolve_model(str(table({"key": "leval/quality/1", "error": "the GPU fell off"}))))
    with pytest.raises(BackendError, match="the GPU fell off"):
        ask(backend, "1")
    with pytest.raises(BackendError, match="no entry for leval/quality/2"):
        ask(backend, "2")


def test_the_card_sets_window_and_template(table, tmp_path):
    table({"*": "x"})
    card = tmp_path / "fake.toml"
    card.write_text(
        'backend = "scripted"\ncontext_window = 30\n'
        '[weights]\npath = "answers.jsonl"\n[chat]\ntemplate = "{{ messages }}"\n'
    )
    backend = load(read_card(card))
    assert backend.info.model == "fake"
    assert backend.tokenizer.chat_template == "{{ messages }}"
    with pytest.raises(PromptError, match="context window is 30"):
        ask(backend, "1", max_new_tokens=26)


@pytest.mark.parametrize("text", ["", "plain", "<s>doc</s> <s", "小船 \U0001f6f6</s>"])
def test_byte_tokenizer_round_trips(table, text):
    tokenizer = load(resolve_model(str(table({"*": "x"})))).tokenizer
    assert tokenizer.decode(tokenizer.encode(text, special=False)) == text
    special = tokenizer.encode(text, special=True)
    assert special.count(256) == text.count("<s>")
    assert special.count(257) == text.count("</s>")
    assert tokenizer.decode(special) == text.replace("<s>", "").replace("</s>", "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"key": "a", "txt": "b"}', "no setting 'txt'. Did you mean text"),
        ('{"key": "a", "text": 3}', "text must be text in quotes, not 3"),
        ('{"a": 3}', "line 1: a must be a table, not 3"),
        ('{"a": "b"}\n{oops', "line 2: not valid JSON"),
        ('["a"]', "line 1: must be a table"),
    ],
)
def test_bad_tables_are_explained(tmp_path, content, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError) as caught:
        load(resolve_model(str(path)))
    assert message in str(caught.value)


def test_json_form_and_another_table_is_another_model(tmp_path):
    path = tmp_path / "answers.json"
    path.write_text('{\n "*": "x"\n}')
    first = load(resolve_model(str(path))).info
    path.write_text('{\n "*": "y"\n}')
    second = load(resolve_model(str(path))).info
    assert first.settings["weights"] != second.settings["weights"]
    assert dataclasses.replace(first, settings={}) == dataclasses.replace(second, settings={})


def test_reasoning_in_the_table_is_kept_apart_and_counted(table, tmp_path):
    path = table({"*": "<think>a\nb</think>\n\nyes\nno", "leval/quality/2": "b</think>(B)", "leval/quality/3": "(C)"})
    backend = load(resolve_model(str(path)))
    said = ask(backend, "1", stop=("\n",))
    assert (said.text, said.reasoning, said.finish_reason) == ("yes", "a\nb", "stop")
    assert (said.output_tokens, said.reasoning_tokens, said.stop_in_reasoning) == (23, 18, True)
    cut = ask(backend, "1", thinking_tokens=9)
    assert (cut.text, cut.reasoning, cut.reasoning_closed, cut.finish_reason) == ("", "a", False, "length")
    assert ask(backend, "1", thinking_tokens=18, max_new_tokens=4).text == "ye"
    opened = ask(backend, "2", opens_reasoning=True, thinking_tokens=9, max_new_tokens=2)
    assert (opened.text, opened.reasoning, opened.finish_reason) == ("(B", "b", "length")
    assert ask(backend, "3", thinking_tokens=9, max_new_tokens=2).text == "(C"
    with pytest.raises(PromptError, match="its reasoning 999990"):
        ask(backend, "1", thinking_tokens=999_990)


def test_the_cards_marks(table, tmp_path):
    table({"*": "[THINK]a[/THINK]<plan>b</plan>c"})
    card = tmp_path / "fake.toml"
    head = 'backend = "scripted"\n[weights]\npath = "answers.jsonl"\n[chat]\n'
    card.write_text(head + 'template = "{{ messages }}[THINK]"\n')
    plain = load(read_card(card))
    assert ask(plain, "1").reasoning == "a"
    card.write_text(head + 'template = "{{ messages }}[THINK]"\nreasoning = ["<plan>", "</plan>"]\n')
    named = load(read_card(card))
    assert (ask(named, "1").reasoning, ask(named, "1").text) == ("b", "[THINK]a[/THINK]c")
    assert named.info.settings["chat"]["reasoning"] == ["<plan>", "</plan>"]
    assert "reasoning" not in plain.info.settings["chat"]


@pytest.mark.parametrize(
    "marks", ['["<a>"]', '["<a>", "<a>"]', '["<a>", "<a>b"]', '["", "b"]', '[" a", "b"]', "[1, 2]"]
)
def test_marks_that_cannot_be_told_apart_are_refused(tmp_path, marks):
    card = tmp_path / "fake.toml"
    card.write_text(f'backend = "scripted"\n[weights]\npath = "x.jsonl"\n[chat]\nreasoning = {marks}\n')
    with pytest.raises(UsageError, match="must be two strings"):
        read_card(card)


def test_marks_must_be_a_list(tmp_path):
    card = tmp_path / "fake.toml"
    card.write_text('backend = "scripted"\n[weights]\npath = "x.jsonl"\n[chat]\nreasoning = "<a>"\n')
    with pytest.raises(UsageError, match="reasoning must be"):
        read_card(card)


def test_an_empty_table_is_refused(table) -> None:
    """As the file of a command that failed; each sample would fail for itself."""
    with pytest.raises(UsageError, match="contains no answer"):
        load(resolve_model(str(table())))
