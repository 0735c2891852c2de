"""What a row of the table is, and a registry of the functions that measure them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from .measure import spread
from .sizes import Sizes


@dataclass
class Row:
    """One measured number, and its target if it has one.

    Attributes:
        work: what was measured.
        value: the number: a ratio, a share, or seconds; see ``unit``.
        unit: ``"x"`` for a ratio of times, else what it says.
        relation, target: ``">="`` or ``"<="`` and the target; ``None``: for information.
        note: how to read it.
        details: times of the candidates and other numbers, for the JSON file.
    """

    work: str
    value: float
    unit: str = "x"
    relation: str | None = None
    target: float | None = None
    note: str = ""
    details: dict[str, object] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Is the target reached?"""
        if self.relation is None or self.target is None:
            return None
        return {">=": operator.ge, "<=": operator.le}[self.relation](self.value, self.target)

    def as_dict(self) -> dict[str, object]:
        """For the JSON file."""
        return {**asdict(self), "met": self.met}


Measure = Callable[[Sizes, bool], list[Row]]  # the second argument: short?


def times_of(times: Mapping[str, list[float]]) -> dict[str, object]:
    """Details of a row: times of every candidate."""
    return {"times": {name: spread(values) for name, values in times.items()}}


def table(rows: list[Row]) -> str:
    """Rows as text, one a line."""
    width = max(len(row.work) for row in rows)
    lines = [f"{'work':<{width}}  {'measured':>14}  {'target':>9}  met"]
    for row in rows:
        goal = "" if row.target is None else f"{row.relation} {row.target:g}"
        met = {None: "", True: "yes", False: "no"}[row.met]
        value = f"{row.value:.3g} {row.unit}"
        lines.append(f"{row.work:<{width}}  {value:>14}  {goal:>9}  {met:<3}  {row.note}".rstrip())
    return "\n".join(lines)
