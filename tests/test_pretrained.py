"""The committed models: small, whole, and as good as their pages say."""

import json
import re

import pytest
import torch
from realdata import ROOT, multi30k_folder, needs_multi30k

from graphformer.cli import main
from graphformer.experiment import TrainedRun
from graphformer.recipe import parse_recipe, read_recipe
from graphformer.runfolder import RunFolder

PRETRAINED = ROOT / "examples" / "pretrained"
LEAST_BLEU = {"multi30k-en-de": 39.0, "multi30k-en-de-universal": 37.0}
each = pytest.mark.parametrize("name", LEAST_BLEU)


def page(name):
    return (PRETRAINED / name / "README.md").read_text(encoding="utf-8")


def parameters(name, *left_out):
    weights = RunFolder.open(PRETRAINED / name).read_model()
    return sum(w.numel() for key, w in weights.items() if not set(left_out) & set(key.split(".")))


@each
def test_it_is_stored_in_16_bits_within_6_megabytes(name):
    file = PRETRAINED / name / "model.safetensors"
    assert file.stat().st_size <= 6_000_000
    size = int.from_bytes(file.read_bytes()[:8], "little")
    header = json.loads(file.read_bytes()[8 : 8 + size])
    kinds = {entry["dtype"] for key, entry in header.items() if key != "__metadata__"}
    assert kinds == {"F16"}


@each
def test_its_recipe_is_the_one_in_the_examples(name):
    stored = parse_recipe(RunFolder.open(PRETRAINED / name).config, name)
    assert stored == read_recipe(ROOT / "examples" / "recipes" / f"{name}.toml")


@each
def test_its_log_is_whole_and_ends_where_the_weights_were_taken(name):
    lines = (PRETRAINED / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    recipe = TrainedRun(PRETRAINED / name).recipe
    assert [record["epoch"] for record in records] == list(range(1, recipe.train.epochs + 1))
    assert all("valid_loss" in record for record in records)


def test_the_universal_one_has_at_most_half_the_weights_outside_the_embeddings():
    names = ("src_embed", "tgt_embed", "generator")
    plain, universal = (parameters(name, *names) for name in LEAST_BLEU)
    assert 0 < 2 * universal <= plain


@each
def test_it_translates(name):
    (said,) = TrainedRun(PRETRAINED / name).translate_lines(["a man is riding a bike ."])
    assert said in ("ein mann fährt fahrrad .", "ein mann fährt auf einem fahrrad .")


@needs_multi30k
@each
def test_it_reaches_the_score_of_its_page(name, monkeypatch, capsys):
    """12,103 words of reference, nothing tokenised again: BLEU of whole words."""
    monkeypatch.setenv("GRAPHFORMER_MULTI30K", str(multi30k_folder()))
    torch.set_num_threads(1)
    assert main(["evaluate", "--quiet", "--model", str(PRETRAINED / name)]) == 0
    said = capsys.readouterr().out
    score = float(re.search(r"BLEU (\d+\.\d+)", said)[1])
    assert "1000 sentences, 12103 words of reference" in said and "tok:none" in said
    assert score >= LEAST_BLEU[name]
    written = float(re.search(r"BLEU (\d+\.\d+)", page(name))[1])
    assert score == pytest.approx(written, abs=0.2)  # another processor may round otherwise
