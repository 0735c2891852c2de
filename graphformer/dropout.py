"""Dropout at a fraction of the usual cost on a CPU.

PyTorch draws one random number a unit, which took a fifth of a training step at width 128. Here
one 64-bit draw decides four units, 16 bits each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .limits import check_shares

_LEVELS = 2**16


class Dropout(nn.Module):
    """Zero each unit with probability p while training and scale the others by ``1 / (1 - p)``.

    On a CPU p is rounded to a multiple of 2^-16; the scale fits the rounded value, so the mean is
    kept exactly. Random bits come from PyTorch's default generator.

    Args:
        p: probability, in [0, 1).

    Raises:
        ValueError: if p is out of range.

    Source: Srivastava et al. 2014.
    """

    def __init__(self, p: float = 0.1):
        super().__init__()
        check_shares(dropout=p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape, which is kept."""
        return dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        """What ``repr`` shows."""
        return f"p={self.p}"


def dropout(x: Tensor, p: float) -> Tensor:
    """The function behind :class:`Dropout`, always as in training."""
    if not p:
        return x
    if x.device.type != "cpu":
        return nn.functional.dropout(x, p)
    return _Dropout.apply(x, min(round(p * _LEVELS), _LEVELS - 1))


class _Dropout(torch.autograd.Function):
    """Keeps one byte a unit for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, level: int) -> Tensor:
        draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        # A product with 0/1 in int8 is vectorised; masked_fill and where are not.
        keep = (bits >= level - _LEVELS // 2).view(torch.int8)
        ctx.save_for_backward(keep)
        ctx.scale = _LEVELS / (_LEVELS - level)
        return (x * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (grad * keep).mul_(ctx.scale), None
