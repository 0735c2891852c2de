"""Make the pictures of the README: ``make figures`` writes them to ``docs/figures``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from toy import RECIPES

import graphformer as gf
from graphformer.callbacks import progress
from graphformer.experiment import Experiment
from graphformer.recipe import read_recipe
from graphformer.viz import att_animation, attention_graph, save_animation

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
STRING = "g r a p h f o r m e r"
FRAMES = (1, 20, 40, 60, 80, 100, 120, 140, 160, 200, 250, 300, 400, 600, 800)


def maps_of(experiment: Experiment) -> dict[str, object]:
    """What the model attends to in the string, as it is now: kind -> ``(H, queries, keys)``."""
    ids = experiment.codec.encode(STRING)
    training = experiment.model.training
    experiment.model.eval()
    with gf.record_attention(experiment.model) as records, torch.no_grad():
        experiment.model(gf.GraphPool()([ids], [[0, *ids, 1]]))
    experiment.model.train(training)
    return {kind: records.dense(kind).numpy() for kind in ("ee", "ed", "dd")}


def copy_task(folder: Path) -> tuple[list[dict[str, object]], list[str]]:
    """Train the copy task; gives the maps after some updates, and their names."""
    experiment = Experiment(read_recipe(RECIPES / "copy.toml"), folder)
    frames, names = [], []
    for record in progress(experiment.fit(), experiment.updates):
        if record.step in FRAMES:
            frames.append(maps_of(experiment))
            names.append(f"update {record.step}")
    return frames, names


def main(figures: Path = FIGURES) -> None:
    """Draw all of them."""
    figures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        frames, names = copy_task(Path(folder) / "run")
    keys, queries = STRING.split(), ["<sos>", *STRING.split()]
    movie = att_animation(frames, "ed", keys, queries, 0, names=names, fps=2.0)
    save_animation(movie, figures / "copy.gif", dpi=80)
    edges = {kind: maps[0] for kind, maps in frames[-1].items()}
    graph = attention_graph(keys, queries, edges, title="copy task: where each letter looks")
    graph.savefig(figures / "graph.png", dpi=110)


if __name__ == "__main__":
    main()
