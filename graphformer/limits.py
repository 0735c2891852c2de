"""Refusing numbers out of their range; each message names the argument, its value and the limit."""

from __future__ import annotations


def check_counts(**counts: int) -> None:
    """Refuse numbers below 1, given by the names which the user knows them by."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"{name} is {count}, at least 1 is needed")


def check_shares(**shares: float) -> None:
    """Refuse numbers outside [0, 1), such as a dropout, given by their names."""
    for name, share in shares.items():
        if not 0.0 <= share < 1.0:
            raise ValueError(f"{name} is {share}, it must lie in [0, 1)")
