"""Dataflow patterns: what matches, rewriting, partitioning."""

import numpy as np
import pytest

import lathe
from lathe import error, relay
from lathe.relay.dataflow_pattern import (
    DFPatternCallback, has_dtype, is_constant, is_expr, is_if, is_let, is_op, is_tuple, is_tuple_get_item, is_var,
    rewrite, wildcard)

def conv_block():
    x, w, b = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(4, 4, 3, 3)), relay.var("b", shape=(4,))
    conv = relay.nn.conv2d(x, w, padding=(1, 1))
    return x, w, b, conv, relay.nn.relu(relay.nn.bias_add(conv, b))


def test_matching_a_chain():
    x, w, b, conv, out = conv_block()
    pat = is_op("nn.relu")(is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), wildcard()), wildcard()))
    assert pat.match(out) and not pat.match(conv)
    data, weight = wildcard(), wildcard()
    found = is_op("nn.conv2d")(data, weight).matched(conv)
    assert found[data][0].same_as(x) and found[weight][0].same_as(w)
    assert is_op("nn.conv2d")(None).match(conv) and not is_op("nn.conv2d")(wildcard()).match(conv)
    assert wildcard()(wildcard(), wildcard()).match(conv)


def test_kinds_of_patterns():
    x, w, b, conv, _ = conv_block()
    assert is_var("x").match(x) and is_var().match(x) and not is_var("y").match(x)
    assert is_constant().match(relay.const(1.0)) and not is_constant().match(x)
    assert is_tuple([wildcard(), is_var("w")]).match(relay.Tuple([x, w])) and not is_tuple([wildcard()]).match(
        relay.Tuple([x, w])
    )
    assert is_tuple().match(relay.Tuple([x])) and is_tuple(None).match(relay.Tuple([]))
    parts = relay.split(x, 2, 1)
    assert is_tuple_get_item(is_op("split")(wildcard()), 1).match(parts[1]) and not is_tuple_get_item(
        is_op("split")(wildcard()), 0
    ).match(parts[1])
    assert is_tuple_get_item(wildcard()).match(parts[0])
    assert is_expr(x).match(x) and not is_expr(x).match(w)
    assert (is_op("nn.relu")(wildcard()) | is_op("nn.conv2d")(wildcard(), wildcard())).match(conv)
    assert (is_op("nn.relu") | is_op("exp"))(wildcard()).match(relay.exp(x))
    y = relay.var("y", shape=(2,))
    assert is_let(is_var("y"), wildcard(), wildcard()).match(relay.Let(y, relay.const(np.ones(2, "float32")), y))
    c = relay.var("c", shape=(), dtype="bool")
    assert is_if(is_var("c"), is_op("exp")(wildcard()), wildcard()).match(relay.If(c, relay.exp(y), y))


def test_attributes_and_types():
    x, w, b, conv, _ = conv_block()
    p = is_op("nn.conv2d")(wildcard(), wildcard())
    assert p.has_attr({"padding": [1, 1, 1, 1]}).match(conv) or p.has_attr({"padding": [1, 1]}).match(conv)
    assert not p.has_attr({"strides": [2, 2]}).match(conv) and p.has_attr({"groups": 1, "data_layout": "NCHW"}).match(
        conv
    )
    assert wildcard()(None).has_attr({"TOpPattern": 4}).match(conv)
    assert (
        p.has_dtype("float32").match(conv) and not p.has_dtype("float16").match(conv) and has_dtype("float32").match(x)
    )
    assert (
        p.has_shape((1, 4, 8, 8)).match(conv)
        and p.has_shape((relay.Any(), 4, None, 8)).match(conv)
        and not p.has_shape((1, 4, 8)).match(conv)
    )
    assert wildcard().has_type(relay.TensorType((4,))).match(b) and not wildcard().has_type(
        relay.TensorType((5,))
    ).match(b)
    assert is_op("nn.leaky_relu")(wildcard()).has_attr({"alpha": 0.25}).match(relay.nn.leaky_relu(x, 0.25))


def test_commutative_and_shared():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    assert (is_var("x") + is_op("exp")(wildcard())).match(relay.exp(y) + x)
    assert (is_var("x") - is_var("y")).match(x - y) and not (is_var("y") - is_var("x")).match(x - y)
    same = wildcard()
    square = same * same
    assert square.match(x * x) and not square.match(x * y)
    assert (wildcard() / wildcard()).match(x / y)


def test_optional():
    x = relay.var("x", shape=(2,))
    p = is_op("exp")(wildcard()).optional(is_op("nn.relu")).optional(lambda q: is_op("tanh")(q))
    for e in (
        relay.exp(x),
        relay.nn.relu(relay.exp(x)),
        relay.tanh(relay.nn.relu(relay.exp(x))),
        relay.tanh(relay.exp(x)),
    ):
        assert p.match(e)
    assert not p.match(relay.nn.relu(x))


def test_dominates():
    x, w, b, conv, _ = conv_block()
    elementwise = (wildcard()(None)).has_attr({"TOpPattern": 0})
    path = is_op("nn.relu")(None) | is_op("exp")(None) | is_op("negative")(None)
    p = (wildcard() + wildcard()).dominates(is_op("nn.conv2d")(None), path)
    assert p.match(relay.nn.relu(conv) + relay.exp(relay.negative(conv)))
    assert not p.match(relay.tanh(conv) + relay.exp(conv)) and elementwise.match(relay.exp(x))


