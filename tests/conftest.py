"""What holds for every test: one thread, the same random numbers each time, no time limits."""

import os

# Read when torch is imported, so set before: two threads that wait for each other on a busy
# machine make a small call take anything between 0.3 and 24 ms.
os.environ["OMP_NUM_THREADS"] = "1"
# Never a window: pictures are drawn into files.
os.environ["MPLBACKEND"] = "Agg"

import random  # noqa: E402

import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)

hypothesis.settings.register_profile("local", deadline=None)
# In CI the same inputs every time, so that a red run can be looked into.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def seeded():
    """Starts each test with the same global random state, whatever ran before it.

    For the few places that draw from it (a layer's first weights, dropout); no expected value
    may depend on the numbers themselves, for they change between releases.
    """
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
