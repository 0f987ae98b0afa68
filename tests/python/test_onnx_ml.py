"""ai.onnx.ml: what exporters write, and every operator with the attributes that it has, beside ONNX Runtime."""

import pathlib
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lathe
from lathe import onnx_backend, relay
from lathe.contrib import graph_executor
from lathe.relay.build_module import build
from lathe.relay.frontend.onnx import import_onnx
from ml_inputs import inputs_of

ort = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)

ARCHIVE = zipfile.ZipFile(pathlib.Path(__file__).resolve().parent / "ml_models.zip")
NAMES = sorted(n.removesuffix(".onnx") for n in ARCHIVE.namelist())
F32, F64, I64, TEXT = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING


def compiled(model, shapes=None):
    mod, _, _ = import_onnx(model, shapes) if shapes else import_onnx(model)
    with lathe.transform.PassContext(opt_level=3):
        return build(mod)["default"]().executor


def run(executor, feeds):
    for name, x in feeds.items():
        executor.set_input(name, x)
    executor.run()
    found = [executor.get_output(i) for i in range(len(executor.outputs))]
    return [y if isinstance(y, list) else y.numpy() for y in found]


def theirs(model):
    return ort.InferenceSession(
        model if isinstance(model, bytes) else model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def same(found, wanted, rtol=2e-4, atol=2e-5):
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted):
        if isinstance(w, list):
            assert isinstance(f, list) and len(f) == len(w)
            for a, b in zip(f, w):
                assert list(a) == list(b)
                np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=rtol, atol=atol)
        elif np.asarray(w).dtype.kind == "f":
            assert f.dtype == w.dtype and f.shape == w.shape
            np.testing.assert_allclose(f, w, rtol=rtol, atol=atol)
        else:
            assert f.shape == np.shape(w)
            np.testing.assert_array_equal(f, w)


# ---- what exporters write


def test_there_are_enough_models():
    ops = {
        n.op_type
        for name in NAMES
        for n in onnx.load_from_string(ARCHIVE.read(f"{name}.onnx")).graph.node
        if n.domain == "ai.onnx.ml"
    }
    assert len(NAMES) >= 100
    assert ops >= {
        "TreeEnsembleClassifier",
        "TreeEnsembleRegressor",
        "LinearClassifier",
        "LinearRegressor",
        "SVMClassifier",
        "SVMRegressor",
        "ZipMap",
        "Scaler",
        "Normalizer",
        "Imputer",
        "OneHotEncoder",
        "LabelEncoder",
        "Binarizer",
        "DictVectorizer",
        "ArrayFeatureExtractor",
    }


@pytest.mark.parametrize("name", NAMES)
def test_exported(name):
    """One compiled file for any batch."""
    data = ARCHIVE.read(f"{name}.onnx")
    model = onnx.load_from_string(data)
    ours, other = compiled(data), theirs(data)
    for batch in (1, 7, 1000):
        feeds = inputs_of(name, model, batch)
        same(run(ours, feeds), other.run(None, feeds))


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize(
    "name",
    [
        "random_forest_classifier_3_names",
        "gradient_boosting_classifier_2",
        "xgboost_classifier_gaps",
        "lightgbm_regressor",
        "svc_probability_3",
        "random_forest_regressor_several",
        "logistic_regression_3",
        "random_forest_double",
    ],
)
def test_exported_of_a_known_batch(name, batch):
    data = ARCHIVE.read(f"{name}.onnx")
    feeds = inputs_of(name, onnx.load_from_string(data), batch)
    same(run(compiled(data, {n: x.shape for n, x in feeds.items()}), feeds), theirs(data).run(None, feeds))


# ---- maps


def test_maps_come_out_as_dicts():
    data = ARCHIVE.read("random_forest_classifier_3_names.onnx")
    feeds = inputs_of("", onnx.load_from_string(data), 4)
    mod, params = relay.frontend.from_onnx(data)
    module = graph_executor.GraphModule(relay.build(mod, params=params)["default"](lathe.cpu(0)))
    module.run(**feeds)
    labels, rows = theirs(data).run(None, feeds)
    assert module.get_num_outputs() == 2
    assert module.get_output(0).numpy().tolist() == labels.tolist()
    assert [list(r) for r in module.get_output(1)] == [list(r) for r in rows] and all(
        isinstance(k, str) for r in rows for k in r
    )
    assert type(onnx_backend.run_model(data, [feeds["x"]])[1][0]) is dict


