"""Models in float16 and bfloat16: the answers of float32 within what rounding to the dtype allows, and its kernels."""

import pathlib
import platform
import re
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import lathe  # noqa: E402
from lathe import relay  # noqa: E402
from lathe.contrib import graph_executor  # noqa: E402

import narrow  # noqa: E402
import networks  # noqa: E402
from test_fast_math import NEOVERSE_N1, NEOVERSE_N2, PROGRAM, ZEN4  # noqa: E402

# Inputs and outputs are rounded (2^-11, 2^-8 at most), and so are sums of terms of either sign, relative to the norm.
BOUND = {"float16": 1e-3, "bfloat16": 8e-3}
DTYPES = list(BOUND)


def built(model, fast="none", target="llvm"):
    mod, params = relay.frontend.from_onnx(model)
    with lathe.transform.PassContext(opt_level=3, config={"lathe.fast_math": fast}):
        return relay.build(mod, target=target, params=params)


def outputs(lib, feeds):
    m = graph_executor.GraphModule(lib["default"](lathe.cpu()))
    for name, x in feeds.items():
        m.set_input(name, x)
    m.run()
    return [m.get_output(i).numpy() for i in range(m.get_num_outputs())]


def feeds_of(model, rng):
    def of(v):
        shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)
        return rng.normal(size=shape).astype(kind) if kind == np.float32 else rng.integers(0, 5, shape).astype(kind)

    weights = {t.name for t in model.graph.initializer}
    return {v.name: of(v) for v in model.graph.input if v.name not in weights}


def small_feeds(feeds, dtype):
    kind = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, dtype.upper()))
    return {k: x.astype(kind) if x.dtype == np.float32 else x for k, x in feeds.items()}


def check(model, dtype, rng, fast="none", bound=None):
    """The narrow model against ONNX Runtime in float32 over rounded weights and inputs; gives the compiled model."""
    feeds = feeds_of(model, rng)
    thin = small_feeds(feeds, dtype)
    wide = {k: x.astype(feeds[k].dtype) for k, x in thin.items()}
    want = networks.run_onnxruntime(narrow.rounded(model, dtype).SerializeToString(), wide)
    lib = built(narrow.narrowed(model, dtype), fast)
    got = outputs(lib, thin)
    for g, w in zip(got, want):
        if w.dtype == np.float32:
            assert str(g.dtype) == dtype
        error = networks.relative_error(np.asarray(g).astype("float64"), w)
        assert error <= (bound or BOUND[dtype]), error
    return lib


def kernels(lib):
    """The implementations that were chosen; casts and changes of layout have none of their own."""
    return [k.impl for k in lib.model.nodes() if k.impl not in ("generic", "layout.whole")]


def model_of(text):
    return onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 21]> ' + text)


def weight(rng, name, *shape, fan=1):
    return onnx.numpy_helper.from_array((rng.normal(size=shape) / np.sqrt(fan)).astype("float32"), name)


CASES = {
    "convolution": ("a (float[1,16,14,14] x, float[24,16,3,3] w) => (float[1,24,14,14] y)"
                    "{ c = Conv <pads=[1,1,1,1]> (x, w) y = Relu(c) }"),
    "1x1": "a (float[1,32,9,9] x, float[16,32,1,1] w) => (float[1,16,9,9] y) { y = Conv(x, w) }",
    "grouped": ("a (float[1,16,8,8] x, float[32,4,3,3] w) => (float[1,32,6,6] y)"
                "{ y = Conv <group=4> (x, w) }"),
    "depthwise": ("a (float[1,16,12,12] x, float[16,1,3,3] w) => (float[1,16,12,12] y)"
                  "{ y = Conv <group=16, pads=[1,1,1,1]> (x, w) }"),
    "conv1d": "a (float[1,12,40] x, float[20,12,5] w) => (float[1,20,36] y) { y = Conv(x, w) }",
    "conv3d": "a (float[1,4,6,6,6] x, float[8,4,3,3,3] w) => (float[1,8,4,4,4] y) { y = Conv(x, w) }",
    "transposed": ("a (float[1,8,7,7] x, float[8,12,3,3] w) => (float[1,12,15,15] y)"
                   "{ y = ConvTranspose <strides=[2,2]> (x, w) }"),
    "product": "a (float[9,40] x, float[40,24] w) => (float[9,24] y) { y = MatMul(x, w) }",
    "turned": "a (float[9,40] x, float[24,40] w) => (float[9,24] y) { y = Gemm <transB=1> (x, w) }",
    "batched": "a (float[3,9,40] x, float[3,40,24] w) => (float[3,9,24] y) { y = MatMul(x, w) }",
    "max pool": "a (float[1,8,9,9] x) => (float[1,8,4,4] y) { y = MaxPool <kernel_shape=[3,3], strides=[2,2]> (x) }",
    "average pool": "a (float[1,8,8,8] x) => (float[1,8,4,4] y)"
                    "{ y = AveragePool <kernel_shape=[2,2], strides=[2,2]> (x) }",
    "softmax": "a (float[6,300] x) => (float[6,300] y) { y = Softmax(x) }",
    "mean": "a (float[4,3000] x) => (float[4,1] y) { y = ReduceMean <keepdims=1> (x, axes) }",
    "lstm": ("a (float[5,2,8] x, float[1,24,8] w, float[1,24,6] r) => (float[5,1,2,6] y)"
             "{ y = LSTM <hidden_size=6> (x, w, r) }"),
    "attention": ("a (float[1,2,16,8] q, float[1,2,16,8] k, float[1,2,16,8] v) => (float[1,2,16,8] y)"
                  "{ t = Transpose <perm=[0,1,3,2]> (k) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v) }"),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_operator(name, dtype, rng):
    model = model_of(CASES[name])
    if name == "mean":
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1], "int64"), "axes"))
    check(model, dtype, rng)


