"""The closed form of the smoothed loss against KL divergence from explicit targets."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from graphformer.loss import LabelSmoothing

SOS, EOS, PAD = 0, 1, 2


def explicit(logits, labels, smoothing):
    """Sum of KL(q || p) with q written out, one row a token, ids 0 and 2 never smoothed over."""
    vocabulary = logits.shape[1]
    real = [c for c in range(vocabulary) if c not in (SOS, PAD)]
    total = logits.new_zeros(())
    for row, label in zip(logits, labels.tolist(), strict=True):
        if label == PAD:
            continue
        q = torch.zeros(vocabulary, dtype=logits.dtype)
        for c in real:
            q[c] = smoothing / (len(real) - 1) if c != label else 1 - smoothing
        total = total + functional.kl_div(row.log_softmax(0), q, reduction="sum")
    return total


def random_case(seed, tokens, vocabulary):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(tokens, vocabulary, generator=generator, dtype=torch.float64)
    labels = torch.randint(1, vocabulary, (tokens,), generator=generator)  # 2, padding, too
    return logits.requires_grad_(), labels


@given(
    st.integers(0, 999),
    st.integers(1, 7),
    st.integers(5, 23),
    st.sampled_from([0.0, 0.1, 0.3, 0.9]),
)
def test_equals_explicit_targets_in_value_and_gradient(seed, tokens, vocabulary, smoothing):
    logits, labels = random_case(seed, tokens, vocabulary)
    expected = explicit(logits, labels, smoothing)
    if expected.requires_grad:
        (slow,) = torch.autograd.grad(2.5 * expected, logits)
    else:  # padding alone
        slow = torch.zeros_like(logits)
    score = LabelSmoothing(smoothing)(logits, labels)
    (fast,) = torch.autograd.grad(2.5 * score.nats, logits)
    torch.testing.assert_close(score.nats, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fast, slow, rtol=1e-12, atol=1e-13)
    assert score.tokens == int((labels != PAD).sum())


def test_rows_beyond_one_chunk_are_the_same(monkeypatch):
    logits, labels = random_case(3, 11, 13)
    whole = LabelSmoothing()(logits, labels)
    (gradient,) = torch.autograd.grad(whole.nats, logits)
    monkeypatch.setattr("graphformer.loss._CHUNK_ELEMENTS", 3 * 13)  # 3, 3, 3 and 2 rows
    parts = LabelSmoothing()(logits, labels)
    torch.testing.assert_close(parts.nats, whole.nats, rtol=1e-14, atol=0)
    assert torch.equal(torch.autograd.grad(parts.nats, logits)[0], gradient)
    assert parts[1:] == whole[1:]


def test_gradient_agrees_with_finite_differences():
    logits, labels = random_case(1, 3, 7)
    assert torch.autograd.gradcheck(lambda x: LabelSmoothing(0.1)(x, labels).nats, logits)


def test_golden_value_by_hand():
    # 5 classes of which 1, 3, 4 are real; p = (1/8, 1/8, 1/4, 1/4, 1/4); label 3
    logits = torch.tensor([[1.0, 1.0, 2.0, 2.0, 2.0]]).log()
    q = {3: 0.8, 1: 0.1, 4: 0.1}
    expected = 0.8 * math.log(0.8 / 0.25) + 0.1 * math.log(0.1 / 0.125) + 0.1 * math.log(0.1 / 0.25)
    assert sum(q.values()) == pytest.approx(1)
    score = LabelSmoothing(0.2)(logits, torch.tensor([3]))
    assert score.nats.item() == pytest.approx(expected, rel=1e-6)


def test_smoothing_zero_is_cross_entropy():
    logits, labels = random_case(5, 7, 11)
    expected = functional.cross_entropy(logits, labels, ignore_index=PAD, reduction="sum")
    torch.testing.assert_close(LabelSmoothing(0.0)(logits, labels).nats, expected)


def test_minimum_is_zero_where_the_model_gives_the_target():
    q = torch.tensor([[0.0, 0.05, 0.0, 0.9, 0.05]], dtype=torch.float64)
    logits = q.clamp_min(1e-300).log().requires_grad_()
    score = LabelSmoothing(0.1)(logits, torch.tensor([3]))
    score.nats.backward()
    assert score.nats.item() == pytest.approx(0, abs=1e-12)
    assert logits.grad.abs().max() < 1e-12


def test_special_ids_get_no_probability():
    logits, _ = random_case(7, 3, 7)
    labels = torch.tensor([4, 1, 6])
    LabelSmoothing(0.3)(logits, labels).nats.backward()
    softmax = logits.softmax(1)
    torch.testing.assert_close(logits.grad[:, [SOS, PAD]], softmax[:, [SOS, PAD]])
    assert (logits.grad[:, 3] < softmax[:, 3]).all()


def test_padding_is_neutral_even_beside_nan():
    logits, _ = random_case(2, 3, 7)
    alone = LabelSmoothing()(logits[:1], torch.tensor([5]))
    padded = torch.cat([logits[:1], torch.full((2, 7), math.nan, dtype=torch.float64)])
    padded = padded.detach().requires_grad_()
    score = LabelSmoothing()(padded, torch.tensor([5, PAD, PAD]))
    score.nats.backward()
    assert score.nats.item() == alone.nats.item() and score.tokens == 1
    assert (padded.grad[1:] == 0).all() and padded.grad[0].isfinite().all()


def test_padding_alone_gives_zero():
    logits, _ = random_case(2, 2, 5)
    score = LabelSmoothing()(logits, torch.tensor([PAD, PAD]))
    score.nats.backward()
    assert (score.nats.item(), score.tokens, score.correct) == (0.0, 0, 0)
    assert (logits.grad == 0).all()


def test_a_tie_is_not_correct():
    logits = torch.zeros(3, 5)
    logits[0, 4], logits[1, 3] = 1.0, 1.0
    assert LabelSmoothing()(logits, torch.tensor([4, 4, 4])).correct == 1


def test_bfloat16_logits_are_computed_in_float32():
    logits, labels = random_case(9, 5, 11)
    half = logits.detach().bfloat16().requires_grad_()
    exact = half.detach().float().requires_grad_()
    score, expected = LabelSmoothing()(half, labels), LabelSmoothing()(exact, labels)
    score.nats.backward()
    expected.nats.backward()
    assert score.nats.dtype == torch.float32 and score.nats.item() == expected.nats.item()
    assert half.grad.dtype == torch.bfloat16
    assert torch.equal(half.grad, exact.grad.bfloat16())


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[0.0, 200.0, 0.0, -200.0, 0.0]], requires_grad=True)
    score = LabelSmoothing()(logits, torch.tensor([3]))
    score.nats.backward()
    assert score.nats.item() == pytest.approx(0.9 * 400 + 0.05 * 200, rel=0.01)
    assert logits.grad.isfinite().all()


def test_class_switched_off_with_minus_infinity_is_allowed_without_smoothing():
    logits = torch.tensor([[0.0, 1.0, -math.inf, 1.0, -math.inf]], requires_grad=True)
    score = LabelSmoothing(0.0)(logits, torch.tensor([3]))
    score.nats.backward()
    expected = math.log(1 + 2 * math.e) - 1
    assert score.nats.item() == pytest.approx(expected, rel=1e-6)
    assert logits.grad.isfinite().all()


def test_one_real_class_leaves_nothing_to_smooth_over():
    logits = torch.tensor([[0.5, 1.0, -1.0]], dtype=torch.float64)
    score = LabelSmoothing(0.1)(logits, torch.tensor([EOS]))
    assert score.nats.item() == pytest.approx(-logits.log_softmax(1)[0, 1].item())


@pytest.mark.parametrize(
    ("label", "text"),
    [(7, "label 7 of target node 1"), (-1, "label -1"), (SOS, r"none of \[0, 2\]")],
)
def test_bad_label_is_named(label, text):
    with pytest.raises(ValueError, match=text):
        LabelSmoothing()(torch.zeros(2, 7), torch.tensor([3, label]))


def test_bad_shape_is_refused():
    with pytest.raises(ValueError, match=r"got \(2, 7\) and \(3,\)"):
        LabelSmoothing()(torch.zeros(2, 7), torch.tensor([3, 3, 3]))


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, math.nan])
def test_bad_smoothing_is_refused(smoothing):
    with pytest.raises(ValueError, match="smoothing must be at least 0 and below 1"):
        LabelSmoothing(smoothing)


def test_special_ids_are_those_of_the_vocabulary():
    vocab = pytest.importorskip("graphformer.vocab")
    criterion = LabelSmoothing()
    assert criterion.padding == vocab.PAD and criterion.excluded == (vocab.SOS, vocab.PAD)
