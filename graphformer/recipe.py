"""A recipe: one readable text file that says all there is to know about an experiment."""

from __future__ import annotations

import math
import os
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from .atomic import read_file
from .build import ModelConfig
from .limits import check_counts, check_shares
from .trainconfig import TrainConfig

if sys.version_info >= (3, 11):
    import tomllib
else:  # the same parser under the name it had before it joined Python
    import tomli as tomllib


@dataclass(frozen=True)
class DataConfig:
    """Where sentence pairs come from and how they become token ids.

    Args:
        preset: ``"copy"``, ``"sort"``, ``"multi30k"``, or ``"files"`` for any parallel text.
        train, valid, test: source and target file of each split, for ``"files"``.
        folder: a local copy, for ``"multi30k"``; empty: downloaded once.
        form: ``"raw"`` or ``"tok"`` (lowercased, tokenised), for ``"multi30k"``.
        src, tgt: languages, for ``"multi30k"``.
        seed: which strings are drawn, for ``"copy"`` and ``"sort"``.
        codec: ``"bpe"``, or the name of a tokeniser for whole words.
        size: number of token ids, special ones included, for ``"bpe"``.
        subword_dropout: probability in training that a merge of byte pairs is left out, for
            ``"bpe"``; see :func:`graphformer.dataset.subword_dropout`.
        min_count: occurrences that a word needs, for whole words.
        max_len: most tokens of a sentence: longer pairs are skipped in training, longer inputs
            cut in translation; 0: any length.
    """

    preset: str = "files"
    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    folder: str = ""
    form: str = "tok"
    src: str = "en"
    tgt: str = "de"
    seed: int = 0
    codec: str = "bpe"
    size: int = 4000
    subword_dropout: float = 0.0
    min_count: int = 1
    max_len: int = 0

    def __post_init__(self) -> None:
        choices = ("files", "copy", "sort", "multi30k")
        if self.preset not in choices:
            raise ValueError(f"preset is {self.preset!r}, the choices are {', '.join(choices)}")
        if self.preset == "files" and len(self.train) != 2:
            raise ValueError(f"train is {self.train!r}, a source and a target file are needed")
        for name in ("valid", "test"):
            if len(getattr(self, name)) not in (0, 2):
                raise ValueError(f"{name} is {getattr(self, name)!r}, two files or none are needed")
        check_shares(subword_dropout=self.subword_dropout)
        if self.subword_dropout and self.codec != "bpe":
            raise ValueError(
                f"subword_dropout is {self.subword_dropout}, which needs the codec 'bpe', "
                f"not {self.codec!r}"
            )
        for name, least in (("max_len", 0), ("seed", 0), ("min_count", 1), ("size", 1)):
            if not least <= getattr(self, name) < 2**31:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, {least} to {2**31 - 1} are allowed"
                )


@dataclass(frozen=True)
class BatchConfig:
    """Size of a batch, and how many samples are sorted by length together.

    Args:
        max_tokens: most target tokens of a batch.
        window: samples sorted together; 0: all of them.
    """

    max_tokens: int = 4096
    window: int = 4096

    def __post_init__(self) -> None:
        check_counts(max_tokens=self.max_tokens)
        if self.window < 0:
            raise ValueError(f"window is {self.window}, at least 0 is needed")


@dataclass(frozen=True)
class RateConfig:
    """Learning-rate schedule; see :func:`graphformer.schedule.make_schedule`.

    Args:
        name: ``"noam"``, ``"inverse_sqrt"``, ``"linear"`` or ``"constant"``.
        peak: highest rate; not used by ``"noam"``.
        warmup: updates of the rise.
        factor: scale, for ``"noam"``.
    """

    name: str = "inverse_sqrt"
    peak: float = 0.001
    warmup: int = 2000
    factor: float = 1.0


@dataclass(frozen=True)
class LossConfig:
    """Label smoothing, in [0, 1)."""

    smoothing: float = 0.1


@dataclass(frozen=True)
class DecodeConfig:
    """How a trained run translates.

    Args:
        average: checkpoints whose weights are averaged at the end.
        beam: hypotheses K that are followed at once.
        alpha: exponent of the length penalty.
    """

    average: int = 1
    beam: int = 5
    alpha: float = 0.6

    def __post_init__(self) -> None:
        check_counts(average=self.average, beam=self.beam)
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise ValueError(f"alpha is {self.alpha}, a finite number of at least 0 is needed")


@dataclass(frozen=True)
class Recipe:
    """All settings of an experiment, a table of the file for each field."""

    data: DataConfig
    model: ModelConfig = field(default_factory=ModelConfig)
    batches: BatchConfig = field(default_factory=BatchConfig)
    rate: RateConfig = field(default_factory=RateConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)

    def with_seed(self, seed: int) -> Recipe:
        """The same recipe with another seed for weights, data order and dropout."""
        return replace(self, train=replace(self.train, seed=seed))


def read_recipe(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe file (TOML).

    Args:
        path: the file.
        overrides: changes such as ``"train.epochs=3"``, each value in the file's notation.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is not TOML, or has an unknown key or a wrong value; names file and key.
    """
    path = Path(path)
    try:
        text = read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error})") from None
    return parse_recipe(text, str(path), overrides)


def parse_recipe(text: str, source: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe from its text; see :func:`read_recipe`. ``source`` is for messages."""
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: a number of 5000 digits too
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise ValueError(f"{source}: not a TOML file ({reason})") from None
    for change in overrides:
        _override(tables, change)
    hints = get_type_hints(Recipe)
    _refuse_unknown(tables, hints, source)
    sections = {
        name: _section(hints[name], tables.get(name, {}), f"{source}: {name}") for name in hints
    }
    return Recipe(**sections)


def write_recipe(recipe: Recipe) -> str:
    """The text of a recipe with every setting spelled out; :func:`parse_recipe` reads it."""
    import tomli_w

    tables = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in asdict(recipe).items()
    }
    return tomli_w.dumps(tables)


def _override(tables: dict[str, Any], change: str) -> None:
    key, equals, value = change.partition("=")
    table, dot, name = key.strip().partition(".")
    if not equals or not dot:
        raise ValueError(f"override {change!r}: write it as table.key=value")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = value.strip()  # a bare word is taken as text
    inner = tables.setdefault(table, {})
    if not isinstance(inner, dict):
        raise ValueError(f"override {change!r}: {table} is no table")
    inner[name] = parsed


def _refuse_unknown(table: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    unknown = [key for key in table if key not in known]
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}, known are {', '.join(known)}")


def _section(kind: type, table: Any, where: str) -> Any:
    if not isinstance(table, dict):
        raise ValueError(f"{where}: must be a table, got {table!r}")
    hints = get_type_hints(kind)
    _refuse_unknown(table, {f.name: None for f in fields(kind)}, where)
    values = {key: _typed(value, hints[key], f"{where}.{key}") for key, value in table.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _typed(value: Any, hint: Any, where: str) -> Any:
    """The value as the field's type has it; only an int where a float is wanted is converted."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for option in options:
        base = get_origin(option) or option
        if base is tuple and isinstance(value, list):
            inner = get_args(option)[0]
            return tuple(_typed(item, inner, where) for item in value)
        if base is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                raise ValueError(f"{where}: {value} is too large for a float") from None
        if isinstance(value, base) and (base is bool) == isinstance(value, bool):
            return value
    names = " or ".join(getattr(option, "__name__", str(option)) for option in options)
    raise ValueError(f"{where}: must be of type {names}, got {value!r}")
