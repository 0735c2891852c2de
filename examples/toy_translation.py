"""Learn one German sentence of four words in 20 updates, and look at the attention maps.

A Transformer of 6 layers, width 512 and 8 heads, as in Vaswani et al. 2017.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from toy import new_folder, report

import graphformer as gf
from graphformer.codec import train_words
from graphformer.loss import LabelSmoothing
from graphformer.viz import attention_grid

SOURCE, TARGET = "ich mag schwarzen kaffee", "i like black coffee"
MAPS = {"ee": "encoder", "dd": "decoder", "ed": "encoder-decoder"}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="toy_translation.py", description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=20, help="updates on the one pair")
    parser.add_argument("--seed", type=int, default=1, help="of the weights and of dropout")
    parser.add_argument("--out", type=Path, help="folder of the results (a new runs/toy-…)")
    parser.add_argument("--device", default="cpu", help="where to compute, such as cpu or cuda")
    args = parser.parse_args(argv)
    if args.epochs < 1:
        parser.error(f"--epochs is {args.epochs}, at least 1 is needed")
    return args


def learn(model: torch.nn.Module, batch: gf.GraphBatch, updates: int) -> float:
    """Train on one batch; gives the last loss, in nats a token."""
    criterion = LabelSmoothing(0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    model.train()
    for _ in range(updates):
        output = model(batch)
        loss = criterion(output.logits, batch.tgt_y).nats / batch.n_tokens + output.act_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def draw(model: torch.nn.Module, batch: gf.GraphBatch, out: Path) -> None:
    """Draw the three kinds of attention, all heads of the last layer, words on the axes."""
    source, target = SOURCE.split(), ["<sos>", *TARGET.split()]
    model.eval()
    with gf.record_attention(model) as records, torch.no_grad():
        model(batch)
    for kind, title in MAPS.items():
        keys, queries = (target if kind == "dd" else source), (source if kind == "ee" else target)
        maps = records.dense(kind).unsqueeze(0).cpu().numpy()
        attention_grid(maps, keys, queries, title=title).savefig(out / f"attention-{kind}.png")


def main(argv: Sequence[str] | None = None) -> None:
    """Learn, translate, draw and report."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    args = parse(argv)
    out = args.out or new_folder("toy")
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    torch.manual_seed(args.seed)
    codecs = train_words([SOURCE]), train_words([TARGET])
    src, tgt = codecs[0].encode(SOURCE), [0, *codecs[1].encode(TARGET), 1]
    model = gf.make_model(codecs[0].size, codecs[1].size, share_embeddings=False)
    model.to(args.device)
    batch = gf.GraphPool()([src], [tgt], args.device)
    loss = learn(model, batch, args.epochs)
    ids = model.infer([src], k=1)[0][0].ids
    draw(model, batch, out)
    results = {
        "test_token_accuracy": sum(a == b for a, b in zip(ids, tgt[1:-1], strict=False)) / 4,
        "test_exact_match": float(ids == tgt[1:-1]),
        "loss": loss,
        "seconds": round(time.perf_counter() - started, 1),
    }
    text = json.dumps(results | {"translation": codecs[1].decode(ids)}, indent=1)
    (out / "metrics.json").write_text(text + "\n", encoding="utf-8")
    print(f"{SOURCE} -> {codecs[1].decode(ids)}")
    report(results, out)


if __name__ == "__main__":
    main()
