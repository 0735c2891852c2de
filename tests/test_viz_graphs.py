import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from pictures import TRICKY, a_map, drawn, words

from graphformer.viz import attention_graph
from graphformer.viz.style import KIND_COLOURS


def lines(figure, kind):
    """The lines of one kind, lightest first: end points, widths and opacities."""
    (found,) = (
        c
        for c in figure.axes[0].collections
        if isinstance(c, LineCollection) and c.get_gid() == kind
    )
    ends = [(tuple(path[0]), tuple(path[-1])) for path in found.get_segments()]
    return ends, np.atleast_1d(found.get_linewidths()), found.get_colors()


def nodes(figure, side):
    texts = [text for text in figure.axes[0].texts if text.get_gid() == side]
    return [text.get_text() for text in texts], [text.get_position()[0] for text in texts]


def complete(n, m):
    return tuple(np.indices((n, m)).reshape(2, -1))


def test_every_edge_joins_its_two_words():
    src, tgt = ["a", "b", "c"], ["v", "w"]
    causal = (np.array([0, 0, 1]), np.array([0, 1, 1]))
    edges = {"ee": complete(3, 3), "ed": complete(3, 2), "dd": causal}
    figure = attention_graph(src, tgt, edges)
    drawn(figure)
    assert nodes(figure, "src")[0] == src and nodes(figure, "tgt")[0] == tgt
    x = {"src": nodes(figure, "src")[1], "tgt": nodes(figure, "tgt")[1]}
    for kind, (first, second) in {
        "ee": ("src", "src"),
        "ed": ("src", "tgt"),
        "dd": ("tgt", "tgt"),
    }.items():
        ends, _, colours = lines(figure, kind)
        found = {
            (
                int(np.abs(np.array(x[first]) - begin[0]).argmin()),
                int(np.abs(np.array(x[second]) - end[0]).argmin()),
            )
            for begin, end in ends
        }
        assert found == {(int(i), int(j)) for i, j in zip(*edges[kind], strict=True)}
        assert len(ends) == len(edges[kind][0])
        wanted = matplotlib.colors.to_rgb(KIND_COLOURS[kind])
        np.testing.assert_allclose(colours[:, :3], np.tile(wanted, (len(ends), 1)))


def test_cross_edges_lead_down_from_encoder_to_decoder():
    ends, _, _ = lines(attention_graph(["a"], ["b"], {"ed": complete(1, 1)}), "ed")
    (((_, begin), (_, end)),) = ends
    assert begin > end


def test_width_and_depth_grow_with_the_weight():
    edges = {"ed": (np.array([0, 1, 2]), np.array([0, 0, 0]), np.array([0.7, 0.1, 0.2]))}
    figure = attention_graph(["a", "b", "c"], ["q"], edges)
    ends, widths, colours = lines(figure, "ed")
    starts = [begin[0] for begin, _ in ends]
    x = nodes(figure, "src")[1]
    assert [int(np.abs(np.array(x) - s).argmin()) for s in starts] == [1, 2, 0]
    assert (np.diff(widths) > 0).all() and (np.diff(colours[:, 3]) > 0).all()
    assert colours[-1, 3] == pytest.approx(1.0)


def test_a_map_stands_for_its_edges():
    weights = a_map(1, 5, 5, causal=True)[0]
    head, tail = np.nonzero(weights)
    by_map = attention_graph([], words(5), {"dd": weights})
    by_list = attention_graph([], words(5), {"dd": (tail, head, weights[head, tail])})
    for one, other in zip(lines(by_map, "dd"), lines(by_list, "dd"), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(lines(by_map, "dd")[0]) == 15


@pytest.mark.parametrize("word", TRICKY)
def test_words_appear_as_typed(word):
    figure = attention_graph([word], [word], {"ed": [[1.0]]}, title=word)
    drawn(figure)
    assert nodes(figure, "src")[0] == nodes(figure, "tgt")[0] == [word]


@pytest.mark.parametrize("count", [1, 2, 60])
def test_nothing_is_cut_off(count):
    long = [*words(count - 1), "Donaudampfschifffahrt"]
    kinds = {"ee": a_map(1, count, count)[0], "ed": a_map(1, 3, count)[0], "dd": a_map(1, 3, 3)[0]}
    figure = attention_graph(long, words(3), kinds, title="the full picture of a sentence pair")
    rows, columns = drawn(figure).shape[:2]
    for text in figure.findobj(matplotlib.text.Text):
        box = text.get_window_extent()
        if text.get_text() and text.get_visible():
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= columns and box.y1 <= rows, text
    for kind in kinds:
        for path in figure.axes[0].collections:
            points = path.get_paths()
            for line in points:
                x, y = figure.axes[0].transData.transform(line.vertices).T
                assert x.min() >= 0 and y.min() >= 0 and x.max() <= columns and y.max() <= rows, (
                    kind
                )


@pytest.mark.parametrize(
    ("edges", "says"),
    [
        ({"xx": complete(2, 2)}, "no kind of edge 'xx'; choose one of ee, ed, dd"),
        ({"ed": (np.array([2]), np.array([0]))}, "ed: src must hold integers from 0 to 1"),
        ({"ed": (np.array([0]), np.array([3]))}, "ed: dst must hold integers from 0 to 2"),
        ({"ed": (np.array([0.5]), np.array([0]))}, "ed: src must hold integers"),
        ({"ed": (np.array([0, 1]), np.array([0]))}, "of one length, got (2,), (1,)"),
        ({"ed": (np.array([0]), np.array([0]), np.array([-1.0]))}, "negative or not finite"),
        ({"ed": (np.array([0]), np.array([0]), np.array([np.nan]))}, "negative or not finite"),
        ({"ed": (np.array([0]),)}, "expected (src, dst, weights), got 1"),
        ({"ed": np.ones((2, 3))}, "ed: map has shape (2, 3), words give (3, 2)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(edges, says):
    with pytest.raises(ValueError) as error:
        attention_graph(words(2), words(3), edges)
    assert says in str(error.value)


def test_two_empty_rows_are_refused():
    with pytest.raises(ValueError, match="src and tgt are both empty"):
        attention_graph([], [], {})
