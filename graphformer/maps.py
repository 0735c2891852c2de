"""Attention weights on request: exactly those that were used, as dense maps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .edges import EdgeSet
from .multihead import MultiHeadAttention


class AttentionRecord(NamedTuple):
    """One use of one attention module.

    Attributes:
        module: dotted name of the module in the model, such as ``"dec_layers.0.self_block.attn"``.
        edges: the edge set; its ``name`` is the kind: ``"ee"``, ``"ed"`` or ``"dd"``.
        weights: ``(E, H)`` in edge order, detached.
    """

    module: str
    edges: EdgeSet
    weights: Tensor


class AttentionRecords:
    """What a model attended to while :func:`record_attention` listened, in the order of use.

    For each kind the n-th record is layer n of a Transformer, or step n of a Universal
    Transformer, whose later records leave out the targets that have halted.
    """

    def __init__(self) -> None:
        self.records: list[AttentionRecord] = []

    def add(self, module: str, edges: EdgeSet, weights: Tensor) -> None:
        """Enter one use of the attention ``module``: its ``edges`` and ``weights`` ``(E, H)``."""
        self.records.append(AttentionRecord(module, edges, weights.detach()))

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[AttentionRecord]:
        return iter(self.records)

    def kind(self, kind: str) -> list[AttentionRecord]:
        """The records of one kind of edges.

        Raises:
            ValueError: if there are none; the message names the kinds that there are.
        """
        chosen = [record for record in self.records if record.edges.name == kind]
        if not chosen:
            kinds = sorted({record.edges.name for record in self.records})
            raise ValueError(f"no attention over {kind!r} was recorded, only over {kinds}")
        return chosen

    def dense(self, kind: str, layer: int = -1, sample: int = 0) -> Tensor:
        """The map of one sample.

        Args:
            kind: ``"ee"``, ``"ed"`` or ``"dd"``.
            layer: which layer (or step); negative ones count from the end.
            sample: which sample of the batch.

        Returns:
            ``(H, queries, keys)``; rows sum to 1 (unless weights were dropped in training),
            cells without an edge are exactly 0. In a
            Universal Transformer the rows of nodes that had halted before are 0.

        Raises:
            ValueError: if there is no such kind, layer or sample.
        """
        record = self._record(kind, layer)
        return record.edges.dense(record.weights, sample)

    def mask(self, kind: str, layer: int = -1, sample: int = 0) -> Tensor:
        """Where there is an edge; a weight may be 0 there all the same, for want of precision.

        Args:
            kind: ``"ee"``, ``"ed"`` or ``"dd"``.
            layer: which layer (or step); negative ones count from the end.
            sample: which sample of the batch.

        Returns:
            ``(queries, keys)`` bool.

        Raises:
            ValueError: if there is no such kind, layer or sample.
        """
        edges = self._record(kind, layer).edges
        return edges.dense(torch.ones(len(edges), 1, device=edges.device), sample)[0] > 0

    def _record(self, kind: str, layer: int) -> AttentionRecord:
        records = self.kind(kind)
        if not -len(records) <= layer < len(records):
            raise ValueError(f"layer {layer}: {kind!r} has layers 0 to {len(records) - 1}")
        return records[layer]


@contextmanager
def record_attention(model: nn.Module) -> Iterator[AttentionRecords]:
    """Record the attention weights of every forward pass inside the block.

    Args:
        model: any module that has :class:`graphformer.MultiHeadAttention` in it.

    Yields:
        The records, filled as the model runs.

    Example:
        >>> import torch, graphformer as gf
        >>> model = gf.make_model(7, 7, N=1, dim_model=6, dim_ff=5, h=2).eval()
        >>> with gf.record_attention(model) as records:
        ...     _ = model(gf.GraphPool()([[4, 5, 6]], [[0, 4, 5, 1]]))
        >>> records.dense("ed").shape
        torch.Size([2, 3, 3])
    """
    records = AttentionRecords()
    listened = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    ]
    before = [module.listener for _, module in listened]
    for name, module in listened:
        module.listener = partial(records.add, name)
    try:
        yield records
    finally:
        for (_, module), listener in zip(listened, before, strict=True):
            module.listener = listener
