"""Batches: every sample exactly once, within the limit, in an order of seed and epoch alone."""

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphformer.batching import batches, eval_batches, sample_lengths

some_lengths = st.lists(st.tuples(st.integers(1, 13), st.integers(1, 13)))
limits = st.one_of(
    st.builds(dict, max_tokens=st.integers(1, 31)), st.builds(dict, batch_size=st.integers(1, 11))
)
windows = st.none() | st.integers(1, 23)
numbers = st.integers(0, 2**40)


def flat(made):
    return [number for batch in made for number in batch]


def slow_cut(order, lengths, *, max_tokens=None, batch_size=None):
    """Fill one batch after the other, sample by sample."""
    made, cost = [], 0
    for number in order:
        price = 1 if max_tokens is None else lengths[number][1]
        if not made or cost + price > (max_tokens or batch_size):
            made.append([])
            cost = 0
        made[-1].append(number)
        cost += price
    return made


def test_lengths_count_the_end_and_not_the_start():
    assert sample_lengths([([7, 8, 9], [0, 4, 1]), ([7], [0, 4, 5, 6, 1])]) == [(3, 2), (1, 4)]


@given(some_lengths, limits)
def test_evaluation_equals_a_plain_sort(lengths, limit):
    order = sorted(range(len(lengths)), key=lambda number: (*lengths[number], number))
    assert eval_batches(lengths, **limit) == slow_cut(order, lengths, **limit)


@given(some_lengths, limits, windows, numbers, numbers)
def test_training_drops_nothing_and_keeps_the_limit(lengths, limit, window, seed, epoch):
    made = batches(lengths, **limit, window=window, seed=seed, epoch=epoch)
    assert sorted(flat(made)) == list(range(len(lengths)))
    for batch in made:
        assert batch
        if "batch_size" in limit:
            assert len(batch) <= limit["batch_size"]
        elif len(batch) > 1:
            assert sum(lengths[number][1] for number in batch) <= limit["max_tokens"]


def shuffled(items, rng):
    return [item for _, item in sorted([(rng.random(), item) for item in items])]


@given(some_lengths, limits, windows, numbers, numbers)
def test_training_equals_a_slow_reading_of_the_rule(lengths, limit, window, seed, epoch):
    rng = random.Random(f"batches {seed} {epoch}")
    order = shuffled(range(len(lengths)), rng)
    step = window or len(lengths) or 1
    parts = [order[start : start + step] for start in range(0, len(order), step)]
    order = [n for part in parts for n in sorted(part, key=lambda number: lengths[number])]
    expected = shuffled(slow_cut(order, lengths, **limit), rng)
    assert batches(lengths, **limit, window=window, seed=seed, epoch=epoch) == expected


@given(st.integers(1, 7), numbers)
def test_windows_are_sorted_apart(window, seed):
    lengths = [(number % 5 + 1, number % 3 + 1) for number in range(3 * window)]
    # A batch is a window here, so each batch is sorted and the windows share no sample.
    made = batches(lengths, batch_size=window, window=window, seed=seed)
    assert len(made) == 3
    for batch in made:
        assert [lengths[n] for n in batch] == sorted(lengths[n] for n in batch)


def test_a_window_of_one_is_a_plain_shuffle():
    lengths = [(number + 1, 1) for number in range(101)]
    order = flat(batches(lengths, batch_size=1, window=1, seed=3))
    assert order != sorted(order) and sorted(order) == list(range(101))


@given(numbers, numbers)
def test_the_same_seed_and_epoch_give_the_same_batches(seed, epoch):
    lengths = [(number % 7 + 1, number % 5 + 1) for number in range(53)]
    again = [batches(lengths, max_tokens=17, seed=seed, epoch=epoch) for _ in range(2)]
    assert again[0] == again[1]


def test_other_seeds_and_epochs_give_other_batches():
    lengths = [(3, 3)] * 53
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 11), (11, 1)]
    made = [batches(lengths, batch_size=5, seed=s, epoch=e) for s, e in pairs]
    assert len({str(batch_list) for batch_list in made}) == len(pairs)
    # not only the order of the batches: samples of equal lengths meet others
    members = [{frozenset(batch) for batch in batch_list} for batch_list in made]
    assert len(members[0] & members[1]) < 5


def test_the_batches_are_the_same_everywhere():
    lengths = [(number * 7 % 11 + 1, number * 5 % 13 + 1) for number in range(101)]
    made = batches(lengths, max_tokens=29, window=31, seed=3, epoch=2)
    digest = hashlib.sha256(str(made).encode()).hexdigest()
    assert digest == "1a2f40c344ff687150d626a1de5936e333fa5e7f572a186c590e16229e03aac2"


def test_batches_are_not_in_the_order_of_length():
    lengths = [(number + 1, number + 1) for number in range(53)]
    order = flat(batches(lengths, batch_size=5, seed=3))
    assert order != sorted(order)


def test_a_sample_above_the_limit_is_a_batch_of_its_own():
    lengths = [(1, 4), (2, 50), (3, 4), (4, 4)]
    assert eval_batches(lengths, max_tokens=9) == [[0], [1], [2, 3]]
    made = batches(lengths, max_tokens=9, seed=3)
    assert [1] in made and sorted(flat(made)) == [0, 1, 2, 3]


def test_eleven_samples_in_batches_of_four():
    lengths = [(5, 5)] * 11
    assert eval_batches(lengths, batch_size=4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    assert sorted(flat(batches(lengths, batch_size=4, seed=3))) == list(range(11))


def test_no_samples_are_no_batches():
    assert batches([], max_tokens=7, seed=3) == [] == eval_batches([], batch_size=7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 3}, "one of max_tokens and batch_size, got 7 and 3"),
        ({"max_tokens": None}, "one of max_tokens and batch_size, got None and None"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": None, "batch_size": -1}, "batch_size must be at least 1, got -1"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"seed": -1}, "seed must not be negative, got -1"),
        ({"epoch": -2}, "epoch must not be negative, got -2"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        batches([(1, 1)], **{"max_tokens": 7, "seed": 3, **change})


@pytest.mark.parametrize("bad", [(0, 3), (3, 0), (-1, 3)])
def test_a_sample_without_tokens_is_refused_by_number(bad):
    message = rf"sample 2 has lengths \({bad[0]}, {bad[1]}\)"
    with pytest.raises(ValueError, match=message):
        eval_batches([(1, 1), (2, 2), bad], batch_size=2)
    with pytest.raises(ValueError, match=message):
        batches([(1, 1), (2, 2), bad], batch_size=2, seed=0)
