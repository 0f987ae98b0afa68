#!/usr/bin/env python3
"""Single operators with the shapes they have in the networks, Lathe against ONNX Runtime.

    bench/operators.py [--kind pooling,softmax] [--skip convolution] [--filter REGEX] [--graphs resnet18,bert_base]
                       [--threads 1,2] [--rounds 3] [--cpu-time [--passes 3]] [--list] [--json] [--check]

Every distinct convolution, matrix product, pooling, softmax, normalisation, transpose, resize,
reduction, activation, arithmetic, gather, concat and recurrent layer of the shared graphs becomes
a model of one node with the same attributes and random weights; kinds and forms that those graphs
do not have (bench/operators_more.py) join them under the name "more".  Both programs run a case
in turn on memory that is bound beforehand, so that nothing is copied in or out.  The table is
sorted by the ratio, ONNX Runtime's time / Lathe's; a summary by kind with the worst cases follows.

--cpu-time is for machines that others use too: the processor time of the process at one thread, in
many short samples taken in turn.  A neighbour on the same core makes both programs slower for
milliseconds or minutes, so two samples side by side are compared: the ratio is the median over all
such pairs, the times are medians too.  With --passes all cases are measured again, minutes later,
and the pairs of all passes count."""
import argparse
import collections
import json
import pathlib
import re
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper, shape_inference  # noqa: E402

import models  # noqa: E402
import operators_more  # noqa: E402
import peers  # noqa: E402

KINDS = {
    "convolution": ["Conv", "ConvTranspose"],
    "matrix product": ["MatMul", "Gemm"],
    "pooling": ["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"],
    "softmax": ["Softmax", "LogSoftmax"],
    "normalisation": ["BatchNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization", "LRN"],
    "transpose": ["Transpose"],
    "resize": ["Resize", "Upsample"],
    "reduction": [
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "ReduceMin",
        "ReduceL2",
        "ReduceProd",
        "ArgMax",
        "TopK",
        "CumSum",
    ],
    "activation": [
        "Relu",
        "Clip",
        "Sigmoid",
        "Tanh",
        "Erf",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Elu",
        "Gelu",
        "PRelu",
        "Softplus",
    ],
    "arithmetic": ["Add", "Sub", "Mul", "Div", "Pow", "Sqrt"],
    "gather": ["Gather", "GatherElements", "GatherND"],
    "concat": ["Concat", "Split", "Slice", "Pad"],
    "recurrent": ["LSTM", "GRU", "RNN"],
}
KIND_OF = {op: kind for kind, ops in KINDS.items() for op in ops}
REQUIRED, TOLERANCE, WORST = 0.9, 1e-3, 3
SAMPLES = 12            # --cpu-time: samples in one round
ONE_TOKEN = {"batch": 1, "seq": 1, "past": 127, "total": 128}      # gpt_kv: 127 tokens before, one now
LARGEST_KEPT = 4096     # bytes; larger constants are drawn anew

# An input of a case: its shape, its ONNX dtype, its value (or None: random), and whether it is a weight.
Input = collections.namedtuple("Input", "shape dtype value weight")


