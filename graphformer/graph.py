"""From token ids to one graph: the pool of edge templates and the batch it builds.

There is no padding and no mask. The nodes of all samples stand side by side, and what a mask
would forbid is an edge that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from operator import index

import dgl
import torch
from torch import Tensor

from .bands import ranges
from .edges import EdgeSet
from .limits import check_counts
from .patterns import causal, complete

KINDS = ("ee", "ed", "dd")


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """A batch of sentence pairs as one graph.

    The decoder reads ``tgt[:-1]`` of a target and is asked for ``tgt[1:]``; the shift is done here
    and nowhere else.

    Attributes:
        src: token ids and positions of the encoder nodes, two ``(Σn,)`` int64 tensors.
        tgt: token ids and positions of the decoder nodes, two ``(T,)`` int64 tensors.
        tgt_y: labels, ``(T,)`` int64.
        src_lens: encoder nodes of each sample, ``(B,)`` int64, in the order given.
        tgt_lens: decoder nodes of each sample, ``(B,)`` int64, in the order given.
        edges: the edge sets ``"ee"`` (encoder to encoder), ``"ed"`` (encoder to decoder) and
            ``"dd"`` (decoder to decoder), in local ids: each side counts from 0.
    """

    src: tuple[Tensor, Tensor]
    tgt: tuple[Tensor, Tensor]
    tgt_y: Tensor
    src_lens: Tensor
    tgt_lens: Tensor
    edges: Mapping[str, EdgeSet]

    @property
    def n_nodes(self) -> int:
        """Encoder and decoder nodes."""
        return len(self.src[0]) + len(self.tgt[0])

    @property
    def n_edges(self) -> int:
        """Edges of all three kinds."""
        return sum(len(edges) for edges in self.edges.values())

    @property
    def n_tokens(self) -> int:
        """Decoder nodes T, which is what a loss is averaged over."""
        return len(self.tgt[0])

    @cached_property
    def nids(self) -> dict[str, Tensor]:
        """Node ids in ``g``: ``"enc"`` ``(Σn,)`` and ``"dec"`` ``(T,)``, each one contiguous."""
        n = len(self.src[0])
        ids = torch.arange(self.n_nodes, device=self.src[0].device)
        return {"enc": ids[:n], "dec": ids[n:]}

    @cached_property
    def eids(self) -> dict[str, Tensor]:
        """Edge ids in ``g`` of ``"ee"``, ``"ed"`` and ``"dd"``, each one contiguous."""
        ids = torch.arange(self.n_edges, device=self.src[0].device)
        return dict(zip(KINDS, ids.split([len(self.edges[kind]) for kind in KINDS]), strict=True))

    @cached_property
    def g(self) -> dgl.DGLGraph:
        """All nodes and edges as one homogeneous graph: encoder first; ``ee``, ``ed``, ``dd``."""
        n = len(self.src[0])
        shift = {"ee": (0, 0), "ed": (0, n), "dd": (n, n)}
        src = torch.cat([self.edges[kind].src + shift[kind][0] for kind in KINDS])
        dst = torch.cat([self.edges[kind].dst + shift[kind][1] for kind in KINDS])
        return dgl.graph((src, dst), num_nodes=self.n_nodes)

    def to(self, device: torch.device | str) -> GraphBatch:
        """The batch with everything on a device (itself, if it is there already)."""
        if self.src[0].device == torch.device(device):
            return self
        return GraphBatch(
            src=(self.src[0].to(device), self.src[1].to(device)),
            tgt=(self.tgt[0].to(device), self.tgt[1].to(device)),
            tgt_y=self.tgt_y.to(device),
            src_lens=self.src_lens.to(device),
            tgt_lens=self.tgt_lens.to(device),
            edges={kind: edges.to(device) for kind, edges in self.edges.items()},
        )


class GraphPool:
    """Builds batches, keeping the edge set of each length (or pair of lengths) as a template.

    A template is made when a length is first met, so nothing is computed at the start and no
    length is too long unless ``max_len`` says so.

    Args:
        max_len: the most nodes that one side of a sample may have; ``None``: no limit.
        enc: pattern of encoder self-attention, ``n -> EdgeSet``.
        dec: pattern of decoder self-attention, ``m -> EdgeSet``. What position i sees must not
            depend on m and must not lie behind i, else decoding cannot be incremental.
        cross: pattern of cross-attention, ``(n, m) -> EdgeSet`` from n sources to m targets.

    Raises:
        ValueError: if ``max_len`` is less than 1.

    Example:
        >>> pool = GraphPool()
        >>> batch = pool([[5, 6, 7]], [[0, 7, 6, 1]])
        >>> batch.n_nodes, batch.n_edges, batch.tgt_y.tolist()
        (6, 24, [7, 6, 1])
    """

    def __init__(
        self,
        max_len: int | None = None,
        enc: Callable[[int], EdgeSet] = complete,
        dec: Callable[[int], EdgeSet] = causal,
        cross: Callable[[int, int], EdgeSet] = complete,
    ):
        check_counts(max_len=1 if max_len is None else max_len)
        self.max_len = max_len
        # 2**14 templates: every pair of lengths up to 128; banded ones take a few hundred bytes.
        self.enc = lru_cache(2**14)(enc)
        self.dec = lru_cache(2**14)(dec)
        self.cross = lru_cache(2**14)(cross)

    def __call__(
        self,
        src: Sequence[Sequence[int]],
        tgt: Sequence[Sequence[int]],
        device: torch.device | str = "cpu",
        edges: Mapping[str, Sequence[EdgeSet]] | None = None,
    ) -> GraphBatch:
        """Build the graph of a batch of pairs.

        Args:
            src: token ids of each source.
            tgt: token ids of each target, ``<sos>`` first and ``<eos>`` last.
            device: where the batch shall lie.
            edges: graphs of the samples' own in place of a pattern: for a kind (``"ee"``,
                ``"ed"``, ``"dd"``) one edge set a sample, over that sample's nodes.

        Returns:
            The batch, samples in the order given.

        Raises:
            ValueError: if the numbers of sources and targets differ, if there are none, or if a
                source is empty, a target has fewer than 2 ids, a side is longer than ``max_len``,
                or an edge set does not fit its sample; the message names the sample.
            TypeError: if an id is no whole number; the message names sample and position.
        """
        if len(src) != len(tgt):
            raise ValueError(f"{len(src)} sources for {len(tgt)} targets")
        src_lens = self._lengths(src, "source", 1)
        tgt_lens = [size - 1 for size in self._lengths(tgt, "target", 2)]
        ids = _flat(tgt, "target")
        n, m = torch.tensor(src_lens), torch.tensor(tgt_lens)
        first = (m + 1).cumsum(0) - (m + 1)  # where each target begins in ids
        parts = {
            "ee": [self.enc(size) for size in src_lens],
            "ed": [self.cross(*sizes) for sizes in zip(src_lens, tgt_lens, strict=True)],
            "dd": [self.dec(size) for size in tgt_lens],
        }
        for kind, own in (edges or {}).items():
            if kind not in parts:
                raise ValueError(f"edges of kind {kind!r}: the kinds are {', '.join(KINDS)}")
            parts[kind] = [part.to("cpu") for part in own]
        for kind in KINDS:
            sources = tgt_lens if kind == "dd" else src_lens
            _check_sizes(kind, parts[kind], sources, src_lens if kind == "ee" else tgt_lens)
        batch = GraphBatch(
            src=(_flat(src, "source"), ranges(torch.zeros_like(n), n)),
            tgt=(ids[ranges(first, m)], ranges(torch.zeros_like(m), m)),
            tgt_y=ids[ranges(first + 1, m)],
            src_lens=n,
            tgt_lens=m,
            edges={kind: EdgeSet.batch(parts[kind], kind) for kind in KINDS},
        )
        return batch.to(device)

    def sources(
        self, src: Sequence[Sequence[int]], device: torch.device | str = "cpu"
    ) -> tuple[tuple[Tensor, Tensor], EdgeSet]:
        """The encoder's half of a batch, which is all that decoding starts from.

        Args:
            src: token ids of each source.
            device: where the result shall lie.

        Returns:
            Token ids and positions ``(Σn,)`` each, and the edge set ``"ee"``.

        Raises:
            ValueError, TypeError: as for a batch.
        """
        lens = self._lengths(src, "source", 1)
        n = torch.tensor(lens)
        pos = ranges(torch.zeros_like(n), n)
        parts = [self.enc(size) for size in lens]
        _check_sizes("ee", parts, lens, lens)
        edges = EdgeSet.batch(parts, "ee")
        return (_flat(src, "source").to(device), pos.to(device)), edges.to(device)

    def _lengths(self, side: Sequence[Sequence[int]], name: str, least: int) -> list[int]:
        """Lengths of one side, checked; a target has one id more than it has nodes."""
        if not side:
            raise ValueError("a batch needs at least one sample")
        lens = [len(ids) for ids in side]
        spare = least - 1
        if min(lens) < least:
            at = lens.index(min(lens))
            wanted = "at least one id" if least == 1 else "<sos> and <eos>"
            raise ValueError(f"sample {at}: its {name} has {lens[at]} ids, {wanted} is needed")
        if self.max_len is not None and max(lens) - spare > self.max_len:
            at = lens.index(max(lens))
            raise ValueError(
                f"sample {at}: its {name} takes {lens[at] - spare} nodes, "
                f"the pool's limit is max_len={self.max_len}"
            )
        return lens


def _flat(side: Sequence[Sequence[int]], name: str) -> Tensor:
    """All ids of a side, one after the other; refuses what a conversion would have cut."""
    try:
        ids = torch.tensor(list(chain.from_iterable(side)))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(_no_id(side, name)) from error
    if ids.is_floating_point() or ids.is_complex():
        raise TypeError(_no_id(side, name))
    return ids.long()


def _no_id(side: Sequence[Sequence[int]], name: str) -> str:
    for at, ids in enumerate(side):
        for position, value in enumerate(ids):
            try:
                if -(2**63) <= index(value) < 2**63:
                    continue
            except TypeError:
                pass
            where = f"sample {at}: its {name} has {value!r} at position {position}"
            return f"{where}, a token id is a whole number of 64 bits"
    return f"a {name} holds something that is no token id"


def _check_sizes(
    kind: str, parts: Sequence[EdgeSet], sources: Sequence[int], targets: Sequence[int]
) -> None:
    """Refuse an edge set, from a pattern or the caller's own, that does not fit its sample."""
    if len(parts) != len(sources):
        raise ValueError(f"edges of kind {kind!r}: {len(parts)} sets for {len(sources)} samples")
    for at, (part, n, m) in enumerate(zip(parts, sources, targets, strict=True)):
        if part.num_src != n or part.num_dst != m:
            raise ValueError(
                f"sample {at}: {part!r} was given as {kind!r}, "
                f"the sample has {n} sources and {m} targets"
            )
