"""What a trained run looked at while it translated one sentence, for a page to look around in."""

from __future__ import annotations

from typing import Any

import torch

from .experiment import TrainedRun
from .graph import KINDS, GraphPool
from .maps import record_attention
from .vocab import EOS, SOS


def page_data(run: TrainedRun, text: str) -> dict[str, Any]:
    """Translate a sentence and collect every attention map of the result.

    Args:
        run: the trained run.
        text: one sentence.

    Returns:
        What :func:`graphformer.viz.attention_page` takes: words, maps of each kind and layer (or
        step) ``(H, queries, keys)``, and for a Universal Transformer the steps of each word.

    Raises:
        ValueError: if the text has no words.
    """
    src = run.codec.encode(text)
    if not src:
        raise ValueError("the text to show has no words")
    ids = run.translate([text])[0][0].ids
    tgt = [SOS, *ids, EOS]
    with record_attention(run.model) as records, torch.no_grad():
        run.model(GraphPool()([src], [tgt], run.device))
    words = run.codec.vocab.decode(tgt)
    data: dict[str, Any] = {
        "title": run.codec.decode(ids),
        "src": run.codec.pieces(text),
        "tgt": words[:-1],
        "out": words[1:],
        "maps": {
            kind: [
                record.edges.dense(record.weights).cpu().numpy() for record in records.kind(kind)
            ]
            for kind in KINDS
        },
        "round": "layer",
    }
    ponder = run.model.ponder
    if ponder is not None:
        data["round"] = "step"
        data["steps"] = {side: steps.tolist() for side, steps in ponder.steps.items()}
    return data