class Case:
    """One node, its inputs, and the networks it stands in."""

    def __init__(self, node, inputs, opset):
        self.node, self.inputs, self.opset, self.graphs = node, inputs, opset, []

    @property
    def label(self):
        both = KIND_OF[self.node.op_type] == "arithmetic"
        shown = [i for i in self.inputs if i is not None and (both or not i.weight or len(i.shape) > 1)]
        sizes = " ".join("x".join(map(str, i.shape)) or "scalar" for i in shown)
        sizes += "".join(
            f" [{','.join(map(str, i.value.ravel()))}]"
            for i in self.inputs
            if i is not None and i.value is not None and i.dtype == TensorProto.INT64 and i.value.size < 8
        )
        if self.node.op_type in ("Conv", "ConvTranspose", "Gemm") and len(self.inputs) > 2:
            sizes += " bias"
        shown = []
        for a in self.node.attribute:
            v = helper.get_attribute_value(a)
            v = v.decode() if isinstance(v, bytes) else v
            v = round(v, 6) if isinstance(v, float) else v
            if a.name not in ("kernel_shape", "momentum", "training_mode", "epsilon") and not isinstance(
                v, onnx.TensorProto
            ):
                shown.append(f"{a.name}={','.join(map(str, v)) if isinstance(v, list) else v}".replace(" ", ""))
        return f"{self.node.op_type} {sizes} {' '.join(shown)}".strip()

    def model(self):
        """The model of one node, and its feeds."""
        rng, weights, ports, feeds = np.random.default_rng(7), [], [], {}
        names = []
        for k, i in enumerate(self.inputs):
            if i is None:
                names.append("")
                continue
            name = f"x{k}"
            names.append(name)
            value = i.value if i.value is not None else self.draw(rng, i, k)
            if i.weight:
                weights.append(numpy_helper.from_array(value, name))
            else:
                ports.append(helper.make_tensor_value_info(name, i.dtype, i.shape))
                feeds[name] = value
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        outputs = [f"y{k}" if o else "" for k, o in enumerate(node.output)]
        del node.input[:], node.output[:]
        node.input.extend(names)
        node.output.extend(outputs)
        outs = [onnx.ValueInfoProto(name=o) for o in outputs if o]
        graph = helper.make_graph([node], "case", ports, outs, weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return shape_inference.infer_shapes(made, strict_mode=True), feeds

    def draw(self, rng, i, k):
        dtype = helper.tensor_dtype_to_np_dtype(i.dtype)
        if dtype.kind in "iu":          # indices
            axis = next((a.i for a in self.node.attribute if a.name == "axis"), 0)
            return rng.integers(0, self.inputs[0].shape[axis], i.shape).astype(dtype)
        fan = max(
            int(np.prod(i.shape[1:])) if i.weight and len(i.shape) > 2 else i.shape[0] if i.weight and i.shape else 1, 1
        )
        x = np.asarray(rng.standard_normal(i.shape) / np.sqrt(fan))
        if self.node.op_type == "BatchNormalization" and k == 4:
            x = np.abs(x) + 0.5
        return x.astype(dtype)


def constants(graph):
    """Values of constants: None where they are large, or computed from other constants (weights that are sliced or
    joined)."""
    found = {}
    for t in graph.initializer:
        stored = t.data_location != TensorProto.EXTERNAL
        size = int(np.prod(t.dims)) if t.dims else 1
        found[t.name] = numpy_helper.to_array(t) if stored and size * 4 <= LARGEST_KEPT else None
    for node in graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None:
                found[node.output[0]] = numpy_helper.to_array(value)
        elif node.input and all(name in found for name in node.input if name):
            same = found[node.input[0]] if node.op_type == "Identity" else None
            found.update((name, same) for name in node.output)
    return found


def typed(model, sizes):
    """{name: (dtype, shape)} of everything whose sizes onnx infers."""
    for value in [*model.graph.input, *model.graph.output]:
        for d in value.type.tensor_type.shape.dim:
            if d.dim_param in sizes:
                d.dim_value = sizes[d.dim_param]
    del model.graph.value_info[:]
    model = shape_inference.infer_shapes(model, data_prop=True)
    types = {t.name: (t.data_type, tuple(t.dims)) for t in model.graph.initializer}
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        t = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else -1 for d in t.shape.dim]
        if t.HasField("shape") and all(d >= 0 for d in dims):
            types[value.name] = (t.elem_type, tuple(dims))
    for node in model.graph.node:
        for a in node.attribute:
            if node.op_type == "Constant" and a.name == "value":
                types[node.output[0]] = (a.t.data_type, tuple(a.t.dims))
    return types


