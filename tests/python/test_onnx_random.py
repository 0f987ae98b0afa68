"""Random operators through the whole compiler: the same for the same seed, and distributed as they should be."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import lathe  # noqa: E402
from lathe import relay  # noqa: E402

N = 20000


def run(nodes, outputs, inputs=None, weights=None, opset=17):
    """Outputs of a model, from two compilations and two runs of each, which are all the same."""
    given = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in (inputs or {}).items()
    ]
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", given, [onnx.ValueInfoProto(name=o) for o in outputs], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    results = []
    for level in (0, 3):
        with lathe.transform.PassContext(opt_level=level):
            ex = relay.build(relay.frontend.from_onnx(model)[0])["default"]().executor
        for threads in (1, 2):
            ex.set_threads(threads)
            for k, v in (inputs or {}).items():
                ex.set_input(k, v)
            ex.run()
            results.append([ex.get_output(i).numpy() for i in range(len(outputs))])
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a, b)
    return results[0]


def is_normal(x, mean, scale):
    n = x.size
    assert abs(x.mean() - mean) < 5 * scale / np.sqrt(n)
    assert abs(x.std() - scale) < 5 * scale / np.sqrt(2 * n)
    inside = [np.mean(np.abs(x - mean) < k * scale) for k in (1, 2, 3)]
    np.testing.assert_allclose(inside, [0.6827, 0.9545, 0.9973], atol=0.015)


def is_uniform(x, low, high):
    assert x.min() >= low and x.max() < high
    counts = np.histogram(x, 20, (low, high))[0]
    assert ((counts - x.size / 20) ** 2 / (x.size / 20)).sum() < 50  # chi squared, 19 degrees: 1 in 10,000 is above


def test_normal():
    nodes = [
        helper.make_node("RandomNormal", [], ["a"], shape=[N // 4, 4], mean=2.0, scale=3.0, seed=1.0),
        helper.make_node("RandomNormal", [], ["b"], shape=[N], seed=2.0),
        helper.make_node("RandomNormal", [], ["c"], shape=[N], seed=2.0),
        helper.make_node("RandomNormalLike", ["x"], ["d"], mean=-1.0, scale=0.5, seed=3.0),
        helper.make_node("RandomNormalLike", ["x"], ["e"], dtype=TensorProto.DOUBLE),
        helper.make_node("RandomNormalLike", ["x"], ["f"], dtype=TensorProto.DOUBLE),
    ]
    a, b, c, d, e, f = run(nodes, "abcdef", {"x": np.zeros((100, N // 100), "float32")})
    assert (
        a.shape == (N // 4, 4)
        and d.shape == (100, N // 100)
        and a.dtype == d.dtype == np.float32
        and e.dtype == np.float64
    )
    is_normal(a, 2, 3), is_normal(b, 0, 1), is_normal(d, -1, 0.5), is_normal(e, 0, 1)
    np.testing.assert_array_equal(b, c)  # the same seed
    assert (e != f).mean() > 0.999  # none: nodes differ
    assert abs(np.corrcoef(e.ravel(), f.ravel())[0, 1]) < 0.03 and abs(np.corrcoef(b[:-1], b[1:])[0, 1]) < 0.03


def test_uniform():
    nodes = [
        helper.make_node("RandomUniform", [], ["a"], shape=[N], low=-1.0, high=3.0, seed=1.0),
        helper.make_node("RandomUniformLike", ["x"], ["b"], seed=2.0),
        helper.make_node("RandomUniform", [], ["c"], shape=[N], dtype=TensorProto.FLOAT16, seed=3.0),
    ]
    a, b, c = run(nodes, "abc", {"x": np.zeros((N, 1), "float32")})
    is_uniform(a, -1, 3), is_uniform(b, 0, 1)
    assert b.shape == (N, 1) and c.dtype == np.float16 and 0 <= c.min() and c.max() <= 1 and abs(c.mean() - 0.5) < 0.02


def test_bernoulli():
    p = np.repeat(np.array([0, 0.1, 0.5, 0.9, 1], "float32"), N // 5)
    nodes = [
        helper.make_node("Bernoulli", ["p"], ["a"], seed=1.0),
        helper.make_node("Bernoulli", ["p"], ["b"], dtype=TensorProto.BOOL, seed=2.0),
    ]
    for x in run(nodes, "ab", {"p": p}):
        assert set(np.unique(x).tolist()) <= {0, 1}
        hits = x.reshape(5, -1).mean(1)
        assert hits[0] == 0 and hits[4] == 1
        np.testing.assert_allclose(hits, [0, 0.1, 0.5, 0.9, 1], atol=0.04)


def test_multinomial():
    weights = np.log(np.array([[1, 2, 5], [3, 0.5, 0.5]], "float32"))
    x, = run([helper.make_node("Multinomial", ["x"], ["y"], sample_size=8000, seed=1.0)], ["y"], {"x": weights})
    assert x.shape == (2, 8000) and x.dtype == np.int32
    for row, want in zip(x, ([1, 2, 5], [3, 0.5, 0.5])):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 8000, np.array(want) / sum(want), atol=0.03)


@pytest.mark.parametrize("flag", ["constant", "input"])
def test_dropout_in_training(flag):
    x = np.random.default_rng(0).normal(size=(N,)).astype("float32") + 5
    node = [helper.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], seed=7)]
    on, off = np.array(True), np.array(False)
    if flag == "constant":
        y, mask = run(node, ["y", "mask"], {"x": x}, {"ratio": np.float32(0.3), "training": on})
    else:
        y, mask = run(node, ["y", "mask"], {"x": x, "training": on}, {"ratio": np.float32(0.3)})
        same, all_on = run(node, ["y", "mask"], {"x": x, "training": off}, {"ratio": np.float32(0.3)})
        assert (same == x).all() and all_on.all()
    assert mask.dtype == np.bool_ and abs(mask.mean() - 0.7) < 0.02
    np.testing.assert_allclose(y, np.where(mask, x / 0.7, 0), rtol=1e-5)
    assert abs(y.mean() - x.mean()) < 0.15
    assert abs(np.corrcoef(mask[:-1], mask[1:])[0, 1]) < 0.03
