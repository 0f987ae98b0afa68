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
