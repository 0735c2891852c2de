"""The edge patterns against their definitions, cell by cell."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphformer.graph import GraphPool
from graphformer.patterns import causal, complete, window

sizes = st.integers(0, 7)


def cells(edges):
    """(source, target) of every edge; doubled edges would be seen."""
    return list(zip(edges.src.tolist(), edges.dst.tolist(), strict=True))


@given(sizes, sizes)
def test_complete(n, m):
    assert cells(complete(n, m)) == [(i, j) for j in range(m) for i in range(n)]
    assert cells(complete(n)) == [(i, j) for j in range(n) for i in range(n)]


@given(sizes)
def test_causal(n):
    edges = causal(n)
    assert cells(edges) == [(i, j) for j in range(n) for i in range(j + 1)]
    assert len(edges) == n * (n + 1) // 2


@given(sizes, st.integers(0, 4), st.booleans())
def test_window(n, width, left):
    ahead = 0 if left else width
    expected = [(i, j) for j in range(n) for i in range(n) if -ahead <= j - i <= width]
    assert cells(window(width, causal=left)(n)) == expected


def test_causal_window_of_127_gives_128_edges_a_node():
    into = torch.bincount(window(127, causal=True)(131).dst)
    assert into.tolist() == [min(j + 1, 128) for j in range(131)]


def test_window_is_wide_enough_to_be_complete():
    assert cells(window(5)(5)) == cells(complete(5))
    assert cells(window(5, causal=True)(5)) == cells(causal(5))


@pytest.mark.parametrize("left", [False, True])
def test_window_width_is_checked(left):
    with pytest.raises(ValueError, match="width is -1, at least 0"):
        window(-1, causal=left)


@pytest.mark.parametrize("pattern", [complete, causal, window(2)])
def test_negative_lengths_are_named(pattern):
    with pytest.raises(ValueError, match="length -3 is negative"):
        pattern(-3)


def test_any_function_is_a_pattern():
    pool = GraphPool(enc=window(1), dec=window(0, causal=True), cross=lambda n, m: complete(n, m))
    batch = pool([[5, 6, 7], [5]], [[0, 5, 1], [0, 1]])
    assert cells(batch.edges["ee"]) == [
        *[(0, 0), (1, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2)],
        (3, 3),
    ]
    assert cells(batch.edges["dd"]) == [(0, 0), (1, 1), (2, 2)]
