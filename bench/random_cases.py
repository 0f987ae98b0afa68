"""Small models of random sizes, for bench/shapes.py and bench/regret.py.

A case is one operator (with bias and ReLU where networks have them; attention is a few nodes) whose sizes are
drawn log-uniformly and rounded to nothing.  draw(seed, kind, number) always gives the same case: each
has random numbers of its own, so a case can be looked at alone."""

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

import int8_cases

OPSET = 21
LEAST, MOST = 2e5, 2e9  # floating-point operations of a case of products
LEAST_ELEMENTS, MOST_ELEMENTS = 1 << 12, 1 << 22  # of an operand where there are none


class TooLarge(Exception):
    """Sizes out of bounds: they are drawn again."""


class Case:
    """A model under construction, and what the benchmark wants to know of it."""

    def __init__(self, rng, dtype, open=False):
        self.rng, self.dtype, self.open = rng, np.dtype(dtype), open
        self.nodes, self.ports, self.weights, self.feeds = [], [], [], {}
        self.label, self.flops, self.blas = "", 0, None

    # -- numbers

    def log(self, low, high):
        """A whole number whose logarithm is uniform."""
        return int(round(math.exp(self.rng.uniform(math.log(low), math.log(high)))))

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, p):
        return bool(self.rng.random() < p)

    def within(self, flops):
        """These are the operations of the case; too few or too many are refused."""
        if not LEAST <= flops <= MOST:
            raise TooLarge
        self.flops = int(flops)

    def fits(self, *shapes):
        """Where memory is what counts: the largest of the shapes is in bounds."""
        if not LEAST_ELEMENTS <= max(math.prod(s) for s in shapes) <= MOST_ELEMENTS:
            raise TooLarge

    # -- the graph

    def value(self, shape, fan=1):
        return (self.rng.standard_normal(shape, "float32") / np.float32(math.sqrt(fan))).astype(self.dtype)

    def data(self, *shape, array=None, open=""):
        """An input of the model.  open: a letter for each dimension that the model leaves open when it is asked to, a
        dot for one that it must know; the same letter, the same size."""
        name = f"x{len(self.ports)}"
        x = self.value(shape) if array is None else array
        letters = open.ljust(len(shape), ".") if self.open else "." * len(shape)
        dims = [size if letter == "." else letter for size, letter in zip(shape, letters)]
        self.ports.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), dims))
        self.feeds[name] = x
        return name

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def weight(self, *shape, fan=1):
        return self.constant(self.value(shape, fan))

    def numbers(self, *values):
        return self.constant(np.array(values, "int64"))

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"y{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def finish(self, results):
        """The model, once everything is in place."""
        results = [results] if isinstance(results, str) else results
        outs = [onnx.ValueInfoProto(name=name) for name in results]
        graph = helper.make_graph(self.nodes, "case", self.ports, outs, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        self.model = shape_inference.infer_shapes(made, strict_mode=True)


def by(sizes):
    return "x".join(map(str, sizes))


# ---- convolutions


def epilogue(c, y):
    """ReLU behind most layers."""
    return (c.op("Relu", y), " relu") if c.chance(0.7) else (y, "")


def window(c, rank):
    """Kernel, stride, dilation and padding of each axis; mostly the same for all."""

    def one():
        k = c.pick(1, 1, 1, 2, 3, 3, 3, 3, 4, 5, 5, 6, 7)
        return k, c.pick(1, 1, 1, 2, 3) if k > 1 else c.pick(1, 1, 1, 2), c.pick(1, 1, 1, 2, 3) if k > 1 else 1

    axes = [one()] * rank if c.chance(0.8) else [one() for _ in range(rank)]
    kernel, stride, dilation = (list(x) for x in zip(*axes))
    same = c.chance(0.75)
    pad = [(k - 1) * d // 2 if same else c.pick(0, 0, 1) if k > 1 else 0 for k, d in zip(kernel, dilation)]
    return kernel, stride, dilation, pad


def convolution(c, rank, groups_of):
    n = c.pick(1, 1, 1, 2, 3, 4)
    cin, cout = c.log(3, 700), c.log(3, 700)
    groups, cin, cout = groups_of(c, cin, cout)
    size = [c.log(*{1: (20, 4000), 2: (5, 250), 3: (4, 40)}[rank]) for _ in range(rank)]
    if c.chance(0.7):
        size = [size[0]] * rank
    kernel, stride, dilation, pad = window(c, rank)
    out = [(s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, d, p in zip(size, kernel, stride, dilation, pad)]
    if min(out) < 1:
        raise TooLarge
    c.within(2 * n * cout * math.prod(out) * (cin // groups) * math.prod(kernel))
    x = c.data(n, cin, *size, open="n.hwd"[: rank + 2])
    w = c.weight(cout, cin // groups, *kernel, fan=cin // groups * math.prod(kernel))
    bias = [c.weight(cout)] if c.chance(0.8) else []
    y = c.op("Conv", x, w, *bias, group=groups, strides=stride, dilations=dilation, pads=pad * 2)
    y, relu = epilogue(c, y)
    c.label = f"{n}x{cin}x{by(size)} to {cout}, {by(kernel)}"
    c.label += f" groups {groups}" * (groups > 1) + f" stride {by(stride)}" * (max(stride) > 1)
    c.label += (
        f" dilation {by(dilation)}" * (max(dilation) > 1)
        + f" pad {by(pad)}" * (max(pad) > 0)
        + " bias" * len(bias)
        + relu
    )
    return y


def conv(c):
    return convolution(c, 2, lambda c, i, o: (1, i, o))


def conv1d(c):
    return convolution(c, 1, lambda c, i, o: (1, i, o))


def conv3d(c):
    return convolution(c, 3, lambda c, i, o: (1, i, o))


def grouped(c):
    def groups(c, cin, cout):
        if c.chance(0.35):  # depthwise, now and then with several channels from each
            return cin, cin, cin * c.pick(1, 1, 1, 1, 2, 3)
        g = c.log(2, 40)
        return g, g * max(1, round(cin / g)), g * max(1, round(cout / g))

    return convolution(c, 2, groups)


def transposed(c):
    n, cin, cout = c.pick(1, 1, 2, 4), c.log(3, 512), c.log(3, 512)
    groups = c.pick(1, 1, 1, 1, c.log(2, 16))
    cin, cout = groups * max(1, cin // groups), groups * max(1, cout // groups)
    size = [c.log(4, 100)] * 2
    k, stride = c.pick(2, 3, 4, 5), c.pick(1, 2, 2, 3)
    pad = min(c.pick(0, 1), k // 2)
    c.within(2 * n * cout * math.prod(size) * (cin // groups) * k * k)
    bias = [c.weight(cout)] if c.chance(0.8) else []
    w = c.weight(cin, cout // groups, k, k, fan=cin // groups * k * k)
    y = c.op(
        "ConvTranspose",
        c.data(n, cin, *size, open="n.hw"),
        w,
        *bias,
        group=groups,
        strides=[stride] * 2,
        pads=[pad] * 4,
    )
    y, relu = epilogue(c, y)
    c.label = f"{n}x{cin}x{by(size)} to {cout}, {k}x{k}" + f" groups {groups}" * (groups > 1)
    c.label += f" stride {stride}" * (stride > 1) + f" pad {pad}" * pad + " bias" * len(bias) + relu
    return y


# ---- products


def product(c):
    m, k, n = c.pick(c.log(1, 2048), c.log(1, 32)), c.log(4, 4096), c.log(4, 4096)
    c.within(2 * m * k * n)
    constant, gemm = c.chance(0.6), c.chance(0.4)
    ta, tb = gemm and c.chance(0.15), gemm and c.chance(0.6)
    a, b = c.value((k, m) if ta else (m, k)), c.value((n, k) if tb else (k, n), fan=k)
    x = c.data(*a.shape, array=a, open=".m" if ta else "m.")
    w = c.constant(b) if constant else c.data(*b.shape, array=b)
    more = c.chance(0.4)
    c.label = f"{m}x{k}x{n} {'constant' if constant else 'input'}" + " transposed A" * ta + " transposed B" * tb
    if gemm:
        y = c.op("Gemm", x, w, *([c.weight(n)] if more else []), transA=int(ta), transB=int(tb))
    else:
        y = c.op("MatMul", x, w)
        y = c.op("Add", y, c.weight(n)) if more else y
    if more:
        y, relu = epilogue(c, y)
        c.label += " bias" + relu
    elif c.dtype == np.float32:  # what a BLAS computes, too
        out = np.empty((m, n), "float32")
        c.blas = lambda: np.matmul(a.T if ta else a, b.T if tb else b, out=out)
    return y


def batched(c):
    lead = [c.log(2, 64)] if c.chance(0.5) else [c.pick(1, 2, 3), c.log(2, 32)]
    m, k, n = c.log(1, 700), c.log(2, 700), c.log(1, 700)
    c.within(2 * math.prod(lead) * m * k * n)
    first = c.chance(0.15)  # one matrix for all of the last batch dimension
    a, b = c.value((*lead, m, k)), c.value((*lead[:-1], 1, k, n) if first else (*lead, k, n))
    c.label = f"{by(a.shape)} times {by(b.shape)}"
    if c.dtype == np.float32:
        out = np.empty((*lead, m, n), "float32")
        c.blas = lambda: np.matmul(a, b, out=out)
    batch = "nh"[-len(lead) :]
    x = c.data(*a.shape, array=a, open=batch + "m")
    return c.op("MatMul", x, c.data(*b.shape, array=b, open=batch[:-1] + "." if first else batch))


def attention(c):
    n, heads, size = c.pick(1, 1, 2, 4), c.log(1, 24), c.log(16, 160)
    queries = c.log(1, 700)
    keys, t = (queries, "s") if c.chance(0.7) else (c.log(2, 700), "t")
    c.within(4 * n * heads * queries * keys * size)
    together = c.chance(0.5)  # heads side by side, as projections leave them
    c.label = f"{n} x {heads} heads, {queries} queries, {keys} keys, size {size}" + " projected" * together

    def operand(length, perm, letter):
        if not together:
            x = c.data(n, heads, length, size, open=f"n.{letter}")
            return x if perm == (0, 2, 1, 3) else c.op("Transpose", x, perm=[0, 1, 3, 2])
        x = c.op("Reshape", c.data(n, length, heads * size, open=f"n{letter}"), c.numbers(0, 0, heads, size))
        return c.op("Transpose", x, perm=list(perm))

    q, k, v = operand(queries, (0, 2, 1, 3), "s"), operand(keys, (0, 2, 3, 1), t), operand(keys, (0, 2, 1, 3), t)
    s = c.op("Mul", c.op("MatMul", q, k), c.constant(np.array(size**-0.5, c.dtype)))
    if c.chance(0.5):
        shape, letters = c.pick(((n, 1, 1, keys), f"n..{t}"), ((1, 1, queries, keys), f"..s{t}"))
        seen = c.rng.random(shape) < 0.8
        seen[..., 0] = True
        s = c.op("Add", s, c.data(*shape, array=np.where(seen, 0, -1e4).astype(c.dtype), open=letters))
        c.label += f" mask {by(shape)}"
    y = c.op("MatMul", c.op("Softmax", s, axis=-1), v)
    if together:
        y = c.op("Reshape", c.op("Transpose", y, perm=[0, 2, 1, 3]), c.numbers(0, 0, heads * size))
    return y


def recurrent(c):
    op, gates = c.pick(("LSTM", 4), ("GRU", 3))
    steps, n, size, hidden, ways = c.log(2, 200), c.pick(1, 1, 2, 5), c.log(8, 400), c.log(8, 400), c.pick(1, 2)
    c.within(2 * ways * steps * n * gates * hidden * (size + hidden))
    x = c.data(steps, n, size, open="sn")
    w, r = c.weight(ways, gates * hidden, size, fan=size), c.weight(ways, gates * hidden, hidden, fan=hidden)
    b = c.weight(ways, 2 * gates * hidden, fan=9)
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    c.label = f"{op} {steps} steps of {n}x{size}, hidden {hidden}" + " both ways" * (ways == 2)
    way = "bidirectional" if ways == 2 else "forward"
    return c.op(op, x, w, r, b, outputs=3 if op == "LSTM" else 2, hidden_size=hidden, direction=way, **more)


# ---- where memory counts


def picture(c):
    shape = (c.pick(1, 1, 2, 4), c.log(3, 600), c.log(5, 250), c.log(5, 250))
    c.fits(shape)
    return shape


def pool(c):
    shape = picture(c)
    if c.chance(0.2):
        op = c.pick("GlobalAveragePool", "GlobalMaxPool")
        c.label = f"{op} {by(shape)}"
        return c.op(op, c.data(*shape, open="n.hw"))
    op, k, stride = c.pick("MaxPool", "AveragePool"), c.pick(2, 3, 3, 5, 7), c.pick(1, 2, 2, 3)
    pad = c.pick(0, k // 2)
    c.label = f"{op} {by(shape)}, {k}x{k} stride {stride}" + f" pad {pad}" * (pad > 0)
    return c.op(op, c.data(*shape, open="n.hw"), kernel_shape=[k, k], strides=[stride] * 2, pads=[pad] * 4)


def norm(c):
    op = c.pick(
        "LayerNormalization",
        "LayerNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "BatchNormalization",
        "LRN",
    )
    if op == "LayerNormalization":
        shape = (c.pick(1, 2, 4), c.log(1, 1000), c.log(16, 4096))
        c.fits(shape)
        c.label = f"{op} {by(shape)}"
        return c.op(op, c.data(*shape, open="ns"), c.weight(shape[-1]), c.weight(shape[-1]), axis=-1)
    shape = picture(c)
    channels, more = shape[1], {}
    if op == "GroupNormalization":
        more = {"num_groups": c.pick(*(g for g in range(1, min(channels, 64) + 1) if channels % g == 0))}
    c.label = f"{op} {by(shape)}" + "".join(f" {k} {v}" for k, v in more.items())
    if op == "LRN":
        return c.op(op, c.data(*shape, open="n.hw"), size=c.pick(3, 5, 7))
    weights = [c.weight(channels), c.weight(channels)]
    if op == "BatchNormalization":
        weights += [c.weight(channels), c.constant(np.abs(c.value((channels,))) + c.dtype.type(0.5))]
    return c.op(op, c.data(*shape, open="n.hw"), *weights, **more)


def any_shape(c, ranks=(2, 3, 4), least=1, most=1000):
    shape = tuple(c.log(least, most) for _ in range(c.pick(*ranks)))
    c.fits(shape)
    return shape


def reduce(c):
    shape = any_shape(c)
    axes = sorted(c.rng.choice(len(shape), c.pick(*range(1, len(shape) + 1)), replace=False).tolist())
    op = c.pick("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceMin", "ArgMax")
    if op == "ArgMax":
        c.label = f"{op} {by(shape)} axis {axes[0]}"
        return c.op(op, c.data(*shape, open="abcd"[: len(shape)]), axis=axes[0], keepdims=0)
    c.label = f"{op} {by(shape)} axes {by(axes)}"
    return c.op(op, c.data(*shape, open="abcd"[: len(shape)]), c.numbers(*axes), keepdims=c.pick(0, 1))


def softmax(c):
    shape = any_shape(c)
    op, axis = c.pick("Softmax", "Softmax", "Softmax", "LogSoftmax"), c.pick(
        len(shape) - 1, len(shape) - 1, *range(len(shape))
    )
    c.label = f"{op} {by(shape)} axis {axis}"
    return c.op(op, c.data(*shape, open="abcd"[: len(shape)]), axis=axis)


def activation(c):
    shape = any_shape(c, (1, 2, 3, 4))
    op = c.pick("Relu", "Sigmoid", "Tanh", "Gelu", "HardSwish", "Erf", "Exp", "Elu", "Softplus")
    c.label = f"{op} {by(shape)}"
    return c.op(op, c.data(*shape, open="abcd"[: len(shape)]))


def arithmetic(c):
    shape = any_shape(c)
    op, other = c.pick("Add", "Mul", "Sub", "Div"), tuple(s if c.chance(0.7) else 1 for s in shape)
    c.label = f"{op} {by(shape)} and {by(other)}"
    letters = "abcd"[: len(shape)]
    there = "".join("." if n == 1 else letter for n, letter in zip(other, letters))
    return c.op(op, c.data(*shape, open=letters), c.data(*other, open=there))


def move(c):
    op = c.pick(
        "Transpose",
        "Transpose",
        "Transpose",
        "Concat",
        "Split",
        "Slice",
        "Pad",
        "Resize",
        "Gather",
        "Tile",
        "DepthToSpace",
    )
    if op == "Resize":
        shape, mode, factor = (
            picture(c),
            c.pick("nearest", "linear"),
            c.pick(0.5, 2.0, 3.0, float(c.rng.uniform(0.4, 3))),
        )
        c.fits([*shape[:2], *(int(s * factor) for s in shape[2:])])
        if min(int(s * factor) for s in shape[2:]) < 1:
            raise TooLarge
        # of a size with a fraction ONNX Runtime takes the whole part to find corners, ONNX itself does not
        whole = all(float(s * factor).is_integer() for s in shape[2:])
        where = c.pick("half_pixel", "asymmetric", "align_corners" if whole else "half_pixel")
        c.label = f"{op} {by(shape)} {mode} {where} {factor:.3g}"
        scales = c.constant(np.array([1, 1, factor, factor], "float32"))
        return c.op(
            op,
            c.data(*shape, open="n.hw"),
            "",
            scales,
            mode=mode,
            coordinate_transformation_mode=where,
            nearest_mode="floor",
        )
    if op == "DepthToSpace":
        block = c.pick(2, 3, 4)
        shape = (c.pick(1, 2), block * block * c.log(1, 64), c.log(4, 128), c.log(4, 128))
        c.fits(shape)
        c.label = f"{op} {by(shape)} blocks of {block}"
        return c.op(op, c.data(*shape, open="n.hw"), blocksize=block, mode=c.pick("DCR", "CRD"))
    shape = any_shape(c)
    rank, axis = len(shape), c.pick(*range(len(shape)))
    others = "".join("." if i == axis else "abcd"[i] for i in range(rank))
    c.label = f"{op} {by(shape)}"
    if op == "Transpose":
        perm = c.rng.permutation(rank).tolist()
        if perm == sorted(perm):
            raise TooLarge
        c.label += f" to {by(perm)}"
        return c.op(op, c.data(*shape, open="abcd"[:rank]), perm=perm)
    c.label += f" axis {axis}"
    if op == "Concat":
        parts = [c.data(*shape, open=others)]
        for _ in range(c.pick(1, 1, 2, 3)):
            more = [*shape[:axis], c.log(1, 2 * shape[axis]), *shape[axis + 1 :]]
            c.label += f" and {by(more)}"
            parts.append(c.data(*more, open=others))
        return c.op(op, *parts, axis=axis)
    if op == "Split":
        if shape[axis] < 2:
            raise TooLarge
        first = int(c.rng.integers(1, shape[axis]))
        c.label += f" at {first}"
        return c.op(op, c.data(*shape, open=others), c.numbers(first, shape[axis] - first), outputs=2, axis=axis)
    if op == "Slice":
        first = int(c.rng.integers(0, max(1, shape[axis] // 2)))
        step = c.pick(1, 1, 1, 2, 3)
        c.label += f" from {first} by {step}"
        return c.op(
            op, c.data(*shape, open=others), c.numbers(first), c.numbers(shape[axis]), c.numbers(axis), c.numbers(step)
        )
    if op == "Pad":
        pads = [c.pick(0, 1, 2, 3) for _ in range(2 * rank)]
        mode = "reflect" if c.chance(0.3) and min(shape) > 3 else "constant"
        c.label = f"{op} {by(shape)} {mode} by {by(pads)}"
        return c.op(op, c.data(*shape, open=others), c.numbers(*pads), mode=mode)
    if op == "Gather":
        count = c.log(1, 2 * shape[axis])
        c.fits(shape, [*shape[:axis], count, *shape[axis + 1 :]])
        c.label += f" {count} of them"
        return c.op(
            op, c.data(*shape, open=others), c.numbers(*c.rng.integers(0, shape[axis], count).tolist()), axis=axis
        )
    times = [c.pick(1, 1, 2, 3) for _ in range(rank)]
    if max(times) == 1:
        raise TooLarge
    c.fits([s * t for s, t in zip(shape, times)])
    c.label = f"{op} {by(shape)} by {by(times)}"
    return c.op(op, c.data(*shape, open=others), c.numbers(*times))


KINDS = {
    "conv": conv,
    "conv1d": conv1d,
    "conv3d": conv3d,
    "grouped": grouped,
    "transposed": transposed,
    "product": product,
    "batched": batched,
    "attention": attention,
    "recurrent": recurrent,
    "pool": pool,
    "norm": norm,
    "reduce": reduce,
    "softmax": softmax,
    "activation": activation,
    "arithmetic": arithmetic,
    "move": move,
    "int8_conv": lambda c: int8_cases.convolution(c, conv),
    "int8_conv1d": lambda c: int8_cases.convolution(c, conv1d),
    "int8_conv3d": lambda c: int8_cases.convolution(c, conv3d),
    "int8_grouped": lambda c: int8_cases.convolution(c, grouped),
    "int8_product": int8_cases.product,
    "int8_batched": int8_cases.batched,
}


def draw(seed, kind, number, dtype="float32", open=False):
    """Case `number` of a kind: the same for the same seed, whatever else is drawn.  open: batch, height, width, lengths
    and rows are known only at run time."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind), number])
    while True:
        c = Case(rng, dtype, open)
        try:
            results = KINDS[kind](c)
        except TooLarge:
            continue
        c.kind, c.name, c.origin = kind, f"{kind}:{number}", (seed, kind, number)
        c.finish(results)
        return c
