"""Adaptive computation time: when a node stops, and what its steps are worth.

No graph and no layer in here. The equations are Graves 2016, section 2, as Dehghani et al. 2018
apply them to each position of a Universal Transformer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .limits import check_counts


class HaltingRule(NamedTuple):
    """The settings of adaptive depth; see :func:`graphformer.make_model`.

    Raises:
        ValueError: from :meth:`check`, if a value is out of range.
    """

    max_depth: int = 8
    threshold: float = 0.99
    act_loss_weight: float = 0.01
    bias: float = 1.0

    def check(self) -> HaltingRule:
        """The rule itself, if its values are in range."""
        check_counts(max_depth=self.max_depth)
        if not 0.0 < self.threshold <= 1.0:
            raise ValueError(f"threshold is {self.threshold}, it must lie in (0, 1]")
        if not (self.act_loss_weight >= 0 and math.isfinite(self.act_loss_weight)):
            raise ValueError(
                f"act_loss_weight is {self.act_loss_weight}, at least 0 and finite is needed"
            )
        if not math.isfinite(self.bias):
            raise ValueError(f"halting_bias is {self.bias}, a finite number is needed")
        return self


DEFAULT_RULE = HaltingRule()


class HaltingUnit(nn.Module):
    """Probability of halting after this step: ``p = sigmoid(W x + b)``.

    Args:
        dim_model: width M of the features.
        bias: start value of b; the larger, the earlier nodes halt before anything is learnt.

    Source: Graves 2016, equation 6.
    """

    def __init__(self, dim_model: int, bias: float = 1.0):
        super().__init__()
        self.linear = nn.Linear(dim_model, 1)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Features ``x`` ``(n, M)`` -> probabilities ``(n, 1)``, each in (0, 1)."""
        return torch.sigmoid(self.linear(x))


class Halting:
    """The ledger of one forward pass: which nodes go on, and the weighted sum of their states.

    After step t a node with halting probabilities p_1 ... p_t goes on while their sum is below the
    threshold and t is below the most steps allowed. When it halts, its last step gets the
    remainder ``r = 1 - (p_1 + ... + p_(t-1))`` in place of p_t, so the weights sum to 1.

    Args:
        num_nodes: N.
        threshold: ``1 - epsilon`` in the paper's terms, in (0, 1].
        max_depth: most steps, at least 1.
        device: where the ledger lies.

    Raises:
        ValueError: if ``threshold`` or ``max_depth`` is out of range.

    Source: Graves 2016, equations 5 to 13.

    Example:
        >>> halting = Halting(2, threshold=0.9, max_depth=5)
        >>> halting.update(torch.tensor([[0.95], [0.5]]), torch.tensor([[1.0], [2.0]])).tolist()
        [True, False]
        >>> halting.active.tolist()
        [False, True]
    """

    def __init__(
        self,
        num_nodes: int,
        threshold: float = 0.99,
        max_depth: int = 8,
        device: torch.device | str = "cpu",
    ):
        HaltingRule(max_depth, threshold).check()
        self.threshold, self.max_depth = threshold, max_depth
        self.step = 0
        self.ids = torch.arange(num_nodes, device=device)  # of the active nodes, ascending
        self._used = torch.zeros(num_nodes, 1, device=device)  # sum of p, active nodes only
        self._state: Tensor | None = None  # weighted sum, active nodes only
        # What halted nodes left behind, a piece for each step, in the order of halting.
        self._done: list[tuple[Tensor, Tensor, Tensor]] = []
        self._steps = torch.zeros(num_nodes, dtype=torch.long, device=device)

    @property
    def active(self) -> Tensor:
        """Which nodes go on, ``(N,)`` bool."""
        flags = torch.zeros(len(self._steps), dtype=torch.bool, device=self._steps.device)
        flags[self.ids] = True
        return flags

    @property
    def steps(self) -> Tensor:
        """Steps N_i that each node has taken so far, ``(N,)`` int64."""
        return self._steps

    def update(self, p: Tensor, x: Tensor) -> Tensor:
        """Enter one more step of the active nodes.

        Args:
            p: their halting probabilities, ``(n, 1)``.
            x: their new states, ``(n, M)``, rows in the order of :attr:`ids`.

        Returns:
            Which of the n nodes halted with this step, ``(n,)`` bool.

        Raises:
            ValueError: if the rows are not those of the active nodes.
        """
        if len(p) != len(self.ids) or len(x) != len(self.ids):
            raise ValueError(
                f"{len(p)} probabilities and {len(x)} states for {len(self.ids)} nodes"
            )
        self.step += 1
        self._steps[self.ids] += 1
        used = self._used + p
        halted = (used >= self.threshold).squeeze(1)
        if self.step >= self.max_depth:
            halted = torch.ones_like(halted)
        remainder = 1.0 - self._used.to(used.dtype)  # at step 1 still in the default dtype
        weight = torch.where(halted.unsqueeze(1), remainder, p)
        state = weight * x if self._state is None else self._state + weight * x
        # Summed in 32 bits at least, handed out in the precision of the states.
        self._done.append((self.ids[halted], state[halted].to(x.dtype), remainder[halted]))
        going = ~halted
        self.ids, self._used, self._state = self.ids[going], used[going], state[going]
        return halted

    def result(self) -> Tensor:
        """The weighted sum of each node's states, ``(N, M)``.

        Raises:
            ValueError: if a node is still active.
        """
        return self._collect(1)

    def remainders(self) -> Tensor:
        """The remainder r_i of each node, ``(N,)``, with its gradient."""
        return self._collect(2).squeeze(1)

    def ponder(self) -> Tensor:
        """Ponder cost ``N_i + r_i`` of each node, ``(N,)``; N_i is a constant for the gradient.

        Source: Graves 2016, equations 9, 10 and 14.
        """
        return self._steps + self.remainders()

    def _collect(self, field: int) -> Tensor:
        if len(self.ids):
            raise ValueError(f"{len(self.ids)} of {len(self._steps)} nodes have not halted yet")
        if not self._done:
            raise ValueError("no node has taken a step yet")
        order = torch.cat([piece[0] for piece in self._done])
        return torch.cat([piece[field] for piece in self._done])[torch.argsort(order)]