def test_rewrite_with_a_function():
    x = relay.var("x", shape=(3,))
    value = wildcard()
    relu = is_op("nn.relu")(value)
    out = relu.rewrite(
        lambda pre, post, node_map: relay.clip(node_map[value][0], 0.0, 6.0), relay.nn.relu(relay.nn.relu(relay.exp(x)))
    )
    assert "nn.relu" not in str(out) and str(out).count("clip") == 2
    f = relu.rewrite(lambda pre, post, m: m[value][0], relay.Function([x], relay.nn.relu(x)))
    assert isinstance(f, relay.Function) and f.body.same_as(f.params[0])


class FuseScale(DFPatternCallback):
    """a * c1 * c2 -> a * (c1 * c2)"""

    def __init__(self):
        super().__init__()
        self.a, self.c1, self.c2 = wildcard(), is_constant(), is_constant()
        self.pattern = self.a * self.c1 * self.c2
        self.seen = 0

    def callback(self, pre, post, node_map):
        self.seen += 1
        c = node_map[self.c1][0].data.numpy() * node_map[self.c2][0].data.numpy()
        return node_map[self.a][0] * relay.const(c)


def test_rewrite_until_nothing_changes():
    x = relay.var("x", shape=(3,))
    e = x
    for c in (2.0, 3.0, 5.0, 7.0):
        e = e * relay.const(np.float32(c))
    rule = FuseScale()
    out = rewrite(rule, e)
    assert rule.seen == 3 and out.op.name == "multiply" and out.args[0].same_as(x) and out.args[1].data.numpy() == 210
    several = rewrite([FuseScale(), FuseScale()], relay.Function([x], e))
    assert several.body.args[1].data.numpy() == 210


def test_exceptions_come_out_as_themselves():
    x = relay.var("x", shape=(3,))

    class Stop(Exception):
        pass

    def fail(pre, post, node_map):
        raise Stop("here")

    with pytest.raises(Stop, match="here"):
        is_op("exp")(wildcard()).rewrite(fail, relay.exp(x))
    with pytest.raises(error.TypeError):
        is_op("exp")(wildcard()).rewrite(lambda *a: object(), relay.exp(x))
    with pytest.raises(error.ArgumentError, match="did you mean 'nn.relu'"):
        is_op("nn.rely")
    with pytest.raises(error.TypeError, match="made of patterns"):
        is_op("exp")("x")
    with pytest.raises(error.ArgumentError, match="matches again"):
        is_op("exp")(wildcard()).rewrite(lambda pre, post, m: relay.exp(relay.copy(x)), relay.exp(x))
    with pytest.raises(error.ArgumentError, match="set self.pattern"):
        rewrite(DFPatternCallback(), x)


def test_rewrite_once():
    x = relay.var("x", shape=(3,))

    class Twice(DFPatternCallback):
        def __init__(self):
            super().__init__(rewrite_once=True)
            self.pattern = is_op("exp")(wildcard())

        def callback(self, pre, post, node_map):
            return relay.exp(relay.copy(post.args[0]))

    assert str(rewrite(Twice(), relay.exp(x))).count("copy") == 1


def test_partition():
    x, w, b, conv, out = conv_block()
    pat = is_op("nn.relu")(is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), wildcard()), wildcard()))
    f = relay.Function([x, w, b], relay.exp(out))
    part = pat.partition(f, {"Composite": "mine.conv"})
    inner = part.body.args[0].op
    assert isinstance(inner, relay.Function) and inner.attrs["Composite"] == "mine.conv"
    assert inner.attrs["PartitionedFromPattern"] == "nn.conv2d_nn.bias_add_nn.relu_" and len(inner.params) == 3
    arrays = [
        np.random.default_rng(i).normal(size=p.type_annotation.concrete_shape).astype("float32")
        for i, p in enumerate(f.params)
    ]
    want = relay.create_executor("debug").evaluate(f)(*arrays).numpy()
    for kind in ("debug", "graph"):
        np.testing.assert_allclose(
            relay.create_executor(kind).evaluate(part)(*arrays).numpy(), want, rtol=1e-4, atol=1e-5
        )
    asked = []
    assert pat.partition(f, check=lambda node: bool(asked.append(node.op.name))).same_as(f) or asked
    assert asked == ["nn.relu"]
    read_twice = relay.Function([x, w, b], relay.Tuple([out, conv]))
    assert "PartitionedFromPattern" not in str(pat.partition(read_twice))


def test_patterns_in_a_pass():
    @relay.transform.function_pass(opt_level=0)
    class Simplify:
        def transform_function(self, func, mod, ctx):
            return rewrite(FuseScale(), func)

    x = relay.var("x", shape=(3,))
    mod = lathe.IRModule.from_expr(relay.Function([x], x * relay.const(2.0) * relay.const(4.0)))
    assert relay.analysis.list_op_freqs(Simplify()(mod)) == {"multiply": 1}
