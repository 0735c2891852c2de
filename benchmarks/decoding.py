"""Rows of beam search: the committed model over the test sentences, and against recomputing."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

import graphformer as gf
from graphformer.decode import infer
from graphformer.experiment import TrainedRun, read_texts
from graphformer.multi30k import FOLDER_VARIABLE
from tests.reference_decode import Recomputing

from .measure import ROOT, Candidate, alternate, ratio
from .rows import Row, times_of
from .sizes import Sizes

RUN = ROOT / "examples" / "pretrained" / "multi30k-en-de"
BEAM, ALPHA = 5, 0.6


def sources(sizes: Sizes, short: bool) -> tuple[nn.Module, list[list[int]], str]:
    """A model, sentences for it, and a name for both.

    The committed model and the test sentences of Multi30k; in short, random weights and ids.

    Raises:
        OSError: if the model or a local copy of the data is missing.
    """
    if short:
        model = gf.make_model(
            sizes.vocabulary, sizes.vocabulary, sizes.layers, sizes.width, sizes.ff, sizes.heads
        )
        generator = torch.Generator().manual_seed(0)
        rows = torch.randint(4, sizes.vocabulary, (sizes.pairs, sizes.longest), generator=generator)
        return model.eval(), rows.tolist(), "random weights"
    if FOLDER_VARIABLE not in os.environ:
        raise OSError(f"set {FOLDER_VARIABLE} to a folder with the data")
    run = TrainedRun(RUN)
    test = read_texts(run.recipe.data).test
    pairs = [] if test is None else test.pairs
    return run.model, [run.codec.encode(src) for src, _ in pairs], RUN.name


def decoding(sizes: Sizes, short: bool) -> list[Row]:
    """Beam search over all test sentences, and on some of them against recomputing."""
    work = f"beam {BEAM}"
    try:
        model, src, name = sources(sizes, short)
    except OSError as error:
        return [Row(work, float("nan"), "s", None, None, str(error)[:160])]
    some = src[: sizes.decoded]

    def search(searched: nn.Module) -> Candidate:
        return lambda run: infer(searched, some, k=BEAM, alpha=ALPHA)

    works = {"kept": search(model), "recomputed": search(Recomputing(model))}
    times = alternate(works, sizes.runs)
    started = time.perf_counter()
    infer(model, src, k=BEAM, alpha=ALPHA)
    seconds = time.perf_counter() - started
    return [
        Row(f"{work}, {len(src)} sentences", seconds, "s", "<=", 60.0, name),
        Row("  recomputing whole prefixes / keeping keys and values",
            ratio(times, "recomputed", "kept"), "x", ">=", 8.0,
            f"{len(some)} sentences in one batch", times_of(times)),
    ]  # fmt: skip
