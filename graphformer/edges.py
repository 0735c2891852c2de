"""Edge sets: who may attend to whom.

An :class:`EdgeSet` is the one thing the attention core needs to know about a graph. It holds plain
index tensors; what depends on them (DGL's sparse formats, the shapes of dense blocks) is worked
out at the first use and kept, since a model uses the same edge set in every layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import dgl
import torch
from torch import Tensor

T = TypeVar("T")


class Band(NamedTuple):
    """Position j of a sample is seen from position i of it where ``low <= i - j <= high``.

    ``None`` leaves a side open: ``Band()`` is a complete block, ``Band(0)`` a causal one,
    ``Band(0, 127)`` a causal window of 128.
    """

    low: int | None = None
    high: int | None = None


def ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Join the integer ranges ``[start, start + count)`` of all rows.

    Args:
        starts: ``(R,)`` int64.
        counts: ``(R,)`` int64, none negative.

    Returns:
        ``(counts.sum(),)`` int64.
    """
    before = counts.cumsum(0) - counts
    shift = torch.repeat_interleave(starts - before, counts)
    return torch.arange(shift.shape[0], device=starts.device) + shift


class EdgeSet:
    """Directed edges from source nodes to target nodes: edge e lets ``dst[e]`` attend to ``src[e]``.

    A frozen value. Sources and targets are numbered apart, each from 0; in self-attention the two
    sides are the same nodes. A batch of samples is one edge set (see :meth:`batch`).

    Args:
        src: source of each edge, ``(E,)`` int64.
        dst: target of each edge, ``(E,)`` int64.
        num_src: number of source nodes.
        num_dst: number of target nodes.
        name: what to call it in messages and attention maps, such as ``"ee"``.

    Raises:
        ValueError: if a size is negative, the two ends differ in length, or an id is out of range.
        TypeError: if ``src`` or ``dst`` is not a one-dimensional int64 tensor.

    Example:
        >>> edges = EdgeSet(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2, 2, "tree")
        >>> len(edges), edges
        (3, EdgeSet('tree', 3 edges, 2 -> 2 nodes))
    """

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int, name: str = ""):
        _check_ends(src, dst, num_src, num_dst, name)
        self._fill((src, dst), len(src), num_src, num_dst, name)

    def _fill(
        self,
        ends: tuple[Tensor, Tensor] | Callable[[], tuple[Tensor, Tensor]],
        num_edges: int,
        num_src: int,
        num_dst: int,
        name: str,
    ) -> EdgeSet:
        self._ends = ends
        self._len = num_edges
        self._num_src, self._num_dst, self._name = num_src, num_dst, name
        self._device = torch.device("cpu") if callable(ends) else ends[0].device
        # One sample unless `batch` says otherwise.
        self._sizes = SampleSizes(
            torch.tensor([num_src]), torch.tensor([num_dst]), torch.tensor([num_edges])
        )
        self._band: Band | None = None
        self._rows: Tensor | None = None
        self._kept: Tensor | None = None
        self._parent: EdgeSet | None = None
        self._memo: dict[Callable, Any] = {}
        return self

    # ------------------------------------------------------------------ making edge sets

    @classmethod
    def banded(
        cls, src_lens: Tensor, dst_lens: Tensor, band: Band = Band(), name: str = ""
    ) -> EdgeSet:
        """Samples side by side, each with the edges of one band: complete, causal or a window.

        Edges are ordered by sample, then target, then source.

        Args:
            src_lens: number of sources of each sample, ``(B,)`` int64.
            dst_lens: number of targets of each sample, ``(B,)`` int64.
            band: which source positions a target position sees.
            name: see :class:`EdgeSet`.

        Raises:
            ValueError: if a length is negative or the numbers of samples differ.
        """
        if len(src_lens) != len(dst_lens):
            raise ValueError(f"{len(src_lens)} source lengths for {len(dst_lens)} target lengths")
        for side, lens in (("source", src_lens), ("target", dst_lens)):
            if len(lens) and int(lens.min()) < 0:
                at = int(lens.argmin())
                raise ValueError(f"sample {at}: {side} length {int(lens[at])} is negative")
        device = src_lens.device
        rows = ranges(torch.zeros_like(dst_lens), dst_lens)  # position of each target, (N_dst,)
        return cls._from_rows(src_lens, dst_lens, rows, band, name, device)

    @classmethod
    def _from_rows(
        cls,
        src_lens: Tensor,
        dst_lens: Tensor,
        rows: Tensor,
        band: Band,
        name: str,
        device: torch.device,
    ) -> EdgeSet:
        """As :meth:`banded`, for targets at the given positions ``rows`` of their samples."""
        limit = torch.repeat_interleave(src_lens, dst_lens)
        low, high = band
        # Target row r sees the contiguous source positions [first, last) of its sample.
        first = (
            torch.zeros_like(rows) if high is None else torch.minimum((rows - high).clamp(0), limit)
        )
        last = limit if low is None else torch.minimum((rows - low + 1).clamp(0), limit)
        counts = (last - first).clamp(0)
        offset = torch.repeat_interleave(src_lens.cumsum(0) - src_lens, dst_lens)

        def ends() -> tuple[Tensor, Tensor]:
            targets = torch.arange(len(rows), device=device)
            return ranges(offset + first, counts), torch.repeat_interleave(targets, counts)

        edges = cls.__new__(cls)
        edges._fill(ends, int(counts.sum()), int(src_lens.sum()), len(rows), name)
        total = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        stops = dst_lens.cumsum(0)
        edges._sizes = SampleSizes(src_lens, dst_lens, total[stops] - total[stops - dst_lens])
        edges._band, edges._rows, edges._device = band, rows, device
        return edges

    @classmethod
    def batch(cls, parts: Sequence[EdgeSet], name: str = "") -> EdgeSet:
        """Put the edge sets of several samples side by side, without edges between them.

        Args:
            parts: one edge set a sample.
            name: see :class:`EdgeSet`.
        """
        if not parts:
            empty = torch.zeros(0, dtype=torch.long)
            return cls.banded(empty, empty, name=name)
        if len({part._band for part in parts}) == 1 and parts[0]._band is not None:
            if all(part._parent is None for part in parts):
                src_lens, dst_lens = (
                    torch.cat([part._sizes[side] for part in parts]) for side in (0, 1)
                )
                return cls.banded(src_lens, dst_lens, parts[0]._band, name)
        sizes = SampleSizes(
            *(torch.cat([part._sizes[side] for part in parts]) for side in range(3))
        )
        num_src = torch.tensor([part.num_src for part in parts])
        num_dst = torch.tensor([part.num_dst for part in parts])
        num_edges = torch.tensor([len(part) for part in parts])
        src = torch.cat([part.src for part in parts]) + torch.repeat_interleave(
            num_src.cumsum(0) - num_src, num_edges
        )
        dst = torch.cat([part.dst for part in parts]) + torch.repeat_interleave(
            num_dst.cumsum(0) - num_dst, num_edges
        )
        edges = cls.__new__(cls)
        edges._fill((src, dst), len(src), int(num_src.sum()), int(num_dst.sum()), name)
        edges._sizes = sizes
        return edges

    @classmethod
    def from_dgl(cls, g: dgl.DGLGraph, name: str = "") -> EdgeSet:
        """The edges of a DGL graph, in its edge order.

        Args:
            g: a graph with one edge type: homogeneous, bipartite, or a block.
            name: see :class:`EdgeSet`.

        Raises:
            ValueError: if the graph has several edge types.
        """
        if len(g.canonical_etypes) != 1:
            raise ValueError(
                f"the graph has {len(g.canonical_etypes)} edge types {g.etypes}; pass one of them, "
                "such as g['etype']"
            )
        src, dst = (ends.long() for ends in g.edges(order="eid"))
        edges = cls(src, dst, g.num_src_nodes(), g.num_dst_nodes(), name)
        edges.__dict__["graph"] = g
        return edges

    # ------------------------------------------------------------------ what it holds

    @property
    def src(self) -> Tensor:
        """Source of each edge, ``(E,)`` int64."""
        return self._resolve()[0]

    @property
    def dst(self) -> Tensor:
        """Target of each edge, ``(E,)`` int64."""
        return self._resolve()[1]

    def _resolve(self) -> tuple[Tensor, Tensor]:
        if callable(self._ends):
            self._ends = self._ends()
        return self._ends

    @property
    def num_src(self) -> int:
        """Number of source nodes."""
        return self._num_src

    @property
    def num_dst(self) -> int:
        """Number of target nodes."""
        return self._num_dst

    @property
    def name(self) -> str:
        """What messages and attention maps call it."""
        return self._name

    @property
    def device(self) -> torch.device:
        """Where the ids lie."""
        return self._device

    @property
    def sizes(self) -> SampleSizes:
        """Sources, targets and edges of each sample, three ``(B,)`` int64 tensors."""
        return self._sizes

    @property
    def band(self) -> Band | None:
        """The block structure, where it is known; else ``None``."""
        return self._band

    @property
    def rows(self) -> Tensor | None:
        """Position of each target in its sample, ``(N_dst,)`` int64, where ``band`` is known."""
        return self._rows

    def __len__(self) -> int:
        return self._len

    def __repr__(self) -> str:
        return (
            f"EdgeSet({self.name!r}, {len(self)} edges, {self.num_src} -> {self.num_dst} nodes)"
        )

    @cached_property
    def graph(self) -> dgl.DGLGraph:
        """The bipartite DGL graph of these edges; DGL keeps its sparse formats once made."""
        return dgl.heterograph(
            {("source", "to", "target"): (self.src, self.dst)},
            {"source": self.num_src, "target": self.num_dst},
        )

    def once(self, make: Callable[[EdgeSet], T]) -> T:
        """``make(self)``, worked out at the first call with this function and kept."""
        if make not in self._memo:
            self._memo[make] = make(self)
        return self._memo[make]

    # ------------------------------------------------------------------ deriving others

    def to(self, device: torch.device | str) -> EdgeSet:
        """The same edges on another device (itself, if they are there already)."""
        device = torch.device(device)
        if device == self.device:
            return self
        moved = self.__class__.__new__(self.__class__)
        if self._band is not None and self._rows is not None:
            sizes = SampleSizes(*(size.to(device) for size in self._sizes))
            moved = self._from_rows(
                sizes.src, sizes.dst, self._rows.to(device), self._band, self.name, device
            )
        else:
            ends = (self.src.to(device), self.dst.to(device))
            moved._fill(ends, len(self), self.num_src, self.num_dst, self.name)
            moved._sizes = SampleSizes(*(size.to(device) for size in self._sizes))
        moved._kept = None if self._kept is None else self._kept.to(device)
        moved._parent = self._parent
        return moved

    def keep(self, targets: Tensor) -> EdgeSet:
        """Only the edges into some targets, which are numbered anew in their old order.

        This is how halting sheds work: a halted node is no target any more, yet it stays a source.

        Args:
            targets: ``(N_dst,)`` bool, or the kept targets' ids in ascending order, int64.

        Returns:
            An edge set with ``num_dst`` = number of kept targets; :attr:`kept_targets` tells which.
        """
        ids = targets.nonzero().squeeze(1) if targets.dtype == torch.bool else targets
        if self._kept is not None:
            raise ValueError(f"{self!r} is a part already; take another part of the whole instead")
        sample = torch.repeat_interleave(
            torch.arange(len(self._sizes.dst), device=self.device), self._sizes.dst
        )
        dst_lens = torch.bincount(sample[ids], minlength=len(self._sizes.dst))
        if self._band is not None and self._rows is not None:
            kept = self._from_rows(
                self._sizes.src, dst_lens, self._rows[ids], self._band, self.name, self.device
            )
        else:
            new_id = torch.full((self.num_dst,), -1, device=self.device)
            new_id[ids] = torch.arange(len(ids), device=self.device)
            chosen = new_id[self.dst] >= 0
            src, dst = self.src[chosen], new_id[self.dst[chosen]]
            kept = self.__class__.__new__(self.__class__)
            kept._fill((src, dst), len(src), self.num_src, len(ids), self.name)
            edges = torch.bincount(sample[ids[dst]], minlength=len(dst_lens))
            kept._sizes = SampleSizes(self._sizes.src, dst_lens, edges)
        kept._kept, kept._parent = ids, self
        return kept

    @property
    def kept_targets(self) -> Tensor:
        """Ids which the targets have in the edge set they were kept from, ``(N_dst,)`` int64."""
        if self._kept is None:
            return torch.arange(self.num_dst, device=self.device)
        return self._kept

    @cached_property
    def kept_edges(self) -> Tensor:
        """Ids which the edges have in the edge set they were kept from, ``(E,)`` int64."""
        if self._parent is None:
            return torch.arange(len(self), device=self.device)
        chosen = torch.zeros(self._parent.num_dst, dtype=torch.bool, device=self.device)
        chosen[self.kept_targets] = True
        return chosen[self._parent.dst].nonzero().squeeze(1)

    def dense(self, values: Tensor, sample: int = 0) -> Tensor:
        """Spread values of edges over a matrix; cells without an edge are exactly 0.

        Args:
            values: one value an edge and head, ``(E, H)``.
            sample: which sample of the batch.

        Returns:
            ``(H, queries, keys)`` of that sample. Targets that a part left out are rows of zeros.

        Raises:
            ValueError: if there is no such sample or ``values`` has not one row an edge.
        """
        if not 0 <= sample < len(self._sizes.dst):
            raise ValueError(f"sample {sample}: this batch has samples 0 to {len(self._sizes.dst) - 1}")
        if len(values) != len(self):
            raise ValueError(f"{len(values)} rows of values for {len(self)} edges")
        whole = self if self._parent is None else self._parent
        src_from = int(self._sizes.src[:sample].sum())
        dst_from = int(whole._sizes.dst[:sample].sum())
        keys, queries = int(self._sizes.src[sample]), int(whole._sizes.dst[sample])
        dst = self.kept_targets[self.dst]
        chosen = (dst >= dst_from) & (dst < dst_from + queries)
        matrix = values.new_zeros(queries, keys, values.shape[1])
        matrix[dst[chosen] - dst_from, self.src[chosen] - src_from] = values[chosen]
        return matrix.permute(2, 0, 1)


class SampleSizes(NamedTuple):
    """How many source nodes, target nodes and edges each sample of a batch has, ``(B,)`` each."""

    src: Tensor
    dst: Tensor
    edges: Tensor


def _check_ends(src: Tensor, dst: Tensor, num_src: int, num_dst: int, name: str) -> None:
    for side, size in (("num_src", num_src), ("num_dst", num_dst)):
        if size < 0:
            raise ValueError(f"edge set {name!r}: {side} is {size}, at least 0 is needed")
    for side, ids in (("src", src), ("dst", dst)):
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.dim() != 1:
            found = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else type(ids)
            raise TypeError(f"edge set {name!r}: {side} must be a 1-d int64 tensor, got {found}")
    if len(src) != len(dst):
        raise ValueError(f"edge set {name!r}: {len(src)} sources for {len(dst)} targets")
    for side, ids, size in (("src", src, num_src), ("dst", dst, num_dst)):
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < size:
            bad = ids[(ids < 0) | (ids >= size)][0]
            raise ValueError(
                f"edge set {name!r}: {side} has the id {int(bad)}, valid are 0 to {size - 1}"
            )
