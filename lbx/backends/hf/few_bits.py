"""Numbers of few bits as they lie in bytes and words, and scales that stand for blocks of them, as torch tensors."""

from __future__ import annotations

from typing import Any

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E8M0_BIAS = 127
Shape = tuple[int, ...]
WORD = 32
"""Bits of a word that numbers are packed into."""


def spread_over(scale: Any, shape: Shape, block: tuple[int, int]) -> Any:
    """A float32 number for each of the weight's, of one for each block; the last blocks may be cut off."""
    scale = scale.float().expand(*shape[:-2], *scale.shape[-2:]) if scale.dim() > 1 else scale.float()
    for dim, size in zip((-2, -1), block, strict=True):
        scale = scale.repeat_interleave(size, dim).narrow(dim, 0, shape[dim])
    return scale


def powers_of_two(scale: Any) -> Any:
    """E8M0: 2 ** (x - 127); 255 is no number."""
    import torch

    codes = scale.view(torch.uint8).int()
    power = torch.ldexp(torch.ones_like(codes, dtype=torch.float32), codes - _E8M0_BIAS)
    return power.masked_fill(codes == 0xFF, torch.nan)


def numbers_of_four_bits(packed: Any) -> Any:
    """Two numbers of four bits (E2M1) in a byte, the low one first, as float32."""
    import torch

    table = torch.tensor([*_E2M1, *(-number for number in _E2M1)])
    codes = torch.stack((packed & 0xF, packed >> 4), -1).flatten(-2)
    return table[codes.int()]


def unpack_words(words: Any, bits: int, count: int) -> Any:
    """Numbers without sign, one after the other from the lowest bit on in 32-bit words along the last dimension."""
    import torch

    if bits in (2, 4, 8):
        octets = words.contiguous().view(torch.uint8)
        shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
        return ((octets.unsqueeze(-1) >> shifts) & (2**bits - 1)).flatten(-2)[..., :count]
    at = torch.arange(count) * bits
    low = words[..., at // WORD].long() & 0xFFFFFFFF
    after = words[..., (at // WORD + 1).clamp(max=words.shape[-1] - 1)].long() & 0xFFFFFFFF
    return (((low | after << WORD) >> (at % WORD)) & (2**bits - 1)).to(torch.uint8)


def words_of(count: int, bits: int) -> int:
    """How many words so many numbers take."""
    return -(-count * bits // WORD)
