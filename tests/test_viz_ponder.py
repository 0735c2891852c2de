import matplotlib
import numpy as np
import pytest
from matplotlib.collections import PatchCollection
from pictures import TRICKY, drawn, words
from PIL import Image

from graphformer.viz import halting_steps, save_animation, steps_animation, steps_over_training

HISTOGRAMS = np.array([[0, 2, 6], [3, 3, 2], [7, 1, 0]])  # (epochs, max_steps)


def panel(figure, side):
    (axes,) = (axes for axes in figure.axes if axes.get_gid() == side)
    return axes


def piles(axes):
    """How many filled blocks stand over each word, from what is drawn."""
    empty, full = (c for c in axes.collections if isinstance(c, PatchCollection))
    middles = [path.vertices[:4].mean(axis=0) for path in full.get_paths()]
    count = np.zeros(len(axes.get_xticks()), dtype=int)
    for x, _ in middles:
        count[round(x)] += 1
    return count.tolist(), len(empty.get_paths())


def test_each_word_has_a_pile_of_its_steps():
    steps = {"dec": np.array([2, 5]), "enc": np.array([3, 1, 4])}
    figure = halting_steps(
        steps, {"enc": ["c", "b", "a"], "dec": ["<sos>", "a"]}, max_steps=7, title="sort"
    )
    drawn(figure)
    assert [axes.get_gid() for axes in figure.axes] == ["enc", "dec"]
    for side, names in {"enc": ["c", "b", "a"], "dec": ["<sos>", "a"]}.items():
        axes = panel(figure, side)
        count, empty = piles(axes)
        assert count == steps[side].tolist()
        assert empty == 7 * len(names) - sum(count)
        assert [label.get_text() for label in axes.get_xticklabels()] == names
        for place, label in enumerate(axes.get_xticklabels()):
            box = label.get_window_extent()
            assert abs((box.x0 + box.x1) / 2 - axes.transData.transform((place, 0))[0]) < 2
        assert [text.get_text() for text in axes.texts] == [str(s) for s in count]
    assert any("2.67 on average" in text.get_text() for text in figure.texts)


@pytest.mark.parametrize("word", TRICKY)
def test_words_appear_as_typed(word):
    figure = halting_steps({"enc": [2]}, {"enc": [word]}, title=word)
    drawn(figure)
    assert [label.get_text() for label in panel(figure, "enc").get_xticklabels()] == [word]


@pytest.mark.parametrize("count", [1, 60])
def test_nothing_is_cut_off(count):
    names = [*words(count - 1), "Donaudampfschifffahrt"]
    figure = halting_steps({"enc": [3] * count}, {"enc": names}, max_steps=8, title="long enough")
    rows, columns = drawn(figure).shape[:2]
    for text in figure.findobj(matplotlib.text.Text):
        box = text.get_window_extent()
        if text.get_text() and text.get_visible():
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= columns and box.y1 <= rows, text


@pytest.mark.parametrize(
    ("steps", "names", "options", "says"),
    [
        ({}, {}, {}, "give at least one of enc, dec"),
        ({"src": [1]}, {"src": ["a"]}, {}, "no side 'src'; choose of enc, dec"),
        ({"enc": [1]}, {"dec": ["a"]}, {}, "words has no 'enc'"),
        (
            {"enc": [1, 2]},
            {"enc": ["a"]},
            {},
            "got 1 words, but there are 2 numbers in steps['enc']",
        ),
        ({"enc": [0]}, {"enc": ["a"]}, {}, "holds 0; a word takes at least one step"),
        ({"enc": [1.5]}, {"enc": ["a"]}, {}, "one whole number a word, got [1.5]"),
        ({"enc": []}, {"enc": []}, {}, "one whole number a word, got []"),
        ({"enc": [9]}, {"enc": ["a"]}, {"max_steps": 8}, "took 9 steps, more than max_steps 8"),
    ],
)
def test_steps_that_cannot_be_are_refused(steps, names, options, says):
    with pytest.raises(ValueError) as error:
        halting_steps(steps, names, **options)
    assert says in str(error.value)


def test_over_training_a_column_is_an_epoch_and_its_share_of_nodes():
    figure = steps_over_training({"enc": HISTOGRAMS, "dec": HISTOGRAMS[::-1]}, title="sort")
    drawn(figure)
    shares = np.array([[0, 0.25, 0.75], [0.375, 0.375, 0.25], [0.875, 0.125, 0]])
    for side, wanted in {"enc": shares, "dec": shares[::-1]}.items():
        axes = panel(figure, side)
        np.testing.assert_allclose(axes.images[0].get_array(), wanted.T)
        assert axes.images[0].get_extent() == [0.5, 3.5, 0.5, 3.5]  # steps and epochs start at 1
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3"]
        mean = wanted @ [1, 2, 3]
        np.testing.assert_allclose(axes.lines[-1].get_ydata(), mean)


@pytest.mark.parametrize("epochs", [1, 2, 60])
def test_any_number_of_epochs(epochs, tmp_path):
    histograms = np.tile([3, 1], (epochs, 1))
    drawn(steps_over_training(histograms))
    path = save_animation(steps_animation(histograms), tmp_path / "a.gif", dpi=40)
    with Image.open(path) as image:
        assert image.n_frames == epochs


def test_each_frame_shows_the_distribution_of_its_epoch():
    movie = steps_animation({"enc": HISTOGRAMS, "dec": HISTOGRAMS[::-1]}, title="sort")
    assert len(movie) == 3
    for epoch in range(3):
        figure = movie.draw(epoch)
        drawn(figure)
        for side, row in {"enc": HISTOGRAMS[epoch], "dec": HISTOGRAMS[2 - epoch]}.items():
            bars = panel(figure, side).patches
            assert [bar.get_height() for bar in bars] == (row / row.sum()).tolist()
            middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
            np.testing.assert_allclose(middles, [1, 2, 3])
        assert f"sort, epoch {epoch + 1} of 3" in [text.get_text() for text in figure.texts]


@pytest.mark.parametrize(
    ("histograms", "options", "says"),
    [
        ([1, 2], {}, "must have shape (epochs, max_steps), got (2,)"),
        (np.zeros((0, 3)), {}, "must have shape (epochs, max_steps), got (0, 3)"),
        ([[1, 2], [0, 0]], {}, "histograms[1] is empty"),
        ([[1, -2]], {}, "negative or not finite"),
        ({"enc": [[1]], "dec": [[1, 1]]}, {}, "the two sides must have one shape"),
        ({"src": [[1]]}, {}, "no side 'src'"),
        ([[1]], {"names": ["a", "b"]}, "got 2 names, but there are 1"),
    ],
)
@pytest.mark.parametrize("draw", [steps_over_training, steps_animation])
def test_histograms_that_cannot_be_are_refused(draw, histograms, options, says):
    with pytest.raises(ValueError) as error:
        draw(histograms, **options)
    assert says in str(error.value)
