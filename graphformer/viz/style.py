"""What all pictures share: the figure class, fonts for any script, colours, words drawn as typed.

Everything goes through matplotlib's object interface. ``pyplot`` is never imported, so no screen
is needed, the chosen backend stays what it was and no figure is kept alive by a global list.
"""

from __future__ import annotations

import io
import logging
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

_log = logging.getLogger(__name__)

#: Light = low, dark = high, lightness falls evenly: the order survives grey printing and every
#: common kind of colour blindness.
CMAP = "magma_r"
INK, PAPER, FAINT, SOFT = "#1b1b1f", "#ffffff", "#c9c9d1", "#6b6b76"
#: Three hues told apart by colour-blind readers (Okabe and Ito 2008), one for each kind of edge.
KIND_COLOURS = {"ee": "#0072b2", "ed": "#d55e00", "dd": "#007a5a"}
KIND_NAMES = {
    "ee": "encoder to encoder",
    "ed": "encoder to decoder",
    "dd": "decoder to decoder",
}
SIDE_NAMES = {"enc": "encoder", "dec": "decoder"}
POINTS = 72.0  # points in an inch
BASE_FONT = "DejaVu Sans"  # comes with matplotlib
_UNSEEN = {"Cc", "Cf", "Zl", "Zp", "Zs"}  # control, format, spaces: they need no glyph


@contextmanager
def quiet_glyphs() -> Iterator[None]:
    """Keep matplotlib's warning about each missing glyph from surfacing; :func:`families` logs it.

    Yields:
        Nothing.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


class Picture(Figure):
    """A matplotlib figure that draws without a display and shows itself in a notebook.

    Args:
        width: inches.
        height: inches.
    """

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), facecolor=PAPER, edgecolor=PAPER)
        FigureCanvasAgg(self)

    def draw(self, renderer: Any) -> None:
        """Draw on a matplotlib renderer, without a warning for each glyph no font has.

        Args:
            renderer: a matplotlib renderer.
        """
        with quiet_glyphs():
            super().draw(renderer)

    def get_tightbbox(self, renderer: Any = None, **kwargs: Any) -> Any:
        """Bounding box of all that is drawn, measured as quietly as :meth:`draw` draws.

        Args:
            renderer: a matplotlib renderer.
            **kwargs: as in matplotlib.

        Returns:
            The box, in inches.
        """
        with quiet_glyphs():
            return super().get_tightbbox(renderer, **kwargs)

    def _repr_png_(self) -> bytes:
        # IPython shows plain figures only after pyplot has been imported.
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", facecolor=PAPER)
        return buffer.getvalue()


@lru_cache(maxsize=256)
def _fonts_for(characters: frozenset[str], _installed: int) -> tuple[str, ...]:
    """Names of as few fonts as will do; kept until the number of installed fonts changes."""
    own_folder = matplotlib.get_data_path()
    paths: dict[str, Any] = {}
    for entry in font_manager.fontManager.ttflist:
        # matplotlib's own further fonts hold mathematics under code points of their own
        bundled = str(entry.fname).startswith(own_folder) and entry.name != BASE_FONT
        if not bundled and entry.style == "normal":
            paths.setdefault(entry.name, entry.fname)
    names, missing = [BASE_FONT], set(characters)
    missing -= _covered(paths[BASE_FONT], missing)
    while missing:
        found = {name: _covered(path, missing) for name, path in paths.items()}
        best = max(found, key=lambda name: (len(found[name]), "Sans" in name, name))
        if not found[best]:
            _log.warning(
                "no installed font has %s; boxes are drawn instead. A font such as Noto Sans "
                "(for Chinese, Japanese and Korean: Noto Sans CJK) helps.",
                " ".join(sorted(missing)[:10]),
            )
            break
        names.append(best)
        missing -= found[best]
    return tuple(names)


def _covered(path: Any, characters: Iterable[str]) -> set[str]:
    try:
        font = font_manager.get_font(path)
        if not font.scalable:  # bitmap emoji fonts cannot be drawn at a chosen size
            return set()
        return {c for c in characters if font.get_char_index(ord(c))}
    except (OSError, RuntimeError):  # a damaged font file is no reason to draw nothing
        return set()


def families(words: Iterable[str]) -> list[str]:
    """Choose font families, in fall-back order, that together can draw all the words.

    Args:
        words: texts in any script.

    Returns:
        Names of installed fonts. A character that no installed font has is logged once.
    """
    characters = frozenset(
        c for word in words for c in word if c > "~" and unicodedata.category(c) not in _UNSEEN
    )
    return list(_fonts_for(characters, len(font_manager.fontManager.ttflist)))


def text_style(words: Iterable[str], size: float) -> dict[str, Any]:
    """Keywords for any matplotlib text so that it appears as typed, whatever the user's settings.

    Args:
        words: what will be drawn, for the choice of fonts.
        size: font size in points.

    Returns:
        Properties of a matplotlib ``Text``.
    """
    return {
        "fontfamily": families(words),
        "fontsize": size,
        "fontweight": "normal",
        "fontstyle": "normal",
        "color": INK,
        "parse_math": False,  # a dollar sign is a dollar sign
        "usetex": False,
    }


def text_width(words: Sequence[str], size: float) -> float:
    """Width of the widest of some texts.

    Args:
        words: the texts; none gives 0.
        size: font size in points.

    Returns:
        The width in inches.
    """
    canvas = FigureCanvasAgg(Figure(dpi=POINTS))
    renderer = canvas.get_renderer()
    font = FontProperties(family=families(words), size=size)
    widths = [0.0]
    with quiet_glyphs():
        for line in (line for word in words for line in word.split("\n")):
            widths.append(renderer.get_text_width_height_descent(line, font, ismath=False)[0])
    return max(widths) / POINTS


def add_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes at a place given in inches, counted from the upper left corner.

    Args:
        figure: where to add them.
        left: the left side, in inches.
        top: the upper side, in inches.
        width: inches.
        height: inches.

    Returns:
        The axes, with no ticks and no frame.
    """
    full_width, full_height = figure.get_size_inches()
    bottom = full_height - top - height
    rect = (left / full_width, bottom / full_height, width / full_width, height / full_height)
    axes = figure.add_axes(rect, facecolor="none")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def add_text(figure: Figure, left: float, top: float, text: str, size: float, **kwargs: Any) -> Any:
    """Write a text at a place given in inches, counted from the upper left corner.

    Args:
        figure: where to write.
        left: the anchor, in inches.
        top: the anchor, in inches.
        text: what to write, as typed.
        size: font size in points.
        **kwargs: further properties of a matplotlib ``Text``.

    Returns:
        The ``Text``.
    """
    width, height = figure.get_size_inches()
    style = text_style([text], size) | kwargs
    return figure.text(left / width, 1 - top / height, text, **style)


def word_ticks(
    axes: Axes, axis: Literal["x", "y"], words: Sequence[str], size: float, **kwargs: Any
) -> None:
    """Write one word at each integer position of an axis.

    Args:
        axes: the axes.
        axis: ``"x"`` or ``"y"``.
        words: the word at 0, 1, 2, ...
        size: font size in points.
        **kwargs: further properties of the labels.
    """
    setter = axes.set_xticks if axis == "x" else axes.set_yticks
    setter(range(len(words)), list(words), **(text_style(words, size) | kwargs))
    axes.tick_params(axis=axis, which="both", length=2, width=0.6, color=SOFT, pad=2)
