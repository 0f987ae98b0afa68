"""Operators that a user adds: typed, folded, fused and compiled like any other."""

import itertools

import numpy as np
import pytest

import lathe
from lathe import error, relay, te
from lathe.relay.dataflow_pattern import is_op, wildcard

_numbers = itertools.count()


def fresh(name):
    """A name that no other test used: an operator stays for the life of the process."""
    return f"user.{name}{next(_numbers)}"


@relay.op.register("user.scale", args="data", attrs={"factor": 2.0, "shift": 0}, fuse=relay.op.ELEMWISE)
class Scale:
    """data * factor + shift"""

    def type(data, attrs):
        return data

    def compute(data, attrs):
        return te.compute(data.shape, lambda *i: data(*i) * attrs.factor + float(attrs.shift), name="scale")


@relay.op.register("user.rowsum", args="data", fuse=relay.op.COMM_REDUCE)
class RowSum:
    """sum over the last axis"""

    def type(data, attrs):
        return relay.TensorType(data.shape[:-1], data.dtype)

    def compute(data, attrs):
        k = te.reduce_axis((0, data.shape[-1]), name="k")
        return te.compute(data.shape[:-1], lambda *i: te.sum(data(*i, k), axis=k), name="rowsum")


@relay.op.register("user.sumdiff", args="lhs, rhs", fuse=relay.op.BROADCAST)
class SumDiff:
    """lhs + rhs and lhs - rhs"""

    def type(lhs, rhs, attrs):
        if lhs.concrete_shape != rhs.concrete_shape:
            raise ValueError(f"user.sumdiff: {lhs} and {rhs} differ")
        return [lhs, lhs]

    def compute(lhs, rhs, attrs):
        return [
            te.compute(lhs.shape, lambda *i: lhs(*i) + rhs(*i)),
            te.compute(lhs.shape, lambda *i: lhs(*i) - rhs(*i)),
        ]


X = np.arange(12, dtype="float32").reshape(3, 4)


def test_it_is_an_operator_like_any_other():
    x = relay.var("x", shape=(3, 4))
    e = relay.user.scale(x, factor=3.0)
    assert (
        e.op.name == "user.scale" and e.attrs.factor == 3.0 and e.attrs.shift == 0 and e.checked_type == x.checked_type
    )
    assert "user.scale" in relay.op.rows() and relay.user.scale.__doc__.startswith("data * factor + shift")
    assert is_op("user.scale")(wildcard()).has_attr({"shift": 0}).match(e)
    text = lathe.IRModule.from_expr(relay.Function([x], e)).astext()
    assert lathe.ir.structural_equal(relay.parse(text)["main"], relay.Function([x], e))


@pytest.mark.parametrize("kind", ["debug", "graph", "vm"])
@pytest.mark.parametrize("level", [0, 3])
def test_it_runs(kind, level):
    x = relay.var("x", shape=(3, 4))
    e = relay.user.rowsum(relay.nn.relu(relay.user.scale(x, 3.0, shift=-5)))
    with lathe.transform.PassContext(opt_level=level):
        got = relay.create_executor(kind).evaluate(relay.Function([x], e))(X).numpy()
    np.testing.assert_allclose(got, np.maximum(X * 3 - 5, 0).sum(1), rtol=1e-6)
    pair = relay.user.sumdiff(x, relay.exp(x * 0.1))
    assert isinstance(pair, relay.TupleWrapper) and len(pair) == 2
    a, b = relay.create_executor(kind).evaluate(relay.Function([x], pair.astuple()))(X)
    np.testing.assert_allclose(a.numpy(), X + np.exp(X * np.float32(0.1)), rtol=1e-5)
    np.testing.assert_allclose(b.numpy(), X - np.exp(X * np.float32(0.1)), rtol=1e-5, atol=1e-5)


