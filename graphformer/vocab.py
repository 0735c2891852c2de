"""Tokens and their ids: a vocabulary is an ordered list of different tokens.

The first four are the special tokens. They belong to the program and never to the text: a word of
the corpus that is spelled like one of them is an unknown word.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from .atomic import read_file, write_file

SOS, EOS, PAD, UNK = range(4)
SPECIALS = ("<sos>", "<eos>", "<pad>", "<unk>")

# What a token may not look like, since the file has one token a line and no second column.
_COUNT_COLUMN = re.compile(r"\t\d+\Z")


class Vocab:
    """A fixed, ordered set of tokens with ids 0 … V−1; ids 0–3 are the special tokens.

    Made from its words, in the order of their ids. `graphformer.text.build_vocab` counts a
    training text and gives them in order of frequency.

    Args:
        words: the tokens with ids 4, 5, …; all different, none empty, none spelled like a special
            token, without line feeds.

    Raises:
        ValueError: naming the word that breaks one of these rules.

    Example:
        >>> vocab = Vocab(["the", "cat"])
        >>> len(vocab), vocab.encode("the cat sat".split()), vocab.decode([4, 5])
        (6, [4, 5, 3], ['the', 'cat'])
    """

    def __init__(self, words: Iterable[str]) -> None:
        tokens = [*SPECIALS, *words]
        ids: dict[str, int] = {}
        for position, token in enumerate(tokens):
            problem = _problem(token)
            if problem is None and token in ids:
                problem = f"is there twice, with ids {ids[token]} and {position}"
            if problem is not None:
                raise ValueError(f"token {position} of the vocabulary, {token!r}, {problem}")
            ids[token] = position
        self._tokens = tuple(tokens)
        self._ids = {word: ids[word] for word in tokens[len(SPECIALS) :]}

    @property
    def tokens(self) -> tuple[str, ...]:
        """All V tokens in the order of their ids, the special ones first."""
        return self._tokens

    def __len__(self) -> int:
        """V, the special tokens included."""
        return len(self._tokens)

    def __contains__(self, word: object) -> bool:
        """Whether a word of a text has an id of its own (never true of a special token)."""
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocab) and self._tokens == other._tokens

    def __hash__(self) -> int:
        return hash(self._tokens)

    def __repr__(self) -> str:
        return f"Vocab({len(self)} tokens, {self.fingerprint()[:12]})"

    def encode(self, tokens: Iterable[str], *, unknown: Counter[str] | None = None) -> list[int]:
        """Give every token its id; `UNK` for a word that is not in the vocabulary.

        Args:
            tokens: words of a text, so one spelled like a special token is unknown too.
            unknown: if given, every unknown word is counted in it; `unknown.total()` is their
                number.

        Returns:
            As many ids as there are tokens.
        """
        tokens = list(tokens)
        if unknown is not None:
            unknown.update(token for token in tokens if token not in self._ids)
        return [self._ids.get(token, UNK) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Give every id its token, special tokens by their names.

        Args:
            ids: whole numbers, each in 0 … V−1.

        Raises:
            ValueError: if an id is outside 0 … V−1.
        """
        tokens = []
        for index in ids:
            if not 0 <= index < len(self._tokens):
                raise ValueError(f"id {index} is outside the vocabulary of {len(self)} tokens")
            tokens.append(self._tokens[index])
        return tokens

    def fingerprint(self) -> str:
        """SHA-256 of the file that `save` writes, as 64 hexadecimal digits.

        Kept with a model, it tells the model's own vocabulary from another of the same size.
        """
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokens as UTF-8 text, one a line, the special ones first.

        Args:
            path: the file; a kill at any moment leaves the old one or the new one.

        Raises:
            OSError: if the file cannot be written.
        """
        write_file(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """What `save` writes: UTF-8 text, one token a line, the special ones first."""
        return "".join(token + "\n" for token in self._tokens).encode("utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocab:
        """Read what `save` wrote.

        Only a line feed ends a line, so tokens with other Unicode line separators come back as
        they were. A file that an editor has turned to CRLF line ends is read as well.

        Args:
            path: the file.

        Raises:
            OSError: if the file cannot be read.
            ValueError: if there is no such file; or naming file and line, if the text is not
                UTF-8, the special tokens are not the first four lines, a line is blank, a token
                is there twice or has a column of counts, or the last line has no end.
        """
        lines = _lines(read_file(Path(path)), str(path))
        for position, special in enumerate(SPECIALS):
            found = repr(lines[position]) if position < len(lines) else "the end of the file"
            if found != repr(special):
                raise ValueError(f"{path}, line {position + 1}: expected {special!r}, got {found}")
        first: dict[str, int] = {}
        for number, line in enumerate(lines, 1):
            problem = _problem(line)
            if problem is None and line in first:
                problem = f"is in line {first[line]} already"
            if problem is not None:
                raise ValueError(f"{path}, line {number}: the token {line!r} {problem}")
            first[line] = number
        return cls(lines[len(SPECIALS) :])


def _problem(token: str) -> str | None:
    """Why `token` could not stand as one line of a vocabulary file, or None."""
    if token == "":
        return "is empty"
    if "\n" in token:
        return "has a line feed in it"
    if _COUNT_COLUMN.search(token):
        return "ends in a tab and a number; a vocabulary has no column of counts"
    if any("\ud800" <= character <= "\udfff" for character in token):
        return "has half of a surrogate pair in it, which UTF-8 cannot hold"
    return None


def _lines(data: bytes, name: str) -> list[str]:
    """Split a vocabulary file into lines without their ends."""
    # Neither can be part of the first token, which is always "<sos>": both come from an editor.
    data = data.removeprefix(b"\xef\xbb\xbf")
    end = b"\r\n" if data.startswith(SPECIALS[SOS].encode() + b"\r\n") else b"\n"
    *rows, rest = data.split(end)
    if rest:
        number = len(rows) + 1
        raise ValueError(f"{name}, line {number}: the line has no end, so the file has been cut")
    lines = []
    for number, row in enumerate(rows, 1):
        try:
            lines.append(row.decode("utf-8"))
        except UnicodeDecodeError as error:
            byte = row[error.start]
            raise ValueError(f"{name}, line {number}: byte 0x{byte:02x} is not UTF-8") from None
    return lines
