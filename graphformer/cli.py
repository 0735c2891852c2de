"""The command line: ``graphformer train | translate | evaluate | info | show``.

It parses, calls and prints; what it calls is in :mod:`graphformer.experiment`. A mistake of the
user ends with one line on standard error and exit code 1 (2 for the command line itself).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

EXAMPLES = {
    "train": "graphformer train examples/recipes/copy.toml --out runs/copy --set train.epochs=3",
    "translate": "graphformer translate --model runs/copy < in.txt > out.txt",
    "evaluate": "graphformer evaluate --model runs/copy",
    "info": "graphformer info --model runs/copy",
    "show": 'graphformer show --model runs/copy --text "a b c" --out page.html',
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words after ``graphformer``; ``None``: those of the process.

    Returns:
        The exit code: 0, or 1 after a mistake of the user, 130 after an interruption.
    """
    args = _parser().parse_args(argv)
    level = logging.WARNING if args.quiet else logging.INFO
    logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
    try:
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # Who read our output has enough. Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        print(
            f"graphformer {args.command}: not enough memory: {error}".split("\n")[0],
            file=sys.stderr,
        )
        return 1
    except (ValueError, OSError, FloatingPointError, ImportError, MemoryError) as error:
        print(f"graphformer {args.command}: {_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _one_line(error: Exception) -> str:
    """A message without Python's error numbers."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="graphformer", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)

    def command(
        name: str, run: Callable[[argparse.Namespace], None], summary: str
    ) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=summary, description=summary, epilog=f"example: {EXAMPLES[name]}"
        )
        made.set_defaults(run=run)
        made.add_argument("--quiet", action="store_true", help="only warnings on standard error")
        made.add_argument(
            "--device", type=_device, default="cpu", help="where to compute (default: cpu)"
        )
        return made

    train = command("train", _train, "train a model from a recipe")
    train.add_argument("recipe", type=Path, help="recipe file (TOML)")
    train.add_argument("--out", type=Path, required=True, help="folder of the run")
    train.add_argument(
        "--set",
        dest="changes",
        action="append",
        default=[],
        metavar="TABLE.KEY=VALUE",
        help="change a setting of the recipe; may be given several times",
    )
    train.add_argument("--resume", action="store_true", help="go on with the run in --out")
    train.add_argument("--half", action="store_true", help="store the final weights in 16 bits")
    train.add_argument("--tensorboard", action="store_true", help="write TensorBoard scalars too")

    for name, run, summary in (
        ("translate", _translate, "translate standard input to standard output, line by line"),
        ("evaluate", _evaluate, "translate the test split and print BLEU"),
    ):
        made = command(name, run, summary)
        _add_model(made)
        made.add_argument("--beam", type=int, help="hypotheses followed at once (recipe's)")
        made.add_argument("--alpha", type=float, help="exponent of the length penalty (recipe's)")
        made.add_argument("--max-len", type=int, help="most tokens of a translation")
        if name == "translate":
            made.add_argument("--n-best", type=int, default=1, help="print this many, with scores")
        else:
            made.add_argument("--src", type=Path, help="another source file")
            made.add_argument("--ref", type=Path, help="another reference file")
            made.add_argument("--tokenize", help="tokenisation of sacreBLEU (13a, or none for tok)")
            made.add_argument("--out", type=Path, help="write the translations to this file")

    _add_model(command("info", _info, "say what a run is"))
    show = command("show", _show, "write a page on which to see what a translation looked at")
    _add_model(show)
    show.add_argument("--text", required=True, help="the sentence")
    show.add_argument("--out", type=Path, required=True, help="the HTML file to write")
    return parser


def _device(name: str) -> str:
    """The name of a device on which something can be computed."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise argparse.ArgumentTypeError(f"cannot compute on {name!r}: {reason}") from None
    return name


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, required=True, help="folder of the run")


