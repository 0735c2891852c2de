"""Edge sets: who may attend to whom.

An :class:`EdgeSet` is all that the attention core needs to know of a graph: plain index tensors.
What depends on them (DGL's formats, dense blocks) is worked out at the first use and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import dgl
import torch
from torch import Tensor

from .bands import COMPLETE, Band, SampleSizes, ranges, seen_by, shifted
from .checks import check_ends, check_kept, check_lens

T = TypeVar("T")
Ends = tuple[Tensor, Tensor] | Callable[[], tuple[Tensor, Tensor]]


class EdgeSet:
    """Directed edges: edge e lets the target ``dst[e]`` attend to the source ``src[e]``; frozen.

    Sources and targets are numbered apart, each from 0; in self-attention the two sides are the
    same nodes. A batch of samples is one edge set (see :meth:`batch`).

    Args:
        src: source of each edge, ``(E,)`` int64; copied, and so is ``dst``.
        dst: target of each edge, ``(E,)`` int64.
        num_src: number of source nodes.
        num_dst: number of target nodes.
        name: what to call it in messages and attention maps, such as ``"ee"``.

    Attributes:
        sizes: sources, targets and edges of each sample of a batch.
        band: the block structure, where it is known; else ``None``.
        rows: position of each target in its sample, ``(N_dst,)`` int64, where ``band`` is known.

    Raises:
        ValueError: if a size is negative, the two ends differ in length, or an id is out of range.
        TypeError: if ``src`` or ``dst`` is not a one-dimensional int64 tensor.

    Example:
        >>> edges = EdgeSet(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), 2, 2, "tree")
        >>> len(edges), edges
        (3, EdgeSet('tree', 3 edges, 2 -> 2 nodes))
    """

    num_src: int
    num_dst: int
    name: str
    sizes: SampleSizes
    band: Band | None
    rows: Tensor | None
    _ends: Ends
    _len: int
    _memo: dict[Callable[[EdgeSet], Any], Any]
    _kept: Tensor | None  # ids of the targets in the whole of which this is a part
    _whole: EdgeSet | None

    def __init__(self, src: Tensor, dst: Tensor, num_src: int, num_dst: int, name: str = ""):
        check_ends(src, dst, num_src, num_dst, name)
        sizes = SampleSizes(*(src.new_tensor([size]) for size in (num_src, num_dst, len(src))))
        self._set((src.clone(), dst.clone()), sizes, name)

    def _set(
        self,
        ends: Ends,
        sizes: SampleSizes,
        name: str,
        band: Band | None = None,
        rows: Tensor | None = None,
    ) -> None:
        num_src, num_dst, count = (int(size.sum()) for size in sizes)
        self.__dict__.update(num_src=num_src, num_dst=num_dst, name=name, sizes=sizes)
        self.__dict__.update(band=band, rows=rows, _kept=None, _whole=None)
        self.__dict__.update(_ends=ends, _len=count, _memo={})

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__ | {"_ends": self._pair, "_memo": {}}
        return {name: value for name, value in state.items() if name != "graph"}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self!r} is frozen, {name} cannot be set")

    @classmethod
    def _new(cls, *fields: Any) -> EdgeSet:
        """One whose ids are known to be right; arguments as for :meth:`_set`."""
        edges = cls.__new__(cls)
        edges._set(*fields)
        return edges

    @classmethod
    def banded(
        cls, src_lens: Tensor, dst_lens: Tensor, band: Band = COMPLETE, name: str = ""
    ) -> EdgeSet:
        """Samples side by side, each with the edges of one band, by sample, target, source.

        Args:
            src_lens: number of sources of each sample, ``(B,)`` int64.
            dst_lens: number of targets of each sample, ``(B,)`` int64.
            band: which source positions a target position sees.
            name: see :class:`EdgeSet`.

        Raises:
            ValueError: if a length is negative or the numbers of samples differ.
        """
        check_lens(src_lens, dst_lens)
        rows = ranges(torch.zeros_like(dst_lens), dst_lens)  # position of each target, (N_dst,)
        return cls._from_rows(src_lens, dst_lens, rows, band, name)

    @classmethod
    def _from_rows(
        cls, src_lens: Tensor, dst_lens: Tensor, rows: Tensor, band: Band, name: str
    ) -> EdgeSet:
        """As :meth:`banded`, for targets at the given positions ``rows`` of their samples."""
        first, counts = seen_by(rows, torch.repeat_interleave(src_lens, dst_lens), band)
        offset = torch.repeat_interleave(src_lens.cumsum(0) - src_lens, dst_lens)

        def ends() -> tuple[Tensor, Tensor]:
            targets = torch.arange(len(rows), device=rows.device)
            return ranges(offset + first, counts), torch.repeat_interleave(targets, counts)

        total = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        stops = dst_lens.cumsum(0)
        sizes = SampleSizes(src_lens, dst_lens, total[stops] - total[stops - dst_lens])
        return cls._new(ends, sizes, name, band, rows)

    @classmethod
    def batch(cls, parts: Sequence[EdgeSet], name: str = "") -> EdgeSet:
        """Put the edge sets of several samples side by side, without edges between them.

        Args:
            parts: one edge set a sample.
            name: see :class:`EdgeSet`.
        """
        if not parts:
            none = torch.zeros(0, dtype=torch.long)
            return cls.banded(none, none, name=name)
        sizes = SampleSizes(*(torch.cat([part.sizes[side] for part in parts]) for side in range(3)))
        band = parts[0].band
        if band is not None and all(p.band == band and p._whole is None for p in parts):
            return cls.banded(sizes.src, sizes.dst, band, name)
        ends = (
            shifted([p.src for p in parts], [p.num_src for p in parts]),
            shifted([p.dst for p in parts], [p.num_dst for p in parts]),
        )
        return cls._new(ends, sizes, name)

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
            raise ValueError(f"the graph has {len(g.etypes)} edge types, {g.etypes}; pass one")
        src, dst = (ids.long() for ids in g.edges(order="eid"))
        edges = cls(src, dst, g.num_src_nodes(), g.num_dst_nodes(), name)
        edges.__dict__["graph"] = g.local_var()  # a copy, for g may get more edges
        return edges

    @property
    def src(self) -> Tensor:
        """Source of each edge, ``(E,)`` int64."""
        return self._pair[0]

    @property
    def dst(self) -> Tensor:
        """Target of each edge, ``(E,)`` int64."""
        return self._pair[1]

    @cached_property
    def _pair(self) -> tuple[Tensor, Tensor]:
        return self._ends() if callable(self._ends) else self._ends

    @property
    def device(self) -> torch.device:
        """Where the ids lie."""
        return self.sizes.src.device

    def __len__(self) -> int:
        return self._len

    def __repr__(self) -> str:
        return f"EdgeSet({self.name!r}, {len(self)} edges, {self.num_src} -> {self.num_dst} nodes)"

    @cached_property
    def graph(self) -> dgl.DGLGraph:
        """The bipartite DGL graph of these edges, which keeps its sparse formats once made."""
        return dgl.heterograph(
            {("source", "to", "target"): (self.src, self.dst)},
            {"source": self.num_src, "target": self.num_dst},
        )

    def once(self, make: Callable[[EdgeSet], T]) -> T:
        """``make(self)``, worked out at the first call with this function and kept."""
        if make not in self._memo:
            self._memo[make] = make(self)
        return self._memo[make]

    def to(self, device: torch.device | str) -> EdgeSet:
        """The same edges on another device (itself, if they are there already)."""
        device = torch.device(device)
        if device == self.device:
            return self
        sizes = SampleSizes(*(size.to(device) for size in self.sizes))
        if self.band is not None and self.rows is not None:
            rows = self.rows.to(device)
            moved = self._from_rows(sizes.src, sizes.dst, rows, self.band, self.name)
        else:
            moved = self._new((self.src.to(device), self.dst.to(device)), sizes, self.name)
        if self._kept is not None and self._whole is not None:
            moved.__dict__.update(_kept=self._kept.to(device), _whole=self._whole.to(device))
        return moved

    def keep(self, targets: Tensor) -> EdgeSet:
        """Only the edges into some targets, which are numbered anew in their old order.

        This is how halting sheds work: a halted node is no target any more, but stays a source.

        Args:
            targets: ``(N_dst,)`` bool, or the kept targets' ids, strictly ascending, int64.

        Returns:
            An edge set with ``num_dst`` = number of kept targets; :attr:`kept_targets` tells which.

        Raises:
            ValueError: if the targets are not as said, or this edge set is such a part itself.
        """
        if self._whole is not None:
            raise ValueError(f"{self!r} is a part already; take another part of the whole instead")
        ids = check_kept(targets, self.num_dst)
        src_lens, dst_lens, _ = self.sizes
        sample = torch.repeat_interleave(dst_lens)  # of each target
        left = torch.bincount(sample[ids], minlength=len(dst_lens))
        if self.band is not None and self.rows is not None:
            part = self._from_rows(src_lens, left, self.rows[ids], self.band, self.name)
        else:
            new_id = ids.new_full((self.num_dst,), -1)
            new_id[ids] = torch.arange(len(ids), device=self.device)
            chosen = new_id[self.dst] >= 0
            src, dst = self.src[chosen], new_id[self.dst[chosen]]
            edges = torch.bincount(sample[ids[dst]], minlength=len(dst_lens))
            part = self._new((src, dst), SampleSizes(src_lens, left, edges), self.name)
        part.__dict__.update(_kept=ids, _whole=self)
        return part

    @property
    def kept_targets(self) -> Tensor:
        """Ids which the targets have in the edge set they were kept from, ``(N_dst,)`` int64."""
        if self._kept is None:
            return torch.arange(self.num_dst, device=self.device)
        return self._kept

    @cached_property
    def kept_edges(self) -> Tensor:
        """Ids which the edges have in the edge set they were kept from, ``(E,)`` int64."""
        if self._whole is None:
            return torch.arange(len(self), device=self.device)
        chosen = torch.zeros(self._whole.num_dst, dtype=torch.bool, device=self.device)
        chosen[self.kept_targets] = True
        return chosen[self._whole.dst].nonzero().squeeze(1)

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
        last = len(self.sizes.dst) - 1
        if not 0 <= sample <= last:
            raise ValueError(f"sample {sample}: this batch has samples 0 to {last}")
        if len(values) != len(self):
            raise ValueError(f"{len(values)} rows of values for {len(self)} edges")
        whole = self if self._whole is None else self._whole
        src_from, dst_from = (int(n[:sample].sum()) for n in (self.sizes.src, whole.sizes.dst))
        keys, queries = int(self.sizes.src[sample]), int(whole.sizes.dst[sample])
        dst = self.kept_targets[self.dst]
        chosen = (dst >= dst_from) & (dst < dst_from + queries)
        matrix = values.new_zeros(queries, keys, values.shape[1])
        cells = dst[chosen] - dst_from, self.src[chosen] - src_from
        matrix.index_put_(cells, values[chosen], accumulate=True)  # an edge may be there twice
        return matrix.permute(2, 0, 1)
