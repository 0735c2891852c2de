"""The Universal Transformer: depth, who still computes what, and what the ponder cost does."""

import pytest
import torch
from small import TOLERANCE, close, gradients, small_model, some_pairs
from test_transformer import check_equal_to_padded

from graphformer.build import make_model
from graphformer.graph import GraphPool
from graphformer.halting import Halting
from graphformer.layers import Rows
from graphformer.maps import record_attention

SRC_LENS, TGT_LENS = [3, 1, 5, 1, 2, 3], [2, 4, 1, 1, 7, 2]


def batch_of(src_lens=SRC_LENS, tgt_lens=TGT_LENS):
    return GraphPool()(*some_pairs(src_lens, tgt_lens))


def constant_halting(model, p):
    """Every node's halting probability is p, whatever its state."""
    with torch.no_grad():
        for stack in (model.enc, model.dec):
            stack.halting_unit.linear.weight.zero_()
            stack.halting_unit.linear.bias.copy_(torch.logit(torch.tensor(p, dtype=torch.float64)))
    return model


# ------------------------------------------------------------------ depth


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("depth", [1, 2, 8])
def test_depths_equal_the_padded_model(depth, dtype):
    src, tgt = some_pairs(SRC_LENS, TGT_LENS)
    model = small_model(True, dtype, max_depth=depth, halting_bias=-1.5)
    check_equal_to_padded(model, src, tgt)
    steps = torch.cat(list(model.ponder.steps.values()))
    assert int(steps.max()) == depth
    if depth == 8:
        assert len(steps.unique()) > 3, "nodes halt at different times"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 8])
def test_active_is_boolean_at_every_step(depth, training, monkeypatch):
    flags = []
    update = Halting.update

    def watched(self, p, x):
        flags.append(self.active)
        halted = update(self, p, x)
        flags.append(halted)
        flags.append(self.active)
        return halted

    monkeypatch.setattr(Halting, "update", watched)
    model = small_model(True, max_depth=depth, dropout=0.1, attention_dropout=0.1)
    model.train(training)
    model(batch_of()).logits.sum().backward()
    assert flags and {flag.dtype for flag in flags} == {torch.bool}


def test_depth_1_is_one_layer():
    """Every node takes one step, worth 1: the layer and the norm, with time code 0 added."""
    model = small_model(True, max_depth=1)
    batch = batch_of()
    x = model.src_embed(batch.src[0]) + model.positions(batch.src[1])
    x = x + model.positions(torch.zeros(1, dtype=torch.int64))
    layer = model.enc.layer
    expected = model.enc.norm(layer(x, layer.pre_func(Rows({"x": x})), batch.edges["ee"]))
    found, halting = model.encode(batch.src, batch.edges["ee"], {})
    close(found, expected, 1e-12)
    assert set(halting.steps.tolist()) == {1}


def test_number_of_layers_is_not_used():
    sizes = dict(dim_model=15, dim_ff=7, h=3, universal=True)
    one, many = (make_model(11, 11, N=N, **sizes) for N in (1, 7))
    assert [p.shape for p in one.parameters()] == [p.shape for p in many.parameters()]


# ------------------------------------------------------------------ constant probability


@pytest.mark.parametrize(
    ("p", "depth", "steps", "remainder"), [(0.3, 8, 4, 0.1), (0.3, 2, 2, 0.7), (0.995, 8, 1, 1.0)]
)
def test_steps_match_a_count_by_hand(p, depth, steps, remainder):
    model = constant_halting(small_model(True, max_depth=depth, act_loss_weight=0.25), p)
    act_loss = model(batch_of()).act_loss
    assert act_loss.item() == pytest.approx(0.25 * (steps + remainder))
    for side, count in (("enc", 15), ("dec", 17)):
        assert model.ponder.steps[side].tolist() == [steps] * count
        assert model.ponder.steps[side].dtype == torch.int64
        assert model.ponder.mean(side) == steps
        assert model.ponder.entered(side).tolist() == [float(t < steps) for t in range(depth)]


def test_output_is_the_norm_of_the_weighted_states(monkeypatch):
    states = []
    update = Halting.update

    def watched(self, p, x):
        states.append(x)
        return update(self, p, x)

    monkeypatch.setattr(Halting, "update", watched)
    model = constant_halting(small_model(True), 0.3)
    batch = batch_of()
    found, _ = model.encode(batch.src, batch.edges["ee"], {})
    weighted = 0.3 * (states[0] + states[1] + states[2]) + 0.1 * states[3]
    assert len(states) == 4
    close(found, model.enc.norm(weighted), 1e-10)


# ------------------------------------------------------------------ halted nodes cost nothing


def test_edges_into_halted_nodes_are_not_computed():
    """Edges are counted: those into nodes that have entered a step, and no others."""
    model, batch = small_model(True, max_depth=7, halting_bias=-1.5), batch_of()
    with record_attention(model) as records:
        model(batch)
    for kind, side in (("ee", "enc"), ("dd", "dec"), ("ed", "dec")):
        steps = model.ponder.steps[side]
        assert len(steps.unique()) > 2
        used = records.kind(kind)
        assert len(used) == int(steps.max())
        whole = batch.edges[kind]
        for depth, record in enumerate(used):
            active = steps > depth
            assert record.edges.kept_targets.tolist() == active.nonzero().squeeze(1).tolist()
            assert len(record.edges) == len(record.weights) == int(active[whole.dst].sum())
            assert record.edges.num_src == whole.num_src, "all are still seen"


