"""The Transformer and the Adaptive Universal Transformer as message passing on graphs.

Letters in every docstring and shape comment: N nodes, E edges, T target nodes, M model width,
H heads, D width of a head, V vocabulary, B sentences, K beams.
"""

from graphformer._versions import __version__, check_versions

check_versions()  # before anything below imports torch or DGL

from graphformer.attention import attend  # noqa: E402
from graphformer.bands import Band  # noqa: E402
from graphformer.build import ModelConfig, make_model  # noqa: E402
from graphformer.decode import Hypothesis, infer  # noqa: E402
from graphformer.edges import EdgeSet  # noqa: E402
from graphformer.frames import propagate_attention, update_graph  # noqa: E402
from graphformer.graph import GraphBatch, GraphPool  # noqa: E402
from graphformer.halting import Halting, HaltingRule, HaltingUnit, Ponder  # noqa: E402
from graphformer.maps import AttentionRecords, record_attention  # noqa: E402
from graphformer.multihead import MultiHeadAttention  # noqa: E402
from graphformer.patterns import causal, complete, window  # noqa: E402
from graphformer.transformer import Output, Transformer  # noqa: E402
from graphformer.universal import UTransformer  # noqa: E402

__all__ = [
    "AttentionRecords",
    "Band",
    "EdgeSet",
    "GraphBatch",
    "GraphPool",
    "Halting",
    "HaltingRule",
    "HaltingUnit",
    "Hypothesis",
    "ModelConfig",
    "MultiHeadAttention",
    "Output",
    "Ponder",
    "Transformer",
    "UTransformer",
    "__version__",
    "attend",
    "causal",
    "complete",
    "infer",
    "make_model",
    "propagate_attention",
    "record_attention",
    "update_graph",
    "window",
]
