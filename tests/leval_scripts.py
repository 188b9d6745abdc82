"""Stand-ins for L-Eval's scripts: files of the same shape, in other words.

    python tests/leval_scripts.py FOLDER

writes a recipe FOLDER/leval.toml that brings them where bundle/leval.toml fetches the authors' own, which ../shared
does not have. Predictions come from where ../shared has them; those of the founding protocol are the later ones, their
prompt the stand-in's.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[1] / "bundle" / "leval.toml"
SHARED = RECIPE.parents[2] / "shared" / "data"
_PATH = """[[source]]
kind = "path"
path = "{path}"
to = "{to}"
{allow}
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
JUDGE_PY = rb"""
import never_there
def decide(text):
    return "A" if "[[A]]" in text else "B"
if __name__ == "__main__":
    args = never_there.parse()
    judge_prompts = {"judge_model": args.judge_model, "name": "two", **args.more,
                     "system_prompt": "Weigh both; say \"[[A]]\", \"[[B]]\" or \"[[C]]\".",
                     "prompt_template": "Asked {question}\n\nTrue: {ref_answer}\n\nA said {answer_a}\n"
                     "B said {answer_b}\n{{end}}", "output_format": "[[A]]" }
    judge_prompts["later"] = decide
"""


FOUNDING_PY = rb"""
import never_there
def main():
    for inst, out in []:
        if args.metric == "ngram_eval":
            context = "The text: {} The task: {} " + f"About {len(out.split())} words. Output: "
        else:
            context = "The text: {} The task: {} Output: "
"""
FOUNDING_PROMPT = "You read pictures. Now read a text.The text: {} The task: {} Output: "
STAND_INS = {
    "Baselines/LEval_config.py": CONFIG_PY,
    "Baselines/turbo16k-test.py": SCRIPT_PY,
    "Tools/turbo16k_api_call.py": FOUNDING_PY,
    "Evaluation/llm_eval.py": JUDGE_PY,
}


def write_recipe(folder: Path) -> Path:
    """The recipe with stand-ins in place of what ../shared has not."""
    first, *sources = re.split(r"(?=^\[\[source\]\]$)", RECIPE.read_text("utf-8"), flags=re.MULTILINE)
    recipe = folder / "leval.toml"
    folder.mkdir(parents=True)
    recipe.write_text("".join([first, *(_source(one, folder) for one in sources)]), "utf-8")
    return recipe


def _source(source: str, folder: Path) -> str:
    found = re.search(r'/LEval/(\w{40})/(.*)"\nsha256.*\nto = "(.*)"', source)
    if found is None:
        return source
    commit, place, to = found.groups()
    if (SHARED / "upstream" / "OpenLMLab" / "LEval" / commit / place).is_file():
        return source
    path = SHARED / "judgements" / "leval" / place.removeprefix("Predictions/")
    allow = ""
    if place in STAND_INS or "cd1cfc3" in to:
        path = folder / "scripts" / to / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(STAND_INS[place] if place in STAND_INS else _founding(place))
        allow = f'allow = ["{path.name}"]\n' if place in STAND_INS else ""
    return _PATH.format(path=path, to=to, allow=allow)


def _founding(place: str) -> bytes:
    path = SHARED / "judgements" / "leval" / place.removeprefix("Predictions/")
    rows = [json.loads(line) | {"prompt": FOUNDING_PROMPT} for line in path.read_text("utf-8").splitlines()]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


if __name__ == "__main__":
    write_recipe(Path(sys.argv[1]))
