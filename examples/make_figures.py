"""Make the pictures of the README: ``make figures`` writes them to ``docs/figures``.

``python examples/make_figures.py heads steps`` makes only those.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import toy
from figures import (
    FRAMES,
    STRING,
    halting_figure,
    histograms,
    maps_of,
    maps_over_training,
    series,
    stacked,
    train_counting_steps,
)
from matplotlib.image import imsave

from graphformer.experiment import Experiment, TrainedRun
from graphformer.recipe import read_recipe
from graphformer.viz import att_animation, attention_graph, save_animation, steps_over_training

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
PRETRAINED = Path(__file__).parent / "pretrained" / "multi30k-en-de"
SENTENCE = "a young girl in a red dress is jumping over a puddle ."


def draw_copy(figures: Path) -> None:
    """Train the copy task: ``copy.gif``, the diagonal forming, and ``graph.png``, the graph."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(read_recipe(toy.RECIPES / "copy.toml"), Path(folder) / "run")
        looked = [
            (f"update {record.step}", maps)
            for record, maps in maps_over_training(experiment, STRING, FRAMES)
            if maps is not None
        ]
    names, frames = zip(*looked, strict=True)
    keys, queries = STRING.split(), ["<sos>", *STRING.split()]
    movie = att_animation(frames, "ed", keys, queries, 0, names=names, fps=2.0)
    save_animation(movie, figures / "copy.gif", dpi=80)
    edges = {kind: maps[0] for kind, maps in frames[-1].items()}
    graph = attention_graph(keys, queries, edges, title="copy task: where each letter looks")
    graph.savefig(figures / "graph.png", dpi=110)


def draw_heads(figures: Path) -> None:
    """Translate with the committed model: ``heads.png``, what the last layer's heads look at."""
    if not PRETRAINED.is_dir():
        print(f"heads.png is left as it is: there is no trained model in {PRETRAINED}")
        return
    run = TrainedRun(PRETRAINED)
    maps = maps_of(run.model, run.codec, SENTENCE, run.translate_lines([SENTENCE])[0])
    last = maps.layers["ed"][-1]
    names = [f"head {head}" for head in range(len(last))]
    picture = series(last, names, maps.src, maps.tgt, columns=2)
    picture.savefig(figures / "heads.png", dpi=80)


def draw_steps(figures: Path) -> None:
    """Train the sort task: ``steps.png``, steps of each letter and their shares over training."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(read_recipe(toy.RECIPES / "sort.toml"), Path(folder) / "run")
        epochs, _ = train_counting_steps(experiment)
        run = experiment.finish()
    letters = halting_figure(run.model, run.codec, experiment.texts.test.pairs[0])
    imsave(figures / "steps.png", stacked([letters, steps_over_training(histograms(epochs))]))


DRAWN: dict[str, Callable[[Path], None]] = {
    "copy": draw_copy,
    "heads": draw_heads,
    "steps": draw_steps,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Draw those that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="make_figures.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(DRAWN)} (all)")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the pictures")
    args = parser.parse_args(argv)
    for name in args.names:
        if name not in DRAWN:
            parser.error(f"there is no picture {name!r}; choose of {', '.join(DRAWN)}")
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.names or DRAWN:
        DRAWN[name](args.out)


if __name__ == "__main__":
    main()
