"""Gradients of graphs against central differences in float64: one case an operator's rule, then whole functions."""

import numpy as np
import pytest

import lathe
from lathe import relay
from lathe.relay.op.gradients import RULES

R = np.random.default_rng(7)


def value(shape, low=-1.0, high=1.0):
    return R.uniform(low, high, shape)


def apart(shape):
    """No two elements are near each other: a small step changes no order among them."""
    n = int(np.prod(shape))
    return (R.permutation(n) * 0.1 - 0.05 * n + 0.013).reshape(shape)


def compiled(fn):
    """fn to be called with arrays; fields of tuples one behind the other."""
    called = relay.create_executor("graph").evaluate(fn)

    def run(*values):
        found = called(*values)
        return [f.numpy() for f in found] if isinstance(found, (list, tuple)) else found.numpy()

    return run


def check(build, values, step=1e-5, only=None):
    """build makes the result from variables of the values' shapes."""
    params = [relay.var(f"x{i}", shape=v.shape, dtype=str(v.dtype)) for i, v in enumerate(values)]
    result = build(*params)
    kept = relay.transform.InferType()(lathe.IRModule.from_expr(relay.Function(params, result)))["main"]
    weights = relay.const(value([int(d) for d in kept.body.checked_type.shape]))
    fn = relay.Function(params, relay.sum(result * weights))
    given, *gradients = compiled(relay.transform.gradient(fn))(*values)
    run = compiled(fn)
    np.testing.assert_allclose(given, run(*values), rtol=1e-9)
    # Steps in a few random directions: a directional derivative sees every element of the gradient.
    for i, v in enumerate(values):
        assert gradients[i].shape == v.shape
        if v.dtype != np.float64 or (only is not None and i not in only):
            continue
        for _ in range(3):
            direction = R.standard_normal(v.shape)
            ahead, behind = ([*values[:i], v + s * direction, *values[i + 1 :]] for s in (step, -step))
            slope = (run(*ahead) - run(*behind)) / (2 * step)
            np.testing.assert_allclose((gradients[i] * direction).sum(), slope, rtol=2e-5, atol=1e-7, err_msg=f"x{i}")


UNARY = """exp tanh sigmoid sin cos tan asin acos atan sinh cosh asinh atanh erf abs negative copy nn.relu""".split()
POSITIVE = "log log2 log10 sqrt rsqrt".split()


def op(name):
    found = relay
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", UNARY + POSITIVE + ["acosh"])
def test_unary(name):
    low, high = (1.2, 3.0) if name == "acosh" else (0.3, 2.0) if name in POSITIVE else (-0.9, 0.9)
    check(op(name), [value((3, 5), low, high)])


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "atan2"])
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 1), (2, 1, 4)), ((), (5,))], ids=str)
def test_binary_with_broadcasting(name, shapes):
    check(op(name), [value(s, 0.4, 1.9) for s in shapes])


@pytest.mark.parametrize("name", ["floor_mod", "mod"])
def test_remainders(name):
    check(op(name), [value((4, 3), 2.1, 2.9), value((3,), 0.81, 0.99)])


def test_where_clip_leaky_relu():
    condition = relay.const(np.array([[True], [False], [True]]))
    check(lambda a, b: relay.where(condition, a, b), [value((3, 4)), value((4,))])
    check(lambda a: relay.clip(a, -0.4, 0.3), [apart((4, 5))])
    check(lambda a: relay.nn.leaky_relu(a, alpha=0.2), [value((4, 5))])


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "variance", "std", "logsumexp"])
@pytest.mark.parametrize(
    "axes", [{}, {"axis": 1}, {"axis": [0, -1], "keepdims": True}, {"axis": [1], "exclude": True}], ids=str
)
def test_reductions(name, axes):
    check(lambda x: op(name)(x, **axes), [apart((2, 3, 4)) + (3 if name == "prod" else 0)])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_family_and_running_sums(axis):
    check(lambda x: relay.nn.softmax(x, axis=axis), [value((3, 4, 5))])
    check(lambda x: relay.nn.log_softmax(x, axis=axis), [value((3, 4, 5))])
    check(lambda x: relay.cumsum(x, axis=axis), [value((3, 4, 5))])
    check(lambda x: relay.cumsum(x, axis=axis, exclusive=True), [value((3, 4, 5))])


