"""Muon for the matrices of the layers, Adam for the rest, as one optimiser."""

import pytest
import torch
from small import BOTH, close

from graphformer.build import make_model
from graphformer.optimizer import Muon, MuonAdam, make_optimizer
from graphformer.state import load_optimizer, optimizer_tensors


def model_of(universal=False, **options):
    torch.manual_seed(3)
    return make_model(
        13, 13, N=1, dim_model=14, dim_ff=17, h=2, universal=universal, max_depth=2, **options
    )


def give_gradients(model, seed):
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)


def names_in(model, group):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)] for parameter in group["params"]}


@pytest.mark.parametrize("universal", BOTH)
@pytest.mark.parametrize("shared", [True, False])
def test_matrices_of_the_layers_are_muons_and_each_parameter_has_one_owner(universal, shared):
    model = model_of(universal, share_embeddings=shared)
    muon, adam = (names_in(model, group) for group in MuonAdam(model).param_groups)
    assert not muon & adam
    assert muon | adam == {name for name, _ in model.named_parameters()}
    matrices = {name for name, p in model.named_parameters() if p.ndim == 2}
    kept_back = {name for name in matrices if "embed" in name or "generator" in name}
    kept_back |= {name for name in matrices if "halting_unit" in name}
    assert muon == matrices - kept_back
    assert len(muon) == 10


def test_it_moves_as_the_two_do_alone():
    together, apart = model_of().double(), model_of().double()
    both = MuonAdam(together, betas=(0.8, 0.95), eps=1e-7)
    muons = names_in(together, both.param_groups[0])
    parts = [[], []]
    for name, parameter in apart.named_parameters():
        parts[name not in muons].append(parameter)
    muon = Muon(parts[0])
    adam = torch.optim.Adam(parts[1], betas=(0.8, 0.95), eps=1e-7)
    for step, rate in enumerate((0.01, 0.02, 0.005)):
        for optimizer in (both, muon, adam):
            for group in optimizer.param_groups:
                group["lr"] = rate
        give_gradients(together, step)
        give_gradients(apart, step)
        both.step()
        muon.step()
        adam.step()
    for one, other in zip(together.parameters(), apart.parameters(), strict=True):
        close(one, other)


@pytest.mark.parametrize("rows, columns", [(7, 17), (17, 7), (13, 13)])
def test_muon_is_pytorchs_up_to_the_rounding_of_its_bfloat16(rows, columns):
    torch.manual_seed(6)
    ours = [torch.nn.Parameter(torch.randn(rows, columns)) for _ in range(3)]
    theirs = [torch.nn.Parameter(weight.detach().clone()) for weight in ours]
    starts = [weight.detach().clone() for weight in ours]
    pair = (
        Muon(ours),
        torch.optim.Muon(theirs, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(3):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(rows, columns)
            other.grad = one.grad.clone()
        for optimizer in pair:
            optimizer.step()
    for one, other, start in zip(ours, theirs, starts, strict=True):
        torch.testing.assert_close(one - start, other - start, atol=3e-5, rtol=0.03)


def test_a_step_moves_every_direction_of_a_matrix_about_equally_far():
    """Muon's own promise: five rounds bring the singular values to 0.7 to 1.2 of each other."""
    model = model_of()
    optimizer = make_optimizer("muon", model, (0.9, 0.98), 1e-9)
    weight = optimizer.param_groups[0]["params"][1]
    before = weight.detach().clone()
    give_gradients(model, 5)
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    optimizer.step()
    moved = torch.linalg.svdvals(weight.detach() - before)
    assert moved.min() > 0.5 * moved.max()
    scale = 0.2 * 0.01 * max(weight.shape) ** 0.5
    assert 0.6 * scale < moved.mean() < 1.3 * scale


def test_state_is_put_back_whole():
    first, second = model_of(), model_of()
    one, two = MuonAdam(first), MuonAdam(second)
    for step in range(2):
        give_gradients(first, step)
        one.step()
    second.load_state_dict(first.state_dict())
    load_optimizer(second, two, optimizer_tensors(first, one), "here")
    for model, optimizer in ((first, one), (second, two)):
        give_gradients(model, 9)
        optimizer.step()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_frozen_parameter_without_gradient_stays():
    model = model_of()
    optimizer = MuonAdam(model)
    give_gradients(model, 1)
    still = [group["params"][0] for group in optimizer.param_groups]
    before = [parameter.detach().clone() for parameter in still]
    for parameter in still:
        parameter.grad = None
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(still, before, strict=True))


def test_what_it_cannot_do_is_said():
    with pytest.raises(ValueError, match="optimizer must be one of adam, muon, got 'sgd'"):
        make_optimizer("sgd", model_of(), (0.9, 0.98), 1e-9)
    with pytest.raises(ValueError, match="takes no closure"):
        MuonAdam(model_of()).step(lambda: 0.0)
