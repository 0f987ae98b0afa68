"""Graphs from Python: expressions, types, text, visitors, and every operator that numpy has too."""

import math

import numpy as np
import pytest

import lathe
from lathe import error, relay
from lathe.contrib import graph_executor

RNG = np.random.default_rng(7)


def evaluate(expr, args=(), kind="debug"):
    """The value of an expression over its free variables, in their order."""
    out = relay.create_executor(kind).evaluate(expr)
    out = out(*args) if callable(out) else out
    return [o.numpy() for o in out] if isinstance(out, list) else out.numpy()


# ---- building


def test_operators_of_expressions(rng):
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(3,))
    e = 2.0 - ((x + y) * 3.0 - x / y) + (-x) / 2.0
    assert isinstance(e, relay.Call) and e.checked_type == relay.TensorType((2, 3), "float32")
    a, b = rng.normal(size=(2, 3)).astype("float32"), rng.uniform(1, 2, 3).astype("float32")
    for kind in ("debug", "graph"):
        np.testing.assert_allclose(
            evaluate(relay.Function([x, y], e), [a, b], kind), 2 - ((a + b) * 3 - a / b) - a / 2, rtol=1e-5
        )
    flags = relay.Tuple([x < y, x <= y, x > y, x >= y])
    got = evaluate(relay.Function([x, y], flags), [a, b], "graph")
    for g, want in zip(got, (a < b, a <= b, a > b, a >= b)):
        np.testing.assert_array_equal(g, want)
    assert (x + 1).args[1].checked_type.dtype == "float32" and x.astype("int32").checked_type.dtype == "int32"


def test_constants_take_the_dtypes_of_tvm():
    dtypes = [relay.const(v).checked_type.dtype for v in (1, 1.0, True, np.float64(1), np.int64(1))]
    assert dtypes == ["int32", "float32", "bool", "float64", "int64"]
    assert relay.const(1.0).checked_type == relay.scalar_type("float32")
    c = relay.const(np.arange(6, dtype="int16").reshape(2, 3))
    assert isinstance(c, relay.Constant) and c.data.dtype == "int16"
    np.testing.assert_array_equal(c.data.numpy(), np.arange(6).reshape(2, 3))
    assert relay.const([1.5, 2.5], "float16").checked_type == relay.TensorType((2,), "float16")
    half = relay.const([1.5, 0.0], "bfloat16")
    assert half.checked_type.dtype == "bfloat16"


def test_tuples():
    x = relay.var("x", shape=(4, 2))
    parts = relay.split(x, 2, axis=0)
    assert isinstance(parts, relay.TupleWrapper) and len(parts) == 2
    a, b = parts
    assert isinstance(a, relay.TupleGetItem) and a.index == 0 and b.checked_type.concrete_shape == (2, 2)
    assert [str(p.checked_type) for p in relay.split(x, (1, 3), axis=0)] == [
        f"Tensor[({n}, 2), float32]" for n in (1, 2, 1)
    ]
    assert len(relay.split(x, [3], axis=0)) == 2
    with pytest.raises(IndexError, match="2 fields has no field 2"):
        parts[2]
    t = relay.Tuple([x, b])
    assert len(t) == 2 and t[1].same_as(b) and isinstance(t.checked_type, relay.TupleType)
    assert relay.TupleGetItem(t, 0).checked_type == x.checked_type
    joined = relay.concatenate([b, a], axis=0)
    v = np.arange(8, dtype="float32").reshape(4, 2)
    np.testing.assert_array_equal(evaluate(joined, [v]), np.roll(v, 2, axis=0))


@pytest.mark.parametrize("kind", ["debug", "graph"])
def test_let_if_and_functions(kind):
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(3,))
    body = relay.Let(y, relay.multiply(x, x), relay.add(y, y))
    assert (body.var.name_hint, body.value.op.name, body.body.op.name) == ("y", "multiply", "add")
    v = np.array([1, 2, 3], "float32")
    np.testing.assert_array_equal(evaluate(relay.Function([x], body), [v], kind), 2 * v * v)
    c = relay.var("c", shape=(), dtype="bool")
    choice = relay.If(c, relay.exp(x), relay.negative(x))
    assert choice.cond.same_as(c) and choice.true_branch.op.name == "exp" and choice.false_branch.op.name == "negative"
    f = relay.Function([c, x], choice)
    np.testing.assert_allclose(evaluate(f, [np.array(True), v], kind), np.exp(v), rtol=1e-5)
    np.testing.assert_array_equal(evaluate(f, [np.array(False), v], kind), -v)
    p = relay.var("p", shape=(3,))
    square = relay.Function([p], p * p)
    twice = relay.Call(square, [relay.Call(square, [x])])
    assert isinstance(twice.op, relay.Function) and twice.attrs is None and len(twice.args) == 1
    np.testing.assert_array_equal(evaluate(relay.Function([x], twice), [v], kind), v**4)


def test_a_module_with_several_functions():
    p = relay.var("p", shape=(2,))
    mod = lathe.IRModule({"twice": relay.Function([p], p + p)})
    x = relay.var("x", shape=(2,))
    mod["main"] = relay.Function([x], relay.Call(relay.GlobalVar("twice"), [relay.exp(x)]))
    mod = relay.transform.InferType()(mod)
    assert mod["main"].ret_type == relay.TensorType((2,), "float32")
    v = np.array([0.5, 1.0], "float32")
    for kind in ("debug", "vm"):
        np.testing.assert_allclose(relay.create_executor(kind, mod=mod).evaluate()(v).numpy(), 2 * np.exp(v), rtol=1e-5)
    assert mod["main"].same_as(mod["main"])
    with pytest.raises(error.ArgumentError, match="no function 'other'; it has"):
        mod["other"]


