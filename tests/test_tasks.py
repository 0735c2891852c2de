"""The toy tasks: the same text everywhere, the right lengths, and a test set that is new."""

import hashlib
import math
import random

import pytest

from graphformer import tasks
from graphformer.corpus import read_parallel
from graphformer.tasks import SIZES, TASKS, toy_task, write_task


def everything(splits):
    return [pair for split in splits for pair in split]


def digest(splits):
    text = "".join(f"{src}|{tgt}\n" for src, tgt in everything(splits))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# A change of these changes the data that every published result was made with.
GOLDEN = {
    ("copy", 0): "cb2b3cfef010ee0abd26f0a4a2a4dc98e139dd786a9b92bf1f3aadfc6328c308",
    ("sort", 0): "fa1afd8051c7581aa111e4c51f11f9e87abaf74536c3d0f02acd16e600145606",
    ("copy", 7): "e2b693d645b1dca91cb1c11fe6c23070516d07e26e64fd0344c1e915f21748b9",
}


@pytest.mark.parametrize(("name", "seed"), GOLDEN)
def test_the_text_is_the_same_everywhere(name, seed):
    assert digest(toy_task(name, seed)) == GOLDEN[name, seed]


def test_sizes():
    splits = toy_task("copy")
    assert {name: len(pairs) for name, pairs in splits._asdict().items()} == SIZES
    assert SIZES == {"train": 9000, "valid": 1000, "test": 1000}


def test_targets():
    for src, tgt in everything(toy_task("copy", 3)):
        assert tgt == src
    for src, tgt in everything(toy_task("sort", 3)):
        assert tgt.split(" ") == sorted(src.split(" "))


def test_sources_are_letters_with_spaces_between_them():
    for src, _ in everything(toy_task("copy", 3)):
        assert all(len(letter) == 1 and "a" <= letter <= "z" for letter in src.split(" "))


def test_both_tasks_have_the_same_sources_and_seeds_have_others():
    def sources(name, seed):
        return [src for src, _ in everything(toy_task(name, seed))]

    assert sources("copy", 3) == sources("sort", 3)
    assert not set(sources("copy", 3)) & set(sources("copy", 5))


@pytest.mark.parametrize("seed", [0, 3])
def test_nothing_of_one_split_is_in_another(seed):
    sources = [src for src, _ in everything(toy_task("copy", seed))]
    assert len(set(sources)) == len(sources) == 11000


def test_a_source_that_was_drawn_before_is_drawn_again(monkeypatch):
    # With one letter only the lengths differ, and two draws are often equal.
    monkeypatch.setattr(tasks, "LETTERS", "a")
    sources = tasks._sources(random.Random(3), 13)
    assert len(set(sources)) == len(sources) == 13


def test_lengths_follow_the_rounded_normal_distribution():
    lengths = [len(src.split()) for src, _ in everything(toy_task("copy", 3))]
    count = len(lengths)

    def below(value):  # Normal(15, 3)
        return (1 + math.erf((value - 15) / (3 * math.sqrt(2)))) / 2

    assert min(lengths) >= 1
    for length in range(8, 23):
        share = below(length + 0.5) - below(length - 0.5)
        expected = share * count
        # five standard deviations of a count
        assert abs(lengths.count(length) - expected) < 5 * math.sqrt(expected)


def test_letters_are_equally_likely():
    text = "".join(src.replace(" ", "") for src, _ in everything(toy_task("copy", 3)))
    expected = len(text) / 26
    for letter in "abcdefghijklmnopqrstuvwxyz":
        assert abs(text.count(letter) - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("name", TASKS)
def test_the_files_hold_the_same_pairs(tmp_path, name):
    files = write_task(name, tmp_path / "new" / name, seed=3)
    for paths, pairs in zip(files, toy_task(name, 3), strict=True):
        assert read_parallel(*paths).pairs == pairs
    names = {path.name for path in (tmp_path / "new" / name).iterdir()}
    assert names == {f"{split}.{side}" for split in SIZES for side in ("src", "tgt")}


def test_files_that_are_right_are_left_alone_and_others_are_mended(tmp_path):
    files = write_task("copy", tmp_path, seed=3)
    good, bad = files.train
    before = good.stat().st_mtime_ns, good.stat().st_ino
    data = bad.read_bytes()
    bad.write_bytes(data[:100])
    write_task("copy", tmp_path, seed=3)
    assert (good.stat().st_mtime_ns, good.stat().st_ino) == before
    assert bad.read_bytes() == data


def test_another_task_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="no toy task 'reverse'; choose one of copy, sort"):
        toy_task("reverse")


def test_a_negative_seed_is_refused(tmp_path):
    # Python would take it for the positive one.
    with pytest.raises(ValueError, match="must not be negative, got -3"):
        write_task("copy", tmp_path / "new", seed=-3)
    assert not (tmp_path / "new").exists()
