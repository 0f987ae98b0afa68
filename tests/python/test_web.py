"""Models for browsers: WebAssembly with an ES module, in node and in headless Chromium, against the interpreter and
ONNX Runtime."""

import base64
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

import chromium
import lathe
from lathe import relay
from lathe.relay.backend import Executor
from networks import run_onnxruntime, shared

pytest.importorskip("onnxruntime")

ROOT = pathlib.Path(__file__).resolve().parents[2]
LATHE = pathlib.Path(os.environ.get("LATHE_LIBRARY_PATH", ROOT / "build")).resolve() / "lathe"
DIGITS = ROOT / "examples/digits/digits.onnx"

HAS_TOOLS = all(any(map(shutil.which, names)) for names in (("clang-19", "clang"), ("wasm-ld-19", "wasm-ld")))
needs_tools = pytest.mark.skipif(not HAS_TOOLS, reason="needs clang and wasm-ld (tools/setup web)")
needs_node = pytest.mark.skipif(
    not (HAS_TOOLS and shutil.which("node")), reason="needs clang, wasm-ld and node (tools/setup web)"
)
needs_browser = pytest.mark.skipif(
    not (HAS_TOOLS and chromium.BROWSER), reason="needs clang, wasm-ld and chromium (tools/setup web browser)"
)

# Reads what to run from its input: the module, and for each run the entry and arrays in base64; prints the outputs so.
RUNNER = """
import fs from "node:fs";
const job = JSON.parse(fs.readFileSync(0));
const { load } = await import(job.module);
const model = await load();
const answers = job.runs.map(({ entry, inputs }) => {
  const port = (name) => model.entries[entry].inputs.find((p) => p.name === name);
  const array = ([name, text]) => [name, new (port(name).array)(Uint8Array.from(Buffer.from(text, "base64")).buffer)];
  const outputs = model.run(Object.fromEntries(Object.entries(inputs).map(array)), entry);
  return Object.values(outputs).map((y) => Buffer.from(y.buffer).toString("base64"));
});
console.log(JSON.stringify(answers));
"""


