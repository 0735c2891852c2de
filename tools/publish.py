"""Copy a finished run to a folder that is small enough to commit.

    python tools/publish.py runs/multi30k-en-de examples/pretrained/multi30k-en-de

The copy has the recipe, the vocabulary, the mean of the last checkpoints in 16 bits, and a log of
one line an epoch instead of one an update. It can be translated with, not trained further.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from graphformer.recipe import parse_recipe, read_recipe, write_recipe  # noqa: E402
from graphformer.runfolder import RunFolder  # noqa: E402

KEPT = ("step", "epoch", "rate", "valid_loss", "valid_accuracy", "valid_act_loss")


def by_epoch(records: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One record an epoch: its validation, mean training loss (nats a token), tokens, seconds."""
    tokens, loss, seconds = 0, 0.0, 0.0
    for record in records:
        tokens += record["tokens"]
        loss += record["loss"] * record["tokens"]
        seconds += record["seconds"]
        if "valid_loss" in record:
            means = {"loss": loss / tokens, "tokens": tokens, "seconds": seconds}
            found = {key: record[key] for key in KEPT} | means
            yield {k: round(v, 5) if isinstance(v, float) else v for k, v in found.items()}
            tokens, loss, seconds = 0, 0.0, 0.0


def publish(source: Path, target: Path, recipe_file: Path | None = None) -> None:
    """Write the copy.

    Args:
        source: folder of the finished run, with its checkpoints.
        target: folder to make.
        recipe_file: take the settings of decoding, such as the number of checkpoints to average,
            from here; the run's own if not given.
    """
    run = RunFolder.open(source)
    recipe = parse_recipe(run.config, str(source / "config.toml"))
    if recipe_file is not None:
        wanted = read_recipe(recipe_file)
        if wanted.train.epochs != recipe.train.epochs or wanted.model != recipe.model:
            raise ValueError(f"{recipe_file} is not the recipe that {source} was trained with")
        recipe = wanted
    copy = RunFolder.create(target, write_recipe(recipe), run.files)
    copy.write_model(run.average(recipe.decode.average), run.steps()[-1], torch.float16)
    for record in by_epoch(run.log.records()):
        copy.log.append(record)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Copy a finished run to a small folder.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--recipe", type=Path, help="take the settings of decoding from here")
    args = parser.parse_args()
    publish(args.source, args.target, args.recipe)
