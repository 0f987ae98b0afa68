"""A backend for an accelerator: the simulated NPU of backends/npu.c, brought in through UMA.

    PYTHONPATH=python python3 examples/npu/npu.py

The machine multiplies tiles of 16 x 16 int8 out of scratchpads that a DMA engine fills; backends/npu.c tells its
instructions.  Here are the patterns that it takes (qnn.conv2d and qnn.dense up to their requantize), and the compiler
that makes a stream of instructions of each.  What it does not take stays with Lathe, in the same model."""

import json
import math
import struct

import numpy as np

import lathe
from lathe import relay
from lathe.contrib import graph_executor
from lathe.relay.backend.contrib import Graph, Module
from lathe.relay.backend.contrib.uma import UMABackend
from lathe.relay.dataflow_pattern import is_constant, is_op, wildcard

TILE = 16
LOAD, FILL, STORE, BIAS, PRODUCT, RESCALE = range(1, 7)
INPUT, WEIGHT = 0, 1
MOST_DEPTH = 2048  # so that 16 rows of weights, and 16 of the input, fit a scratchpad
PARAMS = 48 * 1024  # where bias, multipliers and shifts of 16 units lie in the scratchpad of weights


# ---- what it takes


def anchor_of(expr):
    """The convolution or product that a match ends in, and the requantize."""
    last = expr if expr.op.name == "qnn.requantize" else expr.args[0]
    call = last.args[0]
    return (call if call.op.name.startswith("qnn.") else call.args[0]), last


def sizes(expr):
    """Dimensions of a tensor; None where one is not known."""
    found = [getattr(d, "value", d) for d in expr.checked_type.shape]
    return found if all(isinstance(d, int) for d in found) else None


def takes(expr):
    """Is the match one that the machine computes?"""
    call, last = anchor_of(expr)
    x, w = call.args[:2]
    if sizes(x) is None or any(t.checked_type.dtype != "int8" for t in (x, w, expr)):
        return False
    if np.any(call.args[3].data.numpy()) or np.any(last.args[2].data.numpy()):  # weights, sums: zero points of 0
        return False
    if last.attrs.get("rounding") == "TONEAREST" or last.attrs.get("compute_dtype", "None") not in ("None", "int64"):
        return False
    channel = 1 if call.op.name == "qnn.conv2d" else len(sizes(x)) - 1
    if last.args[0] != call and not is_bias(last.args[0], call, channel):
        return False
    if last.attrs.axis % len(sizes(expr)) != channel and last.args[1].data.numpy().size > 1:
        return False
    if int(np.prod(sizes(w)[1:])) > MOST_DEPTH or np.max(ratio(last.args[1], last.args[3])) > 2**20:
        return False
    if call.op.name == "qnn.dense":
        return len(sizes(x)) == 2
    a = call.attrs
    return a.groups == 1 and a.data_layout == "NCHW" and a.kernel_layout == "OIHW"


def is_bias(total, call, channel):
    """Does the addition put one number on each channel?"""
    out, shape = sizes(call), sizes(total.args[1])
    if total.op.name == "nn.bias_add":
        return total.attrs.axis % len(out) == channel
    return [1] * (len(out) - len(shape)) + shape == [d if i == channel else 1 for i, d in enumerate(out)]


def ratio(scale_in, scale_out):
    """The factor of a requantize."""
    return scale_in.data.numpy().astype("float64") / scale_out.data.numpy().astype("float64")


def pattern(op):
    """op, a bias, requantize, clip: the bias and the clip may be missing."""
    numbers = [is_constant() for _ in range(4)]
    anchor = is_op(op)(wildcard(), is_constant(), *numbers)
    biased = is_op("nn.bias_add")(anchor, is_constant()) | is_op("add")(anchor, is_constant()) | anchor
    requantized = is_op("qnn.requantize")(biased, *[is_constant() for _ in range(4)])
    return is_op("clip")(requantized) | requantized


# ---- from a kernel to instructions


def fixed_point(factor):
    """factor = multiplier * 2^-shift, the multiplier of 31 bits; as Lathe's qnn.requantize has it."""
    mantissa, exponent = math.frexp(factor)
    multiplier = round(mantissa * 2**31)
    if multiplier == 2**31:
        multiplier, exponent = 2**30, exponent + 1
    return (multiplier, 31 - exponent) if 31 - exponent <= 62 else (0, 62)


class Stream:
    """Instructions of one kernel."""

    def __init__(self):
        self.code = b""

    def put(self, op, *fields, pad=0, tensor=0):
        """One more."""
        self.code += struct.pack("<BBH7i", op, pad, tensor, *fields, *[0] * (7 - len(fields)))


