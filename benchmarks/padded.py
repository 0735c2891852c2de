"""Candidate (a): ``torch.nn.Transformer`` on padded batches, as most people would write it.

Pre-norm; causal mask and padding masks; PyTorch's fused attention inside; the same dropout. Logits
are computed for all positions, padding included, and the loss ignores the padding: that is the
usual way. ``real_logits`` picks the real positions first, for who knows that it pays.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from graphformer.embeddings import Embeddings, Sinusoids

from .data import PAD, Pair
from .ours import Ours
from .sizes import Sizes


def pad_pairs(batch: Sequence[Pair]) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, decoder inputs and labels, ``(B, longest)`` each."""
    sides = (
        [source for source, _ in batch],
        [target[:-1] for _, target in batch],
        [target[1:] for _, target in batch],
    )
    src, tgt, labels = (
        pad_sequence([torch.tensor(ids) for ids in side], batch_first=True, padding_value=PAD)
        for side in sides
    )
    return src, tgt, labels


def padded_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Label-smoothed cross-entropy, mean over the real tokens."""
    return nn.functional.cross_entropy(
        logits.flatten(0, -2), labels.flatten(), ignore_index=PAD, label_smoothing=0.1
    )


class Padded(nn.Module):
    """The model, and its own way from ids to a loss."""

    def __init__(self, sizes: Sizes, dropout: float = 0.1, real_logits: bool = False):
        super().__init__()
        self.real_logits = real_logits
        self.embed = Embeddings(sizes.vocabulary, sizes.width)
        self.positions = Sinusoids(sizes.width)
        self.dropout = nn.Dropout(dropout)
        with warnings.catch_warnings():
            # It says that a shortcut for inference does not apply; this is training.
            warnings.filterwarnings("ignore", message="enable_nested_tensor")
            self.core = nn.Transformer(
                sizes.width,
                sizes.heads,
                sizes.layers,
                sizes.layers,
                sizes.ff,
                dropout,
                batch_first=True,
                norm_first=True,
            )
        for part in self.core.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0  # as in the other candidates; and the fused kernel needs it

    def states(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Decoder states ``(B, m, M)`` of padded ids."""
        hidden = src == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1], dtype=torch.bool)
        return self.core(
            self._enter(src),
            self._enter(tgt),
            tgt_mask=causal,
            src_key_padding_mask=hidden,
            tgt_key_padding_mask=tgt == PAD,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )

    def logits(self, batch: Sequence[Pair]) -> Tensor:
        """``(T, V)``, real tokens only."""
        src, tgt, labels = pad_pairs(batch)
        return self._generate(self.states(src, tgt)[labels != PAD])

    def loss(self, batch: Sequence[Pair]) -> Tensor:
        """Mean over the target tokens."""
        src, tgt, labels = pad_pairs(batch)
        x = self.states(src, tgt)
        if self.real_logits:
            x, labels = x[labels != PAD], labels[labels != PAD]
        return padded_loss(self._generate(x), labels)

    def _enter(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        return self.dropout(self.embed(ids) + self.positions(places))

    def _generate(self, x: Tensor) -> Tensor:
        return x @ self.embed.weight.T

    @torch.no_grad()
    def copy_from(self, ours: Ours) -> Padded:
        """Take over the weights, to show that both compute the same."""
        model = ours.model
        self.embed.load_state_dict(model.tgt_embed.state_dict())
        self.core.encoder.norm.load_state_dict(model.enc_norm.state_dict())
        self.core.decoder.norm.load_state_dict(model.dec_norm.state_dict())
        for mine, theirs in zip(self.core.encoder.layers, model.enc_layers, strict=True):
            blocks = [(theirs.self_block, mine.self_attn, mine.norm1)]
            self._copy_layer(mine, theirs, blocks, mine.norm2)
        for mine, theirs in zip(self.core.decoder.layers, model.dec_layers, strict=True):
            blocks = [
                (theirs.self_block, mine.self_attn, mine.norm1),
                (theirs.cross_block, mine.multihead_attn, mine.norm2),
            ]
            self._copy_layer(mine, theirs, blocks, mine.norm3)
        return self

    @staticmethod
    def _copy_layer(mine: nn.Module, theirs: nn.Module, blocks: list, norm: nn.Module) -> None:
        for block, attention, before in blocks:
            attention.in_proj_weight.copy_(block.attn.qkv.weight)
            attention.out_proj.weight.copy_(block.attn.out.weight)
            before.load_state_dict(block.norm.state_dict())
        mine.linear1.load_state_dict(theirs.ff_block.ff.inner.state_dict())
        mine.linear2.load_state_dict(theirs.ff_block.ff.outer.state_dict())
        norm.load_state_dict(theirs.ff_block.norm.state_dict())
