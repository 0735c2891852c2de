"""Decoding one node at a time gives what the whole pass gives, position by position."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import BOTH, TOLERANCE, close, small_model, some_pairs

from graphformer.bands import Band
from graphformer.cache import RowCache
from graphformer.edges import EdgeSet
from graphformer.graph import GraphPool
from graphformer.patterns import window

both_models = pytest.mark.parametrize("universal", BOTH, ids=["plain", "universal"])


def near(n, m):
    """Target position j sees the sources j - 1, j and j + 1: late targets see none."""
    return EdgeSet.banded(torch.tensor([n]), torch.tensor([m]), Band(-1, 1))


def one_by_one(n, m):
    """The same as an edge set of which no structure is known."""
    edges = near(n, m)
    return EdgeSet(edges.src, edges.dst, n, m)


POOLS = {
    "usual": GraphPool(),
    "window": GraphPool(dec=window(2, causal=True)),
    "windows": GraphPool(enc=window(1), dec=window(1, causal=True), cross=near),
    "own edges": GraphPool(cross=one_by_one),
}


def check_positions(model, src, tgt, pool):
    """Feed each target token by token, all at once; a target that is over leaves."""
    whole = model(pool(src, tgt)).logits.split([len(ids) - 1 for ids in tgt])
    tolerance = TOLERANCE[whole[0].dtype]
    state = model.start(src, pool)
    assert (state.num_sentences, state.num_rows) == (len(src), 0)
    going, paths = list(range(len(src))), torch.zeros(len(src), 0, dtype=torch.int64)
    for t in range(max(len(ids) for ids in tgt) - 1):
        stay = [at for at, i in enumerate(going) if t < len(tgt[i]) - 1]
        going, paths = [going[at] for at in stay], paths[stay]
        first = state.num_rows
        tokens = torch.tensor([tgt[i][t] for i in going])
        logits = model.step(state, tokens, paths, torch.tensor(going))
        assert state.num_rows == first + len(going)
        close(logits, torch.stack([whole[i][t] for i in going]), tolerance)
        rows = torch.arange(first, state.num_rows)
        paths = torch.cat([paths, rows.unsqueeze(1)], 1)


# ------------------------------------------------------------------ equal to the whole pass


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@torch.no_grad()
@both_models
def test_position_by_position(universal, dtype, pool):
    model = small_model(universal, dtype, halting_bias=-1.5)
    src, tgt = some_pairs([3, 1, 5, 2], [2, 7, 1, 7])
    check_positions(model, src, tgt, POOLS[pool])


@pytest.mark.parametrize("depth", [1, 2, 8])
@torch.no_grad()
def test_any_depth(depth):
    """Nodes of one sentence halt after different numbers of steps."""
    model = small_model(True, max_depth=depth, halting_bias=-1.5)
    src, tgt = some_pairs([3, 5], [7, 5])
    check_positions(model, src, tgt, GraphPool())
    if depth == 8:
        model(GraphPool()(src, tgt))
        assert len(model.ponder.steps["dec"].unique()) > 2


def check_random_search(model, pool, rng, width=3, length=5):
    """Hypotheses that branch, swap places and die, each equal to a whole pass over its tokens."""
    src, _ = some_pairs([3, 1, 5], [1, 1, 1])
    state = model.start(src, pool)
    # (sentence, tokens, rows); at first one for each sentence
    open_ = [(i, [0], []) for i in range(len(src))]
    for _ in range(length):
        first = state.num_rows
        found = model.step(
            state,
            torch.tensor([tokens[-1] for _, tokens, _ in open_]),
            torch.tensor([rows for _, _, rows in open_], dtype=torch.int64).view(len(open_), -1),
            torch.tensor([sentence for sentence, _, _ in open_]),
        )
        batch = pool([src[i] for i, _, _ in open_], [[*tokens, 1] for _, tokens, _ in open_])
        last = batch.tgt_lens.cumsum(0) - 1
        close(found, model(batch).logits[last])
        open_ = [(i, tokens, [*rows, first + at]) for at, (i, tokens, rows) in enumerate(open_)]
        # Any of them may have several successors or none; sentences may leave the batch.
        chosen = rng.choices(open_, k=width * len(src))
        open_ = [(i, [*tokens, rng.randrange(4, 23)], rows) for i, tokens, rows in chosen]


@pytest.mark.parametrize("pool", ["usual", "windows"])
@settings(max_examples=5)
@given(st.randoms(use_true_random=False))
@torch.no_grad()
@both_models
def test_any_search(universal, pool, rng):
    check_random_search(small_model(universal, halting_bias=-1.0, max_depth=4), POOLS[pool], rng)


# ------------------------------------------------------------------ what is computed, and what not


@torch.no_grad()
@both_models
def test_each_node_is_computed_once(universal):
    model = small_model(universal, max_depth=3)
    encoded, decoded = [], []
    layer = model.dec.layer if universal else model.dec_layers[0]
    model.src_embed.register_forward_hook(lambda module, args, out: encoded.append(len(out)))
    layer.ff_block.register_forward_hook(lambda module, args, out: decoded.append(len(out)))
    shared = model.src_embed is model.tgt_embed
    state = model.start([[4, 5, 6], [7]])
    paths = torch.zeros(2, 0, dtype=torch.int64)
    for t in range(5):
        model.step(state, torch.tensor([0, 4]), paths, torch.tensor([0, 1]))
        paths = torch.cat([paths, torch.tensor([[2 * t], [2 * t + 1]])], 1)
    assert shared and encoded == [4, *[2] * 5], "sources once, then the new tokens alone"
    assert max(decoded) == 2, "never more nodes than are new"


@torch.no_grad()
@both_models
def test_rows_are_never_changed(universal):
    model = small_model(universal, halting_bias=-1.5)
    state = model.start([[4, 5, 6], [7]])
    levels = range(5 if universal else 2)
    paths, before = torch.zeros(2, 0, dtype=torch.int64), None
    for t in range(5):
        model.step(state, torch.tensor([t, 5]), paths, torch.tensor([0, 1]))
        rows = [torch.stack(state.cache.read(level)).clone() for level in levels]
        if before is not None:
            for now, old in zip(rows, before, strict=True):
                assert now[:, : old.shape[1]].equal(old)
        paths, before = torch.cat([paths, torch.tensor([[2 * t], [2 * t + 1]])], 1), rows


@torch.no_grad()
@both_models
def test_a_sentence_is_told_apart_from_its_place(universal):
    """The frontier may hold sentences in any order, some several times, some not at all."""
    model = small_model(universal)
    src, _ = some_pairs([3, 1, 5], [1, 1, 1])
    sentences = torch.tensor([2, 0, 2])
    none = torch.zeros(3, 0, dtype=torch.int64)
    found = model.step(model.start(src), torch.zeros(3, dtype=torch.int64), none, sentences)
    for row, i in zip(found, sentences.tolist(), strict=True):
        close(row, model(GraphPool()([src[i]], [[0, 1]])).logits[0])
    close(found[0], found[2], 1e-14)


@both_models
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_no_open_hypothesis_gives_no_logits(universal, dtype):
    model = small_model(universal, dtype)
    state = model.start([[4, 5, 6]])
    none = torch.zeros(0, dtype=torch.int64)
    for position, first in ((0, []), (1, [0])):
        logits = model.step(state, none, torch.zeros(0, position, dtype=torch.int64), none)
        assert logits.shape == (0, 23) and logits.dtype == dtype
        assert state.num_rows == len(first), "no row either"
        if not first:
            zero = torch.zeros(1, dtype=torch.int64)
            model.step(state, zero, torch.zeros(1, 0, dtype=torch.int64), zero)


@both_models
def test_bad_sources_are_named(universal):
    model = small_model(universal)
    with pytest.raises(ValueError, match="sample 1: its source has 0 ids"):
        model.start([[4], []])
    with pytest.raises(ValueError, match="token id 23 .*vocabulary of 23"):
        model.start([[4, 23]])
    with pytest.raises(ValueError, match="sample 0: its source takes 3 nodes.*max_len=2"):
        model.start([[4, 5, 6]], GraphPool(max_len=2))


# ------------------------------------------------------------------ the rows themselves


def test_row_cache():
    cache = RowCache(2, 1, 1, torch.zeros(0, dtype=torch.float64))
    values = torch.arange(12.0, dtype=torch.float64).view(12, 1, 1)
    assert cache.extend(3).tolist() == [0, 1, 2]
    for level in (0, 1):
        cache.write(level, torch.arange(3), values[:3] + 100 * level, -values[:3])
    assert cache.extend(9).tolist() == list(range(3, 12)), "grows, and what it had stays"
    cache.write(slice(0, None), torch.arange(3, 12), values[3:], -values[3:])
    for level in (0, 1):
        k, v = cache.read(level)
        assert k.flatten().tolist() == [100 * level + i for i in range(3)] + list(range(3, 12))
        assert v.flatten().tolist() == [-i for i in range(12)]
        assert k.dtype == torch.float64
    assert cache.num_rows == 12


def test_cross_edges_are_made_once_while_nothing_changes():
    model = small_model(False)
    state = model.start([[4, 5, 6], [7]])
    sentences = torch.tensor([0, 0, 1])
    first = state.edges.cross(sentences, 0)
    assert state.edges.cross(sentences.clone(), 1) is first
    assert state.edges.cross(torch.tensor([0, 1]), 2) is not first
    assert first.src.tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert first.dst.tolist() == [0, 0, 0, 1, 1, 1, 2]
