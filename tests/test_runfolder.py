"""Run folders: what is written is read back, what is damaged is named, nothing is overwritten."""

import errno
import json
import os
import pickle
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from graphformer.atomic import check_name, write_file, write_folder
from graphformer.averaging import average_weights, to_half
from graphformer.checkpoint import Checkpoint, pack_tensors, read_json, unpack_tensors
from graphformer.runfolder import RunFolder
from graphformer.state import (
    load_optimizer,
    load_weights,
    optimizer_tensors,
    unwrap,
    weights_of,
)

VOCABULARY = {"vocab.txt": "a\nü\n".encode()}


class Tied(nn.Module):
    """Embedding and output share one matrix; one buffer of whole numbers."""

    def __init__(self, vocabulary=5, width=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.output = nn.Linear(width, vocabulary)
        self.output.weight = self.embedding.weight
        self.register_buffer("seen", torch.tensor(7))

    def forward(self, ids):
        return self.output(self.embedding(ids))


def checkpoint(step, fill=None):
    model = Tied()
    if fill is not None:
        for parameter in model.parameters():
            nn.init.constant_(parameter, fill)
    optimizer = {"exp_avg/output.bias": torch.arange(5.0)}
    return Checkpoint(step, weights_of(model), optimizer, {"epoch": 2, "best_loss": 0.1})


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path / "run", "seed = 1\n", VOCABULARY)


def contents(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# ---- what is written is read back


def test_created_run_opens_with_the_same_contents(run):
    again = RunFolder.open(run.path)
    assert (again.config, again.files, again.identity) == ("seed = 1\n", VOCABULARY, run.identity)
    assert again.steps() == [] and again.log.records() == []


def test_checkpoint_comes_back_bit_for_bit(run):
    saved = checkpoint(12)
    run.save(saved)
    read = RunFolder.open(run.path).checkpoint()
    assert (read.step, read.counters) == (12, saved.counters)
    for part in ("weights", "optimizer"):
        old, new = getattr(saved, part), getattr(read, part)
        assert old.keys() == new.keys() and all(torch.equal(old[k], new[k]) for k in old)
    assert run.checkpoint(12, optimizer=False).optimizer == {}


def test_tied_tensors_are_stored_once_and_load_strictly(run):
    model, other = Tied(), Tied()
    weights = weights_of(model)
    assert sorted(weights) == ["embedding.weight", "output.bias", "seen"]
    run.write_model(weights, step=3)
    load_weights(other, run.read_model(), run.path)
    assert other.output.weight is other.embedding.weight
    old, new = model.state_dict(), other.state_dict()
    assert old.keys() == new.keys() and all(torch.equal(old[k], new[k]) for k in old)


def test_names_do_not_depend_on_wrappers():
    model = Tied()
    wrapped = nn.DataParallel(model)
    compiled = torch.compile(wrapped, backend="eager")
    assert unwrap(compiled) is model
    assert list(weights_of(compiled)) == list(weights_of(model))
    load_weights(wrapped, weights_of(Tied()), "file")
    optimizer = torch.optim.Adam(wrapped.parameters())
    wrapped.module(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert "exp_avg/embedding.weight" in optimizer_tensors(wrapped, optimizer)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1),
    ],
)
def test_optimiser_continues_bit_for_bit(make):
    def step(model, optimizer):
        optimizer.zero_grad()
        model(torch.tensor([1, 3])).square().sum().backward()
        optimizer.step()

    model = Tied()
    optimizer = make(model.parameters())
    for _ in range(3):
        step(model, optimizer)
    other = Tied()
    fresh = make(other.parameters())
    load_weights(other, weights_of(model), "file")
    load_optimizer(other, fresh, optimizer_tensors(model, optimizer), "file")
    for _ in range(2):
        step(model, optimizer)
        step(other, fresh)
    assert torch.equal(other.output.weight, model.output.weight)


def test_equal_input_gives_equal_bytes():
    one, two = checkpoint(1, 0.5).weights, checkpoint(1, 0.5).weights
    assert pack_tensors(one, {"a": "1"}) == pack_tensors(dict(reversed(two.items())), {"a": "1"})


