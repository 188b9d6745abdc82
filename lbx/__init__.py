"""lbx: how well does this local model understand long text? Measured on machines with no internet.

For notebooks and scripts:

    spec = lbx.RunSpec(bundle="long", model="models/my-model.toml", tasks="leval", limit=5)
    print(lbx.plan(spec).total)
    lbx.run(spec, "results.duckdb")
    with lbx.open_results("results.duckdb") as results:
        print(results.report("leaderboard"))

Everything raises ``LbxError``: cause, fix, next command. Progress and warnings are logged under the name
"lbx" (``logging``). Large libraries are imported when they are needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lbx.base.version import __version__ as __version__

if TYPE_CHECKING:
    from lbx import bundle as bundle
    from lbx.base.errors import LbxError as LbxError
    from lbx.base.listener import Listener as Listener
    from lbx.bundle import unpack as unpack
    from lbx.bundle import verify as verify
    from lbx.options.run_spec import RunSpec as RunSpec
    from lbx.report.notebook import open_results as open_results
    from lbx.results.whole.run_changes import score as score
    from lbx.running.execution import run as run
    from lbx.running.plan import plan as plan

_WHERE = {
    "LbxError": "lbx.base.errors",
    "Listener": "lbx.base.listener",
    "RunSpec": "lbx.options.run_spec",
    "open_results": "lbx.report.notebook",
    "plan": "lbx.running.plan",
    "run": "lbx.running.execution",
    "score": "lbx.results.whole.run_changes",
    "unpack": "lbx.bundle",
    "verify": "lbx.bundle",
}
__all__ = [*_WHERE, "bundle"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name == "bundle":
        return importlib.import_module("lbx.bundle")
    if name not in _WHERE:
        raise AttributeError(f"module 'lbx' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
