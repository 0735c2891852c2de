"""Embeddings, positions, feed-forward, and both layers as node functions."""

import copy
import math

import pytest
import torch
from reference import sinusoid as sinusoid_by_number
from small import close, numbers

from graphformer.embeddings import Embeddings, Sinusoids, sinusoid
from graphformer.layers import DecoderLayer, EncoderLayer, FeedForward, Memory, Rows
from graphformer.patterns import causal, complete

# ------------------------------------------------------------------ positions


@pytest.mark.parametrize("dim", [1, 2, 3, 15, 33])
def test_sinusoid_by_number(dim):
    """Any width, an odd one too."""
    positions = torch.tensor([0, 1, 2, 5, 997])
    expected = [sinusoid_by_number(position, dim) for position in positions.tolist()]
    close(sinusoid(positions, dim, torch.float64), torch.tensor(expected, dtype=torch.float64))


def test_sinusoid_by_hand():
    code = sinusoid(torch.tensor([3]), 4, torch.float64)[0].tolist()
    assert code == pytest.approx([math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)])


def test_sinusoid_is_computed_in_double():
    far = torch.tensor([100_003])
    assert sinusoid(far, 7).equal(sinusoid(far, 7, torch.float64).float())


def test_table_grows():
    table = Sinusoids(5)
    for positions in ([0, 2], [1], [701, 0], []):
        positions = torch.tensor(positions, dtype=torch.int64)
        assert table(positions).equal(sinusoid(positions, 5))
    assert not table.state_dict(), "not part of the weights"
    assert not list(table.parameters())


def test_table_follows_the_precision():
    table, positions = Sinusoids(5), torch.arange(7)
    table(positions)
    table = copy.deepcopy(table).double()
    assert table(positions).equal(sinusoid(positions, 5, torch.float64)), "not float32 rounded"
    assert table.to(torch.bfloat16)(positions).dtype == torch.bfloat16


# ------------------------------------------------------------------ embeddings


def test_embeddings_are_scaled():
    embed = Embeddings(3, 4)
    with torch.no_grad():
        embed.weight.copy_(torch.arange(12.0).view(3, 4))
    assert embed(torch.tensor([2, 0])).tolist() == [[16.0, 18.0, 20.0, 22.0], [0.0, 2.0, 4.0, 6.0]]


@pytest.mark.parametrize(("ids", "bad"), [([0, 11, 12], 11), ([3, -1], -1), ([10, 10**12], 10**12)])
def test_ids_outside_the_vocabulary_are_named(ids, bad):
    with pytest.raises(ValueError, match=f"token id {bad} .* vocabulary of 11 tokens"):
        Embeddings(11, 4)(torch.tensor(ids))


def test_last_id_and_no_id():
    embed = Embeddings(11, 4)
    assert embed(torch.tensor([10, 0])).shape == (2, 4)
    assert embed(torch.zeros(0, dtype=torch.int64)).shape == (0, 4)


# ------------------------------------------------------------------ feed-forward


def test_feed_forward_by_hand():
    layer = FeedForward(2, 3, dropout=0.0)
    with torch.no_grad():
        layer.inner.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]))
        layer.inner.bias.copy_(torch.tensor([0.0, 1.0, 2.0]))
        layer.outer.weight.copy_(torch.tensor([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]))
        layer.outer.bias.copy_(torch.tensor([0.5, 0.0]))
    # inner: 1, 3, -1 -> 1, 3, 0; outer: 1 + 6 + 0.5, 3
    assert layer(torch.tensor([[1.0, 2.0]])).tolist() == [[7.5, 3.0]]


def test_inner_units_are_dropped_in_training():
    layer = FeedForward(3, 31, dropout=0.5)
    x = torch.ones(5, 3)
    assert not layer(x).equal(layer(x))
    layer.eval()
    assert layer(x).equal(layer(x))


# ------------------------------------------------------------------ layers


def encoder_layer():
    return EncoderLayer(6, 7, 2, dropout=0.0).double()


def decoder_layer():
    return DecoderLayer(6, 7, 2, dropout=0.0).double()


def test_encoder_layer_is_two_residual_blocks():
    layer, x, edges = encoder_layer(), numbers(0, 5, 6), complete(5)
    found = layer(x, layer.pre_func(Rows({"x": x})), edges)
    y = x + layer.self_block.attn(edges, layer.self_block.norm(x))
    close(found, y + layer.ff_block.ff(layer.ff_block.norm(y)))


def test_decoder_layer_is_three_residual_blocks():
    layer, x, seen = decoder_layer(), numbers(0, 5, 6), numbers(1, 3, 6)
    fields = layer.pre_func(Rows({"x": seen}), "kv", attn="cross")
    memory = Memory(complete(3, 5), fields["k"], fields["v"])
    found = layer(x, layer.pre_func(Rows({"x": x})), causal(5), memory)
    y = x + layer.self_block.attn(causal(5), layer.self_block.norm(x))
    # What comes from the encoder is normed already.
    y = y + layer.cross_block.attn(complete(3, 5), layer.cross_block.norm(y), seen)
    close(found, y + layer.ff_block.ff(layer.ff_block.norm(y)))


def test_cross_attention_has_weights_of_its_own():
    layer = decoder_layer()
    own = {id(p) for p in layer.self_block.parameters()}
    cross = {id(p) for p in layer.cross_block.parameters()}
    assert len(own) == len(cross) == 4 and not own & cross


def test_pre_func_gives_the_fields_asked_for():
    layer, rows = decoder_layer(), Rows({"x": numbers(0, 5, 6)})
    for attn in ("self", "cross"):
        for fields in ("qkv", "q", "kv"):
            found = layer.pre_func(rows, fields, attn=attn)
            assert {name: tuple(part.shape) for name, part in found.items()} == dict.fromkeys(
                fields, (5, 2, 3)
            )
    assert not layer.pre_func(rows, "q")["q"].equal(layer.pre_func(rows, "q", attn="cross")["q"])


def test_dropout_reaches_every_block():
    """In training, each of the three outputs is dropped on its own; in evaluation, none."""
    layer = DecoderLayer(6, 7, 2, dropout=0.5)
    rows = Rows({"x": torch.zeros(31, 6), "wv": torch.ones(31, 2, 3)})
    with torch.no_grad():
        layer.ff_block.ff.outer.weight.zero_()
    for attn in ("self", "cross"):
        added = layer.post_func(rows, attn=attn)["x"]
        assert 0.3 < float((added == 0).double().mean()) < 0.7
    with torch.no_grad():
        layer.ff_block.ff.outer.bias.fill_(1.0)
    assert 0.3 < float((layer.ff_block(torch.zeros(31, 6)) == 0).double().mean()) < 0.7
    layer.eval()
    assert not (layer.post_func(rows)["x"] == 0).any()
