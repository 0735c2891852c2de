"""The block kernel: the same attention where the edge set is known to consist of dense blocks.

Samples of equal shape are computed as one batched product, so nothing is padded. Sorting the rows
by shape takes one gather of q, k and v, and none at all where equal samples are neighbours.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .bands import CAUSAL, Band, in_band, ranges
from .dropout import dropout as drop
from .edges import EdgeSet
from .windows import chunk_length, window_attention


class Group:
    """``count`` samples of one shape: ``queries`` targets, ``keys`` sources, ``edges`` in all.

    Args:
        rows: position of each target in its sample, ``(count, queries)``.
        keys: sources of each sample.
        edges: edges of all samples together.
        band: which of the cells have an edge.
    """

    def __init__(self, rows: Tensor, keys: int, edges: int, band: Band):
        self.count, self.queries = rows.shape
        self.keys, self.edges, self.band = keys, edges, band
        self.complete = edges == self.count * self.queries * keys
        self._rows = rows
        # Are the targets all nodes of their samples, each as many as there are sources?
        plain = torch.arange(self.queries, device=rows.device)
        self.square = self.queries == keys and bool((rows == plain).all())
        self.causal = self.square and band == CAUSAL
        chunk = chunk_length(band)
        long = self.square and chunk is not None and keys >= 4 * chunk
        self.chunk = chunk if long else None

    @cached_property
    def mask(self) -> Tensor | None:
        """Which cells have an edge, ``(count or 1, queries, keys)`` bool; ``None``: all."""
        if self.complete:
            return None
        rows = self._rows[:1] if self.square else self._rows
        distance = rows.unsqueeze(-1) - torch.arange(self.keys, device=rows.device)
        return in_band(distance, self.band)


class BlockPlan(NamedTuple):
    """How the rows of an edge set fall into groups; an order is ``None`` where none is needed."""

    groups: list[Group]
    dst_order: Tensor | None
    src_order: Tensor | None
    edge_order: Tensor | None


def plan_blocks(edges: EdgeSet) -> BlockPlan:
    """Group the samples of a banded edge set by shape.

    Raises:
        ValueError: if nothing is known of the edge set's block structure.
    """
    if edges.band is None or edges.rows is None:
        raise ValueError(f"{edges!r} has no known block structure; use kernel='message'")
    src_lens, dst_lens, counts = edges.sizes
    base = int(src_lens.max()) + 1 if len(src_lens) else 1
    shapes = dst_lens * base + src_lens
    order = torch.argsort(shapes, stable=True)
    rows = edges.rows
    orders: list[Tensor | None] = [None, None, None]
    if bool((order[1:] < order[:-1]).any()):
        orders = [ranges((size.cumsum(0) - size)[order], size[order]) for size in edges.sizes]
        rows = rows[orders[1]]
    shape, count = torch.unique_consecutive(shapes[order], return_counts=True)
    per_group = [int(part.sum()) for part in counts[order].split(count.tolist())]
    groups, start = [], 0
    for s, c, num_edges in zip(shape.tolist(), count.tolist(), per_group, strict=True):
        queries, keys = divmod(s, base)
        block_rows = rows[start : start + c * queries].view(c, queries)
        start += c * queries
        groups.append(Group(block_rows, keys, num_edges, edges.band))
    return BlockPlan(groups, orders[1], orders[0], orders[2])


def block_attention(
    edges: EdgeSet,
    ends: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    dropout: float,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attention over a banded edge set, group by group.

    Shapes as for :func:`graphformer.message.message_attention`; weights only on request.
    """
    plan = edges.once(plan_blocks)
    orders = (plan.dst_order, plan.src_order, plan.src_order)
    q, k, v = (_take(end, order) for end, order in zip(ends, orders, strict=True))
    # split, not slices: its backward is one concatenation, that of a slice a full-size tensor.
    q_sizes = [group.count * group.queries for group in plan.groups]
    k_sizes = [group.count * group.keys for group in plan.groups]
    biases: list[Tensor | None] = [None] * len(plan.groups)
    if bias is not None:
        biases = list(_take(bias, plan.edge_order).split([group.edges for group in plan.groups]))
    outs, weights = [], []
    parts = zip(q.split(q_sizes), k.split(k_sizes), v.split(k_sizes), strict=True)
    for group, part, part_bias in zip(plan.groups, parts, biases, strict=True):
        out, weight = _group_attention(group, part, part_bias, dropout, return_weights)
        outs.append(out)
        weights.append(weight)
    joined = outs[0] if len(outs) == 1 else torch.cat(outs)  # of one, cat would be a copy
    out = _put_back(joined, plan.dst_order)
    if not return_weights:
        return out, None
    return out, _put_back(torch.cat([w for w in weights if w is not None]), plan.edge_order)


