"""Many tensors of sizes known only at run time: right values, and a compiler that takes seconds at most."""

import os

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.contrib import graph_executor

PARTS = 90
SECONDS = 60  # of processor time; generous: a few are what it takes


@pytest.fixture
def parts():
    rng = np.random.default_rng(7)
    return {f"x{k}": rng.standard_normal((int(rng.integers(0, 5)), 4)).astype("float32") for k in range(PARTS)}


def variables():
    return [relay.var(f"x{k}", shape=(relay.Any(), 4)) for k in range(PARTS)]


def run(variables_, body, inputs):
    start = os.times()
    lib = relay.build(lathe.IRModule.from_expr(relay.Function(variables_, body)), target="llvm")
    now = os.times()
    assert now.user + now.system - start.user - start.system < SECONDS
    model = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    model.run(**inputs)
    return model.get_output(0).numpy()


def test_one_concatenation(parts):
    x = variables()
    body = relay.nn.relu(relay.concatenate([relay.multiply(v, relay.const(float(k))) for k, v in enumerate(x)], axis=0))
    want = np.maximum(np.concatenate([v * np.float32(k) for k, v in enumerate(parts.values())]), 0)
    np.testing.assert_array_equal(run(x, body, parts), want)


def test_a_chain_of_concatenations(parts):
    x = variables()
    body, want = x[0], parts["x0"]
    for k in range(1, PARTS):
        body = relay.concatenate([x[k], relay.negative(body)], axis=0)
        want = np.concatenate([parts[f"x{k}"], -want])
    np.testing.assert_array_equal(run(x, body, parts), want)


EDGES = (-9, -3, -1, 0, 1, 2, 5, 9, 2**31 - 1)


@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_slices_as_numpy_cuts(step):
    """Every pair of edges, on axes shorter and longer than they reach."""
    pairs = [(begin, end) for begin in EDGES for end in EDGES]
    x = relay.var("x", shape=(relay.Any(), 2))
    cuts = [relay.strided_slice(x, [b], [e], [step], axes=[0]) for b, e in pairs]
    lib = relay.build(lathe.IRModule.from_expr(relay.Function([x], relay.Tuple(cuts))), target="llvm")
    model = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for n in (0, 1, 2, 4, 7):
        value = np.arange(2 * n, dtype="float32").reshape(n, 2)
        model.run(x=value)
        for k, (b, e) in enumerate(pairs):
            np.testing.assert_array_equal(model.get_output(k).numpy(), value[b:e:step], err_msg=f"{n}: {b}:{e}:{step}")


def test_a_chain_of_slices():
    """Two rows are cut off sixty times; the compiler takes as long for each of them."""
    x = relay.var("x", shape=(relay.Any(), 4))
    body = x
    for _ in range(60):
        body = relay.strided_slice(relay.negative(body), [1], [-1], [1], axes=[0])
    start = os.times()
    for n in (3, 125):
        value = np.arange(4 * n, dtype="float32").reshape(n, 4)
        np.testing.assert_array_equal(run([x], body, {"x": value}), value[60:-60])
    assert os.times().user - start.user < 10  # a third of a second is what it takes


def windows(x, size, step):
    """(n, c, y, x, size, size), of the windows that lie inside."""
    view = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
    return view[:, :, ::step, ::step]


def spread(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


ROWS = {
    "sum_of_all": (lambda x: relay.nn.relu(x + x), lambda x: np.maximum(x + x, 0)),
    "mean_of_windows": (lambda x: relay.nn.avg_pool2d(x, (3, 3), (2, 2)), lambda x: windows(x, 3, 2).mean((4, 5))),
    "most_of_windows": (lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2)), lambda x: windows(x, 2, 2).max((4, 5))),
    "mean_of_planes": (relay.nn.global_avg_pool2d, lambda x: x.mean((2, 3), keepdims=True)),
    "softmax": (relay.nn.softmax, spread),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_and_planes(name):
    """Loops of unknown extent are neither counted together nor left to one thread where it changes a value."""
    body, want = ROWS[name]
    x = relay.var("x", shape=(relay.Any(), 5, relay.Any(), relay.Any()))
    with lathe.transform.PassContext(opt_level=3):
        lib = relay.build(lathe.IRModule.from_expr(relay.Function([x], body(x))), target="llvm -num-cores=2")
    model = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    for shape in ((1, 5, 3, 3), (2, 5, 7, 16), (3, 5, 12, 33), (1, 5, 40, 5)):
        value = np.random.default_rng(3).standard_normal(shape).astype("float32")
        model.run(x=value)
        np.testing.assert_allclose(model.get_output(0).numpy(), want(value), rtol=1e-5, atol=1e-5, err_msg=str(shape))