def test_a_map_is_two_ports_of_the_file(tmp_path):
    data = ARCHIVE.read("decision_tree_classifier_2.onnx")
    mod, params = relay.frontend.from_onnx(data)
    relay.build(mod, params=params).export_library(str(tmp_path / "m.so"))
    model = lathe.runtime.load_module(str(tmp_path / "m.so"))["default"]().executor._model
    assert [(p.name, p.dtype) for p in model.outputs] == [
        ("output_label", "int64"),
        ("output_probability.keys", "int64"),
        ("output_probability.values", "float32"),
    ]


def test_a_map_wants_a_dict():
    executor = compiled(ARCHIVE.read("dict_vectorizer.onnx"))
    with pytest.raises(lathe.error.TypeError, match="a dict is wanted, not a list"):
        executor.set_input(0, [1, 2])
    same(run(executor, {executor.inputs[0].name: {}}), [np.zeros((1, 3), np.float32)])


def test_keys_that_do_not_go_in_one_piece():
    """A zero inside a text, bytes, letters of several bytes: a map takes them as one by one."""
    words = ["a", "b\0c", "ä", ""]
    model = ml_model("DictVectorizer", [map_port("x", TEXT, F32)], [port("y", F32, None)], 1, string_vocabulary=words)
    executor = compiled(model.SerializeToString())
    for given, wanted in [
        ({"b": 1.0, "c": 2.0, "a": 3.0}, [3, 0, 0, 0]),
        ({"b\0c": 1.5, "ä": 2.0}, [0, 1.5, 2, 0]),
        ({b"a": 4.0, "": 5.0}, [4, 0, 0, 5]),
        ({"a": float("nan"), "other": float("inf")}, [np.nan, 0, 0, 0]),
        ({}, [0, 0, 0, 0]),
    ]:
        same(run(executor, {"x": given}), [np.array([wanted], np.float32)])
    with pytest.raises(lathe.error.TypeError, match="of an array of strings is a int"):
        executor.set_input("x", {1: 2.0})


def test_labels_are_the_same_in_every_run():
    """Texts of the model's own are asked for once; those that come with an input anew each time."""
    model = ml_model(
        "LabelEncoder", [port("x", TEXT, [2])], [port("y", TEXT, [2])], 2,
        keys_strings=["one", "two"], values_strings=["eins", "zwei"], default_string="?",
    )
    first = compiled(model.SerializeToString())
    second = first.entry(0)
    for executor in (first, second, first):
        for given, wanted in [(["one", "two"], ["eins", "zwei"]), (["two", "six"], ["zwei", "?"])]:
            assert run(executor, {"x": np.array(given, object)})[0].tolist() == wanted
    names = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([names], "g", [port("x", TEXT, [2])], [port("y", TEXT, [2])])
    same_again = compiled(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString())
    for given in (["p", "q"], ["r", "s"], ["q", "r"]):
        assert run(same_again, {"x": np.array(given, object)})[0].tolist() == given


def port(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def map_port(name, key, value):
    return helper.make_value_info(name, helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, [])))


def ml_model(op, inputs, outputs, version=3, **attributes):
    node = helper.make_node(op, [i.name for i in inputs], [o.name for o in outputs], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], op, inputs, outputs)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)], ir_version=9
    )


def check(model, feeds, **tolerance):
    same(run(compiled(model.SerializeToString()), feeds), theirs(model).run(None, feeds), **tolerance)


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize("cast_to, kind", [("TO_FLOAT", F32), ("TO_INT64", I64)])
def test_cast_map(form, cast_to, kind):
    check(
        ml_model(
            "CastMap", [map_port("x", I64, F32)], [port("y", kind, None)], 1, cast_to=cast_to, map_form=form, max_map=5
        ),
        {"x": {3: 2.5, 0: 1.25, 2: 7.0}},
    )


def test_a_map_of_ints():
    check(
        ml_model("DictVectorizer", [map_port("x", I64, F32)], [port("y", F32, None)], 1, int64_vocabulary=[9, 5, 7]),
        {"x": {5: 1.5, 7: 2.0, 1: 4.0}},
    )


# ---- trees


