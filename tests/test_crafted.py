"""Files that somebody made on purpose: no code of theirs runs, nothing outside is written."""

import io
import json
import os
import pickle
import shutil
import sys
import zipfile

import pytest
import torch
from damage import commands, contents, train, write_recipe

from graphformer.checkpoint import pack_tensors, unpack_tensors
from graphformer.cli import main
from graphformer.codec import load_codec
from graphformer.corpus import read_lines
from graphformer.recipe import read_recipe
from graphformer.runfolder import RunFolder
from graphformer.vocab import Vocab

NEWEST = "checkpoints/step-00000002"


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def zipped_bomb():
    """As torch.save writes it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps(Bomb()))
        file.writestr("archive/version", "3\n")
    return data.getvalue()


BOMBS = {"pickle": pickle.dumps(Bomb()), "zip": zipped_bomb()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crafted")
    recipe = write_recipe(folder / "data")
    assert train(recipe, folder / "run") == 0
    return recipe, folder / "run"


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    shutil.copytree(made[1], tmp_path / "run")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "run"


def sign(run):
    """Make every digest fit the files as they are now: nobody but us would notice."""
    from hashlib import sha256

    def digest(path):
        return sha256(path.read_bytes()).hexdigest()

    manifest = json.loads((run / NEWEST / "manifest.json").read_text(encoding="utf-8"))
    manifest["files"] = {name: digest(run / NEWEST / name) for name in manifest["files"]}
    (run / NEWEST / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    about["config"] = [digest(run / "config.toml")]
    (run / "run.json").write_text(json.dumps(about), encoding="utf-8")


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_signed_pickle_in_a_checkpoint_is_never_run(made, run, monkeypatch, capsys, name, bomb):
    for path in (run / NEWEST / name, run / name):
        if path.exists():
            path.write_bytes(BOMBS[bomb])
    sign(run)
    before = contents(run)
    for command, call in commands(made[0], run, monkeypatch).items():
        if command == "resume" or name == "model.safetensors":
            assert call() == 1
            said = capsys.readouterr().err
            assert said.count("\n") == 1 and name in said
    assert contents(run) == before and not any((run.parent / "here").iterdir())


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("name", ["codec.json", "vocab", "bpe.model", "recipe.toml", "text"])
def test_a_pickle_in_place_of_any_file_of_text_is_never_run(run, tmp_path, name, bomb):
    path = (run if (run / name).exists() else tmp_path) / name
    path.write_bytes(BOMBS[bomb])
    readers = {"recipe.toml": read_recipe, "vocab": Vocab.load, "text": read_lines}
    with pytest.raises(ValueError, match=name):
        readers.get(name, lambda path: load_codec(path.parent))(path)
    assert not any((run.parent / "here").iterdir())


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ({"kind": "words", "tokens": "spacy:../../evil", "vocab": ""}, "no tokeniser"),
        ({"kind": "words", "tokens": "spacy:/tmp/evil", "vocab": ""}, "no tokeniser"),
        ({"kind": "words", "tokens": "os.system", "vocab": ""}, "no tokeniser"),
        ({"kind": "bpe", "vocab": "../../x", "bpe.model": "/etc/x"}, "is not the file that"),
        ({"kind": "bpe", "vocab": "", "../bpe.model": ""}, "expected the texts"),
        ({"kind": "../bpe"}, "kind must be one of"),
        ({"kind": ["bpe"]}, "kind must be one of"),
        ({"kind": "bpe", "vocab": "a\nb", "bpe.model": "a\nb"}, "is not the file that"),
        ({"kind": "bpe", "vocab": 3, "bpe.model": None}, "expected the texts"),
    ],
)
def test_a_codec_names_nothing_that_is_loaded_from_elsewhere(run, head, says):
    (run / "codec.json").write_text(json.dumps(head), encoding="utf-8")
    with pytest.raises(ValueError, match=says) as caught:
        load_codec(run)
    assert str(run) in str(caught.value) and "\n" not in str(caught.value)


def test_a_number_of_5000_digits_is_an_error_of_its_file(run):
    for name, load in (("codec.json", load_codec), ("run.json", RunFolder.open)):
        good = (run / name).read_bytes()
        (run / name).write_text('{"kind": ' + "9" * 5000 + "}", encoding="utf-8")
        with pytest.raises(ValueError, match=name):
            load(run)
        (run / name).write_bytes(good)


@pytest.mark.parametrize("size", [2**63, 2**40, 200_000_000, 100_000_001, 10**6])
def test_a_huge_declared_header_is_refused_and_not_made_room_for(size):
    good = pack_tensors({"w": torch.zeros(3)}, {})
    with pytest.raises(ValueError, match="file: damaged, or no safetensors file"):
        unpack_tensors(size.to_bytes(8, "little") + good[8:], "file")


@pytest.mark.parametrize(
    "header",
    [
        {"w": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 12]}},
        {"w": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 12]}},
        {"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 2**50]}},
        {"w": {"dtype": "F32", "shape": [3], "data_offsets": [-12, 0]}},
        {"w": {"dtype": "F32", "shape": [-3], "data_offsets": [0, 12]}},
        {"w": {"dtype": "PICKLE", "shape": [3], "data_offsets": [0, 12]}},
        {"w": None},
        {"__metadata__": {"graphformer": "[" * 3000}},
        {"__metadata__": {"graphformer": "9" * 5000}},
        {"__metadata__": {"graphformer": 3}},
        [],
    ],
)
def test_a_header_that_lies_is_refused(header):
    text = json.dumps(header).encode("utf-8")
    with pytest.raises(ValueError, match="file: ") as caught:
        unpack_tensors(len(text).to_bytes(8, "little") + text + bytes(12), "file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"step": 3},
        {"step": True},
        {"epoch": -1},
        {"batch": 5},
        {"batch": 1.5},
        {"batches": "2"},
        {"best_loss": "low", "best_step": 1},
        {"best_step": 1},
        {"best_loss": 0.5},
        {"stale": None},
        {"more": 1},
    ],
)
def test_counters_that_cannot_be_are_refused(made, run, capsys, change):
    path = run / NEWEST / "state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    state["counters"].update(change)
    path.write_text(json.dumps(state), encoding="utf-8")
    sign(run)
    before = contents(run)
    assert train(made[0], run, "--resume", "--set", "train.epochs=3") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{run} step 2: " in said
    assert contents(run) == before


@pytest.mark.parametrize("change", ["shape", "scalar", "missing", "whole numbers", "kind"])
def test_a_state_of_the_optimiser_that_cannot_be_is_refused(made, run, capsys, change):
    """A kernel that got it would read beyond its end."""
    path = run / NEWEST / "optimizer.safetensors"
    tensors, metadata = unpack_tensors(path.read_bytes(), path)
    name = max((n for n in tensors if n.startswith("exp_avg/")), key=lambda n: tensors[n].numel())
    value = tensors.pop(name)
    changed = {
        "shape": {name: value[:1].clone()},
        "scalar": {name: value.sum()},
        "missing": {},
        "whole numbers": {name: value.long()},
        "kind": {name.replace("exp_avg", "exp"): value},
    }
    path.write_bytes(pack_tensors(tensors | changed[change], metadata))
    sign(run)
    before = contents(run)
    assert train(made[0], run, "--resume", "--set", "train.epochs=3") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "optimiser" in said and name.partition("/")[2] in said
    assert contents(run) == before


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "\0"])
def test_a_tensor_whose_name_would_upset_a_terminal_is_refused(name):
    data = pack_tensors({name: torch.zeros(1)}, {})
    with pytest.raises(ValueError, match="file: damaged, it has a tensor named") as caught:
        unpack_tensors(data, "file")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "change",
    [
        "N = 1000000000",
        "dim_model = 2000000",
        "dim_ff = 1000000000000",
        "dim_model = 9223372036854775807",
    ],
)
def test_a_configuration_cannot_ask_for_more_than_the_weights_hold(
    made, run, monkeypatch, capsys, change
):
    path = run / "config.toml"
    key = change.split(" ")[0]
    lines = path.read_text(encoding="utf-8").splitlines()
    lines = [change if line.startswith(f"{key} =") else line for line in lines]
    path.write_text("\n".join(lines), encoding="utf-8")
    sign(run)
    calls = commands(made[0], run, monkeypatch)
    for command in ("info", "translate", "evaluate"):
        assert calls[command]() == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and "config.toml: describes a model with" in said


def test_links_out_of_a_run_are_never_written_through(made, run, tmp_path, capsys):
    """Whatever a run folder from elsewhere links to: going on writes in the folder alone."""
    outside = tmp_path / "outside"
    outside.mkdir()
    files = ["config.toml", "run.json", "metrics.jsonl", "metrics.json", "model.safetensors"]
    for name in files:
        shutil.move(run / name, outside / name)
        (run / name).symlink_to(outside / name)
    (run / ".model.safetensors.partial").symlink_to(outside / "mine")
    before = contents(outside)
    assert train(made[0], run, "--resume", "--set", "train.epochs=3") == 0
    assert contents(outside) == before
    assert not any((run / name).is_symlink() for name in files)


def test_a_linked_folder_of_checkpoints_or_scalars_is_refused(made, run, tmp_path, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    (run / "tensorboard").symlink_to(outside)
    words = ["--resume", "--set", "train.epochs=3"]
    assert train(made[0], run, *words, "--tensorboard") == 1
    assert "tensorboard: is a symbolic link" in capsys.readouterr().err
    shutil.move(run / "checkpoints", outside / "checkpoints")
    (run / "checkpoints").symlink_to(outside / "checkpoints")
    before = contents(outside)
    assert train(made[0], run, *words) == 1
    assert "checkpoints: is a symbolic link" in capsys.readouterr().err
    assert contents(outside) == before


def test_a_recipe_only_reads(made, tmp_path, monkeypatch):
    """Every setting of a recipe that is a name, as a path that must not come to be."""
    monkeypatch.chdir(tmp_path)
    names = ["data.codec", "data.src", "data.tgt", "data.form", "data.folder", "data.preset"]
    names += ["rate.name", "model.kernel", "train.precision", "train.optimizer", "train.seed"]
    text = made[0].read_text(encoding="utf-8")
    (tmp_path / "r.toml").write_text(text, encoding="utf-8")
    for name in names:
        words = ["train", "r.toml", "--out", "run", "--quiet", "--set", f"{name}=../evil"]
        if name in ("data.src", "data.tgt", "data.form", "data.folder"):
            words += ["--set", "data.preset=multi30k", "--set", "data.train=[]"]
            words += ["--set", "data.test=[]"]
            monkeypatch.setenv("GRAPHFORMER_MULTI30K", str(tmp_path))
        assert main(words) == 1, name
    assert [path.name for path in tmp_path.iterdir()] == ["r.toml"]
    assert not (tmp_path.parent / "evil").exists() and "evil" not in sys.modules
