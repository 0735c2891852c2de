"""Rates of each schedule, and the rate that an optimiser really uses."""

import math

import pytest
import torch

from graphformer.schedule import Constant, InverseSqrt, Linear, Noam, make_schedule


def test_noam_golden_values():
    rate = Noam(width=512, warmup=4000)
    golden = {1: 1.7469e-7, 2: 3.4939e-7, 3: 5.2408e-7, 4000: 6.98771e-4, 4001: 6.98684e-4}
    for step, value in golden.items():
        assert rate(step) == pytest.approx(value, rel=3e-5)
    assert Noam(width=512, warmup=4000, factor=2.0)(7) == 2 * rate(7)


def test_inverse_square_root_is_noam_with_a_named_peak():
    rate, noam = InverseSqrt(peak=0.005, warmup=2000), Noam(width=512, warmup=2000)
    assert rate(2000) == 0.005
    assert rate(1) == 0.005 / 2000
    assert rate(8000) == pytest.approx(0.0025)
    for step in (1, 17, 1999, 2001, 54321):
        assert rate(step) / 0.005 == pytest.approx(noam(step) / noam(2000))


def test_linear_rises_and_falls_to_zero():
    rate = Linear(peak=0.5, warmup=5, total=15)
    assert [rate(step) for step in (1, 5, 10, 14)] == pytest.approx([0.1, 0.5, 0.25, 0.05])
    assert rate(15) == rate(16) == 0
    assert Linear(peak=1.0, warmup=0, total=4)(1) == 0.75


def test_constant():
    assert Constant(0.25)(1) == Constant(0.25)(10**6) == 0.25


@pytest.mark.parametrize("schedule", [Noam(8, 3), InverseSqrt(0.1, 3), Linear(0.1, 3, 7)])
def test_highest_at_the_end_of_the_rise(schedule):
    rates = [schedule(step) for step in range(1, 8)]
    assert rates.index(max(rates)) == 2
    assert rates[:3] == sorted(rates[:3]) and rates[2:] == sorted(rates[2:], reverse=True)


def test_first_rate_is_used_by_the_first_update_under_lambda_lr():
    schedule = Noam(width=16, warmup=3)
    weight = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: schedule(done + 1))
    used = []
    for _ in range(5):
        before = weight.item()
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        scheduler.step()
        used.append(before - weight.item())
    assert used == pytest.approx([schedule(step) for step in range(1, 6)], rel=1e-9)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Noam(512, 0), "warmup must be a whole number of updates, at least 1, got 0"),
        (lambda: Noam(512, 2.5), "warmup must be a whole number"),
        (lambda: Noam(0, 10), "width must be a finite number above 0, got 0"),
        (lambda: Noam(8, 10, factor=-1.0), "factor"),
        (lambda: InverseSqrt(math.inf, 10), "peak"),
        (lambda: InverseSqrt(0.1, 0), "warmup"),
        (lambda: Linear(0.1, 7, 7), "total must be a whole number of updates, at least 8, got 7"),
        (lambda: Linear(0.1, -1, 7), "warmup must be a whole number of updates, at least 0"),
        (lambda: Constant(0.0), "peak"),
        (lambda: Constant(1.0)(0), "step is counted from 1, got 0"),
        (lambda: make_schedule("cosine"), "one of noam, inverse_sqrt, linear, constant"),
        (lambda: make_schedule("noam", width=8), "missing: warmup, unknown: none"),
        (lambda: make_schedule("constant", peak=1, top=2), "missing: none, unknown: top"),
    ],
)
def test_bad_values_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_made_by_name():
    assert make_schedule("noam", width=8, warmup=3) == Noam(8, 3)
    assert make_schedule("inverse_sqrt", peak=0.1, warmup=3) == InverseSqrt(0.1, 3)
    assert make_schedule("linear", peak=0.1, warmup=3, total=9) == Linear(0.1, 3, 9)
    assert make_schedule("constant", peak=0.1) == Constant(0.1)