class Ponder:
    """How many steps nodes took: what :attr:`UTransformer.ponder` holds after a forward pass.

    Args:
        steps: steps of each node by side, such as ``{"enc": (Σn,), "dec": (T,)}`` int64.
        max_depth: most steps that a node can take.

    Two of them add up to the statistics of both batches, so ``sum(ponders, start=Ponder.none(8))``
    is that of an epoch.

    Example:
        >>> ponder = Ponder({"enc": torch.tensor([1, 3])}, max_depth=3)
        >>> ponder.histogram("enc").tolist(), ponder.entered("enc").tolist(), ponder.mean("enc")
        ([1, 0, 1], [1.0, 0.5, 0.5], 2.0)
    """

    def __init__(self, steps: Mapping[str, Tensor], max_depth: int):
        self.steps = dict(steps)
        self.max_depth = max_depth

    @classmethod
    def none(cls, max_depth: int) -> Ponder:
        """Statistics of no nodes with at most ``max_depth`` steps, to begin a sum with."""
        return cls({}, max_depth)

    def __add__(self, other: Ponder) -> Ponder:
        if self.max_depth != other.max_depth:
            raise ValueError(f"max_depth differs: {self.max_depth} and {other.max_depth}")
        sides = {**self.steps, **other.steps}
        joined = {
            side: torch.cat([part.steps[side] for part in (self, other) if side in part.steps])
            for side in sides
        }
        return Ponder(joined, self.max_depth)

    def histogram(self, side: str) -> Tensor:
        """Nodes of a ``side`` that took exactly 1, 2, ... steps, ``(max_depth,)`` int64."""
        return torch.bincount(self.steps[side], minlength=self.max_depth + 1)[1:]

    def entered(self, side: str) -> Tensor:
        """Share of the nodes of a ``side`` that entered step 1, 2, ..., ``(max_depth,)``."""
        counts = self.histogram(side)
        return counts.flip(0).cumsum(0).flip(0) / counts.sum()

    def mean(self, side: str) -> float:
        """Mean number of steps of a node of a ``side``, ``"enc"`` or ``"dec"``."""
        return float(self.steps[side].double().mean())
