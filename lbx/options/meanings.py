"""Meaning of each option that several commands explain in their own words, and options that replace one another.

An option means one thing in every command. A test compares all commands with ``MEANINGS``: an option that is not listed
there has the same help and the same kind of value wherever it appears.
"""

from typing import NamedTuple


class Meaning(NamedTuple):
    """Meaning of an option in all commands, and why its help or its value differs between them.

    Attributes:
        metavars: placeholders of the value, separated by spaces; "" for a switch.
    """

    meaning: str
    reason: str
    metavars: str


MEANINGS = {
    "--base": Meaning(
        "Bundle that a delta is based on.",
        "A delta is made from a list of files, and unpacked onto them.",
        "BUNDLE DIR",
    ),
    "--bundle": Meaning("Unpacked bundle with the questions.", "Commands take different data from it.", "DIR"),
    "--cpus": Meaning("CPUs of a shard.", "Kubernetes allows fractions.", "N"),
    "--documents": Meaning("Only the first N documents of each task.", "A default with --depth.", "N"),
    "--dry-run": Meaning("Show what the command would do, and do nothing.", "What is shown.", ""),
    "--format": Meaning("Format of the output.", "Formats differ.", "FORMAT"),
    "--gpus": Meaning("GPUs of a shard.", "Schedulers have names for kinds of GPUs.", "N"),
    "--history": Meaning("Results file with earlier sessions of the model.", "The machine they ran on.", "RESULTS"),
    "--limit": Meaning("Only the first N samples of each task.", "A default; judges have rounds.", "N"),
    "--margin": Meaning(
        "Difference in points that counts as negligible.", "A plan shows the documents that find it.", "POINTS"
    ),
    "--mem": Meaning("Memory of a shard.", "Schedulers spell units differently.", "SIZE"),
    "--model": Meaning("Model to load.", "Commands need it for different work.", "MODEL"),
    "--name": Meaning("Name of the new run.", "The source of the default name.", "NAME"),
    "--output": Meaning("Where the command writes.", "What is written, and its default.", "FILE DIR OUT"),
    "--questions": Meaning("Only the questions of this selection.", "People and judges have their own.", "WHICH"),
    "--rater": Meaning("Name of a rater.", "Whether it is required, and its default.", "NAME"),
    "--rows": Meaning("Print at most N rows.", "Defaults differ.", "N"),
    "--run": Meaning("Stored run to read.", "Its role and default.", "RUN"),
    "--scratch": Meaning("Folder on the own disk of the machine that runs.", "Nodes expand variables in it.", "DIR"),
    "--tasks": Meaning("Only these benchmarks or tasks.", "Where they come from.", "NAMES"),
}
"""{option: its meaning}, of options whose help differs between commands."""

RELATED = (
    ("--limit", "--rows", "--items", "--documents", "--sample"),
    ("--output", "--to", "--history"),
    ("--workers", "--processes"),
    ("--against", "--baseline", "--published", "--alternative"),
    ("--force", "--update", "--allow-different-settings"),
    ("--shards", "--shard-plan"),
    ("--model", "--judge", "--model-name"),
    ("--name", "--job-name", "--bundle-name", "--rater"),
    ("--measure-speed", "--calibrate"),
    ("--json", "--format"),
    ("--keep-share", "--keep-score", "--keep-answers"),
    ("--seed", "--shuffle-seed"),
    ("--run", "--spec"),
)
"""Options that do the work of one another in different commands: the message about a missing one names the others."""

OTHER_COMMANDS = {
    "--print-prompts": "`lbx prompts` shows the prompts of a run; it takes the same options.",
    "--show-prompts": "`lbx prompts` shows the prompts of a run; it takes the same options.",
    "--compare": "`lbx report RESULTS comparison --baseline RUN` compares runs, and `lbx parity` compares two models.",
}
"""{option that no command has: the command that does its work}."""
