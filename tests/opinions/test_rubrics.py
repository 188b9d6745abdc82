"""The official rubric out of a stand-in for its script, and TOML files of one's own with all that can be wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError, UsageError
from lbx.benchmarks.judge import JudgeBenchmark, Round
from lbx.benchmarks.leval.judge import VERDICTS, parse_rubric
from lbx.opinions.judge_run import read_rubric
from tests.leval_scripts import JUDGE_PY

ROUND = Round("leval", "tpo", "0", "why {x}?", ("so",), "m", "one", against_run_id="n", against="two")
PAIR = """
name = "faithful"
kind = "pair"
system = "Compare."
user = "{document} Q {question} 1 {a} 2 {b}"
verdicts = [["FIRST", "first"], ["SECOND", "second"], ["SAME", "tie"], ["EQUAL", "tie"]]
max_new_tokens = 64
"""
RATING = """
name = "stars"
kind = "score"
user = "{question} {reference} {answer}"
rating = "Rating: {rating}"
low = 1
high = 10
"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "ours.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_official_rubric_is_read_out_of_its_script(tmp_path: Path) -> None:
    script = tmp_path / "llm_eval.py"
    script.write_bytes(JUDGE_PY)
    rubric = parse_rubric(script)
    assert (rubric.name, rubric.kind, rubric.verdicts, rubric.max_new_tokens) == ("leval", "pair", VERDICTS, 2048)
    assert rubric.system == 'Weigh both; say "[[A]]", "[[B]]" or "[[C]]".'
    judging = JudgeBenchmark(rubric, [ROUND])
    bundle = Bundle.__new__(Bundle)
    (sample,) = judging.samples(bundle, "leval")
    text = "Asked why {x}?\n\nTrue: so\n\nA said one\nB said two\n{end}"
    assert judging.prompt(bundle, sample).text == text
    assert not rubric.shows_document and rubric.source.endswith("/llm_eval.py")


@pytest.mark.parametrize(
    "old, new, said",
    [
        (b'"output_format": "[[A]]"', b'"output_format": "A"', "verdict format is 'A'"),
        (
            b'"system_prompt"',
            b'"system"',
            "assigns judge_prompts no dict with text under system_prompt, prompt_template",
        ),
        (b'"Weigh', b'args.x + "Weigh', "no dict with text"),
        (
            b"{answer_b}",
            b"{answer_c}",
            "fields of its judge's prompt differ from question, ref_answer, answer_a, answer_b",
        ),
        (b"{{end}}", b"{{end}", "is not a valid template"),
        (b"judge_prompts = ", b"prompts = ", "no dict with text"),
        (b"if __name__", b"if if", "is not valid Python"),
    ],
)
def test_another_script_is_not_taken_for_it(tmp_path: Path, old: bytes, new: bytes, said: str) -> None:
    script = tmp_path / "llm_eval.py"
    assert old in JUDGE_PY
    script.write_bytes(JUDGE_PY.replace(old, new))
    with pytest.raises(BundleError, match=said):
        parse_rubric(script)


def test_a_pair_of_ones_own(tmp_path: Path) -> None:
    rubric = read_rubric(written(tmp_path, PAIR))
    assert (rubric.name, rubric.kind, rubric.system, rubric.max_new_tokens) == ("faithful", "pair", "Compare.", 64)
    assert rubric.verdicts[3] == ("EQUAL", "tie") and rubric.shows_document and rubric.source == "ours.toml"
    sample = replace(ROUND, answer_first=False).sample(rubric)
    read = [JudgeBenchmark().score(sample, text) for text in ("FIRST", "EQUAL or SAME", "SECOND, SAME", "none")]
    assert [[(one.extracted, one.partial) for one in scores] for scores in read] == [
        [("against", None)], [("tie", None)], [("answer", "ambiguous")], []
    ]  # fmt: skip
    again = read_rubric(written(tmp_path, "# the same in other words\n" + PAIR.replace("64", "0x40")))
    assert again.sha256 == rubric.sha256 != read_rubric(written(tmp_path, PAIR.replace("64", "65"))).sha256


def test_marks_that_differ_in_case_alone_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, PAIR.replace('"SAME"', '"Second."'))
    with pytest.raises(UsageError, match=r"'Second\.' of verdicts is part of 'SECOND'|'SECOND' of verdicts is part of"):
        read_rubric(path)


