"""Append-only keys and values of decoder nodes, for decoding one position at a time.

A hypothesis is a path through the rows. Re-ranking beams changes paths, that is edges; no row is
moved, copied or changed, and rows of hypotheses that were dropped are simply never seen again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .bands import ranges
from .edges import EdgeSet
from .graph import GraphPool
from .layers import Memory


class RowCache:
    """Keys and values of all nodes so far, at each level (a layer, or a step of a shared layer).

    Args:
        levels: number of levels.
        heads: H.
        width: D.
        like: a tensor whose dtype and device the rows shall have.
    """

    def __init__(self, levels: int, heads: int, width: int, like: Tensor):
        # Index 0 of the second axis: keys, 1: values. Capacity doubles, as of a Python list.
        self._store = like.new_empty(levels, 2, 0, heads, width)
        self.num_rows = 0

    def extend(self, count: int) -> Tensor:
        """Make room for ``count`` rows and return their ids, ``(count,)`` int64."""
        first, self.num_rows = self.num_rows, self.num_rows + count
        if self.num_rows > self._store.shape[2]:
            levels, two, _, heads, width = self._store.shape
            larger = self._store.new_empty(levels, two, 2 * self.num_rows, heads, width)
            larger[:, :, :first] = self._store[:, :, :first]
            self._store = larger
        return torch.arange(first, self.num_rows, device=self._store.device)

    def write(self, level: int | slice, rows: Tensor, k: Tensor, v: Tensor) -> None:
        """Set the keys and values ``(n, H, D)`` of rows ``(n,)`` at one level or several."""
        self._store[level, 0, rows] = k
        self._store[level, 1, rows] = v

    def read(self, level: int) -> tuple[Tensor, Tensor]:
        """Keys and values of all rows at a level, ``(num_rows, H, D)`` each; views, no copies."""
        return self._store[level, 0, : self.num_rows], self._store[level, 1, : self.num_rows]


class StepEdges:
    """The edge sets of one decoding step, from the pool's patterns.

    Args:
        pool: the patterns of the decoder and of cross-attention.
        src_lens: encoder nodes of each sentence, ``(B,)`` int64.
    """

    def __init__(self, pool: GraphPool, src_lens: Tensor):
        self.pool, self.src_lens = pool, src_lens
        self._starts = src_lens.cumsum(0) - src_lens
        self._cross: tuple[Tensor, EdgeSet] | None = None

    def own(self, paths: Tensor, rows: Tensor) -> EdgeSet:
        """Edges from the rows of each path, its new row included, to the frontier.

        Args:
            paths: cache rows of each hypothesis, ``(F, t)``.
            rows: its new row, ``(F,)``.
        """
        paths = torch.cat([paths, rows.unsqueeze(1)], 1)
        count, size = paths.shape
        seen = _sources_of_last(self.pool.dec(size))
        if len(seen) < size:
            paths = paths[:, seen.to(paths.device)]
        dst = torch.arange(count, device=paths.device).repeat_interleave(paths.shape[1])
        num_src = int(rows[-1]) + 1 if count else 0
        return EdgeSet(paths.flatten(), dst, num_src, count, "dd")

    def cross(self, sentences: Tensor, position: int) -> EdgeSet:
        """Edges from the encoder nodes of each hypothesis' sentence to the frontier.

        Args:
            sentences: sentence of each hypothesis, ``(F,)``.
            position: position t of the new nodes.
        """
        whole = self.pool.cross(1, position + 1).band
        reusable = whole is not None and whole == (None, None)
        if reusable and self._cross is not None and torch.equal(self._cross[0], sentences):
            return self._cross[1]
        lens, starts = self.src_lens[sentences], self._starts[sentences]
        targets = torch.arange(len(sentences), device=sentences.device)
        if reusable:
            src, counts = ranges(starts, lens), lens
        else:
            seen = [_sources_of_last(self.pool.cross(n, position + 1)) for n in lens.tolist()]
            counts = torch.tensor([len(part) for part in seen], device=lens.device)
            src = torch.cat(seen).to(lens.device) + starts.repeat_interleave(counts)
        edges = EdgeSet(
            src, targets.repeat_interleave(counts), int(self.src_lens.sum()), len(targets), "ed"
        )
        self._cross = (sentences, edges)
        return edges


def _sources_of_last(edges: EdgeSet) -> Tensor:
    return edges.once(_last_sources)


def _last_sources(edges: EdgeSet) -> Tensor:
    return edges.src[edges.dst == edges.num_dst - 1].sort().values


class DecoderState:
    """Where an incremental search stands: sources encoded once, and all decoder rows so far.

    Attributes:
        num_sentences: sentences B that were handed to ``start``.
        num_rows: decoder nodes computed so far.
    """

    def __init__(self, memories: list[Memory], edges: StepEdges, cache: RowCache):
        self.memories, self.edges, self.cache = memories, edges, cache

    @property
    def num_sentences(self) -> int:
        """Number of sources B."""
        return len(self.edges.src_lens)

    @property
    def num_rows(self) -> int:
        """Number of cache rows."""
        return self.cache.num_rows

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        return self.edges.src_lens.device
