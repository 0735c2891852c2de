"""What the notebooks and ``make_figures.py`` share: maps and steps of trained models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

import graphformer as gf
from graphformer.callbacks import progress
from graphformer.codec import Codec
from graphformer.evaluation import Evaluation
from graphformer.experiment import Experiment
from graphformer.update import StepRecord
from graphformer.viz import halting_steps
from graphformer.viz.panels import draw_panels

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


def train_counting_steps(
    experiment: Experiment,
) -> tuple[list[gf.Ponder], list[Evaluation]]:
    """Train a Universal Transformer to the end.

    Returns:
        The steps of all nodes of the training batches of each epoch, and its validation.
    """
    model, ponder, valid = experiment.model, {}, []
    none = gf.Ponder.none(model.rule.max_depth)
    fresh: list[gf.Ponder] = []

    def note(*_: object) -> None:
        if model.training:  # the batches of the validation come in between
            fresh.append(model.ponder)

    hook = model.register_forward_hook(note)
    for record in progress(experiment.fit(), experiment.updates):
        ponder[record.epoch] = sum(fresh, start=ponder.get(record.epoch, none))
        fresh.clear()
        if record.valid is not None:
            valid.append(record.valid)
    hook.remove()
    return list(ponder.values()), valid


def epoch_table(epochs: Sequence[gf.Ponder], valid: Sequence[Evaluation]) -> str:
    """Mean steps and accuracy in each epoch as a Markdown table."""
    rows = [
        "| epoch | encoder steps | decoder steps | tokens, right ones fed in |",
        "|---|---|---|---|",
    ]
    for number, (steps, found) in enumerate(zip(epochs, valid, strict=True), 1):
        means = f"{steps.mean('enc'):.2f} | {steps.mean('dec'):.2f}"
        rows.append(f"| {number} | {means} | {found.accuracy:.2%} |")
    return "\n".join(rows)


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


def stacked(figures: Sequence[Figure], dpi: float = 100) -> np.ndarray:
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
