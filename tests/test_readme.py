"""The snippets of the documents run as they stand there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)
SNIPPETS = [
    pytest.param(code, id=f"{path.relative_to(ROOT)}-{number}")
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    for number, code in enumerate(SNIPPET.findall(path.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippet_runs(code, monkeypatch):
    monkeypatch.chdir(ROOT)
    exec(compile(code, "snippet", "exec"), {})


def test_every_file_that_the_readme_names_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"`(examples/[\w./-]+)`", text):
        assert (ROOT / name).exists(), name