def ensemble(rng, trees, depth, features, targets, modes, entries, missing, stem, scale=1.0):
    """The lists of a random ensemble; leaves have weights for some targets."""
    node = {
        k: []
        for k in (
            "treeids",
            "nodeids",
            "featureids",
            "values",
            "modes",
            "truenodeids",
            "falsenodeids",
            "missing_value_tracks_true",
        )
    }
    leaf = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        level, count = [0], 1
        for at in range(depth + 1):
            following = []
            for i in level:
                ends = at == depth or (at > 0 and rng.random() < 0.2)
                values = (
                    tree,
                    i,
                    int(rng.integers(features)),
                    float(rng.integers(-2, 3)),
                    "LEAF" if ends else str(rng.choice(modes)),
                    *((0, 0) if ends else (count, count + 1)),
                    int(missing and rng.random() < 0.5),
                )
                for key, v in zip(node, values):
                    node[key].append(v)
                if ends:
                    for target in sorted(rng.choice(targets, min(entries, targets), replace=False)):
                        for key, v in zip(leaf, (tree, i, int(target), float(scale * rng.standard_normal()))):
                            leaf[key].append(v)
                else:
                    following += [count, count + 1]
                    count += 2
            level = following
    return {f"nodes_{k}": v for k, v in node.items()} | {f"{stem}_{k}": v for k, v in leaf.items()}


def whole_numbers(rng, batch, features, kind=np.float32):
    """Numbers that often meet a threshold, and some that are none."""
    x = rng.integers(-3, 4, (batch, features)).astype(np.float64)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x.astype(kind)


MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets, entries", [(1, 1), (3, 3), (7, 2)])
@pytest.mark.parametrize(
    "modes, missing", [(["BRANCH_LEQ"], False), (["BRANCH_LT"], True), (["BRANCH_EQ"], True), (["BRANCH_NEQ"], False)]
)
def test_tree_regressor(aggregate, targets, entries, modes, missing):
    rng = np.random.default_rng(targets + len(aggregate))
    lists = ensemble(rng, 11, 5, 4, targets, modes, entries, missing, "target")
    base = {"base_values": rng.standard_normal(targets).tolist()} if missing and entries == targets else {}
    model = ml_model(
        "TreeEnsembleRegressor",
        [port("x", F32, ["n", 4])],
        [port("y", F32, None)],
        n_targets=targets,
        aggregate_function=aggregate,
        **lists,
        **base,
    )
    for batch in (1, 45):
        check(model, {"x": whole_numbers(rng, batch, 4)})


def walked(lists, x, targets):
    """The sum of the leaves' weights, node by node."""
    tests = {
        "BRANCH_LEQ": np.less_equal,
        "BRANCH_LT": np.less,
        "BRANCH_GTE": np.greater_equal,
        "BRANCH_GT": np.greater,
        "BRANCH_EQ": np.equal,
        "BRANCH_NEQ": np.not_equal,
    }
    columns = [
        lists[f"nodes_{k}"]
        for k in (
            "treeids",
            "nodeids",
            "featureids",
            "values",
            "modes",
            "truenodeids",
            "falsenodeids",
            "missing_value_tracks_true",
        )
    ]
    nodes = {(t, n): rest for t, n, *rest in zip(*columns)}
    leaves = list(zip(*(lists[f"target_{k}"] for k in ("treeids", "nodeids", "ids", "weights"))))
    out = np.zeros((len(x), targets))
    for row, values in enumerate(x):
        for tree in sorted({t for t, _ in nodes}):
            at = 0
            while nodes[tree, at][2] != "LEAF":
                feature, split, mode, yes, no, missing = nodes[tree, at]
                at = yes if tests[mode](values[feature], split) or (missing and np.isnan(values[feature])) else no
            for t, n, target, weight in leaves:
                out[row, target] += weight if (t, n) == (tree, at) else 0
    return out


@pytest.mark.parametrize("missing", [False, True])
def test_trees_of_mixed_modes(missing):
    """ONNX Runtime refuses some mixtures of modes; these are walked here."""
    rng = np.random.default_rng(12)
    lists = ensemble(rng, 9, 6, 4, 2, MODES, 2, missing, "target")
    model = ml_model("TreeEnsembleRegressor", [port("x", F32, ["n", 4])], [port("y", F32, None)], n_targets=2, **lists)
    ours = compiled(model.SerializeToString())
    for batch in (1, 21):
        x = whole_numbers(rng, batch, 4)
        same(run(ours, {"x": x}), [walked(lists, x, 2).astype(np.float32)])


