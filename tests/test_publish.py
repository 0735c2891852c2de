"""A run made small: the same translations from a tenth of the files."""

import subprocess
import sys

import pytest
import torch
from realdata import ROOT

from graphformer.experiment import Experiment, TrainedRun
from graphformer.recipe import parse_recipe
from graphformer.runfolder import RunFolder

RECIPE = """
[data]
preset = "copy"
codec = "space"
[model]
N = 1
dim_model = 8
dim_ff = 8
h = 1
[train]
epochs = 2
max_steps = 3
validate_every = 2
save_every = 1
[decode]
average = 2
"""


def publish(*arguments):
    command = [sys.executable, str(ROOT / "tools" / "publish.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("publish")
    experiment = Experiment(parse_recipe(RECIPE, "here"), folder / "run")
    assert len(list(experiment.fit())) == 3
    experiment.finish()
    return folder


def test_the_copy_holds_the_mean_in_16_bits_and_a_line_a_validation(folder):
    done = publish(folder / "run", folder / "small")
    assert done.returncode == 0, done.stderr
    run, small = RunFolder.open(folder / "run"), RunFolder.open(folder / "small")
    assert small.config == run.config and small.files == run.files and small.steps() == []
    for name, weight in run.average(2).items():
        assert torch.equal(small.read_model()[name], weight.half())
    records, wanted = small.log.records(), run.log.records()
    assert [record["step"] for record in records] == [2, 3]  # the last update is validated too
    assert records[0]["tokens"] == wanted[0]["tokens"] + wanted[1]["tokens"]
    total = sum(record["loss"] * record["tokens"] for record in wanted[:2])
    assert records[0]["loss"] == pytest.approx(total / records[0]["tokens"], abs=1e-5)
    assert TrainedRun(folder / "small").translate_lines(["a b c"], max_len=2)


def test_a_recipe_of_another_model_is_refused(folder):
    other = folder / "other.toml"
    other.write_text(RECIPE.replace("dim_ff = 8", "dim_ff = 9"), encoding="utf-8")
    done = publish(folder / "run", folder / "never", "--recipe", other)
    assert done.returncode != 0 and "is not the recipe" in done.stderr
    assert not (folder / "never").exists()
