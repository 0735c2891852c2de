"""Sentence pairs for the tests of the page, with maps set by hand."""

import numpy as np
from pictures import a_map

SRC, TGT = ["ein", "kleiner", "Hund"], ["<sos>", "a", "little", "dog", "."]
OUT = ["a", "little", "dog", ".", "<eos>"]


def layers_page(**more):
    maps = {
        "ee": [a_map(2, 3, 3), a_map(2, 3, 3)[::-1]],
        "ed": [a_map(2, 5, 3), a_map(2, 5, 3)[::-1]],
        "dd": [a_map(2, 5, 5, causal=True)] * 2,
    }
    return {"title": "A pair", "src": SRC, "tgt": TGT, "out": OUT, "maps": maps} | more


def steps_page():
    enc, dec = np.array([1, 3, 2]), np.array([2, 1, 2, 2, 1])
    halted = {
        "ee": [a_map(3, 3, 3) * (enc > step)[:, None] for step in range(3)],
        "ed": [a_map(3, 5, 3) * (dec > step)[:, None] for step in range(2)],
        "dd": [a_map(3, 5, 5, causal=True) * (dec > step)[:, None] for step in range(2)],
    }
    steps = {"enc": enc, "dec": dec}
    return {"src": SRC, "tgt": TGT, "maps": halted, "round": "step", "steps": steps}
