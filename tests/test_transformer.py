"""The plain Transformer, and what holds for both models: equal to a padded one, no leaks."""

import dataclasses
import gc
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import PaddedModel
from small import BOTH, TOLERANCE, close, gradients, numbers, small_model, some_pairs

from graphformer.build import make_model
from graphformer.edges import EdgeSet
from graphformer.graph import GraphPool
from graphformer.patterns import window
from graphformer.transformer import Output, Transformer

SRC_LENS, TGT_LENS = [3, 1, 5, 1, 2, 3], [2, 4, 1, 1, 7, 2]

both_models = pytest.mark.parametrize("universal", BOTH, ids=["plain", "universal"])


def check_equal_to_padded(model, src, tgt, kernel="auto", edges=None, biases=None):
    """Logits, ponder cost, steps, and the gradients of all parameters (and of biases).

    `edges[kind]` has one edge set a sample, `biases[kind]` one (E, H) tensor a sample.
    """
    for module in model.modules():
        if hasattr(module, "kernel"):
            module.kernel = kernel
    tolerance = TOLERANCE[model.generator.weight.dtype]
    batch = GraphPool()(src, tgt, edges=edges)
    masks = {kind: [mask_of(part) for part in own] for kind, own in (edges or {}).items()}
    dense = {}
    for kind, own in (biases or {}).items():
        joined = torch.cat(own)
        dense[kind] = [batch.edges[kind].dense(joined, i) for i in range(len(own))]
    padded = PaddedModel(model)
    expected = padded(src, tgt, masks, dense)
    model.zero_grad()
    found = model(batch, bias={kind: torch.cat(own) for kind, own in (biases or {}).items()})
    if expected.steps is not None:
        assert {side: n.tolist() for side, n in model.ponder.steps.items()} == expected.steps
    close(found.logits, expected.logits, tolerance)
    close(found.act_loss, expected.act_loss, tolerance)
    leaves = [leaf for own in (biases or {}).values() for leaf in own if len(leaf)]
    slopes = []
    for result in (expected, found):
        # The sine makes every logit's weight in the sum another one.
        total = result.logits.sin().sum() / len(result.logits) + result.act_loss
        slopes.append(torch.autograd.grad(total, leaves, retain_graph=True) if leaves else ())
        total.backward()
    for name, leaf in padded.leaves().items():
        # At depth 1 the halting unit decides nothing, and the twin never comes to use it.
        slope = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        close(gradients(model)[name], slope, tolerance)
    for mine, twin in zip(*slopes, strict=True):
        close(mine, twin, tolerance)


def mask_of(edges):
    mask = torch.zeros(edges.num_dst, edges.num_src, dtype=torch.bool)
    mask[edges.dst, edges.src] = True
    return mask


# ------------------------------------------------------------------ equal to the padded model


@pytest.mark.parametrize("kernel", ["message", "block", "auto"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@both_models
def test_equal_to_a_padded_model(universal, dtype, kernel):
    src, tgt = some_pairs(SRC_LENS, TGT_LENS)
    check_equal_to_padded(small_model(universal, dtype, h=5), src, tgt, kernel)


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=3),
    st.sampled_from([1, 3, 5, 15]),
    st.booleans(),
    st.integers(0, 99),
    st.sampled_from(list(TOLERANCE)),
)
@both_models
def test_equal_for_any_lengths_and_heads(universal, lens, h, shared, seed, dtype):
    lens = [(1, 3), (5, 1), *lens]
    src, tgt = some_pairs(*zip(*lens, strict=True), seed)
    model = small_model(universal, dtype, seed, h=h, share_embeddings=shared, max_depth=3)
    check_equal_to_padded(model, src, tgt)


@both_models
def test_odd_width_and_vocabularies_that_differ(universal):
    torch.manual_seed(1)
    sizes = dict(N=1, dim_model=33, dim_ff=5, h=1, dropout=0.0, max_depth=2)
    model = make_model(11, 13, universal=universal, **sizes).double()
    src, tgt = some_pairs([3, 1], [2, 4], vocabulary=11)
    check_equal_to_padded(model, src, tgt)
    assert model(GraphPool()(src, tgt)).logits.shape == (6, 13)


# ------------------------------------------------------------------ other graphs


