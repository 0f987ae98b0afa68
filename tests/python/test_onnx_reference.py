"""Operators against onnx's reference evaluator, beyond what the public suites ask of them."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import lathe  # noqa: E402
from lathe import error, relay  # noqa: E402


def model_of(nodes, inputs, outputs, opset=17):
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def compile_model(model, level=3):
    with lathe.transform.PassContext(opt_level=level):
        return relay.build(relay.frontend.from_onnx(model)[0])["default"]().executor


def run(executor, feeds, outputs=1):
    for name, value in feeds.items():
        executor.set_input(name, value)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(outputs)]


# ---- TfIdfVectorizer

POOL = [2, 3, 5, 4, 5, 6, 7, 8, 6, 7, 2, 3, 3, 5, 2, 3]        # 4 unigrams, 3 bigrams, 2 trigrams
ATTRS = {"ngram_counts": [0, 4, 10], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6, 8, 7], "pool_int64s": POOL, "mode": "TF",
         "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 2}


def tfidf(shape, dtype=TensorProto.INT64, **attrs):
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{**ATTRS, **attrs})
    return model_of([node], [helper.make_tensor_value_info("x", dtype, shape)], ["y"])


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"min_gram_length": 2},
        {"max_gram_length": 1},
        {"min_gram_length": 3, "max_skip_count": 0},
        {"max_skip_count": 20},
        {"ngram_indexes": [8, 0, 3, 1, 5, 2, 7, 4, 6]},
        {"ngram_indexes": [0, 2, 2, 5, 0, 2, 9, 1, 1]},
        {"ngram_counts": [0, 0, 10], "ngram_indexes": [0] * 5 + [4] * 2},
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_ngrams(rng, mode, attrs, weighted):
    """Without weights they are one, which the evaluator wants to be told."""
    columns = max(attrs.get("ngram_indexes", ATTRS["ngram_indexes"])) + 1
    weights = rng.normal(size=columns).astype("float32").tolist() if weighted else [1.0] * columns
    models = [
        tfidf(["rows", "length"], TensorProto.INT32, **attrs, mode=mode, **w)
        for w in ({"weights": weights} if weighted else {}, {"weights": weights})
    ]
    compiled, reference = compile_model(models[0]), ReferenceEvaluator(models[1])
    for shape in ((3, 20), (1, 2), (2, 1)):
        x = rng.integers(2, 9, shape).astype("int32")
        np.testing.assert_allclose(run(compiled, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-6)


def test_ngrams_of_one_row(rng):
    model = tfidf([12])
    x = rng.integers(2, 9, 12)
    np.testing.assert_array_equal(
        run(compile_model(model), {"x": x})[0], ReferenceEvaluator(model).run(None, {"x": x})[0]
    )


@pytest.mark.parametrize(
    "attrs, says",
    [
        ({"mode": "TFF"}, "mode is 'TFF'"),
        ({"ngram_counts": [0, 40]}, "ngram_counts"),
        ({"ngram_counts": [4, 0]}, "ngram_counts"),
        ({"ngram_indexes": [0, -1]}, "ngram_indexes"),
        ({"ngram_indexes": [0, 1]}, "ngram_indexes"),
        ({"min_gram_length": 4}, "make no sense"),
        ({"mode": "IDF", "weights": [1.0]}, "1 weights are given for 9 columns"),
        ({"max_skip_count": -1}, "skips is -1"),
    ],
)
def test_ngrams_that_do_not_fit(attrs, says):
    with pytest.raises(error.LatheError, match=says):
        relay.frontend.from_onnx(tfidf([12], **attrs))


def test_ngrams_of_strings_in_numbers_are_refused():
    attrs = {k: v for k, v in ATTRS.items() if k != "pool_int64s"}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], pool_strings=["a"] * 16, **attrs)
    model = model_of([node], [helper.make_tensor_value_info("x", TensorProto.INT64, [12])], ["y"])
    with pytest.raises(error.TypeError, match="not both numbers or both strings"):
        relay.frontend.from_onnx(model)


# ---- Range


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT])
@pytest.mark.parametrize("level", [0, 3])
def test_a_range_of_floats_known_at_run_time(dtype, level):
    names = ["start", "limit", "delta"]
    node = helper.make_node("Range", names, ["y"])
    compiled = compile_model(
        model_of([node], [helper.make_tensor_value_info(n, dtype, []) for n in names], ["y"], 27), level
    )
    np_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    for start, limit, delta in ((1, 5, 2), (0, 1, 0.25), (2, -3, -0.5), (2, 1, 1), (0, 600, 1.5)):
        feeds = dict(zip(names, (np.array(v, np_dtype) for v in (start, limit, delta))))
        want = np.arange(start, limit, delta, dtype="float32").astype(np_dtype)
        got = run(compiled, feeds)[0]
        assert got.dtype == np_dtype or got.dtype == np.uint16
        np.testing.assert_array_equal(got.view(np_dtype).astype("float32"), want.astype("float32"))


# ---- optionals

FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
SEQUENCE = helper.make_sequence_type_proto(FLOATS)
OPTIONAL = helper.make_optional_type_proto(SEQUENCE)


def outputs_of(executor, feeds):
    for name, value in feeds.items():
        executor.set_input(name, value)
    executor.run()
    values = [executor.get_output(i) for i in range(len(executor.outputs))]
    return [[a.numpy() for a in v] if isinstance(v, list) else v if v is None else v.numpy() for v in values]


def test_an_optional_sequence_as_input():
    """Of no items, of one, of several, and none at all."""
    nodes = [helper.make_node("OptionalHasElement", ["o"], ["has"]), helper.make_node("Identity", ["o"], ["same"])]
    executor = compile_model(model_of(nodes, [helper.make_value_info("o", OPTIONAL)], ["has", "same"], 18))
    for items in ([], [1.0], [1.0, 2.0]):
        has, same = outputs_of(executor, {"o": [np.float32(i) for i in items]})
        assert has and [float(i) for i in same] == items
    has, same = outputs_of(executor, {"o": None})
    assert not has and same is None
    node = helper.make_node("OptionalGetElement", ["o"], ["s"])
    length = helper.make_node("SequenceLength", ["s"], ["n"])
    executor = compile_model(model_of([node, length], [helper.make_value_info("o", OPTIONAL)], ["n"], 18))
    assert [int(outputs_of(executor, {"o": [np.ones(k, "float32")] * k})[0]) for k in range(3)] == [0, 1, 2]
    with pytest.raises(error.LatheError, match="no value|optional"):
        outputs_of(executor, {"o": None})


@pytest.mark.parametrize("type_proto, other", [(SEQUENCE, "SequenceConstruct"), (FLOATS, "Identity")])
def test_an_optional_without_value_has_a_type(type_proto, other):
    branches = []
    for name, nodes in (
        ("none", [helper.make_node("Optional", [], ["none"], type=type_proto)]),
        ("some", [helper.make_node(other, ["x"], ["v"]), helper.make_node("Optional", ["v"], ["some"])]),
    ):
        branches.append(
            helper.make_graph(
                nodes, name, [], [helper.make_value_info(name, helper.make_optional_type_proto(type_proto))]
            )
        )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
    ]
    executor = compile_model(model_of([node], inputs, ["y"], 18))
    x = np.array([3, 4], "float32")
    assert outputs_of(executor, {"c": np.array(True), "x": x})[0] is None
    got = outputs_of(executor, {"c": np.array(False), "x": x})[0]
    np.testing.assert_array_equal(got[0] if isinstance(got, list) else got, x)


def test_a_state_that_goes_in_as_an_optional():
    """A loop's body gives the value; the loop's result is the value, or an error where there is none."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("OptionalHasElement", ["o"], ["has"]),
            helper.make_node(
                "If",
                ["has"],
                ["s"],
                then_branch=helper.make_graph(
                    [helper.make_node("OptionalGetElement", ["o"], ["got"])],
                    "t",
                    [],
                    [helper.make_value_info("got", SEQUENCE)],
                ),
                else_branch=helper.make_graph(
                    [helper.make_node("SequenceConstruct", ["x"], ["made"])],
                    "e",
                    [],
                    [helper.make_value_info("made", SEQUENCE)],
                ),
            ),
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["x", "f"], ["sum"]),
            helper.make_node("SequenceInsert", ["s", "sum"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_value_info("o", OPTIONAL),
        ],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), helper.make_value_info("next", SEQUENCE)],
    )
    inputs = [
        helper.make_tensor_value_info("trips", TensorProto.INT64, []),
        helper.make_value_info("first", OPTIONAL),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
    ]
    executor = compile_model(
        model_of([helper.make_node("Loop", ["trips", "", "first"], ["y"], body=body)], inputs, ["y"], 18)
    )
    x = np.array([3, 4], "float32")
    for first, trips in ((None, 1), (None, 3), ([], 2), ([x - 1, x - 2], 2), ([x], 0)):
        want = ([x] if first is None else first) + [x + i for i in range(trips)]
        got = outputs_of(executor, {"trips": np.array(trips), "first": first, "x": x})[0]
        np.testing.assert_array_equal(np.array(got).reshape(-1, 2), np.array(want).reshape(-1, 2))
    with pytest.raises(error.LatheError):
        outputs_of(executor, {"trips": np.array(0), "first": None, "x": x})


