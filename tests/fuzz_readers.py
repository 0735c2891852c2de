"""Feeds the readers of files with random and mutated bytes; not a test, run it by hand.

    python tests/fuzz_readers.py --seconds 600 --seed 1
    python tests/fuzz_readers.py --only checkpoint:1234 --seed 1     # one case again

What must hold for any bytes: a result, or one ValueError or OSError of one line that names the
file; the line too, where the file has lines. Never another exception, never a crash, never more
than ten seconds, and never a file made, changed or left over. The counts are printed at the end;
the exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import logging
import os
import pickle
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch  # noqa: E402
from fuzz_mutations import odd_value, other_bytes, other_json, other_text  # noqa: E402
from stub import stub_batches, stub_model  # noqa: E402

from graphformer.checkpoint import Checkpoint, pack_tensors  # noqa: E402
from graphformer.codec import BPECodec, load_codec, train_bpe, train_words  # noqa: E402
from graphformer.corpus import encode_source, read_lines, read_parallel  # noqa: E402
from graphformer.recipe import parse_recipe, read_recipe  # noqa: E402
from graphformer.runfolder import RunFolder  # noqa: E402
from graphformer.schedule import Constant  # noqa: E402
from graphformer.train import fit  # noqa: E402
from graphformer.trainconfig import TrainConfig  # noqa: E402
from graphformer.vocab import Vocab  # noqa: E402

SECONDS_A_CASE = 10
SLICE = 5.0  # seconds that one reader gets in turn, in a process of its own
TEXT = "der hund und der hahn\nthe hen\n\nein Übel\t3\n"
HEAD = b"<sos>\n<eos>\n<pad>\n<unk>\n"


class Wrong(Exception):
    """A property that did not hold."""


class Stuck(BaseException):
    """A case took too long."""


def outcome(call: Callable[[], object], *says: str) -> str:
    """Run a reader; its one clear error must match each of the patterns in ``says``."""
    try:
        call()
    except (ValueError, OSError) as error:
        text = str(error)
        if "\n" in text or "\r" in text:
            raise Wrong(f"more than one line: {text!r}") from error
        for pattern in says:
            if not re.search(pattern, text):
                raise Wrong(f"{pattern!r} is not in: {text!r}") from error
        return "error"
    return "result"


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Files:
    """A folder that holds just the given files before a case, and must hold them after it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.held: dict[str, bytes] = {}

    def hold(self, files: dict[str, bytes]) -> Path:
        for name in self.held.keys() - files.keys():
            (self.folder / name).unlink()
        for name, data in files.items():
            if self.held.get(name) != data:
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        self.held = dict(files)
        return self.folder

    def check(self) -> None:
        if snapshot(self.folder) != self.held:
            raise Wrong("a file was made, changed or left over")


def corpus(rng: random.Random, files: Files) -> str:
    def side() -> bytes:
        data = other_text(rng, TEXT)
        return other_bytes(rng, gzip.compress(data)) if rng.random() < 0.3 else data

    folder = files.hold({"a.en": side(), "b.de": side()})
    one, two = folder / "a.en", folder / "b.de"
    keep = rng.random() < 0.5
    found = outcome(lambda: read_parallel(one, two, keep_empty=keep), r"a\.en|b\.de")
    # Where it is not about compression or numbers of lines, an error has the line.
    outcome(lambda: read_lines(one), r"a\.en(, line \d+:|: damaged gzip|: .*gzip)")
    if found == "result":
        pairs = read_parallel(one, two, keep_empty=keep).pairs
        assert pairs and (keep or all(a.strip() and b.strip() for a, b in pairs))
        codec = train_words(["der hund und"])
        rows = encode_source([a for a, _ in pairs], codec.encode, max_len=rng.randint(1, 5))
        assert len(rows) == len(pairs)
    return found