@pytest.mark.parametrize("name", ["convolution", "grouped", "depthwise", "transposed", "product", "turned"])
def test_constant_weights_have_kernels(name, rng):
    model = model_of(CASES[name])
    shape = [d.dim_value for d in model.graph.input[1].type.tensor_type.shape.dim]
    model.graph.input.pop()
    model.graph.initializer.append(weight(rng, "w", *shape, fan=np.prod(shape[1:])))
    plain = kernels(built(model))
    assert plain
    for dtype in DTYPES:  # which one depends on what a change of layout costs, and that on the bytes
        assert len(kernels(check(model, dtype, rng))) == len(plain)


def test_a_network_has_the_kernels_of_float32(rng):
    """ResNet-18 with its batch normalisations."""
    model = networks.resnet18_bn()
    plain = kernels(built(model))
    for dtype in DTYPES:
        assert kernels(check(model, dtype, rng)) == plain


def test_fast_math_of_a_float16_model(rng):
    """Sums in float16 where that is faster; on targets without its arithmetic it is refused as for float32."""
    if platform.machine() != "aarch64" or "asimdhp" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("no arithmetic of float16 here")
    model = model_of(CASES["convolution"])
    shape = [d.dim_value for d in model.graph.input[1].type.tensor_type.shape.dim]
    model.graph.input.pop()
    model.graph.initializer.append(weight(rng, "w", *shape, fan=np.prod(shape[1:])))
    lib = check(model, "float16", rng, fast="fp16", bound=1e-2)
    assert any("half" in impl for impl in kernels(lib))


def test_what_only_moves_elements_stays_narrow():
    model = model_of("a (float[64,48] x) => (float[48,64] y) { r = Relu(x) y = Transpose <perm=[1,0]> (r) }")
    asm = built(narrow.narrowed(model, "float16"), target=NEOVERSE_N1).get_source("asm")
    assert ".8h" in asm and "fcvt" not in asm


def test_dot_products_of_bfloat16(rng):
    """A target that has them multiplies what the model says, bfloat16, and nothing else."""
    model = model_of("a (float[64,256] x) => (float[64,128] y) { z = MatMul(x, w) r = Relu(z) y = MatMul(r, v) }")
    model.graph.initializer.extend([weight(rng, "w", 256, 256, fan=256), weight(rng, "v", 256, 128, fan=256)])
    for dtype, target, instruction in (
        ("bfloat16", NEOVERSE_N2, "bfmmla"),
        ("bfloat16", ZEN4, "vdpbf16ps"),
        ("float16", NEOVERSE_N2, None),
        ("bfloat16", NEOVERSE_N1, None),
    ):
        asm = built(narrow.narrowed(model, dtype), target=target).get_source("asm")
        found = set(re.findall("bfmmla|bfdot|vdpbf16ps", asm))
        assert found == ({instruction} if instruction else set())


def test_the_report_says_what_is_not_faster(tmp_path):
    model = model_of("a (float[4,8] x, float[8,8] w) => (float[4,8] y) { y = MatMul(x, w) }")
    for dtype, said in (("float16", "1 products of float16 are"), ("bfloat16", "1 products of bfloat16 are computed")):
        path = tmp_path / f"{dtype}.onnx"
        onnx.save(narrow.narrowed(model, dtype), str(path))
        done = subprocess.run([str(PROGRAM), "compile", str(path), "-o", str(tmp_path / "m.so"), "--target",
                               "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"], capture_output=True, text=True)
        assert done.returncode == 0 and said in done.stderr, done.stderr
