"""Quantized operators of random sizes: kinds of bench/random_cases.py.

Data is uint8 with a zero point, weights are int8 with a scale for each output channel (products: one scale), as ONNX
Runtime's quantizer writes them."""

import math

import numpy as np


def quantized(c, *values, dtype):
    return c.constant(np.array(values if len(values) > 1 else values[0], dtype))


def output(c, terms):
    """Scale and zero point of a result whose sums have so many terms: most of the range is used."""
    return quantized(c, 0.02 * 0.02 * 73 * 73 * math.sqrt(terms) / 60, dtype="float32"), quantized(c, 128, dtype="uint8")


def data(c, *shape):
    return c.data(*shape, array=c.rng.integers(0, 256, shape).astype("uint8"), open="n.hwd"[: len(shape)])


def convolution(c, plain):
    """A QLinearConv of the sizes that a float convolution would have."""
    plain(c)
    attributes = {a.name: list(a.ints) if a.ints else a.i for a in c.nodes[0].attribute}
    shape, kernel = c.feeds["x0"].shape, [d for d in c.weights[0].dims]
    out = kernel[0]
    c.nodes, c.ports, c.weights, c.feeds = [], [], [], {}
    x = data(c, *shape)
    w = c.constant(c.rng.integers(-127, 128, kernel).astype("int8"))
    scales = c.constant((0.02 * c.rng.uniform(0.5, 1.5, out)).astype("float32"))
    bias = [c.constant(c.rng.integers(-2000, 2000, out).astype("int32"))] if c.chance(0.8) else []
    y = c.op("QLinearConv", x, quantized(c, 0.02, dtype="float32"), quantized(c, 120, dtype="uint8"), w, scales,
             c.constant(np.zeros(out, "int8")), *output(c, math.prod(kernel[1:])), *bias, **attributes)
    c.label = c.label.removesuffix(" relu")
    return y


def product(c):
    m, k, n = c.pick(1, c.log(2, 30), c.log(2, 700)), c.log(8, 2000), c.log(8, 2000)
    c.within(2 * m * k * n)
    x = data(c, m, k)
    w = c.constant(c.rng.integers(-127, 128, (k, n)).astype("int8"))
    y = c.op("QLinearMatMul", x, quantized(c, 0.02, dtype="float32"), quantized(c, 120, dtype="uint8"), w,
             quantized(c, 0.02, dtype="float32"), quantized(c, 0, dtype="int8"), *output(c, k))
    c.label = f"{m}x{k} by {k}x{n}"
    return y


def batched(c):
    """Both operands are data, as in attention."""
    b, m, k, n = c.log(1, 24), c.log(1, 400), c.log(8, 400), c.log(1, 400)
    c.within(2 * b * m * k * n)
    x, w = data(c, b, m, k), data(c, b, k, n)
    y = c.op("QLinearMatMul", x, quantized(c, 0.02, dtype="float32"), quantized(c, 120, dtype="uint8"), w,
             quantized(c, 0.02, dtype="float32"), quantized(c, 131, dtype="uint8"), *output(c, k))
    c.label = f"{b} of {m}x{k} by {k}x{n}"
    return y
