"""What is declared is what is imported, and what does not fit is refused in one message."""

import ast
import configparser
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from graphformer import _versions

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.10", "3.11")
EXTRAS = ("test", "lint", "notebooks", "moses", "tensorboard")
# Where the name to import is not the one to install.
DISTRIBUTIONS = {"PIL": "pillow"}


def declared(extra=None):
    """The requirements in setup.cfg, by name."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    if extra is None:
        text = config["options"]["install_requires"]
    else:
        text = config["options.extras_require"][extra]
    lines = [Requirement(line) for line in text.splitlines() if line]
    return {canonicalize_name(line.name): line for line in lines}


def pinned(python):
    """The tested versions in constraints.txt for one Python: name to version."""
    versions = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(
                {"python_version": python, "python_full_version": f"{python}.0"}
            ):
                (clause,) = requirement.specifier
                assert clause.operator == "=="
                assert requirement.name not in versions, f"{requirement.name} twice"
                versions[requirement.name] = clause.version
    return versions


# --- the declarations ----------------------------------------------------------------------


def test_the_check_at_import_wants_what_setup_cfg_declares():
    requirements = declared()
    for name, wanted in _versions.WANTED.items():
        assert SpecifierSet(wanted) == requirements[name].specifier, name


@pytest.mark.parametrize("python", PYTHONS)
def test_the_tested_set_lies_in_the_declared_ranges(python):
    versions = pinned(python)
    for extra in (None, *EXTRAS):
        for name, requirement in declared(extra).items():
            if requirement.marker is None or requirement.marker.evaluate(
                {"python_version": python}
            ):
                assert requirement.specifier.contains(versions[name]), f"{name} {versions[name]}"


def test_the_tested_numpy_is_named_for_each_python():
    assert pinned("3.10")["numpy"].startswith("2.2.")
    assert pinned("3.11")["numpy"].startswith("2.4.")


def test_what_dgl_forgets_is_declared():
    undeclared = "packaging"
    assert undeclared in declared()
    needs = {canonicalize_name(Requirement(line).name) for line in metadata.requires("dgl")}
    assert undeclared not in needs, "DGL declares it now: drop this test and the comment"


@pytest.mark.parametrize(
    ("name", "version"), [("dgl", "2.1.0"), ("torchtext", "0.18.0"), ("torch", "2.12.1")]
)
def test_what_does_not_fit_is_excluded_by_the_metadata(name, version):
    assert not declared()[name].specifier.contains(version)


def third_party_imports(folder):
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        own = {file.stem for file in path.parent.iterdir()} | {"graphformer", "tests", "benchmarks"}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            else:
                continue
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - own:
                distribution = canonicalize_name(DISTRIBUTIONS.get(name, name))
                found.setdefault(distribution, path.relative_to(ROOT))
    return found


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("graphformer", ["moses", "tensorboard"]),
        ("examples", ["notebooks"]),
        ("benchmarks", ["bench"]),
        ("tests", EXTRAS),
    ],
)
def test_everything_imported_is_declared(folder, extras):
    known = set().union(*(declared(extra) for extra in (None, *extras)))
    if "tomli" in known:
        known.add("tomllib")  # the same in the standard library, from Python 3.11
    found = third_party_imports(folder).items()
    missing = {name: str(path) for name, path in found if name not in known}
    assert not missing, "declare it in setup.cfg, and pin it in constraints.txt"


# --- the check at import -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("2.13.0+cpu", ">=2.13,<3", True),
        ("2.13", ">=2.13.0,<3", True),
        ("2.13.0a0+git1f2e", ">=2.13,<3", True),
        ("2.12.9", ">=2.13,<3", False),
        ("2.9.1", ">=2.13,<3", False),
        ("3.0.0", ">=2.13,<3", False),
        ("1.1.3", "==1.1.3", True),
        ("1.1.3.post1", "==1.1.3", True),
        ("1.1.30", "==1.1.3", False),
        ("0.6.0", "==0.6.0", True),
        ("0.6", "==0.6.0", True),
        ("0.18.0", "==0.6.0", False),
        ("26.4", ">=23", True),
        ("2.5.0rc1", ">=2.2,<2.5", False),
        ("junk", ">=23", False),
    ],
)
def test_ranges(version, wanted, fits):
    assert _versions._fits(version, wanted) is fits


def put_package(folder, name, version, source=None):
    """Lays a package into a folder: its metadata and, where given, the text of its __init__."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(text, encoding="utf-8")
    if source is not None:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(source, encoding="utf-8")


