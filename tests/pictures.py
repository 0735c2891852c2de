"""Helpers for the tests of pictures: maps set by hand, and what a drawn figure shows."""

import warnings

import numpy as np

# The words that break careless drawing: mathematics, escapes, other scripts.
TRICKY = ["$$", "$5$", "_{$", "$", "\\", "\\frac{1", "ü", "中文", "%", "#&~^", "<b>"]


def words(count, stem="w"):
    return [f"{stem}{number}" for number in range(count)]


def a_map(heads, queries, keys, causal=False):
    """A map whose rows sum to 1 and whose cells all differ within a row, (H, queries, keys)."""
    rising = 1.0 + np.arange(heads * queries * keys).reshape(heads, queries, keys) % 13
    rising += np.arange(keys) / 7
    if causal:
        rising = rising * np.tri(queries, keys)
    return rising / rising.sum(axis=-1, keepdims=True)


def drawn(figure):
    """Draws a figure; any warning is an error. Returns its pixels, (rows, columns, 4)."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


def maps_of(figure):
    """The axes that hold an attention map: those whose image is named a head."""
    return [axes for axes in figure.axes if "head" in str(axes.get_gid())]


def cell_centre(axes, query, key):
    """The pixel (x, y from the lower left) in the middle of a cell."""
    return axes.transData.transform((key, query))


def label_places(axis, side):
    """For each shown label of an axis its text and the middle of its box, in pixels."""
    texts = [tick.label2 if side == "top" else tick.label1 for tick in axis.get_major_ticks()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts if text.get_visible()]
    return [(text, (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2) for text, box in boxes]


def check_labels(axes, keys, queries):
    """Each key stands over the middle of its column and each query beside that of its row."""
    tops = label_places(axes.xaxis, "top")
    assert [text for text, _, _ in tops] == list(keys)
    for key, (_, x, y) in enumerate(tops):
        assert abs(x - cell_centre(axes, 0, key)[0]) < 2.0
        assert y > axes.get_window_extent().y1
    lefts = label_places(axes.yaxis, "left")
    assert [text for text, _, _ in lefts] == list(queries)
    for query, (_, x, y) in enumerate(lefts):
        assert abs(y - cell_centre(axes, query, 0)[1]) < 4.0
        assert x < axes.get_window_extent().x0


def check_cells(axes, pixels, weights, top):
    """The image holds exactly the weights, and each cell has its colour in the middle."""
    image = axes.images[0]
    array = image.get_array()
    np.testing.assert_array_equal(array.data, weights)
    np.testing.assert_array_equal(np.ma.getmaskarray(array), weights == 0)
    for query, key in np.ndindex(*weights.shape):
        x, y = cell_centre(axes, query, key)
        found = pixels[pixels.shape[0] - 1 - int(y), int(x), :3]
        if weights[query, key] > 0:
            wanted = np.round(np.array(image.cmap(weights[query, key] / top)[:3]) * 255)
            assert np.abs(found - wanted).max() <= 3, (query, key)
        else:  # hatched: a grey
            assert found.max() - found.min() < 12, (query, key)
