"""Edge sets: values that check themselves, batches by offsets, parts, and dense matrices."""

import pickle

import dgl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import BANDS, banded_edges, batched_edges, dgl_graphs, own_edges

from graphformer.edges import Band, EdgeSet, ranges


def ids(*values):
    return torch.tensor(values, dtype=torch.int64)


def pairs(edges):
    return list(zip(edges.src.tolist(), edges.dst.tolist(), strict=True))


def visible(band, target, source):
    low, high = band
    return (low is None or target - source >= low) and (high is None or target - source <= high)


any_edges = st.one_of(batched_edges(), banded_edges())


# ------------------------------------------------------------------ a checked, frozen value


def test_what_it_holds():
    edges = EdgeSet(ids(0, 4, 4), ids(1, 1, 0), 5, 2, "tree")
    assert (len(edges), edges.num_src, edges.num_dst, edges.name) == (3, 5, 2, "tree")
    assert repr(edges) == "EdgeSet('tree', 3 edges, 5 -> 2 nodes)"
    assert pairs(edges) == [(0, 1), (4, 1), (4, 0)]
    assert edges.device == torch.device("cpu")
    assert edges.band is None and edges.rows is None
    assert [size.tolist() for size in edges.sizes] == [[5], [2], [3]]


@pytest.mark.parametrize(
    ("src", "dst", "sizes", "error", "says"),
    [
        (ids(0, 5), ids(0, 1), (5, 2), ValueError, ["'trio'", "src", "id 5", "0 to 4"]),
        (ids(0, -1), ids(0, 1), (5, 2), ValueError, ["'trio'", "src", "id -1", "0 to 4"]),
        (ids(0, 1), ids(0, 2), (5, 2), ValueError, ["'trio'", "dst", "id 2", "0 to 1"]),
        (ids(0), ids(0), (0, 2), ValueError, ["'trio'", "src", "id 0"]),
        (ids(0, 1, 2), ids(0), (5, 2), ValueError, ["'trio'", "3 sources", "1 target"]),
        (ids(), ids(), (-1, 2), ValueError, ["'trio'", "num_src", "-1"]),
        (ids(), ids(), (1, -3), ValueError, ["'trio'", "num_dst", "-3"]),
        ([0, 1], ids(0, 1), (5, 2), TypeError, ["'trio'", "src", "list", "int64"]),
        (ids(0, 1), ids(0, 1).int(), (5, 2), TypeError, ["'trio'", "dst", "int32", "int64"]),
        (ids(0, 1), torch.zeros(2), (5, 2), TypeError, ["'trio'", "dst", "float32"]),
        (ids(0, 1)[None], ids(0, 1), (5, 2), TypeError, ["'trio'", "src", "(1, 2)"]),
    ],
)
def test_bad_ends_are_named(src, dst, sizes, error, says):
    with pytest.raises(error) as caught:
        EdgeSet(src, dst, *sizes, "trio")
    for part in says:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["src", "dst", "num_src", "num_dst", "name", "sizes", "band"])
def test_frozen(field):
    edges = EdgeSet(ids(0), ids(0), 1, 1)
    with pytest.raises(AttributeError):
        setattr(edges, field, getattr(edges, field))


def test_the_callers_tensors_are_copied():
    src, dst = torch.tensor([0, 1]), torch.tensor([1, 1])
    edges = EdgeSet(src, dst, 2, 2)
    src.fill_(99)
    dst.zero_()
    assert (edges.src.tolist(), edges.dst.tolist()) == ([0, 1], [1, 1])


def test_lengths_are_checked():
    with pytest.raises(ValueError, match="sample 1: target length -2 is negative"):
        EdgeSet.banded(ids(3, 2), ids(3, -2))
    with pytest.raises(ValueError, match="sample 0: source length -3 is negative"):
        EdgeSet.banded(ids(-3, 2), ids(3, 2))
    with pytest.raises(ValueError, match="2 source lengths for 1 target lengths"):
        EdgeSet.banded(ids(3, 2), ids(3))


# ------------------------------------------------------------------ ranges and bands


@given(st.lists(st.tuples(st.integers(-5, 30), st.integers(0, 7)), max_size=7))
def test_ranges(rows):
    starts, counts = ids(*(row[0] for row in rows)), ids(*(row[1] for row in rows))
    assert ranges(starts, counts).tolist() == [i for s, c in rows for i in range(s, s + c)]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=4), st.sampled_from(BANDS)
)
def test_banded_is_what_band_says(lens, band):
    expected, sizes, src_from, dst_from = [], [], 0, 0
    for n, m in lens:  # ordered by sample, then target, then source
        seen = [(i, j) for j in range(m) for i in range(n) if visible(band, j, i)]
        expected += [(src_from + i, dst_from + j) for i, j in seen]
        sizes.append(len(seen))
        src_from, dst_from = src_from + n, dst_from + m
    edges = EdgeSet.banded(ids(*(n for n, _ in lens)), ids(*(m for _, m in lens)), band, "b")
    assert len(edges) == len(expected)  # known before the ids are made
    assert pairs(edges) == expected
    assert edges.sizes.edges.tolist() == sizes
    assert (edges.num_src, edges.num_dst, edges.band) == (src_from, dst_from, band)
    assert edges.rows.tolist() == [j for _, m in lens for j in range(m)]


