"""From a description to a model, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from torch import Tensor

from .halting import HaltingRule
from .limits import check_counts, check_shares
from .transformer import Transformer
from .universal import UTransformer


@dataclass(frozen=True)
class ModelConfig:
    """The arguments of :func:`make_model`, vocabulary sizes left out, as a value to be saved."""

    N: int = 6
    dim_model: int = 512
    dim_ff: int = 2048
    h: int = 8
    dropout: float = 0.1
    universal: bool = False
    share_embeddings: bool = True
    attention_dropout: float = 0.0
    max_depth: int = 8
    threshold: float = 0.99
    act_loss_weight: float = 0.01
    halting_bias: float = 1.0
    kernel: str = "auto"

    def make(self, src_vocab: int, tgt_vocab: int) -> Transformer | UTransformer:
        """The model for ``src_vocab`` and ``tgt_vocab`` tokens, with fresh weights."""
        return make_model(src_vocab, tgt_vocab, **asdict(self))

    def check_stored(self, weights: Mapping[str, Tensor], source: str) -> None:
        """Refuse a description of a model much larger than its stored weights, before it is made.

        Args:
            weights: the stored weights.
            source: what to call the description in the message.

        Raises:
            ValueError: if they cannot belong together.
        """
        stored = sum(weight.numel() for weight in weights.values())
        layers = 1 if self.universal else self.N
        least = self.dim_model * max(3 * self.dim_model, self.dim_ff)
        if layers > len(weights) or least > stored:
            raise ValueError(
                f"{source}: describes a model with N={self.N}, dim_model={self.dim_model} and "
                f"dim_ff={self.dim_ff}, the stored weights are {len(weights)} tensors of "
                f"{stored} numbers"
            )


def make_model(
    src_vocab: int,
    tgt_vocab: int,
    N: int = 6,
    dim_model: int = 512,
    dim_ff: int = 2048,
    h: int = 8,
    dropout: float = 0.1,
    universal: bool = False,
    *,
    share_embeddings: bool = True,
    attention_dropout: float = 0.0,
    max_depth: int = 8,
    threshold: float = 0.99,
    act_loss_weight: float = 0.01,
    halting_bias: float = 1.0,
    kernel: str = "auto",
) -> Transformer | UTransformer:
    """Make a Transformer or an Adaptive Universal Transformer with fresh weights.

    Args:
        src_vocab: number of source tokens.
        tgt_vocab: number of target tokens V.
        N: layers on each side (Vaswani et al. 2017); not used if ``universal``.
        dim_model: width M, divisible by ``h``.
        dim_ff: inner width of the feed-forward part.
        h: heads H.
        dropout: on embeddings, residual branches and inside the feed-forward part, in [0, 1).
        universal: one layer shared over an adaptive depth (Dehghani et al. 2018).
        share_embeddings: one matrix for target embeddings and output, and for source embeddings
            too where both vocabularies have the same size (Press and Wolf 2017).
        attention_dropout: on attention weights, in [0, 1).
        max_depth: most steps of a node, if ``universal``.
        threshold: halt when the halting probabilities sum to this, if ``universal``; in (0, 1].
        act_loss_weight: weight of the ponder cost (Graves 2016, equation 11), if ``universal``.
        halting_bias: start value of the halting unit's offset, if ``universal``.
        kernel: how attention is computed; see :func:`graphformer.attend`.

    Raises:
        ValueError: if a value is out of range; the message names it.

    Example:
        >>> model = make_model(11, 11, N=1, dim_model=6, dim_ff=10, h=2)
        >>> type(model).__name__
        'Transformer'
    """
    check_counts(src_vocab=src_vocab, tgt_vocab=tgt_vocab)
    check_counts(dim_model=dim_model, dim_ff=dim_ff, h=h, N=1 if universal else N)
    check_shares(dropout=dropout, attention_dropout=attention_dropout)
    if universal:
        return UTransformer(
            src_vocab,
            tgt_vocab,
            dim_model,
            dim_ff,
            h,
            dropout,
            share_embeddings=share_embeddings,
            attention_dropout=attention_dropout,
            rule=HaltingRule(max_depth, threshold, act_loss_weight, halting_bias),
            kernel=kernel,
        )
    return Transformer(
        src_vocab,
        tgt_vocab,
        N,
        dim_model,
        dim_ff,
        h,
        dropout,
        share_embeddings=share_embeddings,
        attention_dropout=attention_dropout,
        kernel=kernel,
    )
