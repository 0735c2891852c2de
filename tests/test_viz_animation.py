import re

import matplotlib
import numpy as np
import pytest
from matplotlib.animation import FFMpegWriter
from pictures import TRICKY, a_map, check_cells, check_labels, drawn, maps_of
from PIL import Image

from graphformer.viz import Movie, att_animation, save_animation
from graphformer.viz.style import Picture

SRC, TGT = ["ein", "kleiner", "Hund"], ["<sos>", "a", "little", "dog", "."]


def epochs(count, heads=2):
    return [
        {
            "ee": a_map(heads, 3, 3),
            "ed": np.roll(a_map(heads, 5, 3), frame, axis=-1),
            "dd": a_map(heads, 5, 5, causal=True),
        }
        for frame in range(count)
    ]


def frames_in_gif(path):
    with Image.open(path) as image:
        return image.n_frames


def frames_in_html(text):
    return len(re.findall(r"frames\[\d+\] = \"data:image/png;base64", text))


@pytest.mark.parametrize("kind", ["ee", "ed", "dd"])
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_each_frame_shows_its_map_under_the_right_words(kind, heads):
    keys, queries = {"ee": (SRC, SRC), "ed": (SRC, TGT), "dd": (TGT, TGT)}[kind]
    frames = epochs(3, heads)
    movie = att_animation(frames, kind, SRC, TGT)
    assert len(movie) == 3
    top = max(frame[kind].max() for frame in frames)
    for number, frame in enumerate(frames):
        figure = movie.draw(number)
        pixels = drawn(figure)
        panels = maps_of(figure)
        assert len(panels) == heads
        check_labels(panels[0], keys, queries)
        for axes, head in zip(panels, frame[kind], strict=True):
            check_cells(axes, pixels, head, top)
        assert f"epoch {number + 1} of 3" in [text.get_text() for text in figure.texts]


def test_one_head_and_names_of_frames():
    movie = att_animation(epochs(2), "ed", SRC, TGT, 1, names=["start", "end"], title="copy")
    for number, name in enumerate(["start", "end"]):
        figure = movie.draw(number)
        (axes,) = maps_of(figure)
        np.testing.assert_array_equal(axes.images[0].get_array(), epochs(2)[number]["ed"][1])
        assert f"copy, {name} ({number + 1}/2)" in [text.get_text() for text in figure.texts]


@pytest.mark.parametrize("count", [1, 2, 60])
def test_every_frame_is_in_the_file(count, tmp_path):
    # all frames alike but for their number: none may be merged away
    movie = att_animation([epochs(1)[0]] * count, "ed", SRC, TGT, 0, fps=8)
    gif = save_animation(movie, tmp_path / "a.gif", dpi=40)
    assert frames_in_gif(gif) == count
    with matplotlib.rc_context({"animation.embed_limit": 0.001}):  # MB; a notebook's limit
        html = save_animation(movie, tmp_path / "a.html", dpi=40)
        assert frames_in_html(movie.to_html(dpi=40)) == count
    assert frames_in_html(html.read_text(encoding="utf-8")) == count
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.gif", "a.html"]


def test_the_frames_of_a_gif_are_the_figures(tmp_path):
    movie = att_animation(epochs(3), "ed", SRC, TGT, 0)
    save_animation(movie, tmp_path / "a.gif")
    with Image.open(tmp_path / "a.gif") as image:
        for number in range(3):
            image.seek(number)
            assert image.info["duration"] == 250
            shown = np.asarray(image.convert("RGB")).astype(int)
            wanted = drawn(movie.draw(number))[..., :3].astype(int)
            assert np.abs(shown - wanted).mean() < 2
            assert np.abs(shown - wanted).max() < 90


def test_the_player_needs_no_network():
    page = att_animation(epochs(2), "ed", SRC, TGT)._repr_html_()
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "<i class" not in page and "font-awesome" not in page


@pytest.mark.parametrize("word", TRICKY)
def test_words_appear_as_typed_in_every_frame(word, tmp_path):
    movie = att_animation(
        [{"ed": [[[1.0]]]}] * 2, "ed", [word], [word], title=word, names=[word, "b"]
    )
    for number in range(2):
        figure = movie.draw(number)
        drawn(figure)
        check_labels(maps_of(figure)[0], [word], [word])
    assert f"{word}, {word} (1/2)" in [text.get_text() for text in movie.draw(0).texts]
    save_animation(movie, tmp_path / "a.gif")