class Layer:
    """A kernel in numbers: weights (units, depth), bias with the input's zero point in it, factors, limits."""

    def __init__(self, k):
        values = [t.array for t in k.inputs]
        anchor = k.ops[0]
        self.conv = k.attrs[anchor] if anchor == "qnn.conv2d" else None
        self.shape, self.out = k.inputs[0].shape, k.outputs[0].shape
        weight = values[1].reshape(len(values[1]), -1)
        self.units, self.depth = weight.shape
        self.kernel = values[1].shape[2:]
        self.zero_in, self.zero_out = int(values[2]), int(values[-1])
        bias = values[6].reshape(-1).astype("int64") if len(k.inputs) > 10 else np.zeros(self.units, "int64")
        bias = np.broadcast_to(bias, self.units) - self.zero_in * weight.astype("int64").sum(1)
        factors = np.broadcast_to(values[-4].astype("float64") / values[-2].astype("float64"), self.units)
        fixed = [fixed_point(f) for f in factors]
        tiles = -(-self.units // TILE)
        params = np.zeros((3, tiles * TILE), "int64")
        params[0, : self.units] = bias
        params[1, : self.units], params[2, : self.units] = zip(*fixed)
        self.params = params.reshape(3, tiles, TILE).transpose(1, 0, 2).astype("int32").copy()
        self.weight = weight
        clip = k.attrs.get("clip", {})
        low, high = max(-128, math.ceil(clip.get("a_min", -128))), min(127, math.floor(clip.get("a_max", 127)))
        self.limits = (low & 255) | (high & 255) << 8


def compile_layer(layer, x, y, weight, params):
    """The stream for tensors of these numbers: weights of 16 units stay while the input passes by."""
    s = Stream()
    padded = -(-layer.depth // TILE) * TILE
    for j, unit in enumerate(range(0, layer.units, TILE)):
        units = min(TILE, layer.units - unit)
        s.put(FILL, 0, TILE, padded, 0, 0, padded, 0, pad=WEIGHT)
        s.put(LOAD, unit * layer.depth, units, layer.depth, layer.depth, 0, padded, 1, pad=WEIGHT, tensor=weight)
        s.put(LOAD, j * 12 * TILE, 1, 12 * TILE, 0, PARAMS, 0, 1, pad=WEIGHT, tensor=params)
        walk = rows_of_conv if layer.conv else rows_of_dense
        for (row, column), store in walk(s, layer, x, padded, unit, units):
            s.put(BIAS, 0, PARAMS)
            for k in range(0, padded, TILE):
                s.put(PRODUCT, k * column, row, column, k, padded, 1, 0)
            across, down = (1, TILE) if layer.conv else (TILE, 1)
            s.put(RESCALE, 0, PARAMS + 4 * TILE, 0, across, down, layer.zero_out, layer.limits)
            s.put(STORE, *store, 0, TILE, tensor=y)
    return s.code.hex()


def rows_of_dense(s, layer, x, padded, unit, units):
    """Brings 16 rows at a time into the scratchpad; gives their strides there, and where results go."""
    for i in range(0, layer.shape[0], TILE):
        rows = min(TILE, layer.shape[0] - i)
        s.put(LOAD, i * layer.depth, rows, layer.depth, layer.depth, 0, padded, 1, pad=INPUT, tensor=x)
        yield (padded, 1), (i * layer.units + unit, rows, units, layer.units)


def rows_of_conv(s, layer, x, padded, unit, units):
    """The same for 16 places of a row of the output: column (c, ky, kx) of the patch lies at 16 * that number."""
    batch, channels, h, w = layer.shape
    kh, kw = layer.kernel
    _, _, oh, ow = layer.out
    a = layer.conv
    (sy, sx), (dy, dx), pad = a["strides"], a["dilation"], list(a["padding"])
    top, left = (pad * 2)[:2] if len(pad) < 4 else pad[:2]
    for n, oy, ox in np.ndindex(batch, oh, -(-ow // TILE)):
        ox *= TILE
        s.put(FILL, 0, 1, padded * TILE, 0, 0, 0, layer.zero_in, pad=INPUT)  # what lies outside is the zero point
        for ky, kx in np.ndindex(kh, kw):
            iy = oy * sy + ky * dy - top
            first = ox * sx + kx * dx - left  # the column of the first place
            skip = max(0, -(first // sx)) if first < 0 else 0
            end = min(TILE, ow - ox, (w - 1 - first) // sx + 1)
            if 0 <= iy < h and skip < end:
                start = (n * channels * h + iy) * w + first + skip * sx
                to = (ky * kw + kx) * TILE + skip
                s.put(LOAD, start, channels, end - skip, h * w, to, TILE * kh * kw, sx, pad=INPUT, tensor=x)
        yield (1, TILE), (((n * layer.units + unit) * oh + oy) * ow + ox, units, min(TILE, ow - ox), oh * ow)


def generate(func):
    """A function of the model as a graph for backends/npu.c."""
    g = Graph(func)
    tensors, number, values = [], {}, {}

    def add(name, shape, dtype):
        tensors.append({"name": name, "shape": list(shape), "dtype": dtype})
        return len(tensors) - 1

    for t in g.tensors:
        if t.constant is None:
            number[t.id] = add(t.name, t.shape, t.dtype)
    kernels = []
    for i, k in enumerate(g.kernels):
        layer = Layer(k)
        numbers = []
        for what, value in (("weight", layer.weight), ("params", layer.params)):
            values[f"{g.symbol}_{what}_{i}"] = value
            numbers.append(add(f"{g.symbol}_{what}_{i}", value.shape, str(value.dtype)))
        x, y = number[k.inputs[0].id], number[k.outputs[0].id]
        program = compile_layer(layer, x, y, *numbers)
        kernels.append({"name": k.name, "inputs": [x, *numbers], "outputs": [y], "program": program})
    graph = {
        "version": 1, "symbol": g.symbol, "tensors": tensors, "kernels": kernels,
        "inputs": [number[t.id] for t in g.inputs], "outputs": [number[t.id] for t in g.outputs],
        "constants": [c for k in kernels for c in k["inputs"][1:]],
    }  # fmt: skip
    return Module("npu", json.dumps(graph), values)


class NpuBackend(UMABackend):
    """The simulated machine."""

    def __init__(self):
        super().__init__()
        for op in ("qnn.conv2d", "qnn.dense"):
            self._register_pattern(op.split(".")[1], pattern(op), takes)
        self._register_codegen(fmt="module", generate=generate)

    @property
    def target_name(self):
        return "npu"


# ---- a model that uses it


def model(rng):
    """Two convolutions and a product of int8; the average between them stays with Lathe."""
    scale, zero = lambda v: relay.const(np.float32(v)), lambda v: relay.const(np.int32(v))  # noqa: E731
    bytes_ = lambda *shape: relay.const(rng.integers(-127, 128, shape, "int8"))  # noqa: E731
    bias = lambda n: relay.const(rng.integers(-900, 900, n, "int32"))  # noqa: E731
    x = relay.var("x", shape=(1, 3, 17, 21), dtype="int8")
    y = relay.qnn.op.conv2d(x, bytes_(24, 3, 3, 3), zero(-7), zero(0), scale(0.05), scale(0.01), kernel_size=(3, 3),
                            channels=24, strides=(2, 2), padding=(1, 1))  # fmt: skip
    y = relay.nn.bias_add(y, bias(24))
    y = relay.clip(relay.qnn.op.requantize(y, scale(0.0005), zero(0), scale(0.03), zero(3), axis=1), 3, 127)
    y = relay.qnn.op.conv2d(y, bytes_(10, 24, 3, 3), zero(3), zero(0), scale(0.03), scale(0.01), kernel_size=(3, 3),
                            channels=10, padding=(0, 1, 2, 1), dilation=(2, 1))  # fmt: skip
    factors = relay.const(rng.uniform(1e-5, 9e-4, 10).astype("float32"))
    y = relay.qnn.op.requantize(y, factors, zero(0), scale(0.08), zero(-5), axis=1)
    y = relay.cast(relay.nn.global_avg_pool2d(relay.cast(y, "float32")), "int8")
    y = relay.qnn.op.dense(relay.nn.batch_flatten(y), bytes_(40, 10), zero(-5), zero(0), scale(0.08), scale(0.02))
    y = relay.qnn.op.requantize(relay.nn.bias_add(y, bias(40)), scale(0.0016), zero(0), scale(0.1), zero(0))
    return lathe.IRModule.from_expr(relay.Function([x], y))


def main():
    backend = NpuBackend()
    backend.register()
    rng = np.random.default_rng(0)
    mod = relay.transform.InferType()(model(rng))
    part = backend.partition(mod)
    print(part)
    m = graph_executor.GraphModule(relay.build(part, target="llvm")["default"](lathe.cpu(0)))
    x = rng.integers(-128, 128, (1, 3, 17, 21), "int8")
    m.run(x=x)
    want = relay.create_executor("debug", mod).evaluate()(x).numpy()
    np.testing.assert_array_equal(m.get_output(0).numpy(), want)
    print("the machine and the interpreter agree in every byte")


if __name__ == "__main__":
    main()
