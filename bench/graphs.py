#!/usr/bin/env python3
"""Random small graphs, Lathe against ONNX Runtime: what fusion makes of operators that nobody put together before.

    bench/graphs.py [--count 40] [--seed N] [--only K] [--nodes 12] [--open] [--again 2] [--keep DIR] [--check]

A graph starts from one input of odd sizes and grows node by node: elementwise functions, arithmetic with broadcasts,
comparisons and choices, reductions, softmax, norms, transposes, slices, concatenations, products, convolutions, pools;
values are used several times.  Every end is an output.  The outputs are compared with ONNX Runtime's; the ratio is its
time / Lathe's, processor time at one thread in short samples side by side (bench/peers.py).  Graphs that lose are
measured again before they count.  With --open the models leave the first size of the input to run time.  The seed is
fresh unless given, and printed."""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import operators  # noqa: E402
import peers  # noqa: E402

LOSES, CLIFF = 0.9, 0.5
SAMPLES, SECONDS = 24, 0.6
TOLERANCE = 2e-3
UNARY = ["Tanh", "Sigmoid", "Relu", "Erf", "Neg", "Abs", "Softplus", "HardSwish", "Floor", "Sin", "Softsign"]
BINARY = ["Add", "Sub", "Mul", "Max", "Min"]


class Open(int):
    """A size that the model does not know."""


