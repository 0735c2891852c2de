import logging

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import TRICKY, a_map, check_cells, check_labels, drawn, label_places, maps_of, words

from graphformer.viz import attention_grid, attention_map


@pytest.mark.parametrize("heads", [1, 3, 8])
def test_each_head_has_its_cells_and_the_outer_ones_the_words(heads):
    weights = a_map(heads, 3, 5)
    keys, queries = words(5, "key"), words(3, "q")
    figure = attention_map(weights, keys, queries, title="all heads")
    pixels = drawn(figure)
    panels = maps_of(figure)
    assert [axes.get_gid() for axes in panels] == [f"head {head}" for head in range(heads)]
    for axes, head in zip(panels, weights, strict=True):
        check_cells(axes, pixels, head, weights.max())
    check_labels(panels[0], keys, queries)
    columns = 4 if heads == 8 else heads
    for place, axes in enumerate(panels):
        tops = [text for text, _, _ in label_places(axes.xaxis, "top")]
        lefts = [text for text, _, _ in label_places(axes.yaxis, "left")]
        assert tops == (keys if place < columns else [])
        assert lefts == (queries if place % columns == 0 else [])


def test_rows_are_queries_and_columns_are_keys():
    weights = [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]
    figure = attention_map(weights, ["ein", "kleiner", "Hund"], ["a", "dog"])
    pixels = drawn(figure)
    (axes,) = maps_of(figure)
    check_cells(axes, pixels, np.array(weights), 0.7)
    check_labels(axes, ["ein", "kleiner", "Hund"], ["a", "dog"])
    texts = [text.get_text() for text in figure.texts]
    assert any(text.startswith("keys") for text in texts)
    assert any(text.startswith("queries") for text in texts)


def test_one_head_of_many():
    weights = a_map(3, 2, 5)
    figure = attention_map(weights, words(5), words(2), head=2)
    (axes,) = maps_of(figure)
    np.testing.assert_array_equal(axes.images[0].get_array().data, weights[2])


@settings(max_examples=15)
@given(st.integers(1, 7), st.integers(1, 11), st.booleans())
def test_any_size_shows_exactly_the_weights(queries, keys, causal):
    weights = a_map(1, queries, keys, causal)
    figure = attention_map(weights, words(keys), words(queries))
    (axes,) = maps_of(figure)
    check_cells(axes, drawn(figure), weights[0], weights.max())
    np.testing.assert_allclose(axes.images[0].get_array().data.sum(axis=-1), 1.0, atol=1e-12)


def test_an_edge_of_weight_0_is_no_empty_cell_where_the_edges_are_given():
    weights = np.array([[1.0, 0.0, 0.0]])
    figure = attention_map(weights, words(3), ["q"], edges=[[True, True, False]])
    mask = np.ma.getmaskarray(maps_of(figure)[0].images[0].get_array())
    assert mask.tolist() == [[False, False, True]]


@pytest.mark.parametrize("word", TRICKY)
def test_words_appear_as_typed(word):
    figure = attention_map([[0.5, 0.5]], [word, "a"], [word], title=word)
    drawn(figure)
    (axes,) = maps_of(figure)
    check_labels(axes, [word, "a"], [word])
    shown = [t for t in figure.findobj(matplotlib.text.Text) if t.get_text() == word]
    assert len(shown) >= 3
    # the layout of a text says what is really drawn: one line, as typed, no mathematics
    renderer = figure.canvas.get_renderer()
    for text in shown:
        assert text._get_layout(renderer)[1][0][0] == word
        assert not text.get_parse_math()


def test_the_users_settings_do_not_spoil_the_words():
    hostile = {"text.usetex": True, "text.color": "white", "font.family": "no such font"}
    with matplotlib.rc_context(hostile):
        figure = attention_map(a_map(1, 2, 3), ["$x$", "b", "c"], words(2), title="$")
        pixels = drawn(figure)
        (axes,) = maps_of(figure)
        check_labels(axes, ["$x$", "b", "c"], words(2))
    assert pixels[0, 0, :3].tolist() == [255, 255, 255]


def test_a_missing_glyph_is_logged_once_and_never_a_warning(caplog):
    strange = "\U000f1234"  # for private use: no font has it
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            drawn(attention_map([[1.0]], [strange], ["a"]))
    assert len([r for r in caplog.records if "no installed font" in r.message]) == 1


