"""Rows for the operators that networks are made of."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy as np

from .graph import (
    FLOATS,
    Graph,
    RelayExpr,
    TensorType,
    call_op,
    cast,
    const,
    dim,
    dt,
    expand,
    full,
    rank,
    reshape,
    shape,
    static,
)
from .rows_reduce import reduce
from .rows_shape import cut
from .table import refuse, row


def _each(v: Sequence[int], n: int) -> List[int]:
    """One number for each axis."""
    v = list(v) if isinstance(v, (list, tuple)) else [v]
    return v * n if len(v) == 1 else v


def _both(padding: Sequence[int], n: int) -> List[int]:
    return _each(padding, n) * 2


# ---- products


@row(
    "aten.convolution",
    "aten._convolution",
    "aten.conv_transpose2d.input",
    "aten.conv_transpose1d",
    "aten.conv_transpose3d.input",
)
def _convolution(
    g: Graph, x: RelayExpr, weight: RelayExpr, bias: Optional[RelayExpr], stride: Any, padding: Any, *rest: Any
) -> RelayExpr:
    if "conv_transpose" in g.node.target._schema.name:
        output_padding, groups, dilation = rest
        transposed = True
    else:
        dilation, transposed, output_padding, groups = rest[:4]
    n = rank(weight) - 2
    single = rank(x) == n + 1
    if single:
        x = reshape(x, [1] + shape(x))
    attrs = {
        "strides": _each(stride, n),
        "padding": _both(padding, n),
        "dilation": _each(dilation, n),
        "groups": groups,
    }
    if transposed:
        made = call_op(f"nn.conv{n}d_transpose", [x, weight], output_padding=_each(output_padding, n), **attrs)
    else:
        made = call_op(f"nn.conv{n}d", [x, weight], **attrs)
    if bias is not None:
        made = call_op("nn.bias_add", [made, bias], axis=1)
    return reshape(made, shape(made)[1:]) if single else made


@row("aten.linear")
def _linear(g: Graph, x: RelayExpr, weight: RelayExpr, bias: Optional[RelayExpr] = None) -> RelayExpr:
    if rank(weight) == 1:
        made = reduce("sum", call_op("multiply", [x, weight]), [rank(x) - 1], False)
        return made if bias is None else call_op("add", [made, bias])
    single = rank(x) == 1
    made = call_op("nn.dense", [reshape(x, [1] + shape(x)) if single else x, weight])
    if bias is not None:
        made = (
            call_op("nn.bias_add", [made, bias], axis=rank(made) - 1)
            if rank(bias) == 1
            else call_op("add", [made, bias])
        )
    return reshape(made, shape(made)[1:]) if single else made


@row("aten.mm", "aten.bmm", "aten.matmul", "aten.mv", "aten.dot", "aten.vdot")
def _matmul(g: Graph, a: RelayExpr, b: RelayExpr, *_rest: Any) -> RelayExpr:
    return product(g, a, b)


def product(g: Graph, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """a @ b."""
    d = dt(a)
    row_, column = rank(a) == 1, rank(b) == 1
    if row_:
        a = reshape(a, [1] + shape(a))
    if column:
        b = reshape(b, shape(b) + [1])
    if rank(b) == 2:
        made = call_op("nn.matmul", [a, b])
    else:
        made = _batched(a, b)
    if row_ or column:
        keep = shape(made)
        if column:
            keep = keep[:-1]
        if row_:
            keep = keep[:-2] + keep[-1:] if not column else keep[:-1]
        made = reshape(made, keep)
    return cast(made, d)


def _batched(a: RelayExpr, b: RelayExpr) -> RelayExpr:
    k = max(rank(a), rank(b)) - 2
    sa, sb = [1] * (k + 2 - rank(a)) + shape(a), [1] * (k + 2 - rank(b)) + shape(b)
    ta = [1] * (k + 2 - rank(a)) + list(a.checked_type.shape)
    tb = [1] * (k + 2 - rank(b)) + list(b.checked_type.shape)
    lead = [y if isinstance(x, int) and x == 1 else x for x, y in zip(sa[:k], sb[:k])]
    if k != 1 or any(
        isinstance(x, int) != isinstance(y, int) or (isinstance(x, int) and x != y) for x, y in zip(ta[:k], tb[:k])
    ):
        a = _folded(expand(reshape(a, sa), lead + sa[k:]), k)
        b = _folded(expand(reshape(b, sb), lead + sb[k:]), k)
    made = call_op("nn.batch_matmul", [a, b], transpose_a=False, transpose_b=False)
    return made if k == 1 else reshape(made, lead + [sa[k], sb[k + 1]])


def _folded(x: RelayExpr, k: int) -> RelayExpr:
    """The first k axes as one."""
    if k == 1:
        return x
    tail = shape(x)[k:]
    if all(isinstance(d, int) for d in shape(x)):
        return reshape(x, [int(np.prod(shape(x)[:k], dtype=np.int64))] + tail)
    n = shape(x)[0]
    for d in shape(x)[1:k]:
        n = call_op("multiply", [cast(n, "int64"), cast(d, "int64")])
    return reshape(x, [n] + tail)


def _weighted(x: RelayExpr, factor: Any) -> RelayExpr:
    if factor == 1:
        return x
    return call_op("multiply", [x, cast(factor, dt(x))])


@row("aten.addmm", "aten.baddbmm", "aten.addmv", "aten.addbmm")
def _addmm(g: Graph, bias: RelayExpr, a: RelayExpr, b: RelayExpr, beta: Any = 1, alpha: Any = 1) -> RelayExpr:
    made = product(g, a, b)
    if g.node.target._schema.name == "aten::addbmm":
        made = reduce("sum", made, [0], False)
    made = _weighted(made, alpha)
    return made if beta == 0 else call_op("add", [made, _weighted(bias, beta)])


@row("aten.einsum")
def _einsum(g: Graph, equation: str, operands: List[RelayExpr], *_rest: Any) -> RelayExpr:
    from .graph import Tuple

    return call_op("einsum", [Tuple([cast(o, g.out_dtype) for o in operands])], equation=equation.replace(" ", ""))


@row("aten.scaled_dot_product_attention", "aten._scaled_dot_product_flash_attention_for_cpu")
def _attention(g: Graph, q: RelayExpr, k: RelayExpr, v: RelayExpr, *rest: Any) -> Any:
    gqa = False
    if g.node.target._schema.name.endswith("for_cpu"):
        dropout, causal, mask, scale = rest
    else:
        mask, dropout, causal, scale, gqa = (list(rest) + [None, 0.0, False, None, False])[:5]
    if dropout:
        refuse("dropout; call model.eval() before exporting")
    head = dim(q, -1)
    if scale is None:
        if not isinstance(head, int):
            return refuse("heads of unknown size")
        scale = 1.0 / head**0.5 if head else 1.0
    if not isinstance(scale, (int, float)):
        return refuse("a scale that is not a number")
    want, ranks = shape(q)[:-1] + [dim(v, -1)], rank(q)
    if gqa and rank(q) >= 3:
        times = dim(q, -3) // dim(k, -3)
        k, v = (call_op("repeat", [t], repeats=times, axis=rank(t) - 3) if times > 1 else t for t in (k, v))
    s, t = dim(q, -2), dim(k, -2)
    if causal and not (isinstance(s, int) and s == t):
        if not isinstance(s, int) or not isinstance(t, int):
            return refuse("causal attention between lengths that are not known; give a mask")
        mask, causal = const(np.tril(np.ones((s, t), bool))), False
    if 0 in q.checked_type.shape or 0 in k.checked_type.shape:
        return full(0.0, want, dt(q))
    q, k, v = _in_four([q, k, v])
    args = [q, k, v]
    if mask is not None:
        m = mask
        while rank(m) < 4:
            m = call_op("expand_dims", [m], axis=0)
        if rank(m) > 4:
            m = _folded(expand(m, want[:-2] + [s, t]), rank(m) - 3)
        args.append(m if dt(m) == "bool" else cast(m, dt(q)))
    made = call_op(
        "nn.attention", args, scale=float(scale), causal=bool(causal), guard="empty" if mask is not None else "none"
    )
    made = made if ranks == 4 else reshape(made, want)
    if not g.node.target._schema.name.endswith("for_cpu"):
        return made
    return [made, _log_sums(g, args, float(scale), bool(causal)) if g.wants(1) else None]


def _log_sums(g: Graph, args: List[RelayExpr], scale: float, causal: bool) -> RelayExpr:
    """The logarithm of the sum that attention divides each row by."""
    q, k = args[:2]
    scores = call_op("multiply", [_batched(q, call_op("transpose", [k], axes=[0, 1, 3, 2])), cast(scale, dt(q))])
    if len(args) > 3:
        m = args[3]
        scores = call_op("where", [m, scores, cast(-np.inf, dt(q))]) if dt(m) == "bool" else call_op("add", [scores, m])
    if causal:
        s, t = static(scores, "attention")[2:]
        scores = call_op("where", [const(np.tril(np.ones((s, t), bool))), scores, cast(-np.inf, dt(q))])
    return cast(reshape(reduce("logsumexp", scores, [3], False), g.sizes(g.out[1].shape)), "float32")


def _in_four(tensors: List[RelayExpr]) -> List[RelayExpr]:
    """(batch, heads, length, size), whatever there was before."""
    most = max(rank(t) for t in tensors)
    if most > 4:
        lead: List[Any] = []
        for axis in range(most - 2):
            found = [dim(t, axis) for t in tensors if rank(t) == most]
            lead.append(next((d for d in found if not (isinstance(d, int) and d == 1)), 1))
        tensors = [expand(t, lead + shape(t)[-2:]) for t in tensors]
        return [_folded(t, most - 3) for t in tensors]
    made = []
    for t in tensors:
        while rank(t) < 4:
            t = call_op("expand_dims", [t], axis=0)
        made.append(t)
    for axis in (0, 1):
        found = [dim(t, axis) for t in made]
        if any(isinstance(d, int) and d == 1 for d in found) and not all(isinstance(d, int) and d == 1 for d in found):
            n = next(d for d in found if not (isinstance(d, int) and d == 1))
            made = [expand(t, [n if i == axis else d for i, d in enumerate(shape(t))]) for t in made]
    return made


# ---- normalizations


@row("aten._softmax", "aten.softmax.int", "aten._safe_softmax", "aten.special_softmax")
def _softmax(g: Graph, x: RelayExpr, axis: int, *_rest: Any) -> RelayExpr:
    x = cast(x, g.out_dtype)
    if not rank(x):
        return full(1.0, [], g.out_dtype)
    made = call_op("nn.softmax", [x], axis=axis % rank(x))
    if "safe" in g.node.target._schema.name:
        empty = reduce("all", call_op("equal", [x, cast(-np.inf, dt(x))]), [axis % rank(x)], True)
        made = call_op("where", [empty, cast(0.0, dt(x)), made])
    return made


@row("aten._log_softmax", "aten.log_softmax.int")
def _log_softmax(g: Graph, x: RelayExpr, axis: int, *_rest: Any) -> RelayExpr:
    x = cast(x, g.out_dtype)
    return call_op("nn.log_softmax", [x], axis=axis % rank(x)) if rank(x) else full(0.0, [], g.out_dtype)


def _ones(n: Sequence[int], dtype: str) -> RelayExpr:
    return full(1.0, n, dtype)


@row("aten.layer_norm", "aten.native_layer_norm")
def _layer_norm(
    g: Graph, x: RelayExpr, over: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_rest: Any
) -> Any:
    k = len(over)
    d = dt(x)
    gamma = weight if weight is not None else _ones(list(over), d)
    beta = bias if bias is not None else full(0.0, list(over), d)
    if any(not isinstance(n, int) for n in over):
        return refuse("a shape that is not known")
    data = x
    if k > 1:
        n = int(np.prod(over))
        data, gamma, beta = reshape(x, shape(x)[:-k] + [n]), reshape(gamma, [n]), reshape(beta, [n])
    made = call_op("nn.layer_norm", [data, cast(gamma, d), cast(beta, d)], axis=-1, epsilon=float(eps))
    made = reshape(made, shape(x)) if k > 1 else made
    if g.node.target._schema.name == "aten::layer_norm":
        return made
    axes = list(range(rank(x) - k, rank(x)))
    mean = reduce("mean", x, axes, True)
    off = call_op("subtract", [x, mean])
    var = reduce("mean", call_op("multiply", [off, off]), axes, True)
    return [made, mean, call_op("rsqrt", [call_op("add", [var, cast(float(eps), d)])])]


@row("aten.group_norm", "aten.native_group_norm")
def _group_norm(g: Graph, x: RelayExpr, *rest: Any) -> Any:
    native = g.node.target._schema.name == "aten::native_group_norm"
    if native:
        weight, bias, _n, _c, _hw, groups, eps = rest
    else:
        groups, weight, bias, eps = (list(rest) + [None, None, 1e-5])[:4] if len(rest) < 4 else rest[:4]
    c = dim(x, 1)
    d = dt(x)
    if not isinstance(c, int):
        return refuse("a number of channels that is not known")
    gamma = weight if weight is not None else _ones([c], d)
    beta = bias if bias is not None else full(0.0, [c], d)
    data = reshape(x, shape(x) + [1]) if rank(x) == 2 else x
    made = call_op("nn.group_norm", [data, gamma, beta], num_groups=groups, axis=1, epsilon=float(eps))
    made = reshape(made, shape(x)) if rank(x) == 2 else made
    if not native:
        return made
    if 0 in x.checked_type.shape:
        return [made, full(0.0, g.sizes(g.out[1].shape), d), full(0.0, g.sizes(g.out[2].shape), d)]
    parts = (
        call_op("reshape", [x], newshape=[g.sizes(g.out[1].shape)[0], groups, -1])
        if isinstance(dim(x, 0), int)
        else None
    )
    if parts is None:
        return [made, None, None]
    mean = reduce("mean", parts, [2], True)
    off = call_op("subtract", [parts, mean])
    var = reduce("mean", call_op("multiply", [off, off]), [2], False)
    return [
        made,
        reshape(mean, g.sizes(g.out[1].shape)),
        call_op("rsqrt", [call_op("add", [var, cast(float(eps), d)])]),
    ]


@row("aten._native_batch_norm_legit_no_training", "aten.cudnn_batch_norm", "aten.batch_norm", "aten.native_batch_norm")
def _batch_norm(g: Graph, x: RelayExpr, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
    name = g.node.target._schema.name
    if name == "aten::_native_batch_norm_legit_no_training":
        training, eps = False, rest[1]
    else:
        training, eps = rest[0], rest[2]
    if training or mean is None:
        axes = [i for i in range(rank(x)) if i != 1]
        mean = reduce("mean", x, axes, False)
        off = call_op("subtract", [x, reshape(mean, [-1 if i == 1 else 1 for i in range(rank(x))])])
        var = reduce("mean", call_op("multiply", [off, off]), axes, False)
    d = dt(x)
    c = dim(x, 1)
    gamma = weight if weight is not None else _ones([c], d)
    beta = bias if bias is not None else full(0.0, [c], d)
    made = call_op("nn.batch_norm", [x] + [cast(t, d) for t in (gamma, beta, mean, var)], axis=1, epsilon=float(eps))[0]
    if name == "aten::batch_norm":
        return made
    if not training:
        return [made, full(0.0, g.sizes(g.out[1].shape), d), full(0.0, g.sizes(g.out[2].shape), d)]
    return [made, mean, call_op("rsqrt", [call_op("add", [var, cast(float(eps), d)])])]


# ---- pooling


def _windows(g: Graph, x: RelayExpr, n: int) -> tuple:
    """Data with a batch axis, and whether it had none."""
    single = rank(x) == n + 1
    return (reshape(x, [1] + shape(x)) if single else x), single


def _max_pool(n: int, indices: bool) -> Any:
    def f(
        g: Graph, x: RelayExpr, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil: bool = False
    ) -> Any:
        data, single = _windows(g, x, n)
        kernel = _each(kernel, n)
        attrs = {
            "pool_size": kernel,
            "strides": _each(stride, n) if stride else kernel,
            "padding": _both(padding, n),
            "dilation": _each(dilation, n),
            "ceil_mode": ceil,
        }
        if not indices:
            made = call_op(f"nn.max_pool{n}d", [data], **attrs)
            return reshape(made, g.out_shape) if single or ceil else made
        value = call_op(f"nn.max_pool{n}d", [data], **attrs)
        if not g.wants(1):
            return [reshape(value, g.out_shape) if single else value, None]
        at = call_op("nn.max_pool_with_argmax", [data], **attrs)[1]
        inside = 1
        for i in range(n):
            d = dim(data, 2 + i)
            inside = inside * d if isinstance(d, int) else refuse("places in a tensor of unknown size")
        at = call_op("floor_mod", [at, cast(inside, "int64")])
        return [reshape(value, g.out_shape), reshape(at, g.out_shape)] if single else [value, at]

    return f


for _n in (1, 2, 3):
    row(f"aten.max_pool{_n}d")(_max_pool(_n, False))
    row(f"aten.max_pool{_n}d_with_indices")(_max_pool(_n, True))


def _avg_pool(n: int) -> Any:
    def f(
        g: Graph,
        x: RelayExpr,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil: bool = False,
        inside: bool = True,
        divisor: Any = None,
    ) -> RelayExpr:
        data, single = _windows(g, x, n)
        d = dt(data)
        kernel = _each(kernel, n)
        attrs = {
            "pool_size": kernel,
            "strides": _each(stride, n) if stride else kernel,
            "padding": _both(padding, n),
            "dilation": [1] * n,
            "ceil_mode": ceil,
            "count_include_pad": inside,
        }
        if d not in FLOATS:
            data = cast(data, "float64")
        if divisor is not None:  # a sum: what lies outside counts as 0, so it may be put there
            widths = [0, 0, 0, 0]
            for i, (k, step, edge) in enumerate(zip(kernel, attrs["strides"], _each(padding, n))):
                inside_, out = dim(data, 2 + i), g.out_shape[i - n]
                if not isinstance(inside_, int) or not isinstance(out, int):
                    return refuse("a divisor with sizes that are not known")
                widths += [edge, max((out - 1) * step + k - inside_ - edge, 0)]
            data = call_op("nn.pad", [data, cast(0, dt(data))], pad_width=widths, pad_mode="constant")
            attrs.update(padding=[0] * (2 * n), ceil_mode=False)
        made = call_op(f"nn.avg_pool{n}d", [data], **attrs)
        if divisor is not None:
            made = call_op("multiply", [made, cast(float(np.prod(kernel)) / divisor, dt(made))])
        made = cast(made, d)
        return reshape(made, g.out_shape) if single else made

    return f


for _n in (1, 2, 3):
    row(f"aten.avg_pool{_n}d")(_avg_pool(_n))


def _adaptive(kind: str, n: int) -> Any:
    def f(g: Graph, x: RelayExpr, size: Any) -> Any:
        data, single = _windows(g, x, n)
        size = _each(size, n)
        made = call_op(f"nn.adaptive_{kind}_pool{n}d", [data], output_size=size)
        made = reshape(made, shape(made)[1:]) if single else made
        if kind == "avg":
            return made
        return [made, _adaptive_places(data, size, n, g) if g.wants(1) else None]

    return f


def _adaptive_places(x: RelayExpr, size: List[int], n: int, g: Graph) -> RelayExpr:
    """Where each largest element is: window by window, since they are of several sizes."""
    extents = [dim(x, 2 + i) for i in range(n)]
    if not all(isinstance(e, int) for e in extents):
        return refuse("places in a tensor of unknown size")
    places = np.arange(int(np.prod(extents))).reshape(extents)
    cells = []
    for cell in np.ndindex(*size):
        window = x
        inside = []
        for i, (c, s, e) in enumerate(zip(cell, size, extents)):
            inside.append(slice(c * e // s, -(-(c + 1) * e // s)))
            window = cut(window, 2 + i, inside[-1].start, inside[-1].stop)
        flat = (
            reshape(window, shape(x)[:2] + [-1])
            if all(isinstance(d, int) for d in shape(x))
            else refuse("unknown sizes")
        )
        at = cast(call_op("argmax", [flat], axis=[2], keepdims=False), "int64")
        cells.append(call_op("take", [const(places[tuple(inside)].reshape(-1).astype("int64")), at], axis=0))
    from .graph import Tuple

    return reshape(call_op("stack", [Tuple(cells)], axis=2), g.sizes(g.out[1].shape))


for _n in (1, 2, 3):
    row(f"aten.adaptive_avg_pool{_n}d", *([f"aten._adaptive_avg_pool{_n}d"] if _n > 1 else []))(_adaptive("avg", _n))
    row(f"aten.adaptive_max_pool{_n}d")(_adaptive("max", _n))


# ---- images


def _resize(g: Graph, x: RelayExpr, scales: Any, **how: Any) -> RelayExpr:
    n = rank(x) - 2
    axes = list(range(2, n + 2))
    size = g.out_shape[2:]
    d = dt(x)
    data = cast(x, "float32") if d not in FLOATS else x
    before = [dim(x, a) for a in axes]
    if not scales and all(isinstance(v, int) for v in [*size, *before]):
        scales = None
    if scales and all(
        isinstance(b, int) and isinstance(s, int) and b * f == s for b, s, f in zip(before, size, scales)
    ):
        scales = None
    if scales and all(f is not None for f in scales):
        made = call_op("image.resize", [data], scales=[float(f) for f in scales], axes=axes, **how)
    elif all(isinstance(v, int) for v in size):
        layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[n]
        made = call_op(f"image.resize{n}d", [data], size=size, layout=layout, **how)
    else:
        return refuse("sizes that are not known")
    return cast(made, d)


def _nearest(exact: bool) -> Any:
    def f(g: Graph, x: RelayExpr, _size: Any, *scales: Any) -> RelayExpr:
        how = (
            {"coordinate_transformation_mode": "half_pixel", "rounding_method": "round_prefer_ceil"}
            if exact
            else {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
        )
        return _resize(g, x, _factors(scales), method="nearest_neighbor", **how)

    return f


def _factors(scales: Sequence[Any]) -> Any:
    flat = [s for v in scales for s in (v if isinstance(v, (list, tuple)) else [v])]
    return flat if flat and all(s is not None for s in flat) else None


def _smooth(method: str) -> Any:
    def f(g: Graph, x: RelayExpr, _size: Any, corners: bool, *scales: Any) -> RelayExpr:
        mode = "align_corners" if corners else "half_pixel"
        return _resize(
            g,
            x,
            None if corners else _factors(scales),
            method=method,
            coordinate_transformation_mode=mode,
            cubic_alpha=-0.75,
        )

    return f


for _n in (1, 2, 3):
    row(f"aten.upsample_nearest{_n}d")(_nearest(False))
    row(f"aten._upsample_nearest_exact{_n}d")(_nearest(True))
row("aten.upsample_linear1d")(_smooth("linear"))
row("aten.upsample_bilinear2d")(_smooth("linear"))
row("aten.upsample_trilinear3d")(_smooth("linear"))
row("aten.upsample_bicubic2d")(_smooth("cubic"))


@row("aten.grid_sampler_2d", "aten.grid_sampler_3d", "aten.grid_sampler")
def _grid_sample(g: Graph, x: RelayExpr, grid: RelayExpr, mode: int, padding: int, corners: bool) -> RelayExpr:
    method = ["bilinear", "nearest", "bicubic"][mode]
    where = ["zeros", "border", "reflection"][padding]
    layout = "NCHW" if rank(x) == 4 else "NCDHW"
    return call_op(
        "image.grid_sample",
        [x, grid],
        method=method,
        layout=layout,
        padding_mode=where,
        align_corners=corners,
        grid_last=True,
    )


@row("aten.im2col")
def _im2col(g: Graph, x: RelayExpr, kernel: Any, dilation: Any, padding: Any, stride: Any) -> RelayExpr:
    single = rank(x) == 3
    data = reshape(x, [1] + shape(x)) if single else x
    made = call_op(
        "nn.im2col",
        [data],
        kernel_size=_each(kernel, 2),
        dilation=_each(dilation, 2),
        padding=_both(padding, 2),
        strides=_each(stride, 2),
    )
    return reshape(made, g.out_shape) if single else made


@row("aten.col2im")
def _col2im(g: Graph, x: RelayExpr, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> RelayExpr:
    single = rank(x) == 2
    data = reshape(x, [1] + shape(x)) if single else x
    made = call_op(
        "nn.col2im",
        [data],
        image_size=list(size),
        kernel_size=_each(kernel, 2),
        dilation=_each(dilation, 2),
        padding=_both(padding, 2),
        strides=_each(stride, 2),
    )
    return reshape(made, g.out_shape)


# ---- torchvision's own


@row("torchvision.nms")
def _nms(g: Graph, boxes: RelayExpr, scores: RelayExpr, threshold: float) -> RelayExpr:
    """Boxes by falling score that no better one covers by more than the threshold."""
    from . import sizes

    b = reshape(boxes, [1] + shape(boxes))
    s = call_op("expand_dims", [call_op("expand_dims", [scores], axis=0)], axis=0)
    made = call_op(
        "vision.all_class_non_max_suppression",
        [b, s, const(2**31 - 1, "int64"), const(threshold, "float32"), const(-np.inf, "float32")],
        output_format="onnx",
        center_point_box=0,
    )
    kept = call_op("take", [made[0], const(2, "int64")], axis=1)
    return call_op(
        "dyn.strided_slice",
        [cast(kept, "int64"), sizes.vector([0]), cast(made[1], "int64"), sizes.vector([1])],
        axes=[0],
    )


@row("torchvision.roi_align")
def _roi_align(
    g: Graph, x: RelayExpr, rois: RelayExpr, scale: float, h: int, w: int, ratio: int, aligned: bool
) -> RelayExpr:
    return call_op(
        "vision.roi_align",
        [x, rois],
        pooled_size=[h, w],
        spatial_scale=float(scale),
        sample_ratio=ratio,
        half_pixel=aligned,
    )


@row("torchvision.roi_pool")
def _roi_pool(g: Graph, x: RelayExpr, rois: RelayExpr, scale: float, h: int, w: int) -> List[Any]:
    return [call_op("vision.roi_pool", [x, rois], pooled_size=[h, w], spatial_scale=float(scale)), None]


@row("torchvision.deform_conv2d")
def _deform_conv2d(
    g: Graph,
    x: RelayExpr,
    weight: RelayExpr,
    offset: RelayExpr,
    mask: RelayExpr,
    bias: RelayExpr,
    sh: int,
    sw: int,
    ph: int,
    pw: int,
    dh: int,
    dw: int,
    groups: int,
    parts: int,
    use_mask: bool,
) -> RelayExpr:
    args = [x, offset, weight] + ([mask] if use_mask else [])
    made = call_op(
        "nn.deformable_conv2d",
        args,
        strides=[sh, sw],
        padding=[ph, pw, ph, pw],
        dilation=[dh, dw],
        deformable_groups=parts,
        groups=groups,
    )
    return call_op("nn.bias_add", [made, bias], axis=1)


__all__ = ["TensorType", "cut", "static"]
