"""A run that was damaged in any way: every command says which file it is, and changes nothing."""

import re
import shutil

import pytest
from damage import commands, contents, train, write_recipe

FOLDER, NEWEST, OLDER = "checkpoints", "checkpoints/step-00000002", "checkpoints/step-00000001"
READING = {"translate", "evaluate", "info"}
ALL = READING | {"resume"}
# Which commands need a file. The others do not read it, and must work as if nothing had happened.
NEEDED = {
    "config.toml": ALL,
    "run.json": ALL,
    "codec.json": ALL,
    "vocab": ALL,
    "bpe.model": ALL,
    "model.safetensors": READING,  # going on makes it anew from the checkpoints
    "metrics.jsonl": {"resume"},
    "metrics.json": set(),
    **{f"{OLDER}/{name}": set() for name in ("manifest.json", "state.json")},
    **{f"{OLDER}/{name}.safetensors": set() for name in ("model", "optimizer")},
    **{f"{NEWEST}/{name}": {"resume"} for name in ("manifest.json", "state.json")},
    **{f"{NEWEST}/{name}.safetensors": {"resume"} for name in ("model", "optimizer")},
}
# What going on writes in any case: its results, and the weights to use.
REWRITTEN = {"metrics.json", "model.safetensors", "metrics.jsonl"}


def flipped(place):
    def damage(data, other):
        at = int(place * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]

    return damage


DAMAGES = {
    "missing": lambda data, other: None,
    "empty": lambda data, other: b"",
    "cut in half": lambda data, other: data[: len(data) // 2],
    "last byte cut": lambda data, other: data[:-1],
    "first byte flipped": flipped(0),
    "byte flipped at a third": flipped(0.33),
    "byte flipped at four fifths": flipped(0.8),
    "last byte flipped": flipped(1),
    "of another run": lambda data, other: other,
}
# The records are for reading and have no digest, since they grow line by line: what is lost is
# the record of an update, never the update. A line that is no record is an error with its number.
HARMLESS = {
    ("metrics.jsonl", "missing"),
    ("metrics.jsonl", "empty"),
    ("metrics.jsonl", "last byte cut"),
    ("metrics.jsonl", "cut in half"),
    ("metrics.jsonl", "last byte flipped"),
    ("metrics.jsonl", "of another run"),
    # The newest checkpoint stands in for it.
    ("model.safetensors", "missing"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs that differ in the seed, their recipes, and what the commands print of the first."""
    folder = tmp_path_factory.mktemp("runs")
    recipe, other = write_recipe(folder / "one"), write_recipe(folder / "two", seed=2)
    # The other one has another vocabulary too.
    with open(folder / "two" / "a.src", "a", encoding="utf-8") as file:
        file.write("d d d\n")
    with open(folder / "two" / "b.tgt", "a", encoding="utf-8") as file:
        file.write("d\n")
    assert train(recipe, folder / "run") == train(other, folder / "other") == 0
    assert contents(folder / "run").keys() >= NEEDED.keys()
    files = {name for name, data in contents(folder / "run").items() if data is not None}
    assert files == NEEDED.keys(), "a file of a run that no test damages"
    return folder


@pytest.fixture
def run(runs, tmp_path):
    shutil.copytree(runs / "run", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", NEEDED)
def test_every_command_names_the_damaged_file_and_changes_nothing(
    runs, run, monkeypatch, capsys, name, damage
):
    victim, other = run / name, (runs / "other" / name).read_bytes()
    good = victim.read_bytes()
    data = DAMAGES[damage](good, other)
    if data == good:
        pytest.skip("both runs have the same file")
    for command, call in commands(runs / "one" / "recipe.toml", run, monkeypatch).items():
        if data is None:
            victim.unlink(missing_ok=True)
        else:
            victim.write_bytes(data)
        before = contents(run)
        code, after = call(), contents(run)
        said = capsys.readouterr()
        if code == 0:
            # Where a byte has no meaning (space in JSON), or the file is not needed.
            meaningless = victim.suffix in (".json", ".jsonl") and "flipped" in damage
            assert command not in NEEDED[name] or (name, damage) in HARMLESS or meaningless
            written = REWRITTEN if command == "resume" else set()
            changed = {f for f in before.keys() | after.keys() if before.get(f) != after.get(f)}
            assert changed <= written
        else:
            assert code == 1 and after == before
            assert command in NEEDED[name]
            assert said.err.count("\n") == 1 and "Traceback" not in said.err
            # Two files that disagree are both named.
            assert str(run) in said.err and victim.name in said.err, said.err


@pytest.mark.parametrize("name", [NEWEST, FOLDER])
def test_checkpoints_of_another_run_are_refused(runs, run, monkeypatch, capsys, name):
    shutil.rmtree(run / name)
    shutil.copytree(runs / "other" / name, run / name)
    before = contents(run)
    assert commands(runs / "one" / "recipe.toml", run, monkeypatch)["resume"]() == 1
    assert "manifest.json: this checkpoint belongs to another run" in capsys.readouterr().err
    assert contents(run) == before


def test_weights_after_a_repair_are_those_before_the_damage(runs, run, monkeypatch):
    (run / "model.safetensors").write_bytes(b"")
    assert commands(runs / "one" / "recipe.toml", run, monkeypatch)["resume"]() == 0
    assert (run / "model.safetensors").read_bytes() == (
        runs / "run" / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("model.dim_model=8", r"tensor .* the model wants"),
        ("model.N=2", "does not fit the model"),
        ("train.optimizer=muon", "was it trained with another optimiser"),
        ("train.seed=3", "was trained with seed 1"),
        ("train.accumulate=2", "was trained with accumulate 1"),
    ],
)
def test_going_on_with_a_recipe_that_does_not_fit_changes_nothing(runs, run, capsys, change, says):
    before = contents(run)
    assert train(runs / "one" / "recipe.toml", run, "--resume", "--set", change) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(run) in said
    assert re.search(says, said), said
    assert contents(run) == before
    assert train(runs / "one" / "recipe.toml", run, "--resume") == 0


def test_a_command_that_only_reads_leaves_a_run_as_it_is(runs, run, monkeypatch):
    before = contents(run)
    made = commands(runs / "one" / "recipe.toml", run, monkeypatch)
    for command in READING:
        assert made[command]() == 0
    assert contents(run) == before