def run_for_types(path, names):
    """{name: (dtype, shape)} of values whose sizes only a run tells: ONNX Runtime computes them."""
    import onnxruntime as ort

    model = onnx.load(str(path))
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    runner = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = runner.run(list(names), models.random_feeds(path, 1))
    return {n: (helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in zip(names, found)}


def case_of(node, types, values, opset):
    """The case of a node, or None when it is arithmetic on shapes or on constants."""
    inputs = []
    for name in node.input:
        if not name:
            inputs.append(None)
        else:
            dtype, shape = types[name]
            weight = name in values
            inputs.append(Input(shape, dtype, values.get(name) if weight else None, weight))
    data = inputs[0]
    if data is None or data.dtype != TensorProto.FLOAT or all(i is None or i.weight for i in inputs):
        return None
    if any(0 in i.shape for i in inputs if i is not None):
        return None
    return Case(node, inputs, opset)


def cases(folder, graphs, cache):
    """Every distinct case, in the order of the graphs."""
    found = {}
    for path in sorted((folder / "graphs").glob("*.onnx")):
        if graphs and path.stem not in graphs:
            continue
        model = onnx.load(str(path), load_external_data=False)
        opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        sizes = ONE_TOKEN if path.stem == "gpt_kv" else models.SIZES
        types, values = typed(model, sizes), constants(model.graph)
        nodes = [n for n in model.graph.node if n.op_type in KIND_OF and n.domain in ("", "ai.onnx")]
        if unknown := list(dict.fromkeys(name for n in nodes for name in n.input if name and name not in types)):
            types |= run_for_types(models.filled(folder, path.stem, cache, sizes=sizes), unknown)
        for node in nodes:
            case = case_of(node, types, values, opset)
            if case is None:
                continue
            case = found.setdefault((KIND_OF[node.op_type], case.label), case)
            if path.stem not in case.graphs:
                case.graphs.append(path.stem)
    return list(found.values())


def more_cases():
    """The cases of operators_more.py."""
    found = []
    for op, opset, inputs, attributes in operators_more.ROWS:
        given = []
        for i in inputs:
            if i is None or isinstance(i, tuple) and not isinstance(i, operators_more.W):
                given.append(None if i is None else Input(i, TensorProto.FLOAT, None, False))
            elif isinstance(i, operators_more.W):
                given.append(Input(i.shape, TensorProto.FLOAT, None, True))
            else:
                value = np.array(i, "float32" if isinstance(i[0], float) else "int64")
                given.append(Input(value.shape, helper.np_dtype_to_tensor_dtype(value.dtype), value, True))
        outputs = {"TopK": 2, "LSTM": 3, "GRU": 2}.get(op, len(inputs[1]) if op == "Split" else 1)
        node = helper.make_node(
            op, [f"x{k}" if i else "" for k, i in enumerate(given)], [f"y{k}" for k in range(outputs)], **attributes
        )
        case = Case(node, given, opset)
        case.graphs.append("more")
        found.append(case)
    return found


class BoundOrt:
    """ONNX Runtime on memory bound beforehand."""

    def __init__(self, path, threads, feeds):
        import onnxruntime as ort

        self.runner = peers.OnnxRuntime.load(path, threads).runner
        self.binding = self.runner.io_binding()
        for name, x in feeds.items():
            self.binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(x))
        for y in self.runner.get_outputs():
            self.binding.bind_output(y.name, "cpu")
        self.runner.run_with_iobinding(self.binding)
        for y, value in zip(self.runner.get_outputs(), self.binding.get_outputs()):     # the same memory every time
            self.binding.bind_ortvalue_output(y.name, value)

    def run(self, feeds):
        self.runner.run_with_iobinding(self.binding)

    def outputs(self):
        return self.binding.copy_outputs_to_cpu()


class BoundLathe(peers.Lathe):
    """Lathe with its inputs set beforehand."""

    def __init__(self, library, threads, feeds):
        super().__init__(library, threads)
        for name, x in feeds.items():
            self.executor.set_input(name, x)

    def run(self, feeds):
        self.executor.run()

    def outputs(self):
        self.executor.run()
        return [self.executor.get_output(i).numpy() for i in range(len(self.executor.outputs))]


def measure(case, threads, rounds, folder, cpu_time):
    """The rows of one case: one per number of threads."""
    model, feeds = case.model()
    path = folder / "case.onnx"
    onnx.save(model, str(path))
    library, seconds = peers.Lathe.compile(path)
    rows = []
    for n in threads:
        runners = {"Lathe": BoundLathe(library, n, feeds), "ONNX Runtime": BoundOrt(path, n, feeds)}
        error = peers.relative_error(runners["Lathe"].outputs(), runners["ONNX Runtime"].outputs())
        times = (
            peers.cpu_times(runners, feeds, rounds * SAMPLES)
            if cpu_time
            else peers.side_by_side(runners, feeds, rounds, at_least=0.02)
        )
        rows.append(
            {
                "kind": KIND_OF[case.node.op_type],
                "case": case.label,
                "graphs": case.graphs,
                "threads": n,
                "relative_error": error,
                "compile_s": seconds,
                "kernels": [f"{k.name} ({k.impl})" for k in library.model.nodes()],
                "times": times,
            }
        )
    return rows


def judged(measured, cpu_time):
    """One row for each case and number of threads, with the times and the ratio of all passes."""
    together = {}
    for row in measured:
        first = together.setdefault((row["kind"], row["case"], row["threads"]), row)
        if first is not row:
            first["relative_error"] = max(first["relative_error"], row["relative_error"])
            for name in first["times"]:
                first["times"][name] += row["times"][name]
    for row in together.values():
        times = row.pop("times")
        ours, theirs = (statistics.median(times[name]) for name in ("Lathe", "ONNX Runtime"))
        pairs = [t / o for o, t in zip(times["Lathe"], times["ONNX Runtime"])]
        row |= {
            "lathe_us": ours * 1e6,
            "onnxruntime_us": theirs * 1e6,
            "ratio": statistics.median(pairs) if cpu_time else theirs / ours,
        }
    return list(together.values())


