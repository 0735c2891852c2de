"""Codecs: text to ids and back, and folders that hold one codec and no mixture."""

import hashlib
import io
import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer

from graphformer.codec import BPECodec, WordCodec, load_codec, train_bpe, train_words
from graphformer.text import learn_bpe
from graphformer.vocab import EOS, PAD, SOS, SPECIALS, UNK, Vocab

LINES = ["der hund und der hahn", "the hen and the hound", "ein <pad> und ein <unk>"]
in_a_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
CODECS = [train_bpe(LINES, 31), train_words(LINES)]
lines = st.text(st.sampled_from("aehnu <>▁\r\t\u2028\x85") | st.characters(codec="utf-8"))


@pytest.fixture(scope="module")
def bpe():
    return train_bpe(LINES, 37)


@pytest.fixture(scope="module")
def words():
    return train_words(LINES)


@pytest.fixture(params=["bpe", "words"])
def codec(request):
    return request.getfixturevalue(request.param)


def test_words():
    codec = WordCodec(Vocab(["dog", "the"]))
    assert codec.size == 6
    assert codec.encode("the dog  barks ") == [5, 4, UNK]
    assert codec.pieces("the dog  barks ") == ["the", "dog", "barks"]
    assert codec.decode([SOS, 5, 4, UNK, PAD, EOS]) == "the dog <unk>"


def test_words_are_trained_with_the_limits_and_the_tokeniser():
    codec = train_words(["A a, b", "a c"], tokens="basic_english", max_size=2)
    assert codec.vocab.tokens[4:] == ("a", ",")
    assert train_words(["a b a"], min_count=2).vocab.tokens[4:] == ("a",)


@pytest.mark.parametrize(("text", "count"), [([], 1), (["", " "], 1), (["a b"], 2)])
def test_no_words_are_refused(text, count):
    with pytest.raises(ValueError, match=f"no word .* at least {count} times"):
        train_words(text, min_count=count)


def test_byte_pairs_begin_with_the_special_tokens(bpe):
    assert bpe.size == len(bpe.vocab) == 37
    assert bpe.vocab.tokens[:4] == SPECIALS
    assert all(bpe.vocab.tokens[i] in "".join(bpe.pieces(LINES[0])) for i in bpe.encode(LINES[0]))


def test_byte_pairs_are_joint_and_come_back(bpe):
    for line in "der hen und the hahn", "hound":
        ids = bpe.encode(line)
        assert UNK not in ids
        assert bpe.decode([SOS, *ids, EOS, PAD]) == line
        assert bpe.pieces(line) == bpe.vocab.decode(ids)


def test_an_unseen_character_is_unknown(bpe):
    ids = bpe.encode("hen ☃ und")
    assert ids.count(UNK) == 1
    assert bpe.decode(ids) == "hen <unk> und"
    assert bpe.pieces("hen ☃ und")[ids.index(UNK)] == "☃"


@pytest.mark.parametrize("line", [*SPECIALS, "<sos> hahn <eos>", "a<pad>"])
def test_text_spelled_like_a_special_token_does_not_become_one(codec, line):
    assert not {SOS, EOS, PAD} & set(codec.encode(line))


def test_unknowns_are_counted(bpe, words):
    unknown: Counter[str] = Counter()
    words.encode("hund zebra <pad> zebra", unknown=unknown)
    assert unknown == {"zebra": 2, "<pad>": 1}
    unknown.clear()
    bpe.encode("hund ☃ und ☃", unknown=unknown)
    assert unknown == {"☃": 2}


@settings(deadline=None)
@given(line=lines)
def test_any_line_has_ids_of_the_vocabulary_and_a_piece_for_each(line):
    for codec in CODECS:
        unknown: Counter[str] = Counter()
        ids = codec.encode(line, unknown=unknown)
        assert all(UNK <= index < codec.size for index in ids)
        assert len(codec.pieces(line)) == len(ids)
        assert unknown.total() == ids.count(UNK)
        assert "\n" not in codec.decode(ids)


@pytest.mark.parametrize("line", ["", " ", "\t \u3000"])
def test_an_empty_line_has_no_ids(codec, line):
    assert codec.encode(line) == [] == codec.pieces(line)
    assert codec.decode([]) == codec.decode([SOS, EOS]) == ""


@pytest.mark.parametrize("index", [-1, 1000])
def test_an_id_outside_is_refused(codec, index):
    with pytest.raises(ValueError, match=f"id {index} is outside"):
        codec.decode([4, index])