@settings(max_examples=15)
@given(st.data())
@both_models
def test_graphs_and_biases_of_the_users_own(universal, data):
    """Any edges, a node without in-edges and a sample without edges among them."""
    src, tgt = some_pairs([3, 1, 5], [2, 5, 1])
    sizes = {"ee": [(3, 3), (1, 1), (5, 5)], "ed": [(3, 2), (1, 5), (5, 1)]}
    sizes["dd"] = [(2, 2), (5, 5), (1, 1)]
    edges, biases = {}, {}
    for kind, shapes in sizes.items():
        own = [data.draw(simple_edges(*shape), label=f"{kind} {shape}") for shape in shapes]
        edges[kind] = own
        biases[kind] = [numbers(i, len(part), 3).requires_grad_() for i, part in enumerate(own)]
    model = small_model(universal, max_depth=3)
    check_equal_to_padded(model, src, tgt, edges=edges, biases=biases)


@st.composite
def simple_edges(draw, num_src, num_dst):
    """No edge twice, so that a mask says all of it."""
    pairs = [(i, j) for i in range(num_src) for j in range(num_dst)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True))
    src, dst = (torch.tensor([pair[side] for pair in chosen], dtype=torch.int64) for side in (0, 1))
    return EdgeSet(src, dst, num_src, num_dst)


@pytest.mark.parametrize("kernel", ["message", "block", "auto"])
@both_models
def test_biases_on_the_usual_patterns(universal, kernel):
    src, tgt = some_pairs([3, 1, 5], [2, 5, 1])
    batch = GraphPool()(src, tgt)
    biases = {
        kind: [
            numbers(7 + i, count, 3).requires_grad_()
            for i, count in enumerate(edges.sizes.edges.tolist())
        ]
        for kind, edges in batch.edges.items()
    }
    check_equal_to_padded(small_model(universal, max_depth=3), src, tgt, kernel, biases=biases)


@both_models
def test_windows_from_the_pool(universal):
    src, tgt = some_pairs([7, 2, 3], [5, 3, 1])
    enc, dec = window(1), window(2, causal=True)
    edges = {"ee": [enc(len(ids)) for ids in src], "dd": [dec(len(ids) - 1) for ids in tgt]}
    model = small_model(universal)
    check_equal_to_padded(model, src, tgt, edges=edges)
    expected = model(GraphPool()(src, tgt, edges=edges)).logits
    close(model(GraphPool(enc=enc, dec=dec)(src, tgt)).logits, expected)


# ------------------------------------------------------------------ gradients everywhere


@pytest.mark.parametrize("shared", [False, True])
@both_models
def test_every_parameter_gets_a_gradient(universal, shared):
    """With fresh weights, as a user has them."""
    model = make_model(
        *(23, 23, 2, 15, 7, 3), universal=universal, share_embeddings=shared, halting_bias=-1.0
    )
    batch = GraphPool()(*some_pairs(SRC_LENS, TGT_LENS))
    logits, act_loss = model(batch)
    (nn_loss(logits, batch) + act_loss).backward()
    for name, grad in gradients(model).items():
        assert grad is not None and bool(grad.any()), name
        assert bool(grad.isfinite().all()), name


def nn_loss(logits, batch):
    return torch.nn.functional.cross_entropy(logits, batch.tgt_y)


@both_models
def test_default_halting_leaves_no_parameter_out(universal):
    model = make_model(23, 23, 2, 15, 7, 3, universal=universal)
    batch = GraphPool()(*some_pairs(SRC_LENS, TGT_LENS))
    logits, act_loss = model(batch)
    (nn_loss(logits, batch) + act_loss).backward()
    assert all(bool(grad.any()) for grad in gradients(model).values())


# ------------------------------------------------------------------ no leaks


def check_no_leak_from_later_tokens(model):
    """Whatever follows position i, the logits up to i are the same to the last bits."""
    src, tgt = some_pairs([3, 5], [7, 2])
    pool = GraphPool()
    before = model(pool(src, tgt)).logits
    for i in range(1, 7):
        changed = [[*tgt[0][:i], *(4 + (token + 3) % 19 for token in tgt[0][i:-1]), 1], tgt[1]]
        after = model(pool(src, changed)).logits
        close(after[:i], before[:i], 1e-13)
        assert float((after[i] - before[i]).detach().abs().max()) > 1e-6, "it does see its own"
        close(after[7:], before[7:], 1e-13)


@both_models
def test_later_tokens_never_change_earlier_logits(universal):
    check_no_leak_from_later_tokens(small_model(universal))


@both_models
def test_source_reaches_every_target(universal):
    model = small_model(universal)
    src, tgt = some_pairs([3], [5])
    before = model(GraphPool()(src, tgt)).logits
    for i in range(3):
        changed = [*src[0]]
        changed[i] = 4 + (changed[i] - 4 + 1) % 19
        after = model(GraphPool()([changed], tgt)).logits
        assert bool(((after - before).abs().amax(1) > 1e-6).all())


