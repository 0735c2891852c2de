"""Sentence pairs with the lengths of image captions, made from a seed."""

from __future__ import annotations

import random

from .sizes import Sizes

Pair = tuple[list[int], list[int]]  # source ids; target ids with <sos> 0 first and <eos> 1 last
PAD = 2


def pairs(sizes: Sizes, count: int, seed: int = 0) -> list[Pair]:
    """Sources of evenly spread lengths; each target is about as long as its source.

    A target has ``length + 1`` ids, which makes ``length`` decoder nodes.
    """
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        n = rng.randint(sizes.shortest, sizes.longest)
        m = min(max(n + round(rng.gauss(0, 2)), sizes.shortest), sizes.longest)
        made.append((_ids(rng, n, sizes), [0, *_ids(rng, m - 1, sizes), 1]))
    return made


def batches(sizes: Sizes, ordered: bool) -> list[list[Pair]]:
    """One batch a run: random ones, or neighbours after sorting by length, short to long."""
    made = pairs(sizes, sizes.pairs * sizes.runs)
    if ordered:
        made.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
    return [made[at : at + sizes.pairs] for at in range(0, len(made), sizes.pairs)]


def _ids(rng: random.Random, count: int, sizes: Sizes) -> list[int]:
    return [rng.randrange(4, sizes.vocabulary) for _ in range(count)]
