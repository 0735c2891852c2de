"""A tiny model and data with the interface that training uses, for tests of the loop alone."""

import random
from typing import NamedTuple

import torch
from torch import nn

from graphformer.evaluation import Batches


class StubBatch(NamedTuple):
    inputs: torch.Tensor
    tgt_y: torch.Tensor

    def to(self, device):
        return StubBatch(self.inputs.to(device), self.tgt_y.to(device))


class StubOutput(NamedTuple):
    logits: torch.Tensor
    act_loss: torch.Tensor


class Stub(nn.Module):
    """Predicts a label from one id; dropout, a tied matrix, and a ponder cost if asked for."""

    def __init__(self, vocabulary=11, width=7, dropout=0.3, ponder=0.0):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.hidden = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, vocabulary)
        self.output.weight = self.embedding.weight
        self.ponder = ponder

    def forward(self, batch):
        x = torch.tanh(self.hidden(self.dropout(self.embedding(batch.inputs))))
        return StubOutput(self.output(x), self.ponder * x.square().mean())


def stub_model(seed=0, **options):
    torch.manual_seed(seed)
    return Stub(**options)


def stub_batches(count=23, size=3, seed=5, vocabulary=11):
    """``count`` samples of 1 to 5 tokens, label = input + 1, in batches of ``size`` samples."""
    rng = random.Random(seed)
    samples = [
        [rng.randrange(3, vocabulary - 1) for _ in range(rng.randint(1, 5))] for _ in range(count)
    ]

    def plan(epoch):
        order = list(range(count))
        random.Random(f"{seed} {epoch}").shuffle(order)
        return [order[start : start + size] for start in range(0, count, size)]

    def collate(indices):
        inputs = torch.tensor([token for index in indices for token in samples[index]])
        return StubBatch(inputs, inputs + 1)

    return Batches(plan, collate)