@both_models
def test_samples_do_not_touch_each_other(universal):
    model = small_model(universal)
    src, tgt = some_pairs(SRC_LENS, TGT_LENS)
    pool = GraphPool()
    together = model(pool(src, tgt)).logits.split(TGT_LENS)
    for i, rows in enumerate(together):
        close(model(pool([src[i]], [tgt[i]])).logits, rows, 1e-12)
    order = [4, 2, 0, 5, 3, 1]
    mixed = model(pool([src[i] for i in order], [tgt[i] for i in order])).logits
    close(mixed, torch.cat([together[i] for i in order]), 1e-12)


@both_models
def test_nodes_have_no_order_but_their_positions(universal):
    """Source nodes shuffled together with their positions: the same logits."""
    model = small_model(universal)
    batch = GraphPool()(*some_pairs([5, 3], [2, 4]))
    order = torch.tensor([3, 0, 4, 1, 2, 6, 7, 5])
    mixed = dataclasses.replace(batch, src=(batch.src[0][order], batch.src[1][order]))
    found, expected = model(mixed), model(batch)
    close(found.logits, expected.logits, 1e-12)
    if universal:
        assert model.ponder.steps["enc"].shape == (8,)
    positions_alone = dataclasses.replace(batch, src=(batch.src[0], batch.src[1][order]))
    assert not torch.allclose(model(positions_alone).logits, expected.logits)


# ------------------------------------------------------------------ wiring


@both_models
def test_final_norm_is_applied_once_a_stack(universal):
    model = small_model(universal)
    norms = [model.enc.norm, model.dec.norm] if universal else [model.enc_norm, model.dec_norm]
    calls = [[], []]
    for norm, seen in zip(norms, calls, strict=True):
        norm.register_forward_hook(lambda module, args, out, seen=seen: seen.append(len(out)))
    batch = GraphPool()(*some_pairs([3, 5], [2, 7]))
    model(batch)
    if not universal:
        assert calls == [[8], [9]]
        return
    # Once for the halting unit at each step, over the active nodes, and once at the end.
    for side, count, seen in zip(("enc", "dec"), (8, 9), calls, strict=True):
        entered = model.ponder.entered(side) * count
        assert seen == [*(n for n in entered.round().int().tolist() if n), count]


def test_output():
    logits = torch.tensor([[1.0, 2.0, 4.0]])
    output = Output(logits, torch.tensor(0.5))
    first, second = output
    assert first is logits and second.item() == 0.5
    close(output.log_probs, logits - logits.exp().sum().log(), 1e-6)
    assert output.log_probs.exp().sum().item() == pytest.approx(1)


@both_models
def test_both_models_are_called_alike(universal):
    model = small_model(universal)
    output = model(GraphPool()(*some_pairs([3], [5])))
    assert isinstance(output, Output)
    assert output.logits.shape == (5, 23) and output.act_loss.shape == ()
    assert (output.act_loss.item() > 0) == universal
    assert (model.ponder is not None) == universal
    assert (model.src_vocab, model.tgt_vocab) == (23, 23)


@pytest.mark.parametrize(
    ("src_ids", "tgt_ids", "bad"),
    [([4, 23], [0, 5, 1], 23), ([4, -1], [0, 5, 1], -1), ([4], [0, 99, 1], 99)],
)
@both_models
def test_ids_outside_the_vocabulary_are_named(universal, src_ids, tgt_ids, bad):
    with pytest.raises(ValueError, match=f"token id {bad} .*vocabulary of 23"):
        small_model(universal)(GraphPool()([src_ids], [tgt_ids]))


@both_models
def test_biases_that_do_not_fit_are_named(universal):
    model, batch = small_model(universal), GraphPool()(*some_pairs([3], [2]))
    with pytest.raises(ValueError, match="'enc'.* ee, ed, dd"):
        model(batch, bias={"enc": torch.zeros(9, 3)})
    with pytest.raises(ValueError, match=r"bias has the shape \(9, 2\).*'ee'.*\(9, 3\)"):
        model(batch, bias={"ee": torch.zeros(9, 2)})


# ------------------------------------------------------------------ seeds, modes, precision


