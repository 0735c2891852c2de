"""Adaptive computation time against its equations in plain numbers, and by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import graves
from small import close, numbers

from graphformer.halting import Halting, HaltingRule, HaltingUnit, Ponder


def column(values):
    return torch.tensor(values, dtype=torch.float64).view(-1, 1)


def run(probabilities, threshold, max_depth, states=None):
    """Drive a ledger with the probabilities (N, max_depth) that each node would give."""
    halting = Halting(len(probabilities), threshold, max_depth)
    if states is None:
        states = [column([1.0] * len(probabilities))] * max_depth
    active = [halting.active]
    while len(halting.ids):
        t = halting.step
        halting.update(probabilities[halting.ids, t : t + 1], states[t][halting.ids])
        active.append(halting.active)
    return halting, active


def check_remainder():
    """Constant p = 0.3: 0.3, 0.6, 0.9 are below 0.99, so four steps, the last worth 0.1."""
    p = torch.full((1, 5), 0.3, dtype=torch.float64)
    states = [column([float(10**t)]) for t in range(5)]
    halting, _ = run(p, 0.99, 5, states)
    assert halting.steps.tolist() == [4]
    assert halting.remainders().tolist() == pytest.approx([0.1])
    assert halting.result().item() == pytest.approx(0.3 + 3 + 30 + 100)
    assert halting.ponder().tolist() == pytest.approx([4.1])


# ------------------------------------------------------------------ by hand


def test_constant_probability():
    check_remainder()


@pytest.mark.parametrize(
    ("p", "threshold", "max_depth", "steps", "remainder"),
    [
        (0.3, 0.99, 3, 3, 0.4),  # the depth ends it: 1 - 0.3 - 0.3
        (0.3, 0.99, 1, 1, 1.0),
        (0.3, 0.3, 8, 1, 1.0),  # the threshold is reached at once
        (0.5, 1.0, 8, 2, 0.5),  # exactly reached
        (0.5, 0.99, 8, 2, 0.5),
        (0.6, 0.99, 8, 2, 0.4),
        (0.125, 1.0, 11, 8, 0.125),
        (0.995, 0.99, 8, 1, 1.0),
        (0.001, 0.99, 7, 7, 0.994),
    ],
)
def test_steps_and_remainder(p, threshold, max_depth, steps, remainder):
    halting, _ = run(torch.full((2, max_depth), p, dtype=torch.float64), threshold, max_depth)
    assert halting.steps.tolist() == [steps] * 2
    assert halting.remainders().tolist() == pytest.approx([remainder] * 2)
    assert halting.ponder().tolist() == pytest.approx([steps + remainder] * 2)
    assert halting.result().flatten().tolist() == pytest.approx([1.0] * 2), "weights sum to 1"


def test_nodes_halt_one_by_one():
    p = torch.tensor([[0.4, 0.4, 0.4], [0.995, 0, 0], [0.5, 0.495, 0]], dtype=torch.float64)
    halting, active = run(p, 0.99, 5)
    assert [flags.tolist() for flags in active] == [
        [True, True, True],
        [True, False, True],
        [True, False, False],
        [False, False, False],
    ]
    assert {flags.dtype for flags in active} == {torch.bool}
    assert halting.steps.tolist() == [3, 1, 2]
    assert halting.remainders().tolist() == pytest.approx([0.2, 1.0, 0.5])


def test_update_says_who_halted():
    halting = Halting(3, 0.9, 5)
    x = column([1.0, 2.0, 3.0])
    assert halting.update(column([0.2, 0.95, 0.3]), x).tolist() == [False, True, False]
    assert halting.ids.tolist() == [0, 2]
    assert halting.update(column([0.1, 0.65]), x[[0, 2]]).tolist() == [False, True]
    assert halting.ids.tolist() == [0] and halting.steps.tolist() == [2, 1, 2]
    assert halting.update(column([0.9]), x[:1]).tolist() == [True]
    assert halting.result().flatten().tolist() == pytest.approx([1.0, 2.0, 3.0])


# ------------------------------------------------------------------ against plain numbers

share = st.floats(0.001, 0.999)


@settings(max_examples=75)
@given(st.data())
def test_equations(data):
    max_depth = data.draw(st.integers(1, 7), label="max_depth")
    threshold = data.draw(st.sampled_from([0.5, 0.9, 0.99, 1.0]), label="threshold")
    rows = data.draw(
        st.lists(st.lists(share, min_size=max_depth, max_size=max_depth), max_size=5), label="p"
    )
    p = torch.tensor(rows, dtype=torch.float64).view(len(rows), max_depth)
    states = [numbers(t, len(rows), 3) for t in range(max_depth)]
    expected = [graves(row, threshold, max_depth) for row in rows]
    halting, active = run(p, threshold, max_depth, states)
    if not rows:
        return
    assert halting.steps.tolist() == [node.steps for node in expected]
    assert halting.remainders().tolist() == pytest.approx([node.remainder for node in expected])
    for i, node in enumerate(expected):
        assert sum(node.weights) == pytest.approx(1)
        mixed = sum(w * states[t][i] for t, w in enumerate(node.weights))
        close(halting.result()[i], mixed)
    for t, flags in enumerate(active):
        assert flags.dtype == torch.bool
        assert flags.tolist() == [node.steps > t for node in expected]


# ------------------------------------------------------------------ gradients


def test_ponder_gradient_only_through_the_remainder():
    """N is a constant; r = 1 - (p_1 + ... + p_(N-1)) falls as any p but the last rises."""
    p = torch.tensor([[0.3] * 5, [0.6] * 5, [0.995] * 5], dtype=torch.float64).requires_grad_()
    halting, _ = run(p, 0.99, 5)
    halting.ponder().sum().backward()
    assert p.grad.tolist() == [[-1, -1, -1, 0, 0], [-1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]


def test_raising_p_along_the_gradient_lowers_the_cost():
    p = torch.full((1, 5), 0.3, dtype=torch.float64).requires_grad_()
    before = run(p, 0.99, 5)[0].ponder().sum()
    (slope,) = torch.autograd.grad(before, p)
    after = run((p - 0.01 * slope).detach(), 0.99, 5)[0].ponder().sum()
    assert after < before
    assert after.item() == pytest.approx(before.item() - 3 * 0.01)


def test_gradient_of_the_result():
    """out = p1 x1 + p2 x2 + (1 - p1 - p2) x3."""
    p = torch.full((1, 3), 0.4, dtype=torch.float64).requires_grad_()
    states = [column([value]).requires_grad_() for value in (2.0, 3.0, 7.0)]
    halting, _ = run(p, 0.99, 5, states)
    halting.result().sum().backward()
    assert p.grad.flatten().tolist() == pytest.approx([2 - 7, 3 - 7, 0])
    assert [x.grad.item() for x in states] == pytest.approx([0.4, 0.4, 0.2])


# ------------------------------------------------------------------ edges of the range


def test_no_nodes():
    halting = Halting(0)
    assert halting.active.shape == halting.steps.shape == (0,)
    with pytest.raises(ValueError, match="no node has taken a step"):
        halting.result()


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.01])
def test_threshold_is_checked(threshold):
    with pytest.raises(ValueError, match=rf"threshold is {threshold}, it must lie in \(0, 1\]"):
        Halting(3, threshold)


def test_depth_is_checked():
    with pytest.raises(ValueError, match="max_depth is 0, at least 1"):
        Halting(3, max_depth=0)


def test_rule_is_checked():
    rule = HaltingRule()
    assert rule.check() is rule
    assert rule == (8, 0.99, 0.01, 1.0)
    with pytest.raises(ValueError, match="act_loss_weight is -0.1, at least 0"):
        HaltingRule(act_loss_weight=-0.1).check()


def test_rows_must_be_those_of_the_active_nodes():
    halting = Halting(3)
    with pytest.raises(ValueError, match="2 probabilities and 3 states for 3 nodes"):
        halting.update(column([0.1, 0.1]), column([1.0, 1.0, 1.0]))


def test_no_result_before_all_have_halted():
    halting = Halting(3)
    halting.update(column([0.1, 0.995, 0.1]), column([1.0, 1.0, 1.0]))
    for read in (halting.result, halting.remainders, halting.ponder):
        with pytest.raises(ValueError, match="2 of 3 nodes have not halted"):
            read()


# ------------------------------------------------------------------ the unit


def test_unit_by_hand():
    unit = HaltingUnit(2, bias=-0.5).double()
    with torch.no_grad():
        unit.linear.weight.copy_(torch.tensor([[1.0, 2.0]]))
    p = unit(torch.tensor([[0.5, 0.0], [0.0, 0.0]], dtype=torch.float64))
    assert p.shape == (2, 1)
    assert p.flatten().tolist() == pytest.approx([0.5, 1 / (1 + 2.718281828459045**0.5)])


def test_unit_starts_at_its_bias():
    assert HaltingUnit(7).linear.bias.item() == 1.0
    assert HaltingUnit(7, bias=-2.0).linear.bias.item() == -2.0


# ------------------------------------------------------------------ the statistics


def steps(*values):
    return torch.tensor(values, dtype=torch.int64)


def test_statistics_by_hand():
    ponder = Ponder({"enc": steps(1, 3, 3, 2), "dec": steps(4, 4)}, max_depth=5)
    assert ponder.histogram("enc").tolist() == [1, 1, 2, 0, 0]
    assert ponder.entered("enc").tolist() == [1.0, 0.75, 0.5, 0.0, 0.0]
    assert ponder.mean("enc") == 2.25
    assert ponder.histogram("dec").tolist() == [0, 0, 0, 2, 0]
    # All nodes enter step 1, and all means 1: shares, not per cent.
    assert ponder.entered("dec").tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_statistics_of_an_epoch():
    batches = [
        Ponder({"enc": steps(1, 3), "dec": steps(2)}, 3),
        Ponder({"enc": steps(2), "dec": steps(3, 3)}, 3),
    ]
    epoch = sum(batches, start=Ponder.none(3))
    assert epoch.steps["enc"].tolist() == [1, 3, 2] and epoch.steps["dec"].tolist() == [2, 3, 3]
    assert epoch.histogram("dec").tolist() == [0, 1, 2]
    assert batches[0].steps["enc"].tolist() == [1, 3], "the parts stay what they were"


def test_statistics_of_other_depths_do_not_add_up():
    with pytest.raises(ValueError, match="max_depth differs: 3 and 5"):
        Ponder.none(3) + Ponder.none(5)
