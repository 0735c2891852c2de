"""The command line, as a user types it, on the small corpus that comes with the project."""

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from graphformer.cli import main
from graphformer.runfolder import RunFolder

CORPUS = Path(__file__).parent.parent / "datasets" / "tiny-en-de"
RECIPE = """
[data]
preset = "files"
train = [{train_en}, {train_de}]
valid = [{valid_en}, {valid_de}]
test = [{test_en}, {test_de}]
codec = "space"
max_len = 10
[model]
N = 1
dim_model = 22
dim_ff = 19
h = 2
universal = {universal}
max_depth = 3
[batches]
max_tokens = 300
[rate]
name = "linear"
peak = 0.02
warmup = 10
[train]
epochs = {epochs}
keep = 3
[decode]
average = 2
beam = 3
"""


def write_recipe(folder, *, universal=False, epochs=3):
    names = {
        f"{split}_{lang}": json.dumps(str(CORPUS / f"{split}.{lang}"))
        for split in ("train", "valid", "test")
        for lang in ("en", "de")
    }
    path = folder / "recipe.toml"
    path.write_text(
        RECIPE.format(**names, universal=str(universal).lower(), epochs=epochs), encoding="utf-8"
    )
    return path


@pytest.fixture(scope="module", params=[False, True], ids=["transformer", "universal"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    recipe = write_recipe(folder, universal=request.param)
    assert main(["train", str(recipe), "--out", str(folder / "run"), "--quiet"]) == 0
    return folder / "run"


def translate(monkeypatch, capfdbinary, run, data, *options):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    assert main(["translate", "--model", str(run), "--quiet", *options]) == 0
    return capfdbinary.readouterr().out


def test_a_run_has_its_files(run):
    names = {path.name for path in run.iterdir()}
    assert names >= {"config.toml", "vocab", "model.safetensors", "metrics.jsonl", "metrics.json"}
    assert json.loads((run / "metrics.json").read_text())["steps"] > 0


def test_no_line_is_lost(run, monkeypatch, capfdbinary):
    sentence = (CORPUS / "test.en").read_bytes().split(b"\n")[0]
    long = b" ".join([b"cat"] * 25)  # cut to max_len = 10 with a warning
    out = translate(
        monkeypatch, capfdbinary, run, b"\n".join([sentence, b"", b"   ", long, sentence])
    )
    lines = out.split(b"\n")
    assert len(lines) == 6 and lines[5] == b""
    assert lines[1] == lines[2] == b""
    alone = translate(monkeypatch, capfdbinary, run, sentence + b"\n")
    assert alone == lines[0] + b"\n" == lines[4] + b"\n"
    assert translate(monkeypatch, capfdbinary, run, b"") == b""


def test_line_ends_and_unknown_words(run, monkeypatch, capfdbinary):
    plain = translate(monkeypatch, capfdbinary, run, b"the cat waits\nzebra zebra\n")
    crlf = translate(monkeypatch, capfdbinary, run, b"\xef\xbb\xbfthe cat waits\r\nzebra zebra")
    assert plain == crlf and plain.count(b"\n") == 2


def test_n_best_with_scores(run, monkeypatch, capfdbinary):
    out = translate(monkeypatch, capfdbinary, run, b"the cat waits\n", "--n-best", "3").decode()
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3
    scores = [float(row[1]) for row in rows]
    assert scores == sorted(scores, reverse=True)


def test_evaluate(run, tmp_path, capsys):
    out = tmp_path / "guesses"
    assert main(["evaluate", "--model", str(run), "--quiet", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("BLEU ") and "tok:13a" in shown and "30 sentences" in shown
    assert len(out.read_text(encoding="utf-8").splitlines()) == 30


def test_info(run, capsys):
    assert main(["info", "--model", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "ransformer" in shown and "65 tokens" in shown


def test_show_writes_one_page(run, tmp_path, capsys):
    page = tmp_path / "page.html"
    words = ["show", "--model", str(run), "--quiet", "--out", str(page), "--text"]
    assert main([*words, "the cat </script> waits"]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html")
    rest = text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address to fetch
    assert "://" not in rest, "the page must not ask for anything"
    page.unlink()
    assert main([*words, "  "]) == 1 and "has no words" in capsys.readouterr().err
    assert not page.exists()


def test_resume_equals_a_run_that_was_not_stopped(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    # The rate of a linear schedule would depend on the number of updates, which the stop changes.
    base = ["train", str(write_recipe(tmp_path)), "--quiet", "--set", "rate.name=inverse_sqrt"]
    assert main([*base, "--out", str(whole)]) == 0
    base += ["--out", str(parts)]
    assert main([*base, "--set", "train.max_steps=12", "--set", "train.save_every=4"]) == 0
    assert main([*base, "--resume"]) == 0
    one, two = (RunFolder.open(path).checkpoint() for path in (whole, parts))
    assert one.counters == two.counters
    for mine, other in ((one.weights, two.weights), (one.optimizer, two.optimizer)):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["info", "--model", "nowhere"], "nowhere: not a run folder"),
        (["train", "nowhere.toml", "--out", "x"], "nowhere.toml"),
        (["evaluate", "--model", "nowhere", "--src", "a"], "--src and --ref belong together"),
    ],
)
def test_a_mistake_is_one_line(words, says, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--quiet"]) == 1
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1 and "Traceback" not in error
    assert not list(tmp_path.iterdir())


def test_a_second_run_does_not_overwrite_the_first(run, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert main(["train", str(write_recipe(tmp_path)), "--out", str(copy), "--quiet"]) == 1
    assert "not an empty folder" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}


def test_a_vocabulary_of_another_run_is_refused(run, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    words = (copy / "vocab").read_text(encoding="utf-8").split("\n")
    words[5], words[6] = words[6], words[5]
    (copy / "vocab").write_text("\n".join(words), encoding="utf-8")
    assert main(["info", "--model", str(copy)]) == 1
    assert "vocab" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "translate", "evaluate", "info", "show"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"example: graphformer {command}" in " ".join(capsys.readouterr().out.split())