def node(script, *args, stdin=""):
    done = subprocess.run(["node", "--input-type=module", "-e", script, *map(str, args)], input=stdin, text=True,
                          capture_output=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_in_node(module, runs):
    """Bytes of the outputs of runs: (entry, {name: array})."""
    encode = lambda x: base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()
    given = [{"entry": e, "inputs": {n: encode(x) for n, x in inputs.items()}} for e, inputs in runs]
    job = {"module": str(module), "runs": given}
    return [[base64.b64decode(y) for y in outputs] for outputs in json.loads(node(RUNNER, stdin=json.dumps(job)))]


def compile_web(model, out, *args):
    done = subprocess.run([LATHE, "compile", model, "-f", "web", "-o", out, *args], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return out


def refused(*args, **options):
    done = subprocess.run([LATHE, "compile", *map(str, args)], text=True, capture_output=True, **options)
    assert done.returncode in (1, 2), done.stdout + done.stderr
    return done.stderr


def held_back(n):
    kept = np.load(ROOT / "examples/digits/held_back.npz")
    return (kept["images"][:n] / 16).astype("float32").reshape(-1, 1, 8, 8), kept["labels"][:n]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return compile_web(DIGITS, tmp_path_factory.mktemp("web") / "digits", "--shape", "pixels=1,1,8,8")


@needs_node
def test_digits(digits):
    assert sorted(p.name for p in digits.iterdir()) == ["index.html", "model.d.ts", "model.js", "model.wasm"]
    wire = sum(len(gzip.compress((digits / name).read_bytes())) for name in ("model.js", "model.wasm"))
    assert wire < 150_000
    images, labels = held_back(40)
    answers = run_in_node(digits / "model.js", [("main", {"pixels": x}) for x in images])
    got = np.array([np.frombuffer(a[0], "float32") for a in answers])
    want = run_onnxruntime(DIGITS, {"pixels": images})[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert (got.argmax(1) == labels).mean() > 0.9


# Every dtype, functions of float64 (which the page's Math computes), several outputs, inputs that are outputs, nothing.
VARIETY = {
    "twice": "def @twice(%x: Tensor[(4), float32]) { (%x, %x, exp(%x)) }",
    "bits": 'def @bits(%x: Tensor[(2, 3), int8]) { (cast(%x, dtype="int32"), less(%x, negative(%x))) }',
    "wide": """def @wide(%x: Tensor[(5, 6), float64]) {
        (sum(%x, axis=[1]), tanh(%x), erf(%x), exp(%x), sin(%x), round(%x), floor_mod(%x, 1.5f64), atan(%x),
         power(abs(%x), 1.7f64)) }""",
    "narrow": """def @narrow(%x: Tensor[(5, 7), float32]) {
        (tanh(%x), erf(%x), sin(%x), exp(%x), log(abs(%x)), sigmoid(%x), round(%x), floor_mod(%x, 1.5f)) }""",
    "half": "def @half(%x: Tensor[(3, 4), float16]) { add(%x, exp(%x)) }",
    "none": "def @none(%x: Tensor[(0, 4), float32]) { exp(%x) }",
    "long": "def @long(%x: Tensor[(3), int64]) { (multiply(%x, %x), argsort(%x)) }",
    "sort": "def @sort(%x: Tensor[(3, 40), float32]) { (sort(%x, axis=1), nn.softmax(%x)) }",
}


@needs_node
@pytest.mark.parametrize("inside", [False, True])
def test_against_the_interpreter(inside, tmp_path):
    mod = relay.parse("\n".join(VARIETY.values()))
    lib = relay.build(mod, "wasm", executor=Executor("aot", {"interface-api": "plain", "workspace-io": inside}),
                      entries=list(VARIETY))  # fmt: skip
    lib.export_library(tmp_path / "net.js")
    rng = np.random.default_rng(7)
    runs, wants = [], []
    for name in VARIETY:
        p = relay.transform.InferType()(mod)[name].params[0].type_annotation
        x = (rng.standard_normal([int(d) for d in p.shape]) * 3).astype(p.dtype)
        runs.append((name, {"x": x}))
        want = relay.create_executor("debug", lathe.IRModule.from_expr(mod[name])).evaluate()(x)
        wants.append([w.numpy() for w in (want if isinstance(want, list) else [want])])
    for (name, _), got, want in zip(runs, run_in_node(tmp_path / "net.js", runs), wants):
        assert len(got) == len(want), name
        for i, (g, w) in enumerate(zip(got, want)):
            tolerance = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-13}.get(str(w.dtype), 0)
            g = np.frombuffer(g, w.dtype).reshape(w.shape).astype("float64")
            w = w.astype("float64")
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance / 10, err_msg=f"{name} {i}")


@needs_node
def test_where_a_module_comes_from(digits, tmp_path):
    """Bytes, a path, a compiled module and a Response give the same as the file beside the module."""
    shutil.copy(digits / "model.wasm", tmp_path / "elsewhere.wasm")
    script = f"""
      import fs from "node:fs";
      import {{ load, Model }} from "{digits}/model.js";
      const path = "{tmp_path}/elsewhere.wasm";
      const bytes = fs.readFileSync(path);
      const response = (type) => new Response(bytes, {{ headers: {{ "Content-Type": type }} }});
      const sources = [undefined, path, bytes, bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
                       new URL("file://" + path), "file://" + path, await WebAssembly.compile(bytes),
                       response("application/wasm"), response("text/plain")];
      const pixels = Float32Array.from({{ length: 64 }}, (_, i) => (i % 7) / 7);
      const answers = [];
      for (const source of sources) answers.push((await load(source)).run({{ pixels }}).probabilities.join());
      console.log(new Set(answers).size, (await load()) instanceof Model);
      const missing = new Response("", {{ status: 404 }});
      await load(missing).catch((e) => console.log(e.message));
    """
    assert node(script).splitlines() == ["1 true", ": the server answers 404"]


@needs_node
def test_wrong_inputs_get_a_sentence(digits):
    script = f"""
      import {{ load }} from "{digits}/model.js";
      const model = await load();
      const pixels = new Float32Array(64);
      const tries = [[{{}}], [{{ pixels: new Float32Array(3) }}], [{{ pixels: [1] }}],
                     [{{ pixels: new Float64Array(64) }}], [{{ pixels, other: pixels }}], [{{ pixels }}, "other"]];
      for (const args of tries)
        try {{ model.run(...args); console.log("taken"); }} catch (e) {{ console.log(e.message); }}
      const first = model.run({{ pixels }}).probabilities.slice();
      model.run({{ pixels: pixels.fill(1) }});
      console.log(first.join() === model.run({{ pixels: pixels.fill(0) }}).probabilities.join());
    """
    takes = "input 'pixels' takes a Float32Array of 64 elements (float32 1 x 1 x 8 x 8), not "
    assert node(script).splitlines() == [
        takes + "nothing", takes + "Float32Array of 3", takes + "Array of 1", takes + "Float64Array of 64",
        "there is no input 'other'; there are pixels", "the model has no entry 'other'; it has main", "true",
    ]  # fmt: skip


# ---- threads ---------------------------------------------------------------------------------------------------------

# A convolution, a product of matrices, a softmax whose threads have memory of their own, and the page's Math.
LOOPS = """
def @main(%x: Tensor[(1, 16, 40, 40), float32], %w: Tensor[(32, 16, 3, 3), float32],
          %k: Tensor[(32, 96), float32], %d: Tensor[(300, 400), float64]) {
  %0 = nn.relu(nn.conv2d(%x, %w, padding=[1, 1, 1, 1]));
  %1 = reshape(transpose(%0, axes=[0, 2, 3, 1]), newshape=[1600, 32]);
  (%0, nn.softmax(nn.matmul(%1, %k)), exp(%d))
}
"""

# Loads a model, runs it on numbers that are the same every time and prints the outputs' hash with what `show` says.
HASHED = """
import { createHash } from "node:crypto";
import { load } from "MODULE";
const length = (port) => port.shape.reduce((n, d) => n * d, 1);
const wave = (port) => port.array.from({ length: length(port) }, (_, i) => Math.sin(i * 0.37) * 2);
async function run(options, show) {
  const model = await load(undefined, options);
  const inputs = Object.fromEntries(model.inputs.map((port) => [port.name, wave(port)]));
  for (let i = 0; i < 3; i++) {
    const hash = createHash("sha1");
    for (const y of Object.values(model.run(inputs))) hash.update(new Uint8Array(y.buffer));
    console.log(show(model), hash.digest("hex"));
  }
  return { model, inputs };
}
"""


@pytest.fixture(scope="module")
def loops(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loops")
    lib = relay.build(relay.parse(LOOPS), "wasm", executor=Executor("aot", {"interface-api": "plain"}))
    lib.export_library(folder / "net.js")
    lib.export_library(folder / "net.c")
    return folder


def in_threads(loops, script, **environment):
    script = HASHED.replace("MODULE", str(loops / "net.js")) + script
    done = subprocess.run(["node", "--input-type=module", "-e", script], text=True, capture_output=True, timeout=120,
                          env={**os.environ, **environment})  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@needs_node
def test_threads_give_the_same_bits(loops):
    said = in_threads(loops, """
      for (const threads of [1, 2, 3, 6]) (await run({ threads }, (m) => m.threads + " " + m.note)).model.dispose();
    """)  # fmt: skip
    notes = ["1 one thread was asked for", "2 ", "3 ", "6 "]
    assert [line.rsplit(" ", 1)[0] for line in said] == [note for note in notes for _ in range(3)]
    assert len({line.rsplit(" ", 1)[1] for line in said}) == 1


@needs_node
def test_threads_against_numpy(loops):
    rng = np.random.default_rng(3)
    shapes = {"x": (1, 16, 40, 40), "w": (32, 16, 3, 3), "k": (32, 96), "d": (300, 400)}
    feeds = {name: (rng.standard_normal(shape) / 3).astype("float32") for name, shape in shapes.items()}
    feeds["d"] = feeds["d"].astype("float64")
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(feeds["x"][0], ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2))
    convolved = np.maximum(np.einsum("chwij,ocij->ohw", windows, feeds["w"]), 0)
    scores = convolved.reshape(32, 1600).T @ feeds["k"]
    powers = np.exp(scores - scores.max(1, keepdims=True))
    (gots,) = run_in_node(loops / "net.js", [("main", feeds)])
    for got, want in zip(gots, [convolved[None], powers / powers.sum(1, keepdims=True), np.exp(feeds["d"])]):
        got = np.frombuffer(got, want.dtype).reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@needs_node
def test_relaxed_products(loops, tmp_path):
    """Products and sums in one instruction where that was asked for: near what the others give."""
    lib = relay.build(relay.parse(LOOPS), "wasm -mattr=+relaxed-simd", executor=Executor("aot"))
    lib.export_library(tmp_path / "net.js")
    lib.export_library(tmp_path / "net.c")
    assert "__builtin_wasm_relaxed_madd_f32x4(" in (tmp_path / "net.c").read_text()
    assert "relaxed" not in (loops / "net.c").read_text()
    flag = "--experimental-wasm-relaxed-simd"
    listed = subprocess.run(["node", "--v8-options"], capture_output=True, text=True).stdout
    script = f"""
      import {{ load }} from "{loops}/net.js";
      import {{ load as relaxed }} from "{tmp_path}/net.js";
      const length = (port) => port.shape.reduce((n, d) => n * d, 1);
      const wave = (port) => port.array.from({{ length: length(port) }}, (_, i) => Math.sin(i));
      const [a, b] = await Promise.all([load, relaxed].map(async (from) => {{
        const model = await from(undefined, {{ threads: 1 }});
        return Object.values(model.run(Object.fromEntries(model.inputs.map((port) => [port.name, wave(port)]))))[0];
      }}));
      console.log(a.length, b.length, Math.max(...a.map((x, i) => Math.abs(x - b[i]))) < 1e-4);
    """
    command = ["node", *([flag] if flag in listed else []), "--input-type=module", "-e", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "51200 51200 true\n", done.stdout + done.stderr


@needs_node
def test_an_error_in_a_worker_is_said(loops, tmp_path):
    """A worker's Math.exp fails: the run that waits for it throws the worker's sentence, and the model is over."""
    preload = tmp_path / "preload.mjs"
    preload.write_text("""
      import { isMainThread } from "node:worker_threads";
      const exp = Math.exp, cell = new Int32Array(new SharedArrayBuffer(4));
      let slept = false;
      Math.exp = (x) => {
        if (!isMainThread) throw new Error("no exponentials here");
        if (!slept) Atomics.wait(cell, 0, 0, 500);  // so that a worker gets some of the iterations
        slept = true;
        return exp(x);
      };
    """)
    said = in_threads(loops, """
      const model = await load(undefined, { threads: 3 });
      const inputs = Object.fromEntries(model.inputs.map((port) => [port.name, wave(port)]));
      for (let i = 0; i < 2; i++)
        try { model.run(inputs); } catch (error) { console.log(error.message); }
    """, NODE_OPTIONS=f"--import {preload}")  # fmt: skip
    assert said == [
        "a worker failed: no exponentials here",
        "the model ended with an error (a worker failed: no exponentials here); load() gives another",
    ]


@needs_node
def test_one_thread_says_why(loops, digits, tmp_path):
    show = "const show = (m) => m.threads + ' ' + m.note;"
    preload = tmp_path / "preload.mjs"
    preload.write_text('import { isMainThread } from "node:worker_threads";\n'
                       'if (!isMainThread) throw new Error("no workers here");\n')  # fmt: skip
    said = in_threads(loops, show + "await run({}, show);", NODE_OPTIONS=f"--import {preload}")
    assert said[0].startswith("1 a worker did not start: no workers here")
    said = in_threads(loops, show + "globalThis.crossOriginIsolated = false; await run({}, show);")
    assert said[0].startswith("1 the page is not cross-origin isolated: its server does not send the headers Cross-Or")
    lib = relay.build(relay.parse(LOOPS), "wasm -mattr=-atomics", executor=Executor("aot", {"interface-api": "plain"}))
    lib.export_library(tmp_path / "net.js")
    said = in_threads(tmp_path, show + "await run({ threads: 4 }, show);")
    assert said[0].startswith("1 the model was compiled without the feature atomics ")
    said = node(f'import {{ load }} from "{digits}/model.js"; console.log((await load()).note)')
    assert said == "no loop of the model is worth several threads\n"


@needs_node
def test_threads_end(loops):
    """A program of node's ends with workers that still wait; one that was disposed of cannot be run."""
    said = in_threads(loops, """
      await run({ threads: 2 }, () => "");
      const { model, inputs } = await run({ threads: 3 }, () => "");
      model.dispose();
      model.dispose();
      try { model.run(inputs); } catch (error) { console.log(error.message); }
      for (const threads of [0, 1.5, "2", null])
        try { await load(undefined, { threads }); } catch (error) { console.log(error.name, error.message); }
    """)  # fmt: skip
    assert said[6:] == ["the model was disposed of; load() gives another"] + [
        f"RangeError threads is a whole number from 1, not {text}" for text in ("0", "1.5", "2", "null")
    ]


@needs_tools
def test_source_with_loops_needs_no_threads(loops, tmp_path):
    """The C of a model with parallel loops is a program of one thread unless somebody defines PARALLEL."""
    done = subprocess.run(["cc", "-std=gnu11", "-Wall", "-Wno-psabi", "-Wno-unused", "-Werror", "-O1", "-c", "net.c",
                           "-o", tmp_path / "net.o"], cwd=loops, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr


@needs_node
def test_mnist(tmp_path):
    place = shared() and shared() / "models/trained/onnx/mnist_8"
    if not place or not place.is_dir():
        pytest.skip("the shared models are not here")
    model = onnx.load(place / "model.onnx")
    read = lambda path: onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))
    name = model.graph.input[0].name
    web = compile_web(place / "model.onnx", tmp_path / "mnist")
    cases = [(read(c / "input_0.pb"), read(c / "output_0.pb")) for c in sorted(place.glob("test_data_set_*"))]
    answers = run_in_node(web / "model.js", [("main", {name: x}) for x, _ in cases])
    for (_, want), got in zip(cases, answers):
        np.testing.assert_allclose(np.frombuffer(got[0], "float32"), want.ravel(), rtol=1e-3, atol=1e-2)


@needs_tools
def test_types(digits, tmp_path):
    types = (digits / "model.d.ts").read_text()
    assert '"pixels": Float32Array; // Tensor[(1, 1, 8, 8), float32]' in types
    assert "run(inputs: Inputs, entry?: \"main\"): Outputs;" in types
    if not shutil.which("tsc"):
        return
    good = """import { load } from "./model.js";
        const y: Float32Array = (await load()).run({ pixels: new Float32Array(64) }).probabilities;"""
    for text, status in ((good, 0), (good.replace("Float32Array(64)", "Int8Array(64)"), 2)):
        (digits / "use.ts").write_text(text)
        command = "tsc --noEmit --strict --target es2022 --module es2022 --lib es2022,dom use.ts"
        assert subprocess.run(command.split(), cwd=digits, capture_output=True).returncode == status
    (digits / "use.ts").unlink()


@needs_tools
def test_same_bytes_every_time(digits, tmp_path):
    again = compile_web(DIGITS, tmp_path / "again", "--shape", "pixels=1,1,8,8")
    for path in digits.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes(), path.name


@needs_tools
def test_objects(tmp_path):
    for name in ("net.o", "net.c"):
        done = subprocess.run([LATHE, "compile", DIGITS, "-f", name[-1], "--target", "wasm", "-o", tmp_path / name,
                               "--shape", "pixels=1,1,8,8"], capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "net.o").read_bytes()[:4] == b"\0asm"


def test_wrong_use_gets_a_sentence(tmp_path):
    shape = ["--shape", "pixels=1,1,8,8"]
    bare = {**os.environ, "PATH": str(tmp_path)}
    out = tmp_path / "out"
    assert "needs clang, which compiles for WebAssembly (Debian: apt install clang)" in refused(
        DIGITS, "-f", "web", "-o", out, *shape, env=bare)  # fmt: skip
    (tmp_path / "clang").write_text("#!/bin/sh\n")
    (tmp_path / "clang").chmod(0o755)
    assert "needs the linker wasm-ld (Debian: apt install lld)" in refused(
        DIGITS, "-f", "web", "-o", out, *shape, env=bare)  # fmt: skip
    assert "its target is wasm, not 'c'" in refused(DIGITS, "-f", "web", "--target", "c", "-o", out, *shape)
    (tmp_path / "file").write_text("")
    assert "cannot be made" in refused(DIGITS, "-f", "web", "-o", tmp_path / "file", *shape)
    if not HAS_TOOLS:
        return
    assert "a program ahead of time has all its sizes fixed" in refused(DIGITS, "-f", "web", "-o", out)
    (out / "index.html").write_text("mine")
    assert "test page would take the place of" in refused(DIGITS, "-f", "web", "-o", out, *shape)
    assert (out / "index.html").read_text() == "mine" and len(list(out.iterdir())) == 1


def test_shared_libraries_are_refused(tmp_path):
    assert "-f web" in refused(DIGITS, "--target", "wasm", "-o", tmp_path / "net.so", "--shape", "pixels=1,1,8,8")


# ---- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(digits, tmp_path_factory):
    """The example pages with the digits model beside."""
    folder = tmp_path_factory.mktemp("pages")
    shutil.copytree(ROOT / "examples/web", folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "digits", ignore_errors=True)
    shutil.copytree(digits, folder / "digits")
    return folder


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("isolated", [False, True])
def test_page_with_threads(loops, isolated):
    """As many threads as were asked for where the server isolates the page, else one with the reason: the same bits."""
    with chromium.served(loops, isolated) as url, chromium.browser() as page:
        page.open(f"{url}/index.html")  # the test page
        page.wait("document.querySelector('#time').textContent.includes('a run takes')")
        assert "threads: " in page.run("document.querySelector('#time').textContent")
        answer = page.run(f"""(async () => {{
          const {{ load }} = await import("{url}/net.js");
          const length = (port) => port.shape.reduce((n, d) => n * d, 1);
          const wave = (port) => port.array.from({{ length: length(port) }}, (_, i) => Math.sin(i * 0.37) * 2);
          const found = [];
          for (const threads of [1, 3]) {{
            const model = await load(undefined, {{ threads }});
            const inputs = Object.fromEntries(model.inputs.map((port) => [port.name, wave(port)]));
            const outputs = Object.values(model.run(inputs)).concat(Object.values(model.run(inputs)));
            found.push({{ threads: model.threads, note: model.note, text: outputs.map((y) => y.join()).join(";") }});
            model.dispose();
          }}
          return {{ isolated: crossOriginIsolated, same: found[0].text === found[1].text,
                    threads: found.map((f) => f.threads), note: found[1].note }};
        }})()""")
        assert answer["isolated"] == isolated and answer["same"]
        assert answer["threads"] == [1, 3 if isolated else 1]
        assert answer["note"].startswith("" if isolated else "the page is not cross-origin isolated")
        assert bool(answer["note"]) != isolated
        assert not page.complaints


@needs_browser
@pytest.mark.slow
def test_pages_with_digits(pages):
    with chromium.served(pages) as url, chromium.browser() as page:
        page.open(f"{url}/digits/index.html")  # the test page
        page.wait("document.querySelector('#time').textContent.includes('a run takes')")
        assert "probabilities" in page.run("document.querySelector('table').textContent")
        page.open(f"{url}/digits.html")
        page.wait("window.classify")
        images, labels = held_back(10)
        right = 0
        for image, label in zip(images, labels):
            squares = [[i % 8 * 32, i // 8 * 32, round(255 * float(v))] for i, v in enumerate(image.ravel())]
            page.run(f"clear(); for (const [x, y, v] of {squares}) {{ pen.fillStyle = `rgb(${{v}}, ${{v}}, ${{v}})`;"
                     " pen.fillRect(x, y, 32, 32) }")  # fmt: skip
            answer = page.run("classify()")
            x = np.array(answer["pixels"], "float32").reshape(1, 1, 8, 8)
            want = run_onnxruntime(DIGITS, {"pixels": x})[0][0]
            np.testing.assert_allclose(answer["probabilities"], want, rtol=1e-4, atol=1e-6)
            right += answer["digit"] == label
        assert right >= 8
        page.run("document.querySelector('#clear').click()")  # a stroke from top to bottom
        box = page.run("JSON.parse(JSON.stringify(document.querySelector('canvas').getBoundingClientRect()))")
        x, y = box["x"] + 128, box["y"]
        page.command("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y + 30, button="left", buttons=1)
        for dy in range(40, 230, 10):
            page.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y + dy, button="left", buttons=1)
        page.command("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y + 225, button="left")
        assert page.run("document.querySelector('#digit').textContent") == "1"
        assert "one run:" in page.run("document.querySelector('#time').textContent")
        assert not page.complaints


@needs_browser
@pytest.mark.slow
def test_page_with_mobilenet(pages, tmp_path):
    if not shared():
        pytest.skip("the shared models are not here")
    models = shared() / "models"
    path = tmp_path / "mobilenet_v2.onnx"
    subprocess.run([sys.executable, models / "fill.py", models / "graphs/mobilenet_v2.onnx", path], check=True)
    compile_web(path, pages / "mobilenet", "--shape", "input=1,3,224,224")
    (pages / "labels.txt").write_text("\n".join(f"label {i}" for i in range(1000)))
    with chromium.served(pages) as url, chromium.browser() as page:
        page.open(f"{url}/mobilenet.html")
        page.wait("window.classify")
        page.run("""for (let i = 0; i < 200; i++) { pen.fillStyle = `hsl(${i * 37}, 80%, ${20 + i % 60}%)`;
                    pen.fillRect((i * 53) % 224, (i * 31) % 224, 40, 25) }""")
        answer = page.run("classify()")
        data = page.run("[...pen.getImageData(0, 0, 224, 224).data]")
        x = np.array(data, "float32").reshape(224, 224, 4)[..., :3].transpose(2, 0, 1) / 255
        x = (x - np.reshape([0.485, 0.456, 0.406], (3, 1, 1))) / np.reshape([0.229, 0.224, 0.225], (3, 1, 1))
        want = run_onnxruntime(path, {"input": x[None].astype("float32")})[0][0]
        np.testing.assert_allclose(answer["scores"], want, rtol=1e-3, atol=1e-4 * np.abs(want).max())
        assert answer["order"][0] == want.argmax()
        assert f"label {want.argmax()}" in page.run("document.querySelector('table').textContent")
        assert page.run("document.querySelector('#time').textContent").startswith("one run: ")
        assert not page.complaints
