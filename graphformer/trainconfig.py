"""The numbers that shape a training run, checked when they are set."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from graphformer.optimizer import OPTIMIZERS

__all__ = ["PRECISIONS", "TrainConfig"]

#: Names of the number formats in which a forward pass can run.
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class TrainConfig:
    """Settings of :func:`graphformer.train.fit`; none depends on the model or the data.

    An *update* (step) is one change of the weights, made from ``accumulate`` batches; the last
    update of an epoch may have fewer.

    Args:
        epochs: Passes over the data, at least 1.
        max_steps: Stop after this many updates; None for no limit.
        seed: Source of dropout, 0 <= seed < 2^63. The order of the data is the batches' own.
        accumulate: Batches for one update, at least 1.
        clip_norm: Largest norm of the whole gradient; None for no limit.
        optimizer: ``adam``, or ``muon`` for the matrices of the layers and Adam for the rest.
        betas: Adam's two decay rates, each at least 0 and below 1.
        eps: Adam's epsilon, above 0.
        precision: Format of the forward pass, ``float32`` or ``bfloat16`` (autocast; weights,
            loss and optimiser stay float32). On a processor without instructions for bfloat16
            it is many times slower than float32; training says so.
        save_every: Updates from save to save; None saves at the end of each epoch.
        keep: Newest checkpoints to keep, at least 1. The best one is kept as well.
        validate_every: Updates from validation to validation; None at the end of each epoch.
        patience: Stop after this many validations in a row without a lower loss; None never.
        halting_warmup: Updates before the halting units of a Universal Transformer begin to
            learn. Adam moves them at full speed however small their gradient is, so in the
            first updates, when depth brings nothing yet, they can learn to halt after one step,
            where the gradient of the loss with respect to halting is zero for good.

    Raises:
        ValueError: If a value is outside its range; the message names argument, value and limit.
    """

    epochs: int = 10
    max_steps: int | None = None
    seed: int = 1
    accumulate: int = 1
    clip_norm: float | None = None
    optimizer: str = "adam"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-9
    precision: str = "float32"
    save_every: int | None = None
    keep: int = 1
    validate_every: int | None = None
    patience: int | None = None
    halting_warmup: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "accumulate", "keep"):
            self._check_whole(name, least=1)
        for name in ("max_steps", "save_every", "validate_every", "patience"):
            if getattr(self, name) is not None:
                self._check_whole(name, least=1)
        for name in ("seed", "halting_warmup"):
            self._check_whole(name, least=0)
        if self.seed >= 2**63:
            raise ValueError(f"seed must be below 2^63, got {self.seed}")
        if self.clip_norm is not None:
            self._check_above_zero("clip_norm")
        self._check_above_zero("eps")
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}"
            )
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}"
            )
        betas = self.betas
        if not isinstance(betas, (tuple, list)) or not (
            len(betas) == 2 and all(_is_number(beta) and 0 <= beta < 1 for beta in betas)
        ):
            raise ValueError(f"betas must be two numbers, at least 0 and below 1, got {betas!r}")

    def _check_whole(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")

    def _check_above_zero(self, name: str) -> None:
        value = getattr(self, name)
        if not _is_number(value) or not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
