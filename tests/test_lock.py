"""Two processes never train in one folder; whoever holds it, lets go of it when it ends."""

import gc
import os
import signal
import time

import pytest
from damage import contents, train, write_recipe
from stub import stub_batches, stub_model

from graphformer.lock import FolderLock
from graphformer.runfolder import RunFolder
from graphformer.schedule import Constant
from graphformer.train import fit
from graphformer.trainconfig import TrainConfig

pytest.importorskip("fcntl", reason="the lock is that of POSIX systems")


def holder(path, call=FolderLock):
    """A process of its own that holds the folder until it is killed; returns its id."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            # where the tests run in the background of a shell, it is ignored and would stay so
            signal.signal(signal.SIGINT, signal.default_int_handler)
            kept = call(path)  # noqa: F841
            os.write(writing, b"x")
            time.sleep(600)
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 1) == b"x", "the other process could not lock the folder"
    os.close(reading)
    return child


def end(child, how):
    os.kill(child, how)
    os.waitpid(child, 0)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_folder_is_held_until_its_process_ends_in_whatever_way(tmp_path, how):
    child = holder(tmp_path)
    with pytest.raises(BlockingIOError, match="another process is training in this folder"):
        FolderLock(tmp_path)
    end(child, how)
    FolderLock(tmp_path).release()
    assert not list(tmp_path.iterdir()), "no file is needed, and none is left"


def test_a_second_training_is_refused_in_one_line_and_changes_nothing(tmp_path, capsys):
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    assert train(recipe, out) == 0
    before = contents(out)
    child = holder(out)
    try:
        assert train(recipe, out, "--resume", "--set", "train.epochs=3") == 1
        said = capsys.readouterr().err
        assert said == f"graphformer train: {out}: another process is training in this folder\n"
        assert contents(out) == before
    finally:
        end(child, signal.SIGKILL)
    assert train(recipe, out, "--resume", "--set", "train.epochs=3") == 0


def test_training_holds_the_folder_from_the_first_moment_to_the_last(tmp_path):
    run = RunFolder.create(tmp_path / "run", "", {})
    config = TrainConfig(max_steps=2)

    def others_are_refused():
        child = os.fork()
        if not child:
            code = 1
            try:
                FolderLock(run.path)
                code = 0
            except BlockingIOError:
                code = 7
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    records = fit(stub_model(), stub_batches(), config, Constant(0.01), run=run)
    assert others_are_refused()
    for _ in records:
        assert others_are_refused()
    assert not others_are_refused()
    records = fit(stub_model(), stub_batches(), config, Constant(0.01), run=run, resume=True)
    del records
    gc.collect()
    assert not others_are_refused(), "training that was never begun"
    with pytest.raises(ValueError, match="was trained to step 2 already"):
        fit(stub_model(), stub_batches(), config, Constant(0.01), run=run)
    assert not others_are_refused(), "training that could not begin"


def test_training_that_was_stopped_half_way_can_go_on_in_the_same_process(tmp_path):
    """As in a notebook, where the interrupted loop is still remembered."""
    run = RunFolder.create(tmp_path / "run", "", {})
    config = TrainConfig(max_steps=3, save_every=1)
    remembered = fit(stub_model(), stub_batches(), config, Constant(0.01), run=run)
    next(remembered)
    again = fit(stub_model(), stub_batches(), config, Constant(0.01), run=run, resume=True)
    assert [record.step for record in again] == [2, 3]


def test_a_forked_child_leaves_the_lock_to_its_parent(tmp_path):
    lock = FolderLock(tmp_path)
    child = os.fork()
    if not child:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    child = os.fork()
    if not child:
        try:
            FolderLock(tmp_path)
        except BlockingIOError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    lock.release()
    lock.release()


def test_without_locks_a_warning_says_so(tmp_path, monkeypatch, caplog):
    def refuse(descriptor, operation):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    lock = FolderLock(tmp_path)
    assert "cannot be locked (No locks available)" in caplog.text
    monkeypatch.undo()
    lock.release()
    monkeypatch.setattr("graphformer.lock.fcntl", None)
    FolderLock(tmp_path).release()
    assert caplog.text.count("start no second training there") == 2


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        FolderLock(tmp_path / "nowhere")
