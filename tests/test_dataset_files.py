"""The committed data: what their README says of them."""

import re
from pathlib import Path

import pytest

from graphformer.corpus import read_parallel
from graphformer.tasks import TASKS, write_task

FOLDER = Path(__file__).resolve().parents[1] / "datasets"
README = (FOLDER / "README.md").read_text(encoding="utf-8")


def tiny(split):
    folder = FOLDER / "tiny-en-de"
    return read_parallel(folder / f"{split}.en", folder / f"{split}.de").pairs


@pytest.mark.parametrize("name", TASKS)
def test_the_toy_tasks_are_those_of_seed_0(tmp_path, name):
    files = [path for paths in write_task(name, tmp_path, seed=0) for path in paths]
    assert {p.name: p.read_bytes() for p in files} == {
        p.name: p.read_bytes() for p in (FOLDER / name).iterdir()
    }


def test_tiny_has_the_sizes_of_the_readme():
    sizes = re.search(r"`tiny-en-de/`.*\| (\d+), (\d+), (\d+) \|", README)
    assert sizes is not None
    assert [len(tiny(split)) for split in ("train", "valid", "test")] == list(
        map(int, sizes.groups())
    )


def test_tiny_has_no_sentence_twice_and_no_unknown_word():
    splits = [tiny(split) for split in ("train", "valid", "test")]
    sources = [src for split in splits for src, _ in split]
    assert len(set(sources)) == len(sources)
    known = {word for pair in splits[0] for side in pair for word in side.split()}
    assert all(
        word in known
        for split in splits
        for pair in split
        for side in pair
        for word in side.split()
    )


def test_the_folder_is_no_package():
    assert not list(FOLDER.rglob("*.py"))


def test_the_code_of_the_readme_runs(monkeypatch, capsys):
    monkeypatch.chdir(FOLDER.parent)
    for code in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        exec(compile(code, "datasets/README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("318 ('today the cat sings on the bridge .',")
