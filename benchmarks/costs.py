"""Rows of everything around the products: adaptive depth, building a batch, importing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import torch
from torch import Tensor, nn

import graphformer as gf
from graphformer.blocks import plan_blocks

from .data import batches
from .measure import ROOT, Candidate, alternate, ratio
from .ours import Ours, Step
from .rows import Row, times_of
from .sizes import Sizes

DEPTH = 8


class Coin(nn.Module):
    """In place of a halting unit: each active node halts with probability ``p``.

    The result depends on the input by a term of nothing, so that it has a gradient.
    """

    def __init__(self, width: int, p: float):
        super().__init__()
        self.linear = nn.Linear(width, 1)
        self.p, self.generator = p, torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, M)`` -> 0 or 1, ``(n, 1)``."""
        heads = torch.rand(len(x), 1, generator=self.generator) < self.p
        return heads.to(x.dtype) + 0.0 * self.linear(x)


def universal(sizes: Sizes, short: bool) -> list[Row]:
    """Universal Transformer: a mean of 2 steps, spread out or alike, against all 8."""
    data = batches(sizes, False)

    def step(p: float | None) -> tuple[Candidate, Ours]:
        model = Ours(sizes, universal=True, max_depth=DEPTH)
        for stack in (model.model.enc, model.model.dec):
            if p is None:  # 0.5 twice: every node takes 2 steps
                nn.init.zeros_(stack.halting_unit.linear.weight)
                nn.init.zeros_(stack.halting_unit.linear.bias)
            else:
                stack.halting_unit = Coin(sizes.width, p)
        model.train()
        parameters = list(model.parameters())

        def work(run: int) -> None:
            torch.autograd.grad(model.loss(data[run]), parameters, allow_unused=True)

        return work, model

    made = {"all 8": step(0.0), "spread": step(0.5), "alike": step(None)}
    times = alternate({name: work for name, (work, _) in made.items()}, sizes.runs)
    means = {
        name: [round(model.model.ponder.mean(side), 2) for side in ("enc", "dec")]
        for name, (_, model) in made.items()
    }
    details = {**times_of(times), "mean_steps": means}
    return [
        Row("universal, mean of 2 steps (spread out) of 8, time / all 8",
            ratio(times, "spread", "all 8"), "x", "<=", 0.4, f"mean steps {means}", details),
        Row("  every node 2 steps", ratio(times, "alike", "all 8"), "x", "<=", 0.4),
    ]  # fmt: skip


def plans(batch: gf.GraphBatch) -> None:
    """What the block kernel needs."""
    for edges in batch.edges.values():
        edges.once(plan_blocks)


def formats(batch: gf.GraphBatch) -> None:
    """The graph of each kind in all sparse formats, and all ids."""
    for edges in batch.edges.values():
        edges.graph.create_formats_()
    _ = batch.nids, batch.eids


def whole(batch: gf.GraphBatch) -> None:
    """The graph of all kinds in all sparse formats."""
    batch.g.create_formats_()


def building(sizes: Sizes, short: bool) -> list[Row]:
    """Building a batch, one thread: against a training step on all threads, and by itself."""
    small = replace(sizes, width=sizes.small_width, ff=4 * sizes.small_width)
    data = batches(small, False)
    pool, threads = gf.GraphPool(), torch.get_num_threads()

    def alone(*parts: Callable[[gf.GraphBatch], object]) -> Candidate:
        def work(run: int) -> None:
            torch.set_num_threads(1)
            batch = pool(*zip(*data[run], strict=True))
            for part in parts:
                part(batch)
            torch.set_num_threads(threads)

        return work

    works = {"everything": alone(plans, formats, whole), "as in training": alone(plans)}
    works["step"] = Step(Ours(small), data)
    times = alternate(works, sizes.runs)
    by_itself = alternate({"sets": alone(formats)}, sizes.runs)
    pairs = f"building a batch of {sizes.pairs} pairs"
    return [
        Row(f"{pairs}, all graphs and formats, share of a step at width {small.width}",
            ratio(times, "everything", "step"), "", "<=", 0.03, "", times_of(times)),
        Row("  only what the step uses (ids, edge sets, block plans)",
            ratio(times, "as in training", "step"), "", "<=", 0.03),
        Row("  edge sets, their graphs in all formats, ids; batch after batch",
            1e3 * median(by_itself["sets"]), "ms", "<=", 5.0, "", times_of(by_itself)),
    ]  # fmt: skip


IMPORT = """
import os, time
os.environ["DGLBACKEND"] = "pytorch"
import torch, dgl
start = time.perf_counter()
import graphformer
print(time.perf_counter() - start)
"""


def importing(sizes: Sizes, short: bool) -> list[Row]:
    """Seconds of the import beyond torch and DGL, in fresh processes."""
    seconds = []
    for _ in range(1 if short else 5):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, text=True, check=True
        )
        seconds.append(float(done.stdout))
    work = "import graphformer beyond torch and DGL"
    return [Row(work, median(seconds), "s", "<=", 0.3, "", {"seconds": seconds})]
