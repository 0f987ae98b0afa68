"""README and docs say what is: every block of them is run or checked, and they name every primitive."""
import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lathe import relay
from lathe._ffi.core import call
from tflite_writer import Model

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import check_layers  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BUILD = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve()
PROGRAMS = f"{BUILD}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
ENV = {**os.environ, "PATH": PROGRAMS, "LATHE_LIBRARY_PATH": str(BUILD), "PYTHONPATH": str(ROOT / "python")}


HAS_WEB = all(any(map(shutil.which, names)) for names in (("clang-19", "clang"), ("wasm-ld-19", "wasm-ld"), ("node",)))


def blocks_of(page):
    """Language and text of every fenced block, in order."""
    text = page.read_text()
    fences = re.findall(r"^ *```", text, re.M)
    found = re.findall(r"^```([^\n`]*)\n(.*?)^```$", text, re.S | re.M)
    assert len(fences) == 2 * len(found), f"{page.name} has a fence that is not closed, or is indented"
    return found


def sh(command, cwd):
    done = subprocess.run(command, cwd=cwd, env=ENV, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_shell(text, folder):
    """What `make` does takes long or installs: such lines are only read by make itself."""
    made = [line.split("#")[0].split() for line in text.splitlines() if line.startswith("make ")]
    for words in made:
        sh([words[0], "-n", "-C", str(ROOT), *words[1:]], folder)
    rest = "\n".join(line for line in text.splitlines() if not line.startswith("make "))
    assert re.search(r"\blathe[ .]", rest) or made, "a block of shell that calls neither lathe nor make"
    return sh(["bash", "-euc", rest], folder)


def run_python(text, folder):
    path, out = folder / "example.py", io.StringIO()  # a file, since @T.prim_func reads its source
    path.write_text(text)
    with contextlib.redirect_stdout(out):
        exec(compile(text, str(path), "exec"), {"__name__": "__example__"})
    assert out.getvalue().strip(), "an example that prints nothing"
    return out.getvalue()


def run_c(text, folder):
    """A whole program; a header of a model that an earlier block wrote brings its object along."""
    (folder / "listing.c").write_text(text)
    models = [f"{name}.o" for name in re.findall(r'#include "(\w+)\.h"', text)]
    flags = [f"-I{ROOT}/include", f"-L{BUILD}", "-llathe_rt", f"-Wl,-rpath,{BUILD}", "-lm"]
    sh(["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "listing.c", *models, *flags, "-o", "listing"], folder)
    out = sh(["./listing"], folder)
    assert out.strip(), "a program that prints nothing"
    return out


def run_js(text, folder):
    """A module beside what earlier blocks wrote."""
    (folder / "example.mjs").write_text(text)
    out = sh(["node", "example.mjs"], folder)
    assert out.strip(), "an example that prints nothing"
    return out


def read_relay(text, folder):
    """Text of a graph: it reads, and what is printed of it reads back the same."""
    once = relay.parse(text).astext()
    assert relay.parse(once).astext() == once
    return once


def read_diagram(text, folder):
    """Its arrows are folders of src."""
    arrows = re.findall(r"──(\w+)──", text)
    assert len(arrows) > 3 and set(arrows) <= set(check_layers.layers()), arrows
    return text


RUN = {"sh": run_shell, "python": run_python, "c": run_c, "js": run_js, "relay": read_relay, "diagram": read_diagram}


@pytest.mark.skipif(not (BUILD / "lathe").exists() or not shutil.which("cc"), reason="needs the program and cc")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_block(page, tmp_path, monkeypatch):
    """From top to bottom, in a folder that has build, examples and the runtime; a block of `output` is what the one
    before it printed."""
    for package in ("torch", "keras"):
        if f"import {package}\n" in page.read_text():
            reason = f"{package} is not installed: the examples of {page.name} are not run"
            pytest.importorskip(package, reason=reason, exc_type=ImportError)
    if "-f web" in page.read_text() and not HAS_WEB:
        pytest.skip(f"clang, wasm-ld or node is not there (tools/setup web): the examples of {page.name} are not run")
    for part in ("examples", "include", "runtime"):
        (tmp_path / part).symlink_to(ROOT / part)
    (tmp_path / "build").symlink_to(BUILD)
    monkeypatch.chdir(tmp_path)
    printed = None
    for language, text in blocks_of(page):
        if language == "output":
            assert printed is not None and printed.strip() == text.strip(), f"{page.name}: it printed\n{printed}"
            continue
        assert language in RUN, f"{page.name}: what is a block of '{language}'?\n{text}"
        printed = RUN[language](text, tmp_path)


def small_tflite():
    m = Model()
    x, y = m.input("input", (1, 8)), m.tensor("output", (1, 8))
    m.op("RELU", [x], [y])
    m.output(y)
    return m.bytes()


@pytest.mark.skipif(not (BUILD / "lathe").exists(), reason="the lathe program was not built")
def test_examples_of_the_help_run(tmp_path):
    """In a folder that has what they name: net.onnx, samples of its input, net.tflite, net.relay and the
    examples."""
    onnx = pytest.importorskip("onnx")
    value, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    nodes = [node("Conv", ["input", "w"], ["c"], strides=[4, 4]), node("GlobalAveragePool", ["c"], ["output"])]
    weight = onnx.numpy_helper.from_array(np.ones((8, 3, 4, 4), "float32"), "w")
    graph = onnx.helper.make_graph(nodes, "net", [value("input", 1, ["n", 3, 224, 224])],
                                   [value("output", 1, ["n", 8, 1, 1])], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "net.onnx"))
    np.savez(tmp_path / "samples.npz", input=np.ones((2, 3, 224, 224), "float32"))
    (tmp_path / "samples").mkdir()
    np.save(tmp_path / "samples/one.npy", np.ones((3, 224, 224), "float32"))
    (tmp_path / "labels.txt").write_text("0\n0\n")
    (tmp_path / "net.tflite").write_bytes(small_tflite())
    (tmp_path / "net.relay").write_text("def @main(%x: Tensor[(2), float32]) { nn.relu(%x) }")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for folder in (".local/share/bash-completion/completions", ".config/fish/completions"):
        (tmp_path / folder).mkdir(parents=True)
    count, other = 0, "x86_64" if os.uname().machine == "aarch64" else "aarch64"
    commands = re.findall(r"^  ([a-z]+) +[a-z]", sh(["lathe", "--help"], tmp_path).split("exit status")[0], re.M)
    for command in commands:
        for line in sh(["lathe", command, "--help"], tmp_path).split("examples:\n")[1].splitlines():
            if f"-mtriple={other}" in line and not shutil.which(f"{other}-linux-gnu-ld"):
                continue  # a file for the other machine wants its linker
            if "-f web" in line and not HAS_WEB:
                continue  # it wants a linker too
            line = line.replace("--time 5m", "--time 3s").replace("--trials 200", "--trials 2")
            if re.search("micro (run|size|build)", line) and not all(
                map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm"))
            ):
                continue  # tools/setup micro installs what it wants
            if ".pt2" in line:
                continue  # test_pytorch.py makes such a file and compiles it
            done = subprocess.run(["bash", "-euc", line], cwd=tmp_path, env={**ENV, "HOME": str(tmp_path)}, text=True,
                                  capture_output=True, timeout=120)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            count += 1
    assert len(commands) == 16 and count >= 2 * len(commands) - 2


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)#:]+)\)", prose):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


def test_every_primitive_is_described():
    text = (ROOT / "docs/schedules.md").read_text()
    for name, *_ in call("primitives"):
        assert f"`{name}(" in text, f"docs/schedules.md does not describe {name}"
