"""Properties of each task of LongBench Pro: its official name and its metric; and its accepted answers."""

from __future__ import annotations

from dataclasses import dataclass

from lbx.benchmarks.base.benchmark import WINDOWS_OF_128K

METRICS: dict[str, tuple[str, ...]] = {
    "ndcg": ("ndcg",),
    "pairwise_accuracy": ("pairwise_accuracy",),
    "accuracy": ("accuracy",),
    "f1": ("f1",),
    "subem": ("subem",),
    "summary": ("summary", "rouge_l", "rouge_l_unlimited", "similarity"),
}
"""Metrics stored by a task's kind. rouge_l_unlimited is rouge_l without the official run's recursion limit."""


@dataclass(frozen=True, slots=True)
class SecondaryTask:
    """A secondary task's official name, and its metric: a key of ``METRICS``."""

    title: str
    metric: str


TASKS: dict[str, SecondaryTask] = {
    "t1.1": SecondaryTask("T1.1 Global Cohesive Retrieval", "ndcg"),
    "t1.2": SecondaryTask("T1.2 Key-Snippet Retrieval", "ndcg"),
    "t2.1": SecondaryTask("T2.1 Global Timeline Reconstruction", "pairwise_accuracy"),
    "t2.2": SecondaryTask("T2.2 Local Causal Chain Sorting", "pairwise_accuracy"),
    "t3.1": SecondaryTask("T3.1 Multi-Doc Integration QA", "accuracy"),
    "t3.2": SecondaryTask("T3.2 Single-Hop Fact QA", "accuracy"),
    "t4.1": SecondaryTask("T4.1 Global-Coverage Constrained Summary", "summary"),
    "t4.2": SecondaryTask("T4.2 Query-Focused Summary", "summary"),
    "t5.1": SecondaryTask("T5.1 Full-Sentence Citation Alignment", "f1"),
    "t5.2": SecondaryTask("T5.2 Key-Statement Citation Alignment", "f1"),
    "t6.1": SecondaryTask("T6.1 Large-Scale Document Clustering", "subem"),
    "t6.2": SecondaryTask("T6.2 Targeted Subset Cluster Identification", "f1"),
    "t6.3": SecondaryTask("T6.3 Global Frequency Analysis", "pairwise_accuracy"),
    "t7.1": SecondaryTask("T7.1 Global Conflict & Inconsistency Localization", "f1"),
    "t7.2": SecondaryTask("T7.2 Targeted Rule or Condition Violation Detection", "f1"),
    "t7.3": SecondaryTask("T7.3 Comprehensive Error & Anomaly Sweep", "f1"),
    "t8.1": SecondaryTask("T8.1 Structured Multi-Source Consistency Verification", "subem"),
    "t8.2": SecondaryTask("T8.2 Single-Source Targeted Aggregation", "subem"),
    "t8.3": SecondaryTask("T8.3 Long-Context Procedural State Tracking", "subem"),
    "t9.1": SecondaryTask("T9.1 Dependency-Aware Multi-Version Impact Analysis", "f1"),
    "t9.2": SecondaryTask("T9.2 Localized Interface Change Detection", "f1"),
    "t10.1": SecondaryTask("T10.1 Large-Scale In-Context Rule Induction", "subem"),
    "t10.2": SecondaryTask("T10.2 Targeted Example-Based Rule Induction", "subem"),
    "t11.1": SecondaryTask("T11.1 Long-Range Entity & Commitment Tracking", "accuracy"),
    "t11.2": SecondaryTask("T11.2 Short-Range Reference Resolution & State Query", "accuracy"),
}
TASK_OF = {kind.title: task for task, kind in TASKS.items()}

LONG_WINDOW = 262_144
LIMITS = dict.fromkeys((*WINDOWS_OF_128K, 163_840, 202_752), 120_000) | {LONG_WINDOW: 224_000}
"""The published runs' limits in tokens for models of 128k, 160k, 198k and 256k."""

TEXT_META = ("secondary_task", "primary_task", "token_length", "contextual_requirement", "difficulty")


def accepted_answers(answer: object) -> tuple[tuple[str, ...], bool]:
    """Return the references in any value of ``answer``, and whether the official code can read all of it.

    A bare string counts as its characters, as there; any other value than a list of texts fails there.
    """
    if not isinstance(answer, list | tuple | str):
        return (), False
    return tuple(item for item in answer if isinstance(item, str)), all(isinstance(item, str) for item in answer)