def summary(rows, n, out):
    """One line for each kind: how many cases, how many too slow, the mean, the worst."""
    print(
        f"\n{n} thread{'s' * (n > 1)}\n\n"
        f"| kind | cases | below {REQUIRED} | geometric mean | lowest | the slowest |\n|---|---|---|---|---|---|",
        file=out,
    )
    for kind in [*KINDS, "all"]:
        of_kind = sorted((r for r in rows if kind in ("all", r["kind"])), key=lambda r: r["ratio"])
        if not of_kind:
            continue
        ratios = [r["ratio"] for r in of_kind]
        worst = "; ".join(f"{r['case'][:80]} ({r['ratio']:.2f})" for r in of_kind[:WORST]) if kind != "all" else ""
        print(
            f"| {kind} | {len(ratios)} | {sum(r < REQUIRED for r in ratios)} | "
            f"{statistics.geometric_mean(ratios):.2f} | {min(ratios):.2f} | {worst} |",
            file=out,
        )


def report(rows, failed, threads, out):
    print(
        "| ratio | threads | Lathe us | ONNX Runtime us | error | kind | case | networks |\n"
        "|---|---|---|---|---|---|---|---|",
        file=out,
    )
    for r in sorted(rows, key=lambda r: r["ratio"]):
        wrong = " WRONG" if not r["relative_error"] <= TOLERANCE else ""
        print(
            f"| {r['ratio']:.2f} | {r['threads']} | {r['lathe_us']:.1f} | {r['onnxruntime_us']:.1f} | "
            f"{r['relative_error']:.0e}{wrong} | {r['kind']} | {r['case']} | {', '.join(r['graphs'])} |",
            file=out,
        )
    for n in threads:
        summary([r for r in rows if r["threads"] == n], n, out)
    for label, why in failed.items():
        print(f"not run: {label}: {why}", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", default="", help=f"comma list of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--skip", default="", help="kinds to leave out")
    parser.add_argument("--filter", default="", help="a regular expression on kind and case, as they are printed")
    parser.add_argument("--graphs", default="", help="comma list of networks, and 'more' (default: all)")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="processor time at one thread, samples in pairs: for a machine that others use too",
    )
    parser.add_argument("--passes", type=int, default=1, help="with --cpu-time: how often all cases are measured")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=pathlib.Path(tempfile.gettempdir()) / "lathe-bench-models",
        help="where filled networks are kept",
    )
    parser.add_argument("--list", action="store_true", help="print the cases alone")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--check", action="store_true", help=f"exit with status 1 when a case fails, is wrong or is below {REQUIRED}x"
    )
    args = parser.parse_args()
    folder = models.shared_models()
    if folder is None:
        print(
            "skipped: the graphs were not found; set LATHE_SHARED to the folder that holds models/graphs and "
            "models/fill.py"
        )
        return 0
    args.cache.mkdir(parents=True, exist_ok=True)
    graphs, kinds, skipped = (list(filter(None, text.split(","))) for text in (args.graphs, args.kind, args.skip))
    if unknown := [k for k in kinds + skipped if k not in KINDS]:
        parser.error(f"no kind '{unknown[0]}'; there are {', '.join(KINDS)}")
    if args.passes < 1 or args.passes > 1 and not args.cpu_time:
        parser.error(
            "--passes is at least 1, and more go with --cpu-time, whose samples of several passes are taken together"
        )
    if args.cpu_time:
        args.threads = "1"
    found = cases(folder, graphs, args.cache) + (more_cases() if not graphs or "more" in graphs else [])
    found = [
        c for c in found if (not kinds or KIND_OF[c.node.op_type] in kinds) and KIND_OF[c.node.op_type] not in skipped
    ]
    found = [c for c in found if re.search(args.filter, f"{KIND_OF[c.node.op_type]} {c.label}")]
    if args.list:
        for c in found:
            print(f"{KIND_OF[c.node.op_type]}: {c.label}  ({', '.join(c.graphs)})")
        print(f"{len(found)} cases")
        return 0
    out, threads, rows, failed = peers.own_stdout(), [int(t) for t in args.threads.split(",")], [], {}
    with tempfile.TemporaryDirectory() as work:
        for i, case in enumerate(found * args.passes):
            if sys.stderr.isatty():
                print(
                    f"\r{i + 1}/{len(found) * args.passes} {case.label[:90]:<90}", end="", file=sys.stderr, flush=True
                )
            elif i % 100 == 0:
                print(f"{i}/{len(found) * args.passes} ...", file=sys.stderr, flush=True)
            try:
                rows += measure(case, threads, args.rounds, pathlib.Path(work), args.cpu_time)
            except Exception as e:              # one case that fails does not end the run
                failed[case.label] = f"{type(e).__name__}: {str(e).splitlines()[0][:200] if str(e) else ''}"
    rows = judged(rows, args.cpu_time)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if args.json:
        print(json.dumps({"rows": sorted(rows, key=lambda r: r["ratio"]), "failed": failed}, indent=1), file=out)
    else:
        report(rows, failed, threads, out)
    bad = failed or any(r["ratio"] < REQUIRED or not r["relative_error"] <= TOLERANCE for r in rows)
    return int(bool(args.check and bad))


if __name__ == "__main__":
    sys.exit(main())
