"""A training run as a folder.

    config.toml                 how the run was set up, text
    <vocabulary files>          as handed in, under their own names
    run.json                    SHA-256 of the files above
    checkpoints/step-00001200/  one save: weights, optimiser, counters, manifest
    model.safetensors           the weights to use, written at the end
    metrics.jsonl               one record a line while training goes on
    metrics.json                the results at the end

The identity of a run is a digest of its configuration at creation and its vocabulary; every
checkpoint and every ``model.safetensors`` carries it, so that files of two runs are never mixed
unnoticed. See :mod:`graphformer.atomic` for what a kill leaves behind: the newest folder under
``checkpoints`` is always complete.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphformer.atomic import check_name, read_file, remove_folder, sync, write_file, write_folder
from graphformer.averaging import average_weights, to_half
from graphformer.checkpoint import (
    Checkpoint,
    pack_tensors,
    read_checkpoint,
    read_json,
    unpack_tensors,
    write_checkpoint,
)
from graphformer.metricslog import MetricsLog

__all__ = ["RunFolder"]

_CONFIG, _RUN, _MODEL = "config.toml", "run.json", "model.safetensors"
_LOG, _RESULTS, _CHECKPOINTS = "metrics.jsonl", "metrics.json", "checkpoints"
_RESERVED = {_CONFIG, _RUN, _MODEL, _LOG, _RESULTS, _CHECKPOINTS}
_STEP = re.compile(r"step-(\d{8,12})")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class RunFolder:
    """One run's files; made by :meth:`create` or :meth:`open`.

    Attributes:
        path: The folder.
        config: Text of ``config.toml``.
        created: SHA-256 of that text at creation.
        files: Contents of the vocabulary files by name.
        identity: Digest of the configuration at creation and of the vocabulary files.
        log: The records of training, ``metrics.jsonl``.
    """

    def __init__(self, path: Path, config: str, files: Mapping[str, bytes], created: str) -> None:
        self.path = path
        self.config = config
        self.files = dict(files)
        self.log = MetricsLog(path / _LOG)
        self.created = created
        sums = {name: _sha256(data) for name, data in self.files.items()}
        self.identity = _sha256(json.dumps([created, sorted(sums.items())]).encode("utf-8"))

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], config: str, files: Mapping[str, bytes]
    ) -> RunFolder:
        """Make the folder of a new run, complete or not at all.

        Args:
            path: Where; must not exist, or be an empty folder.
            config: Text of the configuration.
            files: Vocabulary files by name.

        Raises:
            ValueError: If a name is reserved or could lead out of the folder.
            FileExistsError: If the folder exists and is not empty.
            OSError: If it cannot be written.
        """
        path = Path(path).absolute()
        for name in files:
            if check_name(name) in _RESERVED:
                raise ValueError(f"vocabulary file must not be named {name}, a run has its own")
        run = cls(path, config, files, _sha256(config.encode("utf-8")))
        path.parent.mkdir(parents=True, exist_ok=True)
        contents = {_CONFIG: config.encode("utf-8"), **files, _RUN: run._description([config])}
        write_folder(path, contents)
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Open the run at ``path`` and check its configuration and vocabulary; writes nothing.

        Raises:
            ValueError: If it is no run folder, or a file is missing, damaged or of another run.
            OSError: If a file cannot be read.
        """
        path = Path(path).absolute()
        about = path / _RUN
        if not about.exists():
            raise ValueError(f"{path}: not a run folder, it has no {_RUN}")
        description = read_json(read_file(about), about)
        sums, configs = description.get("files"), description.get("config")
        created = description.get("created")
        if description.get("format") != 1 or not (
            isinstance(sums, dict) and isinstance(configs, list) and isinstance(created, str)
        ):
            raise ValueError(f"{about}: unknown format, this version reads format 1")
        config = _checked(path / _CONFIG, configs)
        files = {}
        for name, expected in sums.items():
            try:
                check_name(name)
            except ValueError as error:
                raise ValueError(f"{about}: {error}") from None
            files[name] = _checked(path / name, [expected])
        try:
            text = config.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path / _CONFIG}: not UTF-8 text ({error})") from None
        return cls(path, text, files, created)

    def _description(self, configs: list[str]) -> bytes:
        description = {
            "format": 1,
            "created": self.created,
            "config": [_sha256(text.encode("utf-8")) for text in configs],
            "files": {name: _sha256(data) for name, data in self.files.items()},
        }
        return json.dumps(description, indent=1).encode("utf-8")

    def replace_config(self, config: str) -> None:
        """Change ``config.toml`` (for example to train longer); the identity stays.

        Raises:
            OSError: If it cannot be written.
        """
        if config == self.config:
            return
        # both texts are accepted in between, so that a kill never locks the run
        write_file(self.path / _RUN, self._description([self.config, config]))
        write_file(self.path / _CONFIG, config.encode("utf-8"))
        write_file(self.path / _RUN, self._description([config]))
        self.config = config

    # ---- checkpoints

    def steps(self) -> list[int]:
        """Numbers of updates of the saved checkpoints, ascending."""
        folder = self.path / _CHECKPOINTS
        if not folder.is_dir():
            return []
        matches = (_STEP.fullmatch(entry.name) for entry in folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def checkpoint(self, step: int | None = None, *, optimizer: bool = True) -> Checkpoint:
        """Read and check a checkpoint.

        Args:
            step: Which one; the newest if not given.
            optimizer: Whether the optimiser's state is wanted.

        Raises:
            ValueError: If there is none, or a file is missing, damaged or of another run.
        """
        steps = self.steps()
        if not steps or (step is not None and step not in steps):
            wanted = "checkpoint" if step is None else f"checkpoint of step {step}"
            raise ValueError(f"{self.path / _CHECKPOINTS}: has no {wanted}, only steps {steps}")
        number = steps[-1] if step is None else step
        result = read_checkpoint(self._folder(number), self.identity, optimizer=optimizer)
        if result.step != number:
            raise ValueError(f"{self._folder(number)}: holds step {result.step}, was it renamed?")
        return result

    def prepare(self) -> None:
        """Make the folder ready for saving and remove what a kill left behind.

        Raises:
            ValueError: If ``checkpoints`` is a symbolic link: a run writes in its folder only.
            OSError: If the folder cannot be written.
        """
        folder = self.path / _CHECKPOINTS
        if folder.is_symlink():
            raise ValueError(f"{folder}: is a symbolic link; a run writes in its own folder only")
        if not folder.exists():
            folder.mkdir()
            sync(self.path)
        if not (os.access(self.path, os.W_OK) and os.access(folder, os.W_OK)):
            raise PermissionError(errno.EACCES, "folder cannot be written", str(self.path))
        for entry in folder.glob(".step-*.partial"):
            remove_folder(entry)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; ``metrics.jsonl`` up to here is safe on the disk before it is.

        Raises:
            FileExistsError: If that step was saved before.
            OSError: If it cannot be written; earlier checkpoints are untouched.
        """
        self.prepare()
        self.log.sync()
        write_checkpoint(self._folder(checkpoint.step), checkpoint, self.identity)

    def prune(self, keep: int, protect: tuple[int, ...] = ()) -> None:
        """Remove all but the newest ``keep`` checkpoints and the steps in ``protect``.

        Raises:
            ValueError: If ``keep`` is below 1.
            OSError: If a folder cannot be removed.
        """
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        for step in self.steps()[:-keep]:
            if step not in protect:
                remove_folder(self._folder(step))

    def average(self, last: int) -> dict[str, Tensor]:
        """Mean of the weights of the newest ``last`` checkpoints (of all, if there are fewer).

        Raises:
            ValueError: If ``last`` is below 1, there is no checkpoint or one is damaged.
        """
        if last < 1:
            raise ValueError(f"last must be at least 1, got {last}")
        sets = (self.checkpoint(s, optimizer=False).weights for s in self.steps()[-last:])
        return average_weights(sets, self.path / _CHECKPOINTS)

    def _folder(self, step: int) -> Path:
        return self.path / _CHECKPOINTS / f"step-{step:08d}"

    # ---- the weights to use

    def write_model(
        self, weights: Mapping[str, Tensor], step: int, dtype: torch.dtype | None = None
    ) -> None:
        """Write ``model.safetensors``.

        Args:
            weights: Tensors by name, as ``weights_of`` or :meth:`average` give them.
            step: Number of updates behind them, for the record.
            dtype: ``torch.float16`` or ``torch.bfloat16`` for a 16-bit export.

        Raises:
            ValueError: If ``dtype`` is another one, or a weight is too large for it.
            OSError: If it cannot be written.
        """
        chosen = weights if dtype is None else to_half(weights, dtype)
        metadata = {"run": self.identity, "step": str(step)}
        write_file(self.path / _MODEL, pack_tensors(chosen, metadata))

    def read_model(self) -> dict[str, Tensor]:
        """Weights of ``model.safetensors``, or of the newest checkpoint where it is not there yet.

        Raises:
            ValueError: If there is neither, or the file is damaged or of another run.
        """
        path = self.path / _MODEL
        if not path.exists() and self.steps():
            return self.checkpoint(optimizer=False).weights
        weights, metadata = unpack_tensors(read_file(path), path)
        if metadata.get("run") != self.identity:
            names = ", ".join(str(self.path / name) for name in [*self.files, _CONFIG])
            raise ValueError(f"{path}: belongs to another run than {names}")
        return weights

    def write_results(self, results: Mapping[str, Any]) -> None:
        """Write ``metrics.json``, the results of the finished run.

        Raises:
            ValueError: If a number is not finite.
            OSError: If it cannot be written.
        """
        text = json.dumps(dict(results), indent=1, ensure_ascii=False, allow_nan=False)
        write_file(self.path / _RESULTS, (text + "\n").encode("utf-8"))


def _checked(path: Path, accepted: list[Any]) -> bytes:
    """Contents of a file whose digest is one of those that ``run.json`` lists."""
    data = read_file(path)
    if _sha256(data) not in accepted:
        raise ValueError(
            f"{path}: not the file that the weights of this run belong to, it differs from what "
            f"{path.with_name(_RUN)} recorded"
        )
    return data
