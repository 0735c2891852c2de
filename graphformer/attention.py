"""The one attention core, and its reading on a graph's frames.

:func:`attend` serves both models, cross-attention, cached decoding and any user graph. It hands
the work to one of two kernels which compute the same: :mod:`graphformer.message`, the definition,
and :mod:`graphformer.blocks`, for edge sets known to consist of dense blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

import dgl
import torch
from torch import Tensor, nn

from .blocks import block_attention
from .edges import EdgeSet
from .message import message_attention

KERNELS = ("auto", "message", "block")
NodeFunction = Callable[[Any], dict[str, Tensor]]


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
        bias: added to the scores, ``(E, H)`` in edge order.
        dropout: probability of dropping a weight, in [0, 1).
        kernel: ``"message"``, ``"block"``, or ``"auto"``: blocks where their structure is known.
        return_weights: also return the weights as they were used, dropout included.

    Returns:
        ``(N_dst, H, D_v)``, zero for targets without in-edges; with ``return_weights`` also the
        weights, ``(E, H)`` in edge order.

    Raises:
        ValueError: if a shape does not fit, or ``dropout`` or ``kernel`` is not a valid choice.

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
        # Nothing to attend to. The product keeps the result on the autograd graph.
        out = q.new_zeros(*q.shape[:2], v.shape[-1]) + 0.0 * q[:0].sum()
        return (out, q.new_zeros(0, q.shape[1])) if return_weights else out
    # Neither DGL's nor PyTorch's fused CPU kernels are at home in 16 bits.
    half = q.dtype in (torch.bfloat16, torch.float16)
    ends = [end.float() if half else end for end in (q, k, v)]
    extra = bias.float() if half and bias is not None else bias
    with torch.autocast(q.device.type, enabled=False):
        if kernel == "block" or (kernel == "auto" and edges.band is not None):
            out, weights = block_attention(edges, *ends, extra, dropout, return_weights)
        else:
            out, weights = message_attention(edges.graph, *ends, extra, dropout)
    if half:
        out, weights = out.to(q.dtype), None if weights is None else weights.to(q.dtype)
    return (out, weights) if return_weights else out


def _check_shapes(
    edges: EdgeSet,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    dropout: float,
    kernel: str,
) -> None:
    if kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}, the choices are {', '.join(KERNELS)}")
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout is {dropout}, it must lie in [0, 1)")
    for name, ends, count in (("q", q, edges.num_dst), ("k", k, edges.num_src), ("v", v, edges.num_src)):
        if ends.dim() != 3 or len(ends) != count:
            raise ValueError(
                f"{name} has the shape {tuple(ends.shape)}, {edges!r} needs ({count}, heads, width)"
            )
    if q.shape[1:] != k.shape[1:] or v.shape[1] != q.shape[1]:
        shapes = ", ".join(f"{n} {tuple(t.shape)}" for n, t in (("q", q), ("k", k), ("v", v)))
        raise ValueError(f"heads or widths differ: {shapes}")
    if bias is not None and bias.shape != (len(edges), q.shape[1]):
        raise ValueError(
            f"bias has the shape {tuple(bias.shape)}, {edges!r} with {q.shape[1]} heads needs "
            f"({len(edges)}, {q.shape[1]})"
        )


def propagate_attention(
    g: dgl.DGLGraph, eids: Tensor | EdgeSet | None = None, *, bias: Tensor | None = None
) -> None:
    """Attention on a graph's frames: reads the node fields ``q``, ``k``, ``v``, writes ``wv``.

    Args:
        g: homogeneous graph; ``q``, ``k`` ``(N, H, D)``, ``v`` ``(N, H, D_v)`` in ``g.ndata``.
        eids: the edges along which to attend: edge ids ``(E,)``, or an edge set over the nodes of
            ``g``, which spares the look-up when it is used again; ``None``: all.
        bias: added to the scores, ``(E, H)`` in the order of ``eids``.

    Writes:
        ``g.ndata["wv"]``, ``(N, H, D_v)``, normalised; zero for nodes that none of the edges enters.

    Raises:
        ValueError: if a field is missing or a shape does not fit.
    """
    missing = [field for field in "qkv" if field not in g.ndata]
    if missing:
        raise ValueError(f"node field {missing[0]!r} is missing; the graph has {list(g.ndata)}")
    g.ndata["wv"] = attend(
        _edges_of(g, eids), *(g.ndata[field] for field in "qkv"), bias=bias, kernel="auto"
    )


def _edges_of(g: dgl.DGLGraph, eids: Tensor | EdgeSet | None) -> EdgeSet:
    if isinstance(eids, EdgeSet):
        return eids
    if eids is None:
        return EdgeSet.from_dgl(g)
    src, dst = g.find_edges(eids)
    return EdgeSet(src.long(), dst.long(), g.num_nodes(), g.num_nodes())


def update_graph(
    g: dgl.DGLGraph,
    eids: Tensor | EdgeSet | None,
    pre_pairs: Iterable[tuple[NodeFunction, Tensor]],
    post_pairs: Iterable[tuple[NodeFunction, Tensor]],
) -> None:
    """One layer as the tutorial reads it: pre functions, attention, post functions.

    Args:
        g: homogeneous graph with the fields the pre functions read.
        eids: the edges along which to attend, as for :func:`propagate_attention`.
        pre_pairs: node functions that give ``q``, ``k`` and ``v``, each with the node ids it is
            applied to.
        post_pairs: node functions that turn ``wv`` into new fields, each with its node ids.

    Writes:
        The fields which the post functions return. Those between (``q``, ``k``, ``v``, ``wv``)
        live for this call alone, so that the graph does not keep their autograd history.

    Raises:
        ValueError: if the pre functions leave ``q``, ``k`` or ``v`` unset.
    """
    written: dict[str, Tensor] = {}
    with g.local_scope():
        for function, nids in pre_pairs:
            g.apply_nodes(function, nids)
        propagate_attention(g, eids)
        for function, nids in post_pairs:
            names: list[str] = []
            g.apply_nodes(_listening(function, names), nids)
            written.update({name: g.ndata[name] for name in names})
    g.ndata.update(written)


def _listening(function: NodeFunction, names: list[str]) -> NodeFunction:
    """The same node function, which also notes the names of the fields it returns."""

    def noted(nodes: Any) -> dict[str, Tensor]:
        fields = function(nodes)
        names.extend(fields)
        return fields

    return noted


class MultiHeadAttention(nn.Module):
    """Projections around the core: M -> H heads of width D = M / H, and back.

    Query, key and value share one matrix product where they are taken from the same nodes. None of
    the four has an offset: one on the keys would cancel in the softmax and never be trained.

    Args:
        dim_model: M.
        h: number of heads H.
        dropout: probability of dropping a weight while training.
        kernel: as for :func:`attend`.

    Raises:
        ValueError: if ``dim_model`` is not divisible by ``h``.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, dim_model: int, h: int, dropout: float = 0.0, kernel: str = "auto"):
        super().__init__()
        if h < 1 or dim_model % h:
            raise ValueError(f"dim_model is {dim_model}, it is not divisible by h={h} heads")
        if kernel not in KERNELS:
            raise ValueError(f"kernel is {kernel!r}, the choices are {', '.join(KERNELS)}")
        self.h, self.dropout, self.kernel = h, dropout, kernel
        self.qkv = nn.Linear(dim_model, 3 * dim_model, bias=False)
        self.out = nn.Linear(dim_model, dim_model, bias=False)
        # Called with (edges, weights) at each use while `record_attention` listens.
        self.listener: Callable[[EdgeSet, Tensor], None] | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform, each of the four M x M matrices on its own."""
        for matrix in (*self.qkv.weight.chunk(3), self.out.weight):
            nn.init.xavier_uniform_(matrix)

    def project(self, x: Tensor, fields: str = "qkv") -> dict[str, Tensor]:
        """Query, key and value of nodes.

        Args:
            x: node features, ``(N, M)``.
            fields: which of them: neighbours out of ``"qkv"``.

        Returns:
            ``(N, H, D)`` for each field.

        Raises:
            ValueError: if ``fields`` is not a part of ``"qkv"``.
        """
        if not fields or fields not in "qkv":
            raise ValueError(f"fields is {fields!r}, it must be a part of 'qkv'")
        width = x.shape[-1]
        first = "qkv".index(fields)
        weight = self.qkv.weight[first * width : (first + len(fields)) * width]
        heads = nn.functional.linear(x, weight).unflatten(-1, (len(fields), self.h, -1))
        return dict(zip(fields, heads.unbind(1), strict=True))

    def attend(
        self, edges: EdgeSet, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """The core with this module's dropout and kernel: ``(N_dst, H, D)``."""
        options = {
            "bias": bias,
            "dropout": self.dropout if self.training else 0.0,
            # Decoding steps and user graphs have no blocks, whatever the model prefers.
            "kernel": "message" if edges.band is None else self.kernel,
        }
        if self.listener is None:
            return attend(edges, q, k, v, **options)
        wv, weights = attend(edges, q, k, v, **options, return_weights=True)
        self.listener(edges, weights)
        return wv

    def output(self, wv: Tensor) -> Tensor:
        """Join the heads: ``(N, H, D)`` -> ``(N, M)``."""
        return self.out(wv.flatten(-2))

    def forward(
        self,
        edges: EdgeSet,
        x: Tensor,
        source: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Attention of targets to sources.

        Args:
            edges: who attends to whom.
            x: features of the targets, ``(N_dst, M)``.
            source: features of the sources, ``(N_src, M)``; ``None``: the targets themselves.
            bias: added to the scores, ``(E, H)`` in edge order.

        Returns:
            ``(N_dst, M)``.
        """
        if source is None:
            fields = self.project(x)
        else:
            fields = self.project(x, "q") | self.project(source, "kv")
        return self.output(self.attend(edges, **fields, bias=bias))
