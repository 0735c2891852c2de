"""Label-smoothed cross-entropy over the target nodes of a batch.

Letters: **T** target nodes, **V** vocabulary.

The smoothed target of a node with label ``y`` is the distribution

    q(y) = 1 - smoothing,    q(c) = smoothing / (K - 1) for the other real classes,

where the *real* classes are all ids but the excluded ones (``<sos>`` and ``<pad>``, which are
never labels) and K is their number. The loss is the Kullback-Leibler divergence KL(q || p) from
the model's softmax p, so its minimum is 0. Neither q nor a one-hot matrix is ever built:

    KL = -H(q) - (1 - smoothing - u) * log p(y) - u * sum over real c of log p(c),
    u = smoothing / (K - 1).

Source: Szegedy et al. 2016, "Rethinking the Inception Architecture", section 7 (smoothing);
Vaswani et al. 2017, "Attention Is All You Need", section 5.4 (its use for translation).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["LabelSmoothing", "Score"]

#: Logits handled at a time: 1 MB of float32 stays in a core's cache between the passes over them.
_CHUNK_ELEMENTS = 1 << 18


class Score(NamedTuple):
    """Loss and counts of one batch; sums, so that batches can be added before dividing.

    Attributes:
        nats: Sum of the loss over the tokens that count, in nats; a scalar with gradient.
        tokens: Number of labels that are not padding.
        correct: Number of those whose logit is strictly above every other one.
    """

    nats: Tensor
    tokens: int
    correct: int


class _Target(NamedTuple):
    """The smoothed target in closed form: what is subtracted from the softmax, and -H(q)."""

    peak: float  # weight of log p(y) beyond the floor
    floor: float  # weight of log p(c) of every real class
    offset: float  # -H(q), nats a token
    real: tuple[tuple[int, int], ...]  # real classes as half-open ranges of ids


@dataclass(frozen=True)
class LabelSmoothing:
    """Label-smoothed cross-entropy in its KL form, see the module's text for the formula.

    Memory beyond the logits is one array of their size, the gradient; values and gradients are
    computed in float32 at least, whatever the type of the logits.

    Args:
        smoothing: Probability taken from the true class, 0 <= smoothing < 1. With 0 the loss is
            plain cross-entropy. Where only one real class exists there is none to smooth over
            and the loss is plain cross-entropy as well.
        padding: Label that is neutral: it adds nothing to the sum, the count or the gradient.
        excluded: Ids that are no real classes (``<sos>``, ``<pad>``): they get no probability
            from the smoothing. Ids beyond the vocabulary are ignored.

    Raises:
        ValueError: If ``smoothing`` is outside [0, 1).

    Example:
        >>> score = LabelSmoothing(0.0)(torch.zeros(2, 8), torch.tensor([4, 2]))
        >>> score.tokens, round(score.nats.item(), 4)
        (1, 2.0794)
    """

    smoothing: float = 0.1
    padding: int = 2
    excluded: tuple[int, ...] = (0, 2)

    def __post_init__(self) -> None:
        if not 0.0 <= self.smoothing < 1.0:
            raise ValueError(f"smoothing must be at least 0 and below 1, got {self.smoothing}")

    def count(self, labels: Tensor) -> int:
        """Number of labels ``(T,)`` that are not padding."""
        return int((labels != self.padding).sum())

    def __call__(self, logits: Tensor, labels: Tensor) -> Score:
        """Score the logits ``(T, V)`` against the labels ``(T,)`` int64.

        Raises:
            ValueError: If the shapes do not fit, or a label is outside the vocabulary or
                excluded.
        """
        if logits.dim() != 2 or labels.shape != logits.shape[:1]:
            raise ValueError(
                f"logits must be (T, V) and labels (T,), got {tuple(logits.shape)} and "
                f"{tuple(labels.shape)}"
            )
        vocabulary = logits.shape[1]
        keep = labels != self.padding
        self._check_labels(labels, keep, vocabulary)
        target = self._target(vocabulary)
        nats, correct = _SmoothedLoss.apply(logits, labels.where(keep, 0), keep, target)
        return Score(nats, int(keep.sum()), int(correct))

    def _check_labels(self, labels: Tensor, keep: Tensor, vocabulary: int) -> None:
        never = torch.tensor(self.excluded, dtype=labels.dtype, device=labels.device)
        bad = (labels < 0) | (labels >= vocabulary) | torch.isin(labels, never)
        bad &= keep
        if bad.any():
            node = int(bad.nonzero()[0])
            raise ValueError(
                f"label {int(labels[node])} of target node {node} must be an id below "
                f"{vocabulary} and none of {list(self.excluded)}"
            )

    def _target(self, vocabulary: int) -> _Target:
        excluded = sorted({c for c in self.excluded if 0 <= c < vocabulary})
        others = vocabulary - len(excluded) - 1
        smoothing = self.smoothing if others > 0 else 0.0
        floor = smoothing / others if smoothing else 0.0
        confidence = 1.0 - smoothing
        offset = confidence * math.log(confidence) + (smoothing * math.log(floor) if floor else 0)
        edges = [-1, *excluded, vocabulary]
        real = tuple((a + 1, b) for a, b in pairwise(edges) if a + 1 < b)
        return _Target(confidence - floor, floor, offset, real)


def _chunks(logits: Tensor) -> Iterator[slice]:
    """Slices of rows whose logits fit the cache together."""
    rows = max(1, _CHUNK_ELEMENTS // max(1, logits.shape[1]))
    return (slice(start, start + rows) for start in range(0, len(logits), rows))


def _working_dtype(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


class _SmoothedLoss(torch.autograd.Function):
    """Closed-form loss a few rows at a time; the softmax is recomputed for the gradient.

    The work is bound by memory: keeping (T, V) log-probabilities for the backward pass costs
    more than computing them again while the rows are in the cache.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, keep: Tensor, target: _Target
    ) -> tuple[Tensor, Tensor]:
        dtype = _working_dtype(logits)
        nats = torch.zeros((), dtype=torch.float64, device=logits.device)
        correct = torch.zeros((), dtype=torch.int64, device=logits.device)
        for rows in _chunks(logits):
            log_p = torch.log_softmax(logits[rows], dim=1, dtype=dtype)  # (rows, V)
            column = labels[rows].unsqueeze(1)
            true = log_p.gather(1, column).squeeze(1)
            loss = target.offset - target.peak * true
            if target.floor:  # 0 * -inf must not turn a masked class into NaN
                for start, stop in target.real:
                    loss -= target.floor * log_p[:, start:stop].sum(dim=1)
            nats += loss.where(keep[rows], 0.0).sum(dtype=torch.float64)
            rival = log_p.scatter_(1, column, -math.inf).amax(dim=1)
            correct += ((true > rival) & keep[rows]).sum()
        ctx.save_for_backward(logits, labels, keep)
        ctx.target = target
        ctx.padded = not bool(keep.all())
        ctx.mark_non_differentiable(correct)
        return nats.to(dtype), correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _correct: Any) -> tuple[Tensor | None, ...]:
        logits, labels, keep = ctx.saved_tensors
        target: _Target = ctx.target
        dtype = _working_dtype(logits)
        result = torch.empty_like(logits)
        for rows in _chunks(logits):
            # gradient = softmax - q, made in place where it is wanted if the types allow it
            out = result[rows] if result.dtype == dtype else None
            part = torch.softmax(logits[rows], dim=1, dtype=dtype, out=out)  # (rows, V)
            if target.floor:
                for start, stop in target.real:
                    part[:, start:stop] -= target.floor
            column = labels[rows].unsqueeze(1)
            part.scatter_add_(1, column, part.new_full(column.shape, -target.peak))
            part *= grad
            if ctx.padded:
                part.masked_fill_(~keep[rows].unsqueeze(1), 0.0)
            if out is None:
                result[rows] = part
        return result, None, None, None
