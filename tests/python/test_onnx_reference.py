"""Operators against onnx's reference evaluator, beyond what the public suites ask of them."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402
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
@pytest.mark.parametrize("attrs", [
    {}, {"min_gram_length": 2}, {"max_gram_length": 1}, {"min_gram_length": 3, "max_skip_count": 0}, {"max_skip_count": 20},
    {"ngram_indexes": [8, 0, 3, 1, 5, 2, 7, 4, 6]}, {"ngram_indexes": [0, 2, 2, 5, 0, 2, 9, 1, 1]}, {"ngram_counts": [0, 0, 10], "ngram_indexes": [0] * 5 + [4] * 2},
])
@pytest.mark.parametrize("weighted", [False, True])
def test_ngrams(rng, mode, attrs, weighted):
    """Without weights they are one, which the evaluator wants to be told."""
    columns = max(attrs.get("ngram_indexes", ATTRS["ngram_indexes"])) + 1
    weights = rng.normal(size=columns).astype("float32").tolist() if weighted else [1.0] * columns
    models = [tfidf(["rows", "length"], TensorProto.INT32, **attrs, mode=mode, **w) for w in ({"weights": weights} if weighted else {}, {"weights": weights})]
    compiled, reference = compile_model(models[0]), ReferenceEvaluator(models[1])
    for shape in ((3, 20), (1, 2), (2, 1)):
        x = rng.integers(2, 9, shape).astype("int32")
        np.testing.assert_allclose(run(compiled, {"x": x})[0], reference.run(None, {"x": x})[0], rtol=1e-6)


def test_ngrams_of_one_row(rng):
    model = tfidf([12])
    x = rng.integers(2, 9, 12)
    np.testing.assert_array_equal(run(compile_model(model), {"x": x})[0], ReferenceEvaluator(model).run(None, {"x": x})[0])


@pytest.mark.parametrize("attrs, says", [
    ({"mode": "TFF"}, "mode is 'TFF'"), ({"ngram_counts": [0, 40]}, "ngram_counts"), ({"ngram_counts": [4, 0]}, "ngram_counts"),
    ({"ngram_indexes": [0, -1]}, "ngram_indexes"), ({"ngram_indexes": [0, 1]}, "ngram_indexes"), ({"min_gram_length": 4}, "make no sense"),
    ({"mode": "IDF", "weights": [1.0]}, "1 weights are given for 9 columns"), ({"max_skip_count": -1}, "skips is -1"),
])
def test_ngrams_that_do_not_fit(attrs, says):
    with pytest.raises(error.LatheError, match=says):
        relay.frontend.from_onnx(tfidf([12], **attrs))


def test_ngrams_of_strings_are_refused():
    attrs = {k: v for k, v in ATTRS.items() if k != "pool_int64s"}
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], pool_strings=["a"] * 16, **attrs)
    model = model_of([node], [helper.make_tensor_value_info("x", TensorProto.INT64, [12])], ["y"])
    with pytest.raises(error.UnsupportedError, match="strings"):
        relay.frontend.from_onnx(model)


# ---- Range


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT])
@pytest.mark.parametrize("level", [0, 3])
def test_a_range_of_floats_known_at_run_time(dtype, level):
    names = ["start", "limit", "delta"]
    node = helper.make_node("Range", names, ["y"])
    compiled = compile_model(model_of([node], [helper.make_tensor_value_info(n, dtype, []) for n in names], ["y"], 27), level)
    np_dtype = helper.tensor_dtype_to_np_dtype(dtype)
    for start, limit, delta in ((1, 5, 2), (0, 1, 0.25), (2, -3, -0.5), (2, 1, 1), (0, 600, 1.5)):
        feeds = dict(zip(names, (np.array(v, np_dtype) for v in (start, limit, delta))))
        want = np.arange(start, limit, delta, dtype="float32").astype(np_dtype)
        got = run(compiled, feeds)[0]
        assert got.dtype == np_dtype or got.dtype == np.uint16
        np.testing.assert_array_equal(got.view(np_dtype).astype("float32"), want.astype("float32"))
