"""From a description to a model: defaults, sharing, first weights, and what is refused."""

import dataclasses
import inspect
import math

import pytest
import torch
from small import BOTH, some_pairs

from graphformer.build import ModelConfig, make_model
from graphformer.graph import GraphPool
from graphformer.halting import HaltingRule
from graphformer.multihead import MultiHeadAttention
from graphformer.transformer import Transformer
from graphformer.universal import UTransformer

SIZES = dict(N=2, dim_model=6, dim_ff=5, h=2)

both_models = pytest.mark.parametrize("universal", BOTH, ids=["plain", "universal"])


def test_signature_is_the_one_users_know():
    parameters = inspect.signature(make_model).parameters
    positional = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [
        *("src_vocab", "tgt_vocab", "N", "dim_model", "dim_ff", "h", "dropout", "universal")
    ]
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    assert defaults == {
        **{"N": 6, "dim_model": 512, "dim_ff": 2048, "h": 8, "dropout": 0.1, "universal": False},
        **{"share_embeddings": True, "attention_dropout": 0.0, "max_depth": 8, "threshold": 0.99},
        **{"act_loss_weight": 0.01, "halting_bias": 1.0, "kernel": "auto"},
    }


@pytest.mark.parametrize("model", [Transformer, UTransformer])
def test_classes_have_the_same_defaults(model):
    of_make_model = inspect.signature(make_model).parameters
    for name, parameter in inspect.signature(model).parameters.items():
        if name == "rule":
            assert parameter.default == HaltingRule(
                *(
                    of_make_model[option].default
                    for option in ("max_depth", "threshold", "act_loss_weight", "halting_bias")
                )
            )
        else:
            assert parameter.default == of_make_model[name].default, name


def test_config_mirrors_the_signature():
    parameters = dict(inspect.signature(make_model).parameters)
    del parameters["src_vocab"], parameters["tgt_vocab"]
    fields = {field.name: field.default for field in dataclasses.fields(ModelConfig)}
    assert fields == {name: p.default for name, p in parameters.items()}


