#!/usr/bin/env python3
"""Models of ai.onnx.ml, Lathe against ONNX Runtime, at batch 1 and 1,000.

    bench/onnx_ml.py [--filter REGEX] [--batch 1,1000] [--rounds 2] [--large] [--json] [--check]

The models are those of the tests (tests/python/ml_models.zip: small ones, as exporters write them) and larger ones of
sizes that people train, made here: forests, boosted trees, linear models, support vectors.  A ZipMap at the end is
taken off: both programs then give the tensor in it.  Both run in turn at one thread on memory that is bound beforehand
(models that take strings or maps are called with arrays instead), many short samples of processor time side by side;
the ratio, ONNX Runtime's time / Lathe's, is the median over the pairs, as in bench/operators.py --cpu-time."""

import argparse
import json
import pathlib
import re
import statistics
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "python"), str(ROOT / "tests" / "python")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

import operators  # noqa: E402
import peers  # noqa: E402
from ml_inputs import inputs_of  # noqa: E402

REQUIRED = 0.9


def forest(trees, depth, features, classes=0, leaf_share=0.15, seed=1):
    """A random ensemble: without classes a regressor, with 2 boosted trees, with more a forest of probabilities."""
    rng = np.random.default_rng(seed)
    node = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
    leaf = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        level, count = [0], 1
        for at in range(depth + 1):
            following = []
            for i in level:
                ends = at == depth or (at > 1 and rng.random() < leaf_share)
                row = (
                    tree,
                    i,
                    int(rng.integers(features)),
                    float(rng.standard_normal()),
                    "LEAF" if ends else "BRANCH_LEQ",
                    *((0, 0) if ends else (count, count + 1)),
                )
                for key, v in zip(node, row):
                    node[key].append(v)
                if not ends:
                    following += [count, count + 1]
                    count += 2
                    continue
                weights = rng.random(classes) / trees if classes > 2 else [float(rng.standard_normal())]
                for target, w in enumerate(weights):
                    for key, v in zip(leaf, (tree, i, target, float(w))):
                        leaf[key].append(v)
            level = following
    attributes = {f"nodes_{k}": v for k, v in node.items()} | {
        f"{'class' if classes else 'target'}_{k}": v for k, v in leaf.items()
    }
    if classes:
        attributes |= {
            "classlabels_int64s": list(range(classes)),
            "post_transform": "LOGISTIC" if classes == 2 else "NONE",
        }
    return single(
        "TreeEnsembleClassifier" if classes else "TreeEnsembleRegressor",
        features,
        bool(classes),
        **attributes,
        **({} if classes else {"n_targets": 1}),
    )


def linear(features, classes):
    rng = np.random.default_rng(2)
    return single(
        "LinearClassifier",
        features,
        True,
        coefficients=rng.standard_normal(features * classes).tolist(),
        intercepts=rng.standard_normal(classes).tolist(),
        classlabels_ints=list(range(classes)),
        post_transform="SOFTMAX",
    )


def vectors(features, classes, each, probability):
    rng = np.random.default_rng(3)
    pairs, count = classes * (classes - 1) // 2, classes * each
    more = {"prob_a": [-1.5] * pairs, "prob_b": [0.1] * pairs} if probability else {}
    return single(
        "SVMClassifier",
        features,
        True,
        kernel_type="RBF",
        kernel_params=[0.1, 0.0, 3.0],
        vectors_per_class=[each] * classes,
        rho=rng.standard_normal(pairs).tolist(),
        support_vectors=rng.standard_normal(count * features).tolist(),
        coefficients=rng.standard_normal((classes - 1) * count).tolist(),
        classlabels_ints=list(range(classes)),
        **more,
    )


