"""A recipe carried out: data, model, training, the finished run; and a finished run used again."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from .atomic import check_new
from .codec import Codec, load_codec, train_bpe, train_words
from .corpus import ParallelText, Samples, encode_parallel, encode_source, read_parallel
from .dataset import Dataset, subword_dropout
from .decode import Hypothesis
from .evaluation import Batches
from .graph import GraphPool
from .loss import LabelSmoothing
from .multi30k import multi30k
from .recipe import DataConfig, RateConfig, Recipe, parse_recipe, write_recipe
from .runfolder import RunFolder
from .schedule import Schedule, make_schedule
from .state import load_weights
from .tasks import toy_task
from .train import Callback, fit, total_updates
from .update import StepRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Texts:
    """The sentence pairs of an experiment; validation and test may be missing."""

    train: ParallelText
    valid: ParallelText | None
    test: ParallelText | None


def read_texts(data: DataConfig) -> Texts:
    """Read (or make, or download) the pairs that a recipe names.

    Raises:
        OSError: if a file cannot be read or downloaded.
        ValueError: if the files do not fit each other.
    """
    if data.preset in ("copy", "sort"):
        splits = toy_task(data.preset, data.seed)
        return Texts(*(_in_memory(pairs, data.preset) for pairs in splits))
    if data.preset == "files":
        return Texts(
            read_parallel(*data.train),
            read_parallel(*data.valid) if data.valid else None,
            read_parallel(*data.test, keep_empty=True) if data.test else None,
        )
    found = multi30k(data.folder or None, src=data.src, tgt=data.tgt, form=data.form)
    return Texts(
        read_parallel(*found.train),
        read_parallel(*found.valid) if found.valid else None,
        read_parallel(*found.test, keep_empty=True) if found.test else None,
    )


def _in_memory(pairs: list[tuple[str, str]], name: str) -> ParallelText:
    return ParallelText(pairs, list(range(1, len(pairs) + 1)), 0, name)


def learn_codec(data: DataConfig, train: ParallelText) -> Codec:
    """The vocabulary of both languages together, from the training split only."""
    lines = [line for pair in train.pairs for line in pair]
    if data.codec == "bpe":
        return train_bpe(lines, data.size)
    return train_words(lines, tokens=data.codec, min_count=data.min_count)


class Experiment:
    """A recipe with its data, codec and fresh model, ready to be trained.

    Args:
        recipe: the settings.
        out: folder of the run.
        resume: go on with the run in that folder, whose own vocabulary is used.
        device: where to compute.

    Raises:
        OSError, ValueError: if the data or the folder do not fit.
    """

    def __init__(
        self,
        recipe: Recipe,
        out: str | os.PathLike[str],
        *,
        resume: bool = False,
        device: torch.device | str = "cpu",
    ):
        self.recipe, self.resume, self.device = recipe, resume, torch.device(device)
        self.texts = read_texts(recipe.data)
        if resume:
            self.run = RunFolder.open(out)
            self.codec = load_codec(out)
        else:
            check_new(Path(out))  # before the work that comes first
            self.codec = learn_codec(recipe.data, self.texts.train)
        pool = GraphPool()
        self.train_set = self._train_set(pool)
        self.valid_set = None
        if self.texts.valid is not None:
            self.valid_set = Dataset(self._encode(self.texts.valid, False).pairs, pool)
        torch.manual_seed(recipe.train.seed)
        self.model = recipe.model.make(self.codec.size, self.codec.size).to(self.device)
        # All settings are known to be good before a folder is made that would be in the way.
        schedule_of(recipe.rate, recipe.model.dim_model, self.updates)
        LabelSmoothing(recipe.loss.smoothing)
        if not resume:
            self.run = RunFolder.create(out, write_recipe(recipe), self.codec.files())

    def _train_set(self, pool: GraphPool) -> Dataset:
        samples, p = self._encode(self.texts.train, True), self.recipe.data.subword_dropout
        if not p:
            return Dataset(samples.pairs, pool)
        text = dict(zip(self.texts.train.numbers, self.texts.train.pairs, strict=True))
        kept = [text[number] for number in samples.numbers]
        return Dataset(samples.pairs, pool, subword_dropout(self.codec, kept, p))

    def _encode(self, text: ParallelText, training: bool) -> Samples:
        limit = self.recipe.data.max_len if training else 0
        samples = encode_parallel(text, self.codec.encode, self.codec.encode, max_len=limit or None)
        _report_unknown(text.name, sum(samples.unknown, Counter()))
        return samples

    @property
    def training(self) -> Batches:
        """The batches of training."""
        return self.train_set.training(self.recipe)

    @cached_property
    def updates(self) -> int:
        """Number of updates of the whole run."""
        return total_updates(self.training, self.recipe.train)

    def fit(self, callbacks: Sequence[Callback] = ()) -> Iterator[StepRecord]:
        """Train, one record an update; see :func:`graphformer.train.fit`."""
        recipe = self.recipe
        valid = self.valid_set
        records = fit(
            self.model,
            self.training,
            recipe.train,
            schedule_of(recipe.rate, recipe.model.dim_model, self.updates),
            criterion=LabelSmoothing(recipe.loss.smoothing),
            valid=None if valid is None else valid.evaluation(recipe.batches.max_tokens),
            run=self.run,
            resume=self.resume,
            callbacks=callbacks,
            device=self.device,
        )
        if self.resume:  # the folder is locked now, and its checkpoint fits this recipe
            self.run.replace_config(write_recipe(recipe))
        return records

    def finish(self, dtype: torch.dtype | None = None) -> TrainedRun:
        """Average the last checkpoints into ``model.safetensors`` and open the finished run.

        Args:
            dtype: ``torch.float16`` or ``torch.bfloat16`` to store the weights in 16 bits.
        """
        weights = self.run.average(self.recipe.decode.average)
        self.run.write_model(weights, self.run.steps()[-1], dtype)
        return TrainedRun(self.run.path, self.device)


def schedule_of(rate: RateConfig, width: int, updates: int) -> Schedule:
    """The schedule that a recipe names.

    Args:
        rate: the recipe's settings.
        width: model width M.
        updates: number of updates of the whole run: a linear schedule ends there, and its rise
            takes at most half of them.
    """
    rise = min(rate.warmup, updates // 2)
    settings = {
        "noam": {"width": width, "warmup": rate.warmup, "factor": rate.factor},
        "inverse_sqrt": {"peak": rate.peak, "warmup": rate.warmup},
        "linear": {"peak": rate.peak, "warmup": rise, "total": updates},
        "constant": {"peak": rate.peak},
    }
    return make_schedule(rate.name, **settings.get(rate.name, {}))


class TrainedRun:
    """A finished run, to translate with.

    Args:
        path: its folder.
        device: where to compute.

    Attributes:
        recipe: its settings.
        codec: its vocabulary; the one it was trained with.
        model: with its weights, in evaluation mode.

    Raises:
        OSError, ValueError: if a file is missing, damaged, or of another run; names the file.
    """

    def __init__(self, path: str | os.PathLike[str], device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.run = RunFolder.open(path)
        self.recipe = parse_recipe(self.run.config, str(self.run.path / "config.toml"))
        self.codec = load_codec(path)
        weights = self.run.read_model()
        self.recipe.model.check_stored(weights, str(self.run.path / "config.toml"))
        self.model = self.recipe.model.make(self.codec.size, self.codec.size).eval()
        load_weights(self.model, weights, self.run.path)
        self.model.to(self.device)

    def translate(
        self, lines: Sequence[str], *, name: str = "input", **options: Any
    ) -> list[list[Hypothesis]]:
        """Translate lines of text.

        Args:
            lines: one sentence each; an empty one gives one empty hypothesis.
            name: what to call the text in messages.
            **options: of :meth:`GraphSeq2Seq.infer`; beam and length penalty are the recipe's.

        Returns:
            For each line its hypotheses, best first; ``codec.decode(hypothesis.ids)`` is text.
        """
        unknown: Counter[str] = Counter()
        limit = self.recipe.data.max_len or None
        ids = encode_source(lines, self.codec.encode, max_len=limit, unknown=unknown, name=name)
        _report_unknown(name, unknown)
        filled = [at for at, row in enumerate(ids) if row]
        defaults = {"k": self.recipe.decode.beam, "alpha": self.recipe.decode.alpha}
        found = self.model.infer([ids[at] for at in filled], **defaults | options)
        results = [[Hypothesis([], 0.0, True)] for _ in ids]
        for at, hypotheses in zip(filled, found, strict=True):
            results[at] = hypotheses
        return results

    def translate_lines(self, lines: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each line, as text; see :meth:`translate`."""
        return [self.codec.decode(found[0].ids) for found in self.translate(lines, **options)]


def _report_unknown(name: str, unknown: Counter[str]) -> None:
    if unknown:
        most = ", ".join(repr(token) for token, _ in unknown.most_common(5))
        logger.warning(
            "%s: %d tokens are not in the vocabulary (%d different ones: %s ...)",
            name,
            sum(unknown.values()),
            len(unknown),
            most,
        )