def _group_attention(
    group: Group,
    ends: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    dropout: float,
    return_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """One group: ``(count * queries, H, D)`` -> ``(count * queries, H, D_v)``, ``(edges, H)``."""
    q, k, v = ends
    if not group.edges:
        return q.new_zeros(*q.shape[:-1], v.shape[-1]), q.new_zeros(0, q.shape[1])
    q = q.unflatten(0, (group.count, group.queries))  # (count, queries, H, D)
    k = k.unflatten(0, (group.count, group.keys))  # (count, keys, H, D)
    v = v.unflatten(0, (group.count, group.keys))
    plain = bias is None and not dropout and not return_weights
    if plain and group.chunk is not None:
        return window_attention(q, k, v, group.band, group.chunk).flatten(0, 1), None
    q, k, v = (end.transpose(1, 2) for end in (q, k, v))
    if plain and (group.complete or group.causal):
        out = scaled_dot_product_attention(q, k, v, is_causal=group.causal)
        return out.transpose(1, 2).flatten(0, 1), None
    score = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)  # (count, H, queries, keys)
    mask = group.mask
    if bias is not None:
        score = score + _spread(bias, mask, group)
    if mask is not None:
        # The lowest finite number, not -inf: a query without keys must not become NaN.
        hidden = ~mask.unsqueeze(1)
        score = score.masked_fill(hidden, torch.finfo(score.dtype).min)
        weight = torch.softmax(score, -1).masked_fill(hidden, 0.0)
    else:
        weight = torch.softmax(score, -1)
    weight = drop(weight, dropout) if dropout else weight
    out = (weight @ v).transpose(1, 2).flatten(0, 1)
    if not return_weights:
        return out, None
    weight = weight.permute(0, 2, 3, 1)  # (count, queries, keys, H)
    if mask is None:
        return out, weight.flatten(0, 2)
    return out, weight[mask.expand(weight.shape[:3])]


def _spread(values: Tensor, mask: Tensor | None, group: Group) -> Tensor:
    """Values of edges ``(edges, H)`` -> cells ``(count, H, queries, keys)``."""
    shape = (group.count, group.queries, group.keys)
    if mask is None:
        return values.unflatten(0, shape).permute(0, 3, 1, 2)
    cells = values.new_zeros(*shape, values.shape[-1])
    cells[mask.expand(shape)] = values
    return cells.permute(0, 3, 1, 2)


def _take(values: Tensor, order: Tensor | None) -> Tensor:
    return values if order is None else _Permute.apply(values, order, False)


def _put_back(values: Tensor, order: Tensor | None) -> Tensor:
    return values if order is None else _Permute.apply(values, order, True)


class _Permute(torch.autograd.Function):
    """Rows in another order, or back. The gradient is the other way, and no scatter-add."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, order: Tensor, back: bool) -> Tensor:
        ctx.save_for_backward(order)
        ctx.back = back
        return _permuted(values, order, back)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (order,) = ctx.saved_tensors
        return _permuted(grad, order, not ctx.back), None, None


def _permuted(values: Tensor, order: Tensor, back: bool) -> Tensor:
    return torch.empty_like(values).index_copy_(0, order, values) if back else values[order]
