"""Stand-ins for L-Eval's script and its settings: files of the same shape, in other words.

    python tests/leval_scripts.py FOLDER

writes a recipe FOLDER/leval.toml that brings them where bundle/leval.toml fetches the authors' own, which ../shared
does not have.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[1] / "bundle" / "leval.toml"
PATHS = """[[source]]
kind = "path"
path = "scripts"
to = "OpenLMLab/LEval/Baselines"
allow = ["LEval_config.py", "turbo16k-test.py"]

"""
CONFIG_PY = b"""
import never_there
def get_sys_prompt(args, file_name):
    if "gsm" in file_name:
        prompt = "Count. "
    elif "codeU" in file_name:
        prompt = "Run."
    elif "exam" in args.metric:
        prompt = "Choose. "
    else:
        prompt  = "Write. "

    return prompt
"""
SCRIPT_PY = rb"""
import never_there
def main():
    for inst, out in []:
        if "gsm" in file_name or "codeU" in file_name:
            pass
        elif args.metric == "exam_eval":
            context = "Text: {} Asked: {} \nAnswer: "
        else:
            context = "Text: {} Task: {} " + f"About {len(out.split())} words. Output: "
        if "sci_fi" in file_name:
            text_inputs = inst.replace("in the story.", "in the world") + "\nReally?"
"""


def write_recipe(folder: Path) -> Path:
    """The recipe with stand-ins in place of the two scripts."""
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "LEval_config.py").write_bytes(CONFIG_PY)
    (folder / "scripts" / "turbo16k-test.py").write_bytes(SCRIPT_PY)
    first, *sources = re.split(r"(?=^\[\[source\]\]$)", RECIPE.read_text("utf-8"), flags=re.MULTILINE)
    kept = [source for source in sources if "/Baselines/" not in source]
    assert len(sources) - len(kept) == 2
    (folder / "leval.toml").write_text("".join([first, PATHS, *kept]), "utf-8")
    return folder / "leval.toml"


if __name__ == "__main__":
    write_recipe(Path(sys.argv[1]))
