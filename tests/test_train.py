"""The loop: weighting of tokens, rates, resume bit for bit, validation, stopping, bad numbers."""

import logging
import math
import random
from dataclasses import replace

import pytest
import torch
from stub import StubBatch, StubOutput, stub_batches, stub_model

from graphformer.build import make_model
from graphformer.callbacks import TensorBoardLogger, progress, shielded
from graphformer.evaluation import Batches, evaluate
from graphformer.loss import LabelSmoothing
from graphformer.runfolder import RunFolder
from graphformer.schedule import Constant, InverseSqrt, Noam
from graphformer.state import load_weights, weights_of
from graphformer.train import fit, total_updates
from graphformer.trainconfig import TrainConfig

RATE = Constant(0.05)


def trained(steps=None, config=None, schedule=RATE, batches=None, model=None, **options):
    model = stub_model() if model is None else model
    config = TrainConfig(epochs=3, max_steps=steps) if config is None else config
    records = list(fit(model, batches or stub_batches(), config, schedule, **options))
    return model, records


def same_weights(one, two):
    a, b = weights_of(one), weights_of(two)
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def new_run(path):
    return RunFolder.create(path / "run", "", {})


# ---- what an update is


@pytest.mark.parametrize("ponder", [0.0, 0.7])
def test_many_small_batches_are_one_update_over_all_their_tokens(ponder):
    """3 tokens and 30 in two batches, or 33 in one: the same step of plain SGD."""

    def collate(indices):
        inputs = torch.tensor([3 + (7 * i) % 5 for i in indices])
        return StubBatch(inputs, (3 + inputs * inputs % 7))

    def step(plan, accumulate):
        model = stub_model(dropout=0.0, ponder=ponder).double()
        config = TrainConfig(epochs=1, accumulate=accumulate)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        return trained(
            config=config,
            model=model,
            batches=Batches(lambda epoch: plan, collate),
            optimizer=optimizer,
        )

    everything = list(range(33))
    whole, (one,) = step([everything], 1)
    parts, (two,) = step([everything[:3], everything[3:]], 2)
    for name, tensor in weights_of(whole).items():
        torch.testing.assert_close(weights_of(parts)[name], tensor, rtol=0, atol=1e-12)
    assert two.tokens == one.tokens == 33
    assert two.loss == pytest.approx(one.loss, abs=1e-12)
    assert two.act_loss == pytest.approx(one.act_loss, abs=1e-12) and (one.act_loss > 0) == (
        ponder > 0
    )
    # and the logged loss is the token mean
    fresh = stub_model(dropout=0.0, ponder=ponder).double()
    batch = collate(everything)
    assert one.loss == pytest.approx(
        LabelSmoothing()(fresh(batch).logits, batch.tgt_y).nats.item() / 33, abs=1e-12
    )


def test_the_last_update_of_an_epoch_may_have_fewer_batches():
    seen = []
    source = stub_batches(count=7, size=1)

    def collate(indices):
        seen.append(list(indices))
        return source.collate(indices)

    config = TrainConfig(epochs=2, accumulate=3)
    _, records = trained(config=config, batches=Batches(source.plan, collate))
    assert [record.epoch for record in records] == [1, 1, 1, 2, 2, 2]
    assert seen == [*source.plan(1), *source.plan(2)]  # every sample, once an epoch
    assert sorted(sum(source.plan(2), [])) == list(range(7))
    assert total_updates(source, config) == len(records) == 6


def test_rate_used_by_each_update_is_the_schedule_at_that_update():
    schedule = Noam(width=512, warmup=4000)
    model = stub_model(dropout=0.0).double()
    used = []

    class Spy(torch.optim.SGD):
        def step(self):
            weight, gradient = model.hidden.weight, model.hidden.weight.grad
            before = weight.detach().clone()
            super().step()
            used.append(((before - weight.detach()).norm() / gradient.norm()).item())

    optimizer = Spy(model.parameters(), lr=123.0)
    _, records = trained(3, model=model, schedule=schedule, optimizer=optimizer)
    assert used == pytest.approx([1.7469e-7, 3.4939e-7, 5.2408e-7], rel=1e-4)
    assert [record.rate for record in records] == [schedule(step) for step in (1, 2, 3)]