def single(op, features, labels, **attributes):
    outputs = ["label", "scores"] if labels else ["y"]
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    kinds = [TensorProto.INT64, TensorProto.FLOAT] if labels else [TensorProto.FLOAT]
    ports = [helper.make_tensor_value_info(o, k, None) for o, k in zip(outputs, kinds)]
    graph = helper.make_graph(
        [node], op, [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", features])], ports
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8
    )


LARGE = {
    "forest 100 x 8, 10 classes": lambda: forest(100, 8, 20, 10),
    "forest 200 x 12, regression": lambda: forest(200, 12, 30),
    "boosted 100 x 6, 2 classes": lambda: forest(100, 6, 30, 2),
    "boosted 500 x 6, regression": lambda: forest(500, 6, 50),
    "boosted 1000 x 4, regression": lambda: forest(1000, 4, 50),
    "uneven 100 x 20, regression": lambda: forest(100, 20, 30, leaf_share=0.35),
    "linear 100 features, 10 classes": lambda: linear(100, 10),
    "vectors 300, 20 features, 3 classes": lambda: vectors(20, 3, 100, False),
    "vectors 300 with probabilities": lambda: vectors(20, 3, 100, True),
}


def without_maps(model):
    """The same model, giving the tensor that a ZipMap would take apart."""
    graph = model.graph
    for zipped in [n for n in graph.node if n.op_type == "ZipMap"]:
        graph.node.remove(zipped)
        for out in graph.output:
            if out.name == zipped.output[0]:
                out.CopyFrom(helper.make_tensor_value_info(zipped.input[0], TensorProto.FLOAT, None))
    return model


def bound(model, batch):
    """The model with its batch fixed."""
    for port in model.graph.input:
        if port.type.HasField("tensor_type"):
            for d in port.type.tensor_type.shape.dim:
                if not d.HasField("dim_value"):
                    d.dim_value = batch
    for port in model.graph.output:
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")
    return model


def cases(large_only):
    with zipfile.ZipFile(ROOT / "tests" / "python" / "ml_models.zip") as archive:
        for name in archive.namelist() if not large_only else ():
            yield name.removesuffix(".onnx"), lambda name=name: onnx.load_from_string(
                zipfile.ZipFile(archive.filename).read(name)
            )
    yield from LARGE.items()


class BoundOrtOfStrings(operators.BoundOrt):
    """ONNX Runtime on inputs bound beforehand; it makes outputs of strings anew each time, as they cannot be bound."""

    def __init__(self, path, feeds):
        import onnxruntime as ort

        self.runner = peers.OnnxRuntime.load(path, 1).runner
        self.binding = self.runner.io_binding()
        for name, x in feeds.items():
            self.binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(x))
        for y in self.runner.get_outputs():
            self.binding.bind_output(y.name, "cpu")
        self.runner.run_with_iobinding(self.binding)

    def outputs(self):
        return [y.numpy() for y in self.binding.get_outputs()]


def measure(name, model, batch, rounds, folder):
    path = folder / "case.onnx"
    model = bound(without_maps(model), batch)
    feeds = inputs_of(name, model, batch)
    onnx.save(model, str(path))
    library, _ = peers.Lathe.compile(path)
    plain = any(not isinstance(v, np.ndarray) or v.dtype == object for v in feeds.values())
    strings = any(o.type.tensor_type.elem_type == TensorProto.STRING for o in model.graph.output)
    if plain:
        ours, theirs = peers.Lathe(library, 1), peers.OnnxRuntime(path, 1)
        runners = {"Lathe": ours, "ONNX Runtime": theirs}
        found, wanted = ours.run(feeds), theirs.run(feeds)
    else:
        runners = {
            "Lathe": operators.BoundLathe(library, 1, feeds),
            "ONNX Runtime": BoundOrtOfStrings(path, feeds) if strings else operators.BoundOrt(path, 1, feeds),
        }
        found, wanted = (r.outputs() for r in runners.values())
    for f, w in zip(found, wanted):
        if f.dtype.kind == "f":
            np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-4)
        else:
            assert np.mean(f.astype(str) == np.asarray(w).astype(str)) > 0.99
    times = peers.cpu_times(runners, feeds, rounds)
    pairs = [t / o for o, t in zip(times["Lathe"], times["ONNX Runtime"])]
    return {
        "model": name,
        "batch": batch,
        "lathe_us": statistics.median(times["Lathe"]) * 1e6,
        "onnxruntime_us": statistics.median(times["ONNX Runtime"]) * 1e6,
        "ratio": statistics.median(pairs),
        "kernels": len(library.model.nodes()),
        "bound": not plain,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", help="only models whose name matches")
    parser.add_argument("--batch", default="1,1000")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--large", action="store_true", help="only the larger models")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help=f"fail when a ratio is below {REQUIRED}")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in cases(args.large):
            for batch in map(int, args.batch.split(",")) if re.search(args.filter, name) else ():
                rows.append(measure(name, make(), batch, args.rounds, pathlib.Path(folder)))
                if not args.json:
                    r = rows[-1]
                    print(
                        f"{r['ratio']:7.2f}  {r['lathe_us']:10.1f} us  {r['onnxruntime_us']:10.1f} us  "
                        f"{r['kernels']:3} kernels  batch {batch:5}  {name}",
                        flush=True,
                    )
    if args.json:
        print(json.dumps(rows, indent=1))
    slow = [r for r in rows if r["ratio"] < REQUIRED]
    for r in sorted(slow, key=lambda r: r["ratio"]):
        print(f"below {REQUIRED}: {r['model']} at batch {r['batch']}: {r['ratio']:.2f}", file=sys.stderr)
    return 1 if args.check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
