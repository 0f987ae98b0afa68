"""README and docs say what is: their Python runs, and they name every primitive."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import numpy as np
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


BUILD = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve()


def listings(language):
    for page in PAGES:
        for i, text in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)):
            yield pytest.param(text, id=f"{page.name}-{i}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A place like the one that the pages speak of: the program, the examples, a model net.onnx."""
    onnx = pytest.importorskip("onnx")
    place = tmp_path_factory.mktemp("pages")
    nodes = [onnx.helper.make_node("Conv", ["input", "w"], ["c"], strides=[4, 4]), onnx.helper.make_node("GlobalAveragePool", ["c"], ["output"])]
    value = onnx.helper.make_tensor_value_info
    weight = onnx.numpy_helper.from_array(np.ones((8, 3, 4, 4), "float32"), "w")
    graph = onnx.helper.make_graph(nodes, "net", [value("input", 1, ["n", 3, 224, 224])], [value("output", 1, ["n", 8, 1, 1])], [weight])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), str(place / "net.onnx"))
    (place / "examples").symlink_to(ROOT / "examples")
    (place / "build").symlink_to(BUILD)
    return place


def lathe_commands(text):
    return [line.split("#")[0].strip() for line in text.splitlines() if re.match(r"(build/)?lathe ", line)]


@pytest.mark.skipif(not (BUILD / "lathe").exists(), reason="the lathe program was not built")
@pytest.mark.parametrize("text", [p for p in listings("sh") if lathe_commands(p.values[0])])
def test_commands_run(text, folder):
    env = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"}
    for line in lathe_commands(text):
        done = subprocess.run(shlex.split(line), cwd=folder, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize("text", list(listings("c")))
def test_c_listings_run(text, folder):
    """Each is a whole program; ./net.so is there as the commands of the pages make it."""
    subprocess.run([BUILD / "lathe", "compile", "net.onnx", "-o", "net.so"], cwd=folder, check=True, timeout=120)
    (folder / "listing.c").write_text(text)
    flags = [f"-I{ROOT}/include", f"-L{BUILD}", "-llathe_rt", f"-Wl,-rpath,{BUILD}"]
    done = subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "listing.c", *flags, "-o", "listing"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(["./listing"], cwd=folder, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_primitive_is_described():
    text = (ROOT / "docs/schedules.md").read_text()
    for name, *_ in call("primitives"):
        assert f"`{name}(" in text, f"docs/schedules.md does not describe {name}"
