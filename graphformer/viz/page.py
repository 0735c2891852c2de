"""A page to look around in: one HTML file that shows where each word looks, without a network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np

from .animation import KINDS
from .checks import check_map, check_steps, check_words

_FIELDS = ("title", "src", "tgt", "out", "round", "maps", "steps")
_ROUNDS = ("layer", "step")
_SCRIPTS = ("state.js", "words.js", "map.js", "start.js")  # share one scope, in this order
_SIDES = {"enc": "src", "dec": "tgt"}


def attention_page(data: Mapping[str, Any]) -> str:
    """Build a self-contained HTML page of all attention maps of a sentence pair.

    On the page one chooses the kind of attention, the layer (or step) and the head; pointing at a
    word, or reaching it with the keyboard, shows where it looks. It needs no network and no other
    file, and follows the reader's light or dark colours.

    Args:
        data: a mapping with these entries, of plain values or arrays:

            - ``"src"``: list of source words;
            - ``"tgt"``: list of target words as they enter the decoder (``<sos>`` first);
            - ``"maps"``: for one or more of ``"ee"``, ``"ed"`` and ``"dd"`` a list with one map
              ``(H, queries, keys)`` a layer or step; kept to 6 significant digits, 0 is no edge;
            - ``"title"``, optional: heading of the page;
            - ``"out"``, optional: list as long as ``tgt`` of the words the decoder gave out;
            - ``"round"``, optional: ``"layer"`` (the default) or, for a Universal Transformer,
              ``"step"``;
            - ``"steps"``, optional: for ``"enc"``, ``"dec"`` or both the number of steps of each
              word of that side.

    Returns:
        The text of the page; write it with ``encoding="utf-8"``.

    Raises:
        ValueError: if an entry is missing or unknown, shapes and words disagree, or a weight is
            negative or not finite.
        TypeError: if the words are not lists of strings.

    Example:
        >>> page = attention_page({"src": ["Hund"], "tgt": ["dog"], "maps": {"ed": [[[[1.0]]]]}})
        >>> page.startswith("<!DOCTYPE html>")
        True
    """
    content = _checked(data)
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # inside a script element only these could end it or begin markup
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    folder = resources.files(__package__).joinpath("web")
    page = folder.joinpath("page.html").read_text(encoding="utf-8")
    script = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)
    values = {"title": html.escape(content["title"]), "data": text, "script": script.rstrip()}
    # in one pass, so that a word spelled like a mark of the template stays a word
    return re.sub("@(title|data|script)@", lambda mark: values[mark[1]], page)


def _checked(data: Mapping[str, Any]) -> dict[str, Any]:
    """The entries as plain values, each checked."""
    unknown = [field for field in data if field not in _FIELDS]
    if unknown:
        raise ValueError(f"unknown entry {unknown[0]!r}; known are {', '.join(_FIELDS)}")
    for field in ("src", "tgt", "maps"):
        if field not in data:
            raise ValueError(f"the entry {field!r} is missing")
    words = {side: check_words(side, data[side], len(data[side])) for side in ("src", "tgt")}
    rounds = data.get("round", "layer")
    if rounds not in _ROUNDS:
        raise ValueError(f"round must be one of {', '.join(_ROUNDS)}, got {rounds!r}")
    content: dict[str, Any] = {**words, "round": rounds, "maps": _maps(data["maps"], words)}
    content["title"] = data.get("title") or "Attention"
    if not isinstance(content["title"], str):
        raise TypeError(f"title must be a string, got {type(content['title']).__name__}")
    if data.get("out") is not None:
        content["out"] = check_words("out", data["out"], len(words["tgt"]), "target words")
    if data.get("steps"):
        content["steps"] = _steps(data["steps"], words)
    return content


def _maps(maps: Mapping[str, Any], words: Mapping[str, list[str]]) -> dict[str, list[Any]]:
    unknown = [kind for kind in maps if kind not in KINDS]
    if unknown or not maps:
        found = repr(unknown[0]) if unknown else "none"
        raise ValueError(f"maps must be of the kinds {', '.join(KINDS)}, got {found}")
    checked: dict[str, list[Any]] = {}
    for kind in (kind for kind in KINDS if kind in maps):
        keys, queries = (words[side] for side in KINDS[kind])
        arrays = [
            check_map(layer, keys, queries, f"maps[{kind!r}][{number}]")
            for number, layer in enumerate(maps[kind])
        ]
        heads = {len(array) for array in arrays}
        if len(heads) != 1:
            found = f"numbers of heads {sorted(heads)}" if heads else "no map"
            raise ValueError(f"maps[{kind!r}] must hold maps of the same heads, got {found}")
        checked[kind] = [_rounded(array) for array in arrays]
    return checked


def _rounded(array: np.ndarray) -> Any:
    """Nested lists to 6 significant digits: a small weight stays apart from no edge."""
    if array.ndim:
        return [_rounded(part) for part in array]
    return float(f"{float(array):.6g}")


def _steps(steps: Mapping[str, Any], words: Mapping[str, list[str]]) -> dict[str, list[int]]:
    unknown = [side for side in steps if side not in _SIDES]
    if unknown:
        raise ValueError(f"steps has no side {unknown[0]!r}; choose of {', '.join(_SIDES)}")
    return {
        side: check_steps(f"steps[{side!r}]", steps[side], words[_SIDES[side]]).tolist()
        for side in _SIDES
        if side in steps
    }
