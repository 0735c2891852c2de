"""The Transformer and the Adaptive Universal Transformer as message passing on graphs.

Letters in every docstring and shape comment: N nodes, E edges, T target nodes, M model width,
H heads, D width of a head, V vocabulary, B sentences, K beams.
"""

from graphformer._versions import __version__, check_versions

check_versions()  # before anything below imports torch or DGL

from graphformer.attention import attend  # noqa: E402
from graphformer.bands import Band  # noqa: E402
from graphformer.build import ModelConfig, make_model  # noqa: E402
from graphformer.codec import (  # noqa: E402
    BPECodec,
    Codec,
    WordCodec,
    load_codec,
    train_bpe,
    train_words,
)
from graphformer.corpus import read_parallel  # noqa: E402
from graphformer.decode import Hypothesis, infer  # noqa: E402
from graphformer.edges import EdgeSet  # noqa: E402
from graphformer.evaluation import Batches, Evaluation, evaluate  # noqa: E402
from graphformer.frames import propagate_attention, update_graph  # noqa: E402
from graphformer.graph import GraphBatch, GraphPool  # noqa: E402
from graphformer.halting import Halting, HaltingRule, HaltingUnit, Ponder  # noqa: E402
from graphformer.loss import LabelSmoothing, Score  # noqa: E402
from graphformer.maps import AttentionRecord, AttentionRecords, record_attention  # noqa: E402
from graphformer.metrics import Bleu, bleu, exact_match, token_accuracy  # noqa: E402
from graphformer.multihead import MultiHeadAttention  # noqa: E402
from graphformer.patterns import causal, complete, window  # noqa: E402
from graphformer.runfolder import RunFolder  # noqa: E402
from graphformer.schedule import (  # noqa: E402
    Constant,
    InverseSqrt,
    Linear,
    Noam,
    make_schedule,
)
from graphformer.tasks import toy_task  # noqa: E402
from graphformer.train import fit  # noqa: E402
from graphformer.trainconfig import TrainConfig  # noqa: E402
from graphformer.transformer import Output, Transformer  # noqa: E402
from graphformer.universal import UTransformer  # noqa: E402
from graphformer.update import StepRecord  # noqa: E402
from graphformer.vocab import Vocab  # noqa: E402

__all__ = [
    "AttentionRecord",
    "AttentionRecords",
    "BPECodec",
    "Band",
    "Batches",
    "Bleu",
    "Codec",
    "Constant",
    "EdgeSet",
    "Evaluation",
    "GraphBatch",
    "GraphPool",
    "Halting",
    "HaltingRule",
    "HaltingUnit",
    "Hypothesis",
    "InverseSqrt",
    "LabelSmoothing",
    "Linear",
    "ModelConfig",
    "MultiHeadAttention",
    "Noam",
    "Output",
    "Ponder",
    "RunFolder",
    "Score",
    "StepRecord",
    "TrainConfig",
    "Transformer",
    "UTransformer",
    "Vocab",
    "WordCodec",
    "__version__",
    "attend",
    "bleu",
    "causal",
    "complete",
    "evaluate",
    "exact_match",
    "fit",
    "infer",
    "load_codec",
    "make_model",
    "make_schedule",
    "propagate_attention",
    "read_parallel",
    "record_attention",
    "token_accuracy",
    "toy_task",
    "train_bpe",
    "train_words",
    "update_graph",
    "window",
]
