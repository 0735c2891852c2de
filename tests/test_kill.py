"""SIGKILL at any moment: training always goes on, and ends with the same weights bit for bit."""

import os
import random
import signal
import sys
import time
import traceback
from functools import partial

import pytest
import torch
from stub import stub_batches, stub_model

from graphformer.runfolder import RunFolder
from graphformer.schedule import InverseSqrt
from graphformer.state import weights_of
from graphformer.train import fit
from graphformer.trainconfig import TrainConfig

if not hasattr(os, "fork"):
    pytest.skip("needs fork, to start many processes with torch loaded", allow_module_level=True)


def train(path, steps, keep=2):
    """What a user's process does: create or open the run, train to the end, write the model."""
    if (path / "run.json").exists():
        run = RunFolder.open(path)
    else:
        run = RunFolder.create(path, "", {"vocab.txt": b"a\n"})
    config = TrainConfig(epochs=99, max_steps=steps, save_every=1, keep=keep, validate_every=2)
    model = stub_model()
    options = {"valid": stub_batches(count=3, seed=1), "run": run, "resume": True}
    for _ in fit(model, stub_batches(), config, InverseSqrt(0.05, 5), **options):
        pass
    run.write_model(weights_of(model), steps)


def start(path, steps, keep=2, before=None):
    """A process of its own that trains; returns its id."""
    child = os.fork()
    if child:
        return child
    try:
        if before is not None:
            before()
        train(path, steps, keep)
    except BaseException:
        path.with_suffix(".error").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(0)


def was_killed(child, path):
    """Wait for the end of a process; fails if it had an error of its own."""
    _, status = os.waitpid(child, 0)
    error = path.with_suffix(".error")
    assert not error.exists(), error.read_text(encoding="utf-8")
    return os.WIFSIGNALED(status)


def assert_complete(path, expected, steps):
    """The run ended as the undisturbed one: weights, optimiser, counters, records."""
    run, other = RunFolder.open(path), RunFolder.open(expected)
    saved, wanted = run.checkpoint(), other.checkpoint()
    assert saved.counters == wanted.counters and run.steps() == other.steps()
    for mine, its in [(saved.weights, wanted.weights), (saved.optimizer, wanted.optimizer)]:
        assert mine.keys() == its.keys() and all(torch.equal(mine[k], its[k]) for k in mine)
    assert (path / "model.safetensors").read_bytes() == (
        expected / "model.safetensors"
    ).read_bytes()
    records = run.log.records()
    assert [record["step"] for record in records] == list(range(1, steps + 1))
    assert [r["loss"] for r in records] == [r["loss"] for r in other.log.records()]
    leftover = [p for p in path.rglob(".*")]
    assert leftover == []


def test_killed_at_random_moments(tmp_path):
    steps, kills, wanted = 24, 0, 20
    expected = tmp_path / "undisturbed"
    train(tmp_path / "warm", 1)  # whatever PyTorch loads at first use is loaded before the forks
    began = time.monotonic()
    train(expected, steps)
    duration = time.monotonic() - began
    rng = random.Random(11)
    runs = 0
    while kills < wanted:  # a run that ends too early for 20 kills is checked, and another begun
        runs += 1
        path = tmp_path / f"run{runs}"
        finished = False
        while not finished:
            child = start(path, steps)
            if kills < wanted:
                time.sleep(rng.uniform(0, duration / 5))
                os.kill(child, signal.SIGKILL)  # does nothing to a process that has ended
            killed = was_killed(child, path)
            kills += killed
            finished = not killed
            if path.exists() and RunFolder.open(path).steps():
                RunFolder.open(path).checkpoint()  # complete and undamaged
        assert_complete(path, expected, steps)


WATCHED = {"open", "os.mkdir", "os.rename", "os.listdir", "os.scandir"}
REMOVALS = {"os.remove", "os.rmdir"}  # may name a file relative to an open folder


def kill_before(number, name):
    """Arm this process to kill itself before its n-th operation on the files of a run."""
    left = number

    def hook(event, arguments):
        nonlocal left
        if event in REMOVALS or (event in WATCHED and name in str(arguments)):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def test_killed_before_every_single_file_operation(tmp_path):
    steps, keep = 2, 1  # a creation, two saves, a removal of the older one, the final weights
    expected = tmp_path / "undisturbed"
    train(expected, steps, keep)
    number, killed = 0, True
    while killed:
        number += 1
        path = tmp_path / f"run{number}"
        armed = partial(kill_before, number, path.name)
        killed = was_killed(start(path, steps, keep, armed), path)
        if killed:
            assert not was_killed(start(path, steps, keep), path)
        assert_complete(path, expected, steps)
    assert number > 40  # so many moments were tried
