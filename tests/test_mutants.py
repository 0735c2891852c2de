"""Would the tests notice? The core is made wrong in one place at a time, and a check must fail.

Each mutant changes what one function of the core does; the check beside it is one that other tests
use. The checks pass on the core as it is, so what fails them is the mutant.
"""

import math

import pytest
import torch
from small import heads, small_model, some_pairs
from test_attention import check_core
from test_blocks import banded, check_kernels_equal
from test_halting import check_remainder
from test_incremental import check_positions
from test_transformer import check_equal_to_padded, check_no_leak_from_later_tokens

from graphformer import attention
from graphformer.attention import attend
from graphformer.bands import CAUSAL, COMPLETE, Band
from graphformer.edges import EdgeSet
from graphformer.embeddings import Sinusoids
from graphformer.graph import GraphPool
from graphformer.halting import Halting
from graphformer.layers import DecoderLayer
from graphformer.multihead import MultiHeadAttention
from graphformer.patterns import complete, window
from graphformer.transformer import Transformer
from graphformer.universal import CachedKeyValues, FreshKeyValues

PAIRS = some_pairs([3, 1, 5], [2, 4, 3])

# ------------------------------------------------------------------ checks


def core_by_message():
    check_core(window(1)(5), "message")


def core_by_block():
    check_core(window(1)(5), "block")


def plain_model():
    check_equal_to_padded(small_model(False), *PAIRS)


def universal_model():
    check_equal_to_padded(small_model(True, halting_bias=-1.5), *PAIRS)


def no_leak():
    check_no_leak_from_later_tokens(small_model(False))


def exact_softmax():
    q, k = torch.full((1, 1, 1), 20.0), torch.tensor([10.0, 10.5, -20.0]).view(3, 1, 1)
    for kernel in ("message", "block"):
        _, weights = attend(complete(3, 1), q, k, k, kernel=kernel, return_weights=True)
        assert weights[1].item() == pytest.approx(1 / (1 + math.exp(-10)))


def decoding():
    with torch.no_grad():
        check_positions(small_model(True, halting_bias=-1.5), *PAIRS, GraphPool())


def kernels():
    check_kernels_equal(banded([3, 5, 3], Band(0)))


# ------------------------------------------------------------------ mutants


def both_kernels(monkeypatch, change):
    """Put `change(q, k, v, bias) -> the same` before both kernels."""

    def before(original):
        def mutant(where, ends, bias, *rest):
            *ends, bias = change(*ends, bias)
            return original(where, tuple(ends), bias, *rest)

        return mutant

    for name in ("message_attention", "block_attention"):
        monkeypatch.setattr(attention, name, before(getattr(attention, name)))


def no_scale(monkeypatch):
    both_kernels(monkeypatch, lambda q, k, v, bias: (q * q.shape[-1] ** 0.5, k, v, bias))


def no_bias(monkeypatch):
    both_kernels(monkeypatch, lambda q, k, v, bias: (q, k, v, 0 * bias))


def clamped_scores(monkeypatch):
    both_kernels(monkeypatch, lambda q, k, v, bias: (q.clamp(-10, 10), k, v, bias))


def swapped_q_and_k(monkeypatch):
    original = MultiHeadAttention.project

    def project(self, x, fields="qkv"):
        whole = original(self, x)
        whole["q"], whole["k"] = whole["k"], whole["q"]
        return {field: whole[field] for field in fields}

    monkeypatch.setattr(MultiHeadAttention, "project", project)


def wrong_output_projection(monkeypatch):
    original = DecoderLayer.post_func

    def post_func(self, nodes, attn="self"):
        if attn == "self":
            return original(self, nodes)
        return {"x": self.ff_block(self.self_block.post(nodes.data["x"], nodes.data["wv"]))}

    monkeypatch.setattr(DecoderLayer, "post_func", post_func)