# ------------------------------------------------------------------ batches


@settings(max_examples=50)
@given(st.lists(st.one_of(own_edges(), banded_edges()), max_size=4))
def test_batch_shifts_each_part(parts):
    src_from, dst_from, expected, sizes = 0, 0, [], ([], [], [])
    for part in parts:
        expected += [(i + src_from, j + dst_from) for i, j in pairs(part)]
        src_from, dst_from = src_from + part.num_src, dst_from + part.num_dst
        for mine, more in zip(sizes, part.sizes, strict=True):
            mine += more.tolist()
    whole = EdgeSet.batch(parts, "whole")
    assert pairs(whole) == expected
    assert (whole.num_src, whole.num_dst, whole.name) == (src_from, dst_from, "whole")
    assert tuple(size.tolist() for size in whole.sizes) == sizes


def test_batch_keeps_what_is_known_of_blocks():
    one, two = (EdgeSet.banded(ids(n), ids(n), Band(0)) for n in (2, 3))
    assert EdgeSet.batch([one, two]).band == Band(0)
    other = EdgeSet.banded(ids(2), ids(2), Band())
    assert EdgeSet.batch([one, other]).band is None
    assert EdgeSet.batch([one, EdgeSet(ids(0), ids(0), 1, 1)]).band is None


def test_batch_of_parts_is_no_longer_banded():
    whole = EdgeSet.banded(ids(3), ids(3), Band(0))
    part = whole.keep(ids(0, 2))
    both = EdgeSet.batch([part, part])
    assert pairs(both) == [(0, 0), (0, 1), (1, 1), (2, 1), (3, 2), (3, 3), (4, 3), (5, 3)]


# ------------------------------------------------------------------ DGL


@settings(max_examples=50)
@given(dgl_graphs())
def test_from_dgl_keeps_the_order_of_edges(g):
    edges = EdgeSet.from_dgl(g, "mine")
    src, dst = g.edges(order="eid")
    assert pairs(edges) == list(zip(src.tolist(), dst.tolist(), strict=True))
    assert (edges.num_src, edges.num_dst) == (g.num_src_nodes(), g.num_dst_nodes())
    assert edges.name == "mine"


@settings(max_examples=25)
@given(any_edges)
def test_to_dgl_and_back(edges):
    g = edges.graph
    assert edges.graph is g, "made once"
    assert (g.num_src_nodes(), g.num_dst_nodes()) == (edges.num_src, edges.num_dst)
    assert pairs(EdgeSet.from_dgl(g)) == pairs(edges)


def test_from_dgl_is_a_snapshot():
    g = dgl.graph((ids(0, 2), ids(1, 1)), num_nodes=3)
    edges = EdgeSet.from_dgl(g)
    g.add_edges(ids(0), ids(0))
    g.ndata["k"] = ids(0, 1, 2)
    assert len(edges) == edges.graph.num_edges() == 2
    assert not edges.graph.ndata


def test_from_dgl_with_32_bit_ids():
    g = dgl.graph((ids(0, 2).int(), ids(1, 1).int()), num_nodes=3)
    edges = EdgeSet.from_dgl(g)
    assert edges.src.dtype == edges.dst.dtype == torch.int64
    assert pairs(edges) == [(0, 1), (2, 1)]


def test_from_dgl_wants_one_edge_type():
    g = dgl.heterograph(
        {("a", "x", "b"): (ids(0), ids(0)), ("a", "y", "b"): (ids(0), ids(0))}, {"a": 1, "b": 1}
    )
    with pytest.raises(ValueError, match="2 edge types.*'x'.*'y'"):
        EdgeSet.from_dgl(g)
    assert len(EdgeSet.from_dgl(g["x"])) == 1


# ------------------------------------------------------------------ parts


