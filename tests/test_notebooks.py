"""The notebooks are what `notebooks/build.py` says, and run from clean."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="the extra [notebooks] is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel", reason="the extra [notebooks] is not installed")

FOLDER = Path(__file__).parent.parent / "notebooks"


def build():
    spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = build()


@pytest.mark.parametrize("name", BUILD.NOTEBOOKS)
def test_committed_is_what_build_makes(name):
    committed = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    made = BUILD.notebook(BUILD.NOTEBOOKS[name])
    assert [cell.source for cell in committed.cells] == [cell.source for cell in made.cells]
    outputs = [output for cell in committed.cells for output in cell.get("outputs", [])]
    assert outputs and all(output.output_type != "error" for output in outputs)
    assert (FOLDER / f"{name}.ipynb").stat().st_size <= 2_000_000


@pytest.mark.filterwarnings("default")  # the kernel's client has warnings of its own
@pytest.mark.parametrize("name", BUILD.NOTEBOOKS)
def test_runs(name):
    BUILD.run(BUILD.notebook(BUILD.NOTEBOOKS[name]))
