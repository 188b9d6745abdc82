"""Scripts of a shard's job and of the merge job, from templates that a site can replace.

A template is a shell script with marks ``@{name}``. Bash's own ``${name}`` is unchanged. The marks in ``PLACEHOLDERS``
have the values of a run; a scheduler gives the others (``Scheduler.marks``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from lbx.base.errors import UsageError
from lbx.base.inputs import SMALL, read_input

PLACEHOLDERS: Mapping[str, str] = {
    "directives": "the scheduler's options, e.g. the #SBATCH lines",
    "modules": "`module load` lines",
    "lbx": "the command that starts lbx, including its container",
    "run": "the arguments of `lbx run`, except the shard, the results file and the scratch folder",
    "folder": "the run's folder",
    "scratch": "a folder on the node's own disk",
    "requeues": "maximum number of requeues of a shard",
}

WAIT = """\
run=$!
while :; do
    heard=
    wait "$run"
    code=$?
    [ "$heard" ] || break  # otherwise a signal interrupted `wait`, and the run continues
done"""
"""End of the run that was started last, in every scheduler's script; signals are handled by the lines above it."""

ARRAY = """\
#!/bin/bash
@{directives}
#
# One shard of a run of lbx, written by `lbx submit`. It writes to the node's own disk; lbx copies every commit to the
# run's folder. An interrupted shard is requeued and continues from there. Exit codes: 0 done, 3 done but some samples
# failed, 2 bad usage, other: see the log.
@{shard}
folder=@{folder}@{output}
@{modules}
export PYTHONSAFEPATH=1  # keeps files in the working folder from being imported as Python modules
results=$folder/shards/$(printf %04d "$shard").duckdb
scratch=@{scratch}
mkdir -p "$scratch" || exit 1

@{signals}
limit= heard=
trap 'limit=near; heard=yes; kill -TERM "$run"' USR1
trap 'heard=yes; kill -TERM "$run"' @{endings}

@{start}@{lbx} run @{run} --output "$results" \\
    --shards "$folder/shards.json" --shard "$shard" --scratch "$scratch" &
@{wait}

case $code in
    0 | 2 | 3) exit "$code" ;;
    143) [ "$limit" ] || exit "$code" ;;
esac
if [ "@{restarts}" -lt @{requeues} ]; then
    echo "lbx: shard $shard ended with $code; it is requeued and continues from $results" >&2
    @{requeue}
fi
exit "$code"
"""

MERGE = """\
#!/bin/bash
@{directives}
#
# Merges all shards into one results file; written by `lbx submit`. Other rows of that file are kept. Exit code 3:
# samples are missing or have failed; the log names them.
folder=@{folder}@{merge_output}
@{modules}
export PYTHONSAFEPATH=1
@{resubmission}exec @{lbx} merge "$folder" --output "$folder/results.duckdb" --force
"""

_PLACEHOLDER = re.compile(r"@\{(\w*)\}")


def read_template(path: Path) -> str:
    """Read a site's own template.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return read_input(path, SMALL).decode("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"Cannot read the template {path}: {exc}.") from exc


def fill_in(template: str, values: Mapping[str, str], location: str) -> str:
    """Replace the marks of a template by values.

    Raises:
        UsageError: the template has an unknown mark.
    """
    unknown = sorted(set(_PLACEHOLDER.findall(template)) - set(values))
    if unknown:
        raise UsageError(
            f"{location} has the unknown mark @{{{unknown[0]}}}.",
            fix=f"Available marks: {', '.join(f'@{{{name}}}' for name in PLACEHOLDERS)}.",
        )
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)