def _train(args: argparse.Namespace) -> None:
    import torch

    from .callbacks import TensorBoardLogger, progress
    from .experiment import Experiment
    from .recipe import read_recipe

    recipe = read_recipe(args.recipe, args.changes)
    experiment = Experiment(recipe, args.out, resume=args.resume, device=args.device)
    done = max(experiment.run.steps(), default=0)
    board = (
        TensorBoardLogger(_own_folder(args.out, "tensorboard"), done=done)
        if args.tensorboard
        else None
    )
    records = experiment.fit([board] if board else [])
    started, last = time.perf_counter(), None
    for last in progress(records, experiment.updates, done=done):
        if last.valid is not None:
            logging.info("epoch %d: %s", last.epoch, last.valid)
    if board:
        board.close()
    experiment.finish(torch.float16 if args.half else None)
    results = {"steps": max(experiment.run.steps()), "seconds": time.perf_counter() - started}
    if last is not None:
        results["loss"] = last.loss
    experiment.run.write_results(results)
    logging.info("trained: %s", args.out)


def _own_folder(run: Path, name: str) -> Path:
    """A folder in that of a run, to be written into."""
    if (run / name).is_symlink():
        raise ValueError(f"{run / name}: is a symbolic link; a run writes in its own folder only")
    return run / name


def _options(args: argparse.Namespace) -> dict[str, Any]:
    given = {"k": args.beam, "alpha": args.alpha, "max_len": args.max_len}
    return {name: value for name, value in given.items() if value is not None}


def _translate(args: argparse.Namespace) -> None:
    from .corpus import split_lines
    from .experiment import TrainedRun

    run = TrainedRun(args.model, args.device)
    lines = split_lines(sys.stdin.buffer.read(), "standard input")
    found = run.translate(lines, name="standard input", n_best=args.n_best, **_options(args))
    write = sys.stdout.buffer.write
    for number, hypotheses in enumerate(found, 1):
        for hypothesis in hypotheses:
            text = run.codec.decode(hypothesis.ids)
            if args.n_best > 1:
                text = f"{number}\t{hypothesis.score:.4f}\t{text}"
            write(text.encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()


def _evaluate(args: argparse.Namespace) -> None:
    from .atomic import write_file
    from .corpus import ParallelText, read_parallel
    from .experiment import TrainedRun, read_texts
    from .metrics import bleu

    if (args.src is None) != (args.ref is None):
        raise ValueError("--src and --ref belong together, only one was given")
    run = TrainedRun(args.model, args.device)
    if args.src is not None:
        text: ParallelText | None = read_parallel(args.src, args.ref, keep_empty=True)
    else:
        text = read_texts(run.recipe.data).test
    if text is None:
        raise ValueError(f"{args.model}: its recipe names no test files; give --src and --ref")
    started = time.perf_counter()
    guesses = run.translate_lines([src for src, _ in text.pairs], name=text.name, **_options(args))
    seconds = time.perf_counter() - started
    if args.out is not None:
        write_file(args.out, "".join(f"{line}\n" for line in guesses).encode("utf-8"))
    tokenised = run.recipe.data.preset != "files" and run.recipe.data.form == "tok"
    tokenize = args.tokenize or ("none" if tokenised else "13a")
    score = bleu(guesses, [[ref for _, ref in text.pairs]], tokenize=tokenize)
    print(score)
    print(f"{len(guesses)} sentences, {score.reference_length} words of reference")
    logging.info("translated in %.1f s", seconds)


def _info(args: argparse.Namespace) -> None:
    from .experiment import TrainedRun

    run = TrainedRun(args.model, args.device)
    total = sum(weight.numel() for weight in run.model.parameters())
    embeddings = {
        id(w): w.numel() for w in (run.model.src_embed.weight, run.model.tgt_embed.weight)
    }
    print(f"run         {run.run.path}")
    print(f"model       {type(run.model).__name__}")
    print(f"weights     {total} ({total - sum(embeddings.values())} outside the embeddings)")
    print(f"vocabulary  {run.codec.size} tokens, {type(run.codec).__name__}")
    print(f"steps       {', '.join(map(str, run.run.steps())) or 'no checkpoints'}")
    print(run.run.config)


def _show(args: argparse.Namespace) -> None:
    from .atomic import write_file
    from .experiment import TrainedRun
    from .show import page_data
    from .viz import attention_page

    page = attention_page(page_data(TrainedRun(args.model, args.device), args.text))
    write_file(args.out, page.encode("utf-8"))
    logging.info("written: %s", args.out)
