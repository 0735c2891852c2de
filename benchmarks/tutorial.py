"""Candidate (b): a Transformer as DGL's tutorial has it, written anew from its formulas.

Scores come from Python functions over edges; the exponential is clamped instead of shifted; every
call names the edges by their ids in one large graph; query, key and value are projected apart; the
loss compares log-probabilities with a smoothed distribution that is written out.

    score = exp(clamp(q . k / sqrt(D), -5, 5)),  wv = sum of score * v,  z = sum of score,  wv / z
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import dgl
import dgl.function as fn
import torch
from torch import Tensor, nn

from graphformer.embeddings import Embeddings, Sinusoids

from .data import PAD, Pair
from .ours import Ours
from .sizes import Sizes

CLAMP = 5.0


def dot_product(edges: dgl.udf.EdgeBatch) -> dict[str, Tensor]:
    """``q . k`` of each edge and head, ``(E, H, 1)``."""
    return {"score": (edges.src["k"] * edges.dst["q"]).sum(-1, keepdim=True)}


def clamped_exponential(edges: dgl.udf.EdgeBatch) -> dict[str, Tensor]:
    """Exponential of the scaled score, which is kept in a range where it cannot overflow."""
    scale = edges.src["k"].shape[-1] ** 0.5
    return {"score": torch.exp((edges.data["score"] / scale).clamp(-CLAMP, CLAMP))}


def propagate(g: dgl.DGLGraph, eids: Tensor) -> None:
    """Attention along some edges of the graph; fields ``q``, ``k``, ``v`` to ``wv`` and ``z``."""
    g.apply_edges(dot_product, eids)
    g.apply_edges(clamped_exponential, eids)
    g.send_and_recv(eids, fn.u_mul_e("v", "score", "v"), fn.sum("v", "wv"))
    g.send_and_recv(eids, fn.copy_e("score", "score"), fn.sum("score", "z"))


class Attention(nn.Module):
    """Four projections, a norm before and a residual after."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.parts = nn.ModuleDict({f: nn.Linear(width, width, bias=False) for f in "qkv"})
        self.out = nn.Linear(width, width, bias=False)

    def pre(self, fields: str, normed: bool = True) -> Callable:
        """Node function: state to the fields."""

        def project(nodes: dgl.udf.NodeBatch) -> dict[str, Tensor]:
            x = self.norm(nodes.data["x"]) if normed else nodes.data["x"]
            return {f: self.parts[f](x).unflatten(-1, (self.heads, -1)) for f in fields}

        return project

    def post(self, nodes: dgl.udf.NodeBatch) -> dict[str, Tensor]:
        """Node function: what was attended to, added to the state."""
        wv = (nodes.data["wv"] / nodes.data["z"]).flatten(-2)
        return {"x": nodes.data["x"] + self.dropout(self.out(wv))}


class FeedForward(nn.Module):
    """Norm, two linear maps, residual."""

    def __init__(self, sizes: Sizes, dropout: float):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(sizes.width), nn.Dropout(dropout)
        self.inner = nn.Linear(sizes.width, sizes.ff)
        self.outer = nn.Linear(sizes.ff, sizes.width)
        self.hidden = nn.Dropout(dropout)

    def post(self, nodes: dgl.udf.NodeBatch) -> dict[str, Tensor]:
        """Node function: the state's own part."""
        x = nodes.data["x"]
        hidden = self.hidden(torch.relu(self.inner(self.norm(x))))
        return {"x": x + self.dropout(self.outer(hidden))}


