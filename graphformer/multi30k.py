"""Multi30k, English and German: from a local folder, or from the data set's own repository.

Elliott et al. 2016, "Multi30K: Multilingual English-German Image Descriptions". 29,000 pairs to
train, 1,014 to validate, 1,000 to test (test 2016). For research and teaching only.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

REVISION = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
ADDRESS = f"https://raw.githubusercontent.com/multi30k/dataset/{REVISION}/data/task1"
FOLDER_VARIABLE = "GRAPHFORMER_MULTI30K"
LANGUAGES = ("en", "de")
FORMS = ("raw", "tok")

# What a split may be called in a local folder; the first name is the repository's.
_SPLITS = {
    "train": ("train",),
    "valid": ("val", "valid"),
    "test": ("test_2016_flickr", "test"),
}
# Where a file may lie in a local folder, by form; {} are the split and the language.
_LAYOUTS = {
    "raw": ("raw/{}.{}.gz", "{}.{}.gz", "raw/{}.{}", "{}.{}"),
    "tok": ("tok/{}.lc.norm.tok.{}", "{}.lc.norm.tok.{}"),
}
# Size in bytes and SHA-256 of the repository's files.
_FILES = {
    "raw/train.en.gz": (
        568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "raw/train.de.gz": (
        637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    "raw/val.en.gz": (
        21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "raw/val.de.gz": (
        24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "raw/test_2016_flickr.en.gz": (
        21077, "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9"),
    "raw/test_2016_flickr.de.gz": (
        22890, "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8"),
    "tok/train.lc.norm.tok.en": (
        1837696, "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119"),
    "tok/train.lc.norm.tok.de": (
        2150008, "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505"),
    "tok/val.lc.norm.tok.en": (
        64608, "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec"),
    "tok/val.lc.norm.tok.de": (
        77273, "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00"),
    "tok/test_2016_flickr.lc.norm.tok.en": (
        63307, "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2"),
    "tok/test_2016_flickr.lc.norm.tok.de": (
        71917, "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4"),
}  # fmt: skip

# Seconds: to reach the server, without a byte from it, and for all files together.
_CONNECT, _SILENCE, _TOTAL = 5.0, 20.0, 300.0
_CHUNK = 16  # bytes; few, because the total time is only looked at between two chunks


class Multi30k(NamedTuple):
    """Source and target file of each split, for :func:`graphformer.corpus.read_parallel`."""

    train: tuple[Path, Path]
    valid: tuple[Path, Path] | None
    """None if a local folder does not have it."""
    test: tuple[Path, Path] | None
    """None if a local folder does not have it."""


def multi30k(
    folder: str | os.PathLike[str] | None = None,
    *,
    src: str = "en",
    tgt: str = "de",
    form: str = "raw",
    cache: str | os.PathLike[str] | None = None,
) -> Multi30k:
    """Find the files of Multi30k, or download them once.

    Args:
        folder: a local copy; without it, the folder that the environment variable
            ``GRAPHFORMER_MULTI30K`` names; without that, the files are downloaded. It may have
            the repository's layout (``raw/train.en.gz``, ``tok/train.lc.norm.tok.en``), or the
            files themselves, compressed or not (``train.en``, ``val.en``, ``test.en``). Its
            content is up to the user and not compared with any checksum.
        src: ``"en"`` or ``"de"``.
        tgt: the other one.
        form: ``"raw"``, text as it was written; or ``"tok"``, lowercased, normalised and
            tokenised.
        cache: where downloads are kept; by default the user's cache folder.

    Raises:
        ValueError: for another language or form, or a local folder without the training files.
        OSError: if the download fails, naming the address and what to do without it. With no
            answer that takes less than a minute; with a very slow one, about five.
    """
    if (src, tgt) not in (LANGUAGES, LANGUAGES[::-1]):
        raise ValueError(f"Multi30k has the languages en and de here, got {src} and {tgt}")
    if form not in FORMS:
        raise ValueError(f"no form {form!r} of Multi30k; choose one of {', '.join(FORMS)}")
    folder = folder or os.environ.get(FOLDER_VARIABLE)
    if folder:
        return _local(Path(folder), src, tgt, form)
    layout = _LAYOUTS[form][0]
    names = [layout.format(split[0], lang) for split in _SPLITS.values() for lang in (src, tgt)]
    paths = download(names, cache)
    return Multi30k(*zip(paths[0::2], paths[1::2], strict=True))


def _local(folder: Path, src: str, tgt: str, form: str) -> Multi30k:
    found: dict[str, tuple[Path, Path] | None] = {}
    for split, names in _SPLITS.items():
        choices = [
            (folder / layout.format(name, src), folder / layout.format(name, tgt))
            for layout in _LAYOUTS[form]
            for name in names
        ]
        found[split] = next((p for p in choices if p[0].is_file() and p[1].is_file()), None)
    train = found["train"]
    if train is None:
        looked = ", ".join(layout.format("train", src) for layout in _LAYOUTS[form])
        raise ValueError(
            f"no training files of Multi30k in {folder}; looked for {looked}, and the same with "
            f"{tgt}"
        )
    for split in ("valid", "test"):
        if found[split] is None:
            logger.warning(
                "%s has no %s files of Multi30k in %s", folder, split, " and ".join((src, tgt))
            )
    return Multi30k(train, found["valid"], found["test"])


def download(
    names: Sequence[str],
    cache: str | os.PathLike[str] | None = None,
    *,
    address: str = ADDRESS,
    files: Mapping[str, tuple[int, str]] = _FILES,
    silence: float = _SILENCE,
    total: float = _TOTAL,
) -> list[Path]:
    """Get files of the repository into the cache, each compared with its size and SHA-256.

    A file that is there and right is not downloaded again. Every file is written under another
    name and renamed when its checksum is right, so the cache never holds a broken one.

    Args:
        names: such as ``"raw/train.en.gz"``.
        cache: a folder; by default the user's cache folder.
        address: where the names are looked for.
        files: size in bytes and SHA-256 of each name.
        silence: seconds without a byte after which an attempt ends. A failed one is repeated once,
            unless that much time has gone already.
        total: seconds for all files together.

    Returns:
        The path of each file.

    Raises:
        OSError: naming the address, the reason and the way around it.
    """
    import pooch

    folder = Path(cache or pooch.os_cache("graphformer")) / "multi30k" / REVISION[:8]
    registry = {name: f"sha256:{files[name][1]}" for name in names}
    store = pooch.create(path=folder, base_url=address + "/", registry=registry)
    ends = time.monotonic() + total
    return [Path(_fetch(store, name, files[name][0], silence, ends)) for name in names]


def _fetch(store: Any, name: str, size: int, silence: float, ends: float) -> str:
    """One file through pooch, which compares, renames and keeps; at most two attempts."""
    import requests

    started = time.monotonic()
    attempts = 0
    while True:
        attempts += 1
        try:
            return str(store.fetch(name, downloader=_downloader(size, silence, ends)))
        except (requests.RequestException, ValueError, OSError) as error:
            late = time.monotonic() > started + silence or isinstance(error, TimeoutError)
            if late or attempts == 2:
                raise OSError(
                    f"cannot get {store.get_url(name)}: {_reason(error, silence)}; to do without "
                    f"it, give a local folder with the files of Multi30k or name it in "
                    f"{FOLDER_VARIABLE}"
                ) from None


def _downloader(size: int, silence: float, ends: float) -> Callable[[str, str, Any], None]:
    """Make what pooch calls with an address and a file; its own has no limit in all."""

    def get(url: str, path: str, _: Any) -> None:
        import requests

        request = requests.get(
            url,
            stream=True,
            timeout=(min(_CONNECT, silence), silence),
            headers={"Accept-Encoding": "identity"},
        )
        got = 0
        with request as response, open(path, "wb") as file:
            response.raise_for_status()
            for chunk in response.iter_content(_CHUNK):
                got += len(chunk)
                if got > size:
                    raise ValueError(f"there are more than the expected {size} bytes")
                if time.monotonic() > ends:
                    raise TimeoutError(f"too slow, {got} of {size} bytes when the time was over")
                file.write(chunk)
        if got < size:
            raise ValueError(f"only {got} of {size} bytes came")

    return get


def _reason(error: Exception, silence: float) -> str:
    """Say what happened in a few words; the errors of requests are nested five deep."""
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server says {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.ConnectTimeout):
        return "the server cannot be reached"
    if isinstance(error, requests.Timeout) or "Read timed out" in str(error):
        return f"nothing came for {silence:g} seconds"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection was cut"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    if "hash" in str(error):
        return "the file is not the expected one (SHA-256 differs)"
    return " ".join(str(error).split())
