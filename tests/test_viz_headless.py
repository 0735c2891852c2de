"""Pictures need no display, leave the user's backend alone and no figure open."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import matplotlib
def settings():  # without looking the backend up, which would choose one
    return {name: matplotlib.rcParams._get(name) for name in matplotlib.rcParams}
before = settings()
from graphformer.viz import *
folder = sys.argv[1] + "/"
for _ in range(100):
    attention_map([[0.5, 0.5]], ["a", "b"], ["c"])
attention_map([[0.5, 0.5]], ["a", "b"], ["c"]).savefig(folder + "map.png")
attention_grid([[[[1.0]]]], ["a"], ["b"])._repr_png_()
attention_graph(["a"], ["b"], {"ed": [[1.0]]}).savefig(folder + "graph.pdf")
halting_steps({"enc": [2]}, {"enc": ["a"]}).savefig(folder + "steps.svg")
steps_over_training([[1, 2]])._repr_png_()
for name in ("a.gif", "a.html"):
    movie = att_animation([{"ed": [[[1.0]]]}] * 2, "ed", ["a"], ["b"])
    save_animation(movie, folder + name)
steps_animation([[1, 2]]).to_html()
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
if before["backend"] != "TkAgg":
    import matplotlib.pyplot
    assert matplotlib.pyplot.get_fignums() == []
"""


@pytest.mark.parametrize("backend", [None, "TkAgg"])
def test_no_display_no_pyplot_no_open_figure(backend, tmp_path):
    clean = ("MPLBACKEND", "DISPLAY", "WAYLAND_DISPLAY")
    environment = {name: value for name, value in os.environ.items() if name not in clean}
    if backend:
        environment["MPLBACKEND"] = backend
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["a.gif", "a.html", "graph.pdf", "map.png", "steps.svg"]
