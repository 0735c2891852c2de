"""Tokenisers, counting, and learning of byte pairs."""

import os
import subprocess
import sys
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphformer.text import TOKENISERS, build_vocab, learn_bpe, tokeniser


def build(text, **limits):
    return build_vocab([line.split() for line in text.splitlines()], **limits).tokens[4:]


def test_order_is_by_frequency_then_by_code_point():
    assert build("b a ä\nz z B a") == ("a", "z", "B", "b", "ä")


@settings(deadline=None)
@given(st.lists(st.lists(st.text(st.sampled_from("abü<"), min_size=1))), st.randoms())
def test_order_equals_a_plain_sort_and_not_the_order_of_the_text(sentences, rng):
    flat = [word for sentence in sentences for word in sentence]
    expected = sorted(set(flat), key=lambda word: (-flat.count(word), [ord(c) for c in word]))
    assert build_vocab(sentences).tokens[4:] == tuple(expected)
    rng.shuffle(sentences)
    assert build_vocab(sentences).tokens[4:] == tuple(expected)


def test_threshold_two_keeps_what_is_seen_twice_or_more():
    text = "über über über\ntwo two one"
    assert build(text, min_count=1) == ("über", "two", "one")
    assert build(text, min_count=2) == ("über", "two")
    assert build(text, min_count=3) == ("über",)


def test_max_size_does_not_count_the_special_tokens():
    assert build("a a b b c", max_size=2) == ("a", "b")
    assert build("a a b b c", max_size=3) == ("a", "b", "c")
    assert build("a a b b c", max_size=7) == ("a", "b", "c")


def test_words_spelled_like_special_tokens_get_no_id():
    assert build("<pad> <pad> a <unk> <sos> <eos>") == ("a",)
    # and take no place of the words that do
    assert build("<pad> <pad> a b", max_size=2) == ("a", "b")


@pytest.mark.parametrize("limits", [{"min_count": 0}, {"max_size": 0}])
def test_limits_below_one_are_refused(limits):
    with pytest.raises(ValueError, match=f"{next(iter(limits))} must be at least 1, got 0"):
        build("a", **limits)


def test_the_vocabulary_is_the_same_under_three_hash_seeds():
    code = (
        "from graphformer.text import build_vocab; import sys;"
        "words = [chr(97 + i * j % 26) * (i % 3 + 1) for i in range(50) for j in range(7)];"
        "print(build_vocab([set(words), words]).fingerprint())"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
        )
        for seed in ("0", "1", "424242")
    ]
    prints = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(prints[0]) > 64 and prints[0] == prints[1] == prints[2]


def test_import_does_not_load_the_text_libraries():
    code = (
        "import sys, graphformer, graphformer.text, graphformer.codec, graphformer.multi30k;"
        "print([m for m in ('torchtext', 'sentencepiece', 'pooch') "
        "if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert (run.returncode, run.stdout) == (0, "[]\n")


def test_space():
    assert tokeniser("space")(" Ein  Haus,\tda. ") == ["Ein", "Haus,", "da."]
    assert tokeniser("space")("  ") == []


def test_basic_english():
    assert tokeniser("basic_english")("Don't stop, Mary.") == [
        "don", "'", "t", "stop", ",", "mary", "."]  # fmt: skip


def test_moses():
    pytest.importorskip("sacremoses", reason="sacremoses is not installed")
    assert tokeniser("moses")('He said: "AT&T!"') == [
        "He",
        "said",
        ":",
        '"',
        "AT",
        "&",
        "T",
        "!",
        '"',
    ]


@pytest.mark.parametrize(
    "name", ["spaces", "", "spacy", "spacy:", "spacy:de", "spacy:../de_x", "spacy:/de_x", "Moses"]
)
def test_another_name_is_refused_with_the_choices(name):
    with pytest.raises(ValueError) as error:
        tokeniser(name)
    assert all(choice in str(error.value) for choice in (repr(name), *TOKENISERS))


@pytest.mark.parametrize(("name", "package"), [("moses", "sacremoses"), ("spacy:de_x", "spacy")])
def test_a_missing_package_gives_one_line_with_a_hint(monkeypatch, capsys, name, package):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError) as error:
        tokeniser(name)
    assert str(error.value) == f"tokeniser {name!r} needs the package: pip install {package}"
    assert capsys.readouterr().out == ""
    assert tokeniser("space")("a b") == ["a", "b"]


def test_a_missing_spacy_model_gives_one_line_with_a_hint(monkeypatch, capsys):
    def load(name):
        raise OSError(f"[E050] Can't find model '{name}'.")

    module = types.ModuleType("spacy")
    module.load = load
    monkeypatch.setitem(sys.modules, "spacy", module)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: module)
    with pytest.raises(ValueError, match="python -m spacy download de_x$"):
        tokeniser("spacy:de_x")
    assert capsys.readouterr().out == ""


def test_a_spacy_model_is_used_by_its_full_name(monkeypatch):
    module = types.ModuleType("spacy")
    token = types.SimpleNamespace
    module.load = lambda name: types.SimpleNamespace(
        tokenizer=lambda line: [token(text=f"{name}:{word}") for word in line.split("-")]
    )
    monkeypatch.setitem(sys.modules, "spacy", module)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: module)
    assert tokeniser("spacy:de_x")("a-b") == ["de_x:a", "de_x:b"]


LINES = ["der hund und der hahn", "the hen and the hound", "<pad> der hahn"]


def test_learning_twice_gives_the_same_bytes():
    assert learn_bpe(LINES, 30) == learn_bpe(iter(LINES), 30)


def test_blank_lines_change_nothing():
    assert learn_bpe(["", LINES[0], " ", *LINES[1:]], 30) == learn_bpe(LINES, 30)


def test_too_many_pieces_are_reduced_with_a_warning(caplog):
    model = learn_bpe(["ab ab"], 1000)
    # the special tokens, "▁", "a", "b", and "ab", "▁a", "▁ab" in the one order or the other
    assert caplog.messages == ["the text has only 10 pieces to offer, not 1000"]
    assert learn_bpe(["ab ab"], 10) == model


def test_too_few_pieces_are_refused_with_what_is_needed():
    with pytest.raises(ValueError, match=r"^9 pieces are too few; .* need 1\d$"):
        learn_bpe(LINES, 9)
    with pytest.raises(ValueError, match="^0 pieces are too few"):
        learn_bpe(LINES, 0)
    with pytest.raises(ValueError, match="^-5 pieces are too few"):
        learn_bpe(LINES, -5)


@pytest.mark.parametrize("lines", [[], ["", "  \t"]])
def test_no_text_is_refused(lines):
    with pytest.raises(ValueError, match="there is no text"):
        learn_bpe(lines, 30)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"))))
def test_any_text_gives_a_model_or_one_clear_error(lines):
    try:
        assert learn_bpe(lines, 300)
    except ValueError as error:
        assert "\n" not in str(error)
