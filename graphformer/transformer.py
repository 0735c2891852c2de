"""The plain Transformer, and what it shares with the Universal Transformer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from .cache import DecoderState, RowCache, StepEdges
from .decode import Hypothesis, infer
from .dropout import Dropout
from .edges import EdgeSet
from .embeddings import Embeddings, Sinusoids
from .graph import KINDS, GraphBatch, GraphPool
from .halting import Halting, Ponder
from .layers import DecoderLayer, EncoderLayer, Memory, Rows

Biases = Mapping[str, Tensor]


class Output(NamedTuple):
    """What a forward pass gives, for both models.

    Attributes:
        logits: scores of the next token before the softmax, ``(T, V)``.
        act_loss: weighted ponder cost, a scalar; 0 for the plain Transformer.
    """

    logits: Tensor
    act_loss: Tensor

    @property
    def log_probs(self) -> Tensor:
        """Log-probabilities of the next token in nats, ``(T, V)``."""
        return torch.log_softmax(self.logits, -1)


class GraphSeq2Seq(nn.Module):
    """Encoder and decoder over a graph batch; abstract, with two final subclasses.

    Args:
        src_vocab, tgt_vocab: numbers of tokens.
        dim_model: width M.
        h: heads H.
        share_embeddings: one matrix for the target embeddings and the output, and for the source
            embeddings too where both vocabularies have the same size.

    Source: Vaswani et al. 2017; sharing as in Press and Wolf 2017.
    """

    ponder: Ponder | None = None

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        dim_model: int,
        h: int,
        share_embeddings: bool,
    ):
        super().__init__()
        self.src_vocab, self.tgt_vocab, self.dim_model, self.h = src_vocab, tgt_vocab, dim_model, h
        self.tgt_embed = Embeddings(tgt_vocab, dim_model)
        joint = share_embeddings and src_vocab == tgt_vocab
        self.src_embed = self.tgt_embed if joint else Embeddings(src_vocab, dim_model)
        self.generator = nn.Linear(dim_model, tgt_vocab, bias=False)
        nn.init.xavier_uniform_(self.generator.weight)
        if share_embeddings:
            self.generator.weight = self.tgt_embed.weight
        self.positions = Sinusoids(dim_model)

    def forward(self, batch: GraphBatch, bias: Biases | None = None) -> Output:
        """Teacher-forced pass over a batch.

        Args:
            batch: the graph.
            bias: added to the attention scores: for a kind (``"ee"``, ``"ed"``, ``"dd"``)
                ``(E, H)`` in the order of ``batch.edges[kind]``.

        Returns:
            Logits ``(T, V)``, in the order of ``batch.tgt_y``, and the weighted ponder cost.

        Raises:
            ValueError: if a token id lies outside the vocabulary, or a kind is unknown.
        """
        bias = bias or {}
        unknown = [kind for kind in bias if kind not in KINDS]
        if unknown:
            raise ValueError(f"bias for {unknown[0]!r}: the kinds are {', '.join(KINDS)}")
        memory, enc = self.encode(batch.src, batch.edges["ee"], bias)
        x, dec = self.decode(batch.tgt, batch.edges, memory, bias)
        return Output(self.generator(x), self._account(enc, dec))

    @abstractmethod
    def encode(
        self, src: tuple[Tensor, Tensor], edges: EdgeSet, bias: Biases
    ) -> tuple[Tensor, Halting | None]:
        """Encode the sources.

        Args:
            src: token ids and positions, ``(Σn,)`` each.
            edges: the edge set ``"ee"``.
            bias: as for :meth:`forward`.

        Returns:
            Normed states ``(Σn, M)``, and the halting ledger, if the model has one.
        """

    @abstractmethod
    def decode(
        self,
        tgt: tuple[Tensor, Tensor],
        edges: Mapping[str, EdgeSet],
        memory: Tensor,
        bias: Biases,
    ) -> tuple[Tensor, Halting | None]:
        """Decode the targets, all positions at once.

        Args:
            tgt: token ids and positions, ``(T,)`` each.
            edges: the edge sets of all kinds; ``"dd"`` and ``"ed"`` are used.
            memory: what :meth:`encode` gave, ``(Σn, M)``.
            bias: as for :meth:`forward`.

        Returns:
            Normed states ``(T, M)``, and the halting ledger, if the model has one.
        """

    @abstractmethod
    def _account(self, enc: Halting | None, dec: Halting | None) -> Tensor:
        """The weighted ponder cost of a pass, a scalar; also keeps :attr:`ponder`."""

    @abstractmethod
    def _levels(self) -> tuple[Sequence[DecoderLayer], int]:
        """The decoder's layers, and how many levels of keys and values decoding keeps."""

    @abstractmethod
    def _advance(
        self,
        state: DecoderState,
        nodes: tuple[Tensor, Tensor],
        rows: Tensor,
        own: EdgeSet,
        cross: EdgeSet,
    ) -> Tensor:
        """Token ids and positions ``(F,)`` of the new nodes -> their normed states ``(F, M)``.

        ``rows`` are their cache rows, ``own`` and ``cross`` the edges into them.
        """

    def start(self, src: Sequence[Sequence[int]], pool: GraphPool | None = None) -> DecoderState:
        """Encode each source once.

        Args:
            src: token ids of each source.
            pool: the edge patterns which the model was trained with; ``None``: the usual ones.
        """
        pool = pool or GraphPool()
        nodes, edges = pool.sources(src, self.generator.weight.device)
        memory, _ = self.encode(nodes, edges, {})
        layers, levels = self._levels()
        memories = [self._memory(layer, memory, edges) for layer in layers]
        cache = RowCache(levels, self.h, self.dim_model // self.h, memory)
        return DecoderState(memories, StepEdges(pool, edges.sizes.src), cache)

    def step(self, state: DecoderState, tokens: Tensor, paths: Tensor, sentences: Tensor) -> Tensor:
        """Compute the next node of each open hypothesis, and only that.

        Args:
            state: from :meth:`start`; gains F rows with the ids from ``state.num_rows`` on.
            tokens: last token of each hypothesis, ``(F,)`` int64.
            paths: cache rows of its earlier nodes, ``(F, t)`` int64.
            sentences: index of its source, ``(F,)`` int64.

        Returns:
            Logits of the next token, ``(F, V)``.
        """
        if not len(tokens):
            return self.generator.weight.new_zeros(0, self.tgt_vocab)
        rows, position = state.cache.extend(len(tokens)), paths.shape[1]
        own, cross = state.edges.own(paths, rows), state.edges.cross(sentences, position)
        nodes = tokens, torch.full_like(tokens, position)
        return self.generator(self._advance(state, nodes, rows, own, cross))

    def infer(
        self,
        src: Sequence[Sequence[int]],
        max_len: int | None = None,
        k: int = 5,
        alpha: float = 0.6,
        n_best: int = 1,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Translate: beam search with kept keys and values; see :func:`graphformer.infer`.

        Args:
            src: token ids of each sentence.
            max_len: most tokens of a translation; ``None``: twice the source and 10 more.
            k: hypotheses followed at once; 1 is greedy.
            alpha: exponent of the length penalty.
            n_best: hypotheses returned for each sentence, at most ``k``.
            **options: sizes of batches and the pool, as of :func:`graphformer.infer`.

        Returns:
            For each sentence its ``n_best`` hypotheses, best first.
        """
        return infer(self, src, max_len, k, alpha, n_best, **options)

    @staticmethod
    def _memory(
        layer: DecoderLayer, memory: Tensor, edges: EdgeSet, bias: Tensor | None = None
    ) -> Memory:
        """The encoder's states ``(Σn, M)`` as keys and values of a decoder layer."""
        fields = layer.pre_func(Rows({"x": memory}), "kv", attn="cross")
        return Memory(edges, fields["k"], fields["v"], bias)


class Transformer(GraphSeq2Seq):
    """N encoder and N decoder layers.

    Args: as for :func:`graphformer.make_model`, which is the way to make one.

    Source: Vaswani et al. 2017.
    """

    def __init__(
        self,
        src_vocab: int,
        tgt_vocab: int,
        N: int = 6,
        dim_model: int = 512,
        dim_ff: int = 2048,
        h: int = 8,
        dropout: float = 0.1,
        *,
        share_embeddings: bool = True,
        attention_dropout: float = 0.0,
        kernel: str = "auto",
    ):
        super().__init__(src_vocab, tgt_vocab, dim_model, h, share_embeddings)
        self.dropout = Dropout(dropout)
        sizes = (dim_model, dim_ff, h, dropout, attention_dropout, kernel)
        self.enc_layers = nn.ModuleList(EncoderLayer(*sizes) for _ in range(N))
        self.dec_layers = nn.ModuleList(DecoderLayer(*sizes) for _ in range(N))
        self.enc_norm, self.dec_norm = nn.LayerNorm(dim_model), nn.LayerNorm(dim_model)

    def encode(
        self, src: tuple[Tensor, Tensor], edges: EdgeSet, bias: Biases
    ) -> tuple[Tensor, Halting | None]:
        """Encode the sources ``src`` over ``edges`` with ``bias``; see the base class."""
        x = self.dropout(self.src_embed(src[0]) + self.positions(src[1]))
        for layer in cast("list[EncoderLayer]", self.enc_layers):
            x = layer(x, layer.pre_func(Rows({"x": x})), edges, bias.get("ee"))
        return self.enc_norm(x), None

    def decode(
        self,
        tgt: tuple[Tensor, Tensor],
        edges: Mapping[str, EdgeSet],
        memory: Tensor,
        bias: Biases,
    ) -> tuple[Tensor, Halting | None]:
        """Decode ``tgt`` over ``edges``, seeing ``memory``, with ``bias``; see the base class."""
        x = self.dropout(self.tgt_embed(tgt[0]) + self.positions(tgt[1]))
        for layer in cast("list[DecoderLayer]", self.dec_layers):
            seen = self._memory(layer, memory, edges["ed"], bias.get("ed"))
            x = layer(x, layer.pre_func(Rows({"x": x})), edges["dd"], seen, bias.get("dd"))
        return self.dec_norm(x), None

    def _account(self, enc: Halting | None, dec: Halting | None) -> Tensor:
        """0: nothing is pondered."""
        return self.generator.weight.new_zeros(())

    def _levels(self) -> tuple[Sequence[DecoderLayer], int]:
        """One level a layer."""
        return cast("list[DecoderLayer]", self.dec_layers), len(self.dec_layers)

    def _advance(
        self,
        state: DecoderState,
        nodes: tuple[Tensor, Tensor],
        rows: Tensor,
        own: EdgeSet,
        cross: EdgeSet,
    ) -> Tensor:
        """The new nodes through all layers; see the base class."""
        x = self.dropout(self.tgt_embed(nodes[0]) + self.positions(nodes[1]))
        for level, layer in enumerate(cast("list[DecoderLayer]", self.dec_layers)):
            fields = layer.pre_func(Rows({"x": x}))
            state.cache.write(level, rows, fields["k"], fields["v"])
            k, v = state.cache.read(level)
            seen = state.memories[level]._replace(edges=cross)
            x = layer(x, {"q": fields["q"], "k": k, "v": v}, own, seen)
        return self.dec_norm(x)
