"""Files that are either the old ones or the new ones, whenever the process is killed.

Everything is written under a temporary name in the same folder, flushed to the disk (``fsync``)
and renamed; then the folder itself is flushed, so that the rename survives a power cut as well.
Temporary names start with a dot and end with ``.partial``. A symbolic link is never written
through: a rename replaces the link, and temporary files are created exclusively.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = [
    "check_name",
    "check_new",
    "read_file",
    "remove_folder",
    "sync",
    "write_file",
    "write_folder",
]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def check_name(name: str) -> str:
    """Return a file name that cannot lead out of its folder.

    Raises:
        ValueError: If the name has characters beyond letters, digits, ``.``, ``_``, ``-``, starts
            with a dot or is longer than 100.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"file name may hold letters, digits, '._-' (not first '.'), got {name!r}")
    return name


def read_file(path: Path) -> bytes:
    """All bytes of a regular file.

    Raises:
        ValueError: If the path is missing or is not a regular file (a pipe would block).
        OSError: If the file cannot be read.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise ValueError(f"{path}: file is missing") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path}: not a regular file")
    return path.read_bytes()


def sync(path: Path) -> None:
    """Flush the file or folder at ``path``, written by other means, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Replace the file at ``path`` by ``data`` in one step.

    Raises:
        OSError: If the disk is full, the folder read-only, ...; the message names the file, and
            what was there before is untouched.
    """
    temporary = _partial(path)
    with _explained(path):
        try:
            temporary.unlink(missing_ok=True)
            _write_new(temporary, data)
            os.replace(temporary, path)
        except OSError:
            _discard(temporary)
            raise
    sync(path.parent)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Make a new folder with these files in one step.

    Args:
        path: The folder; it may exist if it is empty.
        files: Contents by file name.

    Raises:
        FileExistsError: If the folder exists and is not empty.
        OSError: If it cannot be written; the message names it, and no part of it is left.
    """
    check_new(path)
    temporary = _partial(path)
    with _explained(path):
        try:
            remove_folder(temporary)
            temporary.mkdir()
            for name, data in files.items():
                _write_new(temporary / check_name(name), data)
            sync(temporary)
            os.rename(temporary, path)  # fails on a folder with contents
        except OSError:
            _discard(temporary)
            raise
    sync(path.parent)


def check_new(path: Path) -> None:
    """Refuse a path at which no new folder can be made.

    Raises:
        FileExistsError: If something is there that is not an empty folder.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(errno.EEXIST, "exists and is not an empty folder", str(path))


def remove_folder(path: Path) -> None:
    """Remove the folder at ``path``; at no moment a part of it stands under that name."""
    if not os.path.lexists(path):
        return
    doomed = path
    if not path.name.endswith(".partial"):
        doomed = _partial(path)
        remove_folder(doomed)
        os.rename(path, doomed)
    if doomed.is_symlink() or not doomed.is_dir():
        doomed.unlink()
    else:
        shutil.rmtree(doomed)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _write_new(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _discard(path: Path) -> None:
    """Remove what is left of a failed write; the failure itself is what matters."""
    try:
        remove_folder(path)
    except OSError:
        pass


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Give an OSError the file it is about: errors of ``write`` carry no name."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, f"{reason} (nothing was overwritten)", str(path)) from error
