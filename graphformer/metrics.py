"""How good decoded sentences are: token accuracy, exact match, BLEU.

All but BLEU are fractions from 0 to 1; multiply by 100 to print a percentage. BLEU goes from
0 to 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Bleu", "bleu", "exact_match", "token_accuracy"]

Ids = Sequence[int]


def _check_pairs(hypotheses: Sequence[object], references: Sequence[object]) -> None:
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses but {len(references)} references")
    if not hypotheses:
        raise ValueError("no sentence to score: hypotheses and references are empty")


def token_accuracy(hypotheses: Sequence[Ids], references: Sequence[Ids]) -> float:
    """Share of tokens that are right at their position, over a whole set.

    A hypothesis that is too short or too long is wrong at every position that only one of the
    two has: the divisor is the sum of ``max(len(hypothesis), len(reference))``.

    Args:
        hypotheses: Decoded ids, one list a sentence, without ``<sos>`` and ``<eos>``.
        references: The right ids in the same form and order.

    Returns:
        A fraction from 0 to 1; 1 if no sentence has a token.

    Raises:
        ValueError: If the two differ in number, or are empty.
    """
    _check_pairs(hypotheses, references)
    pairs = list(zip(hypotheses, references, strict=True))
    right = sum(a == b for hyp, ref in pairs for a, b in zip(hyp, ref, strict=False))
    total = sum(max(len(hyp), len(ref)) for hyp, ref in pairs)
    return right / total if total else 1.0


def exact_match(hypotheses: Sequence[Ids], references: Sequence[Ids]) -> float:
    """Share of sentences whose ids are all right, none missing and none too many.

    Args:
        hypotheses: Decoded ids, one list a sentence, without ``<sos>`` and ``<eos>``.
        references: The right ids in the same form and order.

    Returns:
        A fraction from 0 to 1.

    Raises:
        ValueError: If the two differ in number, or are empty.
    """
    _check_pairs(hypotheses, references)
    right = sum(list(hyp) == list(ref) for hyp, ref in zip(hypotheses, references, strict=True))
    return right / len(references)


class Bleu(NamedTuple):
    """A BLEU score with all that is needed to compute it again.

    Attributes:
        score: 0 to 100.
        signature: sacreBLEU's signature: references, case, tokenisation, smoothing, version.
        hypothesis_length: Tokens of all hypotheses, as tokenised for the score.
        reference_length: Tokens of the references they were held against.
    """

    score: float
    signature: str
    hypothesis_length: int
    reference_length: int

    def __str__(self) -> str:
        return f"BLEU {self.score:.2f} [{self.signature}]"


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: str = "13a",
    lowercase: bool = False,
) -> Bleu:
    """Corpus BLEU of whole lines of text by sacreBLEU.

    References are the raw lines of the test file, never text rebuilt from ids: there an unknown
    word would match any other unknown word. The order-4 score of a corpus whose hypotheses hold
    no run of four tokens is 0 by definition, a perfect set of three-token lines included; empty
    hypotheses score 0 and are no error, and neither is an empty reference.

    Args:
        hypotheses: One line a sentence, detokenised unless ``tokenize`` is ``none``.
        references: One *list* of lines for each set of references: ``[lines]`` for the usual
            single reference.
        tokenize: sacreBLEU's tokenisation: ``13a`` for raw text, ``none`` for lines that are
            tokenised already, ``intl``, ``char``, ``zh``, ``ja-mecab``, ...
        lowercase: Whether case is ignored.

    Raises:
        TypeError: If ``references`` is one level too flat, or a line is no string.
        ValueError: If a set of references has another number of lines than ``hypotheses``,
            there is no line at all, or the tokenisation is unknown.
        ImportError: If sacreBLEU is not installed.

    Source: Papineni et al. 2002, "BLEU"; Post 2018, "A Call for Clarity in Reporting BLEU
    Scores", for the signature.
    """
    _check_lines("hypotheses", hypotheses)
    if isinstance(references, str) or any(isinstance(lines, str) for lines in references):
        raise TypeError(
            "references must be a list of reference sets, each a list of lines; "
            "for a single set write [lines]"
        )
    if not references:
        raise ValueError("references must hold at least one set of lines, got none")
    for number, lines in enumerate(references):
        _check_lines(f"references[{number}]", lines)
        _check_pairs(hypotheses, lines)
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise ImportError("BLEU needs the package sacrebleu: pip install sacrebleu") from error
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"tokenize must be one of {', '.join(BLEU.TOKENIZERS)}, got {tokenize!r}")
    # force: the caller chose the tokenisation, so no warning about lines that look tokenised
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    signature = str(metric.get_signature())
    return Bleu(result.score, signature, result.sys_len, result.ref_len)


def _check_lines(name: str, lines: Sequence[str]) -> None:
    if isinstance(lines, str):
        raise TypeError(f"{name} must be a list of lines, got one string")
    for number, line in enumerate(lines):
        if not isinstance(line, str):
            raise TypeError(f"{name} line {number + 1} must be a string, got {line!r}")