def vocabulary(rng: random.Random, files: Files) -> str:
    good = HEAD + b"der\nhund\n\xc3\xbcbel\nund\n"
    data = HEAD + other_text(rng, TEXT) if rng.random() < 0.5 else other_bytes(rng, good)
    path = files.hold({"vocab": data}) / "vocab"
    found = outcome(lambda: Vocab.load(path), r"vocab, line \d+: ")
    if found == "result":
        vocab = Vocab.load(path)
        assert vocab.decode(range(len(vocab))) == list(vocab.tokens)
    return found


def codec_folder(rng: random.Random, files: Files) -> str:
    held = dict(rng.choice(CODECS))
    name = rng.choice(sorted(held))
    if name == "codec.json" and rng.random() < 0.5:
        held[name] = other_json(rng, held[name])
    else:
        held[name] = other_bytes(rng, held[name])
    folder = files.hold(held)
    found = outcome(lambda: load_codec(folder), re.escape(str(folder)))
    if found == "result":
        codec = load_codec(folder)
        codec.decode(codec.encode("der hund <pad> x"))
    return found


def byte_pairs(rng: random.Random, files: Files) -> str:
    # A model whose digest was made to fit: sentencepiece itself must say no, and not crash.
    files.hold({})
    data = other_bytes(rng, CODECS[0]["bpe.model"])

    def use() -> None:
        codec = BPECodec(data)
        codec.decode(codec.encode("der hund <pad> x ü"))

    return outcome(use)


def recipe(rng: random.Random, files: Files) -> str:
    data = other_text(rng, RECIPE)
    path = files.hold({"r.toml": data}) / "r.toml"
    changes = [] if rng.random() < 0.7 else [other_text(rng, "train.epochs=3").decode("latin-1")]
    return outcome(lambda: read_recipe(path, changes), r"r\.toml: |override ")


def run_folder(rng: random.Random, files: Files) -> str:
    held = dict(RUN)
    name = rng.choice(sorted(held))
    data = held[name]
    if name.endswith(".json") and rng.random() < 0.5:
        held[name] = other_json(rng, data)
    elif rng.random() < 0.1:
        del held[name]
    elif rng.random() < 0.1:
        held[name] = held[rng.choice(sorted(held))]
    else:
        held[name] = other_bytes(rng, data)
    folder = files.hold(held)
    return outcome(lambda: read_run(folder), re.escape(str(folder)))


def crafted_run(rng: random.Random, files: Files) -> str:
    """Files that somebody changed on purpose: every digest that can be made to fit, fits."""
    held = dict(RUN)
    place = "checkpoints/step-00000002/"
    kind = rng.choice(["state", "tensors", "header", "config", "log"])
    if kind == "state":
        held[place + "state.json"] = other_json(rng, held[place + "state.json"])
    elif kind == "tensors":
        name = rng.choice(["model.safetensors", "optimizer.safetensors"])
        held[place + name] = pack_tensors(crafted_tensors(rng, name), RUN_METADATA)
    elif kind == "header":
        name = rng.choice(["model.safetensors", "optimizer.safetensors"])
        held[place + name] = other_header(rng, held[place + name])
    elif kind == "config":
        held["config.toml"] = other_text(rng, RECIPE)
    else:
        held["metrics.jsonl"] = other_text(rng, held["metrics.jsonl"].decode())
    held[place + "manifest.json"] = signed_manifest(held, place)
    held["run.json"] = signed_run(held)
    folder = files.hold(held)
    return outcome(lambda: read_run(folder), re.escape(str(folder)))


def read_run(folder: Path) -> None:
    """All that the commands read of a run, and the state of training put back."""
    run = RunFolder.open(folder)
    parse_recipe(run.config, str(folder / "config.toml"))
    run.log.records()
    run.read_model()
    run.average(2)
    model = stub_model()
    # No update is asked for: this is what happens before the first one of a run that goes on.
    copy = Path(tempfile.mkdtemp())
    try:
        shutil.copytree(folder, copy / folder.name)
        again = RunFolder.open(copy / folder.name)
        records = fit(
            model, stub_batches(), CONFIG, Constant(0.01), run=again, valid=VALID, resume=True
        )
        next(records, None)
    except (ValueError, OSError) as error:
        raise type(error)(str(error).replace(str(copy / folder.name), str(folder))) from error
    except FloatingPointError:
        pass  # crafted weights may be too large: this is said, and nothing is written
    finally:
        shutil.rmtree(copy)


