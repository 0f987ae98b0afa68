"""Derivatives of operators: for a call and the gradient of its result, the gradients of its arguments.

A rule takes the call and that gradient (a list of them where the call gives a tuple) and returns one expression for
each argument, a list of them for one that is a tuple; None stands for what the result does not vary with.
`register_gradient` adds one."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np

from ... import error
from ..expr import Call, RelayExpr, Tuple, call_op, const
from ..op_rows import row

Rule = Callable[[Call, Any], Sequence[Optional[RelayExpr]]]
RULES: Dict[str, Rule] = {}


def register_gradient(op_name: str, fgradient: Optional[Rule] = None, level: int = 10) -> Any:
    """Adds, or puts in the place of another, the rule of an operator; a decorator when no function is given.  Rules of
    one name do not compete: level is accepted as TVM has it, and the last one counts."""
    row(op_name)

    def add(fn: Rule) -> Rule:
        RULES[op_name] = fn
        return fn

    return add if fgradient is None else add(fgradient)


# ---- small words ----


def _shape(x: RelayExpr) -> List[int]:
    """The sizes of a tensor, all of them known."""
    try:
        return [int(d) for d in x.checked_type.concrete_shape]
    except ValueError:
        raise error.UnsupportedError(
            f"this gradient needs sizes that are known; {x.checked_type} has open ones"
        ) from None


def _like(value: float, x: RelayExpr) -> RelayExpr:
    return const(value, x.checked_type.dtype)


def _sum_to(g: RelayExpr, x: RelayExpr) -> RelayExpr:
    """g summed over what broadcasting repeated of x."""
    return call_op("collapse_sum_like", [g, x])


def _axes(rank: int, axis: Any, exclude: bool = False) -> List[int]:
    axis = range(rank) if axis is None else [axis] if isinstance(axis, int) else axis
    named = sorted({int(a) % rank for a in axis}) if rank else []
    return [a for a in range(rank) if a not in named] if exclude else named


def _kept(y: RelayExpr, x: RelayExpr, attrs: Any) -> RelayExpr:
    """A reduction's result with the axes that it lost as axes of extent 1."""
    if attrs.keepdims:
        return y
    for a in _axes(len(x.checked_type.shape), attrs.axis, attrs.exclude):
        y = call_op("expand_dims", [y], axis=a, num_newaxis=1)
    return y


def _count(x: RelayExpr, attrs: Any) -> int:
    dims = _shape(x)
    return int(np.prod([dims[a] for a in _axes(len(dims), attrs.axis, attrs.exclude)], dtype=np.int64))


def _mask(condition: RelayExpr, g: RelayExpr) -> RelayExpr:
    return g * condition.astype(g.checked_type.dtype)


# ---- elementwise ----


def _unary(name: str, fn: Callable[[RelayExpr, RelayExpr], RelayExpr]) -> None:
    """d result / d x as a function of x and of the result."""
    RULES[name] = lambda call, g: [g * fn(call.args[0], call)]


def _u(name: str, x: RelayExpr) -> RelayExpr:
    return call_op(name, [x])


