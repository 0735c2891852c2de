"""Learning-rate schedules: pure functions ``rate(step)`` of the number of the update.

Updates are counted from 1: ``rate(1)`` is what the first update uses. A schedule is a frozen
value that can be called, compared and printed. Set its rate directly before each update, as
``graphformer.train.fit`` does, or hand it to PyTorch, whose count starts at 0:

    LambdaLR(optimizer, lambda done: schedule(done + 1))   # optimiser built with lr=1
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields

__all__ = ["Constant", "InverseSqrt", "Linear", "Noam", "Schedule", "make_schedule"]

Schedule = Callable[[int], float]


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")


def _check_updates(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of updates, at least {least}, got {value}")


def _check_step(step: int) -> None:
    if step < 1:
        raise ValueError(f"step is counted from 1, got {step}")


@dataclass(frozen=True)
class Noam:
    """``factor * width^-0.5 * min(step^-0.5, step * warmup^-1.5)``.

    Rises linearly for ``warmup`` updates, then falls with the inverse square root.

    Args:
        width: Model width M.
        warmup: Updates of the rise, at least 1.
        factor: Scale of the whole curve.

    Raises:
        ValueError: If an argument is outside its range, or when called with a step below 1.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 3.

    Example:
        >>> f"{Noam(width=512, warmup=4000)(1):.4e}"
        '1.7469e-07'
    """

    width: int
    warmup: int
    factor: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("width", self.width)
        _check_updates("warmup", self.warmup, least=1)
        _check_positive("factor", self.factor)

    def __call__(self, step: int) -> float:
        """Rate of update ``step`` (from 1)."""
        _check_step(step)
        return self.factor * self.width**-0.5 * min(step**-0.5, step * self.warmup**-1.5)


@dataclass(frozen=True)
class InverseSqrt:
    """``peak * min(step / warmup, sqrt(warmup / step))``: Noam's curve, named by its peak.

    Args:
        peak: Rate of update ``warmup``, the highest one.
        warmup: Updates of the linear rise, at least 1.

    Raises:
        ValueError: If an argument is outside its range, or when called with a step below 1.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 3, rescaled.
    """

    peak: float
    warmup: int

    def __post_init__(self) -> None:
        _check_positive("peak", self.peak)
        _check_updates("warmup", self.warmup, least=1)

    def __call__(self, step: int) -> float:
        """Rate of update ``step`` (from 1)."""
        _check_step(step)
        return self.peak * min(step / self.warmup, math.sqrt(self.warmup / step))


@dataclass(frozen=True)
class Linear:
    """A linear rise to ``peak`` at update ``warmup``, then a linear fall to 0 at ``total``.

    The rate stays 0 beyond ``total``.

    Args:
        peak: The highest rate.
        warmup: Updates of the rise; 0 starts the fall at once.
        total: Update at which the rate is 0, above ``warmup``.

    Raises:
        ValueError: If an argument is outside its range, or when called with a step below 1.
    """

    peak: float
    warmup: int
    total: int

    def __post_init__(self) -> None:
        _check_positive("peak", self.peak)
        _check_updates("warmup", self.warmup, least=0)
        _check_updates("total", self.total, least=self.warmup + 1)

    def __call__(self, step: int) -> float:
        """Rate of update ``step`` (from 1)."""
        _check_step(step)
        if step < self.warmup:
            return self.peak * step / self.warmup
        return self.peak * max(0.0, (self.total - step) / (self.total - self.warmup))


@dataclass(frozen=True)
class Constant:
    """The same rate for every update.

    Args:
        peak: That rate.

    Raises:
        ValueError: If ``peak`` is not above 0, or when called with a step below 1.
    """

    peak: float

    def __post_init__(self) -> None:
        _check_positive("peak", self.peak)

    def __call__(self, step: int) -> float:
        """Rate of update ``step`` (from 1)."""
        _check_step(step)
        return self.peak


_SCHEDULES = {"noam": Noam, "inverse_sqrt": InverseSqrt, "linear": Linear, "constant": Constant}


def make_schedule(name: str, **settings: float) -> Schedule:
    """Build a schedule from its name in a recipe.

    Args:
        name: ``noam`` (width, warmup, factor), ``inverse_sqrt`` (peak, warmup), ``linear``
            (peak, warmup, total) or ``constant`` (peak).
        **settings: The arguments named in brackets.

    Returns:
        A function from the number of the update (from 1) to its rate.

    Raises:
        ValueError: If the name is unknown, or an argument is missing, unknown or out of range.
    """
    if name not in _SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(_SCHEDULES)}, got {name!r}")
    wanted = {field.name: field.default is MISSING for field in fields(_SCHEDULES[name])}
    unknown = [key for key in settings if key not in wanted]
    missing = [key for key, required in wanted.items() if required and key not in settings]
    if unknown or missing:
        raise ValueError(
            f"schedule {name} takes {', '.join(wanted)}; missing: {', '.join(missing) or 'none'}, "
            f"unknown: {', '.join(unknown) or 'none'}"
        )
    return _SCHEDULES[name](**settings)
