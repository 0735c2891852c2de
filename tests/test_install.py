"""An install into an empty environment works at the first try, with what we declare alone."""

import os
import shutil
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
# Gigabytes in a CUDA build: lent from the environment that runs the tests. All else is installed.
LENT = ("torch", "triton", "nvidia-", "cuda-")

ONE_STEP = """
import numpy, torch, graphformer as gf
batch = gf.GraphPool()([[4, 5, 6], [7, 4]], [[0, 4, 5, 6, 1], [0, 7, 4, 1]])
model = gf.make_model(11, 11, N=1, dim_model=6, dim_ff=5, h=2)
optimiser = torch.optim.Adam(model.parameters())
before = [parameter.clone() for parameter in model.parameters()]
output = model(batch)
loss = torch.nn.functional.cross_entropy(output.logits, batch.tgt_y) + output.act_loss
loss.backward()
optimiser.step()
assert all((new != old).any() for new, old in zip(model.parameters(), before, strict=True))
with gf.record_attention(model) as records:
    model(batch)
attention = records.dense("ed", sample=1).numpy()
assert type(attention) is numpy.ndarray and attention.shape == (2, 3, 2)
print(numpy.__version__)
"""


def lent_names(name="torch"):
    """The distributions of an installed torch that are lent, itself among them."""
    names = {name}
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        wanted = requirement.marker is None or any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
        )
        needed = canonicalize_name(requirement.name)
        if wanted and needed.startswith(LENT):
            try:
                names |= lent_names(needed)
            except metadata.PackageNotFoundError:
                continue
    return names


def lend(site):
    """Links torch and the libraries of its CUDA build into another environment."""
    for name in lent_names():
        files = metadata.distribution(name).files or ()
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            source = metadata.distribution(name).locate_file(top)
            if not (site / top).exists() and source.exists():
                (site / top).symlink_to(source)


def run(*command):
    """Runs a command away from this checkout, whose own metadata must not be seen."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of an empty environment into which the package alone was installed."""
    folder = tmp_path_factory.mktemp("install")
    source = folder / "source"
    shutil.copytree(
        ROOT / "graphformer", source / "graphformer", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("datasets", "tests", "examples"):  # what must not come along
        (source / name).mkdir()
        (source / name / "__init__.py").touch()

    venv.create(folder / "venv", with_pip=True, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (site,) = (folder / "venv").glob("lib/python3.*/site-packages")
    lend(site)
    pip = [python, "-m", "pip", "install", "--no-input", "--no-compile", "--retries=1"]
    # One small package tells whether an index can be reached at all.
    if run(*pip, "--timeout=20", "packaging").returncode != 0:
        pytest.skip("no package index can be reached")
    assert run(python, "-m", "pip", "uninstall", "-y", "packaging").returncode == 0
    done = run(*pip, "--constraint", ROOT / "constraints.txt", source)
    assert done.returncode == 0, done.stderr
    # As pip does with all it installs, which takes long. DGL needs it: it has escapes in strings
    # that Python warns of when it compiles them.
    run(python, "-m", "compileall", "-q", site / "dgl")
    yield python
    shutil.rmtree(folder)  # it is large


@pytest.mark.slow
def test_import_and_one_step_work_with_warnings_as_errors(installed):
    done = run(installed, "-W", "error", "-c", ONE_STEP)
    assert (done.returncode, done.stderr) == (0, "")
    picked = {(3, 10): "2.2.", (3, 11): "2.4."}[sys.version_info[:2]]
    assert done.stdout.startswith(picked)


@pytest.mark.slow
def test_nothing_but_the_package_and_its_command_is_installed(installed):
    code = "from importlib.metadata import files; print(*files('graphformer'), sep='\\n')"
    names = run(installed, "-c", code).stdout.split()
    tops = {Path(name).parts[0] for name in names} - {".."}
    assert {top.partition("-")[0] for top in tops} == {"graphformer"}
    assert "../../../bin/graphformer" in names and "graphformer/py.typed" in names
    assert not [name for name in names if "datasets" in name]


@pytest.mark.slow
def test_what_is_installed_fits_together(installed):
    # The lent torch is not asked for: its own needs are met where it comes from.
    broken = [
        line
        for line in run(installed, "-m", "pip", "check").stdout.splitlines()
        if not line.startswith(LENT) and line != "No broken requirements found."
    ]
    assert not broken


@pytest.mark.slow
def test_without_packaging_one_message_says_so(installed):
    assert run(installed, "-m", "pip", "uninstall", "-y", "packaging").returncode == 0
    done = run(installed, "-c", "import graphformer")
    assert done.returncode == 1
    message = done.stderr.strip().splitlines()[-1]
    assert message.startswith("ImportError: graphformer cannot run with what is installed")
    assert "found packaging missing" in message and 'pip install "packaging>=23"' in message
    assert "/dgl/" not in done.stderr
