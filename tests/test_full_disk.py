"""A disk that is full or must not be written: one line says so, and what was there is kept."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from damage import contents, train, write_recipe

from graphformer.runfolder import RunFolder

ROOT = Path(__file__).parent.parent
NOBODY = 65534


def in_a_child(call, before=None):
    """Exit code and standard error of ``call`` in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 99
        try:
            os.dup2(writing, 2)
            sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
            if before is not None:
                before()
            code = call()
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as file:
        said = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def one_line(said, *parts):
    assert said.count("\n") == 1 and "Traceback" not in said, said
    for part in parts:
        assert part in said, said


@pytest.fixture
def small_disk():
    """A file system of 1 MiB in memory."""
    folder = Path(tempfile.mkdtemp())
    options = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(options, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()


def fill(folder):
    """Use up what is left of a disk; returns the file that does it."""
    path = folder / "filling"
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return path


def test_a_full_disk_is_said_in_one_line_and_keeps_the_last_save(small_disk, tmp_path):
    recipe, out = write_recipe(tmp_path), small_disk / "run"
    assert in_a_child(lambda: train(recipe, out)) == (0, "")
    filling = fill(small_disk)
    before = contents(out)
    code, said = in_a_child(lambda: train(recipe, out, "--resume", "--set", "train.epochs=4"))
    assert code == 1
    one_line(said, str(out), "No space left on device")
    assert contents(out) == before and RunFolder.open(out).checkpoint().step == 2
    other = small_disk / "other"
    code, said = in_a_child(lambda: train(recipe, other))
    assert code == 1 and not other.exists(), "a new run is made whole or not at all"
    one_line(said, str(other), "No space left on device")
    filling.unlink()
    # Room for some saves and not for all: training stops at the first that does not fit.
    code, said = in_a_child(
        lambda: train(recipe, out, "--resume", "--set", "train.keep=99", "--set", "train.epochs=99")
    )
    assert code == 1
    one_line(said, str(out), "No space left on device", "nothing was overwritten")
    last = RunFolder.open(out).checkpoint().step
    assert 2 < last < 99 and not list(out.rglob(".*"))
    for old in RunFolder.open(out).steps()[:-1]:
        shutil.rmtree(out / "checkpoints" / f"step-{old:08d}")
    assert in_a_child(
        lambda: train(
            recipe, out, "--resume", "--set", f"train.epochs={last + 1}", "--set", "train.keep=1"
        )
    ) == (0, "")
    assert RunFolder.open(out).checkpoint().step == last + 1


def limit(size):
    """No file of this process may grow beyond ``size`` bytes."""
    resource = pytest.importorskip("resource")
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_file_that_cannot_grow_is_named_and_keeps_the_last_save(tmp_path):
    """The same where nothing can be mounted: the system refuses to write beyond a size."""
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    assert in_a_child(lambda: train(recipe, out)) == (0, "")
    before = contents(out)
    more = ["--resume", "--set", "train.epochs=3"]
    sizes = [0, 100, 1000, 3000, 6000]
    largest = max(len(data) for data in before.values() if data is not None)
    assert sizes[-1] < largest
    for size in sizes:
        code, said = in_a_child(lambda: train(recipe, out, *more), limit(size))
        assert code == 1
        one_line(said, str(out), "File too large")
        after = contents(out)
        kept = {name for name in before if name.startswith("checkpoints")}
        assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
        assert after["model.safetensors"] == before["model.safetensors"]
        assert RunFolder.open(out).checkpoint().step == 2 and not list(out.rglob(".*"))
    assert in_a_child(lambda: train(recipe, out, *more)) == (0, "")
    assert RunFolder.open(out).checkpoint().step == 3


@pytest.fixture
def foreign(tmp_path):
    """A run that this test, or an unprivileged child of it, may read and not write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    recipe = write_recipe(folder / "data")
    assert train(recipe, folder / "run") == 0
    for path in [*folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield recipe, folder / "run"
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(folder)


def no_longer_root():
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


@pytest.mark.parametrize("epochs", [2, 3])
def test_a_read_only_run_is_named_and_can_still_be_used(foreign, epochs):
    from graphformer.cli import main

    recipe, out = foreign
    before = contents(out)
    more = ["--resume", "--set", f"train.epochs={epochs}"]
    code, said = in_a_child(lambda: train(recipe, out, *more), no_longer_root)
    assert code == 1
    one_line(said, str(out), "folder cannot be written")
    new = out / "inner"
    code, said = in_a_child(lambda: train(recipe, new), no_longer_root)
    assert code == 1
    one_line(said, str(new), "Permission denied")
    for command in ("info", "evaluate"):
        words = [command, "--model", str(out), "--quiet"]
        assert in_a_child(lambda words=words: main(words), no_longer_root) == (0, "")
    assert contents(out) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
@pytest.mark.parametrize("command", ["info", "evaluate", "translate"])
def test_a_full_disk_behind_standard_output_is_said(tmp_path, command):
    recipe, out = write_recipe(tmp_path), tmp_path / "run"
    assert in_a_child(lambda: train(recipe, out)) == (0, "")
    words = [sys.executable, "-m", "graphformer", command, "--model", str(out), "--quiet"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            words, input=b"a b\n", stdout=full, stderr=subprocess.PIPE, cwd=ROOT, timeout=300
        )
    assert done.returncode == 1
    one_line(done.stderr.decode(), f"graphformer {command}: ", "No space left on device")
