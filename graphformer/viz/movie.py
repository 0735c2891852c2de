"""A series of pictures and its files: GIF, a self-contained HTML player, MP4.

Frames are drawn one after the other into one figure, whose artists change, and handed to
matplotlib's movie writers. No frame is dropped for the sake of a size limit.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, HTMLWriter, PillowWriter
from matplotlib.figure import Figure

from ..atomic import write_file
from . import style

SUFFIXES = (".gif", ".html", ".mp4")

#: What stands on the buttons of the HTML player: matplotlib's template takes them from an icon
#: font on the web, which is not there without a network.
_ICONS = {
    "minus": "\u2212",
    "fast-backward": "\u00ab",
    "step-backward": "\u2039",
    "play fa-flip-horizontal": "\u25c2",
    "pause": "\u2016",
    "play": "\u25b8",
    "step-forward": "\u203a",
    "fast-forward": "\u00bb",
    "plus": "+",
}


class Movie:
    """A figure with a rule to draw frame 0, 1, 2, ... into it.

    In a notebook it shows itself as a player. :func:`save_animation` writes it to a file.

    Args:
        figure: the figure all frames are drawn into.
        draw_frame: changes the figure's artists to those of a frame.
        frames: how many frames there are.
        fps: frames a second.

    Attributes:
        figure: the figure, which shows the frame drawn last.
        fps: frames a second.

    Raises:
        ValueError: if there is no frame or ``fps`` is not positive.
    """

    def __init__(
        self, figure: Figure, draw_frame: Callable[[int], None], frames: int, fps: float = 4.0
    ) -> None:
        if frames < 1:
            raise ValueError("an animation needs at least one frame, got none")
        self.figure = figure
        self.fps = _checked_fps(fps)
        self._draw_frame = draw_frame
        self._frames = frames
        self.draw(0)

    def __len__(self) -> int:
        return self._frames

    def draw(self, frame: int) -> Figure:
        """Draw one frame.

        Args:
            frame: which one, counted from 0.

        Returns:
            The figure; it is the same for all frames.

        Raises:
            IndexError: if there is no such frame.
        """
        if not 0 <= frame < self._frames:
            raise IndexError(f"there is no frame {frame}; the animation has {self._frames}")
        self._draw_frame(frame)
        return self.figure

    def to_html(self, fps: float | None = None, dpi: float | None = None) -> str:
        """Build a player with all frames inside, which needs no other file and no network.

        Args:
            fps: frames a second; ``None`` takes the movie's.
            dpi: pixels an inch; ``None`` takes the figure's.

        Returns:
            HTML: matplotlib's own player (that of ``Animation.to_jshtml``).
        """
        rate = self.fps if fps is None else _checked_fps(fps)
        return _film(self, ".html", rate, dpi).decode("utf-8")

    def _repr_html_(self) -> str:
        return self.to_html()


def save_animation(
    movie: Movie,
    path: str | os.PathLike[str],
    *,
    fps: float | None = None,
    dpi: float | None = None,
) -> Path:
    """Write an animation to a file; the file appears when it is complete.

    Args:
        movie: what to write.
        path: ``.gif`` (through Pillow), ``.html`` (a player with all frames inside, works
            offline) or ``.mp4`` (needs ffmpeg).
        fps: frames a second; ``None`` takes the movie's.
        dpi: pixels an inch; ``None`` takes the figure's.

    Returns:
        The path.

    Raises:
        ValueError: if the suffix is not one of the three or ``fps`` is not positive.
        FileNotFoundError: if the folder does not exist.
        RuntimeError: if ``.mp4`` is asked for and there is no ffmpeg. Nothing is drawn then.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"cannot write {path.name!r}: the name must end in {', '.join(SUFFIXES)}")
    if suffix == ".mp4" and not FFMpegWriter.isAvailable():
        raise RuntimeError(f"cannot write {path.name!r}: ffmpeg is missing; .gif works without it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path.name!r}: there is no folder {path.parent}")
    rate = movie.fps if fps is None else _checked_fps(fps)
    write_file(path, _film(movie, suffix, rate, dpi))
    return path


def _checked_fps(fps: float) -> float:
    if not (fps > 0 and math.isfinite(fps)):
        raise ValueError(f"fps must be above 0, got {fps}")
    return fps


def _writer(suffix: str, fps: Any) -> AbstractMovieWriter:  # the hints of matplotlib say int
    if suffix == ".gif":
        return PillowWriter(fps=fps)
    if suffix == ".mp4":
        return FFMpegWriter(fps=fps)
    # past its limit of megabytes the HTML writer drops frames
    return HTMLWriter(fps=fps, embed_frames=True, default_mode="loop", embed_limit=math.inf)


def _film(movie: Movie, suffix: str, fps: float, dpi: float | None) -> bytes:
    """Draw all frames; what the file will hold."""
    figure, writer = movie.figure, _writer(suffix, fps)
    size = figure.get_size_inches().copy()  # the MP4 writer makes the sides even
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "movie" + suffix)
        try:
            with writer.saving(figure, path, figure.dpi if dpi is None else dpi):
                for frame in range(len(movie)):
                    movie.draw(frame)
                    writer.grab_frame(facecolor=style.PAPER)
        finally:
            figure.set_size_inches(size)
        film = path.read_bytes()
    return _without_icon_font(film.decode("utf-8")).encode("utf-8") if suffix == ".html" else film


def _without_icon_font(page: str) -> str:
    page = re.sub(r"<link[^>]*font-awesome[^>]*>", "", page)
    for name, sign in _ICONS.items():
        page = page.replace(f'<i class="fa fa-{name}"></i>', sign)
    return page
