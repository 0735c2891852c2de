"""A small run with every kind of file, and its commands, for tests of what is damaged."""

import io
import json
import sys

from graphformer.cli import main

PAIRS = ["a b c", "b c", "c a b", "a a", "b a c c"]
RECIPE = """
[data]
preset = "files"
train = [{src}, {tgt}]
test = [{src}, {tgt}]
codec = "bpe"
size = 12
[model]
N = 1
dim_model = 6
dim_ff = 5
h = 2
[train]
epochs = 2
keep = 2
seed = {seed}
[decode]
average = 1
beam = 1
"""


def write_recipe(folder, seed=1):
    folder.mkdir(exist_ok=True)
    src, tgt = folder / "a.src", folder / "b.tgt"
    src.write_text("".join(f"{line}\n" for line in PAIRS), encoding="utf-8")
    tgt.write_text("".join(f"{line[::-1]}\n" for line in PAIRS), encoding="utf-8")
    path = folder / "recipe.toml"
    names = {"src": json.dumps(str(src)), "tgt": json.dumps(str(tgt)), "seed": seed}
    path.write_text(RECIPE.format(**names), encoding="utf-8")
    return path


def train(recipe, out, *more):
    return main(["train", str(recipe), "--out", str(out), "--quiet", *more])


def contents(folder):
    """Every file of a folder; a folder without files counts too."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


def commands(recipe, run, monkeypatch):
    """What a user may do with a run, by name; each gives an exit code."""

    def translate():
        stdin = io.TextIOWrapper(io.BytesIO(b"a b\nc\n"), encoding="utf-8")
        monkeypatch.setattr(sys, "stdin", stdin)
        return main(["translate", "--model", str(run), "--quiet"])

    return {
        "resume": lambda: train(recipe, run, "--resume"),
        "translate": translate,
        "evaluate": lambda: main(["evaluate", "--model", str(run), "--quiet"]),
        "info": lambda: main(["info", "--model", str(run), "--quiet"]),
    }