def test_a_rating_of_ones_own(tmp_path: Path) -> None:
    rubric = read_rubric(written(tmp_path, RATING))
    assert (rubric.kind, rubric.pattern, rubric.low, rubric.high) == ("score", "Rating: {rating}", 1, 10)
    (score,) = JudgeBenchmark().score(replace(ROUND, against_run_id=None).sample(rubric), "7? Rating: 10.")
    assert (score.metric, score.score, score.extracted, score.partial) == ("rating", 1.0, "10", None)


@pytest.mark.parametrize(
    "base, old, new, said",
    [
        (PAIR, '"pair"', '"pairs"', "kind must be 'pair' or 'score', not 'pairs'"),
        (PAIR, 'kind = "pair"', "", "kind must be 'pair' or 'score', and is not set"),
        (PAIR, 'kind = "pair"', "kind = [1]", r"not '\[1\]'"),
        (PAIR, 'system = "Compare."', "system = 1", "system must be text in quotes, not 1"),
        (PAIR, "max_new_tokens", "max_tokens", "no setting 'max_tokens'. Did you mean max_new_tokens"),
        (PAIR, "64", "0", "from 1 to"),
        (PAIR, "64", "true", "must be a whole number, not True"),
        (PAIR, '"faithful"', '"leval"', "the official rubric"),
        (PAIR, '"faithful"', '"a/b"', "is not a valid rubric name"),
        (PAIR, "2 {b}", "", r"does not contain \{b\}"),
        (PAIR, "{question}", "{query}", r"contains \{query\}, but kind = 'pair' has only \{a\}, \{b\}"),
        (PAIR, "{question}", "{question", "cannot fill in user"),
        (PAIR, "{question}", "{question!r}", "has a conversion"),
        (PAIR, "{document} Q", "{question} {document}", "only once, before the other fields"),
        (PAIR, "Q {question}", "{document}", "only once, before the other fields"),
        (PAIR, '["SAME", "tie"]', '["SAME", "draw"]', "a mark, then first, second or tie"),
        (PAIR, '["SAME", "tie"]', '"SAME"', "a mark, then first, second or tie"),
        (PAIR, '["SAME", "tie"]', '["", "tie"]', "must be text of 1 to"),
        (PAIR, '["SAME", "tie"]', '["SECONDS", "tie"]', "'SECOND' of verdicts is part of 'SECONDS'"),
        (PAIR, '["SAME", "tie"]', '["FIRST", "tie"]', "'FIRST' of verdicts is part of 'FIRST'"),
        (PAIR, '["FIRST", "first"], ', "", "no mark for first"),
        (PAIR, "verdicts = ", "marks = ", "no setting 'marks'"),
        (RATING, "{answer}", "{a}", r"contains \{a\}, but kind = 'score'"),
        (RATING, "Rating: {rating}", "Rating", "must be a short text with"),
        (RATING, "high = 10", "high = 1", "must be a scale such as"),
        (RATING, "high = 10", "high = '10'", "high must be a whole number"),
        (RATING, "low = 1", "", "lacks low"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(tmp_path: Path, base: str, old: str, new: str, said: str) -> None:
    assert old in base
    with pytest.raises(UsageError, match=said) as error:
        read_rubric(written(tmp_path, base.replace(old, new)))
    assert "ours.toml" in str(error.value) and "\n" not in str(error.value)


def test_an_unknown_rubric_and_a_benchmark_without_one_name_the_key(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no rubric 'lveal'") as unknown:
        read_rubric(Path("lveal"))
    assert "benchmark.toml if it has a [rubric]" in unknown.value.fix
    (tmp_path / "benchmark.toml").write_text('name = "town"\n[[task]]\nname = "qa"\n')
    with pytest.raises(UsageError, match=r"no \[rubric\]") as without:
        read_rubric(tmp_path / "benchmark.toml")
    assert without.value.fix


@pytest.mark.parametrize(
    "text, said", [(b"\xff", "not UTF-8"), ("name = ", "not valid TOML"), ("a=" + "[" * 9000, "not valid")]
)
def test_what_is_no_toml_is_said(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_rubric(written(tmp_path, text))
    with pytest.raises(UsageError, match="There is no rubric"):
        read_rubric(tmp_path / "none.toml")
