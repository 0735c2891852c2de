"""docs/reliability.md names tests that exist, every case has one, and a few cases in full."""

import ast
import configparser
import os
import re
import subprocess
import sys

import pytest
from realdata import ROOT

from graphformer.codec import load_codec
from graphformer.experiment import learn_codec, read_texts
from graphformer.recipe import DataConfig

DOC = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
CASES = (
    "B01 B02 B03 B04 B06 B07 B08 B10 B13 B15 B17 B18 B20 B21 B22 B25 B27 B29 B31 B32 B33 B34 B36 "
    "B37 B38 B39 B40 S03 S05 S06 S07 S08 S09 S10 "
    "M01 M02 M03 M04 M05 M06 M07 M08 M09 M10 M11 M12 M13 M14"
).split()


def test_every_case_has_one_row_and_a_test_or_a_word_why_not():
    rows = [line.split("|")[1:-1] for line in DOC.splitlines() if re.match(r"\| [A-Z]\d\d ", line)]
    assert [row[0].strip() for row in rows] == CASES
    for case, told, test in rows:
        assert "tests/" in test or "wait" in told, case


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[^`]+)`", DOC))))
def test_what_the_page_names_is_there(name):
    file, _, test = name.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert not test or test in {node.name for node in tree.body if hasattr(node, "name")}


def files(folder, train, other):
    folder.mkdir()
    for split, lines in (("train", train), ("valid", other), ("test", other)):
        for lang in ("en", "de"):
            (folder / f"{split}.{lang}").write_text("".join(lines), encoding="utf-8")
    pairs = [tuple(str(folder / f"{split}.{lang}") for lang in ("en", "de")) for split in
             ("train", "valid", "test")]  # fmt: skip
    return DataConfig("files", *pairs, codec="space", min_count=2)


def test_other_splits_leave_no_trace_in_the_vocabulary(tmp_path):
    train = ["a dog runs\n", "a dog sits\n"]
    vocabularies = []
    for at, other in enumerate((["a zebra\n"] * 50, ["another test\n"])):
        data = files(tmp_path / str(at), train, other)
        vocabularies.append(learn_codec(data, read_texts(data).train).files())
    assert vocabularies[0] == vocabularies[1]
    assert b"dog" in vocabularies[0]["vocab"] and b"zebra" not in vocabularies[0]["vocab"]


ROUND_TRIP = """
import sys
from pathlib import Path
from graphformer.codec import load_codec, train_words
from graphformer.vocab import UNK
folder = Path(sys.argv[1])
codec = train_words(["\\u00fcber \\u00fcber drei drei drei eins"], tokens="space", min_count=2)
for name, data in codec.files().items():
    (folder / name).write_bytes(data)
ids = load_codec(folder).encode("\\u00fcber drei eins")
assert ids == codec.encode("\\u00fcber drei eins") and ids[2] == UNK and UNK not in ids[:2], ids
"""


def run_python(*arguments, **environment):
    command = [sys.executable, "-X", "warn_default_encoding", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )


def test_a_vocabulary_comes_back_under_a_locale_that_is_not_utf8(tmp_path):
    strange = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run_python("-c", ROUND_TRIP, str(tmp_path), **strange)
    assert done.returncode == 0, done.stderr
    assert load_codec(tmp_path).encode("über") == [5]  # after drei, which is more frequent


def test_no_file_is_opened_in_the_encoding_of_the_machine(tmp_path):
    """A whole run, with Python's own warning about it an error where our files are at fault."""
    code = (
        "import sys, warnings; from graphformer.cli import main; "
        "warnings.filterwarnings('error', category=EncodingWarning, module='graphformer[.]'); "
        "sys.exit(main(sys.argv[1:]))"
    )
    run, recipe = str(tmp_path / "run"), "examples/recipes/copy.toml"
    for command in (
        ["train", recipe, "--out", run, "--set", "train.max_steps=1", "--set", "model.dim_ff=8"],
        ["info", "--model", run],
        ["show", "--model", run, "--text", "a b", "--out", str(tmp_path / "page.html")],
    ):
        done = run_python("-c", code, *command)
        assert done.returncode == 0, done.stderr


def test_warnings_are_errors_in_the_tests():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    assert settings["tool:pytest"]["filterwarnings"].split()[0] == "error"
