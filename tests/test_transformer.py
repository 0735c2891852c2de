"""The plain Transformer, and what holds for both models: equal to a padded one, no leaks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import PaddedModel
from small import BOTH, TOLERANCE, close, gradients, numbers, small_model, some_pairs

from graphformer.graph import GraphPool

SRC_LENS, TGT_LENS = [3, 1, 5, 1, 2, 3], [2, 4, 1, 1, 7, 2]


def check_equal_to_padded(model, src, tgt, kernel="auto"):
    """Logits, ponder cost, steps, and the gradients of all parameters."""
    for module in model.modules():
        if hasattr(module, "kernel"):
            module.kernel = kernel
    tolerance = TOLERANCE[model.generator.weight.dtype]
    padded = PaddedModel(model)
    expected = padded(src, tgt)
    model.zero_grad()
    found = model(GraphPool()(src, tgt))
    if expected.steps is not None:
        assert {side: n.tolist() for side, n in model.ponder.steps.items()} == expected.steps
    close(found.logits, expected.logits, tolerance)
    close(found.act_loss, expected.act_loss, tolerance)
    # The sine makes every logit's weight in the sum another one.
    for result in (expected, found):
        (result.logits.sin().sum() / len(result.logits) + result.act_loss).backward()
    for name, grad in padded.gradients().items():
        close(gradients(model)[name], grad, tolerance)


@pytest.mark.parametrize("kernel", ["message", "block", "auto"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("universal", BOTH)
def test_equal_to_a_padded_model(universal, dtype, kernel):
    src, tgt = some_pairs(SRC_LENS, TGT_LENS)
    check_equal_to_padded(small_model(universal, dtype, h=5), src, tgt, kernel)
