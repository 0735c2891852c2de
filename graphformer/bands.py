"""What edge sets are computed from: index ranges, bands, the sizes of samples; and their checks."""

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


def shifts(sizes: list[int], counts: list[int]) -> Tensor:
    """What is added to the ids of each part when parts of these sizes are put side by side.

    Args:
        sizes: nodes of each part.
        counts: ids of each part.

    Returns:
        ``(sum of counts,)`` int64.
    """
    before = torch.tensor([0, *sizes[:-1]]).cumsum(0)
    return torch.repeat_interleave(before, torch.tensor(counts))


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


def check_lens(src_lens: Tensor, dst_lens: Tensor) -> None:
    """Refuse numbers of sources and targets that do not belong together."""
    if len(src_lens) != len(dst_lens):
        raise ValueError(f"{len(src_lens)} source lengths for {len(dst_lens)} target lengths")
    for side, lens in (("source", src_lens), ("target", dst_lens)):
        if len(lens) and int(lens.min()) < 0:
            at = int(lens.argmin())
            raise ValueError(f"sample {at}: {side} length {int(lens[at])} is negative")


def check_ends(src: Tensor, dst: Tensor, num_src: int, num_dst: int, name: str) -> None:
    """Refuse ids and sizes that make no edge set; see :class:`graphformer.EdgeSet`."""
    for side, size in (("num_src", num_src), ("num_dst", num_dst)):
        if size < 0:
            raise ValueError(f"edge set {name!r}: {side} is {size}, at least 0 is needed")
    for side, ids in (("src", src), ("dst", dst)):
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.dim() != 1:
            found = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids)
            raise TypeError(f"edge set {name!r}: {side} must be a 1-d int64 tensor, got {found}")
    if len(src) != len(dst):
        raise ValueError(f"edge set {name!r}: {len(src)} sources for {len(dst)} targets")
    for side, ids, size in (("src", src, num_src), ("dst", dst, num_dst)):
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
            bad = ids[(ids < 0) | (ids >= size)][0]
            raise ValueError(
                f"edge set {name!r}: {side} has the id {int(bad)}, valid are 0 to {size - 1}"
            )
