"""What the notebooks and ``make_figures.py`` share: maps, steps and cost of trained models."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.figure import Figure

import graphformer as gf
from graphformer.callbacks import progress
from graphformer.codec import Codec
from graphformer.experiment import Experiment, TrainedRun
from graphformer.metrics import exact_match, token_accuracy
from graphformer.update import StepRecord
from graphformer.viz import halting_steps
from graphformer.viz.panels import draw_panels
from graphformer.viz.style import FAINT, KIND_COLOURS, Picture

WORD_START = "\u2581"  # begins a word in the pieces of a BPE codec
KINDS = ("ee", "ed", "dd")
STRING = "g r a p h f o r m e r"  # copied while the copy task is learnt
FRAMES = (1, 20, 40, 60, 80, 100, 120, 140, 160, 200, 250, 300, 400, 600, 800)  # updates


@dataclass(frozen=True)
class PairMaps:
    """What a model attends to in one sentence pair.

    Attributes:
        src: the pieces of the source, the keys of ``ee`` and ``ed``.
        tgt: what enters the decoder: ``<sos>`` and the pieces of the target.
        layers: for each kind one map ``(H, queries, keys)`` a layer (or step).
    """

    src: list[str]
    tgt: list[str]
    layers: dict[str, list[np.ndarray]]

    def last(self) -> dict[str, np.ndarray]:
        """The last layer's map of each kind."""
        return {kind: maps[-1] for kind, maps in self.layers.items()}

    def mean(self) -> dict[str, np.ndarray]:
        """The mean over all heads of all layers, ``(queries, keys)`` for each kind."""
        return {kind: np.mean(maps, axis=(0, 1)) for kind, maps in self.layers.items()}


def maps_of(model: gf.Transformer, codec: Codec, src: str, tgt: str) -> PairMaps:
    """Run a model over one sentence pair and keep what it attends to.

    Args:
        model: any mode; it has the same mode afterwards.
        codec: the model's vocabulary.
        src: the source as text.
        tgt: the target as text: what is right, or what the model itself has written.
    """
    ids, answer = codec.encode(src), codec.encode(tgt)
    training = model.training
    model.eval()
    with gf.record_attention(model) as records, torch.no_grad():
        model(gf.GraphPool()([ids], [[0, *answer, 1]]))
    model.train(training)
    layers = {
        kind: [records.dense(kind, at).numpy() for at in range(len(records.kind(kind)))]
        for kind in KINDS
    }
    return PairMaps(words_of(codec, src), ["<sos>", *words_of(codec, tgt)], layers)


def words_of(codec: Codec, text: str) -> list[str]:
    """The pieces of a text as labels: one inside a word gets a hyphen, others lose their mark."""
    pieces = codec.pieces(text)
    if not any(piece.startswith(WORD_START) for piece in pieces):
        return pieces
    return [p[1:] or "_" if p.startswith(WORD_START) else "-" + p for p in pieces]


def maps_over_training(
    experiment: Experiment, string: str, updates: Sequence[int]
) -> Iterator[tuple[StepRecord, dict[str, np.ndarray] | None]]:
    """Train, and look on the way at what the last layer attends to when it copies a string.

    Args:
        experiment: what is trained.
        string: source and target.
        updates: after which of them to look.

    Yields:
        The record of each update, and the maps of each kind if it is one of these.
    """
    for record in progress(experiment.fit(), experiment.updates):
        maps = None
        if record.step in updates:
            maps = maps_of(experiment.model, experiment.codec, string, string).last()
        yield record, maps


def series(
    maps: Sequence[np.ndarray],
    names: Sequence[str],
    keys: list[str],
    queries: list[str],
    columns: int = 4,
) -> Figure:
    """Draw maps ``(queries, keys)`` of one kind side by side, on one scale of colours.

    Args:
        maps: for example one head's after some updates.
        names: what is written below each.
        keys: the words looked at.
        queries: the words that look.
        columns: maps in a row.
    """
    stack = np.stack(maps)
    panels = draw_panels(keys, queries, names, min(columns, len(maps)), vmax=float(stack.max()))
    panels.show(stack, stack > 0)
    return panels.figure


def steps_of(model: gf.UTransformer, codec: Codec, src: str, tgt: str) -> dict[str, np.ndarray]:
    """Steps that each node of a pair took, for ``"enc"`` and ``"dec"`` (``<sos>`` first)."""
    ids, answer = codec.encode(src), codec.encode(tgt)
    with torch.no_grad():
        model(gf.GraphPool()([ids], [[0, *answer, 1]]))
    return {side: steps.numpy() for side, steps in model.ponder.steps.items()}


