"""Attention in a window over long sequences: dense products of neighbouring chunks.

A sequence is cut into chunks as long as the window reaches, so a query sees keys of its own chunk
and of the one or two beside it. Time and memory are linear in the length. Only the two ends are
filled up.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from .bands import Band, in_band


def chunk_length(band: Band) -> int | None:
    """How long a chunk is, or ``None`` where the band has an open side."""
    if band.low is None or band.high is None:
        return None
    return max(band.high, -band.low, 16)  # shorter chunks only add overhead


def window_attention(q: Tensor, k: Tensor, v: Tensor, band: Band, chunk: int) -> Tensor:
    """Attention of each position to those that a bounded band lets it see.

    Args:
        q: queries, ``(count, n, H, D)``.
        k: keys, ``(count, n, H, D)``.
        v: values, ``(count, n, H, D_v)``.
        band: bounded on both sides.
        chunk: from :func:`chunk_length`.

    Returns:
        ``(count, n, H, D_v)``.

    Source: Beltagy et al. 2020 (Longformer), section 3.1 and appendix A.
    """
    count, size, heads, _ = q.shape
    chunks = -(-size // chunk)
    end = chunks * chunk - size
    if end:  # pad copies even where it adds nothing
        q, k, v = (pad(values, (0, 0, 0, 0, 0, end)) for values in (q, k, v))
    q, k, v = (values.unflatten(1, (chunks, chunk)) for values in (q, k, v))
    q = q.flatten(0, 1)
    sides = range(-1 if band.high else 0, 2 if band.low else 1)  # chunks seen beside the own one
    k, v = (_Beside.apply(values, sides) for values in (k, v))
    mask = _mask(band, size, chunks, chunk, sides, q.device).repeat(count, 1, 1).unsqueeze(1)
    # (count * chunks, H, chunk, D) against keys of len(sides) chunks
    out = scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
    )
    return out.transpose(1, 2).unflatten(0, (count, chunks)).flatten(1, 2)[:, :size]


class _Beside(torch.autograd.Function):
    """Each chunk joined with its neighbours, zeros beyond the ends.

    ``(count, chunks, chunk, H, D)`` -> ``(count * chunks, len(sides) * chunk, H, D)``. The gradient
    of slices that overlap would be a tensor of full size for each; here it is summed in place.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, sides: range) -> Tensor:
        count, chunks, *rest = values.shape
        ctx.sides, ctx.count = sides, count
        out = values.new_empty(count, chunks, len(sides), *rest)
        for at, side in enumerate(sides):
            here, there = _overlap(chunks, side)
            out[:, here, at] = values[:, there]
            out[:, : here.start, at] = 0
            out[:, here.stop :, at] = 0
        return out.flatten(2, 3).flatten(0, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.unflatten(0, (ctx.count, -1)).unflatten(2, (len(ctx.sides), -1))
        own = grad[:, :, ctx.sides.index(0)].clone()
        for at, side in enumerate(ctx.sides):
            if side:
                here, there = _overlap(grad.shape[1], side)
                own[:, there] += grad[:, here, at]
        return own, None


def _overlap(chunks: int, side: int) -> tuple[slice, slice]:
    """The chunks that have a neighbour ``side`` further on, and those neighbours."""
    return slice(max(0, -side), min(chunks, chunks - side)), slice(
        max(0, side), min(chunks, chunks + side)
    )


def _mask(
    band: Band, size: int, chunks: int, chunk: int, sides: range, device: torch.device
) -> Tensor:
    """Which keys each query of each chunk sees, ``(chunks, chunk, len(sides) * chunk)`` bool."""
    first = torch.arange(chunks, device=device).mul(chunk).view(-1, 1, 1)
    row = torch.arange(chunk, device=device).view(-1, 1)
    column = torch.arange(sides.start * chunk, sides.stop * chunk, device=device)
    key = first + column
    seen = in_band(row - column, band) & (key >= 0) & (key < size)
    # Queries beyond the end are cut off again; they see something, so that nothing becomes NaN.
    return seen | (first + row >= size)
