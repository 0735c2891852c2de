"""Arithmetic on whole sets of weights: mean of several checkpoints, 16-bit copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

__all__ = ["average_weights", "to_half"]


def average_weights(
    sets: Iterable[Mapping[str, Tensor]], source: object = "average"
) -> dict[str, Tensor]:
    """Mean of each tensor over several sets of weights of the same model.

    Sums are kept in float64 and the mean is rounded once, to the type of the first set, so that
    the mean of equal sets is that set bit for bit. Tensors of whole numbers (counters in buffers)
    have no meaningful mean: the last set's are taken. One set is held in memory at a time.

    Args:
        sets: The sets, oldest first; may be a generator that reads them one by one.
        source: Where they come from, for the message.

    Raises:
        ValueError: If there is no set, or two differ in names or shapes.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 6.1 (the last checkpoints).
    """
    count = 0
    first: dict[str, Tensor] = {}
    total: dict[str, Tensor] = {}
    for weights in sets:
        if not count:
            first = dict(weights)
            total = {name: torch.zeros_like(t, dtype=torch.float64) for name, t in first.items()}
        if {n: t.shape for n, t in weights.items()} != {n: t.shape for n, t in first.items()}:
            raise ValueError(
                f"{source}: set of weights {count + 1} has other names or shapes than set 1"
            )
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                total[name] += tensor.double()  # 8-bit types are not promoted by themselves
            else:
                first[name] = tensor
        count += 1
    if not count:
        raise ValueError(f"{source}: there are no weights to average")
    return {
        name: (total[name] / count).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in first.items()
    }


def to_half(weights: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """A 16-bit copy of floating-point weights; other tensors stay as they are.

    ``float16`` keeps 11 significant bits and reaches 65504, ``bfloat16`` keeps 8 and the range of
    float32.

    Args:
        weights: Tensors by name.
        dtype: ``torch.float16`` or ``torch.bfloat16``.

    Raises:
        ValueError: If ``dtype`` is another one, or a finite weight is too large for it.
    """
    if dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"dtype must be torch.float16 or torch.bfloat16, got {dtype}")
    result: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        half = tensor.to(dtype) if tensor.is_floating_point() else tensor
        if tensor.is_floating_point() and bool((half.isinf() & tensor.isfinite()).any()):
            limit = torch.finfo(dtype).max
            raise ValueError(f"tensor {name} has weights beyond {limit:g}, the limit of {dtype}")
        result[name] = half
    return result