def test_every_kind_of_tensor_survives_packing():
    tensors = {
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "scalar": torch.tensor(3.25, dtype=torch.float64),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "strided": torch.arange(6).reshape(2, 3).t(),
    }
    back, metadata = unpack_tensors(pack_tensors(tensors, {"step": "ü"}), "file")
    assert metadata == {"step": "ü"}
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype and torch.equal(back[name], tensor)


def test_newest_checkpoints_and_the_protected_one_are_kept(run):
    for step in (2, 4, 10, 11, 100):
        run.save(checkpoint(step))
    run.prune(2, protect=(4,))
    assert run.steps() == [4, 11, 100]
    assert sorted(p.name for p in (run.path / "checkpoints").iterdir()) == [
        "step-00000004",
        "step-00000011",
        "step-00000100",
    ]
    with pytest.raises(ValueError, match="keep must be at least 1, got 0"):
        run.prune(0)


def test_average_of_the_last_checkpoints(run):
    for step, fill in ((1, 9.0), (2, 1.0), (3, 2.0), (4, 6.0)):
        run.save(checkpoint(step, fill))
    average = run.average(3)
    assert (average["embedding.weight"] == 3.0).all() and average["seen"] == 7
    assert (run.average(99)["output.bias"] == 4.5).all()
    with pytest.raises(ValueError, match="last must be at least 1"):
        run.average(0)


def test_average_is_rounded_once():
    third = torch.tensor([1 / 3])
    sets = [{"w": third.clone()} for _ in range(7)]
    assert torch.equal(average_weights(sets)["w"], third)
    # in float32, 2^24 + 1 is 2^24
    large = [{"w": torch.tensor([value])} for value in (2.0**24, 1.0, 1.0, 0.0)]
    assert average_weights(large)["w"].item() == 2.0**22 + 0.5
    with pytest.raises(ValueError, match="set of weights 2 has other names"):
        average_weights([{"w": third}, {"v": third}])
    with pytest.raises(ValueError, match="no weights"):
        average_weights([])


def test_average_of_types_that_torch_does_not_promote():
    eighth = {"w": torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)}
    assert average_weights([eighth, eighth])["w"].float().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_export_loads_into_a_float32_model(run, dtype):
    model = Tied()
    run.write_model(weights_of(model), step=1, dtype=dtype)
    weights = run.read_model()
    assert weights["output.bias"].dtype == dtype and weights["seen"].dtype == torch.int64
    other = Tied()
    load_weights(other, weights, "file")
    assert other.output.weight.dtype == torch.float32
    assert torch.equal(other.output.weight, model.output.weight.to(dtype).float())


def test_half_export_refuses_what_it_cannot_hold():
    with pytest.raises(ValueError, match="tensor w has weights beyond 65504"):
        to_half({"w": torch.tensor([7e4])}, torch.float16)
    with pytest.raises(ValueError, match="dtype must be"):
        to_half({}, torch.int8)


def test_log_is_cut_back_to_a_step(run):
    for step in range(1, 6):
        run.log.append({"step": step, "loss": step / 7, "note": "ü"})
    with open(run.log.path, "ab") as file:
        file.write(b'{"step": 6, "lo')  # killed in the middle of a line
    assert [r["step"] for r in run.log.records()] == [1, 2, 3, 4, 5]
    run.log.cut(3)
    run.log.append({"step": 4, "loss": 0.5})
    assert [r["loss"] for r in run.log.records()] == [1 / 7, 2 / 7, 3 / 7, 0.5]