def test_recursion():
    mod = relay.parse("""
        def @main(%n: int32, %x: Tensor[(2), float32]) -> Tensor[(2), float32] {
          if (equal(%n, 0)) { %x } else { @main(subtract(%n, 1), multiply(%x, 2f)) }
        }""")
    out = relay.create_executor("vm", mod=mod).evaluate()(np.int32(5), np.ones(2, "float32"))
    np.testing.assert_array_equal(out.numpy(), [32, 32])


def test_calls_know_their_attributes():
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    conv = relay.nn.conv2d(x, w, strides=2, padding=(1, 1), channels=4, kernel_size=(3, 3))
    assert conv.op == relay.op.get("nn.conv2d") and conv.op.name == "nn.conv2d" and conv.op.num_inputs == 2
    assert (
        conv.attrs.strides == [2, 2]
        and conv.attrs["data_layout"] == "NCHW"
        and conv.attrs.get_int_tuple("strides") == (2, 2)
    )
    assert conv.checked_type.concrete_shape == (1, 4, 4, 4) and [a.name_hint for a in conv.args] == ["x", "w"]
    with pytest.raises(AttributeError, match="no attribute 'stride'; there are strides"):
        conv.attrs.stride
    assert relay.op.get("nn.conv2d").get_attr("TOpPattern") == 4 and relay.op.get("add").get_attr("TOpPattern") == 1
    f = relay.Function([x, w], conv).with_attr("Compiler", "mine")
    assert f.attrs["Compiler"] == "mine" and relay.Function([x, w], conv).attrs is None


# ---- types


def test_types():
    n = lathe.te.var("n") if hasattr(lathe.te, "var") else relay.Any()
    t = relay.TensorType((1, relay.Any(), 3), "int8")
    assert str(t) == "Tensor[(1, ?, 3), int8]" and t.shape[0] == 1 and t.shape[1] == relay.Any() and t.dtype == "int8"
    with pytest.raises(error.TypeError, match="not constant"):
        t.concrete_shape
    pair = relay.TupleType([t, relay.scalar_type("bool")])
    assert len(pair.fields) == 2 and pair.fields[1] == relay.TensorType((), "bool")
    f = relay.FuncType([t, pair], t)
    assert f.ret_type == t and f.arg_types == [t, pair]
    assert relay.SequenceType(t).element == t and relay.OptionalType(t).element == t
    assert relay.TensorType((2, 3)) == relay.TensorType([2, 3], "float32") != relay.TensorType((3, 2))
    assert hash(relay.TensorType((2, 3))) == hash(relay.TensorType((2, 3)))
    assert relay.var("a", "float32").type_annotation == relay.scalar_type("float32")
    x = relay.var("x", relay.TensorType((n, 4)))
    assert relay.nn.relu(x).checked_type.shape[1] == 4
    with pytest.raises(error.ShapeError, match="not negative"):
        relay.TensorType((2, -3))


def test_symbolic_sizes_reach_the_result():
    x = relay.var("x", shape=(relay.Any(), 3))
    f = relay.Function([x], relay.add(relay.nn.relu(x), relay.const(np.array([1, 2, 3], "float32"))))
    run = relay.create_executor("vm").evaluate(f)
    for n in (1, 4, 0):
        v = RNG.normal(size=(n, 3)).astype("float32")
        np.testing.assert_allclose(run(v).numpy(), np.maximum(v, 0) + [1, 2, 3], rtol=1e-6)


# ---- text


def test_text_is_read_back():
    mod, params = relay.testing.mlp.get_workload(1)
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    again = relay.parse(mod.astext())
    assert relay.analysis.structural_equal(mod["main"], again["main"])
    assert again.astext() == mod.astext()
    assert (
        relay.fromtext(relay.parse("def @main(%x: Tensor[(2), int32]) { add(%x, 1) }").astext())["main"]
        .params[0]
        .name_hint
        == "x"
    )


def test_bad_text_says_where():
    with pytest.raises(error.ParseError) as e:
        relay.parse("def @main(%x: Tensor[(2), float32]) {\n  add(%x, %y)\n}", "net.relay")
    assert e.value.line == 2 and "y" in str(e.value) and str(e.value).startswith("net.relay:2")


# ---- walking and rewriting


def small_graph():
    x, w = relay.var("x", shape=(2, 4)), relay.var("w", shape=(3, 4))
    return x, w, relay.nn.relu(relay.nn.dense(x, w) + relay.const(1.0))


def test_analysis():
    x, w, e = small_graph()
    assert relay.analysis.free_vars(e) == [x, w] and relay.free_vars(relay.Function([x], e)) == [w]
    f = relay.Function([x, w], e)
    assert relay.analysis.free_vars(f) == [] and set(relay.analysis.bound_vars(f)) == {x, w} == set(relay.all_vars(f))
    seen = []
    relay.analysis.post_order_visit(
        e, lambda n: seen.append(n.op.name if isinstance(n, relay.Call) else type(n).__name__)
    )
    calls = [s for s in seen if "." in s or s == "add"]
    assert calls == ["nn.dense", "add", "nn.relu"] and seen.count("Var") == 2 and seen[-1] == "nn.relu"
    assert relay.analysis.list_op_freqs(lathe.IRModule.from_expr(f)) == {"nn.dense": 1, "add": 1, "nn.relu": 1}