def crafted_tensors(rng: random.Random, name: str) -> dict[str, torch.Tensor]:
    saved = SAVED.weights if name == "model.safetensors" else SAVED.optimizer
    tensors = dict(saved)
    victim = rng.choice(sorted(tensors))
    value = tensors.pop(victim)
    change = rng.choice(["drop", "name", "dtype", "shape", "value", "add"])
    if change == "name":
        tensors[str(odd_value(rng))] = value
    elif change == "dtype":
        dtypes = [torch.float16, torch.int8, torch.bool, torch.float64, torch.complex64]
        tensors[victim] = value.to(rng.choice([*dtypes, torch.float8_e4m3fn, torch.uint16]))
    elif change == "shape":
        tensors[victim] = rng.choice(
            [value.reshape(1, -1)[:, :1], value.reshape(-1), value[None], value.sum()]
        )
    elif change == "value":
        tensors[victim] = torch.full_like(value, rng.choice([float("nan"), float("inf"), -1, 1e30]))
    elif change == "add":
        tensors[victim] = value
        tensors[f"{odd_value(rng)}/{victim}"] = value.clone()
    return tensors


def other_header(rng: random.Random, data: bytes) -> bytes:
    """A safetensors file with another header of JSON, or another declared size of it."""
    size = int.from_bytes(data[:8], "little")
    header = other_json(rng, data[8 : 8 + size])
    declared = rng.choice([len(header), len(header), len(header), 2**63, 2**33, 0, len(header) + 1])
    return declared.to_bytes(8, "little") + header + data[8 + size :]


