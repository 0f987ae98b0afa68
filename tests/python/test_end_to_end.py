"""Models from end to end, each against numpy: what runs on every architecture.

It needs numpy and pytest alone, starts no other program, and stays small: tools/device-check runs it on machines that
have what no emulator knows.  With LATHE_CROSS=FOLDER, a build for another architecture, the models are compiled here
for that one, and only the program of that folder that runs them is emulated (`make test-cross`).  With
LATHE_MACHINE=NAME they are compiled for one of the machines of machines.py, and run there."""

import os
import pathlib
import subprocess

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe._ffi import call
from lathe.contrib import graph_executor

HERE = pathlib.Path(__file__).resolve().parents[2]
CROSS = pathlib.Path(os.environ["LATHE_CROSS"]).resolve() if "LATHE_CROSS" in os.environ else None
MACHINE = None
if "LATHE_MACHINE" in os.environ:
    import machines

    MACHINE = machines.machine(os.environ["LATHE_MACHINE"])
needs_open_sizes = pytest.mark.skipif(
    MACHINE is not None and not MACHINE.serves_open_sizes, reason="programs ahead of time have all sizes fixed"
)

# What is compiled for: the plainest processor, one with all that the emulator knows, and C for the cross compiler.
CROSS_TARGETS = {
    "x86_64": ["llvm -mcpu=x86-64", "llvm -mcpu=haswell", "c -mcpu=haswell"],
    "aarch64": ["llvm -mcpu=generic", "llvm -mcpu=neoverse-n2", "c -mcpu=neoverse-n1"],
}


def targets():
    if MACHINE:
        return [MACHINE.target]
    if CROSS is None:
        return ["llvm -mcpu=native" if call("build_info")[0] else "c"]
    arch = (CROSS / "sysroot/.packages").read_text().split()[0]
    return [target.replace(" ", f" -mtriple={arch}-linux-gnu ", 1) for target in CROSS_TARGETS[arch]]


def run_here(lib, inputs):
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for name, value in inputs.items():
        m.set_input(name, value)
    m.run()
    return m.get_output(0).numpy()


def run_there(lib, inputs, folder):
    lib.export_library(folder / "net.so")
    np.savez(folder / "inputs.npz", **inputs)
    command = [HERE / "tools/cross-run", CROSS, CROSS / "lathe", "run", folder / "net.so"]
    command += ["--output", folder / "out.npz"]
    command += [f"--input={name}={folder / 'inputs.npz'}" for name in inputs]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    with np.load(folder / "out.npz") as out:
        return out[out.files[0]]


@pytest.fixture(params=targets(), ids=lambda t: "-".join(t.replace("-m", "").replace("=", " ").split()))
def run(request, tmp_path):
    """run(mod, params, inputs): the first output of a model compiled for the parameter's target."""

    def compile_and_run(mod, params, inputs, level=3):
        with lathe.transform.PassContext(opt_level=level):
            lib = MACHINE.build(mod, params) if MACHINE else relay.build(mod, target=request.param, params=params)
        if MACHINE:
            return MACHINE.run(lib, inputs, tmp_path)
        return run_there(lib, inputs, tmp_path) if CROSS else run_here(lib, inputs)

    return compile_and_run


@pytest.fixture
def check(run):
    """check(expr_of, arrays, want): an expression over the arrays, with the constants as weights known when it is
    compiled; `open` numbers the arrays whose first size the compiler is not told."""

    def compare(expr_of, arrays, want, level=3, rtol=1e-5, atol=1e-5, open=(), **constants):
        inputs = {f"p{i}": a for i, a in enumerate(arrays)}
        shapes = {n: a.shape for n, a in {**inputs, **constants}.items()}
        shapes.update({f"p{i}": (relay.Any(), *arrays[i].shape[1:]) for i in open})
        variables = {n: relay.var(n, shape=shapes[n], dtype=str(a.dtype)) for n, a in {**inputs, **constants}.items()}
        f = relay.Function(list(variables.values()), expr_of(*variables.values()))
        got = run(lathe.IRModule.from_expr(f), constants, inputs, level)
        assert got.dtype == want.dtype and got.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(got, want)

    return compare


