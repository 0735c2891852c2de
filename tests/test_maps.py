"""Attention maps: exactly the weights that were used, one matrix a sample and head."""

import numpy as np
import pytest
import torch
from small import BOTH, close, numbers, small_model, some_pairs

from graphformer.attention import attend
from graphformer.build import make_model
from graphformer.graph import GraphPool
from graphformer.maps import AttentionRecords, record_attention
from graphformer.multihead import MultiHeadAttention
from graphformer.patterns import complete, window

SRC_LENS, TGT_LENS = [3, 1, 5], [2, 7, 1]

both_models = pytest.mark.parametrize("universal", BOTH, ids=["plain", "universal"])


def recorded(model, pool=None):
    batch = (pool or GraphPool())(*some_pairs(SRC_LENS, TGT_LENS))
    with record_attention(model) as records:
        model(batch)
    return batch, records


# ------------------------------------------------------------------ the right weights


def test_one_record_a_layer_and_kind():
    _, records = recorded(small_model(False))
    assert [record.module for record in records] == [
        *("enc_layers.0.self_block.attn", "enc_layers.1.self_block.attn"),
        *("dec_layers.0.self_block.attn", "dec_layers.0.cross_block.attn"),
        *("dec_layers.1.self_block.attn", "dec_layers.1.cross_block.attn"),
    ]
    assert [record.edges.name for record in records] == ["ee", "ee", "dd", "ed", "dd", "ed"]
    assert len(records) == 6 and len(records.kind("ed")) == 2


def test_first_map_by_hand():
    """The softmax of q k / sqrt(D), worked out from the projections."""
    model = small_model(False)
    batch, records = recorded(model)
    block = model.enc_layers[0].self_block
    x = model.src_embed(batch.src[0]) + model.positions(batch.src[1])
    q, k = (block.attn.project(block.norm(x), field)[field] for field in "qk")
    start = 0
    for sample, n in enumerate(SRC_LENS):
        rows = slice(start, start + n)
        score = torch.einsum("qhd,khd->hqk", q[rows], k[rows]) / 5**0.5
        close(records.dense("ee", 0, sample), score.softmax(-1), 1e-12)
        start += n


@pytest.mark.parametrize(
    "pool", [GraphPool(), GraphPool(enc=window(1), dec=window(0, causal=True))]
)
@both_models
def test_maps_of_all_layers(universal, pool):
    model = small_model(universal, halting_bias=-1.5)
    batch, records = recorded(model, pool)
    sides = {"ee": (SRC_LENS, SRC_LENS), "ed": (TGT_LENS, SRC_LENS), "dd": (TGT_LENS, TGT_LENS)}
    for kind, (queries, keys) in sides.items():
        for layer, record in enumerate(records.kind(kind)):
            kept = set(record.edges.kept_targets.tolist())
            start = 0
            for sample, (m, n) in enumerate(zip(queries, keys, strict=True)):
                weights = records.dense(kind, layer, sample)
                assert weights.shape == (3, m, n)
                # A row sums to 1, or is 0 where the node had halted before.
                going = [float(start + j in kept) for j in range(m)]
                close(weights.sum(-1), torch.tensor(going, dtype=torch.float64).expand(3, m))
                mask = batch.edges[kind].dense(torch.ones(len(batch.edges[kind]), 1), sample)[0]
                assert not weights[:, mask == 0].any(), "exactly 0 where there is no edge"
                start += m
    if universal:
        assert len(records.kind("dd")) == int(model.ponder.steps["dec"].max())


def test_weights_are_those_that_were_used():
    """Multiplied with the values they give the result, dropout included."""
    module = MultiHeadAttention(6, 2, dropout=0.5).double()
    x, edges = numbers(0, 5, 6), complete(5)
    with record_attention(module) as records:
        out = module(edges, x)
    (record,) = records
    v = module.project(x, "v")["v"]
    mixed = torch.zeros(5, 2, 3, dtype=torch.float64)
    mixed.index_add_(0, edges.dst, record.weights.unsqueeze(-1) * v[edges.src])
    close(module.output(mixed), out)
    assert bool((record.weights == 0).any()), "what was dropped shows as dropped"


