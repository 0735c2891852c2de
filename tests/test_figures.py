"""What the notebooks and the pictures of the README share."""

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import graphformer as gf
from graphformer import tasks

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ("costs", "figures", "make_figures", "toy")


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield importlib.import_module("figures")
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.fixture
def costs(figures):
    return importlib.import_module("costs")


class Letters:
    """A codec of letters: `a` is 4."""

    size = 11

    def encode(self, text):
        return [ord(letter) - ord("a") + 4 for letter in text.split()]

    def pieces(self, text):
        return text.split()


def universal(**settings):
    torch.manual_seed(3)
    return gf.make_model(11, 11, dim_model=6, dim_ff=5, h=3, universal=True, **settings)


def test_maps_of_a_pair_are_those_that_were_used(figures):
    model = gf.make_model(11, 11, N=2, dim_model=14, dim_ff=5, h=7).train()
    maps = figures.maps_of(model, Letters(), "a b c d e", "d e")
    assert model.training
    assert (maps.src, maps.tgt) == (list("abcde"), ["<sos>", "d", "e"])
    shapes = {"ee": (7, 5, 5), "ed": (7, 3, 5), "dd": (7, 3, 3)}
    for kind, layers in maps.layers.items():
        assert [layer.shape for layer in layers] == [shapes[kind]] * 2
        mean = (layers[0] + layers[1]).mean(0) / 2
        np.testing.assert_allclose(maps.mean()[kind], mean, rtol=1e-5)
        np.testing.assert_allclose(maps.mean()[kind].sum(-1), 1, rtol=1e-5)
        assert maps.last()[kind] is layers[1]
    assert (maps.mean()["dd"][np.triu_indices(3, 1)] == 0).all()


def test_words_lose_their_mark_and_pieces_get_a_hyphen(figures):
    codec = SimpleNamespace(pieces=lambda text: ["\u2581a", "\u2581pud", "dle", "\u2581", "."])
    assert figures.words_of(codec, "") == ["a", "pud", "-dle", "_", "-."]
    assert figures.words_of(Letters(), "a b") == ["a", "b"]


def test_series_draws_each_map_as_it_is(figures):
    maps = [np.array([[0.25, 0.75, 0.0]]), np.array([[0.5, 0.0, 0.5]]), np.array([[0, 1.0, 0]])]
    figure = figures.series(maps, ["one", "two", "three"], list("abc"), ["x"], columns=2)
    shown = {axes.get_gid(): axes.images[0].get_array() for axes in figure.axes if axes.get_gid()}
    assert list(shown) == ["one", "two", "three"]
    for drawn, right in zip(shown.values(), maps, strict=True):
        assert drawn.filled(0).tolist() == right.tolist()


def test_another_rule_with_the_same_weights(figures, costs):
    model = universal(max_depth=5, halting_bias=-3.0).eval()
    recipe = SimpleNamespace(model=gf.ModelConfig(
        dim_model=6, dim_ff=5, h=3, universal=True, max_depth=5, halting_bias=-3.0
    ))  # fmt: skip
    run = SimpleNamespace(model=model, recipe=recipe, codec=Letters())
    other = costs.with_rule(run, max_depth=2)
    assert (model.rule.max_depth, other.rule.max_depth) == (5, 2)
    assert all(torch.equal(w, other.state_dict()[name]) for name, w in model.state_dict().items())
    pairs = [("a b c", "a b c"), ("d e", "d e")]
    cost = costs.cost_of("at most 2", other, Letters(), pairs)
    assert (cost.enc, cost.dec) == (2.0, 2.0) and cost.seconds > 0
    steps = figures.steps_of(other, Letters(), "a b c", "d e")
    assert {side: taken.tolist() for side, taken in steps.items()} == {
        "enc": [2, 2, 2], "dec": [2, 2, 2],
    }  # fmt: skip
    assert len(figures.halting_figure(other, Letters(), pairs[0]).axes) == 2


def test_cost_counts_right_strings(figures, costs):
    copied = SimpleNamespace(
        ponder=gf.Ponder({"enc": torch.tensor([1, 2]), "dec": torch.tensor([4])}, 5),
        infer=lambda src, k: [[SimpleNamespace(ids=ids[:2])] for ids in src],
    )

    class Model:
        ponder, infer = copied.ponder, staticmethod(copied.infer)

        def __call__(self, batch):
            assert batch.tgt_lens.tolist() == [3, 4]

    cost = costs.cost_of("x", Model(), Letters(), [("a b", "a b"), ("a b c", "a b c")])
    assert (cost.enc, cost.dec, cost.exact) == (1.5, 4.0, 0.5)
    table = costs.cost_table([cost]).splitlines()
    assert len(table) == 3 and table[2].startswith("| x | 1.50 | 4.00 |")
    assert table[2].endswith("| 50.0% |")
    drawn = costs.cost_figure({"one": [cost], "two": [cost, cost]})
    assert [list(line.get_ydata()) for line in drawn.axes[0].lines] == [[0.5], [0.5, 0.5]]
    assert figures.stacked([drawn, drawn], dpi=50).shape == (380, 320, 4)


def test_histograms_have_a_row_an_epoch(figures):
    one = gf.Ponder({"enc": torch.tensor([1, 1]), "dec": torch.tensor([3])}, 3)
    two = gf.Ponder({"enc": torch.tensor([2]), "dec": torch.tensor([3, 1])}, 3)
    found = {side: rows.tolist() for side, rows in figures.histograms([one, two]).items()}
    assert found == {"enc": [[2, 0, 0], [0, 1, 0]], "dec": [[0, 0, 1], [1, 0, 1]]}


def test_names_of_points_that_coincide_are_joined(costs):
    points = [
        costs.Cost(f"at most {n}", 1.0, steps, 1.0, 1.0, exact)
        for n, steps, exact in ((1, 1.0, 0.5), (2, 3.0, 0.7), (5, 3.0, 0.7), (7, 3.01, 0.7))
    ]
    texts = [text.get_text() for text in costs.cost_figure({"limits": points}).axes[0].texts]
    assert texts == ["1", "2 to 7"]


def test_epoch_table_has_a_row_an_epoch(figures):
    steps = gf.Ponder({"enc": torch.tensor([1, 2]), "dec": torch.tensor([3])}, 3)
    table = figures.epoch_table([steps, steps], [SimpleNamespace(accuracy=a) for a in (0.5, 1)])
    assert table.splitlines()[2:] == [
        "| 1 | 1.50 | 3.00 | 50.00% |",
        "| 2 | 1.50 | 3.00 | 100.00% |",
    ]


def test_pictures_of_the_toy_tasks(figures, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "SIZES", {"train": 37, "valid": 5, "test": 7})
    module = importlib.import_module("make_figures")
    read = module.read_recipe

    def short(path):
        recipe = read(path)
        return replace(recipe, train=replace(recipe.train, epochs=2))

    monkeypatch.setattr(module, "read_recipe", short)
    module.main(["copy", "steps", "--out", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copy.gif",
        "graph.png",
        "steps.png",
    ]


def test_without_the_trained_model_its_picture_is_left_alone(
    figures, tmp_path, monkeypatch, capsys
):
    module = importlib.import_module("make_figures")
    monkeypatch.setattr(module, "PRETRAINED", tmp_path / "nowhere")
    module.main(["heads", "--out", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
    assert "nowhere" in capsys.readouterr().out


def test_a_picture_that_is_not_there_is_named(figures, tmp_path, capsys):
    module = importlib.import_module("make_figures")
    with pytest.raises(SystemExit):
        module.main(["tails", "--out", str(tmp_path)])
    assert "tails" in capsys.readouterr().err
