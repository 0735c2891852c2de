"""Samples and their batches; pieces that are cut in another way each time."""

import itertools
from pathlib import Path

import pytest
import torch

from graphformer.codec import train_bpe, train_words
from graphformer.corpus import read_parallel
from graphformer.dataset import Dataset, subword_dropout
from graphformer.experiment import Experiment
from graphformer.graph import GraphPool
from graphformer.recipe import parse_recipe
from graphformer.vocab import EOS, SOS

CORPUS = Path(__file__).parent.parent / "datasets" / "tiny-en-de"
PAIRS = read_parallel(CORPUS / "train.en", CORPUS / "train.de").pairs[:40]
LINES = [line for pair in PAIRS for line in pair]
RECIPE = f"""
[data]
preset = "files"
train = ['{CORPUS / "valid.en"}', '{CORPUS / "valid.de"}']
size = 97
subword_dropout = 0.3
[model]
N = 1
dim_model = 10
dim_ff = 7
h = 2
[batches]
max_tokens = 300
[rate]
peak = 0.01
[train]
epochs = 3
save_every = 1
"""


@pytest.fixture(scope="module")
def codec():
    return train_bpe(LINES, 97)


def test_sampled_pieces_spell_the_same_text(codec):
    assert codec.sample(LINES, 0.0, 1) == [codec.encode(line) for line in LINES]
    sampled = codec.sample(LINES, 0.5, 1)
    assert sampled == codec.sample(LINES, 0.5, 1) != codec.sample(LINES, 0.5, 2)
    assert [codec.decode(ids) for ids in sampled] == [
        codec.decode(codec.encode(line)) for line in LINES
    ]
    letters = codec.sample(LINES, 1.0, 1)
    lengths = [sum(map(len, ids)) for ids in (codec.sample(LINES, 0.0, 1), sampled, letters)]
    assert lengths == sorted(set(lengths))  # the more merges are left out, the more pieces


def test_each_time_in_another_way(codec):
    plain = [(codec.encode(src), [SOS, *codec.encode(tgt), EOS]) for src, tgt in PAIRS]
    data = Dataset(plain, GraphPool(), subword_dropout(codec, PAIRS, 0.3))
    torch.manual_seed(1)
    once, twice = data.collate([7, 2]), data.collate([7, 2])
    torch.manual_seed(1)
    again = data.collate([7, 2])
    assert once.src[0].tolist() == again.src[0].tolist() != twice.src[0].tolist()
    for batch in (once, twice):
        first = batch.tgt_y[: batch.tgt_y.tolist().index(EOS)].tolist()
        assert codec.decode(first) == codec.decode(codec.encode(PAIRS[7][1]))


def test_without_it_the_stored_samples_are_used(codec):
    batch = Dataset([([5, 6], [SOS, 7, EOS])], GraphPool()).collate([0])
    assert (batch.src[0].tolist(), batch.tgt_y.tolist()) == ([5, 6], [7, EOS])


def test_words_have_no_pieces():
    with pytest.raises(ValueError, match=r"subword_dropout is 0\.1, which needs the codec 'bpe'"):
        subword_dropout(train_words(LINES), PAIRS, 0.1)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("subword_dropout = 1.0", r"subword_dropout is 1\.0, it must lie in \[0, 1\)"),
        ("subword_dropout = nan", "subword_dropout is nan"),
        ("subword_dropout = 0.1\ncodec = 'space'", "needs the codec 'bpe', not 'space'"),
    ],
)
def test_settings_that_do_not_fit(setting, says):
    with pytest.raises(ValueError, match=says):
        parse_recipe(f"[data]\npreset = 'copy'\n{setting}\n", "recipe")


def test_resumed_in_the_middle_of_an_epoch_bit_for_bit(tmp_path):
    recipe = parse_recipe(RECIPE, "recipe")
    whole = Experiment(recipe, tmp_path / "whole")
    records = [(record.tokens, record.loss) for record in whole.fit()]
    assert len(records) == 6 and len({tokens for tokens, _ in records}) > 2  # of two batches

    stopped = Experiment(recipe, tmp_path / "stopped")
    training = stopped.fit()
    assert [(r.tokens, r.loss) for r in itertools.islice(training, 3)] == records[:3]
    training.close()  # in the middle of the second epoch
    resumed = Experiment(recipe, tmp_path / "stopped", resume=True)
    torch.manual_seed(99)  # what the caller draws changes nothing
    rest = [(record.tokens, record.loss) for record in resumed.fit()]
    assert rest == records[3:]
    for (name, a), b in zip(
        whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