def test_the_whole_gradient_is_clipped():
    model = stub_model(dropout=0.0).double()
    before = weights_of(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    config = TrainConfig(max_steps=1, clip_norm=0.01)
    _, (record,) = trained(config=config, model=model, schedule=Constant(1.0), optimizer=optimizer)
    moved = torch.cat([(weights_of(model)[n] - t).flatten() for n, t in before.items()])
    assert record.grad_norm > 0.1  # as it was before clipping
    assert moved.norm().item() == pytest.approx(0.01, rel=1e-4)
    _, (free,) = trained(1, model=stub_model(dropout=0.0).double())
    assert free.grad_norm == pytest.approx(record.grad_norm)


def test_adam_has_the_settings_of_the_configuration(monkeypatch):
    made = []
    original = torch.optim.Adam.__init__

    def spy(self, *args, **options):
        made.append(options)
        original(self, *args, **options)

    monkeypatch.setattr(torch.optim.Adam, "__init__", spy)
    trained(config=TrainConfig(max_steps=1, betas=(0.7, 0.95), eps=1e-7))
    assert made[0]["betas"] == (0.7, 0.95) and made[0]["eps"] == 1e-7


@pytest.mark.parametrize(
    "capability, precision, warned",
    [("AVX2", "bfloat16", True), ("AVX512", "bfloat16", False), ("AVX2", "float32", False)],
)
def test_a_format_that_the_processor_emulates_is_named(
    monkeypatch, caplog, capability, precision, warned
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    fit(stub_model(), stub_batches(), TrainConfig(precision=precision), RATE)
    assert ("float32 is many times faster" in caplog.text) == warned


def test_fused_adam_is_adam():
    fused, _ = trained(5)
    plain = stub_model()
    optimizer = torch.optim.Adam(plain.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=False)
    trained(5, model=plain, optimizer=optimizer)
    for name, tensor in weights_of(fused).items():
        torch.testing.assert_close(weights_of(plain)[name], tensor)


def test_records_say_what_happened():
    _, records = trained(9, schedule=InverseSqrt(0.05, 4))
    assert [record.step for record in records] == list(range(1, 10))
    assert [record.epoch for record in records] == [1] * 8 + [2]  # 23 samples in batches of 3
    first = records[0]
    assert first.seconds > 0 and first.tokens_per_second == first.tokens / first.seconds
    assert first.as_dict()["rate"] == 0.05 / 4 and "valid_loss" not in first.as_dict()
    assert all(0 <= record.accuracy <= 1 for record in records)


def test_it_learns():
    model, records = trained(config=TrainConfig(epochs=30), model=stub_model(dropout=0.0))
    assert records[-1].loss < 0.05 < records[0].loss
    assert evaluate(model, stub_batches()).accuracy == 1.0


# ---- randomness


def test_the_seed_decides_everything_and_callers_change_nothing():
    one, _ = trained(20)
    two = stub_model()
    for _ in fit(two, stub_batches(), TrainConfig(epochs=3, max_steps=20), RATE):
        torch.rand(17)  # a caller that draws between updates
    assert same_weights(one, two)
    other, _ = trained(config=TrainConfig(epochs=3, max_steps=20, seed=2))
    assert not same_weights(one, other)


def test_the_callers_generator_is_left_alone():
    model = stub_model()
    before = torch.get_rng_state()
    trained(3, model=model)
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_differs_from_update_to_update():
    seen = []

    class Spy(torch.nn.Dropout):
        def forward(self, x):
            result = super().forward(torch.ones_like(x))
            if self.training:
                seen.append(result[0].clone())
            return x

    model = stub_model()
    model.dropout = Spy(0.5)
    trained(8, model=model)
    assert len({tuple(mask.tolist()) for mask in seen}) > 4


# ---- resume


@pytest.mark.parametrize("stop", [1, 3, 4, 7])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_resumed_training_equals_undisturbed_training_bit_for_bit(tmp_path, stop, accumulate):
    config = TrainConfig(epochs=3, accumulate=accumulate, save_every=1, clip_norm=0.5, keep=2)
    schedule = InverseSqrt(0.05, 3)
    options = {"schedule": schedule, "valid": stub_batches(count=5, seed=1)}
    whole, expected = trained(config=config, **options)

    run = new_run(tmp_path)
    first = fit(stub_model(), stub_batches(), config, run=run, **options)
    for _ in range(stop):
        next(first)
    first.close()
    model = stub_model(seed=99)  # every weight comes from the checkpoint
    again = RunFolder.open(run.path)
    _, rest = trained(config=config, model=model, run=again, resume=True, **options)
    assert same_weights(model, whole)
    clocks = ("seconds", "tokens_per_second")
    for mine, its in zip(rest, expected[stop:], strict=True):
        mine, its = mine.as_dict(), its.as_dict()
        assert {k: v for k, v in mine.items() if k not in clocks} == {
            k: v for k, v in its.items() if k not in clocks
        }
    assert [r["step"] for r in again.log.records()] == [record.step for record in expected]


def test_updates_after_the_last_save_are_made_again(tmp_path):
    config = TrainConfig(epochs=2, save_every=3)
    whole, _ = trained(config=config)
    run = new_run(tmp_path)
    first = fit(stub_model(), stub_batches(), config, RATE, run=run)
    for _ in range(5):
        next(first)
    assert run.steps() == [3] and len(run.log.records()) == 5
    model, rest = trained(config=config, run=run, resume=True)
    assert rest[0].step == 4 and same_weights(model, whole)
    assert [r["step"] for r in run.log.records()] == list(range(1, 17))


def test_a_run_killed_before_its_first_save_starts_again(tmp_path):
    run = new_run(tmp_path)
    run.log.append({"step": 1})
    _, records = trained(2, run=run, resume=True)
    assert [record.step for record in records] == [1, 2]
    assert len(run.log.records()) == 2


def test_a_finished_run_can_be_continued_for_longer(tmp_path):
    run = new_run(tmp_path)
    trained(config=TrainConfig(epochs=2), run=run)
    _, nothing = trained(config=TrainConfig(epochs=2), run=run, resume=True)
    assert nothing == []
    model, _ = trained(config=TrainConfig(epochs=3), run=run, resume=True)
    whole, _ = trained(config=TrainConfig(epochs=3))
    assert same_weights(model, whole)


def test_saves_are_at_the_epoch_ends_by_default(tmp_path):
    run = new_run(tmp_path)
    trained(config=TrainConfig(epochs=3, max_steps=18, keep=9), run=run)
    assert run.steps() == [8, 16, 18]  # and at the very end


def test_what_cannot_be_resumed_is_refused_at_once(tmp_path):
    run = new_run(tmp_path)
    trained(2, run=run)
    with pytest.raises(ValueError, match="was trained to step 2 already"):
        fit(stub_model(), stub_batches(), TrainConfig(), RATE, run=run)
    with pytest.raises(ValueError, match="trained with seed 1, cannot go on with 2"):
        fit(stub_model(), stub_batches(), TrainConfig(seed=2), RATE, run=run, resume=True)
    with pytest.raises(ValueError, match="trained with accumulate 1"):
        fit(stub_model(), stub_batches(), TrainConfig(accumulate=2), RATE, run=run, resume=True)
    with pytest.raises(ValueError, match="step 2: tensor embedding.weight"):
        bigger = stub_model(vocabulary=13)
        fit(bigger, stub_batches(), TrainConfig(), RATE, run=run, resume=True)
    with pytest.raises(ValueError, match="epoch 1 has 4 batches but had 8 before"):
        trained(batches=stub_batches(size=6), run=run, resume=True)
    with pytest.raises(ValueError, match="resume needs the folder"):
        fit(stub_model(), stub_batches(), TrainConfig(), RATE, resume=True)


# ---- validation and stopping


def test_validation_runs_without_dropout_and_all_samples_count():
    model = stub_model(dropout=0.9)
    valid = stub_batches(count=11, size=4)
    result = evaluate(model, valid)
    assert result == evaluate(model, valid)
    assert model.training
    inputs = torch.cat([valid.collate([index]).inputs for index in range(11)])
    model.eval()
    logits = model(StubBatch(inputs, inputs + 1)).logits
    expected = torch.nn.functional.cross_entropy(logits, inputs + 1)
    assert result.loss == pytest.approx(expected.item(), rel=1e-5)
    assert result.accuracy == pytest.approx((logits.argmax(1) == inputs + 1).double().mean().item())
    assert result.tokens == len(inputs)
    evaluate(model, valid)
    assert not model.training
    with pytest.raises(ValueError, match="nothing to evaluate"):
        evaluate(model, Batches(lambda epoch: [], valid.collate))


def test_validation_is_due_as_configured():
    valid = stub_batches(count=3)
    _, records = trained(12, valid=valid)
    assert [r.step for r in records if r.valid] == [8, 12]  # end of epoch, end of training
    config = TrainConfig(max_steps=7, validate_every=3)
    _, records = trained(config=config, valid=valid)
    assert [r.step for r in records if r.valid] == [3, 6, 7]
    assert records[2].as_dict()["valid_loss"] == records[2].valid.loss


class Scripted(torch.nn.Module):
    """A model whose validation losses are given."""

    def __init__(self, losses):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))
        self.losses = list(losses)

    def forward(self, batch):
        logits = self.weight.expand(len(batch.tgt_y), 2).log_softmax(1)
        if not self.training:
            p = math.exp(-self.losses.pop(0))
            logits = torch.tensor([[p, 1 - p]]).log().expand(len(batch.tgt_y), 2)
        return StubOutput(logits, torch.zeros(()))