_unary("exp", lambda x, y: y)
_unary("log", lambda x, y: 1.0 / x)
_unary("log2", lambda x, y: 1.0 / (x * float(np.log(2))))
_unary("log10", lambda x, y: 1.0 / (x * float(np.log(10))))
_unary("sqrt", lambda x, y: 0.5 / y)
_unary("rsqrt", lambda x, y: -0.5 * y / x)
_unary("sigmoid", lambda x, y: y * (1.0 - y))
_unary("tanh", lambda x, y: 1.0 - y * y)
_unary("sin", lambda x, y: _u("cos", x))
_unary("cos", lambda x, y: -_u("sin", x))
_unary("tan", lambda x, y: 1.0 + y * y)
_unary("asin", lambda x, y: _u("rsqrt", 1.0 - x * x))
_unary("acos", lambda x, y: -_u("rsqrt", 1.0 - x * x))
_unary("atan", lambda x, y: 1.0 / (1.0 + x * x))
_unary("sinh", lambda x, y: _u("cosh", x))
_unary("cosh", lambda x, y: _u("sinh", x))
_unary("asinh", lambda x, y: _u("rsqrt", x * x + 1.0))
_unary("acosh", lambda x, y: _u("rsqrt", x * x - 1.0))
_unary("atanh", lambda x, y: 1.0 / (1.0 - x * x))
_unary("erf", lambda x, y: float(2 / np.sqrt(np.pi)) * _u("exp", -(x * x)))
_unary("abs", lambda x, y: _u("sign", x))
_unary("negative", lambda x, y: _like(-1.0, x))
_unary("copy", lambda x, y: _like(1.0, x))
for _name, _same in (("fast_exp", "exp"), ("fast_tanh", "tanh"), ("fast_erf", "erf")):
    RULES[_name] = RULES[_same]


def _no_gradient(call: Call, _g: Any) -> List[None]:
    return [None] * len(call.args)


_STEPS = """floor ceil trunc round sign equal not_equal less less_equal greater greater_equal logical_and logical_or
    logical_xor logical_not isnan isinf isfinite zeros_like ones_like shape_of ndarray_size argmax argmin argsort
    one_hot floor_divide trunc_divide zeros ones full arange"""
for _name in _STEPS.split():
    RULES[_name] = _no_gradient


@register_gradient("nn.relu")
def _relu(call: Call, g: RelayExpr) -> Any:
    return [_mask(call.args[0] > 0.0, g)]


@register_gradient("nn.leaky_relu")
def _leaky_relu(call: Call, g: RelayExpr) -> Any:
    return [call_op("where", [call.args[0] > 0.0, g, g * call.attrs.alpha])]


@register_gradient("clip")
def _clip(call: Call, g: RelayExpr) -> Any:
    x = call.args[0]
    return [_mask(x >= float(call.attrs.a_min), _mask(x <= float(call.attrs.a_max), g))]


@register_gradient("cast")
def _cast(call: Call, g: RelayExpr) -> Any:
    return [g.astype(call.args[0].checked_type.dtype)]


@register_gradient("cast_like")
def _cast_like(call: Call, g: RelayExpr) -> Any:
    return [g.astype(call.args[0].checked_type.dtype), None]


# ---- two arguments ----


def _binary(name: str, fn: Callable[..., Sequence[RelayExpr]]) -> None:
    """The gradients of both sides as functions of (a, b, result, g), before they are summed to their shapes."""

    def rule(call: Call, g: RelayExpr) -> Any:
        a, b = call.args
        return [_sum_to(d, x) for d, x in zip(fn(a, b, call, g), (a, b))]

    RULES[name] = rule


_binary("add", lambda a, b, y, g: (g, g))
_binary("subtract", lambda a, b, y, g: (g, -g))
_binary("multiply", lambda a, b, y, g: (g * b, g * a))
_binary("divide", lambda a, b, y, g: (g / b, -(g * y / b)))
_binary("power", lambda a, b, y, g: (g * b * call_op("power", [a, b - 1.0]), g * y * _u("log", a)))
_binary("maximum", lambda a, b, y, g: (_mask(a >= b, g), _mask(a < b, g)))
_binary("minimum", lambda a, b, y, g: (_mask(a <= b, g), _mask(a > b, g)))
_binary("floor_mod", lambda a, b, y, g: (g, -g * _u("floor", a / b)))
_binary("mod", lambda a, b, y, g: (g, -g * _u("trunc", a / b)))
_binary("atan2", lambda a, b, y, g: (g * b / (a * a + b * b), -g * a / (a * a + b * b)))