def halting_figure(
    model: gf.UTransformer, codec: Codec, pair: tuple[str, str], title: str | None = None
) -> Figure:
    """Draw the steps of each node of a pair; ``<s>`` stands for ``<sos>``, to be narrow."""
    steps = steps_of(model, codec, *pair)
    words = {"enc": codec.pieces(pair[0]), "dec": ["<s>", *codec.pieces(pair[1])]}
    return halting_steps(steps, words, max_steps=model.rule.max_depth, title=title)


def histograms(epochs: Sequence[gf.Ponder]) -> dict[str, np.ndarray]:
    """How many nodes took 1, 2, ... steps in each epoch, ``(epochs, max_depth)`` a side."""
    return {
        side: np.stack([epoch.histogram(side).numpy() for epoch in epochs])
        for side in ("enc", "dec")
    }


def with_rule(run: TrainedRun, **changes: float) -> gf.UTransformer:
    """The trained weights under another halting rule.

    Args:
        run: a trained Universal Transformer.
        **changes: ``max_depth`` or ``threshold``, which no weight depends on.
    """
    size = run.codec.size
    model = replace(run.recipe.model, **changes).make(size, size).eval()
    model.load_state_dict(run.model.state_dict())
    return model


@dataclass(frozen=True)
class Cost:
    """What a model costs on test strings, and how good it is.

    Attributes:
        name: of the halting rule.
        enc: mean steps of an encoder node.
        dec: mean steps of a decoder node, the right answers being fed in.
        seconds: CPU time of greedy decoding of all strings on one thread.
        tokens: share of the tokens that are right after greedy decoding.
        exact: share of the strings that are right as a whole.
    """

    name: str
    enc: float
    dec: float
    seconds: float
    tokens: float
    exact: float


def cost_of(
    name: str, model: gf.UTransformer, codec: Codec, pairs: Sequence[tuple[str, str]]
) -> Cost:
    """Measure steps, time and accuracy of a Universal Transformer on sentence ``pairs``."""
    src, tgt = ([codec.encode(pair[side]) for pair in pairs] for side in (0, 1))
    with torch.no_grad():
        model(gf.GraphPool()(src, [[0, *ids, 1] for ids in tgt]))
    enc, dec = model.ponder.mean("enc"), model.ponder.mean("dec")
    started = time.process_time()
    guesses = [found[0].ids for found in model.infer(src, k=1)]
    seconds = time.process_time() - started
    accuracy = token_accuracy(guesses, tgt), exact_match(guesses, tgt)
    return Cost(name, enc, dec, seconds, *accuracy)


def cost_table(costs: Sequence[Cost]) -> str:
    """The measurements as a Markdown table."""
    rows = ["| rule | encoder steps | decoder steps | CPU seconds | tokens | exact match |"]
    rows.append("|---|---|---|---|---|---|")
    rows += [
        f"| {c.name} | {c.enc:.2f} | {c.dec:.2f} | {c.seconds:.1f} "
        f"| {c.tokens:.2%} | {c.exact:.1%} |"
        for c in costs
    ]
    return "\n".join(rows)


def cost_figure(groups: dict[str, Sequence[Cost]]) -> Figure:
    """Draw exact match against mean steps of all nodes, a line for each group of rules.

    Args:
        groups: name of a group -> its measurements; the name of each point stands beside it.
    """
    figure = Picture(6.4, 3.8)
    axes = figure.add_axes((0.11, 0.14, 0.86, 0.8))
    colours = [KIND_COLOURS["ee"], KIND_COLOURS["ed"]]
    for place, (name, costs) in enumerate(groups.items()):
        steps = [(cost.enc + cost.dec) / 2 for cost in costs]
        exact = [cost.exact for cost in costs]
        colour, side = colours[place % 2], 1 if place % 2 else -1
        axes.plot(steps, exact, "os"[place % 2] + "-", color=colour, label=name, lw=1.5)
        for cost, x, y in zip(costs, steps, exact, strict=True):
            axes.annotate(
                cost.name.split()[-1], (x, y), (0, side * 8), textcoords="offset points",
                ha="center", va="bottom" if side > 0 else "top", fontsize=8, color=colour,
            )  # fmt: skip
    axes.set_xlabel("mean steps of a node")
    axes.set_ylabel("strings sorted without a mistake")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylim(-0.09, 1.09)
    axes.grid(color=FAINT, lw=0.4)
    axes.legend(frameon=False, loc="center right")
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
    return figure


def stacked(figures: Sequence[Figure], dpi: float = 110) -> np.ndarray:
    """Figures as one picture, one below the other, ``(height, width, 4)`` uint8."""
    drawn = []
    for figure in figures:
        figure.set_dpi(dpi)
        figure.canvas.draw()
        drawn.append(np.asarray(figure.canvas.buffer_rgba()))
    width = max(picture.shape[1] for picture in drawn)
    pad = [((0, 0), (0, width - picture.shape[1]), (0, 0)) for picture in drawn]
    return np.concatenate(
        [np.pad(p, room, constant_values=255) for p, room in zip(drawn, pad, strict=True)]
    )
