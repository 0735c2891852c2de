"""Halting of the Universal Transformer: steps of each word, and steps over training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from . import style
from .animation import frame_titles
from .checks import check_steps, check_words
from .movie import Movie

_MARGIN, _TITLE = 0.3, 0.42  # inches
_CELL_WIDTH, _CELL_HEIGHT = 0.34, 0.2  # inches, of one step of one word
_SIDE_COLOURS = {"enc": style.KIND_COLOURS["ee"], "dec": style.KIND_COLOURS["dd"]}


def halting_steps(
    steps: Mapping[str, Any],
    words: Mapping[str, Sequence[str]],
    *,
    max_steps: int | None = None,
    title: str | None = None,
) -> Figure:
    """Draw how many steps each word took: a pile of one block a step, its height written on top.

    Args:
        steps: for ``"enc"``, ``"dec"`` or both, the ``(nodes,)`` whole numbers of steps.
        words: the words of the same sides.
        max_steps: the most steps a word could take, drawn as empty blocks; ``None`` takes the
            most that were taken.
        title: written above, as typed.

    Returns:
        A matplotlib figure, encoder above decoder.

    Raises:
        ValueError: if a side is unknown, words and steps differ in number, or a number of steps
            is not whole, below 1 or above ``max_steps``.
        TypeError: if the words are not lists of strings.

    Source:
        Graves 2016, "Adaptive computation time for recurrent neural networks", figure 7.
    """
    for side in _sides(steps):
        if side not in words:
            raise ValueError(f"words has no {side!r}, steps has")
    counts = {
        side: check_steps(f"steps[{side!r}]", steps[side], words[side]) for side in _sides(steps)
    }
    most = max(int(count.max()) for count in counts.values())
    if max_steps is not None and max_steps < most:
        raise ValueError(f"a word took {most} steps, more than max_steps {max_steps}")
    most = max_steps or most
    labels = [word for side in counts for word in words[side]]
    label = style.text_width(labels, 9.5)
    turned = label > _CELL_WIDTH * 0.95
    panel = most * _CELL_HEIGHT
    below = (label if turned else 0.17) + 0.2
    header = 0.5  # for the side's name and the numbers on top of full piles
    longest = max(len(count) for count in counts.values())
    width = 2 * _MARGIN + 0.35 + longest * _CELL_WIDTH
    summary = {side: _summary(side, count) for side, count in counts.items()}
    texts = style.text_width([title or ""], 12.0), style.text_width(list(summary.values()), 9.5)
    top = _MARGIN * 0.6 + (_TITLE if title else 0.0)
    figure = style.Picture(
        max(width, max(texts) + 2 * _MARGIN), top + len(counts) * (header + panel + below) + 0.1
    )
    if title:
        style.add_text(figure, _MARGIN, 0.18, title, 12.0, va="top")
    for side, count in counts.items():
        style.add_text(figure, _MARGIN, top, summary[side], 9.5, va="top", color=style.SOFT)
        axes = style.add_axes(figure, _MARGIN + 0.35, top + header, len(count) * _CELL_WIDTH, panel)
        axes.set_gid(side)
        _draw_piles(axes, count, most, _SIDE_COLOURS[side])
        style.word_ticks(axes, "x", words[side], 9.5, rotation=90 if turned else 0)
        axes.tick_params(axis="x", length=0)
        marks = sorted({1, most} | set(range(2, most + 1, 2 if most > 4 else 1)))
        axes.set_yticks([m - 0.5 for m in marks], [str(m) for m in marks], **_small(marks))
        axes.tick_params(axis="y", length=0, pad=3)
        top += header + panel + below
    return figure


def _small(values: Sequence[Any]) -> dict[str, Any]:
    return style.text_style([str(value) for value in values], 8.0)


def _numbers(last: int) -> list[str]:
    return [str(number) for number in range(1, last + 1)]


def _summary(side: str, count: np.ndarray) -> str:
    return f"{style.SIDE_NAMES[side]}: steps of each word, {count.mean():.2f} on average"


def _sides(mapping: Mapping[str, Any]) -> list[str]:
    unknown = [side for side in mapping if side not in style.SIDE_NAMES]
    if unknown:
        raise ValueError(
            f"there is no side {unknown[0]!r}; choose of {', '.join(style.SIDE_NAMES)}"
        )
    if not mapping:
        raise ValueError(f"nothing to draw: give at least one of {', '.join(style.SIDE_NAMES)}")
    return [side for side in style.SIDE_NAMES if side in mapping]


def _draw_piles(axes: Axes, count: np.ndarray, most: int, colour: str) -> None:
    """Draw filled blocks up to each count and empty ones above; write the count on top."""
    full: list[Rectangle] = []
    empty: list[Rectangle] = []
    for place, steps in enumerate(count):
        for level in range(most):
            block = Rectangle((place - 0.4, level + 0.08), 0.8, 0.84)
            (full if level < steps else empty).append(block)
        axes.text(place, most + 0.25, str(steps), ha="center", va="bottom", **_small([steps]))
    axes.add_collection(PatchCollection(empty, facecolor="none", edgecolor=style.FAINT, lw=0.6))
    axes.add_collection(PatchCollection(full, facecolor=colour, edgecolor="none"))
    axes.set(xlim=(-0.5, len(count) - 0.5), ylim=(0, most))


def _shares(histograms: Any) -> dict[str, np.ndarray]:
    """Checked histograms by side, each row divided by its sum."""
    if not isinstance(histograms, Mapping):
        histograms = {"": histograms}
    else:
        histograms = {side: histograms[side] for side in _sides(histograms)}
    shares = {}
    for side, value in histograms.items():
        array = np.asarray(value, dtype=np.float64)
        name = f"histograms[{side!r}]" if side else "histograms"
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"{name} must have shape (epochs, max_steps), got {array.shape}")
        if not np.isfinite(array).all() or array.min() < 0:
            raise ValueError(f"{name} holds a count that is negative or not finite")
        totals = array.sum(axis=1, keepdims=True)
        if (totals == 0).any():
            raise ValueError(f"{name}[{int(np.argmin(totals))}] is empty: no node took any step")
        shares[side] = array / totals
    shapes = {share.shape for share in shares.values()}
    if len(shapes) > 1:
        raise ValueError(f"the two sides must have one shape, got {sorted(shapes)}")
    return shares


def steps_over_training(
    histograms: Any, *, names: Sequence[str] | None = None, title: str | None = None
) -> Figure:
    """Draw how the number of steps of the nodes changes over training.

    A column is an epoch, a row a number of steps; the darker, the larger the share of nodes. The
    line is the mean number of steps.

    Args:
        histograms: ``(epochs, max_steps)``: how many nodes took 1, 2, ... steps in each epoch; or a
            mapping of such arrays from ``"enc"`` and ``"dec"``.
        names: what each epoch is called; ``None`` counts from 1.
        title: written above, as typed.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if a side is unknown, shapes differ or a count is negative, or an epoch is
            empty.
        TypeError: if a name is not a string.
    """
    shares = _shares(histograms)
    epochs, depth = next(iter(shares.values())).shape
    names = _numbers(epochs) if names is None else names
    names = check_words("names", names, epochs, "epochs")
    panel_width = max(3.2, min(10.0, epochs * 0.3))
    panel_height = max(1.2, min(3.6, depth * 0.26))
    step = panel_height + 0.85
    top = 0.5 + (_TITLE if title else 0.0)
    figure = style.Picture(panel_width + 1.75, top + len(shares) * step)
    if title:
        style.add_text(figure, _MARGIN, 0.18, title, 12.0, va="top")
    norm = Normalize(0.0, 1.0)
    every = max(1, -(-epochs // int(panel_width / (style.text_width(names, 8.0) + 0.1))))
    for side, share in shares.items():
        axes = style.add_axes(figure, 0.75, top, panel_width, panel_height)
        axes.set_gid(side)
        axes.imshow(
            share.T, cmap=style.CMAP, norm=norm, origin="lower", aspect="auto",
            extent=(0.5, epochs + 0.5, 0.5, depth + 0.5), interpolation="nearest",
        )  # fmt: skip
        mean = share @ np.arange(1, depth + 1)
        axes.plot(np.arange(1, epochs + 1), mean, color=style.PAPER, lw=3.4, solid_capstyle="round")
        axes.plot(
            np.arange(1, epochs + 1), mean, color=style.KIND_COLOURS["ee"], lw=1.8,
            marker="o" if epochs < 3 else None, markersize=4,
        )  # fmt: skip
        chosen = names[::every]
        axes.set_xticks(range(1, epochs + 1, every), chosen, **_small(chosen))
        axes.set_yticks(range(1, depth + 1), _numbers(depth), **_small("0"))
        axes.set_ylabel("steps", **style.text_style([], 9.0))
        axes.set_xlabel("epoch", **style.text_style([], 9.0))
        heading = f"{style.SIDE_NAMES[side]}: share of nodes" if side else "share of nodes"
        style.add_text(figure, 0.75, top - 0.08, heading, 9.5, va="bottom", color=style.SOFT)
        mark = f"\u2014 mean: {mean[0]:.2f} first, {mean[-1]:.2f} last"
        style.add_text(
            figure, 0.75 + panel_width, top - 0.08, mark, 9.0,
            ha="right", va="bottom", color=style.KIND_COLOURS["ee"],
        )  # fmt: skip
        _draw_share_scale(figure, 0.75 + panel_width + 0.15, top, panel_height)
        top += step
    return figure


def _draw_share_scale(figure: Figure, left: float, top: float, height: float) -> None:
    axes = style.add_axes(figure, left, top, 0.13, height)
    axes.imshow(
        np.linspace(1, 0, 256)[:, None], cmap=style.CMAP, aspect="auto", extent=(0, 1, 0, 1)
    )
    axes.yaxis.tick_right()
    axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"], **_small("0%"))
    axes.tick_params(axis="y", length=2, pad=2, color=style.SOFT)


def steps_animation(
    histograms: Any,
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
    fps: float = 4.0,
) -> Movie:
    """Animate the distribution of steps over training: a bar for each number of steps.

    Args:
        histograms: as in :func:`steps_over_training`.
        names: what each epoch is called; ``None`` counts epochs.
        title: written before the epoch's name.
        fps: frames a second.

    Returns:
        The animation; see :func:`save_animation`.

    Raises:
        ValueError: as :func:`steps_over_training`.
        TypeError: if a name is not a string.
    """
    shares = _shares(histograms)
    epochs, depth = next(iter(shares.values())).shape
    titles = frame_titles(epochs, names, title, "epoch")
    panel_width = max(2.6, depth * 0.42)
    step = panel_width + 0.8
    width = max(len(shares) * step + 0.3, style.text_width(titles, 12.0) + 2 * _MARGIN)
    figure = style.Picture(width, 3.6)
    heading = style.add_text(figure, _MARGIN, 0.18, titles[0], 12.0, va="top")
    heading.set_fontfamily(style.families(titles))
    bars, notes = {}, {}
    for place, side in enumerate(shares):
        left = 0.75 + place * step
        axes = style.add_axes(figure, left, 0.95, panel_width, 2.05)
        axes.set_gid(side)
        colour = _SIDE_COLOURS.get(side, style.KIND_COLOURS["ee"])
        bars[side] = axes.bar(range(1, depth + 1), np.zeros(depth), width=0.8, color=colour)
        axes.set(xlim=(0.4, depth + 0.6), ylim=(0, 1))
        axes.set_xticks(range(1, depth + 1), _numbers(depth), **_small("0"))
        axes.set_yticks([0, 0.5, 1], ["0%", "50%", "100%"], **_small("0%"))
        axes.set_xlabel("steps", **style.text_style([], 9.0))
        for level in (0.25, 0.5, 0.75, 1.0):
            axes.axhline(level, color=style.FAINT, lw=0.5, zorder=0)
        notes[side] = style.add_text(figure, left, 0.87, "", 9.5, va="bottom", color=style.SOFT)

    def draw_frame(frame: int) -> None:
        heading.set_text(titles[frame])
        for side, share in shares.items():
            for bar, height in zip(bars[side], share[frame], strict=True):
                bar.set_height(height)
            mean = share[frame] @ np.arange(1, depth + 1)
            prefix = f"{style.SIDE_NAMES[side]}, " if side else ""
            notes[side].set_text(f"{prefix}mean {mean:.2f}")

    return Movie(figure, draw_frame, epochs, fps)
