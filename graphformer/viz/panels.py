"""Heat maps side by side: where everything goes, and the artists an animation changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from . import style

TITLE_SIZE, NAME_SIZE, SIDE_SIZE = 12.0, 9.0, 9.5  # points
KEY_TITLE, QUERY_TITLE = "keys: words looked at", "queries: words that look"
SHORT_QUERY_TITLE = "queries"  # for maps of few rows
_MARGIN, _GAP, _NAME_HEIGHT, _LINE = 0.14, 0.14, 0.24, 0.26  # inches
_BAR_SPACE = 0.95  # inches to the right of the panels, for the colour bar
_LEAST_HEIGHT = 1.3  # inches below the key labels, for the colour bar of a map of few rows
_MAX_PANEL = 30.0  # inches; a longer side gets smaller cells instead of an unbounded image


@dataclass
class Panels:
    """A figure of maps with the artists an animation changes.

    Attributes:
        figure: the figure.
        images: one image a map, row by row.
        title: the title's text, or ``None``.
    """

    figure: Figure
    images: list[AxesImage]
    title: Any

    def show(self, weights: np.ndarray, edges: np.ndarray) -> None:
        """Put other weights into the images.

        Args:
            weights: ``(panels, queries, keys)``.
            edges: boolean of the same shape; the other cells are drawn as empty.
        """
        for image, panel, mask in zip(self.images, weights, edges, strict=True):
            image.set_data(np.ma.array(panel, mask=~mask))


@dataclass(frozen=True)
class _Layout:
    """Sizes in inches of a figure of ``rows x columns`` panels with words on the outer ones."""

    cell: float
    titled: bool
    font: float  # points
    turned: bool  # key labels are turned upright
    left: float
    top: float
    panel_width: float
    panel_height: float
    width: float
    height: float

    @classmethod
    def of(
        cls, keys: Sequence[str], queries: Sequence[str], rows: int, columns: int, titles: list[str]
    ) -> _Layout:
        longest = max(len(keys), len(queries))
        wide = max(columns * len(keys), rows * len(queries))
        smallest = 0.17 if rows * columns == 1 else 0.13
        cell = max(smallest, min(0.36, 6.6 / longest, 15.0 / wide))
        cell = min(cell, _MAX_PANEL / longest)
        font = min(10.0, cell * style.POINTS * 0.68)
        key_width = style.text_width(keys, font)
        turned = key_width > cell * 0.9
        key_height = key_width if turned else font * 1.3 / style.POINTS
        left = _MARGIN + _LINE + style.text_width(queries, font) + 0.08
        top = _MARGIN + (0.32 if titles else 0.0) + _LINE + key_height + 0.1
        panel_width, panel_height = cell * len(keys), cell * len(queries)
        width = left + columns * (panel_width + _GAP) + _BAR_SPACE
        height = top + rows * (panel_height + _GAP) + _MARGIN
        if rows * columns > 1:
            height += rows * _NAME_HEIGHT
        width = max(width, left + style.text_width([KEY_TITLE], SIDE_SIZE) + _MARGIN)
        width = max(width, 2 * _MARGIN + style.text_width(titles, TITLE_SIZE))
        return cls(
            cell, bool(titles), font, turned, left, top, panel_width, panel_height,
            width, max(height, top + _LEAST_HEIGHT),
        )  # fmt: skip


def _draw_panel(axes: Axes, shape: tuple[int, int], norm: Normalize, cell: float) -> AxesImage:
    """Draw the ground of one map (hatched where nothing covers it) and an image for its cells."""
    queries, keys = shape
    axes.add_patch(
        Rectangle(
            (-0.5, -0.5), keys, queries,
            facecolor=style.PAPER, edgecolor=style.FAINT, hatch="/////", linewidth=0, zorder=0,
        )
    )  # fmt: skip
    image = axes.imshow(
        np.zeros(shape), cmap=style.CMAP, norm=norm, interpolation="nearest", origin="upper",
        aspect="auto", zorder=1,
    )  # fmt: skip
    edges_x, edges_y = np.arange(keys + 1) - 0.5, np.arange(queries + 1) - 0.5
    lines = [[(x, -0.5), (x, queries - 0.5)] for x in edges_x]
    lines += [[(-0.5, y), (keys - 0.5, y)] for y in edges_y]
    axes.add_collection(
        LineCollection(lines, colors=style.PAPER, linewidths=min(1.0, cell * 3), zorder=2)
    )
    for spine in axes.spines.values():
        spine.set(visible=True, color=style.SOFT, linewidth=0.6)
    axes.set_xlim(-0.5, keys - 0.5)
    axes.set_ylim(queries - 0.5, -0.5)
    return image


def _draw_scale(figure: Figure, left: float, top: float, height: float, vmax: float) -> None:
    """Draw the colour bar and, under it, what an empty cell looks like."""
    axes = style.add_axes(figure, left, top, 0.13, height)
    ramp = np.linspace(1, 0, 256)[:, None]
    axes.imshow(ramp, cmap=style.CMAP, aspect="auto", extent=(0, 1, 0, vmax))
    values = [0, vmax / 2, vmax]
    texts = [f"{value:.3g}" for value in values]
    axes.yaxis.tick_right()
    axes.set_yticks(values, texts, **style.text_style(texts, 8))
    axes.tick_params(axis="y", length=2, width=0.6, color=style.SOFT, pad=2)
    style.add_text(figure, left, top - 0.07, "weight", 8, va="bottom")
    swatch = style.add_axes(figure, left, top + height + 0.14, 0.13, 0.13)
    swatch.add_patch(
        Rectangle(
            (0, 0), 1, 1, facecolor=style.PAPER, edgecolor=style.FAINT, hatch="/////", linewidth=0
        )
    )
    for spine in swatch.spines.values():
        spine.set(visible=True, color=style.SOFT, linewidth=0.6)
    swatch.set(xlim=(0, 1), ylim=(0, 1))
    style.add_text(figure, left + 0.19, top + height + 0.21, "no edge", 8, va="center")


def draw_panels(
    keys: Sequence[str],
    queries: Sequence[str],
    names: Sequence[str],
    columns: int,
    *,
    vmax: float,
    titles: Sequence[str] = (),
) -> Panels:
    """Draw empty maps over the same words, row by row; :meth:`Panels.show` fills them.

    Args:
        keys: words along the horizontal axis.
        queries: words along the vertical axis.
        names: name of each panel, written below it where there is more than one.
        columns: panels in a row.
        vmax: the weight drawn darkest.
        titles: the title; of several (one for each frame of an animation) the first is written
            and there is room for the longest.

    Returns:
        The figure and its artists.
    """
    rows = -(-len(names) // columns)
    size = _Layout.of(keys, queries, rows, columns, [t for t in titles if t])
    figure = style.Picture(size.width, size.height)
    norm = Normalize(0.0, vmax)
    several = len(names) > 1
    step_x = size.panel_width + _GAP
    step_y = size.panel_height + _GAP + (_NAME_HEIGHT if several else 0.0)
    images = []
    for place, name in enumerate(names):
        row, column = divmod(place, columns)
        left, top = size.left + column * step_x, size.top + row * step_y
        axes = style.add_axes(figure, left, top, size.panel_width, size.panel_height)
        axes.set_gid(name)
        images.append(_draw_panel(axes, (len(queries), len(keys)), norm, size.cell))
        if row == 0:
            axes.xaxis.tick_top()
            style.word_ticks(axes, "x", keys, size.font, rotation=90 if size.turned else 0)
        if column == 0:
            style.word_ticks(axes, "y", queries, size.font)
        if several:
            middle, below = left + size.panel_width / 2, top + size.panel_height + 0.05
            style.add_text(figure, middle, below, name, NAME_SIZE, ha="center", va="top")
    _name_sides(figure, size, rows * step_y - _GAP, columns * step_x - _GAP)
    bar_height = min(2.2, max(0.6, size.panel_height * 0.75))
    _draw_scale(figure, size.left + columns * step_x + 0.12, size.top + 0.15, bar_height, vmax)
    title = None
    if any(titles):
        title = style.add_text(figure, _MARGIN, _MARGIN, titles[0], TITLE_SIZE, va="top")
        title.set_fontfamily(style.families(titles))
    return Panels(figure, images, title)


def _name_sides(figure: Figure, size: _Layout, height: float, width: float) -> None:
    """Title the query side (left) and the key side (top)."""
    above = _MARGIN + (0.32 if size.titled else 0.0)
    across = (
        size.left + width / 2 if width > style.text_width([KEY_TITLE], SIDE_SIZE) else size.left
    )
    style.add_text(
        figure, across, above, KEY_TITLE, SIDE_SIZE,
        ha="left" if across == size.left else "center", va="top", color=style.SOFT,
    )  # fmt: skip
    fits = height > style.text_width([QUERY_TITLE], SIDE_SIZE)
    style.add_text(
        figure, _MARGIN, size.top + height / 2, QUERY_TITLE if fits else SHORT_QUERY_TITLE,
        SIDE_SIZE, ha="left", va="center", rotation=90, color=style.SOFT,
    )  # fmt: skip
