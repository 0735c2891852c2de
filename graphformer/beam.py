"""Beam search over all sentences of a batch at once, in tensors alone.

Letters: S sentences still searched, w open hypotheses of each (at most the beam K), t tokens of
each so far, n hypotheses to return of each; V tokens in the vocabulary.

What a step does, for a sentence:

1. Its candidates are all continuations of its open hypotheses, ordered by their summed
   log-probability (ties: the earlier hypothesis first, there the lower token id).
2. A hypothesis ends where ``<eos>`` is among the K best candidates. The n ended ones with the best
   scores are kept.
3. The K best of the other candidates are the open hypotheses of the next step. One that has ended
   takes no place from them, else K poor, short endings could push out what would beat them. Only
   a beam of one is different: it is greedy search, which ends with its first ``<eos>``.

When the search of a sentence ends: a log-probability is never above 0, so whatever is added to an
open hypothesis of sum s, its sum stays at or below s; and no ending is longer than the limit L and
``<eos>``. Hence it can reach ``s / penalty(L + 1)`` at best. Once n hypotheses have ended and none
of them scores below that for the best open one, nothing that is returned can change any more (an
equal score does not displace an earlier one). So the result is that of a search up to the limit.

What is exact: as long as no candidate had to be dropped, the open hypotheses are all prefixes. So
a beam of at least ``(V - 2) ** L`` finds the best of all texts of up to L tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

# Ids of the special tokens, as in the vocabulary, of which a model knows nothing else. SOS and
# <pad> (2) are never produced; EOS and all ids from UNK on are.
SOS, EOS, UNK = 0, 1, 3

# What is found for a sentence: token ids, score, and whether it ended, best first.
Found = list[tuple[list[int], float, bool]]


class SearchModel(Protocol):
    """What a search needs of a model; both models of this package have it."""

    def eval(self) -> Any:
        """Evaluation mode: no dropout."""

    def modules(self) -> Iterator[nn.Module]:
        """All its parts, itself included."""

    def start(self, src: Sequence[Sequence[int]], pool: Any = None) -> Any:
        """Encode each source once; the state tells its ``device`` and ``num_rows`` so far."""

    def step(self, state: Any, tokens: Tensor, paths: Tensor, sentences: Tensor) -> Tensor:
        """Logits ``(F, V)`` after one more node for each of F hypotheses."""


class Settings(NamedTuple):
    """How to search: beam K, exponent alpha of the length penalty, n hypotheses to return."""

    k: int
    alpha: float
    n_best: int


class Open(NamedTuple):
    """The open hypotheses: those of a sentence best first, all of t tokens.

    Attributes:
        sentences: index in the batch, ``(S,)``.
        limits: most tokens of a hypothesis, ``(S,)``.
        tokens: last token, ``(S, w)``.
        sums: summed log-probability in nats, ``(S, w)``; -inf: there is no such hypothesis.
        paths: cache rows of the nodes before the last token, ``(S, w, t)``.
    """

    sentences: Tensor
    limits: Tensor
    tokens: Tensor
    sums: Tensor
    paths: Tensor

    @property
    def length(self) -> int:
        """Tokens t of each hypothesis, ``<sos>`` not counted."""
        return self.paths.shape[2]

    @property
    def parents(self) -> Tensor:
        """Cache row of the token before the last, ``(S, w)``; -1 for ``<sos>``."""
        return self.paths[:, :, -1] if self.length else torch.full_like(self.tokens, -1)


class Kept(NamedTuple):
    """The hypotheses to return, best first, as far as they are known.

    Attributes:
        scores: ``(S, n)``; -inf: none.
        rows: cache row of the last token, ``(S, n)``.
        ended: did it end with ``<eos>``? ``(S, n)``.
    """

    scores: Tensor
    rows: Tensor
    ended: Tensor

    @staticmethod
    def none(like: Tensor, n_best: int) -> Kept:
        """None yet, of as many sentences as ``like`` has rows."""
        scores = like.new_full((len(like), n_best), -math.inf)
        return Kept(scores, torch.zeros_like(scores).long(), torch.zeros_like(scores).bool())

    def merge(self, other: Kept, key: Tensor | None = None) -> Kept:
        """The n best of both; of equal ones those of ``self`` first.

        Args:
            other: ``(S, any)`` more.
            key: what counts instead of the scores, lowest first: ``(S, n + any)``.
        """
        joint = [torch.cat(pair, 1) for pair in zip(self, other, strict=True)]
        order = (-joint[0] if key is None else key).argsort(dim=1, stable=True)
        return Kept(*(part.gather(1, order[:, : self.scores.shape[1]]) for part in joint))


def penalty(length: int | Tensor, alpha: float) -> Any:
    """What a sum of log-probabilities is divided by: ``((5 + length) / 6) ** alpha``.

    Args:
        length: predicted tokens, ``<eos>`` counted.
        alpha: 0 for raw sums.

    Source: Wu et al. 2016 (GNMT), equation 14.
    """
    return ((5 + length) / 6) ** alpha


def search(
    model: SearchModel,
    src: Sequence[Sequence[int]],
    limits: Sequence[int],
    settings: Settings,
    pool: Any = None,
) -> list[Found]:
    """Search the best continuations of ``<sos>`` for each source of one batch.

    Args:
        model: in evaluation mode.
        src: token ids of each source, none empty.
        limits: for each source the most tokens of a hypothesis, ``<eos>`` not counted.
        settings: how to search.
        pool: handed to ``model.start``.

    Returns:
        For each source up to n triples.

    Raises:
        ValueError: if logits are no numbers, or the vocabulary lacks the special tokens.
    """
    state = model.start(src, pool)
    beam = _first(limits, state.device)
    kept = Kept.none(beam.sums, settings.n_best)
    history: list[tuple[Tensor, Tensor]] = []  # token and parent of each cache row
    over: list[tuple[Tensor, Kept]] = []
    while len(beam.sentences):
        rows = state.num_rows + torch.arange(beam.tokens.numel(), device=state.device)
        history.append((beam.tokens.flatten(), beam.parents.flatten()))
        logits = model.step(
            state,
            beam.tokens.flatten(),
            beam.paths.flatten(0, 1),
            beam.sentences.repeat_interleave(beam.tokens.shape[1]),
        )
        rows = rows.view_as(beam.tokens)
        sums, tokens = _candidates(logits, beam, settings.k)
        order = sums.flatten(1).argsort(dim=1, descending=True, stable=True)
        ended = _endings(sums, order, beam, settings.k)
        scores = sums[:, :, 0] / penalty(beam.length + 1, settings.alpha)
        kept = kept.merge(Kept(scores.where(ended, -math.inf), rows, ended))
        grown = _grow(beam, rows, sums, tokens, order, settings.k)
        stuck, done = _done(grown, kept, settings)
        if bool(done.any()):
            last = _with_unfinished(kept, beam, rows, stuck.unsqueeze(1) & ~ended, settings.alpha)
            over.append((beam.sentences[done], Kept(*(part[done] for part in last))))
            grown = Open(*(part[~done] for part in grown))
            kept = Kept(*(part[~done] for part in kept))
        beam = grown
    return _texts(over, history)


def _first(limits: Sequence[int], device: torch.device) -> Open:
    """One hypothesis for each sentence: nothing but ``<sos>``."""
    count = len(limits)
    return Open(
        torch.arange(count, device=device),
        torch.tensor(limits, device=device),
        torch.full((count, 1), SOS, device=device),
        torch.zeros(count, 1, device=device),
        torch.zeros(count, 1, 0, dtype=torch.long, device=device),
    )


def _candidates(logits: Tensor, beam: Open, k: int) -> tuple[Tensor, Tensor]:
    """Summed log-probabilities and tokens of continuations, ``(S, w, 1 + c)`` each.

    The first is ``<eos>``, the others are the c <= K best of the rest: more of one hypothesis can
    not be among the K best of all. ``<sos>`` and ``<pad>`` are not among them; their share of the
    probability is not given to the others, so the sums are those of the model.
    """
    if logits.shape[1] <= UNK:
        raise ValueError(
            f"the vocabulary has {logits.shape[1]} tokens, {UNK + 1} special ones are needed"
        )
    steps = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(1)
    best, tokens = _top(steps[:, UNK:], k)  # UNK is the first token after those never produced
    steps = torch.cat([steps[:, EOS : EOS + 1], best], 1)
    if bool(steps.isnan().any()):
        raise ValueError(f"the model's logits for token {beam.length} are no numbers (nan or inf)")
    # A probability that is 0 in floating point makes no candidate: neither -inf nor -1e9.
    steps = steps.masked_fill(steps < math.log(torch.finfo(steps.dtype).tiny), -math.inf)
    tokens = torch.cat([torch.full_like(tokens[:, :1], EOS), tokens + UNK], 1)
    size, width = beam.tokens.shape
    return beam.sums.unsqueeze(2) + steps.view(size, width, -1), tokens.view(size, width, -1)


def _top(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The up to k largest of each row and their columns, lower columns first among equals."""
    size = values.shape[1]
    best, columns = values.topk(min(k + 1, size), dim=1)
    # topk takes any of several equal values; rows where that matters are sorted, which is slow.
    tied = (best[:, 1:] == best[:, :-1]).any(1).nonzero().flatten()
    if len(tied):
        order = values[tied].sort(dim=1, descending=True, stable=True)
        best[tied], columns[tied] = (part[:, : best.shape[1]] for part in order)
    return best[:, :k], columns[:, :k]


