"""Batches as training sees them, and the loss of a model over a set of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from graphformer.loss import LabelSmoothing
from graphformer.trainconfig import PRECISIONS

__all__ = ["Batches", "Evaluation", "evaluate", "forward"]


class Batch(Protocol):
    """What training needs of a batch; a ``GraphBatch`` has it."""

    @property
    def tgt_y(self) -> Tensor:
        """Labels ``(T,)`` int64."""

    def to(self, device: Any) -> Batch:
        """The same batch on another device."""


@dataclass(frozen=True)
class Batches:
    """A source of batches of which any can be built without building those before it.

    Args:
        plan: Function of the epoch (from 1) to its batches, each a list of sample numbers. It
            must depend on nothing but the epoch, so that training can go on in the middle.
        collate: Function of such a list to the batch.

    Example:
        >>> batches = Batches(lambda epoch: [[0, 1], [2]], collate=list)
        >>> batches.collate(batches.plan(1)[0])
        [0, 1]
    """

    plan: Callable[[int], Sequence[Sequence[int]]]
    collate: Callable[[Sequence[int]], Any]


class Evaluation(NamedTuple):
    """Means over a set of batches, dropout off.

    Attributes:
        loss: Cross-entropy without smoothing, nats a target token; ``exp(loss)`` is perplexity.
        accuracy: Share of target tokens (0 to 1) that the model ranks first when it is given
            the right tokens before them.
        act_loss: Weighted ponder cost, mean over the batches by their number of tokens.
        tokens: Number of target tokens.
    """

    loss: float
    accuracy: float
    act_loss: float
    tokens: int


def forward(model: nn.Module, batch: Any, precision: str, device: torch.device) -> Any:
    """The model's output for a batch, computed in a chosen number format.

    Args:
        model: Takes a batch and returns ``(logits, act_loss)``.
        batch: Already on ``device``.
        precision: ``float32`` or ``bfloat16``.
        device: Where the model is.
    """
    dtype = PRECISIONS[precision]
    with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        return model(batch)


def evaluate(
    model: nn.Module,
    batches: Batches,
    *,
    criterion: LabelSmoothing | None = None,
    precision: str = "float32",
    device: torch.device | str = "cpu",
) -> Evaluation:
    """Loss and accuracy of a model over one pass through ``batches`` (its epoch 1).

    The model is put back into the mode, training or not, in which it was.

    Args:
        model: Takes a batch and returns ``(logits, act_loss)``.
        batches: All of them are used.
        criterion: The loss; plain cross-entropy if not given.
        precision: ``float32`` or ``bfloat16``.
        device: Where the model is.

    Raises:
        ValueError: If the batches hold no target token.
    """
    device = torch.device(device)
    criterion = criterion or LabelSmoothing(0.0)
    was_training = model.training
    model.eval()
    nats, act_loss, correct, tokens = 0.0, 0.0, 0, 0
    try:
        with torch.no_grad():  # not inference mode: index templates made here are kept for training
            for indices in batches.plan(1):
                batch = batches.collate(indices).to(device)
                output = forward(model, batch, precision, device)
                score = criterion(output.logits, batch.tgt_y)
                nats += score.nats.item()
                act_loss += float(output.act_loss) * score.tokens
                correct += score.correct
                tokens += score.tokens
    finally:
        model.train(was_training)
    if not tokens:
        raise ValueError("there is nothing to evaluate: the batches hold no target token")
    return Evaluation(nats / tokens, correct / tokens, act_loss / tokens, tokens)
