"""The tensors of a live model and its optimiser, by name, and back.

Names are those of the bare module, whatever it was wrapped in for training, so that they are the
same for one process and for several. A tensor with several names (tied embeddings) is listed
once, under the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

__all__ = ["load_optimizer", "load_weights", "optimizer_tensors", "unwrap", "weights_of"]

Tensors = dict[str, Tensor]


def unwrap(model: nn.Module) -> nn.Module:
    """The bare module inside a wrapped ``model`` (data parallel, ``torch.compile``)."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(model, wrappers):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def _unique(model: nn.Module) -> Tensors:
    """Live parameters and buffers of the bare module, each under its first name."""
    seen: set[int] = set()
    result: Tensors = {}
    for name, tensor in unwrap(model).state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            result[name] = tensor
    return result


def weights_of(model: nn.Module) -> Tensors:
    """Copies of the parameters and buffers of ``model`` on the CPU, shared ones once."""
    return {name: tensor.detach().cpu().clone() for name, tensor in _unique(model).items()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], source: object) -> None:
    """Copy weights into a module; every name and shape must fit, or nothing is changed.

    Floating-point weights are converted to the types of the module (a 16-bit export loads into a
    float32 model).

    Args:
        model: The module, wrapped or not.
        weights: What :func:`weights_of` gave for a module of the same build.
        source: The file they come from, for the message.

    Raises:
        ValueError: If a name is missing or unknown, or a shape or kind of number differs.
    """
    own = _unique(model)
    missing = sorted(set(own) - set(weights))
    unknown = sorted(set(weights) - set(own))
    if missing or unknown:
        raise ValueError(
            f"{source}: does not fit the model; {len(missing)} tensors missing "
            f"({', '.join(missing[:3])}), {len(unknown)} unknown ({', '.join(unknown[:3])})"
        )
    for name, tensor in own.items():
        given = weights[name]
        if given.shape != tensor.shape or given.is_floating_point() != tensor.is_floating_point():
            raise ValueError(
                f"{source}: tensor {name} is {given.dtype} {tuple(given.shape)}, the model wants "
                f"{tensor.dtype} {tuple(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def _parameter_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the optimiser's parameters in the order in which it numbers them."""
    names = {id(p): name for name, p in unwrap(model).named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if any(id(p) not in names for p in parameters):
        raise ValueError("the optimiser holds a parameter that is not one of the model's")
    return [names[id(p)] for p in parameters]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """Copies of an optimiser's state on the CPU, named ``<kind>/<parameter>``.

    Args:
        model: The module whose parameters are optimised, wrapped or not.
        optimizer: One that keeps tensors only, as Adam and SGD do.

    Raises:
        ValueError: If it optimises a parameter that is not the model's.
        TypeError: If it keeps state that is no tensor.
    """
    names = _parameter_names(model, optimizer)
    result: Tensors = {}
    for index, entries in optimizer.state_dict()["state"].items():
        for kind, value in entries.items():
            if value is None:  # SGD without momentum
                continue
            if not isinstance(value, Tensor):
                raise TypeError(f"optimiser state {kind} of {names[index]} is no tensor: {value!r}")
            result[f"{kind}/{names[index]}"] = value.detach().cpu().clone()
    return result


def load_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, Tensor],
    source: object,
) -> None:
    """Put back the state that :func:`optimizer_tensors` gave; rates and betas stay as they are.

    Args:
        model: The module whose parameters are optimised, wrapped or not.
        optimizer: Of the same kind as the one that the state is from.
        tensors: The state.
        source: The file it comes from, for the message.

    Raises:
        ValueError: If a tensor belongs to no parameter of the optimiser, or is not what the
            optimiser keeps of that parameter.
    """
    index = {name: i for i, name in enumerate(_parameter_names(model, optimizer))}
    wanted = _state_after_a_step(optimizer)
    state: dict[int, Tensors] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        if name not in index:
            raise ValueError(f"{source}: tensor {key} belongs to no parameter being trained")
        state.setdefault(index[name], {})[kind] = tensor
    for name, i in index.items():
        found = {kind: (t.shape, t.is_floating_point()) for kind, t in state.get(i, {}).items()}
        if found and found != wanted[i]:
            raise ValueError(
                f"{source}: the optimiser's state of {name} is {_shown(found)}, this one keeps "
                f"{_shown(wanted[i])}; was it trained with another optimiser?"
            )
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


Form = dict[str, tuple[torch.Size, bool]]


def _state_after_a_step(optimizer: torch.optim.Optimizer) -> list[Form]:
    """What an optimiser keeps of each parameter: name, shape, and whether it is a float.

    Found by a step along gradients of zero, which changes nothing that lasts: the parameters and
    their gradients are put back, and the state is emptied.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    before = [(p.detach().clone(), p.grad) for p in parameters]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    forms = []
    for p, (values, gradient) in zip(parameters, before, strict=True):
        kept = optimizer.state.get(p, {}).items()
        forms.append(
            {k: (t.shape, t.is_floating_point()) for k, t in kept if isinstance(t, Tensor)}
        )
        p.grad = gradient
        with torch.no_grad():
            p.copy_(values)
    optimizer.state.clear()
    return forms


def _shown(form: Form) -> str:
    return ", ".join(f"{kind} {tuple(shape)}" for kind, (shape, _) in sorted(form.items())) or "-"
