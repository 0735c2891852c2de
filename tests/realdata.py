"""Where the tests find Multi30k, and the mark of those that need it."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def multi30k_folder():
    """The folder that the variable names, else the one beside the repository."""
    return Path(os.environ.get("GRAPHFORMER_MULTI30K") or ROOT.parent / "shared" / "multi30k")


needs_multi30k = pytest.mark.skipif(
    not multi30k_folder().is_dir(),
    reason=f"Multi30k is not in {multi30k_folder()}; GRAPHFORMER_MULTI30K names its folder",
)
