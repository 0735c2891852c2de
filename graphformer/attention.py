"""The one attention core.

:func:`attend` serves both models, cross-attention, cached decoding and any user graph. It hands
the work to one of two kernels which compute the same: :mod:`graphformer.message`, the definition,
and :mod:`graphformer.blocks`, for edge sets known to consist of dense blocks.
"""

from __future__ import annotations

from typing import Literal, overload

import dgl
import torch
from torch import Tensor

from .blocks import block_attention, plan_blocks
from .edges import EdgeSet
from .limits import check_shares
from .message import message_attention

KERNELS = ("auto", "message", "block")
# A block with less than one edge in so many cells is sparse: the measured crossover is at 1 in 19.
SPARSE = 16


@overload
def attend(
    edges: EdgeSet | dgl.DGLGraph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None = ...,
    dropout: float = ...,
    kernel: str = ...,
    return_weights: Literal[False] = ...,
) -> Tensor: ...


@overload
def attend(
    edges: EdgeSet | dgl.DGLGraph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None = ...,
    dropout: float = ...,
    kernel: str = ...,
    return_weights: Literal[True],
) -> tuple[Tensor, Tensor]: ...


def attend(
    edges: EdgeSet | dgl.DGLGraph,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    kernel: str = "auto",
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Multi-head scaled dot-product attention along edges.

    For each edge i -> j and head: ``score = q_j . k_i / sqrt(D) + bias``, the weights are the
    softmax of the scores over the in-edges of j, and ``out_j`` is the weighted sum of ``v_i``.

    Args:
        edges: an edge set, or a DGL graph with one edge type (homogeneous, bipartite, a block).
        q: queries of the targets, ``(N_dst, H, D)``.
        k: keys of the sources, ``(N_src, H, D)``.
        v: values of the sources, ``(N_src, H, D_v)``.
        bias: added to the scores, ``(E, H)`` in edge order; in their precision, whatever its own.
        dropout: probability of dropping a weight, in [0, 1).
        kernel: ``"message"``, ``"block"``, or ``"auto"``: blocks where their structure is known.
        return_weights: also return the weights as they were used, dropout included.

    Returns:
        ``(N_dst, H, D_v)``, zero for targets without in-edges; with ``return_weights`` also the
        weights, ``(E, H)`` in edge order.

    Raises:
        ValueError: if a shape does not fit, or ``dropout`` or ``kernel`` is not a valid choice.
        TypeError: if ``q``, ``k`` and ``v`` differ in precision and autocast is off; under
            autocast that of ``q`` is taken.

    Source: Vaswani et al. 2017, section 3.2, equation 1; a bias on edges as in Shaw et al. 2018.

    Example:
        >>> edges = EdgeSet(torch.tensor([0, 1]), torch.tensor([0, 0]), 2, 1)
        >>> q, k, v = torch.zeros(1, 1, 1), torch.zeros(2, 1, 1), torch.tensor([[[2.0]], [[4.0]]])
        >>> attend(edges, q, k, v)
        tensor([[[3.]]])
    """
    if isinstance(edges, dgl.DGLGraph):
        edges = EdgeSet.from_dgl(edges)
    _check_shapes(edges, q, k, v, bias, dropout, kernel)
    if not len(edges):
        # Nothing to attend to. The empty sums keep the result on the autograd graph.
        nothing = q[:0].sum() + k[:0].sum() + v[:0].sum()
        nothing = nothing if bias is None else nothing + bias.sum()
        out = q.new_zeros(*q.shape[:2], v.shape[-1]) + nothing
        return (out, q.new_zeros(0, q.shape[1]) + nothing) if return_weights else out
    # Neither DGL's nor PyTorch's fused CPU kernels are at home in 16 bits.
    half = q.dtype in (torch.bfloat16, torch.float16)
    kind = torch.float32 if half else q.dtype
    ends = q.to(kind), k.to(kind), v.to(kind)
    extra = None if bias is None else bias.to(kind)
    with torch.autocast(q.device.type, enabled=False):
        plain = bias is None and not dropout and not return_weights
        if kernel == "block" or (kernel == "auto" and _suits_blocks(edges, plain)):
            out, weights = block_attention(edges, ends, extra, dropout, return_weights)
        else:
            out, weights = message_attention(edges.graph, ends, extra, dropout)
    if not return_weights or weights is None:
        return out.to(q.dtype)
    return out.to(q.dtype), weights.to(q.dtype)


def _suits_blocks(edges: EdgeSet, plain: bool) -> bool:
    """Is the block kernel the faster one? ``plain``: without bias, dropout and weights asked for.

    Dense blocks win wherever they are mostly full; a block with few edges is worth it only if it
    is a plain window, which is computed chunk by chunk.
    """
    if edges.band is None:
        return False
    cells = int((edges.sizes.src * edges.sizes.dst).sum())
    if len(edges) * SPARSE >= cells:
        return True
    return plain and all(group.chunk is not None for group in edges.once(plan_blocks).groups)


def check_kernel(kernel: str) -> None:
    """Refuse a kernel that does not exist."""
    if kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}, the choices are {', '.join(KERNELS)}")


def _check_shapes(
    edges: EdgeSet,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    dropout: float,
    kernel: str,
) -> None:
    check_kernel(kernel)
    check_shares(dropout=dropout)
    for name, ends, count in (
        ("q", q, edges.num_dst),
        ("k", k, edges.num_src),
        ("v", v, edges.num_src),
    ):
        if ends.dim() != 3 or len(ends) != count:
            raise ValueError(
                f"{name} has the shape {tuple(ends.shape)}, {edges!r} needs ({count}, heads, width)"
            )
    if q.shape[1:] != k.shape[1:] or v.shape[1] != q.shape[1]:
        shapes = ", ".join(f"{n} {tuple(t.shape)}" for n, t in (("q", q), ("k", k), ("v", v)))
        raise ValueError(f"heads or widths differ: {shapes}")
    if not q.dtype == k.dtype == v.dtype and not torch.is_autocast_enabled(q.device.type):
        kinds = ", ".join(f"{n} {t.dtype}" for n, t in (("q", q), ("k", k), ("v", v)))
        raise TypeError(f"q, k and v must have one precision where autocast is off: {kinds}")
    if bias is not None and bias.shape != (len(edges), q.shape[1]):
        raise ValueError(
            f"bias has the shape {tuple(bias.shape)}, {edges!r} with {q.shape[1]} heads needs "
            f"({len(edges)}, {q.shape[1]})"
        )
