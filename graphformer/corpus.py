"""Reading parallel text: two UTF-8 files, one sentence a line.

Lines end at a line feed and nowhere else. A carriage return just before the end is dropped, any
other stays where it is, and so do Unicode's line separators: none of them can shift a pair.
"""

from __future__ import annotations

import gzip
import logging
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from .vocab import EOS, SOS

logger = logging.getLogger(__name__)

# Line numbers named in one warning; a file with thousands of blank lines is still one warning.
_NAMED = 10


class ParallelText(NamedTuple):
    """Sentence pairs in the order of the files, and what was left out."""

    pairs: list[tuple[str, str]]
    """Source and target line of each pair, without line ends."""
    numbers: list[int]
    """Line number of each pair in both files, from 1."""
    skipped: int
    """Pairs left out because a side was empty."""
    name: str
    """The two files, for messages."""


class Samples(NamedTuple):
    """Sentence pairs as token ids, and what was left out or unknown."""

    pairs: list[tuple[list[int], list[int]]]
    """Source ids, and target ids with ``<sos>`` first and ``<eos>`` last."""
    numbers: list[int]
    """Line number of each pair in both files, from 1."""
    too_long: int
    """Pairs left out because a side had more tokens than allowed."""
    empty: int
    """Pairs left out because a side had no token at all."""
    unknown: tuple[Counter[str], Counter[str]]
    """What became ``<unk>`` and how often, on the source and on the target side."""