def test_visitor_and_mutator():
    x, w, e = small_graph()

    class Names(relay.ExprVisitor):
        def __init__(self):
            super().__init__()
            self.ops, self.vars = [], []

        def visit_call(self, call):
            super().visit_call(call)
            self.ops.append(call.op.name)

        def visit_var(self, var):
            self.vars.append(var.name_hint)

    v = Names()
    v.visit(relay.Function([x, w], relay.Tuple([e, e])))
    assert v.ops == ["nn.dense", "add", "nn.relu"] and sorted(v.vars) == ["w", "x"]

    class NoRelu(relay.ExprMutator):
        def visit_call(self, call):
            new = super().visit_call(call)
            return new.args[0] if new.op == relay.op.get("nn.relu") else new

    out = NoRelu().visit(relay.Function([x, w], e))
    assert isinstance(out, relay.Function) and out.body.op.name == "add"
    unchanged = relay.Function([x, w], out.body)
    assert NoRelu().visit(unchanged).same_as(unchanged)


def test_structural_equality_is_up_to_names():
    def f(name, scale):
        x = relay.var(name, shape=(2,))
        return relay.Function([x], x * relay.const(scale))

    assert relay.analysis.structural_equal(f("x", 2.0), f("y", 2.0)) and not relay.analysis.structural_equal(
        f("x", 2.0), f("x", 3.0)
    )
    assert lathe.ir.structural_equal(f("x", 2.0), f("y", 2.0))
    assert (
        lathe.ir.structural_hash(f("x", 2.0))
        == lathe.ir.structural_hash(f("y", 2.0))
        != lathe.ir.structural_hash(f("y", 3.0))
    )
    with pytest.raises(ValueError):
        lathe.ir.assert_structural_equal(f("x", 2.0), f("x", 3.0))


def test_bind():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    out = relay.bind(x + y, {y: relay.const(np.ones(2, "float32"))})
    assert relay.free_vars(out) == [x]
    f = relay.bind_params_by_name(relay.Function([x, y], x + y), {"y": np.ones(2, "float32")})
    assert [p.name_hint for p in f.params] == ["x"]


# ---- every operator against numpy


def draw(shape, dtype, lo, hi):
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if "int" in dtype:
        return RNG.integers(lo if "u" not in dtype else max(lo, 0), hi + 1, shape).astype(dtype)
    return RNG.uniform(lo, hi, shape).astype(dtype)


def check(expr_of, arrays, want, rtol=1e-5, atol=1e-6):
    """The operator compiled and interpreted, both against numpy's result."""
    variables = [relay.var(f"p{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
    expr = expr_of(*variables)
    expr = expr.astuple() if isinstance(expr, relay.TupleWrapper) else expr
    f = relay.Function(variables, expr)
    wants = want if isinstance(want, (list, tuple)) else [want]
    for kind in ("debug", "graph"):
        got = evaluate(f, arrays, kind)
        got = got if isinstance(got, list) else [got]
        assert len(got) == len(wants)
        for g, w in zip(got, wants):
            w = np.asarray(w)
            assert g.shape == w.shape, kind
            if w.dtype.kind in "fc":
                np.testing.assert_allclose(g.astype("float64"), w.astype("float64"), rtol=rtol, atol=atol, err_msg=kind)
            else:
                np.testing.assert_array_equal(g, w, err_msg=kind)


def np_erf(x):
    return np.vectorize(math.erf)(x.astype("float64"))


UNARY = {
    # name: (numpy, low, high)
    "exp": (np.exp, -3, 3),
    "log": (np.log, 0.1, 9),
    "log2": (np.log2, 0.1, 9),
    "log10": (np.log10, 0.1, 9),
    "sqrt": (np.sqrt, 0, 9),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -8, 8),
    "tanh": (np.tanh, -5, 5),
    "sin": (np.sin, -9, 9),
    "cos": (np.cos, -9, 9),
    "tan": (np.tan, -1.2, 1.2),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1),
    "atan": (np.arctan, -9, 9),
    "sinh": (np.sinh, -3, 3),
    "cosh": (np.cosh, -3, 3),
    "asinh": (np.arcsinh, -9, 9),
    "acosh": (np.arccosh, 1.1, 9),
    "atanh": (np.arctanh, -0.9, 0.9),
    "erf": (np_erf, -3, 3),
    "abs": (np.abs, -5, 5),
    "negative": (np.negative, -5, 5),
    "floor": (np.floor, -5, 5),
    "ceil": (np.ceil, -5, 5),
    "trunc": (np.trunc, -5, 5),
    "round": (np.round, -5, 5),
    "sign": (np.sign, -5, 5),
    "copy": (np.copy, -5, 5),
    "nn.relu": (lambda x: np.maximum(x, 0), -5, 5),
    "isnan": (np.isnan, -5, 5),
    "isinf": (np.isinf, -5, 5),
    "isfinite": (np.isfinite, -5, 5),
    "zeros_like": (np.zeros_like, -5, 5),
    "ones_like": (np.ones_like, -5, 5),
}


def operator(name):
    place = relay
    for word in name.split("."):
        place = getattr(place, word)
    return place


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_unary(name, dtype):
    fn, lo, hi = UNARY[name]
    x = draw((3, 7), dtype, lo, hi)
    if name in ("isnan", "isinf", "isfinite"):
        x[0, :3] = [np.nan, np.inf, -np.inf]
    rtol = {"float32": 2e-5, "float64": 1e-6, "float16": 4e-3}[dtype]
    check(
        operator(name),
        [x],
        fn(x.astype("float64")) if fn not in (np.isnan, np.isinf, np.isfinite) else fn(x),
        rtol=rtol,
        atol=rtol,
    )


