"""Rows of attention alone: complete blocks, a causal window, and the crossover by density."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

import graphformer as gf
from graphformer.bands import CAUSAL, COMPLETE, Band
from graphformer.edges import EdgeSet

from .measure import Candidate, alternate, forward_backward, ratio
from .others import Skipped, flex_window, transformer_conv
from .rows import Row, times_of
from .sizes import Sizes
from .training import memory_rows

HEAD = 64


def leaves(tokens: int, heads: int, width: int = HEAD) -> list[Tensor]:
    """Query, key and value, ``(N, H, D)``."""
    return [torch.randn(tokens, heads, width, requires_grad=True) for _ in range(3)]


def edge_set(lens: Sequence[int], band: Band = COMPLETE) -> EdgeSet:
    """Blocks of these lengths side by side."""
    return EdgeSet.banded(torch.tensor(lens), torch.tensor(lens), band, "blocks")


def dense(lens: Sequence[int], causal: bool = False) -> object:
    """SDPA on the same tokens: equal neighbours are one call, without padding."""
    runs: list[list[int]] = []
    for size in lens:
        if runs and runs[-1][0] == size:
            runs[-1][1] += 1
        else:
            runs.append([size, 1])

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = (x.split([size * count for size, count in runs]) for x in (q, k, v))
        outs = []
        for (size, count), part in zip(runs, zip(*parts, strict=True), strict=True):
            ends = (x.unflatten(0, (count, size)).transpose(1, 2) for x in part)
            outs.append(sdpa(*ends, is_causal=causal).transpose(1, 2).flatten(0, 1))
        return torch.cat(outs)

    return attend


def ours(edges: EdgeSet, kernel: str = "auto") -> object:
    """This project's attention over an edge set."""
    return lambda q, k, v: gf.attend(edges, q, k, v, kernel=kernel)