@settings(max_examples=75)
@given(any_edges, st.data())
def test_keep(edges, data):
    flags = data.draw(
        st.lists(st.booleans(), min_size=edges.num_dst, max_size=edges.num_dst), label="kept"
    )
    old_ids = [j for j, flag in enumerate(flags) if flag]
    kept_edges = [e for e, (_, j) in enumerate(pairs(edges)) if flags[j]]
    part = edges.keep(torch.tensor(flags, dtype=torch.bool))
    expected = [(i, old_ids.index(j)) for i, j in pairs(edges) if flags[j]]
    assert pairs(part) == expected
    assert len(part) == len(expected)
    assert part.kept_targets.tolist() == old_ids
    assert part.kept_edges.tolist() == kept_edges
    assert (part.num_src, part.num_dst, part.name) == (edges.num_src, len(old_ids), edges.name)
    assert pairs(edges.keep(ids(*old_ids))) == expected, "ids do the same as flags"
    starts = (edges.sizes.dst.cumsum(0) - edges.sizes.dst).tolist()
    bounds = list(zip(starts, edges.sizes.dst.tolist(), strict=True))
    assert part.sizes.src.tolist() == edges.sizes.src.tolist()
    assert part.sizes.dst.tolist() == [sum(flags[s : s + m]) for s, m in bounds]
    assert part.sizes.edges.tolist() == [
        sum(s <= edges.dst[e] < s + m for e in kept_edges) for s, m in bounds
    ]


def test_a_whole_is_its_own_part():
    edges = EdgeSet(ids(1, 0), ids(0, 1), 2, 2)
    assert edges.kept_targets.tolist() == edges.kept_edges.tolist() == [0, 1]


def test_a_part_of_a_part_is_refused():
    part = EdgeSet.banded(ids(3), ids(3)).keep(ids(0, 2))
    with pytest.raises(ValueError, match="is a part already"):
        part.keep(ids(0))


def test_once():
    edges, calls = EdgeSet(ids(0), ids(0), 1, 1), []

    def count(found):
        calls.append(found)
        return len(calls)

    assert [edges.once(count), edges.once(count)] == [1, 1]
    assert calls == [edges]
    assert EdgeSet(ids(0), ids(0), 1, 1).once(count) == 2


def test_to_the_device_where_it_is():
    edges = EdgeSet.banded(ids(2), ids(2))
    assert edges.to("cpu") is edges


# ------------------------------------------------------------------ dense matrices


@settings(max_examples=50)
@given(any_edges, st.data())
def test_dense(edges, data):
    flags = data.draw(st.lists(st.booleans(), min_size=edges.num_dst, max_size=edges.num_dst))
    values = torch.arange(1.0, 2 * len(edges) + 1).reshape(len(edges), 2)
    part = edges.keep(torch.tensor(flags, dtype=torch.bool))
    for sample, (n, m) in enumerate(
        zip(edges.sizes.src.tolist(), edges.sizes.dst.tolist(), strict=True)
    ):
        i0 = int(edges.sizes.src[:sample].sum())
        j0 = int(edges.sizes.dst[:sample].sum())
        expected = torch.zeros(2, m, n)
        for (i, j), value in zip(pairs(edges), values, strict=True):
            if j0 <= j < j0 + m:
                expected[:, j - j0, i - i0] += value
        assert edges.dense(values, sample).equal(expected)
        gone = [j for j in range(m) if not flags[j0 + j]]
        expected[:, gone] = 0
        assert part.dense(values[part.kept_edges], sample).equal(expected)


def test_dense_of_what_is_not_there():
    edges = EdgeSet.banded(ids(2, 3), ids(1, 1))
    with pytest.raises(ValueError, match="sample 2: .* 0 to 1"):
        edges.dense(torch.zeros(5, 1), 2)
    with pytest.raises(ValueError, match="sample -1"):
        edges.dense(torch.zeros(5, 1), -1)
    with pytest.raises(ValueError, match="4 rows of values for 5 edges"):
        edges.dense(torch.zeros(4, 1))


@pytest.mark.parametrize(
    "targets", [[2, 0], [0, 0], [0, 3], [-1, 0]], ids=["order", "twice", "beyond", "negative"]
)
def test_keep_wants_each_target_once_in_order(targets):
    whole = EdgeSet.banded(ids(3), ids(3), Band(0))
    with pytest.raises(ValueError, match="strictly ascending ids from 0 to 2"):
        whole.keep(ids(*targets))
    with pytest.raises(ValueError, match="a mask of 2 targets for 3"):
        whole.keep(torch.tensor([True, False]))


def test_pickle_keeps_all_but_what_can_be_made_again():
    whole = EdgeSet.banded(ids(3, 2), ids(2, 2), Band(0), "banded")
    part = whole.keep(ids(1, 3))
    for edges in (whole, part):
        assert edges.graph is not None
        again = pickle.loads(pickle.dumps(edges))
        assert repr(again) == repr(edges) and pairs(again) == pairs(edges)
        assert again.band == edges.band and again.kept_edges.equal(edges.kept_edges)
