"""Page of the keys of ``--json``, for commands whose answer is an object of a class."""

from __future__ import annotations

from typing import NamedTuple

from lbx.backends.weights import ListedModel
from lbx.cluster.merge import ShardStatus
from lbx.report.gates import Condition
from lbx.running.detectable_differences import Resolution
from lbx.running.parity import TaskParity
from lbx.running.runner import Outcome
from tools.reference.markdown import page, table
from tools.reference.python_api import field_rows

_INTRODUCTION = """\
Keys that `--json` prints for scripts. Names are added, never renamed or removed ([Stability](stability.md)). Counts are
named by a plural (`samples`) or a participle (`answered`); other numbers end in their unit (`size_bytes`, `total_s`).
An unknown number is `null`.

`lbx report --format json` has the [columns of the report](columns.md), `lbx sql --format json` those of the query, and
`lbx plan --json` the fields of [Forecast](api.md#lbxrunningforecastrun_forecastforecast)."""


class _Output(NamedTuple):
    commands: str
    form: str
    cls: type


OUTPUTS = (
    _Output("lbx models", "A list with an object for each model.", ListedModel),
    _Output("lbx plan", "`decides` is a list with an object for each benchmark.", Resolution),
    _Output(
        "lbx run and lbx judge",
        "An object, or a list of them for several runs, with the name of the run (`run_id`), the results file "
        "(`results`) and these keys; of a calibrated judge also `calibration`.",
        Outcome,
    ),
    _Output("lbx status", "A list with an object for each shard.", ShardStatus),
    _Output("lbx check", "`run`, `verdict`, and `conditions`, a list of objects.", Condition),
    _Output(
        "lbx parity",
        "The two models (`first`, `second`), `same_vocabulary`, the prompts (`prompts`), an object for each task "
        "(`tasks`) and one for all prompts (`all`). Of a prompt, `first_difference` and `first_id_difference` are the "
        "index of the first differing token of the answer and of the prompt.",
        TaskParity,
    ),
)


def json_page() -> str:
    """Return the page of the keys of JSON output."""
    return page("JSON output", _INTRODUCTION, *map(_section, OUTPUTS))


def _section(output: _Output) -> str:
    rows = [(name, meaning.replace("None", "null")) for name, _, _, meaning in field_rows(output.cls)]
    return f"## {output.commands}\n\n{output.form}\n\n{table(('key', 'meaning'), rows)}"
