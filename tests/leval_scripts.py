"""Stand-ins for L-Eval's script and its settings: files of the same shape, in other words."""

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