def _endings(sums: Tensor, order: Tensor, beam: Open, k: int) -> Tensor:
    """Which hypotheses end here, ``(S, w)``: those whose ``<eos>`` is among the K best."""
    rank = order.argsort(dim=1).view_as(sums)[:, :, 0]
    # At the limit nothing else can follow, so in a beam that is not full there is room for <eos>.
    roomy = (beam.limits == beam.length) & (beam.sums.isfinite().sum(1) < k)
    return ((rank < k) | roomy.unsqueeze(1)) & sums[:, :, 0].isfinite()


def _grow(beam: Open, rows: Tensor, sums: Tensor, tokens: Tensor, order: Tensor, k: int) -> Open:
    """The K best continuations that do not end, as open hypotheses."""
    width = sums.shape[2]
    ends = order % width == 0
    going_on = order.gather(1, ends.long().argsort(dim=1, stable=True))
    chosen = going_on[:, : min(k, sums.shape[1] * (width - 1))]
    parent = chosen // width
    paths = torch.cat([beam.paths, rows.unsqueeze(2)], 2)
    return Open(
        beam.sentences,
        beam.limits,
        tokens.flatten(1).gather(1, chosen),
        sums.flatten(1).gather(1, chosen),
        paths.gather(1, parent.unsqueeze(2).expand(-1, -1, paths.shape[2])),
    )


