"""How large the measured work is: in full, or short enough to test the harness."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Every number that a row of the table depends on.

    Attributes:
        runs: timed runs of each candidate, after one warm-up.
        pairs: sentence pairs of a batch.
        shortest, longest: lengths of a sentence, in tokens.
        width, ff, layers, heads, vocabulary: the model of the training step and of adaptive depth.
        small_width: width of the model for the cost of building a batch.
        blocks: lengths of complete attention blocks.
        block_tokens: tokens of all blocks together.
        window: in-edges of a node in the causal window.
        window_length: tokens under that window; also halved and doubled.
        crossover_length: tokens of a block whose density is varied.
        decoded: sentences that are also decoded the slow way.
        gemm: rows and columns of the matrix product that gives the peak.
    """

    runs: int = 7
    pairs: int = 128
    shortest: int = 6
    longest: int = 24
    width: int = 512
    ff: int = 2048
    layers: int = 3
    heads: int = 8
    vocabulary: int = 8000
    small_width: int = 256
    blocks: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    block_tokens: int = 2048
    window: int = 128
    window_length: int = 8192
    crossover_length: int = 256
    decoded: int = 1000
    gemm: int = 2048


FULL = Sizes()
SHORT = Sizes(
    runs=1,
    pairs=5,
    shortest=2,
    longest=7,
    width=16,
    ff=23,
    layers=1,
    heads=2,
    vocabulary=29,
    small_width=16,
    blocks=(3, 7),
    block_tokens=21,
    window=5,
    window_length=94,
    crossover_length=67,
    decoded=3,
    gemm=37,
)