MOVES = {
    "reshape": lambda x: relay.reshape(x, (4, 6)),
    "squeeze": lambda x: relay.squeeze(relay.expand_dims(x, 1)),
    "batch_flatten": relay.nn.batch_flatten,
    "transpose": lambda x: relay.transpose(x, (2, 0, 1)),
    "transpose_all": relay.transpose,
    "reverse": lambda x: relay.reverse(x, 1),
    "broadcast_to": lambda x: relay.broadcast_to(x, (5, 2, 3, 4)),
    "tile": lambda x: relay.tile(x, (2, 1, 2, 3)),
    "repeat": lambda x: relay.repeat(x, 3, 1),
    "slice": lambda x: relay.strided_slice(x, [0, 2, 1], [2, -4, 4], [1, -2, 2]),
    "slice_of_axes": lambda x: relay.strided_slice(x, [1], [3], axes=[-1]),
    "slice_by_size": lambda x: relay.strided_slice(x, [1, 0, 2], [1, -1, 2], slice_mode="size"),
    "pad": lambda x: relay.nn.pad(x, ((0, 1), (2, 0), (1, 1))),
    "take": lambda x: relay.take(x, relay.const(np.array([[0, 2, 2], [1, 0, 7]])), axis=1),
    "take_wrapped": lambda x: relay.take(x, relay.const(np.array([5, -1])), axis=2, mode="wrap"),
    "take_flat": lambda x: relay.take(x, relay.const(np.array([3, 20, 3]))),
    "gather": lambda x: relay.gather(x, 2, relay.const(R.integers(0, 4, (2, 3, 6)))),
    "gather_nd": lambda x: relay.gather_nd(x, relay.const(np.array([[0, 1, 1], [2, 0, 0]]))),
    "split": lambda x: relay.multiply(*[relay.split(x, [1, 2], axis=1)[i] for i in (0, 2)]),
    "stack": lambda x: relay.stack([x, x * x, relay.sin(x)], axis=1),
    "concatenate": lambda x: relay.concatenate([x, relay.exp(x)], axis=-1),
    "layout_transform": lambda x: relay.layout_transform(relay.reshape(x, (1, 4, 3, 2)), "NCHW", "NCHW2c"),
    "astype": lambda x: relay.cast(relay.cast(x, "float64") * x, "float64"),
}


@pytest.mark.parametrize("name", MOVES)
def test_moving_data(name):
    check(MOVES[name], [value((2, 3, 4))])


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_products(ta, tb):
    def sides(*batch):
        return [value(batch + ((4, 3) if ta else (3, 4))), value(batch + ((5, 4) if tb else (4, 5)))]

    check(lambda a, b: relay.nn.matmul(a, b, transpose_a=ta, transpose_b=tb), sides())
    check(lambda a, b: relay.nn.batch_matmul(a, b, transpose_a=ta, transpose_b=tb), sides(2))


def test_dense_and_bias():
    check(lambda x, w, b: relay.nn.bias_add(relay.nn.dense(x, w), b), [value((3, 4)), value((5, 4)), value((5,))])


CONVS = [
    ((2, 4, 7, 8), (6, 4, 3, 3), {"padding": (1, 1)}),
    ((1, 4, 8, 9), (6, 2, 3, 2), {"strides": (2, 3), "groups": 2, "padding": (1, 0, 2, 1)}),
    ((2, 3, 11, 10), (3, 1, 3, 3), {"groups": 3, "dilation": (2, 1), "strides": (2, 2)}),
    ((2, 3, 6, 6), (4, 3, 1, 1), {"strides": (2, 2)}),
]


@pytest.mark.parametrize("data,weight,attrs", CONVS, ids=str)
def test_conv2d(data, weight, attrs):
    check(lambda x, w: relay.nn.conv2d(x, w, **attrs), [value(data), value(weight)])


def test_convolutions_of_other_ranks_and_transposed():
    check(lambda x, w: relay.nn.conv1d(x, w, strides=2, padding=1), [value((2, 3, 9)), value((4, 3, 3))])
    check(lambda x, w: relay.nn.conv3d(x, w, padding=(1, 1, 1)), [value((1, 2, 4, 4, 3)), value((3, 2, 3, 3, 3))])
    transposed = {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 0), "channels": 3, "kernel_size": (3, 3)}
    check(lambda x, w: relay.nn.conv2d_transpose(x, w, **transposed), [value((2, 4, 4, 5)), value((4, 3, 3, 3))])


POOLS = [
    {"pool_size": (2, 2), "strides": (2, 2)},
    {"pool_size": (3, 2), "strides": (2, 1), "padding": (1, 0, 1, 1)},
    {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "count_include_pad": True},
    {"pool_size": (2, 3), "strides": (3, 3), "ceil_mode": True},
]


@pytest.mark.parametrize("attrs", POOLS, ids=str)
def test_pools(attrs):
    check(lambda x: relay.nn.avg_pool2d(x, **attrs), [value((2, 3, 7, 8))])
    largest = {k: v for k, v in attrs.items() if k != "count_include_pad"}
    check(lambda x: relay.nn.max_pool2d(x, **largest), [apart((2, 2, 7, 8))])


def test_global_pools():
    check(relay.nn.global_avg_pool2d, [value((2, 3, 4, 5))])
    check(relay.nn.global_max_pool2d, [apart((2, 3, 4, 5))])


