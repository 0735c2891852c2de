"""Beam search against slow twins, and what it promises about order, lengths and edge cases."""

import inspect
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_decode import (
    ListedModel,
    Recomputing,
    TableModel,
    every_text,
    full_logits,
    slow_greedy,
    slow_search,
    teacher_forced,
)

from graphformer import beam, vocab
from graphformer.build import make_model
from graphformer.decode import Hypothesis, default_max_len, infer
from graphformer.graph import GraphPool
from graphformer.patterns import window

A, B, C = 4, 5, 6
SOURCES = [[4, 7], [5], [6, 4, 4, 8, 5], [9, 9, 9], [5, 4, 7]]


def random_table(seed, size, spread=2.0, rows=101):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, size, generator=generator, dtype=torch.float64) * spread


def whole_table(seed, size, rows=101):
    """Few different logits, some of them impossible: full of ties and dead ends."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(0, 3, (rows, size), generator=generator).double()
    table[torch.rand(rows, size, generator=generator) < 0.3] = -math.inf
    table[:, vocab.PAD] = 0  # at least one number in each row
    return table


def same(found, expected, tolerance=1e-9):
    assert [x.ids for x in found] == [x.ids for x in expected]
    assert [x.finished for x in found] == [x.finished for x in expected]
    assert [x.score for x in found] == pytest.approx([x.score for x in expected], abs=tolerance)


def real_model(universal):
    """A small model whose weights are large enough for sources and prefixes to matter."""
    sizes = dict(N=2, dim_model=9, dim_ff=7, h=3, max_depth=3, share_embeddings=False)
    model = make_model(11, 11, universal=universal, **sizes).double()
    generator = torch.Generator().manual_seed(0 if universal else 2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.8, generator=generator)
    return model


@pytest.fixture(params=[False, True], ids=["transformer", "universal"])
def model(request):
    return real_model(request.param)


# ---------------------------------------------------------------- against the twins


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**20),
    ties=st.booleans(),
    size=st.integers(4, 9),
    limit=st.integers(1, 6),
    k=st.integers(1, 7),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 3.0]),
    data=st.data(),
)
def test_equals_a_search_of_one_sentence_that_never_stops_early(
    seed, ties, size, limit, k, alpha, data
):
    n_best = data.draw(st.integers(1, k))
    model = TableModel(whole_table(seed, size) if ties else random_table(seed, size))
    found = infer(model, SOURCES, limit, k, alpha, n_best)
    for src, hypotheses in zip(SOURCES, found, strict=True):
        same(hypotheses, slow_search(model.next_logits(src), limit, k, alpha, n_best))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**20),
    size=st.integers(4, 7),
    limit=st.integers(1, 3),
    alpha=st.sampled_from([0.0, 0.6, 2.0]),
)
def test_a_wide_beam_finds_the_best_of_all_texts(seed, size, limit, alpha):
    model = TableModel(random_table(seed, size))
    found = infer(model, SOURCES, limit, size**limit, alpha, n_best=1)
    for src, hypotheses in zip(SOURCES, found, strict=True):
        same(hypotheses, every_text(model.next_logits(src), limit, alpha)[:1])


def test_a_wide_beam_lists_all_texts_in_order():
    model = TableModel(random_table(3, 6))
    k = 6**3
    for src, found in zip(SOURCES, infer(model, SOURCES, 3, k, n_best=k), strict=True):
        expected = every_text(model.next_logits(src), 3, 0.6)
        assert len(expected) == 1 + 3 + 9 + 27
        same(found, expected)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**20), ties=st.booleans(), alpha=st.sampled_from([0.0, 0.6]))
def test_a_beam_of_one_is_greedy(seed, ties, alpha):
    table = whole_table(seed, 7).nan_to_num(neginf=-2) if ties else random_table(seed, 7)
    model = TableModel(table)
    for src, found in zip(SOURCES, infer(model, SOURCES, 5, 1, alpha), strict=True):
        same(found, [slow_greedy(model.next_logits(src), 5, alpha)])


@pytest.mark.parametrize("k", [1, 4])
def test_kept_keys_and_values_change_nothing(model, k):
    found = infer(model, SOURCES, 7, k, n_best=k)
    again = infer(Recomputing(model), SOURCES, 7, k, n_best=k)
    for one, other in zip(found, again, strict=True):
        same(one, other, 1e-10)


@pytest.mark.parametrize("k", [1, 4])
def test_equals_the_slow_search_over_the_full_forward_pass(model, k):
    found = infer(model, SOURCES[:3], 5, k, n_best=k)
    model.eval()
    for src, hypotheses in zip(SOURCES, found, strict=False):
        same(hypotheses, slow_search(full_logits(model, src), 5, k, 0.6, k))


def test_other_patterns_are_used_if_the_pool_is_given():
    model, pool = real_model(False), GraphPool(dec=window(1, causal=True))
    found = infer(model, SOURCES, 6, 3, pool=pool)
    model.eval()
    for src, hypotheses in zip(SOURCES, found, strict=True):
        same(hypotheses, slow_search(full_logits(model, src, pool), 6, 3, 0.6, 1))
    assert found != infer(model, SOURCES, 6, 3)


# ---------------------------------------------------------------- scores and lengths


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_scores_are_finite_and_those_of_a_teacher_forced_pass(model, alpha):
    model.eval()
    for src, found in zip(SOURCES, infer(model, SOURCES, 6, 5, alpha, 5), strict=True):
        assert len(found) == 5
        assert len({(tuple(x.ids), x.finished) for x in found}) == 5
        for ids, score, finished in found:
            assert math.isfinite(score)
            expected = teacher_forced(full_logits(model, src), ids, finished, alpha)
            assert score == pytest.approx(expected, abs=1e-10)


def one_word_or_three():
    """One word and the end: -2.0 together. Three words and the end: -2.6."""
    return ListedModel(
        7,
        {
            (): {A: -1.0, B: -1.1},
            (A,): {vocab.EOS: -1.0},
            (B,): {B: -0.5},
            (B, B): {B: -0.5},
            (B, B, B): {vocab.EOS: -0.5},
        },
    )


def test_the_length_counts_the_end():
    (found,) = infer(one_word_or_three(), [[4]], 4, 2, 1.0, 2)
    same(found, [Hypothesis([A], -2.0 / (7 / 6), True), Hypothesis([B, B, B], -2.6 / 1.5, True)])
    assert [round(x.score, 3) for x in found] == [-1.714, -1.733]


def test_alpha_zero_gives_raw_sums():
    (found,) = infer(one_word_or_three(), [[4]], 4, 2, 0, 2)
    same(found, [Hypothesis([A], -2.0, True), Hypothesis([B, B, B], -2.6, True)])


def test_a_stronger_penalty_prefers_the_longer_text():
    (found,) = infer(one_word_or_three(), [[4]], 4, 2, 2.0)
    same(found, [Hypothesis([B, B, B], -2.6 / 2.25, True)])


def test_two_endings_do_not_end_a_search_that_can_be_won_by_a_longer_text():
    listed = {
        (): {vocab.EOS: -1.2, A: -0.5},
        (A,): {vocab.EOS: -0.6, A: -0.9},
        (A, A): {A: -0.05},
        (A, A, A): {A: -0.05},
        (A, A, A, A): {vocab.EOS: -0.05},
    }
    (found,) = infer(ListedModel(7, listed), [[4]], 7, 2, 1.0)
    same(found, [Hypothesis([A, A, A, A], -1.55 / (10 / 6), True)])


def test_a_search_ends_when_no_open_hypothesis_can_win():
    # After the end at -0.1 the best open sum is -3, at most -3 / (15 / 6) at the limit.
    model = ListedModel(7, {(): {A: 0.0}, (A,): {vocab.EOS: -0.1, A: -3.0}}, {A: -0.1})
    (found,) = infer(model, [[4]], 9, 3, 1.0)
    same(found, [Hypothesis([A], -0.1 / (7 / 6), True)])
    assert len(model.frontiers) == 2


def test_what_is_never_produced_keeps_its_probability():
    listed = {(): {vocab.SOS: -0.7, vocab.UNK: -1.5}}  # the rest, the most of it, is <pad>'s
    (found,) = infer(ListedModel(7, listed), [[4]], 3, 4, 0, 4)
    same(found, [Hypothesis([vocab.UNK], -1.5, True)])


@pytest.mark.parametrize("k", [1, 4])
def test_real_models_never_produce_start_or_padding(model, k):
    with torch.no_grad():
        rows = model.generator.weight
        rows[vocab.SOS] = rows[vocab.PAD] = rows[A] * 1.5  # often the most likely ones
    found = infer(model, SOURCES, 9, k, n_best=k)
    assert not {vocab.SOS, vocab.EOS, vocab.PAD} & {i for x in found for y in x for i in y.ids}


def test_among_equals_the_earlier_hypothesis_and_the_lower_id_come_first():
    uniform = torch.zeros(1, 11, dtype=torch.float64)
    uniform[0, vocab.EOS] = -9
    (found,) = infer(TableModel(uniform), [[4]], 2, 5, n_best=5)
    assert [x.ids for x in found] == [[3, 3], [3, 4], [3, 5], [3, 6], [3, 7]]


def test_float32_scores_are_plain_numbers():
    model = real_model(True).float()
    for found in infer(model, SOURCES, 5, 3, n_best=3):
        assert all(type(x.score) is float and type(x.finished) is bool for x in found)
        assert all(type(i) is int for x in found for i in x.ids)


# ---------------------------------------------------------------- the limit


@pytest.mark.parametrize("never", [-math.inf, -1e9])
@pytest.mark.parametrize("k", [1, 3, 50])
def test_what_never_ends_comes_back_unfinished(never, k):
    table = random_table(7, 6)
    table[:, vocab.EOS] = never
    model = TableModel(table)
    for src, found in zip(SOURCES, infer(model, SOURCES, 3, k, n_best=min(k, 3)), strict=True):
        assert [len(x.ids) for x in found] == [3] * min(k, 3)
        assert not any(x.finished for x in found)
        for x in found:
            expected = teacher_forced(model.next_logits(src), x.ids, False, 0.6)
            assert x.score == pytest.approx(expected, abs=1e-9)


def test_unfinished_ones_follow_the_finished():
    listed = {
        (): {A: -0.5, B: -1.0},
        (A,): {A: -0.5},
        (B,): {vocab.EOS: -2.0},
        (A, A): {A: -0.5},
    }
    (found,) = infer(ListedModel(7, listed), [[4]], 2, 2, 0, 2)
    same(found, [Hypothesis([B], -3.0, True), Hypothesis([A, A], -1.0, False)])


def test_a_text_of_just_the_limit_can_end():
    model = ListedModel(7, {(): {A: -0.1}, (A,): {B: -0.1}})
    (found,) = infer(model, [[4]], 2, 3, 0)
    same(found, [Hypothesis([A, B], -0.2, True)])


def test_the_default_limit_is_that_of_each_sentence():
    assert [default_max_len(n) for n in (1, 13, 90, 91, 1000)] == [12, 36, 190, 191, 1100]
    table = random_table(7, 6)
    table[:, vocab.EOS] = -math.inf
    found = infer(TableModel(table), [[4] * n for n in (2, 11, 3)], k=2)
    assert [len(x[0].ids) for x in found] == [14, 32, 16]


def test_a_beam_wider_than_the_vocabulary_is_reduced():
    model = TableModel(random_table(5, 4))  # one word (<unk>) and <eos>
    for src, found in zip(SOURCES, infer(model, SOURCES, 2, 10, n_best=10), strict=True):
        same(found, every_text(model.next_logits(src), 2, 0.6))
        assert len(found) == 3
    assert all(len(frontier) <= len(SOURCES) for frontier in model.frontiers)


def test_only_open_sentences_are_computed():
    ends_at_once, goes_on = [4], [5]
    model = TableModel(torch.zeros(2, 7, dtype=torch.float64))
    model.cell = lambda src, prefix: int(src == goes_on)
    model.table[0, vocab.EOS] = 50
    model.table[1, A] = 50
    found = infer(model, [goes_on, ends_at_once, goes_on], 3, 1)
    assert [x[0].ids for x in found] == [[A] * 3, [], [A] * 3]
    assert model.starts == [[goes_on, ends_at_once, goes_on]]
    assert model.frontiers == [[0, 1, 2], [0, 2], [0, 2], [0, 2]]


# ---------------------------------------------------------------- batches and order


@pytest.mark.parametrize("k", [1, 4])
def test_neighbours_and_order_make_no_difference(model, k):
    lens = [12, 1, 7, 3, 10, 2, 5, 1, 11, 4]
    src = [[4 + (3 * i + j * j) % 7 for j in range(n)] for i, n in enumerate(lens)]

    def translate(sentences, **options):
        return infer(model, sentences, 7, k, n_best=k, **options)

    alone = [translate([ids])[0] for ids in src]
    assert len({tuple(found[0].ids) for found in alone}) > 2
    ways = [translate(src, batch_size=size) for size in (3, 10)]
    ways.append([x for at in range(0, 10, 3) for x in translate(src[at : at + 3])])
    ways.append(translate(src[::-1])[::-1])
    for found in ways:
        for one, other in zip(found, alone, strict=True):
            same(one, other, 1e-8)


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        ({}, [[1, 2, 3, 3, 5]]),
        ({"batch_size": 2}, [[1, 2], [3, 3], [5]]),
        ({"max_batch_tokens": 6}, [[1, 2], [3, 3], [5]]),
        ({"max_batch_tokens": 9}, [[1, 2, 3], [3], [5]]),
        ({"max_batch_tokens": 1}, [[1], [2], [3], [3], [5]]),
    ],
)
def test_batches_are_cut_by_sentences_and_by_tokens(limits, sizes):
    model = TableModel(random_table(1, 7))
    assert infer(model, SOURCES, 3, 2, **limits) == infer(model, SOURCES, 3, 2)
    assert [[len(ids) for ids in batch] for batch in model.starts[: len(sizes)]] == sizes


def test_no_sentences():
    assert infer(TableModel(random_table(1, 7)), []) == []


# ---------------------------------------------------------------- the model's mode


def test_no_dropout_right_after_a_training_step(model):
    batch = GraphPool()(SOURCES, [[0, 4, 5, 1]] * len(SOURCES))
    model.train()
    out = model(batch)
    (out.logits.logsumexp(1).sum() + out.act_loss).backward()
    first = infer(model, SOURCES, 5, 3)
    assert model.training
    assert all(infer(model, SOURCES, 5, 3) == first for _ in range(4))
    model.eval()
    assert infer(model, SOURCES, 5, 3) == first
    assert not model.training


def test_each_part_gets_its_own_mode_back(model):
    model.train()
    parts = list(model.modules())
    parts[3].eval()
    modes = [part.training for part in parts]
    assert len(set(modes)) == 2
    infer(model, SOURCES, 2)
    assert [part.training for part in parts] == modes
    with pytest.raises(ValueError, match="token id 11 lies outside"):
        infer(model, [[11]], 2)
    assert [part.training for part in parts] == modes


def test_training_goes_on_with_what_a_search_has_kept(model):
    pool = GraphPool()
    model.double()  # forgets its table of positions
    infer(model, SOURCES, 3, pool=pool)
    model(pool(SOURCES, [[0, 4, 5, 1]] * len(SOURCES))).logits.sum().backward()
    assert not any(p.grad is None for p in model.parameters())


def test_nothing_is_kept_for_a_gradient(model):
    seen = []
    step = model.step
    model.step = lambda *args: seen.append(step(*args)) or seen[-1]
    infer(model, SOURCES, 2)
    assert seen and not any(logits.requires_grad for logits in seen)


def test_decoding_starts_from_the_symbol_that_training_starts_from():
    tokens = []
    model = TableModel(random_table(1, 7))
    step = model.step
    model.step = lambda state, new, *args: tokens.append(new.tolist()) or step(state, new, *args)
    infer(model, SOURCES, 2)
    batch = GraphPool()([[4]], [[vocab.SOS, 4, vocab.EOS]])
    assert tokens[0] == [batch.tgt[0][0].item()] * len(SOURCES)


def test_special_ids_are_those_of_the_vocabulary():
    assert (beam.SOS, beam.EOS, beam.UNK) == (vocab.SOS, vocab.EOS, vocab.UNK)
    # All ids below UNK but <eos> are left out of the search.
    assert {vocab.SOS, vocab.EOS, vocab.PAD} == set(range(vocab.UNK))


def test_models_expose_it_as_a_method(model):
    assert model.infer(SOURCES, max_len=4, k=3, n_best=2) == infer(model, SOURCES, 4, 3, n_best=2)
    assert model.infer(SOURCES) == infer(model, SOURCES, k=5, alpha=0.6)


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"k": 3, "n_best": 5}, "n_best is 5, at most the beam's k=3"),
        ({"k": 0}, "k is 0, at least 1"),
        ({"n_best": 0}, "n_best is 0, at least 1"),
        ({"max_len": 0}, "max_len is 0, at least 1"),
        ({"batch_size": 0}, "batch_size is 0, at least 1"),
        ({"max_batch_tokens": -1}, "max_batch_tokens is -1, at least 1"),
        ({"alpha": -0.1}, "alpha is -0.1"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"alpha": math.inf}, "alpha is inf"),
    ],
)
def test_arguments_out_of_range_are_refused_up_front(options, says):
    model = TableModel(random_table(1, 7))
    with pytest.raises(ValueError, match=says):
        infer(model, SOURCES, **options)
    assert not model.starts


@pytest.mark.parametrize(
    ("src", "kind", "says"),
    [
        ([[4], [5, 6], []], ValueError, "sample 2: its source has no ids"),
        ([4, 5], TypeError, "sample 0: its source is 4, a list of token ids"),
        (["word"], TypeError, "sample 0: its source is 'word'"),
        ([[4], [5] * 4], ValueError, "sample 1: its source takes 4 nodes.*max_len=3"),
    ],
)
def test_sentences_that_cannot_be_translated_are_named(src, kind, says):
    model = TableModel(random_table(1, 7))
    with pytest.raises(kind, match=says):
        infer(model, src, pool=GraphPool(max_len=3))
    assert not model.starts


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad):
    table = torch.zeros(1, 7)
    table[0, A] = bad
    with pytest.raises(ValueError, match="logits for token 0 are no numbers"):
        infer(TableModel(table), SOURCES)


def test_a_vocabulary_without_the_special_tokens_is_refused():
    with pytest.raises(ValueError, match="the vocabulary has 3 tokens, 4 special ones"):
        infer(TableModel(torch.zeros(1, 3)), SOURCES)


def test_defaults_are_those_of_the_contract():
    parameters = inspect.signature(infer).parameters
    assert list(parameters)[:6] == ["model", "src", "max_len", "k", "alpha", "n_best"]
    assert [parameters[name].default for name in ("k", "alpha", "n_best")] == [5, 0.6, 1]
