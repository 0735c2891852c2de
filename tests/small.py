"""Small models, batches and random graphs for the tests of the core, and how results compare."""

import dgl
import torch
from hypothesis import strategies as st

from graphformer.build import make_model
from graphformer.edges import Band, EdgeSet

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
BOTH = [False, True]
BANDS = [Band(), Band(0), Band(-2, 2), Band(0, 1), Band(1), Band(None, 0), Band(-1, -1), Band(2, 5)]

# ------------------------------------------------------------------ comparing


def close(found, expected, tolerance=1e-10):
    """Largest difference, relative to the largest value where that is above 1."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    found, expected = found.detach(), expected.detach()
    assert bool(found.isfinite().all())
    if found.numel():
        scale = max(1.0, float(expected.abs().max()))
        worst = float((found - expected).abs().max())
        assert worst <= tolerance * scale, f"{worst} at scale {scale}"


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


# ------------------------------------------------------------------ numbers


def numbers(seed, *shape, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def heads(edges, seed=0, width=3, num_heads=2, value_width=None, dtype=torch.float64):
    """q, k, v and biases for an edge set, all of them leaves."""
    sizes = [
        (edges.num_dst, num_heads, width),
        (edges.num_src, num_heads, width),
        (edges.num_src, num_heads, value_width or width),
        (len(edges), num_heads),
    ]
    return [numbers(seed + i, *size, dtype=dtype).requires_grad_() for i, size in enumerate(sizes)]


# ------------------------------------------------------------------ models and batches


def small_model(universal, dtype=torch.float64, seed=0, halting_bias=-0.5, **options):
    """No dropout, every weight random, nodes that halt after different numbers of steps."""
    sizes = dict(N=2, dim_model=15, dim_ff=7, h=3, dropout=0.0, max_depth=5)
    model = make_model(23, 23, universal=universal, **{**sizes, **options}).to(torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() > 1 else 0.1
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * spread
            parameter.copy_(noise + (1.0 if "norm.weight" in name else 0.0))
            if "halting_unit.linear.bias" in name:
                parameter.fill_(halting_bias)
            if "halting_unit.linear.weight" in name:
                parameter.mul_(0.5 / spread)
    return model.to(dtype)


def some_pairs(src_lens, tgt_lens, seed=0, vocabulary=23):
    """Sources, and targets with so many decoder nodes: <sos> … <eos>."""
    generator = torch.Generator().manual_seed(seed)

    def ids(size):
        return torch.randint(4, vocabulary, (size,), generator=generator).tolist()

    return [ids(n) for n in src_lens], [[0, *ids(m - 1), 1] for m in tgt_lens]


# ------------------------------------------------------------------ random graphs


@st.composite
def own_edges(draw, most=5, name="own"):
    """One sample: any edges, doubled ones, none into some targets, or none at all."""
    num_src, num_dst = draw(st.integers(0, most)), draw(st.integers(0, most))
    pairs = []
    if num_src and num_dst:
        ends = st.tuples(st.integers(0, num_src - 1), st.integers(0, num_dst - 1))
        pairs = draw(st.lists(ends, max_size=13))
    src, dst = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    ids = (torch.tensor(ends, dtype=torch.int64) for ends in (src, dst))
    return EdgeSet(*ids, num_src, num_dst, name)


@st.composite
def batched_edges(draw):
    return EdgeSet.batch(draw(st.lists(own_edges(), min_size=1, max_size=3)), "batched")


@st.composite
def banded_edges(draw):
    """Samples of any lengths, 0 among them, equal ones too; complete, causal or a window."""
    sizes = st.tuples(st.integers(0, 5), st.integers(0, 5))
    lens = draw(st.lists(sizes, min_size=1, max_size=5))
    src, dst = (torch.tensor([pair[side] for pair in lens]) for side in (0, 1))
    return EdgeSet.banded(src, dst, draw(st.sampled_from(BANDS)), "banded")


@st.composite
def dgl_graphs(draw):
    """Homogeneous, bipartite, or a block as DGL's samplers make them."""
    edges = draw(own_edges(most=4))
    ends = (edges.src, edges.dst)
    form = draw(st.sampled_from(["homogeneous", "bipartite", "block"]))
    if form == "homogeneous":
        return dgl.graph(ends, num_nodes=max(edges.num_src, edges.num_dst))
    if form == "bipartite":
        sizes = {"left": edges.num_src, "right": edges.num_dst}
        return dgl.heterograph({("left", "to", "right"): ends}, sizes)
    return dgl.create_block(ends, num_src_nodes=edges.num_src, num_dst_nodes=edges.num_dst)
