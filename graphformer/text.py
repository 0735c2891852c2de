"""Tools for text from outside: tokenisers, counting of words, learning of byte pairs.

The one module that uses torchtext, and the one that trains sentencepiece; both are imported only
when a function needs them. :mod:`graphformer.codec` makes something useful of what comes out.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from .vocab import EOS, PAD, SOS, SPECIALS, UNK, Vocab

logger = logging.getLogger(__name__)

TOKENISERS = ("space", "basic_english", "moses", "spacy:MODEL")

# A language and a name, as spaCy's models are called. No path: the name may come from a saved
# codec, which must not say what is loaded from where.
_SPACY_MODEL = re.compile(r"[a-z]{2,3}_[a-z0-9_]+")


def tokeniser(name: str) -> Callable[[str], list[str]]:
    """One of torchtext's tokenisers, by name.

    Args:
        name: ``"space"`` splits at white space; ``"basic_english"`` also takes punctuation apart
            and lowercases; ``"moses"`` needs the package sacremoses; ``"spacy:MODEL"`` needs
            spacy and the named model, such as ``"spacy:de_core_news_sm"``.

    Returns:
        A function from a line to its tokens.

    Raises:
        ValueError: for another name, or with a hint where something is not installed.
    """
    from torchtext.data.utils import get_tokenizer

    kind, _, model = name.partition(":")
    split: Callable[[str], list[str]]
    if name == "space":
        split = get_tokenizer(None)
    elif name == "basic_english":
        split = get_tokenizer("basic_english")
    elif name == "moses":
        _need("sacremoses", name)
        # Without this, `&` and quotes would become HTML entities.
        split = partial(get_tokenizer("moses"), escape=False)
    elif kind == "spacy" and _SPACY_MODEL.fullmatch(model):
        _need("spacy", name)
        try:
            split = get_tokenizer("spacy", language=model)
        except OSError:
            raise ValueError(
                f"tokeniser {name!r} needs the model: python -m spacy download {model}"
            ) from None
    else:
        raise ValueError(f"no tokeniser {name!r}; choose one of {', '.join(TOKENISERS)}")
    return split


def _need(package: str, name: str) -> None:
    # Asked before torchtext does, because torchtext prints its hint to standard output.
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"tokeniser {name!r} needs the package: pip install {package}")


def build_vocab(
    sentences: Iterable[Iterable[str]], *, min_count: int = 1, max_size: int | None = None
) -> Vocab:
    """Count the words of the training split and number them.

    torchtext counts and sorts: ids go by frequency, ties by code point, so they depend neither on
    the order of the sentences nor on Python's hash seed. Words spelled like special tokens are
    left out.

    Args:
        sentences: tokens of each sentence, of the training split alone.
        min_count: how often a word must be seen to be kept; 2 keeps what is seen twice or more.
        max_size: the most words to keep, the four special tokens not among them; None for all.

    Raises:
        ValueError: if a limit is below 1.
    """
    from torchtext.vocab import Vocab as CountedVocab

    for argument, value in (("min_count", min_count), ("max_size", max_size)):
        if value is not None and value < 1:
            raise ValueError(f"{argument} must be at least 1, got {value}")
    counts = Counter(token for sentence in sentences for token in sentence)
    counted = CountedVocab(counts, max_size=max_size, min_freq=min_count, specials=list(SPECIALS))
    return Vocab(counted.itos[len(SPECIALS) :])


def learn_bpe(lines: Iterable[str], size: int) -> bytes:
    """Learn byte pairs from the training split, the lines of both languages together.

    The same lines in the same order always give the same bytes. Every character that occurs is
    kept, so nothing of the training text is unknown.

    Args:
        lines: text of the training split.
        size: V, the number of pieces, the four special tokens included. Where the text has fewer
            pairs to offer, V is what it has, and a warning says so.

    Returns:
        A sentencepiece model with ids `SOS`, `EOS`, `PAD`, `UNK` for the special tokens.

    Raises:
        ValueError: if there is no text, or `size` is below what the characters alone need.

    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words with Subword Units";
    Kudo and Richardson 2018, "SentencePiece".
    """
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise ValueError("there is no text to learn byte pairs from")
    try:
        return _train(lines, size)
    except RuntimeError as error:
        message = str(error)
    most = re.search(r"value <= (\d+)", message)
    if most is not None:
        logger.warning("the text has only %s pieces to offer, not %d", most[1], size)
        return _train(lines, int(most[1]))
    least = re.search(r"required_chars\. \d+ vs (\d+)", message)
    if least is not None or size < 1:
        needed = "" if least is None else f"; the characters of this text need {least[1]}"
        raise ValueError(f"{size} pieces are too few{needed}")
    raise ValueError(f"sentencepiece cannot learn from this text: {message}")


def _train(lines: list[str], size: int) -> bytes:
    # Not through torchtext's helper: it reads and writes files by name alone and leaves the ids
    # of the special tokens where sentencepiece puts them.
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        bos_id=SOS,
        eos_id=EOS,
        pad_id=PAD,
        unk_id=UNK,
        bos_piece=SPECIALS[SOS],
        eos_piece=SPECIALS[EOS],
        pad_piece=SPECIALS[PAD],
        unk_piece=SPECIALS[UNK],
        unk_surface=SPECIALS[UNK],
        character_coverage=1.0,
        max_sentence_length=1 << 24,  # bytes; longer lines would be left out in silence
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()
