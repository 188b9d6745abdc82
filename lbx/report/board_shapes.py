"""The reports ``board_...``: each benchmark's results in the columns of its authors' own leaderboards and charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lbx.report import notes
from lbx.report.shapes import Column, Report

LANGUAGES = {"en": "English", "zh": "Chinese"}
CATEGORIES = {
    "single-document QA": "Single-Doc QA",
    "multi-document QA": "Multi-Doc QA",
    "summarization": "Summary",
    "few-shot learning": "Few-shot",
    "code completion": "Code",
    "synthetic": "Synthetic",
}
"""Names in lbx and headings, in the order of the authors' tables."""
BUCKETS = ("0-4k", "4-8k", "8k+")
V2_PARTS = ("overall", "easy", "hard", "short", "medium", "long")
LEVELS = ("16k", "32k", "64k", "128k", "256k")
DIMENSIONS = {
    "length": ("8k", "16k", "32k", "64k", "128k", "256k"),
    "requirement": ("Full", "Partial"),
    "difficulty": ("Easy", "Moderate", "Hard", "Extreme"),
    "primary_task": (
        "T1. Retrieval & Ranking",
        "T2. Sequencing & Structure Reconstruction",
        "T3. Evidence-Grounded QA",
        "T4. Summarization & Synthesis",
        "T5. Attribution & Citation Alignment",
        "T6. Aggregation & Clustering",
        "T7. Consistency & Compliance Checking",
        "T8. Structured & Numeric Reasoning",
        "T9. Version & Code Diff Analysis",
        "T10. Rule Induction & In-Context Learning",
        "T11. Dialogue Memory & Long-Horizon Tracking",
    ),
    "language": ("Chinese", "English"),
}
TRIES = (1, 2, 3)
CLOSED = ("coursera", "gsm100", "quality", "topic_retrieval_longchat", "tpo", "codeU", "sci_fi")
F1 = ("financial_qa", "legal_contract_qa", "multidoc_qa", "narrative_qa", "natural_question", "scientific_qa")
ROUGE = (
    "gov_report_summ", "meeting_summ", "news_summ", "paper_assistant", "patent_summ", "review_summ", "tv_show_summ",
)  # fmt: skip
JUDGES = ("gpt-4", "gpt-3.5")

_MODEL = Column("model", "model")
_BACKEND = Column("backend", "backend", optional=True, rank=3)
_MODE = Column("mode", "mode", optional=True)
_TWIN = Column("differs_in", "differs in", optional=True)
_NOTE = Column("note", "note", optional=True)


def _score(name: str, heading: str, kind: str = "number", *, across: bool = False, optional: bool = False) -> Column:
    return Column(name, heading, kind, interval=True, of=f"{name}_", across=across, optional=optional)


def _numbers(names: Iterable[str]) -> list[Column]:
    return [_score(name, name.replace("_", " "), across=True) for name in names]


def _board(
    title: str,
    made_by: str,
    columns: Sequence[Column],
    *,
    first: Sequence[Column] = (),
    empty: str = "No run answers this benchmark.",
) -> Report:
    shown = (*first, _MODEL, _BACKEND, _TWIN, *columns, _NOTE)
    return Report(title, "", shown, notes=notes.board, empty=empty, made_by=f"boards.{made_by}")


_OF_LEVAL = (
    Column("max_ctx", "Max-Ctx", optional=True, rank=2),
    Column("tokens", "Tokens", optional=True, rank=2),
    Column("ret", "Ret.", optional=True, rank=2),
    Column("pe", "PE", optional=True, rank=2),
    Column("idd", "IDD", optional=True, rank=2),
)
_CATEGORIES = [_score(name, heading, across=True) for name, heading in CATEGORIES.items()]
_RADII = [Column(name, heading, "number", across=True) for name, heading in CATEGORIES.items()]
_LENGTH = Column("length", "Length", "number")

