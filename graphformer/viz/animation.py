"""Attention over epochs: how a map takes shape while a model learns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .checks import check_edges, check_map, check_words, choose_head, scale_top
from .movie import Movie
from .panels import draw_panels

#: For each kind of edge, the side looked at and the side that looks.
KINDS = {"ee": ("src", "src"), "ed": ("src", "tgt"), "dd": ("tgt", "tgt")}


def att_animation(
    maps: Sequence[Mapping[str, Any]],
    kind: str,
    src: Sequence[str],
    tgt: Sequence[str],
    head: int | None = None,
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
    edges: Any | None = None,
    vmax: float | None = None,
    fps: float = 4.0,
) -> Movie:
    """Animate an attention map over epochs, all frames on one scale of colours.

    Args:
        maps: one mapping a frame, from kind to ``(H, queries, keys)``, all of one shape.
        kind: ``"ee"`` (encoder self-attention), ``"ed"`` (decoder looks at encoder) or ``"dd"``
            (decoder self-attention).
        src: source words.
        tgt: target words, as they enter the decoder (``<sos>`` first, if it was there).
        head: draw this head alone; ``None`` draws all.
        names: what each frame is called; ``None`` counts epochs.
        title: written before the frame's name.
        edges: boolean ``(queries, keys)``: where there is an edge; ``None`` takes each cell whose
            weight is not 0 in its frame.
        vmax: the weight drawn darkest; ``None`` takes the largest of all frames.
        fps: frames a second.

    Returns:
        The animation; see :func:`save_animation`.

    Raises:
        ValueError: if ``kind`` is unknown or missing in a frame, frames differ in shape, or as
            :func:`attention_map`.
        TypeError: if the words are not lists of strings.
    """
    if kind not in KINDS:
        raise ValueError(f"there is no kind of edge {kind!r}; choose one of {', '.join(KINDS)}")
    sides = {"src": src, "tgt": tgt}
    keys, queries = (list(sides[side]) for side in KINDS[kind])
    stack = _stack(maps, kind, keys, queries)  # (frames, H, queries, keys)
    mask = check_edges(stack, edges)
    heads = choose_head(stack.shape[1], head)
    stack, mask = stack[:, heads], mask[:, heads]
    titles = frame_titles(len(stack), names, title, "epoch")
    panels = draw_panels(
        keys, queries, [f"head {number}" for number in heads],
        math.ceil(len(heads) / math.ceil(len(heads) / 4)),
        vmax=scale_top(stack, vmax), titles=titles,
    )  # fmt: skip

    def draw_frame(frame: int) -> None:
        panels.show(stack[frame], mask[frame])
        panels.title.set_text(titles[frame])

    return Movie(panels.figure, draw_frame, len(stack), fps)


def frame_titles(
    count: int, names: Sequence[str] | None, title: str | None, unit: str
) -> list[str]:
    """Name the frames; each name carries its number, since GIF writers merge frames that are equal.

    Args:
        count: how many frames there are.
        names: what each is called, or ``None``.
        title: written before each name, or ``None``.
        unit: what a frame without a name is, such as ``"epoch"``.

    Returns:
        One title a frame.

    Raises:
        ValueError: if there are more or fewer names than frames.
        TypeError: if a name is not a string.
    """
    if names is None:
        texts = [f"{unit} {number} of {count}" for number in range(1, count + 1)]
    else:
        names = check_words("names", names, count, "frames")
        texts = [f"{name} ({number}/{count})" for number, name in enumerate(names, 1)]
    return [f"{title}, {text}" if title else text for text in texts]


def _stack(
    maps: Sequence[Mapping[str, Any]], kind: str, keys: list[str], queries: list[str]
) -> np.ndarray:
    """All frames' maps of one kind, ``(frames, H, queries, keys)``."""
    frames = []
    for number, frame in enumerate(maps):
        if kind not in frame:
            found = ", ".join(map(str, frame)) or "nothing"
            raise ValueError(f"frame {number} has no map {kind!r}, only {found}")
        frames.append(check_map(frame[kind], keys, queries, f"frame {number}"))
        if len(frames[-1]) != len(frames[0]):
            raise ValueError(
                f"frame {number} has {len(frames[-1])} heads, frame 0 has {len(frames[0])}"
            )
    if not frames:
        raise ValueError("an animation needs at least one frame, got none")
    return np.stack(frames)
