"""Edge patterns: functions from the length of a sample (or two lengths) to its edge set.

A pattern for self-attention is called with one length, a pattern for cross-attention with two.
Hand any function of that form to :class:`graphformer.GraphPool`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from .bands import CAUSAL, COMPLETE, Band
from .edges import EdgeSet


def _banded(num_src: int, num_dst: int, band: Band, name: str) -> EdgeSet:
    return EdgeSet.banded(torch.tensor([num_src]), torch.tensor([num_dst]), band, name)


def complete(num_src: int, num_dst: int | None = None) -> EdgeSet:
    """Every target sees every source; ``num_src * num_dst`` edges, self-loops included.

    Args:
        num_src: number of sources.
        num_dst: number of targets; ``None``: as many as sources.

    Source: Vaswani et al. 2017, section 3.2.3.
    """
    return _banded(num_src, num_src if num_dst is None else num_dst, COMPLETE, "complete")


def causal(num: int) -> EdgeSet:
    """Position i sees the positions j <= i; ``num * (num + 1) / 2`` edges.

    Args:
        num: number of nodes.

    Source: Vaswani et al. 2017, section 3.2.3 (masked self-attention, without the mask).
    """
    return _banded(num, num, CAUSAL, "causal")


def window(width: int, causal: bool = False) -> Callable[[int], EdgeSet]:
    """Position i sees the positions at most ``width`` to its left and, unless causal, right.

    Args:
        width: how far a position sees, at least 0.
        causal: only to the left.

    Returns:
        A pattern: a function from the number of nodes to an edge set. The causal window of
        ``width=127`` gives each node (from the 128th on) 128 in-edges, itself included.

    Raises:
        ValueError: if ``width`` is negative.

    Source: Beltagy et al. 2020 (Longformer), section 3.1.
    """
    if width < 0:
        raise ValueError(f"width is {width}, at least 0 is needed")
    return partial(_band_of_one, band=Band(0 if causal else -width, width))


def _band_of_one(num: int, *, band: Band) -> EdgeSet:
    return _banded(num, num, band, "window")