@pytest.mark.parametrize("kind", ["float64", "int64"])
def test_trees_over_other_numbers(kind):
    rng = np.random.default_rng(8)
    lists = ensemble(rng, 6, 4, 3, 1, ["BRANCH_LT"], 1, False, "target")
    model = ml_model(
        "TreeEnsembleRegressor",
        [port("x", F64 if kind == "float64" else I64, ["n", 3])],
        [port("y", F32, None)],
        n_targets=1,
        **lists,
    )
    x = rng.integers(-3, 4, (33, 3)).astype(kind)
    same(run(compiled(model.SerializeToString()), {"x": x}), [walked(lists, x, 1).astype(np.float32)])


def test_a_base_of_a_target_without_weights():
    """Three targets, of which a row meets two."""
    rng = np.random.default_rng(2)
    lists = ensemble(rng, 1, 2, 3, 3, ["BRANCH_LEQ"], 2, False, "target")
    model = ml_model(
        "TreeEnsembleRegressor",
        [port("x", F32, ["n", 3])],
        [port("y", F32, None)],
        n_targets=3,
        base_values=[1.0, 2.0, 3.0],
        **lists,
    )
    x = rng.standard_normal((12, 3)).astype(np.float32)
    same(run(compiled(model.SerializeToString()), {"x": x}), [(walked(lists, x, 3) + [1, 2, 3]).astype(np.float32)])


def test_trees_with_thresholds_of_doubles():
    """A threshold that is no float32, and an input on either side of it."""
    at = 1 + 2.0**-40
    lists = dict(
        nodes_treeids=[0] * 3,
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0] * 3,
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0, 0],
        class_nodeids=[1, 2],
        class_ids=[0, 0],
        classlabels_int64s=[3, 8],
    )
    tensors = {
        "nodes_values_as_tensor": [at, 0.0, 0.0],
        "class_weights_as_tensor": [0.25, 0.75],
        "base_values_as_tensor": [0.125],
    }
    tensors = {k: helper.make_tensor(k, F64, [len(v)], v) for k, v in tensors.items()}
    model = ml_model(
        "TreeEnsembleClassifier",
        [port("x", F64, ["n", 1])],
        [port("l", I64, None), port("p", F32, None)],
        **lists,
        **tensors,
    )
    x = np.array([[at], [np.nextafter(at, 2)], [1.0]])
    same(
        run(compiled(model.SerializeToString()), {"x": x}),
        [np.array([3, 8, 3]), np.array([[0.625, 0.375], [0.125, 0.875], [0.625, 0.375]], np.float32)],
    )
    check(model, {"x": x})


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize(
    "labels, used, base", [(3, 3, 0), (3, 3, 3), (3, 2, 0), (5, 1, 5), (2, 1, 0), (2, 1, 1), (1, 1, 0), (1, 1, 1)]
)
@pytest.mark.parametrize("positive", [True, False])
def test_tree_classifier(post, labels, used, base, positive):
    if post == "PROBIT" and labels == 2:
        pytest.skip("ONNX Runtime leaves one of the columns as it finds it")
    rng = np.random.default_rng(labels + 10 * used + base)
    lists = ensemble(rng, 4, 3, 3, used, ["BRANCH_LEQ"], used, False, "class", scale=0.1)
    if positive:
        lists["class_weights"] = [abs(w) for w in lists["class_weights"]]
    base = {"base_values": (0.05 * rng.random(base)).tolist()} if base else {}
    model = ml_model(
        "TreeEnsembleClassifier",
        [port("x", F32, ["n", 3])],
        [port("l", I64, None), port("p", F32, None)],
        classlabels_int64s=[7 * i + 2 for i in range(labels)],
        post_transform=post,
        **lists,
        **base,
    )
    check(model, {"x": rng.standard_normal((19, 3)).astype(np.float32)})


