"""Reading parallel text: line ends, pairs that stay matched, and errors with file and line."""

import gzip
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphformer.corpus import (
    ParallelText,
    encode_parallel,
    encode_source,
    read_lines,
    read_parallel,
    split_lines,
)

in_a_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def letters(line, *, unknown=None):
    """A codec of single letters: `a` is 4; capitals are unknown."""
    tokens = line.split()
    if unknown is not None:
        unknown.update(token for token in tokens if token.isupper())
    return [3 if token.isupper() else ord(token) - 93 for token in tokens]


@pytest.fixture
def files(tmp_path):
    def write(src, tgt):
        paths = tmp_path / "a.en", tmp_path / "b.de"
        for path, data in zip(paths, (src, tgt), strict=True):
            path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
        return paths

    return write


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\r\nc\r", ["a\rb", "c"]),
        (b"a\r\r\n\n", ["a\r", ""]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n".encode(), ["a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"]),
        (b" a \n", [" a "]),
    ],
)
def test_lines_end_at_line_feeds_only(data, lines):
    assert split_lines(data, "x") == lines


def slow_lines(data):
    """The same, one byte after the other."""
    if data[:3] == b"\xef\xbb\xbf":
        data = data[3:]
    lines, line = [], bytearray()
    for position, byte in enumerate(data):
        if byte != 10:
            line.append(byte)
        if byte == 10 or position == len(data) - 1:
            if line and line[-1] == 13:
                del line[-1]
            lines.append(bytes(line).decode("utf-8"))
            line.clear()
    return lines


@given(st.lists(st.sampled_from(["a", "ü", "\n", "\r", "\r\n", "\u2028", "\ufeff"])).map("".join))
def test_lines_equal_a_slow_reader(text):
    assert split_lines(text.encode(), "x") == slow_lines(text.encode())


@pytest.mark.parametrize(
    ("data", "line", "byte"),
    [(b"\xff", 1, "ff"), (b"a\nb\r\nc\xfc\nd", 3, "fc"), (b"\n\xc3", 2, "c3")],
)
def test_bytes_that_are_not_utf8_are_refused_with_their_line(data, line, byte):
    with pytest.raises(ValueError, match=f"^x.en, line {line}: byte 0x{byte} is not UTF-8$"):
        split_lines(data, "x.en")


@pytest.mark.parametrize("name", ["a.en", "a.en.gz"])
def test_gzip_is_read_whatever_the_name(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(gzip.compress("ü\nb\n".encode()))
    assert read_lines(path) == ["ü", "b"]


@pytest.mark.parametrize("cut", [2, 12, 25, -1])
def test_a_damaged_gzip_file_is_refused_by_name(tmp_path, cut):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"abcdefgh\n" * 7)[:cut])
    with pytest.raises(ValueError, match=f"^{path}: damaged gzip file"):
        read_lines(path)


@pytest.mark.parametrize("data", [b"", b"plain\n"])
def test_a_name_that_says_gzip_must_be_true(tmp_path, data):
    path = tmp_path / "a.gz"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"^{path}: the name says gzip"):
        read_lines(path)


@in_a_folder
@given(data=st.binary() | st.binary().map(gzip.compress) | st.binary().map(b"\x1f\x8b\x08".__add__))
def test_any_bytes_give_lines_or_one_clear_error(tmp_path, data):
    path = tmp_path / "a"
    path.write_bytes(data)
    try:
        lines = read_lines(path)
    except ValueError as error:
        assert str(error).startswith(str(path))
        assert "\n" not in str(error)
    else:
        assert all("\n" not in line for line in lines)


def test_pairs(files):
    text = read_parallel(*files("a\nb b\n", "x\ny y\n"))
    assert text.pairs == [("a", "x"), ("b b", "y y")]
    assert (text.numbers, text.skipped) == ([1, 2], 0)


def test_a_blank_line_on_one_side_leaves_the_other_pairs_matched(files, caplog):
    paths = files("a\nb\nc\nd\ne\n", "v\nw\n\ny\nz\n")
    text = read_parallel(*paths)
    assert text.pairs == [("a", "v"), ("b", "w"), ("d", "y"), ("e", "z")]
    assert (text.numbers, text.skipped) == ([1, 2, 4, 5], 1)
    assert [r.getMessage() for r in caplog.records] == [
        f"1 skipped, a side is empty: {paths[1]}, line 3"
    ]


def test_blank_lines_on_both_sides_are_named_and_counted_once(files, caplog):
    paths = files("a\n \nc\n\u3000\n", "v\n\t\n\nz\n")
    text = read_parallel(*paths)
    assert (text.pairs, text.skipped) == ([("a", "v")], 3)
    assert caplog.messages == [
        f"3 skipped, a side is empty: {paths[0]}, lines 2, 4; {paths[1]}, lines 2, 3"
    ]


def test_many_blank_lines_are_one_short_warning(files, caplog):
    text = read_parallel(*files("a\n" + "\n" * 5000, "b\n" + "x\n" * 5000))
    assert text.skipped == 5000
    (message,) = caplog.messages
    assert message.endswith("a.en, lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …")


def test_empty_sides_can_be_kept(files, caplog):
    text = read_parallel(*files("a\n\n", "x\ny\n"), keep_empty=True)
    assert text.pairs == [("a", "x"), ("", "y")]
    assert (text.skipped, caplog.messages) == (0, [])


