"""The package's version, and the check that what it stands on is there and fits.

A torch, DGL or torchtext that does not fit fails deep inside itself, on a missing native library
or a module that has moved. So the installed versions are looked up in their metadata, which loads
none of them, before the first is imported.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from importlib import metadata

__version__ = "0.1.0"

WANTED = {
    "torch": ">=2.13,<3",
    "dgl": "==1.1.3",
    "torchtext": "==0.6.0",
    "packaging": ">=23",
    "numpy": ">=2.2,<2.5",
}
"""What must be installed: distribution name to version range, the same as in ``setup.cfg``."""

_PYTHONS = ((3, 10), (3, 11))
_BACKEND = "pytorch"


def check_versions() -> None:
    """Checks Python and the installed versions, then imports torch and DGL.

    Sets the environment variable ``DGLBACKEND`` to ``pytorch`` where it is not set: without it
    DGL prints a notice and writes to the home folder. Also bounds two caches of PyTorch, where
    their variables are not set.

    Raises:
        ImportError: Something is missing, does not fit or does not load. The one message names
            what was found, what is wanted and the command that mends it.
    """
    _check_python(sys.version_info[:2])
    wrong = _misfits()
    if wrong:
        found = ", ".join(f"{name} {version or 'missing'}" for name, version in wrong.items())
        wanted = [name + WANTED[name] for name in wrong]
        raise ImportError(
            f"graphformer cannot run with what is installed: found {found}; wanted "
            f"{', '.join(wanted)}. To mend it: {_pip_install(*wanted)}"
        )
    backend = os.environ.setdefault("DGLBACKEND", _BACKEND)
    if backend != _BACKEND:
        raise ImportError(
            f"graphformer cannot run with DGLBACKEND={backend}: wanted {_BACKEND}. "
            f"To mend it: unset DGLBACKEND"
        )
    # PyTorch keeps a compiled 16-bit product for each shape it has met, 1024 of them. Graphs give
    # new shapes all the time, so that was gigabytes of ballast. Both caches read this at first use.
    for cache in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
        os.environ.setdefault(cache, "64")
    for name in ("torch", "dgl"):
        _load(name)


def _check_python(running: tuple[int, ...]) -> None:
    if running not in _PYTHONS:
        found = ".".join(map(str, running))
        wanted = " or ".join(".".join(map(str, version)) for version in _PYTHONS)
        raise ImportError(f"graphformer cannot run on Python {found}: wanted Python {wanted}")


def _misfits() -> dict[str, str | None]:
    """Returns what does not fit: distribution name to the version found, None where missing."""
    found = {name: _installed(name) for name in WANTED}
    return {
        name: version
        for name, version in found.items()
        if version is None or not _fits(version, WANTED[name])
    }


def _installed(name: str) -> str | None:
    try:
        # None too where the metadata folder is there, but half removed.
        return metadata.version(name) or None
    except (metadata.PackageNotFoundError, KeyError):
        return None


def _fits(version: str, wanted: str) -> bool:
    """Says whether a version lies in a range such as ``>=2.2,<3``.

    Written out here, for `packaging` is among what may be missing. Only the release counts:
    ``2.13.0+cpu`` is 2.13.0.
    """
    release = _release(version)
    for clause in wanted.split(","):
        operator = clause.rstrip("0123456789.")
        limit = _release(clause.removeprefix(operator))
        fits = {"==": release == limit, ">=": release >= limit, "<": release < limit}
        if not fits[operator]:
            return False
    return True


def _release(version: str) -> tuple[int, ...]:
    """Returns the leading numbers without trailing zeros, so that 2.13 equals 2.13.0."""
    release = [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])]
    while release and release[-1] == 0:
        release.pop()
    return tuple(release)


def _load(name: str) -> None:
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken install fails in any way: OSError, AttributeError, ...
        version = metadata.version(name)
        cause = f"{type(error).__name__}: {error}".splitlines()[0]
        # Without the local part: a build such as 2.13.0+cpu need not be on the package index.
        # NumPy keeps its range, for the reinstall takes what the package needs anew as well.
        again = (f"{name}=={version.partition('+')[0]}", f"numpy{WANTED['numpy']}")
        # The trace from deep inside would only hide the one line that helps.
        raise ImportError(
            f"graphformer cannot import {name} {version}, which seems broken ({cause}). "
            f"To mend it: {_pip_install('--force-reinstall', *again)}"
        ) from None


def _pip_install(*arguments: str) -> str:
    quoted = (f'"{word}"' if re.search("[<>=]", word) else word for word in arguments)
    return f"python -m pip install {' '.join(quoted)}"