def test_sixty_words_are_readable():
    keys = words(60, "Wort")
    figure = attention_map(a_map(1, 60, 60, causal=True), keys, keys)
    pixels = drawn(figure)
    (axes,) = maps_of(figure)
    check_labels(axes, keys, keys)
    labels = axes.get_yticklabels() + [tick.label2 for tick in axes.xaxis.get_major_ticks()]
    assert min(label.get_fontsize() for label in labels) >= 8
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    for upper, lower in zip(boxes, boxes[1:], strict=False):
        assert upper.y0 >= lower.y1 - 3  # neighbours do not run into each other
    rows, columns = pixels.shape[:2]
    for label in labels:
        box = label.get_window_extent()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= columns and box.y1 <= rows


def test_nothing_is_cut_off_at_the_sides():
    long = "Donaudampfschifffahrtsgesellschaft"
    for title in (None, "a title that is a good deal longer than so small a map is wide"):
        figure = attention_map([[1.0]], [long], [long], title=title)
        rows, columns = drawn(figure).shape[:2]
        for text in figure.findobj(matplotlib.text.Text):
            box = text.get_window_extent()
            if text.get_text() and text.get_visible():
                assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= columns and box.y1 <= rows, text


def test_a_higher_weight_is_darker_also_in_grey():
    figure = attention_map([[0.1, 0.2, 0.3, 0.4]], words(4), ["q"])
    (axes,) = maps_of(figure)
    colours = axes.images[0].cmap(np.linspace(0, 1, 64))[:, :3]
    grey = colours @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(grey) < 0).all()


def test_grid_has_a_row_a_layer_and_a_column_a_head():
    layers = [a_map(3, 2, 5) * 0.5, a_map(3, 2, 5)]
    figure = attention_grid(
        layers, words(5), words(2), title="all", layer_names=["step 1", "step 2"]
    )
    pixels = drawn(figure)
    panels = maps_of(figure)
    assert [axes.get_gid() for axes in panels] == [
        f"step {row}, head {head}" for row in (1, 2) for head in range(3)
    ]
    for place, axes in enumerate(panels):
        row, head = divmod(place, 3)
        check_cells(axes, pixels, layers[row][head], layers[1].max())
    lefts = {axes.get_window_extent().x0 for axes in panels}
    bottoms = {axes.get_window_extent().y0 for axes in panels}
    assert (len(lefts), len(bottoms)) == (3, 2)


def test_the_figure_shows_itself_in_a_notebook():
    figure = attention_map([[1.0]], ["a"], ["b"])
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("weights", "keys", "queries", "options", "says"),
    [
        ([1.0], ["a"], ["b"], {}, "must have shape (queries, keys)"),
        (np.ones((2, 0)), [], ["a", "b"], {}, "no empty side"),
        ([[1.0, 0.0]], ["a"], ["b"], {}, "got 1 keys, but there are 2"),
        ([[1.0]], ["a"], ["b", "c"], {}, "got 2 queries, but there are 1"),
        ([[np.nan]], ["a"], ["b"], {}, "weights[0, 0] is nan"),
        ([[0.5, -0.5]], ["a", "b"], ["b"], {}, "weights[0, 1] is -0.5"),
        ([[1.0]], ["a"], ["b"], {"head": 1}, "no head 1; the map has heads 0 to 0"),
        ([[1.0]], ["a"], ["b"], {"head": -1}, "no head -1"),
        ([[1.0]], ["a"], ["b"], {"edges": [[False]]}, "cell [0, 0, 0] has weight 1 but no edge"),
        ([[1.0]], ["a"], ["b"], {"edges": [True]}, "edges has shape (1,)"),
        ([[1.0]], ["a"], ["b"], {"vmax": 0}, "vmax must be above 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(weights, keys, queries, options, says):
    with pytest.raises(ValueError) as error:
        attention_map(weights, keys, queries, **options)
    assert says in str(error.value)


def test_a_string_in_place_of_words_is_refused():
    with pytest.raises(TypeError, match="split it first"):
        attention_map([[1.0, 0.0]], "ab", ["c"])
    with pytest.raises(TypeError, match=r"keys\[1\] must be a string, got int"):
        attention_map([[1.0, 0.0]], ["a", 7], ["c"])


def test_grid_refuses_layers_that_differ():
    with pytest.raises(ValueError, match="layer 1 has 3 heads, layer 0 has 2"):
        attention_grid([a_map(2, 2, 3), a_map(3, 2, 3)], words(3), words(2))
    with pytest.raises(ValueError, match="got 1 layer names, but there are 2 layers"):
        attention_grid([a_map(2, 2, 3)] * 2, words(3), words(2), layer_names=["one"])
    with pytest.raises(ValueError, match="at least one layer"):
        attention_grid([], words(3), words(2))