@pytest.mark.parametrize("name", ["abs", "negative", "sign", "copy", "nn.relu", "zeros_like", "ones_like"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_unary_of_integers(name, dtype):
    x = draw((3, 5), dtype, -9, 9)
    check(operator(name), [x], UNARY[name][0](x))


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
FLOATS = {
    "divide": np.divide,
    "power": np.power,
    "atan2": np.arctan2,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "trunc_mod": np.fmod,
    "mod": np.fmod,
    "trunc_divide": lambda a, b: np.trunc(a / b),
}
INTEGERS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "trunc_mod": np.fmod,
    "divide": lambda a, b: np.trunc(a / b).astype(a.dtype),
}
LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "int64"])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    a, b = draw((2, 3, 4), dtype, 0, 5), draw((3, 1), dtype, 0, 3)
    check(operator(name), [a, b], BINARY[name](a, b))


@pytest.mark.parametrize("name", FLOATS)
def test_binary_of_floats(name):
    a, b = draw((2, 1, 4), "float32", 0.3, 5), draw((3, 1), "float32", 0.4, 3)
    check(operator(name), [a, b], FLOATS[name](a, b), rtol=2e-5)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_binary_of_integers(name, dtype):
    a, b = draw((4, 5), dtype, -9 if name.endswith("de") or name.endswith("mod") else 0, 9), draw((5,), dtype, 1, 4)
    check(operator(name), [a, b], INTEGERS[name](a, b))


@pytest.mark.parametrize("name", LOGICAL)
def test_logical(name):
    a, b = draw((4, 5), "bool", 0, 1), draw((5,), "bool", 0, 1)
    check(operator(name), [a, b], LOGICAL[name](a, b))
    check(relay.logical_not, [a], np.logical_not(a))


