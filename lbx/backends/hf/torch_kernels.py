"""torch's attention kernels, with the log-sum-exp of the scores. Imported only with torch."""

from __future__ import annotations

from typing import NamedTuple

import torch

# Attention weights in memory at once, per head.
_WEIGHTS_AT_ONCE = 1 << 24


class ScoreOptions(NamedTuple):
    """Scale, soft cap and sinks of attention scores.

    Attributes:
        sinks: shape (heads,), scores without a value that are added to the softmax's denominator.
    """

    scale: float
    softcap: float | None = None
    sinks: torch.Tensor | None = None


class KernelInputs(NamedTuple):
    """Arguments of a kernel: query (1, heads, tokens, size), key and value (1, key heads, cells, size)."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    causal: bool
    options: ScoreOptions


def run_kernel(inputs: KernelInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention and log-sum-exps by the fastest kernel that returns both; torch has no public one."""
    size, value_size, device = inputs.query.shape[-1], inputs.value.shape[-1], inputs.query.device.type
    if value_size > size or inputs.options.softcap or device not in ("cpu", "cuda"):
        return matmul_attention(inputs)
    if value_size < size:  # the kernels want one size
        inputs = inputs._replace(value=torch.nn.functional.pad(inputs.value, (0, size - value_size)))
    if device == "cpu":
        outputs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *inputs[:3], 0.0, inputs.causal, attn_mask=inputs.mask, scale=inputs.options.scale
        )
    else:
        outputs = _flash_attention(inputs) or _efficient_attention(inputs) or matmul_attention(inputs)
    return outputs[0].narrow(-1, 0, value_size), outputs[1]


def _flash_attention(inputs: KernelInputs) -> tuple[torch.Tensor, torch.Tensor] | None:
    """CUDA's flash attention; None with a mask, in float32 or on an old card."""
    can, params = torch.backends.cuda.can_use_flash_attention, torch.backends.cuda.SDPAParams
    query, key, value, mask, causal, (scale, *_) = inputs
    if mask is not None or not can(params(query, key, value, None, 0.0, causal, query.shape[1] != key.shape[1])):
        return None
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    out, lse, *_ = flash(query, key, value, 0.0, causal, False, scale=scale)
    return out, lse


def _efficient_attention(inputs: KernelInputs) -> tuple[torch.Tensor, torch.Tensor] | None:
    """CUDA's memory-efficient attention; None if it is not applicable.

    It does not support shared keys, but strides of 0: key heads become the batch, without copies.
    """
    can, params = torch.backends.cuda.can_use_efficient_attention, torch.backends.cuda.SDPAParams
    query, key, value, mask, causal, (scale, *_) = inputs
    _, number, tokens, size = query.shape
    kv_heads = key.shape[1]
    query = query.reshape(kv_heads, number // kv_heads, tokens, size)
    key, value = (states.transpose(0, 1).expand(-1, number // kv_heads, -1, -1) for states in (key, value))
    mask = None if mask is None else mask.expand(kv_heads, number // kv_heads, -1, -1)
    if not can(params(query, key, value, mask, 0.0, causal, False)):
        return None
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    out, lse, *_ = efficient(query, key, value, mask, True, 0.0, causal, scale=scale)
    # The kernel pads the tokens of the sums.
    return out.reshape(1, number, tokens, size), lse.narrow(-1, 0, tokens).reshape(1, number, tokens)


def matmul_attention(inputs: KernelInputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention by plain matrix products, for a few tokens at a time to limit memory."""
    query, key, value, mask, causal, (scale, softcap, _) = inputs
    batch, number, tokens, size = query.shape
    kv_heads, cells = key.shape[1], key.shape[2]
    query = query.reshape(batch, kv_heads, number // kv_heads, tokens, size)
    keys, values = key[:, :, None].transpose(-1, -2), value[:, :, None]
    outs, sums = [], []
    step = max(1, _WEIGHTS_AT_ONCE // cells)
    for at in range(0, tokens, step):
        scores = torch.matmul(query[:, :, :, at : at + step], keys).float() * scale
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        if causal:
            order = torch.arange(cells, device=query.device)
            scores.masked_fill_(order > order[at : at + step, None], float("-inf"))
        if mask is not None:
            scores += mask[:, :, None, at : at + step]
        lse = scores.logsumexp(-1)
        outs.append(torch.matmul((scores - lse[..., None]).exp_().to(value.dtype), values))
        sums.append(lse)
    return torch.cat(outs, 3).reshape(batch, number, tokens, -1), torch.cat(sums, 3).reshape(batch, number, tokens)