def test_log_refuses_what_is_no_record(run):
    with pytest.raises(ValueError, match="step"):
        run.log.append({"loss": 1.0})
    with pytest.raises(ValueError, match="not JSON compliant"):
        run.log.append({"step": 1, "loss": float("nan")})
    run.log.path.write_bytes(b'{"step": 1}\nnonsense\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl:2: damaged"):
        run.log.cut(1)


def test_results_are_written(run):
    run.write_results({"bleu": 41.5, "language": "ü"})
    text = (run.path / "metrics.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"bleu": 41.5, "language": "ü"}


def test_configuration_can_be_replaced_and_checkpoints_still_fit(run):
    run.save(checkpoint(1))
    run.replace_config("seed = 1\nepochs = 9\n")
    again = RunFolder.open(run.path)
    assert again.config.endswith("epochs = 9\n")
    assert again.checkpoint().step == 1


@pytest.mark.parametrize("writes", [1, 2])
def test_a_kill_while_replacing_the_configuration_leaves_a_run_that_opens(run, monkeypatch, writes):
    done = []

    def dying(path, data):
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(path)
        write_file(path, data)

    monkeypatch.setattr("graphformer.runfolder.write_file", dying)
    with pytest.raises(KeyboardInterrupt):
        run.replace_config("seed = 1\nepochs = 9\n")
    assert RunFolder.open(run.path).config in ("seed = 1\n", "seed = 1\nepochs = 9\n")


# ---- what is damaged is named, and nothing is overwritten


FILES = [
    "config.toml",
    "vocab.txt",
    "run.json",
    "model.safetensors",
    "checkpoints/step-00000002/model.safetensors",
    "checkpoints/step-00000002/optimizer.safetensors",
    "checkpoints/step-00000002/state.json",
    "checkpoints/step-00000002/manifest.json",
]


def read_everything(path):
    run = RunFolder.open(path)
    saved = run.checkpoint()
    load_weights(Tied(), saved.weights, path)
    load_weights(Tied(), run.read_model(), path)
    return saved


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    run = RunFolder.create(tmp_path_factory.mktemp("complete") / "run", "seed = 1\n", VOCABULARY)
    run.save(checkpoint(1, 1.0))
    run.save(checkpoint(2, 2.0))
    run.write_model(checkpoint(2, 2.0).weights, 2)
    return run


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_cut_file_is_named(complete, tmp_path, name):
    shutil.copytree(complete.path, tmp_path / "run")
    victim = tmp_path / "run" / name
    data = victim.read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 1):
        victim.write_bytes(data[:size])
        before = contents(tmp_path / "run")
        with pytest.raises(ValueError, match=victim.name) as caught:
            read_everything(tmp_path / "run")
        assert "\n" not in str(caught.value)
        assert contents(tmp_path / "run") == before
    victim.unlink()
    if name == "model.safetensors":  # the newest checkpoint stands in for it
        assert torch.equal(RunFolder.open(tmp_path / "run").read_model()["seen"], torch.tensor(7))
    else:
        with pytest.raises(ValueError, match=victim.name):
            read_everything(tmp_path / "run")


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=40)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_changed_byte_is_noticed(complete, name, place, flip):
    victim = complete.path / name
    data = victim.read_bytes()
    changed = bytearray(data)
    changed[int(place * len(data))] ^= flip
    try:
        victim.write_bytes(changed)
        saved = read_everything(complete.path)
    except ValueError as error:
        assert str(complete.path) in str(error) and "\n" not in str(error)
    else:
        # only where the byte has no meaning: white space in the JSON of the manifests
        assert victim.name in ("run.json", "manifest.json")
        assert saved.step == 2 and (saved.weights["output.bias"] == 2.0).all()
    finally:
        victim.write_bytes(data)


@settings(max_examples=100)
@given(data=st.binary(max_size=200), name=st.sampled_from(FILES))
def test_any_bytes_in_place_of_a_file_are_one_clear_error(complete, data, name):
    victim = complete.path / name
    original = victim.read_bytes()
    try:
        victim.write_bytes(data)
        with pytest.raises(ValueError) as caught:
            read_everything(complete.path)
    finally:
        victim.write_bytes(original)
    assert victim.name in str(caught.value) and "\n" not in str(caught.value)


