"""Write the notebooks from the texts in ``cells`` and run them: ``python notebooks/build.py``.

The text of a notebook is reviewed there, where a change is readable; the ``.ipynb`` files are
products, committed with their outputs so that they can be read without running. Names of notebooks
choose some of them: ``python notebooks/build.py 02_copy_task``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
NOTEBOOKS = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("cells/*.txt"))
}
PARAMETERS = "# Parameters"
FEW = "from graphformer import tasks\ntasks.SIZES.update(train=900, valid=50, test=20)\n"
#: What the tests put after the cell of parameters, so that a notebook is done in seconds.
SHORT = {
    "02_copy_task": FEW + "EPOCHS = 3",
    "04_adaptive_universal_transformer": (
        FEW + "EPOCHS, DEPTHS, THRESHOLDS = 2, (1, 8), (0.5, 0.99)"
    ),
}


def notebook(text: str, short: str = "") -> nbformat.NotebookNode:
    """Make a notebook that has not been run.

    Args:
        text: cells, divided by ``---``; one that begins like text is text, the others are code.
        short: code that changes the parameters, run after the cell that sets them.
    """
    cells = []
    for part in text.strip().split("\n---\n"):
        if part.startswith(PARAMETERS):
            cells.append(nbformat.v4.new_code_cell(part))
            if short:
                cells.append(nbformat.v4.new_code_cell(short))
        elif part[0] == "#" or (part[0].isupper() and part.rstrip().endswith(".")):
            cells.append(nbformat.v4.new_markdown_cell(part))
        else:
            cells.append(nbformat.v4.new_code_cell(part))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same each time, for a readable history
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return made


def run(
    made: nbformat.NotebookNode, folder: Path = FOLDER, timeout: float = 3600
) -> nbformat.NotebookNode:
    """Run all cells in a fresh kernel; an error in a cell is an error here.

    Args:
        made: the notebook; its outputs are replaced.
        folder: where its kernel runs.
        timeout: the most seconds that one cell may take.
    """
    client = NotebookClient(made, timeout=timeout, resources={"metadata": {"path": str(folder)}})
    return client.execute()


def main(names: Sequence[str] = ()) -> None:
    """Build and run those that are named, or all of them."""
    for name in names or NOTEBOOKS:
        made = run(notebook(NOTEBOOKS[name]))
        for cell in made.cells:
            cell.metadata.pop("execution", None)  # times of day say nothing
        nbformat.write(made, FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main(sys.argv[1:])