@register_gradient("where")
def _where(call: Call, g: RelayExpr) -> Any:
    c, a, b = call.args
    zero = call_op("zeros_like", [g])
    return [None, _sum_to(call_op("where", [c, g, zero]), a), _sum_to(call_op("where", [c, zero, g]), b)]


# ---- reductions ----


def _spread(g: RelayExpr, call: Call) -> RelayExpr:
    x = call.args[0]
    return call_op("broadcast_to_like", [_kept(g, x, call.attrs), x])


@register_gradient("sum")
def _sum(call: Call, g: RelayExpr) -> Any:
    return [_spread(g, call)]


@register_gradient("mean")
def _mean(call: Call, g: RelayExpr) -> Any:
    return [_spread(g, call) * (1.0 / _count(call.args[0], call.attrs))]


@register_gradient("prod")
def _prod(call: Call, g: RelayExpr) -> Any:
    x = call.args[0]
    return [_spread(g * call, call) / x]


def _extreme(call: Call, g: RelayExpr) -> Any:
    """Shared by all elements that are the extreme one, in equal parts."""
    x = call.args[0]
    chosen = call_op("equal", [x, _kept(call, x, call.attrs)]).astype(x.checked_type.dtype)
    several = call_op("sum", [chosen], axis=call.attrs.axis, keepdims=True, exclude=call.attrs.exclude)
    return [_spread(g, call) * chosen / several]


RULES["max"] = RULES["min"] = _extreme


@register_gradient("variance")
def _variance(call: Call, g: RelayExpr) -> Any:
    x, attrs = call.args[0], call.attrs
    mean = call_op("mean", [x], axis=attrs.axis, keepdims=True, exclude=attrs.exclude)
    n = _count(x, attrs) - (1 if attrs.unbiased else 0)
    return [_spread(g, call) * (x - mean) * (2.0 / n)]


@register_gradient("std")
def _std(call: Call, g: RelayExpr) -> Any:
    return _variance(call, g * 0.5 / call)


@register_gradient("logsumexp")
def _logsumexp(call: Call, g: RelayExpr) -> Any:
    x = call.args[0]
    return [_spread(g, call) * _u("exp", x - _kept(call, x, call.attrs))]


@register_gradient("cumsum")
def _cumsum(call: Call, g: RelayExpr) -> Any:
    a, x = call.attrs, call.args[0]
    back = call_op("cumsum", [g], axis=a.axis, exclusive=a.exclusive, reverse=not a.reverse)
    return [call_op("reshape_like", [back, x])]


@register_gradient("nn.softmax")
def _softmax(call: Call, g: RelayExpr) -> Any:
    gy = g * call
    return [gy - call * call_op("sum", [gy], axis=[call.attrs.axis], keepdims=True)]


@register_gradient("nn.log_softmax")
def _log_softmax(call: Call, g: RelayExpr) -> Any:
    return [g - _u("exp", call) * call_op("sum", [g], axis=[call.attrs.axis], keepdims=True)]


# ---- moving data ----


def _back_to_shape(call: Call, g: RelayExpr) -> Any:
    return [call_op("reshape_like", [g, call.args[0]])] + [None] * (len(call.args) - 1)


for _name in "reshape reshape_like squeeze expand_dims nn.batch_flatten contrib_reverse_reshape".split():
    RULES[_name] = _back_to_shape


@register_gradient("transpose")
def _transpose(call: Call, g: RelayExpr) -> Any:
    rank = len(call.args[0].checked_type.shape)
    axes = _order(call.attrs.axes, rank)
    return [call_op("transpose", [g], axes=[int(i) for i in np.argsort(axes)])]


def _order(axes: Any, rank: int) -> List[int]:
    return [int(a) % rank for a in axes] if axes else list(reversed(range(rank)))


@register_gradient("reverse")
def _reverse(call: Call, g: RelayExpr) -> Any:
    return [call_op("reverse", [g], axis=call.attrs.axis)]