@both_models
def test_dropout_and_seeds(universal):
    sizes = dict(N=2, dim_model=15, dim_ff=7, h=3, dropout=0.3, attention_dropout=0.3)
    batch = GraphPool()(*some_pairs(SRC_LENS, TGT_LENS))
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        model = make_model(23, 23, universal=universal, **sizes)
        results.append((model(batch).logits, model.state_dict()))
    assert results[0][0].equal(results[1][0]), "weights and dropout from the seed"
    assert not results[0][0].equal(results[2][0])
    assert not model(batch).logits.equal(model(batch).logits), "dropout is on while training"
    model.eval()
    assert model(batch).logits.equal(model(batch).logits)


@both_models
def test_bfloat16_autocast(universal):
    model = small_model(universal, torch.float32, halting_bias=-2.0, max_depth=3)
    batch = GraphPool()(*some_pairs(SRC_LENS, TGT_LENS))
    exact = model(batch)
    nn_loss(exact.logits, batch).backward()
    slopes = gradients(model)
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = model(batch)
        loss = nn_loss(near.logits.float(), batch) + near.act_loss
    loss.backward()
    assert near.logits.dtype == torch.bfloat16
    # 8 bits of mantissa, over a few layers.
    close(near.logits.float(), exact.logits, 0.1)
    for name, grad in gradients(model).items():
        assert grad.dtype == torch.float32 and bool(grad.isfinite().all())
        if "halting" not in name:
            close(grad, slopes[name], 0.2)


@both_models
def test_a_model_in_16_bits(universal):
    batch = GraphPool()(*some_pairs(SRC_LENS, TGT_LENS))
    model = small_model(universal, torch.bfloat16, halting_bias=-2.0, max_depth=3)
    found = model(batch)
    assert found.logits.dtype == torch.bfloat16
    exact = small_model(universal, torch.float32, halting_bias=-2.0, max_depth=3)(batch)
    close(found.logits.float(), exact.logits, 0.2)
    (nn_loss(found.logits.float(), batch) + found.act_loss).backward()
    assert all(bool(grad.isfinite().all()) for grad in gradients(model).values())


@both_models
def test_precision_can_be_changed_after_use(universal):
    """Nothing computed in float32 is left over, such as a table of positions."""
    model = small_model(universal, torch.float32)
    batch = GraphPool()(*some_pairs([3, 5], [2, 7]))
    model(batch)
    model.double()
    fresh = small_model(universal)
    fresh.load_state_dict(model.state_dict())
    close(model(batch).logits, fresh(batch).logits, 1e-14)


@both_models
def test_weights_are_all_there_is(universal):
    names = small_model(universal).state_dict().keys()
    assert names == {
        name for name, _ in small_model(universal).named_parameters(remove_duplicate=False)
    }


# ------------------------------------------------------------------ nothing piles up


@both_models
def test_a_batch_keeps_no_history(universal):
    """Used again and again, as in an overfitting test: no frame column holds on to a pass."""
    model = small_model(universal)
    for module in model.modules():
        if hasattr(module, "kernel"):
            module.kernel = "message"
    batch = GraphPool()(*some_pairs([3, 5], [2, 7]))
    model(batch).logits.sum().backward()
    for edges in batch.edges.values():
        g = edges.graph
        assert not [*g.srcdata, *g.dstdata, *g.edata]
    assert "g" not in vars(batch), "the one big graph is not even made"


def live_tensors():
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def resident_mb():
    """Memory of this process that is in use, where the system tells."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0.0
    return int(statm.read_text(encoding="utf-8").split()[1]) * 4096 / 2**20


@both_models
def test_memory_is_flat_over_200_steps(universal):
    sizes = dict(N=1, dim_model=6, dim_ff=5, h=2, dropout=0.1, attention_dropout=0.1)
    model = make_model(23, 23, universal=universal, max_depth=3, halting_bias=-1.0, **sizes)
    optimizer = torch.optim.Adam(model.parameters())
    pool, found = GraphPool(), []
    pairs = [some_pairs(SRC_LENS[i:], TGT_LENS[i:], seed=i) for i in range(4)]
    for step in range(200):
        batch = pool(*pairs[step % 4])
        logits, act_loss = model(batch)
        optimizer.zero_grad()
        (nn_loss(logits, batch) + act_loss).backward()
        optimizer.step()
        if step in (19, 199):
            found.append((live_tensors(), resident_mb()))
    (tensors, memory), (later_tensors, later_memory) = found
    assert later_tensors <= tensors
    assert later_memory < memory + 8, "keeping every pass would take over 100 MB"


def test_layers_are_counted():
    model = Transformer(11, 11, N=3, dim_model=6, dim_ff=5, h=2)
    assert (len(model.enc_layers), len(model.dec_layers)) == (3, 3)
