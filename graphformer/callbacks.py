"""What can watch training: a progress bar, TensorBoard, and a shield for things that may fail."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from graphformer.train import Callback
from graphformer.update import StepRecord

__all__ = ["TensorBoardLogger", "progress", "shielded"]

_logger = logging.getLogger(__name__)


def progress(records: Iterable[StepRecord], total: int, *, done: int = 0) -> Iterator[StepRecord]:
    """Pass records on and show a bar on the terminal; nothing is shown where there is none.

    Args:
        records: What ``fit`` returns.
        total: Number of updates of the whole run, see ``total_updates``.
        done: Number of updates done before, for a resumed run.
    """
    from tqdm import tqdm

    with tqdm(total=total, initial=done, disable=None, unit="step") as bar:
        for record in records:
            text = f"epoch {record.epoch} loss {record.loss:.3f}"
            if record.valid is not None:
                text += f" valid {record.valid.loss:.3f}"
            bar.set_description(text, refresh=False)
            bar.set_postfix_str(f"{record.tokens_per_second:.0f} tokens/s", refresh=False)
            bar.update()
            yield record


class TensorBoardLogger:
    """Callback that writes every number of a record as a TensorBoard scalar.

    Args:
        folder: Folder of the event files.
        done: Number of updates done before; scalars of later ones, left by a killed run, are
            hidden.

    Raises:
        ImportError: If the package ``tensorboard`` is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str], *, done: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard scalars need the package tensorboard: pip install tensorboard"
            ) from error
        self._writer: Any = SummaryWriter(os.fspath(folder), purge_step=done + 1)

    def __call__(self, record: StepRecord, model: nn.Module) -> None:
        """Write the scalars of one record."""
        for name, value in record.as_dict().items():
            if name != "step":
                group = "valid" if name.startswith("valid_") else "train"
                short = name.removeprefix("valid_")
                self._writer.add_scalar(f"{group}/{short}", value, record.step)

    def close(self) -> None:
        """Write what is still in memory and close the file."""
        self._writer.close()


def shielded(callback: Callback) -> Callback:
    """A callback whose failure is logged with its trace and never ends training.

    For pictures and other things that a run can do without.
    """

    def call(record: StepRecord, model: nn.Module) -> None:
        try:
            callback(record, model)
        except Exception:
            _logger.exception("a callback failed after step %d; training goes on", record.step)

    return call