def causal_edges_shifted(shift):
    def mutate(monkeypatch):
        original = EdgeSet.banded

        def banded(cls, src_lens, dst_lens, band=COMPLETE, name=""):
            return original(src_lens, dst_lens, Band(shift) if band == CAUSAL else band, name)

        monkeypatch.setattr(EdgeSet, "banded", classmethod(banded))

    return mutate


def no_remainder(monkeypatch):
    original = Halting.update

    def update(self, p, x):
        halted = original(self, p, x)
        ids, state, remainder = self._done[-1]
        weight = p[halted]  # the last step is worth p, as the others are
        self._done[-1] = (ids, state - (remainder - weight) * x[halted], weight)
        return halted

    monkeypatch.setattr(Halting, "update", update)


def halted_nodes_seen_in_an_older_state(monkeypatch):
    monkeypatch.setattr(FreshKeyValues, "settle", lambda self, depth, ids, k, v: None)


def halted_rows_not_carried_on(monkeypatch):
    original = CachedKeyValues.settle

    def settle(self, depth, ids, k, v):
        original(self, depth, ids, 0 * k, 0 * v)

    monkeypatch.setattr(CachedKeyValues, "settle", settle)


def positions_from_1(monkeypatch):
    original = Sinusoids.forward
    monkeypatch.setattr(Sinusoids, "forward", lambda self, at: original(self, at + 1))


def no_final_norm(monkeypatch):
    original = Transformer.decode

    def decode(self, *args):
        kept, self.dec_norm = self.dec_norm, torch.nn.Identity()
        result = original(self, *args)
        self.dec_norm = kept
        return result

    monkeypatch.setattr(Transformer, "decode", decode)


def memory_normed_again(monkeypatch):
    original = DecoderLayer.pre_func

    def pre_func(self, nodes, fields="qkv", attn="self"):
        block = self.cross_block if attn == "cross" else self.self_block
        return (
            original(self, nodes, fields, attn)
            if attn == "self"
            else block.pre(nodes.data["x"], fields)
        )

    monkeypatch.setattr(DecoderLayer, "pre_func", pre_func)


def weights_of_parts_shifted(monkeypatch):
    """Biases of a part of an edge set are those of other edges."""
    monkeypatch.setattr(
        EdgeSet, "kept_edges", property(lambda self: torch.arange(len(self), device=self.device))
    )


def biased_universal_model():
    src, tgt = PAIRS
    batch = GraphPool()(src, tgt)
    biases = {
        kind: [
            part.requires_grad_()
            for part in heads(edges, num_heads=3)[-1].detach().split(edges.sizes.edges.tolist())
        ]
        for kind, edges in batch.edges.items()
    }
    check_equal_to_padded(small_model(True, halting_bias=-1.5), src, tgt, biases=biases)


# ------------------------------------------------------------------ each is killed

MUTANTS = [
    (no_scale, core_by_message),
    (no_scale, core_by_block),
    (no_scale, plain_model),
    (swapped_q_and_k, plain_model),
    (swapped_q_and_k, universal_model),
    (wrong_output_projection, plain_model),
    (wrong_output_projection, universal_model),
    (causal_edges_shifted(-1), no_leak),
    (causal_edges_shifted(-1), plain_model),
    (causal_edges_shifted(1), plain_model),
    (no_remainder, check_remainder),
    (no_remainder, universal_model),
    (no_bias, core_by_message),
    (no_bias, core_by_block),
    (clamped_scores, exact_softmax),
    (halted_nodes_seen_in_an_older_state, universal_model),
    (halted_rows_not_carried_on, decoding),
    (positions_from_1, plain_model),
    (no_final_norm, plain_model),
    (memory_normed_again, plain_model),
    (weights_of_parts_shifted, biased_universal_model),
]


@pytest.mark.parametrize("check", sorted({check for _, check in MUTANTS}, key=lambda c: c.__name__))
def test_the_core_passes(check):
    check()


@pytest.mark.parametrize(("mutate", "check"), MUTANTS)
def test_the_mutant_is_killed(mutate, check, monkeypatch):
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check()
