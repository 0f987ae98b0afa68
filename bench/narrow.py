#!/usr/bin/env python3
"""Networks whose weights, inputs and outputs are floats of 16 bits, beside the same in float32.

    bench/narrow.py [--networks resnet18,minilm_l6] [--dtype bfloat16] [--fast-math fp16] [--samples 9] [--check]

Every network is brought into the dtype (narrowed below), compiled, and measured in turn with Lathe over the float32
network and ONNX Runtime over the narrow one, where it has its operators: processor time at one thread, the least of the
samples.  Outputs are compared with ONNX Runtime's in float32 over the weights as they are after rounding.  The last
column says how the narrow network stands to the wide one: above 1 it is faster.  The graphs are those of
bench/models.py."""

import argparse
import os
import pathlib
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import models  # noqa: E402
import peers  # noqa: E402

TOLERANCE = {"float16": 1e-2, "bfloat16": 3e-2}  # of the output's norm
LEAST = 0.97  # of float32's speed: what a machine that others use can tell apart

# Inputs that ONNX wants in float32, by operator.
WIDE_INPUTS = {"Resize": (1, 2), "Upsample": (1,), "QuantizeLinear": (1,), "DequantizeLinear": (1,)}


def narrowed(model, dtype):
    """The ONNX model with its float32 tensors, inputs and outputs in float16 or bfloat16."""
    import onnx
    from onnx import TensorProto, numpy_helper

    to = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}[dtype]
    kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(to))
    most = {"float16": 65504, "bfloat16": 3.38e38}[dtype]
    model = onnx.ModelProto.FromString(model.SerializeToString())

    def array(a):
        """A mask's smallest float32 stays finite."""
        return np.where(np.isinf(a), a, np.clip(a, -most, most)).astype(kind)

    def tensor(t):
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(array(numpy_helper.to_array(t)), t.name))

    def value(v):
        if v.type.tensor_type.elem_type == TensorProto.FLOAT:
            v.type.tensor_type.elem_type = to

    def graph(g):
        wide = {n.input[i] for n in g.node for i in WIDE_INPUTS.get(n.op_type, ()) if i < len(n.input)}
        for t in g.initializer:
            if t.name not in wide:
                tensor(t)
        for v in [*g.input, *g.output]:
            value(v)
        del g.value_info[:]
        for n in g.node:
            for a in n.attribute:
                if a.name == "to" and n.op_type == "Cast" and a.i == TensorProto.FLOAT:
                    a.i = to
                if a.HasField("t") and n.output[0] not in wide:
                    tensor(a.t)
                for sub in [*([a.g] if a.HasField("g") else []), *a.graphs]:
                    graph(sub)
            if n.op_type == "Constant" and any(a.name in ("value_float", "value_floats") for a in n.attribute):
                a = n.attribute[0]
                numbers = np.array(a.f if a.name == "value_float" else list(a.floats), "float32")
                kept = numpy_helper.from_array(numbers if n.output[0] in wide else array(numbers))
                n.attribute.pop()
                n.attribute.append(onnx.helper.make_attribute("value", kept))

    graph(model.graph)
    return model


def widened(model):
    """A narrow model in float32 over the same values."""
    import onnx
    from onnx import TensorProto, numpy_helper

    model = onnx.ModelProto.FromString(model.SerializeToString())
    small = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    tensors = [*model.graph.initializer, *(a.t for n in model.graph.node for a in n.attribute if a.HasField("t"))]
    for t in tensors:
        if t.data_type in small:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype("float32"), t.name))
    for v in [*model.graph.input, *model.graph.output]:
        if v.type.tensor_type.elem_type in small:
            v.type.tensor_type.elem_type = TensorProto.FLOAT
    for a in (a for n in model.graph.node if n.op_type == "Cast" for a in n.attribute):
        if a.name == "to" and a.i in small:
            a.i = TensorProto.FLOAT
    del model.graph.value_info[:]
    return model


