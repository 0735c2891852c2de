"""Samples, and the batches that training and evaluation make of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .batching import Sample, batches, eval_batches, sample_lengths
from .codec import BPECodec, Codec
from .evaluation import Batches
from .graph import GraphBatch, GraphPool
from .recipe import Recipe
from .vocab import EOS, SOS

Choose = Callable[[Sequence[int]], list[Sample]]


class Dataset:
    """Samples and how to batch them.

    Args:
        samples: ids of each pair. Their lengths decide which of them make a batch.
        pool: builds the graphs.
        choose: gives the samples of some numbers anew each time; the stored ones if not given.
    """

    def __init__(
        self, samples: Sequence[Sample], pool: GraphPool, choose: Choose | None = None
    ) -> None:
        self.samples, self.pool = samples, pool
        self.choose = choose or self._stored
        self.lengths = sample_lengths(samples)

    def _stored(self, indices: Sequence[int]) -> list[Sample]:
        return [self.samples[index] for index in indices]

    def collate(self, indices: Sequence[int]) -> GraphBatch:
        """The graph of some samples."""
        chosen = self.choose(indices)
        return self.pool([src for src, _ in chosen], [tgt for _, tgt in chosen])

    def training(self, recipe: Recipe) -> Batches:
        """Batches in an order that the recipe's seed and the epoch decide."""
        options = recipe.batches

        def plan(epoch: int) -> list[list[int]]:
            return batches(
                self.lengths,
                max_tokens=options.max_tokens,
                window=options.window or None,
                seed=recipe.train.seed,
                epoch=epoch,
            )

        return Batches(plan, self.collate)

    def evaluation(self, max_tokens: int) -> Batches:
        """Every sample once, sorted by length."""
        made = eval_batches(self.lengths, max_tokens=max_tokens)
        return Batches(lambda epoch: made, self.collate)


def subword_dropout(codec: Codec, pairs: Sequence[tuple[str, str]], p: float) -> Choose:
    """Cut words into pieces in another way each time, so that a model learns what pieces spell.

    Args:
        codec: of byte pairs.
        pairs: text of each sample.
        p: probability that a merge of two pieces is left out. Some 0.05 make a text of 4000
            pieces a fifth longer, 0.1 two fifths.

    Returns:
        A function of sample numbers to samples. Its random numbers come from PyTorch's default
        generator.

    Raises:
        ValueError: if the codec has no pieces to cut.

    Source: Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization".
    """
    if not isinstance(codec, BPECodec):
        raise ValueError(f"subword_dropout is {p}, which needs the codec 'bpe'")

    def choose(indices: Sequence[int]) -> list[Sample]:
        seed = int(torch.randint(2**31, ()))
        lines = [line for index in indices for line in pairs[index]]
        ids = codec.sample(lines, p, seed)
        return [(src, [SOS, *tgt, EOS]) for src, tgt in zip(ids[::2], ids[1::2], strict=True)]

    return choose
