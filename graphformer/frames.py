"""Attention on a graph's frames, as the tutorial reads it; both functions go through the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import dgl
from torch import Tensor

from .attention import attend
from .edges import EdgeSet

NodeFunction = Callable[[Any], dict[str, Tensor]]


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
        ``g.ndata["wv"]``, ``(N, H, D_v)``, normalised. The whole column is new: it is zero for
        nodes that none of these edges enters, whatever an earlier call left there.

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
    src, dst = g.find_edges(eids.to(g.idtype))
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
    # A copy with frames of its own rather than `local_scope`, which an error would leave open.
    local = g.local_var()
    for function, nids in pre_pairs:
        local.apply_nodes(function, nids)
    propagate_attention(local, eids)
    for function, nids in post_pairs:
        names: list[str] = []
        local.apply_nodes(_listening(function, names), nids)
        written.update({name: local.ndata[name] for name in names})
    g.ndata.update(written)


def _listening(function: NodeFunction, names: list[str]) -> NodeFunction:
    """The same node function, which also notes the names of the fields it returns."""

    def noted(nodes: Any) -> dict[str, Tensor]:
        fields = function(nodes)
        names.extend(fields)
        return fields

    return noted
