"""Recipes: what is read, what is refused, and that nothing but a ValueError comes of any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphformer.recipe import parse_recipe, read_recipe, write_recipe

MINIMAL = '[data]\npreset = "copy"\ncodec = "space"\n'


def test_round_trip():
    recipe = parse_recipe(MINIMAL + "[train]\nclip_norm = 1\nbetas = [0.5, 0.9]\n", "r")
    assert recipe.train.clip_norm == 1.0 and recipe.train.betas == (0.5, 0.9)
    assert parse_recipe(write_recipe(recipe), "again") == recipe


def test_overrides_are_in_the_notation_of_the_file_or_bare_words():
    recipe = parse_recipe(
        MINIMAL,
        "r",
        ["train.epochs=3", "rate.name=noam", "model.universal=true", "loss.smoothing=0"],
    )
    assert recipe.train.epochs == 3 and recipe.rate.name == "noam"
    assert recipe.model.universal is True and recipe.loss.smoothing == 0.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[data]\npreset = 'words'\n", "r: data: preset is 'words', the choices are"),
        (MINIMAL + "[model]\nlayers = 3\n", "r: model: unknown key 'layers', known are N,"),
        (MINIMAL + "[model]\nN = '3'\n", "r: model.N: must be of type int, got '3'"),
        (MINIMAL + "[model]\nN = true\n", "r: model.N: must be of type int, got True"),
        (MINIMAL + "[train]\nepochs = 0\n", "r: train: epochs must be a whole number, at least 1"),
        (MINIMAL + "[nonsense]\n", "r: unknown key 'nonsense'"),
        (MINIMAL + "[decode]\nbeam = 0\n", "r: decode: beam is 0"),
        ("data = 3\n", "r: data: must be a table, got 3"),
        ("[data\n", "r: not a TOML file"),
        ("[data]\npreset = 'files'\n", "r: data: train is (), a source and a target file"),
        # Types and numbers that TOML has and a recipe does not want.
        (MINIMAL + "[train]\nepochs = 1979-05-27\n", "r: train.epochs: must be of type int, got"),
        (MINIMAL + "[train]\nepochs = 3.0\n", "r: train.epochs: must be of type int, got 3.0"),
        (MINIMAL + "[train]\nbetas = {}\n", "r: train.betas: must be of type tuple"),
        (MINIMAL + "[train]\nbetas = [[1], 2]\n", "r: train.betas: must be of type float"),
        (MINIMAL + "[train]\nbetas = []\n", "r: train: betas must be two numbers"),
        (MINIMAL + "[[train]]\n", "r: train: must be a table, got [{}]"),
        (MINIMAL + "[data.src]\n", "r: data.src: must be of type str, got {}"),
        (MINIMAL + f"[rate]\npeak = 1{'0' * 400}\n", "r: rate.peak: 1000"),
        (MINIMAL + f"[train]\nepochs = {'9' * 5000}\n", "r: not a TOML file"),
        (MINIMAL + f"[train]\nbetas = {'[' * 3000}\n", "r: not a TOML file (nested too deeply)"),
        (MINIMAL + "[decode]\nalpha = nan\n", "r: decode: alpha is nan"),
        (MINIMAL + "[decode]\nalpha = -1\n", "r: decode: alpha is -1.0"),
        (MINIMAL.replace("[data]", "[data]\nsize = 4000000000"), "r: data: size is 4000000000"),
    ],
)
def test_refused(text, says):
    with pytest.raises(ValueError) as error:
        parse_recipe(text, "r")
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    "change",
    [
        *["epochs=3", "train.epochs", "=3", "data.preset.x=1"],
        *["train.epochs=" + "9" * 5000, "train.epochs=" + "[" * 3000, "train.epochs=\0"],
    ],
)
def test_bad_override(change):
    with pytest.raises(ValueError, match="r: |override "):
        parse_recipe(MINIMAL, "r", [change])


def test_not_utf8(tmp_path):
    path = tmp_path / "r.toml"
    path.write_bytes(b"[data]\npreset = '\xff'\n")
    with pytest.raises(ValueError, match=r"r\.toml: not UTF-8"):
        read_recipe(path)


@given(st.text(max_size=60))
def test_any_text(text):
    try:
        parse_recipe(MINIMAL + text, "r")
    except ValueError as error:
        assert str(error).startswith("r")
