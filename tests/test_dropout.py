"""Dropout: how much, how scaled, the same mask forward and back, and only while training."""

import math

import pytest
import torch
from small import numbers

from graphformer.dropout import Dropout, dropout

SHARES = [0.1, 0.25, 0.5, 0.9]


@pytest.mark.parametrize("p", SHARES)
def test_share_and_mean(p):
    """Within five standard deviations of a binomial; failing by chance: once in 10^6."""
    count = 100_003
    out = dropout(torch.ones(count, dtype=torch.float64), p)
    dropped = int((out == 0).sum())
    assert abs(dropped - p * count) < 5 * math.sqrt(count * p * (1 - p))
    kept = out[out != 0]
    # p is rounded to a multiple of 2^-16, and the scale fits that.
    assert bool((kept == kept[0]).all())
    assert kept[0].item() == pytest.approx(1 / (1 - round(p * 2**16) / 2**16), rel=1e-12)
    assert out.mean().item() == pytest.approx(1, abs=5 * math.sqrt(p / (1 - p) / count))


def test_units_are_independent():
    """Four units share one draw of 64 bits: still no neighbour tells of another."""
    dropped = (dropout(torch.ones(25_001, 4), 0.5) == 0).double()
    for shift in (1, 2, 3):
        both = (dropped * dropped.roll(shift, 1)).mean().item()
        assert both == pytest.approx(0.25, abs=0.01)
    both = (dropped[1:] * dropped[:-1]).mean().item()
    assert both == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("shape", [(0,), (), (1,), (3,), (7, 5), (2, 3, 5), (0, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_any_shape_and_type(shape, dtype):
    x = torch.ones(shape, dtype=dtype, requires_grad=True)
    out = dropout(x, 0.5)
    assert out.shape == x.shape and out.dtype == dtype
    assert set(out.flatten().tolist()) <= {0.0, 2.0}
    (slope,) = torch.autograd.grad(out.sum(), x)
    assert slope.dtype == dtype and slope.equal(out)


def test_gradient_uses_the_same_mask():
    x = numbers(0, 31, 7).requires_grad_()
    factors = numbers(1, 31, 7)
    out = dropout(x, 0.25)
    (slope,) = torch.autograd.grad((out * factors).sum(), x)
    scale = (out / x).detach()
    assert 0 < int((out == 0).sum()) < out.numel()
    torch.testing.assert_close(slope, factors * scale)


def test_strided_input():
    x = numbers(0, 7, 11).T
    assert not x.is_contiguous()
    torch.manual_seed(3)
    found = dropout(x, 0.5)
    torch.manual_seed(3)
    assert found.equal(dropout(x.contiguous(), 0.5))


def test_input_is_not_changed():
    x = numbers(0, 13)
    before = x.clone()
    dropout(x, 0.5)
    assert x.equal(before)


def test_the_seed_decides():
    x = torch.ones(101)
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        results.append(dropout(x, 0.5))
    assert results[0].equal(results[1]) and not results[0].equal(results[2])


def test_each_call_draws_anew():
    x = torch.ones(101)
    assert not dropout(x, 0.5).equal(dropout(x, 0.5))


def test_nothing_is_dropped_outside_training():
    layer, x = Dropout(0.5), torch.ones(13)
    assert 0 in layer(x)
    layer.eval()
    assert layer(x) is x
    assert Dropout(0.0)(x) is x and dropout(x, 0.0) is x


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9])
def test_extreme_probabilities(p):
    out = dropout(torch.ones(1009), p)
    assert bool(out.isfinite().all())
    assert float((out == 0).double().mean()) == pytest.approx(p, abs=0.01)


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_range_is_checked(p):
    with pytest.raises(ValueError, match=rf"dropout is {p}, it must lie in \[0, 1\)"):
        Dropout(p)


def test_repr():
    assert repr(Dropout(0.25)) == "Dropout(p=0.25)"
