"""CMSIS-NN's kernels in programs ahead of time: what goes to them, and that QEMU's Arm processors give the same bytes.

CMSIS-NN's sources are those of LATHE_SHARED or ../shared (peers/cmsis-nn.tar.xz)."""

import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.relay.backend import Executor
from lathe.relay.op.contrib import partition_for_cmsisnn
from tflite_writer import Model

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("LATHE_SHARED", ROOT.parent / "shared"))
SOURCES = SHARED / "peers/cmsis-nn.tar.xz"
FLAGS = {
    "cortex-m4": "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
    "cortex-m55": "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
}
CPUS = ["cortex-m4", pytest.param("cortex-m55", marks=pytest.mark.slow)]  # (vectors: sources that take long to compile)
BOARDS = {"cortex-m4": "mps2-an386", "cortex-m55": "mps3-an547"}
RNG = np.random.default_rng(3)


class Net:
    """Layers of int8 one behind the other."""

    def __init__(self, shape):
        self.m, self.count = Model(), 0
        self.at, self.shape, self.zero = self.m.input("x", shape, "int8", scale=0.05, zero=4), shape, 4

    def layer(self, op, extra, shape, options, scale=0.05, zero=4, version=3):
        self.count += 1
        y = self.m.tensor(f"y{self.count}", shape, "int8", scale=scale, zero=zero)
        self.m.op(op, [self.at, *extra], [y], options, version)
        self.at, self.shape, self.zero = y, shape, zero
        return y

    def weight(self, array, scale, axis):
        self.count += 1
        return self.m.const(f"w{self.count}", array, scale=scale, axis=axis)

    def conv(self, channels, kernel, stride=1, same=True, depthwise=False, act=0):
        n, h, w, c = self.shape
        (kh, kw), out = kernel, c * channels if depthwise else channels
        scale = RNG.uniform(0.002, 0.02, out).astype("float32")
        shape = (1, kh, kw, out) if depthwise else (out, kh, kw, c)
        weight = self.weight(RNG.integers(-127, 128, shape).astype("int8"), scale, 3 if depthwise else 0)
        bias = self.weight(RNG.integers(-3000, 3000, out).astype("int32"), scale * np.float32(0.05), 0)
        size = lambda d, k: -(-d // stride) if same else (d - k) // stride + 1  # noqa: E731
        table = {0: ("i8", 0 if same else 1), 1: ("i32", stride), 2: ("i32", stride)}
        table.update({3: ("i32", channels), 4: ("i8", act)} if depthwise else {3: ("i8", act)})
        name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
        self.layer(name, [weight, bias], (n, size(h, kh), size(w, kw), out), (2 if depthwise else 1, table))

    def two(self, op, other):
        self.layer(op, [other], self.shape, (11 if op == "ADD" else 21, {}), version=2)

    def pool(self, op, kernel, stride, same):
        n, h, w, c = self.shape
        size = lambda d: -(-d // stride) if same else (d - kernel) // stride + 1  # noqa: E731
        table = {0: ("i8", 0 if same else 1), 1: ("i32", stride), 2: ("i32", stride), 3: ("i32", kernel)}
        self.layer(op, [], (n, size(h), size(w), c), (5, {**table, 4: ("i32", kernel), 5: ("i8", 3)}), version=2)

    def done(self):
        self.m.output(self.at)
        return self.m.bytes()


def every_kind():
    """A network with every layer that CMSIS-NN takes; dense layers are rounded otherwise there."""
    n = Net((1, 13, 12, 3))
    n.conv(8, (3, 3), stride=2, act=1)
    n.conv(8, (1, 1))
    start = n.at
    n.conv(1, (3, 3), depthwise=True, act=3)
    n.two("ADD", start)
    n.two("MUL", start)
    n.conv(12, (1, 4), same=False)
    n.conv(2, (3, 5), depthwise=True)
    n.pool("MAX_POOL_2D", 3, 2, True)
    n.pool("AVERAGE_POOL_2D", 2, 1, True)
    n.conv(5, (2, 2), same=False)
    rows = int(np.prod(n.shape[:3]))
    n.layer("RESHAPE", [n.m.const("shape", np.int32([rows, 5]))], (rows, 5), (17, {}), version=1)
    n.layer("SOFTMAX", [], (rows, 5), (9, {0: ("f32", 1.0)}), 1 / 256, -128, 2)
    return n.done()


EVERY = {"qnn_conv2d": 6, "qnn_add": 1, "qnn_mul": 1, "qnn_max_pool2d": 1, "qnn_avg_pool2d": 1, "qnn_softmax": 1}


def composites(mod):
    return collections.Counter(re.findall(r'Composite="cmsis-nn\.(\w+)"', mod.astext(show_meta_data=False)))


def test_what_is_taken():
    mod, params = relay.frontend.from_tflite(every_kind())
    part = partition_for_cmsisnn(mod, params)
    assert composites(part) == EVERY
    assert relay.analysis.list_op_freqs(lathe.IRModule.from_expr(part["main"])) == {"reshape": 1}
    x = RNG.integers(-128, 128, (1, 13, 12, 3)).astype("int8")
    want = relay.create_executor("debug", mod).evaluate()(x).numpy()
    np.testing.assert_array_equal(relay.create_executor("debug", part).evaluate()(x).numpy(), want)
    assert np.ptp(want.astype(int)) > 50


def test_dense_layers_only_where_they_may_differ_by_one():
    n = Net((2, 20))
    weight = n.weight(RNG.integers(-127, 128, (6, 20)).astype("int8"), 0.01, 0)
    n.layer("FULLY_CONNECTED", [weight], (2, 6), (8, {}), version=4)
    mod, params = relay.frontend.from_tflite(n.done())
    assert not composites(partition_for_cmsisnn(mod, params))
    assert composites(partition_for_cmsisnn(mod, params, exact=False)) == {"qnn_fully_connected": 1}


def test_what_stays():
    """Floats, other layouts, weights with a zero point."""
    x = relay.var("x", shape=(1, 8, 8, 4), dtype="int8")
    weight = relay.const(RNG.integers(-9, 9, (4, 3, 3, 4)).astype("int8"))
    number = lambda v: relay.const(np.int32(v))  # noqa: E731
    for zero, layout in ((1, "NHWC"), (0, "NCHW")):
        kernel = {"data_layout": layout, "kernel_layout": "OHWI" if layout == "NHWC" else "OIHW"}
        w = weight if layout == "NHWC" else relay.const(RNG.integers(-9, 9, (4, 8, 3, 3)).astype("int8"))
        one = relay.const(np.float32(1))
        conv = relay.qnn.op.conv2d(x, w, number(0), number(zero), one, one, kernel_size=(3, 3), channels=4, **kernel)
        scaled = relay.Call("qnn.contrib_multiply_shift", [conv, number(2**30), number(35)], {"rounding": "DOUBLE"})
        y = relay.cast(relay.clip(scaled, -128, 127) + number(0), "int8")
        assert not composites(partition_for_cmsisnn(lathe.IRModule.from_expr(relay.Function([x], y))))
    f = relay.var("f", shape=(1, 8, 8, 4))
    pooled = relay.Function([f], relay.nn.max_pool2d(f, (2, 2), layout="NHWC"))
    assert not composites(partition_for_cmsisnn(lathe.IRModule.from_expr(pooled)))


# ---- on the processors


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """CMSIS-NN built for a processor: what the compiler and the linker are to be given."""
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm", "make"):
        if not shutil.which(tool):
            pytest.skip(f"needs {tool} (tools/setup micro)")
    if not SOURCES.exists():
        pytest.skip("peers/cmsis-nn.tar.xz is not in the shared folder")
    folder = tmp_path_factory.mktemp("cmsis")
    with tarfile.open(SOURCES) as tar:
        tar.extractall(folder, filter="data")
    root, built = folder / "cmsis-nn", {}
    kinds = "BasicMath Convolution FullyConnected NNSupport Pooling Softmax Transpose".split()
    other = re.compile(r"(?<!s8_)(?<!to_)s16|s4|f16|f32|u8|lstm|svdf|transpose_conv|batch_matmul|minimum|maximum")
    found = [s for k in kinds for s in sorted((root / f"Source/{k}Functions").glob("*.c"))]
    sources = [s for s in found if not other.search(s.stem)]

    def build(cpu):
        if cpu not in built:
            objects = folder / cpu
            objects.mkdir()
            common = ["arm-none-eabi-gcc", *FLAGS[cpu].split(), "-O1", "-ffunction-sections", "-w", f"-I{root}/Include"]
            commands = [[*common, "-c", s, "-o", objects / f"{s.stem}.o"] for s in sources]
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda c: subprocess.run(c, check=True), commands))
            subprocess.run(["arm-none-eabi-ar", "rcs", objects / "c.a", *objects.glob("*.o")], check=True)
            built[cpu] = {"EXTRA_FLAGS": f"-I{root}/Include", "EXTRA_LIBS": str(objects / "c.a")}
        return built[cpu]

    return build


