"""What every place of a file is to say: the recomputation's numbers by what they are of."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.consistency.plain_intervals import Part, sureness
from tests.consistency.recomputed import every, marks
from tests.consistency.stored_file import Answer, File, Key

Columns = dict[str, Any]
Expected = dict[Key, Columns]
"""{what a number is of: its columns}. A column under "may lack" may be NULL, or its whole row may not be there."""


def expected(file: File) -> Expected:
    found: Expected = {}
    for made in every(file):
        who = (made.run, made.benchmark)
        goes_on = file.runs[made.run]["status"] == "running"
        for (task, metric), row in made.tasks.items():
            version = {"metric_version": made.version[task]}
            found["task", *who, task, metric] = row | version | {"goes on": goes_on}
        for place, row in made.groups.items():
            found["group", *who, *place] = row | {"goes on": goes_on}
        for length, row in made.lengths.items():
            found["length", *who, *length] = row | {"goes on": goes_on}
        rows = [row for some in made.generations.values() for row in some]
        found["mean", *who] = {
            **(made.mean or {"n": 0, "score": None}),
            "goes on": goes_on,
            "tasks": len(made.generations),
            "failed": sum(row.failed for row in rows),
            "truncated": _known(rows),
            "status": "killed" if goes_on else file.runs[made.run]["status"],
        }
        answer_counts: list[tuple[int, int | None, int]] = []
        for task, some in made.generations.items():
            every_one = made.counts.get(task)
            samples = len({row.name for row in some if not row.failed})
            coverage = {"samples": samples, "bundle_samples": every_one}
            answers, times = sum(not row.failed for row in some), made.times(task)
            answer_counts.append((answers, None if every_one is None else every_one * times, times))
            found["coverage", *who, task] = coverage | {"coverage": _covered(*answer_counts[-1])}
            scored = made.scored.get(task, [])
            heads = {name for (of, name), row in made.tasks.items() if of == task and row["headline"]}
            loose = [row.loose for row in scored if row.loose is not None]
            found["marks", *who, task] = marks(some) | {
                "official_errors": sum(row.error for row in scored if heads & row.scores.keys()),
                "unextracted": sum(row.unextracted for row in scored),
                "loose_matches": sum(loose) if loose else None,
                "partial": sum(row.partial for row in scored),
            }
            answered = [row for row in some if not row.failed]
            if answered:
                found["cut", *who, task] = _cut(answered)
        parts = [found["coverage", *who, task] for task in made.generations]
        counts = [one["bundle_samples"] for one in parts]
        found["coverage", *who] = {
            "samples": sum(one["samples"] for one in parts),
            "bundle_samples": None if None in counts else sum(counts),
            "coverage": _covered(
                sum(answers for answers, *_ in answer_counts),
                None if None in counts else sum(every_one or 0 for _, every_one, _ in answer_counts),
                max(times for *_, times in answer_counts),
            ),
        }
    for row in file.answers:
        if row.failed:  # type: ignore[attr-defined]
            found["failure", row.run_id, *row.sample.key[:3], row.iteration] = {"error": row.row["error"]}  # type: ignore[attr-defined]
    return found


def _covered(answers: int, every: int | None, times: int) -> str | None:
    """Words for the part that has an answer; None if nothing is missing, or if nobody knows."""
    if every is None or answers >= every:
        return None
    return f"{answers:,} of {every:,}{' answers' if times > 1 else ''}"


def _known(rows: Any) -> int | None:
    cuts = [row.row["truncated"] for row in rows if row.row["truncated"] is not None]
    return sum(cuts) if cuts else None


def _cut(rows: Any) -> Columns:
    known = [row.row["truncated"] for row in rows if row.row["truncated"] is not None]
    cut = [row.row for row in rows if row.row["truncated"]]
    lengths = [row.row["original_tokens"] for row in rows if row.row["original_tokens"] is not None]
    ends = [row.row["finish_reason"] for row in rows if row.row["finish_reason"] is not None]
    lost = [row["tokens_cut"] for row in cut]
    return {
        "n": len(rows),
        "truncated": sum(known) if known else None,
        "share": sum(known) / len(known) if known else None,
        "longest_prompt": max(lengths, default=None),
        "mean_tokens_cut": (sum(lost) / len(lost) if lost else 0.0) if known else None,
        "answers_cut": sum(end == "length" for end in ends) if ends else None,
    }


# What judges and people say


def said_by_judges(file: File) -> Expected:
    """{(judge, benchmark, run, against, questions, task): what it says}.

    An L-Eval question that is marked twice was two rows of the official file, and its verdict counts for each, but for
    marks of which the judge was asked no question.
    """
    held: dict[Key, list[tuple[Answer, Any]]] = {}
    for one in file.answers:
        if one.sample.benchmark == "judge":
            judged = one.judged
            key = ((one.run_id, *one.sample.key[:3], one.iteration), 1)
            (score,) = file.scores.get(key, {"": None}).values()
            whose = (one.run_id, judged["benchmark"], judged["run_id"], judged["against_run_id"])
            held.setdefault(whose, []).append((one, score))
    found: Expected = {}
    for whose, rounds in held.items():
        marks_of = [one.judged["marks"] for one, _ in rounds]
        alone = {some[0] for some in marks_of if len(set(some)) == 1}
        weights: dict[Key, list[tuple[int, Answer, Any]]] = {}
        for (one, score), some in zip(rounds, marks_of, strict=True):
            counted = Counter(mark.lower() for mark in some if mark in alone)
            every_copy = max(counted.total(), 1) if all(marks_of) else 1
            for questions, weight in {**counted, "all": every_copy}.items():
                for task in (None, one.judged["task"]):
                    weights.setdefault((questions, task), []).append((weight, one, score))
        for place, of_place in weights.items():
            found["judge", *whose, *place] = _judged(of_place)
    return found


def _judged(rounds: list[tuple[int, Answer, Any]]) -> Columns:
    pair = rounds[0][1].judged["kind"] == "pair"
    states: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    scores, ratings, rows = [], [], []
    for weight, one, score in rounds:
        judged = one.judged
        if one.failed:
            states["failed"] += weight
        elif score is None:
            states["cut" if one.row["finish_reason"] == "length" else "none"] += weight
        else:
            states["ambiguous"] += weight * (score["partial"] is not None)
            verdicts[score["extracted"]] += weight
            scores += [score["score"]] * weight
            ratings += [] if pair else [float(score["extracted"])] * weight
            name = f"{judged['task']}/{judged['sample_id']}"
            rows += [(name, judged["document_sha256"] or name, score["score"])] * weight
    mean = sum(scores) / len(scores) if scores else None
    return {
        "n_rounds": sum(weight for weight, _, _ in rounds),
        "n_questions": len({tuple(one.judged[n] for n in ("task", "sample_id", "iteration"))
                            for _, one, _ in rounds}),
        "n_wins": verdicts["answer"] if pair else None,
        "n_draws": verdicts["tie"] if pair else None,
        "n_losses": verdicts["against"] if pair else None,
        "n_failed": states["failed"], "n_cut": states["cut"], "n_none": states["none"],
        "n_errors": states["failed"] + states["cut"] + states["none"], "n_ambiguous": states["ambiguous"],
        "win_rate": mean if pair else None, "score": mean,
        "rating": sum(ratings) / len(ratings) if ratings else None,
        **(sureness([Part(1.0, rows)]) if rows else {"method": "no number"}),
    }  # fmt: skip


def said_by_people(file: File) -> Expected:
    """{(set, benchmark, run, against, task): what people last said}; of a pair from both sides."""
    documents = {one.sample.key[:3]: one.document for one in file.answers}
    last: dict[Key, dict[str, Any]] = {}
    for row in sorted(file.ratings, key=lambda row: row["revision"]):
        key = tuple(row[n] for n in ("set_id", "item", "rater", "run_id", "iteration", "against_run_id",
                                     "against_iteration"))  # fmt: skip
        last[key] = row
    turned = {"answer": "against", "against": "answer"}
    held: dict[Key, list[dict[str, Any]]] = {}
    for row in last.values():
        if row["score"] is None and row["verdict"] is None:
            continue
        item, made = file.items[row["set_id"], row["item"]], file.sets[row["set_id"]]
        sides = [row]
        if row["against_run_id"]:
            verdict = turned.get(row["verdict"], row["verdict"])
            sides.append({**row, "run_id": row["against_run_id"], "against_run_id": row["run_id"], "verdict": verdict})
        for side in sides:
            for task in (None, item["task"]):
                key = (row["set_id"], item["benchmark"], side["run_id"], side["against_run_id"] or None, task)
                name = f"{item['task']}/{item['sample_id']}"
                document = documents.get((item["benchmark"], item["task"], item["sample_id"])) or name
                told = {"name": name, "document": document, "width": (made["scale_low"], made["scale_high"])}
                held.setdefault(key, []).append(side | told)
    return {("people", *key): _rated(some) for key, some in held.items()}


def _rated(rows: list[dict[str, Any]]) -> Columns:
    verdicts = Counter(row["verdict"] for row in rows)
    pair = rows[0]["verdict"] is not None
    low, high = rows[0]["width"]
    scores = [
        {"answer": 1.0, "against": 0.0}.get(row["verdict"], 0.5) if pair else (row["score"] - low) / (high - low)
        for row in rows
    ]
    return {
        "n_ratings": len(rows),
        "n_items": len({row["item"] for row in rows}),
        "n_raters": len({row["rater"] for row in rows}),
        "mean": None if pair else sum(row["score"] for row in rows) / len(rows),
        "n_wins": verdicts["answer"] if pair else None,
        "n_draws": verdicts["tie"] + verdicts["both_bad"] if pair else None,
        "n_losses": verdicts["against"] if pair else None,
        "win_rate": sum(scores) / len(scores) if pair else None,
        "score": sum(scores) / len(scores),
        **sureness([Part(1.0, [(row["name"], row["document"], v) for row, v in zip(rows, scores, strict=True)])]),
    }


def opinions(judges: Expected, people: Expected) -> Expected:
    """What of these stands beside a run's own numbers: all tasks together, by whom and against whom."""
    found: Expected = {}
    for (_, judge, benchmark, run, against, questions, task), row in judges.items():
        whole = judges["judge", judge, benchmark, run, against, "all", None]["n_questions"]
        if task is not None or row["score"] is None or (questions != "all" and row["n_questions"] == whole):
            continue
        name = f"{judge} vs {against}" if against else judge
        name += "" if questions == "all" else f", {questions} questions"
        metric = "rating" if row["win_rate"] is None else "win_rate"
        official = row["rating"] if row["win_rate"] is None else 100 * row["win_rate"]
        counted = row["n_rounds"] - row["n_errors"]
        found["opinion", run, benchmark, "judge", name, metric] = row | {
            "n": counted, "official": official, "partial": row["n_errors"] > 0.05 * row["n_rounds"],
            "answered": counted, "asked": row["n_rounds"],
        }  # fmt: skip
    for (_, name, benchmark, run, against, task), row in people.items():
        others = {key[4] for key in people if key[1] == name and key[3] == run}
        if task is None:
            metric = "rating" if row["win_rate"] is None else "win_rate"
            official = row["mean"] if row["win_rate"] is None else 100 * row["win_rate"]
            told = f"{name} vs {against}" if len(others) > 1 else name
            found["opinion", run, benchmark, "people", told, metric] = row | {
                "n": row["n_ratings"], "official": official, "partial": False, "answered": None, "asked": None,
            }  # fmt: skip
    return found
