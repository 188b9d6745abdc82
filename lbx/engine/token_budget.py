"""Token budgets of an answer and its reasoning: where they end the answer, and whether they fit the context window."""

from __future__ import annotations

from lbx.base.errors import PromptError
from lbx.base.records import Request
from lbx.engine.reasoning_block import ReasoningBlock


def answer_budget(request: Request) -> int:
    """Maximum number of tokens of an answer, reasoning included."""
    return request.thinking_tokens + request.max_new_tokens


def token_limit(request: Request, block: ReasoningBlock) -> int:
    """Number of tokens, reasoning included, at which the budgets end an answer.

    Inside the reasoning it is the reasoning's budget, so that an answer may end without text. Afterwards the answer has
    its own budget, and the rest of the reasoning's is lost.
    """
    if not block.is_present:
        return request.max_new_tokens
    if not block.closed:
        return request.thinking_tokens or request.max_new_tokens
    return min(answer_budget(request), block.end + request.max_new_tokens)


def check_fits(request: Request, window: int) -> None:
    """Raise PromptError if prompt and answer together exceed the context window, or the prompt is empty."""
    prompt, new, thinking = len(request.token_ids), request.max_new_tokens, request.thinking_tokens
    if prompt + thinking + new > window:
        reasoning = f" and its reasoning {thinking}" if thinking else ""
        raise PromptError(
            f"The prompt of {request.key} has {prompt} tokens and its answer may take {new}{reasoning}: "
            f"together {prompt + thinking + new}, but the context window is {window}.",
            fix="Use a larger context_window in the model card, or allow lbx to truncate the prompt.",
        )
    if not prompt or new < 1 or thinking < 0:
        raise PromptError(f"The prompt of {request.key} has {prompt} tokens, and its answer may take {new}.")
