"""The vocabulary: ids, unknown words, and a file that comes back as it was or is refused."""

import hashlib
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphformer.vocab import EOS, PAD, SOS, SPECIALS, UNK, Vocab

HEAD = "<sos>\n<eos>\n<pad>\n<unk>\n"
in_a_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

# Every Unicode character but surrogates, and often those that other programs take for line ends.
words = st.lists(
    st.text(
        st.sampled_from("a\r\v\f\x1c\x85\u2028\u2029\ufeff ü\t0") | st.characters(codec="utf-8")
    )
    .filter(lambda word: word and "\n" not in word and word not in SPECIALS)
    .filter(lambda word: not word.rpartition("\t")[2].isdecimal() or "\t" not in word),
    unique=True,
)


def test_special_ids():
    assert (SOS, EOS, PAD, UNK) == (0, 1, 2, 3)
    assert Vocab([]).tokens == SPECIALS == ("<sos>", "<eos>", "<pad>", "<unk>")


def test_encode_and_decode():
    vocab = Vocab(["b", "a"])
    assert len(vocab) == 6
    assert vocab.encode(["a", "b", "c", "a"]) == [5, 4, 3, 5]
    assert vocab.decode([0, 4, 5, 3, 1, 2]) == ["<sos>", "b", "a", "<unk>", "<eos>", "<pad>"]
    assert "a" in vocab and "c" not in vocab


@pytest.mark.parametrize("special", SPECIALS)
def test_a_word_spelled_like_a_special_token_is_unknown(special):
    vocab = Vocab(["a"])
    assert vocab.encode([special, "a"]) == [UNK, 4]
    assert special not in vocab


def test_unknown_words_are_counted():
    unknown: Counter[str] = Counter()
    vocab = Vocab(["a"])
    vocab.encode(["a", "x", "<pad>"], unknown=unknown)
    vocab.encode(["x"], unknown=unknown)
    assert unknown == {"x": 2, "<pad>": 1}
    assert unknown.total() == 3


@pytest.mark.parametrize("index", [-1, 6])
def test_an_id_outside_is_refused(index):
    with pytest.raises(ValueError, match=rf"id {index} .*6 tokens"):
        Vocab(["a", "b"]).decode([4, index])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([""], "token 4 .*'', is empty"),
        (["a", "b", "a"], "'a', is there twice, with ids 4 and 6"),
        (["<pad>"], "'<pad>', is there twice, with ids 2 and 4"),
        (["a\nb"], "line feed"),
        (["the\t17"], "column of counts"),
        (["\ud800"], "surrogate"),
    ],
)
def test_words_that_cannot_be_in_a_file_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        Vocab(bad)


def test_the_file_is_plain_text(tmp_path):
    vocab = Vocab(["ü", "a"])
    vocab.save(tmp_path / "vocab")
    data = (HEAD + "ü\na\n").encode("utf-8")
    assert (tmp_path / "vocab").read_bytes() == data == vocab.to_bytes()
    assert vocab.fingerprint() == hashlib.sha256(data).hexdigest()
    assert [path.name for path in tmp_path.iterdir()] == ["vocab"]


def test_order_makes_another_vocabulary():
    first, second = Vocab(["a", "b"]), Vocab(["b", "a"])
    assert first == Vocab(["a", "b"]) and hash(first) == hash(Vocab(["a", "b"]))
    assert first != second and first.fingerprint() != second.fingerprint()


@in_a_folder
@given(words=words)
def test_any_words_come_back(tmp_path, words):
    vocab = Vocab(words)
    vocab.save(tmp_path / "vocab")
    assert Vocab.load(tmp_path / "vocab") == vocab
    assert vocab.decode(vocab.encode(words)) == words


@in_a_folder
@given(words=words)
def test_a_file_with_crlf_ends_is_the_same_vocabulary(tmp_path, words):
    data = Vocab(words).to_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "vocab").write_bytes(b"\xef\xbb\xbf" + data)
    assert Vocab.load(tmp_path / "vocab") == Vocab(words)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1: expected '<sos>', got the end"),
        (b"the\nof\n", "line 1: expected '<sos>', got 'the'"),
        (b"<sos>\n<eos>\n<unk>\n<pad>\n", "line 3: expected '<pad>', got '<unk>'"),
        (b"<sos>\t9\n<eos>\t9\n", "line 1: expected '<sos>', got '<sos>.t9'"),
        (HEAD.encode() + b"a\n\nb\n", "line 6: the token '' is empty"),
        (HEAD.encode() + b"a\nb\na\n", "line 7: the token 'a' is in line 5 already"),
        (HEAD.encode() + b"a\n<pad>\n", "line 6: the token '<pad>' is in line 3 already"),
        (HEAD.encode() + b"a\nthe\t17\n", "line 6: .* column of counts"),
        (HEAD.encode() + b"a\n\xfcber\n", "line 6: byte 0xfc is not UTF-8"),
        (HEAD.encode() + b"a\nb", "line 6: .* cut"),
        (HEAD.replace("\n", "\r\n").encode() + b"a\nb\r\n", "line 5: .* line feed"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path, data, message):
    path = tmp_path / "vocab"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as error:
        Vocab.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@in_a_folder
@given(data=st.binary() | st.binary().map(lambda tail: HEAD.encode() + tail))
def test_any_bytes_give_a_vocabulary_or_one_clear_error(tmp_path, data):
    path = tmp_path / "vocab"
    path.write_bytes(data)
    try:
        vocab = Vocab.load(path)
    except ValueError as error:
        assert str(error).startswith(f"{path}, line ")
    else:
        vocab.save(path)
        assert Vocab.load(path) == vocab


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "vocab"
    Vocab(["a"]).save(path)
    with pytest.raises(OSError):
        Vocab(["b"]).save(tmp_path / "missing" / "vocab")
    assert Vocab.load(path) == Vocab(["a"])
