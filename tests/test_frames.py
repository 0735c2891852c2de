"""Attention on a graph's frames, as the tutorial reads it: the same core, nothing left behind."""

from functools import partial

import dgl
import pytest
import torch
from hypothesis import given, settings
from small import close, dgl_graphs, heads, numbers, small_model, some_pairs

from graphformer.attention import attend
from graphformer.edges import EdgeSet
from graphformer.frames import propagate_attention, update_graph
from graphformer.graph import GraphPool
from graphformer.layers import EncoderLayer, Rows


def tutorial_graph():
    """A batch's graph with projections on its nodes; (batch, q, k, v)."""
    batch = GraphPool()(*some_pairs([3, 1, 5], [2, 3, 1]))
    q, k, v = (numbers(i, batch.n_nodes, 2, 3).requires_grad_() for i in range(3))
    batch.g.ndata.update(q=q, k=k, v=v)
    return batch, q, k, v


@pytest.mark.parametrize("kind", ["ee", "ed", "dd"])
def test_propagate_along_some_edges(kind):
    batch, q, k, v = tutorial_graph()
    src, dst = batch.g.find_edges(batch.eids[kind])
    edges = EdgeSet(src, dst, batch.n_nodes, batch.n_nodes)
    expected = attend(edges, q, k, v)
    for eids in (batch.eids[kind], edges):
        propagate_attention(batch.g, eids)
        close(batch.g.ndata.pop("wv"), expected)
    # The batch's own edge set says the same in local ids.
    side = {"e": batch.nids["enc"], "d": batch.nids["dec"]}
    enter, leave = side[kind[1]], side[kind[0]]
    close(expected[enter], attend(batch.edges[kind], q[enter], k[leave], v[leave]))


@settings(max_examples=25)
@given(dgl_graphs().filter(lambda g: g.is_homogeneous and not g.is_block))
def test_propagate_along_all_edges(g):
    edges = EdgeSet.from_dgl(g)
    q, k, v, bias = heads(edges)
    g.ndata.update(q=q, k=k, v=v)
    propagate_attention(g, bias=bias)
    close(g.ndata["wv"], attend(edges, q, k, v, bias=bias))


def test_only_wv_is_written():
    batch, *_ = tutorial_graph()
    propagate_attention(batch.g, batch.eids["dd"])
    assert sorted(batch.g.ndata) == ["k", "q", "v", "wv"]
    assert not batch.g.edata


def test_missing_field_is_named():
    g = dgl.graph(([0], [1]))
    g.ndata["q"] = g.ndata["v"] = torch.zeros(2, 1, 1)
    with pytest.raises(ValueError, match="'k' is missing; the graph has .*'q'"):
        propagate_attention(g)


def test_an_encoder_layer_as_node_functions():
    batch = GraphPool()(*some_pairs([3, 1, 5], [2, 3, 1]))
    layer = EncoderLayer(6, 5, 2, dropout=0.0).double()
    enc = batch.nids["enc"]
    x = numbers(0, batch.n_nodes, 6)
    batch.g.ndata["x"] = x
    update_graph(batch.g, batch.eids["ee"], [(layer.pre_func, enc)], [(layer.post_func, enc)])
    expected = layer(x[enc], layer.pre_func(Rows({"x": x[enc]})), batch.edges["ee"])
    close(batch.g.ndata["x"][enc], expected)
    assert batch.g.ndata["x"][batch.nids["dec"]].equal(x[batch.nids["dec"]]), "not touched"


def test_a_whole_model_as_node_functions():
    """Both stacks of a Transformer over one homogeneous graph, as in the DGL tutorial."""
    model = small_model(universal=False)
    src, tgt = some_pairs([3, 1, 5], [2, 3, 1])
    batch = GraphPool()(src, tgt)
    g, eids = batch.g, batch.eids
    enc, dec = batch.nids["enc"], batch.nids["dec"]
    g.ndata["x"] = torch.cat(
        [
            model.src_embed(batch.src[0]) + model.positions(batch.src[1]),
            model.tgt_embed(batch.tgt[0]) + model.positions(batch.tgt[1]),
        ]
    )
    for layer in model.enc_layers:
        update_graph(g, eids["ee"], [(layer.pre_func, enc)], [(layer.post_func, enc)])
    g.ndata["x"] = torch.cat([model.enc_norm(g.ndata["x"][enc]), g.ndata["x"][dec]])
    for layer in model.dec_layers:
        update_graph(g, eids["dd"], [(layer.pre_func, dec)], [(layer.post_func, dec)])
        cross = partial(layer.pre_func, attn="cross")
        update_graph(
            *(g, eids["ed"]),
            [(partial(cross, fields="q"), dec), (partial(cross, fields="kv"), enc)],
            [(partial(layer.post_func, attn="cross"), dec)],
        )
    close(model.generator(model.dec_norm(g.ndata["x"][dec])), model(batch).logits)


def test_no_column_outlives_an_update():
    batch, *_ = tutorial_graph()
    for field in "qkv":
        batch.g.ndata.pop(field)
    batch.g.ndata["x"] = numbers(0, batch.n_nodes, 6)

    def project(nodes):
        return dict.fromkeys("qkv", nodes.data["x"].unflatten(1, (2, 3)))

    def double(nodes):
        return {"y": 2 * nodes.data["wv"]}

    enc = batch.nids["enc"]
    update_graph(batch.g, batch.eids["ee"], [(project, enc)], [(double, enc)])
    assert sorted(batch.g.ndata) == ["x", "y"]
    assert not batch.g.edata


def test_fields_of_the_callers_own_survive():
    batch, q, k, v = tutorial_graph()
    enc = batch.nids["enc"]

    def project(nodes):
        return dict.fromkeys("qkv", 2 * nodes.data["q"])

    update_graph(
        batch.g, batch.eids["ee"], [(project, enc)], [(lambda n: {"x": n.data["wv"]}, enc)]
    )
    assert batch.g.ndata["q"] is q or batch.g.ndata["q"].equal(q)
    assert batch.g.ndata["k"].equal(k) and batch.g.ndata["v"].equal(v)


def test_update_needs_projections():
    g = dgl.graph(([0], [1]))
    g.ndata["x"] = torch.zeros(2, 1, 1)
    with pytest.raises(ValueError, match="'k' is missing"):
        update_graph(g, None, [(lambda nodes: {"q": nodes.data["x"]}, g.nodes())], [])
    assert list(g.ndata) == ["x"]