@register_gradient("layout_transform")
def _layout_transform(call: Call, g: RelayExpr) -> Any:
    a = call.attrs
    return [call_op("layout_transform", [g], src_layout=a.dst_layout, dst_layout=a.src_layout)]


def _broadcast(call: Call, g: RelayExpr) -> Any:
    return [_sum_to(g, call.args[0])] + [None] * (len(call.args) - 1)


RULES["broadcast_to"] = RULES["broadcast_to_like"] = _broadcast


def _collapse(call: Call, g: RelayExpr) -> Any:
    return [call_op("broadcast_to_like", [g, call.args[0]])] + [None] * (len(call.args) - 1)


RULES["collapse_sum_to"] = RULES["collapse_sum_like"] = _collapse


def _fields(x: RelayExpr) -> List[RelayExpr]:
    return [x[i] for i in range(len(x.checked_type.fields))]


@register_gradient("concatenate")
def _concatenate(call: Call, g: RelayExpr) -> Any:
    xs, axis = _fields(call.args[0]), call.attrs.axis
    at = np.cumsum([_shape(x)[axis] for x in xs])[:-1]
    if len(xs) == 1:
        return [[g]]
    parts = call_op("split", [g], indices_or_sections=[int(i) for i in at], axis=axis, mode="indices")
    return [[parts[i] for i in range(len(xs))]]


@register_gradient("stack")
def _stack(call: Call, g: RelayExpr) -> Any:
    axis = call.attrs.axis
    return [[call_op("take", [g, const(i, "int64")], axis=[axis]) for i in range(len(_fields(call.args[0])))]]


@register_gradient("split")
def _split(call: Call, gs: Sequence[RelayExpr]) -> Any:
    return [call_op("concatenate", [Tuple(list(gs))], axis=call.attrs.axis)]


@register_gradient("tile")
def _tile(call: Call, g: RelayExpr) -> Any:
    x, reps = call.args[0], [int(r) for r in call.attrs.reps]
    dims = _shape(x)
    rank = max(len(dims), len(reps))
    reps, dims = [1] * (rank - len(reps)) + reps, [1] * (rank - len(dims)) + dims
    pairs = call_op("reshape", [g], newshape=[n for pair in zip(reps, dims) for n in pair])
    summed = call_op("sum", [pairs], axis=list(range(0, 2 * rank, 2)))
    return [call_op("reshape_like", [summed, x])]


@register_gradient("repeat")
def _repeat(call: Call, g: RelayExpr) -> Any:
    x, n = call.args[0], int(call.attrs.repeats)
    dims = _shape(x)
    axis = _axes(len(dims), call.attrs.axis)[0]
    groups = call_op("reshape", [g], newshape=dims[: axis + 1] + [n] + dims[axis + 1 :])
    return [call_op("sum", [groups], axis=[axis + 1])]


@register_gradient("strided_slice")
def _strided_slice(call: Call, g: RelayExpr) -> Any:
    """Each element goes back to the place that it was taken from: rows of numbers are sliced in the same way to know
    where that was, and one axis after the other is scattered."""
    x, attrs = call.args[0], call.attrs
    dims = _shape(x)
    for axis, places in enumerate(_sliced(dims, attrs)):
        if len(places) == dims[axis] and list(places) == list(range(dims[axis])):
            continue
        shape = _shape(g)
        room = call_op("full", [_like(0.0, g)], shape=shape[:axis] + [dims[axis]] + shape[axis + 1 :])
        index = np.broadcast_to(
            np.asarray(places, "int64").reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape
        )
        g = call_op("scatter_elements", [room, const(np.ascontiguousarray(index)), g], axis=axis, reduction="add")
    return [g]


