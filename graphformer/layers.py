"""What layers are made of, and the encoder and decoder layer as node functions.

A node function reads fields from ``nodes.data`` and returns new fields: DGL's node batches have
that form, and so has :class:`Rows`, which the models use, since a frame is not needed for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from .dropout import Dropout
from .edges import EdgeSet
from .multihead import MultiHeadAttention


class Nodes(Protocol):
    """What a node function reads: DGL's ``NodeBatch``, or :class:`Rows`."""

    @property
    def data(self) -> Mapping[str, Tensor]:
        """Fields by name."""


class Rows(NamedTuple):
    """Node features without a graph: ``data`` maps field names to ``(n, …)`` tensors."""

    data: Mapping[str, Tensor]


class FeedForward(nn.Module):
    """Two linear maps with ReLU and dropout between: M -> F -> M.

    Args:
        dim_model: M.
        dim_ff: inner width F.
        dropout: probability of dropping an inner unit while training.

    Source: Vaswani et al. 2017, equation 2.
    """

    def __init__(self, dim_model: int, dim_ff: int, dropout: float = 0.1):
        super().__init__()
        self.inner = nn.Linear(dim_model, dim_ff)
        self.outer = nn.Linear(dim_ff, dim_model)
        self.dropout = Dropout(dropout)
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, M)`` -> ``(n, M)``."""
        return self.outer(self.dropout(torch.relu(self.inner(x))))


class AttentionBlock(nn.Module):
    """Norm, attention, dropout, residual: one half of a layer.

    Args: as for :class:`EncoderLayer`.
    """

    def __init__(
        self, dim_model: int, h: int, dropout: float, attention_dropout: float, kernel: str
    ):
        super().__init__()
        self.norm = nn.LayerNorm(dim_model)
        self.attn = MultiHeadAttention(dim_model, h, attention_dropout, kernel)
        self.dropout = Dropout(dropout)

    def pre(self, x: Tensor, fields: str) -> dict[str, Tensor]:
        """Normalise ``(n, M)`` and project it to the ``fields``, ``(n, H, D)`` each."""
        return self.attn.project(self.norm(x), fields)

    def post(self, x: Tensor, wv: Tensor) -> Tensor:
        """Add what was attended to: ``(n, M)`` and ``(n, H, D)`` -> ``(n, M)``."""
        return x + self.dropout(self.attn.output(wv))


class FeedForwardBlock(nn.Module):
    """Norm, feed-forward, dropout, residual: the other half of a layer.

    Args: as for :class:`EncoderLayer`.
    """

    def __init__(self, dim_model: int, dim_ff: int, dropout: float):
        super().__init__()
        self.norm = nn.LayerNorm(dim_model)
        self.ff = FeedForward(dim_model, dim_ff, dropout)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, M)`` -> ``(n, M)``."""
        return x + self.dropout(self.ff(self.norm(x)))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each a pre-norm residual block ``x + f(norm(x))``.

    Args:
        dim_model: width M.
        dim_ff: width of the feed-forward part.
        h: heads H.
        dropout: on the outputs of both blocks and inside the feed-forward part.
        attention_dropout: on the attention weights.
        kernel: as for :func:`graphformer.attend`.

    Source: Vaswani et al. 2017, section 3.1, with the norm moved in front (Xiong et al. 2020).
    """

    def __init__(
        self,
        dim_model: int,
        dim_ff: int,
        h: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        kernel: str = "auto",
    ):
        super().__init__()
        self.self_block = AttentionBlock(dim_model, h, dropout, attention_dropout, kernel)
        self.ff_block = FeedForwardBlock(dim_model, dim_ff, dropout)

    def pre_func(self, nodes: Nodes, fields: str = "qkv") -> dict[str, Tensor]:
        """Normalise and project: ``x`` ``(n, M)`` -> the ``fields``, ``(n, H, D)`` each."""
        return self.self_block.pre(nodes.data["x"], fields)

    def post_func(self, nodes: Nodes) -> dict[str, Tensor]:
        """Both residual blocks: ``x`` ``(n, M)`` and ``wv`` ``(n, H, D)`` -> ``x`` ``(n, M)``."""
        return {"x": self.ff_block(self.self_block.post(nodes.data["x"], nodes.data["wv"]))}

    def forward(
        self, x: Tensor, fields: Mapping[str, Tensor], edges: EdgeSet, bias: Tensor | None = None
    ) -> Tensor:
        """One layer for the targets of an edge set.

        Args:
            x: features of the targets, ``(N_dst, M)``.
            fields: from :meth:`pre_func`: ``q`` of the targets, ``k`` and ``v`` of the sources.
            edges: who attends to whom.
            bias: added to the scores, ``(E, H)``.

        Returns:
            New features of the targets, ``(N_dst, M)``.
        """
        wv = self.self_block.attn.attend(edges, **fields, bias=bias)
        return self.post_func(Rows({"x": x, "wv": wv}))["x"]


class Memory(NamedTuple):
    """What a decoder layer sees of the encoder: ``k``, ``v`` ``(N_src, H, D)``, edges, bias."""

    edges: EdgeSet
    k: Tensor
    v: Tensor
    bias: Tensor | None = None


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward, each a pre-norm residual block.

    The two attentions have weights of their own. Args: as for :class:`EncoderLayer`.

    Source: Vaswani et al. 2017, section 3.1, with the norm moved in front (Xiong et al. 2020).
    """

    def __init__(
        self,
        dim_model: int,
        dim_ff: int,
        h: int,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        kernel: str = "auto",
    ):
        super().__init__()
        self.self_block = AttentionBlock(dim_model, h, dropout, attention_dropout, kernel)
        self.cross_block = AttentionBlock(dim_model, h, dropout, attention_dropout, kernel)
        self.ff_block = FeedForwardBlock(dim_model, dim_ff, dropout)

    def pre_func(
        self, nodes: Nodes, fields: str = "qkv", attn: Literal["self", "cross"] = "self"
    ) -> dict[str, Tensor]:
        """Normalise and project: ``x`` ``(n, M)`` -> the ``fields``, ``(n, H, D)`` each.

        For cross-attention the decoder's nodes give ``"q"`` and the encoder's ``"kv"``; the latter
        are not normalised again, since the encoder ends with its norm.
        """
        block = self.self_block if attn == "self" else self.cross_block
        if attn == "cross" and "q" not in fields:
            return block.attn.project(nodes.data["x"], fields)
        return block.pre(nodes.data["x"], fields)

    def post_func(self, nodes: Nodes, attn: Literal["self", "cross"] = "self") -> dict[str, Tensor]:
        """Residual block of that attention; after cross-attention also the feed-forward block.

        ``x`` ``(n, M)`` and ``wv`` ``(n, H, D)`` -> ``x`` ``(n, M)``.
        """
        x, wv = nodes.data["x"], nodes.data["wv"]
        if attn == "self":
            return {"x": self.self_block.post(x, wv)}
        return {"x": self.ff_block(self.cross_block.post(x, wv))}

    def forward(
        self,
        x: Tensor,
        fields: Mapping[str, Tensor],
        edges: EdgeSet,
        memory: Memory,
        bias: Tensor | None = None,
    ) -> Tensor:
        """One layer for the targets of an edge set.

        Args:
            x: features of the targets, ``(N_dst, M)``.
            fields: from :meth:`pre_func`: ``q`` of the targets, ``k`` and ``v`` of the sources.
            edges: which decoder nodes attend to which.
            memory: the encoder's side.
            bias: added to the scores of ``edges``, ``(E, H)``.

        Returns:
            New features of the targets, ``(N_dst, M)``.
        """
        wv = self.self_block.attn.attend(edges, **fields, bias=bias)
        x = self.post_func(Rows({"x": x, "wv": wv}))["x"]
        q = self.pre_func(Rows({"x": x}), "q", attn="cross")["q"]
        wv = self.cross_block.attn.attend(memory.edges, q, memory.k, memory.v, memory.bias)
        return self.post_func(Rows({"x": x, "wv": wv}), attn="cross")["x"]
