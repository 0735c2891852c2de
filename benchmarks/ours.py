"""A training step of graphformer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import graphformer as gf
from graphformer.loss import LabelSmoothing

from .data import Pair
from .sizes import Sizes


class Ours(nn.Module):
    """The model, and its own way from ids to a loss.

    Args:
        sizes: of the model.
        dropout: as everywhere in the model but on attention weights, where it is 0.
        options: further ones of :func:`graphformer.make_model`, in place of those from ``sizes``.
    """

    def __init__(self, sizes: Sizes, dropout: float = 0.1, **options: object):
        super().__init__()
        usual = {
            "N": sizes.layers,
            "dim_model": sizes.width,
            "dim_ff": sizes.ff,
            "h": sizes.heads,
            "dropout": dropout,
        }
        self.model = gf.make_model(sizes.vocabulary, sizes.vocabulary, **{**usual, **options})
        self.pool = gf.GraphPool()
        self.criterion = LabelSmoothing(0.1)

    def logits(self, batch: Sequence[Pair]) -> Tensor:
        """``(T, V)``: sample by sample, as everyone returns them here."""
        return self.model(self.pool(*zip(*batch, strict=True))).logits

    def loss(self, batch: Sequence[Pair]) -> Tensor:
        """Mean over the target tokens."""
        graph = self.pool(*zip(*batch, strict=True))
        output = self.model(graph)
        score = self.criterion(output.logits, graph.tgt_y)
        return score.nats / score.tokens + output.act_loss


class Step:
    """Batch, forward, loss, backward and update with fused Adam: the same for every model."""

    def __init__(self, model: nn.Module, batches: Sequence[Sequence[Pair]]):
        self.model, self.batches = model.train(), batches
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def __call__(self, run: int) -> None:
        """One step with the batch of that run."""
        self.optimizer.zero_grad()
        self.model.loss(self.batches[run]).backward()
        self.optimizer.step()
