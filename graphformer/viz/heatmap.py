"""Heat maps of attention weights: one map, all heads of it, or a grid of layers and heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .checks import check_edges, check_map, check_words, choose_head, scale_top
from .panels import draw_panels


def attention_map(
    weights: Any,
    keys: Sequence[str],
    queries: Sequence[str],
    *,
    head: int | None = None,
    title: str | None = None,
    edges: Any | None = None,
    vmax: float | None = None,
) -> Figure:
    """Draw who looks at whom: a row for each word that looks, a column for each word looked at.

    Light is a low weight, dark a high one; a cell without an edge is hatched, so that it is told
    apart from an edge of little weight. Cells have at least the size of a readable word.

    Args:
        weights: ``(queries, keys)``, or ``(H, queries, keys)`` with one panel a head.
        keys: the words looked at (source words in ``ee`` and ``ed``).
        queries: the words that look (target words in ``ed`` and ``dd``).
        head: draw this head alone; ``None`` draws all.
        title: written above, as typed.
        edges: boolean ``(queries, keys)`` or shaped as ``weights``: where there is an edge.
            ``None`` takes each cell whose weight is not 0.
        vmax: the weight drawn darkest; ``None`` takes the largest of the picture.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if shapes and words disagree, a weight is negative or not finite, there is no
            such head, or a cell without an edge has a weight.
        TypeError: if the words are not lists of strings.

    Example:
        >>> figure = attention_map([[0.25, 0.75]], ["ein", "Hund"], ["dog"])
        >>> figure.axes[0].images[0].get_array().tolist()
        [[0.25, 0.75]]
    """
    maps = check_map(weights, keys, queries)
    mask = check_edges(maps, None if edges is None else np.asarray(edges))
    heads = choose_head(len(maps), head)
    names = [f"head {number}" for number in heads]
    columns = math.ceil(len(heads) / math.ceil(len(heads) / 4))  # rows of at most 4, evenly filled
    panels = draw_panels(
        list(keys), list(queries), names, columns,
        vmax=scale_top(maps[heads], vmax), titles=[title or ""],
    )  # fmt: skip
    panels.show(maps[heads], mask[heads])
    return panels.figure


def attention_grid(
    layers: Sequence[Any],
    keys: Sequence[str],
    queries: Sequence[str],
    *,
    title: str | None = None,
    edges: Any | None = None,
    vmax: float | None = None,
    layer_names: Sequence[str] | None = None,
) -> Figure:
    """Draw all heads (columns) of all layers (rows), on one scale of colours.

    Args:
        layers: one map ``(H, queries, keys)`` a layer, all of one shape.
        keys: the words looked at.
        queries: the words that look.
        title: written above, as typed.
        edges: boolean ``(queries, keys)``: where there is an edge; ``None`` takes each cell whose
            weight is not 0.
        vmax: the weight drawn darkest; ``None`` takes the largest of the picture.
        layer_names: what each row is called, such as ``"step 1"`` in a Universal Transformer;
            ``None`` counts layers from 0.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: as :func:`attention_map`, or if layers differ in shape or there are none.
        TypeError: if the words are not lists of strings.
    """
    if len(layers) == 0:
        raise ValueError("attention_grid needs at least one layer, got none")
    if layer_names is None:
        layer_names = [f"layer {row}" for row in range(len(layers))]
    rows = check_words("layer names", layer_names, len(layers), "layers")
    maps = [check_map(layer, keys, queries, row) for row, layer in zip(rows, layers, strict=True)]
    for row, layer in zip(rows, maps, strict=True):
        if layer.shape != maps[0].shape:
            raise ValueError(f"{row} has {len(layer)} heads, {rows[0]} has {len(maps[0])}")
    stack = np.stack(maps)  # (layers, H, queries, keys)
    mask = check_edges(stack, edges)
    heads = stack.shape[1]
    names = [f"{row}, head {head}" for row in rows for head in range(heads)]
    panels = draw_panels(
        list(keys), list(queries), names, heads,
        vmax=scale_top(stack, vmax), titles=[title or ""],
    )  # fmt: skip
    shape = (len(names), len(queries), len(keys))
    panels.show(stack.reshape(shape), mask.reshape(shape))
    return panels.figure