# ---- integers of two and four bits


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    "dtype, values",
    [
        (TensorProto.INT2, [-2, -1, 0, 1, 1, -2, 0]),
        (TensorProto.UINT2, [0, 1, 2, 3, 3, 2, 0]),
        (TensorProto.INT4, [-8, -1, 0, 7, 3]),
        (TensorProto.UINT4, [0, 15, 8, 7, 3]),
    ],
)
def test_narrow_integers(dtype, values, raw, target):
    """Packed in the file, a byte each in memory; a cast keeps the low bits."""
    np_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    if raw:
        weight = onnx.numpy_helper.from_array(np.array(values).astype(np_dtype), "w")
    else:
        weight = helper.make_tensor("w", dtype, [len(values)], values)
    nodes = [
        helper.make_node("Cast", ["w"], ["a"], to=TensorProto.INT32),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Cast", ["b"], ["c"], to=dtype),
        helper.make_node("Cast", ["c"], ["y"], to=TensorProto.INT32),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT32, [len(values)])],
        [onnx.ValueInfoProto(name="y")],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    executor = relay.build(relay.frontend.from_onnx(model)[0], target=target)["default"]().executor
    x = np.arange(len(values), dtype="int32")
    signed, bits = dtype in (TensorProto.INT2, TensorProto.INT4), (
        2 if dtype in (TensorProto.INT2, TensorProto.UINT2) else 4
    )
    want = (np.array(values) + x) & ((1 << bits) - 1)
    if signed:
        want = np.where(want >> (bits - 1), want - (1 << bits), want)
    np.testing.assert_array_equal(run(executor, {"x": x})[0], want)


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("raw", [True, False])
def test_floats_of_four_bits(target, raw):
    """Weights of float4 with a scale for each block, and rounding to them: the largest is 6, ties go to even, NaN is
    0."""
    np_dtype = helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT4E2M1)
    weights = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -6, 2, 3], "float32").reshape(2, 6)
    w = (
        onnx.numpy_helper.from_array(weights.astype(np_dtype), "w")
        if raw
        else helper.make_tensor("w", TensorProto.FLOAT4E2M1, weights.shape, weights.ravel())
    )
    scale = np.array([[2, 0.5], [1, 3]], "float32")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1, block_size=3),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT4E2M1),
        helper.make_node("Cast", ["c"], ["z"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [9, 2])],
        [onnx.ValueInfoProto(name=n) for n in "yz"],
        [w, onnx.numpy_helper.from_array(scale, "s")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    executor = relay.build(relay.frontend.from_onnx(model)[0], target=target)["default"]().executor
    x = np.array(
        [0.24, 0.25, 0.26, 0.75, 1.25, 2.5, 3.5, 5, 5.01, -0.25, -0.1, -7, 100, 0, 1, -1, 6, 4], "float32"
    ).reshape(9, 2)
    y, z = run(executor, {"x": x}, 2)
    np.testing.assert_allclose(y, x @ (weights * scale.repeat(3, 1)), rtol=1e-5)
    np.testing.assert_array_equal(z, x.astype(np_dtype).astype("float32"))
    x[0] = [np.nan, np.inf]
    np.testing.assert_array_equal(run(executor, {"x": x}, 2)[1][0], [0, 6])


# ---- Col2Im with sizes that come as inputs


@pytest.mark.parametrize("known", ["both", "image", "block", "none"])
def test_col2im_sizes_known_at_run_time(known):
    attrs = dict(pads=[0, 1, 1, 0], strides=[1, 2], dilations=[2, 1])
    ports = {"x": (TensorProto.FLOAT, ["n", "c", "l"])}
    weights = []
    given = {"image": np.array([5, 6]), "block": np.array([2, 3])}
    for name, value in given.items():
        if known in ("both", name):
            weights.append(numpy_helper.from_array(value, name))
        else:
            ports[name] = (TensorProto.INT64, [2])
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in ports.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    ex = compile_model(model)
    sizes = [([5, 6], [2, 3])] if known != "none" else [([5, 6], [2, 3]), ([7, 4], [1, 2]), ([3, 3], [1, 1])]
    for image, block in sizes:
        windows = [(i + p - d * (k - 1) - 1) // s + 1 for i, k, p, d, s in zip(image, block, (1, 1), (2, 1), (1, 2))]
        x = (
            np.random.default_rng(3)
            .normal(size=(2, 3 * block[0] * block[1], windows[0] * windows[1]))
            .astype("float32")
        )
        feeds = {"x": x, **{n: np.array(v) for n, v in (("image", image), ("block", block)) if n in ports}}
        want = ReferenceEvaluator(model).run(None, {**feeds, **{w.name: numpy_helper.to_array(w) for w in weights}})[0]
        np.testing.assert_allclose(run(ex, feeds)[0], want, rtol=1e-5, atol=1e-6)
    if known == "none":
        for image, block in (([5, 6], [2, 2]), ([5, 6], [0, 3]), ([5, 6], [-1, -1]), ([0, 0], [9, 9])):
            ex.set_input("image", np.array(image))
            ex.set_input("block", np.array(block))
            with pytest.raises(error.LatheError, match="do not fit"):
                ex.run()


# ---- TreeEnsemble


def ensemble(nodes, leaves, roots, dtype=TensorProto.FLOAT, **attrs):
    """nodes: (feature, mode, split, true, false), a child is ("n", i) or ("l", i); leaves: (target, weight)."""
    kind = "float64" if dtype == TensorProto.DOUBLE else "float32"
    tensor = lambda name, v, t: numpy_helper.from_array(np.array(v, t), name)
    node = helper.make_node(
        "TreeEnsemble",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=3,
        tree_roots=roots,
        nodes_featureids=[n[0] for n in nodes],
        nodes_modes=tensor("m", [n[1] for n in nodes], "uint8"),
        nodes_splits=tensor("s", [n[2] for n in nodes], kind),
        nodes_truenodeids=[n[3][1] for n in nodes],
        nodes_trueleafs=[int(n[3][0] == "l") for n in nodes],
        nodes_falsenodeids=[n[4][1] for n in nodes],
        nodes_falseleafs=[int(n[4][0] == "l") for n in nodes],
        leaf_targetids=[l[0] for l in leaves],
        leaf_weights=tensor("w", [l[1] for l in leaves], kind),
        **attrs,
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", dtype, ["n", 4])],
        [helper.make_tensor_value_info("y", dtype, None)],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 5)], ir_version=10
    )