@pytest.mark.parametrize("kernel", ["message", "block", "auto"])
@both_models
def test_recording_changes_nothing(universal, kernel):
    model = small_model(universal)
    for module in model.modules():
        if hasattr(module, "kernel"):
            module.kernel = kernel
    batch = GraphPool()(*some_pairs(SRC_LENS, TGT_LENS))
    before = model(batch).logits
    _, records = recorded(model)
    with record_attention(model):
        close(model(batch).logits, before, 1e-12)
    expected = attend_weights(model, records)
    close(records.records[0].weights, expected, 1e-12)


def attend_weights(model, records):
    block = (model.enc.layer if hasattr(model, "enc") else model.enc_layers[0]).self_block
    batch = GraphPool()(*some_pairs(SRC_LENS, TGT_LENS))
    x = model.src_embed(batch.src[0]) + model.positions(batch.src[1])
    if hasattr(model, "enc"):
        x = x + model.positions(torch.zeros(1, dtype=torch.int64))
    fields = block.attn.project(block.norm(x))
    return attend(batch.edges["ee"], **fields, return_weights=True)[1].detach()


# ------------------------------------------------------------------ as a recorder


def test_several_passes_follow_each_other():
    model = small_model(False)
    batch = GraphPool()(*some_pairs([3], [2]))
    with record_attention(model) as records:
        model(batch)
        model(batch)
    assert len(records) == 12
    assert records.records[0].weights.equal(records.records[6].weights)


def test_recording_ends_with_the_block():
    model = small_model(False)
    batch = GraphPool()(*some_pairs([3], [2]))
    with pytest.raises(KeyError), record_attention(model) as records:
        model(batch)
        raise KeyError
    model(batch)
    assert len(records) == 6
    assert not any(getattr(module, "listener", None) for module in model.modules())


def test_recorders_nest():
    model = small_model(False)
    batch = GraphPool()(*some_pairs([3], [2]))
    with record_attention(model) as outer:
        model(batch)
        with record_attention(model) as inner:
            model(batch)
        model(batch)
    assert (len(outer), len(inner)) == (12, 6)


def test_records_hold_no_gradient():
    _, records = recorded(small_model(False))
    assert not any(record.weights.requires_grad for record in records)
    array = np.asarray(records.dense("ed", -1, 2))
    assert array.shape == (3, 1, 5) and array.dtype == np.float64


def test_decoding_steps_are_recorded_too():
    model = small_model(False)
    with torch.no_grad(), record_attention(model) as records:
        state = model.start([[4, 5, 6]])
        model.step(
            state, torch.tensor([0]), torch.zeros(1, 0, dtype=torch.int64), torch.tensor([0])
        )
        model.step(state, torch.tensor([5]), torch.tensor([[0]]), torch.tensor([0]))
    assert [len(record.edges) for record in records.kind("dd")] == [1, 1, 2, 2]
    assert [len(record.edges) for record in records.kind("ed")] == [3] * 4
    assert len(records.kind("ee")) == 2


def test_what_was_not_recorded_is_named():
    _, records = recorded(small_model(False))
    with pytest.raises(ValueError, match="'de'.*only over.*'dd', 'ed', 'ee'"):
        records.dense("de")
    with pytest.raises(ValueError, match="layer 2: 'dd' has layers 0 to 1"):
        records.dense("dd", 2)
    with pytest.raises(ValueError, match="layer -3"):
        records.dense("dd", -3)
    with pytest.raises(ValueError, match="sample 3: this batch has samples 0 to 2"):
        records.dense("dd", 0, 3)
    with pytest.raises(ValueError, match="'ee'"):
        AttentionRecords().kind("ee")


def test_mask_tells_edges_from_weights_that_are_zero():
    model = make_model(7, 7, N=1, dim_model=6, dim_ff=5, h=2)
    with torch.no_grad():
        model.dec_layers[0].self_block.attn.qkv.weight.mul_(1e6)  # weights underflow
    with record_attention(model.eval()) as records:
        model(GraphPool()([[4, 5]], [[0, 4, 5, 6, 1]]))
    assert records.mask("dd").tolist() == torch.ones(4, 4, dtype=torch.bool).tril().tolist()
    assert (records.dense("dd")[:, records.mask("dd")] == 0).any()
    assert records.mask("ed").all() and records.mask("ed").shape == (4, 2)
