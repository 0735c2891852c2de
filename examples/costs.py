"""What a Universal Transformer costs and how good it is, under one halting rule or another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

import graphformer as gf
from graphformer.codec import Codec
from graphformer.experiment import TrainedRun
from graphformer.metrics import exact_match, token_accuracy
from graphformer.viz.style import FAINT, KIND_COLOURS, Picture


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
        groups: name of a group -> its measurements, from few steps to many. Beside each point
            stands the last word of its name, beside several that coincide the first and the last.
    """
    figure = Picture(6.4, 3.8)
    axes = figure.add_axes((0.11, 0.14, 0.86, 0.8))
    colours = [KIND_COLOURS["ee"], KIND_COLOURS["ed"]]
    for place, (name, costs) in enumerate(groups.items()):
        steps = [(cost.enc + cost.dec) / 2 for cost in costs]
        exact = [cost.exact for cost in costs]
        colour, above = colours[place % 2], place % 2 == 1
        axes.plot(steps, exact, "os"[place % 2] + "-", color=colour, label=name, lw=1.5)
        for (x, y), names in _together(costs, steps, exact):
            axes.annotate(
                names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}",
                (x, y), (-5, 4) if above else (5, -4), textcoords="offset points",
                ha="right" if above else "left", va="bottom" if above else "top",
                fontsize=8, color=colour,
            )  # fmt: skip
    axes.set_xlabel("mean steps of a node")
    axes.set_ylabel("strings sorted without a mistake")
    axes.yaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))  # whole per cents
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.margins(0.17, 0.16)
    axes.grid(color=FAINT, lw=0.4)
    axes.legend(frameon=False, loc="lower right")
    for edge in ("top", "right"):
        axes.spines[edge].set_visible(False)
    return figure


def _together(
    costs: Sequence[Cost], steps: Sequence[float], exact: Sequence[float]
) -> list[tuple[tuple[float, float], list[str]]]:
    """Points with the names of those that lie upon them."""
    near_x, near_y = (0.03 * (max(values) - min(values)) for values in (steps, exact))
    found: list[tuple[tuple[float, float], list[str]]] = []
    for cost, x, y in zip(costs, steps, exact, strict=True):
        last = found[-1][0] if found else (-1.0, -1.0)
        if not found or abs(x - last[0]) > near_x or abs(y - last[1]) > near_y:
            found.append(((x, y), []))
        found[-1][1].append(cost.name.split()[-1])
    return found
