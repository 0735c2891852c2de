"""The text of the page of attention maps; test_viz_browser.py opens it."""

import html
import json
import re

import numpy as np
import pytest
from pages import OUT, SRC, TGT, layers_page, steps_page
from pictures import TRICKY, a_map

from graphformer.viz import attention_page


def embedded(page):
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert len(found) == 1
    return json.loads(found[0])


def test_the_page_holds_the_words_and_the_weights():
    data = embedded(attention_page(layers_page()))
    assert (data["src"], data["tgt"], data["out"], data["round"]) == (SRC, TGT, OUT, "layer")
    for kind, maps in layers_page()["maps"].items():
        np.testing.assert_allclose(data["maps"][kind], maps, rtol=5e-6)
        np.testing.assert_array_equal(np.array(data["maps"][kind]) == 0, np.array(maps) == 0)


def test_a_weight_close_to_0_does_not_become_no_edge():
    data = embedded(
        attention_page({"src": ["a"], "tgt": ["b"], "maps": {"ed": [[[[1.2345678e-9]]]]}})
    )
    assert data["maps"]["ed"] == [[[[1.23457e-9]]]]


def test_a_page_of_steps():
    data = embedded(attention_page(steps_page()))
    assert data["steps"] == {"enc": [1, 3, 2], "dec": [2, 1, 2, 2, 1]}
    assert [len(data["maps"][kind]) for kind in ("ee", "ed", "dd")] == [3, 2, 2]


@pytest.mark.parametrize(
    "word",
    [*TRICKY, "</script>", "<!--", "@data@", "@script@", "@title@", "\u2028", '"', "\\u0041"],
)
def test_any_word_stays_a_word(word):
    page = attention_page({"src": [word], "tgt": [word], "title": word, "maps": {"ed": [[[[1]]]]}})
    data = embedded(page)
    assert (data["src"], data["tgt"], data["title"]) == ([word], [word], word)
    assert f"<title>{html.escape(word)}</title>" in page
    plain = attention_page({"src": ["a"], "tgt": ["a"], "title": "a", "maps": {"ed": [[[[1]]]]}})
    assert page.count("<script") == plain.count("<script") == page.count("</script>") == 2


def test_the_page_needs_no_network():
    page = attention_page(layers_page())
    assert set(re.findall(r"https?://[^\"'\s]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert not re.findall(r"\b(?:src|href)=\"(?!data:)", page)


def without(field):
    return {name: value for name, value in layers_page().items() if name != field}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (without("src"), "the entry 'src' is missing"),
        (without("maps"), "the entry 'maps' is missing"),
        (layers_page(heads=2), "unknown entry 'heads'; known are title, src"),
        (layers_page(round="epoch"), "round must be one of layer, step, got 'epoch'"),
        (layers_page(out=["a"]), "got 1 out, but there are 5 target words"),
        (layers_page(maps={}), "maps must be of the kinds ee, ed, dd, got none"),
        (layers_page(maps={"xx": []}), "maps must be of the kinds ee, ed, dd, got 'xx'"),
        (layers_page(maps={"ed": []}), "maps['ed'] must hold maps of the same heads, got no map"),
        (
            layers_page(maps={"ed": [a_map(1, 5, 3), a_map(2, 5, 3)]}),
            "maps['ed'] must hold maps of the same heads, got numbers of heads [1, 2]",
        ),
        (layers_page(maps={"ed": [a_map(1, 3, 5)]}), "got 5 queries, but there are 3"),
        (layers_page(maps={"ed": [a_map(1, 5, 3) * np.nan]}), "maps['ed'][0][0, 0, 0] is nan"),
        (layers_page(steps={"src": [1]}), "steps has no side 'src'; choose of enc, dec"),
        (
            layers_page(steps={"enc": [1, 2]}),
            "got 3 words, but there are 2 numbers in steps['enc']",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused(data, says):
    with pytest.raises(ValueError) as error:
        attention_page(data)
    assert says in str(error.value)


def test_a_title_that_is_no_text_is_refused():
    with pytest.raises(TypeError, match="title must be a string, got int"):
        attention_page(layers_page(title=7))
