"""Tokens and positions as vectors."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


def sinusoid(positions: Tensor, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Sinusoidal code of integer positions.

    ``code[2i] = sin(pos / 10000^(2i / dim))`` and ``code[2i + 1]`` the cosine of the same angle.
    An odd ``dim`` ends with a sine.

    Args:
        positions: ``(n,)`` int64.
        dim: width of the code.
        dtype: of the result; angles are computed in float64.

    Returns:
        ``(n, dim)``.

    Source: Vaswani et al. 2017, section 3.5.
    """
    even = torch.arange(0, dim, 2, dtype=torch.float64, device=positions.device)
    angles = positions.double().unsqueeze(1) * torch.exp(even * (-math.log(10000.0) / dim))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :dim].to(dtype)


class Sinusoids(nn.Module):
    """A table of :func:`sinusoid` that grows as longer samples come; not part of the weights.

    Args:
        dim_model: width M.
    """

    def __init__(self, dim_model: int):
        super().__init__()
        self.dim_model = dim_model
        self.table: Tensor
        self.register_buffer("table", torch.zeros(0, dim_model), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Sinusoids:
        super()._apply(fn, recurse)
        self.table = self.table[:0]  # another dtype: computed anew, at its own precision
        return self

    def forward(self, positions: Tensor) -> Tensor:
        """``(n,)`` int64 -> ``(n, M)``."""
        needed = int(positions.max()) + 1 if len(positions) else 0
        if needed > len(self.table):
            places = torch.arange(max(64, 2 * needed), device=self.table.device)
            self.table = sinusoid(places, self.dim_model, self.table.dtype)
        return self.table[positions]


class Embeddings(nn.Module):
    """Token embeddings scaled by sqrt(M).

    Args:
        vocab: number of tokens V.
        dim_model: width M.

    Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(self, vocab: int, dim_model: int):
        super().__init__()
        self.vocab, self.scale = vocab, math.sqrt(dim_model)
        self.weight = nn.Parameter(torch.empty(vocab, dim_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform, as every matrix."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """``(n,)`` int64 -> ``(n, M)``.

        Raises:
            ValueError: if an id lies outside the vocabulary.
        """
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocab:
            bad = int(ids[(ids < 0) | (ids >= self.vocab)][0])
            raise ValueError(f"token id {bad} lies outside the vocabulary of {self.vocab} tokens")
        return nn.functional.embedding(ids, self.weight) * self.scale
