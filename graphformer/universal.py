"""The Adaptive Universal Transformer: one shared layer over depth, halting node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from .cache import DecoderState, RowCache
from .dropout import Dropout
from .edges import EdgeSet
from .embeddings import Sinusoids
from .halting import DEFAULT_RULE, Halting, HaltingRule, HaltingUnit, Ponder
from .layers import DecoderLayer, EncoderLayer, Memory, Rows
from .transformer import Biases, GraphSeq2Seq


class KeyValues(Protocol):
    """Where the keys and values of all nodes are kept while a side is being refined.

    ``outlive``: are they seen by nodes that come after this pass?
    """

    outlive: bool

    def put(self, depth: int, ids: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Enter those of the active nodes ``ids`` ``(n,)``; return those of all sources."""

    def settle(self, depth: int, ids: Tensor, k: Tensor, v: Tensor) -> None:
        """Enter those of nodes that have halted, for ``depth`` and every later step."""


class FreshKeyValues:
    """Keys and values of one pass over whole sentences, where the sources are the nodes."""

    outlive = False

    def __init__(self) -> None:
        self._k: Tensor | None = None
        self._v: Tensor | None = None
        self._settled: list[tuple[Tensor, Tensor, Tensor]] = []

    def put(self, depth: int, ids: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the rows of the active nodes, and of those settled since the last call."""
        if self._k is None or self._v is None or len(ids) == len(self._k):
            self._k, self._v = k, v
        else:
            ids, k, v = (
                torch.cat(parts) for parts in zip(*self._settled, (ids, k, v), strict=True)
            )
            self._k = self._k.index_copy(0, ids, k)
            self._v = self._v.index_copy(0, ids, v)
            self._settled.clear()
        return self._k, self._v

    def settle(self, depth: int, ids: Tensor, k: Tensor, v: Tensor) -> None:
        """Note the final rows; the next :meth:`put` enters them with its own in one copy."""
        self._settled.append((ids, k, v))


class CachedKeyValues:
    """Keys and values in the decoding cache, one level a step; sources are its rows.

    Args:
        cache: the rows of all decoder nodes so far.
        rows: the rows of the new nodes, ``(F,)``.
    """

    outlive = True

    def __init__(self, cache: RowCache, rows: Tensor):
        self._cache, self._rows = cache, rows

    def put(self, depth: int, ids: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write one level and return it."""
        self._cache.write(depth, self._rows[ids], k, v)
        return self._cache.read(depth)

    def settle(self, depth: int, ids: Tensor, k: Tensor, v: Tensor) -> None:
        """Write all levels from ``depth`` on."""
        self._cache.write(slice(depth, None), self._rows[ids], k, v)


class AdaptiveStack(nn.Module):
    """One layer applied until each node has halted: one side of a Universal Transformer.

    Args:
        layer: the layer that is shared over depth.
        positions: the table of position and time codes.
        dim_model: width M.
        dropout: on the states with the codes added.
        rule: when nodes halt.

    Source: Dehghani et al. 2018, section 2; Graves 2016, section 2.
    """

    def __init__(
        self,
        layer: EncoderLayer | DecoderLayer,
        positions: Sinusoids,
        dim_model: int,
        dropout: float,
        rule: HaltingRule,
    ):
        super().__init__()
        self.rule = rule
        self.layer, self.positions = layer, positions
        self.norm = nn.LayerNorm(dim_model)
        self.halting_unit = HaltingUnit(dim_model, rule.bias)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        edges: EdgeSet,
        states: KeyValues,
        memory: Memory | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Halting]:
        """Refine nodes until all have halted.

        Args:
            x: embeddings of the nodes to refine, ``(n, M)``.
            positions: their positions, ``(n,)`` int64.
            edges: from whatever ``states`` holds to these nodes.
            states: keeps keys and values over the steps.
            memory: the encoder's side, for a decoder.
            bias: added to the scores of ``edges``, ``(E, H)``.

        Returns:
            The normed, weighted sums of states ``(n, M)``, and the ledger.
        """
        place = self.positions(positions)
        halting = Halting(len(x), self.rule.threshold, self.rule.max_depth, x.device)
        while len(ids := halting.ids):
            depth = halting.step
            time = self.positions(ids.new_tensor([depth]))
            x = self.dropout(x + place[ids] + time)
            fields = self.layer.pre_func(Rows({"x": x}))
            k, v = states.put(depth, ids, fields["k"], fields["v"])
            part, part_bias = _part(edges, bias, ids)
            context = [] if memory is None else [_part_of_memory(memory, ids)]
            fields = {"q": fields["q"], "k": k, "v": v}
            x = self.layer(x, fields, part, *context, bias=part_bias)
            halted = halting.update(self.halting_unit(self.norm(x)), x)
            seen_later = depth + 1 < self.rule.max_depth and (len(halting.ids) or states.outlive)
            if seen_later and len(halting.ids) < len(ids):
                # Who goes on (or comes later) sees these through the state in which they stopped.
                last = self.layer.pre_func(Rows({"x": x[halted]}), "kv")
                states.settle(depth + 1, ids[halted], last["k"], last["v"])
            x = x[~halted]
        return self.norm(halting.result()), halting