BOARDS: dict[str, Report] = {
    "board_longbench": _board(
        "LongBench: averages of the categories, English and Chinese apart, code in both (percent)",
        "longbench",
        (_MODE, _score("average", "Avg"), *_CATEGORIES),
        first=(Column("language", "language"),),
    ),
    "board_longbench_radar": _board(
        "LongBench: radar (radius 40 + 60 x score / best score of the models shown)",
        "longbench_radar",
        (_MODE, *_RADII),
        first=(Column("language", "language"),),
    ),
    "board_longbench_relative": _board(
        "LongBench: relative score by length (score there / score of the task - 1, mean over tasks, 0 at 0-4k; points)",
        "longbench_relative",
        (
            _MODE,
            Column("data", "data"),
            Column("tasks", "tasks", "count"),
            Column("n", "answers", "count", rank=2),
            Column("fewest", "fewest of a task at a length", "count", rank=1),
            *(_score(name, name, "points", across=True) for name in BUCKETS),
        ),
        empty="No run has a task of LongBench with 10 answers at each length.",
    ),
    "board_longbench_e": _board(
        "LongBench-E: averages by length (percent; average: mean by category, then over categories)",
        "longbench_e",
        (_MODE, *_numbers(BUCKETS)),
        first=(Column("category", "category"),),
    ),
    "board_longbench_v2": _board(
        "LongBench v2: leaderboard (accuracy in percent, plain and with CoT; by Overall with CoT)",
        "longbench_v2",
        (
            _MODE,
            *(Column(name, name.title(), optional=True, rank=2) for name in ("params", "context", "date")),
            *(
                _score(f"{part}{cot}", f"{part.title()}{' w/ CoT' if cot else ''}", across=True)
                for part in V2_PARTS
                for cot in ("", "_cot")
            ),
        ),
    ),
    "board_longbench_pro": _board(
        "LongBench Pro: leaderboard (percent; by the larger of the two scores)",
        "longbench_pro",
        (
            Column("type", "Model Type"),
            Column("window", "Context Length"),
            Column("truncated", "Truncated Length"),
            _score("nonthinking", "Non-Thinking Score", "percent"),
            _score("thinking", "Thinking Score", "percent"),
        ),
    ),
    **{
        f"board_longbench_pro_{name}": _board(
            f"LongBench Pro: {name.replace('_', ' ')} (percent)",
            f"longbench_pro_{name}",
            [_score(group, group.partition(".")[0], "percent", across=True) for group in groups],
        )
        for name, groups in DIMENSIONS.items()
    },
    "board_longbench_pro_tries": _board(
        "LongBench Pro: Best-of-N and Pass@N (percent)",
        "longbench_pro_tries",
        [_score(f"{metric}@{n}", f"{title}{n}", "percent", optional=True, across=True)
         for metric, title in (("bon", "Best-of-"), ("pass", "Pass@")) for n in TRIES],
    ),
    "board_lveval": _board(
        "LV-Eval: by dataset and level, with the means of both (percent)",
        "lveval",
        (_MODE, *_numbers(LEVELS), _score("mean", "mean")),
        first=(Column("dataset", "dataset"),),
    ),
    "board_leval_exam": _board(
        "L-Eval: closed-ended tasks (exact match, percent)",
        "leval_exam",
        (_MODE, *_OF_LEVAL, *_numbers(CLOSED), _score("average", "Avg")),
    ),
    "board_leval_f1": _board(
        "L-Eval: open-ended tasks by F1 (percent; Length: mean words of the answers)",
        "leval_f1",
        (_MODE, *_OF_LEVAL, *_numbers(F1), _score("average", "F1 avg"), _LENGTH),
    ),
    "board_leval_rouge": _board(
        "L-Eval: open-ended tasks by ROUGE (percent; Length: mean words of the answers)",
        "leval_rouge",
        (
            _MODE, *_OF_LEVAL, Column("metric", "metric"), *_numbers(ROUGE), _score("average", "ROUGE avg"),
            _LENGTH,
        ),
    ),
    **{
        f"board_leval_{judge.replace('-', '').replace('.', '')}": _board(
            f"L-Eval: win rate against turbo-16k-0613 as {judge} judges (percent; Length: mean words of the answers)",
            f"leval_{judge.replace('-', '').replace('.', '')}",
            (_MODE, *_OF_LEVAL, _score("win_rate", "win %"), _LENGTH),
        )
        for judge in JUDGES
    },
}  # fmt: skip