def test_two_classes_with_weights_for_both():
    """The class of the larger score; ONNX Runtime gives 1 or 0 here, whatever the labels are."""
    rng = np.random.default_rng(4)
    lists = ensemble(rng, 5, 3, 3, 2, ["BRANCH_LEQ"], 2, False, "class")
    model = ml_model(
        "TreeEnsembleClassifier",
        [port("x", F32, ["n", 3])],
        [port("l", I64, None), port("p", F32, None)],
        classlabels_int64s=[4, 9],
        **lists,
    )
    feeds = {"x": rng.standard_normal((30, 3)).astype(np.float32)}
    labels, scores = run(compiled(model.SerializeToString()), feeds)
    np.testing.assert_allclose(scores, theirs(model).run(None, feeds)[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(labels, np.array([4, 9])[scores.argmax(axis=1)])


def test_trees_with_sets():
    """BRANCH_MEMBER and all aggregates of version 5, beside the reference of the onnx package."""
    from onnx.reference import ReferenceEvaluator

    tensor = lambda name, kind, v: helper.make_tensor(name, kind, [len(v)], v)  # noqa: E731
    for aggregate in range(4):
        model = ml_model(
            "TreeEnsemble",
            [port("x", F32, ["n", 2])],
            [port("y", F32, None)],
            5,
            n_targets=2,
            aggregate_function=aggregate,
            post_transform=0,
            tree_roots=[0, 2],
            nodes_featureids=[0, 1, 1],
            nodes_splits=tensor("s", F32, [3.0, 4.0, 0.0]),
            nodes_modes=tensor("m", TensorProto.UINT8, [0, 6, 6]),
            nodes_truenodeids=[1, 0, 3],
            nodes_trueleafs=[0, 1, 1],
            nodes_falsenodeids=[2, 1, 1],
            nodes_falseleafs=[1, 1, 1],
            membership_values=tensor("v", F32, [1.0, 5.0, 2.0, 9.0, 7.0, np.nan, 4.0, np.nan]),
            leaf_targetids=[0, 1, 0, 1],
            leaf_weights=tensor("w", F32, [1.0, 10.0, 1000.0, 7.0]),
        )
        x = np.array([[a, b] for a in (0, 3, 4, np.nan) for b in (1, 2, 3, 4, 5, 7, 8, 9, 10, np.nan)], np.float32)
        wanted = ReferenceEvaluator(model).run(None, {"x": x}) if aggregate == 1 else theirs(model).run(None, {"x": x})
        same(run(compiled(model.SerializeToString()), {"x": x}), wanted)


# ---- the others


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("rows, labels", [(1, 2), (2, 2), (3, 3)])
def test_linear_classifier(post, rows, labels):
    if post == "PROBIT" and rows == 1:
        pytest.skip("ONNX Runtime leaves one of the columns as it finds it")
    rng = np.random.default_rng(rows)
    model = ml_model(
        "LinearClassifier",
        [port("x", F32, ["n", 4])],
        [port("l", TEXT, None), port("p", F32, None)],
        1,
        coefficients=(0.1 * rng.random(4 * rows)).tolist(),
        intercepts=(0.1 * rng.random(rows)).tolist(),
        classlabels_strings=[f"class {i}" for i in range(labels)],
        post_transform=post,
    )
    check(
        model,
        {
            "x": (
                rng.standard_normal((9, 4)).astype(np.float32)
                if post != "PROBIT"
                else rng.random((9, 4)).astype(np.float32)
            )
        },
        atol=1e-4,
    )


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(post, targets):
    rng = np.random.default_rng(targets)
    model = ml_model(
        "LinearRegressor",
        [port("x", F32, ["n", 4])],
        [port("y", F32, None)],
        1,
        coefficients=rng.standard_normal(4 * targets).tolist(),
        intercepts=rng.standard_normal(targets).tolist(),
        targets=targets,
        post_transform=post,
    )
    check(model, {"x": rng.standard_normal((9, 4)).astype(np.float32)})


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel, one_class):
    rng = np.random.default_rng(3)
    model = ml_model(
        "SVMRegressor",
        [port("x", F32, ["n", 4])],
        [port("y", F32, None)],
        1,
        kernel_type=kernel,
        kernel_params=[0.3, 0.2, 3.0],
        n_supports=6,
        one_class=one_class,
        support_vectors=rng.standard_normal(24).tolist(),
        coefficients=rng.standard_normal(6).tolist(),
        rho=[0.1],
    )
    check(model, {"x": rng.standard_normal((9, 4)).astype(np.float32)})


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("probability", [False, True])
def test_svm_classifier(post, classes, probability):
    rng = np.random.default_rng(classes)
    pairs, count = classes * (classes - 1) // 2, 3 * classes
    more = (
        {"prob_a": (-1 - rng.random(pairs)).tolist(), "prob_b": rng.standard_normal(pairs).tolist()}
        if probability
        else {}
    )
    model = ml_model(
        "SVMClassifier",
        [port("x", F32, ["n", 4])],
        [port("l", I64, None), port("p", F32, None)],
        1,
        kernel_type="RBF",
        kernel_params=[0.3, 0.0, 3.0],
        vectors_per_class=[3] * classes,
        support_vectors=rng.standard_normal(4 * count).tolist(),
        coefficients=rng.standard_normal((classes - 1) * count).tolist(),
        rho=rng.standard_normal(pairs).tolist(),
        classlabels_ints=[5 * i + 1 for i in range(classes)],
        post_transform=post,
        **more,
    )
    check(model, {"x": rng.standard_normal((40, 4)).astype(np.float32)}, atol=1e-4)


@pytest.mark.parametrize("classes", [2, 3])
def test_svm_classifier_without_vectors(classes):
    rng = np.random.default_rng(classes)
    model = ml_model(
        "SVMClassifier",
        [port("x", F32, ["n", 4])],
        [port("l", I64, None), port("p", F32, None)],
        1,
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
        coefficients=rng.standard_normal(4 * classes).tolist(),
        rho=[0.3],
        classlabels_ints=list(range(classes)),
    )
    check(model, {"x": rng.standard_normal((20, 4)).astype(np.float32)})


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_normalizer(norm, kind):
    x = np.array([[1, -2, 3], [0, 0, 0], [-4, -1, -2]], kind)
    check(
        ml_model(
            "Normalizer",
            [port("x", helper.np_dtype_to_tensor_dtype(x.dtype), ["n", 3])],
            [port("y", F32, None)],
            1,
            norm=norm,
        ),
        {"x": x},
    )


@pytest.mark.parametrize("sizes, columns", [([2, 2], 2), ([3, 1], 2), ([1, 3], 2)])
def test_feature_vectorizer(sizes, columns):
    x = np.arange(6, dtype=np.float32).reshape(3, columns)
    model = ml_model(
        "FeatureVectorizer",
        [port("x", F32, ["n", columns]), port("z", F32, ["n", columns])],
        [port("y", F32, None)],
        1,
        inputdimensions=sizes,
    )
    check(model, {"x": x, "z": 10 * x})


@pytest.mark.parametrize("values", [[7.0], [7.0, 8.0, 9.0]])
@pytest.mark.parametrize("replaced", [1.0, float("nan")])
def test_imputer(values, replaced):
    x = np.array([[1, np.nan, 2], [np.nan, 1, 1]], np.float32)
    check(
        ml_model(
            "Imputer",
            [port("x", F32, ["n", 3])],
            [port("y", F32, None)],
            1,
            imputed_value_floats=values,
            replaced_value_float=replaced,
        ),
        {"x": x},
    )


def test_imputer_of_ints():
    check(
        ml_model(
            "Imputer",
            [port("x", I64, ["n", 2])],
            [port("y", I64, None)],
            1,
            imputed_value_int64s=[7, 8],
            replaced_value_int64=-1,
        ),
        {"x": np.array([[1, -1], [-1, 3]])},
    )


def test_one_hot_encoder():
    check(
        ml_model("OneHotEncoder", [port("x", F32, ["n", 2])], [port("y", F32, None)], 1, cats_int64s=[3, 1, 2]),
        {"x": np.array([[1.7, 3], [9, 2]], np.float32)},
    )
    check(
        ml_model(
            "OneHotEncoder", [port("x", TEXT, ["n"])], [port("y", F32, None)], 1, cats_strings=["a", "b"], zeros=0
        ),
        {"x": np.array(["b", "a"], object)},
    )


def test_an_unknown_category_is_refused_where_zeros_is_0():
    executor = compiled(
        ml_model(
            "OneHotEncoder", [port("x", I64, ["n"])], [port("y", F32, None)], 1, cats_int64s=[3, 1], zeros=0
        ).SerializeToString()
    )
    executor.set_input("x", np.array([1, 2]))
    with pytest.raises(lathe.error.LatheError):
        executor.run()


@pytest.mark.parametrize("many", [5, 300])
@pytest.mark.parametrize("keys", ["int64s", "floats", "strings"])
@pytest.mark.parametrize("values", ["int64s", "floats", "strings"])
def test_label_encoder(many, keys, values):
    """The first of equal keys counts."""
    rng = np.random.default_rng(many)
    of = {
        "int64s": [int(v) for v in rng.integers(-many, many, many)],
        "strings": [f"word {v}" for v in rng.integers(0, many, many)],
    }
    of["floats"] = [float(v) + 0.25 for v in of["int64s"]]
    kinds = {"int64s": (I64, np.int64), "floats": (F32, np.float32), "strings": (TEXT, object)}
    x = np.array([*of[keys], {"int64s": 10**9, "floats": 0.5, "strings": "other"}[keys]], kinds[keys][1])
    model = ml_model(
        "LabelEncoder",
        [port("x", kinds[keys][0], ["n"])],
        [port("y", kinds[values][0], None)],
        2,
        **{f"keys_{keys}": of[keys], f"values_{values}": of[values]},
        **{f"default_{values[:-1]}": {"int64s": 77, "floats": 7.5, "strings": "none"}[values]},
    )
    check(model, {"x": x})


@pytest.mark.parametrize("many", [1, 100])
def test_nan_is_a_key(many):
    keys, values = [*map(float, range(many)), float("nan")], [*range(many), 55]
    model = ml_model(
        "LabelEncoder", [port("x", F32, ["n"])], [port("y", I64, None)], 2, keys_floats=keys, values_int64s=values
    )
    same(
        run(compiled(model.SerializeToString()), {"x": np.array([np.nan, 0, 1000], np.float32)}),
        [np.array([55, 0, -1])],
    )


def test_label_encoder_of_tensors():
    """Version 4 with doubles."""
    tensor = lambda name, kind, v: helper.make_tensor(name, kind, [len(v)], v)  # noqa: E731
    model = ml_model(
        "LabelEncoder",
        [port("x", F64, ["n"])],
        [port("y", I64, None)],
        4,
        keys_tensor=tensor("k", F64, [0.1, 0.2]),
        values_tensor=tensor("v", I64, [5, 6]),
        default_tensor=tensor("d", I64, [-3]),
    )
    same(run(compiled(model.SerializeToString()), {"x": np.array([0.2, 0.1, 0.3])}), [np.array([6, 5, -3])])


@pytest.mark.parametrize("x, kind", [(np.array(["c", "z", "a"], object), I64), (np.array([2, 7, -1, 0]), TEXT)])
def test_label_encoder_1_and_category_mapper(x, kind):
    inputs = [port("x", TEXT if kind == I64 else I64, ["n"])]
    check(
        ml_model(
            "LabelEncoder",
            inputs,
            [port("y", kind, None)],
            1,
            classes_strings=["a", "b", "c"],
            default_int64=-9,
            default_string="?",
        ),
        {"x": x},
    )
    check(
        ml_model(
            "CategoryMapper",
            inputs,
            [port("y", kind, None)],
            1,
            cats_strings=["a", "b", "c"],
            cats_int64s=[7, 2, 0],
            default_int64=-9,
            default_string="?",
        ),
        {"x": x},
    )


# ---- float8_e8m0


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_cast_to_a_power_of_two(mode, saturate):
    x = np.array(
        [
            0,
            1,
            1.25,
            1.5,
            1.75,
            2,
            3,
            -3,
            6,
            1e-45,
            2.0**-127,
            1.5 * 2.0**-127,
            2.0**-126 * 1.5,
            1.7e38,
            2.5e38,
            3.4e38,
            np.inf,
            -np.inf,
            np.nan,
        ],
        np.float32,
    )
    nodes = [
        helper.make_node("Cast", ["x"], ["p"], to=TensorProto.FLOAT8E8M0, round_mode=mode, saturate=saturate),
        helper.make_node("Cast", ["p"], ["y"], to=F32),
    ]
    graph = helper.make_graph(nodes, "cast", [port("x", F32, ["n"])], [port("y", F32, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    wanted = onnx.numpy_helper.to_float8e8m0(x, bool(saturate), mode).astype(np.float32)
    np.testing.assert_array_equal(run(compiled(model.SerializeToString()), {"x": x})[0], wanted)