def _sliced(dims: Sequence[int], attrs: Any) -> List[Any]:
    axes = _axes(len(dims), attrs.axes) if attrs.axes else list(range(len(attrs.begin)))
    axes = [int(a) % len(dims) for a in (attrs.axes or axes)]
    places: List[Any] = [range(d) for d in dims]
    steps = list(attrs.strides or [1])
    steps = steps * len(axes) if len(steps) == 1 else steps
    for i, axis in enumerate(axes):
        begin, end = int(attrs.begin[i]), int(attrs.end[i])
        if attrs.slice_mode == "size":
            stop, step = (dims[axis] if end < 0 else begin + end), 1
        else:
            step = int(steps[i])
            stop = None if step < 0 and end < -dims[axis] else end  # type: ignore[assignment]
        places[axis] = range(dims[axis])[slice(begin, stop, step)]
    return places


@register_gradient("nn.pad")
def _pad(call: Call, g: RelayExpr) -> Any:
    if call.attrs.pad_mode != "constant":
        raise error.UnsupportedError(f"nn.pad has a gradient with pad_mode 'constant', not '{call.attrs.pad_mode}'")
    width = [-int(w) for w in call.attrs.pad_width]
    return [call_op("nn.pad", [g, _like(0.0, g)], pad_width=width), None][: len(call.args)]


@register_gradient("take")
def _take(call: Call, g: RelayExpr) -> Any:
    x, indices, attrs = call.args[0], call.args[1], call.attrs
    if attrs.batch_dims:
        raise error.UnsupportedError("take has no gradient with batch_dims")
    dims, picks = _shape(x), _shape(indices)
    axis = int(attrs.axis[0]) % len(dims) if attrs.axis else None
    rows = [int(np.prod(dims))] if axis is None else [dims[axis]] + dims[:axis] + dims[axis + 1 :]
    n = int(np.prod(picks, dtype=np.int64))
    indices = _inside(call_op("reshape", [indices], newshape=[1, n]).astype("int64"), rows[0], attrs.mode)
    if axis is not None:
        lead = list(range(axis, axis + len(picks)))
        g = call_op("transpose", [g], axes=lead + [i for i in range(len(_shape(g))) if i not in lead])
    g = call_op("reshape", [g], newshape=[n] + rows[1:])
    zero = call_op("full", [_like(0.0, g)], shape=rows)
    back = call_op("scatter_nd", [zero, indices, g], mode="add")
    if axis is None:
        return [call_op("reshape_like", [back, x]), None]
    order = list(range(1, axis + 1)) + [0] + list(range(axis + 1, len(dims)))
    return [call_op("transpose", [back], axes=order), None]


def _inside(indices: RelayExpr, extent: int, mode: str) -> RelayExpr:
    last = const(extent, "int64")
    if mode == "clip":
        return call_op("clip", [indices], a_min=0.0, a_max=float(extent - 1))
    if mode == "wrap":
        return call_op("floor_mod", [indices, last])
    return call_op("where", [indices < const(0, "int64"), indices + last, indices])


@register_gradient("gather")
def _gather(call: Call, g: RelayExpr) -> Any:
    x, indices = call.args
    zero = call_op("zeros_like", [x])
    return [call_op("scatter_elements", [zero, indices, g], axis=call.attrs.axis, reduction="add"), None]


@register_gradient("gather_nd")
def _gather_nd(call: Call, g: RelayExpr) -> Any:
    if call.attrs.batch_dims:
        raise error.UnsupportedError("gather_nd has no gradient with batch_dims")
    x, indices = call.args
    return [call_op("scatter_nd", [call_op("zeros_like", [x]), indices, g], mode="add"), None]


# ---- products ----


def _product(name: str, a: RelayExpr, b: RelayExpr, ta: bool, tb: bool) -> RelayExpr:
    return call_op(name, [a, b], transpose_a=ta, transpose_b=tb)


def _product_rule(name: str) -> Rule:
    def rule(call: Call, g: RelayExpr) -> Any:
        a, b, ta, tb = call.args[0], call.args[1], call.attrs.transpose_a, call.attrs.transpose_b
        da = _product(name, b, g, tb, True) if ta else _product(name, g, b, False, not tb)
        db = _product(name, g, a, True, ta) if tb else _product(name, a, g, not ta, False)
        return [_sum_to(da, a), _sum_to(db, b)]

    return rule


