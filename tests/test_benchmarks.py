"""The harness measures equal work: every candidate computes the same. No time is asserted."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import attending, costs, data, measure, ours, padded, rows, training  # noqa: E402
from benchmarks import run as command  # noqa: E402
from benchmarks import tutorial as way  # noqa: E402
from benchmarks.sizes import SHORT  # noqa: E402
from graphformer.bands import Band  # noqa: E402
from tests.small import close  # noqa: E402

SIZES = replace(SHORT, layers=2)


@pytest.fixture
def reference():
    """Our model without dropout, and a batch of pairs."""
    model = ours.Ours(SIZES, dropout=0.0).double()
    return model, data.pairs(SIZES, SIZES.pairs)


# ------------------------------------------------------------------ equal work


@pytest.mark.parametrize("real_logits", [False, True])
def test_padded_computes_the_same(reference, real_logits):
    model, batch = reference
    other = padded.Padded(SIZES, dropout=0.0, real_logits=real_logits).double().copy_from(model)
    close(other.logits(batch), model.logits(batch))
    values = model.logits(batch)
    labels = torch.tensor([i for _, target in batch for i in target[1:]])
    close(other.loss(batch), padded.padded_loss(values, labels))


def test_tutorial_computes_the_same(reference):
    model, batch = reference
    other = way.Tutorial(SIZES, dropout=0.0).double().copy_from(model)
    close(other.logits(batch, model.pool), torch.log_softmax(model.logits(batch), -1))


def test_the_tutorials_loss_is_ours_but_for_one_class(reference):
    model, batch = reference
    other = way.TutorialTraining(SIZES, model.pool, dropout=0.0).double()
    other.net.copy_from(model)
    # It smooths over <sos> too, so the values only nearly agree.
    assert abs(other.loss(batch).item() - model.loss(batch).item()) < 0.1


def test_x_transformers_takes_the_batch(reference):
    pytest.importorskip("x_transformers")
    _, batch = reference
    loss = training.XTransformers(SIZES).loss(batch)
    loss.backward()
    assert bool(loss.isfinite())


@pytest.mark.parametrize("lens", [[3, 3, 5], [2, 7, 2], [5]])
def test_sdpa_works_on_the_same_blocks(lens):
    ends = [x.double() for x in attending.leaves(sum(lens), 2, 3)]
    edges = attending.edge_set(lens)
    close(attending.dense(lens)(*ends), attending.ours(edges)(*ends))


def test_masked_sdpa_sees_the_same_window():
    ends = [x.double() for x in attending.leaves(79, 2, 3)]
    edges = attending.edge_set([79], Band(0, 4))
    close(attending.masked(79, 5)(*ends), attending.ours(edges)(*ends))


# ------------------------------------------------------------------ counting


def test_operations_of_the_smallest_model():
    sizes = replace(SHORT, width=1, ff=1, layers=1, vocabulary=1)
    # One source, one decoder node. Weights: encoder 4 + 2, decoder 4 + 2 + 2, its keys and
    # values 2, logits 1: 17. Edges: 3, each with two products: 6. Times 2 operations, times 3.
    assert training.operations(sizes, [([4], [0, 1])]) == 6 * (17 + 6)


def test_ratio_is_paired():
    times = {"a": [2.0, 20.0, 3.0], "b": [1.0, 10.0, 1.0]}
    assert measure.ratio(times, "a", "b") == 2.0


def test_alternation_warms_up_once_and_takes_turns():
    calls = []
    works = {name: lambda run, name=name: calls.append((name, run)) for name in "ab"}
    times = measure.alternate(works, 2)
    assert calls == [("a", 0), ("b", 0), ("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert [len(times[name]) for name in "ab"] == [2, 2]


@pytest.mark.parametrize(("relation", "met"), [(">=", True), ("<=", False), (None, None)])
def test_a_row_knows_whether_its_target_is_met(relation, met):
    row = rows.Row("work", 2.0, "x", relation, 1.0)
    assert row.met is met
    assert "work" in rows.table([row])


# ------------------------------------------------------------------ depth and command


def test_forced_depth(monkeypatch):
    monkeypatch.setattr(costs, "alternate", lambda works, runs: measure.alternate(works, 1))
    spread_row, _ = costs.universal(SIZES, True)
    steps = spread_row.details["mean_steps"]
    assert steps["all 8"] == [8.0, 8.0]
    assert steps["alike"] == [2.0, 2.0]


def test_sorted_batches_hold_the_same_pairs_in_order():
    sizes = replace(SIZES, runs=3)
    mixed, ordered = data.batches(sizes, False), data.batches(sizes, True)
    assert sorted(sum(mixed, [])) == sorted(sum(ordered, []))
    lengths = [len(source) for batch in ordered for source, _ in batch]
    assert lengths == sorted(lengths)


def test_command_prints_the_table_and_writes_json(tmp_path, capsys, monkeypatch):
    path = tmp_path / "found.json"
    monkeypatch.setattr(command, "THREADS", 1)
    command.main(["--short", "--only", "sorted", "--json", str(path)])
    assert "training step, sorted batches" in capsys.readouterr().out
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["rows"]["sorted"][0]["target"] == 1.1
    assert {"cpu", "versions", "date"} <= set(found["machine"])


def test_memory_is_that_of_a_fresh_process():
    ballast = torch.ones(300, 2**18)  # 300 MiB of this process, none of the other's
    found = measure.memory_of("window", "sdpa", True)
    assert found["peak"] > found["work"] >= 0
    assert measure.resident_peak() > found["peak"] + 200
    assert ballast.numel()
