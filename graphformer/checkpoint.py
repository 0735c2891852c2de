"""Weights, optimiser state and counters of one moment of a training run, as plain files.

Tensors are safetensors, numbers are JSON; nothing that is read can run code. A tensor file
carries a digest of its contents, so that it can be checked wherever it is copied to. A checkpoint
is a folder made in one step, whose ``manifest.json`` holds the SHA-256 of its other files:

    model.safetensors  optimizer.safetensors  state.json  manifest.json
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from graphformer.atomic import read_file, write_folder
from graphformer.state import Tensors

__all__ = [
    "Checkpoint",
    "pack_tensors",
    "read_checkpoint",
    "read_json",
    "unpack_tensors",
    "write_checkpoint",
]

_ABOUT = "graphformer"  # the one key of a tensor file's metadata; its value is JSON
_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_MANIFEST = "manifest.json"


class Checkpoint(NamedTuple):
    """All that training needs to go on from the end of an update.

    Attributes:
        step: Number of updates done.
        weights: Tensors of the model by name, shared ones once.
        optimizer: State of the optimiser, named ``<kind>/<parameter>``; empty if not read.
        counters: Plain numbers: position in the data, best validation loss, ...
    """

    step: int
    weights: Tensors
    optimizer: Tensors
    counters: dict[str, Any]


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    result = hashlib.sha256(json.dumps(sorted(metadata.items())).encode("utf-8"))
    for name, tensor in sorted(tensors.items()):
        result.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode("utf-8"))
        result.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()


def pack_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file with metadata and a digest over both; equal input gives equal bytes."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    about = {**metadata, "sha256": _digest(plain, metadata)}
    # one key: safetensors writes several in no fixed order
    return safetensors.torch.save(plain, {_ABOUT: json.dumps(about, sort_keys=True)})


def unpack_tensors(data: bytes, source: object) -> tuple[Tensors, dict[str, str]]:
    """Tensors and metadata of a file made by :func:`pack_tensors`.

    Args:
        data: The bytes of the file.
        source: Where they come from, for the message.

    Raises:
        ValueError: If the file is no safetensors file, has no digest or does not agree with it.
    """
    try:
        tensors = safetensors.torch.load(data)
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
    except (safetensors.SafetensorError, ValueError, KeyError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{source}: damaged, or no safetensors file ({reason})") from error
    about = (header.get("__metadata__") or {}).get(_ABOUT)
    if about is None:
        raise ValueError(f"{source}: has no digest, so it was not written by graphformer")
    metadata = read_json(about.encode("utf-8", "replace"), source)
    expected = metadata.pop("sha256", None)
    for name in tensors:
        if not name.isprintable():
            raise ValueError(f"{source}: damaged, it has a tensor named {name!r}")
    if expected != _digest(tensors, metadata):
        raise ValueError(f"{source}: damaged, its contents do not agree with their digest")
    return tensors, metadata


def read_json(data: bytes, source: object) -> dict[str, Any]:
    """A JSON object from bytes.

    Args:
        data: The bytes.
        source: Where they come from, for the message.

    Raises:
        ValueError: If the bytes are no UTF-8 JSON object, or a number in it is not finite.
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{source}: damaged, or no JSON file ({reason})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{source}: must hold a JSON object, found {type(value).__name__}")
    return value


def _finite(text: str) -> float:
    # json reads NaN, Infinity and 1e999, none of which it would let us write
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a finite number")
    return number


def write_checkpoint(folder: Path, checkpoint: Checkpoint, run: str) -> None:
    """Write a checkpoint as a new folder, complete or not at all.

    Args:
        folder: The folder to make; its parent must exist.
        checkpoint: What to store.
        run: Identity of the run it belongs to.

    Raises:
        FileExistsError: If the folder exists and is not empty.
        OSError: If it cannot be written.
    """
    metadata = {"run": run, "step": str(checkpoint.step)}
    state = {"step": checkpoint.step, "run": run, "counters": checkpoint.counters}
    files = {
        _MODEL: pack_tensors(checkpoint.weights, metadata),
        _OPTIMIZER: pack_tensors(checkpoint.optimizer, metadata),
        _STATE: json.dumps(state, indent=1, allow_nan=False).encode("utf-8"),
    }
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    manifest = {"format": 1, "run": run, "step": checkpoint.step, "files": sums}
    files[_MANIFEST] = json.dumps(manifest, indent=1).encode("utf-8")
    write_folder(folder, files)


def read_checkpoint(folder: Path, run: str, *, optimizer: bool = True) -> Checkpoint:
    """Read a checkpoint and check every file of it that is used.

    Args:
        folder: The folder of the checkpoint.
        run: Identity of the run that it must belong to.
        optimizer: Whether the optimiser's state is wanted.

    Raises:
        ValueError: If a file is missing or damaged, or is of another save or another run.
    """
    path = folder / _MANIFEST
    manifest = read_json(read_file(path), path)
    sums = manifest.get("files")
    if manifest.get("format") != 1 or not isinstance(sums, dict):
        raise ValueError(f"{path}: unknown format {manifest.get('format')!r}, this version reads 1")
    if manifest.get("run") != run:
        raise ValueError(f"{path}: this checkpoint belongs to another run than the folder it is in")
    contents: dict[str, bytes] = {}
    for name in (_MODEL, _OPTIMIZER, _STATE) if optimizer else (_MODEL, _STATE):
        contents[name] = read_file(folder / name)
        if hashlib.sha256(contents[name]).hexdigest() != sums.get(name):
            raise ValueError(
                f"{folder / name}: damaged or of another save, see {path}; "
                "without this folder training goes on from the checkpoint before it"
            )
    state = read_json(contents[_STATE], folder / _STATE)
    step, counters = state.get("step"), state.get("counters")
    if not isinstance(step, int) or step != manifest.get("step") or not isinstance(counters, dict):
        raise ValueError(f"{folder / _STATE}: has no step and counters that agree with {path}")
    weights, _ = unpack_tensors(contents[_MODEL], folder / _MODEL)
    tensors: Tensors = {}
    if optimizer:
        tensors, _ = unpack_tensors(contents[_OPTIMIZER], folder / _OPTIMIZER)
    return Checkpoint(step, weights, tensors, counters)
