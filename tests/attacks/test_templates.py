"""Chat templates are programs of a stranger's: they get some seconds, some memory, and nothing of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from lbx.base.errors import BackendError
from lbx.engine.chat_template import ChatTemplate, template_variables
from tests.attacks.attack_parts import Said, lbx, refused

LIMITS = "takes more than|takes too much memory"


def run(small: Path, gguf: Path, folder: Path, template: str) -> Said:
    """A plan of two samples: it wraps prompts as a run does."""
    (folder / "template.jinja").write_text(template, "utf-8")
    card = folder / "card.toml"
    card.write_text(f'backend = "llamacpp"\n[weights]\npath = "{gguf}"\n[chat]\ntemplate_file = "template.jinja"\n')
    return lbx("plan", "-b", small / "bundle", "-m", card, "-t", "needle/single_en", "-n", 2)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ 'a' * 10**10 }}", "too much memory"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "5 seconds"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ 1 / 0 }}{{ messages[0].content }}", "ZeroDivisionError"),
    ],
)
def test_a_run_ends_with_what_its_template_did(
    template: str, says: str, small: Path, demo_gguf: Path, tmp_path: Path
) -> None:
    refused(run(small, demo_gguf, tmp_path, template), "chat template", says)


MEMORY = (
    "{{ 'a' * 10**11 }}",
    "{{ 'x' | center(10**11) }}",
    "{{ '%99999999999d' | format(1) }}",
    "{{ '{:>99999999999}'.format(1) }}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{{ [0] * 10**11 }}",
    "{{ 'a'.ljust(10**11) }}",
    "{{ messages | tojson(indent=10**10) }}",
)


@pytest.mark.parametrize("template", MEMORY, ids=ascii)
def test_memory_ends(template: str) -> None:
    with pytest.raises(BackendError, match=LIMITS):
        ChatTemplate(template).render("hello")
    assert ChatTemplate("{{ messages[0].content }}").render("still there") == "still there"


FAULTS = {
    "{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}": "nested too deeply",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}": "recurses",
    "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}": "recurses",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}": "unsafe|undefined",
    "{{ lipsum.__globals__['os'] }}": "unsafe|undefined",
    "{{ messages.append(1) }}": "unsafe",
    "{% include '/etc/passwd' %}": "TypeError|no loader",
    "{% import 'os' as os %}": "TypeError|no loader",
    "{{ (''|attr('__class__')).mro() }}": "unsafe|undefined",
    "{{ raise_exception('x' * 10000) }}": "x{900}",
    "{% block a %}{% endblock %}{% block a %}{% endblock %}": "defined twice",
}


@pytest.mark.parametrize("template", FAULTS, ids=lambda text: ascii(text[:40]))
def test_a_template_that_fails_is_told_as_a_sentence(template: str) -> None:
    with pytest.raises(BackendError, match=FAULTS[template]) as caught:
        ChatTemplate(template).render("hello")
    assert len(str(caught.value)) < 2000


def test_looking_for_a_switch_is_limited_as_rendering_is() -> None:
    with pytest.raises(BackendError, match="nested too deeply"):
        template_variables("{{ " + "(" * 20_000 + "1" + ")" * 20_000 + " }}")
