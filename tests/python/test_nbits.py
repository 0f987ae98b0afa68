"""Products of floats with weights of 4 and 8 bits (MatMulNBits): they stay as they are stored, in the file and while
they are multiplied; results are those of numpy over the numbers that the weight stands for."""

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe._ffi import call

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

LLVM = bool(call("build_info")[0])
TARGET = "llvm -mcpu=native" if LLVM else "c"


def nibbles(packed, count):
    """Two to a byte, the lower half first."""
    both = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)
    return both[..., :count]


class Product:
    """A model of one MatMulNBits, and the weight in floats."""

    def __init__(self, rng, shape, k, n, block, bits, zero, bias=False, accuracy=0, groups=None):
        blocks = -(-k // block)
        stored = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype("uint8")
        scale = rng.uniform(0.01, 0.03, (n, blocks)).astype("float32")
        values = nibbles(stored, block) if bits == 4 else stored
        names, inits = ["x", "w", "s"], {"w": stored, "s": scale.reshape(-1)}
        points = np.full((n, blocks), 1 << (bits - 1))
        if zero == "packed":
            inits["z"] = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype("uint8").reshape(-1)
            rows = inits["z"].reshape(n, -1)
            points = nibbles(rows, blocks) if bits == 4 else rows
        elif zero == "float":
            points = inits["z"] = rng.uniform(0, 15, (n, blocks)).astype("float32")
        if zero or bias:
            names.append("z" if zero else "")
        if bias:
            inits["b"] = rng.standard_normal(n).astype("float32")
            names += ["g" if groups is not None else "", "b"]
        place = np.arange(blocks * block) // block
        if groups is not None:
            inits["g"] = groups.astype("int32")
            place[:k] = groups % blocks
        real = (values.reshape(n, -1).astype("float64") - points[:, place]) * scale[:, place]
        self.weight = real[:, :k]
        self.bias = inits.get("b", 0.0)
        self.bytes = sum(a.nbytes for a in inits.values())
        attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
        if accuracy:
            attrs["accuracy_level"] = accuracy
        graph = helper.make_graph(
            [helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", **attrs)], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(a, name) for name, a in inits.items()])
        versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        self.model = helper.make_model(graph, opset_imports=versions, ir_version=8)

    def wanted(self, x):
        return x.astype("float64") @ self.weight.T + self.bias

    def built(self, shapes):
        mod, params = relay.frontend.from_onnx(self.model, shapes)
        with lathe.transform.PassContext(opt_level=3):
            return relay.build(mod, target=TARGET, params=params)


def run(lib, x):
    model = lathe.contrib.graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    model.set_input("x", x)
    model.run()
    return model.get_output(0).numpy()


@pytest.mark.parametrize("shape, k, n, block, bits, zero, bias", [
    ((1, 128), 128, 96, 32, 4, None, False),
    ((1, 100), 100, 37, 16, 4, "packed", True),
    ((5, 96), 96, 40, 32, 4, "float", False),
    ((2, 3, 64), 64, 33, 64, 8, "packed", False),
    ((1, 70), 70, 16, 32, 8, None, True),
    ((40, 64), 64, 48, 16, 4, None, False),
    ((33, 72), 72, 20, 16, 4, "packed", True),
    ((19, 50), 50, 24, 32, 8, "packed", False),
])  # fmt: skip
def test_products(rng, shape, k, n, block, bits, zero, bias):
    product = Product(rng, shape, k, n, block, bits, zero, bias)
    x = rng.standard_normal(shape).astype("float32")
    lib = product.built({"x": shape})
    want = product.wanted(x)
    np.testing.assert_allclose(run(lib, x), want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert not LLVM or "matmul.nbits" in [node.impl for node in lib.model.nodes()]


def test_onnx_runtime_agrees(rng):
    ort = pytest.importorskip("onnxruntime")
    product = Product(rng, (3, 256), 256, 64, 32, 4, "packed")
    x = rng.standard_normal((3, 256)).astype("float32")
    session = ort.InferenceSession(product.model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(run(product.built({"x": (3, 256)}), x), want, rtol=0, atol=1e-5 * np.abs(want).max())


def rounded(x, block):
    """Each block of a row to 8 bits, in units of its largest element / 127."""
    k = x.shape[-1]
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -k % block)]).reshape(*x.shape[:-1], -1, block)
    most = np.abs(padded).max(-1, keepdims=True)
    by = np.where(most > 0, np.float32(127) / np.where(most > 0, most, 1), 0).astype("float32")
    return (np.rint(padded * by) * (most.astype("float64") / 127)).reshape(*x.shape[:-1], -1)[..., :k]


@pytest.mark.parametrize("shape, k, n, block, bits, zero, bias", [
    ((1, 128), 128, 96, 32, 4, None, False),
    ((5, 100), 100, 37, 16, 4, "packed", True),
    ((7, 96), 96, 40, 32, 4, "float", False),
    ((2, 3, 64), 64, 33, 64, 8, "packed", False),
    ((1, 70), 70, 16, 32, 8, None, True),
])  # fmt: skip
def test_data_of_8_bits(rng, shape, k, n, block, bits, zero, bias):
    """accuracy_level=4: data is rounded where bytes are multiplied by an instruction, and nowhere else."""
    ort = pytest.importorskip("onnxruntime")
    product = Product(rng, shape, k, n, block, bits, zero, bias, accuracy=4)
    x = rng.standard_normal(shape).astype("float32")
    x[..., :block] = 0  # a block of zeros has no scale
    lib = product.built({"x": shape})
    dots = LLVM and any(f in lathe.target.Target(TARGET).features for f in ("dotprod", "avx2"))
    want = product.wanted(rounded(x, block) if dots else x)
    have = run(lib, x)
    np.testing.assert_allclose(have, want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert not LLVM or "matmul.nbits" in [node.impl for node in lib.model.nodes()]
    session = ort.InferenceSession(product.model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(have, session.run(None, {"x": x})[0], rtol=0, atol=0.02 * np.abs(want).max())


@pytest.mark.skipif(not LLVM, reason="assembly is LLVM's")
@pytest.mark.parametrize("target, instruction, apart", [
    ("aarch64-linux-gnu -mcpu=neoverse-n1", "sdot\t", "ushr\tv"),
    ("x86_64-linux-gnu -mcpu=cascadelake", "vpdpbusd", "vpsrld"),
    ("x86_64-linux-gnu -mcpu=alderlake", "vpdpbusd", "vpsrld"),
    ("x86_64-linux-gnu -mcpu=haswell", "vpmaddwd", "vpsrl"),
])  # fmt: skip
def test_instructions(rng, target, instruction, apart):
    """Halves of bytes are told apart a vector at a time and multiplied by the target's instruction."""
    product = Product(rng, (1, 128), 128, 64, 32, 4, None, accuracy=4)
    mod, params = relay.frontend.from_onnx(product.model)
    with lathe.transform.PassContext(opt_level=3):
        text = relay.build(mod, target=f"llvm -mtriple={target}", params=params).get_source("asm")
    assert text.count(instruction) >= 8 and apart in text


@pytest.mark.parametrize("k, block, bits, zero, even", [
    (96, 16, 4, None, True), (96, 16, 4, "packed", False), (70, 32, 4, "float", False), (64, 16, 8, "packed", False),
])  # fmt: skip
def test_groups_of_a_row(rng, k, block, bits, zero, even):
    """g_idx names the group of each element: as many in each as a block has, or not."""
    groups = rng.permutation(k) // block if even else rng.integers(0, -(-k // block), k)
    product = Product(rng, (3, k), k, 40, block, bits, zero, True, groups=groups)
    x = rng.standard_normal((3, k)).astype("float32")
    lib = product.built({"x": (3, k)})
    want = product.wanted(x)
    np.testing.assert_allclose(run(lib, x), want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert not LLVM or "matmul.nbits" in [node.impl for node in lib.model.nodes()]
    if zero is None:  # ONNX Runtime does not look at zero points beside groups
        ort = pytest.importorskip("onnxruntime")
        session = ort.InferenceSession(product.model.SerializeToString(), providers=["CPUExecutionProvider"])
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=0, atol=1e-5 * np.abs(want).max())


def test_bad_groups(rng):
    product = Product(rng, (1, 32), 32, 8, 16, 4, None, True, groups=np.full(32, 2))
    with pytest.raises(lathe.error.LatheError, match="g_idx has 2, there are 2 groups"):
        product.built({"x": (1, 32)})


def test_open_rows(rng):
    """A number of rows that is known only at run time: the same kernel."""
    product = Product(rng, ("rows", 64), 64, 32, 32, 4, "packed")
    lib = product.built({})
    for rows in (1, 2, 9):
        x = rng.standard_normal((rows, 64)).astype("float32")
        want = product.wanted(x)
        np.testing.assert_allclose(run(lib, x), want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert not LLVM or "matmul.nbits" in [node.impl for node in lib.model.nodes()]


def blocked_model(rng, dtype, k, n, zero):
    """DequantizeLinear by blocks of 32 before a MatMul, as ONNX Runtime's quantizer writes it too."""
    bits, code, blocks = int(dtype[-1]), getattr(TensorProto, dtype), -(-k // 32)
    low = -(1 << (bits - 1)) if dtype.startswith("I") else 0
    inits = [helper.make_tensor(name, code, s, rng.integers(low, low + (1 << bits), s).ravel().tolist())
             for name, s in (("w", (k, n)), ("z", (blocks, n)))[: 1 + zero]]
    inits.append(numpy_helper.from_array(rng.uniform(0.01, 0.03, (blocks, n)).astype("float32"), "s"))
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"][: 2 + zero], ["d"], axis=0, block_size=32),
             helper.make_node("MatMul", ["x", "d"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, k))],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, n))], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("dtype, k, n, zero", [
    ("INT4", 64, 40, False), ("UINT4", 80, 33, True), ("INT4", 64, 48, True), ("INT8", 48, 16, False),
    ("UINT8", 64, 24, True), ("INT4", 1024, 1024, True),
])  # fmt: skip
def test_blocks_before_a_product(rng, tmp_path, dtype, k, n, zero):
    ort = pytest.importorskip("onnxruntime")
    model = blocked_model(rng, dtype, k, n, zero)
    mod, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=TARGET, params=params)
    x = rng.standard_normal((3, k)).astype("float32")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    want = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(run(lib, x), want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert not LLVM or [node.impl for node in lib.model.nodes()] == ["matmul.nbits"]
    lib.export_library(str(tmp_path / "model.so"))
    assert (tmp_path / "model.so").stat().st_size < len(model.SerializeToString()) + 100_000


def test_the_file_has_the_weight_as_it_is(rng, tmp_path):
    product = Product(rng, (1, 1024), 1024, 1024, 32, 4, None)
    product.built({"x": (1, 1024)}).export_library(str(tmp_path / "model.so"))
    assert (tmp_path / "model.so").stat().st_size < product.bytes + 100_000


@pytest.mark.parametrize("text, attrs", [
    ("bits is 3", {"bits": 3, "block_size": 16}),
    ("block_size is 0", {"bits": 4, "block_size": 0}),
    ("bytes of a row", {"bits": 8, "block_size": 16}),
    ("blocks", {"bits": 4, "block_size": 32}),
    ("units is 40", {"bits": 4, "block_size": 16, "units": 40}),
    ("weight_layout 'NCn'", {"bits": 4, "block_size": 16, "weight_layout": "NCn"}),
    ("data_bits is 7", {"bits": 4, "block_size": 16, "data_bits": 7}),
])
def test_refused(text, attrs):
    arg = [relay.var("x", shape=(2, 64)), relay.var("w", shape=(8, 32), dtype="uint8"), relay.var("s", shape=(8, 4)),
           relay.const(np.uint8(8))]
    with pytest.raises(lathe.error.LatheError) as e:
        f = relay.Function(arg[:3], relay.nn.contrib_dense_nbits(*arg, **attrs))
        relay.transform.InferType()(lathe.IRModule.from_expr(f))
    assert text.split()[0] in str(e.value) and text in str(e.value)