class Graph:
    """A graph that grows; every value is of float32."""

    def __init__(self, seed, nodes, leave_open=False):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.values, self.used = [], [], {}, set()
        rank = int(self.rng.integers(2, 5))
        shape = [self.size(2, 70) for _ in range(rank)] if rank == 4 else [self.size(2, 600) for _ in range(rank)]
        if rank == 4:
            shape[0] = int(self.rng.integers(1, 4))
        while np.prod(shape) > 400_000:
            shape[int(np.argmax(shape))] //= 2
        if leave_open:
            shape[0] = Open(shape[0])
        self.input = tuple(shape)
        self.values["x"] = self.input
        steps = [self.unary, self.binary, self.broadcast, self.choice, self.reduce, self.rows, self.move, self.heavy]
        odds = np.array([3, 3, 3, 1, 1.5, 1, 1.5, 0.7])
        while len(self.nodes) < nodes:
            steps[self.rng.choice(len(steps), p=odds / odds.sum())](self.pick())

    def size(self, low, high):
        """Log-uniform, rounded to nothing."""
        return int(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def pick(self):
        """A value, later ones more often."""
        names = list(self.values)
        return names[-1 - min(int(self.rng.exponential(1.5)), len(names) - 1)]

    def weight(self, shape, scale=1.0):
        name = f"w{len(self.weights)}"
        data = (self.rng.standard_normal(shape) * scale).astype("float32")
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def constant(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, "int64"), name))
        return name

    def add(self, op, inputs, shape, **attributes):
        """A node; its result is a value when it is of float32."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.used.update(inputs)
        if shape is not None:
            self.values[name] = tuple(shape)
        return name

    def unary(self, x):
        self.add(str(self.rng.choice(UNARY)), [x], self.values[x])

    def binary(self, x):
        same = [v for v, shape in self.values.items() if shape == self.values[x]]
        self.add(str(self.rng.choice(BINARY)), [x, str(self.rng.choice(same))], self.values[x])

    def broadcast(self, x):
        shape = self.values[x]
        kept = [1 if isinstance(d, Open) or self.rng.random() < 0.5 else d for d in shape]
        self.add(str(self.rng.choice(BINARY)), [x, self.weight(kept)], shape)

    def choice(self, x):
        shape = self.values[x]
        same = [v for v, s in self.values.items() if s == shape]
        test = self.add(str(self.rng.choice(["Less", "Greater"])), [x, self.weight([])], None)
        self.add("Where", [test, str(self.rng.choice(same)), x], shape)

    def reduce(self, x):
        """Over an axis or two, and back over what was reduced."""
        shape = self.values[x]
        count = int(self.rng.integers(1, min(3, len(shape))))
        axes = sorted(self.rng.choice(len(shape), size=count, replace=False).tolist())
        kept = [1 if i in axes else d for i, d in enumerate(shape)]
        op = str(self.rng.choice(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"]))
        y = self.add(op, [x, self.constant(axes)], kept, keepdims=1)
        if op == "ReduceSum":
            y = self.add("Mul", [y, self.weight([], 1 / product(shape[i] for i in axes))], kept)
        if self.rng.random() < 0.7:
            self.add("Sub", [x, y], shape)

    def rows(self, x):
        shape = self.values[x]
        axis = int(self.rng.integers(len(shape)))
        tail = shape[axis:]
        if self.rng.random() < 0.5 or any(isinstance(d, Open) for d in tail):
            self.add("Softmax", [x], shape, axis=axis)
        else:
            self.add("LayerNormalization", [x, self.weight(tail), self.weight(tail)], shape, axis=axis)

    def move(self, x):
        shape = self.values[x]
        kind = int(self.rng.integers(4))
        if kind == 0:
            order = self.rng.permutation(len(shape)).tolist()
            self.add("Transpose", [x], [shape[i] for i in order], perm=order)
        elif kind == 1:
            axis = int(self.rng.integers(len(shape)))
            if isinstance(shape[axis], Open):
                return
            first = int(self.rng.integers(shape[axis]))
            last = int(self.rng.integers(first, shape[axis])) + 1
            kept = [last - first if i == axis else d for i, d in enumerate(shape)]
            self.add("Slice", [x, self.constant([first]), self.constant([last]), self.constant([axis])], kept)
        elif kind == 2:
            same = [v for v, s in self.values.items() if s == shape]
            axis = int(self.rng.integers(len(shape)))
            kept = [type(d)(2 * d) if i == axis else d for i, d in enumerate(shape)]
            if np.prod(kept) < 800_000:
                self.add("Concat", [x, str(self.rng.choice(same))], kept, axis=axis)
        else:
            at = int(self.rng.integers(1, len(shape)))
            new = [product(shape[:at]), product(shape[at:])]
            self.add("Reshape", [x, self.constant([-1 if isinstance(d, Open) else d for d in new])], new)

    def heavy(self, x):
        shape = self.values[x]
        if len(shape) == 4 and min(shape[2:]) >= 3:
            if self.rng.random() < 0.3:
                op = str(self.rng.choice(["MaxPool", "AveragePool"]))
                self.add(op, [x], shape, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
                return
            if isinstance(shape[1], Open):
                return
            out = self.size(2, 64)
            weight = self.weight([out, shape[1], 3, 3], 1 / np.sqrt(9 * shape[1]))
            self.add("Conv", [x, weight], [shape[0], out, *shape[2:]], pads=[1, 1, 1, 1])
        elif not isinstance(shape[-1], Open):
            columns = self.size(2, 200)
            self.add("MatMul", [x, self.weight([shape[-1], columns], shape[-1] ** -0.5)], [*shape[:-1], columns])

    def model(self):
        """As ONNX has it."""
        ends = [v for v in self.values if v not in self.used] or [list(self.values)[-1]]
        outputs = [helper.make_tensor_value_info(v, TensorProto.FLOAT, named(self.values[v], v)) for v in ends]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, named(self.input, "n"))]
        graph = helper.make_graph(self.nodes, "graph", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)

    def __str__(self):
        return f"{'x'.join(map(str, self.input))}: {' '.join(n.op_type for n in self.nodes)}"


def product(sizes):
    """Of sizes; open when one of them is."""
    sizes = list(sizes)
    return (Open if any(isinstance(d, Open) for d in sizes) else int)(np.prod(sizes))


def named(shape, name):
    """A shape as ONNX has it, open sizes by name."""
    return [f"{name}_{i}" if isinstance(d, Open) else d for i, d in enumerate(shape)]


def measure(graph, path):
    """The ratio, both times in microseconds, the largest difference, and the kernels."""
    onnx.save(graph.model(), str(path))
    feeds = {"x": np.random.default_rng(7).standard_normal(graph.input).astype("float32")}
    library, _ = peers.Lathe.compile(path)
    runners = {"Lathe": operators.BoundLathe(library, 1, feeds), "ONNX Runtime": operators.BoundOrt(path, 1, feeds)}
    error = peers.relative_error(*(r.outputs() for r in runners.values()))
    times = peers.cpu_times(runners, feeds, SAMPLES, SECONDS)
    ratio = statistics.median(t / o for o, t in zip(times["Lathe"], times["ONNX Runtime"]))
    ours, theirs = (statistics.median(times[name]) * 1e6 for name in runners)
    return ratio, ours, theirs, error, [f"{n.name} ({n.impl})" for n in library.model.nodes()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock")
    parser.add_argument("--only", type=int, help="this graph of the seed's alone")
    parser.add_argument("--nodes", type=int, default=12, help="of a graph, at least (default 12)")
    parser.add_argument("--open", action="store_true", help="leave the first size of the input open")
    parser.add_argument("--again", type=int, default=2, help="how often a graph that loses is measured again")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the models of graphs that lose")
    parser.add_argument("--check", action="store_true", help=f"exit with status 1 when one is below {CLIFF} or differs")
    args = parser.parse_args()
    print(f"seed {args.seed}")
    ratios, bad = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for k in range(args.count) if args.only is None else [args.only]:
            graph = Graph([args.seed, k], args.nodes, args.open)
            path = pathlib.Path(folder) / "graph.onnx"
            row = measure(graph, path)
            for _ in range(args.again if row[0] < LOSES else 0):
                row = max(row, measure(graph, path))
            ratio, ours, theirs, error, kernels = row
            ratios.append(ratio)
            wrong = not error <= TOLERANCE
            bad += wrong or ratio < CLIFF
            note = f"  differs by {error:.1e}" if wrong else ""
            print(f"{k:4d} {ratio:6.2f}  {ours:10.1f} us {theirs:10.1f} us  {graph}{note}", flush=True)
            if ratio < LOSES or wrong:
                print("".join(f"            {name}\n" for name in kernels), end="")
                if args.keep:
                    args.keep.mkdir(parents=True, exist_ok=True)
                    (args.keep / f"graph-{args.seed}-{k}.onnx").write_bytes(path.read_bytes())
    loses = sum(r < LOSES for r in ratios)
    print(f"{len(ratios)} graphs: geometric mean {statistics.geometric_mean(ratios):.2f}, lowest {min(ratios):.2f}, "
          f"{loses} below {LOSES}, {sum(r < CLIFF for r in ratios)} below {CLIFF}")
    sys.exit(bool(args.check and bad))


if __name__ == "__main__":
    main()
