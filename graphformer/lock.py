"""A folder that one process at a time may work in."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from weakref import WeakValueDictionary, finalize

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

__all__ = ["FolderLock"]

_logger = logging.getLogger(__name__)


# Locks of this process by folder; the process is in the key for the sake of forked children.
_HELD: WeakValueDictionary[tuple[int, int, int], FolderLock] = WeakValueDictionary()


class FolderLock:
    """Holds a folder until it is released, is garbage, or the process ends in whatever way.

    The lock is the kernel's, on the folder itself: no file is made and none is left by a kill.
    Only those who ask for the lock are kept out; reading needs none. A new lock of the same
    process takes the place of the one before, whose owner was stopped half-way (in a notebook).
    Where the file system knows no locks, a warning says so and the work goes on.

    Args:
        path: An existing folder.

    Raises:
        BlockingIOError: If another process holds the folder.
        OSError: If the folder cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        self._release = finalize(self, _unlock, descriptor, os.getpid())
        about = os.fstat(descriptor)
        key = (os.getpid(), about.st_dev, about.st_ino)
        if key in _HELD:
            _HELD[key].release()
        try:
            if fcntl is None:
                raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            reason = "another process is training in this folder"
            raise BlockingIOError(error.errno, reason, str(path)) from None
        except OSError as error:
            _logger.warning(
                "%s: cannot be locked (%s); start no second training there", path, error.strerror
            )
        _HELD[key] = self

    def release(self) -> None:
        """Let others in; does nothing the second time."""
        self._release()


def _unlock(descriptor: int, process: int) -> None:
    # A forked child has a copy of the descriptor, and must leave the lock to its parent.
    if fcntl is not None and os.getpid() == process:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