NODES = [
    (0, 0, 0.5, ("n", 1), ("n", 2)),
    (1, 1, -0.25, ("l", 0), ("l", 1)),
    (2, 3, 0.0, ("n", 3), ("l", 2)),
    (3, 2, 1.0, ("l", 3), ("l", 4)),  # a tree of depth 3
    (1, 4, 0.5, ("l", 5), ("n", 5)),
    (3, 5, 0.5, ("l", 6), ("l", 7)),  # one of depth 2
    (0, 0, 0.0, ("l", 8), ("l", 8)),
]  # one that is a leaf
LEAVES = [(0, 1.5), (1, -2.0), (2, 0.25), (0, 3.0), (1, 0.5), (2, -1.0), (0, 0.125), (1, 4.0), (0, 10.0)]


def walk(x, aggregate, missing=None, sets=None):
    out = np.zeros((len(x), 3))
    test = [
        lambda v, s: v <= s,
        lambda v, s: v < s,
        lambda v, s: v >= s,
        lambda v, s: v > s,
        lambda v, s: v == s,
        lambda v, s: v != s,
    ]
    for r, row in enumerate(x):
        got = {}
        for root in (0, 4, 6):
            at = ("n", root)
            while at[0] == "n":
                feature, mode, split, yes, no = NODES[at[1]]
                v = row[feature]
                at = yes if test[mode](v, split) or (missing and missing[at[1]] and np.isnan(v)) else no
            got.setdefault(LEAVES[at[1]][0], []).append(LEAVES[at[1]][1])
        for k, v in got.items():
            out[r, k] = [sum(v) / 3, sum(v), min(v), max(v)][aggregate]
    return out


