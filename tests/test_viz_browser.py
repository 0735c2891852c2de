"""The page of attention maps in a headless Chromium: what a reader sees and does."""

import re
import shutil

import numpy as np
import pytest
from pages import OUT, SRC, TGT, layers_page, steps_page
from pictures import TRICKY, a_map, words

from graphformer.viz import attention_page

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1280,1200",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium, driven by selenium."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


class Page:
    """An open page, with what a reader sees and does."""

    def __init__(self, browser, path, data):
        self.browser = browser
        path.write_text(attention_page(data), encoding="utf-8")
        browser.get(path.as_uri())

    def all(self, selector):
        return self.browser.find_elements("css selector", selector)

    def one(self, selector):
        return self.browser.find_element("css selector", selector)

    def texts(self, selector):
        return [element.text for element in self.all(selector)]

    def choose(self, name, value):
        self.one(f"#{name}s input[value='{value}']").click()

    def turn_to(self, number):
        """Move the slider with the keyboard."""
        slider = self.one("#round")
        slider.send_keys("\ue011")  # Home
        for _ in range(number):
            slider.send_keys("\ue014")  # right

    def hover(self, selector):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.browser).move_to_element(self.one(selector)).perform()

    def word(self, side, index):
        return f"#{side} button[data-index='{index}']"

    def weights(self, side):
        return self.texts(f"#{side} .weight")

    def fills(self):
        return self.browser.execute_script(
            "return [...document.querySelectorAll('#map rect[data-q]')]"
            ".map((cell) => cell.getAttribute('fill'))"
        )

    def errors(self):
        return [entry["message"] for entry in self.browser.get_log("browser")]


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page; at the end there must be nothing in the console."""
    pages = []

    def opened(data):
        pages.append(Page(browser, tmp_path / "page.html", data))
        return pages[-1]

    yield opened
    assert pages[-1].errors() == []


def written(row):
    return ["\u2013" if weight == 0 else f"{weight:.3f}" for weight in row]


def test_the_page_opens_with_words_and_choices(show):
    page = show(layers_page())
    assert page.one("h1").text == "A pair"
    assert page.one("#source").text == "ein kleiner Hund"
    assert page.one("#target").text == "a little dog . <eos>"
    assert page.texts("#keys .text") == SRC
    assert page.texts("#queries .text") == TGT
    assert page.texts("#queries .out") == [f"\u2192 {word}" for word in OUT]
    assert page.texts("#heads label") == ["0", "1", "mean"]
    assert len(page.texts("#kinds label")) == 3
    assert page.texts("#map text[data-key]") == SRC
    assert page.texts("#map text[data-query]") == TGT


def test_hovering_over_a_word_shows_where_it_looks(show):
    page = show(layers_page())
    weights = a_map(2, 5, 3)[0]
    for query in range(5):
        page.hover(page.word("queries", query))
        assert page.weights("keys") == written(weights[query])
        assert page.one("#chosen").text == f"\u201c{TGT[query]}\u201d looks at"
        order = np.argsort(-weights[query], kind="stable")
        assert page.texts("#strongest td:first-child") == [SRC[key] for key in order]
    page.hover(page.word("keys", 2))
    assert page.weights("queries") == written(weights[:, 2])
    assert page.one("#chosen").text == "\u201cHund\u201d is looked at by"


def test_hovering_over_a_cell_shows_its_weight(show):
    page = show(layers_page())
    page.hover("#map rect[data-q='3'][data-k='2']")
    weight = a_map(2, 5, 3)[0][3][2]
    assert page.one("#cell").text == f"\u201cdog\u201d looks at \u201cHund\u201d: {weight:.4f}"
    assert page.weights("keys") == written(a_map(2, 5, 3)[0][3])


def test_head_layer_and_kind_change_the_picture(show):
    page = show(layers_page())
    first = page.fills()
    page.choose("head", "1")
    second = page.fills()
    assert first != second
    assert page.weights("keys") == written(a_map(2, 5, 3)[1][0])
    page.choose("head", "mean")
    assert page.weights("keys") == written(a_map(2, 5, 3).mean(axis=0)[0])
    assert page.fills() not in (first, second)
    page.turn_to(1)  # the second layer has the heads in the other order
    page.choose("head", "0")
    assert page.fills() == second
    assert page.one("#map-name").text == "decoder to encoder, layer 1, head 0"
    page.choose("kind", "dd")
    assert page.texts("#keys .text") == TGT
    empty = [fill == "url(#hatch)" for fill in page.fills()]
    assert empty == (np.tri(5) == 0).ravel().tolist()
    page.hover(page.word("queries", 1))
    assert page.weights("keys") == written(a_map(2, 5, 5, causal=True)[0][1])
    assert page.weights("keys")[2:] == ["\u2013"] * 3


def test_darker_cells_have_more_weight(show):
    page = show(layers_page(maps={"ed": [[[[0.1, 0.2, 0.7]] * 5]]}))
    shades = [sum(map(int, re.findall(r"\d+", fill))) for fill in page.fills()[:3]]
    assert shades == sorted(shades, reverse=True) and len(set(shades)) == 3


def test_everything_can_be_reached_with_the_keyboard(show):
    page = show(layers_page())
    page.one(page.word("queries", 0)).send_keys("\ue014\ue014")  # right, right
    focused = page.browser.switch_to.active_element
    assert focused.get_attribute("data-index") == "2"
    assert page.weights("keys") == written(a_map(2, 5, 3)[0][2])
    assert page.one("#spoken").get_attribute("textContent").startswith("little looks at")
    focused.send_keys("\ue007")  # Enter keeps the word
    page.hover(page.word("queries", 4))
    assert page.one("#chosen").text == "\u201clittle\u201d looks at"
    focused.send_keys("\ue00c")  # Escape lets it go
    page.hover(page.word("queries", 0))
    assert page.one("#chosen").text == "\u201c<sos>\u201d looks at"
    focused.send_keys("\ue013")  # up, to the keys
    assert (
        page.browser.switch_to.active_element.find_element("xpath", "../..").get_attribute("id")
        == "keys"
    )


def test_a_slider_over_the_steps_of_a_universal_transformer(show):
    page = show(steps_page())
    data = steps_page()
    for side, steps in (("keys", [1, 3, 2]), ("queries", [2, 1, 2, 2, 1])):
        assert [
            len(page.all(f"{page.word(side, index)} .steps i")) for index in range(len(steps))
        ] == steps
    assert page.one("#round-value").text == "step 1 (1 to 2)"
    assert page.all("#queries .halted") == []
    assert len(page.all(f"{page.word('keys', 1)} .steps .done")) == 1
    page.turn_to(1)
    assert page.one("#round-value").text == "step 2 (1 to 2)"
    assert [e.get_attribute("data-index") for e in page.all("#queries .halted")] == ["1", "4"]
    assert [len(page.all(f"{page.word('queries', i)} .steps .done")) for i in (0, 1)] == [2, 1]
    page.hover(page.word("queries", 0))
    assert page.weights("keys") == written(data["maps"]["ed"][1][0][0])
    page.hover(page.word("queries", 1))
    assert page.weights("keys") == ["\u2013"] * 3
    assert "nothing more: it stopped after step 1" in page.one("#chosen").text
    page.choose("kind", "ee")
    page.turn_to(2)
    assert page.one("#round-value").text == "step 3 (1 to 3)"
    page.choose("kind", "ed")  # the decoder took fewer steps
    assert page.one("#round-value").text == "step 2 (1 to 2)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stay_readable_on_their_colours(show, browser, scheme):
    def light(colour):
        channels = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        rising = np.linspace(0.01, 1, 11)
        page = show({"src": words(11), "tgt": ["q"], "maps": {"ed": [[[rising]]]}})
        for button in page.all("#keys button"):
            ground = light(button.value_of_css_property("background-color"))
            ink = light(button.value_of_css_property("color"))
            ratio = (max(ground, ink) + 0.05) / (min(ground, ink) + 0.05)
            assert ratio >= 4.5  # what WCAG asks of text
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_tricky_words_appear_as_typed(show):
    tricky = [*TRICKY, "</script><script>document.title='broken'</script>", "@data@"]
    count = len(tricky)
    page = show({"src": tricky, "tgt": tricky, "maps": {"ed": [a_map(1, count, count)]}})
    assert [e.get_attribute("textContent") for e in page.all("#keys .text")] == tricky
    assert page.browser.title == "Attention"


def test_sixty_words_fit_the_window(show):
    many = words(60, "Wort")
    page = show({"src": many, "tgt": many, "maps": {"ed": [a_map(8, 60, 60)] * 2}})
    assert len(page.fills()) == 3600
    width = page.browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= 1280
    sizes = [float(t.get_attribute("font-size")) for t in page.all("#map text[data-key]")]
    assert min(sizes) >= 10
