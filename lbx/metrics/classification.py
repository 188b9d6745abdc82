"""Classification by mention: LongBench's trec and lsht.

Source: classification_score of
https://github.com/THUDM/LongBench/blob/2e00731f8d0bff23dc4325161044d0ed8af94c1e/LongBench/metrics.py
"""

from __future__ import annotations

from collections.abc import Sequence


def classification(prediction: str, references: Sequence[str], classes: Sequence[str]) -> float:
    """1 / the number of classes the prediction names, if the reference is among them; the best reference counts.

    Args:
        prediction: text, already cut to its first line where the benchmark does so.
        references: class names; none gives 0.
        classes: every class name, in the data's order.
    """
    named = [name for name in classes if name in prediction]
    return max((_share(named, reference) for reference in references), default=0.0)


def _share(named: Sequence[str], reference: str) -> float:
    kept = list(named)
    # Classes whose name lies inside the reference's ("Date" in "Event date") should not count against it. The
    # official loop removes from the list it walks, so the one after a removed class is never looked at.
    place = 0
    while place < len(kept):
        if kept[place] in reference and kept[place] != reference:
            kept.remove(kept[place])
        place += 1
    return 1.0 / len(kept) if reference in kept else 0.0
