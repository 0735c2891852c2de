"""Measure and print the table: ``make bench``, or ``python benchmarks/run.py --help``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("DGLBACKEND", "pytorch")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402

from benchmarks import attending, costs, decoding, training  # noqa: E402
from benchmarks.measure import Candidate, machine, memory_here  # noqa: E402
from benchmarks.rows import Measure, Row, table  # noqa: E402
from benchmarks.sizes import FULL, SHORT, Sizes  # noqa: E402

THREADS = 2
MEASURES: dict[str, Measure] = {
    "import": costs.importing,
    "building": costs.building,
    "blocks": attending.blocks,
    "window": attending.window,
    "universal": costs.universal,
    "training": training.random_batches,
    "sorted": training.sorted_batches,
    "decoding": decoding.decoding,
    "crossover": attending.crossover,
    "growth": attending.growth,
}


def memory_candidate(row: str, name: str, sizes: Sizes) -> Candidate:
    """The work whose memory is measured in a process of its own."""
    if row == "window":
        return attending.window_candidate(name, sizes)
    return training.candidates(sizes, False, [name])[name]


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description="Measure graphformer against its alternatives.")
    parser.add_argument(
        "--only", metavar="NAME", action="append", choices=MEASURES, help=", ".join(MEASURES)
    )
    parser.add_argument("--short", action="store_true", help="tiny sizes: tests the harness only")
    parser.add_argument("--json", metavar="PATH", type=Path, help="also write the numbers there")
    parser.add_argument("--memory", nargs=2, metavar=("ROW", "CANDIDATE"), help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Measure, print, write."""
    options = arguments(argv)
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    sizes = SHORT if options.short else FULL
    if options.memory:
        memory_candidate(*options.memory, SHORT)(0)  # what any first call takes is not counted
        print(json.dumps(memory_here(memory_candidate(*options.memory, sizes))))
        return
    about = machine()
    print(", ".join(f"{key}: {value}" for key, value in about.items()), flush=True)
    rows: dict[str, list[Row]] = {}
    for name in options.only or MEASURES:
        rows[name] = MEASURES[name](sizes, options.short)
        print(f"\n[{name}]\n{table(rows[name])}", flush=True)
    if options.json:
        found = {name: [row.as_dict() for row in part] for name, part in rows.items()}
        text = json.dumps({"machine": about, "rows": found}, indent=1, ensure_ascii=False)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
