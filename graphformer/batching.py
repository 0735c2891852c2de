"""Which samples make a batch: lists of sample numbers, nothing of ids or tensors.

There is no padding, so a batch costs what its tokens cost. Sentences of like length still belong
together: equal blocks of attention are computed as one dense product.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sample = tuple[Sequence[int], Sequence[int]]


def sample_lengths(samples: Sequence[Sample]) -> list[tuple[int, int]]:
    """Measure each sample as the graph will have it: lengths (n, m).

    Args:
        samples: source ids, and target ids with ``<sos>`` and ``<eos>``.

    Returns:
        n source ids; m decoder nodes, one for each target id but the first: ``<eos>`` counts,
        ``<sos>`` does not.
    """
    return [(len(src), len(tgt) - 1) for src, tgt in samples]


def batches(
    lengths: Sequence[tuple[int, int]],
    *,
    max_tokens: int | None = None,
    batch_size: int | None = None,
    window: int | None = 4096,
    seed: int,
    epoch: int = 0,
) -> list[list[int]]:
    """One epoch of training: every sample exactly once, in an order that seed and epoch decide.

    The samples are shuffled, cut into windows, and sorted in each window by source length, then
    target length. Batches are filled in that order and then shuffled themselves. The result is a
    function of the arguments alone, so a run that resumes in epoch 7 gets the same batches as one
    that was never stopped.

    Args:
        lengths: (n, m) of each sample, see :func:`sample_lengths`.
        max_tokens: the most target tokens (Σm, ``<eos>`` counted) of a batch. A sample that is
            longer than that by itself makes a batch of its own.
        batch_size: instead of it, the number of samples in a batch; the last has the rest.
        window: samples sorted together; the larger, the more alike the lengths in a batch, and
            the fewer the ways to mix them. None sorts all of them together.
        seed: a whole number, not negative.
        epoch: a whole number, not negative.

    Returns:
        Lists of sample numbers.

    Raises:
        ValueError: unless just one of `max_tokens` and `batch_size` is given; for a limit, a
            window or a length below 1; or for a negative seed or epoch.
    """
    table = _table(lengths)
    for argument, value in (("seed", seed), ("epoch", epoch)):
        if value < 0:
            raise ValueError(f"{argument} must not be negative, got {value}")
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    # A text as seed keeps (1, 23) and (12, 3) apart; random() never changes for a seed.
    rng = random.Random(f"batches {seed} {epoch}")
    order = _shuffled(len(table), rng)
    place = np.empty_like(order)  # where the shuffle has put each sample
    place[order] = np.arange(len(order))
    key = place // min(window or len(table), max(len(table), 1)) if len(table) else place
    # Equal lengths stay in shuffled order, else the same samples would meet in every epoch.
    order = np.lexsort((place, table[:, 1], table[:, 0], key))
    made = _cut(order, table, max_tokens, batch_size)
    return [made[i] for i in _shuffled(len(made), rng)]


def eval_batches(
    lengths: Sequence[tuple[int, int]],
    *,
    max_tokens: int | None = None,
    batch_size: int | None = None,
) -> list[list[int]]:
    """Batches for validation and test: every sample exactly once, all sorted by length.

    Sorted by source length, then target length, then number. The numbers in the result tell where
    each answer belongs.

    Args:
        lengths: (n, m) of each sample, see :func:`sample_lengths`.
        max_tokens: the most target tokens (Σm, ``<eos>`` counted) of a batch; a sample that is
            longer than that by itself makes a batch of its own.
        batch_size: instead of it, the number of samples in a batch; the last has the rest.

    Returns:
        Lists of sample numbers.

    Raises:
        ValueError: unless just one of `max_tokens` and `batch_size` is given, or for a limit or a
            length below 1.
    """
    table = _table(lengths)
    return _cut(np.lexsort((table[:, 1], table[:, 0])), table, max_tokens, batch_size)


def _table(lengths: Sequence[tuple[int, int]]) -> NDArray[Any]:
    table = np.array(lengths, dtype=np.int64).reshape(len(lengths), 2)
    if (table < 1).any():
        number = int(np.argmax((table < 1).any(axis=1)))
        n, m = table[number]
        raise ValueError(f"sample {number} has lengths ({n}, {m}); both must be at least 1")
    return table


def _shuffled(count: int, rng: random.Random) -> NDArray[Any]:
    return np.argsort([rng.random() for _ in range(count)], kind="stable")


def _cut(
    order: NDArray[Any], table: NDArray[Any], max_tokens: int | None, batch_size: int | None
) -> list[list[int]]:
    """Fill batches in the given order, each as full as the limit allows."""
    if (max_tokens is None) == (batch_size is None):
        raise ValueError(
            f"give one of max_tokens and batch_size, got {max_tokens} and {batch_size}"
        )
    limit = max_tokens if batch_size is None else batch_size
    if limit is None or limit < 1:
        name = "max_tokens" if batch_size is None else "batch_size"
        raise ValueError(f"{name} must be at least 1, got {limit}")
    cost = table[order, 1] if batch_size is None else np.ones(len(order), dtype=np.int64)
    total = np.concatenate(([0], np.cumsum(cost)))
    limit = min(limit, int(total[-1]) + 1)  # any number, NumPy's whole numbers have 64 bits
    made, start = [], 0
    while start < len(order):
        # The last end with total[end] - total[start] <= limit; at least one sample.
        end = int(np.searchsorted(total, total[start] + limit, side="right")) - 1
        end = max(end, start + 1)
        made.append(order[start:end].tolist())
        start = end
    return made