RULES["nn.matmul"] = _product_rule("nn.matmul")
RULES["nn.batch_matmul"] = _product_rule("nn.batch_matmul")


@register_gradient("nn.dense")
def _dense(call: Call, g: RelayExpr) -> Any:
    x, w = call.args
    dims, units = _shape(x), _shape(w)[0]
    rows = call_op("reshape", [x], newshape=[-1, dims[-1]])
    flat = call_op("reshape", [g], newshape=[-1, units])
    dx = _product("nn.matmul", flat, w, False, False)
    return [call_op("reshape_like", [dx, x]), _product("nn.matmul", flat, rows, True, False)]


@register_gradient("nn.bias_add")
def _bias_add(call: Call, g: RelayExpr) -> Any:
    return [g, call_op("sum", [g], axis=[call.attrs.axis], exclude=True)]


# ---- convolutions and pools ----


def _sides(padding: Sequence[int], dims: int) -> List[List[int]]:
    """[before, after] of each spatial axis."""
    p = [int(i) for i in padding]
    p = p * dims if len(p) == 1 else p
    p = p + p if len(p) == dims else p
    return [[p[i], p[dims + i]] for i in range(dims)]


def _every(value: Any, dims: int) -> List[int]:
    value = [int(v) for v in value]
    return value * dims if len(value) == 1 else value


def _plain_layout(call: Call, layout: str, kernel: str) -> None:
    a = call.attrs
    if (
        a.get("data_layout", a.get("layout")) != layout
        or a.get("kernel_layout", kernel) != kernel
        or a.get("out_layout")
    ):
        raise error.UnsupportedError(
            f"{call.op.name} has a gradient in the layout {layout} (weights {kernel}); "
            "relay.transform.ConvertLayout brings it there"
        )


def _conv_rule(dims: int) -> Rule:
    spatial = "DHW"[3 - dims :]

    def rule(call: Call, g: RelayExpr) -> Any:
        _plain_layout(call, "NC" + spatial, "OI" + spatial)
        x, w, a = call.args[0], call.args[1], call.attrs
        size, taps = _shape(x)[2:], _shape(w)[2:]
        strides, dilation = _every(a.strides, dims), _every(a.dilation, dims)
        sides = _sides(a.padding, dims)
        left = [(n + sum(s) - d * (k - 1) - 1) % t for n, s, d, k, t in zip(size, sides, dilation, taps, strides)]
        flat = [s[0] for s in sides] + [s[1] for s in sides]
        dx = call_op(
            f"nn.conv{dims}d_transpose", [g, w], strides=strides, padding=flat, dilation=dilation, groups=a.groups,
            channels=_shape(x)[1], kernel_size=taps, output_padding=left,
        )  # fmt: skip
        return [dx, _conv_weight(x, w, g, dims, strides, flat, dilation, int(a.groups))]

    return rule


def _conv_weight(
    x: RelayExpr, w: RelayExpr, g: RelayExpr, dims: int, strides: Any, padding: Any, dilation: Any, groups: int
) -> RelayExpr:
    """A convolution too: of the data, batch and channels exchanged, with the gradient as its weight, strides and
    dilation exchanged; each group of channels with its own part of the gradient."""
    data, out = _shape(x), _shape(g)
    batch, each, spatial = data[0], data[1] // groups, list(range(3, 3 + dims))
    apart = call_op("reshape", [x], newshape=[batch, groups, each] + data[2:])
    turned = call_op("transpose", [apart], axes=[2, 1, 0] + spatial)
    rows = call_op("reshape", [turned], newshape=[each, groups * batch] + data[2:])
    kernel = call_op("transpose", [g], axes=[1, 0] + [i - 1 for i in spatial])
    found = call_op(
        f"nn.conv{dims}d", [rows, kernel], strides=dilation, padding=padding, dilation=strides, groups=groups,
        channels=out[1], kernel_size=out[2:],
    )  # fmt: skip
    found = call_op("transpose", [found], axes=[1, 0] + [i - 1 for i in spatial])
    return call_op("strided_slice", [found], begin=[0] * (2 + dims), end=_shape(w))