@pytest.mark.parametrize(("src", "tgt", "counts"), [("a\nb\n", "x\n", (2, 1)), ("", "x", (0, 1))])
def test_different_line_counts_are_refused_naming_both(files, src, tgt, counts):
    paths = files(src, tgt)
    with pytest.raises(ValueError) as error:
        read_parallel(*paths)
    assert f"{paths[0]} has {counts[0]} lines and {paths[1]} has {counts[1]};" in str(error.value)


@pytest.mark.parametrize(("src", "tgt"), [("", ""), ("\n", "a\n"), ("a\n", " \n")])
def test_no_pair_at_all_is_refused(files, src, tgt):
    with pytest.raises(ValueError, match=r"a\.en and .*b\.de hold no sentence pair"):
        read_parallel(*files(src, tgt))


def test_a_missing_file_is_named(files):
    paths = files("a", "b")
    paths[1].unlink()
    with pytest.raises(OSError, match=str(paths[1])):
        read_parallel(*paths)


CORPUS = "ein hund\nzwei\rhunde\n\u2028drei\x85\nletzte"


def test_lf_and_crlf_are_the_same_corpus(files):
    plain = read_parallel(*files(CORPUS, CORPUS))
    crlf = read_parallel(*files(CORPUS.replace("\n", "\r\n"), CORPUS.replace("\n", "\r\n")))
    marked = read_parallel(*files("\ufeff" + CORPUS, CORPUS + "\n"))
    assert plain == crlf == marked
    assert len(plain.pairs) == 4
    assert plain.pairs[1][0] == "zwei\rhunde"
    assert plain.pairs[3] == ("letzte", "letzte")


@in_a_folder
@given(st.lists(st.tuples(*[st.text(st.sampled_from("a \r\u2028"))] * 2), min_size=1))
def test_reading_never_shifts_a_pair(tmp_path, rows):
    for side, name in enumerate(("a.en", "b.de")):
        data = "".join(f"{number}:{row[side]}\n" for number, row in enumerate(rows))
        (tmp_path / name).write_bytes(data.encode())
    text = read_parallel(tmp_path / "a.en", tmp_path / "b.de")
    assert [src.partition(":")[0] for src, _ in text.pairs] == [str(i) for i in range(len(rows))]
    assert all(src.partition(":")[0] == tgt.partition(":")[0] for src, tgt in text.pairs)


def parallel(*pairs):
    return ParallelText(list(pairs), list(range(1, len(pairs) + 1)), 0, "a.en and b.de")


def test_samples_have_start_and_end_on_the_target_side():
    samples = encode_parallel(parallel(("a b", "c")), letters, letters)
    assert samples.pairs == [([4, 5], [0, 6, 1])]


def test_too_long_pairs_are_left_out_with_a_count(caplog):
    rows = [("a", "b"), ("a " * 11, "b"), ("a " * 10, "b " * 10), ("a", "b " * 11), ("c", "d")]
    samples = encode_parallel(parallel(*rows), letters, letters, max_len=10)
    assert samples.numbers == [1, 3, 5]
    assert [len(src) for src, _ in samples.pairs] == [1, 10, 1]
    assert (samples.too_long, samples.empty) == (2, 0)
    assert caplog.messages == [
        "2 skipped, a side has more than 10 tokens: a.en and b.de, lines 2, 4"
    ]
    assert len(encode_parallel(parallel(*rows), letters, letters).pairs) == 5


def test_a_side_without_tokens_is_left_out(caplog):
    def no_dots(line, *, unknown=None):
        return letters(line.replace(".", ""), unknown=unknown)

    samples = encode_parallel(parallel(("a", "b"), (".", "b"), ("a", ".")), no_dots, no_dots)
    assert (samples.numbers, samples.empty) == ([1], 2)
    assert caplog.messages == ["2 skipped, a side has no tokens: a.en and b.de, lines 2, 3"]


def test_unknown_words_become_the_unknown_id_and_are_counted():
    rows = [("a ZEBRA", "b"), ("a", "OX ZEBRA b OX"), ("a " * 9, "GNU")]
    samples = encode_parallel(parallel(*rows), letters, letters, max_len=8)
    assert samples.pairs == [([4, 3], [0, 5, 1]), ([4], [0, 3, 3, 5, 3, 1])]
    # of the pairs that are used, so the last row counts nothing
    assert samples.unknown == (Counter(ZEBRA=1), Counter(OX=2, ZEBRA=1))


def test_numbers_are_those_of_the_file(files):
    text = read_parallel(*files("a\n\nb\nc c c\nd\n", "a\na\nb\nc\nd\n"))
    samples = encode_parallel(text, letters, letters, max_len=2)
    assert samples.numbers == [1, 3, 5]


def test_no_pair_left_is_refused():
    with pytest.raises(ValueError, match=r"^a\.en and b\.de: no pair is left of 1$"):
        encode_parallel(parallel(("a b", "c")), letters, letters, max_len=1)


def test_translation_never_loses_a_line(caplog):
    lines = ["a b c", "", "   ", "d " * 25, "a " * 10, "Q"]
    unknown: Counter[str] = Counter()
    ids = encode_source(lines, letters, max_len=10, unknown=unknown, name="in.en")
    assert [len(row) for row in ids] == [3, 0, 0, 10, 10, 1]
    assert caplog.messages == ["1 cut to the first 10 tokens: in.en, line 4"]
    assert unknown == {"Q": 1}
    assert encode_source([], letters) == []
    assert len(encode_source(lines, letters)[3]) == 25


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(ValueError, match=f"max_len must be at least 1, got {limit}"):
        encode_parallel(parallel(("a", "b")), letters, letters, max_len=limit)
    with pytest.raises(ValueError, match=f"max_len must be at least 1, got {limit}"):
        encode_source(["a"], letters, max_len=limit)