def run_import(first_on_path, code="import graphformer", **environment):
    """Runs code in a new Python that looks into a folder before all else."""
    path = os.pathsep.join([str(first_on_path), str(ROOT)])
    kept = {name: value for name, value in os.environ.items() if name != "DGLBACKEND"}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=first_on_path,
        env=kept | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def the_one_message(done):
    """The error's only line, after a trace that does not leave this package."""
    assert done.returncode == 1
    trace, _, message = done.stderr.strip().rpartition("\n")
    assert message.startswith("ImportError: graphformer cannot ")
    places = [line for line in trace.splitlines() if line.startswith("  File ")]
    assert all("graphformer" in place or "<string>" in place for place in places), trace
    assert "another exception" not in trace and "direct cause" not in trace
    return message


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        ("dgl", "2.1.0", "dgl==1.1.3"),
        ("torchtext", "0.18.0", "torchtext==0.6.0"),
        ("torch", "2.12.1+cu130", "torch>=2.13,<3"),
        ("numpy", "1.26.4", "numpy>=2.2,<2.5"),
    ],
)
def test_a_wrong_version_gives_one_message(tmp_path, name, version, wanted):
    # The package itself would fail deep inside: it must not be reached.
    put_package(tmp_path, name, version, source="raise OSError('libnative.so: not found')")
    message = the_one_message(run_import(tmp_path))
    assert f"found {name} {version}; wanted {wanted}." in message
    assert "python -m pip install" in message and "libnative" not in message


def test_all_that_does_not_fit_is_named_at_once(tmp_path):
    put_package(tmp_path, "dgl", "2.1.0")
    put_package(tmp_path, "torchtext", "0.18.0")
    message = the_one_message(run_import(tmp_path))
    assert "found dgl 2.1.0, torchtext 0.18.0; wanted dgl==1.1.3, torchtext==0.6.0." in message
    assert message.endswith('To mend it: python -m pip install "dgl==1.1.3" "torchtext==0.6.0"')


@pytest.mark.parametrize("problem", [metadata.PackageNotFoundError("packaging"), None])
def test_a_missing_package_gives_one_message(monkeypatch, problem):
    real = metadata.version

    def version(name):
        if name != "packaging":
            return real(name)
        if problem is not None:
            raise problem
        return None  # a metadata folder that is there, but half removed

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(ImportError, match="found packaging missing; wanted packaging>=23. To mend"):
        _versions.check_versions()


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise OSError('libdgl.so: not found\\nmore')", "(OSError: libdgl.so: not found)"),
        ("import nowhere.to_be_found", "(ModuleNotFoundError: No module named 'nowhere')"),
        (
            "import torch; torch.of_old",
            "(AttributeError: module 'torch' has no attribute 'of_old')",
        ),
    ],
)
def test_a_broken_dgl_gives_one_message(tmp_path, source, cause):
    put_package(tmp_path, "dgl", "1.1.3", source)
    message = the_one_message(run_import(tmp_path))
    assert f"cannot import dgl 1.1.3, which seems broken {cause}." in message
    assert "--force-reinstall" in message and '"dgl==1.1.3"' in message


@pytest.mark.parametrize("running", [(3, 9), (3, 12), (2, 7), (4, 10)])
def test_another_python_is_named(running):
    with pytest.raises(ImportError, match=r"on Python \d\.\d+: wanted Python 3.10 or 3.11"):
        _versions._check_python(running)


def test_another_backend_is_refused(tmp_path):
    message = the_one_message(run_import(tmp_path, DGLBACKEND="tensorflow"))
    assert "DGLBACKEND=tensorflow: wanted pytorch" in message


def test_importing_says_nothing_and_leaves_the_home_folder_alone(tmp_path):
    code = "import graphformer; print(graphformer.__version__)"
    done = run_import(tmp_path, code, HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [_versions.__version__]
    assert not list(tmp_path.iterdir())