def split_lines(data: bytes, name: str) -> list[str]:
    """Split UTF-8 text into lines, by the rule of this module.

    A byte-order mark at the start is dropped. A last line without an end is a line like the
    others; no bytes are no lines.

    Args:
        data: the content of a file, or of standard input.
        name: what to call it in a message.

    Raises:
        ValueError: naming `name` and the line, if the bytes are not UTF-8.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise ValueError(f"{name}, line {number}: byte 0x{byte:02x} is not UTF-8") from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_lines(path: str | os.PathLike[str]) -> list[str]:
    """Read the lines of a UTF-8 file, plain or compressed with gzip.

    Args:
        path: the file; its content says whether it is compressed.

    Raises:
        OSError: if the file cannot be read.
        ValueError: naming the file, if it is not UTF-8 (with the line) or its compression is
            damaged.
    """
    try:
        data = Path(path).read_bytes()
    except ValueError as error:  # a name that no file can have
        raise ValueError(f"{str(path)!r}: {error}") from None
    # No UTF-8 text starts like this, so the content decides and not the name.
    if data.startswith(b"\x1f\x8b"):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path}: damaged gzip file: {error}") from None
    elif str(path).endswith(".gz"):
        raise ValueError(f"{path}: the name says gzip, the content is not")
    return split_lines(data, str(path))


def read_parallel(
    src_path: str | os.PathLike[str],
    tgt_path: str | os.PathLike[str],
    *,
    keep_empty: bool = False,
) -> ParallelText:
    """Read two files as sentence pairs.

    A pair with an empty side (nothing but white space) is left out, and one warning names files
    and lines and says how many; the other pairs stay matched.

    Args:
        src_path: source sentences, plain or gzip.
        tgt_path: target sentences, plain or gzip.
        keep_empty: keep such pairs, for scoring a translation, which loses no line.

    Raises:
        OSError: if a file cannot be read.
        ValueError: naming file and line, if a file is not UTF-8; naming both files and both
            counts, if they have different numbers of lines; or if there is no pair at all.
    """
    sides = read_lines(src_path), read_lines(tgt_path)
    name = f"{src_path} and {tgt_path}"
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{src_path} has {len(sides[0])} lines and {tgt_path} has {len(sides[1])}; "
            "line i of one must be the translation of line i of the other"
        )
    blank: tuple[list[int], list[int]] = ([], [])
    kept = []
    for number, pair in enumerate(zip(*sides, strict=True), 1):
        empty = [side for side in (0, 1) if not pair[side].strip()]
        for side in empty:
            blank[side].append(number)
        if keep_empty or not empty:
            kept.append((number, pair))
    skipped = len(sides[0]) - len(kept)
    if skipped:
        where = [
            f"{path}, {_line_numbers(numbers)}"
            for path, numbers in zip((src_path, tgt_path), blank, strict=True)
            if numbers
        ]
        logger.warning("%d skipped, a side is empty: %s", skipped, "; ".join(where))
    if not kept:
        raise ValueError(f"{name} hold no sentence pair")
    return ParallelText([pair for _, pair in kept], [n for n, _ in kept], skipped, name)


def encode_parallel(
    text: ParallelText,
    encode_src: Callable[..., list[int]],
    encode_tgt: Callable[..., list[int]],
    *,
    max_len: int | None = None,
) -> Samples:
    """Turn sentence pairs into samples for training or validation.

    A pair with more than `max_len` tokens on a side is left out, and so is one with none (a
    tokeniser may drop all of a line); a warning names the files and lines and says how many.

    Args:
        text: the pairs.
        encode_src: the `encode` method of a codec.
        encode_tgt: the same for the target side.
        max_len: the most tokens of a sentence, ``<sos>`` and ``<eos>`` not counted; None for any.
            Leave it out for validation and test, where nothing is dropped for its length.

    Raises:
        ValueError: if `max_len` is below 1, or no pair is left.
    """
    _check_max_len(max_len)
    unknown: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    pairs, numbers, too_long, empty = [], [], [], []
    for number, (src_line, tgt_line) in zip(text.numbers, text.pairs, strict=True):
        missed: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        src = encode_src(src_line, unknown=missed[0])
        tgt = encode_tgt(tgt_line, unknown=missed[1])
        if not src or not tgt:
            empty.append(number)
        elif max_len is not None and max(len(src), len(tgt)) > max_len:
            too_long.append(number)
        else:
            pairs.append((src, [SOS, *tgt, EOS]))
            numbers.append(number)
            for total, found in zip(unknown, missed, strict=True):
                total.update(found)
    for reason, dropped in (
        (f"a side has more than {max_len} tokens", too_long),
        ("a side has no tokens", empty),
    ):
        if dropped:
            lines = _line_numbers(dropped)
            logger.warning("%d skipped, %s: %s, %s", len(dropped), reason, text.name, lines)
    if not pairs:
        raise ValueError(f"{text.name}: no pair is left of {len(text.pairs)}")
    return Samples(pairs, numbers, len(too_long), len(empty), unknown)


def encode_source(
    lines: Sequence[str],
    encode: Callable[..., list[int]],
    *,
    max_len: int | None = None,
    unknown: Counter[str] | None = None,
    name: str = "input",
) -> list[list[int]]:
    """Turn lines into ids for translation, where no line is ever lost.

    An empty line gives no ids. A line with more than `max_len` tokens is cut to the first
    `max_len`, with a warning that names the lines.

    Args:
        lines: text to translate.
        encode: the `encode` method of a codec.
        max_len: the most tokens of a sentence; None for any.
        unknown: if given, what became ``<unk>`` is counted in it.
        name: what to call the text in a message.

    Returns:
        As many lists as there are lines.

    Raises:
        ValueError: if `max_len` is below 1.
    """
    _check_max_len(max_len)
    ids = [encode(line, unknown=unknown) for line in lines]
    cut = [n for n, row in enumerate(ids, 1) if max_len is not None and len(row) > max_len]
    if cut:
        where = _line_numbers(cut)
        logger.warning("%d cut to the first %d tokens: %s, %s", len(cut), max_len, name, where)
    return [row[:max_len] for row in ids]


def _check_max_len(max_len: int | None) -> None:
    if max_len is not None and max_len < 1:
        raise ValueError(f"max_len must be at least 1, got {max_len}")


def _line_numbers(numbers: Iterable[int]) -> str:
    numbers = list(numbers)
    text = ", ".join(map(str, numbers[:_NAMED]))
    more = ", …" if len(numbers) > _NAMED else ""
    return f"line{'s' if len(numbers) > 1 else ''} {text}{more}"