def test_normalizations():
    check(
        lambda *a: relay.nn.batch_norm(*a)[0],
        [value((2, 3, 4, 4)), value((3,)), value((3,)), value((3,)), value((3,), 0.5, 2.0)],
    )
    check(lambda *a: relay.nn.layer_norm(*a), [value((3, 5)), value((5,)), value((5,))])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_loss(reduction):
    targets = relay.const(np.array([1, 0, 3, 2]))
    weights = relay.const(value((4,), 0.5, 1.5))
    check(
        lambda p: relay.nn.nll_loss(p, targets, weights, reduction=reduction, ignore_index=3), [value((4, 4), -2, -0.1)]
    )


def test_values_used_twice_let_functions_and_branches():
    def build(x, y):
        a = relay.var("a", shape=(3, 4), dtype="float64")
        square = relay.Function([a], a * a)
        v = relay.var("v")
        inner = relay.If(
            relay.greater(relay.sum(x), relay.const(0.0, "float64")), relay.tanh(v) * y, relay.exp(v) + y * y
        )
        return relay.Let(v, relay.Call(square, [x + y]) * x, inner)

    positive = np.abs(value((3, 4)))
    for sign in (1.0, -1.0):
        check(build, [sign * positive, value((3, 4))])


def test_a_gradient_of_a_gradient():
    x = relay.var("x", shape=(5,), dtype="float64")
    first = relay.transform.gradient(relay.Function([x], relay.sum(relay.sin(x) * x)))
    of_x = relay.TupleGetItem(relay.TupleGetItem(first.body, 1), 0)
    second = relay.transform.gradient(relay.Function(first.params, of_x))
    v = value((5,))
    found = compiled(second)(v)
    np.testing.assert_allclose(found[0], np.cos(v) * v + np.sin(v), rtol=1e-9)
    np.testing.assert_allclose(found[1], 2 * np.cos(v) - np.sin(v) * v, rtol=1e-9)


def test_functions_of_a_module():
    mod = lathe.IRModule()
    a = relay.var("a", shape=(4,), dtype="float64")
    mod["cube"] = relay.Function([a], a * a * a)
    x = relay.var("x", shape=(4,), dtype="float64")
    mod["main"] = relay.Function([x], relay.Call(relay.GlobalVar("cube"), [x]) + x)
    v = value((4,))
    found = compiled(relay.transform.gradient(mod["main"], mod))(v)
    np.testing.assert_allclose(found[1], 3 * v * v + 1, rtol=1e-9)
    passed = relay.transform.FirstOrderGradient()(mod)
    assert str(passed["main"].checked_type) == str(relay.transform.gradient(mod["main"], mod).checked_type)


def test_a_network_learns():
    """Steps along the gradient lower the loss."""
    x, w, b = (relay.var(n, shape=s) for n, s in (("x", (8, 6)), ("w", (3, 6)), ("b", (3,))))
    targets = relay.const(np.arange(8) % 3)
    scores = relay.nn.log_softmax(relay.nn.bias_add(relay.nn.dense(x, w), b))
    loss = relay.nn.nll_loss(scores, targets, relay.const(np.ones(3, "float32")))
    step = compiled(relay.transform.gradient(relay.Function([x, w, b], loss)))
    data = R.standard_normal((8, 6)).astype("float32")
    weight, bias, losses = np.zeros((3, 6), "float32"), np.zeros(3, "float32"), []
    for _ in range(30):
        found, _, of_weight, of_bias = step(data, weight, bias)
        losses.append(float(found))
        weight, bias = weight - 0.5 * of_weight, bias - 0.5 * of_bias
    np.testing.assert_allclose(losses[0], np.log(3), rtol=1e-5)
    assert losses[-1] < 0.6 * losses[0]


def test_rules_of_a_users_own():
    x = relay.var("x", shape=(3,), dtype="float64")
    fn = relay.Function([x], relay.fixed_point_multiply(relay.cast(x, "int32"), 1 << 30, 1))
    with pytest.raises(NotImplementedError, match="fixed_point_multiply has no gradient; relay.op.register_gradient"):
        relay.transform.gradient(fn)
    before = RULES["sin"]
    try:
        relay.op.register_gradient("sin", lambda call, g: [g * 10.0])
        found = compiled(relay.transform.gradient(relay.Function([x], relay.sin(x))))(value((3,)))
        np.testing.assert_array_equal(found[1], np.full(3, 10.0))
    finally:
        RULES["sin"] = before
    with pytest.raises(lathe.error.LatheError, match="no_such"):
        relay.op.register_gradient("no_such", lambda call, g: [g])


def test_what_is_refused():
    x = relay.var("x", shape=(2, 3, 4, 4))
    with pytest.raises(TypeError, match="of a function"):
        relay.transform.gradient(relay.exp(x))
    with pytest.raises(ValueError, match="first_order"):
        relay.transform.gradient(relay.Function([x], x), mode="backwards")
    with pytest.raises(NotImplementedError, match="pad_mode 'constant'"):
        relay.transform.gradient(
            relay.Function([x], relay.nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), pad_mode="edge"))
        )
    with pytest.raises(ValueError, match="give the module"):
        relay.transform.gradient(relay.Function([x], relay.Call(relay.GlobalVar("f"), [x])))