def rounded(model, dtype):
    """The float32 model over the weights that narrowed() gives."""
    import onnx
    from onnx import TensorProto, numpy_helper

    kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(getattr(TensorProto, dtype.upper())))
    model = onnx.ModelProto.FromString(model.SerializeToString())
    for t in model.graph.initializer:
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(kind).astype("float32"), t.name))
    return model


def cast_feeds(feeds, path):
    """The same inputs in the dtypes of the model."""
    import onnx

    kinds = {v.name: v.type.tensor_type.elem_type for v in onnx.load(str(path)).graph.input}
    return {k: x.astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[k])) for k, x in feeds.items()}


class Fed:
    """A runner that has its own inputs."""

    def __init__(self, runner, feeds):
        self.runner, self.feeds = runner, feeds

    def run(self, _):
        return self.runner.run(self.feeds)


def measure(name, path, folder, args):
    """(milliseconds by runner, error of the narrow outputs, why ONNX Runtime is not there)."""
    import onnx

    model = onnx.load(str(path))
    narrow, wide = folder / f"{name}_{args.dtype}.onnx", folder / f"{name}_{args.dtype}_wide.onnx"
    onnx.save(narrowed(model, args.dtype), str(narrow))
    onnx.save(rounded(model, args.dtype), str(wide))
    feeds = models.random_feeds(path, 1)
    thin = cast_feeds(feeds, narrow)
    wanted = peers.OnnxRuntime.load(wide, 1).run({k: x.astype(feeds[k].dtype) for k, x in thin.items()})
    config = {"lathe.fast_math": args.fast_math} if args.fast_math else {}
    runners, missing = {}, ""
    for key, where, own, setting in (("narrow", narrow, thin, config), ("wide", wide, feeds, {})):
        library, _ = peers.Lathe.compile(where, 3, args.target, setting)
        runners[key] = Fed(peers.Lathe(library, 1), own)
    found = [np.asarray(x).astype("float32") for x in runners["narrow"].run(None)]
    try:
        runners["ort"] = Fed(peers.OnnxRuntime.load(narrow, 1), thin)
        runners["ort"].run(None)
    except Exception as e:  # operators that it has no kernels for
        runners.pop("ort", None)
        missing = str(e).splitlines()[0][:100]
    times = peers.cpu_times(runners, None, args.samples)
    return {k: min(v) * 1e3 for k, v in times.items()}, peers.relative_error(found, wanted), missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", default=",".join(models.NETWORKS), help="comma list")
    parser.add_argument("--dtype", choices=list(TOLERANCE), default="float16")
    parser.add_argument("--fast-math", choices=("bf16", "fp16"), default="")
    parser.add_argument("--target", default="llvm -mcpu=native")
    parser.add_argument("--samples", type=int, default=9)
    parser.add_argument("--cache", default=os.path.join(tempfile.gettempdir(), "lathe-bench-models"))
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a figure is missed")
    args = parser.parse_args()
    graphs = models.shared_models()
    if graphs is None:
        print("skipped: the graphs were not found; set LATHE_SHARED to the folder that holds models/graphs")
        return 0
    out, folder = peers.own_stdout(), pathlib.Path(args.cache)
    folder.mkdir(parents=True, exist_ok=True)
    dtype = args.dtype
    print(f"| network | {dtype} ms | float32 ms | ONNX Runtime, {dtype} | error | float32 / {dtype} |", file=out)
    print("|---|---|---|---|---|---|", file=out)
    good = True
    for name in args.networks.split(","):
        ms, error, missing = measure(name, models.filled(graphs, name, folder), folder, args)
        ratio = ms["wide"] / ms["narrow"]
        ort = f"{ms['ort']:.2f}" if "ort" in ms else f"none: {missing}"
        cells = [name, f"{ms['narrow']:.2f}", f"{ms['wide']:.2f}", ort, f"{error:.1e}", f"{ratio:.2f}"]
        print(f"| {' | '.join(cells)} |", file=out, flush=True)
        good &= ratio >= LEAST and error <= TOLERANCE[args.dtype]
    print("\nprocessor time at one thread, the least of the samples", file=out)
    return int(args.check and not good)


if __name__ == "__main__":
    sys.exit(main())
