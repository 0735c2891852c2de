"""The attention core against a loop over targets, and what must hold whatever the graph."""

import dgl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import edge_softmax
from small import TOLERANCE, banded_edges, batched_edges, close, dgl_graphs, heads, numbers
from torch import nn

from graphformer.attention import attend
from graphformer.edges import EdgeSet
from graphformer.multihead import MultiHeadAttention
from graphformer.patterns import causal, complete, window

KERNELS = ["message", "block"]


def ids(*values):
    return torch.tensor(values, dtype=torch.int64)


def check_core(graph, kernel="message", dtype=torch.float64, biased=True, seed=0, **sizes):
    """Sums and weights, and the gradients of q, k, v and bias, against the slow twin."""
    edges = EdgeSet.from_dgl(graph) if isinstance(graph, dgl.DGLGraph) else graph
    *qkv, bias = heads(edges, seed, dtype=dtype, **sizes)
    leaves = [*qkv, bias] if biased and len(edges) else qkv
    extra = bias if biased else None
    found = attend(graph, *qkv, bias=extra, kernel=kernel, return_weights=True)
    expected = edge_softmax(edges.src, edges.dst, *qkv, extra)
    factors = [numbers(seed + 7 + i, *part.shape, dtype=dtype) for i, part in enumerate(expected)]
    slopes = []
    for parts in (found, expected):
        total = sum((part * f).sum() for part, f in zip(parts, factors, strict=True))
        # Where there are no edges the twin does not depend on anything.
        total = total if parts is found else total + sum(0 * leaf.sum() for leaf in leaves)
        slopes.append(torch.autograd.grad(total, leaves))
    for mine, twin in zip((*found, *slopes[0]), (*expected, *slopes[1]), strict=True):
        assert mine.dtype == dtype
        close(mine, twin, TOLERANCE[dtype])
    alone = attend(graph, *qkv, bias=extra, kernel=kernel)
    close(alone, found[0], TOLERANCE[dtype])
    return found


# ------------------------------------------------------------------ equal to the slow twin

sizes = st.fixed_dictionaries(
    {
        "num_heads": st.integers(1, 3),
        "width": st.sampled_from([1, 2, 5]),
        "value_width": st.sampled_from([None, 3]),
        "biased": st.booleans(),
        "dtype": st.sampled_from(list(TOLERANCE)),
        "seed": st.integers(0, 99),
    }
)


@settings(max_examples=60)
@given(batched_edges(), sizes)
def test_any_edges(edges, options):
    check_core(edges, **options)


@settings(max_examples=60)
@given(banded_edges(), sizes, st.sampled_from(KERNELS))
def test_bands(edges, options, kernel):
    check_core(edges, kernel, **options)


@settings(max_examples=40)
@given(dgl_graphs(), sizes)
def test_dgl_graphs(g, options):
    """Homogeneous graphs, bipartite ones, and blocks are taken as they are."""
    check_core(g, **options)


def test_graph_with_32_bit_ids():
    check_core(dgl.graph((ids(0, 2, 0).int(), ids(1, 1, 0).int()), num_nodes=3))


@pytest.mark.parametrize("pattern", [complete, causal, window(2), window(1, causal=True)])
def test_kernels_agree_on_patterns(pattern):
    edges = EdgeSet.batch([pattern(n) for n in (5, 2, 1, 5, 3)])
    message, block = (check_core(edges, kernel) for kernel in KERNELS)
    for one, other in zip(message, block, strict=True):
        close(one, other)


# ------------------------------------------------------------------ values set by hand