REDUCTIONS = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "max": np.max, "min": np.min, "variance": np.var, "std": np.std,
    "logsumexp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
}


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 1, (0, 2), -1])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, axis, keepdims):
    x = draw((3, 4, 5), "float32", 0.5, 1.5)
    check(
        lambda p: operator(name)(p, axis=axis, keepdims=keepdims),
        [x],
        REDUCTIONS[name](x.astype("float64"), axis=axis, keepdims=keepdims),
        rtol=1e-4,
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_other_reductions(axis):
    x, b = draw((4, 5), "float32", -3, 3), draw((4, 5), "bool", 0, 1)
    check(lambda p: relay.argmax(p, axis=axis), [x], np.argmax(x, axis).astype("int32"))
    check(lambda p: relay.argmin(p, axis=axis), [x], np.argmin(x, axis).astype("int32"))
    check(lambda p: relay.all(p, axis=axis), [b], b.all(axis))
    check(lambda p: relay.any(p, axis=axis), [b], b.any(axis))
    check(lambda p: relay.sum(p, axis=axis, exclude=True), [x], x.sum(1 - axis % 2), rtol=1e-5)
    check(lambda p: relay.cumsum(p, axis=axis), [x], np.cumsum(x, axis))
    check(lambda p: relay.cumprod(p, axis=axis), [x], np.cumprod(x, axis), rtol=1e-4)
    check(lambda p: relay.sort(p, axis=axis), [x], np.sort(x, axis))
    check(lambda p: relay.argsort(p, axis=axis), [x], np.argsort(x, axis, kind="stable").astype("int32"))
    check(lambda p: relay.nn.softmax(p, axis=axis), [x], np.exp(x) / np.exp(x).sum(axis, keepdims=True))
    check(lambda p: relay.nn.log_softmax(p, axis=axis), [x], x - np.log(np.exp(x).sum(axis, keepdims=True)), atol=1e-5)
    check(lambda p: relay.mean_variance(p, axis=axis), [x], [x.mean(axis), x.var(axis)], rtol=1e-4)


X = np.arange(24, dtype="float32").reshape(2, 3, 4)
I32 = np.array([[2, 0], [1, 1]], "int32")
SHAPES = {
    "reshape": (lambda x: relay.reshape(x, (4, -1)), X.reshape(4, 6)),
    "reshape codes": (lambda x: relay.reshape(x, (0, -3)), X.reshape(2, 12)),
    "transpose": (lambda x: relay.transpose(x, (2, 0, 1)), X.transpose(2, 0, 1)),
    "transpose all": (lambda x: relay.transpose(x), X.T),
    "expand_dims": (lambda x: relay.expand_dims(x, 1, 2), X[:, None, None]),
    "squeeze": (lambda x: relay.squeeze(relay.expand_dims(x, 0)), X),
    "squeeze axis": (lambda x: relay.squeeze(relay.expand_dims(x, 2), axis=[2]), X),
    "reverse": (lambda x: relay.reverse(x, 1), X[:, ::-1]),
    "concatenate": (lambda x: relay.concatenate([x, x * 2.0], 1), np.concatenate([X, 2 * X], 1)),
    "stack": (lambda x: relay.stack([x, -x], 2), np.stack([X, -X], 2)),
    "split": (lambda x: relay.split(x, 2, 2), np.split(X, 2, 2)),
    "split at": (lambda x: relay.split(x, [1], 1), np.split(X, [1], 1)),
    "tile": (lambda x: relay.tile(x, (2, 1, 3)), np.tile(X, (2, 1, 3))),
    "repeat": (lambda x: relay.repeat(x, 3, 1), np.repeat(X, 3, 1)),
    "strided_slice": (lambda x: relay.strided_slice(x, [0, 2, 3], [2, 0, 0], [1, -1, -2]), X[0:2, 2:0:-1, 3:0:-2]),
    "strided_slice axes": (lambda x: relay.strided_slice(x, [1], [3], axes=[1]), X[:, 1:3]),
    "take": (lambda x: relay.take(x, relay.const(I32), axis=1), np.take(X, I32, 1)),
    "take flat": (lambda x: relay.take(x, relay.const(I32)), np.take(X, I32)),
    "broadcast_to": (lambda x: relay.broadcast_to(x, (5, 2, 3, 4)), np.broadcast_to(X, (5, 2, 3, 4))),
    "where": (lambda x: relay.where(x > 5.0, x, -x), np.where(X > 5, X, -X)),
    "clip": (lambda x: relay.clip(x, 3.0, 9.5), np.clip(X, 3, 9.5)),
    "cast": (lambda x: relay.cast(x, "int16"), X.astype("int16")),
    "pad": (
        lambda x: relay.nn.pad(x, ((0, 1), (2, 0), (1, 1)), 7.0),
        np.pad(X, ((0, 1), (2, 0), (1, 1)), constant_values=7),
    ),
    "pad edge": (
        lambda x: relay.nn.pad(x, ((0, 1), (2, 0), (1, 1)), pad_mode="edge"),
        np.pad(X, ((0, 1), (2, 0), (1, 1)), mode="edge"),
    ),
    "mirror_pad": (
        lambda x: relay.nn.mirror_pad(x, ((0, 0), (1, 1), (2, 0)), "REFLECT"),
        np.pad(X, ((0, 0), (1, 1), (2, 0)), mode="reflect"),
    ),
    "batch_flatten": (relay.nn.batch_flatten, X.reshape(2, 12)),
    "full_like": (lambda x: relay.full_like(x, relay.const(2.5)), np.full_like(X, 2.5)),
    "shape_of": (lambda x: relay.shape_of(x), np.array([2, 3, 4], "int32")),
    "ndarray_size": (lambda x: relay.ndarray_size(x), np.array(24, "int32")),
    "einsum": (lambda x: relay.einsum([x, x], "abc,abd->cd"), np.einsum("abc,abd->cd", X, X)),
    "trilu": (lambda x: relay.trilu(x, relay.const(0, "int64"), upper=False), np.tril(X)),
    "topk": (lambda x: relay.topk(x, 2, 2, "values"), -np.sort(-X, 2)[..., :2]),
    "leaky_relu": (lambda x: relay.nn.leaky_relu(x - 9.0, 0.1), np.where(X > 9, X - 9, (X - 9) * np.float32(0.1))),
    "gather": (lambda x: relay.gather(x, 0, relay.const(np.zeros((1, 3, 4), "int32"))), X[:1]),
    "reshape_like": (lambda x: relay.reshape_like(x, relay.const(np.zeros((6, 4), "float32"))), X.reshape(6, 4)),
    "slice_like": (lambda x: relay.slice_like(x, relay.const(np.zeros((1, 2, 3), "float32"))), X[:1, :2, :3]),
    "collapse_sum_to": (lambda x: relay.collapse_sum_to(x, (3, 1)), X.sum((0, 2)).reshape(3, 1)),
    "sliding_window": (
        lambda x: relay.sliding_window(x, 1, [2, 2], [1, 2]),
        np.lib.stride_tricks.sliding_window_view(X, (2, 2), (1, 2))[:, ::1, ::2],
    ),
    "layout_transform": (
        lambda x: relay.layout_transform(relay.expand_dims(x, 0), "NCHW", "NHWC"),
        X[None].transpose(0, 2, 3, 1),
    ),
}


@pytest.mark.parametrize("case", SHAPES)
def test_shape_operators(case):
    expr_of, want = SHAPES[case]
    check(expr_of, [X], want)


def test_operators_without_arguments():
    cases = [
        (relay.arange(2, 11, 3, dtype="int32"), np.arange(2, 11, 3, dtype="int32")),
        (relay.zeros((2, 3), "float32"), np.zeros((2, 3), "float32")),
        (relay.ones((2,), "int8"), np.ones(2, "int8")),
        (relay.full(relay.const(4.0), (2, 2), "float32"), np.full((2, 2), 4, "float32")),
        (relay.eye(3, 4, 1), np.eye(3, 4, 1, "float32")),
        (
            relay.one_hot(relay.const(I32), relay.const(1.0), relay.const(0.0), 3, -1, "float32"),
            np.eye(3, dtype="float32")[I32],
        ),
    ]
    for expr, want in cases:
        for kind in ("debug", "graph"):
            got = evaluate(relay.Function([], expr), (), kind)
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)


