"""What two models are compared on: a bundle's own prompts, or some that need no bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lbx.base.layout import Bundle
from lbx.base.records import Prompt, Sample, SampleKey, Task, Truncation
from lbx.benchmarks.base.benchmark import Benchmark
from lbx.benchmarks.needle.benchmark import Needle, NeedleSettings, make_prompt, make_sample
from lbx.spec.selection import Selection

PLAIN = "plain"
"""The task of the built-in texts."""

_NEEDLES = NeedleSettings(lengths=(64, 256, 1024), depths=(0.5,), samples_per_cell=2)
_NEW_TOKENS = 48

# What tokenizers and number formats get wrong: spaces, digits, quotes, code, scripts, emoji, control characters.
_TEXTS = (
    "The report of the harbour office begins with the year in which the old bridge was closed. In that year",
    "  Two leading spaces,  two inside,\n\n\ttabs and blank lines \n \n and one at the end ",
    "Invoice 2026-03-14: 1,204.50 + 87.25 = 1,291.75; 0.1 % of 12345678901234567890 is",
    "\"It isn't ours,\" they'd said; 'we'll see', you're told. I'VE said so. Whose is it?",
    "def area(width: float, height: float) -> float:\n    # returns square metres\n    return width *",
    '{"name": "north tower", "floors": [1, 2, 3], "open": true, "note": null, "size":',
    "第三次会议决定：港口从四月一日起关闭，为期两周。会议的第二项议题是",
    "Ｆｕｌｌ　ｗｉｄｔｈ ①②③ naïve café Straße Œuvre İstanbul e\u0301 \u200bzero\u200dwidth\u00a0space \ufeff",
    "日本語と한국어、العربية, עברית, हिन्दी, ไทย 👩‍👩‍👧‍👦🏳️‍🌈 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ∑∞≠",
    "<s> </s> <|user|> <|im_start|> [INST] are words here, not tokens; so is </think>, and so is",
    "\x00\x01\x07\x7f\r\n\r control characters, then a line that goes on and on and on and on and on and on and on",
)


@dataclass(frozen=True, slots=True)
class ParityPrompt:
    """One prompt for both models.

    Attributes:
        sample, benchmark: where the prompt is of a sample, so that answers have scores.
    """

    key: SampleKey
    prompt: Prompt
    sample: Sample | None = None
    benchmark: Benchmark | None = None

    @property
    def task(self) -> str:
        return f"{self.key.benchmark}/{self.key.task}"


def built_in_prompts() -> list[ParityPrompt]:
    """Needles in short texts of two languages, and texts that tokenizers stumble over."""
    needle = Needle()
    prompts = [
        ParityPrompt(sample.key, make_prompt(sample), sample, needle)
        for language in _NEEDLES.languages
        for length in _NEEDLES.lengths
        for index in range(_NEEDLES.samples_per_cell)
        for sample in [make_sample(_NEEDLES, "single", language, length=length, depth=0.5, index=index)]
    ]
    for number, text in enumerate(_TEXTS):
        prompt = Prompt("", text, "", _NEW_TOKENS, Truncation.REFUSE, chat=False)
        prompts.append(ParityPrompt(SampleKey("built-in", PLAIN, str(number)), prompt))
    return prompts


def bundle_prompts(
    bundle: Bundle, tasks: Sequence[Task], benchmarks: Mapping[str, Benchmark], selection: Selection
) -> Iterator[ParityPrompt]:
    """The chosen samples of each task, asked in its plain way.

    Raises:
        BundleError: a data file is damaged, or a prompt is missing.
    """
    for task in tasks:
        benchmark = benchmarks[task.benchmark]
        for _, sample in selection.of(task, benchmark.samples(bundle, task.name)):
            yield ParityPrompt(sample.key, benchmark.prompt(bundle, sample), sample, benchmark)