@pytest.mark.parametrize("kernel", KERNELS)
def test_hand_computed(kernel):
    """D = 4, scores ln 1, ln 2, ln 3: weights 1/6, 2/6, 3/6."""
    edges = complete(3, 1)
    q = torch.tensor([[[2.0, 0.0, 0.0, 0.0]]], dtype=torch.float64)
    k = torch.zeros(3, 1, 4, dtype=torch.float64)
    k[:, 0, 0] = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64).log()
    v = torch.tensor([[[6.0]], [[12.0]], [[24.0]]], dtype=torch.float64)
    out, weights = attend(edges, q, k, v, kernel=kernel, return_weights=True)
    assert weights.squeeze(1).tolist() == pytest.approx([1 / 6, 2 / 6, 3 / 6])
    assert out.item() == pytest.approx(1 + 4 + 12)
    # A bias of ln 6 on the first edge makes its score ln 6: weights 6/11, 2/11, 3/11.
    bias = torch.tensor([[6.0], [1.0], [1.0]], dtype=torch.float64).log()
    _, weights = attend(edges, q, k, v, bias=bias, kernel=kernel, return_weights=True)
    assert weights.squeeze(1).tolist() == pytest.approx([6 / 11, 2 / 11, 3 / 11])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([200.0, -200.0, 0.0], [1.0, 0.0, 0.0]),
        ([-200.0, -200.0, -200.0], [1 / 3, 1 / 3, 1 / 3]),
        ([200.0, 200.0, -200.0], [1 / 2, 1 / 2, 0.0]),
        ([-10000.0, -10001.0, -10002.0], [0.66524096, 0.24472847, 0.09003057]),
    ],
)
def test_softmax_is_exact_for_large_scores(scores, expected, dtype, kernel):
    q = torch.ones(1, 1, 1, dtype=dtype, requires_grad=True)
    k = torch.tensor(scores, dtype=dtype).view(3, 1, 1).requires_grad_()
    v = torch.tensor([2.0, 3.0, 5.0], dtype=dtype).view(3, 1, 1).requires_grad_()
    out, weights = attend(complete(3, 1), q, k, v, kernel=kernel, return_weights=True)
    assert weights.flatten().tolist() == pytest.approx(expected, abs=1e-7)
    out.sum().backward()
    assert v.grad.flatten().tolist() == pytest.approx(expected, abs=1e-7)
    assert bool(k.grad.isfinite().all()) and bool(q.grad.isfinite().all())
    assert attend(complete(3, 1), q, k, v, kernel=kernel).item() == pytest.approx(out.item())


# ------------------------------------------------------------------ nothing to attend to


def test_node_without_in_edges():
    """Three nodes, edges into node 2 alone; no step of the backward pass makes a NaN."""
    edges = EdgeSet(ids(0, 1), ids(2, 2), 3, 3)
    with torch.autograd.set_detect_anomaly(True):
        out, _ = check_core(edges)
    assert out[:2].tolist() == [[[0.0] * 3] * 2] * 2
    assert bool((out[2] != 0).all())


@pytest.mark.parametrize("graph", [EdgeSet(ids(), ids(), 3, 2), complete(0, 2), complete(3, 0)])
@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
def test_no_edges_give_zeros(graph, kernel):
    q, k, v, _ = heads(graph, value_width=5)
    out, weights = attend(graph, q, k, v, kernel=kernel, return_weights=True)
    assert out.shape == (graph.num_dst, 2, 5) and not out.detach().any()
    assert weights.shape == (0, 2)
    for slope in torch.autograd.grad(out.sum(), (q, k, v)):
        assert not slope.any()


# ------------------------------------------------------------------ what must not matter


@settings(max_examples=40)
@given(batched_edges(), st.randoms(use_true_random=False))
def test_order_of_edges_does_not_matter(edges, rng):
    q, k, v, bias = heads(edges)
    out, weights = attend(edges, q, k, v, bias=bias, return_weights=True)
    order = torch.tensor(rng.sample(range(len(edges)), len(edges)), dtype=torch.int64)
    mixed = EdgeSet(edges.src[order], edges.dst[order], edges.num_src, edges.num_dst)
    again, mixed_weights = attend(mixed, q, k, v, bias=bias[order], return_weights=True)
    close(again, out, 1e-12)
    close(mixed_weights, weights[order], 1e-12)


@settings(max_examples=40)
@given(batched_edges(), st.randoms(use_true_random=False))
def test_renumbering_nodes_permutes_the_result(edges, rng):
    q, k, v, bias = heads(edges)
    out, weights = attend(edges, q, k, v, bias=bias, return_weights=True)
    src_ids = torch.tensor(rng.sample(range(edges.num_src), edges.num_src), dtype=torch.int64)
    dst_ids = torch.tensor(rng.sample(range(edges.num_dst), edges.num_dst), dtype=torch.int64)
    other = EdgeSet(src_ids[edges.src], dst_ids[edges.dst], edges.num_src, edges.num_dst)
    new_q = torch.empty_like(q).index_copy(0, dst_ids, q)
    new_k = torch.empty_like(k).index_copy(0, src_ids, k)
    new_v = torch.empty_like(v).index_copy(0, src_ids, v)
    again, new_weights = attend(other, new_q, new_k, new_v, bias=bias, return_weights=True)
    close(again[dst_ids], out, 1e-12)
    close(new_weights, weights, 1e-12)


@settings(max_examples=40)
@given(st.lists(batched_edges(), min_size=2, max_size=3))
def test_samples_do_not_touch_each_other(parts):
    ends = [heads(part, seed=11 * i) for i, part in enumerate(parts)]
    joined = [torch.cat(tensors) for tensors in zip(*ends, strict=True)]
    *qkv, bias = joined
    together = attend(EdgeSet.batch(parts), *qkv, bias=bias)
    alone = [attend(part, q, k, v, bias=b) for part, (q, k, v, b) in zip(parts, ends, strict=True)]
    close(together, torch.cat(alone), 1e-12)


