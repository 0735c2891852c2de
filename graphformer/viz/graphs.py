"""The graph itself: encoder, decoder and cross edges of a sentence pair, thick where it attends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from . import style
from .animation import KINDS
from .checks import check_words, scale_top

_SPACING = 0.62  # inches between neighbours in a row
_RADIUS, _LOOP = 0.09, 0.13  # inches, of a node and of a self-loop
_ARCH = 1.9  # inches, of the longest arc
_GAP = 1.5  # inches crossed by the edges between the rows
_MARGIN, _TITLE, _LEGEND = 0.3, 0.4, 0.35  # inches
_LEGEND_GAP = 0.2  # inches between its entries
_FONT, _SMALL = 10.0, 8.5  # points
_PLAIN = 0.5  # how an edge without a weight is drawn, as a part of the thickest
_CURVE = np.linspace(0.0, 1.0, 25)


def attention_graph(
    src: Sequence[str],
    tgt: Sequence[str],
    edges: Mapping[str, Any],
    *,
    title: str | None = None,
    vmax: float | None = None,
) -> Figure:
    """Draw the nodes of a sentence pair in two rows, encoder above, and the edges among them.

    An arrow leads from the word looked at to the word that looks. Its width and depth of colour
    grow with the weight. Of the arcs over a row, those that lead to the right are higher than
    those that lead to the left. Each kind of edge has its own hue.

    Args:
        src: source words, one an encoder node.
        tgt: target words, one a decoder node.
        edges: for each of ``"ee"``, ``"ed"``, ``"dd"`` that is to be drawn, a triple
            ``(src, dst, weights)``, or a pair ``(src, dst)`` for edges of one width. ``src`` and
            ``dst`` are ``(E,)`` int node numbers within their rows, ``weights`` is ``(E,)``.
            A map ``(queries, keys)`` does as well: its cells above 0 are the edges.
        title: written above, as typed.
        vmax: the weight drawn thickest; ``None`` takes the largest of the picture.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if a kind is unknown, a node number is out of range, lengths differ, a weight
            is negative or not finite, or both rows are empty.
        TypeError: if the words are not lists of strings.

    Source:
        Wang, Zheng and Zhang, "Transformer as a graph neural network" (the full picture).
    """
    words = {"src": check_words("src", src, len(src)), "tgt": check_words("tgt", tgt, len(tgt))}
    if not words["src"] and not words["tgt"]:
        raise ValueError("there is nothing to draw: src and tgt are both empty")
    unknown = [kind for kind in edges if kind not in KINDS]
    if unknown:
        known = ", ".join(KINDS)
        raise ValueError(f"there is no kind of edge {unknown[0]!r}; choose one of {known}")
    triples = {kind: _edges(kind, edges[kind], words) for kind in KINDS if kind in edges}
    weights = [weight for _, _, weight in triples.values() if weight is not None]
    top = scale_top(np.concatenate([*weights, np.zeros(1)]), vmax)
    legend = [f"\u2192 {style.KIND_NAMES[kind]} ({kind})" for kind in triples]
    place = _Place.of(words["src"], words["tgt"], triples, title, legend)
    figure = style.Picture(place.width, place.height)
    axes = style.add_axes(figure, 0, 0, place.width, place.height)
    axes.set(xlim=(0, place.width), ylim=(0, place.height))
    for kind, (tail, head, weight) in triples.items():
        share = np.full(len(tail), _PLAIN) if weight is None else np.minimum(weight / top, 1.0)
        _draw_edges(axes, kind, place, tail, head, share)
    _draw_nodes(axes, place, words)
    left = _MARGIN
    for kind, text in zip(triples, legend, strict=True):
        colour = style.KIND_COLOURS[kind]
        style.add_text(figure, left, place.height - 0.22, text, _SMALL, va="center", color=colour)
        left += style.text_width([text], _SMALL) + _LEGEND_GAP
    if title:
        style.add_text(figure, _MARGIN, 0.2, title, 12.0, va="top")
    return figure


def _edges(
    kind: str, value: Any, words: Mapping[str, list[str]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Checked sources, targets and weights of one kind of edge."""
    sizes = [len(words[side]) for side in KINDS[kind]]
    if isinstance(value, tuple):
        if len(value) not in (2, 3):
            raise ValueError(f"{kind}: expected (src, dst, weights), got {len(value)} arrays")
        tail, head = np.asarray(value[0]), np.asarray(value[1])
        weight = np.asarray(value[2], dtype=np.float64) if len(value) == 3 else None
    else:
        matrix = np.asarray(value, dtype=np.float64)
        if matrix.shape != (sizes[1], sizes[0]):
            raise ValueError(
                f"{kind}: map has shape {matrix.shape}, words give {tuple(sizes[::-1])}"
            )
        head, tail = np.nonzero(matrix)
        weight = matrix[head, tail]
    shapes = [array.shape for array in (tail, head, weight) if array is not None]
    if set(shapes) != {(tail.size,)}:
        found = ", ".join(map(str, shapes))
        raise ValueError(f"{kind}: src, dst and weights must be of one length, got {found}")
    for name, ids, size in (("src", tail, sizes[0]), ("dst", head, sizes[1])):
        if ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= size):
            raise ValueError(f"{kind}: {name} must hold integers from 0 to {size - 1}")
    if weight is not None and not ((weight >= 0) & np.isfinite(weight)).all():
        raise ValueError(f"{kind}: a weight is negative or not finite; weights are 0 or more")
    return tail, head, weight


