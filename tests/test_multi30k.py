"""Multi30k: local folders, and downloads that are right, or fail soon and leave nothing behind."""

import gzip
import hashlib
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from realdata import multi30k_folder, needs_multi30k

from graphformer import multi30k as module
from graphformer.corpus import read_parallel
from graphformer.multi30k import ADDRESS, REVISION, download, multi30k

DATA = gzip.compress("".join(f"{number**7} men\n" for number in range(211)).encode(), mtime=0)
OTHER = gzip.compress(b"ein Mann\n" * 500, mtime=0)
CONTENT = {"raw/train.en.gz": DATA, "raw/train.de.gz": OTHER}
FILES = {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items()}


class Server(ThreadingHTTPServer):
    """Answers on a free port of this machine; `mode` says how badly."""

    mode = "good"
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []
        self.over = threading.Event()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/data"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        name = self.path.removeprefix("/data/")
        self.server.requests.append(name)
        mode = self.server.mode
        data = CONTENT[name]
        if mode == "once" and len(self.server.requests) == 1:
            mode = "cut"
        if mode == "missing":
            self.send_error(404)
            return
        if mode == "wrong":
            data = data[:-1] + bytes([data[-1] ^ 1])
        if mode == "more":
            data += b"x"
        if mode == "silent":
            self.server.over.wait(30)
            return
        self.send_response(200)
        if mode not in ("short", "more"):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if mode in ("cut", "short"):
            data = data[:17]
        if mode in ("stalled", "slow"):
            for byte in data:
                self.wfile.write(bytes([byte]))
                if self.server.over.wait(30 if mode == "stalled" else 0.001):
                    return
            return
        self.wfile.write(data)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(server, cache, **limits):
    return download(list(CONTENT), cache, address=server.address, files=FILES, **limits)


def kept(cache):
    return {path.name for path in cache.rglob("*") if path.is_file()}


def test_good_files_are_downloaded_once(server, tmp_path):
    paths = fetch(server, tmp_path)
    assert [path.read_bytes() for path in paths] == [DATA, OTHER]
    assert server.requests == list(CONTENT)
    assert fetch(server, tmp_path) == paths
    assert len(server.requests) == 2
    assert kept(tmp_path) == {"train.en.gz", "train.de.gz"}


def test_a_damaged_file_in_the_cache_is_replaced(server, tmp_path):
    path = fetch(server, tmp_path)[0]
    path.write_bytes(DATA[:50])
    assert fetch(server, tmp_path)[0].read_bytes() == DATA
    assert server.requests == [*CONTENT, "raw/train.en.gz"]


def test_one_failure_is_repeated(server, tmp_path):
    server.mode = "once"
    assert fetch(server, tmp_path)[0].read_bytes() == DATA
    assert server.requests == ["raw/train.en.gz", *CONTENT]


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("wrong", "not the expected one (SHA-256 differs)"),
        ("more", f"more than the expected {len(DATA)} bytes"),
        ("cut", "the connection was cut"),
        ("short", f"only 17 of {len(DATA)} bytes came"),
        ("missing", "the server says 404 Not Found"),
    ],
)
def test_a_bad_file_is_refused_and_never_kept(server, tmp_path, mode, reason):
    server.mode = mode
    with pytest.raises(OSError) as error:
        fetch(server, tmp_path)
    message = str(error.value)
    assert f"cannot get {server.address}/raw/train.en.gz: " in message
    assert reason in message
    assert "local folder" in message and "GRAPHFORMER_MULTI30K" in message
    assert "\n" not in message
    assert kept(tmp_path) == set()
    assert len(server.requests) == 2
    # and the next attempt starts afresh
    server.mode = "good"
    assert fetch(server, tmp_path)[0].read_bytes() == DATA


@pytest.mark.parametrize("mode", ["silent", "stalled"])
def test_a_server_that_says_nothing_is_given_up(server, tmp_path, mode):
    server.mode = mode
    with pytest.raises(OSError, match="train.en.gz: nothing came for 0.2 seconds"):
        fetch(server, tmp_path, silence=0.2)
    assert kept(tmp_path) == set()
    # No second attempt: the time is gone.
    assert len(server.requests) == 1


def test_a_slow_server_is_given_up_when_the_time_is_over(server, tmp_path):
    server.mode = "slow"
    with pytest.raises(OSError, match=rf"too slow, \d+ of {len(DATA)} bytes"):
        fetch(server, tmp_path, total=0.01)
    assert kept(tmp_path) == set()
    assert len(server.requests) == 1


