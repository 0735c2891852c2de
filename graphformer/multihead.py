"""Multi-head attention: projections around the core."""

from __future__ import annotations

from collections.abc import Callable

import dgl
from torch import Tensor, nn

from .attention import attend, check_kernel
from .edges import EdgeSet


class MultiHeadAttention(nn.Module):
    """Projections around the core: M -> H heads of width D = M / H, and back.

    Query, key and value share one matrix product where they are taken from the same nodes. None of
    the four has an offset: one on the keys would cancel in the softmax and never be trained.

    Args:
        dim_model: M.
        h: number of heads H.
        dropout: probability of dropping a weight while training.
        kernel: as for :func:`attend`.

    Raises:
        ValueError: if ``dim_model`` is not divisible by ``h``.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(self, dim_model: int, h: int, dropout: float = 0.0, kernel: str = "auto"):
        super().__init__()
        if h < 1 or dim_model % h:
            raise ValueError(f"dim_model is {dim_model}, it is not divisible by h={h} heads")
        check_kernel(kernel)
        self.h, self.dropout, self.kernel = h, dropout, kernel
        self.qkv = nn.Linear(dim_model, 3 * dim_model, bias=False)
        self.out = nn.Linear(dim_model, dim_model, bias=False)
        # Called with (edges, weights) at each use while `record_attention` listens.
        self.listener: Callable[[EdgeSet, Tensor], None] | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier-uniform, each of the four M x M matrices on its own."""
        for matrix in (*self.qkv.weight.chunk(3), self.out.weight):
            nn.init.xavier_uniform_(matrix)

    def project(self, x: Tensor, fields: str = "qkv") -> dict[str, Tensor]:
        """Query, key and value of nodes.

        Args:
            x: node features, ``(N, M)``.
            fields: which of them: neighbours out of ``"qkv"``.

        Returns:
            ``(N, H, D)`` for each field.

        Raises:
            ValueError: if ``fields`` is not a part of ``"qkv"``.
        """
        if not fields or fields not in "qkv":
            raise ValueError(f"fields is {fields!r}, it must be a part of 'qkv'")
        width = x.shape[-1]
        first = "qkv".index(fields)
        weight = self.qkv.weight[first * width : (first + len(fields)) * width]
        heads = nn.functional.linear(x, weight).unflatten(-1, (len(fields), self.h, -1))
        return dict(zip(fields, heads.unbind(1), strict=True))

    def attend(
        self, edges: EdgeSet, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """The core with this module's dropout and kernel.

        Args:
            edges: who attends to whom.
            q: queries of the targets, ``(N_dst, H, D)``.
            k: keys of the sources, ``(N_src, H, D)``.
            v: values of the sources, ``(N_src, H, D)``.
            bias: added to the scores, ``(E, H)`` in edge order.

        Returns:
            ``(N_dst, H, D)``.
        """
        dropout = self.dropout if self.training else 0.0
        # Decoding steps and user graphs have no blocks, whatever the model prefers.
        kernel = "auto" if edges.band is None else self.kernel
        if self.listener is None:
            return attend(edges, q, k, v, bias=bias, dropout=dropout, kernel=kernel)
        wv, weights = attend(
            edges, q, k, v, bias=bias, dropout=dropout, kernel=kernel, return_weights=True
        )
        self.listener(edges, weights)
        return wv

    def output(self, wv: Tensor) -> Tensor:
        """Join the heads: ``wv`` ``(N, H, D)`` -> ``(N, M)``."""
        return self.out(wv.flatten(-2))

    def forward(
        self,
        edges: EdgeSet | dgl.DGLGraph,
        x: Tensor,
        source: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Attention of targets to sources.

        Args:
            edges: who attends to whom.
            x: features of the targets, ``(N_dst, M)``.
            source: features of the sources, ``(N_src, M)``; ``None``: the targets themselves.
            bias: added to the scores, ``(E, H)`` in edge order.

        Returns:
            ``(N_dst, M)``.
        """
        if isinstance(edges, dgl.DGLGraph):
            edges = EdgeSet.from_dgl(edges)
        if source is None:
            fields = self.project(x)
        else:
            fields = self.project(x, "q") | self.project(source, "kv")
        return self.output(self.attend(edges, **fields, bias=bias))
