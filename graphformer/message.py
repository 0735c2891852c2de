"""The message kernel: attention as message passing. This file is the definition.

For each edge i -> j and head a (Vaswani et al. 2017, equation 1, one term for each edge):

    score_ij = q_j . k_i / sqrt(D) + bias_ij
    w_ij     = softmax of score_ij over the in-edges of j
    out_j    = sum over i of dropout(w_ij) * v_i
"""

from __future__ import annotations

import dgl
import dgl.function as fn
import torch
from torch import Tensor

from .dropout import dropout as drop


def message_attention(
    g: dgl.DGLGraph,
    ends: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    """Attention over the edges of any DGL graph, by DGL's built-in message functions.

    Args:
        g: graph with one edge type.
        ends: queries ``(N_dst, H, D)``, keys ``(N_src, H, D)`` and values ``(N_src, H, D_v)``.
        bias: added to the scores, ``(E, H)`` in edge order.
        dropout: probability of dropping a weight.

    Returns:
        Sums ``(N_dst, H, D_v)``, zero for nodes without in-edges, and the weights ``(E, H)``.
    """
    q, k, v = ends
    # Columns of its own: one that outlived the call would keep the autograd history. Not
    # `local_scope`, which an error or an interrupt leaves open.
    g = g.local_var()
    g.dstdata["q"] = q * q.shape[-1] ** -0.5
    g.srcdata["k"], g.srcdata["v"] = k, v
    # ----------------------------------------------------------- the three lines of attention
    g.apply_edges(fn.u_dot_v("k", "q", "score"))  # (E, H, 1)
    g.edata["w"] = _edge_softmax(g, bias)  # (E, H, 1)
    if dropout:
        g.edata["w"] = drop(g.edata["w"], dropout)
    g.update_all(fn.u_mul_e("v", "w", "m"), fn.sum("m", "wv"))  # (N_dst, H, D_v)
    # ---------------------------------------------------------------------------------------
    return g.dstdata["wv"], g.edata["w"].squeeze(-1)


def _edge_softmax(g: dgl.DGLGraph, bias: Tensor | None) -> Tensor:
    """Softmax of the column ``score`` over the in-edges of each node, ``(E, H, 1)``."""
    score = g.edata["score"]
    if bias is not None:
        score = score + bias.unsqueeze(-1)
    # The maximum is a constant for the gradient, since a softmax ignores shifts.
    g.edata["score"] = score.detach()
    g.update_all(fn.copy_e("score", "m"), fn.max("m", "max"))
    g.edata["score"] = score
    g.apply_edges(fn.e_sub_v("score", "max", "shifted"))
    g.edata["exp"] = torch.exp(g.edata["shifted"])
    g.update_all(fn.copy_e("exp", "m"), fn.sum("m", "z"))
    # At least 1, the share of the maximum; a node without in-edges has 0, which would make the
    # gradient of the division 0 / 0.
    g.dstdata["z"] = g.dstdata["z"].clamp(min=1.0)
    g.apply_edges(fn.e_div_v("exp", "z", "w"))
    return g.edata["w"]