def test_it_is_folded_and_fused():
    x = relay.var("x", shape=(3, 4))
    e = relay.exp(relay.user.scale(x + relay.user.scale(relay.const(X))))
    mod = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function([x], e)))
    folded = relay.transform.FoldConstant()(mod)
    assert relay.analysis.list_op_freqs(folded)["user.scale"] == 1
    with lathe.transform.PassContext(opt_level=3):
        out, _ = relay.optimize(mod)
        lib = relay.build(mod)
    assert str(out).count("Primitive=1") == 1
    assert len(lib.model.nodes()) == 1


def test_symbolic_sizes():
    x = relay.var("x", shape=(relay.Any(), 4))
    f = relay.Function([x], relay.user.rowsum(relay.user.scale(x)))
    run = relay.create_executor("vm").evaluate(f)
    for n in (1, 3, 5):
        v = np.random.default_rng(n).normal(size=(n, 4)).astype("float32")
        np.testing.assert_allclose(run(v).numpy(), (2 * v).sum(1), rtol=1e-5, atol=1e-6)
    n = te.size_var("n") if hasattr(te, "size_var") else te.var("n")
    y = relay.var("y", relay.TensorType((2, n)))
    run = relay.create_executor("vm").evaluate(relay.Function([y], relay.user.rowsum(relay.user.scale(y))))
    for k in (1, 6):
        v = np.random.default_rng(k).normal(size=(2, k)).astype("float32")
        np.testing.assert_allclose(run(v).numpy(), (2 * v).sum(1), rtol=1e-5, atol=1e-6)


def test_exceptions_come_out_as_themselves():
    x, y = relay.var("x", shape=(3, 4)), relay.var("y", shape=(4, 3))
    with pytest.raises(ValueError, match="user.sumdiff: Tensor"):
        relay.user.sumdiff(x, y)

    class Late(Exception):
        pass

    name = fresh("late")

    @relay.op.register(name, args="data")
    class _:
        def type(data, attrs):
            return data

        def compute(data, attrs):
            raise Late("in compute")

    e = relay.Call(name, [x])
    with pytest.raises(Late, match="in compute"):
        relay.build(relay.Function([x], e))
    np.testing.assert_array_equal(
        relay.create_executor("graph").evaluate(relay.Function([x], relay.user.scale(x)))(X).numpy(), 2 * X
    )


def test_wrong_definitions_are_refused():
    with pytest.raises(error.ArgumentError, match="needs two functions"):
        relay.op.register(fresh("none"), args="x")(type("Nothing", (), {}))
    with pytest.raises(error.LatheError, match="add"):
        relay.op.register("add", args="x")(Scale)
    with pytest.raises(error.TypeError, match="an attribute's default"):
        relay.op.register(fresh("attr"), args="x", attrs={"a": object()})(Scale)
    x = relay.var("x", shape=(3, 4))
    name = fresh("untyped")

    @relay.op.register(name, args="data")
    class _:
        def type(data, attrs):
            return "float32"

        def compute(data, attrs):
            return data

    with pytest.raises(error.TypeError, match="gives a TensorType"):
        relay.Call(name, [x])
    name = fresh("shape")

    @relay.op.register(name, args="data")
    class _:
        def type(data, attrs):
            return relay.TensorType((2, 2))

        def compute(data, attrs):
            return te.compute((3, 3), lambda i, j: data(i, j))

    with pytest.raises(error.LatheError, match=name):
        relay.build(relay.Function([x], relay.Call(name, [x])))


def test_attributes_of_all_kinds():
    name = fresh("attrs")
    seen = {}

    @relay.op.register(
        name,
        args="data",
        attrs={"flag": True, "n": 3, "scale": 1.5, "mode": "up", "sizes": [1, 2], "rates": [0.5], "names": ["a", "b"]},
    )
    class _:
        def type(data, attrs):
            seen.update(attrs)
            return data

        def compute(data, attrs):
            return te.compute(data.shape, lambda *i: data(*i) * attrs.scale)

    x = relay.var("x", shape=(2,))
    relay.Call(name, [x], {"n": 5, "sizes": (7, 8, 9), "mode": "down"})
    assert seen == {
        "flag": True,
        "n": 5,
        "scale": 1.5,
        "mode": "down",
        "sizes": [7, 8, 9],
        "rates": [0.5],
        "names": ["a", "b"],
    }