def conv_reference(x, w, stride, pad, groups=1):
    n, _, h, wd = x.shape
    o, ci, kh, kw = w.shape
    xp = np.pad(x.astype("float64"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    oh, ow = (h + 2 * pad - kh) // stride + 1, (wd + 2 * pad - kw) // stride + 1
    out = np.zeros((n, o, oh, ow))
    for g in range(groups):
        for k in range(o // groups):
            for i in range(oh):
                for j in range(ow):
                    patch = xp[:, g * ci : (g + 1) * ci, i * stride : i * stride + kh, j * stride : j * stride + kw]
                    out[:, g * (o // groups) + k, i, j] = (patch * w[g * (o // groups) + k]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize("stride, pad, groups", [(1, 1, 1), (2, 0, 1), (1, 1, 2), (1, 1, 4)])
def test_conv2d(stride, pad, groups):
    x, w = draw((2, 4, 7, 6), "float32", -1, 1), draw((8, 4 // groups, 3, 3), "float32", -1, 1)
    check(
        lambda p, q: relay.nn.conv2d(p, q, strides=(stride, stride), padding=(pad, pad), groups=groups),
        [x, w],
        conv_reference(x, w, stride, pad, groups),
        rtol=1e-4,
        atol=1e-5,
    )


def test_dense_and_products():
    a, b, c = draw((4, 5), "float32", -1, 1), draw((3, 5), "float32", -1, 1), draw((3,), "float32", -1, 1)
    check(relay.nn.dense, [a, b], a @ b.T, rtol=1e-4, atol=1e-5)
    check(
        lambda p, q, r: relay.nn.bias_add(relay.nn.dense(p, q), r, axis=-1),
        [a, b, c],
        a @ b.T + c,
        rtol=1e-4,
        atol=1e-5,
    )
    check(lambda p, q: relay.nn.matmul(p, q, transpose_b=True), [a, b], a @ b.T, rtol=1e-4, atol=1e-5)
    p, q = draw((2, 3, 4), "float32", -1, 1), draw((2, 5, 4), "float32", -1, 1)
    check(relay.nn.batch_matmul, [p, q], p @ q.transpose(0, 2, 1), rtol=1e-4, atol=1e-5)
    check(
        lambda u, v: relay.nn.batch_matmul(u, v, transpose_b=False),
        [p, q.transpose(0, 2, 1).copy()],
        p @ q.transpose(0, 2, 1),
        rtol=1e-4,
        atol=1e-5,
    )


def test_pools_and_norms():
    x = draw((2, 4, 6, 6), "float32", -1, 1)
    windows = x.reshape(2, 4, 3, 2, 3, 2)
    check(lambda p: relay.nn.max_pool2d(p, pool_size=2, strides=2), [x], windows.max((3, 5)))
    check(lambda p: relay.nn.avg_pool2d(p, pool_size=(2, 2), strides=(2, 2)), [x], windows.mean((3, 5)))
    check(relay.nn.global_avg_pool2d, [x], x.mean((2, 3), keepdims=True))
    check(relay.nn.global_max_pool2d, [x], x.max((2, 3), keepdims=True))
    check(lambda p: relay.nn.adaptive_avg_pool2d(p, (3, 3)), [x], windows.mean((3, 5)))
    g, b = draw((4,), "float32", 0.5, 1.5), draw((4,), "float32", -1, 1)
    mean, var = draw((4,), "float32", -0.5, 0.5), draw((4,), "float32", 0.5, 1.5)
    each = (1, 4, 1, 1)
    want = (x - mean.reshape(each)) / np.sqrt(var.reshape(each) + 1e-5) * g.reshape(each) + b.reshape(each)
    check(lambda p, *q: relay.nn.batch_norm(p, *q)[0], [x, g, b, mean, var], want, rtol=1e-4, atol=1e-5)
    gl, bl = draw((6,), "float32", 0.5, 1.5), draw((6,), "float32", -1, 1)
    want = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * gl + bl
    check(relay.nn.layer_norm, [x, gl, bl], want, rtol=1e-4, atol=1e-5)
    want = (x - x.mean((2, 3), keepdims=True)) / np.sqrt(x.var((2, 3), keepdims=True) + 1e-5) * g.reshape(
        each
    ) + b.reshape(each)
    check(relay.nn.instance_norm, [x, g, b], want, rtol=1e-4, atol=1e-5)
    check(lambda p: relay.nn.dropout(p), [x], x)
    check(lambda p: relay.nn.prelu(p, relay.const(g)), [x], np.where(x > 0, x, x * g.reshape(each)))


def test_sizes_known_at_run_time():
    x, s = relay.var("x", shape=(2, 6)), relay.var("s", shape=(2,), dtype="int64")
    f = relay.Function([x, s], relay.reshape(x, s))
    v = RNG.normal(size=(2, 6)).astype("float32")
    run = relay.create_executor("vm").evaluate(f)
    for shape in ((3, 4), (12, 1), (1, -1)):
        np.testing.assert_array_equal(run(v, np.array(shape, "int64")).numpy(), v.reshape(shape))
    c = relay.var("c", shape=(2, 6), dtype="bool")
    mask = v > 0
    got = relay.create_executor("vm").evaluate(relay.Function([c], relay.argwhere(c)))(mask).numpy()
    np.testing.assert_array_equal(got, np.argwhere(mask))


# ---- networks


@pytest.mark.parametrize(
    "name, options, shape_out",
    [
        ("mlp", {}, (1, 10)),
        ("resnet", {"num_layers": 18, "image_shape": (3, 32, 32), "num_classes": 10}, (1, 10)),
        ("mobilenet", {"image_shape": (3, 32, 32), "num_classes": 10}, (1, 10)),
        ("squeezenet", {"version": "1.1", "image_shape": (3, 64, 64), "num_classes": 10}, (1, 10)),
        ("dcgan", {"batch_size": 1, "ngf": 8}, (1, 3, 64, 64)),
        ("resnet", {"num_layers": 20, "image_shape": (3, 28, 28), "num_classes": 10}, (1, 10)),
        ("resnet", {"num_layers": 50, "image_shape": (33, 33, 3), "num_classes": 10, "layout": "NHWC"}, (1, 10)),
        ("mobilenet", {"image_shape": (3, 32, 32), "num_classes": 10, "layout": "NHWC"}, (1, 10)),
        ("dcgan", {"batch_size": 1, "ngf": 8, "layout": "NHWC"}, (1, 64, 64, 3)),
        ("dqn", {"batch_size": 1, "num_actions": 5, "layout": "NHWC"}, (1, 5)),
        pytest.param("inception_v3", {"image_shape": (3, 75, 75), "num_classes": 10}, (1, 10), marks=pytest.mark.slow),
        ("dqn", {"batch_size": 2, "num_actions": 5}, (2, 5)),
        ("lstm", {"iterations": 3, "num_hidden": 8, "batch_size": 2}, (2, 8)),
    ],
)
def test_networks_build_and_run(name, options, shape_out):
    mod, params = getattr(relay.testing, name).get_workload(**options)
    assert params and all(isinstance(p, lathe.NDArray) for p in params.values())
    data = mod["main"].params[0]
    shape = data.type_annotation.concrete_shape
    x = RNG.normal(size=shape).astype("float32")
    outs = []
    for level in (0, 3):
        with lathe.transform.PassContext(opt_level=level):
            lib = relay.build(mod, params=params)
        m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
        m.set_input(data.name_hint, x)
        m.run()
        outs.append(m.get_output(0).numpy())
    assert (
        outs[0].shape == shape_out and (shape_out != (1, 10) or abs(outs[0].sum() - 1) < 1e-4) and outs[0].std() > 1e-4
    )
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-3, atol=1e-5)


def test_a_network_is_the_same_in_either_layout():
    nets = [
        relay.testing.mobilenet.mobile_net(10, shape, "float32", 0.25, True, layout)
        for shape, layout in (((1, 3, 16, 16), "NCHW"), ((1, 16, 16, 3), "NHWC"))
    ]
    (mod, params), (other, _) = (relay.testing.create_workload(net, relay.testing.init.deep()) for net in nets)
    x = RNG.normal(size=(1, 3, 16, 16)).astype("float32")
    values = [params[p.name_hint].numpy() for p in mod["main"].params[1:]]
    turned = [
        (
            v.transpose((2, 3, 0, 1) if v.shape[1] == 1 and "depthwise" in p.name_hint else (2, 3, 1, 0))
            if v.ndim == 4
            else v
        )
        for p, v in zip(mod["main"].params[1:], values)
    ]
    want = relay.create_executor("graph", mod).evaluate()(x, *values).numpy()
    have = relay.create_executor("graph", other).evaluate()(x.transpose(0, 2, 3, 1), *turned).numpy()
    assert want.std() > 1e-4
    np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-6)


def test_initializers():
    fill = relay.testing.init.Xavier("uniform", "in", 3)
    weight, scale = np.zeros((4, 25)), np.zeros(3)
    fill("fc_weight", weight)
    fill("bn_gamma", scale)
    assert 0.1 < np.abs(weight).max() <= np.sqrt(3 / 25) and (scale == 1).all()
    net = relay.testing.mlp.get_net(1)
    _, params = relay.testing.create_workload(net, relay.testing.init.Constant(2))
    assert (params["fc1_weight"].numpy() == 2).all() and not params["fc1_bias"].numpy().any()
    seen = []
    relay.testing.create_workload(net, lambda name, arr: seen.append((name, arr.shape)))
    assert seen[:2] == [("fc1_weight", (128, 784)), ("fc1_bias", (128,))]


def test_one_step_of_an_lstm():
    f = relay.testing.lstm.lstm_cell(3, 2)
    x, h, c, wi, bi, wh, bh = (
        RNG.normal(size=s).astype("float32") for s in ((2, 3), (2, 3), (2, 3), (12, 3), (12,), (12, 3), (12,))
    )
    i, g, u, o = np.split(x @ wi.T + bi + h @ wh.T + bh, 4, 1)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    state = sigmoid(g) * c + sigmoid(i) * np.tanh(u)
    out, (again, kept) = relay.create_executor("debug").evaluate(f)(x, (h, c), wi, bi, wh, bh)
    np.testing.assert_allclose(kept.numpy(), state, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out.numpy(), sigmoid(o) * np.tanh(state), rtol=1e-4, atol=1e-6)
    assert (again.numpy() == out.numpy()).all()


@pytest.mark.parametrize(
    "make, published",
    [
        (lambda t: t.vgg.get_net(1, (3, 224, 224), 1000, "float32", 16), 138357544),
        (lambda t: t.vgg.get_net(1, (3, 224, 224), 1000, "float32", 11, batch_norm=True), 132868840),
        (lambda t: t.squeezenet.get_net(1, (3, 224, 224), 1000, "1.0", "float32"), 1248424),
        (lambda t: t.squeezenet.get_net(1, (3, 224, 224), 1000, "1.1", "float32"), 1235496),
        (lambda t: t.densenet.dense_net(64, 32, [6, 12, 24, 16], (1, 3, 224, 224), "float32"), 7978856),
        (lambda t: t.inception_v3.get_net(1, 1000, (3, 299, 299), "float32"), 23834568),
    ],
    ids=["vgg16", "vgg11_bn", "squeezenet1.0", "squeezenet1.1", "densenet121", "inception_v3"],
)
def test_networks_have_as_many_weights_as_published(make, published):
    mod = relay.transform.InferType()(lathe.IRModule.from_expr(make(relay.testing)))
    sizes = [
        int(np.prod(p.checked_type.concrete_shape))
        for p in mod["main"].params
        if p.name_hint != "data" and not p.name_hint.endswith(("moving_mean", "moving_var"))
    ]
    assert sum(sizes) == published


def test_networks_that_are_not_known():
    for call, says in [
        (lambda: relay.testing.vgg.get_workload(1, num_layers=12), "12 layers"),
        (lambda: relay.testing.squeezenet.get_workload(version="2"), "version '2'"),
        (lambda: relay.testing.densenet.get_workload(122), "122 layers"),
        (lambda: relay.testing.dcgan.get_workload(1, oshape=(3, 32, 32)), "64, 64"),
    ]:
        with pytest.raises(error.LatheError, match=says):
            call()


# ---- errors


@pytest.mark.parametrize(
    "make, kind, words",
    [
        (lambda x, y: relay.op.get("nn.conv2"), error.ArgumentError, ["nn.conv2", "nn.conv2d"]),
        (lambda x, y: relay.Call("ad", [x, y]), error.ArgumentError, ["'ad'", "'add'"]),
        (lambda x, y: relay.nn.relu(x, y), error.TypeError, ["nn.relu"]),
        (lambda x, y: relay.nn.dense(x, x, unit=3), error.TypeError, ["nn.dense", "unit"]),
        (
            lambda x, y: relay.Call(relay.op.get("nn.dense"), [x, x], {"unit": 3}),
            error.ArgumentError,
            ["nn.dense", "unit"],
        ),
        (lambda x, y: relay.add(x, y), error.LatheError, ["add", "(2, 3)", "(4, 5)"]),
        (lambda x, y: relay.nn.dense(x, y), error.LatheError, ["nn.dense", "3", "5"]),
        (lambda x, y: relay.nn.conv2d(x, y), error.LatheError, ["nn.conv2d", "data", "(2, 3)"]),
        (lambda x, y: relay.reshape(x, (4, 4)), error.LatheError, ["reshape", "(2, 3)"]),
        (lambda x, y: relay.concatenate([x, y], 0), error.LatheError, ["concatenate", "(2, 3)", "(4, 5)"]),
        (lambda x, y: relay.transpose(x, (0, 0)), error.LatheError, ["transpose"]),
        (lambda x, y: relay.sum(x, axis=5), error.LatheError, ["sum", "5"]),
        (lambda x, y: relay.cast(x, "float33"), error.LatheError, ["float33"]),
        (lambda x, y: relay.add(x, relay.cast(x, "int32")), error.LatheError, ["add", "float32", "int32"]),
        (lambda x, y: relay.Function([relay.exp(x)], x), error.TypeError, ["parameter 0", "not a variable"]),
        (lambda x, y: relay.TupleGetItem(x, 0), error.TypeError, ["field 0", "Tensor[(2, 3), float32]"]),
        (lambda x, y: x["a"], error.TypeError, ["strided_slice"]),
        (lambda x, y: relay.add(x, "text"), error.TypeError, ["str"]),
        (lambda x, y: relay.var("v", relay.TensorType((2,)), shape=(2,)), error.ArgumentError, ["not both"]),
    ],
)
def test_errors_name_things(make, kind, words):
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(4, 5))
    with pytest.raises(kind) as e:
        make(x, y)
    for word in words:
        assert word in str(e.value), f"{word!r} in {e.value}"


def test_errors_at_run_time():
    x = relay.var("x", shape=(2, 3))
    lib = relay.build(relay.Function([x], relay.exp(x)))
    m = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    with pytest.raises(error.LatheError, match="no input 'y'; it has x"):
        m.set_input("y", np.zeros((2, 3), "float32"))
    with pytest.raises(error.LatheError, match="x.*2.*3"):
        m.set_input("x", np.zeros((3, 2), "float32"))
    with pytest.raises(error.LatheError, match="float32"):
        m.set_input("x", np.zeros((2, 3), "int32"))
    fresh = graph_executor.GraphModule(lib["default"](lathe.cpu(0)))
    with pytest.raises(error.LatheError, match="x"):
        fresh.run()
    with pytest.raises(error.ArgumentError, match="1 outputs"):
        m.get_output(1)
    with pytest.raises(error.ArgumentError, match="takes 1 arguments"):
        relay.create_executor("debug").evaluate(relay.Function([x], x))()


# ---- what relay.build is asked for


def test_executors_and_runtimes():
    x = relay.var("x", shape=(2,))
    f = relay.Function([x], x + x)
    for executor in (
        None,
        "graph",
        relay.backend.Executor("graph"),
        relay.backend.Executor("graph", {"link-params": True}),
    ):
        lib = relay.build(f, target="llvm", target_host="llvm", executor=executor, runtime=relay.backend.Runtime("cpp"))
        assert lib.model.outputs[0].shape == (2,)
    for options, says in [
        ({"executor": relay.backend.Executor("aot", {"interface": "c"})}, "no option 'interface'"),
        ({"runtime": relay.backend.Runtime("crt")}, "crt"),
        ({"executor": "grahp"}, "grahp"),
        ({"workspace_memory_pools": object()}, "memory pools"),
        ({"target": "llvm", "target_host": "c"}, "host 'c'"),
    ]:
        with pytest.raises(error.LatheError, match=says):
            relay.build(f, **options)
