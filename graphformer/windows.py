"""Attention in a window over long sequences: dense products of neighbouring chunks.

A sequence is cut into chunks as long as the window reaches, so a query sees keys of its own chunk
and of the one or two beside it. Time and memory are linear in the length. Only the two ends are
filled up.
"""

from __future__ import annotations

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
    q = pad(q, (0, 0, 0, 0, 0, end)).unflatten(1, (chunks, chunk)).flatten(0, 1)
    sides = range(-1 if band.high else 0, 2 if band.low else 1)  # chunks seen beside the own one
    k, v = (_beside(values, chunks, chunk, end, sides) for values in (k, v))
    mask = _mask(band, size, chunks, chunk, sides, q.device).repeat(count, 1, 1).unsqueeze(1)
    # (count * chunks, H, chunk, D) against keys of len(sides) chunks
    out = scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
    )
    return out.transpose(1, 2).unflatten(0, (count, chunks)).flatten(1, 2)[:, :size]


def _beside(values: Tensor, chunks: int, chunk: int, end: int, sides: range) -> Tensor:
    """Each chunk joined with its neighbours: ``(count * chunks, len(sides) * chunk, H, D)``."""
    before, after = -sides.start, sides.stop - 1
    values = pad(values, (0, 0, 0, 0, before * chunk, end + after * chunk))
    values = values.unflatten(1, (chunks + before + after, chunk))
    parts = [values[:, at : at + chunks] for at in range(len(sides))]
    return torch.cat(parts, 2).flatten(0, 1)


def _mask(
    band: Band, size: int, chunks: int, chunk: int, sides: range, device: torch.device
) -> Tensor:
    """Which keys each query of each chunk sees, ``(chunks, chunk, len(sides) * chunk)`` bool."""
    first = torch.arange(chunks, device=device).mul(chunk).view(-1, 1, 1)
    query = first + torch.arange(chunk, device=device).view(1, -1, 1)
    key = first + torch.arange(sides.start * chunk, sides.stop * chunk, device=device)
    distance = query - key
    seen = in_band(distance, band) & (key >= 0) & (key < size)
    # Queries beyond the end are cut off again; they see something, so that nothing becomes NaN.
    return seen | (query >= size)
