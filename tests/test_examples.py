"""The examples in a short form: few strings, one pass."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from graphformer import tasks

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr(tasks, "SIZES", {"train": 37, "valid": 5, "test": 7})
    yield importlib.import_module("toy")
    sys.modules.pop("toy", None)


@pytest.mark.parametrize("name", ["copy", "sort"])
def test_toy_task(toy, name, tmp_path, capsys):
    out = tmp_path / "run"
    toy.main(name, "summary", ["--epochs", "1", "--seed", "3", "--out", str(out)])
    results = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert 0 <= results["test_exact_match"] <= results["test_token_accuracy"] <= 1
    assert results["seconds"] > 0
    if name == "sort":
        assert 1 <= results["mean_steps_enc"] <= 8 and 1 <= results["mean_steps_dec"] <= 8
        assert len(results["mean_steps_by_epoch"]) == 1
    assert (out / "attention.png").read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    assert "test_exact_match" in shown and str(out) in shown


def test_same_seed_gives_the_same_weights(toy, tmp_path):
    files = []
    for seed, name in ((3, "a"), (3, "b"), (4, "c")):
        toy.main(
            "copy", "summary", ["--epochs", "1", "--seed", str(seed), "--out", str(tmp_path / name)]
        )
        files.append((tmp_path / name / "model.safetensors").read_bytes())
    # The files carry the identity of their run, which is that of the recipe and the vocabulary.
    assert files[0] == files[1] != files[2]


def test_without_out_a_new_folder_each_time(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert toy.new_folder("copy") == Path("runs/copy-1")
    Path("runs/copy-1").mkdir(parents=True)
    assert toy.new_folder("copy") == Path("runs/copy-2")


@pytest.mark.parametrize(
    ("words", "says"), [(["--epochs", "0"], "epochs"), (["--device", "nowhere"], "nowhere")]
)
def test_a_bad_option_is_named(toy, words, says, capsys):
    with pytest.raises(SystemExit) as stop:
        toy.main("copy", "summary", words)
    assert stop.value.code == 2
    assert says in capsys.readouterr().err


def test_toy_translation_is_right_after_20_updates(toy, tmp_path, capsys):
    toy_translation = importlib.import_module("toy_translation")
    toy_translation.main(["--out", str(tmp_path)])
    results = json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))
    assert results["translation"] == "i like black coffee"
    assert results["test_exact_match"] == 1.0
    for kind in ("ee", "dd", "ed"):
        assert (tmp_path / f"attention-{kind}.png").exists()
    assert "i like black coffee" in capsys.readouterr().out
