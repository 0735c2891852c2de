"""Numbers at their edges: every precision, odd widths, the smallest and a very long input."""

import pytest
import torch
from small import small_model

from graphformer.batching import batches, sample_lengths
from graphformer.build import make_model
from graphformer.evaluation import Batches
from graphformer.graph import GraphPool
from graphformer.schedule import Constant
from graphformer.train import TrainConfig, fit

both_models = pytest.mark.parametrize("universal", [False, True])
PAIRS = [([4, 9, 5], [0, 7, 8, 1]), ([6], [0, 11, 1]), ([13, 4], [0, 5, 22, 17, 1])]


def train(model, pairs, precision="float32", rate=1e-3):
    """One update over all pairs; gives its record."""
    plan = batches(sample_lengths(pairs), max_tokens=10**6, seed=1)
    pool = GraphPool()

    def collate(indices):
        return pool([pairs[i][0] for i in indices], [pairs[i][1] for i in indices])

    config = TrainConfig(epochs=1, precision=precision)
    (record,) = fit(model, Batches(lambda epoch: plan, collate), config, Constant(rate))
    return record


@both_models
@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
def test_a_step_of_training_and_a_translation_in_every_precision(universal, precision):
    dtype = torch.float64 if precision == "float64" else torch.float32
    model = small_model(universal, dtype)
    record = train(model, PAIRS, "bfloat16" if precision == "bfloat16" else "float32")
    assert record.loss > 0 and record.grad_norm > 0
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    if precision == "bfloat16":
        model = model.to(torch.bfloat16)
    found = model.infer([src for src, _ in PAIRS], k=3, max_len=4)
    assert len(found) == 3 and all(-1e3 < hypotheses[0].score < 0 for hypotheses in found)


@both_models
def test_width_33_has_one_head_and_width_30_refuses_4(universal):
    sizes = dict(N=1, dim_ff=7, universal=universal)
    model = make_model(23, 23, dim_model=33, h=1, **sizes)
    assert train(model, PAIRS).loss > 0
    assert model.infer([[4, 5]], k=2, max_len=3)[0][0].score < 0
    with pytest.raises(ValueError, match=r"30.*4"):
        make_model(23, 23, dim_model=30, h=4, **sizes)


@both_models
def test_one_word_is_a_vocabulary_and_one_token_a_sentence(universal):
    model = make_model(5, 5, N=1, dim_model=6, dim_ff=7, h=2, dropout=0.0, universal=universal)
    only = [([4], [0, 4, 1])]
    first = train(model, only).loss
    for _ in range(60):
        last = train(model, only, rate=0.02).loss
    assert last < first / 2
    assert model.infer([[4]], k=9, max_len=3)[0][0].ids == [4]


@both_models
def test_a_sentence_of_2000_tokens(universal):
    words = torch.arange(2000) % 19 + 4
    pairs = [(words.tolist(), [0, *words.flip(0).tolist(), 1]), *PAIRS]
    model = small_model(universal, torch.float32, max_depth=2)
    record = train(model, pairs)
    assert record.tokens == 2001 + 3 + 2 + 4 and 0 < record.loss < 100
    found = model.infer([pairs[0][0], [6]], k=2, max_len=5)
    alone = model.infer([[6]], k=2, max_len=5)
    assert found[1][0].ids == alone[0][0].ids and len(found[0][0].ids) <= 5
