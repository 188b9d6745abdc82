"""Scripts of the shape of L-Eval's, in other words: what a small made L-Eval is asked and judged by.

The authors' own, which ../shared has, are read by the whole-family tests and ``just real``.
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