def one_batch():
    batch = StubBatch(torch.zeros(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int64))
    return Batches(lambda epoch: [[0]], lambda indices: batch)


def test_training_stops_when_validation_no_longer_improves(tmp_path):
    model = Scripted([0.9, 0.5, 0.6, 0.4, 0.7, 0.4, 0.41, 0.2])
    config = TrainConfig(epochs=50, patience=3, keep=1)
    criterion = LabelSmoothing(0.0, padding=9, excluded=())
    run = new_run(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphformer.evaluation.LabelSmoothing", lambda smoothing: criterion)
        options = {"criterion": criterion, "valid": one_batch(), "run": run}
        _, records = trained(config=config, model=model, batches=one_batch(), **options)
        assert len(records) == 7  # best at 4, then three without a lower loss
        assert run.steps() == [4, 7]  # the newest, and the best one is kept
        assert run.checkpoint().counters["best_step"] == 4
        # a resumed run knows that it had stopped
        _, more = trained(
            config=config, model=Scripted([]), batches=one_batch(), resume=True, **options
        )
        assert more == []


def test_patience_needs_validation_data():
    with pytest.raises(ValueError, match="patience 2 needs data"):
        fit(stub_model(), stub_batches(), TrainConfig(patience=2), RATE)


# ---- numbers that are no numbers


class Poisoned(torch.nn.Module):
    """Gives a bad number from a chosen forward pass on, in the loss or in the gradient."""

    def __init__(self, at, kind):
        super().__init__()
        self.inner, self.at, self.kind, self.calls = stub_model(), at, kind, 0

    def forward(self, batch):
        output = self.inner(batch)
        self.calls += 1
        if self.calls < self.at:
            return output
        if self.kind == "gradient":
            zero = (self.inner.hidden.weight * 0).abs().sum().sqrt()  # its slope is infinite
            return StubOutput(output.logits + zero, output.act_loss)
        bad = torch.tensor(float(self.kind))
        return StubOutput(output.logits * bad, output.act_loss)


@pytest.mark.parametrize("kind", ["nan", "inf", "gradient"])
def test_bad_numbers_stop_training_and_keep_the_last_good_state(tmp_path, kind):
    run = new_run(tmp_path)
    model = Poisoned(at=11, kind=kind)
    config = TrainConfig(epochs=3, save_every=2)
    records = []
    with pytest.raises(FloatingPointError) as caught:
        for record in fit(model, stub_batches(), config, RATE, run=run):
            records.append(record)
    # 8 updates in epoch 1, so forward pass 11 is batch 3 of epoch 2
    bad = stub_batches().plan(2)[2]
    what = "gradient norm is" if kind == "gradient" else "loss is nan"
    assert f"step 11 (epoch 2): {what}" in str(caught.value) and str(bad) in str(caught.value)
    assert len(records) == 10 and run.steps() == [10]
    saved = run.checkpoint().weights
    assert all(torch.equal(saved[name], t) for name, t in weights_of(model).items())
    assert all(tensor.isfinite().all() for tensor in saved.values())
    good, _ = trained(10)
    assert same_weights(model.inner, good)


def test_bad_validation_loss_stops_training():
    class Bad(Poisoned):
        def forward(self, batch):
            self.at = 99 if self.training else 0
            return super().forward(batch)

    with pytest.raises(FloatingPointError, match="validation loss is nan after step 8"):
        trained(model=Bad(0, "nan"), valid=stub_batches(count=3))


def test_an_update_without_target_tokens_is_named():
    empty = StubBatch(torch.tensor([3]), torch.tensor([2]))  # padding alone
    batches = Batches(lambda epoch: [[5]], lambda indices: empty)
    with pytest.raises(ValueError, match=r"step 1 \(epoch 1\): samples \[\[5\]\] hold no token"):
        trained(batches=batches)
    with pytest.raises(ValueError, match="epoch 1 has no batches"):
        trained(batches=Batches(lambda epoch: [], stub_batches().collate))


# ---- precision


def test_bfloat16_computes_in_16_bits_and_keeps_float32_weights():
    seen = set()
    model = stub_model()
    model.output.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    config = TrainConfig(epochs=30, precision="bfloat16")
    _, records = trained(config=config, model=model, valid=stub_batches())
    assert seen == {torch.bfloat16}
    assert {tensor.dtype for tensor in weights_of(model).values()} == {torch.float32}
    assert records[-1].valid.accuracy == 1.0


def test_float64_models_stay_float64():
    _, records = trained(3, model=stub_model(dropout=0.0, ponder=0.1).double())
    single = trained(3, model=stub_model(dropout=0.0, ponder=0.1))[1]
    assert records[-1].loss == pytest.approx(single[-1].loss, rel=1e-4)
    assert records[-1].loss != single[-1].loss


# ---- callbacks


def test_callbacks_see_every_record_before_the_save(tmp_path):
    run = new_run(tmp_path)
    seen = []
    callback = lambda record, model: seen.append((record.step, run.steps()))  # noqa: E731
    trained(config=TrainConfig(max_steps=3, save_every=1, keep=9), run=run, callbacks=[callback])
    assert seen == [(1, []), (2, [1]), (3, [1, 2])]


def test_a_shielded_callback_never_ends_training(caplog):
    def draw(record, model):
        raise RuntimeError("no display")

    with caplog.at_level(logging.ERROR):
        _, records = trained(2, callbacks=[shielded(draw)])
    assert len(records) == 2 and caplog.text.count("no display") >= 2
    with pytest.raises(RuntimeError):
        trained(2, callbacks=[draw])


def test_a_callback_that_generates_leaves_training_in_training_mode():
    model, _ = trained(5)
    other, _ = trained(5, callbacks=[lambda record, model: model.eval()])
    assert same_weights(model, other)


def test_progress_passes_records_on_and_is_silent_without_a_terminal(capsys):
    records = list(progress(fit(stub_model(), stub_batches(), TrainConfig(max_steps=3), RATE), 3))
    assert [record.step for record in records] == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


def test_tensorboard_says_which_package_it_needs(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        TensorBoardLogger(tmp_path)


def test_tensorboard_scalars(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoardLogger(tmp_path)
    _, records = trained(2, callbacks=[board], valid=stub_batches(count=3))
    board.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    values = [event.value for event in events.Scalars("train/loss")]
    assert values == pytest.approx([record.loss for record in records])
    assert events.Scalars("valid/loss")[0].step == 2


# ---- configuration


@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        ("epochs", 0, "at least 1, got 0"),
        ("epochs", 2.5, "whole number"),
        ("epochs", "3", "got '3'"),
        ("epochs", True, "got True"),
        ("accumulate", -1, "at least 1, got -1"),
        ("keep", 0, "at least 1"),
        ("max_steps", 0, "at least 1"),
        ("save_every", 0, "at least 1"),
        ("validate_every", 0, "at least 1"),
        ("patience", 0, "at least 1"),
        ("seed", -1, "at least 0, got -1"),
        ("seed", 2**63, "below 2\\^63"),
        ("clip_norm", 0.0, "above 0, got 0.0"),
        ("clip_norm", math.nan, "above 0, got nan"),
        ("eps", 0, "above 0"),
        ("betas", (0.9, 1.0), "below 1"),
        ("betas", 0.9, "two numbers"),
        ("betas", (0.9,), "two numbers"),
        ("precision", "float16", "one of float32, bfloat16, got 'float16'"),
        ("optimizer", "sgd", "one of adam, muon, got 'sgd'"),
        ("halting_warmup", -1, "at least 0, got -1"),
    ],
)
def test_each_bad_setting_is_named(option, value, limit):
    with pytest.raises(ValueError, match=f"^{option} must .*{limit}"):
        TrainConfig(**{option: value})


# ---- the real models


def graph_batches():
    """Pairs of which the target is the source turned round, as graphs."""
    graph = pytest.importorskip("graphformer.graph")
    pool = graph.GraphPool()
    rng = random.Random(3)
    sources = [[rng.randrange(4, 11) for _ in range(rng.randint(1, 5))] for _ in range(13)]

    def collate(indices):
        chosen = [sources[index] for index in indices]
        return pool(chosen, [[0, *reversed(source), 1] for source in chosen])

    return Batches(
        lambda epoch: [[(epoch + 3 * i + j) % 13 for j in range(3)] for i in range(4)], collate
    )


@pytest.mark.parametrize("universal", [False, True])
@pytest.mark.parametrize(
    ("precision", "optimizer"), [("float32", "adam"), ("bfloat16", "adam"), ("float32", "muon")]
)
def test_both_models_train_and_resume_bit_for_bit(tmp_path, universal, precision, optimizer):
    build = pytest.importorskip("graphformer.build")

    def model(seed):
        torch.manual_seed(seed)
        return build.make_model(
            11, 11, N=1, dim_model=14, dim_ff=17, h=2, dropout=0.2, universal=universal, max_depth=3
        )

    config = TrainConfig(
        epochs=3,
        accumulate=2,
        precision=precision,
        save_every=1,
        clip_norm=1.0,
        optimizer=optimizer,
        halting_warmup=2,
    )
    schedule = Noam(14, 5)
    options = {"batches": graph_batches(), "schedule": schedule, "valid": graph_batches()}
    whole, expected = trained(config=config, model=model(1), **options)
    assert [(record.act_loss > 0) for record in expected] == [universal] * 6
    run = new_run(tmp_path)
    trained(config=replace(config, max_steps=3), model=model(1), run=run, **options)
    # another process starts with other weights
    resumed, rest = trained(config=config, model=model(2), run=run, resume=True, **options)
    assert same_weights(resumed, whole)
    assert [record.loss for record in rest] == [record.loss for record in expected[3:]]
    fresh = model(3)
    load_weights(fresh, run.read_model(), run.path)
    assert evaluate(fresh, graph_batches(), precision=precision) == expected[-1].valid


def test_halting_units_wait_for_the_end_of_their_warm_up():
    torch.manual_seed(1)
    model = make_model(11, 11, dim_model=14, dim_ff=17, h=2, universal=True, max_depth=3)
    config = TrainConfig(epochs=1, halting_warmup=2)
    seen = [weights_of(model)]
    for _ in fit(model, graph_batches(), config, Constant(0.01)):
        seen.append(weights_of(model))
    halting = [name for name in seen[0] if "halting_unit" in name]
    assert len(halting) == 4
    for name in halting:
        assert torch.equal(seen[0][name], seen[2][name])
        assert not torch.equal(seen[2][name], seen[3][name])
    for before, now in zip(seen, seen[1:], strict=False):
        assert not torch.equal(before["tgt_embed.weight"], now["tgt_embed.weight"])