def sha(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def signed_manifest(held: dict[str, bytes], place: str) -> bytes:
    manifest = json.loads(held[place + "manifest.json"])
    manifest["files"] = {name: sha(held[place + name]) for name in manifest["files"]}
    return json.dumps(manifest).encode()


def signed_run(held: dict[str, bytes]) -> bytes:
    description = json.loads(held["run.json"])
    description["config"] = [sha(held["config.toml"])]
    return json.dumps(description).encode()


def metrics(rng: random.Random, files: Files) -> str:
    good = RUN["metrics.jsonl"]
    data = other_bytes(rng, good) if rng.random() < 0.5 else other_text(rng, good.decode())
    folder = files.hold(RUN | {"metrics.jsonl": data})
    log = RunFolder.open(folder).log
    return outcome(log.records, r"metrics\.jsonl:\d+: ")


READERS = {
    "corpus": corpus,
    "vocabulary": vocabulary,
    "codec": codec_folder,
    "byte-pairs": byte_pairs,
    "recipe": recipe,
    "run": run_folder,
    "crafted-run": crafted_run,
    "metrics": metrics,
}

RECIPE = """[data]
preset = "files"
train = ["a.en", "b.de"]
valid = ["c.en", "d.de"]
codec = "space"
max_len = 10
[model]
N = 2
dim_model = 21
h = 3
dropout = 0.1
universal = true
threshold = 0.99
kernel = "auto"
[batches]
max_tokens = 300
[rate]
name = "linear"
peak = 2e-2
[loss]
smoothing = 0.1
[train]
epochs = 3
betas = [0.9, 0.98]
clip_norm = 1.0
precision = "float32"
[decode]
average = 2
alpha = 0.6
"""
CODECS = [
    train_bpe(["der hund und der hahn", "the hen"], 24).files(),
    train_words(["der hund und ü"]).files(),
]
CONFIG = TrainConfig(epochs=3, max_steps=4, save_every=1, keep=9)
VALID = stub_batches(count=3, seed=1)


def make_run() -> tuple[dict[str, bytes], Checkpoint, dict[str, str]]:
    """The files of a small run, its newest checkpoint, and what its tensor files say of it."""
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder.create(Path(folder) / "run", RECIPE, CODECS[1])
        model, config = stub_model(), TrainConfig(epochs=3, max_steps=2, save_every=1, keep=9)
        for _ in fit(model, stub_batches(), config, Constant(0.01), run=run, valid=VALID):
            pass
        run.write_model(run.average(2), 2)
        return snapshot(run.path), run.checkpoint(), {"run": run.identity, "step": "2"}


RUN, SAVED, RUN_METADATA = make_run()


def stuck(number: int, frame: object) -> None:
    raise Stuck(f"still busy after {SECONDS_A_CASE} seconds")


def one_case(name: str, seed: int, index: int, files: Files) -> str:
    try:
        return timed_case(name, seed, index, files)
    except Stuck:  # once more, for the machine may have been asleep
        return timed_case(name, seed, index, files)


def timed_case(name: str, seed: int, index: int, files: Files) -> str:
    rng = random.Random(f"{seed} {name} {index}")
    signal.signal(signal.SIGALRM, stuck)
    signal.alarm(SECONDS_A_CASE)
    try:
        found = READERS[name](rng, files)
        files.check()
        return found
    finally:
        signal.alarm(0)


def work(name: str, seed: int, start: int, seconds: float, out: int) -> None:
    """One slice of time for a reader, in a process of its own; what was found goes to ``out``."""
    counts: Counter[str] = Counter()
    faults = []
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    files = Files(folder / "run")
    files.folder.mkdir()
    index, end = start, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            os.pwrite(out, pickle.dumps((index, counts, faults)), 0)
            for _ in range(20):
                try:
                    counts[one_case(name, seed, index, files)] += 1
                except BaseException as error:
                    counts["FAULT"] += 1
                    where = "".join(traceback.format_exception(error)[-3:])
                    faults.append((index, f"{type(error).__name__}: {error}", where))
                    shutil.rmtree(files.folder)
                    files.folder.mkdir()
                    files.held = {}
                index += 1
        os.pwrite(out, pickle.dumps((index, counts, faults)), 0)
    finally:
        shutil.rmtree(folder)


def turn(name: str, seed: int, start: int, seconds: float):
    """Run :func:`work` in a child; gives the next index, counts and faults."""
    with tempfile.TemporaryFile() as results:
        child = os.fork()
        if not child:
            code = 1
            try:
                work(name, seed, start, seconds, results.fileno())
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        results.seek(0)
        index, counts, faults = pickle.loads(results.read())
    if status:
        counts["FAULT"] += 1
        faults.append((index, f"the process died, status {status}, within 20 cases from here", ""))
        index += 20
    return index, counts, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--only", help="READER:INDEX, one case again, with its traceback")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    if args.only:
        name, _, index = args.only.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            print(one_case(name, args.seed, int(index), Files(Path(folder))))
        return 0
    totals: dict[str, Counter[str]] = {name: Counter() for name in args.readers}
    starts = dict.fromkeys(args.readers, 0)
    began = shown = time.monotonic()
    while time.monotonic() - began < args.seconds:
        for name in args.readers:
            starts[name], counts, faults = turn(name, args.seed, starts[name], SLICE)
            totals[name] += counts
            for index, what, where in faults:
                print(f"FAULT {name}:{index} {what}\n{where}", flush=True)
        if time.monotonic() - shown > 300:
            shown = time.monotonic()
            show(args.seed, shown - began, totals)
    show(args.seed, time.monotonic() - began, totals)
    return int(any(counts["FAULT"] for counts in totals.values()))


def show(seed: int, seconds: float, totals: dict[str, Counter[str]]) -> None:
    times = os.times()
    busy = times.children_user + times.children_system
    print(f"seed {seed}: {seconds:.0f} s, of which {busy:.0f} s on a processor")
    print(f"{'reader':12} {'inputs':>9} {'results':>9} {'errors':>9} {'faults':>7}")
    for name, counts in {**totals, "all": sum(totals.values(), Counter())}.items():
        row = (counts.total(), counts["result"], counts["error"], counts["FAULT"])
        print(f"{name:12} {row[0]:9} {row[1]:9} {row[2]:9} {row[3]:7}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