def _part(edges: EdgeSet, bias: Tensor | None, ids: Tensor) -> tuple[EdgeSet, Tensor | None]:
    """The edges into the nodes ``ids``, and their biases."""
    if len(ids) == edges.num_dst:
        return edges, bias
    part = edges.keep(ids)
    return part, None if bias is None else bias[part.kept_edges]


def _part_of_memory(memory: Memory, ids: Tensor) -> Memory:
    edges, bias = _part(memory.edges, memory.bias, ids)
    return memory._replace(edges=edges, bias=bias)


class UTransformer(GraphSeq2Seq):
    """One encoder and one decoder layer, each applied until every node has halted.

    At step t each active node gets the codes of its position and of the step added, goes through
    the layer, and halts with a probability computed from its new state (see
    :class:`graphformer.Halting`). A halted node costs nothing more; the others go on seeing it
    through the state in which it stopped: its state is copied to the steps that follow (Dehghani
    et al. 2018, section 2.2), in training and in decoding alike.

    Args: as for :func:`graphformer.make_model`, which is the way to make one; ``rule`` has the
        settings of halting.

    Attributes:
        ponder: steps of each node in the last forward pass, a :class:`graphformer.Ponder`.

    Source: Dehghani et al. 2018; Graves 2016.
    """

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        dim_model: int = 512,
        dim_ff: int = 2048,
        h: int = 8,
        dropout: float = 0.1,
        *,
        share_embeddings: bool = True,
        attention_dropout: float = 0.0,
        rule: HaltingRule = DEFAULT_RULE,
        kernel: str = "auto",
    ):
        super().__init__(src_vocab, tgt_vocab, dim_model, h, share_embeddings)
        self.rule = rule.check()
        sizes = (dim_model, dim_ff, h, dropout, attention_dropout, kernel)
        stack = (self.positions, dim_model, dropout, rule)
        self.enc = AdaptiveStack(EncoderLayer(*sizes), *stack)
        self.dec = AdaptiveStack(DecoderLayer(*sizes), *stack)

    @property
    def _dec_layer(self) -> DecoderLayer:
        return cast(DecoderLayer, self.dec.layer)

    def encode(
        self, src: tuple[Tensor, Tensor], edges: EdgeSet, bias: Biases
    ) -> tuple[Tensor, Halting | None]:
        """Encode the sources ``src`` over ``edges`` with ``bias``; see the base class."""
        x = self.src_embed(src[0])
        return self.enc(x, src[1], edges, FreshKeyValues(), bias=bias.get("ee"))

    def decode(
        self,
        tgt: tuple[Tensor, Tensor],
        edges: Mapping[str, EdgeSet],
        memory: Tensor,
        bias: Biases,
    ) -> tuple[Tensor, Halting | None]:
        """Decode ``tgt`` over ``edges``, seeing ``memory``, with ``bias``; see the base class."""
        seen = self._memory(self._dec_layer, memory, edges["ed"], bias.get("ed"))
        x = self.tgt_embed(tgt[0])
        return self.dec(x, tgt[1], edges["dd"], FreshKeyValues(), seen, bias.get("dd"))

    def _account(self, enc: Halting | None, dec: Halting | None) -> Tensor:
        """Weighted mean over all nodes of ``N_i + r_i``; keeps the steps in :attr:`ponder`."""
        if enc is None or dec is None:
            raise TypeError("a Universal Transformer needs the ledgers of both sides")
        self.ponder = Ponder({"enc": enc.steps, "dec": dec.steps}, self.rule.max_depth)
        return self.rule.act_loss_weight * torch.cat([enc.ponder(), dec.ponder()]).mean()

    def _levels(self) -> tuple[Sequence[DecoderLayer], int]:
        """One level a step of the one layer."""
        return [self._dec_layer], self.rule.max_depth

    def _advance(
        self,
        state: DecoderState,
        nodes: tuple[Tensor, Tensor],
        rows: Tensor,
        own: EdgeSet,
        cross: EdgeSet,
    ) -> Tensor:
        """The new nodes until all have halted; see the base class."""
        states = CachedKeyValues(state.cache, rows)
        seen = state.memories[0]._replace(edges=cross)
        x, _ = self.dec(self.tgt_embed(nodes[0]), nodes[1], own, states, seen)
        return x
