"""Refusing ids and sizes that make no edge set; each message names the culprit."""

from __future__ import annotations

import torch
from torch import Tensor


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


def check_kept(targets: Tensor, num_dst: int) -> Tensor:
    """Ids of kept targets, from a mask or ids; refuses what does not name each one once."""
    if targets.dtype == torch.bool:
        if len(targets) != num_dst:
            raise ValueError(f"a mask of {len(targets)} targets for {num_dst}")
        return targets.nonzero().squeeze(1)
    ascending = bool((targets[1:] > targets[:-1]).all())
    if len(targets) and not (ascending and 0 <= int(targets[0]) and int(targets[-1]) < num_dst):
        raise ValueError(f"kept targets must be strictly ascending ids from 0 to {num_dst - 1}")
    return targets
