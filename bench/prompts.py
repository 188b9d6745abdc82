"""L-Eval's prompts as lbx asks them, from ../shared, without unpacking a bundle first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.linking import link_tree
from lbx.base.layout import BUNDLE_JSON, FILES, HUB, TAG_MANIFEST, Bundle, repo_folder
from lbx.base.records import Request, Sample, Sampling
from lbx.benchmarks.leval.benchmark import KINDS, LEval
from lbx.prompting.prompter import Prompter

if TYPE_CHECKING:
    from lbx.prompting.prompter import Tokenizer

SHARED = Path(__file__).resolve().parents[2] / "shared"
REVISION = "cd34b050269148aed75acbbe4a599873ad0f37e9"
UNCUT = 1 << 20
"""A context window in which nothing of L-Eval is cut."""


class Asked(NamedTuple):
    """A request and its prompt's text, for harnesses that take no token ids.

    Attributes:
        repeats: how often the data ask the same question again, for a judge; lbx asks it once.
    """

    request: Request
    text: str
    repeats: int


def link_bundle(root: Path, shared: Path = SHARED) -> Bundle:
    """A folder in the form of an unpacked bundle that holds L-Eval.

    Raises:
        FileNotFoundError: the data is not there.
    """
    data = shared / "data" / "hub" / "datasets" / "L4NLP" / "LEval" / "LEval"
    upstreams = [shared / "data" / part / "OpenLMLab" / "LEval" for part in ("upstream", "upstream_more")]
    if not all(place.is_dir() for place in (data, *upstreams)):
        raise FileNotFoundError(f"L-Eval is not in {shared}, where this benchmark takes it from")
    commit = "0" * 40
    repo = root / HUB / repo_folder("dataset", "L4NLP/LEval")
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(commit)
    link_tree(data, repo / "snapshots" / commit / "LEval")
    for upstream in upstreams:
        link_tree(upstream / REVISION, root / FILES / "OpenLMLab" / "LEval")
    (root / BUNDLE_JSON).parent.mkdir()
    (root / BUNDLE_JSON).write_text("{}")
    (root / TAG_MANIFEST).write_text("")
    return Bundle(root)


def tasks_there(bundle: Bundle) -> list[str]:
    """The tasks of L-Eval whose data is there."""
    found = {task.name for task in LEval().tasks(bundle)}
    return [task for task in KINDS if task in found]


def documents(bundle: Bundle) -> Iterator[str]:
    """Every document of each task."""
    for task in tasks_there(bundle):
        yield from dict.fromkeys(sample.context for sample in LEval().samples(bundle, task))


def ask(
    bundle: Bundle,
    tokenizer: Tokenizer,
    task: str,
    *,
    documents: int | None = None,
    new_tokens: int = 32,
    window: int = UNCUT,
) -> list[Asked]:
    """What ``lbx run`` would ask, greedy, without a chat template, in the data's order.

    Args:
        documents: so many of the task's, taken at even distances; None takes all.
        window: longer prompts are cut as L-Eval's authors cut them.
    """
    benchmark = LEval()
    prompter = Prompter(tokenizer, context_window=window, max_new_tokens=new_tokens)
    asked = []
    for sample in _some(list(benchmark.samples(bundle, task)), documents):
        prompt = benchmark.prompt(bundle, sample)
        request = prompter.request(sample.key, prompt, Sampling())
        text = request.kept if request.truncated else prompt.text
        asked.append(Asked(request, text, len(sample.meta.get("judged_by", ()))))
    return asked


def _some(samples: Sequence[Sample], documents: int | None) -> list[Sample]:
    """The samples on so many documents; with one, the middle one."""
    groups = [list(group) for _, group in groupby(samples, key=lambda sample: sample.context)]
    if documents is None or documents >= len(groups):
        return list(samples)
    places = [(2 * number + 1) * len(groups) // (2 * documents) for number in range(documents)]
    return [sample for place in places for sample in groups[place]]
