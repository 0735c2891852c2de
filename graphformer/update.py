"""One change of the weights: batches in, gradient, optimiser, record out.

The loss is the mean over the target tokens of *all* batches of the update, so it does not depend
on how many batches the tokens are spread over. A batch's ponder cost ``act_loss``, already
weighted and a mean over nodes, is added with the share of the update's target tokens that the
batch holds.

Letters: **T** target nodes.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphformer.evaluation import Batches, Evaluation, forward
from graphformer.loss import LabelSmoothing
from graphformer.schedule import Schedule
from graphformer.trainconfig import TrainConfig

__all__ = ["StepRecord", "Updater"]


@dataclass(frozen=True)
class StepRecord:
    """What happened in one update.

    Attributes:
        step: Number of the update, from 1.
        epoch: Pass over the data it belongs to, from 1.
        loss: Training loss before the update, nats a target token (smoothed, KL form).
        act_loss: Weighted ponder cost that was added to it.
        accuracy: Share of target tokens (0 to 1) ranked first, dropout on.
        tokens: Target tokens of the update.
        rate: Learning rate that the update used.
        grad_norm: Euclidean norm of the whole gradient before clipping.
        seconds: Time for building the batches, forward, backward and update.
        valid: Result of the validation after the update, where one was due.
    """

    step: int
    epoch: int
    loss: float
    act_loss: float
    accuracy: float
    tokens: int
    rate: float
    grad_norm: float
    seconds: float
    valid: Evaluation | None = None

    @property
    def tokens_per_second(self) -> float:
        """Target tokens a second."""
        return self.tokens / self.seconds

    def as_dict(self) -> dict[str, float]:
        """The record as plain numbers; those of a validation are named ``valid_...``."""
        numbers = {key: value for key, value in vars(self).items() if key != "valid"}
        numbers["tokens_per_second"] = self.tokens_per_second
        if self.valid is not None:
            numbers.update({f"valid_{key}": n for key, n in self.valid._asdict().items()})
        return numbers


@contextmanager
def _noise(seed: int, step: int, device: torch.device) -> Iterator[None]:
    """Random numbers of one update, leaving the caller's generator as it was."""
    digest = hashlib.sha256(f"{seed} {step}".encode("ascii")).digest()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        yield


@dataclass
class Updater:
    """Everything an update needs that stays the same from one to the next.

    Attributes:
        model: Takes a batch and returns ``(logits, act_loss)``.
        optimizer: Changes the weights; its rate is set before each update.
        schedule: Function of the number of the update (from 1) to its rate.
        criterion: The loss.
        batches: Builds the batches.
        config: Accumulation, clipping, precision and seed.
        device: Where to compute.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    criterion: LabelSmoothing
    batches: Batches
    config: TrainConfig
    device: torch.device

    def update(self, step: int, epoch: int, samples: Sequence[Sequence[int]]) -> StepRecord:
        """Change the weights once.

        Args:
            step: Number of the update, from 1.
            epoch: Pass over the data, from 1.
            samples: Sample numbers of each batch of the update.

        Raises:
            ValueError: If the batches hold no target token.
            FloatingPointError: If loss or gradient is not finite; nothing was changed then.
        """
        started = time.perf_counter()
        with _noise(self.config.seed, -step, torch.device("cpu")):  # not the numbers of dropout
            parts = [self.batches.collate(indices).to(self.device) for indices in samples]
        total = sum(self.criterion.count(part.tgt_y) for part in parts)
        if not total:
            raise ValueError(
                f"step {step} (epoch {epoch}): samples {_listed(samples)} hold no token"
            )
        self.model.train()
        self.optimizer.zero_grad()
        loss, act_loss, correct = 0.0, 0.0, 0
        try:
            with _noise(self.config.seed, step, self.device):
                for part, indices in zip(parts, samples, strict=True):
                    nats, ponder, right = self._backward(part, total)
                    loss, act_loss, correct = loss + nats, act_loss + ponder, correct + right
                    _check_finite("loss", nats + ponder, indices)
            if step <= self.config.halting_warmup:
                _forget_halting(self.model)
            norm = self._gradient_norm()
            _check_finite("gradient norm", norm, [i for indices in samples for i in indices])
        except FloatingPointError as error:
            self.optimizer.zero_grad()
            raise FloatingPointError(
                f"step {step} (epoch {epoch}): {error}; weights are kept as of step {step - 1}"
            ) from None
        rate = self.schedule(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        seconds = time.perf_counter() - started
        accuracy = correct / total
        return StepRecord(step, epoch, loss, act_loss, accuracy, total, rate, norm, seconds)

    def _backward(self, part: Any, total: int) -> tuple[float, float, int]:
        """Add one batch's share to the gradient; returns its share of loss and ponder cost."""
        output = forward(self.model, part, self.config.precision, self.device)
        score = self.criterion(output.logits, part.tgt_y)
        loss = score.nats / total
        ponder = output.act_loss.to(loss.dtype) * (score.tokens / total)
        (loss + ponder).backward()
        return loss.item(), ponder.item(), score.correct

    def _gradient_norm(self) -> float:
        """Norm of the whole gradient, which is clipped if the configuration says so."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        if self.config.clip_norm is not None:
            return nn.utils.clip_grad_norm_(parameters, self.config.clip_norm).item()
        gradients = [p.grad for p in parameters if p.grad is not None]
        return nn.utils.get_total_norm(gradients).item()


def _forget_halting(model: nn.Module) -> None:
    """Drop the gradient of the halting units, which an optimiser then leaves alone."""
    for name, parameter in model.named_parameters():
        if "halting_unit" in name.split("."):
            parameter.grad = None


def _check_finite(name: str, value: float, indices: Sequence[int]) -> None:
    if not math.isfinite(value):
        raise FloatingPointError(f"{name} is {value} for samples {_listed(indices)}")


def _listed(indices: Sequence[Any], most: int = 12) -> str:
    shown = ", ".join(str(index) for index in indices[:most])
    return f"[{shown}, ...]" if len(indices) > most else f"[{shown}]"