def test_without_ffmpeg_mp4_is_refused_before_anything_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    drawings = []
    movie = Movie(Picture(1, 1), drawings.append, 3)
    drawings.clear()
    with matplotlib.rc_context({"animation.ffmpeg_path": "ffmpeg"}):
        with pytest.raises(RuntimeError, match="ffmpeg is missing; .gif works without it"):
            save_animation(movie, tmp_path / "a.mp4")
    assert drawings == [] and list(tmp_path.iterdir()) == []
    save_animation(att_animation(epochs(3), "ed", SRC, TGT), tmp_path / "a.gif")
    assert frames_in_gif(tmp_path / "a.gif") == 3


@pytest.mark.skipif(not FFMpegWriter.isAvailable(), reason="ffmpeg is not installed")
def test_mp4_with_ffmpeg(tmp_path):
    movie = att_animation(epochs(3), "ed", SRC, TGT)
    before = movie.figure.get_size_inches().tolist()
    path = save_animation(movie, tmp_path / "a.mp4")
    assert b"ftyp" in path.read_bytes()[:16]
    assert movie.figure.get_size_inches().tolist() == before


@pytest.mark.parametrize("suffix", [".gif", ".html"])
def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_text("old", encoding="utf-8")

    def draw_frame(frame):
        if broken and frame == 2:
            raise KeyError("boom")

    broken = False
    movie = Movie(Picture(1, 1), draw_frame, 3)
    broken = True
    with pytest.raises(KeyError, match="boom"):
        save_animation(movie, path)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["a.webm", "a", "a.gif.txt", "gif"])
def test_an_unknown_suffix_is_refused_with_the_list(tmp_path, name):
    movie = att_animation(epochs(1), "ed", SRC, TGT)
    with pytest.raises(ValueError, match=r"must end in \.gif, \.html, \.mp4"):
        save_animation(movie, tmp_path / name)


def test_a_missing_folder_is_named(tmp_path):
    movie = att_animation(epochs(1), "ed", SRC, TGT)
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere"):
        save_animation(movie, tmp_path / "nowhere" / "a.gif")


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf")])
def test_an_impossible_rate_is_refused(tmp_path, fps):
    with pytest.raises(ValueError, match="fps must be above 0"):
        att_animation(epochs(1), "ed", SRC, TGT, fps=fps)
    with pytest.raises(ValueError, match="fps must be above 0"):
        save_animation(att_animation(epochs(1), "ed", SRC, TGT), tmp_path / "a.gif", fps=fps)


@pytest.mark.parametrize(
    ("maps", "kind", "options", "says"),
    [
        ([], "ed", {}, "at least one frame"),
        (epochs(1), "e2d", {}, "no kind of edge 'e2d'; choose one of ee, ed, dd"),
        ([{"ee": a_map(1, 3, 3)}], "ed", {}, "frame 0 has no map 'ed', only ee"),
        ([*epochs(1), {"ed": a_map(2, 5, 4)}], "ed", {}, "got 3 keys, but there are 4"),
        ([*epochs(1, 2), *epochs(1, 3)], "ed", {}, "frame 1 has 3 heads, frame 0 has 2"),
        (epochs(1), "ed", {"head": 2}, "no head 2; the map has heads 0 to 1"),
        (epochs(2), "ed", {"names": ["a"]}, "got 1 names, but there are 2 frames"),
    ],
)
def test_what_cannot_be_animated_is_refused(maps, kind, options, says):
    with pytest.raises(ValueError) as error:
        att_animation(maps, kind, SRC, TGT, **options)
    assert says in str(error.value)


def test_there_is_no_frame_beyond_the_last():
    movie = att_animation(epochs(2), "ed", SRC, TGT)
    with pytest.raises(IndexError, match="no frame 2; the animation has 2"):
        movie.draw(2)


def test_words_reach_the_player_only_as_pixels():
    movie = att_animation([{"ed": [[[1.0]]]}], "ed", ["</script>"], ["x"], title="</script>")
    assert movie.to_html().count("</script>") == movie.to_html().count("<script")
