"""Slow, obvious twins of the search, and models that are nothing but a table.

`slow_search` and `slow_greedy` take one sentence, lists and loops, and ask for the next logits of a
whole prefix each time; they never stop before the limit. `Recomputing` makes a model of the package
compute the whole prefix of each hypothesis again at each step, the sentence's encoder included:
what decoding costs without keeping anything.
"""

import itertools
import math
from types import SimpleNamespace

import torch
from torch import nn

from graphformer.decode import Hypothesis
from graphformer.graph import GraphPool

SOS, EOS, PAD = 0, 1, 2


def gnmt(length, alpha):
    return ((5 + length) / 6) ** alpha


def log_probs(logits):
    """(V,) -> list of V log-probabilities; None for what is never produced."""
    steps = logits.log_softmax(0).tolist()
    least = math.log(torch.finfo(logits.dtype).tiny)
    return [None if i in (SOS, PAD) or x < least else x for i, x in enumerate(steps)]


def slow_search(next_logits, limit, k, alpha, n_best):
    """Beam search for one sentence; `next_logits(ids) -> (V,)`."""
    open_, ended, unfinished = [([], 0.0)], [], []
    for length in range(limit + 1):
        candidates = []
        for place, (ids, total) in enumerate(open_):
            for token, step in enumerate(log_probs(next_logits(ids))):
                if step is not None:
                    key = (-(total + step), place, token != EOS, -step, token)
                    candidates.append((key, ids, token, place))
        candidates.sort()
        room = length == limit and len(open_) < k
        done = []
        for rank, (key, ids, token, place) in enumerate(candidates):
            if token == EOS and (rank < k or room):
                done.append(place)
                ended.append((-key[0] / gnmt(length + 1, alpha), length, place, ids))
        going_on = [(ids + [token], -key[0]) for key, ids, token, _ in candidates if token != EOS]
        if length == limit or not going_on:
            unfinished = [x for place, x in enumerate(open_) if place not in done]
            break
        if k == 1 and ended:
            break
        open_ = going_on[:k]
    ended.sort(key=lambda x: (-x[0], x[1], x[2]))
    found = [Hypothesis(ids, score, True) for score, _, _, ids in ended]
    found += [Hypothesis(ids, total / gnmt(len(ids), alpha), False) for ids, total in unfinished]
    return found[:n_best]


def slow_greedy(next_logits, limit, alpha):
    """The most likely token again and again."""
    ids, total = [], 0.0
    while True:
        steps = log_probs(next_logits(ids))
        best = max((x, -token) for token, x in enumerate(steps) if x is not None)
        token = -best[1]
        if token == EOS:
            return Hypothesis(ids, (total + best[0]) / gnmt(len(ids) + 1, alpha), True)
        if len(ids) == limit:
            return Hypothesis(ids, total / gnmt(limit, alpha), False)
        ids, total = ids + [token], total + best[0]


def every_text(next_logits, limit, alpha):
    """All finished hypotheses of up to `limit` tokens, best first."""
    found = []
    size = len(next_logits([]))
    for length in range(limit + 1):
        for ids in itertools.product(range(3, size), repeat=length):
            score = teacher_forced(next_logits, list(ids), True, alpha)
            if score is not None:
                found.append(Hypothesis(list(ids), score, True))
    return sorted(found, key=lambda x: -x.score)


def teacher_forced(next_logits, ids, finished, alpha):
    """The score of a given hypothesis; None where a step is impossible."""
    total = 0.0
    targets = ids + [EOS] * finished
    for at, token in enumerate(targets):
        step = log_probs(next_logits(targets[:at]))[token]
        if step is None:
            return None
        total += step
    return total / gnmt(len(targets), alpha)


def full_logits(model, src, pool=None):
    """`next_logits` of a model of the package, by its full forward pass."""
    pool = pool or GraphPool()

    def next_logits(ids):
        with torch.no_grad():
            return model(pool([src], [[SOS, *ids, EOS]])).logits[-1]

    return next_logits


class Recomputing(nn.Module):
    """A model for `infer` that computes everything anew at each step, through `model(batch)`."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def start(self, src, pool=None):
        return SimpleNamespace(
            src=src, pool=pool or GraphPool(), tokens=[], num_rows=0, device=torch.device("cpu")
        )

    def step(self, state, tokens, paths, sentences):
        state.tokens += tokens.tolist()
        state.num_rows = len(state.tokens)
        prefixes = [[state.tokens[row] for row in path] for path in paths.tolist()]
        targets = [[*ids, new, EOS] for ids, new in zip(prefixes, tokens.tolist(), strict=True)]
        batch = state.pool([state.src[i] for i in sentences.tolist()], targets)
        return self.model(batch).logits[batch.tgt_lens.cumsum(0) - 1]


class TableModel(nn.Module):
    """Logits looked up by a number made from the source and the prefix; nothing is learnt.

    It also holds the search to the interface: rows are only appended, a path is a chain of rows of
    its own sentence, and every hypothesis of a call has the same length.

    Args:
        table: logits (P, V); P rows for all prefixes of all sources.
    """

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.starts, self.frontiers = [], []

    def cell(self, src, prefix):
        """The row of the table: prefixes may share one, so nothing is special about a length."""
        number = sum((i + 1) * x for i, x in enumerate(src))
        for token in [SOS, *prefix]:
            number = (number * 13 + token * 5 + 1) % len(self.table)
        return number

    def next_logits(self, src):
        return lambda ids: self.table[self.cell(src, ids)]

    def start(self, src, pool=None):
        self.starts.append(src)
        return SimpleNamespace(src=src, rows=[], num_rows=0, device=torch.device("cpu"))

    def step(self, state, tokens, paths, sentences):
        self.frontiers.append(sentences.tolist())
        cells = []
        for token, path, sentence in zip(
            tokens.tolist(), paths.tolist(), sentences.tolist(), strict=True
        ):
            if path:
                chain = [state.rows[row] for row in path]
                assert [row[0] for row in chain] == [sentence] * len(path)
                assert chain[-1][2] == path[:-1]
                prefix = [row[1] for row in chain][1:] + [token]
                assert chain[0][1] == SOS
            else:
                assert token == SOS
                prefix = []
            state.rows.append((sentence, token, path))
            cells.append(self.cell(state.src[sentence], prefix))
        state.num_rows = len(state.rows)
        return self.table[cells]


class ListedModel(TableModel):
    """A table written by hand: the probabilities of the next token for some prefixes.

    Args:
        size: V.
        listed: prefix -> {token: log-probability}. What is left of the probability goes to <pad>,
            which is never produced, so that the listed numbers are log-probabilities as they stand.
        other: the same for all prefixes that are not listed.
    """

    def __init__(self, size, listed, other=None):
        self.places = {prefix: at for at, prefix in enumerate(listed)}
        rows = [*listed.values(), other or {EOS: 0.0}]
        table = torch.full((len(rows), size), -math.inf, dtype=torch.float64)
        for row, known in zip(table, rows, strict=True):
            for token, value in known.items():
                row[token] = value
            left = 1 - row.exp().sum().item()
            assert left > -1e-12
            row[PAD] = math.log(left) if left > 1e-12 else -math.inf
        super().__init__(table)

    def cell(self, src, prefix):
        return self.places.get(tuple(prefix), len(self.places))
