"""Accuracy, exact match and BLEU with their edge cases."""

import pytest

from graphformer.metrics import bleu, exact_match, token_accuracy


def test_token_accuracy_counts_positions():
    assert token_accuracy([[5, 6, 7]], [[5, 6, 7]]) == 1.0
    assert token_accuracy([[5, 9, 7], [4]], [[5, 6, 7], [4]]) == 3 / 4
    assert token_accuracy([[5, 6]], [[5, 6, 7]]) == 2 / 3  # too short
    assert token_accuracy([[5, 6, 7, 8, 8]], [[5, 6, 7]]) == 3 / 5  # too long
    assert token_accuracy([[]], [[5, 6]]) == 0.0
    assert token_accuracy([[]], [[]]) == 1.0


def test_exact_match_counts_sentences():
    assert exact_match([[5, 6], [7], [8, 8]], [[5, 6], [7, 7], [8]]) == 1 / 3
    assert exact_match([(5, 6)], [[5, 6]]) == 1.0


@pytest.mark.parametrize("metric", [token_accuracy, exact_match])
def test_unequal_or_no_sentences_are_refused(metric):
    with pytest.raises(ValueError, match="2 hypotheses but 1 references"):
        metric([[5], [6]], [[5]])
    with pytest.raises(ValueError, match="no sentence"):
        metric([], [])


def test_bleu_of_a_perfect_corpus_and_its_signature():
    lines = ["a man rides a horse .", "two dogs run in the snow ."]
    result = bleu(lines, [lines])
    assert result.score == pytest.approx(100)
    assert "tok:13a" in result.signature and "case:mixed" in result.signature
    assert result.signature in str(result)
    assert (result.hypothesis_length, result.reference_length) == (13, 13)


def test_bleu_tokenisation_and_case_show_in_the_signature():
    lines = ["Ein Mann , der läuft ."]
    result = bleu(lines, [["ein mann , der läuft ."]], tokenize="none", lowercase=True)
    assert result.score == pytest.approx(100)
    assert "tok:none" in result.signature and "case:lc" in result.signature


def test_bleu_of_perfect_three_token_lines_is_zero():
    assert bleu(["a b c", "d e f"], [["a b c", "d e f"]]).score == 0.0


def test_bleu_of_empty_hypotheses_is_zero():
    result = bleu(["", ""], [["a b c d", "e f"]])
    assert result.score == 0.0 and result.hypothesis_length == 0


def test_an_empty_reference_is_no_error():
    full = bleu(["a b c d e", "f g"], [["a b c d e", ""]]).score
    assert 0 < full < 100


def test_flat_references_are_refused():
    with pytest.raises(TypeError, match=r"write \[lines\]"):
        bleu(["a b", "c"], ["a b", "c"])
    with pytest.raises(TypeError, match="hypotheses must be a list of lines"):
        bleu("a b", [["a b"]])


def test_references_turned_on_their_side_are_refused():
    with pytest.raises(ValueError, match="3 hypotheses but 1 references"):
        bleu(["a", "b", "c"], [["a"], ["b"], ["c"]])
    with pytest.raises(ValueError, match="at least one set"):
        bleu(["a"], [])
    with pytest.raises(ValueError, match="no sentence"):
        bleu([], [[]])


def test_lines_must_be_text():
    with pytest.raises(TypeError, match=r"references\[0\] line 2 must be a string, got \['c'\]"):
        bleu(["a", "b"], [["a", ["c"]]])


def test_unknown_tokenisation_lists_the_choices():
    with pytest.raises(ValueError, match="tokenize must be one of .*13a.*got 'nine'"):
        bleu(["a"], [["a"]], tokenize="nine")


def test_unknown_words_never_match_raw_references():
    # half of each reference is unknown to the model, which says so in its output
    hypotheses = ["the <unk> sat on <unk> mat today ok"] * 11
    raw = ["the cat sat on zebra mat today ok"] * 11
    rebuilt = hypotheses
    honest, inflated = bleu(hypotheses, [raw]).score, bleu(hypotheses, [rebuilt]).score
    assert inflated == pytest.approx(100)
    assert honest < 50


def test_agrees_with_the_outside_scorer_on_raw_lines():
    sacrebleu = pytest.importorskip("sacrebleu")
    hypotheses = ["A man, riding a horse.", "Two dogs run", "", "It's 5 o'clock in the town"]
    references = [
        "A man riding a brown horse.",
        "Two dogs run in snow",
        "x",
        "It is 5 o'clock in town",
    ]
    outside = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert bleu(hypotheses, [references]).score == pytest.approx(outside, abs=0.01)


def test_every_hypothesis_and_reference_is_scored_once(monkeypatch):
    bleu_module = pytest.importorskip("sacrebleu.metrics.bleu")
    seen = []
    original = bleu_module.BLEU.corpus_score

    def spy(self, hypotheses, references, **rest):
        seen.append((len(hypotheses), [len(lines) for lines in references]))
        return original(self, hypotheses, references, **rest)

    monkeypatch.setattr(bleu_module.BLEU, "corpus_score", spy)
    lines = [f"sentence number {n} is here" for n in range(11)]
    bleu(lines, [lines])
    assert seen == [(11, [11])]


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(ImportError, match="pip install sacrebleu"):
        bleu(["a"], [["a"]])