@both_models
def test_config_makes_the_same_model(universal):
    config = ModelConfig(**SIZES, universal=universal, max_depth=3, threshold=0.9)
    models = []
    for make in (config.make, lambda *v: make_model(*v, **dataclasses.asdict(config))):
        torch.manual_seed(3)
        models.append(make(11, 13))
    assert type(models[0]) is type(models[1]) is (UTransformer if universal else Transformer)
    for one, other in zip(*(model.state_dict().values() for model in models), strict=True):
        assert one.equal(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.N = 3


def test_options_arrive():
    model = make_model(
        *(11, 11),
        **{
            **SIZES,
            "universal": True,
            "dropout": 0.2,
            "attention_dropout": 0.3,
            "kernel": "message",
        },
        **{"max_depth": 3, "threshold": 0.9, "act_loss_weight": 0.5, "halting_bias": -2.0},
    )
    assert model.rule == (3, 0.9, 0.5, -2.0)
    for stack in (model.enc, model.dec):
        assert stack.rule == model.rule
        assert stack.halting_unit.linear.bias.item() == -2.0
        assert stack.dropout.p == stack.layer.ff_block.ff.dropout.p == 0.2
    attentions = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert [(m.h, m.dropout, m.kernel) for m in attentions] == [(2, 0.3, "message")] * 3


def test_number_of_parameters_by_hand():
    """V M for the one table; attention 4 M M, feed-forward 2 M F + F + M, a norm 2 M."""
    M, F, V = 6, 5, 11
    norm, attention, ff = 2 * M, 4 * M * M, 2 * M * F + F + M
    enc, dec = attention + ff + 2 * norm, 2 * attention + ff + 3 * norm
    plain = make_model(V, V, **SIZES)
    assert sum(p.numel() for p in plain.parameters()) == V * M + 2 * (enc + dec) + 2 * norm
    shared = make_model(V, V, **SIZES, universal=True)
    assert sum(p.numel() for p in shared.parameters()) == V * M + enc + dec + 2 * (norm + M + 1)


# ------------------------------------------------------------------ shared embeddings


@both_models
def test_one_matrix_for_all_three(universal):
    model = make_model(11, 11, **SIZES, universal=universal)
    assert model.src_embed is model.tgt_embed
    assert model.generator.weight is model.tgt_embed.weight


@both_models
def test_sources_of_another_vocabulary_have_their_own(universal):
    model = make_model(13, 11, **SIZES, universal=universal)
    assert model.src_embed.weight.shape == (13, 6)
    assert model.generator.weight is model.tgt_embed.weight


@both_models
def test_nothing_is_shared_if_not_wanted(universal):
    model = make_model(11, 11, **SIZES, universal=universal, share_embeddings=False)
    matrices = {
        id(m) for m in (model.src_embed.weight, model.tgt_embed.weight, model.generator.weight)
    }
    assert len(matrices) == 3


# ------------------------------------------------------------------ first weights


@pytest.mark.parametrize("shared", [False, True])
@both_models
def test_matrices_start_xavier_uniform(universal, shared):
    model = make_model(101, 103, 1, 36, 31, 3, universal=universal, share_embeddings=shared)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            expected = 1.0 if "halting" in name or "norm.weight" in name else 0.0
            assert bool((parameter == expected).all()), name
            continue
        # Query, key and value are three matrices, though they are stored as one.
        for matrix in parameter.chunk(3) if "qkv" in name else [parameter]:
            bound = math.sqrt(6 / sum(matrix.shape))
            assert float(matrix.detach().abs().max()) <= bound, name
            if matrix.numel() > 200:
                assert float(matrix.detach().abs().max()) > 0.95 * bound, name
                assert float(matrix.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)


@both_models
def test_first_weights_come_from_the_seed(universal):
    states = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        states.append(make_model(11, 11, **SIZES, universal=universal).state_dict())
    assert all(states[0][name].equal(states[1][name]) for name in states[0])
    assert not states[0]["tgt_embed.weight"].equal(states[2]["tgt_embed.weight"])


@both_models
def test_odd_width_with_one_head(universal):
    model = make_model(11, 11, 1, 33, 5, 1, universal=universal)
    model(GraphPool()(*some_pairs([3, 1], [2, 5], vocabulary=11))).logits.sum().backward()


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dim_model": 30, "h": 4}, "dim_model is 30, it is not divisible by h=4"),
        ({"dropout": 1.0}, r"dropout is 1.0, it must lie in \[0, 1\)"),
        ({"dropout": -0.1}, "dropout is -0.1"),
        ({"attention_dropout": 1.0}, "attention_dropout is 1.0"),
        ({"attention_dropout": -0.5}, "attention_dropout is -0.5"),
        ({"dim_model": 0}, "dim_model is 0, at least 1"),
        ({"dim_ff": 0}, "dim_ff is 0, at least 1"),
        ({"h": 0}, "h is 0, at least 1"),
        ({"kernel": "fast"}, "kernel is 'fast', the choices are auto, message, block"),
        ({"src_vocab": 0}, "src_vocab is 0, at least 1"),
        ({"tgt_vocab": -3}, "tgt_vocab is -3, at least 1"),
    ],
)
@both_models
def test_values_out_of_range_are_named(universal, change, says):
    with pytest.raises(ValueError, match=says):
        make_model(**{"src_vocab": 11, "tgt_vocab": 11, **SIZES, **change, "universal": universal})


def test_a_stack_has_a_layer():
    with pytest.raises(ValueError, match="N is 0, at least 1"):
        make_model(11, 11, N=0)
    make_model(11, 11, **{**SIZES, "N": 0}, universal=True)  # where N is not used


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_depth": 0}, "max_depth is 0, at least 1"),
        ({"threshold": 0.0}, r"threshold is 0.0, it must lie in \(0, 1\]"),
        ({"threshold": 1.5}, "threshold is 1.5"),
        ({"act_loss_weight": -1.0}, "act_loss_weight is -1.0, at least 0"),
    ],
)
def test_halting_options_are_checked_at_once(change, says):
    with pytest.raises(ValueError, match=says):
        make_model(11, 11, **SIZES, universal=True, **change)
