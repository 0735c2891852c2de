"""The toy tasks: copy a sequence of letters, or sort it.

Made from a seed and nothing else, the same on every machine and with every version of Python.
"""

from __future__ import annotations

import math
import os
import random
import string
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .atomic import write_file

TASKS = ("copy", "sort")
SIZES = {"train": 9000, "valid": 1000, "test": 1000}
LETTERS = string.ascii_lowercase

_MEAN, _DEVIATION, _LONGEST = 15, 3, 40


class Splits(NamedTuple):
    """The three parts of a task: pairs of source and target, letters with spaces between them."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]


class TaskFiles(NamedTuple):
    """Source and target file of the three parts of a data set."""

    train: tuple[Path, Path]
    valid: tuple[Path, Path]
    test: tuple[Path, Path]


def toy_task(name: str, seed: int = 0) -> Splits:
    """Make the pairs of a toy task: 9000 to train, 1000 to validate, 1000 to test.

    The source is a string of letters a–z, each equally likely, of length
    max(1, round(Normal(15, 3))); the target is the same string for ``"copy"``, its letters in
    alphabetic order for ``"sort"``. Both tasks have the same sources. No source occurs twice, so
    none of the test set is in the training set: one that was drawn before, which only happens to
    very short ones, is drawn again, length and letters.

    Args:
        name: ``"copy"`` or ``"sort"``.
        seed: a whole number, not negative.

    Raises:
        ValueError: for another task or a negative seed.

    Example:
        >>> toy_task("sort").train[0][1]
        'b c d d f j k m n s u v x x x z z z'
    """
    if name not in TASKS:
        raise ValueError(f"no toy task {name!r}; choose one of {', '.join(TASKS)}")
    if seed < 0:
        raise ValueError(f"the seed must not be negative, got {seed}")
    sources = _sources(random.Random(seed), sum(SIZES.values()))
    target: Callable[[str], str] = (lambda s: "".join(sorted(s))) if name == "sort" else str
    pairs = [(" ".join(source), " ".join(target(source))) for source in sources]
    valid, test = SIZES["train"], SIZES["train"] + SIZES["valid"]
    return Splits(pairs[:valid], pairs[valid:test], pairs[test:])


def write_task(name: str, folder: str | os.PathLike[str], seed: int = 0) -> TaskFiles:
    """Write a toy task as parallel text: ``train.src``, ``train.tgt``, and so on.

    Each file is written whole or not at all; one that is there and right is left alone.

    Args:
        name: ``"copy"`` or ``"sort"``.
        folder: where the six files go; made if it is missing.
        seed: a whole number, not negative.

    Returns:
        The paths of the files.

    Raises:
        OSError: if the folder cannot be written.
        ValueError: for another task or a negative seed.
    """
    splits = toy_task(name, seed)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for split, pairs in zip(Splits._fields, splits, strict=True):
        files = folder / f"{split}.src", folder / f"{split}.tgt"
        for path, lines in zip(files, zip(*pairs, strict=True), strict=True):
            data = "".join(line + "\n" for line in lines).encode("utf-8")
            if not path.is_file() or path.read_bytes() != data:
                write_file(path, data)
        paths.append(files)
    return TaskFiles(*paths)


def _sources(rng: random.Random, count: int) -> list[str]:
    """Different strings of letters."""
    sources: dict[str, None] = {}
    limits = _length_limits()
    while len(sources) < count:
        # `random()` and `getrandbits()` are what Python promises never to change for a seed.
        length = 1 + bisect_right(limits, rng.getrandbits(32))
        letters = (LETTERS[int(rng.random() * len(LETTERS))] for _ in range(length))
        sources["".join(letters)] = None
    return list(sources)


def _length_limits() -> list[int]:
    """Where the lengths 1, 2, … end on a scale of 2³².

    A uniform whole number below 2³² falls below entry i with the probability that
    max(1, round(Normal(15, 3))) is at most i + 1. Whole numbers, because the last digit of a
    normal variate differs between machines.
    """
    bounds = ((length + 0.5 - _MEAN) / (_DEVIATION * math.sqrt(2)) for length in range(1, _LONGEST))
    return [round((1 + math.erf(bound)) * 2**31) for bound in bounds]