def test_a_halted_node_is_seen_in_its_last_state():
    """Node 0 halts after step 1; what node 1 sees of it at step 2 is the state it stopped in."""
    model, batch = small_model(True, max_depth=2), batch_of([2], [1])
    stack = model.enc
    with torch.no_grad():
        # The unit is asked for a node with features of its own: p by position.
        stack.halting_unit.forward = lambda x: torch.tensor([[0.995], [0.3]][-len(x) :]).double()
    seen = []
    attend = stack.layer.self_block.attn.attend

    def watched(edges, q, k, v, bias=None):
        seen.append((k, v))
        return attend(edges, q, k, v, bias)

    stack.layer.self_block.attn.attend = watched
    _, halting = model.encode(batch.src, batch.edges["ee"], {})
    assert halting.steps.tolist() == [1, 2]
    stopped = halting.result()[0]  # one step, worth 1: the state itself
    fields = stack.layer.pre_func(Rows({"x": stopped[None]}), "kv")
    close(seen[1][0][0], fields["k"][0], 1e-12)
    close(seen[1][1][0], fields["v"][0], 1e-12)


# ------------------------------------------------------------------ the ponder cost


def halting_slopes(weight, p=0.3):
    model = constant_halting(small_model(True, act_loss_weight=weight), p)
    model(batch_of()).act_loss.backward()
    return [stack.halting_unit.linear.bias.grad.item() for stack in (model.enc, model.dec)]


def test_ponder_gradient_pushes_halting_up():
    """d/db of the mean of r = 1 - 3 p, over 15 + 17 nodes: -3 p (1 - p) times their share."""
    enc, dec = halting_slopes(1.0)
    assert enc == pytest.approx(-3 * 0.3 * 0.7 * 15 / 32)
    assert dec == pytest.approx(-3 * 0.3 * 0.7 * 17 / 32)


def test_a_higher_weight_pushes_harder():
    for low, high in zip(halting_slopes(0.01), halting_slopes(1.0), strict=True):
        assert high == pytest.approx(100 * low) and high < 0
    assert halting_slopes(0.0) == [0.0, 0.0]


def test_a_step_along_the_ponder_gradient_lowers_the_cost():
    model, batch = small_model(True, act_loss_weight=1.0), batch_of()
    before = model(batch).act_loss
    before.backward()
    grads = {name: grad for name, grad in gradients(model).items() if grad is not None}
    assert "halting" in " ".join(name for name, grad in grads.items() if bool(grad.any()))
    slope = sum(float(grad.square().sum()) for grad in grads.values())
    step = 1e-6
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in grads:
                parameter -= step * grads[name]
    fall = (before - model(batch).act_loss).item()
    assert fall == pytest.approx(step * slope, rel=0.01), "N is constant over so small a step"


def test_cost_is_a_mean_over_the_nodes_of_both_sides():
    model, batch = small_model(True, act_loss_weight=0.5), batch_of()
    found = model(batch).act_loss
    memory, enc = model.encode(batch.src, batch.edges["ee"], {})
    _, dec = model.decode(batch.tgt, batch.edges, memory, {})
    expected = 0.5 * (enc.ponder().sum() + dec.ponder().sum()) / (15 + 17)
    close(found, expected, 1e-12)


def test_ponder_is_that_of_the_last_pass():
    model = small_model(True)
    model(batch_of())
    first = model.ponder
    model(batch_of([2], [3]))
    assert (len(model.ponder.steps["enc"]), len(model.ponder.steps["dec"])) == (2, 3)
    assert len(first.steps["enc"]) == 15
    total = first + model.ponder
    assert len(total.steps["enc"]) == 17 and len(total.steps["dec"]) == 20


# ------------------------------------------------------------------ learning


def sort_pairs(count, length=5):
    generator = torch.Generator().manual_seed(5)
    src = torch.randint(4, 11, (count, length), generator=generator).tolist()
    return src, [[0, *sorted(ids), 1] for ids in src]


def overfit(weight, steps, seed=0, halting_bias=1.0):
    """Train on 8 sort pairs -> share of right tokens, and mean steps over time."""
    torch.manual_seed(seed)
    sizes = dict(dim_model=30, dim_ff=31, h=3, dropout=0.0, universal=True, max_depth=5)
    model = make_model(11, 11, **sizes, act_loss_weight=weight, halting_bias=halting_bias)
    batch = GraphPool()(*sort_pairs(8))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    means = []
    for _ in range(steps):
        logits, act_loss = model(batch)
        loss = torch.nn.functional.cross_entropy(logits, batch.tgt_y) + act_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        means.append((model.ponder.mean("enc") + model.ponder.mean("dec")) / 2)
    return (model(batch).logits.argmax(1) == batch.tgt_y).double().mean().item(), means


def test_eight_sort_pairs_are_learnt():
    share, _ = overfit(weight=0.01, steps=60)
    assert share == 1.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pondering_is_not_inert(seed):
    """From the same start, a higher weight gives fewer steps."""
    _, free = overfit(weight=0.0, steps=20, seed=seed, halting_bias=-2.0)
    _, dear = overfit(weight=1.0, steps=20, seed=seed, halting_bias=-2.0)
    assert dear[0] == free[0]
    assert dear[-1] < free[-1] - 0.5
