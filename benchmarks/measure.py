"""Clocks: alternating candidates, paired ratios, the machine's peak, memory in a fresh process."""

from __future__ import annotations

import gc
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from statistics import median

import torch

ROOT = Path(__file__).resolve().parents[1]
Candidate = Callable[[int], object]  # takes the number of the run


def alternate(candidates: Mapping[str, Candidate], runs: int) -> dict[str, list[float]]:
    """Time the candidates in turn, so that whatever else the machine does meets all of them.

    Args:
        candidates: each is called once to warm up, then once a run with the run's number.
        runs: timed calls of each.

    Returns:
        Seconds of each run, by candidate.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for work in candidates.values():
        work(0)
    for run in range(runs):
        for name, work in candidates.items():
            gc.collect()
            start = time.perf_counter()
            work(run)
            times[name].append(time.perf_counter() - start)
    return times


def ratio(times: Mapping[str, list[float]], over: str, under: str) -> float:
    """Median over the runs of the time of ``over`` divided by that of ``under`` in the same run."""
    return median(a / b for a, b in zip(times[over], times[under], strict=True))


def spread(times: list[float]) -> dict[str, float]:
    """Median, least and most, in milliseconds."""
    return {
        "median_ms": round(1e3 * median(times), 3),
        "min_ms": round(1e3 * min(times), 3),
        "max_ms": round(1e3 * max(times), 3),
    }


def matrix_product(size: int) -> Candidate:
    """A large float32 matrix product; it does ``2 * size**3`` operations."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return lambda run: a @ b


def forward_backward(function: Callable[..., torch.Tensor], *leaves: torch.Tensor) -> Candidate:
    """One call and its gradient for the leaves, which are dropped again."""

    def work(run: int) -> None:
        out = function(*leaves)
        torch.autograd.grad(out, leaves, torch.ones_like(out))

    return work


def resident_peak() -> float:
    """Most memory that this process has held so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux a process inherits that from the one that started it.
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, others KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def memory_of(row: str, candidate: str, short: bool) -> dict[str, float]:
    """Peak memory of one candidate, in a process of its own.

    Returns:
        MiB: ``peak`` of the whole process, and how much of it ``work`` added to what imports,
        weights and inputs already took.
    """
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--memory", row, candidate]
    done = subprocess.run(
        command + ["--short"] * short, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"memory of {row}, {candidate}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def memory_here(candidate: Candidate) -> dict[str, float]:
    """What :func:`memory_of` returns, for this process."""
    before = resident_peak()
    candidate(0)
    peak = resident_peak()
    return {"peak": round(peak, 1), "work": round(peak - before, 1)}


def machine() -> dict[str, object]:
    """Processor, cores, load, versions and date."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next(
            (x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), model
        )
    names = ("torch", "dgl", "numpy", "x-transformers", "torch-geometric")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_at_start": [round(x, 2) for x in os.getloadavg()],
        "system": platform.system(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in names},
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def version(package: str) -> str | None:
    """Its version, or ``None`` where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