def _done(grown: Open, kept: Kept, settings: Settings) -> tuple[Tensor, Tensor]:
    """Where no hypothesis can go on, and where the search is over (all of those too): ``(S,)``."""
    best, worst = grown.sums[:, 0], kept.scores[:, -1]  # worst: -inf while there are fewer than n
    stuck = (grown.length > grown.limits) | best.isinf()
    reach = best / penalty(grown.limits.to(best.dtype) + 1, settings.alpha)
    greedy = settings.k == 1
    return stuck, stuck | (reach <= worst) | (worst.isfinite() & greedy)


def _with_unfinished(kept: Kept, beam: Open, rows: Tensor, cut: Tensor, alpha: float) -> Kept:
    """Where fewer than n have ended, those that are ``cut`` ``(S, w)`` follow them."""
    scores = (beam.sums / penalty(beam.length, alpha)).where(cut, -math.inf)
    key = torch.cat([kept.scores.isinf() * 2, scores.isinf() + 1], 1)  # they are in order already
    return kept.merge(Kept(scores, rows, torch.zeros_like(cut)), key)


def _texts(over: list[tuple[Tensor, Kept]], history: list[tuple[Tensor, Tensor]]) -> list[Found]:
    """Follow each result from its last row back to ``<sos>``; sentences in their order."""
    tokens, parents = (torch.cat(part).tolist() for part in zip(*history, strict=True))

    def ids(row: int) -> list[int]:
        backwards = []
        while parents[row] >= 0:
            backwards.append(tokens[row])
            row = parents[row]
        return backwards[::-1]

    order = torch.cat([sentences for sentences, _ in over]).argsort()
    columns = (torch.cat(part)[order].tolist() for part in zip(*(x for _, x in over), strict=True))
    return [
        [
            (ids(row), score, end)
            for score, row, end in zip(*found, strict=True)
            if score > -math.inf
        ]
        for found in zip(*columns, strict=True)
    ]