def blocks(sizes: Sizes, short: bool) -> list[Row]:
    """Complete blocks of one length, of all lengths in order, and of all lengths shuffled."""
    cases = {f"{n}": [n] * max(1, sizes.block_tokens // n) for n in sizes.blocks}
    mixed = [n for n in sizes.blocks for _ in range(max(1, sizes.blocks[-1] // n))]
    shuffled = random.Random(0).sample(mixed, len(mixed))
    cases["all, in order"] = mixed
    results = {}
    for name, lens in cases.items():
        ends = leaves(sum(lens), sizes.heads)
        works = {
            "graphformer": forward_backward(ours(edge_set(lens)), *ends),
            "sdpa": forward_backward(dense(lens), *ends),
        }
        results[name] = alternate(works, 3 * sizes.runs)
    # SDPA gets the blocks in order, as somebody would keep them who calls it; ours any order.
    ends = leaves(sum(mixed), sizes.heads)
    works = {
        "graphformer": forward_backward(ours(edge_set(shuffled)), *ends),
        "sdpa": forward_backward(dense(mixed), *ends),
    }
    results["all, shuffled"] = alternate(works, 3 * sizes.runs)
    ratios = {name: ratio(times, "graphformer", "sdpa") for name, times in results.items()}
    worst = max(ratios, key=ratios.__getitem__)
    note = f"worst: length {worst}; " + ", ".join(f"{k}: {v:.2f}" for k, v in ratios.items())
    details = {name: times_of(times) for name, times in results.items()}
    rows = [
        Row("attention, complete blocks, time / SDPA on the same unpadded work",
            ratios[worst], "x", "<=", 1.25, note, details)
    ]  # fmt: skip
    return rows + _conv(sizes)


def _conv(sizes: Sizes) -> list[Row]:
    """With projections, against torch_geometric on the same edges."""
    lens = [sizes.blocks[0]] * max(1, sizes.block_tokens // sizes.blocks[0])
    edges = edge_set(lens)
    width = HEAD * sizes.heads
    try:
        conv = transformer_conv(width, sizes.heads)
    except Skipped as error:
        return [Row("  / TransformerConv", float("nan"), "x", None, None, str(error))]
    index = torch.stack([edges.src, edges.dst])
    attention = gf.MultiHeadAttention(width, sizes.heads)
    x = torch.randn(edges.num_src, width, requires_grad=True)
    works = {
        "graphformer": forward_backward(lambda x: attention(edges, x), x),
        "conv": forward_backward(lambda x: conv(x, index), x),
    }
    times = alternate(works, sizes.runs)
    note = f"blocks of {lens[0]}, projections included (ours has one more, for the output)"
    value = ratio(times, "conv", "graphformer")
    return [Row("attention layer / TransformerConv", value, "x", None, None, note, times_of(times))]


def window_candidate(name: str, sizes: Sizes) -> Candidate:
    """Ours at the length, half and double of it; ``sdpa``, fused; ``sdpa math``, which is not."""
    scale = {"graphformer half": 0.5, "graphformer double": 2.0}.get(name, 1.0)
    length = int(sizes.window_length * scale)
    ends = leaves(length, sizes.heads)
    if name == "sdpa":
        return forward_backward(masked(length, sizes.window), *ends)
    if name == "sdpa math":
        return forward_backward(in_full(masked(length, sizes.window)), *ends)
    return forward_backward(ours(edge_set([length], Band(0, sizes.window - 1))), *ends)


def masked(length: int, window: int) -> Callable[..., Tensor]:
    """Dense SDPA that is told the window by a mask."""
    mask = torch.ones(length, length, dtype=torch.bool).tril_().triu_(1 - window)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ends = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
        return sdpa(*ends, attn_mask=mask).squeeze(0).transpose(0, 1)

    return attend


def in_full(attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same with PyTorch's plain products and softmax in place of its fused kernel."""

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return attend(q, k, v)

    return plain


def window(sizes: Sizes, short: bool) -> list[Row]:
    """A causal window over a long sequence."""
    names = ("graphformer", "graphformer half", "graphformer double", "sdpa")
    times = alternate({name: window_candidate(name, sizes) for name in names}, sizes.runs)
    work = f"causal window of {sizes.window} over {sizes.window_length} tokens"
    memory = memory_rows("window", ["graphformer", "sdpa", "sdpa math"], short)
    mine, fused, plain = (max(row.details["work"], 1e-9) for row in memory)
    # A result and three gradients, float32: what any way of computing it leaves behind.
    least = 4 * sizes.window_length * sizes.heads * HEAD * 4 / 2**20
    rows = [
        Row(f"{work} / SDPA with the mask", ratio(times, "sdpa", "graphformer"),
            "x", ">=", 8.0, "", times_of(times)),
        Row("  share of the memory of dense SDPA", mine / plain, "", "<=", 0.125,
            "what the work adds to a fresh process; products and softmax in full"),
        Row("  share of the memory of fused SDPA", mine / fused, "", "<=", 0.125,
            f"which keeps no scores; result and gradients alone are {least / fused:.2f}"),
        Row("  time at twice / half the length",
            ratio(times, "graphformer double", "graphformer half"), "x", "<=", 4.6),
    ]  # fmt: skip
    return [*rows, *memory, _flex(sizes)]


def _flex(sizes: Sizes) -> Row:
    """Against compiled flex_attention, forward only."""
    length = sizes.window_length
    try:
        flex = flex_window(sizes.window, length)
    except Skipped as error:
        return Row("  / flex_attention", float("nan"), "x", None, None, str(error)[:160])
    q, k, v = (x.detach() for x in leaves(length, sizes.heads))
    ends = [x.transpose(0, 1).unsqueeze(0).contiguous() for x in (q, k, v)]
    attend = ours(edge_set([length], Band(0, sizes.window - 1)))
    works = {"graphformer": lambda run: attend(q, k, v), "flex": lambda run: flex(*ends)}
    times = alternate(works, sizes.runs)
    value = ratio(times, "flex", "graphformer")
    note = "compiled, forward only: it has no gradient on a CPU"
    return Row("  / flex_attention", value, "x", None, None, note, times_of(times))


def crossover(sizes: Sizes, short: bool) -> list[Row]:
    """Message kernel against dense masked blocks by the share of cells that have an edge.

    A bias of zeros keeps the block kernel from its chunks, so that it is dense all through.
    """
    n, rows = sizes.crossover_length, []
    lens = [n] * max(1, sizes.block_tokens // n)
    for reach in [0, *(2**i for i in range(1, n.bit_length())), n]:
        edges = edge_set(lens, Band(0, reach) if reach < n else Band())
        ends = leaves(sum(lens), sizes.heads)
        bias = torch.zeros(len(edges), sizes.heads)
        works = {
            kernel: forward_backward(
                lambda q, k, v, kernel=kernel, edges=edges, bias=bias: gf.attend(
                    edges, q, k, v, bias=bias, kernel=kernel
                ),
                *ends,
            )
            for kernel in ("message", "block")
        }
        works["auto"] = forward_backward(ours(edges), *ends)
        times = alternate(works, sizes.runs)
        density = len(edges) / (len(lens) * n * n)
        rows.append(
            Row(f"density {density:.4f}: time of message / dense block",
                ratio(times, "message", "block"), "x", None, None,
                f"message / auto without bias: {ratio(times, 'message', 'auto'):.3g}",
                {"density": density, **times_of(times)})
        )  # fmt: skip
    return rows


def growth(sizes: Sizes, short: bool) -> list[Row]:
    """Time of causal and complete blocks by length and by number, tokens growing alike."""
    rows = []
    for name, band in (("complete", Band()), ("causal", CAUSAL)):
        for axis, cases in (
            ("length", [[n] * 4 for n in sizes.blocks]),
            ("batch", [[sizes.blocks[1]] * b for b in (1, 4, 16, 64)]),
        ):
            works = {}
            for lens in cases:
                ends = leaves(sum(lens), sizes.heads)
                key = lens[0] if axis == "length" else len(lens)
                works[str(key)] = forward_backward(ours(edge_set(lens, band)), *ends)
            times = alternate(works, sizes.runs)
            first, last = list(times)[0], list(times)[-1]
            growth = ", ".join(
                f"{k}: {sorted(t)[len(t) // 2] * 1e3:.3g} ms" for k, t in times.items()
            )
            label = f"{name} blocks by {axis}: time at {last} / at {first}"
            rows.append(Row(label, ratio(times, last, first), "x", None, None, growth))
    return rows
