"""Rows of the training step: against padding, the tutorial, x-transformers; share of the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import graphformer as gf

from .data import Pair, batches
from .measure import Candidate, alternate, matrix_product, memory_of, ratio
from .others import Skipped, XTransformers
from .ours import Ours, Step
from .padded import Padded
from .rows import Row, times_of
from .sizes import Sizes
from .tutorial import TutorialTraining


def candidates(sizes: Sizes, ordered: bool, names: Sequence[str]) -> dict[str, Candidate]:
    """Training steps of some of the models on the same batches, those that run here."""
    data = batches(sizes, ordered)
    makers = {
        "graphformer": lambda: Ours(sizes),
        "message": lambda: Ours(sizes, kernel="message"),
        "padded": lambda: Padded(sizes),
        "padded, real logits": lambda: Padded(sizes, real_logits=True),
        "tutorial": lambda: TutorialTraining(sizes, gf.GraphPool()),
        "x-transformers": lambda: XTransformers(sizes),
    }
    return {name: Step(makers[name](), data) for name in names}


def operations(sizes: Sizes, batch: Sequence[Pair]) -> float:
    """Floating-point operations of a training step that the model needs: products alone.

    Forward once and backward twice as much; an edge costs a product with the key and one with the
    value. Only half of a causal block counts.
    """
    n, m = ([len(pair[side]) - side for pair in batch] for side in (0, 1))
    width, layers = sizes.width, sizes.layers
    attention, feed_forward = 4 * width * width, 2 * width * sizes.ff
    weights = sum(n) * layers * (attention + feed_forward)
    weights += sum(m) * layers * (attention + 2 * width * width + feed_forward)
    weights += sum(n) * layers * 2 * width * width  # keys and values for the decoder
    weights += sum(m) * width * sizes.vocabulary
    edges = sum(a * a + a * b + b * (b + 1) // 2 for a, b in zip(n, m, strict=True)) * layers
    return 3 * 2 * (weights + 2 * edges * width)


def random_batches(sizes: Sizes, short: bool) -> list[Row]:
    """Random batches, against everyone; and the share of the matrix-product peak."""
    names = ["graphformer", "padded", "padded, real logits", "tutorial", "message"]
    note = {}
    try:
        XTransformers(sizes)
        names.append("x-transformers")
    except Skipped as error:
        note["skipped"] = str(error)
    works = candidates(sizes, False, names)
    works["peak"] = matrix_product(sizes.gemm)
    times = alternate(works, sizes.runs)
    details = {**times_of(times), **note}
    rows = [
        Row("training step, random batches / torch.nn.Transformer",
            ratio(times, "padded", "graphformer"), "x", ">=", 1.5,
            "logits of all padded positions, the usual way", details),
        Row("  / torch.nn.Transformer, logits of real tokens",
            ratio(times, "padded, real logits", "graphformer")),
        Row("  / the tutorial's way", ratio(times, "tutorial", "graphformer"), "x", ">=", 3.0),
        Row("  / this project's message kernel", ratio(times, "message", "graphformer")),
    ]  # fmt: skip
    if "x-transformers" in times:
        rows.append(Row("  / x-transformers", ratio(times, "x-transformers", "graphformer")))
    rows.append(_share(sizes, times, batches(sizes, False)))
    rows.extend(memory_rows("training", ["graphformer", "padded", "tutorial"], short))
    return rows


def _share(sizes: Sizes, times: Mapping[str, list[float]], data: list[list[Pair]]) -> Row:
    peak = 2 * sizes.gemm**3 / median(times["peak"])
    shares = [
        operations(sizes, batch) / seconds / peak
        for batch, seconds in zip(data, times["graphformer"], strict=True)
    ]
    tokens = [sum(len(target) - 1 for _, target in batch) for batch in data]
    rate = median(n / t for n, t in zip(tokens, times["graphformer"], strict=True))
    details = {"peak_gflops": round(peak / 1e9, 1), "target_tokens_per_second": round(rate)}
    note = f"peak {peak / 1e9:.0f} GFLOP/s; {rate:.0f} target tokens/s"
    return Row("  share of the matrix-product peak", median(shares), "", ">=", 0.7, note, details)


def sorted_batches(sizes: Sizes, short: bool) -> list[Row]:
    """Batches of neighbours in length, where padding wastes little."""
    names = ["graphformer", "padded", "padded, real logits"]
    times = alternate(candidates(sizes, True, names), sizes.runs)
    return [
        Row("training step, sorted batches / torch.nn.Transformer",
            ratio(times, "padded", "graphformer"), "x", ">=", 1.1, "", times_of(times)),
        Row("  / torch.nn.Transformer, logits of real tokens",
            ratio(times, "padded, real logits", "graphformer")),
    ]  # fmt: skip


def memory_rows(row: str, names: Sequence[str], short: bool) -> list[Row]:
    """Peak memory of each candidate in a process of its own, and that of ours beside it."""
    found = {name: memory_of(row, name, short) for name in names}
    return [
        Row(f"  memory of the process, {name}", found[name]["peak"], "MiB", None, None,
            f"{found[name]['work']:.0f} MiB of it by the work itself", found[name])
        for name in names
    ]  # fmt: skip