def test_deeply_nested_json_is_an_error_and_no_crash(run):
    (run.path / "run.json").write_bytes(b'{"a":' * 100_000)
    with pytest.raises(ValueError, match="run.json: damaged"):
        RunFolder.open(run.path)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused_where_they_are_read(number):
    with pytest.raises(ValueError, match=f"state.json: damaged.*{number} is not a finite number"):
        read_json(f'{{"best_loss": {number}}}'.encode(), "state.json")


def test_no_run_and_no_checkpoint_are_said(tmp_path, run):
    with pytest.raises(ValueError, match="not a run folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="has no checkpoint, only steps"):
        run.checkpoint()
    with pytest.raises(ValueError, match="model.safetensors: file is missing"):
        run.read_model()
    run.save(checkpoint(3))
    with pytest.raises(ValueError, match=r"no checkpoint of step 4, only steps \[3\]"):
        run.checkpoint(4)


def test_files_of_two_saves_are_not_mixed(complete, tmp_path):
    shutil.copytree(complete.path, tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    for name in ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        victim, donor = folder / "step-00000002" / name, folder / "step-00000001" / name
        original = victim.read_bytes()
        victim.write_bytes(donor.read_bytes())
        if victim.read_bytes() != original:
            with pytest.raises(ValueError, match="step-00000002"):
                read_everything(tmp_path / "run")
        victim.write_bytes(original)
    (folder / "step-00000002").rename(folder / "step-00000003")
    with pytest.raises(ValueError, match="step-00000003: holds step 2"):
        read_everything(tmp_path / "run")


def test_vocabulary_of_the_same_size_in_another_order_is_refused(complete, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(complete.path, path)
    (path / "vocab.txt").write_bytes("ü\na\n".encode())
    with pytest.raises(ValueError, match="vocab.txt: not the file that the weights"):
        read_everything(path)
    # the list of digests swapped too, as when the file comes from another run
    other = RunFolder.create(tmp_path / "other", "seed = 1\n", {"vocab.txt": "ü\na\n".encode()})
    (path / "run.json").write_bytes((other.path / "run.json").read_bytes())
    with pytest.raises(ValueError, match="model.safetensors: belongs to another run than .*vocab"):
        RunFolder.open(path).read_model()
    with pytest.raises(ValueError, match="belongs to another run"):
        RunFolder.open(path).checkpoint()


def test_checkpoint_of_a_run_with_another_configuration_is_refused(complete, tmp_path):
    other = RunFolder.create(tmp_path / "other", "seed = 2\n", VOCABULARY)
    shutil.copytree(complete.path / "checkpoints", other.path / "checkpoints")
    with pytest.raises(ValueError, match="manifest.json: this checkpoint belongs to another run"):
        other.checkpoint()


def test_weights_that_do_not_fit_change_nothing():
    weights = weights_of(Tied())
    model = Tied(vocabulary=7)
    before = weights_of(model)
    with pytest.raises(
        ValueError, match=r"file: tensor embedding.weight is .* \(5, 3\), the model"
    ):
        load_weights(model, weights, "file")
    renamed = {("x" if k == "seen" else k): v for k, v in weights.items()}
    with pytest.raises(ValueError, match=r"1 tensors missing \(seen\), 1 unknown \(x\)"):
        load_weights(Tied(), renamed, "file")
    assert all(torch.equal(before[k], v) for k, v in weights_of(model).items())


def test_optimiser_of_other_parameters_is_refused():
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(ValueError, match="file: tensor exp_avg/x belongs to no parameter"):
        load_optimizer(model, optimizer, {"exp_avg/x": torch.zeros(1)}, "file")
    with pytest.raises(ValueError, match="not one of the model's"):
        optimizer_tensors(Tied(), optimizer)


def test_nothing_is_overwritten_by_a_new_run_or_a_second_save(run):
    before = contents(run.path)
    with pytest.raises(FileExistsError, match="not an empty folder"):
        RunFolder.create(run.path, "seed = 2\n", VOCABULARY)
    assert contents(run.path) == before
    run.save(checkpoint(3, 1.0))
    with pytest.raises(FileExistsError):
        run.save(checkpoint(3, 2.0))
    assert (run.checkpoint().weights["output.bias"] == 1.0).all()


class FullDisk:
    """Stands in for ``os.fsync`` and fails at the n-th call."""

    def __init__(self, at):
        self.left = at

    def __call__(self, descriptor):
        self.left -= 1
        if self.left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_a_full_disk_names_the_file_and_keeps_the_last_save(run, monkeypatch, at):
    run.save(checkpoint(1))
    before = contents(run.path)
    monkeypatch.setattr("os.fsync", FullDisk(at))
    with pytest.raises(OSError, match=r"No space left .*step-00000002"):
        run.save(checkpoint(2))
    assert contents(run.path) == before
    monkeypatch.undo()
    run.save(checkpoint(2))
    assert run.checkpoint().step == 2


def test_a_full_disk_keeps_the_old_model_file(run, monkeypatch):
    run.write_model(checkpoint(1, 1.0).weights, 1)
    before = contents(run.path)
    monkeypatch.setattr("os.fsync", FullDisk(1))
    with pytest.raises(OSError, match=r"No space left .*model.safetensors"):
        run.write_model(checkpoint(2, 2.0).weights, 2)
    assert contents(run.path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="the system lets root write in a read-only folder")
def test_a_read_only_folder_is_said_at_once(run):
    run.path.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match=str(run.path)):
            run.prepare()
        with pytest.raises(PermissionError, match="model.safetensors"):
            run.write_model({}, 1)
    finally:
        run.path.chmod(0o700)


def test_a_folder_that_cannot_be_written_is_said_before_training(run, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(PermissionError, match=f"cannot be written: '{run.path}'"):
        run.prepare()


# ---- crafted files


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("name", FILES)
def test_a_pickle_in_place_of_a_file_is_never_run(complete, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(complete.path, tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match=name.rsplit("/", 1)[-1]):
        read_everything(tmp_path / "run")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/b", "", ".x", "x\n", "a\0b", "..", "x" * 101]
)
def test_names_that_lead_elsewhere_are_refused(run, tmp_path, name):
    with pytest.raises(ValueError, match="file name"):
        check_name(name)
    with pytest.raises(ValueError, match="file name"):
        RunFolder.create(tmp_path / "other", "", {name: b""})
    description = json.loads((run.path / "run.json").read_text(encoding="utf-8"))
    description["files"] = {name: "0"}
    (run.path / "run.json").write_text(json.dumps(description), encoding="utf-8")
    with pytest.raises(ValueError, match="run.json: file name"):
        RunFolder.open(run.path)


def test_a_vocabulary_file_cannot_take_the_place_of_another_file(tmp_path):
    with pytest.raises(ValueError, match="must not be named config.toml"):
        RunFolder.create(tmp_path / "run", "", {"config.toml": b""})


def test_links_are_never_written_through(run, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    for name in ("model.safetensors", "metrics.jsonl", ".model.safetensors.partial"):
        (run.path / name).symlink_to(outside)
    run.write_model({}, 1)
    with pytest.raises(OSError, match="metrics.jsonl"):
        run.log.append({"step": 1})
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (run.path / "checkpoints").symlink_to(folder)
    with pytest.raises(ValueError, match="checkpoints: is a symbolic link"):
        run.save(checkpoint(1))
    assert outside.read_bytes() == b"mine" and not any(folder.iterdir())


def test_pruning_a_link_leaves_what_it_points_to(run, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "mine").write_bytes(b"")
    run.save(checkpoint(2))
    (run.path / "checkpoints" / "step-00000001").symlink_to(folder)
    run.prune(1)
    assert run.steps() == [2] and (folder / "mine").exists()


def test_a_pipe_does_not_block(run):
    os.mkfifo(run.path / "model.safetensors")
    with pytest.raises(ValueError, match="not a regular file"):
        run.read_model()


def test_a_folder_left_half_made_is_replaced(tmp_path):
    half = tmp_path / ".new.partial"
    half.mkdir()
    (half / "old").write_bytes(b"x")
    write_folder(tmp_path / "new", {"a": b"1"})
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["a"] and not half.exists()