class Tutorial(nn.Module):
    """The model, and its own way from ids to a loss."""

    def __init__(self, sizes: Sizes, dropout: float = 0.1):
        super().__init__()
        self.embed = Embeddings(sizes.vocabulary, sizes.width)
        self.positions, self.dropout = Sinusoids(sizes.width), nn.Dropout(dropout)

        def attention() -> nn.ModuleList:
            made = (Attention(sizes.width, sizes.heads, dropout) for _ in range(sizes.layers))
            return nn.ModuleList(made)

        def feed_forward() -> nn.ModuleList:
            return nn.ModuleList(FeedForward(sizes, dropout) for _ in range(sizes.layers))

        self.enc, self.enc_ff = attention(), feed_forward()
        self.dec, self.cross, self.dec_ff = attention(), attention(), feed_forward()
        self.enc_norm, self.dec_norm = nn.LayerNorm(sizes.width), nn.LayerNorm(sizes.width)

    def forward(self, g: dgl.DGLGraph, batch: object) -> Tensor:
        """Log-probabilities ``(T, V)``."""
        nids, eids = batch.nids, batch.eids
        places = ((nids["enc"], batch.src), (nids["dec"], batch.tgt))
        for ids, (tokens, positions) in places:
            g.nodes[ids].data["x"] = self.dropout(self.embed(tokens) + self.positions(positions))
        for block, ff in zip(self.enc, self.enc_ff, strict=True):
            g.apply_nodes(block.pre("qkv"), nids["enc"])
            propagate(g, eids["ee"])
            g.apply_nodes(block.post, nids["enc"])
            g.apply_nodes(ff.post, nids["enc"])
        g.apply_nodes(lambda nodes: {"x": self.enc_norm(nodes.data["x"])}, nids["enc"])
        for block, cross, ff in zip(self.dec, self.cross, self.dec_ff, strict=True):
            g.apply_nodes(block.pre("qkv"), nids["dec"])
            propagate(g, eids["dd"])
            g.apply_nodes(block.post, nids["dec"])
            g.apply_nodes(cross.pre("q"), nids["dec"])
            g.apply_nodes(cross.pre("kv", normed=False), nids["enc"])
            propagate(g, eids["ed"])
            g.apply_nodes(cross.post, nids["dec"])
            g.apply_nodes(ff.post, nids["dec"])
        x = self.dec_norm(g.ndata["x"][nids["dec"]])
        return torch.log_softmax(x @ self.embed.weight.T, -1)

    def logits(self, batch: Sequence[Pair], pool: Callable) -> Tensor:
        """``(T, V)``, here log-probabilities."""
        made = pool(*zip(*batch, strict=True))
        return self(made.g, made)

    def copy_from(self, ours: Ours) -> Tutorial:
        """Take over the weights, to show that both compute the same."""
        model = ours.model
        with torch.no_grad():
            self.embed.load_state_dict(model.tgt_embed.state_dict())
            self.enc_norm.load_state_dict(model.enc_norm.state_dict())
            self.dec_norm.load_state_dict(model.dec_norm.state_dict())
            for i, theirs in enumerate(model.enc_layers):
                self._copy([(self.enc[i], theirs.self_block)], self.enc_ff[i], theirs.ff_block)
            for i, theirs in enumerate(model.dec_layers):
                blocks = [(self.dec[i], theirs.self_block), (self.cross[i], theirs.cross_block)]
                self._copy(blocks, self.dec_ff[i], theirs.ff_block)
        return self

    @staticmethod
    def _copy(blocks: list, ff: FeedForward, theirs: nn.Module) -> None:
        for mine, block in blocks:
            mine.norm.load_state_dict(block.norm.state_dict())
            for field, matrix in zip("qkv", block.attn.qkv.weight.chunk(3), strict=True):
                mine.parts[field].weight.copy_(matrix)
            mine.out.weight.copy_(block.attn.out.weight)
        ff.norm.load_state_dict(theirs.norm.state_dict())
        ff.inner.load_state_dict(theirs.ff.inner.state_dict())
        ff.outer.load_state_dict(theirs.ff.outer.state_dict())


class TutorialTraining(nn.Module):
    """The model with batches of graphs and the smoothed loss written out."""

    def __init__(self, sizes: Sizes, pool: Callable, dropout: float = 0.1):
        super().__init__()
        self.net, self.pool = Tutorial(sizes, dropout), pool

    def loss(self, batch: Sequence[Pair]) -> Tensor:
        """Mean over the target tokens of the divergence from smoothed one-hot targets."""
        made = self.pool(*zip(*batch, strict=True))
        log_p = self.net(made.g, made)
        vocabulary = log_p.shape[1]
        target = torch.full_like(log_p, 0.1 / (vocabulary - 2))
        target.scatter_(1, made.tgt_y.unsqueeze(1), 0.9)
        target[:, PAD] = 0
        return nn.functional.kl_div(log_p, target, reduction="sum") / len(log_p)
