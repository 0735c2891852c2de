"""The notebooks are what `notebooks/build.py` says, and run from clean."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("nbclient", reason="the extra [notebooks] is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel", reason="the extra [notebooks] is not installed")

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
NEEDED = {"03_multi30k_attention": ROOT / "examples" / "pretrained" / "multi30k-en-de"}


def build():
    spec = importlib.util.spec_from_file_location("build", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = build()
each = pytest.mark.parametrize("name", BUILD.NOTEBOOKS)


def test_every_notebook_has_its_text():
    assert sorted(BUILD.NOTEBOOKS) == sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    assert set(BUILD.SHORT) <= set(BUILD.NOTEBOOKS)


@each
def test_committed_is_what_build_makes(name):
    committed = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    made = BUILD.notebook(BUILD.NOTEBOOKS[name])
    assert [cell.source for cell in committed.cells] == [cell.source for cell in made.cells]
    outputs = [output for cell in committed.cells for output in cell.get("outputs", [])]
    assert outputs and all(output.output_type != "error" for output in outputs)
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert (FOLDER / f"{name}.ipynb").stat().st_size <= 2_000_000


@each
def test_begins_with_a_sentence_on_what_one_will_see(name):
    first = BUILD.notebook(BUILD.NOTEBOOKS[name]).cells[0]
    title, empty, sentence = first.source.split("\n", 2)
    assert first.cell_type == "markdown" and title.startswith("# ") and not empty
    assert sentence.startswith("You will see") and sentence.count(". ") == 0


@pytest.mark.parametrize("name", BUILD.SHORT)
def test_short_form_changes_parameters_that_are_there(name):
    plain, short = (BUILD.notebook(BUILD.NOTEBOOKS[name], s) for s in ("", BUILD.SHORT[name]))
    added = [cell.source for cell in short.cells]
    at = added.index(BUILD.SHORT[name])
    assert added[:at] + added[at + 1 :] == [cell.source for cell in plain.cells]
    settings, changed = {}, {}
    exec(added[at - 1], settings)
    exec(BUILD.SHORT[name].removeprefix(BUILD.FEW), changed)
    assert set(changed) <= set(settings)


@pytest.mark.filterwarnings("default")  # the kernel's client has warnings of its own
@each
def test_runs(name):
    if name in NEEDED and not NEEDED[name].is_dir():
        pytest.skip(f"there is no trained model in {NEEDED[name].relative_to(ROOT)}")
    short = BUILD.SHORT.get(name, "")
    made = BUILD.run(BUILD.notebook(BUILD.NOTEBOOKS[name], short), timeout=600)
    outputs = [output for cell in made.cells for output in cell.get("outputs", [])]
    assert outputs and all(output.output_type != "error" for output in outputs)
