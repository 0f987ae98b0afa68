"""README and docs say what is: their Python runs, and they name every primitive."""
import pathlib
import re

import pytest

from lathe._ffi.core import call

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks():
    for page in PAGES:
        for i, text in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S)):
            yield pytest.param(page, text, id=f"{page.name}-{i}")


@pytest.mark.parametrize("page, text", list(blocks()))
def test_python_runs(page, text, tmp_path, monkeypatch):
    path = tmp_path / "example.py"        # a file, since @T.prim_func reads its source
    path.write_text(text)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)           # what it writes goes there
    exec(compile(text, str(path), "exec"), {"__name__": "__example__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_primitive_is_described():
    text = (ROOT / "docs/schedules.md").read_text()
    for name, *_ in call("primitives"):
        assert f"`{name}(" in text, f"docs/schedules.md does not describe {name}"