@dataclass(frozen=True)
class _Place:
    """Where the two rows are; inches from the lower left corner.

    A row is a circle for each word with the word on the inner side; edges between the rows begin
    and end at the inner edge of the words, arcs within a row at the circles.
    """

    width: float
    height: float
    x: dict[str, np.ndarray]
    y: dict[str, float]  # of the circles
    inner: dict[str, float]  # of the ends of the cross edges
    turned: bool
    longest: int

    @classmethod
    def of(
        cls,
        src: list[str],
        tgt: list[str],
        triples: Mapping[str, Any],
        title: str | None,
        legend: list[str],
    ) -> _Place:
        label = style.text_width(src + tgt, _FONT)
        turned = label > _SPACING * 0.92
        label_height = (label if turned else _FONT * 1.3 / style.POINTS) + 0.12
        longest = max(len(src), len(tgt))
        arch = {kind: _arch(longest - 1, longest) + 0.15 for kind in triples}
        width = 2 * _MARGIN + longest * _SPACING
        width = max(width, 2 * _MARGIN + style.text_width([title or ""], 12.0))
        entries = sum(style.text_width([text], _SMALL) + _LEGEND_GAP for text in legend)
        width = max(width, 2 * _MARGIN + entries)
        lower = _MARGIN + arch.get("dd", 0.0) + _LEGEND
        lower_inner = lower + _RADIUS + label_height
        upper_inner = lower_inner + _GAP
        upper = upper_inner + label_height + _RADIUS
        height = upper + arch.get("ee", 0.0) + _MARGIN + (_TITLE if title else 0.0)
        x = {
            side: width / 2 + (np.arange(len(row)) - (len(row) - 1) / 2) * _SPACING
            for side, row in (("src", src), ("tgt", tgt))
        }
        return cls(
            width, height, x, {"src": upper, "tgt": lower},
            {"src": upper_inner, "tgt": lower_inner}, turned, longest,
        )  # fmt: skip


def _arch(distance: Any, longest: int) -> Any:
    """Height of an arc over so many places; short arcs stay apart from each other."""
    return min(_ARCH, 0.4 * longest) * (distance / max(1, longest - 1)) ** 0.75


def _curves(kind: str, place: _Place, tail: np.ndarray, head: np.ndarray) -> np.ndarray:
    """Points along each edge, ``(E, points, 2)``."""
    first, second = KINDS[kind]
    x0, x1 = place.x[first][tail], place.x[second][head]
    t = _CURVE[None, :]
    if kind == "ed":
        x = x0[:, None] + (x1 - x0)[:, None] * (3 * t**2 - 2 * t**3)
        y = place.inner["src"] + (place.inner["tgt"] + 0.06 - place.inner["src"]) * t
        return np.stack([x, np.broadcast_to(y, x.shape)], axis=-1)
    outward = 1.0 if kind == "ee" else -1.0
    high = _arch(np.abs(x1 - x0) / _SPACING, place.longest) * np.where(x1 >= x0, 1.0, 0.8)
    loop = tail == head
    side = np.where(loop, 0.0, np.sign(x1 - x0) * _RADIUS * 0.6)
    begin, end = x0 + side, x1 - side
    x = begin[:, None] + (end - begin)[:, None] * (3 * t**2 - 2 * t**3)
    y = high[:, None] * (4 * t * (1 - t)) ** 0.8
    angle = np.pi * (-0.3 + 1.6 * t)  # a self-loop is a circle, open where it meets the node
    x = np.where(loop[:, None], x0[:, None] + _LOOP * np.cos(angle), x)
    y = np.where(loop[:, None], _LOOP * (0.8 + np.sin(angle)), y)
    return np.stack([x, place.y[first] + outward * (_RADIUS * 0.9 + y)], axis=-1)


def _draw_edges(
    axes: Axes, kind: str, place: _Place, tail: np.ndarray, head: np.ndarray, share: np.ndarray
) -> None:
    """Draw one kind of edge; ``share`` ``(E,)`` is each weight as a part of the largest."""
    order = np.argsort(share, kind="stable")  # heavy edges lie on top
    points, share = _curves(kind, place, tail[order], head[order]), share[order]
    colours = np.tile(to_rgba(style.KIND_COLOURS[kind]), (len(share), 1))
    colours[:, 3] = 0.04 + 0.96 * share
    widths = 0.4 + 2.6 * share
    axes.add_collection(
        LineCollection(list(points), colors=colours, linewidths=widths, gid=kind, zorder=1),
        autolim=False,
    )
    tip, before = points[:, -1], points[:, -3]
    along = tip - before
    along /= np.maximum(np.hypot(along[:, :1], along[:, 1:]), 1e-9)
    across = np.stack([-along[:, 1], along[:, 0]], axis=-1)
    room = np.where((tail == head)[order] & (kind != "ed"), 0.55, 1.0)  # a loop has less room
    size = ((0.05 + 0.07 * share) * room)[:, None]
    base, half = tip - along * size, across * size * 0.45
    axes.add_collection(
        PolyCollection(
            list(np.stack([tip, base + half, base - half], axis=1)),
            facecolors=colours,
            linewidths=0,
            zorder=2,
        ),
        autolim=False,
    )


def _draw_nodes(axes: Axes, place: _Place, words: Mapping[str, list[str]]) -> None:
    """Draw circles and words of both rows."""
    for side, row in words.items():
        inward = -1.0 if side == "src" else 1.0
        colour = style.KIND_COLOURS["ee" if side == "src" else "dd"]
        for x, word in zip(place.x[side], row, strict=True):
            axes.add_patch(
                Circle((x, place.y[side]), _RADIUS, facecolor=colour, edgecolor="none", zorder=3)
            )
            axes.text(
                x, place.y[side] + inward * (_RADIUS + 0.05), word,
                ha="center", va="top" if side == "src" else "bottom",
                rotation=90 if place.turned else 0, gid=side, zorder=4,
                **style.text_style([word], _FONT),
            )  # fmt: skip