def run_on(cpu, data, library, folder, monkeypatch, **options):
    """The network with CMSIS-NN on a board, the outputs that Lathe alone gives here being those expected."""
    mod, params = relay.frontend.from_tflite(data)
    shape = [int(d) for d in mod["main"].params[0].checked_type.shape]
    x = RNG.integers(-128, 128, shape).astype("int8")
    name = mod["main"].params[0].name_hint
    want = relay.create_executor("graph", mod).evaluate()(x).numpy()
    part = partition_for_cmsisnn(mod, params, **options)
    lib = relay.build(part, cpu, executor=Executor("aot", {"interface-api": "plain"}), mod_name="net")
    for key, value in library(cpu).items():
        monkeypatch.setenv(key, value)
    project = lathe.micro.generate_project(lib, folder, BOARDS[cpu], {name: x}, outputs=[want])
    return want, project.measure()


@pytest.mark.parametrize("cpu", CPUS)
def test_every_kind_of_layer_to_the_bit(cpu, library, tmp_path, monkeypatch):
    want, said = run_on(cpu, every_kind(), library, tmp_path, monkeypatch)
    np.testing.assert_array_equal(said.outputs[0], want)
    source = (tmp_path / "model/net.c").read_text()
    assert said.agrees and len(re.findall(r"^int32_t \w*cmsis_nn_main_\d+\(", source, re.M)) == sum(EVERY.values())


@pytest.mark.parametrize("cpu", CPUS)
def test_keyword_spotting(cpu, library, tmp_path, monkeypatch):
    path = SHARED / "models/trained/tflite/kws_ref_model.tflite"
    if not path.exists():
        pytest.skip("needs kws_ref_model.tflite in the shared folder")
    want, said = run_on(cpu, path.read_bytes(), library, tmp_path, monkeypatch)
    np.testing.assert_array_equal(said.outputs[0], want)


@pytest.mark.parametrize("cpu", CPUS)
def test_dense_layers_within_one(cpu, library, tmp_path, monkeypatch):
    n = Net((3, 40))
    for units in (24, 10):
        weight = n.weight(RNG.integers(-127, 128, (units, n.shape[-1])).astype("int8"), 0.01, 0)
        bias = n.weight(RNG.integers(-3000, 3000, units).astype("int32"), 0.0005, 0)
        n.layer("FULLY_CONNECTED", [weight, bias], (3, units), (8, {}), scale=0.3, version=4)
    want, said = run_on(cpu, n.done(), library, tmp_path, monkeypatch, exact=False)
    assert np.ptp(want.astype(int)) > 50
    np.testing.assert_allclose(said.outputs[0].astype(int), want.astype(int), atol=1)
