"""Samples of RULER for one tokenizer, equal byte for byte to those of the authors' scripts with the same settings."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import LbxError, UsageError
from lbx.base.records import EVIDENCE_DEPTH, Sample, canonical_json, sha256_text
from lbx.benchmarks.base.data_files import cached_by_mtime, damaged_file_error, read_text
from lbx.benchmarks.ruler.chains import Chains
from lbx.benchmarks.ruler.generator import (
    Candidate,
    CountLog,
    CountTokens,
    SampleBudget,
    cached_counts,
    join_lines,
    split_answer_prefix,
)
from lbx.benchmarks.ruler.needles import WHOLE_FILE, Needles, essay_files, shuffled_words, word_file
from lbx.benchmarks.ruler.questions import QuestionTexts, question_file
from lbx.benchmarks.ruler.sentences import PARAMETERS_FILE
from lbx.benchmarks.ruler.tasks import (
    CONSTANTS,
    DATA,
    NEEDLES,
    QUESTIONS,
    SCRIPTS,
    TASK_TEMPLATE,
    RulerSettings,
    TaskTexts,
    constants_key,
    model_template,
    noise_text,
    split_task,
    task_texts,
)
from lbx.benchmarks.ruler.word_counts import CommonWords, FrequentWords
from lbx.options.asking import CARD_TEMPLATE

log = logging.getLogger("lbx")

BUNDLED_COUNTS = "ruler/counts"
ENGLISH_WORDS = f"{SCRIPTS}/synthetic/json/english_words.json"
_VERSION = 1
"""Version of the generators, raised if a sample changes."""
_STEPS = {"niah": 25, "variable_tracking": 10, "common_words_extraction": 10, "qa": 10}
"""{key of the task in constants.py: smallest size of a sample}."""
_SHORT = 4096
"""Length in tokens below which samples grow by smaller steps and contain fewer words."""
_SHORT_STEP = 5
"""Smallest size of needle tasks without essays and of vt in short samples."""
_ESSAY_STEP = 500
_CHECKED_SHARE = 50
_FIRST_REPORT_S, _REPORT_S = 3.0, 30.0


class _Samples(Protocol):
    def samples(self, count: CountTokens) -> Iterator[Candidate]: ...


def required_files(bundle: Bundle, task: str) -> list[str]:
    """Paths of the files that a task is generated from, whether or not the bundle contains them."""
    files = [CONSTANTS]
    if task in NEEDLES:
        rules = NEEDLES[task]
        files.append(f"{SCRIPTS}/synthetic/niah.py")
        files += map(word_file, ("adjective", "noun")) if "words" in (rules.key, rules.value) else ()
        files += (*(essay_files(bundle) or [WHOLE_FILE]), PARAMETERS_FILE) if rules.haystack == "essay" else ()
    elif task == "vt":
        files.append(f"{SCRIPTS}/synthetic/niah.py")
    elif task == "cwe":
        files += map(word_file, ("adjective", "noun", "verb"))
    elif task in QUESTIONS:
        files += (f"{SCRIPTS}/synthetic/qa.py", question_file(QUESTIONS[task]))
    return files


@dataclass(frozen=True)
class SampleSet:
    """Samples of one bundle, tokenizer and template.

    Attributes:
        tokenizer_sha256: hash of the tokenizer.
        count: counts the tokens of a text, with control tokens as single tokens and without BOS.
        template: name of a model's template in the authors' template.py, ``CARD_TEMPLATE``, or "" for none.
        wrapping_tokens: number of tokens that the card's chat template adds to a prompt.
        adds_bos: whether a prompt contains a BOS that the sample's length does not count.
    """

    bundle: Bundle
    settings: RulerSettings
    tokenizer_sha256: str
    count: CountTokens
    template: str = ""
    wrapping_tokens: int = 0
    adds_bos: bool = False

    @cached_property
    def digest(self) -> str:
        """Hash of everything that decides the samples of a task and a length besides the bundle's files."""
        settings = {name: value for name, value in asdict(self.settings).items() if name != "samples"}
        wrapping_tokens = self.wrapping_tokens if self.template == CARD_TEMPLATE else 0
        return sha256_text(canonical_json([_VERSION, settings, self.tokenizer_sha256, self.template, wrapping_tokens]))

    def samples(self, benchmark: str, name: str) -> Iterator[Sample]:
        """Yield the samples of a task. Tokens are counted only if there are no stored counts.

        Raises:
            UsageError: no sample fits into the length, or there are too few questions.
            BundleError: the bundle lacks a file, or a file is damaged.
        """
        task, _ = split_task(name)
        description = {
            "task": name,
            "samples": self.digest,
            "tokenizer": self.tokenizer_sha256,
            "template": self.template,
        }
        texts = task_texts(self.bundle, task)
        report = _Reporter(f"{benchmark}/{name}", self.settings.samples, self.count)
        with cached_counts(description, self.bundle.file(BUNDLED_COUNTS)) as counts:
            for number, candidate in enumerate(self._candidates(name, texts, counts, report.count)):
                yield self._sample(benchmark, name, texts, number, candidate)
                report.number = number + 1

    def _candidates(self, name: str, texts: TaskTexts, counts: CountLog, count: CountTokens) -> Iterator[Candidate]:
        """Yield candidates. If a stored count is wrong, all are drawn again from new counts.

        Raises:
            LbxError: the new draw of a candidate that was already yielded differs.
        """
        digests: list[str] = []
        while True:
            try:
                candidates = self._generator(name, texts).samples(counts.counter(count))
                for number, candidate in enumerate(islice(candidates, self.settings.samples)):
                    if counts.is_suspect or not self._has_right_count(number, candidate, texts, counts, count):
                        break
                    digest = sha256_text(f"{candidate.tokens} {candidate.text}")
                    if number == len(digests):
                        digests.append(digest)
                        yield candidate
                    elif digest != digests[number]:
                        raise LbxError(
                            f"Samples of ruler/{name} were made from wrong token counts, which are now discarded.",
                            fix="Repeat the command, with a new results file if it has begun one: it counts again.",
                        )
                else:
                    return
            except UsageError:  # no sample fits: perhaps only by wrong counts
                if digests or not (counts.path or counts.is_suspect):
                    raise
            counts.discard()

    def _has_right_count(
        self, number: int, candidate: Candidate, texts: TaskTexts, counts: CountLog, count: CountTokens
    ) -> bool:
        """Whether a stored count agrees with the tokenizer. It checks the first, the last and one candidate in 50."""
        is_last = number == self.settings.samples - 1
        if not counts.path or number in counts.right_samples or not (is_last or number % _CHECKED_SHARE == 0):
            return True
        counts.right_samples.add(number)
        return count(candidate.text) + texts.answer_tokens == candidate.tokens

    def _sample(self, benchmark: str, name: str, texts: TaskTexts, number: int, candidate: Candidate) -> Sample:
        task, length = split_task(name)
        text = candidate.text
        if self.settings.remove_newline_tab and task != "vt":  # vt has joined lines before counting
            text = join_lines(text)
        text, prefix = split_answer_prefix(text, texts.answer_prefix)
        # By its content, because the samples of two tokenizers differ, and those of two formats of a model do not.
        content = sha256_text(canonical_json([text, prefix, candidate.outputs, candidate.tokens, length]))
        meta: dict[str, Any] = {"answer_prefix": prefix, "index": number, "max_length": length}
        if task in NEEDLES:
            # niah.py overwrites the sample's number by the position of its first answer.
            meta["index"] = position = text.find(candidate.outputs[0])
            if len(candidate.outputs) == 1 and position >= 0:
                meta[EVIDENCE_DEPTH] = round(position / len(text), 1)
        return Sample(
            benchmark=benchmark,
            task=name,
            sample_id=f"{number:04d}-{content[:8]}",
            context=text,
            question=candidate.query,
            references=candidate.outputs,
            length=candidate.tokens,
            length_unit="tokens",
            meta=meta,
        )

    def _generator(self, name: str, texts: TaskTexts) -> _Samples:
        task, length = split_task(name)
        bundle, seed = self.bundle, self.settings.seed
        frame, template_tokens = self._frame()
        template = frame.format(task_template=texts.template) + texts.answer_prefix
        if task in NEEDLES and NEEDLES[task].haystack == "essay":
            step = _ESSAY_STEP
        elif length < _SHORT and (task in NEEDLES or task == "vt"):
            step = _SHORT_STEP
        else:
            step = _STEPS.get(constants_key(task), 1)
        budget = SampleBudget(f"ruler/{name}", length - template_tokens, texts.answer_tokens, step)
        if task in NEEDLES:
            return Needles(bundle, NEEDLES[task], template, budget, seed)
        if task == "vt":
            return Chains(
                noise_text(bundle), template, texts, budget, seed,
                template_tokens=template_tokens, joins_lines=self.settings.remove_newline_tab,
            )  # fmt: skip
        if task == "cwe":
            words = shuffled_words(bundle, seed)
            larger_list = partial(_english_words, bundle)
            return CommonWords(template, budget, seed, is_short=length < _SHORT, words=words, english_words=larger_list)
        if task == "fwe":
            return FrequentWords(template, budget, seed)
        return QuestionTexts(bundle, QUESTIONS[task], template, budget, seed)

    def _frame(self) -> tuple[str, int]:
        """Text around the task's template, and the number of tokens to leave free for a model's template."""
        if self.template == CARD_TEMPLATE:
            return TASK_TEMPLATE, self.wrapping_tokens
        frame = model_template(self.bundle, self.template or "base")
        if self.settings.prepare_for_ns:
            return TASK_TEMPLATE, self.count(frame)  # the placeholder's tokens count, as officially
        return frame, 0


class _Reporter:
    """Counter of tokens that also logs progress while samples are generated, which may take minutes."""

    def __init__(self, name: str, total: int, count: CountTokens) -> None:
        self.number = 0
        self._name, self._total, self._count = name, total, count
        self._next_s = time.monotonic() + _FIRST_REPORT_S

    def count(self, text: str) -> int:
        if (now := time.monotonic()) > self._next_s:
            self._next_s = now + _REPORT_S
            log.info(f"{self._name}: {self.number:,} of {self._total:,} samples made for the model's tokenizer.")
        return self._count(text)


def _english_words(bundle: Bundle) -> Sequence[str]:
    return _read_english_words(DATA.official_file(bundle, ENGLISH_WORDS))


@cached_by_mtime
def _read_english_words(path: Path) -> list[str]:
    text = read_text(path)
    if text.startswith("version https://git-lfs"):
        raise damaged_file_error(str(path), "it is a Git LFS pointer, not the file")
    content: Any = json.loads(text)
    if not isinstance(content, dict):
        raise damaged_file_error(str(path), "it is not an object of words")
    return [str(word) for word in content.values()]
