"""The layout holds: who may import whom, no cycles, nothing heavy at import, small pieces."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "graphformer"

# Each side of the package in order: a module may import those before it in its own side, and
# any of the sides that its side may use. A folder such as viz/ counts as one module.
SIDES = {
    "base": ["_versions", "limits", "atomic", "lock", "files"],
    "model": [
        *["dropout", "bands", "checks", "edges", "patterns", "graph", "windows", "blocks"],
        *["message", "attention", "frames", "multihead", "maps", "halting", "embeddings"],
        *["layers", "cache", "beam", "decode", "transformer", "universal", "build"],
    ],
    "data": ["vocab", "text", "codec", "corpus", "tasks", "batching", "multi30k"],
    "training": [
        *["loss", "schedule", "metrics", "state", "averaging", "checkpoint", "metricslog"],
        *["runfolder", "optimizer", "trainconfig", "evaluation", "update", "train", "callbacks"],
    ],
    "top": ["__init__"],
    "leaves": ["viz", "recipe", "dataset", "experiment", "show", "cli", "__main__"],
}
MAY_USE = {
    "base": {"base"},
    "model": {"base", "model"},
    "data": {"base", "data"},
    "training": {"base", "training"},
    "top": {"base", "model", "data", "training", "top"},
    "leaves": {"base", "model", "data", "training", "top", "leaves"},
}
SIDE_OF = {module: side for side, modules in SIDES.items() for module in modules}
PLACE = {module: place for modules in SIDES.values() for place, module in enumerate(modules)}

MAY_PRINT = {"cli", "__main__"}
SLOW_TO_IMPORT = {"matplotlib", "torchtext", "sentencepiece", "sacrebleu"}
MOST_LINES_IN_A_FILE = 300
MOST_LINES_IN_A_FUNCTION = 60
MOST_CONSTRUCTOR_ARGUMENTS = 12

FILES = sorted(PACKAGE.rglob("*.py"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def dotted(path: Path) -> str:
    """The name a file is imported by: graphformer/viz/__init__.py is graphformer.viz."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {dotted(path): path for path in FILES}


def unit(module: str) -> str:
    """The name of a module in SIDES: graphformer.viz.style belongs to viz."""
    return module.split(".")[1] if "." in module else "__init__"


def base_of(path: Path, node: ast.ImportFrom) -> str:
    """The absolute name of what stands between `from` and `import`."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(ROOT).parent.parts
    return ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])


def imports(path: Path, nodes=None) -> set[str]:
    """The modules of this package that a file imports, those inside functions included."""
    names = set()
    for node in ast.walk(tree(path)) if nodes is None else nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = base_of(path, node)
            inner = {f"{base}.{alias.name}" for alias in node.names} & MODULES.keys()
            # `from graphformer import edges` is about edges, not about all of graphformer.
            names |= inner if len(inner) == len(node.names) else inner | {base}
    return {name for name in names if name.split(".")[0] == "graphformer"}


def fault(importer: str, imported: str) -> str | None:
    """Says why one module must not import another, or None where it may."""
    for module in (importer, imported):
        if module not in SIDE_OF:
            return (
                f"{module} has no place yet: add it to SIDES in tests/test_architecture.py, "
                f"after all that it imports"
            )
    side, other = SIDE_OF[importer], SIDE_OF[imported]
    if other not in MAY_USE[side]:
        return f"{importer} ({side}) must know nothing of {imported} ({other})"
    if side == other and importer != imported and PLACE[imported] > PLACE[importer]:
        return f"{importer} stands below {imported} in SIDES and must not import it"
    return None


@pytest.mark.parametrize(
    ("importer", "imported", "says"),
    [
        ("layers", "attention", None),
        ("edges", "attention", "edges stands below attention"),
        ("train", "transformer", "train (training) must know nothing of transformer (model)"),
        ("vocab", "graph", "must know nothing"),
        ("build", "viz", "must know nothing"),
        ("__init__", "cli", "must know nothing"),
        ("cli", "viz", None),
        ("novelty", "edges", "novelty has no place yet: add it to SIDES"),
    ],
)
def test_rules_say_what_they_mean(importer, imported, says):
    found = fault(importer, imported)
    assert found is None if says is None else says in found


@each_file
def test_imports_follow_the_layers(path):
    importer = unit(dotted(path))
    faults = {fault(importer, unit(imported)) for imported in imports(path)}
    assert not (faults | {fault(importer, importer)}) - {None}


def test_no_import_cycle():
    # At the top of each file only: what a function imports when it runs closes no cycle.
    ahead = {
        name: imports(path, tree(path).body) & MODULES.keys() for name, path in MODULES.items()
    }
    done = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for imported in sorted(ahead[name]):
                visit(imported, [*trail, name])
            done.add(name)

    for name in sorted(ahead):
        visit(name, [])


@each_file
def test_no_wildcard_import_and_no_global(path):
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.Global), f"line {node.lineno}: global"
        if isinstance(node, ast.ImportFrom):
            assert all(alias.name != "*" for alias in node.names), f"line {node.lineno}: import *"


@each_file
def test_only_the_command_line_prints(path):
    lines = [
        node.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert not lines or unit(dotted(path)) in MAY_PRINT, f"print in lines {lines}: use logging"


@each_file
def test_a_file_is_one_idea(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES_IN_A_FILE, f"{lines} lines: split it"


@each_file
def test_functions_are_short(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                # A thorough docstring is no reason to cut a function up.
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            assert lines <= MOST_LINES_IN_A_FUNCTION, f"{node.name} has {lines} lines: split it"


@each_file
def test_constructors_take_few_arguments(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            count = len(names) - 1  # without self
            assert count <= MOST_CONSTRUCTOR_ARGUMENTS, f"line {node.lineno}: {count} arguments"


def test_importing_the_package_loads_nothing_that_can_wait():
    code = "import sys, graphformer; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "graphformer" in loaded
    assert not loaded & SLOW_TO_IMPORT
