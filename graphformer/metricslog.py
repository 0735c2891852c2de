"""The records of a training run, one JSON object a line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphformer.atomic import read_file, sync, write_file
from graphformer.checkpoint import read_json

__all__ = ["MetricsLog"]


class MetricsLog:
    """A file of records that grows by whole lines and can be cut back to an update.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record, which must have a ``step``.

        Raises:
            ValueError: If it has no step, or a number in it is not finite.
            OSError: If it cannot be written, or the file is a symbolic link.
        """
        if not isinstance(record.get("step"), int):
            raise ValueError(f"record must have a whole number named step, got {dict(record)}")
        line = json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        try:
            with open(os.open(self.path, flags, 0o666), "ab") as file:
                file.write(line.encode("utf-8"))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def sync(self) -> None:
        """Flush what was appended to the disk."""
        if self.path.exists():
            sync(self.path)

    def records(self) -> list[dict[str, Any]]:
        """All records in order; a last line cut short by a kill is left out.

        Raises:
            ValueError: If another line is damaged; the message names file and line.
        """
        if not self.path.exists():
            return []
        lines = read_file(self.path).split(b"\n")[:-1]  # what follows the last line end was cut
        result = [read_json(line, f"{self.path}:{n}") for n, line in enumerate(lines, start=1)]
        for number, record in enumerate(result, start=1):
            if not isinstance(record.get("step"), int):
                raise ValueError(f"{self.path}:{number}: has no step")
        return result

    def cut(self, step: int) -> None:
        """Remove the records of updates after ``step``: they will be made again.

        Raises:
            ValueError: If a line is damaged.
            OSError: If the file cannot be written.
        """
        if self.path.exists():
            kept = [record for record in self.records() if record["step"] <= step]
            lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in kept]
            write_file(self.path, "".join(lines).encode("utf-8"))
