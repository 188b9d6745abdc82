"""Writes lm_eval's own output for given answers; run by the Python of .ci/exchange-tools.sh.

    python lm_eval_writer.py OUTPUT ROWS.json [LIMIT] [REPEATS]

ROWS.json: {task: rows of the official script's predictions}. The tasks are lm_eval's, on data of our own, because
their data set is on the hub.
"""

import json
import sys
from pathlib import Path

import lm_eval
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks._yaml_loader import load_yaml

PREFIX = "longbench_"
TASKS = Path(lm_eval.__file__).parent / "tasks/longbench"


class Answering(LM):
    """A model that gives known answers."""

    def __init__(self, answers: dict) -> None:
        super().__init__()
        self._answers = answers

    def generate_until(self, requests, disable_tqdm=False):
        return [self._answers[request.task_name][request.doc_id] for request in requests]

    def loglikelihood(self, requests, disable_tqdm=False):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def write(output: Path, tasks: dict, limit: int | None, repeats: int) -> None:
    answers, configs = {}, []
    for task, rows in tasks.items():
        data = output / "data" / f"{task}.jsonl"
        data.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"context": f"document {number}", "question": "", "answers": row["answers"],
                        "all_classes": row["all_classes"] or [], "length": row["length"]})
            for number, row in enumerate(rows)
        ]  # fmt: skip
        data.write_text("\n".join(lines))
        answers[PREFIX + task] = [row["pred"] for row in rows]
        config = load_yaml(TASKS / f"{task}.yaml")
        config.pop("tag", None)
        source = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": {"test": str(data)}}}
        configs.append({**config, **source, "repeats": repeats})
    tracker = EvaluationTracker(output_path=str(output / "saved"))
    results = lm_eval.simple_evaluate(
        model=Answering(answers), tasks=configs, log_samples=True, limit=limit, bootstrap_iters=0,
        evaluation_tracker=tracker,
    )  # fmt: skip
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for name in samples:
        tracker.save_results_samples(task_name=name, samples=samples[name])


if __name__ == "__main__":
    folder, rows_file, *numbers = sys.argv[1:]
    n_limit, n_repeats = (int(number) for number in [*numbers, "0", "1"][:2])
    write(Path(folder), json.loads(Path(rows_file).read_text()), n_limit or None, n_repeats)
