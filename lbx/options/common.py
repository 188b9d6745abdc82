"""Options and arguments that several commands accept, each defined once.

A command that needs another help text derives the option by ``with_help``.
"""

from pathlib import Path
from typing import Annotated

from lbx.options.option import Argument, Option, output_option

RUN_FORMS = "its name, a prefix of it, or its model's name"
BUNDLE_VARIABLE = "LBX_BUNDLE"
"""Environment variable with the default bundle."""

BUNDLE = Option("", "DIR", ("--bundle", "-b"), variable=BUNDLE_VARIABLE)
REPLACE = Option("Replace existing files.")
OUTPUT = Option("Write to this file.", "FILE", ("--output", "-o"))
FORMAT = Option("", "FORMAT", ("--format", "-f"))
RUN = Option(f"Only this run: {RUN_FORMS}. Can be repeated.", "RUN", ("--run",), completion="runs")
TASKS = Option(
    "Only these benchmarks or tasks: leval, leval/tpo, 'lveval/*_16k'.", "NAMES", ("--tasks", "-t"), completion="tasks"
)
LIMIT = Option("", "N", ("--limit", "-n"))
MODEL = Option("", "MODEL", ("--model", "-m"))
NAME = Option("", "NAME")
RATER = Option("", "NAME", ("--rater",))
WHICH_QUESTIONS = Option("", "WHICH")
SHARD_PLAN = Option("The shard plan written by `lbx submit`, which lists the samples of each shard.", "FILE")
HISTORY = Option("", "RESULTS")
MEASURE_SPEED = Option("Compute here for a few seconds, to predict the duration.")
ROWS = Option("", "N", ("--rows",), minimum=1)
CPUS = Option("CPUs and threads of a shard.", "N")
GPUS = Option("GPUs of a shard.", "N")
MEMORY = Option("", "SIZE", ("--mem",))
SCRATCH = Option("", "DIR")
RESULTS = Argument("The results file written by `lbx run`.", "RESULTS")
FORMAT_NAME = Argument("", "FORMAT")
RUN_NAME = Argument(f"The run: {RUN_FORMS}.", "RUN", completion="runs")

AsJson = Annotated[bool, output_option("Print the answer as JSON.", names=("--json",))]
Full = Annotated[bool, Option("Show whole texts; default: their beginning and end.")]
ResultsArgument = Annotated[Path, RESULTS]
OnlyRuns = Annotated[tuple[str, ...], RUN]
OnlyTasks = Annotated[tuple[str, ...], TASKS]
OutputFile = Annotated[Path | None, OUTPUT]
Processes = Annotated[int | None, Option("Number of scoring processes; default: one per CPU.", "N")]
