"""Translating with a trained model: arguments, batches and results of the search.

The search itself is in :mod:`graphformer.beam`. It asks a model for two things only, ``start`` and
``step``, so it is the same for every model that keeps the keys and values of earlier nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from .beam import SearchModel, Settings, search
from .limits import check_counts


class Hypothesis(NamedTuple):
    """One translation that a search has found.

    Attributes:
        ids: its token ids, without ``<sos>`` and ``<eos>``.
        score: sum of the log-probabilities (in nats) of ``ids`` and, if ``finished``, of
            ``<eos>``, divided by ``((5 + length) / 6) ** alpha``; always finite. The length counts
            ``<eos>``, so for ``ids`` of 3 tokens it is 4 if ``finished`` and 3 if not.
        finished: did it end with ``<eos>``? ``False``: it was cut at ``max_len``.

    Source: Wu et al. 2016 (GNMT), equation 14.
    """

    ids: list[int]
    score: float
    finished: bool


def default_max_len(src_len: int) -> int:
    """The most tokens of a translation unless the caller says otherwise.

    Twice the source and 10 more, but never more than 100 beyond the source: enough for any pair of
    languages, and a model that never ends does not run for long.

    Args:
        src_len: tokens of the source.
    """
    return min(2 * src_len + 10, src_len + 100)


def infer(
    model: SearchModel,
    src: Sequence[Sequence[int]],
    max_len: int | None = None,
    k: int = 5,
    alpha: float = 0.6,
    n_best: int = 1,
    *,
    batch_size: int = 256,
    max_batch_tokens: int = 8192,
    pool: Any = None,
) -> list[list[Hypothesis]]:
    """Translate with beam search, each decoder node computed once.

    The result for a sentence depends neither on the other sentences nor on how they are batched.
    The model is in evaluation mode meanwhile and afterwards in the mode it had before.

    Args:
        model: with ``start`` and ``step``, as :class:`graphformer.Transformer` has them.
        src: token ids of each sentence.
        max_len: the most tokens of a translation, ``<eos>`` not counted; ``None``: for each
            sentence :func:`default_max_len`.
        k: beam K; 1 is greedy search. There are never more open hypotheses than the vocabulary has
            continuations, so a larger beam is as good as a smaller one then.
        alpha: exponent of the length penalty, at least 0; 0 compares raw sums.
        n_best: hypotheses to return for each sentence, at most ``k``. Fewer come back only if the
            search has not met as many.
        batch_size: the most sentences that are searched together.
        max_batch_tokens: the most source tokens of a batch, each sentence counted as long as the
            longest; a sentence longer than that makes a batch of its own.
        pool: the :class:`graphformer.GraphPool` the model was trained with, if its patterns are
            not the usual ones.

    Returns:
        For each sentence, in the order given, its hypotheses: finished ones first, best first.
        Unfinished ones are there only where fewer than ``n_best`` have finished. ``<sos>`` and
        ``<pad>`` are never in ``ids``; the probabilities of the others are not scaled up for that.

    Raises:
        ValueError: if an argument is out of range, a sentence is empty or too long for ``pool``, a
            token id lies outside the vocabulary, or the model's logits are no numbers.
        TypeError: if ``src`` is not a list of lists.

    Source: Sutskever et al. 2014, section 3.2; Wu et al. 2016 (GNMT), section 7.
    """
    _check_settings(max_len, k, alpha, n_best, batch_size, max_batch_tokens)
    lens = _checked_lengths(src, pool)
    settings = Settings(k, float(alpha), n_best)
    results: list[list[Hypothesis]] = [[] for _ in src]
    # Not inference mode: what is kept from here (edge templates of the pool, tables of positions)
    # may be used in training later, and autograd refuses tensors made in inference mode.
    with _evaluating(model), torch.no_grad():
        for batch in _batches(lens, batch_size, max_batch_tokens):
            limits = [default_max_len(lens[i]) if max_len is None else max_len for i in batch]
            found = search(model, [src[i] for i in batch], limits, settings, pool)
            for i, hypotheses in zip(batch, found, strict=True):
                results[i] = [Hypothesis(*hypothesis) for hypothesis in hypotheses]
    return results


def _check_settings(
    max_len: int | None,
    k: int,
    alpha: float,
    n_best: int,
    batch_size: int,
    max_batch_tokens: int,
) -> None:
    check_counts(max_len=1 if max_len is None else max_len, k=k, n_best=n_best)
    check_counts(batch_size=batch_size, max_batch_tokens=max_batch_tokens)
    if n_best > k:
        raise ValueError(f"n_best is {n_best}, at most the beam's k={k} can be returned")
    if not (math.isfinite(alpha) and alpha >= 0):
        raise ValueError(f"alpha is {alpha}, a finite number of at least 0 is needed")


def _checked_lengths(src: Sequence[Sequence[int]], pool: Any) -> list[int]:
    limit = None if pool is None else pool.max_len
    lens = []
    for at, ids in enumerate(src):
        if not isinstance(ids, Sequence) or isinstance(ids, str):
            raise TypeError(f"sample {at}: its source is {ids!r}, a list of token ids is needed")
        if not ids:
            raise ValueError(f"sample {at}: its source has no ids, at least one is needed")
        if limit is not None and len(ids) > limit:
            raise ValueError(
                f"sample {at}: its source takes {len(ids)} nodes, "
                f"the pool's limit is max_len={limit}"
            )
        lens.append(len(ids))
    return lens


def _batches(lens: Sequence[int], batch_size: int, max_tokens: int) -> Iterator[list[int]]:
    """Sentence numbers, of like length together: their attention is one dense product."""
    batch: list[int] = []
    for i in sorted(range(len(lens)), key=lens.__getitem__):
        if len(batch) == batch_size or batch and (len(batch) + 1) * lens[i] > max_tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


@contextmanager
def _evaluating(model: SearchModel) -> Iterator[None]:
    """Evaluation mode, and then the mode of each part as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