def test_no_server_at_all(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot get {address}/raw/train.en.gz: no connection"):
            download(list(CONTENT), tmp_path, address=address, files=FILES)


def test_a_cache_that_cannot_be_written(server, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="cannot get .*local folder"):
        fetch(server, tmp_path / "file")


def test_the_download_names_the_right_files(monkeypatch):
    asked = []

    def answer(names, cache):
        asked.extend(names)
        return [Path(cache) / name for name in names]

    monkeypatch.delenv("GRAPHFORMER_MULTI30K", raising=False)
    monkeypatch.setattr(module, "download", answer)
    raw = multi30k(cache="c")
    assert raw.test == (Path("c/raw/test_2016_flickr.en.gz"), Path("c/raw/test_2016_flickr.de.gz"))
    tok = multi30k(cache="c", form="tok", src="de", tgt="en")
    assert tok.train == (Path("c/tok/train.lc.norm.tok.de"), Path("c/tok/train.lc.norm.tok.en"))
    assert set(asked) == set(module._FILES)


def test_the_address_is_that_of_a_fixed_revision():
    assert REVISION == "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
    assert ADDRESS.startswith("https://raw.githubusercontent.com/multi30k/dataset/")
    assert ADDRESS.endswith(f"{REVISION}/data/task1")


def make(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(b"a\n") if name.endswith(".gz") else b"a\n")


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("raw", ("raw/train.{}.gz", "raw/val.{}.gz", "raw/test_2016_flickr.{}.gz")),
        ("raw", ("train.{}.gz", "val.{}.gz", "test_2016_flickr.{}.gz")),
        ("raw", ("raw/train.{}", "raw/valid.{}", "raw/test.{}")),
        ("raw", ("train.{}", "valid.{}", "test.{}")),
        (
            "tok",
            (
                "tok/train.lc.norm.tok.{}",
                "tok/val.lc.norm.tok.{}",
                "tok/test_2016_flickr.lc.norm.tok.{}",
            ),
        ),
        ("tok", ("train.lc.norm.tok.{}", "val.lc.norm.tok.{}", "test.lc.norm.tok.{}")),
    ],
)
def test_local_layouts(tmp_path, form, names):
    make(tmp_path, *(name.format(language) for name in names for language in ("en", "de")))
    found = multi30k(tmp_path, form=form, src="de", tgt="en")
    for pair, name in zip(found, names, strict=True):
        assert pair == (tmp_path / name.format("de"), tmp_path / name.format("en"))
        assert read_parallel(*pair).pairs == [("a", "a")]


def test_a_folder_of_twenty_pairs_is_enough_to_train(tmp_path, caplog):
    make(tmp_path, "train.en", "train.de", "val.en")
    found = multi30k(tmp_path)
    assert found.train == (tmp_path / "train.en", tmp_path / "train.de")
    assert (found.valid, found.test) == (None, None)
    assert [message.split(" has no ")[1][:5] for message in caplog.messages] == ["valid", "test "]


def test_the_environment_may_name_the_folder(tmp_path, monkeypatch):
    make(tmp_path, "train.en", "train.de")
    monkeypatch.setenv("GRAPHFORMER_MULTI30K", str(tmp_path))
    assert multi30k().train[0] == tmp_path / "train.en"


def test_a_folder_without_training_files_is_refused(tmp_path):
    make(tmp_path, "train.en", "tok/train.lc.norm.tok.de")
    with pytest.raises(ValueError) as error:
        multi30k(tmp_path)
    assert str(tmp_path) in str(error.value)
    assert "raw/train.en.gz, train.en.gz, raw/train.en, train.en" in str(error.value)


@pytest.mark.parametrize(("src", "tgt"), [("en", "en"), ("fr", "en"), ("en", "")])
def test_other_languages_are_refused(src, tgt):
    with pytest.raises(ValueError, match=f"languages en and de here, got {src} and {tgt}"):
        multi30k(src=src, tgt=tgt)


def test_another_form_is_refused():
    with pytest.raises(ValueError, match="no form 'bpe' of Multi30k; choose one of raw, tok"):
        multi30k(form="bpe")


@needs_multi30k
@pytest.mark.parametrize("form", ["raw", "tok"])
def test_the_real_files(form):
    files = multi30k(multi30k_folder(), form=form)
    counts = [len(read_parallel(*pair).pairs) for pair in files if pair]
    assert counts == [29000, 1014, 1000]
    if form == "tok":
        target = read_parallel(*files.test).pairs
        assert sum(len(tgt.split(" ")) for _, tgt in target) == 12103


@needs_multi30k
def test_the_real_files_are_those_that_a_download_would_give():
    for name, (size, digest) in module._FILES.items():
        data = (multi30k_folder() / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (size, digest)


def test_without_a_network_the_preset_fails_soon(tmp_path):
    # In a process of its own, with every way out closed by a proxy that is not there.
    code = (
        "from graphformer.multi30k import multi30k\n"
        f"try: multi30k(cache={str(tmp_path)!r})\n"
        "except OSError as error: print(error)"
    )
    environment = {key: value for key, value in os.environ.items() if "GRAPHFORMER" not in key}
    environment["HTTPS_PROXY"] = environment["https_proxy"] = "http://127.0.0.1:9"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,  # seconds: what the documentation promises
    )
    assert run.stdout.startswith(f"cannot get {ADDRESS}/raw/train.en.gz: ")
    assert "local folder" in run.stdout
    assert kept(tmp_path) == set()
