"""From token ids to one graph: the tutorial's batch, positions, contiguous ids, clear refusals."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import small_model, some_pairs

from graphformer.edges import EdgeSet
from graphformer.graph import GraphBatch, GraphPool
from graphformer.patterns import causal, complete, window


def tutorial_batch():
    """One pair: 9 source ids, a target of 11 ids, hence 10 decoder nodes."""
    return GraphPool()([list(range(4, 13))], [[0, *range(13, 22), 1]])


def up_to(*bounds):
    return list(range(*bounds))


# ------------------------------------------------------------------ golden values


def test_tutorial_nodes_and_edges():
    batch = tutorial_batch()
    assert batch.nids["enc"].tolist() == up_to(0, 9)
    assert batch.nids["dec"].tolist() == up_to(9, 19)
    assert batch.eids["ee"].tolist() == up_to(0, 81)
    assert batch.eids["ed"].tolist() == up_to(81, 171)
    assert batch.eids["dd"].tolist() == up_to(171, 226)
    assert batch.src[0].tolist() == up_to(4, 13)
    assert batch.src[1].tolist() == up_to(0, 9)
    assert batch.tgt[0].tolist() == [0, *range(13, 22)]
    assert batch.tgt[1].tolist() == up_to(0, 10)
    assert batch.tgt_y.tolist() == [*range(13, 22), 1]
    assert (batch.n_nodes, batch.n_edges, batch.n_tokens) == (19, 226, 10)
    assert (batch.src_lens.tolist(), batch.tgt_lens.tolist()) == ([9], [10])


def test_tutorial_edges():
    batch = tutorial_batch()
    expected = {
        "ee": [(i, j) for j in range(9) for i in range(9)],
        "ed": [(i, j) for j in range(10) for i in range(9)],
        "dd": [(i, j) for j in range(10) for i in range(j + 1)],
    }
    for kind, pairs in expected.items():
        edges = batch.edges[kind]
        assert list(zip(edges.src.tolist(), edges.dst.tolist(), strict=True)) == pairs
        assert edges.name == kind


def test_tutorial_graph():
    batch = tutorial_batch()
    assert batch.g.is_homogeneous and batch.g.idtype == torch.int64
    assert (batch.g.num_nodes(), batch.g.num_edges()) == (19, 226)
    shifts = {"ee": (0, 0), "ed": (0, 9), "dd": (9, 9)}
    for kind, (src_shift, dst_shift) in shifts.items():
        src, dst = batch.g.find_edges(batch.eids[kind])
        assert src.equal(batch.edges[kind].src + src_shift)
        assert dst.equal(batch.edges[kind].dst + dst_shift)


def test_lengths_3_and_5_side_by_side():
    src, tgt = [[7, 8, 9], [4, 5, 6, 7, 8]], [[0, 9, 8, 1], [0, 8, 7, 6, 5, 1]]
    batch = GraphPool()(src, tgt)
    assert batch.src[1].tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert batch.tgt[1].tolist() == [0, 1, 2, 0, 1, 2, 3, 4]
    assert batch.src[0].tolist() == [7, 8, 9, 4, 5, 6, 7, 8]
    assert batch.tgt[0].tolist() == [0, 9, 8, 0, 8, 7, 6, 5]
    assert batch.tgt_y.tolist() == [9, 8, 1, 8, 7, 6, 5, 1]
    assert batch.edges["dd"].sizes.edges.tolist() == [6, 15]
    assert batch.edges["ed"].dst.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [
        j for j in range(3, 8) for _ in range(5)
    ]


# ------------------------------------------------------------------ properties

lengths = st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=5)


@settings(max_examples=50)
@given(lengths)
def test_batch(lens):
    src, tgt = some_pairs(*zip(*lens, strict=True))
    batch = GraphPool()(src, tgt)
    assert batch.src[0].tolist() == [token for ids in src for token in ids]
    assert batch.tgt[0].tolist() == [token for ids in tgt for token in ids[:-1]]
    assert batch.tgt_y.tolist() == [token for ids in tgt for token in ids[1:]]
    assert batch.src[1].tolist() == [i for ids in src for i in range(len(ids))]
    assert batch.tgt[1].tolist() == [i for ids in tgt for i in range(len(ids) - 1)]
    n, m = [len(ids) for ids in src], [len(ids) - 1 for ids in tgt]
    assert (batch.src_lens.tolist(), batch.tgt_lens.tolist()) == (n, m)
    assert (batch.n_nodes, batch.n_tokens) == (sum(n) + sum(m), sum(m))
    assert len(batch.edges["ee"]) == sum(i * i for i in n)
    assert len(batch.edges["ed"]) == sum(i * j for i, j in lens)
    assert len(batch.edges["dd"]) == sum(j * (j + 1) // 2 for j in m)
    assert batch.n_edges == batch.g.num_edges()
    # A sample's nodes and edges are those which it has alone, further along.
    at = len(lens) - 1
    alone = GraphPool()(src[at:], tgt[at:])
    for kind, shift in (("ee", sum(n[:at])), ("ed", sum(n[:at])), ("dd", sum(m[:at]))):
        part = batch.edges[kind].src[-len(alone.edges[kind]) :]
        assert part.equal(alone.edges[kind].src + shift)


@settings(max_examples=25)
@given(lengths)
def test_ids_of_a_kind_are_one_slice(lens):
    batch = GraphPool()(*some_pairs(*zip(*lens, strict=True)))
    nodes = torch.cat([batch.nids["enc"], batch.nids["dec"]])
    edges = torch.cat([batch.eids["ee"], batch.eids["ed"], batch.eids["dd"]])
    assert nodes.tolist() == up_to(batch.n_nodes)
    assert edges.tolist() == up_to(batch.n_edges)
    assert len(batch.nids["enc"]) == len(batch.src[0])
    for kind, ids in batch.eids.items():
        assert len(ids) == len(batch.edges[kind])
        assert ids.is_contiguous()


def test_everything_is_int64():
    batch = tutorial_batch()
    tensors = [*batch.src, *batch.tgt, batch.tgt_y, batch.src_lens, batch.tgt_lens]
    tensors += [*batch.nids.values(), *batch.eids.values()]
    assert {tensor.dtype for tensor in tensors} == {torch.int64}


def test_sources_alone():
    src, _ = some_pairs([3, 5, 1], [1, 1, 1])
    pool = GraphPool(enc=window(1))
    (ids, positions), edges = pool.sources(src)
    batch = pool(src, [[0, 1]] * 3)
    assert ids.equal(batch.src[0]) and positions.equal(batch.src[1])
    assert edges.src.equal(batch.edges["ee"].src) and edges.dst.equal(batch.edges["ee"].dst)
    assert edges.name == "ee"
    with pytest.raises(ValueError, match="sample 1: its source has 0 ids"):
        pool.sources([[4], []])


def test_batch_is_frozen():
    batch = tutorial_batch()
    for field in dataclasses.fields(GraphBatch):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(batch, field.name, None)


def test_to_where_it_is():
    batch = tutorial_batch()
    assert batch.to("cpu") is batch
    assert batch.to(torch.device("cpu")) is batch
    assert GraphPool()([[4]], [[0, 1]], device="cpu").src[0].device.type == "cpu"


def test_templates_are_made_once_for_each_length():
    made = []

    def counted(n):
        made.append(n)
        return causal(n)

    pool = GraphPool(dec=counted)
    for _ in range(2):
        pool(*some_pairs([2, 2, 2], [3, 5, 3]))
    assert made == [3, 5]


# ------------------------------------------------------------------ graphs of the samples' own


def test_own_edges_take_the_place_of_a_pattern():
    src, tgt = some_pairs([3, 2], [2, 1])
    tree = EdgeSet(torch.tensor([1, 2]), torch.tensor([0, 0]), 3, 3)
    batch = GraphPool()(src, tgt, edges={"ee": [tree, complete(2)]})
    edges = batch.edges["ee"]
    assert list(zip(edges.src.tolist(), edges.dst.tolist(), strict=True)) == [
        *[(1, 0), (2, 0)],
        *[(3, 3), (4, 3), (3, 4), (4, 4)],
    ]
    assert edges.sizes.edges.tolist() == [2, 4]
    assert len(batch.edges["dd"]) == 3 + 1, "the others keep their patterns"
    assert batch.g.num_edges() == batch.n_edges == 6 + 8 + 4


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        ({"de": [causal(3)]}, ["'de'", "ee, ed, dd"]),
        ({"ee": [complete(3)]}, ["'ee'", "1 sets for 2 samples"]),
        ({"ee": [complete(3), complete(3)]}, ["sample 1", "'ee'", "2 sources and 2 targets"]),
        ({"ed": [complete(2, 3)] * 2}, ["sample 0", "'ed'", "3 sources and 2 targets"]),
        ({"ed": [complete(3, 1)] * 2}, ["sample 0", "'ed'", "3 sources and 2 targets"]),
        ({"ed": [complete(3, 2), complete(3, 1)]}, ["sample 1", "2 sources and 1 targets"]),
    ],
)
def test_own_edges_must_fit(edges, says):
    with pytest.raises(ValueError) as caught:
        GraphPool()(*some_pairs([3, 2], [2, 1]), edges=edges)
    for part in says:
        assert part in str(caught.value)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("src", "tgt", "says"),
    [
        ([[4], []], [[0, 1], [0, 1]], "sample 1: its source has 0 ids"),
        ([[4], [4]], [[0, 1], []], "sample 1: its target has 0 ids"),
        ([[4], [4]], [[0], [0, 1]], "sample 0: its target has 1 ids, <sos> and <eos>"),
        ([[4], [4]], [[0, 1]], "2 sources for 1 targets"),
        ([], [], "at least one sample"),
    ],
)
def test_bad_batches_are_named(src, tgt, says):
    with pytest.raises(ValueError, match=says):
        GraphPool()(src, tgt)


@pytest.mark.parametrize("universal", [False, True])
@pytest.mark.parametrize(
    "value", [5.0, 5.5, float("nan"), np.float32(5), torch.tensor(5.0), "5", None, 2**63, 5j]
)
def test_an_id_that_is_no_whole_number_is_named(value, universal):
    with pytest.raises(TypeError, match="sample 1: its source has .* at position 2, a token id"):
        GraphPool()([[4], [4, 5, value]], [[0, 1], [0, 1]])
    with pytest.raises(TypeError, match="sample 0: its target has .* at position 1, a token id"):
        GraphPool()([[4], [4, 5]], [[0, value, 1], [0, 1]])
    with pytest.raises(TypeError, match="sample 0: its source has .* at position 0, a token id"):
        small_model(universal).start([[value]])


def test_ids_may_be_any_kind_of_whole_number():
    sources = [[4, 5], np.array([4, 5], dtype=np.int32), torch.tensor([4, 5])]
    batch = GraphPool()(sources, [[0, np.int64(6), 1]] * 3)
    assert batch.src[0].tolist() == [4, 5] * 3 and batch.tgt_y.tolist() == [6, 1] * 3
    assert batch.src[0].dtype == batch.tgt_y.dtype == torch.int64


def test_limit():
    """10 nodes a side fit; 11 do not, and the message says whose they are."""
    pool = GraphPool(max_len=10)
    src, tgt = some_pairs([10, 3], [3, 10])
    assert pool(src, tgt).n_tokens == 13
    src, tgt = some_pairs([2, 11], [2, 2])
    with pytest.raises(ValueError, match="sample 1: its source takes 11 nodes.*max_len=10"):
        pool(src, tgt)
    src, tgt = some_pairs([2, 2, 2], [2, 2, 11])
    with pytest.raises(ValueError, match="sample 2: its target takes 11 nodes.*max_len=10"):
        pool(src, tgt)
    with pytest.raises(ValueError, match="sample 0: its source takes 12 nodes.*max_len=10"):
        pool.sources([[4] * 12])


def test_no_limit_unless_given():
    src, tgt = some_pairs([401], [1])
    assert GraphPool()(src, tgt).n_edges == 401 * 401 + 401 + 1


def test_a_limit_of_one_node():
    assert GraphPool(max_len=1)([[4]], [[0, 1]]).n_nodes == 2


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_is_checked(limit):
    with pytest.raises(ValueError, match=f"max_len is {limit}, at least 1"):
        GraphPool(max_len=limit)


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [("ee", {"enc": lambda n: complete(n + 1)}), ("ed", {"cross": lambda n, m: complete(m, n)})],
)
def test_a_pattern_that_does_not_fit_is_refused(kind, pattern):
    with pytest.raises(ValueError, match=f"sample 0: .* was given as '{kind}', the sample has 2"):
        GraphPool(**pattern)([[4, 5]], [[0, 4, 5, 6, 1]])


def test_a_batch_can_be_compared_and_pickled():
    batch = GraphPool()([[4, 5]], [[0, 4, 1]])
    assert batch == batch and len({batch, batch}) == 1
    again = pickle.loads(pickle.dumps(batch))
    assert again.tgt_y.equal(batch.tgt_y) and len(again.edges["dd"]) == len(batch.edges["dd"])