for _dims in (1, 2, 3):
    RULES[f"nn.conv{_dims}d"] = _conv_rule(_dims)


@register_gradient("nn.conv2d_transpose")
def _conv2d_transpose(call: Call, g: RelayExpr) -> Any:
    """What a convolution's gradient is, with data and gradient exchanged."""
    _plain_layout(call, "NCHW", "IOHW")
    x, w, a = call.args[0], call.args[1], call.attrs
    strides, dilation, sides = _every(a.strides, 2), _every(a.dilation, 2), _sides(a.padding, 2)
    flat = [s[0] for s in sides] + [s[1] for s in sides]
    dx = call_op("nn.conv2d", [g, w], strides=strides, padding=flat, dilation=dilation, groups=a.groups)
    end = _shape(x)
    dx = call_op("strided_slice", [dx], begin=[0] * 4, end=end)
    return [dx, _conv_weight(g, w, x, 2, strides, flat, dilation, int(a.groups))]


@register_gradient("nn.max_pool2d")
def _max_pool2d(call: Call, g: RelayExpr) -> Any:
    """To the first of the largest elements of each window."""
    _plain_layout(call, "NCHW", "")
    x, a = call.args[0], call.attrs
    pair = call_op(
        "nn.max_pool_with_argmax", [x], pool_size=a.pool_size, strides=a.strides, dilation=a.dilation,
        padding=a.padding, ceil_mode=a.ceil_mode,
    )  # fmt: skip
    zero = call_op("full", [_like(0.0, g)], shape=[int(np.prod(_shape(x)))])
    places, flat = (call_op("reshape", [t], newshape=[-1]) for t in (pair[1], g))
    back = call_op("scatter_elements", [zero, places, flat], axis=0, reduction="add")
    return [call_op("reshape_like", [back, x])]


@register_gradient("nn.avg_pool2d")
def _avg_pool2d(call: Call, g: RelayExpr) -> Any:
    """Spread over the windows: a transposed convolution with ones, of what falls to each element."""
    _plain_layout(call, "NCHW", "")
    x, a = call.args[0], call.attrs
    n, c, *size = _shape(x)
    out = _shape(g)[2:]
    pool, strides, dilation, sides = (
        _every(a.pool_size, 2),
        _every(a.strides, 2),
        _every(a.dilation, 2),
        _sides(a.padding, 2),
    )
    shares = np.ones(out)
    for i in range(2):
        counts = []
        for o in range(out[i]):
            at = o * strides[i] - sides[i][0] + np.arange(pool[i]) * dilation[i]
            low, high = (-sides[i][0], size[i] + sides[i][1]) if a.count_include_pad else (0, size[i])
            counts.append(max(int(((at >= low) & (at < high)).sum()), 1))
        shares /= np.asarray(counts).reshape([-1, 1] if i == 0 else [1, -1])
    each = call_op("reshape", [g * const(shares.astype(g.checked_type.dtype))], newshape=[n * c, 1] + out)
    reach = [(out[i] - 1) * strides[i] + (pool[i] - 1) * dilation[i] + 1 for i in range(2)]
    ones = const(np.ones([1, 1] + pool, g.checked_type.dtype))
    whole = call_op(
        "nn.conv2d_transpose", [each, ones], strides=strides, dilation=dilation, channels=1, kernel_size=pool
    )
    width = [0, 0, 0, 0]
    for i in range(2):
        width += [-sides[i][0], size[i] + sides[i][0] - reach[i]]
    return [call_op("reshape_like", [call_op("nn.pad", [whole, _like(0.0, g)], pad_width=width), x])]


