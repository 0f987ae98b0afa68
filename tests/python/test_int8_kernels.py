"""Kernels over bytes: by meaning and compiled they agree exactly, and they are the ones that are meant."""

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe._ffi import call

Q = relay.qnn.op
LLVM = bool(call("build_info")[0])
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def const(v, dtype="int32"):
    return relay.const(np.asarray(v, dtype))


def compiled(expr, feeds, target="llvm -mcpu=native" if LLVM else "c"):
    """The result, which is the interpreter's to the bit, and the implementations of the kernels."""
    f = relay.Function(relay.analysis.free_vars(expr), expr)
    mod = lathe.IRModule.from_expr(f)
    want = relay.create_executor("debug", mod).evaluate()(*[feeds[p.name_hint] for p in f.params]).numpy()
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target)
    model = lathe.contrib.graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for name, value in feeds.items():
        model.set_input(name, value)
    model.run()
    np.testing.assert_array_equal(model.get_output(0).numpy(), want)
    return want, [node.impl for node in lib.model.nodes()]


def assembly(expr, target):
    f = relay.Function(relay.analysis.free_vars(expr), expr)
    with lathe.transform.PassContext(opt_level=3):
        return relay.build(lathe.IRModule.from_expr(f), target=target).get_source("asm")


def swish(x, scale, zero, out, dtype):
    """x * clip(x / 6 + 1/2, 0, 1), between dequantize and quantize."""
    real = Q.dequantize(x, const(scale, "float32"), const(zero))
    gate = relay.clip(real * const(1 / 6, "float32") + const(0.5, "float32"), 0, 1)
    return Q.quantize(real * gate, const(out, "float32"), const(zero // 2), out_dtype=dtype)


@pytest.mark.parametrize("dtype, zero", [("int8", -7), ("uint8", 121)])
@pytest.mark.parametrize("size", [1, 7, 16, 23, 64, 200])
def test_lookup(dtype, zero, size):
    info = np.iinfo(dtype)
    data = np.arange(info.min, info.max + 1).astype(dtype)
    data = np.resize(data[:: max(1, 256 // size)], (3, size))
    x = relay.var("x", shape=data.shape, dtype=dtype)
    want, _ = compiled(swish(x, 0.05, zero, 0.03, dtype), {"x": data})
    real = (data.astype("float32") - np.float32(zero)) * np.float32(0.05)
    gate = np.clip(real * np.float32(1 / 6) + np.float32(0.5), 0, 1)
    near = np.clip(np.round(real * gate / np.float32(0.03)) + zero // 2, info.min, info.max)
    np.testing.assert_array_equal(want, near)


@pytest.mark.skipif(not LLVM, reason="it looks for instructions in LLVM's assembly")
def test_lookup_instructions():
    text = assembly(swish(relay.var("x", shape=(64, 64), dtype="int8"), 0.05, 3, 0.03, "int8"), ARM)
    assert text.count("tbx") >= 3 and "fdiv" not in text


def conv(data, weight, zero, **attrs):
    """With a scale for each output channel, and a zero point of zero for each."""
    out = weight.shape[0]
    sums = Q.conv2d(relay.var("x", shape=data.shape, dtype=str(data.dtype)), relay.const(weight), const(zero),
                    const(np.zeros(out)), const(0.5, "float32"), const(np.full(out, 0.25), "float32"),
                    kernel_size=weight.shape[2:], channels=out, **attrs)
    scale = const(np.linspace(1e-3, 3e-3, out), "float32")
    return Q.requantize(sums, scale, const(0), const(1.0, "float32"), const(-3), axis=1, out_dtype="int8")


@pytest.mark.parametrize("dtype, zero", [("uint8", 124), ("int8", -4)])
def test_first_convolution(rng, dtype, zero):
    """Three channels and a scale for each output channel: words of four, not the generic loops."""
    data = rng.integers(0, 100, (1, 3, 19, 23)).astype(dtype)
    weight = rng.integers(-128, 128, (16, 3, 3, 3)).astype("int8")
    _, impls = compiled(conv(data, weight, zero, strides=(2, 2), padding=(1, 1)), {"x": data})
    assert not has_dot() or "conv2d.int8" in impls


def has_dot():
    return LLVM and any(f in lathe.target.Target("llvm -mcpu=native").features for f in ("dotprod", "avx512vnni"))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kernel, stride, dilation, width", [(3, 1, 1, 5), (3, 2, 1, 17), (5, 1, 1, 9), (3, 1, 2, 8)])
def test_depthwise(rng, dtype, kernel, stride, dilation, width):
    """The least values by the least: products of 16 bits do not overflow."""
    info = np.iinfo(dtype)
    data = rng.choice([info.min, info.max, 0, 5], (2, 32, 11, width)).astype(dtype)
    weight = rng.choice([-128, -127, 127, 1], (32, 1, kernel, kernel)).astype("int8")
    expr = conv(data, weight, 100 if dtype == "uint8" else -50, groups=32, strides=(stride, stride),
                dilation=(dilation, dilation), padding=(kernel // 2, kernel // 2))
    _, impls = compiled(expr, {"x": data})
    assert not LLVM or "conv2d.depthwise_int8" in impls


@pytest.mark.skipif(not LLVM, reason="it looks for instructions in LLVM's assembly")
def test_depthwise_instructions(rng):
    """Whole registers of bytes are multiplied, and added from 16 bits."""
    data = np.zeros((1, 64, 14, 14), "int8")
    weight = rng.integers(-128, 128, (64, 1, 3, 3)).astype("int8")
    text = assembly(conv(data, weight, 3, groups=64, padding=(1, 1)), ARM)
    assert text.count("smull2") >= 6 and text.count("saddw2") >= 12


@pytest.mark.parametrize("channels, out", [(5, 17), (6, 7), (18, 100), (1, 3)])
def test_odd_channels(rng, channels, out):
    """Words and blocks that are not full; a second convolution takes them as they are."""
    data = rng.integers(-128, 128, (2, channels, 9, 11)).astype("int8")
    first = rng.integers(-128, 128, (out, channels, 3, 3)).astype("int8")
    second = relay.const(rng.integers(-128, 128, (9, out, 1, 1)).astype("int8"))
    bias = relay.const(rng.integers(-900, 900, (1, out, 1, 1)).astype("int32"))
    unit, none = const(1.0, "float32"), const(0)
    sums = Q.conv2d(relay.var("x", shape=data.shape, dtype="int8"), relay.const(first), const(3), const(np.zeros(out)),
                    unit, const(np.full(out, 0.25), "float32"), (3, 3), out, padding=(1, 1))
    scale = const(np.linspace(1e-3, 3e-3, out), "float32")
    y = Q.requantize(sums + bias, scale, none, unit, const(-3), axis=1, out_dtype="int8")
    z = Q.conv2d(y, second, const(-3), none, unit, unit, (1, 1), 9)
    _, impls = compiled(z, {"x": data})
    assert not has_dot() or impls.count("conv2d.int8") == 2
    compiled(relay.nn.relu(y), {"x": data})


@pytest.mark.parametrize("channels", [3, 21, 50])
def test_odd_depthwise(rng, channels):
    data = rng.integers(-128, 128, (1, channels, 9, 10)).astype("int8")
    weight = rng.integers(-128, 128, (channels, 1, 3, 3)).astype("int8")
    _, impls = compiled(conv(data, weight, 4, groups=channels, padding=(1, 1)), {"x": data})
    assert not has_dot() or "conv2d.depthwise_int8" in impls


@pytest.mark.parametrize("rows, inner, units", [(1, 59, 10), (9, 30, 33), (40, 16, 3)])
def test_odd_dense(rng, rows, inner, units):
    data = rng.integers(-128, 128, (rows, inner)).astype("int8")
    weight = relay.const(rng.integers(-128, 128, (units, inner)).astype("int8"))
    unit, none = const(1.0, "float32"), const(0)
    sums = Q.dense(relay.var("x", shape=data.shape, dtype="int8"), weight, const(-9), none, unit, unit, units)
    bias = const(rng.integers(-900, 900, units))
    y = Q.requantize(sums + bias, const(2e-3, "float32"), none, unit, const(5), out_dtype="int8")
    _, impls = compiled(y, {"x": data})
    assert not has_dot() or "matmul.int8" in impls


@pytest.mark.parametrize("cpu, instruction", [
    ("haswell", "vpmaddwd"),
    ("skylake-avx512", "vpmaddwd"),
    ("alderlake", "vpdpbusd"),
    ("icelake-server", "vpdpbusd"),
])  # fmt: skip
@pytest.mark.skipif(not LLVM, reason="it looks for instructions in LLVM's assembly")
def test_convolution_instructions(rng, cpu, instruction):
    """Convolutions on x86 sum words of bytes too."""
    weight = rng.integers(-128, 128, (64, 64, 1, 1)).astype("int8")
    text = assembly(conv(np.zeros((1, 64, 8, 8), "int8"), weight, 3), f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    assert text.count(instruction) >= 8
