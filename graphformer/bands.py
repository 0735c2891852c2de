"""What edge sets are computed from: index ranges, bands, the sizes of samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Band(NamedTuple):
    """Position j of a sample is seen from position i of it where ``low <= i - j <= high``.

    ``None`` leaves a side open: ``Band()`` is a complete block, ``Band(0)`` a causal one,
    ``Band(0, 127)`` a causal window of 128.
    """

    low: int | None = None
    high: int | None = None


COMPLETE, CAUSAL = Band(), Band(0)


def ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Join the integer ranges ``[start, start + count)`` of all rows.

    Args:
        starts: ``(R,)`` int64.
        counts: ``(R,)`` int64, none negative.

    Returns:
        ``(counts.sum(),)`` int64.
    """
    before = counts.cumsum(0) - counts
    shift = torch.repeat_interleave(starts - before, counts)
    return torch.arange(shift.shape[0], device=starts.device) + shift


def shifted(parts: list[Tensor], sizes: list[int]) -> Tensor:
    """The ids of several parts as they are when the parts stand side by side.

    Args:
        parts: ids of each part, int64.
        sizes: nodes of each part.

    Returns:
        All ids, ``(sum of counts,)`` int64.
    """
    joined = torch.cat(parts)
    before = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    counts = torch.tensor([len(part) for part in parts])
    return joined + torch.repeat_interleave(before, counts).to(joined.device)


def seen_by(rows: Tensor, limit: Tensor, band: Band) -> tuple[Tensor, Tensor]:
    """The contiguous source positions that each target sees.

    Args:
        rows: position of each target in its sample, ``(N_dst,)`` int64.
        limit: number of sources of its sample, ``(N_dst,)`` int64.
        band: which distances are seen.

    Returns:
        First position seen, and how many from there on, ``(N_dst,)`` each.
    """
    low, high = band
    first = torch.zeros_like(rows)
    if high is not None:
        first = torch.minimum((rows - high).clamp(0), limit)
    last = limit if low is None else torch.minimum((rows - low + 1).clamp(0), limit)
    return first, (last - first).clamp(0)


def in_band(distance: Tensor, band: Band) -> Tensor:
    """Which distances (position of the target less that of the source) are seen, bool."""
    seen = torch.ones_like(distance, dtype=torch.bool)
    if band.low is not None:
        seen &= distance >= band.low
    if band.high is not None:
        seen &= distance <= band.high
    return seen


class SampleSizes(NamedTuple):
    """How many source nodes, target nodes and edges each sample of a batch has, ``(B,)`` each."""

    src: Tensor
    dst: Tensor
    edges: Tensor
