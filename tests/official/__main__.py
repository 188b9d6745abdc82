"""Whether lbx asks what the authors' own scripts ask: they run with a recorder in place of the model, and both are held
against each other, call by call.

    python -m tests.official FOLDER [--bundle DIR] [--tokenizer DIR] [--rows N] [--only leval,lveval ...]

FOLDER holds checkouts under the names LongBench, LEval, LVEval, longcontext (LongBench Pro), babilong, InfiniteBench
and HELMET; any may be missing. HELMET's scripts need libraries that ``.ci/official-tools.sh`` installs.
Compared are the system message, earlier messages, the text or, where a script hands them over, the token ids, new
tokens, temperature and what else ends an answer; for HELMET also the scores of made-up answers. A difference that is
meant has its reason in ``differences.MEANT``.

Exit code 1: a difference has no reason there, or a script could not be run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from bench.contest import table
from lbx.base.bundle_folder import Bundle
from lbx.base.errors import BundleError
from tests.official.asking import Asker
from tests.official.calls import ScriptError, record
from tests.official.differences import Pair, describe, explain
from tests.official.families import Material, Run, all_runs
from tests.official.helmet import helmet_runs
from tests.official.samples import REPOSITORY, make_bundle

HEADER = ("family", "script", "as", "compared", "equal", "meant", "different")
EXAMPLES = 3
_ROUNDING = 1e-9


@dataclass
class Verdict:
    """What came of one run of a script."""

    run: Run
    compared: int = 0
    equal: int = 0
    meant: Counter[str] = field(default_factory=Counter)
    different: int = 0
    kinds: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    failed: str = ""

    def row(self) -> list[str]:
        explained = self.compared - self.equal - self.different
        return [
            self.run.family, self.run.script.path.name, self.run.way,
            *map(str, (self.compared, self.equal, explained, self.different)),
        ]  # fmt: skip


def compare(run: Run, material: Material, tokenizer: Any) -> Verdict:
    """Run the script, and hold each of its calls against lbx's."""
    verdict = Verdict(run)
    try:
        recorded = record(run.script, material.tokenizer)
    except ScriptError as exc:
        verdict.failed = str(exc)
        return verdict
    wrapper = None if run.served else run.wrapper if any(run.wrapper) else recorded.wrapper
    asker = Asker(material.bundle, tokenizer, run.window, limit=run.limit, wrapper=wrapper, mode=run.mode)
    calls, made = iter(recorded.calls), 0
    for sent in (step for steps in run.expected(asker, recorded.loaded) for step in steps):
        made += 1
        official = next(calls, None)
        if official is not None:
            _hold(verdict, Pair(run.family, run.script.path.name, official, sent, run.served))
    if made != len(recorded.calls):
        verdict.failed = f"{run.script.path.name} made {len(recorded.calls)} calls, and lbx would make {made}"
        verdict.failed += f" ({recorded.error})" if recorded.error else ""
    elif run.numbers:
        for number in run.numbers(recorded):
            verdict.compared += 1
            if abs(number.official - number.ours) < _ROUNDING:
                verdict.equal += 1
            else:
                verdict.different += 1
                example = f"{number.name}: official {number.official}, lbx {number.ours}"
                verdict.kinds.setdefault(("scores", number.task), []).append(example)
    return verdict


def _hold(verdict: Verdict, pair: Pair) -> None:
    verdict.compared += 1
    if not pair.differing():
        verdict.equal += 1
        return
    reasons, left = explain(pair)
    verdict.meant.update(reasons)
    if left:
        verdict.different += 1
        example = f"{pair.sent.name}: " + "; ".join(describe(pair, left))
        verdict.kinds.setdefault((", ".join(left), pair.sent.sample.task), []).append(example)


def main() -> int:
    args = _arguments()
    for folder in (args.folder, args.tokenizer):
        if not folder.is_dir():
            return _unusable(f"There is no folder {folder}.")
    if not (args.tokenizer / "tokenizer.json").is_file():
        return _unusable(f"{args.tokenizer} has no tokenizer.json: --tokenizer names a folder of transformers.")
    with tempfile.TemporaryDirectory(prefix="lbx-official-") as scratch:
        try:
            bundle = Bundle(args.bundle) if args.bundle else make_bundle(Path(scratch) / "bundle", args.folder)
        except (BundleError, FileNotFoundError) as exc:
            return _unusable(str(exc))
        material = Material(bundle, args.folder, args.tokenizer, args.rows)
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
        verdicts = []
        for run in chain(all_runs(material), helmet_runs(material)):
            if args.only and not any(part in f"{run.family} {run.script.path.name} {run.way}" for part in args.only):
                continue
            verdicts.append(compare(run, material, tokenizer))
            print("  ".join(verdicts[-1].row()), verdicts[-1].failed, file=sys.stderr, flush=True)
    if not verdicts:
        return _unusable(
            f"{args.folder} has none of the scripts that were asked for. It should hold checkouts called "
            "LongBench, LEval, LVEval, longcontext, babilong, InfiniteBench or HELMET."
        )
    return _report(verdicts)


def _unusable(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the checkouts are")
    parser.add_argument("--bundle", type=Path, help="an unpacked bundle; default: made of ../shared and odd texts")
    parser.add_argument(
        "--tokenizer", type=Path, default=REPOSITORY / "models/demo/hf", help="a folder of transformers"
    )
    parser.add_argument("--rows", type=int, default=2, help="rows of each task beside the longest; 0: all")
    parser.add_argument("--only", nargs="*", default=[], help="parts of family, script or way")
    return parser.parse_args()


def _report(verdicts: list[Verdict]) -> int:
    print(table(HEADER, [verdict.row() for verdict in verdicts]))
    reasons = sum((verdict.meant for verdict in verdicts), Counter[str]())
    for reason, count in reasons.most_common():
        print(f"meant, {count} times: {reason}")
    for verdict in verdicts:
        title = f"{verdict.run.family} {verdict.run.script.path.name} {verdict.run.way}"
        if verdict.failed:
            print(f"\n{title}: FAILED: {verdict.failed}")
        for kind, examples in verdict.kinds.items():
            print(f"\n{title}: {kind[1]}: {len(examples)} differ in {kind[0]}")
            for example in examples[:EXAMPLES]:
                print(f"    {example}")
    return int(any(verdict.different or verdict.failed for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