def conv2d(x, w, stride=1, pad=0, groups=1):
    """A convolution of NCHW and OIHW in the widest type of its kind."""
    wide = "float64" if x.dtype.kind == "f" else "int64"
    x = np.pad(x.astype(wide), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    v = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    n, c, h, wd, kh, kw = v.shape
    v = v.reshape(n, groups, c // groups, h, wd, kh, kw)
    k = w.astype(wide).reshape(groups, w.shape[0] // groups, c // groups, kh, kw)
    return np.einsum("ngchwij,gocij->ngohw", v, k, optimize=True).reshape(n, -1, h, wd)


def test_digits(run):
    held = np.load(HERE / "examples/digits/held_back.npz")
    pixels, labels = (held[k] for k in sorted(held.files, key=lambda k: -held[k].ndim))
    pixels = pixels[:64].reshape(-1, 1, 8, 8).astype("float32")
    path = str(HERE / "examples/digits/digits.onnx")
    mod, params = relay.frontend.from_onnx(path, {"pixels": pixels.shape})
    scores = {level: run(mod, params, {"pixels": pixels}, level) for level in (0, 3)}
    np.testing.assert_allclose(scores[0], scores[3], rtol=1e-4, atol=1e-4)
    assert (scores[3].argmax(1) == labels[:64]).mean() > 0.95


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, n, k", [(1, 65, 40), (37, 64, 129)])
def test_dense(check, rng, m, n, k, dtype):
    x, w = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(n, k)).astype(dtype)
    check(relay.nn.dense, [x], (x.astype("float64") @ w.T).astype(dtype), w=w, atol=1e-4)


@pytest.mark.parametrize("data", ["int8", "uint8"])
@pytest.mark.parametrize("m, n, k", [(1, 33, 40), (37, 64, 130)])
def test_dense_of_bytes(check, rng, m, n, k, data):
    limits = np.iinfo(data)
    x = rng.integers(limits.min, limits.max + 1, (m, k)).astype(data)
    w = rng.integers(-128, 128, (n, k)).astype("int8")
    want = (x.astype("int64") @ w.T.astype("int64")).astype("int32")
    check(lambda x, w: relay.nn.dense(x, w, out_dtype="int32"), [x], want, w=w)


def test_half_floats(check, rng):
    x, w = rng.normal(size=(9, 70)).astype("float16"), rng.normal(size=(33, 70)).astype("float16")
    want = (x.astype("float64") @ w.T.astype("float64")).astype("float16")
    check(relay.nn.dense, [x], want, w=w, rtol=2e-2, atol=5e-2)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("shape, out, size, stride, pad, groups", [
    ((1, 3, 19, 17), 16, 3, 2, 1, 1),
    ((1, 16, 14, 14), 32, 3, 1, 1, 1),
    ((2, 24, 9, 9), 40, 1, 1, 0, 1),
    ((1, 32, 12, 12), 32, 3, 1, 1, 32),
    ((1, 12, 10, 10), 24, 5, 1, 2, 3),
])
def test_convolution(check, rng, shape, out, size, stride, pad, groups, level):
    x = rng.normal(size=shape).astype("float32")
    w = rng.normal(size=(out, shape[1] // groups, size, size)).astype("float32")
    b = rng.normal(size=out).astype("float32")
    want = np.maximum(conv2d(x, w, stride, pad, groups) + b[:, None, None], 0).astype("float32")

    def expr(x, w, b):
        y = relay.nn.conv2d(x, w, strides=(stride, stride), padding=(pad, pad), groups=groups, channels=out,
                            kernel_size=(size, size))
        return relay.nn.relu(relay.nn.bias_add(y, b))

    check(expr, [x], want, level, rtol=1e-4, atol=1e-3, w=w, b=b)


def test_convolution_of_bytes(check, rng):
    x = rng.integers(0, 256, (1, 16, 11, 11)).astype("uint8")
    w = rng.integers(-128, 128, (24, 16, 3, 3)).astype("int8")
    check(lambda x, w: relay.nn.conv2d(x, w, padding=(1, 1), channels=24, kernel_size=(3, 3), out_dtype="int32"), [x],
          conv2d(x, w, pad=1).astype("int32"), w=w)


def test_attention(check, rng):
    q, k, v = (rng.normal(size=(4, 21, 32)).astype("float32") for _ in range(3))
    scores = q.astype("float64") @ k.transpose(0, 2, 1) / np.sqrt(32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = (weights / weights.sum(-1, keepdims=True) @ v.astype("float64")).astype("float32")

    def expr(q, k, v):
        s = relay.nn.batch_matmul(q, k) * relay.const(np.float32(1 / np.sqrt(32)))
        return relay.nn.batch_matmul(relay.nn.softmax(s, axis=-1), relay.transpose(v, axes=(0, 2, 1)))

    check(expr, [q, k, v], want, rtol=1e-4, atol=1e-4)


def test_elementary_functions(check, rng):
    x = rng.normal(scale=3, size=(7, 67)).astype("float32")
    wide = x.astype("float64")
    want = (np.exp(-np.abs(wide)) + np.tanh(wide) + 1 / (1 + np.exp(-wide)) + np.log1p(np.abs(wide))).astype("float32")

    def expr(x):
        size = relay.abs(x)
        return relay.exp(-size) + relay.tanh(x) + relay.sigmoid(x) + relay.log(size + relay.const(1.0))

    check(expr, [x], want)


def test_reductions_and_bools(check, rng):
    x = rng.normal(size=(5, 3, 41)).astype("float32")
    check(lambda x: relay.reverse(relay.greater(x, relay.const(0.0)), 2), [x], np.flip(x > 0, 2))
    want = (x.max(2) - x.astype("float64").mean(2)).astype("float32")
    check(lambda x: relay.max(x, axis=2) - relay.mean(x, axis=2), [x], want)
    check(lambda x: relay.argmax(x, axis=1), [x], x.argmax(1).astype("int32"))
    check(lambda x: relay.sort(x, axis=2), [x], np.sort(x, 2))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_recurrent(check, rng):
    steps, batch, size, hidden = 7, 3, 10, 19
    x = rng.normal(size=(steps, batch, size)).astype("float32")
    w = rng.normal(scale=0.5, size=(1, 4 * hidden, size)).astype("float32")
    r = rng.normal(scale=0.5, size=(1, 4 * hidden, hidden)).astype("float32")
    h = c = np.zeros((batch, hidden))
    rows = []
    for step in x.astype("float64"):
        i, o, f, g = np.split(step @ w[0].T.astype("float64") + h @ r[0].T.astype("float64"), 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        rows.append(h)
    want = np.stack(rows)[:, None].astype("float32")
    check(lambda x, w, r: relay.nn.lstm(x, w, r, hidden_size=hidden)[0], [x], want, w=w, r=r, rtol=1e-4, atol=1e-4)


@needs_open_sizes
@pytest.mark.parametrize("rows", [1, 6])
def test_open_sizes(check, rng, rows):
    x = rng.normal(size=(rows, 5, 9, 8)).astype("float32")
    w = rng.normal(size=(12, 5, 3, 3)).astype("float32")
    want = np.maximum(conv2d(x, w, pad=1), 0).astype("float32")
    check(lambda x, w: relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), channels=12, kernel_size=(3, 3))), [x], want,
          rtol=1e-4, atol=1e-4, open=[0], w=w)
    a, b = rng.normal(size=(rows, 40)).astype("float32"), rng.normal(size=(33, 40)).astype("float32")
    scores = a.astype("float64") @ b.T.astype("float64")
    shares = np.exp(scores - scores.max(1, keepdims=True))
    want = (shares / shares.sum(1, keepdims=True)).astype("float32")
    check(lambda a, b: relay.nn.softmax(relay.nn.dense(a, b)), [a], want, rtol=1e-4, open=[0], w=b)


@needs_open_sizes
def test_sizes_that_data_decide(check, rng):
    x = rng.integers(0, 3, (5, 11)).astype("int32")
    check(lambda x: relay.argwhere(x), [x], np.argwhere(x).astype("int32"))


if CROSS:

    def test_the_compiler_writes_the_same_bytes_on_both_architectures(tmp_path):
        here = [pathlib.Path(os.environ["LATHE_LIBRARY_PATH"]) / "lathe"]
        there = [HERE / "tools/cross-run", CROSS, CROSS / "lathe"]
        written = []
        for k, program in enumerate([here, there]):
            command = [*program, "compile", HERE / "examples/digits/digits.onnx", "--shape=pixels=1,1,8,8",
                       f"--target={targets()[1]}", "-o", tmp_path / f"{k}.so"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            assert done.returncode == 0, done.stdout
            written.append((tmp_path / f"{k}.so").read_bytes())
        assert written[0] == written[1]