@register_gradient("nn.global_avg_pool2d")
def _global_avg_pool2d(call: Call, g: RelayExpr) -> Any:
    _plain_layout(call, "NCHW", "")
    x = call.args[0]
    return [call_op("broadcast_to_like", [g, x]) * (1.0 / int(np.prod(_shape(x)[2:])))]


@register_gradient("nn.global_max_pool2d")
def _global_max_pool2d(call: Call, g: RelayExpr) -> Any:
    _plain_layout(call, "NCHW", "")
    x = call.args[0]
    chosen = call_op("equal", [x, call]).astype(x.checked_type.dtype)
    return [g * chosen / call_op("sum", [chosen], axis=[2, 3], keepdims=True)]


# ---- normalizations, losses ----


@register_gradient("nn.batch_norm")
def _batch_norm(call: Call, gs: Sequence[RelayExpr]) -> Any:
    """With the statistics that are given, as the operator itself has it."""
    x, gamma, beta, mean, var = call.args
    a, rank = call.attrs, len(call.args[0].checked_type.shape)
    axis = int(a.axis) % rank
    shape = [-1 if i == axis else 1 for i in range(rank)]
    gamma_, mean_, var_ = (call_op("reshape", [t], newshape=shape) for t in (gamma, mean, var))
    scale = _u("rsqrt", var_ + float(a.epsilon))
    g, normal = gs[0], (x - mean_) * scale
    weighted = g * gamma_ if a.scale else g

    def total(t: RelayExpr) -> RelayExpr:
        return call_op("sum", [t], axis=[axis], exclude=True)

    dvar = total(weighted * normal * scale * scale) * -0.5
    return [
        weighted * scale,
        total(g * normal) if a.scale else None,
        total(g) if a.center else None,
        -total(weighted * scale) + gs[1],
        dvar + gs[2],
    ]


@register_gradient("nn.layer_norm")
def _layer_norm(call: Call, g: RelayExpr) -> Any:
    x, gamma, _ = call.args
    a, rank = call.attrs, len(call.args[0].checked_type.shape)
    axis = int(a.axis) % rank

    def mean(t: RelayExpr) -> RelayExpr:
        return call_op("mean", [t], axis=[axis], keepdims=True)

    far = x - mean(x)
    scale = _u("rsqrt", mean(far * far) + float(a.epsilon))
    normal = far * scale
    wide = call_op("reshape", [gamma], newshape=[-1 if i == axis else 1 for i in range(rank)])
    weighted = g * wide if a.scale else g
    dx = scale * (weighted - mean(weighted) - normal * mean(weighted * normal))
    total = [call_op("sum", [t], axis=[axis], exclude=True) for t in (g * normal, g)]
    return [dx, total[0] if a.scale else None, total[1] if a.center else None]


@register_gradient("nn.dropout")
def _dropout(call: Call, gs: Sequence[RelayExpr]) -> Any:
    return [gs[0]]


@register_gradient("nn.nll_loss")
def _nll_loss(call: Call, g: RelayExpr) -> Any:
    predictions, targets, weights = call.args
    a, dims = call.attrs, _shape(call.args[0])
    ignored = const(int(a.ignore_index), targets.checked_type.dtype)
    counts = call_op("not_equal", [targets, ignored]).astype(g.checked_type.dtype)
    weight = call_op("take", [weights, targets], axis=[0]) * counts
    share = weight / call_op("sum", [weight]) * g if a.reduction == "mean" else weight * g
    hot = call_op("one_hot", [targets, _like(1.0, g), _like(0.0, g)], depth=dims[1], axis=1, dtype=g.checked_type.dtype)
    return [-(hot * call_op("expand_dims", [share], axis=1, num_newaxis=1)), None, None]
