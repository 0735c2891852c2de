"""The training loop: it knows batches, logits and a loss, but no model and no edge.

Letters: **T** target nodes, **V** vocabulary.

The order of the data is a function of the epoch alone, and the random numbers of dropout are a
function of seed and update alone. So training can be stopped anywhere and goes on bit for bit,
and nothing that a caller draws between updates changes it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from graphformer.checkpoint import Checkpoint
from graphformer.evaluation import Batches, evaluate
from graphformer.lock import FolderLock
from graphformer.loss import LabelSmoothing
from graphformer.optimizer import make_optimizer
from graphformer.runfolder import RunFolder
from graphformer.schedule import Schedule
from graphformer.state import load_optimizer, load_weights, optimizer_tensors, weights_of
from graphformer.trainconfig import TrainConfig
from graphformer.update import StepRecord, Updater

__all__ = ["Callback", "StepRecord", "fit", "total_updates"]

_logger = logging.getLogger(__name__)

Callback = Callable[[StepRecord, nn.Module], None]


def fit(
    model: nn.Module,
    batches: Batches,
    config: TrainConfig,
    schedule: Schedule,
    *,
    criterion: LabelSmoothing | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    valid: Batches | None = None,
    run: RunFolder | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    device: torch.device | str = "cpu",
) -> Iterator[StepRecord]:
    """Train a model; each update happens when its record is asked for.

    After an update follow in this order: validation and save if they are due, with the record
    written to ``metrics.jsonl`` and given to the callbacks between the two. A caller that stops
    asking stops training; only updates up to the last save can be resumed from.

    Args:
        model: Takes a batch and returns ``(logits (T, V), act_loss scalar)``; already on
            ``device``. It may be wrapped (data parallel, ``torch.compile``).
        batches: The training data.
        config: Everything with a number.
        schedule: Function of the number of the update (from 1) to its learning rate.
        criterion: The loss; ``LabelSmoothing()`` if not given.
        optimizer: The one that ``config`` names if not given; its rate is set by
            ``schedule`` before each update.
        valid: Data for validation (plain cross-entropy) and early stopping.
        run: Folder for checkpoints and records; without one nothing is written.
        resume: Go on from the newest checkpoint of ``run``; with none, start from the beginning.
        callbacks: Called with each record and the model.
        device: Where to compute.

    Returns:
        An iterator of one record for each update; it ends after the last epoch, at ``max_steps``
        or when validation has not improved ``patience`` times in a row.

    Raises:
        ValueError: At once, if ``run`` has checkpoints and ``resume`` is false, if ``resume``
            lacks a run, or if the checkpoint does not fit model, optimiser, seed or
            ``accumulate``. Later, if an epoch has no batches or an update no target token.
        FloatingPointError: If the loss or the gradient is not finite; names the update and the
            samples. Weights, optimiser and the last save stay as they were before that update.
        BlockingIOError: At once, if another process is training in the folder of ``run``.
        OSError: If a file of ``run`` cannot be written.
    """
    if config.patience is not None and valid is None:
        raise ValueError(f"patience {config.patience} needs data for validation, got none")
    if resume and run is None:
        raise ValueError("resume needs the folder of a run, got none")
    device = torch.device(device)
    if config.precision == "bfloat16" and device.type == "cpu" and _emulates_bfloat16():
        _logger.warning(
            "precision is bfloat16, for which this processor has no instructions: "
            "float32 is many times faster here"
        )
    criterion = criterion or LabelSmoothing()
    if optimizer is None:
        beta1, beta2 = config.betas
        optimizer = make_optimizer(config.optimizer, model, (beta1, beta2), config.eps)
    updater = Updater(model, optimizer, schedule, criterion, batches, config, device)
    training = _Training(updater, valid, run, callbacks)
    if run is not None:
        training.restore(run, resume)
    return training.records()


def _emulates_bfloat16() -> bool:
    # Instructions for it came to x86 after AVX-512.
    return torch.backends.cpu.get_cpu_capability() == "AVX2"


def total_updates(batches: Batches, config: TrainConfig) -> int:
    """Number of updates of a whole run over ``batches`` with ``config``, if not stopped early."""
    most, total = config.max_steps or math.inf, 0
    for epoch in range(1, config.epochs + 1):
        total += math.ceil(len(batches.plan(epoch)) / config.accumulate)
        if total >= most:
            return int(most)
    return total


@dataclass
class _Position:
    """Where training stands between two updates; all that a checkpoint holds beside tensors."""

    seed: int
    accumulate: int
    step: int = 0  # updates done
    epoch: int = 1  # of the next update
    batch: int = 0  # batches of that epoch already used
    batches: int = 0  # that the epoch has, if any is used
    best_loss: float | None = None
    best_step: int | None = None
    stale: int = 0  # validations since the best one

    def restored(self, step: int, counters: Mapping[str, Any], source: str) -> _Position:
        """The position in a checkpoint, which must be of the same seed and accumulation."""
        if set(counters) != set(vars(self)):
            raise ValueError(f"{source}: counters are {sorted(counters)}, not those of training")
        for name in ("seed", "accumulate"):
            if counters[name] != getattr(self, name):
                raise ValueError(
                    f"{source}: was trained with {name} {counters[name]!r}, cannot go on with "
                    f"{getattr(self, name)}"
                )
        result = _Position(**counters)
        whole = (result.step, result.epoch, result.batch, result.batches, result.stale)
        best = (result.best_loss, result.best_step)
        if (
            not all(type(number) is int and number >= 0 for number in whole)
            or not (best == (None, None) or [type(value) for value in best] == [float, int])
            or (result.step, result.batch < max(result.batches, 1)) != (step, True)
        ):
            raise ValueError(f"{source}: no such position in training, {dict(counters)}")
        return result

    def advance(self, length: int) -> None:
        """Count an update in an epoch of ``length`` batches."""
        self.step += 1
        self.batch += self.accumulate
        self.batches = length
        if self.batch >= length:
            self.epoch, self.batch = self.epoch + 1, 0


@dataclass
class _Training:
    """The order of things around the updates: resume, validate, log, save, stop."""

    updater: Updater
    valid: Batches | None
    run: RunFolder | None
    callbacks: Sequence[Callback]

    def __post_init__(self) -> None:
        self.config = self.updater.config
        self.at = _Position(self.config.seed, self.config.accumulate)
        self.lock: FolderLock | None = None

    def restore(self, run: RunFolder, resume: bool) -> None:
        """Lock the folder, take over the newest checkpoint, drop the records after it."""
        self.lock = FolderLock(run.path)
        try:
            self.take_over(run, resume)
        except BaseException:
            self.lock.release()
            raise

    def take_over(self, run: RunFolder, resume: bool) -> None:
        steps = run.steps()
        if steps and not resume:
            raise ValueError(f"{run.path}: was trained to step {steps[-1]} already; resume it")
        run.prepare()
        if steps:
            saved = run.checkpoint()
            source = f"{run.path} step {saved.step}"
            self.at = self.at.restored(saved.step, saved.counters, source)
            load_weights(self.updater.model, saved.weights, source)
            load_optimizer(self.updater.model, self.updater.optimizer, saved.optimizer, source)
        run.log.cut(self.at.step)
        if steps:
            self.prune(run)  # a kill may have come between the last save and this

    def done(self) -> bool:
        at, config = self.at, self.config
        return (
            at.epoch > config.epochs
            or (config.max_steps is not None and at.step >= config.max_steps)
            or (config.patience is not None and at.stale >= config.patience)
        )

    def records(self) -> Iterator[StepRecord]:
        try:
            yield from self.updates()
        finally:
            if self.lock is not None:
                self.lock.release()

    def updates(self) -> Iterator[StepRecord]:
        at = self.at
        while not self.done():
            epoch = at.epoch
            plan = list(self.updater.batches.plan(epoch))
            if not plan:
                raise ValueError(f"epoch {epoch} has no batches")
            if at.batch and at.batches != len(plan):
                where = "" if self.run is None else f"{self.run.path} step {at.step}: "
                raise ValueError(
                    f"{where}epoch {epoch} has {len(plan)} batches but had {at.batches} before, "
                    "the data or the size of a batch was changed"
                )
            while at.epoch == epoch and not self.done():
                samples = plan[at.batch : at.batch + self.config.accumulate]
                record = self.updater.update(at.step + 1, epoch, samples)
                at.advance(len(plan))
                yield self.conclude(record)

    def conclude(self, record: StepRecord) -> StepRecord:
        """Validate, log, call back and save, as far as each is due."""
        at, config = self.at, self.config
        epoch_ended, ended = at.batch == 0, self.done()
        improved = False
        if self.valid is not None and (ended or _due(at.step, config.validate_every, epoch_ended)):
            record, improved = self.validate(record, self.valid)
            ended = self.done()
        if self.run is not None:
            self.run.log.append(record.as_dict())
        for callback in self.callbacks:
            callback(record, self.updater.model)
        if self.run is not None and (
            ended or improved or _due(at.step, config.save_every, epoch_ended)
        ):
            self.save(self.run)
        if ended:
            _logger.info("training ended at step %d; best validation: %s", at.step, at.best_step)
        return record

    def validate(self, record: StepRecord, valid: Batches) -> tuple[StepRecord, bool]:
        """The record with the result of a validation, and whether that is the best so far."""
        at, updater = self.at, self.updater
        precision = self.config.precision
        result = evaluate(updater.model, valid, precision=precision, device=updater.device)
        if not math.isfinite(result.loss):
            raise FloatingPointError(f"validation loss is {result.loss} after step {at.step}")
        improved = at.best_loss is None or result.loss < at.best_loss
        if improved:
            at.best_loss, at.best_step, at.stale = result.loss, at.step, 0
        else:
            at.stale += 1
        return replace(record, valid=result), improved

    def save(self, run: RunFolder) -> None:
        updater, at = self.updater, self.at
        optimizer = optimizer_tensors(updater.model, updater.optimizer)
        run.save(Checkpoint(at.step, weights_of(updater.model), optimizer, asdict(at)))
        self.prune(run)

    def prune(self, run: RunFolder) -> None:
        best = () if self.at.best_step is None else (self.at.best_step,)
        run.prune(self.config.keep, protect=best)


def _due(step: int, every: int | None, epoch_ended: bool) -> bool:
    return epoch_ended if every is None else step % every == 0