def test_saved_and_loaded(codec, tmp_path):
    codec.save(tmp_path)
    again = load_codec(tmp_path)
    assert type(again) is type(codec)
    assert again.fingerprint() == codec.fingerprint()
    assert again.vocab == codec.vocab == Vocab.load(tmp_path / "vocab")
    assert [again.encode(line) for line in LINES] == [codec.encode(line) for line in LINES]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == codec.files()


def test_the_tokeniser_is_saved(tmp_path):
    train_words(["Ab, c"], tokens="basic_english").save(tmp_path)
    assert load_codec(tmp_path).pieces("Ab, c") == ["ab", ",", "c"]


def test_the_fingerprint_tells_codecs_apart():
    codecs = [
        WordCodec(Vocab(["a", "b"])),
        WordCodec(Vocab(["b", "a"])),
        WordCodec(Vocab(["a", "b"]), "basic_english"),
        train_bpe(LINES, 31),
        train_bpe(LINES, 37),
    ]
    assert len({codec.fingerprint() for codec in codecs}) == len(codecs)


def test_files_of_two_runs_are_refused_naming_both(tmp_path):
    WordCodec(Vocab(["a", "b"])).save(tmp_path)
    Vocab(["b", "a"]).save(tmp_path / "vocab")
    with pytest.raises(ValueError) as error:
        load_codec(tmp_path)
    assert f"{tmp_path / 'vocab'} is not the file that {tmp_path / 'codec.json'}" in str(
        error.value
    )


def test_a_model_of_another_run_is_refused(bpe, tmp_path):
    bpe.save(tmp_path)
    (tmp_path / "bpe.model").write_bytes(learn_bpe(LINES[:2], 37))
    with pytest.raises(ValueError, match=r"bpe\.model is not the file"):
        load_codec(tmp_path)


@pytest.mark.parametrize("name", ["vocab", "bpe.model", "codec.json"])
def test_a_missing_or_damaged_file_is_refused_by_name(bpe, tmp_path, name):
    bpe.save(tmp_path)
    path = tmp_path / name
    data = path.read_bytes()
    for damaged in data[:-2], data[: len(data) // 2], b"", data.replace(b"e", b"\xff"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=str(path)) as error:
            load_codec(tmp_path)
        assert "\n" not in str(error.value)
    path.unlink()
    with pytest.raises(ValueError, match=str(path)):
        load_codec(tmp_path)


HASH = "0" * 64


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"null",
        b"[]",
        b"3",
        b"{}",
        b"[" * 100_000,
        b"\xff",
        b'{"kind": "words"',
        json.dumps({"kind": "pickle"}).encode(),
        json.dumps({"kind": []}).encode(),
        json.dumps({"kind": "words", "vocab": HASH}).encode(),
        json.dumps({"kind": "words", "vocab": HASH, "tokens": 3}).encode(),
        json.dumps({"kind": "words", "vocab": HASH, "tokens": "space", "x": "y"}).encode(),
    ],
)
def test_a_bad_head_is_refused(words, tmp_path, head):
    words.save(tmp_path)
    (tmp_path / "codec.json").write_bytes(head)
    with pytest.raises(ValueError, match=str(tmp_path / "codec.json")):
        load_codec(tmp_path)


def test_a_tokeniser_that_is_not_there_is_refused_with_the_file(words, tmp_path):
    words.save(tmp_path)
    path = tmp_path / "codec.json"
    path.write_bytes(path.read_bytes().replace(b'"space"', b'"spice"'))
    with pytest.raises(ValueError, match=f"^{path}: no tokeniser 'spice'"):
        load_codec(tmp_path)


def test_a_model_that_is_none_is_refused_with_the_file(bpe, tmp_path):
    bpe.save(tmp_path)
    head = json.loads((tmp_path / "codec.json").read_bytes())
    head["bpe.model"] = hashlib.sha256(b"abc").hexdigest()
    (tmp_path / "codec.json").write_bytes(json.dumps(head).encode())
    (tmp_path / "bpe.model").write_bytes(b"abc")
    with pytest.raises(ValueError, match=f"^{tmp_path / 'bpe.model'}: not a sentencepiece model"):
        load_codec(tmp_path)


@in_a_folder
@given(data=st.binary())
def test_any_head_gives_one_clear_error(tmp_path, data):
    path = tmp_path / "codec.json"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=str(path)):
        load_codec(tmp_path)


@pytest.mark.parametrize("data", [b"", b"abc", b"\n\x03abc"])
def test_bytes_that_are_no_model_are_refused(data):
    with pytest.raises(ValueError, match="sentencepiece model"):
        BPECodec(data)


def test_a_model_with_other_ids_is_refused():
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=model, vocab_size=21, minloglevel=2
    )
    with pytest.raises(ValueError, match=r"starts with \('<unk>', '<s>', '</s>'"):
        BPECodec(model.getvalue())