@settings(max_examples=40)
@given(st.one_of(batched_edges(), banded_edges()))
def test_weights_of_a_target_sum_to_1(edges):
    q, k, v, bias = heads(edges)
    _, weights = attend(edges, q, k, v, bias=bias, return_weights=True)
    sums = torch.zeros(edges.num_dst, 2, dtype=torch.float64).index_add(0, edges.dst, weights)
    seen = torch.bincount(edges.dst, minlength=edges.num_dst) > 0
    close(sums, seen.double().unsqueeze(1).expand(-1, 2), 1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_strided_inputs(kernel):
    edges = causal(5)
    wide = numbers(0, 2, 5, 3, 4)
    views = [wide.transpose(0, 1)[..., ::2][:, :, i] for i in range(3)]  # (5, 2, 2), not contiguous
    assert not any(view.is_contiguous() for view in views)
    found = attend(edges, *views, kernel=kernel)
    close(found, attend(edges, *(view.contiguous() for view in views), kernel=kernel))


def test_nothing_is_left_on_a_graph():
    edges = window(1)(5)
    q, k, v, bias = heads(edges)
    g = dgl.graph((edges.src, edges.dst), num_nodes=5)
    g.ndata["k"], g.edata["score"] = torch.arange(5), torch.ones(len(edges))
    attend(g, q, k, v, bias=bias)
    assert list(g.ndata) == ["k"] and g.ndata["k"].tolist() == [0, 1, 2, 3, 4]
    assert list(g.edata) == ["score"] and bool((g.edata["score"] == 1).all())
    attend(edges, q, k, v, kernel="message")
    assert not edges.graph.edata and not edges.graph.dstdata and not edges.graph.srcdata


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_on_a_graph_by_an_interrupt(monkeypatch, error):
    edges = window(1)(5)
    q, k, v, _ = heads(edges)
    g = dgl.graph((edges.src, edges.dst), num_nodes=5)
    g.ndata["k"] = torch.arange(5)

    def interrupted(*arguments):
        raise error

    monkeypatch.setattr("graphformer.message._edge_softmax", interrupted)
    for graph in (edges, g):
        with pytest.raises(error):
            attend(graph, q, k, v, kernel="message")
    assert list(g.ndata) == ["k"] and g.ndata["k"].tolist() == [0, 1, 2, 3, 4] and not g.edata
    assert not edges.graph.edata and not edges.graph.dstdata and not edges.graph.srcdata


# ------------------------------------------------------------------ dropout


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("biased", [False, True])
def test_dropped_weights_are_those_returned(kernel, biased):
    edges = EdgeSet.batch([causal(n) for n in (7, 3, 7)])
    q, k, v, bias = heads(edges)
    bias = bias if biased else None
    _, whole = attend(edges, q, k, v, bias=bias, kernel=kernel, return_weights=True)
    torch.manual_seed(5)
    out, used = attend(edges, q, k, v, bias=bias, dropout=0.5, kernel=kernel, return_weights=True)
    dropped = used == 0
    assert 0.2 < float(dropped.double().mean()) < 0.8
    close(used[~dropped], 2 * whole[~dropped])
    sums = torch.zeros_like(out).index_add(0, edges.dst, used.unsqueeze(-1) * v[edges.src])
    close(out, sums)
    torch.manual_seed(5)
    again = attend(edges, q, k, v, bias=bias, dropout=0.5, kernel=kernel)
    assert again.equal(out), "the seed decides, with or without weights asked for"


# ------------------------------------------------------------------ other precisions


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits(dtype, kernel):
    edges = causal(5)
    ends = [end.detach().to(dtype) for end in heads(edges)]
    found = attend(edges, *ends[:3], bias=ends[3], kernel=kernel, return_weights=True)
    exact = attend(
        *(edges, *(end.float() for end in ends[:3])), bias=ends[3].float(), return_weights=True
    )
    for mine, twin in zip(found, exact, strict=True):
        assert mine.dtype == dtype
        assert mine.equal(twin.to(dtype)), "computed in 32 bits, rounded once"


# ------------------------------------------------------------------ PyTorch's own as reference


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", ["complete", "causal", "cross"])
def test_equal_to_torch_multihead_attention(kind, kernel, dtype):
    width, num_heads, n, m = 15, 3, 7, 5
    mine = MultiHeadAttention(width, num_heads, kernel=kernel).to(dtype)
    theirs = nn.MultiheadAttention(width, num_heads, bias=False, dtype=dtype)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(mine.qkv.weight)
        theirs.out_proj.weight.copy_(mine.out.weight)
    x, source = numbers(0, m, width, dtype=dtype), numbers(1, n, width, dtype=dtype)
    if kind == "cross":
        edges, seen, mask = complete(n, m), source, None
        found = mine(edges, x, source)
    else:
        edges, seen = (causal if kind == "causal" else complete)(m), x
        mask = torch.ones(m, m, dtype=torch.bool).triu(1) if kind == "causal" else None
        found = mine(edges, x)
    expected, weights = theirs(x, seen, seen, attn_mask=mask, average_attn_weights=False)
    close(found, expected, TOLERANCE[dtype])
    found.sin().sum().backward()
    expected.sin().sum().backward()
    close(mine.qkv.weight.grad, theirs.in_proj_weight.grad, TOLERANCE[dtype])
    close(mine.out.weight.grad, theirs.out_proj.weight.grad, TOLERANCE[dtype])
    recorded = []
    mine.listener = lambda edges, weights: recorded.append(edges.dense(weights))
    mine(edges, x, source if kind == "cross" else None)
    close(recorded[0], weights, TOLERANCE[dtype])


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kernel": "sparse"}, ["kernel", "'sparse'", "auto, message, block"]),
        ({"dropout": 1.0}, ["dropout is 1.0", "[0, 1)"]),
        ({"dropout": -0.1}, ["dropout is -0.1", "[0, 1)"]),
        ({"q": torch.zeros(4, 2, 3)}, ["q has the shape (4, 2, 3)", "'causal'", "(3, heads"]),
        ({"k": torch.zeros(3, 6)}, ["k has the shape (3, 6)", "(3, heads, width)"]),
        ({"v": torch.zeros(2, 2, 3)}, ["v has the shape (2, 2, 3)", "(3, heads, width)"]),
        ({"k": torch.zeros(3, 2, 4)}, ["q (3, 2, 3)", "k (3, 2, 4)"]),
        ({"v": torch.zeros(3, 1, 3)}, ["q (3, 2, 3)", "v (3, 1, 3)"]),
        ({"bias": torch.zeros(6)}, ["bias has the shape (6,)", "2 heads", "(6, 2)"]),
        ({"bias": torch.zeros(5, 2)}, ["bias has the shape (5, 2)", "(6, 2)"]),
    ],
)
def test_what_does_not_fit_is_named(change, says):
    fits = dict.fromkeys("qkv", torch.zeros(3, 2, 3))
    with pytest.raises(ValueError) as caught:
        attend(causal(3), **{**fits, **change})
    for part in says:
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["q", "k", "v"])
def test_mixed_precision_is_refused_unless_autocast_is_on(name):
    edges = causal(3)
    single = dict.fromkeys("qkv", torch.ones(3, 2, 3))
    mixed = {**single, name: single[name].double()}
    with pytest.raises(TypeError, match=f"autocast is off: .*{name} torch.float64"):
        attend(edges, **mixed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attend(edges, **mixed).dtype == mixed["q"].dtype
    with torch.autocast("cpu", enabled=False), pytest.raises(TypeError, match="autocast is off"):
        attend(edges, **mixed)


def test_block_kernel_needs_blocks():
    edges = EdgeSet(ids(0), ids(1), 2, 2, "mine")
    q, k, v, _ = heads(edges)
    with pytest.raises(ValueError, match="'mine'.*no known block structure.*'message'"):
        attend(edges, q, k, v, kernel="block")


def test_multihead_refusals():
    with pytest.raises(ValueError, match="dim_model is 30, .* h=4"):
        MultiHeadAttention(30, 4)
    with pytest.raises(ValueError, match="h=0"):
        MultiHeadAttention(30, 0)
    with pytest.raises(ValueError, match="kernel is 'dense', the choices are"):
        MultiHeadAttention(6, 2, kernel="dense")
    for fields in ("", "kq", "qv", "x"):
        with pytest.raises(ValueError, match=f"fields is '{fields}'.*'qkv'"):
            MultiHeadAttention(6, 2).project(torch.zeros(3, 6), fields)


def test_projections_can_be_asked_for_apart():
    module = MultiHeadAttention(15, 3).double()
    x = numbers(0, 7, 15)
    whole = module.project(x)
    assert {name: tuple(part.shape) for name, part in whole.items()} == dict.fromkeys(
        "qkv", (7, 3, 5)
    )
    for fields in ("q", "k", "v", "qk", "kv"):
        parts = module.project(x, fields)
        assert list(parts) == list(fields)
        for name, part in parts.items():
            close(part, whole[name], 1e-12)
