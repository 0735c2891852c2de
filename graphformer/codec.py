"""Lines of text to token ids and back.

A :class:`Codec` is all that the rest of the program knows of text. There are two, one of words and
one of byte pairs; both are saved into a folder and read back by :func:`load_codec`.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from .atomic import read_file, write_file
from .text import build_vocab, learn_bpe, tokeniser
from .vocab import EOS, PAD, SOS, SPECIALS, UNK, Vocab

# The files of a saved codec. The first says what the others are and which bytes they had.
_HEAD, _VOCAB, _MODEL = "codec.json", "vocab", "bpe.model"


class Codec(ABC):
    """What turns a line of text into ids, and ids into text."""

    vocab: Vocab
    """The V tokens in the order of their ids."""

    @property
    def size(self) -> int:
        """V, the special tokens included."""
        return len(self.vocab)

    @abstractmethod
    def encode(self, line: str, *, unknown: Counter[str] | None = None) -> list[int]:
        """Give the ids of a line, without ``<sos>`` and ``<eos>``; an empty line has none.

        Args:
            line: text without line ends.
            unknown: if given, what became ``<unk>`` is counted in it.
        """

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Give the text of some ids, without ``<sos>``, ``<eos>`` and ``<pad>``.

        Raises:
            ValueError: if an id is outside 0 … V−1.
        """

    @abstractmethod
    def pieces(self, line: str) -> list[str]:
        """Give the text behind each id of ``encode(line)``: labels for an attention map."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Give all that is to be saved, file names and contents; `load_codec` reads them."""

    def fingerprint(self) -> str:
        """SHA-256 over everything that decides which ids a line gets, as hexadecimal digits."""
        return _sha256(self.files()[_HEAD])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the files into an existing folder, each one whole or not at all.

        Raises:
            OSError: if the folder cannot be written.
        """
        # codec.json is the last: after a kill before it, the old one refuses the new files.
        for name, data in self.files().items():
            write_file(Path(folder) / name, data)


class WordCodec(Codec):
    """Every token of a tokeniser is one id.

    Decoding joins the tokens with spaces, so it gives back the line only where the tokeniser
    splits at single spaces.

    Args:
        vocab: the words.
        tokens: name of the tokeniser, see :func:`graphformer.text.tokeniser`.

    Raises:
        ValueError: if there is no such tokeniser, or it is not installed.

    Example:
        >>> codec = WordCodec(Vocab(["a", "dog"]))
        >>> codec.encode("a dog barks"), codec.decode([0, 4, 5, 1])
        ([4, 5, 3], 'a dog')
    """

    def __init__(self, vocab: Vocab, tokens: str = "space") -> None:
        self.vocab = vocab
        self.tokens = tokens
        self._split = tokeniser(tokens)

    def encode(self, line: str, *, unknown: Counter[str] | None = None) -> list[int]:
        """See :meth:`Codec.encode`."""
        return self.vocab.encode(self._split(line), unknown=unknown)

    def decode(self, ids: Iterable[int]) -> str:
        """See :meth:`Codec.decode`; an unknown word reads ``<unk>``."""
        return " ".join(self.vocab.decode(i for i in ids if i not in (SOS, EOS, PAD)))

    def pieces(self, line: str) -> list[str]:
        """See :meth:`Codec.pieces`: the words as they are written, known or not."""
        return list(self._split(line))

    def files(self) -> dict[str, bytes]:
        """See :meth:`Codec.files`: ``vocab`` and ``codec.json``."""
        head = {"kind": "words", "tokens": self.tokens, _VOCAB: self.vocab.fingerprint()}
        return {_VOCAB: self.vocab.to_bytes(), _HEAD: _json(head)}


class BPECodec(Codec):
    """Byte-pair encoding, one model for both languages.

    The ids are sentencepiece's own, which `learn_bpe` lets start with the special tokens.
    A piece that begins with ``▁`` begins a word. Text is brought to Unicode's NFKC form, and runs
    of white space to one space.

    Args:
        model: the bytes of a sentencepiece model.

    Raises:
        ValueError: if the bytes are no such model, or its first ids are not the special tokens.

    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units";
    Kudo and Richardson 2018, "SentencePiece".
    """

    def __init__(self, model: bytes) -> None:
        from sentencepiece import SentencePieceProcessor

        if not model:
            raise ValueError("the sentencepiece model is empty")
        try:
            processor = SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(f"not a sentencepiece model: {error}") from None
        self._model = bytes(model)
        pieces = list(map(processor.id_to_piece, range(processor.get_piece_size())))
        first = tuple(pieces[: len(SPECIALS)])
        # Control symbols are never found in a text, whatever is written there.
        reserved = first == SPECIALS and all(map(processor.is_control, (SOS, EOS, PAD)))
        if not reserved or processor.unk_id() != UNK:
            raise ValueError(f"the sentencepiece model starts with {first}, not with {SPECIALS}")
        self.vocab = Vocab(pieces[len(SPECIALS) :])
        self._processor = processor

    def encode(self, line: str, *, unknown: Counter[str] | None = None) -> list[int]:
        """See :meth:`Codec.encode`; only characters never seen in training are unknown."""
        ids: list[int] = list(self._processor.encode(line))
        if unknown is not None and UNK in ids:
            unknown.update(p for p, i in zip(self.pieces(line), ids, strict=True) if i == UNK)
        return ids

    def sample(self, lines: Sequence[str], p: float, seed: int) -> list[list[int]]:
        """Encode lines while each merge of byte pairs is left out with probability p.

        Args:
            lines: text without line ends.
            p: probability, in [0, 1]; at 0 the ids are those of `encode`.
            seed: a whole number in [0, 2³²); with the same lines it gives the same ids.

        Source: Provilkov et al. 2020, "BPE-Dropout: Simple and Effective Subword Regularization".
        """
        from sentencepiece import set_random_generator_seed

        set_random_generator_seed(seed)
        sampled = self._processor.encode(
            list(lines), enable_sampling=True, alpha=p, nbest_size=-1, num_threads=1
        )
        return [list(ids) for ids in sampled]

    def decode(self, ids: Iterable[int]) -> str:
        """See :meth:`Codec.decode`; an unknown piece reads ``<unk>``."""
        kept = [int(index) for index in ids if index not in (SOS, EOS, PAD)]
        self.vocab.decode(kept)  # refuses ids outside the vocabulary
        return str(self._processor.decode(kept))

    def pieces(self, line: str) -> list[str]:
        """See :meth:`Codec.pieces`."""
        return list(self._processor.encode(line, out_type=str))

    def files(self) -> dict[str, bytes]:
        """See :meth:`Codec.files`: ``bpe.model``, ``vocab`` (for readers) and ``codec.json``."""
        head = {"kind": "bpe", _VOCAB: self.vocab.fingerprint(), _MODEL: _sha256(self._model)}
        return {_MODEL: self._model, _VOCAB: self.vocab.to_bytes(), _HEAD: _json(head)}


def train_words(
    lines: Iterable[str],
    *,
    tokens: str = "space",
    min_count: int = 1,
    max_size: int | None = None,
) -> WordCodec:
    """Make a codec of the words in the training split.

    Args:
        lines: text of the training split; of both languages, if they are to share the ids.
        tokens: name of the tokeniser, see :func:`graphformer.text.tokeniser`.
        min_count: how often a word must be seen to be kept.
        max_size: the most words to keep, the four special tokens not among them; None for all.

    Raises:
        ValueError: for an unknown tokeniser, a limit below 1, or if no word is left.
    """
    split = tokeniser(tokens)
    vocab = build_vocab(map(split, lines), min_count=min_count, max_size=max_size)
    if len(vocab) == len(SPECIALS):
        raise ValueError(f"no word is in the training text at least {min_count} times")
    return WordCodec(vocab, tokens)


def train_bpe(lines: Iterable[str], size: int) -> BPECodec:
    """Make a codec of byte pairs; :func:`graphformer.text.learn_bpe` learns them.

    Args:
        lines: text of the training split, of both languages together.
        size: V, the number of pieces, the four special tokens included.

    Raises:
        ValueError: if there is no text, or `size` is below what the characters alone need.
    """
    return BPECodec(learn_bpe(lines, size))


def load_codec(folder: str | os.PathLike[str]) -> Codec:
    """Read what a codec's `save` wrote.

    Args:
        folder: where ``codec.json`` lies.

    Raises:
        OSError: if a file cannot be read.
        ValueError: naming the file, if it is missing or damaged, or both files, if they are of
            two runs.
    """
    folder = Path(folder)
    head = _read_head(folder / _HEAD)
    if head["kind"] == "bpe":
        model = read_file(folder / _MODEL)
        _compare(folder, _MODEL, _sha256(model), head)
        codec = _named(folder / _MODEL, lambda: BPECodec(model))
        vocab = Vocab.load(folder / _VOCAB)
    else:
        vocab = Vocab.load(folder / _VOCAB)
        codec = _named(folder / _HEAD, lambda: WordCodec(vocab, head["tokens"]))
    _compare(folder, _VOCAB, vocab.fingerprint(), head)
    return codec


def _named(path: Path, make: Callable[[], Codec]) -> Codec:
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_head(path: Path) -> dict[str, str]:
    try:
        head: object = json.loads(read_file(path).decode("utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{path}, line 1: nested too deeply") from None
    except ValueError as error:  # a number too long for Python to convert
        raise ValueError(f"{path}: {error}") from None
    kinds = {"words": {"kind", "tokens", _VOCAB}, "bpe": {"kind", _VOCAB, _MODEL}}
    kind = head.get("kind") if isinstance(head, dict) else None
    if not isinstance(head, dict) or not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"{path}: kind must be one of {', '.join(kinds)}, got {kind!r}")
    if set(head) != kinds[kind] or not all(isinstance(value, str) for value in head.values()):
        raise ValueError(f"{path}: expected the texts {', '.join(sorted(kinds[kind]))}")
    return dict(head)


def _compare(folder: Path, name: str, found: str, head: dict[str, str]) -> None:
    if found != head[name]:
        raise ValueError(
            f"{folder / name} is not the file that {folder / _HEAD} was written with "
            f"(SHA-256 {found[:12]!r}, expected {head[name][:12]!r})"
        )


def _json(value: dict[str, str]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode("utf-8")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
