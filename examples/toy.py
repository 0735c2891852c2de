"""What the copy and the sort example share: command line, training, test, table, picture."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

import graphformer as gf
from graphformer.callbacks import progress
from graphformer.corpus import ParallelText
from graphformer.experiment import Experiment, TrainedRun
from graphformer.metrics import exact_match, token_accuracy
from graphformer.recipe import Recipe, read_recipe

RECIPES = Path(__file__).parent / "recipes"


def parse(name: str, summary: str, argv: Sequence[str] | None) -> tuple[Recipe, Path, str]:
    """Read the command line; gives the recipe, the folder of the run and the device."""
    recipe = read_recipe(RECIPES / f"{name}.toml")
    parser = argparse.ArgumentParser(prog=f"{name}_task.py", description=summary)
    parser.add_argument("--epochs", type=int, default=recipe.train.epochs, help="passes over data")
    parser.add_argument("--seed", type=int, default=recipe.train.seed, help="of all random numbers")
    parser.add_argument("--out", type=Path, help=f"folder of the run (a new runs/{name}-…)")
    parser.add_argument("--device", default="cpu", help="where to compute, such as cpu or cuda")
    args = parser.parse_args(argv)
    try:
        torch.empty(0, device=args.device)
        train = replace(recipe.train, epochs=args.epochs, seed=args.seed)
    except (ValueError, RuntimeError, AssertionError) as error:
        parser.error(str(error).splitlines()[0])
    return replace(recipe, train=train), args.out or new_folder(name), args.device


def new_folder(name: str) -> Path:
    """The first of ``runs/NAME-1``, ``runs/NAME-2``, … that does not exist."""
    number = 1
    while (folder := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return folder


def train(
    recipe: Recipe, out: Path, device: str
) -> tuple[TrainedRun, ParallelText, list[gf.Ponder]]:
    """Train with a progress bar.

    Returns:
        The finished run, the test pairs, and for a Universal Transformer the steps of all nodes
        in each epoch.
    """
    experiment = Experiment(recipe, out, device=device)
    ponder: dict[int, gf.Ponder] = {}
    for record in progress(experiment.fit(), experiment.updates):
        steps = experiment.model.ponder
        if steps is not None:
            so_far = ponder.get(record.epoch, gf.Ponder.none(steps.max_depth))
            ponder[record.epoch] = so_far + steps
    return experiment.finish(), experiment.texts.test, list(ponder.values())


def test(run: TrainedRun, pairs: ParallelText) -> dict[str, float]:
    """Greedy decoding of the whole test set, compared with what is right."""
    hypotheses = run.translate([src for src, _ in pairs.pairs], k=1)
    guesses = [found[0].ids for found in hypotheses]
    answers = [run.codec.encode(tgt) for _, tgt in pairs.pairs]
    return {
        "test_token_accuracy": token_accuracy(guesses, answers),
        "test_exact_match": exact_match(guesses, answers),
    }


def picture(run: TrainedRun, pair: tuple[str, str], path: Path) -> None:
    """Draw the encoder-decoder attention of one test pair."""
    from graphformer.viz import attention_map

    src, tgt = (run.codec.encode(side) for side in pair)
    batch = gf.GraphPool()([src], [[0, *tgt, 1]], run.device)
    with gf.record_attention(run.model) as records, torch.no_grad():
        run.model(batch)
    keys = run.codec.pieces(pair[0])
    queries = ["<sos>", *run.codec.pieces(pair[1])]
    weights, edges = records.dense("ed").cpu().numpy(), records.mask("ed").cpu().numpy()
    title = "encoder-decoder attention"
    attention_map(weights, keys, queries, title=title, edges=edges).savefig(path)


def report(results: dict[str, object], out: Path) -> None:
    """Print the table that every example ends with."""
    for name, value in results.items():
        if isinstance(value, float):
            print(f"{name:22} {value:.4f}")
    print(f"{'files in':22} {out}")


def mean_steps(run: TrainedRun, pairs: ParallelText, epochs: list[gf.Ponder]) -> dict[str, object]:
    """Mean steps of the nodes of the test set, and of those of training, epoch by epoch."""
    pool, codec = gf.GraphPool(), run.codec
    src, tgt = ([codec.encode(pair[side]) for pair in pairs.pairs] for side in (0, 1))
    with torch.no_grad():
        run.model(pool(src, [[0, *ids, 1] for ids in tgt], run.device))
    test = run.model.ponder
    return {
        "mean_steps_enc": test.mean("enc"),
        "mean_steps_dec": test.mean("dec"),
        "mean_steps_by_epoch": [[p.mean("enc"), p.mean("dec")] for p in epochs],
    }


def main(name: str, summary: str, argv: Sequence[str] | None = None) -> None:
    """Train, test, draw and report."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    recipe, out, device = parse(name, summary, argv)
    # At this width two threads gain a tenth, and lose nine tenths where another program is busy.
    torch.set_num_threads(1)
    started = time.perf_counter()
    run, pairs, ponder = train(recipe, out, device)
    results = test(run, pairs)
    picture(run, pairs.pairs[0], out / "attention.png")
    if ponder:
        results |= mean_steps(run, pairs, ponder)
    results["seconds"] = round(time.perf_counter() - started, 1)
    run.run.write_results(results)
    report(results, out)
