"""Checks of what a picture is asked to show; an error names what was found and the choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def check_words(name: str, words: Sequence[str], count: int, unit: str = "in the map") -> list[str]:
    """Check that there is one word for each position.

    Args:
        name: what they are called in the error message.
        words: the words.
        count: how many there should be.
        unit: what ``count`` counts.

    Returns:
        The words as a list.

    Raises:
        TypeError: if a word is not a string, or ``words`` is one string.
        ValueError: if there are more or fewer than ``count``.
    """
    if isinstance(words, str):
        raise TypeError(f"{name} must be a list of words, got the string {words!r}; split it first")
    words = list(words)
    for position, word in enumerate(words):
        if not isinstance(word, str):
            raise TypeError(f"{name}[{position}] must be a string, got {type(word).__name__}")
    if len(words) != count:
        raise ValueError(f"got {len(words)} {name}, but there are {count} {unit}")
    return words


def check_map(
    weights: Any, keys: Sequence[str], queries: Sequence[str], name: str = "weights"
) -> np.ndarray:
    """Check an attention map against its words.

    Args:
        weights: ``(H, queries, keys)`` or ``(queries, keys)``.
        keys: the words looked at.
        queries: the words that look.
        name: what to call the map in an error message.

    Returns:
        ``(H, queries, keys)`` float64.

    Raises:
        ValueError: if shape and words disagree, or a weight is negative or not finite.
        TypeError: if the words are not lists of strings.
    """
    array = np.asarray(weights, dtype=np.float64)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape (queries, keys) or (heads, queries, keys) and no empty side, "
            f"got {array.shape}"
        )
    check_words("queries", queries, array.shape[-2])
    check_words("keys", keys, array.shape[-1])
    if not np.isfinite(array).all() or array.min() < 0:
        bad = np.argwhere(~np.isfinite(array) | (array < 0))[0]
        raise ValueError(f"{name}{bad.tolist()} is {array[tuple(bad)]}; weights are 0 or more")
    return array.reshape(-1, *array.shape[-2:])


def check_edges(weights: np.ndarray, edges: Any | None) -> np.ndarray:
    """Tell which cells have an edge.

    Args:
        weights: ``(..., queries, keys)``, one or many maps over the same edges.
        edges: boolean ``(queries, keys)`` or of the shape of ``weights``; ``None`` takes every
            weight above 0 for an edge.

    Returns:
        Boolean, of the shape of ``weights``.

    Raises:
        ValueError: if the shapes disagree, or a cell without an edge has a weight.
    """
    if edges is None:
        return weights > 0
    mask = np.asarray(edges, dtype=bool)
    if mask.shape not in (weights.shape, weights.shape[-2:]):
        raise ValueError(f"edges has shape {mask.shape}, the map {weights.shape}")
    mask = np.broadcast_to(mask, weights.shape)
    if (weights[~mask] > 0).any():
        bad = np.argwhere(~mask & (weights > 0))[0]
        raise ValueError(f"cell {bad.tolist()} has weight {weights[tuple(bad)]:g} but no edge")
    return mask


def choose_head(heads: int, head: int | None) -> list[int]:
    """Turn the argument ``head`` into the list of heads to draw.

    Args:
        heads: how many there are.
        head: one of them, or ``None`` for all.

    Returns:
        The heads, counted from 0.

    Raises:
        ValueError: if there is no such head.
    """
    if head is None:
        return list(range(heads))
    if not 0 <= head < heads:
        raise ValueError(f"there is no head {head}; the map has heads 0 to {heads - 1}")
    return [head]


def scale_top(weights: np.ndarray, vmax: float | None) -> float:
    """Choose the weight drawn darkest.

    Args:
        weights: all the weights of a picture.
        vmax: what was asked for; ``None`` takes the largest weight.

    Returns:
        A positive number.

    Raises:
        ValueError: if ``vmax`` is not positive.
    """
    if vmax is None:
        return float(weights.max()) or 1.0
    if not vmax > 0:
        raise ValueError(f"vmax must be above 0, got {vmax}")
    return float(vmax)


def check_steps(name: str, steps: Any, words: Sequence[str]) -> np.ndarray:
    """Check numbers of steps against the words that took them.

    Args:
        name: what they are called in the error message.
        steps: one whole number a word.
        words: the words.

    Returns:
        ``(words,)`` int64.

    Raises:
        ValueError: if there are none, one is not whole or below 1, or words and steps differ in
            number.
        TypeError: if the words are not a list of strings.
    """
    array = np.asarray(steps)
    if array.ndim != 1 or array.size == 0 or not (array == np.floor(array)).all():
        raise ValueError(f"{name} must be one whole number a word, got {array.tolist()}")
    if array.min() < 1:
        raise ValueError(f"{name} holds {array.min()}; a word takes at least one step")
    check_words("words", words, array.size, f"numbers in {name}")
    return array.astype(np.int64)
