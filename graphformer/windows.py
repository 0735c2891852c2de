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

PIECE = 1 << 21  # keys' numbers at once: 8 MiB, which an allocator keeps from call to call


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
    sides = range(-1 if band.high else 0, 2 if band.low else 1)  # chunks seen beside the own one
    piece = max(1, PIECE // (len(sides) * k[:, :1].numel()))  # chunks
    mask = _mask(band, size, chunks, chunk, sides, q.device)
    pieces = zip(
        q.split(piece, 1), *(_Beside.apply(values, sides, piece) for values in (k, v)),
        mask.split(piece), strict=True,
    )  # fmt: skip
    outs = [_attend_piece(*parts) for parts in pieces]
    joined = outs[0] if len(outs) == 1 else torch.cat(outs, 1)  # of one, cat would be a copy
    return joined.flatten(1, 2)[:, :size]


def _attend_piece(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Dense attention of some chunks: ``q`` is ``(count, chunks, chunk, H, D)``, so is the result.

    ``k`` and ``v`` are ``(count, chunks, keys, H, D)``, ``mask`` is ``(chunks, chunk, keys)``.
    """
    count, chunks = q.shape[:2]
    q, k, v = (values.flatten(0, 1).transpose(1, 2) for values in (q, k, v))
    mask = mask.repeat(count, 1, 1).unsqueeze(1)
    out = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2).unflatten(0, (count, chunks))


class _Beside(torch.autograd.Function):
    """Each chunk joined with its neighbours, zeros beyond the ends; in pieces of some chunks.

    ``(count, chunks, chunk, H, D)`` -> for each piece ``(count, piece, len(sides) * chunk, H, D)``.
    The gradient of slices that overlap would be a tensor of full size for each; here it is summed
    in place.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, sides: range, piece: int) -> tuple[Tensor, ...]:
        count, chunks, *rest = values.shape
        ctx.sides, ctx.chunks, ctx.piece = sides, chunks, piece
        outs = []
        for first in range(0, chunks, piece):
            out = values.new_empty(count, min(piece, chunks - first), len(sides), *rest)
            for at, side in enumerate(sides):
                start, stop = _have_neighbour(first, out.shape[1], chunks, side)
                out[:, start - first : stop - first, at] = values[:, start + side : stop + side]
                out[:, : start - first, at] = 0
                out[:, stop - first :, at] = 0
            outs.append(out.flatten(2, 3))
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        parts = [grad.unflatten(2, (len(ctx.sides), -1)) for grad in grads]
        own = torch.cat([part[:, :, ctx.sides.index(0)] for part in parts], 1)
        for first, part in zip(range(0, ctx.chunks, ctx.piece), parts, strict=True):
            for at, side in enumerate(ctx.sides):
                start, stop = _have_neighbour(first, part.shape[1], ctx.chunks, side)
                if side and start < stop:
                    own[:, start + side : stop + side] += part[:, start - first : stop - first, at]
        return own, None, None


def _have_neighbour(first: int, length: int, chunks: int, side: int) -> tuple[int, int]:
    """Which of ``length`` chunks from ``first`` on have a neighbour ``side`` further on."""
    start, stop = max(first, -side), min(first + length, chunks - side)
    return start, max(start, stop)


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
