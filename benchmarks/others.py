"""Candidates (c): packages from the index, where they are installed and run on this machine."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .data import PAD, Pair
from .padded import pad_pairs, padded_loss
from .sizes import Sizes


class Skipped(RuntimeError):
    """A candidate does not run here; the message says why."""


class XTransformers(nn.Module):
    """x-transformers: pre-norm encoder and decoder, fused attention, padding masks.

    Raises:
        Skipped: if the package is not installed.
    """

    def __init__(self, sizes: Sizes, dropout: float = 0.1):
        super().__init__()
        try:
            from x_transformers import Decoder, Encoder, TransformerWrapper
        except ImportError as error:
            raise Skipped(f"x-transformers: {error}") from None
        usual = {
            "dim": sizes.width,
            "depth": sizes.layers,
            "heads": sizes.heads,
            "attn_dim_head": sizes.width // sizes.heads,
            "attn_flash": True,
            "ff_mult": sizes.ff / sizes.width,
            "ff_custom_activation": nn.ReLU(),
            "ff_dropout": dropout,
            "layer_dropout": 0.0,
        }
        wrapper = {"num_tokens": sizes.vocabulary, "max_seq_len": 2 * sizes.longest}
        self.encoder = TransformerWrapper(
            **wrapper, attn_layers=Encoder(**usual), return_only_embed=True, emb_dropout=dropout
        )
        decoder = Decoder(**usual, cross_attend=True)
        self.decoder = TransformerWrapper(
            **wrapper, attn_layers=decoder, tie_embedding=True, emb_dropout=dropout
        )

    def loss(self, batch: Sequence[Pair]) -> Tensor:
        """Mean over the target tokens."""
        src, tgt, labels = pad_pairs(batch)
        memory = self.encoder(src, mask=src != PAD, return_embeddings=True)
        out = self.decoder(tgt, mask=tgt != PAD, context=memory, context_mask=src != PAD)
        return padded_loss(out, labels)


def transformer_conv(width: int, heads: int) -> nn.Module:
    """torch_geometric's attention along edges, ``M -> M``, with projections of its own.

    Raises:
        Skipped: if the package is not installed.
    """
    try:
        from torch_geometric.nn import TransformerConv
    except ImportError as error:
        raise Skipped(f"torch-geometric: {error}") from None
    return TransformerConv(width, width // heads, heads, bias=False, root_weight=False)


def flex_window(window: int, length: int) -> object:
    """PyTorch's flex_attention over a causal window, compiled: a function of q, k, v.

    Each is ``(1, H, n, D)``; forward only, for on a CPU it has no gradient.

    Raises:
        Skipped: if it does not compile here.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key < window)

    try:
        mask = create_block_mask(seen, None, None, length, length, device="cpu")
        compiled = torch.compile(flex_attention)
        sample = torch.zeros(1, 1, length, 16)
        with torch.no_grad():
            compiled(sample, sample, sample, block_mask=mask)
    except Exception as error:  # a compiler fails in as many ways as there are machines
        reason = str(error).strip().splitlines()
        raise Skipped(f"flex_attention: {reason[0] if reason else type(error)}") from None
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)
