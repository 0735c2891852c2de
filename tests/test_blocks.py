"""The block kernel and its windows, held equal to the message kernel: values and gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import BANDS, TOLERANCE, banded_edges, close, heads, numbers

from graphformer.attention import attend
from graphformer.bands import Band
from graphformer.blocks import plan_blocks
from graphformer.edges import EdgeSet
from graphformer.patterns import causal, complete, window
from graphformer.windows import chunk_length

BOUNDED = [band for band in BANDS if None not in band]


def banded(lens, band):
    lens = torch.tensor(lens)
    return EdgeSet.banded(lens, lens, band, "banded")


def check_kernels_equal(edges, biased=True, weights=True, kernel="block", **options):
    """Sums, weights where asked for, and gradients of q, k, v and bias."""
    *qkv, bias = heads(edges, **options)
    leaves = [*qkv, bias] if biased and len(edges) else qkv
    results = []
    for name in ("message", kernel):
        extra = bias if biased else None
        found = attend(edges, *qkv, bias=extra, kernel=name, return_weights=weights)
        parts = list(found) if weights else [found]
        total = sum((part * numbers(7 + i, *part.shape)).sum() for i, part in enumerate(parts))
        results.append([*parts, *torch.autograd.grad(total, leaves)])
    for message, block in zip(*results, strict=True):
        close(block, message, TOLERANCE[qkv[0].dtype])


# ------------------------------------------------------------------ equal to the message kernel


@settings(max_examples=75)
@given(banded_edges(), st.booleans(), st.booleans(), st.sampled_from(["block", "auto"]))
def test_bands(edges, biased, weights, kernel):
    check_kernels_equal(edges, biased, weights, kernel, value_width=5)


@settings(max_examples=40)
@given(banded_edges(), st.booleans(), st.booleans(), st.data())
def test_parts_of_bands(edges, biased, weights, data):
    """What is left when some targets have halted still has blocks, though not full ones."""
    flags = data.draw(st.lists(st.booleans(), min_size=edges.num_dst, max_size=edges.num_dst))
    part = edges.keep(torch.tensor(flags, dtype=torch.bool))
    check_kernels_equal(part, biased, weights)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("band", BANDS, ids=str)
def test_both_precisions(band, dtype):
    edges = banded([5, 1, 7, 5, 0, 7], band)
    check_kernels_equal(edges, dtype=dtype)
    check_kernels_equal(edges, biased=False, weights=False, dtype=dtype)


@pytest.mark.parametrize("band", [*BOUNDED, Band(-17, 3), Band(-3, 17), Band(17, 19)], ids=str)
@pytest.mark.parametrize("lens", [[79], [83, 83], [89, 3, 67, 89, 131]], ids=str)
def test_windows_over_long_sequences(lens, band):
    """Long enough to be cut into chunks; in some bands the first or last nodes see nothing."""
    edges = banded(lens, band)
    assert any(group.chunk is not None for group in plan_blocks(edges).groups)
    for dtype in TOLERANCE:
        check_kernels_equal(edges, biased=False, weights=False, dtype=dtype)
    check_kernels_equal(edges, biased=False, weights=False, kernel="auto")


@pytest.mark.parametrize("piece", [1, 1009, 8009])
@pytest.mark.parametrize("band", [*BOUNDED, Band(-17, 3)], ids=str)
def test_windows_in_pieces(monkeypatch, band, piece):
    """A long sequence's chunks are computed some at a time: here one, two or more at once."""
    monkeypatch.setattr("graphformer.windows.PIECE", piece)
    check_kernels_equal(banded([131, 131], band), False, False, dtype=torch.float64)
    check_kernels_equal(banded([89, 3, 67], band), False, False, dtype=torch.float64)


def test_windows_with_bias_and_weights():
    check_kernels_equal(banded([67, 67], Band(-2, 2)))


def test_part_of_a_window():
    part = banded([67, 71], Band(0, 2)).keep(torch.arange(0, 138, 3))
    check_kernels_equal(part, biased=False, weights=False)


@pytest.mark.parametrize("band", BOUNDED, ids=str)
def test_where_nothing_is_seen_all_is_finite(band):
    """Also in the backward pass of every single operation."""
    edges = banded([67], band)
    q, k, v, _ = heads(edges)
    with torch.autograd.set_detect_anomaly(True):
        out = attend(edges, q, k, v, kernel="block")
        slopes = torch.autograd.grad(out.sum(), (q, k, v))
    assert all(bool(slope.isfinite().all()) for slope in slopes)
    blind = torch.bincount(edges.dst, minlength=67) == 0
    assert not out.detach()[blind].any()


def test_large_scores():
    edges = banded([67, 5], Band(0, 2))
    q, k, v, _ = (end.detach() * 40 for end in heads(edges))
    close(attend(edges, q, k, v, kernel="block"), attend(edges, q, k, v, kernel="message"))


# ------------------------------------------------------------------ the plan


def test_groups_hold_samples_of_one_shape():
    src, dst = torch.tensor([3, 5, 3, 3]), torch.tensor([2, 2, 2, 7])
    plan = plan_blocks(EdgeSet.banded(src, dst))
    shapes = [(group.count, group.queries, group.keys, group.edges) for group in plan.groups]
    assert sorted(shapes) == [(1, 2, 5, 10), (1, 7, 3, 21), (2, 2, 3, 12)]


def test_nothing_is_moved_where_equal_samples_are_neighbours():
    plan = plan_blocks(banded([2, 2, 3, 3, 5], Band(0)))
    assert (plan.dst_order, plan.src_order, plan.edge_order) == (None, None, None)
    plan = plan_blocks(banded([2, 3, 2], Band()))
    assert plan.dst_order.tolist() == [0, 1, 5, 6, 2, 3, 4]


def test_only_what_is_plain_goes_without_a_mask():
    assert plan_blocks(complete(5, 3)).groups[0].mask is None
    whole = plan_blocks(causal(5)).groups[0]
    assert whole.causal and whole.mask.equal(torch.ones(1, 5, 5, dtype=torch.bool).tril())
    part = plan_blocks(causal(5).keep(torch.tensor([1, 3]))).groups[0]
    assert not part.causal
    assert part.mask.int().tolist() == [[[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]]]


def test_the_plan_is_made_once():
    edges = window(1)(5)
    assert edges.once(plan_blocks) is edges.once(plan_blocks)


def test_without_blocks_there_is_no_plan():
    edges = EdgeSet.batch([causal(3), complete(3)], "mixed")
    with pytest.raises(ValueError, match="'mixed'.*no known block structure"):
        plan_blocks(edges)


def test_chunks_are_as_long_as_a_window_reaches():
    assert chunk_length(Band(0, 127)) == 127
    assert chunk_length(Band(-31, 7)) == 31
    assert chunk_length(Band(-2, 2)) == 16
    assert chunk_length(Band(0)) is None
    assert chunk_length(Band(None, 5)) is None