@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_trees(aggregate, dtype):
    x = (
        np.random.default_rng(5)
        .choice([-1, -0.25, 0, 0.5, 1, 2, np.nan], (40, 4))
        .astype("float32" if dtype == TensorProto.FLOAT else "float64")
    )
    got = run(compile_model(ensemble(NODES, LEAVES, [0, 4, 6], dtype, aggregate_function=aggregate)), {"x": x})[0]
    np.testing.assert_allclose(got, walk(x, aggregate), rtol=1e-6)
    missing = [1, 0, 1, 1, 0, 1, 0]
    got = run(
        compile_model(
            ensemble(
                NODES, LEAVES, [0, 4, 6], dtype, aggregate_function=aggregate, nodes_missing_value_tracks_true=missing
            )
        ),
        {"x": x},
    )[0]
    np.testing.assert_allclose(got, walk(x, aggregate, missing), rtol=1e-6)


def test_trees_with_sets_and_a_transform():
    nodes = [(0, 6, 0.0, ("n", 1), ("l", 0)), (1, 6, 0.0, ("l", 1), ("l", 2))]
    leaves = [(0, 1.0), (1, 2.0), (2, 3.0)]
    values = numpy_helper.from_array(np.array([1.2, 3.7, 8, np.nan, 4, np.nan], "float32"), "v")
    x = np.array([[1.2, 4, 0, 0], [3.7, 5, 0, 0], [8, 4, 0, 0], [2, 4, 0, 0], [np.nan, 4, 0, 0]], "float32")
    raw = np.array([[0, 2, 0], [0, 0, 3], [0, 2, 0], [1, 0, 0], [1, 0, 0]], "float64")
    got = run(compile_model(ensemble(nodes, leaves, [0], membership_values=values, post_transform=1)), {"x": x})[0]
    np.testing.assert_allclose(got, np.exp(raw) / np.exp(raw).sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    "nodes,roots,says",
    [
        ([(0, 0, 0.0, ("n", 0), ("l", 0))], [0], "goes round"),
        ([(0, 0, 0.0, ("n", 7), ("l", 0))], [0], "truenodeids"),
        ([(9, 0, 0.0, ("l", 0), ("l", 0))], [0], "featureids"),
        ([(0, 7, 0.0, ("l", 0), ("l", 0))], [0], "modes"),
        ([(0, 0, 0.0, ("l", 0), ("l", 0))], [3], "tree_roots"),
        ([(0, 6, 0.0, ("l", 0), ("l", 0))], [0], "membership_values"),
        ([(0, 0, 0.0, ("l", 1), ("l", 0))], [0], "truenodeids"),
    ],
)
def test_trees_that_are_none(nodes, roots, says):
    with pytest.raises(error.LatheError, match=says):
        relay.frontend.from_onnx(ensemble(nodes, [(0, 1.0)], roots))
